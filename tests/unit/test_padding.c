/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/padding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static struct convoy_sync_padding input_of(uint32_t layout, const int64_t *tokens, size_t count)
{
    return (struct convoy_sync_padding){
        .struct_size = sizeof(struct convoy_sync_padding), .layout = layout, .tokens = tokens, .token_count = count};
}

/* sgl-project/sglang PR 39899: an idle rank beside a busy one stays idle after padding. */
static void test_padding_idle_rank_keeps_its_own_length(void **state)
{
    (void)state;
    const int64_t tokens[] = {64, 0};
    const int64_t captures[] = {64};
    int64_t starts[2];
    int64_t lengths[2];
    struct convoy_sync_padding input = input_of(CONVOY_LAYOUT_MAX, tokens, 2);
    struct convoy_sync_padded padded = {.starts = starts, .lengths = lengths, .capacity = 2};
    input.captures = captures;
    input.capture_count = 1;
    assert_int_equal(convoy_padding_size(&input, &padded, NULL), CONVOY_OK);
    assert_int_equal(padded.extent, 64);
    assert_int_equal(padded.eligible, 1);
    assert_int_equal(lengths[0], 64);
    assert_int_equal(lengths[1], 0);
    assert_int_equal(starts[1], 64);
}

/* sgl-project/sglang PR 39899: all ranks idle is a result of its own. */
static void test_padding_all_idle_has_extent_zero(void **state)
{
    (void)state;
    const int64_t tokens[] = {0, 0};
    const int64_t captures[] = {8};
    struct convoy_sync_padding input = input_of(CONVOY_LAYOUT_MAX, tokens, 2);
    struct convoy_sync_padded padded = {.extent = 9, .eligible = 9};
    input.captures = captures;
    input.capture_count = 1;
    assert_int_equal(convoy_padding_size(&input, &padded, NULL), CONVOY_OK);
    assert_int_equal(padded.extent, 0);
    assert_int_equal(padded.eligible, 0);
    assert_int_equal(padded.reason, CONVOY_PADDED_ALL_IDLE);
}

/* vllm-project/vllm PR 25906: all ranks compute one padded size from all tokens. */
static void test_padding_rounds_the_largest_to_a_capture(void **state)
{
    (void)state;
    const int64_t tokens[] = {7, 8, 16, 0};
    const int64_t large[] = {33, 8, 16, 0};
    const int64_t captures[] = {8, 16, 32};
    struct convoy_sync_padding input = input_of(CONVOY_LAYOUT_MAX, tokens, 4);
    struct convoy_sync_padded padded = {0};
    input.captures = captures;
    input.capture_count = COUNT(captures);
    assert_int_equal(convoy_padding_size(&input, &padded, NULL), CONVOY_OK);
    assert_int_equal(padded.extent, 16);
    assert_int_equal(padded.reason, CONVOY_PADDED_OK);
    input.tokens = large;
    assert_int_equal(convoy_padding_size(&input, &padded, NULL), CONVOY_OK);
    assert_int_equal(padded.extent, 0);
    assert_int_equal(padded.eligible, 0);
    assert_int_equal(padded.reason, CONVOY_PADDED_NO_CAPTURE);
    assert_int_equal(padded.figure, 33);
}

/* sgl-project/sglang issue 30712: two layouts have two rules for starts, and one has none without an extent. */
static void test_padding_starts_follow_the_layout(void **state)
{
    (void)state;
    const int64_t tokens[] = {11, 13, 17, 19};
    int64_t starts[4];
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_sync_padding input = input_of(CONVOY_LAYOUT_SUM, tokens, 4);
    assert_int_equal(convoy_padding_starts(&input, 0, starts, NULL), CONVOY_OK);
    assert_int_equal(starts[2], 24);
    input.layout = CONVOY_LAYOUT_MAX;
    assert_int_equal(convoy_padding_starts(&input, 32, starts, NULL), CONVOY_OK);
    assert_int_equal(starts[2], 64);
    memset(starts, 0xa5, sizeof starts);
    assert_int_equal(convoy_padding_starts(&input, 0, starts, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "extent is 0"));
    assert_int_equal(convoy_padding_starts(&input, 18, starts, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "19"));
    assert_int_equal(starts[0], (int64_t)0xa5a5a5a5a5a5a5a5);
}

/* sgl-project/sglang issue 5527: the limit is compared with the figure that the layout names. */
static void test_padding_limit_is_compared_with_the_layouts_figure(void **state)
{
    (void)state;
    int64_t tokens[16];
    for (size_t i = 0; i < COUNT(tokens); i++) {
        tokens[i] = 32;
    }
    struct convoy_sync_padding input = input_of(CONVOY_LAYOUT_MAX, tokens, COUNT(tokens));
    struct convoy_sync_padded padded = {0};
    input.limit = 160;
    assert_int_equal(convoy_padding_size(&input, &padded, NULL), CONVOY_OK);
    assert_int_equal(padded.eligible, 1);
    assert_int_equal(padded.extent, 32);
    input.layout = CONVOY_LAYOUT_SUM;
    assert_int_equal(convoy_padding_size(&input, &padded, NULL), CONVOY_OK);
    assert_int_equal(padded.eligible, 0);
    assert_int_equal(padded.figure, 512);
    assert_int_equal(padded.reason, CONVOY_PADDED_OVER_LIMIT);
}

