/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fault/party.h"

#include "tests/lib/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define PARTY_ROUND_BITS 16u
#define PARTY_FAILURES_MAX 12u
#define PARTY_HOST_COUNT 3u
#define PARTY_TESTS_MAX 64u

/* What the library logs, with CONVOY_PARTY_LOG set: to find out why a test failed. */
static void party_log_line(void *user, uint32_t level, const char *line, size_t length)
{
    const struct rank *rank = user;
    (void)fprintf(stderr, "rank %u: level %u %.*s\n", rank->index, level, (int)length, line);
}

uint32_t party_timeout_ms(void)
{
    const char *text = getenv("CONVOY_TEST_TIMEOUT_MS");
    unsigned long given = text != NULL ? strtoul(text, NULL, 10) : 0;
    return given != 0 ? (uint32_t)given : 60000;
}

bool party_is_wanted(const char *name)
{
    const char *only = getenv("CONVOY_TEST_ONLY");
    return only == NULL || strstr(name, only) != NULL;
}

int party_main(const char *name, const struct CMUnitTest *tests, size_t count)
{
    struct CMUnitTest wanted[PARTY_TESTS_MAX];
    size_t wanted_count = 0;
    for (size_t i = 0; i < count && wanted_count < PARTY_TESTS_MAX; i++) {
        if (party_is_wanted(tests[i].name)) {
            wanted[wanted_count++] = tests[i];
        }
    }
    return _cmocka_run_group_tests(name, wanted, wanted_count, NULL, NULL);
}

bool party_has_hosts(void)
{
    static int made = -1; /* not tried yet */
    if (made < 0) {
        made = hosts_create(PARTY_HOST_COUNT);
        (void)atexit(hosts_destroy);
    }
    return made == 1;
}

uint32_t party_scaled(uint32_t small)
{
    const char *scale = getenv("CONVOY_SCALE");
    unsigned long factor = scale != NULL ? strtoul(scale, NULL, 10) : 1;
    return small * (uint32_t)(factor != 0 ? factor : 1);
}

struct ranks *party_ranks(struct party_plan *plan)
{
    plan->port = plugin_port();
    return ranks_create(plan->count, sizeof(struct party_shared));
}

void party_go(struct ranks *ranks)
{
    struct party_shared *shared = ranks_shared(ranks);
    __atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);
    ranks_futex_wake(&shared->go);
}

bool party_is_running(const struct ranks *ranks, uint32_t index)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)ranks_pid(ranks, index), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

void party_await_go(const struct party *party)
{
    while (__atomic_load_n(&party->shared->go, __ATOMIC_SEQ_CST) == 0) { /* ends with the rank's deadline */
        (void)ranks_futex_wait(&party->shared->go, 0, 1000);
    }
}

uint32_t party_host_of(uint32_t index, uint32_t count)
{
    return index * PARTY_HOST_COUNT / count;
}

struct party *party_enter(const struct rank *rank, const struct party_plan *plan)
{
    struct party *party = calloc(1, sizeof *party);
    EXPECT(party != NULL);
    party->rank = rank;
    party->plan = plan;
    party->shared = rank->shared;
    party->log = &party->shared->logs[rank->index];
    party->next = 1;
    const char *host = "127.0.0.1";
    if (plan->place == PARTY_HOSTS) {
        hosts_enter(party_host_of(rank->index, rank->count));
        host = hosts_address(0);
    }
    struct plugin_member *member = plugin_member_create(rank->index, rank->count, "party", plan->port);
    (void)snprintf(member->rendezvous, sizeof member->rendezvous, "tcp://%s:%u", host, plan->port);
    member->options.rendezvous_length = strlen(member->rendezvous);
    member->options.critical_flags = plan->critical_flags;
    member->options.open_timeout_ns = plan->open_timeout_ns != 0 ? plan->open_timeout_ns : PARTY_LONG_NS;
    member->config.settings = plan->place == PARTY_UCX ? "{\"net\":\"ucx\"}" : "{\"net\":\"auto\"}";
    member->config.settings_length = strlen(member->config.settings);
    if (getenv("CONVOY_PARTY_LOG") != NULL) {
        member->config.log = party_log_line;
        member->config.log_user = (void *)(uintptr_t)rank;
        member->config.log_level = CONVOY_LOG_INFO;
    }
    party->member = member;
    return party;
}

int32_t party_open(struct party *party)
{
    struct plugin_member *member = party->member;
    const struct convoy_core_table *core = member->plugin.core;
    EXPECT_OK(core->context_open(&member->config, &member->context, &member->error), &member->error);
    int32_t status = core->group_open(member->context, &member->options, &member->group, &member->error);
    __atomic_store_n(&party->log->has_opened, status == CONVOY_OK, __ATOMIC_SEQ_CST);
    return status;
}

