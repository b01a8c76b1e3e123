/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a round may cost, counted and not timed: no allocation and no system call when every peer has published, no
 * growth of memory, next to no processor time while waiting, none while idle, and a small segment.
 * CONVOY_SCALE multiplies the number of rounds (1 = 2,000).
 */
#include "tests/lib/count.h"
#include "tests/lib/expect.h"
#include "tests/lib/plugin.h"
#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMBERS 3u
#define ROUNDS 2000u
#define STATES 64u
#define COLUMNS 8u
#define LISTS 3u
#define SEGMENT_BYTES_MAX (1u << 20)
#define WAIT_NS 1000000000ull

struct shared {
    uint32_t go[MEMBERS];        /* round that this peer may publish; futex word */
    uint32_t published[MEMBERS]; /* last round that this peer has published; futex word */
    uint32_t counted;            /* last round that rank 0 has counted; futex word */
    char skip_reason[128];
};

/* One member's arguments and room for results; the round's kind picks among them. */
struct arguments {
    uint8_t states[STATES];
    uint64_t keys[STATES];
    int64_t row[COLUMNS];
    uint8_t states_out[LISTS][STATES];
    int64_t table_out[MEMBERS * COLUMNS];
    struct convoy_poll_list lists[LISTS];
    struct convoy_poll_list_result list_results[LISTS];
    struct convoy_poll_call poll_call;
    struct convoy_poll_result poll_result;
    struct convoy_sync_call sync_call;
    struct convoy_sync_result sync_result;
};

enum kind { KIND_POSITIONAL, KIND_LISTS, KIND_KEYED, KIND_ROW, KINDS };

static const char *const kind_names[KINDS] = {"positional", "three lists", "keyed", "row"};

static const struct convoy_sync_schema row_schema = {
    .struct_size = sizeof row_schema, .builtin = "sglang-8", .builtin_length = 8};

static uint32_t rounds_wanted(void)
{
    const char *scale = getenv("CONVOY_SCALE");
    uint32_t factor = scale == NULL ? 1 : (uint32_t)strtoul(scale, NULL, 10);
    return factor < 1 ? ROUNDS : ROUNDS * factor;
}

static void arguments_init(struct arguments *arguments, uint32_t index)
{
    (void)memset(arguments, 0, sizeof *arguments);
    for (uint32_t i = 0; i < STATES; i++) {
        arguments->states[i] = (uint8_t)(1 + (i + index) % 3);
        arguments->keys[i] = 1000 + (i + 7 * index) % STATES; /* every member has an order of its own */
    }
    for (uint32_t i = 0; i < COLUMNS; i++) {
        arguments->row[i] = (int64_t)(100 * index + i);
    }
    for (uint32_t i = 0; i < LISTS; i++) {
        arguments->lists[i] = (struct convoy_poll_list){.count = STATES, .states = arguments->states};
        arguments->list_results[i] = (struct convoy_poll_list_result){.states = arguments->states_out[i],
                                                                      .states_capacity = STATES};
    }
    arguments->poll_call = (struct convoy_poll_call){
        .struct_size = sizeof arguments->poll_call, .lists = arguments->lists, .list_stride = sizeof arguments->lists[0]};
    arguments->poll_result = (struct convoy_poll_result){.struct_size = sizeof arguments->poll_result,
                                                         .lists = arguments->list_results,
                                                         .list_stride = sizeof arguments->list_results[0],
                                                         .list_capacity = LISTS};
    arguments->sync_call = (struct convoy_sync_call){.struct_size = sizeof arguments->sync_call, .row = arguments->row};
    arguments->sync_result = (struct convoy_sync_result){.struct_size = sizeof arguments->sync_result,
                                                         .table = arguments->table_out,
                                                         .table_capacity = MEMBERS * COLUMNS};
}

static void choose(struct arguments *arguments, enum kind kind)
{
    arguments->poll_call.list_count = kind == KIND_LISTS ? LISTS : 1;
    arguments->lists[0].flags = kind == KIND_KEYED ? CONVOY_POLL_KEYED : 0;
    arguments->lists[0].keys = kind == KIND_KEYED ? arguments->keys : NULL;
}

static int32_t start(struct plugin_member *member, const struct arguments *arguments, enum kind kind,
                     convoy_operation *operation_out)
{
    if (kind == KIND_ROW) {
        return member->plugin.sync->gather_start(member->group, &arguments->sync_call, operation_out, &member->error);
    }
    return member->plugin.poll->reduce_start(member->group, &arguments->poll_call, operation_out, &member->error);
}

static int32_t finish(struct plugin_member *member, struct arguments *arguments, enum kind kind,
                      convoy_operation operation)
{
    if (kind == KIND_ROW) {
        return member->plugin.sync->gather_wait(member->group, operation, 0, &arguments->sync_result, &member->error);
    }
    return member->plugin.poll->reduce_wait(member->group, operation, 0, &arguments->poll_result, &member->error);
}

static uint32_t load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void set(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    ranks_futex_wake(word);
}

