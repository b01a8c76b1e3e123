/* SPDX-License-Identifier: Apache-2.0 */
/* What is known about members of other hosts: who was asked, who is behind a silent leader, what a divergence said, who
 * is gone; in reports, words and dumps. */
#include "tests/lib/expect.h"
#include "tests/lib/fake_hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define ROWS_MAX FAKE_LINKS_MAX

static const uint32_t host_of[] = {0, 0, 1, 1, 2}; /* leaders are 0, 2 and 4 */
static struct convoy_member_report rows[ROWS_MAX];

static struct convoy_engine *engine_of(struct fake_hosts *hosts, uint32_t index)
{
    return hosts->members[index].engine;
}

static void look_at_rows(struct fake_hosts *hosts, uint32_t index)
{
    memset(rows, 0xa5, sizeof rows);
    convoy_engine_report_rows(engine_of(hosts, index), rows);
}

/* The dump as text; the caller frees. */
static char *dump_of(struct fake_hosts *hosts, uint32_t index)
{
    json_t *dump = convoy_engine_dump(engine_of(hosts, index));
    char *text = json_dumps(dump, JSON_COMPACT);
    json_decref(dump);
    EXPECT(text != NULL);
    return text;
}

/* The hosts as the first one's leader knows them. */
static struct convoy_remote_host *hosts_of(struct fake_hosts *hosts)
{
    return engine_of(hosts, 0)->remote->hosts;
}

static void test_remote_status_silent_hosts_are_asked_now_and_then(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 5);
    fake_hosts_expect_round(hosts, 1); /* from which all know who leads */
    fake_links_hold(0, 2, true);
    fake_links_hold(0, 4, true);
    fake_hosts_start(hosts, 0, 1);
    fake_hosts_look(hosts, 0);
    EXPECT_EQUAL(fake_links_waiting(0, 2), 0); /* it has not waited for long */
    engine_of(hosts, 0)->waiting.ask_ns = 0;
    fake_hosts_look(hosts, 0);
    EXPECT(hosts_of(hosts)[1].ask_again_ns != 0);
    hosts_of(hosts)[1].ask_again_ns = hosts_of(hosts)[2].ask_again_ns = UINT64_MAX; /* however slow this test is */
    fake_hosts_look(hosts, 0);
    EXPECT_EQUAL(fake_links_waiting(0, 2), 1);
    EXPECT_EQUAL(fake_links_waiting(0, 4), 1);
    EXPECT_EQUAL(fake_links_waiting(0, 3), 0); /* leaders only */
    hosts_of(hosts)[1].ask_again_ns = 0; /* the time has come for that one */
    fake_hosts_look(hosts, 0);
    hosts_of(hosts)[1].ask_again_ns = UINT64_MAX;
    fake_hosts_look(hosts, 0);
    EXPECT_EQUAL(fake_links_waiting(0, 2), 2);
    EXPECT_EQUAL(fake_links_waiting(0, 4), 1);
    look_at_rows(hosts, 0);
    EXPECT_EQUAL(rows[1].condition, CONVOY_MEMBER_MISSING); /* of this host */
    EXPECT_EQUAL(rows[2].condition, CONVOY_MEMBER_MISSING);
    EXPECT_EQUAL(rows[3].condition, CONVOY_MEMBER_UNKNOWN);
    EXPECT_EQUAL(rows[3].behind, 2);
    EXPECT_EQUAL(rows[3].host, 1);
    EXPECT_EQUAL(rows[4].condition, CONVOY_MEMBER_MISSING);
    EXPECT_EQUAL(rows[4].round, 1);
    EXPECT(rows[4].age_ns != UINT64_MAX);
    fake_hosts_start(hosts, 1, 1);
    look_at_rows(hosts, 1); /* who does not lead sees the same */
    EXPECT_EQUAL(rows[3].condition, CONVOY_MEMBER_UNKNOWN);
    fake_hosts_destroy(hosts);
}

static void test_remote_status_answer_says_who_of_a_host_is_missing(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 5);
    fake_hosts_start(hosts, 0, 1);
    fake_hosts_start(hosts, 3, 1);
    engine_of(hosts, 0)->waiting.ask_ns = 0;
    fake_hosts_look(hosts, 0); /* asks */
    fake_hosts_look(hosts, 2); /* answers */
    fake_hosts_look(hosts, 0);
    look_at_rows(hosts, 0);
    EXPECT_EQUAL(rows[2].condition, CONVOY_MEMBER_MISSING);
    EXPECT_EQUAL(rows[3].condition, CONVOY_MEMBER_HEARD);
    EXPECT_EQUAL(rows[3].round, 1);
    EXPECT(rows[3].age_ns != UINT64_MAX);
    EXPECT_EQUAL(rows[3].operation, engine_of(hosts, 3)->contribution.header.operation);
    fake_hosts_start(hosts, 1, 1);
    fake_hosts_start(hosts, 2, 1);
    fake_hosts_start(hosts, 4, 1);
    for (uint32_t turn = 0; turn < 4; turn++) {
        for (uint32_t i = 0; i < 5; i++) {
            (void)fake_hosts_test(hosts, i);
        }
    }
    EXPECT_OK(fake_hosts_test(hosts, 0), &hosts->members[0].error);
    EXPECT_EQUAL(hosts->members[0].sum, 5);
    look_at_rows(hosts, 0);
    for (uint32_t i = 0; i < 5; i++) {
        EXPECT_EQUAL(rows[i].condition, CONVOY_MEMBER_HEARD);
    }
    fake_hosts_destroy(hosts);
}

