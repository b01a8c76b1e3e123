/* SPDX-License-Identifier: Apache-2.0 */
/* A round that fails on one host, what each member is told, and how the group goes on: real engines, in one thread. */
#include "tests/lib/expect.h"
#include "tests/lib/neighbours.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct convoy_reopen_result reopened;

static int32_t reopen(struct neighbours *all, uint32_t index)
{
    struct neighbour *member = &all->members[index];
    member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    reopened = (struct convoy_reopen_result){.struct_size = sizeof reopened};
    return convoy_engine_reopen(member->engine, NEIGHBOURS_LONG_NS, &reopened, &member->error);
}

static void expect_reopen(struct neighbours *all, uint32_t index, uint64_t epoch, uint64_t round, uint32_t lost)
{
    EXPECT_OK(reopen(all, index), &all->members[index].error);
    EXPECT_EQUAL(reopened.epoch, epoch);
    EXPECT_EQUAL(reopened.next_round, round);
    EXPECT_EQUAL(reopened.lost_count, lost);
    EXPECT_EQUAL(reopened.recovered, 0);
}

static void expect_end(struct neighbours *all, uint32_t index, int32_t status, const char *text)
{
    EXPECT_STATUS(neighbours_test(all, index), status, &all->members[index].error);
    EXPECT_TEXT(all->members[index].error.text, text);
}

static struct convoy_group_info info_of(struct neighbours *all, uint32_t index)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    convoy_engine_info(all->members[index].engine, &info);
    return info;
}

static void test_reopen_goes_on_without_a_dead_member(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, NULL, 0);
    neighbours_expect_round(all, 0, 3);
    neighbours_kill(all, 2);
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_start(all, 1, 2), NULL);
    expect_end(all, 0, CONVOY_PEER_LOST, "group near: rank 12 was lost (its process ended) in round 2");
    expect_end(all, 1, CONVOY_PEER_LOST, "rank 12 was lost");
    EXPECT_EQUAL(all->members[1].error.rank, 12);
    neighbours_report(all, 0);
    EXPECT_EQUAL(neighbours_row(all, 0, 2)->condition, CONVOY_MEMBER_LOST);
    EXPECT_EQUAL(neighbours_row(all, 0, 2)->noticed_by, CONVOY_NOTICED_PROCESS);
    EXPECT_EQUAL(info_of(all, 0).state, CONVOY_GROUP_BROKEN);
    EXPECT_STATUS(neighbours_start(all, 0, 1), CONVOY_BROKEN, &all->members[0].error);
    EXPECT_TEXT(all->members[0].error.text, "broken since round 2");
    expect_reopen(all, 0, NEIGHBOURS_EPOCH + 1, 2, 1);
    EXPECT_EQUAL(convoy_engine_newly_lost(all->members[1].engine), 2);
    EXPECT_EQUAL(convoy_engine_newly_lost(all->members[0].engine), 3); /* it knows */
    expect_reopen(all, 1, NEIGHBOURS_EPOCH + 1, 2, 1);
    neighbours_expect_round(all, 0, 2);
    EXPECT_EQUAL(all->members[0].summary.round, 2);
    EXPECT_EQUAL(all->members[0].summary.epoch, NEIGHBOURS_EPOCH + 1);
    EXPECT_EQUAL(info_of(all, 0).lost_count, 1);
    EXPECT_EQUAL(convoy_engine_counters(all->members[0].engine)->members_lost, 1);
    neighbours_destroy(all);
}

static void test_reopen_goes_on_without_a_member_that_closed(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, NULL, 0);
    neighbours_expect_round(all, 0, 3);
    neighbours_close(all, 0);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    expect_end(all, 1, CONVOY_PEER_LOST, "rank 10 closed the group in round 2");
    neighbours_report(all, 1);
    EXPECT_EQUAL(neighbours_row(all, 1, 0)->condition, CONVOY_MEMBER_CLOSED);
    EXPECT_EQUAL(neighbours_row(all, 1, 0)->noticed_by, CONVOY_NOTICED_CLOSE);
    expect_reopen(all, 1, NEIGHBOURS_EPOCH + 1, 2, 1);
    expect_reopen(all, 2, NEIGHBOURS_EPOCH + 1, 2, 1); /* was in no round, and adopts what the other has done */
    neighbours_expect_round(all, 1, 2);
    neighbours_destroy(all);
}

