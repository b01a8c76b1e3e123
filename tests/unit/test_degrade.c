/* SPDX-License-Identifier: Apache-2.0 */
/* Policy degrade across hosts: a round that loses a host comes again by itself, in the same call. */
#include "tests/lib/expect.h"
#include "tests/lib/fake_hosts.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define DEGRADE_TURNS_MAX 60u

static struct fake_hosts *degrade_create(const uint32_t *host_of, uint32_t count)
{
    struct fake_hosts *hosts = fake_hosts_create(host_of, count);
    for (uint32_t i = 0; i < count; i++) {
        hosts->members[i].engine->degrade = true;
    }
    fake_hosts_expect_round(hosts, 1);
    return hosts;
}

/* Tests by turns, of members from `first` on, until all of their rounds are over. */
static void degrade_expect_end(struct fake_hosts *hosts, uint32_t first, uint32_t count, int32_t wanted)
{
    int32_t statuses[FAKE_LINKS_MAX];
    uint32_t open = count;
    for (uint32_t i = 0; i < count; i++) {
        statuses[i] = CONVOY_IN_PROGRESS;
    }
    for (uint32_t turn = 0; open != 0; turn++) {
        EXPECT(turn < DEGRADE_TURNS_MAX);
        if (fake_links_under_way() == 0) {
            fake_hosts_pass_time(hosts);
        }
        for (uint32_t i = 0; i < count; i++) {
            if (statuses[i] != CONVOY_IN_PROGRESS) {
                fake_hosts_look(hosts, first + i);
                continue;
            }
            statuses[i] = fake_hosts_test(hosts, first + i);
            open -= statuses[i] != CONVOY_IN_PROGRESS;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        EXPECT_STATUS(statuses[i], wanted, &hosts->members[first + i].error);
    }
}

static void test_degrade_round_comes_again_without_the_lost_host(void **state)
{
    (void)state;
    const uint32_t host_of[] = {0, 1, 2};
    struct fake_hosts *hosts = degrade_create(host_of, 3);
    fake_hosts_kill(hosts, 2);
    fake_hosts_start(hosts, 0, 1);
    fake_hosts_start(hosts, 1, 2);
    convoy_operation operation = hosts->members[0].operation;
    degrade_expect_end(hosts, 0, 2, CONVOY_OK);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_EQUAL(hosts->members[i].sum, 3);
        EXPECT_EQUAL(hosts->members[i].summary.round, 2);
        EXPECT_EQUAL(hosts->members[i].summary.epoch, FAKE_HOSTS_EPOCH + 1);
        EXPECT_EQUAL(hosts->members[i].engine->lost_count, 1);
    }
    EXPECT_EQUAL(hosts->members[0].operation, operation); /* the one that the caller has */
    fake_hosts_expect_round(hosts, 3);
    fake_hosts_destroy(hosts);
}

/* Without the policy the same round fails, and nothing is agreed on. */
static void test_degrade_is_a_policy(void **state)
{
    (void)state;
    const uint32_t host_of[] = {0, 1, 2};
    struct fake_hosts *hosts = degrade_create(host_of, 3);
    for (uint32_t i = 0; i < 3; i++) {
        hosts->members[i].engine->degrade = false;
    }
    fake_hosts_kill(hosts, 2);
    fake_hosts_start(hosts, 0, 1);
    fake_hosts_start(hosts, 1, 2);
    degrade_expect_end(hosts, 0, 2, CONVOY_PEER_LOST);
    EXPECT_EQUAL(hosts->members[0].engine->generation, 1);
    fake_hosts_destroy(hosts);
}

/* A round that a member gave up on is no loss: it stays broken. */
static void test_degrade_is_for_losses_only(void **state)
{
    (void)state;
    const uint32_t host_of[] = {0, 1, 2};
    struct fake_hosts *hosts = degrade_create(host_of, 3);
    fake_hosts_start(hosts, 0, 1);
    fake_hosts_start(hosts, 1, 2);
    fake_hosts_start(hosts, 2, 3);
    EXPECT_EQUAL(fake_hosts_abandon(hosts, 2), CONVOY_BROKEN);
    degrade_expect_end(hosts, 0, 2, CONVOY_BROKEN);
    fake_hosts_destroy(hosts);
}