/* The words of a wait that timed out, from that table; and how a member of several hosts waits. */
static void test_remote_status_timeout_names_other_hosts(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 5);
    struct fake_member *member = &hosts->members[0];
    struct convoy_engine *engine = engine_of(hosts, 0);
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_start(hosts, 0, 1);
    fake_hosts_start(hosts, 1, 1);
    EXPECT_STATUS(convoy_engine_wait(engine, member->operation, 4 * CONVOY_NS_PER_MS, &member->summary, &member->error),
                  CONVOY_TIMED_OUT, NULL);
    EXPECT_TEXT(member->error.text, "did not hear from ranks 2, 3, 4");
    EXPECT_EQUAL(convoy_engine_waited(engine)->kind, CONVOY_WAIT_NETWORK);
    struct convoy_report report = {.members = rows, .member_stride = sizeof rows[0], .member_capacity = ROWS_MAX};
    convoy_engine_report(engine, &report);
    EXPECT_EQUAL(report.member_count, 3);
    EXPECT_EQUAL(rows[0].round, 1); /* the last one it was heard in */
    EXPECT(rows[0].age_ns != UINT64_MAX);
    engine->waiting.usual_ns = UINT64_MAX / 8; /* waits asleep */
    EXPECT_STATUS(convoy_engine_wait(engine, member->operation, 4 * CONVOY_NS_PER_MS, &member->summary, &member->error),
                  CONVOY_TIMED_OUT, NULL);
    struct convoy_engine *second = engine_of(hosts, 1); /* does not lead */
    EXPECT_STATUS(convoy_engine_wait(second, hosts->members[1].operation, 4 * CONVOY_NS_PER_MS, &member->summary, NULL),
                  CONVOY_TIMED_OUT, NULL);
    fake_hosts_destroy(hosts);
}

/* -- divergence -------------------------------------------------------------------------------------------------- */

static void start_with(struct fake_hosts *hosts, uint32_t index, uint64_t digest, uint64_t tag)
{
    struct fake_member *member = &hosts->members[index];
    struct convoy_contribution contribution = member->engine->contribution; /* of the round before */
    uint8_t *payload = NULL;
    contribution.header.digest = digest;
    contribution.tag = tag;
    EXPECT_OK(convoy_engine_begin(member->engine, &payload, &member->error), &member->error);
    payload[0] = 1;
    EXPECT_OK(convoy_engine_publish(member->engine, &contribution, &member->operation, &member->error), NULL);
}

/* All ask by turns until the first member's round is over. */
static int32_t end_of_first(struct fake_hosts *hosts)
{
    int32_t status = CONVOY_IN_PROGRESS;
    for (uint32_t turn = 0; turn < 20 && status == CONVOY_IN_PROGRESS; turn++) {
        for (uint32_t i = hosts->count; i-- > 0;) {
            status = fake_hosts_test(hosts, i);
        }
        fake_hosts_pass_time(hosts);
    }
    return status;
}

static void test_remote_status_divergence_names_members_of_other_hosts(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 5);
    struct fake_member *member = &hosts->members[0];
    fake_hosts_expect_round(hosts, 1);
    for (uint32_t i = 0; i < 5; i++) {
        start_with(hosts, i, i == 3 ? 71 : 70, 0);
    }
    EXPECT_STATUS(end_of_first(hosts), CONVOY_DIVERGED, &member->error);
    EXPECT_TEXT(member->error.text, "digest differs: 71 is at rank 3, 70 at this rank 0");
    look_at_rows(hosts, 0);
    EXPECT_EQUAL(rows[3].condition, CONVOY_MEMBER_DIVERGED);
    EXPECT_EQUAL(rows[3].digest, 71);
    EXPECT_EQUAL(rows[2].condition, CONVOY_MEMBER_HEARD);
    EXPECT_EQUAL(rows[2].digest, 70);
    EXPECT_EQUAL(rows[4].condition, CONVOY_MEMBER_HEARD);
    fake_hosts_settle(hosts);
    for (uint32_t i = 1; i < 5; i++) {
        EXPECT_STATUS(fake_hosts_test(hosts, i), CONVOY_DIVERGED, &hosts->members[i].error);
    }
    fake_hosts_expect_round(hosts, 3);
    for (uint32_t i = 0; i < 5; i++) {
        start_with(hosts, i, 0, i == 4 ? 901 : 900);
    }
    EXPECT_STATUS(end_of_first(hosts), CONVOY_DIVERGED, &member->error);
    EXPECT_TEXT(member->error.text, "step tag differs: 901 is at rank 4, 900 at this rank 0");
    look_at_rows(hosts, 0);
    EXPECT_EQUAL(rows[4].condition, CONVOY_MEMBER_DIVERGED);
    EXPECT_EQUAL(rows[4].tag, 901);
    fake_hosts_destroy(hosts);
}

