/* SPDX-License-Identifier: Apache-2.0 */
/* A member dies at each point of the named list: the others never hang, agree, reopen and go on. */
#include "tests/fault/party.h"

#include "core/fault.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define KILL_ROUND 3u   /* the round in which it happens */
#define KILL_LAST 24u   /* the round up to which the survivors go on */
#define KILL_OPEN_NS 3000000000ull

/* What brings the victim to its point. */
enum kill_trigger {
    TRIGGER_OPEN = 0,
    TRIGGER_ROUND,
    TRIGGER_ABANDON, /* it gives up on a round that a late member has not come to yet */
    TRIGGER_REOPEN,  /* the others have abandoned a round; it reopens first, they once it is dead */
    TRIGGER_REOPEN_TOGETHER,
    TRIGGER_CLOSE,
};

struct kill_case {
    const char *point;
    uint32_t hit; /* which pass: on one machine */
    uint32_t hit_hosts; /* in three namespaces */
    enum kill_trigger trigger;
    uint32_t victim;
    bool has_memory, has_ucx, has_hosts; /* where it is tried */
};

static const struct kill_case kill_cases[] = {
    {"open_started", 1, 1, TRIGGER_OPEN, 2, true, true, false},
    {"open_met", 1, 1, TRIGGER_OPEN, 2, true, true, false},
    {"open_joined", 1, 1, TRIGGER_OPEN, 2, true, true, false},
    {"open_joined", 1, 1, TRIGGER_OPEN, 0, true, false, false},
    {"open_finished", 1, 1, TRIGGER_OPEN, 2, true, true, true},
    {"publish_before_swap", 3, 3, TRIGGER_ROUND, 1, true, true, true},
    {"publish_after_swap", 3, 3, TRIGGER_ROUND, 1, true, true, true},
    {"publish_after_swap", 3, 3, TRIGGER_ROUND, 0, true, false, true},
    {"collect_complete", 3, 3, TRIGGER_ROUND, 1, true, false, false},
    {"round_ended", 3, 3, TRIGGER_ROUND, 1, true, true, true},
    {"seal_before_swap", 1, 1, TRIGGER_ABANDON, 1, true, false, false},
    {"seal_after_swap", 1, 1, TRIGGER_ABANDON, 1, true, false, false},
    {"lead_before_send", 3, 3, TRIGGER_ROUND, 2, false, true, true},
    {"lead_sent_one", 7, 5, TRIGGER_ROUND, 2, false, true, true},
    {"lead_sent_one", 7, 5, TRIGGER_ROUND, 0, false, true, true},
    {"lead_after_send", 3, 3, TRIGGER_ROUND, 2, false, true, true},
    {"lead_before_result", 3, 3, TRIGGER_ROUND, 2, false, true, true},
    {"lead_after_result", 3, 3, TRIGGER_ROUND, 2, false, true, true},
    {"reopen_before_switch", 1, 1, TRIGGER_REOPEN, 1, true, false, false},
    {"reopen_after_switch", 1, 1, TRIGGER_REOPEN, 1, true, false, false},
    {"reopen_query", 1, 1, TRIGGER_REOPEN, 0, false, true, true},
    {"reopen_promised", 1, 1, TRIGGER_REOPEN_TOGETHER, 2, false, true, true},
    {"reopen_proposed", 1, 1, TRIGGER_REOPEN, 0, false, true, true},
    {"reopen_before_commit", 1, 1, TRIGGER_REOPEN, 0, false, true, true},
    {"close_before_goodbye", 1, 1, TRIGGER_CLOSE, 1, true, true, true},
    {"close_after_goodbye", 1, 1, TRIGGER_CLOSE, 1, true, true, true},
};
#define KILL_CASES (sizeof kill_cases / sizeof kill_cases[0])
#define KILL_TESTS_MAX (4 * KILL_CASES + 1)

static char hits_path[] = "/tmp/convoy-points-XXXXXX";

/* One case in one place. */
struct kill_run {
    const struct kill_case *the_case;
    struct party_plan plan;
    char name[96];
};

enum kill_mark { KILL_MARK_ABANDONED = 1 };

static void kill_arm(const struct kill_run *run)
{
    char text[64];
    uint32_t hit = run->plan.place == PARTY_HOSTS ? run->the_case->hit_hosts : run->the_case->hit;
    (void)snprintf(text, sizeof text, "%s:%u", run->the_case->point, hit);
    EXPECT_EQUAL(setenv("CONVOY_KILL_POINT", text, 1), 0);
    EXPECT_EQUAL(setenv("CONVOY_POINT_HITS", hits_path, 1), 0);
}

