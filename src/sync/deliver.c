/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/deliver.h"

#include "core/error.h"
#include "core/fault.h"

#include <string.h>

/* One of the caller's arrays: elements needed and given, and where they are. */
struct deliver_array {
    const char *name;
    const void *data;
    size_t need;
    size_t capacity;
    size_t stride;
    size_t element_bytes;
};

#define DELIVER_ARRAYS 4u
#define DELIVER_STRIDE_MAX 65536u /* as for every array of structs: more was never set */

static inline size_t deliver_stride(const struct convoy_sync_result *result)
{
    return result->reduced_stride != 0 ? result->reduced_stride : sizeof(struct convoy_sync_reduced);
}

static void deliver_list(const struct convoy_grid *grid, const struct convoy_sync_result *result,
                         struct deliver_array arrays[DELIVER_ARRAYS])
{
    size_t cells = (size_t)grid->slots * grid->inner;
    size_t width = grid->own.count;
    arrays[0] = (struct deliver_array){"table", result->table, cells * width, result->table_capacity, 8, 8};
    arrays[1] = (struct deliver_array){"first", result->first, grid->slots * width, result->first_capacity, 8, 8};
    arrays[2] = (struct deliver_array){"reduced", result->reduced, width, result->reduced_capacity,
                                       deliver_stride(result), sizeof(struct convoy_sync_reduced)};
    arrays[3] = (struct deliver_array){"presence", result->presence, cells, result->presence_capacity, 1, 1};
}

/* The last element's gap is the caller's. */
static size_t deliver_bytes(const struct deliver_array *array)
{
    return array->need != 0 ? (array->need - 1) * array->stride + array->element_bytes : 0;
}

static bool deliver_overlap(const struct deliver_array *left, const struct deliver_array *right)
{
    uintptr_t left_start = (uintptr_t)left->data;
    uintptr_t right_start = (uintptr_t)right->data;
    return left_start < right_start + deliver_bytes(right) && right_start < left_start + deliver_bytes(left) &&
           left->data != NULL && right->data != NULL;
}

static int32_t deliver_check_stride(const struct convoy_sync_result *result, struct convoy_error *error)
{
    size_t stride = deliver_stride(result);
    if (stride < sizeof(struct convoy_sync_reduced)) {
        return convoy_error_set(error, CONVOY_TOO_OLD, "result.reduced_stride is %zu, release 1.0 has %zu; set it to sizeof",
                                stride, sizeof(struct convoy_sync_reduced));
    }
    if (stride > DELIVER_STRIDE_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "result.reduced_stride is %zu, allowed are %zu to %u", stride,
                                sizeof(struct convoy_sync_reduced), DELIVER_STRIDE_MAX);
    }
    return CONVOY_OK;
}

int32_t convoy_deliver_check(const struct convoy_grid *grid, const struct convoy_sync_result *result,
                             struct convoy_error *error)
{
    struct deliver_array arrays[DELIVER_ARRAYS];
    int32_t status = deliver_check_stride(result, error);
    if (status != CONVOY_OK) {
        return status;
    }
    deliver_list(grid, result, arrays);
    for (uint32_t i = 0; i < DELIVER_ARRAYS; i++) {
        if (arrays[i].data != NULL && arrays[i].capacity < arrays[i].need) {
            return convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "result.%s_capacity is %zu, needed are %zu",
                                    arrays[i].name, arrays[i].capacity, arrays[i].need);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (deliver_overlap(&arrays[i], &arrays[j])) {
                return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                        "result.%s (at %p) and result.%s (at %p) overlap", arrays[j].name,
                                        arrays[j].data, arrays[i].name, arrays[i].data);
            }
        }
    }
    return CONVOY_OK;
}

/* One row in the caller's columns; member EMPTY, absent or inactive: the fallback. */
static void deliver_row(const struct convoy_grid *grid, const struct convoy_gather *gather, uint32_t member,
                        uint8_t presence, int64_t *values)
{
    const int64_t *row = presence == CONVOY_PRESENT ? gather->rows + (size_t)member * grid->width : NULL;
    for (uint32_t i = 0; i < grid->own.count; i++) {
        bool is_carried = row != NULL && grid->common[i] != CONVOY_GRID_CUT;
        int64_t fallback = CONVOY_MUTATED(fallback_zero) ? 0 : grid->own.columns[i].fallback;
        values[i] = is_carried ? row[grid->common[i]] : fallback;
    }
}

