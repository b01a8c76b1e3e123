/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DP sync gather of one group: a row per member and step through the round engine. Structs are full-size. One thread at
 * a time per group, as with the engine. Nothing is allocated after open.
 *
 * At group_open: schema_load, grid_check, grid_encode, one bootstrap exchange, grid_agree, engine_open with
 * partial_bytes_max >= convoy_gather_partial_bytes_max(grid), sync_open.
 */
#ifndef CONVOY_SYNC_SYNC_H
#define CONVOY_SYNC_SYNC_H

#include "round/engine.h"
#include "sync/gather.h"

struct convoy_sync;

struct convoy_sync_options {
    struct convoy_engine *engine;   /* keeps until close */
    const struct convoy_grid *grid; /* copies; has columns */
    const int32_t *member_ids;      /* keeps until close; [grid->member_count] */
    uint32_t own_index;
    uint32_t blob_bytes_max;
    uint32_t salt; /* of operations that are no engine's, see convoy_runtime_salt */
};

/* LIMIT: a row of so many columns can be longer than blob_bytes_max; the text has both. */
int32_t convoy_sync_check_row(uint32_t width, uint32_t member_count, uint32_t blob_bytes_max,
                              struct convoy_error *error);

/* LIMIT: as convoy_sync_check_row, of the columns that all members have. NO_MEMORY. */
int32_t convoy_sync_open(const struct convoy_sync_options *options, struct convoy_sync **sync_out,
                         struct convoy_error *error);

/* The engine runs no operation of this any more. NULL is a no-op. */
void convoy_sync_close(struct convoy_sync *sync);

/* Captures the call and contributes it. INVALID_ARGUMENT with POST_ERROR: the peers were told, and *operation_out is
 * the error row's operation, to be finished with test or wait (0: it could not be posted). */
int32_t convoy_sync_start(struct convoy_sync *sync, const struct convoy_sync_call *call,
                          convoy_operation *operation_out, struct convoy_error *error);

/* Statuses as in convoy/sync.h. The result is written on OK, except result_out->report (full-size), which is filled
 * when the round ended in another way. */
int32_t convoy_sync_test(struct convoy_sync *sync, convoy_operation operation, struct convoy_sync_result *result_out,
                         struct convoy_error *error);
int32_t convoy_sync_wait(struct convoy_sync *sync, convoy_operation operation, uint64_t timeout_ns,
                         struct convoy_sync_result *result_out, struct convoy_error *error);

/* start and wait; the result's arrays are checked before anything is sent. After a refused
 * call with POST_ERROR it also waits for the end of the error row's round. */
int32_t convoy_sync_gather(struct convoy_sync *sync, const struct convoy_sync_call *call, uint64_t timeout_ns,
                           struct convoy_sync_result *result_out, struct convoy_error *error);

#endif
