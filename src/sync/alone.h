/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers with one data-parallel rank: there is nobody to hear from, so no round is made. The members of that rank
 * (tp x cp) bring the same row by contract, and only the first is read. Used by sync.c alone.
 */
#ifndef CONVOY_SYNC_ALONE_H
#define CONVOY_SYNC_ALONE_H

#include "round/engine.h"
#include "sync/gather.h"

#define CONVOY_ALONE_SLOT 2u /* low byte of such an operation; the engine's have 1 */

struct convoy_alone {
    uint8_t *payload; /* row_bytes_max */
    uint32_t count; /* may wrap */
    uint32_t salt;  /* see convoy_runtime_salt */
    convoy_operation operation; /* the last one, 0 = none */
    int32_t status;
    int32_t error_reason;
    struct convoy_round_summary summary;
};

/* NO_MEMORY. `alone` is then safe to fini. */
int32_t convoy_alone_init(struct convoy_alone *alone, size_t payload_bytes, uint32_t salt, struct convoy_error *error);
void convoy_alone_fini(struct convoy_alone *alone);

/* Whether calls of this group stay local, unless their policy asks for a round. */
static inline bool convoy_alone_is_usual(const struct convoy_grid *grid)
{
    return grid->member_count > 1 && grid->member_count == grid->inner && grid->slots == 1;
}

/* Whether a call of this group stays local. */
bool convoy_alone_applies(const struct convoy_grid *grid, const struct convoy_sync_call *call);

/* Whether an operation value is a local one. */
static inline bool convoy_alone_owns(convoy_operation operation)
{
    return (operation & 0xff) == CONVOY_ALONE_SLOT;
}

/* Makes the merged state as a round with this one contribution would. payload_bytes: of alone->payload, filled by the
 * caller; is_error: an error row instead. */
convoy_operation convoy_alone_start(struct convoy_alone *alone, struct convoy_gather *gather,
                                    const struct convoy_sync_call *call, size_t payload_bytes, bool is_error);

#endif