/* Adds the first member of a data-parallel rank to the reductions. */
static void deliver_derive(struct convoy_derive *derives, const int64_t *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        convoy_derive_add(&derives[i], &values[i], 1, 1);
    }
}

static void deliver_slot(const struct convoy_grid *grid, const struct convoy_gather *gather,
                         const struct convoy_placement *placement, uint32_t slot, struct convoy_derive *derives,
                         struct convoy_sync_result *result_out)
{
    int64_t values[CONVOY_SYNC_COLUMNS_MAX];
    uint32_t width = grid->own.count;
    for (uint32_t position = 0; position < grid->inner; position++) {
        uint8_t presence;
        size_t cell = (size_t)slot * grid->inner + position;
        uint32_t member = convoy_placement_cell(placement, gather, slot, position, &presence);
        deliver_row(grid, gather, member, presence, values);
        if (result_out->presence != NULL) {
            result_out->presence[cell] = presence;
        }
        if (result_out->table != NULL) {
            memcpy((char *)result_out->table + 8 * cell * width, values, 8 * (size_t)width);
        }
        if (position == 0 && result_out->first != NULL) {
            memcpy((char *)result_out->first + 8 * (size_t)slot * width, values, 8 * (size_t)width);
        }
        if (position == 0 && presence == CONVOY_PRESENT && result_out->reduced != NULL) {
            deliver_derive(derives, values, width);
        }
    }
}

bool convoy_deliver_is_whole(const struct convoy_grid *grid, const struct convoy_gather *gather)
{
    return grid->is_whole && !gather->form.has_slot && gather->mask.is_full &&
           gather->present == grid->member_count && grid->member_count == grid->slots * grid->inner;
}

static inline void value_store(char *to, int64_t value, uint64_t agreed)
{
    memcpy(to, &value, sizeof value);
    memcpy(to + sizeof value, &agreed, sizeof agreed); /* with the reserved field behind it */
}

/* MIN and MAX, which most columns are, here; the others where they are at home. Outputs may have any alignment. */
static void deliver_reduced(const struct convoy_grid *grid, const struct convoy_gather *gather, char *to, size_t to_stride)
{
    const struct convoy_schema_column *column = grid->own.columns;
    const struct convoy_schema_column *end = column + grid->width;
    const int64_t *values = gather->rows;
    size_t stride = (size_t)grid->inner * grid->width;
    size_t last = stride * (grid->slots - 1);
    for (; column != end; column++, values++, to += to_stride) {
        int64_t value = values[last];
        if (column->reduction == CONVOY_REDUCE_MAX) {
            for (size_t at = last; at != 0;) {
                at -= stride;
                value = values[at] > value ? values[at] : value;
            }
            value_store(to, value, 1);
        } else if (column->reduction == CONVOY_REDUCE_MIN) {
            for (size_t at = last; at != 0;) {
                at -= stride;
                value = values[at] < value ? values[at] : value;
            }
            value_store(to, value, 1);
        } else {
            struct convoy_sync_reduced reduced = convoy_derive_column(column, values, stride, grid->slots);
            value_store(to, reduced.value, reduced.agreed);
        }
    }
}

void convoy_deliver_whole(const struct convoy_grid *grid, const struct convoy_gather *gather,
                          struct convoy_sync_result *result_out)
{
    size_t row = 8 * (size_t)grid->width;
    if (result_out->presence != NULL) {
        memset(result_out->presence, CONVOY_PRESENT, grid->member_count);
    }
    if (result_out->table != NULL) {
        memcpy(result_out->table, gather->rows, row * grid->member_count);
    }
    if (result_out->first != NULL && grid->inner == 1) {
        memcpy(result_out->first, gather->rows, row * grid->slots);
    } else {
        for (uint32_t slot = 0; result_out->first != NULL && slot < grid->slots; slot++) {
            const int64_t *values = gather->rows + (size_t)slot * grid->inner * grid->width;
            memcpy((char *)result_out->first + slot * row, values, row);
        }
    }
    if (result_out->reduced != NULL) {
        deliver_reduced(grid, gather, (char *)result_out->reduced, deliver_stride(result_out));
    }
}

