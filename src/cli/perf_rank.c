/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perf_rank.h"

#include "cli/perf_call.h"
#include "cli/plan.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void convoy_perf_load_options(struct convoy_perf_load *load, struct convoy_option table[CONVOY_PERF_LOAD_OPTIONS])
{
    const struct convoy_option rows[CONVOY_PERF_LOAD_OPTIONS] = {
        {"ranks", CONVOY_OPTION_NUMBER, &load->ranks, 1, 64, "N", "processes (default 2)"},
        {"n", CONVOY_OPTION_NUMBER, &load->entries, 0, CONVOY_PERF_ENTRIES_MAX, "N",
         "entries of each list (default 64)"},
        {"lists", CONVOY_OPTION_NUMBER, &load->lists, 1, CONVOY_POLL_LISTS_MAX, "N", "lists in one round (default 1)"},
        {"rounds", CONVOY_OPTION_NUMBER, &load->rounds, 1, 100000000, "N",
         "measured rounds (default 20000, paced 2000)"},
        {"keyed", CONVOY_OPTION_FLAG, &load->is_keyed, 0, 0, "", "match by key, the order stays as it is"},
        {"fresh", CONVOY_OPTION_FLAG, &load->is_fresh, 0, 0, "", "with --keyed: another order in each round"},
        {"paced", CONVOY_OPTION_FLAG, &load->is_paced, 0, 0, "", "sleep a random 250 to 750 us before each round"},
        {"pin", CONVOY_OPTION_FLAG, &load->is_pinned, 0, 0, "", "pin rank r to core r modulo the number of cores"},
        {"plugin", CONVOY_OPTION_TEXT, &load->plugin, 0, 0, "FILE", "default: libconvoy.so.1 beside this command"},
    };
    memcpy(table, rows, sizeof rows);
}

int32_t convoy_perf_load_check(struct convoy_perf_load *load, const struct convoy_command_line *line,
                               struct convoy_error *error)
{
    if (line->operand_count == 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "what to measure is missing: must be poll, sync or transfer");
    }
    const char *what = line->operands[0];
    load->is_sync = strcmp(what, "sync") == 0;
    if (!load->is_sync && strcmp(what, "poll") != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "what to measure is \"%.60s\": must be poll, sync or transfer",
                                what);
    }
    if (load->is_fresh && !load->is_keyed) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "--fresh needs --keyed");
    }
    if (load->is_sync && (load->is_keyed || load->lists != 1)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "--keyed and --lists are for poll: a sync round has one row");
    }
    if (load->rounds == 0) {
        load->rounds = load->is_paced ? 2000 : 20000;
    }
    return CONVOY_OK;
}

/* Pins to the rank-th of the cores this process may use, counted round. */
static void perf_pin(uint64_t rank)
{
    cpu_set_t all;
    cpu_set_t one;
    if (sched_getaffinity(0, sizeof all, &all) != 0) {
        return;
    }
    uint64_t wanted = rank % (uint64_t)CPU_COUNT(&all);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &all) && wanted-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            (void)sched_setaffinity(0, sizeof one, &one);
            return;
        }
    }
}

static void perf_pause(uint64_t *draw)
{
    *draw = convoy_plan_mix(*draw);
    uint64_t ns = CONVOY_PERF_PAUSE_NS_MIN + *draw % (CONVOY_PERF_PAUSE_NS_MAX - CONVOY_PERF_PAUSE_NS_MIN);
    struct timespec pause = {.tv_nsec = (long)ns};
    (void)nanosleep(&pause, NULL);
}

static int perf_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static int32_t perf_rounds(struct convoy_perf_call *call, uint64_t rank, uint64_t rounds, uint64_t *samples,
                           struct convoy_error *error)
{
    uint64_t draw = convoy_plan_mix(rank + 1);
    for (uint64_t i = 0; i < rounds; i++) {
        if (call->load->is_paced) {
            perf_pause(&draw);
        }
        convoy_perf_call_prepare(call, i);
        uint64_t started_ns = convoy_now_ns();
        int32_t status = convoy_perf_call_make(call, error);
        if (status != CONVOY_OK) {
            return status;
        }
        if (samples != NULL) {
            samples[i] = convoy_now_ns() - started_ns;
        }
    }
    return CONVOY_OK;
}

