/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed of a pipeline: a row a hop, phases, leaks, and how those that did not finish ended. */
#include "cli/pipeline_report.h"
#include "core/error.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct convoy_pipeline_shape shape = {{1, 2, 1}};
static struct convoy_pipeline_board *board;
static struct convoy_error error;

static int setup(void **state)
{
    (void)state;
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    return convoy_pipeline_board_create(&shape, 4, &board, &error);
}

static int teardown(void **state)
{
    (void)state;
    convoy_pipeline_board_destroy(board);
    return 0;
}

static void record(uint32_t hop, uint32_t request, uint32_t path)
{
    *convoy_pipeline_board_record(board, hop, request) = (struct convoy_pipeline_record){
        .sender = {.is_done = 1,
                   .path = CONVOY_PATH_LEND,
                   .payload_bytes = 1000000,
                   .moved_bytes = 1000000,
                   .times_ns = {1000, 1000, 201000, 202000, 300000, 0}},
        .receiver = {.is_done = 1, .path = path, .times_ns = {1000, 0, 0, 211000, 251000, 0}},
    };
}

static void expect_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", part, text);
    }
}

static void expect_report(const char *const *parts, size_t count)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    assert_int_equal(convoy_pipeline_report(out, board, &error), CONVOY_OK);
    assert_int_equal(fclose(out), 0);
    for (size_t i = 0; i < count; i++) {
        expect_text(text, parts[i]);
    }
    free(text);
}

static void expect_failures(const struct convoy_crew *crew, const char *wanted)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    convoy_pipeline_report_failures(out, board, crew);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, wanted);
    free(text);
}

static void seen(uint32_t member)
{
    board->members[member].figures.struct_size = sizeof board->members[member].figures;
}

static void test_pipeline_report_has_a_row_for_each_hop(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "  encoder -> denoiser          3    3.00 MB    3.00 MB   12.00        0         0  lend 2, pull 1\n",
        "  denoiser -> decoder          1    1.00 MB    1.00 MB    4.00        0         0  lend\n",
        "p50/p99 in us                stage       reserve          push         ready          load",
        "  encoder -> denoiser        200/200             -             -         10/10         40/40 ",
        "         40/40             -       250/250\n",
        "  leaks: 0 in 4 pools at the end (0 bytes quarantined); loads refused 0, repeated requests dropped 0\n",
    };
    record(0, 0, CONVOY_PATH_LEND);
    record(0, 1, CONVOY_PATH_PULL);
    record(0, 3, CONVOY_PATH_LEND);
    record(1, 0, CONVOY_PATH_LEND);
    for (uint32_t i = 0; i < 4; i++) {
        seen(i);
    }
    expect_report(parts, sizeof parts / sizeof parts[0]);
}

static void test_pipeline_report_of_nothing_has_dashes(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "  encoder -> denoiser          0        0 B        0 B       -        0         0  -\n",
        "  leaks: 0 in 0 pools at the end (0 bytes quarantined), not known of 4 pools; loads refused 0, ",
    };
    expect_report(parts, sizeof parts / sizeof parts[0]);
}

static void test_pipeline_report_counts_what_is_left_in_the_pools(void **state)
{
    (void)state;
    uint32_t unseen = 0;
    static const char *const parts[] = {"  leaks: 7 in 2 pools at the end (4096 bytes quarantined), not known of 2 pools; "
                                        "loads refused 3, repeated requests dropped 2\n"};
    seen(0);
    seen(2);
    board->members[0].figures.taken_count = 1;
    board->members[0].figures.ready_count = 2;
    board->members[2].figures.quarantined_count = 1;
    board->members[2].figures.quarantined = 4096;
    board->members[2].figures.reader_count = 3;
    board->members[1].refusals = 3;
    board->members[3].repeats = 2;
    assert_int_equal(convoy_pipeline_report_leaks(board, &unseen), 7);
    assert_int_equal(unseen, 2);
    expect_report(parts, 1);
}

static void test_pipeline_report_says_how_each_one_ended(void **state)
{
    (void)state;
    struct convoy_crew crew = {.count = 4};
    for (uint32_t i = 0; i < 4; i++) {
        crew.has_ended[i] = true;
    }
    board->members[0].outcome = CONVOY_PIPELINE_FINISHED;
    board->members[1].outcome = CONVOY_PIPELINE_FAILED;
    board->members[1].error = board->members[2].error = (struct convoy_error)CONVOY_ERROR_INIT;
    (void)convoy_error_set(&board->members[1].error, CONVOY_UNREACHABLE, "nobody there");
    atomic_store(&board->members[1].done, 3);
    board->members[2].outcome = CONVOY_PIPELINE_STOPPED;
    (void)convoy_error_set(&board->members[2].error, CONVOY_CANCELED, "stopped");
    crew.wait_status[3] = SIGKILL;
    expect_failures(&crew, "denoiser 0: failed after 3 requests, UNREACHABLE: nobody there\n"
                           "denoiser 1: stopped after 0 requests\n"
                           "decoder 0: killed by SIGKILL after 0 requests\n");
    (void)convoy_error_set(&board->members[2].error, CONVOY_PEER_LOST, "it has gone");
    crew.wait_status[3] = 256;
    expect_failures(&crew, "denoiser 0: failed after 3 requests, UNREACHABLE: nobody there\n"
                           "denoiser 1: stopped after 0 requests: it has gone\n"
                           "decoder 0: ended without a word after 0 requests\n");
}

static void test_pipeline_report_bytes_have_units(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(convoy_pipeline_report_bytes(text, 0), "0 B");
    assert_string_equal(convoy_pipeline_report_bytes(text, 999), "999 B");
    assert_string_equal(convoy_pipeline_report_bytes(text, 1000), "1.00 kB");
    assert_string_equal(convoy_pipeline_report_bytes(text, 1234567), "1.23 MB");
    assert_string_equal(convoy_pipeline_report_bytes(text, 5000000000000000), "5000.00 TB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pipeline_report_has_a_row_for_each_hop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pipeline_report_of_nothing_has_dashes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pipeline_report_counts_what_is_left_in_the_pools, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pipeline_report_says_how_each_one_ended, setup, teardown),
        cmocka_unit_test(test_pipeline_report_bytes_have_units),
    };
    return cmocka_run_group_tests_name("pipeline_report", tests, NULL, NULL);
}