/* Without a graph the ranks of layout MAX lie one figure apart. */
static void test_padding_not_eligible_starts_use_the_figure(void **state)
{
    (void)state;
    const int64_t tokens[] = {5, 9, 2};
    int64_t starts[3];
    struct convoy_sync_padding input = input_of(CONVOY_LAYOUT_MAX, tokens, 3);
    struct convoy_sync_padded padded = {.starts = starts, .capacity = 3};
    input.limit = 8;
    assert_int_equal(convoy_padding_size(&input, &padded, NULL), CONVOY_OK);
    assert_int_equal(padded.extent, 0);
    assert_int_equal(starts[2], 18);
}

static void test_padding_no_ranks_is_all_idle(void **state)
{
    (void)state;
    struct convoy_sync_padding input = input_of(CONVOY_LAYOUT_SUM, NULL, 0);
    struct convoy_sync_padded padded = {0};
    assert_int_equal(convoy_padding_size(&input, &padded, NULL), CONVOY_OK);
    assert_int_equal(padded.reason, CONVOY_PADDED_ALL_IDLE);
    assert_int_equal(convoy_padding_starts(&input, 0, NULL, NULL), CONVOY_OK);
}

struct refusal {
    struct convoy_sync_padding input;
    size_t capacity;
    const char *text;
};

static const int64_t good_tokens[] = {1, 2};
static const int64_t negative_tokens[] = {1, -2};
static const int64_t huge_tokens[] = {INT64_MAX, 1};
static const int64_t wide_tokens[] = {INT64_MAX, 0};
static const int64_t falling_captures[] = {8, 8};
static const int64_t zero_captures[] = {0, 8};

static const struct refusal refusals[] = {
    {{.layout = 2, .tokens = good_tokens, .token_count = 2}, 2, "padding.layout is 2"},
    {{.tokens = NULL, .token_count = 2}, 2, "padding.tokens is NULL"},
    {{.tokens = negative_tokens, .token_count = 2}, 2, "padding.tokens[1] is -2"},
    {{.layout = 1, .tokens = huge_tokens, .token_count = 2}, 2, "padding.tokens[1] is 1: the sum"},
    {{.tokens = wide_tokens, .token_count = 2}, 2, "2 ranks of it pass"},
    {{.tokens = good_tokens, .token_count = 2, .captures = falling_captures, .capture_count = 2},
     2,
     "captures[1] is 8"},
    {{.tokens = good_tokens, .token_count = 2, .captures = zero_captures, .capture_count = 2}, 2, "captures[0] is 0"},
    {{.tokens = good_tokens, .token_count = 2, .limit = -1}, 2, "padding.limit is -1"},
    {{.tokens = good_tokens, .token_count = 2}, 1, "padded.capacity is 1, needed are 2"},
};

static void test_padding_bad_input_is_refused_and_nothing_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refusals); i++) {
        int64_t starts[2];
        memset(starts, 0xa5, sizeof starts);
        struct convoy_sync_padded padded = {.starts = starts, .capacity = refusals[i].capacity, .extent = -7};
        struct convoy_error error = {.struct_size = sizeof error};
        assert_int_equal(convoy_padding_size(&refusals[i].input, &padded, &error), CONVOY_INVALID_ARGUMENT);
        if (strstr(error.text, refusals[i].text) == NULL) {
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, error.text, refusals[i].text);
        }
        assert_int_equal(padded.extent, -7);
        assert_int_equal(starts[0], (int64_t)0xa5a5a5a5a5a5a5a5);
    }
}

static void test_padding_overlapping_arrays_are_refused(void **state)
{
    (void)state;
    int64_t room[4] = {3, 4, 0, 0};
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_sync_padding input = input_of(CONVOY_LAYOUT_MAX, room, 2);
    struct convoy_sync_padded padded = {.starts = room + 1, .capacity = 2};
    assert_int_equal(convoy_padding_size(&input, &padded, &error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(error.text, "padded.starts and padding.tokens overlap");
    padded = (struct convoy_sync_padded){.starts = room + 2, .lengths = room + 2, .capacity = 2};
    assert_int_equal(convoy_padding_size(&input, &padded, &error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(error.text, "padded.starts and padded.lengths overlap");
    assert_int_equal(convoy_padding_starts(&input, 4, room + 1, &error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(error.text, "starts_out and padding.tokens overlap");
    assert_int_equal(room[1], 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_padding_idle_rank_keeps_its_own_length),
        cmocka_unit_test(test_padding_all_idle_has_extent_zero),
        cmocka_unit_test(test_padding_rounds_the_largest_to_a_capture),
        cmocka_unit_test(test_padding_starts_follow_the_layout),
        cmocka_unit_test(test_padding_limit_is_compared_with_the_layouts_figure),
        cmocka_unit_test(test_padding_not_eligible_starts_use_the_figure),
        cmocka_unit_test(test_padding_no_ranks_is_all_idle),
        cmocka_unit_test(test_padding_bad_input_is_refused_and_nothing_written),
        cmocka_unit_test(test_padding_overlapping_arrays_are_refused),
    };
    return cmocka_run_group_tests_name("padding", tests, NULL, NULL);
}
