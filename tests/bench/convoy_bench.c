/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy in the same measured loop as its peers: forked, pinned ranks that each dlopen the library, open one group and
 * reduce or gather.
 *
 * Two hosts: one program in each network namespace, with --first, --local, --rendezvous and a common --directory.
 */
#include "tests/bench/bench.h"
#include "tests/lib/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTS 3u
#define LINE_BYTES 64u
#define KEYS_MAX 256u
#define CALL_TIMEOUT_NS 20000000000ull

/* One rank's group and the arguments of its calls, prepared once. */
struct caller {
    struct plugin_member *member;
    const struct bench_work *work;
    uint32_t rank;
    uint64_t keys[BENCH_PATTERNS][KEYS_MAX];
    struct convoy_poll_list lists[LISTS];
    struct convoy_poll_list_result list_results[LISTS];
    struct convoy_poll_call poll_call;
    struct convoy_poll_result poll_result;
    struct convoy_sync_call sync_call;
    struct convoy_sync_result sync_result;
};

struct job {
    const struct bench_options *options;
    const struct bench_case *which;
    uint32_t index;     /* of the case, so that every case has a group name of its own */
    uint16_t port;
    uint64_t *barrier;
    void *stamps;
};

static const struct convoy_sync_schema row_schema = {
    .struct_size = sizeof row_schema, .builtin = "sglang-8", .builtin_length = 8};

static struct plugin_member *create_member(const struct job *job, uint32_t rank)
{
    char name[32];
    (void)snprintf(name, sizeof name, "bench-%u", job->index);
    struct plugin_member *member = plugin_member_create(rank, job->options->ranks, name, job->port);
    if (job->options->rendezvous != NULL) {
        member->options.rendezvous = job->options->rendezvous;
        member->options.rendezvous_length = strlen(job->options->rendezvous);
    }
    if (job->options->settings != NULL) {
        member->config.settings = job->options->settings;
        member->config.settings_length = strlen(job->options->settings);
    }
    if (job->which->kind == BENCH_ROW) {
        member->options.schema = &row_schema;
    }
    return member;
}

/* -- the exchanges ------------------------------------------------------------------------------------------------- */

static void reduce(void *state, uint32_t pattern, const uint8_t *input, uint8_t *output)
{
    struct caller *caller = state;
    size_t n = caller->work->which->n;
    for (size_t i = 0; i < caller->poll_call.list_count; i++) {
        caller->lists[i].states = input + i * n;
        caller->lists[i].keys = caller->keys[pattern];
        caller->list_results[i].states = output + i * n;
    }
    int32_t status = caller->member->plugin.poll->reduce(caller->member->group, &caller->poll_call, CALL_TIMEOUT_NS,
                                                         &caller->poll_result, &caller->member->error);
    if (status != CONVOY_OK) {
        bench_die("rank %u: reduce gave %d: %s", caller->rank, status, caller->member->error.text);
    }
}

static void gather(void *state, uint32_t pattern, const uint8_t *input, uint8_t *output)
{
    struct caller *caller = state;
    (void)pattern;
    caller->sync_call.row = (const int64_t *)(const void *)input;
    caller->sync_result.table = (int64_t *)(void *)output;
    int32_t status = caller->member->plugin.sync->gather(caller->member->group, &caller->sync_call, CALL_TIMEOUT_NS,
                                                         &caller->sync_result, &caller->member->error);
    if (status != CONVOY_OK) {
        bench_die("rank %u: gather gave %d: %s", caller->rank, status, caller->member->error.text);
    }
}

static void fill_keys(struct caller *caller)
{
    const struct bench_case *which = caller->work->which;
    if (which->n > KEYS_MAX) {
        bench_die("n is at most %u", KEYS_MAX);
    }
    for (uint32_t pattern = 0; pattern < BENCH_PATTERNS; pattern++) {
        for (uint32_t place = 0; place < which->n; place++) {
            /* Request ids as hosts have them: spread over 64 bits. */
            uint64_t identity = bench_identity(which, pattern, caller->rank, place) + 1;
            caller->keys[pattern][place] = identity * 0x9e3779b97f4a7c15u;
        }
    }
}

static void prepare(struct caller *caller)
{
    const struct bench_case *which = caller->work->which;
    bool is_keyed = which->kind == BENCH_KEYED || which->kind == BENCH_FRESH;
    for (size_t i = 0; i < LISTS; i++) {
        caller->lists[i] = (struct convoy_poll_list){.count = which->n, .flags = is_keyed ? CONVOY_POLL_KEYED : 0};
        caller->list_results[i] = (struct convoy_poll_list_result){.states_capacity = which->n};
    }
    caller->poll_call = (struct convoy_poll_call){.struct_size = sizeof caller->poll_call,
                                                  .lists = caller->lists,
                                                  .list_stride = sizeof caller->lists[0],
                                                  .list_count = which->kind == BENCH_LISTS ? LISTS : 1};
    caller->poll_result = (struct convoy_poll_result){.struct_size = sizeof caller->poll_result,
                                                      .lists = caller->list_results,
                                                      .list_stride = sizeof caller->list_results[0],
                                                      .list_capacity = LISTS};
    caller->sync_call = (struct convoy_sync_call){.struct_size = sizeof caller->sync_call};
    caller->sync_result = (struct convoy_sync_result){.struct_size = sizeof caller->sync_result,
                                                      .table_capacity = (size_t)which->n * caller->work->ranks};
    fill_keys(caller);
}

static void run_rank(uint32_t rank, void *context)
{
    const struct job *job = context;
    struct bench_work work;
    struct bench_stamps stamps;
    bench_work_init(&work, job->which, job->options->ranks);
    bench_stamps_place(&stamps, work.ranks, bench_rounds(job->options, job->which), job->stamps);
    struct caller *caller = calloc(1, sizeof *caller);
    if (caller == NULL) {
        bench_die("out of memory");
    }
    caller->work = &work;
    caller->rank = rank;
    prepare(caller);
    caller->member = create_member(job, rank);
    plugin_member_open(caller->member);
    bench_barrier(job->barrier, work.ranks);
    bench_measure(&work, rank, &stamps, job->which->kind == BENCH_ROW ? gather : reduce, caller);
    bench_barrier(job->barrier, work.ranks); /* the stamps of all are there, and nobody closes under a peer */
    plugin_member_destroy(caller->member);
    bench_work_fini(&work);
    free(caller);
}

static void run_case(const struct bench_options *options, uint32_t index, uint16_t port)
{
    const struct bench_case *which = &options->cases[index];
    uint32_t rounds = bench_rounds(options, which);
    struct bench_stamps stamps;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/case-%u", options->directory == NULL ? "" : options->directory, index);
    char *memory = bench_share(LINE_BYTES + bench_stamps_bytes(options->ranks, rounds),
                               options->directory == NULL ? NULL : path);
    struct job job = {.options = options,
                      .which = which,
                      .index = index,
                      .port = port,
                      .barrier = (uint64_t *)(void *)memory,
                      .stamps = memory + LINE_BYTES};
    bench_fork(options->first, options->local, run_rank, &job);
    bench_stamps_place(&stamps, options->ranks, rounds, job.stamps);
    if (options->first == 0) {
        bench_print("convoy", which, &stamps);
    }
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_parse(argc, argv, &options);
    uint16_t port = plugin_port();
    for (uint32_t i = 0; i < options.case_count; i++) {
        run_case(&options, i, port);
    }
    return 0;
}
