/* SPDX-License-Identifier: Apache-2.0 */
/* A member dies while others move to another build: before, between the steps, after. The imported group notices it by the
 * process descriptor, which has moved along, and goes on without it. */
#include "tests/lib/crowd.h"
#include "tests/lib/expect.h"
#include "tests/lib/moving.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 3u
#define VICTIM 2u

enum moment { BEFORE_QUIESCE = 0, BEFORE_IMPORT, BEFORE_RESUME, AFTER_MOVE, MOMENTS };

struct plan {
    struct crowd crowd;
    enum moment moment;
};

/* Rank 2 has been killed when this returns. */
static void await_death(const struct rank *rank, const struct plan *plan, enum moment moment)
{
    if (plan->moment == moment) {
        rank_mark(rank, 1);
        rank_await_parent(rank, 1);
    }
}

static void move(const struct rank *rank, const struct plan *plan, struct plugin_member *member)
{
    struct moving moving;
    await_death(rank, plan, BEFORE_QUIESCE);
    moving_begin(&moving, member->context, &member->config, moving_first_build(), moving_second_build());
    EXPECT_OK(moving_quiesce(&moving, MOVING_NS), &moving.error);
    moving_export(&moving);
    await_death(rank, plan, BEFORE_IMPORT);
    EXPECT_OK(moving_import(&moving), &moving.error);
    await_death(rank, plan, BEFORE_RESUME);
    moving_complete(&moving);
    member->group = moving_handle(&moving, member->group);
    member->context = moving.new_context;
    member->plugin = moving.to->plugin;
    await_death(rank, plan, AFTER_MOVE);
}

static void run(const struct rank *rank, void *argument)
{
    const struct plan *plan = argument;
    const uint8_t state = 3;
    uint8_t out = 9;
    const struct convoy_poll_list list = {.count = 1, .states = &state};
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    struct convoy_poll_list_result list_result = {.states = &out, .states_capacity = 1};
    struct convoy_poll_result result = {
        .struct_size = sizeof result, .lists = &list_result, .list_stride = sizeof list_result, .list_capacity = 1};
    struct convoy_reopen_result reopened = {.struct_size = sizeof reopened};
    struct plugin_member *member = crowd_open(rank, &plan->crowd, "mortal");
    plugin_member_reduce(member, &state, 1, &out);
    if (rank->index == VICTIM) {
        rank_mark(rank, 1);
        rank_await_parent(rank, 2); /* never: it is killed */
    }
    move(rank, plan, member);
    EXPECT_STATUS(member->plugin.poll->reduce(member->group, &call, CROWD_WAIT_NS, &result, &member->error),
                  CONVOY_PEER_LOST, &member->error);
    EXPECT_EQUAL(member->error.rank, VICTIM);
    rank_mark(rank, 2); /* reopen makes the failed round anew: the other one has to have seen it fail */
    rank_await_mark(rank, 1 - rank->index, 2);
    EXPECT_OK(member->plugin.core->group_reopen(member->group, CROWD_WAIT_NS, &reopened, &member->error), &member->error);
    EXPECT_EQUAL(reopened.next_round, 2);
    EXPECT_EQUAL(reopened.lost_count, 1);
    plugin_member_reduce(member, &state, 1, &out);
    moving_member(member, moving_second_build(), moving_first_build()); /* with a lost member, back again */
    plugin_member_reduce(member, &state, 1, &out);
    rank_mark(rank, 3);
    rank_await_mark(rank, 1 - rank->index, 3);
    plugin_member_destroy(member);
}

static void check(enum moment moment)
{
    struct plan plan = {.moment = moment};
    for (uint32_t i = 0; i < CROWD_PORTS; i++) {
        plan.crowd.ports[i] = plugin_port();
    }
    struct ranks *ranks = ranks_create(MEMBERS, 0);
    ranks_start(ranks, run, &plan, CROWD_TIMEOUT_MS);
    for (uint32_t rank = 0; rank < MEMBERS; rank++) {
        ranks_await_mark(ranks, rank, 1);
    }
    ranks_signal(ranks, VICTIM, SIGKILL);
    ranks_await_exit(ranks, VICTIM);
    ranks_mark(ranks, 1);
    ranks_finish(ranks);
}

static void test_move_deaths_are_noticed_at_any_moment(void **state)
{
    (void)state;
    for (int moment = 0; moment < MOMENTS; moment++) {
        check((enum moment)moment);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_deaths_are_noticed_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
