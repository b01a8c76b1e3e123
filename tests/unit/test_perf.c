/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `convoy perf` and its ranks: what is refused, what is measured, what is printed. Ranks are processes of this very
 * program, which plays the command when its first word is perf-rank (see main).
 */
#include "cli/perf.h"
#include "cli/perf_call.h"
#include "core/error.h"
#include "tests/lib/plugin.h"

#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cli_capture.h"
#include "fake_ip.h"

#include <cmocka.h>

#ifdef CONVOY_COVERAGE
void __gcov_dump(void);
int execvp(const char *file, char *const argv[]);

/* A child that becomes another program would lose what it counted, so this stands before the C library's. */
int execvp(const char *file, char *const argv[])
{
    __gcov_dump();
    return execvpe(file, argv, environ);
}
#endif

static struct cli_output output;

#define PERF(...) CLI_RUN(&output, convoy_cli_perf, __VA_ARGS__)
#define PERF_OK(...) PERF("--plugin", plugin_path(), __VA_ARGS__)

/* -- what is refused ----------------------------------------------------------------------------------------------- */

static void test_perf_wrong_words_are_usage_errors(void **state)
{
    (void)state;
    static const struct {
        const char *words[4];
        const char *text;
    } cases[] = {
        {{NULL}, "what to measure is missing: must be poll, sync or transfer"},
        {{"both"}, "what to measure is \"both\": must be poll, sync or transfer"},
        {{"poll", "sync"}, "\"sync\" is one word too many"},
        {{"poll", "--fresh"}, "--fresh needs --keyed"},
        {{"sync", "--keyed"}, "--keyed and --lists are for poll: a sync round has one row"},
        {{"sync", "--lists=2"}, "--keyed and --lists are for poll: a sync round has one row"},
        {{"poll", "--hosts=2", "--ranks=3"}, "--ranks is 3: must be even with --hosts 2"},
        {{"poll", "--hosts=3"}, "--hosts is \"3\": must be a whole number from 1 to 2"},
        {{"poll", "--ranks=0"}, "--ranks is \"0\": must be a whole number from 1 to 64"},
        {{"poll", "--ranks=65"}, "--ranks is \"65\": must be a whole number from 1 to 64"},
        {{"poll", "--n=4097"}, "--n is \"4097\": must be a whole number from 0 to 4096"},
        {{"poll", "--rounds=0"}, "--rounds is \"0\": must be a whole number from 1 to 100000000"},
        {{"poll", "--deadline=0"}, "--deadline is \"0\": must be a whole number from 1 to 100000"},
        {{"poll", "--plugin="}, "--plugin is empty: needs a FILE"},
        {{"poll", "--json=1"}, "--json takes no value"},
        {{"poll", "--rank=0"}, "unknown option --rank"}, /* that is perf-rank's */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wanted[160];
        PERF(cases[i].words[0], cases[i].words[1], cases[i].words[2]);
        (void)snprintf(wanted, sizeof wanted, "convoy perf: %s (see convoy perf --help)\n", cases[i].text);
        assert_string_equal(output.err, wanted);
        assert_string_equal(output.out, "");
        assert_int_equal(output.code, 2);
    }
}

static void test_perf_help_has_all_options(void **state)
{
    (void)state;
    static const char *const options[] = {"--ranks N",  "--n N",     "--lists N", "--rounds N",    "--keyed",
                                          "--fresh",    "--paced",   "--pin",     "--plugin FILE", "--hosts N",
                                          "--deadline S", "--json",  "--help"};
    PERF("--help");
    assert_int_equal(output.code, 0);
    assert_int_equal(strncmp(output.out, "usage: convoy perf poll|sync [options]\n", 39), 0);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        assert_non_null(strstr(output.out, options[i]));
    }
}

static void test_perf_plugin_that_cannot_be_read_is_named(void **state)
{
    (void)state;
    PERF("poll", "--plugin=/nowhere/it.so");
    assert_int_equal(output.code, 1);
    assert_string_equal(output.err, "convoy perf: cannot read the plugin /nowhere/it.so\n");
    PERF("poll"); /* beside this test there is none */
    assert_int_equal(output.code, 1);
    assert_non_null(strstr(output.err, "cannot read the plugin /"));
    assert_non_null(strstr(output.err, "/unit/libconvoy.so.1\n"));
}

/* Each rank says what went wrong; the first one that did is shown with its number. */
static void test_perf_failure_of_a_rank_is_told(void **state)
{
    (void)state;
    PERF("poll", "--ranks=1", "--plugin=/proc/self/exe");
    assert_int_equal(output.code, 1);
    assert_int_equal(strncmp(output.err, "convoy perf: rank 0: cannot load the plugin: ", 45), 0);
    assert_string_equal(output.out, "");
}

/* -- whole measurements -------------------------------------------------------------------------------------------- */

