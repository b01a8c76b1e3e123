/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perf.h"

#include "cli/crew.h"
#include "cli/perf_rank.h"
#include "cli/perf_transfer.h"
#include "cli/place.h"
#include "cli/two_hosts.h"
#include "core/clock.h"
#include "core/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define PERF_OPTIONS (CONVOY_PERF_LOAD_OPTIONS + 3u)
#define PERF_WORDS_MAX 40u
#define PERF_WORD_BYTES 32u

struct perf {
    struct convoy_perf_load load;
    uint64_t hosts;
    uint64_t deadline_s;
    bool is_json;
    uint16_t port;
    int pipe[2];
    struct convoy_crew crew;
    struct convoy_two_hosts two_hosts;
    char plugin[CONVOY_PLACE_PATH_BYTES];
};

static void perf_help(const struct convoy_option *table)
{
    (void)printf(
        "usage: convoy perf poll|sync [options]\n"
        "       convoy perf transfer [options], which has a help of its own\n\n"
        "Starts processes that each load the plugin, lets them make the same call again and again, and\n"
        "prints median and 99th percentile of the call on rank 0, and the step period (whole time by rounds).\n\n");
    convoy_options_help(stdout, table, PERF_OPTIONS);
}

/* -- starting the ranks ------------------------------------------------------------------------------------------- */

struct perf_words {
    char *argv[PERF_WORDS_MAX + 1];
    size_t count;
    char numbers[8][PERF_WORD_BYTES];
    size_t number_count;
};

static void perf_word(struct perf_words *words, const char *word)
{
    if (words->count < PERF_WORDS_MAX) {
        words->argv[words->count++] = (char *)word;
    }
}

static void perf_word_number(struct perf_words *words, const char *option, uint64_t number)
{
    char *text = words->numbers[words->number_count++];
    (void)snprintf(text, PERF_WORD_BYTES, "%" PRIu64, number);
    perf_word(words, option);
    perf_word(words, text);
}

static void perf_words_of(const struct perf *perf, uint32_t rank, const char *program, struct perf_words *words)
{
    const struct convoy_perf_load *load = &perf->load;
    bool is_two = perf->hosts == 2;
    if (is_two) {
        perf_word(words, "ip");
        perf_word(words, "netns");
        perf_word(words, "exec");
        perf_word(words, perf->two_hosts.names[rank < load->ranks / 2 ? 0 : 1]);
    }
    perf_word(words, program);
    perf_word(words, "perf-rank");
    perf_word(words, load->is_sync ? "sync" : "poll");
    perf_word_number(words, "--ranks", load->ranks);
    perf_word_number(words, "--n", load->entries);
    perf_word_number(words, "--lists", load->lists);
    perf_word_number(words, "--rounds", load->rounds);
    perf_word_number(words, "--rank", rank);
    perf_word_number(words, "--port", perf->port);
    perf_word_number(words, "--result-fd", (uint64_t)perf->pipe[1]);
    perf_word(words, "--address");
    perf_word(words, is_two ? CONVOY_TWO_HOSTS_ADDRESS : "127.0.0.1");
    perf_word(words, "--plugin");
    perf_word(words, load->plugin);
    const struct {
        bool is_set;
        const char *word;
    } flags[] = {{load->is_keyed, "--keyed"},
                 {load->is_fresh, "--fresh"},
                 {load->is_paced, "--paced"},
                 {load->is_pinned, "--pin"}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (flags[i].is_set) {
            perf_word(words, flags[i].word);
        }
    }
}

/* In the child: becomes a rank, in its namespace. */
static int perf_child(void *user, uint32_t rank)
{
    const struct perf *perf = user;
    struct perf_words words = {.count = 0};
    char program[CONVOY_PLACE_PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) {
        program[length] = '\0';
        perf_words_of(perf, rank, program, &words);
        (void)fcntl(perf->pipe[1], F_SETFD, 0);
        (void)execvp(words.argv[0], words.argv);
    }
    (void)fprintf(stderr, "convoy perf: cannot start rank %u: %s\n", rank, strerror(errno));
    return CONVOY_EXIT_FAILURE;
}

