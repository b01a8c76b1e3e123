/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8 ranks, two groups each, random steps: rows, lists, keys, votes, tags, empty lists, error rows and divergences on
 * purpose, each compared with a plain computation over what all ranks bring. Over shared memory and over two hosts.
 * CONVOY_SCALE multiplies the steps; 50 and above is the full 100,000.
 */
#include "tests/lib/crowd.h"
#include "tests/lib/expect.h"
#include "tests/lib/hosts.h"
#include "tests/lib/random_scene.h"
#include "tests/lib/scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 8u
#define STEPS 2000u
#define STEPS_FULL 100000u
#define SEED 0x636f6e766f79ull

/* Group 0 is all ranks, two to a data-parallel rank; group 1 is the even or the odd ones, across hosts too. */
static const uint32_t group_members[2] = {RANKS, RANKS / 2};
static const uint32_t group_inner[2] = {2, 1};

/* A call of one rank and room for what comes out. */
struct walk {
    uint32_t rank;
    uint32_t index; /* in the step's group */
    uint64_t step;
    struct plugin_member *member; /* of the step's group */
    struct plugin_member *members[2];
    uint64_t rounds[2];
    struct scene scene;
    struct scene_memory memory[2];
    struct scene_expected expected;
    struct convoy_poll_list lists[SCENE_LISTS_MAX + 1];
    int32_t wide[SCENE_LISTS_MAX][SCENE_ENTRIES_MAX];
    uint64_t keys[SCENE_LISTS_MAX][SCENE_ENTRIES_MAX];
    uint32_t generations[SCENE_LISTS_MAX][SCENE_ENTRIES_MAX];
    uint8_t states[SCENE_LISTS_MAX + 1][SCENE_ENTRIES_MAX + 1];
    struct convoy_poll_outcome outcomes[SCENE_LISTS_MAX][SCENE_IDENTITIES + 1];
    struct convoy_poll_list_result list_results[SCENE_LISTS_MAX + 1];
    int64_t table[SCENE_MEMBERS_MAX * SCENE_WIDTH];
    struct convoy_sync_reduced reduced[SCENE_WIDTH];
    uint8_t presence[SCENE_MEMBERS_MAX];
};

/* As EXPECT, and says in which step. */
static void expect_step(const struct walk *walk, bool is_right, const char *what)
{
    if (!is_right) {
        expect_fail(EXPECT_SITE(what), "is wrong in step %llu, kind %d, group %u", (unsigned long long)walk->step,
                    (int)walk->scene.kind, walk->scene.group);
    }
}

/* -- polls -------------------------------------------------------------------------------------------------------- */

static void poll_fill_list(struct walk *walk, uint32_t at)
{
    const struct scene_list *list = &walk->scene.lists[at];
    const uint32_t count = list->count[walk->index];
    const bool is_wide = (walk->step + walk->rank) % 2 == 0;
    for (uint32_t i = 0; i < count; i++) {
        walk->wide[at][i] = list->states[walk->index][i];
        walk->keys[at][i] = random_scene_key(&walk->scene, list->identities[walk->index][i]);
        walk->generations[at][i] = random_scene_generation(&walk->scene, list->identities[walk->index][i]);
    }
    walk->lists[at] = (struct convoy_poll_list){
        .count = count,
        .states = count == 0 ? NULL : is_wide ? (const void *)walk->wide[at] : list->states[walk->index],
        .state_bytes = is_wide ? 4 : 1,
        .flags = list->flags,
        .keys = list->flags != 0 && count != 0 ? walk->keys[at] : NULL,
        .generations = list->flags != 0 && count != 0 ? walk->generations[at] : NULL,
    };
}

static void poll_fill(struct walk *walk)
{
    memset(walk->states, 0xa5, sizeof walk->states);
    for (uint32_t i = 0; i < walk->scene.list_count; i++) {
        poll_fill_list(walk, i);
    }
    walk->lists[walk->scene.list_count] = (struct convoy_poll_list){0}; /* for who brings one too many */
    for (uint32_t i = 0; i <= walk->scene.list_count; i++) {
        walk->list_results[i] = (struct convoy_poll_list_result){
            .states = walk->states[i], .states_capacity = SCENE_ENTRIES_MAX};
        if (i < walk->scene.list_count && walk->scene.lists[i].flags != 0) {
            walk->list_results[i].outcomes = walk->outcomes[i];
            walk->list_results[i].outcome_stride = sizeof walk->outcomes[i][0];
            walk->list_results[i].outcome_capacity = SCENE_IDENTITIES;
        }
    }
}