static void expect_json(const char *text, const char *what, int ranks, int n, int rounds)
{
    json_int_t median = 0;
    json_int_t p99 = 0;
    json_int_t max = 0;
    json_int_t step = 0;
    const char *found = NULL;
    const char *release = NULL;
    const char *build = NULL;
    int numbers[5] = {0};
    int flags[4] = {0};
    json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(all);
    assert_int_equal(json_unpack(all, "{s:s, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:b, s:b, s:{s:I, s:I, s:I !}, s:I, "
                                      "s:{s:s, s:s !} !}",
                                 "what", &found, "ranks", &numbers[0], "hosts", &numbers[1], "n", &numbers[2], "lists",
                                 &numbers[3], "rounds", &numbers[4], "keyed", &flags[0], "fresh", &flags[1], "paced",
                                 &flags[2], "pinned", &flags[3], "call_ns", "median", &median, "p99", &p99, "max", &max,
                                 "step_ns", &step, "plugin", "release", &release, "build_id", &build),
                     0);
    assert_string_equal(found, what);
    assert_int_equal(numbers[0], ranks);
    assert_int_equal(numbers[1], 1);
    assert_int_equal(numbers[2], n);
    assert_int_equal(numbers[3], 1);
    assert_int_equal(numbers[4], rounds);
    assert_int_equal(flags[0] + flags[1] + flags[2] + flags[3], 0);
    assert_true(0 < median && median <= p99 && p99 <= max);
    assert_true(step > 0);
    assert_string_equal(release, CONVOY_RELEASE);
    assert_int_equal(strlen(build), 40);
    json_decref(all);
}

static void test_perf_json_has_the_promised_keys(void **state)
{
    (void)state;
    PERF_OK("poll", "--json", "--n=3", "--rounds=20");
    assert_string_equal(output.err, "");
    assert_int_equal(output.code, 0);
    expect_json(output.out, "poll", 2, 3, 20);
    PERF_OK("sync", "--json", "--n=3", "--rounds=20");
    assert_int_equal(output.code, 0);
    expect_json(output.out, "sync", 2, 8, 20); /* a row has eight columns, whatever --n says */
}

static void test_perf_text_says_what_was_measured(void **state)
{
    (void)state;
    PERF_OK("poll", "--n=2", "--lists=3", "--keyed", "--fresh", "--paced", "--pin", "--rounds=1");
    assert_string_equal(output.err, "");
    assert_int_equal(output.code, 0);
    static const char poll[] = "poll reduce, 3 lists of 2, keyed in fresh order: 2 ranks on 1 host, paced, pinned, 1 "
                               "rounds\n  call on rank 0   median ";
    assert_int_equal(strncmp(output.out, poll, sizeof poll - 1), 0);
    assert_non_null(strstr(output.out, "\n  step period      "));
    assert_non_null(strstr(output.out, "\n  plugin release " CONVOY_RELEASE ", build id "));
    PERF_OK("sync", "--ranks=1", "--rounds=5");
    assert_int_equal(output.code, 0);
    static const char sync[] = "sync gather, 8 columns: 1 rank on 1 host, back to back, 5 rounds\n";
    assert_int_equal(strncmp(output.out, sync, sizeof sync - 1), 0);
}

static void test_perf_deadline_ends_the_measurement(void **state)
{
    (void)state;
    PERF_OK("poll", "--ranks=1", "--rounds=100000000", "--deadline=1");
    assert_int_equal(output.code, 1);
    assert_string_equal(output.err, "convoy perf: not done after 1 s (raise --deadline)\n");
}

/* The signal waits, blocked, until the command listens for it. */
static void test_perf_interrupt_ends_the_measurement(void **state)
{
    (void)state;
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    assert_int_equal(raise(SIGINT), 0);
    PERF_OK("poll", "--ranks=1", "--rounds=100000000");
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &set, NULL), 0); /* kills this program if it was not taken */
    assert_int_equal(output.code, 1);
    assert_string_equal(output.err, "convoy perf: interrupted\n");
}

