/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a group across hosts move to another build: they are found again, and rounds go on, whatever is lost, late or
 * comes twice on the way. */
#include "tests/lib/expect.h"
#include "tests/lib/fake_hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define TURNS_MAX 100u

static const uint32_t two_hosts[] = {0, 1};
static const uint32_t three_hosts[] = {0, 1, 2};
static const uint32_t pairs[] = {0, 0, 1, 1};

static uint64_t rewires(const struct fake_hosts *hosts, uint32_t index)
{
    return hosts->members[index].engine->counters.rewires;
}

static void expect_no_loss(const struct fake_hosts *hosts)
{
    for (uint32_t i = 0; i < hosts->count; i++) {
        EXPECT_EQUAL(hosts->members[i].engine->counters.members_lost, 0);
        EXPECT_EQUAL(hosts->members[i].engine->remote->unanswered, 0);
    }
}

/* Looks by turns, and lets time pass, until everybody has answered everybody, and exporters have nothing more to do. */
static void converge(struct fake_hosts *hosts)
{
    bool is_done = false;
    for (uint32_t turn = 0; !is_done; turn++) {
        EXPECT(turn < TURNS_MAX);
        is_done = true;
        if (fake_links_under_way() == 0) {
            fake_hosts_pass_time(hosts);
        }
        for (uint32_t i = 0; i < hosts->count; i++) {
            struct fake_member *member = &hosts->members[i];
            fake_hosts_look(hosts, i);
            if (member->exporter != NULL && fake_hosts_is_left(hosts, i)) {
                fake_hosts_retire(hosts, i);
            }
            is_done = is_done && member->exporter == NULL && member->engine->remote->unanswered == 0;
        }
    }
    fake_hosts_settle(hosts);
}

static void test_remote_move_of_each_in_turn(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(three_hosts, 3);
    uint64_t round = 0;
    for (uint32_t turn = 0; turn < 6; turn++) {
        fake_hosts_expect_round(hosts, ++round);
        fake_hosts_move(hosts, turn % 3);
        fake_hosts_settle(hosts);
    }
    fake_hosts_expect_round(hosts, ++round);
    expect_no_loss(hosts);
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_EQUAL(rewires(hosts, i), 8); /* two moves of its own, heard by two; two of each of two others */
        EXPECT(hosts->members[i].engine->counters.rewire_down_ns_max > 0);
    }
    json_t *dump = convoy_engine_dump(hosts->members[0].engine);
    char *text = json_dumps(dump, JSON_COMPACT | JSON_SORT_KEYS);
    EXPECT_TEXT(text, "\"rewire\":[{\"count\":4,\"down_ns\":");
    EXPECT_TEXT(text, "\"rank\":2,\"since_ns\":0}]");
    free(text);
    json_decref(dump);
    fake_hosts_destroy(hosts);
}

/* Members of one host, too, ask their leader over the link. */
static void test_remote_move_is_told_to_followers_and_neighbours(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(pairs, 4);
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_move(hosts, 1);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t known = 0;
        memcpy(&known, hosts->members[i].engine->remote->addresses[1], sizeof known);
        EXPECT_EQUAL(known, i == 1 ? 1 : fake_hosts_link(hosts, 1));
        EXPECT_EQUAL(rewires(hosts, i), i == 1 ? 3 : 1);
    }
    fake_hosts_expect_round(hosts, 2);
    fake_hosts_destroy(hosts);
}

/* Neither knows where the other is now; each one's old worker is told, and hands it on. */
static void test_remote_move_of_both_at_once(void **state)
{
    (void)state;
    for (uint32_t first = 0; first < 2; first++) {
        struct fake_hosts *hosts = fake_hosts_create(two_hosts, 2);
        fake_hosts_expect_round(hosts, 1);
        fake_hosts_import(hosts, 0);
        fake_hosts_import(hosts, 1);
        fake_hosts_thaw(hosts, first);
        EXPECT(!fake_hosts_is_left(hosts, first));
        fake_hosts_thaw(hosts, 1 - first);
        converge(hosts);
        fake_hosts_expect_round(hosts, 2);
        expect_no_loss(hosts);
        fake_hosts_destroy(hosts);
    }
}

