/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/swapper.h"

#include "core/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void convoy_swapper_init(struct convoy_swapper *swapper, convoy_loader *loader, uint64_t timeout_ns,
                         struct convoy_swap_tally *tally)
{
    *swapper = (struct convoy_swapper){.loader = loader, .timeout_ns = timeout_ns, .tally = tally};
    tally->error = (struct convoy_error)CONVOY_ERROR_INIT;
}

static void *swapper_main(void *user)
{
    struct convoy_swapper *swapper = user;
    swapper->status = convoy_loader_swap(swapper->loader, swapper->path, swapper->timeout_ns, &swapper->result,
                                         &swapper->error);
    atomic_store_explicit(&swapper->is_done, true, memory_order_release);
    return NULL;
}

int32_t convoy_swapper_start(struct convoy_swapper *swapper, const char *path, struct convoy_error *error)
{
    if (swapper->is_running) {
        return convoy_error_set(error, CONVOY_BUSY, "a swap to %.150s is under way", swapper->path);
    }
    if (strlen(path) >= sizeof swapper->path) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "a path of %zu bytes, allowed are %zu", strlen(path),
                                sizeof swapper->path - 1);
    }
    memcpy(swapper->path, path, strlen(path) + 1);
    swapper->error = (struct convoy_error)CONVOY_ERROR_INIT;
    atomic_store(&swapper->is_done, false);
    int failed = pthread_create(&swapper->thread, NULL, swapper_main, swapper);
    if (failed != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, failed, "starting the thread that swaps");
    }
    swapper->is_running = true;
    return CONVOY_OK;
}

static void swapper_note(struct convoy_swapper *swapper)
{
    struct convoy_swap_tally *tally = swapper->tally;
    if (swapper->status != CONVOY_OK) {
        if (tally->failures++ == 0) {
            tally->error = swapper->error;
            tally->error.status = swapper->status;
        }
        return;
    }
    const struct convoy_swap_result *result = &swapper->result;
    const struct convoy_file_info *file = &convoy_loader_info(swapper->loader)->file;
    tally->count++;
    tally->pause_ns_max = result->pause_ns > tally->pause_ns_max ? result->pause_ns : tally->pause_ns_max;
    tally->total_ns_max = result->total_ns > tally->total_ns_max ? result->total_ns : tally->total_ns_max;
    (void)snprintf(tally->release, sizeof tally->release, "%.31s", file->release);
    (void)snprintf(tally->build_id, sizeof tally->build_id, "%.63s", file->build_id);
}

bool convoy_swapper_finish(struct convoy_swapper *swapper, bool must_wait)
{
    if (!swapper->is_running) {
        return true;
    }
    if (!must_wait && !atomic_load_explicit(&swapper->is_done, memory_order_acquire)) {
        return false;
    }
    (void)pthread_join(swapper->thread, NULL);
    swapper->is_running = false;
    swapper_note(swapper);
    return true;
}
