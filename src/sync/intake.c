/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/intake.h"

#include "core/error.h"
#include "sync/gather.h"

#include <string.h>

#define INTAKE_STRIDE_MAX (UINT32_C(1) << 30)
#define INTAKE_POLICIES (CONVOY_SYNC_ERRORS_AS_PRESENCE | CONVOY_SYNC_WORLD | CONVOY_SYNC_EXCHANGE)

static int32_t intake_check_row(const struct convoy_grid *grid, const struct convoy_sync_call *call,
                                struct convoy_error *error)
{
    if (call->row_stride != 0 && (call->row_stride < sizeof(int64_t) || call->row_stride > INTAKE_STRIDE_MAX)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "call.row_stride is %zu, allowed are 0 and 8 to 1073741824 bytes", call->row_stride);
    }
    if (call->active == NULL && call->active_count != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "call.active is NULL for active_count %zu",
                                call->active_count);
    }
    if ((call->policy & CONVOY_SYNC_WORLD) != 0 && call->slot >= grid->slots && call->slot != CONVOY_GATHER_NO_SLOT) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "call.slot is %u, allowed are 0 to %u and 0xffffffff",
                                call->slot, grid->slots - 1);
    }
    return CONVOY_OK;
}

int32_t convoy_intake_check(const struct convoy_grid *grid, const struct convoy_sync_call *call,
                            struct convoy_error *error)
{
    if ((call->critical_flags & ~CONVOY_CALL_ERROR_ROW) != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "call.critical_flags is 0x%x, allowed are 0x%x",
                                call->critical_flags, CONVOY_CALL_ERROR_ROW);
    }
    if ((call->policy & ~INTAKE_POLICIES) != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "call.policy is 0x%x, allowed are 0x%x", call->policy,
                                INTAKE_POLICIES);
    }
    if (call->reserved != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "call.reserved is %u, allowed is 0", call->reserved);
    }
    if ((call->critical_flags & CONVOY_CALL_ERROR_ROW) != 0) {
        return CONVOY_OK;
    }
    return intake_check_row(grid, call, error);
}

/* Own columns to carried ones; a row that is not given is the fallback. */
static void intake_take_values(const struct convoy_grid *grid, const struct convoy_sync_call *call, int64_t *values_out)
{
    size_t stride = call->row_stride != 0 ? call->row_stride : sizeof(int64_t);
    for (uint32_t i = 0; i < grid->own.count; i++) {
        if (grid->common[i] == CONVOY_GRID_CUT) {
            continue;
        }
        int64_t *value = &values_out[grid->common[i]];
        if (call->row == NULL) {
            *value = grid->own.columns[i].fallback;
        } else {
            memcpy(value, (const char *)call->row + i * stride, sizeof *value); /* any alignment */
        }
    }
}

__attribute__((noinline)) static size_t intake_encode_any(const struct convoy_grid *grid,
                                                          const struct convoy_sync_call *call, uint32_t own_index,
                                                          uint8_t *payload)
{
    int64_t values[CONVOY_SYNC_COLUMNS_MAX];
    struct convoy_mask mask;
    struct convoy_row_form form = {
        .width = grid->width,
        .member_count = grid->member_count,
        .has_slot = (call->policy & CONVOY_SYNC_WORLD) != 0,
    };
    intake_take_values(grid, call, values);
    convoy_mask_set(&mask, own_index, call->mask_version, call->active, call->active_count, grid->member_count);
    return convoy_row_encode(&form, values, call->slot, &mask, payload);
}

size_t convoy_intake_encode(const struct convoy_grid *grid, const struct convoy_sync_call *call, uint32_t own_index,
                            uint8_t *payload)
{
    bool is_plain = grid->is_whole && call->row != NULL && (call->row_stride == 0 || call->row_stride == 8) &&
                    call->active == NULL && call->mask_version == 0 && (call->policy & CONVOY_SYNC_WORLD) == 0;
    return is_plain ? convoy_row_put_shortest(call->row, grid->width, payload)
                    : intake_encode_any(grid, call, own_index, payload);
}