static void test_remote_move_of_all_at_once(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(pairs, 4);
    fake_hosts_expect_round(hosts, 1);
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (uint32_t i = 0; i < 4; i++) {
            fake_hosts_import(hosts, i);
        }
        for (uint32_t i = 4; i-- > 0;) {
            fake_hosts_thaw(hosts, i);
        }
        converge(hosts);
        fake_hosts_expect_round(hosts, 2 + turn);
    }
    expect_no_loss(hosts);
    fake_hosts_destroy(hosts);
}

/* The announcement is lost, then its answer. */
static void test_remote_move_is_told_until_it_is_answered(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(two_hosts, 2);
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_import(hosts, 0);
    fake_links_hold(2, 1, true);
    fake_links_hold(1, 2, true);
    fake_hosts_thaw(hosts, 0);
    EXPECT_EQUAL(fake_hosts_link(hosts, 0), 2);
    EXPECT_EQUAL(fake_links_waiting(2, 1), 1);
    EXPECT(fake_links_lose(2, 1));
    fake_hosts_look(hosts, 0);
    EXPECT_EQUAL(fake_links_waiting(2, 1), 0); /* not before time has passed */
    fake_hosts_pass_time(hosts);
    fake_hosts_look(hosts, 0);
    EXPECT(fake_links_pass(2, 1));
    uint32_t connects = fake_links_connects(1);
    while (fake_links_lose(1, 2)) {
    }
    EXPECT_EQUAL(hosts->members[0].engine->remote->unanswered, 1);
    fake_hosts_pass_time(hosts);
    fake_hosts_look(hosts, 0);
    EXPECT(fake_links_pass(2, 1));
    EXPECT_EQUAL(fake_links_connects(1), connects); /* known by now */
    EXPECT_EQUAL(rewires(hosts, 1), 1);
    EXPECT(fake_links_waiting(1, 2) != 0);
    fake_links_hold(2, 1, false);
    fake_links_hold(1, 2, false);
    converge(hosts);
    EXPECT_EQUAL(rewires(hosts, 0), 1);
    fake_hosts_expect_round(hosts, 2);
    expect_no_loss(hosts);
    fake_hosts_destroy(hosts);
}

/* Two moves, and the first is heard of last. */
static void test_remote_move_heard_of_late_is_dropped(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(two_hosts, 2);
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_import(hosts, 0);
    fake_links_hold(2, 1, true);
    fake_hosts_thaw(hosts, 0);
    hosts->members[0].exporter->remote->leave_ns = 1; /* its time is over, and nobody knows where the member is */
    EXPECT(fake_hosts_is_left(hosts, 0));
    fake_hosts_retire(hosts, 0);
    fake_hosts_import(hosts, 0);
    fake_hosts_thaw(hosts, 0);
    EXPECT_EQUAL(fake_hosts_link(hosts, 0), 3);
    fake_links_hold(0, 1, true);
    fake_links_hold(3, 1, true);
    EXPECT(fake_links_pass(3, 1)); /* before it has looked at the end of the first worker */
    uint64_t stale = hosts->members[1].engine->remote->dropped_stale;
    EXPECT(fake_links_pass(2, 1));
    EXPECT_EQUAL(hosts->members[1].engine->remote->dropped_stale, stale + 1);
    fake_links_hold(2, 1, false);
    fake_links_hold(3, 1, false);
    converge(hosts);
    fake_hosts_expect_round(hosts, 2);
    expect_no_loss(hosts);
    fake_hosts_destroy(hosts);
}