/* Who closes in the middle of a round has taken part in it. */
static void test_reopen_goodbye_is_for_the_round_after(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_start(all, 1, 2), NULL);
    neighbours_close(all, 1);
    EXPECT_OK(neighbours_test(all, 0), NULL);
    EXPECT_EQUAL(all->members[0].sum, 3);
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    expect_end(all, 0, CONVOY_PEER_LOST, "rank 11 closed the group in round 2");
    neighbours_destroy(all);
}

static void test_reopen_after_a_member_gave_up(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, NULL, 0);
    struct neighbour *first = &all->members[0];
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_STATUS(reopen(all, 0), CONVOY_BUSY, &first->error);
    EXPECT_TEXT(first->error.text, "round 1 is still open; abandon it first");
    EXPECT_STATUS(convoy_engine_abandon(first->engine, first->operation, &first->error), CONVOY_BROKEN, NULL);
    EXPECT_STATUS(convoy_engine_abandon(first->engine, first->operation, &first->error), CONVOY_CLOSED, NULL);
    EXPECT_TEXT(first->error.text, "the operation has ended already");
    expect_end(all, 1, CONVOY_BROKEN, "rank 10 abandoned round 1");
    neighbours_report(all, 1);
    EXPECT_EQUAL(neighbours_row(all, 1, 0)->condition, CONVOY_MEMBER_ABANDONED);
    EXPECT_EQUAL(neighbours_row(all, 1, 2)->condition, CONVOY_MEMBER_MISSING);
    EXPECT_EQUAL(neighbours_row(all, 1, 2)->reason, CONVOY_BROKEN);
    EXPECT_STATUS(neighbours_start(all, 2, 1), CONVOY_BROKEN, &all->members[2].error); /* its cell is sealed */
    EXPECT_TEXT(all->members[2].error.text, "rank 10 abandoned round 1");
    for (uint32_t i = 0; i < 3; i++) {
        expect_reopen(all, i, NEIGHBOURS_EPOCH + 1, 1, 0);
    }
    neighbours_expect_round(all, 0, 3);
    EXPECT_EQUAL(all->members[2].summary.round, 1);
    neighbours_destroy(all);
}

/* The others have given up, agreed and begun anew before this member looks: no seal is left to see. */
static void test_reopen_late_member_finds_that_others_moved_on(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, NULL, 0);
    struct neighbour *first = &all->members[0];
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_STATUS(convoy_engine_abandon(first->engine, first->operation, NULL), CONVOY_BROKEN, NULL);
    EXPECT_STATUS(neighbours_start(all, 2, 1), CONVOY_BROKEN, NULL);
    expect_reopen(all, 0, NEIGHBOURS_EPOCH + 1, 1, 0);
    expect_reopen(all, 2, NEIGHBOURS_EPOCH + 1, 1, 0);
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_start(all, 2, 3), NULL);
    expect_end(all, 1, CONVOY_BROKEN, "the other members reopened the group during round 1");
    EXPECT_EQUAL(all->members[1].error.rank, -1);
    expect_reopen(all, 1, NEIGHBOURS_EPOCH + 1, 1, 0);
    EXPECT_OK(neighbours_start(all, 1, 2), NULL);
    EXPECT_OK(neighbours_test(all, 0), NULL);
    EXPECT_EQUAL(first->sum, 6);
    neighbours_destroy(all);
}

/* Members whose end nobody has waited for are found by the reopen itself. */
static void test_reopen_looks_for_the_dead_and_the_closed(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(4, NULL, 0);
    struct neighbour *first = &all->members[0];
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_STATUS(convoy_engine_abandon(first->engine, first->operation, NULL), CONVOY_BROKEN, NULL);
    neighbours_kill(all, 2);
    neighbours_close(all, 3);
    expect_reopen(all, 0, NEIGHBOURS_EPOCH + 1, 1, 2);
    EXPECT_EQUAL(first->engine->losses[2].noticed_by, CONVOY_NOTICED_PROCESS);
    EXPECT_EQUAL(first->engine->losses[3].noticed_by, CONVOY_NOTICED_CLOSE);
    expect_reopen(all, 1, NEIGHBOURS_EPOCH + 1, 1, 2);
    neighbours_expect_round(all, 0, 2);
    /* and a third time, which knows of those already */
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_STATUS(convoy_engine_abandon(all->members[1].engine, all->members[1].operation, NULL), CONVOY_BROKEN, NULL);
    expect_reopen(all, 1, NEIGHBOURS_EPOCH + 2, 2, 2);
    neighbours_destroy(all);
}

