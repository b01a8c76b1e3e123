/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of sync, shared by sync.c and quick.c. Nothing else includes it. */
#ifndef CONVOY_SYNC_SYNC_PARTS_H
#define CONVOY_SYNC_SYNC_PARTS_H

#include "round/quick.h"
#include "sync/alone.h"
#include "sync/placement.h"
#include "sync/sync.h"

#include <string.h>

enum { CONVOY_SYNC_RESULT_WORDS = 9 };

struct convoy_sync {
    /* What a short round touches, in few cache lines. */
    struct convoy_engine *engine;
    int64_t *rows;      /* gather's */
    int64_t *own_row;   /* in them */
    uint32_t width;     /* grid's */
    uint32_t own_index;
    convoy_operation operation; /* last one published here; the group's others are no gathers */
    uint64_t checked[CONVOY_SYNC_RESULT_WORDS]; /* arrays, capacities and the stride of the last result that passed the check */
    struct convoy_quick quick; /* of a plain round that filled the whole table (quick.c); its end is not touched */

    const int32_t *member_ids;
    struct convoy_grid grid;
    struct convoy_gather gather;
    struct convoy_placement placement;
    struct convoy_alone alone;
    struct convoy_round_header header; /* all but the policy */
    int64_t ended_row[CONVOY_SYNC_COLUMNS_MAX]; /* what was contributed to a short round that ended the whole way */
};

_Static_assert(offsetof(struct convoy_sync_result, report) - offsetof(struct convoy_sync_result, table) ==
                   CONVOY_SYNC_RESULT_WORDS * sizeof(uint64_t),
               "the arrays of a result are four pairs of words, and one has a stride");

/* How a call returns that saw the end of its round: result and error, or the report. */
int32_t convoy_sync_end(struct convoy_sync *sync, convoy_operation operation, int32_t status,
                        const struct convoy_round_summary *summary, struct convoy_sync_result *result_out,
                        struct convoy_error *error);

/* Whether the result's arrays will do. Those of the call before did, and usually it is them again. */
int32_t convoy_sync_check_room_any(struct convoy_sync *sync, const struct convoy_sync_result *result,
                                   struct convoy_error *error);

static inline bool convoy_sync_has_room(const struct convoy_sync *sync, const struct convoy_sync_result *result)
{
    uint64_t words[CONVOY_SYNC_RESULT_WORDS];
    uint64_t different = 0;
    memcpy(words, (const char *)result + offsetof(struct convoy_sync_result, table), sizeof words);
    for (uint32_t i = 0; i < CONVOY_SYNC_RESULT_WORDS; i++) {
        different |= words[i] ^ sync->checked[i];
    }
    return different == 0;
}

#endif
