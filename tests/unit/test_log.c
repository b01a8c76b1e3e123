/* SPDX-License-Identifier: Apache-2.0 */
#include "core/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MORE 3u

struct taken {
    unsigned count;
    uint32_t last_level;
    char first[64];
    char last[CONVOY_LOG_LINE_BYTES];
};

static void take(void *user, uint32_t level, const char *text, size_t length)
{
    struct taken *taken = user;
    assert_int_equal(strlen(text), length);
    if (taken->count++ == 0) {
        (void)strncpy(taken->first, text, sizeof taken->first - 1);
    }
    taken->last_level = level;
    memcpy(taken->last, text, length + 1);
}

static void test_log_lines_wait_for_a_call_and_keep_their_order(void **state)
{
    (void)state;
    struct convoy_log log;
    struct taken taken = {0};
    convoy_log_init(&log, take, &taken, CONVOY_LOG_INFO);
    convoy_log_line(&log, CONVOY_LOG_WARN, "line %d", 1);
    convoy_log_line(&log, CONVOY_LOG_DEBUG, "not asked for");
    convoy_log_line(&log, CONVOY_LOG_INFO, "line %d", 2);
    assert_int_equal(taken.count, 0);
    convoy_log_flush(&log);
    assert_int_equal(taken.count, 2);
    assert_string_equal(taken.first, "line 1");
    assert_string_equal(taken.last, "line 2");
    assert_int_equal(taken.last_level, CONVOY_LOG_INFO);
    convoy_log_fini(&log);
}

static void test_log_lines_without_room_are_counted_and_told_once(void **state)
{
    (void)state;
    struct convoy_log log;
    struct taken taken = {0};
    convoy_log_init(&log, take, &taken, CONVOY_LOG_INFO);
    for (unsigned i = 0; i < CONVOY_LOG_RING_LINES + MORE; i++) {
        convoy_log_line(&log, CONVOY_LOG_INFO, "line %u", i);
    }
    convoy_log_flush(&log);
    assert_int_equal(taken.count, CONVOY_LOG_RING_LINES + 1);
    assert_string_equal(taken.first, "line 0");
    assert_non_null(strstr(taken.last, "3 log lines"));
    assert_int_equal(taken.last_level, CONVOY_LOG_WARN);
    convoy_log_flush(&log);
    assert_int_equal(taken.count, CONVOY_LOG_RING_LINES + 1);
    convoy_log_fini(&log);
}

static void test_log_without_a_function_keeps_nothing(void **state)
{
    (void)state;
    struct convoy_log log;
    convoy_log_init(&log, NULL, NULL, 0);
    convoy_log_line(&log, CONVOY_LOG_ERROR, "nobody listens");
    assert_int_equal(log.pending, 0);
    convoy_log_flush(&log);
    convoy_log_fini(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_lines_wait_for_a_call_and_keep_their_order),
        cmocka_unit_test(test_log_lines_without_room_are_counted_and_told_once),
        cmocka_unit_test(test_log_without_a_function_keeps_nothing),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