static void poll_check_outcomes(const struct walk *walk, uint32_t at)
{
    size_t found = 0;
    for (uint32_t i = 0; i < SCENE_IDENTITIES; i++) {
        const struct scene_identity *identity = &walk->expected.keyed[at][i];
        const struct convoy_poll_outcome *outcome = &walk->outcomes[at][found];
        if (identity->listed_by == 0) {
            continue;
        }
        expect_step(walk, found < walk->list_results[at].outcome_count, "number of outcomes");
        expect_step(walk,
                    outcome->key == random_scene_key(&walk->scene, i) &&
                        outcome->generation == random_scene_generation(&walk->scene, i),
                    "identity of an outcome");
        expect_step(walk, outcome->state == identity->state, "state of an outcome");
        expect_step(walk, outcome->listed_by == identity->listed_by, "listed_by of an outcome");
        expect_step(walk, outcome->flags == (identity->is_decided ? CONVOY_OUTCOME_DECIDED : 0), "flags of an outcome");
        found++;
    }
    expect_step(walk, walk->list_results[at].outcome_count == found, "number of outcomes");
}

static void poll_check_list(const struct walk *walk, uint32_t at)
{
    const struct scene_list *list = &walk->scene.lists[at];
    const uint32_t count = list->count[walk->index];
    expect_step(walk, walk->list_results[at].states_count == count, "states_count");
    expect_step(walk, walk->states[at][count] == 0xa5, "the byte behind the states");
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t wanted = list->flags == 0 ? walk->expected.positional[at][i]
                                                : walk->expected.keyed[at][list->identities[walk->index][i]].state;
        expect_step(walk, walk->states[at][i] == wanted, "a state");
    }
    if (list->flags != 0) {
        poll_check_outcomes(walk, at);
    }
}

static void poll_step(struct walk *walk)
{
    const struct scene *scene = &walk->scene;
    const bool is_odd = walk->index == scene->odd;
    poll_fill(walk);
    const struct convoy_poll_call call = {
        .struct_size = sizeof call,
        .critical_flags = scene->kind == SCENE_LISTS_ERROR_ROW && is_odd ? CONVOY_CALL_ERROR_ROW : 0,
        .votes = scene->votes[walk->index],
        .lists = walk->lists,
        .list_stride = sizeof walk->lists[0],
        .list_count = scene->list_count + (scene->kind == SCENE_OTHER_COUNT && is_odd),
        .tag = scene->tag + (scene->kind == SCENE_OTHER_TAG && is_odd),
        .error_reason = scene->reason};
    struct convoy_poll_result result = {.struct_size = sizeof result,
                                        .lists = walk->list_results,
                                        .list_stride = sizeof walk->list_results[0],
                                        .list_capacity = SCENE_LISTS_MAX + 1};
    struct convoy_error *error = &walk->member->error;
    int32_t status = walk->member->plugin.poll->reduce(walk->member->group, &call, CROWD_WAIT_NS, &result, error);
    EXPECT_STATUS(status, walk->expected.status, error);
    if (status != CONVOY_OK) {
        expect_step(walk, walk->states[0][0] == 0xa5, "an output without a result");
        return;
    }
    expect_step(walk, result.round == walk->rounds[scene->group], "round");
    expect_step(walk, result.votes_and == walk->expected.votes_and, "votes_and");
    expect_step(walk, result.votes_or == walk->expected.votes_or, "votes_or");
    for (uint32_t i = 0; i < scene->list_count; i++) {
        poll_check_list(walk, i);
    }
}

/* -- rows ------------------------------------------------------------------------------------------------------- */

static void row_check(const struct walk *walk, const struct convoy_sync_result *result)
{
    const uint32_t members = walk->scene.members;
    const struct scene_expected *expected = &walk->expected;
    expect_step(walk, result->round == walk->rounds[walk->scene.group], "round");
    expect_step(walk, result->votes_and == expected->votes_and || walk->scene.kind == SCENE_ROW_ERROR_ROW, "votes_and");
    expect_step(walk, result->votes_or == expected->votes_or || walk->scene.kind == SCENE_ROW_ERROR_ROW, "votes_or");
    expect_step(walk, memcmp(walk->table, expected->table, members * sizeof expected->table[0]) == 0, "table");
    expect_step(walk, memcmp(walk->presence, expected->presence, members) == 0, "presence");
    expect_step(walk, memcmp(walk->reduced, expected->reduced, sizeof expected->reduced) == 0, "reduced");
    expect_step(walk, result->mask_version == expected->mask_version, "mask_version");
    expect_step(walk, result->mask_skew == expected->mask_skew, "mask_skew");
}