void party_leave(struct party *party)
{
    __atomic_store_n(&party->log->is_done, 1, __ATOMIC_SEQ_CST);
    plugin_member_destroy(party->member);
    free(party);
}

static struct convoy_group_info party_info(struct party *party)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    EXPECT_OK(party->member->plugin.core->group_info(party->member->group, &info, &party->member->error),
              &party->member->error);
    return info;
}

convoy_operation party_operation(struct party *party)
{
    return party_info(party).operation;
}

static void party_note(struct party *party, uint64_t round, uint64_t epoch, int32_t status, uint32_t contributors)
{
    struct party_log *log = party->log;
    EXPECT(log->count < PARTY_ENTRIES_MAX);
    log->entries[log->count] =
        (struct party_entry){.round = round, .epoch = epoch, .status = status, .contributors = contributors};
    __atomic_store_n(&log->count, log->count + 1, __ATOMIC_RELEASE);
}

/* Votes that all members cast in a round, beside the one of their own. */
static uint32_t party_common_votes(uint64_t round)
{
    return (uint32_t)round << PARTY_MAX;
}

/* Own position says "I was here", the rest spells the round's number. */
static void party_fill(struct party *party)
{
    struct exchange *exchange = &party->exchange;
    uint32_t count = party->rank->count;
    exchange_init(exchange, count + PARTY_ROUND_BITS, CONVOY_STATE_SUCCESS);
    exchange->states[party->rank->index] = CONVOY_STATE_TRANSFERRING;
    for (uint32_t bit = 0; bit < PARTY_ROUND_BITS; bit++) {
        exchange->states[count + bit] = (party->next >> bit & 1) != 0 ? CONVOY_STATE_SUCCESS : CONVOY_STATE_TRANSFERRING;
    }
    exchange->call.votes = party_common_votes(party->next) | 1u << party->rank->index;
}

/* What a result says, which must be about the round that was asked for. */
static uint32_t party_read(struct party *party)
{
    const struct exchange *exchange = &party->exchange;
    uint32_t count = party->rank->count;
    uint32_t contributors = 0;
    uint32_t round = 0;
    for (uint32_t i = 0; i < count; i++) {
        contributors |= exchange->states_out[i] == CONVOY_STATE_TRANSFERRING ? 1u << i : 0;
    }
    for (uint32_t bit = 0; bit < PARTY_ROUND_BITS; bit++) {
        round |= exchange->states_out[count + bit] == CONVOY_STATE_SUCCESS ? 1u << bit : 0;
    }
    EXPECT_EQUAL(exchange->result.round, party->next);
    EXPECT_EQUAL(round, party->next);
    uint32_t votes = party_common_votes(party->next);
    EXPECT_EQUAL(exchange->result.votes_or, votes | contributors);
    bool is_alone = (contributors & (contributors - 1)) == 0;
    EXPECT_EQUAL(exchange->result.votes_and, is_alone ? votes | contributors : votes);
    EXPECT((contributors >> party->rank->index & 1) != 0);
    return contributors;
}

static int32_t party_end(struct party *party, int32_t status)
{
    if (status == CONVOY_OK) {
        uint32_t contributors = party_read(party);
        party_note(party, party->next, party->exchange.result.epoch, status, contributors);
        party->next++;
    } else if (status != CONVOY_TIMED_OUT && status != CONVOY_CANCELED && status != CONVOY_IN_PROGRESS) {
        exchange_expect_untouched(&party->exchange);
        party_note(party, party->next, party_info(party).epoch, status, 0);
    }
    return status;
}

int32_t party_start(struct party *party, convoy_operation *operation_out)
{
    struct plugin_member *member = party->member;
    party_fill(party);
    int32_t status =
        member->plugin.poll->reduce_start(member->group, &party->exchange.call, operation_out, &member->error);
    return status == CONVOY_OK ? status : party_end(party, status);
}

int32_t party_finish(struct party *party, convoy_operation operation, uint64_t timeout_ns)
{
    struct plugin_member *member = party->member;
    return party_end(party, member->plugin.poll->reduce_wait(member->group, operation, timeout_ns,
                                                             &party->exchange.result, &member->error));
}

int32_t party_round(struct party *party, uint64_t timeout_ns)
{
    convoy_operation operation = 0;
    if (!party->plan->is_split) {
        party_fill(party);
        return party_end(party, exchange_reduce(&party->exchange, party->member, timeout_ns));
    }
    int32_t status = party_start(party, &operation);
    return status == CONVOY_OK ? party_finish(party, operation, timeout_ns) : status;
}

