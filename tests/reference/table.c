/* SPDX-License-Identifier: Apache-2.0 */
#include "reference/table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define MODE_COLUMN 5u
#define MODE_IDLE 4

struct expectation {
    char *text;
    size_t capacity;
};

static int differs(const struct expectation *where, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int differs(const struct expectation *where, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(where->text, where->capacity, format, args);
    va_end(args);
    return -1;
}

static int check_rows(const struct reference_log *shape, const struct reference_record *const *inputs,
                      const struct reference_record *result, const struct expectation *where)
{
    uint32_t shard = shape->tp * shape->cp;
    for (uint32_t rank = 0; rank < shape->dp * shard; rank++) {
        if (result->presence[rank] != 0) {
            return differs(where, "presence of rank %u is %u, expected 0", rank, result->presence[rank]);
        }
        for (uint32_t column = 0; column < REFERENCE_COLUMNS; column++) {
            int64_t wanted = inputs[rank]->row[column];
            if (result->table[rank][column] != wanted) {
                return differs(where, "table row %u column %u is %" PRId64 ", expected %" PRId64, rank, column,
                               result->table[rank][column], wanted);
            }
            if (rank % shard == 0 && result->first[rank / shard][column] != wanted) {
                return differs(where, "first row %u column %u is %" PRId64 ", expected %" PRId64, rank / shard, column,
                               result->first[rank / shard][column], wanted);
            }
        }
    }
    return 0;
}

/* The forward mode that all ranks with work share; idle when nobody has work; agreed says whether there is one. */
static struct reference_reduced expected_mode(const struct reference_log *shape,
                                              const struct reference_record *const *inputs)
{
    struct reference_reduced mode = {.value = MODE_IDLE, .agreed = 0};
    for (uint32_t dp = 0; dp < shape->dp; dp++) {
        int64_t value = inputs[dp * shape->tp * shape->cp]->row[MODE_COLUMN];
        if (value == MODE_IDLE) {
            continue;
        }
        if (mode.value != MODE_IDLE && mode.value != value) {
            mode.agreed = 0;
            return mode;
        }
        mode = (struct reference_reduced){.value = value, .agreed = 1};
    }
    return mode;
}

static int64_t expected_extreme(const struct reference_log *shape, const struct reference_record *const *inputs,
                                uint32_t column, int is_max)
{
    int64_t extreme = inputs[0]->row[column];
    for (uint32_t dp = 1; dp < shape->dp; dp++) {
        int64_t value = inputs[dp * shape->tp * shape->cp]->row[column];
        if (is_max ? value > extreme : value < extreme) {
            extreme = value;
        }
    }
    return extreme;
}

static int check_reduced(const struct reference_log *shape, const struct reference_record *const *inputs,
                         const struct reference_record *result, const struct expectation *where)
{
    /* Votes by MIN, the extend flag and the prefix length by MAX; token counts are lists and are not reduced. */
    static const struct {
        uint32_t column;
        int is_max;
    } columns[] = {{2, 0}, {3, 1}, {4, 0}, {6, 0}, {7, 1}};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        uint32_t column = columns[i].column;
        int64_t wanted = expected_extreme(shape, inputs, column, columns[i].is_max);
        if (result->reduced[column].value != wanted) {
            return differs(where, "reduced column %u is %" PRId64 ", expected %" PRId64, column,
                           result->reduced[column].value, wanted);
        }
    }
    struct reference_reduced mode = expected_mode(shape, inputs);
    const struct reference_reduced *got = &result->reduced[MODE_COLUMN];
    if (got->agreed != mode.agreed || (mode.agreed && got->value != mode.value)) {
        return differs(where, "mode is %" PRId64 " agreed %" PRIu64 ", expected %" PRId64 " agreed %" PRIu64,
                       got->value, got->agreed, mode.value, mode.agreed);
    }
    return 0;
}

int reference_table_check(const struct reference_log *shape, const struct reference_record *const *inputs,
                          const struct reference_record *result, char *text, size_t capacity)
{
    const struct expectation where = {.text = text, .capacity = capacity};
    uint64_t votes_and = inputs[0]->votes;
    uint64_t votes_or = inputs[0]->votes;
    for (uint32_t rank = 1; rank < shape->dp * shape->tp * shape->cp; rank++) {
        votes_and &= inputs[rank]->votes;
        votes_or |= inputs[rank]->votes;
    }
    if (result->votes_and != votes_and || result->votes_or != votes_or) {
        return differs(&where, "votes are %" PRIu64 " and %" PRIu64 ", expected %" PRIu64 " and %" PRIu64,
                       result->votes_and, result->votes_or, votes_and, votes_or);
    }
    return check_rows(shape, inputs, result, &where) != 0 ? -1 : check_reduced(shape, inputs, result, &where);
}
