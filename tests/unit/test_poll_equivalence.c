/* SPDX-License-Identifier: Apache-2.0 */
/* The thirty scenarios (tests/lib/scenarios.h) on pretended engines, compared on the log of reductions. */
#include "tests/lib/poll_grid.h"
#include "tests/lib/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Asserts one line of the log. */
static void assert_reduction(const struct poll_grid_log *log, uint32_t at, uint32_t group, const uint8_t *input,
                             const uint8_t *output)
{
    assert_true(at < log->count);
    const struct poll_grid_reduction *reduction = &log->reductions[at];
    assert_int_equal(reduction->group, group);
    assert_int_equal(reduction->status, CONVOY_OK);
    assert_int_equal(reduction->count, SCENARIO_ENTRIES);
    assert_memory_equal(reduction->input, input, SCENARIO_ENTRIES);
    assert_memory_equal(reduction->output, output, SCENARIO_ENTRIES);
}

static void grid_reduce(struct poll_grid *grid, enum scenario_form form)
{
    if (form == SCENARIO_TWO_LEVEL) {
        poll_grid_run(grid, CONVOY_OK);
        return;
    }
    for (uint32_t i = 0; i < SCENARIO_RANKS; i++) {
        struct poll_rank *rank = &grid->rank[i];
        assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &rank->operation, NULL), CONVOY_OK);
    }
    for (uint32_t i = 0; i < SCENARIO_RANKS; i++) {
        struct poll_rank *rank = &grid->rank[i];
        assert_int_equal(convoy_poll_test(rank->poll, rank->operation, &rank->result, NULL), CONVOY_OK);
    }
}

static void scenario_assert(struct poll_grid *grid, const struct scenario_host *hosts, enum scenario_form form)
{
    struct scenario_expected expected;
    scenario_expect(hosts, &expected);
    for (uint32_t i = 0; i < SCENARIO_RANKS; i++) {
        assert_string_equal(hosts[i].trail, expected.trails[i]);
        assert_reduction(&grid->log[i], 0, 1, expected.inputs[i], expected.firsts[i]);
        if (form == SCENARIO_TWO_LEVEL) {
            assert_reduction(&grid->log[i], 1, 2, expected.firsts[i], expected.all);
        }
        assert_int_equal(grid->log[i].count, form == SCENARIO_TWO_LEVEL ? 2 : 1);
        assert_memory_equal(grid->rank[i].states[0], form == SCENARIO_TWO_LEVEL ? expected.all : expected.firsts[i],
                            SCENARIO_ENTRIES);
    }
}

static void scenario_run(enum scenario_form form, uint32_t vector)
{
    struct poll_grid *grid = poll_grid_create(2, 2);
    struct scenario_host hosts[SCENARIO_RANKS];
    for (uint32_t i = 0; i < SCENARIO_RANKS; i++) {
        scenario_host_fill(&hosts[i], form, vector, i);
        poll_rank_reset(&grid->rank[i]);
        *poll_rank_add(&grid->rank[i], NULL, NULL, SCENARIO_ENTRIES) = scenario_host_list(&hosts[i]);
    }
    grid_reduce(grid, form);
    scenario_assert(grid, hosts, form);
    poll_grid_destroy(grid);
}

static void test_poll_equivalence_of_the_thirty_scenarios(void **state)
{
    (void)state;
    for (uint32_t vector = 0; vector < SCENARIO_VECTORS; vector++) {
        for (enum scenario_form form = SCENARIO_PLAIN; form < SCENARIO_FORMS; form++) {
            scenario_run(form, vector);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_poll_equivalence_of_the_thirty_scenarios),
    };
    return cmocka_run_group_tests_name("poll_equivalence", tests, NULL, NULL);
}
