/* SPDX-License-Identifier: Apache-2.0 */
/* Three hosts (network namespaces): several deaths, a member that reopens late, links cut one way and both ways, and
 * going on degraded. */
#include "tests/fault/party.h"

#include "tests/lib/hosts.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOSTS_ROUND 4u
#define HOSTS_LAST 24u
#define HOSTS_SHORT_NS 1000000000ull
#define HOSTS_MEMBERS 5u /* two, two and one */

enum hosts_mark { MARK_READY = 1, MARK_LATE, MARK_OVER };

/* One test: what its ranks do, and what they know. */
struct hosts_run {
    struct party_plan plan;
    const char *points[PARTY_MAX]; /* kill point of each rank; NULL = none */
    uint32_t victims;              /* bit per member with a point, or killed by the parent */
};

static void hosts_skip(void)
{
    if (!party_has_hosts()) {
        skip();
    }
}

/* `ip netns exec HOST nft ...` */
static void hosts_nft(uint32_t host, const char *words)
{
    char command[200];
    (void)snprintf(command, sizeof command, "netns exec %s nft %s", hosts_name(host), words);
    EXPECT(hosts_ip(command));
}

static bool hosts_have_nft(void)
{
    char command[80];
    (void)snprintf(command, sizeof command, "netns exec %s nft list tables", hosts_name(0));
    return hosts_ip(command);
}

/* Drops all that a host sends. */
static void hosts_cut(uint32_t host)
{
    hosts_nft(host, "add table inet cut");
    hosts_nft(host, "add chain inet cut out { type filter hook output priority 0 ; }");
    hosts_nft(host, "add rule inet cut out oifname != lo drop");
}

static void hosts_mend(uint32_t host)
{
    hosts_nft(host, "delete table inet cut");
}

/* -- several deaths ---------------------------------------------------------------------------------------------- */

/* A round that the last member gives up on, so that all have to reopen; those with a point die at it. */
static void deaths_rank(const struct rank *rank, void *argument)
{
    const struct hosts_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    convoy_operation operation = 0;
    uint32_t giver = rank->count - 1;
    if (run->points[rank->index] != NULL) {
        EXPECT_EQUAL(setenv("CONVOY_KILL_POINT", run->points[rank->index], 1), 0);
    }
    EXPECT_OK(party_open(party), &party->member->error);
    party_survive(party, HOSTS_ROUND - 1);
    if (rank->index == giver) {
        EXPECT_OK(party_start(party, &operation), &party->member->error);
        EXPECT_STATUS(party_abandon(party, operation), CONVOY_BROKEN, &party->member->error);
        rank_mark(rank, MARK_READY);
    } else {
        rank_await_mark(rank, giver, MARK_READY);
        /* Who comes when a victim has died already, or has been left behind, may be told that instead. */
        int32_t status = party_round(party, PARTY_LONG_NS);
        int32_t lost = party->member->error.rank;
        bool is_loss = status == CONVOY_PEER_LOST && lost >= 0 && (run->victims >> lost & 1) != 0;
        if (!is_loss) {
            EXPECT_STATUS(status, CONVOY_BROKEN, &party->member->error);
        }
    }
    EXPECT_OK(party_reopen(party), &party->member->error);
    party_survive(party, HOSTS_LAST);
    party_leave(party);
}

static void deaths_check(struct hosts_run *run)
{
    static struct party_shared seen;
    hosts_skip();
    struct ranks *ranks = party_ranks(&run->plan);
    for (uint32_t i = 0; i < run->plan.count; i++) {
        if ((run->victims >> i & 1) != 0) {
            ranks_expect_signal(ranks, i, SIGKILL);
        }
    }
    ranks_start(ranks, deaths_rank, run, party_timeout_ms());
    for (uint32_t i = 0; i < run->plan.count; i++) {
        ranks_await_exit(ranks, i);
    }
    (void)memcpy(&seen, ranks_shared(ranks), sizeof seen);
    ranks_finish(ranks);
    party_check(&seen, &run->plan, ((1u << run->plan.count) - 1) & ~run->victims, HOSTS_LAST);
}

/* The coordinator of the reopen dies when it has proposed, and its host's other member, who takes over, when it asks. */
static void test_hosts_two_deaths_during_reopen_the_rest_go_on(void **state)
{
    (void)state;
    struct hosts_run run = {.plan = {.place = PARTY_HOSTS, .count = HOSTS_MEMBERS}, .victims = 3};
    run.points[0] = "reopen_proposed";
    run.points[1] = "reopen_query";
    deaths_check(&run);
}

