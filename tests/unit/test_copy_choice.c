/* SPDX-License-Identifier: Apache-2.0 */
/* Which way copies go: before anything is known, while all ways are tried, and afterwards. */
#include "core/copy_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MIB CONVOY_COPY_LEARN_FROM
#define FIRST_TURNS 6u /* two of each way */
#define AGAIN_EVERY 256u

/* How long a copy takes by each way, on some machine. */
struct machine {
    uint64_t ns[CONVOY_COPY_WAYS];
};

struct counts {
    uint32_t of[CONVOY_COPY_WAYS];
};

static enum convoy_copy_way copy(struct convoy_copy_choice *choice, size_t bytes, const struct machine *machine)
{
    enum convoy_copy_way way = convoy_copy_choice_next(choice, bytes);
    assert_true(way < CONVOY_COPY_WAYS && convoy_copy_can(way));
    convoy_copy_choice_learn(choice, bytes, way, machine->ns[way]);
    return way;
}

static struct counts copy_often(struct convoy_copy_choice *choice, size_t bytes, uint32_t copies,
                                const struct machine *machine)
{
    struct counts counts = {{0}};
    for (uint32_t i = 0; i < copies; i++) {
        counts.of[copy(choice, bytes, machine)]++;
    }
    return counts;
}

static void test_choice_before_anything_is_known(void **state)
{
    (void)state;
    struct convoy_copy_choice choice = {0};
    enum convoy_copy_way streaming = convoy_copy_can(CONVOY_COPY_STREAM) ? CONVOY_COPY_STREAM : CONVOY_COPY_PLAIN;
    assert_int_equal(convoy_copy_choice_usual(0), CONVOY_COPY_PLAIN);
    assert_int_equal(convoy_copy_choice_usual(4 * MIB - 1), CONVOY_COPY_PLAIN);
    assert_int_equal(convoy_copy_choice_usual(4 * MIB), streaming);
    assert_int_equal(convoy_copy_choice_best(&choice, 0), CONVOY_COPY_PLAIN);
    assert_int_equal(convoy_copy_choice_best(&choice, MIB - 1), CONVOY_COPY_PLAIN);
    assert_int_equal(convoy_copy_choice_best(&choice, MIB), CONVOY_COPY_PLAIN);
    assert_int_equal(convoy_copy_choice_best(&choice, 4 * MIB - 1), CONVOY_COPY_PLAIN);
    assert_int_equal(convoy_copy_choice_best(&choice, 4 * MIB), streaming);
    assert_int_equal(convoy_copy_choice_best(&choice, 16 * MIB), streaming);
    assert_int_equal(convoy_copy_choice_best(&choice, SIZE_MAX), streaming);
}

static void test_choice_small_copies_are_plain_and_teach_nothing(void **state)
{
    (void)state;
    static const struct machine machine = {{1000000, 1, 1}};
    struct convoy_copy_choice choice = {0};
    assert_int_equal(copy_often(&choice, MIB - 1, 100, &machine).of[CONVOY_COPY_PLAIN], 100);
    assert_int_equal(atomic_load(&choice.classes[0].turns), 0);
}

/* A machine on which one way is the fastest. */
static void check_fastest(size_t bytes, uint32_t class, enum convoy_copy_way fastest)
{
    struct convoy_copy_choice choice = {0};
    struct machine machine = {{3000000, 3000000, 3000000}};
    machine.ns[fastest] = 2000000;
    struct counts first = copy_often(&choice, bytes, FIRST_TURNS, &machine);
    for (uint32_t way = 1; way < CONVOY_COPY_WAYS; way++) {
        assert_int_equal(first.of[way], convoy_copy_can((enum convoy_copy_way)way) ? FIRST_TURNS / CONVOY_COPY_WAYS : 0);
    }
    uint32_t until = AGAIN_EVERY - FIRST_TURNS;
    assert_int_equal(copy_often(&choice, bytes, until, &machine).of[fastest], until);
    assert_true(copy_often(&choice, bytes, CONVOY_COPY_WAYS * AGAIN_EVERY, &machine).of[fastest] >=
                CONVOY_COPY_WAYS * (AGAIN_EVERY - 1));
    assert_int_equal(convoy_copy_choice_best(&choice, bytes), fastest);
    for (uint32_t other = 0; other < CONVOY_COPY_CLASSES; other++) {
        assert_true((atomic_load(&choice.classes[other].turns) != 0) == (other == class));
    }
}

