/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/padding.h"

#include "core/error.h"

#include <stdbool.h>

/* What both functions need to know of valid tokens. */
struct padding_facts {
    int64_t max;
    size_t max_rank;
    int64_t sum;
};

static int32_t padding_check_tokens(const struct convoy_sync_padding *input, struct padding_facts *facts_out,
                                    struct convoy_error *error)
{
    struct padding_facts facts = {0};
    if (input->layout != CONVOY_LAYOUT_MAX && input->layout != CONVOY_LAYOUT_SUM) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "padding.layout is %u, allowed are 0 (MAX) and 1 (SUM)",
                                input->layout);
    }
    if (input->tokens == NULL && input->token_count != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "padding.tokens is NULL for %zu ranks",
                                input->token_count);
    }
    for (size_t i = 0; i < input->token_count; i++) {
        int64_t tokens = input->tokens[i];
        if (tokens < 0) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                    "padding.tokens[%zu] is %lld, at least 0 is allowed", i, (long long)tokens);
        }
        if (__builtin_add_overflow(facts.sum, tokens, &facts.sum)) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                    "padding.tokens[%zu] is %lld: the sum passes the largest int64", i,
                                    (long long)tokens);
        }
        if (tokens > facts.max) {
            facts.max = tokens;
            facts.max_rank = i;
        }
    }
    *facts_out = facts;
    return CONVOY_OK;
}

static int32_t padding_check_captures(const struct convoy_sync_padding *input, struct convoy_error *error)
{
    if (input->limit < 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "padding.limit is %lld, at least 0 is allowed",
                                (long long)input->limit);
    }
    for (size_t i = 0; input->captures != NULL && i < input->capture_count; i++) {
        int64_t below = i != 0 ? input->captures[i - 1] : 0;
        if (input->captures[i] <= below) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                    "padding.captures[%zu] is %lld, more than %lld is allowed (ascending)", i,
                                    (long long)input->captures[i], (long long)below);
        }
    }
    return CONVOY_OK;
}

/* MAX starts must fit an int64, and no rank may reach into the next. */
static int32_t padding_check_extent(const struct convoy_sync_padding *input, int64_t extent,
                                    const struct padding_facts *facts, struct convoy_error *error)
{
    int64_t end;
    if (extent < facts->max) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "extent is %lld, at least %lld is allowed (tokens of rank %zu)", (long long)extent,
                                (long long)facts->max, facts->max_rank);
    }
    if (input->token_count > INT64_MAX || __builtin_mul_overflow((int64_t)input->token_count, extent, &end)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "extent is %lld: %zu ranks of it pass the largest int64", (long long)extent,
                                input->token_count);
    }
    return CONVOY_OK;
}

static bool padding_overlap(const int64_t *left, const int64_t *right, size_t count)
{
    uintptr_t a = (uintptr_t)left;
    uintptr_t b = (uintptr_t)right;
    return left != NULL && right != NULL && a < b + 8 * count && b < a + 8 * count;
}

static int32_t padding_check_outputs(const struct convoy_sync_padding *input, const struct convoy_sync_padded *padded,
                                     struct convoy_error *error)
{
    size_t count = input->token_count;
    if ((padded->starts != NULL || padded->lengths != NULL) && padded->capacity < count) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "padded.capacity is %zu, needed are %zu",
                                padded->capacity, count);
    }
    const char *pair = padding_overlap(padded->starts, padded->lengths, count)  ? "padded.starts and padded.lengths"
                       : padding_overlap(padded->starts, input->tokens, count)  ? "padded.starts and padding.tokens"
                       : padding_overlap(padded->lengths, input->tokens, count) ? "padded.lengths and padding.tokens"
                                                                                : NULL;
    if (pair != NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%s overlap", pair);
    }
    return CONVOY_OK;
}

/* Extent for a figure, or 0 with the reason why there is none. */
static int64_t padding_round(const struct convoy_sync_padding *input, int64_t figure, uint32_t *reason_out)
{
    *reason_out = CONVOY_PADDED_OK;
    if (figure == 0) {
        *reason_out = CONVOY_PADDED_ALL_IDLE;
        return 0;
    }
    if (input->limit != 0 && figure > input->limit) {
        *reason_out = CONVOY_PADDED_OVER_LIMIT;
        return 0;
    }
    if (input->captures == NULL) {
        return figure;
    }
    for (size_t i = 0; i < input->capture_count; i++) {
        if (input->captures[i] >= figure) {
            return input->captures[i];
        }
    }
    *reason_out = CONVOY_PADDED_NO_CAPTURE;
    return 0;
}

static void padding_write_starts(const struct convoy_sync_padding *input, int64_t extent, int64_t *starts_out)
{
    int64_t start = 0;
    for (size_t i = 0; i < input->token_count; i++) {
        starts_out[i] = start;
        start += input->layout == CONVOY_LAYOUT_MAX ? extent : input->tokens[i];
    }
}

int32_t convoy_padding_size(const struct convoy_sync_padding *input, struct convoy_sync_padded *padded_out,
                            struct convoy_error *error)
{
    struct padding_facts facts = {0};
    int32_t status = padding_check_tokens(input, &facts, error);
    if (status == CONVOY_OK) {
        status = padding_check_captures(input, error);
    }
    if (status == CONVOY_OK) {
        status = padding_check_outputs(input, padded_out, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    uint32_t reason;
    int64_t figure = input->layout == CONVOY_LAYOUT_MAX ? facts.max : facts.sum;
    int64_t extent = padding_round(input, figure, &reason);
    int64_t step = extent != 0 ? extent : figure; /* without a graph ranks are padded to the largest of them */
    if (input->layout == CONVOY_LAYOUT_MAX) {
        status = padding_check_extent(input, step, &facts, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    if (padded_out->starts != NULL) {
        padding_write_starts(input, step, padded_out->starts);
    }
    for (size_t i = 0; padded_out->lengths != NULL && i < input->token_count; i++) {
        padded_out->lengths[i] = input->tokens[i];
    }
    padded_out->extent = extent;
    padded_out->figure = figure;
    padded_out->eligible = reason == CONVOY_PADDED_OK;
    padded_out->reason = reason;
    return CONVOY_OK;
}

int32_t convoy_padding_starts(const struct convoy_sync_padding *input, int64_t extent, int64_t *starts_out,
                              struct convoy_error *error)
{
    struct padding_facts facts = {0};
    int32_t status = padding_check_tokens(input, &facts, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (starts_out == NULL && input->token_count != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "starts_out is NULL for %zu ranks", input->token_count);
    }
    if (padding_overlap(starts_out, input->tokens, input->token_count)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "starts_out and padding.tokens overlap");
    }
    if (input->layout == CONVOY_LAYOUT_MAX) {
        if (extent <= 0) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                    "extent is %lld, at least 1 is allowed: layout MAX has no starts without one",
                                    (long long)extent);
        }
        status = padding_check_extent(input, extent, &facts, error);
    }
    if (status == CONVOY_OK) {
        padding_write_starts(input, extent, starts_out);
    }
    return status;
}
