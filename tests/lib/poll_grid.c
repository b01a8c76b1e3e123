/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/poll_grid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void grid_record(void *user, const struct convoy_poll_record *record)
{
    const struct poll_grid_recorder *recorder = user;
    for (uint32_t i = 0; i < record->list_count; i++) {
        const struct convoy_poll_record_list *list = &record->lists[i];
        uint32_t at = recorder->log->count++;
        if (at >= POLL_GRID_LOG_MAX || list->count > POLL_GRID_VECTOR_MAX) {
            continue;
        }
        struct poll_grid_reduction *reduction = &recorder->log->reductions[at];
        *reduction = (struct poll_grid_reduction){
            .group = recorder->group, .status = record->status, .count = list->count};
        memcpy(reduction->input, list->input, list->count);
        if (list->output != NULL) {
            memcpy(reduction->output, list->output, list->count);
        }
    }
}

static struct convoy_poll *poll_make(struct fake_group *group, uint32_t index, struct poll_grid_recorder *recorder)
{
    struct convoy_group_options options = {.blob_bytes_max = 4096};
    struct convoy_poll_options poll = {.engine = fake_group_engine(group, index), .group = &options,
                                      .record = grid_record, .record_user = recorder};
    struct convoy_poll *made = NULL;
    assert_int_equal(convoy_poll_open(&poll, &made, NULL), CONVOY_OK);
    return made;
}

static void rank_open(struct poll_grid *grid, uint32_t t, uint32_t c)
{
    uint32_t rank = t * grid->c_count + c;
    for (uint32_t level = 0; level < 2; level++) {
        grid->recorders[rank][level] = (struct poll_grid_recorder){&grid->log[rank], level + 1};
    }
    grid->rank[rank].poll = poll_make(grid->first[c], t, &grid->recorders[rank][0]);
    grid->second_poll[rank] = poll_make(grid->second[t], c, &grid->recorders[rank][1]);
    poll_rank_reset(&grid->rank[rank]);
}

struct poll_grid *poll_grid_create(uint32_t t_count, uint32_t c_count)
{
    struct poll_grid *grid = calloc(1, sizeof *grid);
    grid->t_count = t_count;
    grid->c_count = c_count;
    for (uint32_t c = 0; c < c_count; c++) {
        grid->first[c] = fake_group_create(t_count, 4096);
    }
    for (uint32_t t = 0; t < t_count; t++) {
        grid->second[t] = fake_group_create(c_count, 4096);
        for (uint32_t c = 0; c < c_count; c++) {
            rank_open(grid, t, c);
        }
    }
    return grid;
}

void poll_grid_destroy(struct poll_grid *grid)
{
    for (uint32_t i = 0; i < grid->t_count * grid->c_count; i++) {
        convoy_poll_close(i % 2 == 0 ? grid->rank[i].poll : grid->second_poll[i]); /* in either order */
        convoy_poll_close(i % 2 == 0 ? grid->second_poll[i] : grid->rank[i].poll);
    }
    for (uint32_t c = 0; c < grid->c_count; c++) {
        fake_group_destroy(grid->first[c]);
    }
    for (uint32_t t = 0; t < grid->t_count; t++) {
        fake_group_destroy(grid->second[t]);
    }
    free(grid);
}

int32_t poll_grid_start(struct poll_grid *grid, uint32_t i)
{
    struct poll_rank *rank = &grid->rank[i];
    return convoy_two_level_start(rank->poll, grid->second_poll[i], &rank->call, &rank->operation, &rank->error);
}

int32_t poll_grid_test(struct poll_grid *grid, uint32_t i)
{
    struct poll_rank *rank = &grid->rank[i];
    return convoy_two_level_test(rank->poll, rank->operation, &rank->result, &rank->error);
}

void poll_grid_run(struct poll_grid *grid, int32_t status)
{
    uint32_t count = grid->t_count * grid->c_count;
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(poll_grid_start(grid, i), CONVOY_OK);
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)poll_grid_test(grid, i);
    }
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(poll_grid_test(grid, i), status);
    }
}