/* Another host's leader dies with the promise written, and the coordinator before it commits. */
static void test_hosts_promiser_and_coordinator_die_promise_is_completed(void **state)
{
    (void)state;
    struct hosts_run run = {.plan = {.place = PARTY_HOSTS, .count = HOSTS_MEMBERS}, .victims = 5};
    run.points[0] = "reopen_before_commit";
    run.points[2] = "reopen_promised";
    deaths_check(&run);
}

/* -- a late member ----------------------------------------------------------------------------------------------- */

#define LATE_GIVER 0u
#define LATE_LEADER 2u
#define LATE_MEMBER 3u /* of the same host */
#define LATE_OTHERS 1u /* barrier of all but that one */

/* A round that rank 0 gives up on before the others come to it. */
static void late_broken_round(struct party *party, uint32_t mark)
{
    convoy_operation operation = 0;
    if (party->rank->index == LATE_GIVER) {
        EXPECT_OK(party_start(party, &operation), &party->member->error);
        EXPECT_STATUS(party_abandon(party, operation), CONVOY_BROKEN, &party->member->error);
        rank_mark(party->rank, mark);
    } else {
        rank_await_mark(party->rank, LATE_GIVER, mark);
        EXPECT_STATUS(party_round(party, PARTY_LONG_NS), CONVOY_BROKEN, &party->member->error);
    }
}

static void late_rank(const struct rank *rank, void *argument)
{
    const struct hosts_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    EXPECT_OK(party_open(party), &party->member->error);
    party_survive(party, HOSTS_ROUND - 1);
    late_broken_round(party, MARK_READY);
    if (rank->index == LATE_MEMBER) {
        rank_await_mark(rank, LATE_LEADER, MARK_OVER);
    } else {
        EXPECT_OK(party_reopen(party), &party->member->error);
        late_broken_round(party, MARK_LATE);
        rank_barrier_of(rank, LATE_OTHERS, rank->count - 1); /* else one of them might miss the epoch, too */
    }
    EXPECT_OK(party_reopen(party), &party->member->error);
    if (rank->index == LATE_LEADER) {
        rank_mark(rank, MARK_OVER);
    }
    party_survive(party, HOSTS_LAST);
    party_leave(party);
}

/* Two epochs are agreed on while a member is away: when it reopens, it goes to the second. */
static void test_hosts_late_member_goes_past_an_epoch(void **state)
{
    (void)state;
    static struct party_shared seen;
    hosts_skip();
    struct hosts_run run = {.plan = {.place = PARTY_HOSTS, .count = HOSTS_MEMBERS}};
    struct ranks *ranks = party_ranks(&run.plan);
    ranks_start(ranks, late_rank, &run, party_timeout_ms());
    for (uint32_t i = 0; i < run.plan.count; i++) {
        ranks_await_exit(ranks, i);
    }
    (void)memcpy(&seen, ranks_shared(ranks), sizeof seen);
    ranks_finish(ranks);
    party_check(&seen, &run.plan, (1u << run.plan.count) - 1, HOSTS_LAST);
    for (uint32_t i = 0; i < run.plan.count; i++) {
        const struct party_entry *entries = seen.logs[i].entries;
        EXPECT_EQUAL(entries[HOSTS_ROUND - 1].status, CONVOY_BROKEN);
        EXPECT_EQUAL(entries[HOSTS_ROUND].epoch, entries[0].epoch + (i == LATE_MEMBER ? 2 : 1));
        EXPECT_EQUAL(entries[HOSTS_ROUND].round, HOSTS_ROUND);
    }
}

/* -- links that are cut ------------------------------------------------------------------------------------------ */

static void cut_expect_missing(struct party *party, int32_t rank)
{
    struct plugin_member *member = party->member;
    static char dump[65536];
    char wanted[32];
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = dump, .capacity = sizeof dump};
    const struct convoy_member_report *row = exchange_row(&party->exchange, rank);
    EXPECT(row != NULL);
    EXPECT(row->condition == CONVOY_MEMBER_MISSING || row->condition == CONVOY_MEMBER_UNKNOWN);
    EXPECT_OK(member->plugin.core->group_describe(member->group, CONVOY_TOPIC_DUMP, &text, &member->error),
              &member->error);
    (void)snprintf(wanted, sizeof wanted, "\"rank\":%d", rank);
    EXPECT_TEXT(dump, wanted);
}