/* What host 1 has sent for a round that host 0 has not begun: heard before the move, not read by the old worker, or lost. */
static void test_remote_move_round_of_others_goes_on(void **state)
{
    (void)state;
    enum { HEARD, UNREAD, LOST, WAYS };
    for (uint32_t way = 0; way < WAYS; way++) {
        struct fake_hosts *hosts = fake_hosts_create(two_hosts, 2);
        fake_hosts_expect_round(hosts, 1);
        fake_links_hold(1, 0, way != HEARD);
        fake_hosts_start(hosts, 1, 2);
        EXPECT_EQUAL(fake_hosts_test(hosts, 1), CONVOY_IN_PROGRESS);
        EXPECT_EQUAL(fake_links_waiting(1, 0), 1);
        fake_hosts_import(hosts, 0);
        EXPECT(way != LOST || fake_links_lose(1, 0));
        fake_hosts_thaw(hosts, 0);
        fake_links_hold(1, 0, false);
        fake_hosts_start(hosts, 0, 1);
        int32_t status[2] = {CONVOY_IN_PROGRESS, CONVOY_IN_PROGRESS};
        for (uint32_t turn = 0; status[0] == CONVOY_IN_PROGRESS || status[1] == CONVOY_IN_PROGRESS; turn++) {
            EXPECT(turn < TURNS_MAX);
            for (uint32_t i = 0; i < 2; i++) {
                status[i] = status[i] == CONVOY_IN_PROGRESS ? fake_hosts_test(hosts, i) : status[i];
            }
        }
        EXPECT_EQUAL(status[0], CONVOY_OK);
        EXPECT_EQUAL(status[1], CONVOY_OK);
        EXPECT_EQUAL(hosts->members[1].sum, 3);
        converge(hosts);
        fake_hosts_expect_round(hosts, 3);
        expect_no_loss(hosts);
        fake_hosts_destroy(hosts);
    }
}

/* Host 0 has ended a round, and what it said for it was lost with its worker: host 1 hears it from the new one. */
static void test_remote_move_last_words_are_repeated(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(two_hosts, 2);
    fake_hosts_expect_round(hosts, 1);
    fake_links_hold(0, 1, true);
    fake_hosts_start(hosts, 0, 1);
    fake_hosts_start(hosts, 1, 2);
    int32_t status = CONVOY_IN_PROGRESS;
    for (uint32_t turn = 0; status == CONVOY_IN_PROGRESS; turn++) {
        EXPECT(turn < TURNS_MAX);
        EXPECT_EQUAL(fake_hosts_test(hosts, 1), CONVOY_IN_PROGRESS);
        status = fake_hosts_test(hosts, 0);
    }
    EXPECT_EQUAL(status, CONVOY_OK);
    EXPECT(fake_links_lose(0, 1));
    fake_hosts_import(hosts, 0);
    fake_hosts_thaw(hosts, 0);
    converge(hosts);
    EXPECT_OK(fake_hosts_test(hosts, 1), &hosts->members[1].error);
    EXPECT_EQUAL(hosts->members[1].sum, 3);
    fake_hosts_expect_round(hosts, 3);
    expect_no_loss(hosts);
    fake_hosts_destroy(hosts);
}

/* A follower moves, its leader dies, and it leads: the others know where it is. */
static void test_remote_move_of_a_follower_that_leads_later(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(pairs, 4);
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_move(hosts, 1);
    fake_hosts_move(hosts, 2);
    fake_hosts_expect_round(hosts, 2);
    for (uint32_t i = 1; i < 4; i++) {
        fake_hosts_start(hosts, i, 1);
    }
    fake_hosts_kill(hosts, 0);
    int32_t status = CONVOY_IN_PROGRESS;
    for (uint32_t turn = 0; status == CONVOY_IN_PROGRESS; turn++) {
        EXPECT(turn < TURNS_MAX);
        fake_hosts_pass_time(hosts);
        for (uint32_t i = 1; i < 3; i++) {
            fake_hosts_look(hosts, i);
        }
        fake_hosts_look(hosts, 3);
        status = fake_hosts_test(hosts, 3);
    }
    EXPECT_STATUS(status, CONVOY_PEER_LOST, &hosts->members[3].error);
    fake_hosts_expect_reopen(hosts, FAKE_HOSTS_EPOCH + 1, 3);
    fake_hosts_expect_round(hosts, 3);
    fake_hosts_move(hosts, 1);
    fake_hosts_move(hosts, 3);
    fake_hosts_expect_round(hosts, 4);
    fake_hosts_destroy(hosts);
}