/* The pretended ip fails to enter the namespaces, so no rank answers; both namespaces are removed all the same. */
static void test_perf_two_hosts_put_each_half_into_its_namespace(void **state)
{
    char log[8192];
    char rank[2][64];
    fake_ip_install(*state);
    fake_ip_reset(*state, "*perf-rank*", NULL);
    PERF_OK("poll", "--hosts=2", "--keyed", "--rounds=7", "--n=5");
    fake_ip_remove();
    assert_int_equal(output.code, 1);
    assert_string_equal(output.err, "convoy perf: only 0 of 2 ranks have answered\n");
    fake_ip_log(*state, log, sizeof log);
    assert_non_null(strstr(log, " perf-rank poll --ranks 2 --n 5 --lists 1 --rounds 7 --rank 0 --port 7711 "));
    assert_non_null(strstr(log, " --address 10.231.77.1 --plugin "));
    assert_non_null(strstr(log, ".so.1 --keyed\n"));
    for (int i = 0; i < 2; i++) {
        (void)snprintf(rank[i], sizeof rank[i], "netns exec convoy-%d-%d /", (int)getpid(), i);
        const char *line = strstr(log, rank[i]);
        assert_non_null(line);
        (void)snprintf(rank[i], sizeof rank[i], " --rank %d --port", i);
        const char *number = strstr(line, rank[i]);
        assert_true(number != NULL && number < strchr(line, '\n'));
        (void)snprintf(rank[i], sizeof rank[i], "netns del convoy-%d-%d\n", (int)getpid(), i);
        assert_non_null(strstr(log, rank[i]));
    }
}

/* -- one rank ------------------------------------------------------------------------------------------------------ */

/* Runs a rank in this process and reads the answer that it writes to a pipe. */
static int run_rank(struct convoy_perf_answer *answer, const char *const *more)
{
    const char *words[16] = {"perf-rank", "--ranks", "1", "--plugin", plugin_path(), "--result-fd"};
    char number[16];
    int ends[2];
    size_t count = 6;
    memset(answer, 0xff, sizeof *answer);
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    (void)snprintf(number, sizeof number, "%d", ends[1]);
    words[count++] = number;
    while (*more != NULL && count < 15) {
        words[count++] = *more++;
    }
    words[count] = NULL;
    cli_run(&output, convoy_cli_perf_rank, words);
    ssize_t length = read(ends[0], answer, sizeof *answer);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return length == (ssize_t)sizeof *answer ? 1 : 0;
}

#define RANK(answer, ...) run_rank((answer), (const char *const[]){__VA_ARGS__, NULL})