/* The round that the cut meets is late, with the host named that is not heard; it ends well once the link is mended. */
static void cut_rank(const struct rank *rank, void *argument)
{
    const struct hosts_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    convoy_operation operation = 0;
    EXPECT_OK(party_open(party), &party->member->error);
    party_survive(party, HOSTS_ROUND - 1);
    rank_mark(rank, MARK_READY);
    party_await_go(party);
    EXPECT_OK(party_start(party, &operation), &party->member->error);
    int32_t status = party_finish(party, operation, HOSTS_SHORT_NS);
    if (rank->index < 2) { /* of the hosts that hear each other: nothing comes from the cut one */
        EXPECT_EQUAL(status, CONVOY_TIMED_OUT);
        cut_expect_missing(party, 4);
    }
    rank_mark(rank, MARK_LATE);
    if (status == CONVOY_TIMED_OUT) {
        status = party_finish(party, operation, PARTY_LONG_NS);
    }
    if (status != CONVOY_OK) {
        EXPECT(status == CONVOY_PEER_LOST || status == CONVOY_BROKEN);
        EXPECT_OK(party_reopen(party), &party->member->error);
    }
    party_survive(party, HOSTS_LAST);
    party_leave(party);
}

/* The field reports' D03: one direction of a link is dead for a while. TCP mends it when it is back. */
static void test_hosts_link_cut_one_way_is_named_and_heals(void **state)
{
    (void)state;
    static struct party_shared seen;
    hosts_skip();
    if (!hosts_have_nft()) {
        print_message("skipped: nft does not run here\n");
        skip();
    }
    struct hosts_run run = {.plan = {.place = PARTY_HOSTS, .count = HOSTS_MEMBERS}};
    struct ranks *ranks = party_ranks(&run.plan);
    ranks_start(ranks, cut_rank, &run, party_timeout_ms());
    for (uint32_t i = 0; i < run.plan.count; i++) {
        ranks_await_mark(ranks, i, MARK_READY);
    }
    hosts_cut(2);
    party_go(ranks);
    for (uint32_t i = 0; i < run.plan.count; i++) {
        ranks_await_mark(ranks, i, MARK_LATE);
    }
    hosts_mend(2);
    for (uint32_t i = 0; i < run.plan.count; i++) {
        ranks_await_exit(ranks, i);
    }
    (void)memcpy(&seen, ranks_shared(ranks), sizeof seen);
    ranks_finish(ranks);
    party_check(&seen, &run.plan, (1u << run.plan.count) - 1, HOSTS_LAST);
}

/* -- majority ---------------------------------------------------------------------------------------------------- */

/* Two of four hosts die at once: from outside that looks like a partition, and two are no majority. */
static void majority_rank(const struct rank *rank, void *argument)
{
    const struct hosts_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    EXPECT_OK(party_open(party), &party->member->error);
    party_survive(party, HOSTS_ROUND - 1);
    rank_mark(rank, MARK_READY);
    party_await_go(party);
    int32_t status = party_round(party, PARTY_LONG_NS);
    if (status == CONVOY_OK) { /* cannot be: two have not come */
        expect_fail(EXPECT_SITE("round"), "ended well without two members");
    }
    for (int tries = 0; status != CONVOY_UNREACHABLE && tries < 4; tries++) {
        status = party_reopen(party);
        if (status == CONVOY_OK) {
            status = party_round(party, PARTY_LONG_NS);
        }
    }
    EXPECT_EQUAL(status, CONVOY_UNREACHABLE);
    EXPECT_TEXT(party->member->error.text, "half");
    rank_mark(rank, MARK_OVER);
    rank_await_mark(rank, 0, MARK_OVER);
    rank_await_mark(rank, 1, MARK_OVER);
    party_leave(party);
}

static void test_hosts_no_majority_left_is_unreachable(void **state)
{
    (void)state;
    struct hosts_run run = {.plan = {.place = PARTY_UCX, .count = 4}, .victims = 12};
    struct ranks *ranks = party_ranks(&run.plan);
    ranks_start(ranks, majority_rank, &run, party_timeout_ms());
    for (uint32_t i = 0; i < run.plan.count; i++) {
        ranks_await_mark(ranks, i, MARK_READY);
    }
    ranks_signal(ranks, 2, SIGSTOP); /* so that neither sees the other go */
    ranks_signal(ranks, 3, SIGSTOP);
    ranks_await_stop(ranks, 2);
    ranks_await_stop(ranks, 3);
    ranks_signal(ranks, 2, SIGKILL);
    ranks_signal(ranks, 3, SIGKILL);
    party_go(ranks);
    ranks_finish(ranks);
}

/* -- degrade ----------------------------------------------------------------------------------------------------- */