int32_t party_abandon(struct party *party, convoy_operation operation)
{
    struct plugin_member *member = party->member;
    int32_t status = member->plugin.core->operation_abandon(member->group, operation, &member->error);
    return status == CONVOY_OK ? party_finish(party, operation, PARTY_LONG_NS) : party_end(party, status);
}

int32_t party_reopen(struct party *party)
{
    struct plugin_member *member = party->member;
    struct convoy_reopen_result result = {.struct_size = sizeof result};
    int32_t status = member->plugin.core->group_reopen(member->group, PARTY_LONG_NS, &result, &member->error);
    party->log->reopen_status = status;
    if (status == CONVOY_OK && result.recovered != 0) {
        EXPECT_OK(member->plugin.poll->reduce_test(member->group, result.recovered, &party->exchange.result,
                                                   &member->error),
                  &member->error);
        (void)party_end(party, CONVOY_OK);
    }
    if (status == CONVOY_OK) {
        EXPECT_EQUAL(result.next_round, party->next);
    }
    return status;
}

void party_survive(struct party *party, uint64_t last)
{
    uint32_t failures = 0;
    while (party->next <= last) {
        int32_t status = party_round(party, PARTY_LONG_NS);
        if (status == CONVOY_OK) {
            continue;
        }
        if (status != CONVOY_PEER_LOST && status != CONVOY_BROKEN) {
            expect_fail(EXPECT_SITE("round"), "%llu ended with %d: %s", (unsigned long long)party->next, status,
                        party->member->error.text);
        }
        EXPECT(++failures <= PARTY_FAILURES_MAX);
        EXPECT_OK(party_reopen(party), &party->member->error);
    }
}

uint32_t party_contributors(const struct party_log *log, uint64_t round)
{
    for (uint32_t i = 0; i < log->count; i++) {
        if (log->entries[i].round == round && log->entries[i].status == CONVOY_OK) {
            return log->entries[i].contributors;
        }
    }
    return 0;
}

static void party_print(const struct party_log *log, uint32_t member)
{
    (void)printf("rank %u:", member);
    for (uint32_t i = 0; i < log->count; i++) {
        const struct party_entry *entry = &log->entries[i];
        (void)printf(" %llu.%llu=%d/%x", (unsigned long long)entry->epoch, (unsigned long long)entry->round,
                     entry->status, entry->contributors);
    }
    (void)printf("\n");
}

/* Each round up to `last` ended well exactly once, in order. */
static bool party_is_ordered(const struct party_log *log, uint64_t last)
{
    uint64_t round = 0;
    for (uint32_t i = 0; i < log->count; i++) {
        if (log->entries[i].status == CONVOY_OK && log->entries[i].round != ++round) {
            return false;
        }
    }
    return round >= last;
}

static bool party_has_same_results(const struct party_log *one, const struct party_log *other, uint64_t last)
{
    for (uint64_t round = 1; round <= last; round++) {
        if (party_contributors(one, round) != party_contributors(other, round)) {
            return false;
        }
    }
    return true;
}

/* On one host a round of an epoch ends well for all or for none. A member may miss an epoch in which others failed. */
static bool party_contradicts(const struct party_log *one, const struct party_log *other)
{
    uint32_t from = 0; /* both are in the order of time */
    for (uint32_t i = 0; i < one->count; i++) {
        const struct party_entry *left = &one->entries[i];
        while (from < other->count && (other->entries[from].epoch < left->epoch ||
                                       (other->entries[from].epoch == left->epoch &&
                                        other->entries[from].round < left->round))) {
            from++;
        }
        const struct party_entry *right = &other->entries[from];
        bool is_same = from < other->count && right->epoch == left->epoch && right->round == left->round;
        if (is_same ? (left->status == CONVOY_OK) != (right->status == CONVOY_OK) : left->status == CONVOY_OK) {
            return true;
        }
    }
    return false;
}

void party_check(const struct party_shared *shared, const struct party_plan *plan, uint32_t survivors, uint64_t last)
{
    uint32_t first = (uint32_t)__builtin_ctz(survivors);
    bool is_right = true;
    for (uint32_t i = 0; i < plan->count; i++) {
        if ((survivors >> i & 1) != 0) {
            is_right = is_right && party_is_ordered(&shared->logs[i], last) &&
                       party_has_same_results(&shared->logs[first], &shared->logs[i], last) &&
                       (plan->place != PARTY_MEMORY ||
                        !party_contradicts(&shared->logs[first], &shared->logs[i]));
        }
    }
    for (uint32_t i = 0; i < plan->count && !is_right; i++) {
        party_print(&shared->logs[i], i);
    }
    EXPECT(is_right);
}
