/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/outcome.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Two keyed lists, the second with ABSENT_SKIP, of one member that lists the same in both. */
struct bench {
    struct convoy_payload_shape shape;
    struct convoy_keyed keyed;
    struct convoy_decided decided;
    struct convoy_outcome outcome;
    struct convoy_order order;
    struct convoy_memory_plan plan;
};

static void bench_place(struct bench *bench)
{
    convoy_keyed_place(&bench->keyed, 1024, NULL, &bench->plan);
    convoy_decided_place(&bench->decided, 16, &bench->plan);
    convoy_outcome_place(&bench->outcome, 64, &bench->plan);
    convoy_order_place(&bench->order, 64, &bench->plan);
}

static void bench_open(struct bench *bench)
{
    memset(bench, 0, sizeof *bench);
    bench_place(bench);
    assert_true(convoy_memory_plan_make(&bench->plan));
    bench_place(bench);
}

static void bench_close(struct bench *bench)
{
    convoy_memory_table_free(bench->plan.base);
}

/* As if merged: `count` identities in each list, listed by one of `members`. */
static void bench_round(struct bench *bench, const uint64_t *keys, const uint8_t *states, uint32_t count,
                        uint32_t members)
{
    memset(&bench->shape, 0, sizeof bench->shape);
    convoy_payload_shape_add(&bench->shape, count, CONVOY_POLL_KEYED);
    convoy_payload_shape_add(&bench->shape, count, CONVOY_POLL_KEYED | CONVOY_POLL_ABSENT_SKIP);
    convoy_keyed_prepare(&bench->keyed, &bench->shape);
    bench->keyed.positional.members = members;
    bench->keyed.version++;
    struct convoy_table *table = convoy_keyed_current(&bench->keyed);
    for (uint32_t list = 0; list < 2; list++) {
        table->starts[list] = list * count;
        memcpy(table->keys + list * count, keys, sizeof *keys * count);
        memcpy(table->states + list * count, states, count);
        for (uint32_t i = 0; i < count; i++) {
            table->listed[list * count + i] = 1;
        }
    }
    table->starts[2] = 2 * count;
}

static void test_outcome_absent_member_holds_back_unless_skipped(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    bench_round(&bench, (const uint64_t[]){1, 2, 3}, (const uint8_t[]){4, 1, 0}, 3, 2);
    convoy_outcome_finish(&bench.outcome, &bench.keyed, &bench.decided);
    assert_memory_equal(convoy_keyed_current(&bench.keyed)->states, ((const uint8_t[]){1, 1, 0, 4, 1, 0}), 6);
    assert_int_equal(bench.decided.count, 3);
    bench_close(&bench);
}

/* Once ended, an identity is answered with that end, per list; nothing else is. */
static void test_outcome_ended_identity_is_answered_with_its_end(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    const uint64_t keys[] = {1, 2, 3};
    bench_round(&bench, keys, (const uint8_t[]){4, 1, 0}, 3, 1);
    convoy_outcome_finish(&bench.outcome, &bench.keyed, &bench.decided);
    assert_int_equal(bench.outcome.flags[0], 0);
    bench_round(&bench, keys, (const uint8_t[]){0, 4, 4}, 3, 1);
    convoy_outcome_finish(&bench.outcome, &bench.keyed, &bench.decided);
    assert_memory_equal(convoy_keyed_current(&bench.keyed)->states, ((const uint8_t[]){4, 4, 0, 4, 4, 0}), 6);
    assert_memory_equal(bench.outcome.flags, ((const uint8_t[]){1, 0, 1, 1, 0, 1}), 6);
    bench_close(&bench);
}

static void test_outcome_without_decisions_decides_nothing(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    const uint64_t keys[] = {1};
    bench_round(&bench, keys, (const uint8_t[]){4}, 1, 1);
    convoy_outcome_finish(&bench.outcome, &bench.keyed, NULL);
    bench_round(&bench, keys, (const uint8_t[]){2}, 1, 1);
    convoy_outcome_finish(&bench.outcome, &bench.keyed, &bench.decided);
    assert_int_equal(convoy_keyed_current(&bench.keyed)->states[0], 2);
    assert_int_equal(bench.decided.count, 0);
    bench_close(&bench);
}

static void test_outcome_own_order_is_found_and_a_missing_own_entry_noticed(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    const uint64_t own[] = {3, 1};
    struct convoy_poll_list lists[2] = {{.count = 2, .keys = own}, {.count = 2, .keys = own}};
    struct convoy_payload_shape shape = {0};
    convoy_payload_shape_add(&shape, 2, CONVOY_POLL_KEYED);
    convoy_payload_shape_add(&shape, 2, CONVOY_POLL_KEYED);
    bench_round(&bench, (const uint64_t[]){1, 2, 3}, (const uint8_t[]){4, 1, 0}, 3, 1);
    assert_false(convoy_outcome_own(&bench.outcome, &bench.keyed, &bench.order)); /* no own lists at all */
    assert_int_equal(convoy_order_take(&bench.order, lists, &shape, NULL), CONVOY_OK);
    assert_true(convoy_outcome_own(&bench.outcome, &bench.keyed, &bench.order));
    assert_memory_equal(bench.outcome.states, ((const uint8_t[]){0, 4, 0, 4}), 4);
    bench_round(&bench, (const uint64_t[]){1, 2}, (const uint8_t[]){4, 1}, 2, 1);
    assert_false(convoy_outcome_own(&bench.outcome, &bench.keyed, &bench.order));
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outcome_absent_member_holds_back_unless_skipped),
        cmocka_unit_test(test_outcome_ended_identity_is_answered_with_its_end),
        cmocka_unit_test(test_outcome_without_decisions_decides_nothing),
        cmocka_unit_test(test_outcome_own_order_is_found_and_a_missing_own_entry_noticed),
    };
    return cmocka_run_group_tests_name("outcome", tests, NULL, NULL);
}