static int32_t perf_start(struct perf *perf, struct convoy_error *error)
{
    if (pipe2(perf->pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "making a pipe");
    }
    for (uint32_t i = 0; i < perf->load.ranks; i++) {
        int32_t status = convoy_crew_fork(&perf->crew, perf_child, perf, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* -- their answers ------------------------------------------------------------------------------------------------ */

static int32_t perf_wait(struct perf *perf, struct convoy_error *error)
{
    uint64_t deadline_ns = convoy_now_ns() + perf->deadline_s * CONVOY_NS_PER_S;
    while (perf->crew.alive != 0) {
        if (convoy_crew_wait(&perf->crew, 100) == CONVOY_CREW_INTERRUPT) {
            return convoy_error_set(error, CONVOY_CANCELED, "interrupted");
        }
        if (convoy_now_ns() > deadline_ns) {
            return convoy_error_set(error, CONVOY_TIMED_OUT, "not done after %" PRIu64 " s (raise --deadline)",
                                    perf->deadline_s);
        }
    }
    return CONVOY_OK;
}

/* Reads all answers, keeps that of rank 0. All ranks have ended, so nothing more comes. */
static int32_t perf_collect(const struct perf *perf, struct convoy_perf_answer *answer_out, struct convoy_error *error)
{
    struct convoy_perf_answer answer;
    uint32_t count = 0;
    int32_t status = CONVOY_OK;
    while (read(perf->pipe[0], &answer, sizeof answer) == (ssize_t)sizeof answer) {
        count++;
        if (answer.status != CONVOY_OK && status == CONVOY_OK) {
            status = convoy_error_set(error, answer.status, "rank %u: %.220s", answer.rank, answer.text);
        }
        if (answer.rank == 0) {
            *answer_out = answer;
        }
    }
    if (status == CONVOY_OK && count != perf->load.ranks) {
        return convoy_error_set(error, CONVOY_PEER_LOST, "only %u of %" PRIu64 " ranks have answered", count,
                                perf->load.ranks);
    }
    return status;
}

static void perf_print_json(const struct perf *perf, const struct convoy_perf_answer *answer)
{
    const struct convoy_perf_load *load = &perf->load;
    json_t *report =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:b, s:I, s:{s:I, s:I, s:I}, s:I, s:{s:s, s:s}}", "what",
                  load->is_sync ? "sync" : "poll", "ranks", (json_int_t)load->ranks, "hosts", (json_int_t)perf->hosts,
                  "n", (json_int_t)(load->is_sync ? 8 : load->entries), "lists", (json_int_t)load->lists, "keyed",
                  load->is_keyed, "fresh", load->is_fresh, "paced", load->is_paced, "pinned", load->is_pinned, "rounds",
                  (json_int_t)answer->rounds, "call_ns", "median", (json_int_t)answer->median_ns, "p99",
                  (json_int_t)answer->p99_ns, "max", (json_int_t)answer->max_ns, "step_ns", (json_int_t)answer->step_ns,
                  "plugin", "release", answer->release, "build_id", answer->build_id);
    if (report != NULL) {
        (void)json_dumpf(report, stdout, JSON_INDENT(1));
        (void)fputc('\n', stdout);
        json_decref(report);
    }
}

static void perf_print(const struct perf *perf, const struct convoy_perf_answer *answer)
{
    const struct convoy_perf_load *load = &perf->load;
    char what[96];
    if (load->is_sync) {
        (void)snprintf(what, sizeof what, "sync gather, 8 columns");
    } else {
        (void)snprintf(what, sizeof what, "poll reduce, %" PRIu64 " list%s of %" PRIu64 "%s%s", load->lists,
                       load->lists == 1 ? "" : "s", load->entries, load->is_keyed ? ", keyed" : "",
                       load->is_fresh ? " in fresh order" : "");
    }
    (void)printf("%s: %" PRIu64 " rank%s on %" PRIu64 " host%s%s%s, %" PRIu64 " rounds\n", what, load->ranks,
                 load->ranks == 1 ? "" : "s", perf->hosts, perf->hosts == 1 ? "" : "s",
                 load->is_paced ? ", paced" : ", back to back", load->is_pinned ? ", pinned" : "", answer->rounds);
    (void)printf("  call on rank 0   median %.3f us   p99 %.3f us   max %.3f us\n", (double)answer->median_ns / 1e3,
                 (double)answer->p99_ns / 1e3, (double)answer->max_ns / 1e3);
    (void)printf("  step period      %.3f us\n", (double)answer->step_ns / 1e3);
    (void)printf("  plugin release %s, build id %s\n", answer->release, answer->build_id);
}

/* -- the command -------------------------------------------------------------------------------------------------- */

static int32_t perf_prepare(struct perf *perf, struct convoy_error *error)
{
    if (perf->load.plugin == NULL) {
        int32_t status = convoy_place_beside(perf->plugin, "libconvoy.so.1", error);
        if (status != CONVOY_OK) {
            return status;
        }
        perf->load.plugin = perf->plugin;
    }
    if (access(perf->load.plugin, R_OK) != 0) {
        return convoy_error_set(error, CONVOY_NOT_FOUND, "cannot read the plugin %.200s", perf->load.plugin);
    }
    if (perf->hosts == 1) {
        return convoy_place_free_ports(&perf->port, 1, error);
    }
    perf->port = 7711; /* nobody else is in a namespace that was just made */
    return convoy_two_hosts_open(&perf->two_hosts, error);
}

static int perf_measure_all(struct perf *perf)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_perf_answer answer = {0};
    convoy_crew_init(&perf->crew); /* from here on Ctrl-C is an event, so that namespaces are removed */
    int32_t status = perf_prepare(perf, &error);
    if (status == CONVOY_OK) {
        status = perf_start(perf, &error);
    }
    if (status == CONVOY_OK) {
        status = perf_wait(perf, &error);
    }
    if (status == CONVOY_OK) {
        status = perf_collect(perf, &answer, &error);
    }
    convoy_crew_kill(&perf->crew);
    while (perf->crew.alive != 0) {
        (void)convoy_crew_wait(&perf->crew, 100);
    }
    convoy_two_hosts_close(&perf->two_hosts);
    convoy_crew_fini(&perf->crew);
    if (status != CONVOY_OK) {
        (void)fprintf(stderr, "convoy perf: %s\n", error.text);
        return CONVOY_EXIT_FAILURE;
    }
    if (perf->is_json) {
        perf_print_json(perf, &answer);
    } else {
        perf_print(perf, &answer);
    }
    return CONVOY_EXIT_OK;
}

