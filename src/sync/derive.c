/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/derive.h"

void convoy_derive_begin(struct convoy_derive *derive, const struct convoy_schema_column *column)
{
    *derive = (struct convoy_derive){.column = column};
}

static int64_t derive_clamp(__int128 sum)
{
    if (sum > INT64_MAX) {
        return INT64_MAX;
    }
    return sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}

static void derive_add_min(struct convoy_derive *derive, const int64_t *values, size_t stride, uint32_t count)
{
    int64_t least = derive->counted != 0 ? derive->value : INT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        int64_t value = values[i * stride];
        least = value < least ? value : least;
    }
    derive->value = least;
    derive->counted += count;
}

static void derive_add_max(struct convoy_derive *derive, const int64_t *values, size_t stride, uint32_t count)
{
    int64_t most = derive->counted != 0 ? derive->value : INT64_MIN;
    for (uint32_t i = 0; i < count; i++) {
        int64_t value = values[i * stride];
        most = value > most ? value : most;
    }
    derive->value = most;
    derive->counted += count;
}

static void derive_add_sum(struct convoy_derive *derive, const int64_t *values, size_t stride, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        derive->sum += values[i * stride];
    }
    derive->counted += count;
}

static void derive_add_equal(struct convoy_derive *derive, const int64_t *values, size_t stride, uint32_t count)
{
    bool has_ignored = (derive->column->flags & CONVOY_COLUMN_HAS_IGNORED) != 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t value = values[i * stride];
        if (has_ignored && value == derive->column->ignored) {
            continue;
        }
        derive->value = derive->counted == 0 ? value : derive->value;
        derive->is_unequal = derive->is_unequal || value != derive->value;
        derive->counted++;
    }
}

/* The reduction is chosen once for all values: this is on the path of every step. */
void convoy_derive_add(struct convoy_derive *derive, const int64_t *values, size_t stride, uint32_t count)
{
    switch (derive->column->reduction) {
    case CONVOY_REDUCE_MIN:
        derive_add_min(derive, values, stride, count);
        break;
    case CONVOY_REDUCE_MAX:
        derive_add_max(derive, values, stride, count);
        break;
    case CONVOY_REDUCE_SUM:
        derive_add_sum(derive, values, stride, count);
        break;
    case CONVOY_REDUCE_ALL_EQUAL:
        derive_add_equal(derive, values, stride, count);
        break;
    default: /* NONE */
        break;
    }
}

struct convoy_sync_reduced convoy_derive_end(const struct convoy_derive *derive)
{
    const struct convoy_schema_column *column = derive->column;
    if (column->reduction == CONVOY_REDUCE_NONE) {
        return (struct convoy_sync_reduced){.value = 0, .agreed = 1};
    }
    if (derive->counted == 0) {
        bool has_ignored = (column->flags & CONVOY_COLUMN_HAS_IGNORED) != 0;
        return (struct convoy_sync_reduced){.value = has_ignored ? column->ignored : column->fallback, .agreed = 0};
    }
    if (column->reduction == CONVOY_REDUCE_SUM) {
        return (struct convoy_sync_reduced){.value = derive_clamp(derive->sum), .agreed = 1};
    }
    return (struct convoy_sync_reduced){.value = derive->value, .agreed = !derive->is_unequal};
}

/* MIN and MAX, which most columns are, without the detour over the state. */
struct convoy_sync_reduced convoy_derive_column(const struct convoy_schema_column *column, const int64_t *values,
                                                size_t stride, uint32_t count)
{
    int64_t value = values[0];
    if (column->reduction == CONVOY_REDUCE_NONE) {
        return (struct convoy_sync_reduced){.value = 0, .agreed = 1};
    }
    if (column->reduction == CONVOY_REDUCE_MIN) {
        for (uint32_t i = 1; i < count; i++) {
            value = values[i * stride] < value ? values[i * stride] : value;
        }
        return (struct convoy_sync_reduced){.value = value, .agreed = 1};
    }
    if (column->reduction == CONVOY_REDUCE_MAX) {
        for (uint32_t i = 1; i < count; i++) {
            value = values[i * stride] > value ? values[i * stride] : value;
        }
        return (struct convoy_sync_reduced){.value = value, .agreed = 1};
    }
    struct convoy_derive derive;
    convoy_derive_begin(&derive, column);
    convoy_derive_add(&derive, values, stride, count);
    return convoy_derive_end(&derive);
}
