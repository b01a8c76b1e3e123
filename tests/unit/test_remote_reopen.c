/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement on the next generation across hosts, message by message. With real processes: tests/fault. */
#include "tests/lib/expect.h"
#include "tests/lib/fake_hosts.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define REOPEN_TURNS_MAX 20u

static const uint32_t three_hosts[] = {0, 1, 2};

/* A leader sends in one look and listens in the next. */
static int32_t await_end(struct fake_hosts *hosts, uint32_t index)
{
    int32_t status = CONVOY_IN_PROGRESS;
    for (uint32_t turn = 0; turn < 3 && status == CONVOY_IN_PROGRESS; turn++) {
        status = fake_hosts_test(hosts, index);
    }
    return status;
}

/* Host 1 gives up on round 2, which host 0 hears first: it asks the others to reopen. Host 2 has answered that its last
 * complete round is 1 when host 1's part of round 2 reaches it, the last that it lacks: round 2 is to come again, so it
 * must not end well there. */
static void test_remote_reopen_host_that_has_answered_completes_nothing(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(three_hosts, 3);
    fake_hosts_expect_round(hosts, 1);
    fake_links_hold(1, 2, true);
    fake_hosts_start(hosts, 1, 2);
    EXPECT_EQUAL(fake_hosts_test(hosts, 1), CONVOY_IN_PROGRESS);
    EXPECT_EQUAL(fake_links_waiting(1, 2), 1);
    EXPECT_EQUAL(fake_hosts_abandon(hosts, 1), CONVOY_BROKEN);
    fake_hosts_start(hosts, 2, 3);
    EXPECT_EQUAL(fake_hosts_test(hosts, 2), CONVOY_IN_PROGRESS);
    fake_hosts_start(hosts, 0, 1);
    EXPECT_EQUAL(fake_hosts_test(hosts, 0), CONVOY_BROKEN);
    EXPECT_EQUAL(fake_hosts_reopen(hosts, 0), CONVOY_TIMED_OUT); /* it has asked, and nobody has answered */
    EXPECT_EQUAL(fake_hosts_test(hosts, 2), CONVOY_IN_PROGRESS); /* now host 2 has */
    EXPECT(fake_links_pass(1, 2));
    EXPECT_EQUAL(fake_hosts_test(hosts, 2), CONVOY_IN_PROGRESS);
    fake_links_hold(1, 2, false); /* and now hears that host 1 has given up */
    EXPECT_EQUAL(fake_hosts_test(hosts, 2), CONVOY_BROKEN);
    fake_hosts_expect_reopen(hosts, FAKE_HOSTS_EPOCH + 1, 2);
    fake_hosts_expect_round(hosts, 2);
    fake_hosts_expect_round(hosts, 3);
    fake_hosts_destroy(hosts);
}

/* Host 2 gives up on the open round, and host 0 hears of it. */
static void reopen_break(struct fake_hosts *hosts)
{
    fake_hosts_start(hosts, 0, 1);
    fake_hosts_start(hosts, 2, 3);
    EXPECT_EQUAL(fake_hosts_test(hosts, 0), CONVOY_IN_PROGRESS);
    EXPECT_EQUAL(fake_hosts_abandon(hosts, 2), CONVOY_BROKEN);
    EXPECT_EQUAL(fake_hosts_test(hosts, 0), CONVOY_BROKEN);
}

/* Hosts 0 and 2 reopen; of host 1 only the progress thread looks in. */
static void reopen_without_host_1(struct fake_hosts *hosts, uint64_t epoch)
{
    int32_t first = CONVOY_TIMED_OUT;
    int32_t last = CONVOY_TIMED_OUT;
    for (uint32_t turn = 0; first != CONVOY_OK || last != CONVOY_OK; turn++) {
        EXPECT(turn < REOPEN_TURNS_MAX);
        first = first != CONVOY_OK ? fake_hosts_reopen(hosts, 0) : first;
        last = last != CONVOY_OK ? fake_hosts_reopen(hosts, 2) : last;
        fake_hosts_look(hosts, 1);
    }
    EXPECT_EQUAL(hosts->members[0].reopened.epoch, epoch);
    EXPECT_EQUAL(hosts->members[2].reopened.epoch, epoch);
    fake_hosts_settle(hosts);
}

/* A leader whose host agreed to two epochs while it was away goes to the second. */
static void test_remote_reopen_late_leader_goes_past_an_epoch(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(three_hosts, 3);
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_start(hosts, 1, 2);
    reopen_break(hosts);
    EXPECT_EQUAL(await_end(hosts, 1), CONVOY_BROKEN);
    reopen_without_host_1(hosts, FAKE_HOSTS_EPOCH + 1);
    reopen_break(hosts);
    reopen_without_host_1(hosts, FAKE_HOSTS_EPOCH + 2);
    EXPECT_OK(fake_hosts_reopen(hosts, 1), &hosts->members[1].error);
    EXPECT_EQUAL(hosts->members[1].reopened.epoch, FAKE_HOSTS_EPOCH + 2);
    EXPECT_EQUAL(hosts->members[1].reopened.next_round, 2);
    fake_hosts_expect_round(hosts, 2);
    fake_hosts_expect_round(hosts, 3);
    fake_hosts_destroy(hosts);
}