/* Dies between the two workers, or as soon as it is heard again. */
static void test_remote_move_death_on_the_way(void **state)
{
    (void)state;
    for (uint32_t is_heard = 0; is_heard < 2; is_heard++) {
        struct fake_hosts *hosts = fake_hosts_create(three_hosts, 3);
        fake_hosts_expect_round(hosts, 1);
        fake_hosts_import(hosts, 1);
        if (is_heard != 0) {
            fake_hosts_thaw(hosts, 1);
            fake_hosts_settle(hosts);
        }
        fake_hosts_kill(hosts, 1);
        fake_hosts_start(hosts, 0, 1);
        fake_hosts_start(hosts, 2, 3);
        int32_t status = CONVOY_IN_PROGRESS;
        for (uint32_t turn = 0; status == CONVOY_IN_PROGRESS; turn++) {
            EXPECT(turn < TURNS_MAX);
            fake_hosts_pass_time(hosts);
            fake_hosts_look(hosts, 2);
            fake_hosts_look(hosts, 0);
            status = fake_hosts_test(hosts, 0);
        }
        EXPECT_STATUS(status, CONVOY_PEER_LOST, &hosts->members[0].error);
        EXPECT_EQUAL(hosts->members[0].error.rank, 1);
        fake_hosts_expect_reopen(hosts, FAKE_HOSTS_EPOCH + 1, 2);
        fake_hosts_expect_round(hosts, 2);
        fake_hosts_move(hosts, 0);
        fake_hosts_expect_round(hosts, 3);
        fake_hosts_retire(hosts, 1);
        fake_hosts_destroy(hosts);
    }
}

/* A peer that dies while this member is away is a death, only later: until then its link says nothing. */
static void test_remote_move_peer_that_died_meanwhile(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(two_hosts, 2);
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_import(hosts, 0);
    fake_hosts_kill(hosts, 1);
    fake_hosts_thaw(hosts, 0);
    struct convoy_remote *remote = hosts->members[0].engine->remote;
    for (uint32_t i = 0; i < 3; i++) {
        fake_hosts_look(hosts, 0);
        fake_hosts_pass_time(hosts);
    }
    EXPECT_EQUAL(remote->hosts[1].down_ns, 0);
    EXPECT(!remote->hosts[1].is_lost);
    remote->announced_ns = 1; /* long ago */
    for (uint32_t i = 0; i < 3; i++) {
        fake_hosts_look(hosts, 0);
        fake_hosts_pass_time(hosts);
    }
    EXPECT(remote->hosts[1].is_lost);
    EXPECT_EQUAL(remote->unanswered, 0);
    EXPECT(fake_hosts_is_left(hosts, 0));
    fake_hosts_retire(hosts, 0);
    fake_hosts_destroy(hosts);
}

/* The importer is given up, before or after it has announced itself, or cannot open its network. */
static void test_remote_move_is_taken_back(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(three_hosts, 3);
    struct fake_member *member = &hosts->members[0];
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_import(hosts, 0);
    fake_hosts_go_back(hosts, 0);
    converge(hosts);
    fake_hosts_expect_round(hosts, 2);
    fake_hosts_import(hosts, 0);
    fake_hosts_thaw(hosts, 0);
    fake_hosts_settle(hosts);
    fake_hosts_go_back(hosts, 0);
    converge(hosts);
    fake_hosts_expect_round(hosts, 3);
    fake_hosts_import(hosts, 0);
    fake_links_refuse_open(true);
    EXPECT_STATUS(convoy_remote_thaw(member->engine, &member->error), CONVOY_INIT_FAILED, &member->error);
    EXPECT_EQUAL(member->engine->remote->stage, CONVOY_REMOTE_RESTORED);
    struct convoy_remote_look look;
    convoy_remote_look(member->engine, 1, &look);
    EXPECT_TEXT(look.link, "none");
    json_decref(convoy_remote_dump(member->engine));
    fake_links_refuse_open(false);
    fake_hosts_go_back(hosts, 0);
    converge(hosts);
    fake_hosts_expect_round(hosts, 4);
    expect_no_loss(hosts);
    fake_hosts_destroy(hosts);
}

