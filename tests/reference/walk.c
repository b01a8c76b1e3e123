/* SPDX-License-Identifier: Apache-2.0 */
#include "reference/walk.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum reference_verdict reference_walk_wrong(const struct reference_walk *walk, uint32_t rank, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)fprintf(stderr, "reference: step %" PRIu64 ", rank %u: %s\n", walk->check->steps, rank, text);
    return REFERENCE_WRONG;
}

enum reference_verdict reference_walk_next(struct reference_walk *walk, uint32_t rank, struct reference_record *record)
{
    struct reference_log *log = &walk->check->logs[rank];
    size_t at = log->at;
    if (reference_log_next(log, record) != 0) {
        return reference_walk_wrong(walk, rank, "no record at byte %zu", at);
    }
    return REFERENCE_GO_ON;
}

enum reference_verdict reference_walk_call(struct reference_walk *walk, const struct reference_span *span,
                                           uint32_t *missing_out)
{
    *missing_out = 0;
    for (uint32_t rank = span->first; rank < span->first + span->count; rank++) {
        struct reference_record *result = &walk->results[rank];
        walk->inputs[rank].tag = 0;
        result->tag = 0;
        if (reference_log_peek(&walk->check->logs[rank]) != span->input_tag) {
            *missing_out += 1;
            continue;
        }
        if (reference_walk_next(walk, rank, &walk->inputs[rank]) != REFERENCE_GO_ON) {
            return REFERENCE_WRONG;
        }
        if (walk->inputs[rank].step != walk->check->steps) {
            return reference_walk_wrong(walk, rank, "a call of step %" PRIu64 " is out of order",
                                        walk->inputs[rank].step);
        }
        if (reference_walk_next(walk, rank, result) != REFERENCE_GO_ON) {
            return REFERENCE_WRONG;
        }
        if (result->tag != 0 && result->tag != span->input_tag + ('g' - 'G')) {
            return reference_walk_wrong(walk, rank, "a call is followed by '%c'", result->tag);
        }
    }
    return REFERENCE_GO_ON;
}

int reference_walk_is_ok(const struct reference_walk *walk, uint32_t rank)
{
    return walk->results[rank].tag != 0 && walk->results[rank].status == 0;
}

uint32_t reference_walk_count_ok(const struct reference_walk *walk, const struct reference_span *span)
{
    uint32_t count = 0;
    for (uint32_t rank = span->first; rank < span->first + span->count; rank++) {
        count += reference_walk_is_ok(walk, rank) != 0;
    }
    return count;
}

enum reference_verdict reference_walk_incomplete(struct reference_walk *walk, const struct reference_span *span,
                                                 uint32_t missing)
{
    for (uint32_t rank = span->first; rank < span->first + span->count; rank++) {
        if (missing != 0 && reference_walk_is_ok(walk, rank)) {
            return reference_walk_wrong(walk, rank, "has a result although %u ranks did not make the call", missing);
        }
        if (!walk->check->may_end_early && !reference_walk_is_ok(walk, rank)) {
            return reference_walk_wrong(walk, rank, "the call is missing or ended with status %" PRId64,
                                        walk->results[rank].status);
        }
    }
    walk->check->has_ended_early = 1;
    return REFERENCE_ENDED;
}