static void deliver_each(const struct convoy_grid *grid, const struct convoy_gather *gather,
                         const struct convoy_placement *placement, struct convoy_sync_result *result_out)
{
    struct convoy_derive derives[CONVOY_SYNC_COLUMNS_MAX];
    for (uint32_t i = 0; i < grid->own.count; i++) {
        convoy_derive_begin(&derives[i], &grid->own.columns[i]);
    }
    for (uint32_t slot = 0; slot < grid->slots; slot++) {
        deliver_slot(grid, gather, placement, slot, derives, result_out);
    }
    for (uint32_t i = 0; i < grid->own.count && result_out->reduced != NULL; i++) {
        struct convoy_sync_reduced reduced = convoy_derive_end(&derives[i]);
        memcpy((char *)result_out->reduced + i * deliver_stride(result_out), &reduced, sizeof reduced);
    }
}

void convoy_deliver_write(const struct convoy_grid *grid, const struct convoy_gather *gather,
                          const struct convoy_placement *placement, struct convoy_sync_result *result_out)
{
    if (convoy_deliver_is_whole(grid, gather)) {
        convoy_deliver_whole(grid, gather, result_out);
    } else {
        deliver_each(grid, gather, placement, result_out);
    }
    result_out->mask_version = gather->mask.version;
    result_out->mask_skew = gather->mask.total - gather->mask.agreeing;
    result_out->width = grid->own.count;
}

int32_t convoy_deliver_conflict(const struct convoy_conflict *conflict, const struct convoy_gather *gather,
                                const int32_t *member_ids, uint64_t round, struct convoy_error *error)
{
    int32_t first = member_ids[conflict->first];
    int32_t second = member_ids[conflict->second];
    switch (conflict->kind) {
    case CONVOY_CONFLICT_MASK:
        return convoy_error_set_peer(error, CONVOY_DIVERGED, second, round,
                                     "round %llu: members %d and %d bring active masks of version %llu with different "
                                     "bits",
                                     (unsigned long long)round, first, second,
                                     (unsigned long long)gather->mask.version);
    case CONVOY_CONFLICT_RANK_SLOT:
        return convoy_error_set_peer(error, CONVOY_DIVERGED, second, round,
                                     "round %llu: members %d and %d are one data-parallel rank but name slots %u and "
                                     "%u",
                                     (unsigned long long)round, first, second, conflict->slot, conflict->second_slot);
    case CONVOY_CONFLICT_SLOT:
    case CONVOY_CONFLICT_NONE:
        break;
    }
    return convoy_error_set_peer(error, CONVOY_DIVERGED, second, round,
                                 "round %llu: members %d and %d both claim slot %u", (unsigned long long)round, first,
                                 second, conflict->slot);
}

void convoy_deliver_report(const struct convoy_conflict *conflict, const struct convoy_gather *gather,
                           const int32_t *member_ids, const struct convoy_member_report *row,
                           struct convoy_report *report_out)
{
    report_out->member_count = gather->form.member_count;
    size_t room = report_out->members != NULL ? report_out->member_capacity : 0;
    for (uint32_t i = 0; i < gather->form.member_count && i < room; i++) {
        struct convoy_member_report full = *row;
        full.index = i;
        full.rank = member_ids[i];
        full.condition = i == conflict->first || i == conflict->second          ? CONVOY_MEMBER_DIVERGED
                         : gather->presence[i] == CONVOY_PRESENT_LOST          ? CONVOY_MEMBER_LOST
                         : gather->presence[i] == CONVOY_PRESENT_ERROR         ? CONVOY_MEMBER_ERROR
                                                                               : CONVOY_MEMBER_HEARD;
        memcpy((char *)report_out->members + i * report_out->member_stride, &full, sizeof full);
    }
}