/* The victim starts the round and gives up at once; its neighbour only comes when it is dead. */
static void kill_abandon(struct party *party, uint32_t victim)
{
    convoy_operation operation = 0;
    if (party->rank->index == victim) {
        EXPECT_OK(party_start(party, &operation), &party->member->error);
        (void)party_abandon(party, operation);
    } else if (party->rank->index == (victim + 1) % party->rank->count) {
        party_await_go(party);
    }
}

/* The victim's neighbour abandons a round before the victim has come to it, so that all must reopen. */
static void kill_reopen(struct party *party, const struct kill_case *the_case)
{
    uint32_t neighbour = (the_case->victim + 1) % party->rank->count;
    convoy_operation operation = 0;
    if (party->rank->index == neighbour) {
        EXPECT_OK(party_start(party, &operation), &party->member->error);
        EXPECT_STATUS(party_abandon(party, operation), CONVOY_BROKEN, &party->member->error);
        rank_mark(party->rank, KILL_MARK_ABANDONED);
    } else {
        rank_await_mark(party->rank, neighbour, KILL_MARK_ABANDONED);
        /* Who comes to it when the victim has died already, or has been left behind, may be told that instead. */
        int32_t status = party_round(party, PARTY_LONG_NS);
        bool is_loss = status == CONVOY_PEER_LOST && party->rank->index != the_case->victim &&
                       party->member->error.rank == (int32_t)the_case->victim;
        if (!is_loss) {
            EXPECT_STATUS(status, CONVOY_BROKEN, &party->member->error);
        }
    }
    if (party->rank->index != the_case->victim && the_case->trigger == TRIGGER_REOPEN) {
        party_await_go(party);
    }
    EXPECT_OK(party_reopen(party), &party->member->error);
}

static void kill_close(struct party *party, uint32_t victim)
{
    if (party->rank->index == victim) {
        (void)party->member->plugin.core->group_close(party->member->group, PARTY_LONG_NS, &party->member->error);
        expect_fail(EXPECT_SITE("group_close"), "came back");
    }
}

static void kill_rank(const struct rank *rank, void *argument)
{
    const struct kill_run *run = argument;
    const struct kill_case *the_case = run->the_case;
    struct party *party = party_enter(rank, &run->plan);
    if (rank->index == the_case->victim) {
        kill_arm(run);
    }
    int32_t status = party_open(party);
    if (the_case->trigger == TRIGGER_OPEN && status != CONVOY_OK) {
        EXPECT(status == CONVOY_TIMED_OUT || status == CONVOY_PEER_LOST || status == CONVOY_TRUNCATED);
        EXPECT(party->member->error.text[0] != '\0');
        party_leave(party);
        return;
    }
    EXPECT_OK(status, &party->member->error);
    if (the_case->trigger != TRIGGER_OPEN) {
        party_survive(party, KILL_ROUND - 1);
    }
    if (the_case->trigger == TRIGGER_ABANDON) {
        kill_abandon(party, the_case->victim);
    } else if (the_case->trigger == TRIGGER_REOPEN || the_case->trigger == TRIGGER_REOPEN_TOGETHER) {
        kill_reopen(party, the_case);
    } else if (the_case->trigger == TRIGGER_CLOSE) {
        kill_close(party, the_case->victim);
    }
    party_survive(party, KILL_LAST);
    party_leave(party);
}

static uint32_t kill_survivors(const struct party_shared *shared, const struct kill_run *run)
{
    uint32_t survivors = 0;
    for (uint32_t i = 0; i < run->plan.count; i++) {
        if (i != run->the_case->victim && shared->logs[i].has_opened != 0) {
            survivors |= 1u << i;
        }
    }
    return survivors;
}

/* All had promised the epoch before the coordinator died, so that epoch comes, with the dead one in it, and no round of
 * it ends well. A member may miss it, when the others have left it before that one reopens; but one must have been in
 * it, since only such a one asks for the next. */
static void kill_check_promise(const struct party_shared *shared, uint32_t survivors)
{
    uint64_t promised = shared->logs[__builtin_ctz(survivors)].entries[0].epoch + 1;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < PARTY_MAX; i++) {
        const struct party_log *log = &shared->logs[i];
        uint32_t count = (survivors >> i & 1) != 0 ? log->count : 0;
        for (uint32_t j = 0; j < count; j++) {
            bool is_in_it = log->entries[j].epoch == promised;
            EXPECT(!is_in_it || log->entries[j].status != CONVOY_OK);
            seen += is_in_it && log->entries[j].status == CONVOY_PEER_LOST;
        }
    }
    EXPECT(seen != 0);
}

