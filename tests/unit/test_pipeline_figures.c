/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of a pipeline's records: phases over both sides, quantiles, sums, and time in which something moved. */
#include "cli/pipeline_figures.h"
#include "core/error.h"

#include <stdbool.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct convoy_pipeline_shape shape = {{1, 1, 1}};
static struct convoy_pipeline_board *board;
static struct convoy_pipeline_figures figures;

static void open_board(uint32_t requests)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_pipeline_board_create(&shape, requests, &board, &error), CONVOY_OK);
}

static void make(uint32_t hop)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_pipeline_figures_make(board, hop, &figures, &error), CONVOY_OK);
}

/* A request whose whole way takes `whole` from `begin` on, in round steps. */
static void record(uint32_t request, uint64_t begin, uint64_t whole)
{
    struct convoy_pipeline_record *record = convoy_pipeline_board_record(board, 0, request);
    *record = (struct convoy_pipeline_record){
        .sender = {.is_done = 1,
                   .path = CONVOY_PATH_LEND,
                   .attempts = 1,
                   .payload_bytes = 100,
                   .moved_bytes = 100,
                   .times_ns = {begin, begin + 1, begin + 11, begin + 31, begin + whole + 5, begin + whole + 50}},
        .receiver = {.is_done = 1,
                     .path = CONVOY_PATH_LEND,
                     .payload_bytes = 100,
                     .released_ns = begin + whole + 9,
                     .times_ns = {begin, 0, 0, begin + whole - 3, begin + whole, 0}},
    };
}

static uint64_t stretch(const struct convoy_pipeline_record *record, enum convoy_pipeline_stretch which)
{
    uint64_t ns = UINT64_MAX;
    return convoy_pipeline_stretch_of(record, which, &ns) ? ns : UINT64_MAX;
}

static void test_pipeline_figures_phases_of_a_lent_request(void **state)
{
    (void)state;
    open_board(1);
    record(0, 1000, 100);
    const struct convoy_pipeline_record *one = convoy_pipeline_board_record(board, 0, 0);
    assert_int_equal(stretch(one, CONVOY_PIPELINE_STAGE), 10);
    assert_int_equal(stretch(one, CONVOY_PIPELINE_RESERVE), UINT64_MAX);
    assert_int_equal(stretch(one, CONVOY_PIPELINE_PUSH), UINT64_MAX);
    assert_int_equal(stretch(one, CONVOY_PIPELINE_READY), 86);
    assert_int_equal(stretch(one, CONVOY_PIPELINE_LOAD), 3);
    assert_int_equal(stretch(one, CONVOY_PIPELINE_RELEASE), 41);
    assert_int_equal(stretch(one, CONVOY_PIPELINE_WHOLE), 100);
    assert_int_equal(stretch(one, CONVOY_PIPELINE_STRETCHES), UINT64_MAX);
    convoy_pipeline_board_destroy(board);
}

static void test_pipeline_figures_phases_of_a_pushed_request(void **state)
{
    (void)state;
    static const uint32_t paths[] = {CONVOY_PATH_PUSH, CONVOY_PATH_MESSAGES, CONVOY_PATH_RMA};
    open_board(1);
    for (size_t i = 0; i < 3; i++) {
        record(0, 1000, 100);
        struct convoy_pipeline_record *one = convoy_pipeline_board_record(board, 0, 0);
        one->sender.path = paths[i];
        assert_int_equal(stretch(one, CONVOY_PIPELINE_RESERVE), 20);
        assert_int_equal(stretch(one, CONVOY_PIPELINE_PUSH), 74);
    }
    convoy_pipeline_board_destroy(board);
}

/* A small stage is over before its send starts; it counts all the same, and for the speed too. */
static void test_pipeline_figures_whole_has_the_stage_in_it(void **state)
{
    (void)state;
    open_board(1);
    record(0, 1000, 100);
    struct convoy_pipeline_record *one = convoy_pipeline_board_record(board, 0, 0);
    one->sender.times_ns[CONVOY_TIME_STARTED] = 1020;
    assert_int_equal(stretch(one, CONVOY_PIPELINE_WHOLE), 99); /* from READY at 1001 */
    make(0);
    assert_int_equal(figures.busy_ns, 99);
    one->sender.times_ns[CONVOY_TIME_READY] = 0;
    assert_int_equal(stretch(one, CONVOY_PIPELINE_WHOLE), 80);
    convoy_pipeline_board_destroy(board);
}