/* The row of a step, as told apart by its first column. */
static int32_t degrade_step(struct party *party, int64_t step, uint8_t *presence)
{
    struct plugin_member *member = party->member;
    const int64_t row[8] = {step * 10 + party->rank->index, 0, 1, 0, 1, 2, 0, 0};
    int64_t table[HOSTS_MEMBERS * 8];
    const struct convoy_sync_call call = {.struct_size = sizeof call, .row = row};
    struct convoy_sync_result result = {.struct_size = sizeof result,
                                        .table = table,
                                        .table_capacity = HOSTS_MEMBERS * 8,
                                        .presence = presence,
                                        .presence_capacity = HOSTS_MEMBERS};
    int32_t status = member->plugin.sync->gather(member->group, &call, PARTY_LONG_NS, &result, &member->error);
    for (uint32_t i = 0; i < HOSTS_MEMBERS && status == CONVOY_OK; i++) {
        if (presence[i] == CONVOY_PRESENT) {
            EXPECT_EQUAL(table[i * 8], step * 10 + i);
        }
    }
    return status;
}

/* No call of a survivor fails, and from some step on the lost host's member is absent. */
static void degrade_rank(const struct rank *rank, void *argument)
{
    const struct hosts_run *run = argument;
    struct party *party = party_enter(rank, &run->plan);
    const struct convoy_sync_schema schema = {.struct_size = sizeof schema, .builtin = "sglang-8", .builtin_length = 8};
    uint8_t presence[HOSTS_MEMBERS];
    party->member->options.schema = &schema;
    if (run->points[rank->index] != NULL) {
        EXPECT_EQUAL(setenv("CONVOY_KILL_POINT", run->points[rank->index], 1), 0);
    }
    EXPECT_OK(party_open(party), &party->member->error);
    for (int64_t step = 1; step <= HOSTS_LAST; step++) {
        EXPECT_OK(degrade_step(party, step, presence), &party->member->error);
        for (uint32_t i = 0; i < HOSTS_MEMBERS; i++) {
            bool is_victim = (run->victims >> i & 1) != 0;
            EXPECT(is_victim || presence[i] == CONVOY_PRESENT);
            EXPECT(!is_victim || step <= HOSTS_ROUND || presence[i] == CONVOY_PRESENT_LOST);
            EXPECT(step >= HOSTS_ROUND || presence[i] == CONVOY_PRESENT);
        }
    }
    struct convoy_group_info info = {.struct_size = sizeof info};
    EXPECT_OK(party->member->plugin.core->group_info(party->member->group, &info, &party->member->error),
              &party->member->error);
    EXPECT_EQUAL(info.lost_count, 1);
    party_leave(party);
}

static void degrade_check(struct hosts_run *run)
{
    hosts_skip();
    run->plan.critical_flags = CONVOY_GROUP_DEGRADE;
    struct ranks *ranks = party_ranks(&run->plan);
    for (uint32_t i = 0; i < run->plan.count; i++) {
        if ((run->victims >> i & 1) != 0) {
            ranks_expect_signal(ranks, i, SIGKILL);
        }
    }
    ranks_start(ranks, degrade_rank, run, party_timeout_ms());
    ranks_finish(ranks);
}

static void test_hosts_degrade_finishes_the_round_without_a_lost_host(void **state)
{
    (void)state;
    struct hosts_run run = {.plan = {.place = PARTY_HOSTS, .count = HOSTS_MEMBERS}, .victims = 16};
    run.points[4] = "publish_before_swap:4";
    degrade_check(&run);
}

/* It has sent its row to one of the two others: they agree all the same. */
static void test_hosts_degrade_lost_host_sent_to_one_all_agree(void **state)
{
    (void)state;
    struct hosts_run run = {.plan = {.place = PARTY_HOSTS, .count = HOSTS_MEMBERS}, .victims = 16};
    run.points[4] = "lead_sent_one:7";
    degrade_check(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_two_deaths_during_reopen_the_rest_go_on),
        cmocka_unit_test(test_hosts_promiser_and_coordinator_die_promise_is_completed),
        cmocka_unit_test(test_hosts_late_member_goes_past_an_epoch),
        cmocka_unit_test(test_hosts_link_cut_one_way_is_named_and_heals),
        cmocka_unit_test(test_hosts_no_majority_left_is_unreachable),
        cmocka_unit_test(test_hosts_degrade_finishes_the_round_without_a_lost_host),
        cmocka_unit_test(test_hosts_degrade_lost_host_sent_to_one_all_agree),
    };
    return party_main("hosts", tests, sizeof tests / sizeof tests[0]);
}