/* The last word of an agreement is said once, and lost with host 1's old worker. */
static void test_remote_move_hears_of_a_switch_that_it_missed(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(three_hosts, 3);
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_start(hosts, 0, 1);
    fake_hosts_start(hosts, 2, 3);
    EXPECT_EQUAL(fake_hosts_test(hosts, 0), CONVOY_IN_PROGRESS);
    EXPECT_EQUAL(fake_hosts_abandon(hosts, 2), CONVOY_BROKEN);
    EXPECT_EQUAL(fake_hosts_test(hosts, 0), CONVOY_BROKEN);
    fake_links_hold(0, 1, true);
    for (uint32_t turn = 0; convoy_remote_generation(hosts->members[0].engine->remote) == 1; turn++) {
        EXPECT(turn < TURNS_MAX);
        while (fake_links_pass(0, 1)) {
        }
        (void)fake_hosts_reopen(hosts, 0);
        fake_hosts_look(hosts, 1);
        fake_hosts_look(hosts, 2);
    }
    while (fake_links_lose(0, 1)) {
    }
    EXPECT_EQUAL(convoy_remote_generation(hosts->members[1].engine->remote), 1);
    fake_hosts_import(hosts, 1);
    fake_links_hold(0, 1, false);
    fake_hosts_thaw(hosts, 1);
    converge(hosts);
    EXPECT_EQUAL(convoy_remote_generation(hosts->members[1].engine->remote), 2);
    fake_hosts_expect_reopen(hosts, FAKE_HOSTS_EPOCH + 1, 2);
    fake_hosts_expect_round(hosts, 2);
    fake_hosts_destroy(hosts);
}

/* -- what is written down ------------------------------------------------------------------------------------------ */

/* Saved as it is now, then restored: refused, and nothing was made. */
static void expect_refused(struct fake_hosts *hosts, int32_t status, const char *text)
{
    struct fake_member *member = &hosts->members[0];
    struct convoy_bundle_writer bundle = {0};
    EXPECT_OK(fake_hosts_save(hosts, 0, &bundle), &member->error);
    EXPECT_STATUS(fake_hosts_restore(hosts, 0, &bundle), status, &member->error);
    EXPECT_TEXT(member->error.text, text);
    convoy_bundle_free(&bundle);
}

static void test_remote_move_of_what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(three_hosts, 3);
    struct fake_member *member = &hosts->members[0];
    struct convoy_remote *remote = member->engine->remote;
    fake_hosts_expect_round(hosts, 1);
    EXPECT_OK(convoy_remote_freeze(member->engine, &member->error), &member->error);
    remote->hosts[1].leader = 3;
    expect_refused(hosts, CONVOY_MALFORMED, "host 1 of a group across hosts is out of range");
    remote->hosts[1].leader = 1;
    remote->diverged_count = 4;
    expect_refused(hosts, CONVOY_MALFORMED, "a count of rows 4 of");
    remote->diverged_count = 0;
    size_t bytes = remote->address_bytes[2];
    remote->address_bytes[2] = 0;
    expect_refused(hosts, CONVOY_MALFORMED, "an empty address of member 2");
    remote->address_bytes[2] = bytes;
    remote->hosts[1].rows[0].word = 2;
    remote->hosts[1].rows[0].length = 7;
    expect_refused(hosts, CONVOY_MALFORMED, "a message of length 7");
    remote->hosts[1].rows[0].word = 0;
    int heir_fd = remote->heir_fd;
    remote->heir_fd = 1000000;
    expect_refused(hosts, CONVOY_SYSTEM, "socket 1000000 of the exporter");
    remote->heir_fd = heir_fd;
    fake_hosts_thaw(hosts, 0);
    converge(hosts);
    fake_hosts_expect_round(hosts, 2);
    fake_hosts_destroy(hosts);
}