static void kill_test(void **state)
{
    struct kill_run *run = *state;
    static struct party_shared seen;
    if (run->plan.place == PARTY_HOSTS && !party_has_hosts()) {
        skip();
    }
    struct ranks *ranks = party_ranks(&run->plan);
    ranks_expect_signal(ranks, run->the_case->victim, SIGKILL);
    ranks_start(ranks, kill_rank, run, party_timeout_ms());
    ranks_await_exit(ranks, run->the_case->victim);
    party_go(ranks);
    for (uint32_t i = 0; i < run->plan.count; i++) {
        if (i != run->the_case->victim) {
            ranks_await_exit(ranks, i);
        }
    }
    (void)memcpy(&seen, ranks_shared(ranks), sizeof seen);
    ranks_finish(ranks);
    uint32_t survivors = kill_survivors(&seen, run);
    EXPECT(run->the_case->trigger == TRIGGER_OPEN || survivors != 0);
    if (survivors != 0) {
        party_check(&seen, &run->plan, survivors, KILL_LAST);
    }
    if (strcmp(run->the_case->point, "reopen_before_commit") == 0) {
        kill_check_promise(&seen, survivors);
    }
}

/* Each point of the list was passed by a victim of the tests before. */
static void test_kill_points_all_were_hit(void **state)
{
    (void)state;
#define POINT_NAME(name) #name "\n",
    static const char *const names[] = {CONVOY_ROUND_POINT_LIST(POINT_NAME)};
    static char text[65536] = "\n";
    int fd = open(hits_path, O_RDONLY | O_CLOEXEC);
    EXPECT(fd >= 0);
    ssize_t length = read(fd, text + 1, sizeof text - 2);
    EXPECT(length >= 0);
    (void)close(fd);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[72];
        (void)snprintf(line, sizeof line, "\n%s", names[i]);
        EXPECT_TEXT(text, line);
    }
}

static size_t kill_add(struct CMUnitTest *tests, size_t at, const struct kill_case *the_case, enum party_place place,
                       bool is_split)
{
    static const char *const places[] = {"shared_memory", "ucx", "hosts"};
    struct kill_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        abort();
    }
    run->the_case = the_case;
    run->plan.place = place;
    run->plan.count = place == PARTY_HOSTS ? 5 : 4;
    run->plan.is_split = is_split;
    run->plan.open_timeout_ns = the_case->trigger == TRIGGER_OPEN ? KILL_OPEN_NS : 0;
    (void)snprintf(run->name, sizeof run->name, "test_kill_rank_%u_at_%s%s_over_%s_others_go_on", the_case->victim,
                   the_case->point, is_split ? "_split" : "", places[place]);
    if (!party_is_wanted(run->name)) {
        free(run);
        return at;
    }
    tests[at] = (struct CMUnitTest){.name = run->name, .test_func = kill_test, .initial_state = run};
    return at + 1;
}

int main(void)
{
    struct CMUnitTest tests[KILL_TESTS_MAX];
    size_t count = 0;
    int fd = mkstemp(hits_path);
    for (size_t i = 0; i < KILL_CASES; i++) {
        const struct kill_case *the_case = &kill_cases[i];
        bool has_ways = the_case->has_memory && the_case->trigger == TRIGGER_ROUND; /* the short one and the whole */
        count = the_case->has_memory ? kill_add(tests, count, the_case, PARTY_MEMORY, false) : count;
        count = has_ways ? kill_add(tests, count, the_case, PARTY_MEMORY, true) : count;
        count = the_case->has_ucx ? kill_add(tests, count, the_case, PARTY_UCX, false) : count;
        count = the_case->has_hosts ? kill_add(tests, count, the_case, PARTY_HOSTS, false) : count;
    }
    size_t runs = count;
    if (getenv("CONVOY_TEST_ONLY") == NULL) {
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_kill_points_all_were_hit);
    }
    int failed = _cmocka_run_group_tests("kill_points", tests, count, NULL, NULL);
    for (size_t i = 0; i < runs; i++) {
        free(tests[i].initial_state);
    }
    (void)close(fd);
    (void)unlink(hits_path);
    return failed;
}
