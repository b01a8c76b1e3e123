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

static void derive_add_counted(struct convoy_derive *derive, int64_t value)
{
    bool is_first = derive->counted == 0;
    derive->counted++;
    derive->sum += value;
    if (is_first) {
        derive->value = value;
        return;
    }
    switch (derive->column->reduction) {
    case CONVOY_REDUCE_MIN:
        derive->value = value < derive->value ? value : derive->value;
        break;
    case CONVOY_REDUCE_MAX:
        derive->value = value > derive->value ? value : derive->value;
        break;
    case CONVOY_REDUCE_ALL_EQUAL:
        derive->is_unequal = derive->is_unequal || value != derive->value;
        break;
    default: /* NONE, SUM */
        break;
    }
}

void convoy_derive_add(struct convoy_derive *derive, int64_t value)
{
    bool is_ignored = (derive->column->flags & CONVOY_COLUMN_HAS_IGNORED) != 0 && value == derive->column->ignored;
    if (!is_ignored) {
        derive_add_counted(derive, value);
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
