/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What convoy costs beside its rounds. --mode open: context_open and group_open of --ranks local members, from the last
 * entry to the last exit, and the size of their segment. --mode calls: what a call through the table costs over a
 * direct one, and one through the loader's handle over that.
 */
#include "convoy/loader.h"
#include "tests/bench/bench.h"
#include "tests/lib/expect.h"
#include "tests/lib/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 64u
#define OPEN_REPEATS 20u
#define CALLS 200000u
#define BATCHES 21u
#define STALE_OPERATION 0u
#define CLOSE_TIMEOUT_NS 5000000000ull

/* -- opening ------------------------------------------------------------------------------------------------------- */

struct opening {
    uint32_t ranks;
    uint16_t port;
    uint64_t *barrier;
    uint64_t *segment_bytes;
    void *stamps;
};

static void run_open(uint32_t rank, void *context)
{
    const struct opening *opening = context;
    struct bench_stamps stamps;
    bench_stamps_place(&stamps, opening->ranks, OPEN_REPEATS, opening->stamps);
    for (uint32_t i = 0; i < OPEN_REPEATS; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "open-%u", i);
        struct plugin_member *member = plugin_member_create(rank, opening->ranks, name, opening->port);
        bench_barrier(opening->barrier, opening->ranks);
        stamps.enter[rank * OPEN_REPEATS + i] = bench_now_ns();
        plugin_member_open(member);
        stamps.leave[rank * OPEN_REPEATS + i] = bench_now_ns();
        struct convoy_group_info info = {.struct_size = sizeof info};
        EXPECT_OK(member->plugin.core->group_info(member->group, &info, &member->error), &member->error);
        *opening->segment_bytes = info.segment_bytes;
        bench_barrier(opening->barrier, opening->ranks);
        plugin_member_destroy(member);
    }
}

static void measure_open(uint32_t ranks)
{
    uint64_t *memory = bench_share(2 * LINE_BYTES + bench_stamps_bytes(ranks, OPEN_REPEATS), NULL);
    struct opening opening = {.ranks = ranks,
                              .port = plugin_port(),
                              .barrier = memory,
                              .segment_bytes = memory + LINE_BYTES / sizeof *memory,
                              .stamps = memory + 2 * LINE_BYTES / sizeof *memory};
    const struct bench_case open = {.is_paced = true, .text = "open"};
    struct bench_stamps stamps;
    bench_fork(0, ranks, run_open, &opening);
    bench_stamps_place(&stamps, ranks, OPEN_REPEATS, opening.stamps);
    bench_print("convoy", &open, &stamps);
    (void)printf("{\"peer\": \"convoy\", \"case\": \"segment\", \"ranks\": %u, \"bytes\": %llu}\n", ranks,
                 (unsigned long long)*opening.segment_bytes);
}

/* -- what a call costs --------------------------------------------------------------------------------------------- */

/* A short call that takes a handle: testing an operation that is long over. */
typedef int32_t (*test_fn)(convoy_group *group, convoy_operation operation, struct convoy_poll_result *result_out,
                           struct convoy_error *error);

static double direct_ns(test_fn call, convoy_group *group)
{
    struct convoy_poll_result result = {.struct_size = sizeof result};
    uint64_t start_ns = bench_now_ns();
    for (uint32_t i = 0; i < CALLS; i++) {
        __asm__ volatile("" : "+r"(call)); /* in a register, as near as a loaded function comes to a linked one */
        (void)call(group, STALE_OPERATION, &result, NULL);
    }
    return (double)(bench_now_ns() - start_ns) / CALLS;
}

static double table_ns(const struct convoy_poll_table *table, convoy_group *group)
{
    struct convoy_poll_result result = {.struct_size = sizeof result};
    uint64_t start_ns = bench_now_ns();
    for (uint32_t i = 0; i < CALLS; i++) {
        __asm__ volatile("" : "+r"(table) : : "memory"); /* the slot is read on every call */
        (void)table->reduce_test(group, STALE_OPERATION, &result, NULL);
    }
    return (double)(bench_now_ns() - start_ns) / CALLS;
}

static double handle_ns(convoy_host_group *group)
{
    struct convoy_poll_result result = {.struct_size = sizeof result};
    uint64_t start_ns = bench_now_ns();
    for (uint32_t i = 0; i < CALLS; i++) {
        (void)convoy_host_reduce_test(group, STALE_OPERATION, &result, NULL);
    }
    return (double)(bench_now_ns() - start_ns) / CALLS;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_overhead(const char *name, double *samples_ns)
{
    qsort(samples_ns, BATCHES, sizeof samples_ns[0], compare_doubles);
    (void)printf("{\"peer\": \"convoy\", \"case\": \"%s\", \"ns\": %.2f}\n", name, samples_ns[BATCHES / 2]);
}

/* Medians of the differences of neighbouring batches, so that drift of the machine cancels out. */
static void compare_calls(const struct plugin_member *member, convoy_host_group *host_group)
{
    double over_direct_ns[BATCHES];
    double over_table_ns[BATCHES];
    double plain_ns[BATCHES];
    bench_pin(0);
    for (uint32_t i = 0; i < BATCHES; i++) {
        plain_ns[i] = direct_ns(member->plugin.poll->reduce_test, member->group);
        double through_table_ns = table_ns(member->plugin.poll, member->group);
        over_direct_ns[i] = through_table_ns - plain_ns[i];
        over_table_ns[i] = handle_ns(host_group) - through_table_ns;
    }
    print_overhead("direct", plain_ns);
    print_overhead("table", over_direct_ns);
    print_overhead("handle", over_table_ns);
}

/* One group of one member through the table, and one through the loader, both of the same library. */
static void measure_overhead(void)
{
    struct plugin_member *member = plugin_member_create(0, 1, "overhead", 0);
    const struct convoy_loader_options options = {.path = plugin_path()};
    convoy_loader *loader = NULL;
    convoy_host_context *context = NULL;
    convoy_host_group *group = NULL;
    struct convoy_error *error = &member->error;
    plugin_member_open(member);
    EXPECT_OK(convoy_loader_open(&options, &loader, error), error);
    EXPECT_OK(convoy_host_context_open(loader, &member->config, &context, error), error);
    EXPECT_OK(convoy_host_group_open(context, &member->options, &group, error), error);
    compare_calls(member, group);
    EXPECT_OK(convoy_host_context_close(context, CLOSE_TIMEOUT_NS, error), error);
    EXPECT_OK(convoy_loader_close(loader, error), error);
    plugin_member_destroy(member);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_parse(argc, argv, &options);
    if (options.mode != NULL && strcmp(options.mode, "open") == 0) {
        measure_open(options.ranks);
    } else if (options.mode != NULL && strcmp(options.mode, "calls") == 0) {
        measure_overhead();
    } else {
        bench_die("needs --mode open or --mode calls");
    }
    return 0;
}