static int32_t perf_measure(struct convoy_perf_call *call, uint64_t rank, struct convoy_perf_answer *answer,
                            struct convoy_error *error)
{
    uint64_t rounds = call->load->rounds;
    uint64_t *samples = convoy_memory_array(rounds, sizeof *samples);
    if (samples == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %llu samples", (unsigned long long)rounds);
    }
    int32_t status = perf_rounds(call, rank, rounds / 10 + 10, NULL, error); /* warms caches and the waiting policy */
    uint64_t started_ns = convoy_now_ns();
    if (status == CONVOY_OK) {
        status = perf_rounds(call, rank, rounds, samples, error);
    }
    answer->step_ns = (convoy_now_ns() - started_ns) / rounds;
    answer->rounds = rounds;
    qsort(samples, rounds, sizeof *samples, perf_compare);
    answer->median_ns = samples[rounds / 2];
    answer->p99_ns = samples[rounds - 1 - rounds / 100];
    answer->max_ns = samples[rounds - 1];
    convoy_memory_free(samples);
    return status;
}

static int32_t perf_run(const struct convoy_perf_load *load, const struct convoy_perf_place *place,
                        struct convoy_perf_answer *answer, struct convoy_error *error)
{
    struct convoy_plain_host host;
    struct convoy_perf_call *call = NULL;
    int32_t status = convoy_plain_host_open(&host, load->plugin, error);
    if (status == CONVOY_OK) {
        memcpy(answer->release, host.release, sizeof answer->release);
        memcpy(answer->build_id, host.build_id, sizeof answer->build_id);
        status = convoy_perf_call_create(&host, load, place, &call, error);
    }
    if (status == CONVOY_OK) {
        status = perf_measure(call, place->rank, answer, error);
    }
    convoy_perf_call_destroy(call);
    convoy_plain_host_close(&host, 0);
    return status;
}

int convoy_cli_perf_rank(int argc, char **argv)
{
    struct convoy_perf_load load = {.ranks = 2, .entries = 64, .lists = 1};
    struct convoy_perf_place place = {.address = "127.0.0.1"};
    uint64_t result_fd = 1;
    struct convoy_option table[CONVOY_PERF_LOAD_OPTIONS + 4] = {
        [CONVOY_PERF_LOAD_OPTIONS] = {"rank", CONVOY_OPTION_NUMBER, &place.rank, 0, 63, "N", "this rank"},
        {"address", CONVOY_OPTION_TEXT, &place.address, 0, 0, "ADDRESS", "of rank 0"},
        {"port", CONVOY_OPTION_NUMBER, &place.port, 0, 65535, "N", "of rank 0"},
        {"result-fd", CONVOY_OPTION_NUMBER, &result_fd, 0, 1023, "N", "where to write the answer"},
    };
    const char *operands[1];
    struct convoy_command_line line = {
        .options = table, .option_count = CONVOY_PERF_LOAD_OPTIONS + 4, .operands = operands, .operand_max = 1};
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_perf_load_options(&load, table);
    int32_t status = convoy_options_parse(&line, argc, argv, &error);
    if (status == CONVOY_OK) {
        status = convoy_perf_load_check(&load, &line, &error);
    }
    if (status != CONVOY_OK || line.wants_help) {
        (void)fprintf(stderr, "convoy perf-rank is started by convoy perf. %s\n", error.text);
        return CONVOY_EXIT_USAGE;
    }
    if (load.is_pinned) {
        perf_pin(place.rank);
    }
    struct convoy_perf_answer answer = {.rank = (uint32_t)place.rank};
    answer.status = perf_run(&load, &place, &answer, &error);
    if (answer.status != CONVOY_OK) {
        memcpy(answer.text, error.text, sizeof answer.text);
    }
    ssize_t written = write((int)result_fd, &answer, sizeof answer);
    return written == sizeof answer && answer.status == CONVOY_OK ? CONVOY_EXIT_OK : CONVOY_EXIT_FAILURE;
}