/* -- who is gone ------------------------------------------------------------------------------------------------- */

/* A host of one member has nobody to lead it next. */
static void test_remote_status_lost_host_of_one(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 5);
    struct fake_member *member = &hosts->members[0];
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_kill(hosts, 4);
    fake_hosts_start(hosts, 0, 1);
    fake_hosts_start(hosts, 1, 1);
    EXPECT_STATUS(end_of_first(hosts), CONVOY_PEER_LOST, &member->error);
    EXPECT_EQUAL(member->error.rank, 4);
    look_at_rows(hosts, 0);
    EXPECT_EQUAL(rows[4].condition, CONVOY_MEMBER_LOST);
    EXPECT_EQUAL(rows[4].noticed_by, CONVOY_NOTICED_LINK);
    char *text = dump_of(hosts, 0);
    EXPECT_TEXT(text, "\"link\":\"lost\"");
    EXPECT_TEXT(text, "\"link\":\"fake\"");
    EXPECT_TEXT(text, "\"dropped_bad\":0");
    EXPECT_TEXT(text, "\"hosts\":3");
    free(text);
    fake_hosts_destroy(hosts);
}

/* A host of two is asked, member by member, who leads it now, and is lost when nobody has said so for too long. */
static void test_remote_status_host_without_leader_is_sought_then_lost(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 5);
    struct convoy_remote *remote = engine_of(hosts, 0)->remote;
    fake_hosts_expect_round(hosts, 1);
    fake_links_hold(0, 2, true);
    fake_links_hold(0, 3, true);
    convoy_remote_down(remote, 2, -25);
    fake_hosts_look(hosts, 0);
    EXPECT_EQUAL(fake_links_waiting(0, 3), 1);
    EXPECT_EQUAL(fake_links_waiting(0, 2), 0);
    fake_hosts_look(hosts, 0); /* not again so soon */
    EXPECT_EQUAL(fake_links_waiting(0, 3), 1);
    remote->hosts[1].retry_ns = 0;
    fake_hosts_look(hosts, 0); /* the old one has its turn */
    EXPECT_EQUAL(fake_links_waiting(0, 2), 1);
    EXPECT(!remote->hosts[1].is_lost);
    remote->hosts[1].down_ns = 1;
    fake_hosts_look(hosts, 0);
    EXPECT(remote->hosts[1].is_lost);
    look_at_rows(hosts, 0);
    EXPECT_EQUAL(rows[2].condition, CONVOY_MEMBER_LOST);
    EXPECT_EQUAL(rows[3].condition, CONVOY_MEMBER_LOST);
    EXPECT_EQUAL(convoy_engine_counters(engine_of(hosts, 0))->members_lost, 2);
    convoy_remote_lose_host(remote, 1); /* says nothing new */
    EXPECT_EQUAL(convoy_engine_counters(engine_of(hosts, 0))->members_lost, 2);
    fake_hosts_destroy(hosts);
}

/* The next member leads when the leader of its host has said goodbye or has ended. */
static void test_remote_status_second_member_watches_its_leader(void **state)
{
    (void)state;
    for (uint32_t closes = 0; closes < 2; closes++) {
        struct fake_hosts *hosts = fake_hosts_create(host_of, 5);
        struct convoy_engine *second = engine_of(hosts, 3);
        fake_hosts_expect_round(hosts, 1);
        fake_hosts_look(hosts, 3);
        EXPECT(!convoy_remote_is_leader(second));
        if (closes != 0) {
            atomic_store(&convoy_segment_slot(&second->segment, 0)->closed, 1);
        } else {
            fake_hosts_kill(hosts, 2);
        }
        fake_hosts_look(hosts, 3);
        EXPECT(convoy_remote_is_leader(second));
        EXPECT_EQUAL(second->losses[2].noticed_by, closes != 0 ? CONVOY_NOTICED_CLOSE : CONVOY_NOTICED_PROCESS);
        char *text = dump_of(hosts, 3);
        EXPECT_TEXT(text, closes != 0 ? "\"link\":\"closed\"" : "\"link\":\"lost\"");
        free(text);
        fake_hosts_destroy(hosts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remote_status_silent_hosts_are_asked_now_and_then),
        cmocka_unit_test(test_remote_status_answer_says_who_of_a_host_is_missing),
        cmocka_unit_test(test_remote_status_timeout_names_other_hosts),
        cmocka_unit_test(test_remote_status_divergence_names_members_of_other_hosts),
        cmocka_unit_test(test_remote_status_lost_host_of_one),
        cmocka_unit_test(test_remote_status_host_without_leader_is_sought_then_lost),
        cmocka_unit_test(test_remote_status_second_member_watches_its_leader),
    };
    return cmocka_run_group_tests_name("remote_status", tests, NULL, NULL);
}