/* Transfers are measured by two processes with engines, and have options of their own. */
static bool perf_is_transfer(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "transfer") == 0) {
            return true;
        }
    }
    return false;
}

int convoy_cli_perf(int argc, char **argv)
{
    if (perf_is_transfer(argc, argv)) {
        return convoy_cli_perf_transfer(argc, argv);
    }
    struct perf perf = {.load = {.ranks = 2, .entries = 64, .lists = 1}, .hosts = 1, .deadline_s = 120};
    struct convoy_option table[PERF_OPTIONS] = {
        [CONVOY_PERF_LOAD_OPTIONS] = {"hosts", CONVOY_OPTION_NUMBER, &perf.hosts, 1, 2, "N",
                                      "2: each half in a network namespace of its own, over UCX (needs root)"},
        {"deadline", CONVOY_OPTION_NUMBER, &perf.deadline_s, 1, 100000, "S", "ends the measurement (default 120)"},
        {"json", CONVOY_OPTION_FLAG, &perf.is_json, 0, 0, "", "print one JSON object"},
    };
    const char *operands[1];
    struct convoy_command_line line = {
        .options = table, .option_count = PERF_OPTIONS, .operands = operands, .operand_max = 1};
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_perf_load_options(&perf.load, table);
    int32_t status = convoy_options_parse(&line, argc, argv, &error);
    if (status == CONVOY_OK && line.wants_help) {
        perf_help(table);
        return CONVOY_EXIT_OK;
    }
    if (status == CONVOY_OK) {
        status = convoy_perf_load_check(&perf.load, &line, &error);
    }
    if (status == CONVOY_OK && perf.hosts == 2 && perf.load.ranks % 2 != 0) {
        status = convoy_error_set(&error, CONVOY_INVALID_ARGUMENT,
                                  "--ranks is %" PRIu64 ": must be even with --hosts 2", perf.load.ranks);
    }
    if (status != CONVOY_OK) {
        (void)fprintf(stderr, "convoy perf: %s (see convoy perf --help)\n", error.text);
        return CONVOY_EXIT_USAGE;
    }
    return perf_measure_all(&perf);
}
