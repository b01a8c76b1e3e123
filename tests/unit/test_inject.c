/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/inject.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint32_t hits_count(const struct convoy_inject *inject, uint64_t round)
{
    uint32_t hits = 0;
    for (uint32_t entry = 0; entry < 10000; entry++) {
        hits += convoy_inject_hits(inject, round, 1, entry);
    }
    return hits;
}

static void test_inject_draws_about_as_many_as_asked_and_the_same_for_a_seed(void **state)
{
    (void)state;
    struct convoy_poll_faults faults = {.struct_size = sizeof faults, .probability_ppm = 100000, .seed = 5};
    struct convoy_inject a;
    struct convoy_inject b;
    assert_int_equal(convoy_inject_init(&a, &faults, NULL), CONVOY_OK);
    assert_int_equal(convoy_inject_init(&b, &faults, NULL), CONVOY_OK);
    assert_in_range(hits_count(&a, 3), 850, 1150);
    assert_int_equal(hits_count(&a, 3), hits_count(&b, 3));
    assert_true(convoy_inject_hits(&a, 3, 0, 1) == convoy_inject_hits(&b, 3, 0, 1));
    uint32_t differing = 0;
    for (uint32_t entry = 0; entry < 1000; entry++) {
        differing += convoy_inject_hits(&a, 3, 1, entry) != convoy_inject_hits(&a, 4, 1, entry);
    }
    assert_in_range(differing, 100, 300);
    convoy_inject_fini(&a);
    convoy_inject_fini(&b);
}

static void test_inject_probability_bounds_are_never_and_always(void **state)
{
    (void)state;
    struct convoy_poll_faults faults = {.struct_size = sizeof faults, .probability_ppm = 1000000};
    struct convoy_inject inject;
    assert_int_equal(convoy_inject_init(&inject, &faults, NULL), CONVOY_OK);
    assert_int_equal(hits_count(&inject, 1), 10000);
    convoy_inject_fini(&inject);
    assert_int_equal(convoy_inject_init(&inject, NULL, NULL), CONVOY_OK);
    assert_false(convoy_inject_is_active(&inject, 1));
    assert_int_equal(hits_count(&inject, 1), 0);
    convoy_inject_fini(&inject);
}

static void test_inject_script_hits_exactly_its_entries(void **state)
{
    (void)state;
    const struct convoy_poll_fault script[] = {{9, 1, 4}, {2, 0, 7}, {9, 0, 4}, {2, 0, 6}};
    struct convoy_poll_faults faults = {.struct_size = sizeof faults, .script = script, .script_count = 4};
    struct convoy_inject inject;
    assert_int_equal(convoy_inject_init(&inject, &faults, NULL), CONVOY_OK);
    assert_true(convoy_inject_hits(&inject, 2, 0, 6) && convoy_inject_hits(&inject, 2, 0, 7));
    assert_true(convoy_inject_hits(&inject, 9, 0, 4) && convoy_inject_hits(&inject, 9, 1, 4));
    assert_false(convoy_inject_hits(&inject, 9, 1, 6));
    assert_false(convoy_inject_hits(&inject, 3, 0, 6));
    assert_true(convoy_inject_is_active(&inject, 2) && convoy_inject_is_active(&inject, 9));
    assert_false(convoy_inject_is_active(&inject, 3));
    convoy_inject_fini(&inject);
}

static void test_inject_bad_options_are_refused_with_value_and_range(void **state)
{
    (void)state;
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_inject inject;
    struct convoy_poll_faults faults = {.struct_size = sizeof faults, .probability_ppm = 1000001};
    assert_int_equal(convoy_inject_init(&inject, &faults, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "1000001"));
    faults = (struct convoy_poll_faults){.struct_size = sizeof faults, .script_count = 4097};
    assert_int_equal(convoy_inject_init(&inject, &faults, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "4097"));
    faults.script_count = 1;
    assert_int_equal(convoy_inject_init(&inject, &faults, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "NULL"));
    struct convoy_poll_fault script[2] = {{.round = 1, .list = 7}, {.round = 1, .list = 8}};
    faults = (struct convoy_poll_faults){.struct_size = sizeof faults, .script = script, .script_count = 2};
    assert_int_equal(convoy_inject_init(&inject, &faults, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "script[1].list is 8"));
    script[1] = (struct convoy_poll_fault){.round = 0};
    assert_int_equal(convoy_inject_init(&inject, &faults, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "script[1].round is 0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inject_draws_about_as_many_as_asked_and_the_same_for_a_seed),
        cmocka_unit_test(test_inject_probability_bounds_are_never_and_always),
        cmocka_unit_test(test_inject_script_hits_exactly_its_entries),
        cmocka_unit_test(test_inject_bad_options_are_refused_with_value_and_range),
    };
    return cmocka_run_group_tests_name("inject", tests, NULL, NULL);
}