static void test_choice_takes_the_fastest_way_and_tries_the_others_now_and_then(void **state)
{
    (void)state;
    static const size_t sizes[CONVOY_COPY_CLASSES] = {MIB, 4 * MIB, 64 * MIB};
    for (uint32_t class = 0; class < CONVOY_COPY_CLASSES; class++) {
        for (uint32_t way = 0; way < CONVOY_COPY_WAYS; way++) {
            if (convoy_copy_can((enum convoy_copy_way)way)) {
                check_fastest(sizes[class], class, (enum convoy_copy_way)way);
            }
        }
    }
}

/* What is slow now is found out by itself, what became fast by its next trial. */
/* What is only a little faster changes nothing. */
static void test_choice_stays_with_the_usual_way(void **state)
{
    (void)state;
    static const struct machine machine = {{1000000, 980000, 1050000}};
    static const struct machine other = {{980000, 1050000, 1000000}};
    struct convoy_copy_choice choice = {0};
    (void)copy_often(&choice, MIB, 100, &machine);
    assert_int_equal(convoy_copy_choice_best(&choice, MIB), CONVOY_COPY_PLAIN);
    if (convoy_copy_can(CONVOY_COPY_STREAM)) {
        (void)copy_often(&choice, 16 * MIB, 100, &other);
        assert_int_equal(convoy_copy_choice_best(&choice, 16 * MIB), CONVOY_COPY_STREAM);
    }
}

static void test_choice_follows_a_machine_that_changes(void **state)
{
    (void)state;
    static const struct machine before = {{3000000, 4000000, 2000000}};
    static const struct machine after = {{1000000, 4000000, 9000000}};
    static const struct machine again = {{1000000, 4000000, 100000}};
    struct convoy_copy_choice choice = {0};
    if (!convoy_copy_can(CONVOY_COPY_STREAM)) {
        skip();
    }
    (void)copy_often(&choice, 16 * MIB, 300, &before);
    assert_int_equal(convoy_copy_choice_best(&choice, 16 * MIB), CONVOY_COPY_STREAM);
    assert_true(copy_often(&choice, 16 * MIB, 256, &after).of[CONVOY_COPY_STREAM] < 20);
    assert_int_equal(convoy_copy_choice_best(&choice, 16 * MIB), CONVOY_COPY_PLAIN);
    assert_true(copy_often(&choice, 16 * MIB, 10 * AGAIN_EVERY, &again).of[CONVOY_COPY_STREAM] > 1000);
}

static void test_choice_holds_the_strangest_times(void **state)
{
    (void)state;
    static const struct machine slow = {{UINT64_MAX / 1000, UINT64_MAX / 1000, UINT64_MAX / 1000}};
    static const struct machine quick = {{0, 0, 0}};
    struct convoy_copy_choice choice = {0};
    for (uint32_t i = 0; i < 100; i++) {
        (void)copy(&choice, MIB, &quick);
        (void)copy(&choice, SIZE_MAX, &slow);
        (void)copy(&choice, SIZE_MAX, &quick);
    }
    for (uint32_t class = 0; class < CONVOY_COPY_CLASSES; class += 2) {
        assert_true(atomic_load(&choice.classes[class].cost[CONVOY_COPY_PLAIN]) != 0);
    }
    assert_int_equal(convoy_copy_choice_best(&choice, MIB), CONVOY_COPY_PLAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice_before_anything_is_known),
        cmocka_unit_test(test_choice_small_copies_are_plain_and_teach_nothing),
        cmocka_unit_test(test_choice_takes_the_fastest_way_and_tries_the_others_now_and_then),
        cmocka_unit_test(test_choice_stays_with_the_usual_way),
        cmocka_unit_test(test_choice_follows_a_machine_that_changes),
        cmocka_unit_test(test_choice_holds_the_strangest_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
