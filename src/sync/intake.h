/* SPDX-License-Identifier: Apache-2.0 */
/* From a call to what is sent: checks its arguments, then captures them. Pure; the call is full-size. */
#ifndef CONVOY_SYNC_INTAKE_H
#define CONVOY_SYNC_INTAKE_H

#include "sync/grid.h"
#include "sync/row.h"

/* INVALID_ARGUMENT: unknown critical flag or policy bit, row_stride from 1 to 7, active_count without active, slot
 * outside the table, reserved not 0. An error row is checked for its flags and policy only. */
int32_t convoy_intake_check(const struct convoy_grid *grid, const struct convoy_sync_call *call,
                            struct convoy_error *error);

/* Writes the payload of a checked call that is no error row; room for convoy_row_bytes_max. Returns its length. */
size_t convoy_intake_encode(const struct convoy_grid *grid, const struct convoy_sync_call *call, uint32_t own_index,
                            uint8_t *payload);

#endif
