/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thirty scenarios (tests/lib/scenarios.h) with forked ranks on the real library, judged on the call logs of both
 * groups as well as on results: exactly one reduction per call, two for the two-level form, with the right input.
 */
#include "tests/lib/crowd.h"
#include "tests/lib/describe.h"
#include "tests/lib/expect.h"
#include "tests/lib/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* One rank: its two groups, and the reductions that each of them has done. */
struct grid_rank {
    struct crowd_levels levels;
    size_t first_calls;
    size_t second_calls;
};

static void reduce(struct grid_rank *self, struct scenario_host *host, uint8_t *states_out)
{
    const struct convoy_poll_table *poll = self->levels.first->plugin.poll;
    struct convoy_error *error = &self->levels.first->error;
    const struct convoy_poll_list list = scenario_host_list(host);
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    struct convoy_poll_list_result list_result = {.states = states_out, .states_capacity = SCENARIO_ENTRIES};
    struct convoy_poll_result result = {.struct_size = sizeof result,
                                        .lists = &list_result,
                                        .list_stride = sizeof list_result,
                                        .list_capacity = 1};
    if (host->form != SCENARIO_TWO_LEVEL) {
        EXPECT_OK(poll->reduce(self->levels.first->group, &call, CROWD_WAIT_NS, &result, error), error);
        return;
    }
    convoy_operation operation = 0;
    EXPECT_OK(poll->reduce2_start(self->levels.first->group, self->levels.second->group, &call, &operation, error),
              error);
    EXPECT_OK(poll->reduce2_wait(self->levels.first->group, operation, CROWD_WAIT_NS, &result, error), error);
}

/* The log has `count` calls more than before, and the new one is this reduction. */
static void expect_log(struct plugin_member *member, size_t *calls, size_t count, const uint8_t *input,
                       const uint8_t *output)
{
    json_t *log = describe_group(member, CONVOY_TOPIC_CALL_LOG);
    EXPECT_EQUAL(json_array_size(log), *calls + count);
    if (count != 0) {
        describe_expect_call(json_array_get(log, *calls), "poll", input, output, SCENARIO_ENTRIES);
    }
    *calls += count;
    json_decref(log);
}

static void run_scenario(struct grid_rank *self, uint32_t index, enum scenario_form form, uint32_t vector)
{
    struct scenario_host hosts[SCENARIO_RANKS];
    struct scenario_expected expected;
    uint8_t states[SCENARIO_ENTRIES];
    for (uint32_t i = 0; i < SCENARIO_RANKS; i++) {
        scenario_host_fill(&hosts[i], form, vector, i);
    }
    scenario_expect(hosts, &expected);
    reduce(self, &hosts[index], states);
    EXPECT_TEXT(hosts[index].trail, expected.trails[index]);
    EXPECT_EQUAL(strlen(hosts[index].trail), strlen(expected.trails[index]));
    EXPECT_BYTES(states, form == SCENARIO_TWO_LEVEL ? expected.all : expected.firsts[index], sizeof states);
    expect_log(self->levels.first, &self->first_calls, 1, expected.inputs[index], expected.firsts[index]);
    expect_log(self->levels.second, &self->second_calls, form == SCENARIO_TWO_LEVEL, expected.firsts[index],
               expected.all);
}

static void run(const struct rank *rank, void *crowd)
{
    struct grid_rank self = {0};
    crowd_levels_open(rank, crowd, &self.levels);
    for (uint32_t vector = 0; vector < SCENARIO_VECTORS; vector++) {
        for (enum scenario_form form = SCENARIO_PLAIN; form < SCENARIO_FORMS; form++) {
            run_scenario(&self, rank->index, form, vector);
        }
    }
    EXPECT_EQUAL(self.first_calls, 30);
    EXPECT_EQUAL(self.second_calls, SCENARIO_VECTORS);
    crowd_levels_close(rank, &self.levels);
}

static void test_equivalence_thirty_scenarios_reduce_as_the_host_does(void **state)
{
    (void)state;
    crowd_run(SCENARIO_RANKS, run, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equivalence_thirty_scenarios_reduce_as_the_host_does),
    };
    return cmocka_run_group_tests_name("equivalence", tests, NULL, NULL);
}
