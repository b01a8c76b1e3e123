/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline_swap.h"

#include "core/clock.h"

/* Requests that must be through before a member's next swap. */
static uint32_t swap_due(const struct convoy_pipeline_worker *worker)
{
    const struct convoy_pipeline_setup *setup = &worker->board->setup;
    uint32_t share = convoy_pipeline_shape_share(&setup->shape, worker->member, setup->request_count);
    return worker->swaps_begun == 0 ? share / 2 : share - share / 4;
}

static int32_t swap_begin(struct convoy_pipeline_worker *worker)
{
    const struct convoy_pipeline_setup *setup = &worker->board->setup;
    const char *path = worker->swaps_begun == 0 ? setup->swap : setup->plugin;
    worker->swaps_begun++;
    return convoy_swapper_start(&worker->swapper, path, &worker->error);
}

int32_t convoy_pipeline_swap_turn(struct convoy_pipeline_worker *worker)
{
    const struct convoy_pipeline_setup *setup = &worker->board->setup;
    if (setup->swap_count == 0) {
        return CONVOY_OK;
    }
    uint64_t now_ns = convoy_now_ns();
    convoy_swapper_turn(&worker->swapper, worker->turned_ns != 0 ? now_ns - worker->turned_ns : 0);
    worker->turned_ns = now_ns;
    bool is_free = convoy_swapper_finish(&worker->swapper, false);
    bool is_due = worker->swaps_begun < setup->swap_count && atomic_load(&worker->self->done) >= swap_due(worker);
    return is_free && is_due ? swap_begin(worker) : CONVOY_OK;
}

int32_t convoy_pipeline_swap_end(struct convoy_pipeline_worker *worker)
{
    int32_t status = CONVOY_OK;
    (void)convoy_swapper_finish(&worker->swapper, true);
    while (status == CONVOY_OK && worker->swaps_begun < worker->board->setup.swap_count) {
        status = swap_begin(worker);
        (void)convoy_swapper_finish(&worker->swapper, true);
    }
    return status;
}
