/* SPDX-License-Identifier: Apache-2.0 */
/* Which way copies go: before anything is known, while both ways are tried, and afterwards. */
#include "core/copy.h"
#include "core/copy_choice.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MIB CONVOY_COPY_LEARN_FROM

/* One copy of a machine on which one way takes so long. Returns whether it went the streaming way. */
static bool copy(struct convoy_copy_choice *choice, size_t bytes, uint64_t plain_ns, uint64_t streaming_ns)
{
    size_t way = convoy_copy_choice_next(choice, bytes);
    assert_true(way == 0 || way == CONVOY_COPY_NEVER);
    convoy_copy_choice_learn(choice, bytes, way, way == 0 ? streaming_ns : plain_ns);
    return way == 0;
}

static uint32_t count_streaming(struct convoy_copy_choice *choice, size_t bytes, uint32_t copies, uint64_t plain_ns,
                                uint64_t streaming_ns)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < copies; i++) {
        count += copy(choice, bytes, plain_ns, streaming_ns);
    }
    return count;
}

static void test_choice_before_anything_is_known(void **state)
{
    (void)state;
    struct convoy_copy_choice choice = {0};
    size_t streaming = convoy_copy_can_stream() ? 0 : CONVOY_COPY_NEVER;
    assert_true(convoy_copy_choice_best(&choice, 0) == CONVOY_COPY_NEVER);
    assert_true(convoy_copy_choice_best(&choice, MIB - 1) == CONVOY_COPY_NEVER);
    assert_true(convoy_copy_choice_best(&choice, MIB) == CONVOY_COPY_NEVER);
    assert_true(convoy_copy_choice_best(&choice, 4 * MIB - 1) == CONVOY_COPY_NEVER);
    assert_true(convoy_copy_choice_best(&choice, 4 * MIB) == streaming);
    assert_true(convoy_copy_choice_best(&choice, 16 * MIB) == streaming);
    assert_true(convoy_copy_choice_best(&choice, SIZE_MAX) == streaming);
}

static void test_choice_small_copies_are_plain_and_teach_nothing(void **state)
{
    (void)state;
    struct convoy_copy_choice choice = {0};
    assert_int_equal(count_streaming(&choice, MIB - 1, 100, 1000000, 1), 0);
    assert_int_equal(atomic_load(&choice.classes[0].turns), 0);
}

/* Whatever the machine is like, and each class by itself. */
static void test_choice_takes_the_faster_way_and_tries_the_other_now_and_then(void **state)
{
    (void)state;
    static const size_t sizes[CONVOY_COPY_CLASSES] = {MIB, 4 * MIB, 64 * MIB};
    if (!convoy_copy_can_stream()) {
        skip();
    }
    for (uint32_t class = 0; class < CONVOY_COPY_CLASSES; class++) {
        struct convoy_copy_choice choice = {0};
        assert_int_equal(count_streaming(&choice, sizes[class], 8, 3000000, 2000000), 4);
        assert_int_equal(count_streaming(&choice, sizes[class], 248, 3000000, 2000000), 248);
        assert_int_equal(count_streaming(&choice, sizes[class], 256, 3000000, 2000000), 255);
        assert_true(convoy_copy_choice_best(&choice, sizes[class]) == 0);
        uint32_t others = 0;
        for (uint32_t other = 0; other < CONVOY_COPY_CLASSES; other++) {
            others += other != class ? atomic_load(&choice.classes[other].turns) : 0;
        }
        assert_int_equal(others, 0);
        /* The machine changes: what is slow now is found out by itself, what became fast by the next trial. */
        assert_true(count_streaming(&choice, sizes[class], 256, 1000000, 9000000) < 20);
        assert_true(convoy_copy_choice_best(&choice, sizes[class]) == CONVOY_COPY_NEVER);
        assert_true(count_streaming(&choice, sizes[class], 2560, 1000000, 100000) > 1000);
    }
}

static void test_choice_holds_the_strangest_times(void **state)
{
    (void)state;
    struct convoy_copy_choice choice = {0};
    for (uint32_t i = 0; i < 100; i++) {
        (void)copy(&choice, MIB, 0, UINT64_MAX / 1000);
        (void)copy(&choice, SIZE_MAX, UINT64_MAX / 1000, 0);
    }
    for (uint32_t class = 0; class < CONVOY_COPY_CLASSES; class += 2) {
        assert_true(atomic_load(&choice.classes[class].cost[0]) != 0);
    }
    assert_true(convoy_copy_choice_best(&choice, MIB) == CONVOY_COPY_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice_before_anything_is_known),
        cmocka_unit_test(test_choice_small_copies_are_plain_and_teach_nothing),
        cmocka_unit_test(test_choice_takes_the_faster_way_and_tries_the_other_now_and_then),
        cmocka_unit_test(test_choice_holds_the_strangest_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