/* The others do not answer within the deadline: the next wait, or test, goes on with the agreement. */
static void test_degrade_outlasts_a_wait_that_times_out(void **state)
{
    (void)state;
    const uint32_t host_of[] = {0, 1, 2};
    struct fake_hosts *hosts = degrade_create(host_of, 3);
    struct fake_member *member = &hosts->members[0];
    fake_hosts_kill(hosts, 2);
    fake_hosts_start(hosts, 0, 1);
    EXPECT_STATUS(convoy_engine_wait(member->engine, member->operation, 20 * CONVOY_NS_PER_MS, &member->summary,
                                     &member->error),
                  CONVOY_TIMED_OUT, NULL);
    EXPECT_TEXT(member->error.text, "did not hear from ranks 1, 2");
    EXPECT(convoy_engine_holds(member->engine, member->operation));
    EXPECT_STATUS(convoy_engine_wait(member->engine, member->operation, CONVOY_NS_PER_MS, &member->summary, &member->error),
                  CONVOY_TIMED_OUT, NULL);
    fake_hosts_start(hosts, 1, 2);
    degrade_expect_end(hosts, 0, 2, CONVOY_OK);
    EXPECT_EQUAL(member->sum, 3);
    EXPECT_EQUAL(member->summary.epoch, FAKE_HOSTS_EPOCH + 1);
    fake_hosts_expect_round(hosts, 3);
    fake_hosts_destroy(hosts);
}

/* Who gives it up instead is told how it has ended, and reopens. */
static void test_degrade_wait_that_timed_out_can_be_given_up(void **state)
{
    (void)state;
    const uint32_t host_of[] = {0, 1, 2};
    struct fake_hosts *hosts = degrade_create(host_of, 3);
    struct fake_member *member = &hosts->members[0];
    fake_hosts_kill(hosts, 2);
    fake_hosts_start(hosts, 0, 1);
    EXPECT_STATUS(convoy_engine_wait(member->engine, member->operation, 300 * CONVOY_NS_PER_MS, &member->summary, NULL),
                  CONVOY_TIMED_OUT, NULL);
    EXPECT_STATUS(fake_hosts_abandon(hosts, 0), CONVOY_CLOSED, NULL);
    EXPECT(!convoy_engine_holds(member->engine, member->operation));
    fake_hosts_expect_reopen(hosts, FAKE_HOSTS_EPOCH + 1, 2);
    fake_hosts_expect_round(hosts, 2);
    fake_hosts_destroy(hosts);
}

/* Host 0 has completed round 2, but its leader died before it told anybody: the others get that result and not a round
 * of their own. */
static void test_degrade_hands_over_what_another_host_completed(void **state)
{
    (void)state;
    const uint32_t host_of[] = {0, 0, 1, 2};
    struct fake_hosts *hosts = degrade_create(host_of, 4);
    int32_t status = CONVOY_IN_PROGRESS;
    fake_links_hold(0, 2, true);
    fake_links_hold(0, 3, true);
    for (uint32_t i = 0; i < 4; i++) {
        fake_hosts_start(hosts, i, 1);
    }
    EXPECT_EQUAL(fake_hosts_test(hosts, 3), CONVOY_IN_PROGRESS);
    EXPECT_EQUAL(fake_hosts_test(hosts, 2), CONVOY_IN_PROGRESS);
    for (uint32_t turn = 0; turn < 3 && status == CONVOY_IN_PROGRESS; turn++) {
        status = fake_hosts_test(hosts, 0);
    }
    EXPECT_EQUAL(status, CONVOY_OK);
    fake_hosts_kill(hosts, 0);
    EXPECT_EQUAL(fake_hosts_test(hosts, 1), CONVOY_OK);
    degrade_expect_end(hosts, 1, 3, CONVOY_OK);
    for (uint32_t i = 1; i < 4; i++) {
        EXPECT_EQUAL(hosts->members[i].sum, 4);
        EXPECT_EQUAL(hosts->members[i].summary.round, 2);
    }
    fake_hosts_destroy(hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_degrade_round_comes_again_without_the_lost_host),
        cmocka_unit_test(test_degrade_is_a_policy),
        cmocka_unit_test(test_degrade_is_for_losses_only),
        cmocka_unit_test(test_degrade_outlasts_a_wait_that_times_out),
        cmocka_unit_test(test_degrade_wait_that_timed_out_can_be_given_up),
        cmocka_unit_test(test_degrade_hands_over_what_another_host_completed),
    };
    return cmocka_run_group_tests_name("degrade", tests, NULL, NULL);
}
