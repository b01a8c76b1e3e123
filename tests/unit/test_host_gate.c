/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for whom while a loader swaps: every wait ends, at the latest at the swap's deadline, and says why. */
#include "load/gate.h"

#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/await.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SOON_NS 30000000ull

static struct convoy_gate gate;

static int gate_setup(void **state)
{
    (void)state;
    return convoy_gate_init(&gate, NULL);
}

static int gate_teardown(void **state)
{
    (void)state;
    convoy_gate_fini(&gate);
    return 0;
}

/* A swap that another thread has begun and does not end. */
static void *begin_swap(void *user)
{
    const uint64_t *deadline_ns = user;
    assert_int_equal(convoy_gate_swap_begin(&gate, *deadline_ns, NULL), CONVOY_OK);
    convoy_gate_pause_begin(&gate, *deadline_ns);
    return NULL;
}

static void begin_elsewhere(uint64_t deadline_ns)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, begin_swap, &deadline_ns), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void end_swap(void)
{
    convoy_gate_pause_end(&gate);
    convoy_gate_swap_end(&gate);
}

static void test_host_gate_late_swap_makes_an_open_busy(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint32_t counter = 0;
    (void)state;
    begin_elsewhere(convoy_now_ns() + SOON_NS);
    assert_int_equal(convoy_gate_enter(&gate, &counter, &error), CONVOY_BUSY);
    assert_non_null(strstr(error.text, "has not ended by its deadline"));
    assert_int_equal(counter, 0);
    end_swap();
    assert_int_equal(convoy_gate_enter(&gate, &counter, &error), CONVOY_OK);
    assert_int_equal(counter, 1);
    convoy_gate_leave(&gate, &counter);
    assert_int_equal(counter, 0);
}

static void test_host_gate_late_pause_makes_a_moved_call_busy(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_again again = {0};
    int32_t status = CONVOY_MOVED;
    (void)state;
    begin_elsewhere(convoy_now_ns() + SOON_NS);
    assert_false(convoy_gate_again(&gate, &again, &status, &error));
    assert_int_equal(status, CONVOY_BUSY);
    assert_non_null(strstr(error.text, "has not ended by its deadline"));
    end_swap();
}

static void test_host_gate_swap_does_not_wait_for_itself(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_again again = {0};
    uint32_t counter = 0;
    int32_t status = CONVOY_MOVED;
    (void)state;
    assert_int_equal(convoy_gate_swap_begin(&gate, CONVOY_DEADLINE_NEVER, &error), CONVOY_OK);
    assert_int_equal(convoy_gate_swap_begin(&gate, CONVOY_DEADLINE_NEVER, &error), CONVOY_BUSY);
    assert_non_null(strstr(error.text, "another swap"));
    assert_int_equal(convoy_gate_enter(&gate, &counter, &error), CONVOY_BUSY);
    assert_non_null(strstr(error.text, "would wait for itself"));
    convoy_gate_pause_begin(&gate, CONVOY_DEADLINE_NEVER);
    assert_false(convoy_gate_again(&gate, &again, &status, &error));
    assert_int_equal(status, CONVOY_BUSY);
    end_swap();
}

/* A call may have been answered in a pause that ended before it came to wait: one more try, and with no pause no third. */
static void test_host_gate_moved_call_is_tried_once_more_per_turn(void **state)
{
    struct convoy_again again = {0};
    int32_t status = CONVOY_MOVED;
    (void)state;
    assert_true(convoy_gate_again(&gate, &again, &status, NULL));
    assert_false(convoy_gate_again(&gate, &again, &status, NULL));
    assert_int_equal(status, CONVOY_MOVED);
    begin_elsewhere(CONVOY_DEADLINE_NEVER);
    end_swap();
    assert_true(convoy_gate_again(&gate, &again, &status, NULL));
    assert_false(convoy_gate_again(&gate, &again, &status, NULL));
}

static void test_host_gate_wait_that_had_waited_goes_on_with_what_is_left(void **state)
{
    const uint64_t second = CONVOY_NS_PER_S;
    struct convoy_again fresh = {.has_timeout = true, .begun_ns = UINT64_MAX / 2, .timeout_ns = second};
    struct convoy_again old = {
        .has_timeout = true, .begun_ns = convoy_gate_coarse_ns() - second / 4, .timeout_ns = second};
    struct convoy_again late = {
        .has_timeout = true, .begun_ns = convoy_gate_coarse_ns() - 2 * second, .timeout_ns = second};
    struct convoy_again usual = {.has_timeout = true, .begun_ns = convoy_gate_coarse_ns() - second};
    int32_t status = CONVOY_MOVED;
    (void)state;
    assert_true(convoy_gate_again(&gate, &fresh, &status, NULL));
    assert_int_equal(fresh.timeout_ns, second);
    assert_true(convoy_gate_again(&gate, &old, &status, NULL));
    assert_true(old.timeout_ns <= second * 3 / 4 && old.timeout_ns > 0);
    assert_true(convoy_gate_again(&gate, &late, &status, NULL));
    assert_int_equal(late.timeout_ns, 1); /* not 0, which is the default */
    assert_true(convoy_gate_again(&gate, &usual, &status, NULL));
    assert_int_equal(usual.timeout_ns, 0);
}

static void test_host_gate_swap_does_not_begin_while_a_context_is_opened(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)state;
    assert_int_equal(convoy_gate_enter(&gate, &gate.inside, &error), CONVOY_OK);
    assert_int_equal(convoy_gate_swap_begin(&gate, convoy_now_ns() + SOON_NS, &error), CONVOY_BUSY);
    assert_non_null(strstr(error.text, "a context is being opened"));
    convoy_gate_leave(&gate, &gate.inside);
    assert_int_equal(convoy_gate_swap_begin(&gate, CONVOY_DEADLINE_NEVER, &error), CONVOY_OK);
    convoy_gate_swap_end(&gate);
}

static void test_host_gate_child_does_not_wait_for_its_parents_swap(void **state)
{
    int child_status = -1;
    (void)state;
    begin_elsewhere(CONVOY_DEADLINE_NEVER);
    pid_t child = fork();
    if (child == 0) {
        struct convoy_again again = {0};
        uint32_t counter = 0;
        int32_t status = CONVOY_MOVED;
        bool is_free = convoy_gate_enter(&gate, &counter, NULL) == CONVOY_OK &&
                       convoy_gate_again(&gate, &again, &status, NULL) &&
                       !convoy_gate_again(&gate, &again, &status, NULL);
        _exit(is_free ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &child_status, 0), child);
    assert_int_equal(child_status, 0);
    end_swap();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_gate_late_swap_makes_an_open_busy),
        cmocka_unit_test(test_host_gate_late_pause_makes_a_moved_call_busy),
        cmocka_unit_test(test_host_gate_swap_does_not_wait_for_itself),
        cmocka_unit_test(test_host_gate_moved_call_is_tried_once_more_per_turn),
        cmocka_unit_test(test_host_gate_wait_that_had_waited_goes_on_with_what_is_left),
        cmocka_unit_test(test_host_gate_swap_does_not_begin_while_a_context_is_opened),
        cmocka_unit_test(test_host_gate_child_does_not_wait_for_its_parents_swap),
    };
    return cmocka_run_group_tests_name("host_gate", tests, gate_setup, gate_teardown);
}