/* Numbers of generations have an end, and a word that names no member is not followed. */
static void test_reopen_limits(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    struct convoy_engine *engine = all->members[0].engine;
    _Atomic uint64_t *word = &convoy_segment_head(&engine->segment)->generation;
    uint64_t before = *word;
    *word = UINT64_C(7) << 12 | 2;
    EXPECT_EQUAL(convoy_engine_newly_lost(engine), 2);
    *word = before;
    engine->generation = CONVOY_GENERATION_MAX;
    EXPECT_STATUS(reopen(all, 0), CONVOY_LIMIT, &all->members[0].error);
    EXPECT_TEXT(all->members[0].error.text, "was reopened 4095 times; close it and open it afresh");
    engine->generation = 1;
    neighbours_expect_round(all, 0, 2);
    neighbours_destroy(all);
}

/* Under policy degrade a member of this host that is lost is an absence, and nothing is reopened. */
static void test_reopen_is_not_needed_when_degrading(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, NULL, CONVOY_GROUP_DEGRADE);
    neighbours_kill(all, 1);
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_start(all, 2, 3), NULL);
    EXPECT_OK(neighbours_wait(all, 0, NEIGHBOURS_LONG_NS), &all->members[0].error);
    EXPECT_EQUAL(all->members[0].sum, 4);
    EXPECT_EQUAL(all->members[0].absent, 1);
    EXPECT_EQUAL(info_of(all, 0).lost_count, 1);
    EXPECT_OK(neighbours_test(all, 2), NULL);
    EXPECT_EQUAL(all->members[2].sum, 4);
    neighbours_destroy(all);
}

/* What group_info says of a group as it goes through a round. */
static void test_reopen_info_follows_the_round(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    struct convoy_group_info info = info_of(all, 1);
    EXPECT_EQUAL(info.state, CONVOY_GROUP_READY);
    EXPECT_EQUAL(info.member_count, 2);
    EXPECT_EQUAL(info.own_index, 1);
    EXPECT_EQUAL(info.host_count, 1);
    EXPECT_EQUAL(info.round, 0);
    EXPECT_EQUAL(info.operation, 0);
    EXPECT(info.segment_bytes != 0);
    EXPECT_EQUAL(convoy_engine_next_round(all->members[1].engine), 1);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_STATUS(neighbours_start(all, 1, 1), CONVOY_BUSY, &all->members[1].error);
    EXPECT_TEXT(all->members[1].error.text, "round 1 is still open; test, wait for or abandon it first");
    info = info_of(all, 1);
    EXPECT_EQUAL(info.round, 0);
    EXPECT_EQUAL(info.operation, all->members[1].operation);
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_test(all, 1), NULL);
    EXPECT_EQUAL(info_of(all, 1).round, 1);
    EXPECT_EQUAL(convoy_engine_summary(all->members[1].engine)->round, 1);
    EXPECT_EQUAL(convoy_engine_next_round(all->members[1].engine), 2);
    neighbours_destroy(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reopen_goes_on_without_a_dead_member),
        cmocka_unit_test(test_reopen_goes_on_without_a_member_that_closed),
        cmocka_unit_test(test_reopen_goodbye_is_for_the_round_after),
        cmocka_unit_test(test_reopen_after_a_member_gave_up),
        cmocka_unit_test(test_reopen_late_member_finds_that_others_moved_on),
        cmocka_unit_test(test_reopen_looks_for_the_dead_and_the_closed),
        cmocka_unit_test(test_reopen_limits),
        cmocka_unit_test(test_reopen_is_not_needed_when_degrading),
        cmocka_unit_test(test_reopen_info_follows_the_round),
    };
    return cmocka_run_group_tests_name("reopen", tests, NULL, NULL);
}
