/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/poll_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct poll_ranks *poll_ranks_create(uint32_t count, uint32_t blob_bytes, const struct convoy_poll_faults *faults)
{
    struct convoy_group_options group = {.blob_bytes_max = blob_bytes != 0 ? blob_bytes : 16384,
                                         .poll_faults = faults};
    struct poll_ranks *ranks = calloc(1, sizeof *ranks);
    ranks->count = count;
    ranks->group = fake_group_create(count, group.blob_bytes_max);
    for (uint32_t i = 0; i < count; i++) {
        struct convoy_poll_options options = {.engine = fake_group_engine(ranks->group, i), .group = &group};
        assert_int_equal(convoy_poll_open(&options, &ranks->rank[i].poll, NULL), CONVOY_OK);
        poll_rank_reset(&ranks->rank[i]);
    }
    return ranks;
}

void poll_ranks_destroy(struct poll_ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->count; i++) {
        convoy_poll_close(ranks->rank[i].poll);
    }
    fake_group_destroy(ranks->group);
    free(ranks);
}

void poll_rank_reset(struct poll_rank *rank)
{
    memset(rank->lists, 0, sizeof rank->lists);
    memset(rank->list_results, 0, sizeof rank->list_results);
    memset(rank->states, 0xa5, sizeof rank->states);
    rank->call = (struct convoy_poll_call){.struct_size = sizeof rank->call, .lists = rank->lists};
    rank->report = (struct convoy_report){.struct_size = sizeof rank->report};
    rank->result = (struct convoy_poll_result){
        .struct_size = sizeof rank->result,
        .lists = rank->list_results,
        .list_capacity = CONVOY_POLL_LISTS_MAX,
        .report = &rank->report,
    };
    rank->error = (struct convoy_error){.struct_size = sizeof rank->error, .rank = -1};
    for (uint32_t i = 0; i < CONVOY_POLL_LISTS_MAX; i++) {
        rank->list_results[i].states = rank->states[i];
        rank->list_results[i].states_capacity = POLL_ENTRIES_MAX;
        rank->list_results[i].outcomes = rank->outcomes[i];
        rank->list_results[i].outcome_stride = sizeof rank->outcomes[i][0];
        rank->list_results[i].outcome_capacity = 64;
    }
}

struct convoy_poll_list *poll_rank_add(struct poll_rank *rank, const uint8_t *states, const uint64_t *keys,
                                       size_t count)
{
    struct convoy_poll_list *list = &rank->lists[rank->call.list_count++];
    list->count = count;
    list->states = states;
    list->keys = keys;
    list->flags = keys != NULL ? CONVOY_POLL_KEYED : 0;
    return list;
}

void poll_ranks_run(struct poll_ranks *ranks, int32_t status)
{
    for (uint32_t i = 0; i < ranks->count; i++) {
        struct poll_rank *rank = &ranks->rank[i];
        assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &rank->operation, &rank->error), CONVOY_OK);
    }
    for (uint32_t i = 0; i < ranks->count; i++) {
        struct poll_rank *rank = &ranks->rank[i];
        int32_t ended = convoy_poll_test(rank->poll, rank->operation, &rank->result, &rank->error);
        assert_int_equal(ended, status);
    }
}