/* The leader of host 0 dies when its host has completed round 2 and none of its messages has left. The others do not
 * know yet whether a successor will come, and host 1 gives up on the round: they must not agree on anything without
 * host 0, whose other member has a result that they lack. */
static void test_remote_reopen_waits_for_the_successor_of_a_dead_leader(void **state)
{
    (void)state;
    const uint32_t host_of[] = {0, 0, 1, 2};
    struct fake_hosts *hosts = fake_hosts_create(host_of, 4);
    fake_hosts_expect_round(hosts, 1);
    fake_links_hold(0, 2, true);
    fake_links_hold(0, 3, true);
    for (uint32_t i = 0; i < 4; i++) {
        fake_hosts_start(hosts, i, 1);
    }
    EXPECT_EQUAL(fake_hosts_test(hosts, 3), CONVOY_IN_PROGRESS);
    EXPECT_EQUAL(fake_hosts_test(hosts, 2), CONVOY_IN_PROGRESS);
    EXPECT_EQUAL(await_end(hosts, 0), CONVOY_OK);
    EXPECT_EQUAL(fake_hosts_test(hosts, 1), CONVOY_OK);
    EXPECT_EQUAL(hosts->members[1].sum, 4);
    fake_hosts_kill(hosts, 0);
    EXPECT_EQUAL(fake_hosts_test(hosts, 2), CONVOY_IN_PROGRESS); /* sees the link down */
    EXPECT_EQUAL(fake_hosts_abandon(hosts, 2), CONVOY_BROKEN);
    EXPECT_EQUAL(fake_hosts_test(hosts, 3), CONVOY_BROKEN);
    for (uint32_t turn = 0; turn < 10; turn++) { /* host 0 is silent: nothing comes of it */
        EXPECT_EQUAL(fake_hosts_reopen(hosts, 2), CONVOY_TIMED_OUT);
        EXPECT_EQUAL(fake_hosts_reopen(hosts, 3), CONVOY_TIMED_OUT);
    }
    fake_hosts_expect_reopen(hosts, FAKE_HOSTS_EPOCH + 1, 3);
    for (uint32_t i = 2; i < 4; i++) {
        EXPECT_EQUAL(hosts->members[i].reopened.recovered, hosts->members[i].operation);
        EXPECT_OK(fake_hosts_test(hosts, i), &hosts->members[i].error);
        EXPECT_EQUAL(hosts->members[i].summary.round, 2);
        EXPECT_EQUAL(hosts->members[i].sum, 4);
    }
    fake_hosts_destroy(hosts);
}

/* The leader of host 1 dies, and host 2 hears from the coordinator that the group goes on without it before it hears
 * from the next leader: a host whose last known leader is gone has not lost its last member. */
static void test_remote_reopen_next_leader_is_known_from_the_decision(void **state)
{
    (void)state;
    const uint32_t host_of[] = {0, 1, 1, 2};
    struct fake_hosts *hosts = fake_hosts_create(host_of, 4);
    int32_t status = CONVOY_IN_PROGRESS;
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_kill(hosts, 1);
    fake_links_hold(2, 3, true);
    fake_hosts_start(hosts, 3, 4);
    EXPECT_EQUAL(fake_hosts_test(hosts, 3), CONVOY_IN_PROGRESS); /* sees the link down */
    fake_hosts_start(hosts, 2, 3);
    EXPECT_EQUAL(await_end(hosts, 2), CONVOY_PEER_LOST);
    fake_hosts_start(hosts, 0, 1);
    EXPECT_EQUAL(await_end(hosts, 0), CONVOY_PEER_LOST);
    for (uint32_t turn = 0; turn < REOPEN_TURNS_MAX && status == CONVOY_IN_PROGRESS; turn++) {
        (void)fake_hosts_reopen(hosts, 0);
        fake_hosts_look(hosts, 2);
        status = fake_hosts_test(hosts, 3);
    }
    EXPECT_EQUAL(status, CONVOY_PEER_LOST);
    fake_hosts_expect_reopen(hosts, FAKE_HOSTS_EPOCH + 1, 2);
    fake_hosts_look(hosts, 3);
    EXPECT(!hosts->members[3].engine->remote->hosts[1].is_lost);
    fake_links_hold(2, 3, false);
    fake_hosts_expect_round(hosts, 2);
    fake_hosts_destroy(hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remote_reopen_host_that_has_answered_completes_nothing),
        cmocka_unit_test(test_remote_reopen_late_leader_goes_past_an_epoch),
        cmocka_unit_test(test_remote_reopen_waits_for_the_successor_of_a_dead_leader),
        cmocka_unit_test(test_remote_reopen_next_leader_is_known_from_the_decision),
    };
    return cmocka_run_group_tests_name("remote_reopen", tests, NULL, NULL);
}