static void test_perf_rank_answers_with_ordered_figures(void **state)
{
    (void)state;
    static const char *const cases[][4] = {
        {"poll", "--n=0"}, {"poll", "--n=600", "--lists=2"}, {"poll", "--keyed", "--fresh"}, {"sync"}, {"poll", "--paced"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct convoy_perf_answer answer;
        assert_int_equal(RANK(&answer, "--rounds=150", cases[i][0], cases[i][1], cases[i][2]), 1);
        assert_int_equal(output.code, 0);
        assert_int_equal(answer.status, CONVOY_OK);
        assert_int_equal(answer.rank, 0);
        assert_int_equal(answer.rounds, 150);
        assert_true(answer.median_ns > 0 && answer.median_ns <= answer.p99_ns && answer.p99_ns <= answer.max_ns);
        assert_true(answer.step_ns * 150 >= answer.max_ns);
        assert_string_equal(answer.release, CONVOY_RELEASE);
        /* The pause before a round counts in the step and not in the call. */
        assert_true(i != 4 || (answer.step_ns >= CONVOY_PERF_PAUSE_NS_MIN && answer.median_ns < answer.step_ns));
    }
}

static void test_perf_rank_pins_itself_to_one_core(void **state)
{
    (void)state;
    cpu_set_t before;
    cpu_set_t pinned;
    struct convoy_perf_answer answer;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(RANK(&answer, "poll", "--pin", "--rounds=1"), 1);
    assert_int_equal(sched_getaffinity(0, sizeof pinned, &pinned), 0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(CPU_COUNT(&pinned), 1);
    size_t core = 0;
    while (!CPU_ISSET(core, &before)) {
        core++;
    }
    assert_true(CPU_ISSET(core, &pinned)); /* rank 0 takes the first that may be used */
}

static void test_perf_rank_failure_is_in_the_answer(void **state)
{
    (void)state;
    struct convoy_perf_answer answer;
    assert_int_equal(RANK(&answer, "poll", "--plugin=/nowhere/it.so"), 1);
    assert_int_equal(output.code, 1);
    assert_int_equal(answer.status, CONVOY_BAD_FILE);
    assert_non_null(strstr(answer.text, "/nowhere/it.so"));
    /* Half a second answer is none. */
    assert_int_equal(RANK(&answer, "poll", "--rounds=1", "--result-fd=1000"), 0);
    assert_int_equal(output.code, 1);
}

static void test_perf_rank_is_no_command_for_users(void **state)
{
    (void)state;
    CLI_RUN(&output, convoy_cli_perf_rank, "--help");
    assert_int_equal(output.code, 2);
    assert_int_equal(strncmp(output.err, "convoy perf-rank is started by convoy perf. ", 44), 0);
    CLI_RUN(&output, convoy_cli_perf_rank, "walk");
    assert_int_equal(output.code, 2);
    assert_non_null(strstr(output.err, "what to measure is \"walk\": must be poll, sync or transfer"));
}

/* -- the call ------------------------------------------------------------------------------------------------------ */

static struct convoy_perf_call *open_call(struct convoy_plain_host *host, const struct convoy_perf_load *load)
{
    const struct convoy_perf_place place = {.rank = 0, .address = "127.0.0.1"};
    struct convoy_perf_call *call = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_plain_host_open(host, plugin_path(), &error), CONVOY_OK);
    assert_int_equal(convoy_perf_call_create(host, load, &place, &call, &error), CONVOY_OK);
    return call;
}

/* One rank alone: the outcome of a round is what it brought, and each round it brings something else. */
static void test_perf_call_result_is_the_input_of_one_rank(void **state)
{
    (void)state;
    const struct convoy_perf_load load = {.ranks = 1, .entries = 3, .lists = 2};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_plain_host host;
    uint8_t wanted[2][3] = {{0}};
    struct convoy_perf_call *call = open_call(&host, &load);
    for (uint64_t round = 0; round < 7; round++) {
        convoy_perf_call_prepare(call, round);
        for (int list = 0; list < 2; list++) {
            wanted[list][round % 3] = (uint8_t)(1 + round % 3);
            assert_memory_equal(call->lists[list].states, wanted[list], 3);
        }
        assert_int_equal(convoy_perf_call_make(call, &error), CONVOY_OK);
        assert_memory_equal(call->list_results[0].states, wanted[0], 3);
        assert_memory_equal(call->list_results[1].states, wanted[1], 3);
    }
    convoy_perf_call_destroy(call);
    convoy_perf_call_destroy(NULL);
    convoy_plain_host_close(&host, 0);
}

/* Fresh order moves keys and loses none. */
static void test_perf_call_fresh_order_is_a_permutation(void **state)
{
    (void)state;
    const struct convoy_perf_load load = {.ranks = 1, .entries = 5, .lists = 1, .is_keyed = true, .is_fresh = true};
    struct convoy_plain_host host;
    struct convoy_perf_call *call = open_call(&host, &load);
    const uint64_t first[5] = {1, 2, 3, 4, 5};
    assert_memory_equal(call->keys, first, sizeof first);
    assert_int_equal(call->lists[0].flags, CONVOY_POLL_KEYED);
    for (uint64_t round = 0; round < 12; round++) {
        uint32_t seen = 0;
        convoy_perf_call_prepare(call, round);
        for (int i = 0; i < 5; i++) {
            seen |= 1u << call->keys[i];
        }
        assert_int_equal(seen, 0x3e);
    }
    assert_memory_not_equal(call->keys, first, sizeof first);
    convoy_perf_call_destroy(call);
    convoy_plain_host_close(&host, 0);
}

static void test_perf_call_row_of_a_sync_round_changes_its_tokens(void **state)
{
    (void)state;
    const struct convoy_perf_load load = {.is_sync = true, .ranks = 1, .entries = 64, .lists = 1};
    const int64_t wanted[8] = {1, 128, 1, 0, 1, 2, 0, 4096};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_plain_host host;
    struct convoy_perf_call *call = open_call(&host, &load);
    convoy_perf_call_prepare(call, 513);
    assert_int_equal(convoy_perf_call_make(call, &error), CONVOY_OK);
    assert_memory_equal(call->table, wanted, sizeof wanted);
    convoy_perf_call_destroy(call);
    convoy_plain_host_close(&host, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_perf_wrong_words_are_usage_errors),
        cmocka_unit_test(test_perf_help_has_all_options),
        cmocka_unit_test(test_perf_plugin_that_cannot_be_read_is_named),
        cmocka_unit_test(test_perf_failure_of_a_rank_is_told),
        cmocka_unit_test(test_perf_json_has_the_promised_keys),
        cmocka_unit_test(test_perf_text_says_what_was_measured),
        cmocka_unit_test(test_perf_deadline_ends_the_measurement),
        cmocka_unit_test(test_perf_interrupt_ends_the_measurement),
        cmocka_unit_test(test_perf_two_hosts_put_each_half_into_its_namespace),
        cmocka_unit_test(test_perf_rank_answers_with_ordered_figures),
        cmocka_unit_test(test_perf_rank_pins_itself_to_one_core),
        cmocka_unit_test(test_perf_rank_failure_is_in_the_answer),
        cmocka_unit_test(test_perf_rank_is_no_command_for_users),
        cmocka_unit_test(test_perf_call_result_is_the_input_of_one_rank),
        cmocka_unit_test(test_perf_call_fresh_order_is_a_permutation),
        cmocka_unit_test(test_perf_call_row_of_a_sync_round_changes_its_tokens),
    };
    if (argc > 1 && strcmp(argv[1], "perf-rank") == 0) {
        return convoy_cli_perf_rank(argc - 1, argv + 1);
    }
    return cmocka_run_group_tests_name("perf", tests, folder_setup, folder_teardown);
}