/* What the library did not tell, or told in an odd order, is no phase of 2^64 ns. */
static void test_pipeline_figures_missing_times_are_no_phase(void **state)
{
    (void)state;
    open_board(1);
    record(0, 1000, 100);
    struct convoy_pipeline_record *one = convoy_pipeline_board_record(board, 0, 0);
    one->sender.times_ns[CONVOY_TIME_RETURNED] = 0;
    one->sender.times_ns[CONVOY_TIME_READY] = 0;
    assert_int_equal(stretch(one, CONVOY_PIPELINE_RELEASE), UINT64_MAX);
    assert_int_equal(stretch(one, CONVOY_PIPELINE_STAGE), UINT64_MAX);
    make(0);
    assert_int_equal(figures.stretches[CONVOY_PIPELINE_STAGE].count, 0);
    assert_int_equal(figures.stretches[CONVOY_PIPELINE_WHOLE].count, 1);
    convoy_pipeline_board_destroy(board);
}

static void test_pipeline_figures_quantiles_and_sums(void **state)
{
    (void)state;
    open_board(201);
    for (uint32_t i = 0; i < 200; i++) { /* the last request never came */
        record(i, 1000 + 1000 * i, 101 + (i * 7) % 200);
    }
    convoy_pipeline_board_record(board, 0, 0)->sender.retries = 2;
    convoy_pipeline_board_record(board, 0, 1)->receiver.retries = 1;
    convoy_pipeline_board_record(board, 0, 1)->sender.attempts = 3;
    convoy_pipeline_board_record(board, 0, 1)->sender.refusals = 2;
    convoy_pipeline_board_record(board, 0, 200)->sender.refusals = 4; /* refused for good, and still told */
    convoy_pipeline_board_record(board, 0, 2)->receiver.path = CONVOY_PATH_PULL;
    convoy_pipeline_board_record(board, 0, 3)->receiver.moved_bytes = 100;
    convoy_pipeline_board_record(board, 0, 4)->receiver.path = 99;
    make(0);
    assert_int_equal(figures.requests, 200);
    assert_int_equal(figures.asked_bytes, 20000);
    assert_int_equal(figures.moved_bytes, 20100);
    assert_int_equal(figures.retries, 5);
    assert_int_equal(figures.refusals, 6);
    assert_int_equal(figures.paths[CONVOY_PATH_LEND], 198);
    assert_int_equal(figures.paths[CONVOY_PATH_PULL], 1);
    assert_int_equal(figures.paths[0], 1);
    const struct convoy_pipeline_quantiles *whole = &figures.stretches[CONVOY_PIPELINE_WHOLE];
    assert_int_equal(whole->count, 200);
    assert_int_equal(whole->median_ns, 201); /* 101 to 300, each once */
    assert_int_equal(whole->p99_ns, 298);
    make(1); /* nothing on the other hop */
    assert_int_equal(figures.requests, 0);
    assert_int_equal(figures.busy_ns, 0);
    convoy_pipeline_board_destroy(board);
}

/* The union of what overlaps, touches, is contained, and is apart. */
static void test_pipeline_figures_busy_time_counts_overlap_once(void **state)
{
    (void)state;
    open_board(5);
    record(3, 1000, 100);
    record(0, 1050, 100);
    record(1, 1060, 40);
    record(2, 1150, 50);
    record(4, 9000, 60);
    make(0);
    assert_int_equal(figures.busy_ns, 200 + 60);
    convoy_pipeline_board_destroy(board);
}

static void test_pipeline_figures_path_is_told_by_who_knows(void **state)
{
    (void)state;
    assert_int_equal(convoy_pipeline_path_taken(CONVOY_PATH_LEND, CONVOY_PATH_PULL), CONVOY_PATH_PULL);
    assert_int_equal(convoy_pipeline_path_taken(CONVOY_PATH_PUSH, CONVOY_PATH_PULL), CONVOY_PATH_PUSH);
    assert_int_equal(convoy_pipeline_path_taken(CONVOY_PATH_RMA, CONVOY_PATH_LEND), CONVOY_PATH_RMA);
    assert_int_equal(convoy_pipeline_path_taken(CONVOY_PATH_LEND, 0), CONVOY_PATH_LEND);
    assert_string_equal(convoy_pipeline_path_name(CONVOY_PATH_MESSAGES), "UCX messages");
    assert_string_equal(convoy_pipeline_path_name(77), "other");
    assert_string_equal(convoy_pipeline_stretch_name(CONVOY_PIPELINE_RESERVE), "reserve");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_figures_phases_of_a_lent_request),
        cmocka_unit_test(test_pipeline_figures_phases_of_a_pushed_request),
        cmocka_unit_test(test_pipeline_figures_whole_has_the_stage_in_it),
        cmocka_unit_test(test_pipeline_figures_missing_times_are_no_phase),
        cmocka_unit_test(test_pipeline_figures_quantiles_and_sums),
        cmocka_unit_test(test_pipeline_figures_busy_time_counts_overlap_once),
        cmocka_unit_test(test_pipeline_figures_path_is_told_by_who_knows),
    };
    return cmocka_run_group_tests_name("pipeline_figures", tests, NULL, NULL);
}
