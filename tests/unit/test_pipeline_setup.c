/* SPDX-License-Identifier: Apache-2.0 */
/* What a pipeline's board says when it was set up: requests, file, window, pools, deadline. */
#include "cli/pipeline_setup.h"
#include "cli/safetensors.h"
#include "core/clock.h"
#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin_files.h"

#include <cmocka.h>

static struct convoy_trace_request requests[3] = {{1000, 10, 1}, {2000, 20, 2}, {11000, 16384, 3}};
static const struct convoy_trace trace = {.requests = requests, .count = 3};
static struct convoy_pipeline_options options;
static struct convoy_pipeline_board *board;
static struct convoy_error error;

static int prepare(void **state)
{
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    board = NULL;
    options = (struct convoy_pipeline_options){.shape = {{1, 2, 1}},
                                               .requests = 100,
                                               .hosts = 1,
                                               .plugin = "plugin.so",
                                               .out = *state,
                                               .trace = &trace,
                                               .timeout_ns = 77};
    return 0;
}

static int32_t make(void)
{
    return convoy_pipeline_setup_make(&options, &board, &error);
}

static void test_pipeline_setup_takes_what_was_asked_for(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    uint64_t now_ns = convoy_now_ns();
    options.trace_out = "t.json";
    assert_int_equal(make(), CONVOY_OK);
    const struct convoy_pipeline_setup *setup = &board->setup;
    folder_path(state, "in.safetensors", path);
    assert_string_equal(setup->tensors, path);
    assert_int_equal(access(path, R_OK), 0);
    assert_string_equal(setup->folder, *state);
    assert_string_equal(setup->plugin, "plugin.so");
    assert_int_equal(setup->request_count, 3);
    assert_int_equal(convoy_pipeline_board_request(board, 2)->input_tokens, 16384);
    assert_int_equal(setup->timeout_ns, 77);
    assert_int_equal(setup->is_traced, 1);
    assert_in_range(setup->deadline_ns - now_ns, 120 * CONVOY_NS_PER_S, 130 * CONVOY_NS_PER_S);
    assert_int_equal(setup->window, 4);
    assert_int_equal(setup->pool_bytes, 2 * 4 * (8u << 20)); /* the largest: 1.2 MB of tensors, 4 MiB of prompt */
    convoy_pipeline_board_destroy(board);
}

static void test_pipeline_setup_is_cut_to_the_requests_asked_for(void **state)
{
    (void)state;
    options.requests = 1;
    options.speed = 0.01;
    options.deadline_s = 5;
    uint64_t now_ns = convoy_now_ns();
    assert_int_equal(make(), CONVOY_OK);
    assert_int_equal(board->setup.request_count, 1);
    assert_in_range(board->setup.deadline_ns - now_ns, 5 * CONVOY_NS_PER_S, 6 * CONVOY_NS_PER_S);
    assert_int_equal(board->setup.pool_bytes, 32u << 20); /* the least */
    assert_int_equal(board->setup.is_traced, 0);
    convoy_pipeline_board_destroy(board);
}

static void test_pipeline_setup_pace_makes_the_deadline_later(void **state)
{
    (void)state;
    options.speed = 0.1; /* 10 s of trace take 100 */
    uint64_t now_ns = convoy_now_ns();
    assert_int_equal(make(), CONVOY_OK);
    assert_in_range(board->setup.deadline_ns - now_ns, 220 * CONVOY_NS_PER_S, 230 * CONVOY_NS_PER_S);
    convoy_pipeline_board_destroy(board);
}

static void test_pipeline_setup_large_requests_go_one_at_a_time(void **state)
{
    (void)state;
    enum { BYTES = 300000000 };
    static uint8_t data[BYTES]; /* never touched but to be written */
    char path[PLUGIN_FILE_PATH_BYTES];
    struct convoy_safetensor tensor = {
        .name = "t", .dtype = "U8", .dim_count = 1, .shape = {BYTES}, .data = data, .bytes = BYTES};
    const struct convoy_safetensors file = {.tensors = &tensor, .count = 1};
    folder_path(state, "large.safetensors", path);
    assert_int_equal(convoy_safetensors_write(path, &file, &error), CONVOY_OK);
    options.tensors = path;
    assert_int_equal(make(), CONVOY_OK);
    assert_int_equal(board->setup.window, 1);
    assert_int_equal(board->setup.pool_bytes, 2 * (512ull << 20));
    assert_string_equal(board->setup.tensors, path);
    convoy_pipeline_board_destroy(board);
    assert_int_equal(unlink(path), 0);
}

static void test_pipeline_setup_what_does_not_work_leaves_nothing(void **state)
{
    (void)state;
    static char longest[CONVOY_PLACE_PATH_BYTES + 1];
    memset(longest, 'x', CONVOY_PLACE_PATH_BYTES);
    options.tensors = longest;
    assert_int_equal(make(), CONVOY_LIMIT);
    options.tensors = "/nowhere/t";
    assert_int_equal(make(), CONVOY_NOT_FOUND);
    options.tensors = NULL;
    options.out = "/nowhere";
    assert_int_equal(make(), CONVOY_SYSTEM);
    options.out = *state;
    options.plugin = longest;
    assert_int_equal(make(), CONVOY_LIMIT);
    assert_null(board);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup(function, prepare)
    const struct CMUnitTest tests[] = {
        CASE(test_pipeline_setup_takes_what_was_asked_for),
        CASE(test_pipeline_setup_is_cut_to_the_requests_asked_for),
        CASE(test_pipeline_setup_pace_makes_the_deadline_later),
        CASE(test_pipeline_setup_large_requests_go_one_at_a_time),
        CASE(test_pipeline_setup_what_does_not_work_leaves_nothing),
    };
    return cmocka_run_group_tests_name("pipeline_setup", tests, folder_setup, folder_teardown);
}
