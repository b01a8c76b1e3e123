/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as every part of the library gets it: zeroed, aligned, refused where a size cannot be, and made to fail. Kill
 * points, which are compiled in with that, end a process of their own. */
#include "core/fault.h"
#include "core/memory.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_memory_is_zeroed_and_of_any_size(void **state)
{
    static const unsigned char zeros[100];
    (void)state;
    for (size_t bytes = 0; bytes <= sizeof zeros; bytes += 20) {
        unsigned char *plain = convoy_memory_zalloc(bytes);
        unsigned char *array = convoy_memory_array(bytes, 1);
        unsigned char *none = convoy_memory_array(1, 0);
        assert_true(plain != NULL && array != NULL && none != NULL && plain != array);
        assert_memory_equal(plain, zeros, bytes);
        assert_memory_equal(array, zeros, bytes);
        convoy_memory_free(plain);
        convoy_memory_free(array);
        convoy_memory_free(none);
    }
    convoy_memory_free(NULL);
}

static void test_memory_aligned_is_zeroed_and_aligned(void **state)
{
    static const unsigned char zeros[300];
    (void)state;
    for (size_t alignment = sizeof(void *); alignment <= 4096; alignment *= 2) {
        unsigned char *memory = convoy_memory_aligned(alignment, sizeof zeros);
        unsigned char *none = convoy_memory_aligned(alignment, 0);
        assert_true(memory != NULL && none != NULL);
        assert_int_equal((uintptr_t)memory % alignment, 0);
        assert_memory_equal(memory, zeros, sizeof zeros);
        convoy_memory_free(memory);
        convoy_memory_free(none);
    }
}

static void test_memory_text_is_a_copy_with_an_end(void **state)
{
    char *none = convoy_memory_text(NULL, 0);
    char *copy = convoy_memory_text("abcdef", 3);
    (void)state;
    assert_string_equal(copy, "abc");
    assert_string_equal(none, "");
    convoy_memory_free(copy);
    convoy_memory_free(none);
    assert_null(convoy_memory_text("a", SIZE_MAX));
}

static void test_memory_plan_lays_tables_out_apart_and_zeroed(void **state)
{
    static const unsigned char zeros[4096];
    static const size_t sizes[] = {1, 0, 63, 64, 65, 4096, 7};
    unsigned char *tables[sizeof sizes / sizeof sizes[0]];
    struct convoy_memory_plan plan = {0};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_null(convoy_memory_place(&plan, sizes[i], 1));
    }
    assert_true(convoy_memory_plan_make(&plan));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tables[i] = convoy_memory_place(&plan, sizes[i], 1);
        assert_non_null(tables[i]);
        assert_int_equal((uintptr_t)tables[i] % CONVOY_LINE_BYTES, (uintptr_t)tables[0] % CONVOY_LINE_BYTES);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_memory_equal(tables[i], zeros, sizes[i]);
        memset(tables[i], 0xff, sizes[i]); /* what overlaps it is no longer zero */
    }
    convoy_memory_table_free(tables[0]);
}

static void test_memory_plan_of_more_than_there_can_be_is_refused(void **state)
{
    struct convoy_memory_plan plan = {0};
    (void)state;
    assert_null(convoy_memory_place(&plan, 10, 8));
    assert_null(convoy_memory_place(&plan, SIZE_MAX / 4, 8));
    assert_null(convoy_memory_place(&plan, 1, 1)); /* and nothing behind it brings it back */
    assert_false(convoy_memory_plan_make(&plan));
    assert_null(plan.base);
}

#ifdef CONVOY_FAULTS
static void test_memory_fails_once_where_it_was_told_to(void **state)
{
    char *pointers[4];
    (void)state;
    (void)convoy_memory_fail_after(2);
    pointers[0] = convoy_memory_zalloc(1);
    pointers[1] = convoy_memory_array(1, 1);
    pointers[2] = convoy_memory_aligned(8, 1);
    pointers[3] = convoy_memory_text("a", 1);
    assert_true(pointers[0] != NULL && pointers[1] != NULL && pointers[2] == NULL && pointers[3] != NULL);
    assert_int_equal(convoy_memory_fail_after(-1), 4);
    for (int i = 0; i < 4; i++) {
        convoy_memory_free(pointers[i]);
    }
    assert_int_equal(convoy_memory_fail_after(-1), 0);
}

/* Passes a point `count` times in a process with these words in its environment; returns how that ended. */
static int pass_point(const char *kill_point, const char *hits, unsigned count)
{
    int ended = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)setenv("CONVOY_KILL_POINT", kill_point, 1);
        (void)(hits != NULL && setenv("CONVOY_POINT_HITS", hits, 1));
        for (unsigned i = 0; i < count; i++) {
            CONVOY_POINT(round_ended);
        }
        CONVOY_POINT(open_met);
        exit(0); /* not _exit: what was covered is to be written */
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    return ended;
}

struct point_row {
    const char *wanted;
    unsigned count;
    bool is_killed;
};

static void test_fault_point_kills_when_it_is_passed_for_the_nth_time(void **state)
{
    static const struct point_row rows[] = {
        {"round_ended", 1, true},     {"round_ended", 0, false},   {"round_ended:1", 1, true},
        {"round_ended:3", 2, false},  {"round_ended:3", 3, true},  {"round_ended:9", 3, false},
        {"round_ende", 3, false},     {"round_ended2", 3, false},  {"", 3, false},
        {"open_met", 3, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int ended = pass_point(rows[i].wanted, NULL, rows[i].count);
        bool is_killed = WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL;
        if (is_killed != rows[i].is_killed || (!is_killed && ended != 0)) {
            fail_msg("row %zu: ended as %d", i, ended);
        }
    }
}

/* Each point once, in the order in which they were first passed. */
static void test_fault_point_notes_its_first_pass(void **state)
{
    char path[] = "/tmp/convoy-test-XXXXXX";
    char text[64] = "";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(pass_point("none", path, 3), 0);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    (void)close(fd);
    (void)unlink(path);
    assert_int_equal(bytes, strlen("round_ended\nopen_met\n"));
    assert_string_equal(text, "round_ended\nopen_met\n");
    assert_int_equal(pass_point("none", "/nowhere/at/all", 1), 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_zeroed_and_of_any_size),
        cmocka_unit_test(test_memory_aligned_is_zeroed_and_aligned),
        cmocka_unit_test(test_memory_text_is_a_copy_with_an_end),
        cmocka_unit_test(test_memory_plan_lays_tables_out_apart_and_zeroed),
        cmocka_unit_test(test_memory_plan_of_more_than_there_can_be_is_refused),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_memory_fails_once_where_it_was_told_to),
        cmocka_unit_test(test_fault_point_kills_when_it_is_passed_for_the_nth_time),
        cmocka_unit_test(test_fault_point_notes_its_first_pass),
#endif
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