static void await_value(uint32_t *word, uint32_t value)
{
    for (uint32_t seen = load(word); seen < value; seen = load(word)) {
        EXPECT(ranks_futex_wait(word, seen, 10000));
    }
}

/* Resident memory of this process in KiB: heap and stacks. Pages of program files come in blocks as code first runs
 * and are no growth; the segment has a fixed size. smaps_rollup counts pages, while statm may be late by some. */
static long resident_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    EXPECT(file != NULL);
    while (kib < 0 && fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "Anonymous: %ld kB", &kib);
    }
    (void)fclose(file);
    EXPECT(kib > 0);
    return kib;
}

/* -- rounds whose peers have published ----------------------------------------------------------------------------- */

/* A peer does not wait inside the library while rank 0 counts: it might sleep there, and waking it is a system call. */
static void peer_rounds(const struct rank *rank, struct plugin_member *member, struct arguments *arguments)
{
    struct shared *shared = rank->shared;
    for (uint32_t round = 1; round <= rounds_wanted(); round++) {
        enum kind kind = round % KINDS;
        convoy_operation operation = 0;
        choose(arguments, kind);
        await_value(&shared->go[rank->index], round);
        EXPECT_OK(start(member, arguments, kind, &operation), &member->error);
        set(&shared->published[rank->index], round);
        await_value(&shared->counted, round);
        EXPECT_OK(finish(member, arguments, kind, operation), &member->error);
    }
}

static void counted_round(struct plugin_member *member, struct arguments *arguments, enum kind kind, uint32_t round)
{
    struct count count;
    convoy_operation operation = 0;
    choose(arguments, kind);
    count_start();
    int32_t started = start(member, arguments, kind, &operation);
    int32_t finished = started == CONVOY_OK ? finish(member, arguments, kind, operation) : started;
    count_stop(&count);
    EXPECT_OK(started, &member->error);
    EXPECT_OK(finished, &member->error);
    if (count.allocations != 0 || count.system_calls != 0) {
        expect_fail(EXPECT_SITE(kind_names[kind]), "round %u: %llu allocations, %s system call (number %d)", round,
                    (unsigned long long)count.allocations, count.system_calls ? "a" : "no", count.system_call);
    }
}

static void counting_rounds(const struct rank *rank, struct plugin_member *member, struct arguments *arguments)
{
    struct shared *shared = rank->shared;
    uint32_t rounds = rounds_wanted();
    long warm_kib = 0;
    for (uint32_t round = 1; round <= rounds; round++) {
        for (uint32_t peer = 1; peer < rank->count; peer++) {
            set(&shared->go[peer], round);
        }
        for (uint32_t peer = 1; peer < rank->count; peer++) {
            await_value(&shared->published[peer], round);
        }
        counted_round(member, arguments, round % KINDS, round);
        set(&shared->counted, round);
        if (round == rounds / 2) { /* by now every ring and counter has been written */
            warm_kib = resident_kib();
        }
    }
    EXPECT_EQUAL(resident_kib() - warm_kib, 0);
}

static void run_counting(const struct rank *rank, void *port)
{
    struct arguments arguments;
    arguments_init(&arguments, rank->index);
    struct plugin_member *member = plugin_member_create(rank->index, rank->count, "counts", *(const uint16_t *)port);
    member->options.schema = &row_schema;
    plugin_member_open(member);
    (rank->index == 0 ? counting_rounds : peer_rounds)(rank, member, &arguments);
    rank_barrier(rank);
    plugin_member_destroy(member);
}

static void run_prepared(const struct rank *rank, void *port)
{
    struct shared *shared = rank->shared;
    if (rank->index == 0) {
        const char *reason = count_prepare();
        (void)snprintf(shared->skip_reason, sizeof shared->skip_reason, "%s", reason == NULL ? "" : reason);
    }
    rank_barrier(rank);
    if (shared->skip_reason[0] == '\0') {
        run_counting(rank, port);
    }
}

/* sgl-project/sglang PRs 34338 and 24768, 23011: steps that pay for allocations and copies of a few hundred bytes. Here
 * a step has none; what it takes beside busy neighbours is in test_reports_cost.c. */
static void test_round_with_published_peers_makes_no_allocation_and_no_system_call(void **state)
{
    (void)state;
    uint16_t port = plugin_port();
    struct ranks *ranks = ranks_create(MEMBERS, sizeof(struct shared));
    char reason[128];
    ranks_start(ranks, run_prepared, &port, 60000 + rounds_wanted() / 10);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        ranks_reap(ranks, i);
    }
    (void)snprintf(reason, sizeof reason, "%s", ((const struct shared *)ranks_shared(ranks))->skip_reason);
    ranks_finish(ranks);
    if (reason[0] != '\0') {
        print_message("skipped: %s\n", reason);
        skip();
    }
}

