/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_log.h"
#include "core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct convoy_run_log_header header = {
    .shape = {.dp = 2, .tp = 3, .cp = 1}, .rank = 5, .request_count = 300, .seed = 0x0102030405060708ull};

static int setup(void **state)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/convoy_log_XXXXXX");
    int file = mkstemp(path);
    *state = path;
    return file < 0 ? -1 : close(file);
}

static int teardown(void **state)
{
    return unlink(*state);
}

static void test_run_log_bytes_are_those_of_the_description(void **state)
{
    static const uint8_t words[] = {1, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 44, 1, 0, 0};
    static const uint8_t seed[] = {8, 7, 6, 5, 4, 3, 2, 1};
    static const uint8_t record[] = {'P', 0xac, 0x02, 3, 9, 8};
    struct convoy_run_log log;
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint8_t bytes[128];
    assert_int_equal(convoy_run_log_open(&log, *state, 1u << 20, &header, &error), CONVOY_OK);
    convoy_run_log_begin(&log, 'P');
    convoy_run_log_number(&log, 300);
    convoy_run_log_signed(&log, -2);
    convoy_run_log_bytes(&log, (const uint8_t[]){9, 8}, 2);
    convoy_run_log_end(&log);
    convoy_run_log_close(&log);
    FILE *file = fopen(*state, "r");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), 64 + sizeof record);
    (void)fclose(file);
    assert_memory_equal(bytes, "CONVOYRL", 8);
    assert_memory_equal(bytes + 8, words, sizeof words);
    assert_memory_equal(bytes + 32, seed, sizeof seed);
    assert_memory_equal(bytes + 64, record, sizeof record);
}

static void test_run_log_open_record_has_no_tag_yet(void **state)
{
    struct convoy_run_log log;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_run_log_open(&log, *state, 1u << 20, &header, &error), CONVOY_OK);
    convoy_run_log_begin(&log, 'G');
    convoy_run_log_number(&log, 1);
    assert_int_equal(log.data[64], 0);
    convoy_run_log_end(&log);
    assert_int_equal(log.data[64], 'G');
    convoy_run_log_close(&log);
}

/* Whoever is refused room still has room for one step, to agree with the others on the end. */
static void test_run_log_limit_is_kept_and_leaves_one_step(void **state)
{
    static uint8_t step[CONVOY_RUN_LOG_STEP_BYTES - 1];
    struct convoy_run_log log;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct stat what;
    assert_int_equal(convoy_run_log_open(&log, *state, 3u << 20, &header, &error), CONVOY_OK);
    while (convoy_run_log_reserve(&log)) {
        convoy_run_log_begin(&log, 'X');
        convoy_run_log_bytes(&log, step, sizeof step);
        convoy_run_log_end(&log);
    }
    assert_true(log.used + CONVOY_RUN_LOG_STEP_BYTES <= log.limit);
    assert_true(log.used > log.limit - 3 * CONVOY_RUN_LOG_STEP_BYTES);
    uint64_t used = log.used;
    convoy_run_log_close(&log);
    assert_int_equal(stat(*state, &what), 0);
    assert_int_equal(what.st_size, used);
}

static void test_run_log_folder_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct convoy_run_log log;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_run_log_open(&log, "/nowhere/rank-0.log", 1u << 20, &header, &error), CONVOY_SYSTEM);
    assert_non_null(strstr(error.text, "/nowhere/rank-0.log"));
}

/* Growing a file past RLIMIT_FSIZE raises SIGXFSZ, which ends a rank without a word. */
static void test_run_log_past_the_limit_of_file_size_is_refused_with_the_limit(void **state)
{
    struct convoy_run_log log;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit low = {.rlim_cur = 512u << 10, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    int32_t status = convoy_run_log_open(&log, *state, 1u << 20, &header, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, CONVOY_SYSTEM);
    assert_non_null(strstr(error.text, *state));
    assert_non_null(strstr(error.text, "RLIMIT_FSIZE is 524288 bytes, 1048576 are needed"));
}

/* The second megabyte is one too many: the rank is told that there is no room, as with a full disk. */
static void test_run_log_that_reaches_the_limit_of_file_size_has_no_room(void **state)
{
    static uint8_t step[CONVOY_RUN_LOG_STEP_BYTES - 1];
    struct convoy_run_log log;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit low = {.rlim_cur = 1536u << 10, .rlim_max = before.rlim_max};
    assert_int_equal(convoy_run_log_open(&log, *state, 3u << 20, &header, &error), CONVOY_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    while (convoy_run_log_reserve(&log)) {
        convoy_run_log_begin(&log, 'X');
        convoy_run_log_bytes(&log, step, sizeof step);
        convoy_run_log_end(&log);
    }
    assert_in_range(log.used, 800u << 10, 1536u << 10);
    convoy_run_log_close(&log);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_run_log_bytes_are_those_of_the_description),
        CASE(test_run_log_open_record_has_no_tag_yet),
        CASE(test_run_log_limit_is_kept_and_leaves_one_step),
        CASE(test_run_log_past_the_limit_of_file_size_is_refused_with_the_limit),
        CASE(test_run_log_that_reaches_the_limit_of_file_size_has_no_room),
        CASE(test_run_log_folder_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests_name("run_log", tests, NULL, NULL);
}