static void test_remote_move_of_other_items(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(two_hosts, 2);
    struct fake_member *member = &hosts->members[0];
    EXPECT_OK(convoy_remote_freeze(member->engine, &member->error), &member->error);
    for (uint32_t i = 0; i < 3; i++) { /* nothing; something that is needed; something that is not */
        struct convoy_bundle_writer bundle = {0};
        convoy_bundle_begin(&bundle);
        size_t opened = convoy_bundle_open(&bundle, 1, 0);
        if (i != 0) {
            EXPECT_OK(convoy_remote_save(member->engine, &bundle, &member->error), &member->error);
            convoy_bundle_put(&bundle, 999, i == 1 ? CONVOY_BUNDLE_CRITICAL : 0, "later", 5);
        }
        convoy_bundle_shut(&bundle, opened);
        EXPECT_OK(convoy_bundle_end(&bundle, &member->error), &member->error);
        static const int32_t statuses[] = {CONVOY_TOO_OLD, CONVOY_TOO_NEW, CONVOY_OK};
        EXPECT_STATUS(fake_hosts_restore(hosts, 0, &bundle), statuses[i], &member->error);
        convoy_bundle_free(&bundle);
    }
    fake_hosts_thaw(hosts, 0);
    converge(hosts);
    fake_hosts_expect_round(hosts, 1);
    fake_hosts_destroy(hosts);
}

#ifdef CONVOY_DEBUG
/* Each allocation of save, restore and thaw fails once: the exporter goes on. */
static void test_remote_move_without_memory(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(two_hosts, 2);
    struct fake_member *member = &hosts->members[0];
    struct convoy_bundle_writer bundle = {0};
    fake_hosts_expect_round(hosts, 1);
    EXPECT_OK(convoy_remote_freeze(member->engine, &member->error), &member->error);
    int32_t status = CONVOY_NO_MEMORY;
    for (int64_t skip = 0; status != CONVOY_OK; skip++) {
        EXPECT(skip < 1000);
        (void)convoy_memory_fail_after(skip);
        status = fake_hosts_save(hosts, 0, &bundle);
        (void)convoy_memory_fail_after(-1);
        EXPECT(status == CONVOY_OK || status == CONVOY_NO_MEMORY);
        if (status != CONVOY_OK) {
            convoy_bundle_free(&bundle);
        }
    }
    status = CONVOY_NO_MEMORY;
    for (int64_t skip = 1; status != CONVOY_OK; skip++) { /* the first is the test's own */
        EXPECT(skip < 1000);
        (void)convoy_memory_fail_after(skip);
        status = fake_hosts_restore(hosts, 0, &bundle);
        (void)convoy_memory_fail_after(-1);
        EXPECT(status == CONVOY_OK || status == CONVOY_NO_MEMORY);
    }
    convoy_bundle_free(&bundle);
    fake_links_hold(2, 1, true);
    fake_hosts_thaw(hosts, 0);
    (void)convoy_memory_fail_after(0); /* the peer cannot keep the address: it is told again */
    EXPECT(fake_links_pass(2, 1));
    (void)convoy_memory_fail_after(-1);
    EXPECT_EQUAL(hosts->members[1].engine->remote->paths[0].sequence, 0);
    fake_links_hold(2, 1, false);
    converge(hosts);
    fake_hosts_expect_round(hosts, 2);
    fake_hosts_destroy(hosts);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remote_move_of_each_in_turn),
        cmocka_unit_test(test_remote_move_is_told_to_followers_and_neighbours),
        cmocka_unit_test(test_remote_move_of_both_at_once),
        cmocka_unit_test(test_remote_move_of_all_at_once),
        cmocka_unit_test(test_remote_move_is_told_until_it_is_answered),
        cmocka_unit_test(test_remote_move_heard_of_late_is_dropped),
        cmocka_unit_test(test_remote_move_round_of_others_goes_on),
        cmocka_unit_test(test_remote_move_last_words_are_repeated),
        cmocka_unit_test(test_remote_move_of_a_follower_that_leads_later),
        cmocka_unit_test(test_remote_move_death_on_the_way),
        cmocka_unit_test(test_remote_move_peer_that_died_meanwhile),
        cmocka_unit_test(test_remote_move_is_taken_back),
        cmocka_unit_test(test_remote_move_hears_of_a_switch_that_it_missed),
        cmocka_unit_test(test_remote_move_of_what_cannot_be_is_refused),
        cmocka_unit_test(test_remote_move_of_other_items),
#ifdef CONVOY_DEBUG
        cmocka_unit_test(test_remote_move_without_memory),
#endif
    };
    return cmocka_run_group_tests_name("remote_move", tests, NULL, NULL);
}
