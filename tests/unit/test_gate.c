/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* sgl-project/sglang issues 17259 and 22716, PR 17430: the stamp is compared by key and generation. */
static void test_gate_identity_passes_only_the_entrys_own_stamp(void **state)
{
    (void)state;
    const struct {
        struct convoy_poll_stamp stamp;
        enum convoy_gate_answer answer;
    } rows[] = {
        {{0, 0, 0}, CONVOY_GATE_UNWRITTEN}, {{0, 3, 1}, CONVOY_GATE_UNWRITTEN}, {{7, 3, 1}, CONVOY_GATE_MINE},
        {{7, 2, 1}, CONVOY_GATE_FOREIGN},   {{7, 2, 0}, CONVOY_GATE_MINE},      {{8, 3, 1}, CONVOY_GATE_FOREIGN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(convoy_gate_check(CONVOY_GATE_IDENTITY, 7, 3, &rows[i].stamp), rows[i].answer);
    }
}

/* As hosts do today: any stamp that is not zero passes, also a wrong one. */
static void test_gate_host_passes_any_written_stamp(void **state)
{
    (void)state;
    const struct convoy_poll_stamp foreign = {99, 1, 1};
    const struct convoy_poll_stamp unwritten = {0, 0, 0};
    assert_int_equal(convoy_gate_check(CONVOY_GATE_HOST, 7, 3, &foreign), CONVOY_GATE_MINE);
    assert_int_equal(convoy_gate_check(CONVOY_GATE_HOST, 7, 3, &unwritten), CONVOY_GATE_UNWRITTEN);
}

static void test_gate_foreign_stamp_fails_at_its_deadline_and_unwritten_never(void **state)
{
    (void)state;
    assert_int_equal(convoy_gate_state(CONVOY_GATE_MINE, 100, 1), CONVOY_STATE_SUCCESS);
    assert_int_equal(convoy_gate_state(CONVOY_GATE_FOREIGN, 99, 100), CONVOY_STATE_TRANSFERRING);
    assert_int_equal(convoy_gate_state(CONVOY_GATE_FOREIGN, 100, 100), CONVOY_STATE_FAILED);
    assert_int_equal(convoy_gate_state(CONVOY_GATE_FOREIGN, 100, 0), CONVOY_STATE_TRANSFERRING);
    assert_int_equal(convoy_gate_state(CONVOY_GATE_UNWRITTEN, 100, 1), CONVOY_STATE_TRANSFERRING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gate_identity_passes_only_the_entrys_own_stamp),
        cmocka_unit_test(test_gate_host_passes_any_written_stamp),
        cmocka_unit_test(test_gate_foreign_stamp_fails_at_its_deadline_and_unwritten_never),
    };
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}