static void row_step(struct walk *walk)
{
    const struct scene *scene = &walk->scene;
    const bool is_error = scene->kind == SCENE_ROW_ERROR_ROW && walk->index == scene->odd;
    const struct convoy_sync_call call = {.struct_size = sizeof call,
                                          .critical_flags = is_error ? CONVOY_CALL_ERROR_ROW : 0,
                                          .votes = scene->votes[walk->index],
                                          .row = scene->has_row[walk->index] ? scene->rows[walk->index] : NULL,
                                          .active = scene->active[walk->index],
                                          .active_count = scene->members,
                                          .mask_version = scene->mask_version[walk->index],
                                          .tag = scene->tag,
                                          .policy = CONVOY_SYNC_ERRORS_AS_PRESENCE,
                                          .error_reason = scene->reason};
    struct convoy_sync_result result = {.struct_size = sizeof result,
                                        .table = walk->table,
                                        .table_capacity = SCENE_MEMBERS_MAX * SCENE_WIDTH,
                                        .reduced = walk->reduced,
                                        .reduced_capacity = SCENE_WIDTH,
                                        .presence = walk->presence,
                                        .presence_capacity = SCENE_MEMBERS_MAX};
    struct convoy_error *error = &walk->member->error;
    int32_t status = walk->member->plugin.sync->gather(walk->member->group, &call, CROWD_WAIT_NS, &result, error);
    EXPECT_STATUS(status, walk->expected.status, error);
    if (status == CONVOY_OK) {
        row_check(walk, &result);
    }
}

/* -- ranks ------------------------------------------------------------------------------------------------------ */

static void step(struct walk *walk)
{
    random_scene_draw(&walk->scene, SEED, walk->step, group_members);
    const uint32_t group = walk->scene.group;
    walk->index = group == 0 ? walk->rank : walk->rank / 2;
    walk->member = walk->members[group];
    walk->rounds[group]++;
    random_scene_expect(&walk->scene, group_inner[group], &walk->memory[group], &walk->expected);
    const bool is_odd_row = walk->scene.kind == SCENE_OTHER_OPERATION && walk->index == walk->scene.odd;
    if (walk->scene.kind == SCENE_ROW || walk->scene.kind == SCENE_ROW_ERROR_ROW || is_odd_row) {
        row_step(walk);
    } else {
        poll_step(walk);
    }
}

static struct plugin_member *open_group(const struct walk *walk, uint32_t group, const struct crowd *crowd,
                                        bool is_two_hosts)
{
    static const struct convoy_sync_schema schema = {
        .struct_size = sizeof schema, .builtin = "sglang-8", .builtin_length = 8};
    const uint32_t parity = walk->rank % 2;
    const uint32_t index = group == 0 ? walk->rank : walk->rank / 2;
    const uint16_t port = crowd->ports[group + (group == 1 ? parity : 0)];
    struct plugin_member *member = plugin_member_create(index, group_members[group], group == 0 ? "all" : "half", port);
    for (uint32_t i = 0; i < group_members[group]; i++) {
        member->ids[i] = (int32_t)(group == 0 ? i : 2 * i + parity);
    }
    member->options.own_id = (int32_t)walk->rank;
    member->options.schema = &schema;
    member->options.sync_inner = group_inner[group];
    if (is_two_hosts) {
        (void)snprintf(member->rendezvous, sizeof member->rendezvous, "tcp://%s:%u", hosts_address(0), port);
        member->options.rendezvous_length = strlen(member->rendezvous);
    }
    plugin_member_open(member);
    return member;
}

static void walk_run(const struct rank *rank, const struct crowd *crowd, bool is_two_hosts)
{
    struct walk *walk = calloc(1, sizeof *walk);
    EXPECT(walk != NULL);
    walk->rank = rank->index;
    for (uint32_t group = 0; group < 2; group++) {
        walk->memory[group].era = UINT64_MAX;
        walk->members[group] = open_group(walk, group, crowd, is_two_hosts);
    }
    const bool is_small = is_two_hosts && test_scale() == 1;
    const uint32_t steps = is_small ? STEPS / 4 : test_scaled(STEPS, STEPS_FULL);
    for (walk->step = 1; walk->step <= steps; walk->step++) {
        step(walk);
    }
    rank_barrier(rank);
    plugin_member_destroy(walk->members[1]);
    plugin_member_destroy(walk->members[0]);
    free(walk);
}

static void one_host_run(const struct rank *rank, void *crowd)
{
    walk_run(rank, crowd, false);
}

static void two_hosts_run(const struct rank *rank, void *crowd)
{
    hosts_enter(rank->index * 2 / RANKS);
    walk_run(rank, crowd, true);
}

static void test_random_rounds_over_shared_memory_equal_the_reference(void **state)
{
    (void)state;
    crowd_run(RANKS, one_host_run, 0);
}

static void test_random_rounds_over_two_hosts_equal_the_reference(void **state)
{
    (void)state;
    if (!hosts_create(2)) {
        skip();
    }
    crowd_run(RANKS, two_hosts_run, 0);
}

static int remove_hosts(void **state)
{
    (void)state;
    hosts_destroy();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rounds_over_shared_memory_equal_the_reference),
        cmocka_unit_test_teardown(test_random_rounds_over_two_hosts_equal_the_reference, remove_hosts),
    };
    return cmocka_run_group_tests_name("random_rounds", tests, NULL, NULL);
}