/* The counting itself must notice, or the test above could not fail. */
static void count_own_calls(const struct rank *rank, void *argument)
{
    (void)argument;
    struct shared *shared = rank->shared;
    struct count count;
    const char *reason = count_prepare();
    if (reason != NULL) {
        (void)snprintf(shared->skip_reason, sizeof shared->skip_reason, "%s", reason);
        return;
    }
    count_start();
    void *volatile block = malloc(100);
    free(block);
    count_stop(&count);
    EXPECT_EQUAL(count.allocations, 2);
    EXPECT_EQUAL(count.system_calls, 0);
    count_start();
    (void)getppid();
    count_stop(&count);
    EXPECT_EQUAL(count.system_calls, 1);
}

static void test_count_sees_an_allocation_and_a_system_call(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(1, sizeof(struct shared));
    ranks_start(ranks, count_own_calls, NULL, 0);
    ranks_reap(ranks, 0);
    bool is_skipped = ((const struct shared *)ranks_shared(ranks))->skip_reason[0] != '\0';
    ranks_finish(ranks);
    if (is_skipped) {
        print_message("skipped: this program cannot count here\n");
        skip();
    }
}

/* -- waiting and idling -------------------------------------------------------------------------------------------- */

/* Processor time of all threads of this process, in microseconds. */
static long long cpu_us(void)
{
    struct rusage usage;
    EXPECT_EQUAL(getrusage(RUSAGE_SELF, &usage), 0);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000ll + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
}

static void wait_alone(const struct rank *rank, struct plugin_member *member, struct arguments *arguments)
{
    struct shared *shared = rank->shared;
    convoy_operation operation = 0;
    EXPECT_OK(start(member, arguments, KIND_POSITIONAL, &operation), &member->error);
    long long before_us = cpu_us();
    EXPECT_STATUS(member->plugin.poll->reduce_wait(member->group, operation, WAIT_NS, &arguments->poll_result,
                                                   &member->error),
                  CONVOY_TIMED_OUT, &member->error);
    long long used_us = cpu_us() - before_us;
    set(&shared->go[1], 1);
    EXPECT_OK(finish(member, arguments, KIND_POSITIONAL, operation), &member->error);
    EXPECT(used_us < (long long)(WAIT_NS / 1000) * 5 / 100);
}

/* Idle for the second that rank 0 waits. The bound is 1 %: the wake-up itself costs something. */
static void idle_then_join(const struct rank *rank, struct plugin_member *member, struct arguments *arguments)
{
    struct shared *shared = rank->shared;
    convoy_operation operation = 0;
    long long before_us = cpu_us();
    await_value(&shared->go[1], 1);
    long long used_us = cpu_us() - before_us;
    EXPECT_OK(start(member, arguments, KIND_POSITIONAL, &operation), &member->error);
    EXPECT_OK(finish(member, arguments, KIND_POSITIONAL, operation), &member->error);
    EXPECT(used_us < (long long)(WAIT_NS / 1000) / 100);
}

static void run_waiting(const struct rank *rank, void *port)
{
    struct arguments arguments;
    arguments_init(&arguments, rank->index);
    choose(&arguments, KIND_POSITIONAL);
    struct plugin_member *member = plugin_member_create(rank->index, rank->count, "waiting", *(const uint16_t *)port);
    plugin_member_open(member);
    rank_barrier(rank);
    (rank->index == 0 ? wait_alone : idle_then_join)(rank, member, &arguments);
    rank_barrier(rank);
    plugin_member_destroy(member);
}

/* openucx/ucx issue 8914, ai-dynamo/nixl PR 297: a progress thread that burns a core while nothing happens. */
static void test_wait_of_a_second_uses_little_processor_time_and_idling_none(void **state)
{
    (void)state;
    uint16_t port = plugin_port();
    struct ranks *ranks = ranks_create(2, sizeof(struct shared));
    ranks_start(ranks, run_waiting, &port, 0);
    ranks_finish(ranks);
}

/* -- the segment --------------------------------------------------------------------------------------------------- */

static void look_at_segment(const struct rank *rank, void *port)
{
    struct plugin_member *member = plugin_member_create(rank->index, rank->count, "segment", *(const uint16_t *)port);
    struct convoy_group_info info = {.struct_size = sizeof info};
    plugin_member_open(member);
    EXPECT_OK(member->plugin.core->group_info(member->group, &info, &member->error), &member->error);
    EXPECT(info.segment_bytes > 0 && info.segment_bytes <= SEGMENT_BYTES_MAX);
    EXPECT_EQUAL(info.host_count, 1);
    rank_barrier(rank);
    plugin_member_destroy(member);
}

static void test_segment_of_eight_members_is_at_most_a_mebibyte(void **state)
{
    (void)state;
    uint16_t port = plugin_port();
    struct ranks *ranks = ranks_create(8, 0);
    ranks_start(ranks, look_at_segment, &port, 0);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count_sees_an_allocation_and_a_system_call),
        cmocka_unit_test(test_round_with_published_peers_makes_no_allocation_and_no_system_call),
        cmocka_unit_test(test_wait_of_a_second_uses_little_processor_time_and_idling_none),
        cmocka_unit_test(test_segment_of_eight_members_is_at_most_a_mebibyte),
    };
    return cmocka_run_group_tests_name("counts", tests, NULL, NULL);
}
