/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy perf transfer`: what is refused, by whom, and what is printed of what was measured. */
#include "cli/perf.h"
#include "cli/perf_memory.h"
#include "cli/perf_transfer_load.h"
#include "cli/perf_transfer_phases.h"
#include "convoy/transfer.h"
#include "core/error.h"
#include "tests/lib/plugin.h"

#include <jansson.h>
#include <signal.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cli_capture.h"

#include <cmocka.h>

static struct cli_output output;

#define PERF(...) CLI_RUN(&output, convoy_cli_perf, "transfer", __VA_ARGS__)
#define PERF_OK(...) PERF("--plugin", plugin_path(), "--n=20", __VA_ARGS__)

/* -- words ---------------------------------------------------------------------------------------------------------- */

static void test_perf_transfer_wrong_words_are_usage_errors(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        const char *text;
    } cases[] = {
        {"--path=fly", "--path is \"fly\": must be one of auto, lend, push, pull"},
        {"--net=tcp", "--net is \"tcp\": must be one of auto, shm, ucx"},
        {"--mem=disk", "--mem is \"disk\": must be one of shared, host, cuda"},
        {"--tensors=0", "--tensors is \"0\": must be a whole number from 1 to 4096"},
        {"--n=0", "--n is \"0\": must be a whole number from 1 to 1000000"},
        {"--bytes=17179869185", "--bytes is \"17179869185\": must be a whole number from 0 to 17179869184"},
        {"--deadline=0", "--deadline is \"0\": must be a whole number from 1 to 100000"},
        {"--keyed", "unknown option --keyed"},
        {"more", "\"more\" is one word too many"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wanted[200];
        PERF(cases[i].word);
        (void)snprintf(wanted, sizeof wanted, "convoy perf transfer: %s (see convoy perf transfer --help)\n",
                       cases[i].text);
        assert_string_equal(output.err, wanted);
        assert_string_equal(output.out, "");
        assert_int_equal(output.code, 2);
    }
}

static void test_perf_transfer_help_has_all_options(void **state)
{
    (void)state;
    static const char *const names[] = {"--bytes N", "--tensors K",   "--n N",        "--path WAY", "--net NET",
                                        "--mem KIND", "--plugin FILE", "--deadline S", "--json",     "--help"};
    PERF("--help");
    assert_int_equal(output.code, 0);
    assert_int_equal(strncmp(output.out, "usage: convoy perf transfer [options]\n", 38), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_non_null(strstr(output.out, names[i]));
    }
}

static void test_perf_transfer_parts_add_up(void **state)
{
    (void)state;
    struct convoy_perf_transfer_load load = {.bytes = 1000, .tensors = 7};
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 7; i++) {
        sum += convoy_perf_transfer_load_part(&load, i);
    }
    assert_int_equal(sum, 1000);
    assert_int_equal(convoy_perf_transfer_load_part(&load, 6), 148);
    load = (struct convoy_perf_transfer_load){.bytes = 3, .tensors = 4};
    assert_int_equal(convoy_perf_transfer_load_part(&load, 0), 0);
    assert_int_equal(convoy_perf_transfer_load_part(&load, 3), 3);
    assert_int_equal(convoy_perf_transfer_load_pool_bytes(&load), 16u << 20);
    load.bytes = UINT64_C(1) << 30;
    assert_int_equal(convoy_perf_transfer_load_pool_bytes(&load), UINT64_C(8) << 30);
}

static void test_perf_transfer_forced_path_must_be_the_one_taken(void **state)
{
    (void)state;
    static const struct {
        uint32_t asked;
        uint32_t taken;
        int32_t status;
    } cases[] = {
        {CONVOY_PATH_AUTO, CONVOY_PATH_PROCESS_VM, CONVOY_OK},
        {CONVOY_PATH_LEND, CONVOY_PATH_LEND, CONVOY_OK},
        {CONVOY_PATH_LEND, CONVOY_PATH_PULL, CONVOY_UNSUPPORTED},
        {CONVOY_PATH_LEND, CONVOY_PATH_PROCESS_VM, CONVOY_UNSUPPORTED},
        {CONVOY_PATH_PUSH, CONVOY_PATH_PUSH, CONVOY_OK},
        {CONVOY_PATH_PUSH, CONVOY_PATH_MESSAGES, CONVOY_OK},
        {CONVOY_PATH_PUSH, CONVOY_PATH_RMA, CONVOY_OK},
        {CONVOY_PATH_PUSH, CONVOY_PATH_PULL, CONVOY_UNSUPPORTED},
        {CONVOY_PATH_PULL, CONVOY_PATH_PULL, CONVOY_OK},
        {CONVOY_PATH_PULL, CONVOY_PATH_PROCESS_VM, CONVOY_OK},
        {CONVOY_PATH_PULL, CONVOY_PATH_MESSAGES, CONVOY_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct convoy_perf_transfer_load load = {
            .net = "auto", .memory_word = "host", .path_word = "that", .path = cases[i].asked};
        struct convoy_error error = CONVOY_ERROR_INIT;
        assert_int_equal(convoy_perf_transfer_load_check_path(&load, cases[i].taken, &error), cases[i].status);
    }
}

static void test_perf_transfer_path_must_be_on_the_net_that_was_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *net;
        uint32_t path;
        int32_t status;
    } cases[] = {
        {"auto", CONVOY_PATH_LEND, CONVOY_OK},        {"auto", CONVOY_PATH_RMA, CONVOY_OK},
        {"shm", CONVOY_PATH_LEND, CONVOY_OK},         {"shm", CONVOY_PATH_MESSAGES, CONVOY_UNSUPPORTED},
        {"ucx", CONVOY_PATH_PULL, CONVOY_UNSUPPORTED}, {"ucx", CONVOY_PATH_MESSAGES, CONVOY_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct convoy_perf_transfer_load load = {.net = cases[i].net};
        struct convoy_error error = CONVOY_ERROR_INIT;
        assert_int_equal(convoy_perf_transfer_load_check_path(&load, cases[i].path, &error), cases[i].status);
    }
}

/* -- phases --------------------------------------------------------------------------------------------------------- */

/* Each side tells of its own phases; of several paths the one that was taken most often. */
static void test_perf_transfer_phases_are_those_of_the_statistics(void **state)
{
    (void)state;
    static const char text[] =
        "{\"phases\": {\"stage\": {\"none\": {\"count\": 7, \"p50_ns\": 10, \"p99_ns\": 20}},"
        " \"push\": {\"push\": {\"count\": 2, \"p50_ns\": 1, \"p99_ns\": 1},"
        " \"rma\": {\"count\": 5, \"p50_ns\": 30, \"p99_ns\": 40}}, \"offer\": {},"
        " \"load\": {\"lend\": {\"count\": 9, \"p50_ns\": 50, \"p99_ns\": 60}}}}";
    static const uint64_t wanted[2][CONVOY_PERF_TRANSFER_PHASES] = {{7, 0, 5, 0, 0, 0, 0}, {7, 0, 5, 0, 0, 9, 0}};
    struct convoy_perf_transfer_phase phases[CONVOY_PERF_TRANSFER_PHASES] = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(convoy_perf_transfer_phases_parse(text, side, phases, &error), CONVOY_OK);
        for (uint32_t i = 0; i < CONVOY_PERF_TRANSFER_PHASES; i++) {
            assert_int_equal(phases[i].count, wanted[side][i]);
        }
    }
    assert_string_equal(convoy_perf_transfer_phase_name(2), "push");
    assert_int_equal(phases[2].p50_ns, 30);
    assert_int_equal(phases[2].p99_ns, 40);
    assert_int_equal(convoy_perf_transfer_phases_parse("[1]", 0, phases, &error), CONVOY_MALFORMED);
    assert_int_equal(convoy_perf_transfer_phases_parse("no", 0, phases, &error), CONVOY_MALFORMED);
    assert_string_equal(error.text, "the engine's statistics are no JSON object: no");
}

/* -- refusals ------------------------------------------------------------------------------------------------------- */

static void expect_refusal(const char *part)
{
    assert_int_equal(output.code, 1);
    assert_string_equal(output.out, "");
    if (strstr(output.err, part) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", part, output.err);
    }
}

static void test_perf_transfer_refusals_come_with_the_librarys_words(void **state)
{
    (void)state;
    PERF("--plugin=/nowhere/it.so");
    expect_refusal("convoy perf transfer: cannot read the plugin /nowhere/it.so\n");
    PERF("--plugin=/proc/self/exe");
    expect_refusal("convoy perf transfer: ");
    PERF_OK("--bytes=17179869184", "--mem=host", "--deadline=1"); /* no machine of ours has four times that */
    expect_refusal("convoy perf transfer: ");
}

/* Where there is no driver that is said; where there is one, this build copies there or says that it does not. */
static void test_perf_transfer_without_cuda_says_what_is_missing(void **state)
{
    (void)state;
    struct convoy_perf_memory memory;
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = convoy_perf_memory_open(&memory, CONVOY_MEMORY_DEVICE, 1u << 20, &error);
    convoy_perf_memory_close(&memory);
    if (status == CONVOY_OK) {
        skip();
    }
    assert_int_equal(status, CONVOY_UNSUPPORTED);
    PERF_OK("--mem=cuda");
    expect_refusal("UNSUPPORTED: --mem is cuda, and ");
}

/* On the pretended driver (tests/lib/sim_cuda.h): pools of device memory on both sides, compared byte for byte. */
static void test_perf_transfer_between_pools_of_device_memory(void **state)
{
    (void)state;
    char file[600];
    ssize_t length = readlink("/proc/self/exe", file, 500);
    assert_true(length > 0);
    file[length] = '\0';
    (void)strcpy(strrchr(file, '/'), "/../lib/libcuda.so.1");
    (void)setenv("CONVOY_CUDA_LIBRARY", file, 1);
    PERF_OK("--mem=cuda", "--bytes=70001", "--tensors=3", "--json");
    (void)unsetenv("CONVOY_CUDA_LIBRARY");
    if (output.code != 0) {
        fail_msg("%s", output.err);
    }
    json_t *object = json_loads(output.out, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(object, "mem")), "cuda");
    json_decref(object);
}

static void test_perf_transfer_deadline_ends_the_measurement(void **state)
{
    (void)state;
    PERF("--plugin", plugin_path(), "--n=1000000", "--bytes=1000000", "--deadline=1");
    expect_refusal("not done after 1 s (raise --deadline)");
}

static void test_perf_transfer_interrupt_ends_the_measurement(void **state)
{
    (void)state;
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    assert_int_equal(raise(SIGINT), 0);
    PERF("--plugin", plugin_path(), "--n=1000000");
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &set, NULL), 0);
    expect_refusal("convoy perf transfer: interrupted\n");
}

/* -- measurements --------------------------------------------------------------------------------------------------- */

/* most_ns: what a whole measurement takes at most, so that times that are none are found. */
static void expect_quantiles(const json_t *kind, const char *name)
{
    const json_int_t most_ns = 600000000000;
    const json_t *quantiles = json_object_get(kind, name);
    json_int_t median = json_integer_value(json_object_get(quantiles, "median"));
    json_int_t p99 = json_integer_value(json_object_get(quantiles, "p99"));
    assert_true(json_is_object(quantiles));
    assert_true(median > 0 && median <= p99 && p99 < most_ns);
}

/* names: of the phases that are there, the others are null; all of them count the 20 rounds and those before. */
static void expect_phases(const json_t *kind, const char *names)
{
    const char *phase;
    json_t *one;
    json_object_foreach(json_object_get(kind, "phases_ns"), phase, one)
    {
        char word[32];
        (void)snprintf(word, sizeof word, " %s ", phase);
        if (strstr(names, word) == NULL) {
            assert_true(json_is_null(one));
            continue;
        }
        expect_quantiles(json_object_get(kind, "phases_ns"), phase);
        assert_int_equal(json_integer_value(json_object_get(one, "count")), 25);
    }
    assert_int_equal(json_object_size(json_object_get(kind, "phases_ns")), CONVOY_PERF_TRANSFER_PHASES);
}

static void expect_bytes(const json_t *kind, json_int_t asked, json_int_t moved)
{
    assert_int_equal(json_integer_value(json_object_get(kind, "asked_bytes")), asked);
    assert_int_equal(json_integer_value(json_object_get(kind, "moved_bytes")), moved);
}

static json_t *expect_json(void)
{
    json_t *report = json_loads(output.out, 0, NULL);
    if (report == NULL) {
        fail_msg("no JSON: %s%s", output.out, output.err);
    }
    assert_int_equal(output.code, 0);
    assert_string_equal(json_string_value(json_object_get(report, "what")), "transfer");
    return report;
}

static void test_perf_transfer_json_has_the_promised_keys(void **state)
{
    (void)state;
    static const char *const kinds[] = {"view", "copy"};
    PERF_OK("--bytes=100001", "--tensors=7", "--json");
    json_t *report = expect_json();
    assert_int_equal(json_integer_value(json_object_get(report, "bytes")), 100001);
    assert_int_equal(json_integer_value(json_object_get(report, "tensors")), 7);
    assert_int_equal(json_integer_value(json_object_get(report, "n")), 20);
    assert_string_equal(json_string_value(json_object_get(report, "path")), "auto");
    assert_string_equal(json_string_value(json_object_get(report, "net")), "auto");
    assert_string_equal(json_string_value(json_object_get(report, "mem")), "shared");
    for (size_t i = 0; i < 2; i++) {
        const json_t *kind = json_object_get(report, kinds[i]);
        expect_quantiles(kind, "hand_over_ns");
        expect_phases(kind, " stage offer ready load release ");
        /* Each of the six tensors of 14,285 bytes takes 14,336, up to the start of the next. */
        expect_bytes(kind, 20 * 100001, 20 * (100001 + 6 * 51) * (json_int_t)(i + 1));
        assert_true(json_real_value(json_object_get(kind, "gb_per_s")) > 0);
    }
    assert_string_equal(json_string_value(json_object_get(json_object_get(report, "view"), "path")), "lend");
    assert_true(json_string_length(json_object_get(json_object_get(report, "plugin"), "build_id")) > 0);
    json_decref(report);
}

/* A pushed or pulled payload lies in the receiver's own pool: there is nothing to look into. */
static void test_perf_transfer_forced_paths_are_the_ones_taken(void **state)
{
    (void)state;
    static const char *const cases[][4] = {
        {"lend", "view", "copy", " stage offer ready load release "},
        {"push", "copy", "view", " stage reserve push ready load release "},
        {"pull", "copy", "view", " stage offer ready load release "},
    };
    for (size_t i = 0; i < 3; i++) {
        PERF_OK("--bytes=5000", "--net=shm", "--json", "--path", cases[i][0]);
        json_t *report = expect_json();
        const json_t *kind = json_object_get(report, cases[i][1]);
        assert_true(json_is_null(json_object_get(report, cases[i][2])));
        assert_string_equal(json_string_value(json_object_get(kind, "path")), cases[i][0]);
        expect_phases(kind, cases[i][3]);
        expect_bytes(kind, 20 * 5000, i == 0 ? 20 * 5000 : 40 * 5000);
        json_decref(report);
    }
}

/* Large ones are offered before they are staged: their stage was once told in hours. */
static void test_perf_transfer_of_what_is_offered_early_has_all_times(void **state)
{
    (void)state;
    PERF_OK("--bytes=1048576", "--net=shm", "--json", "--path=lend");
    json_t *report = expect_json();
    expect_phases(json_object_get(report, "view"), " stage offer ready load release ");
    json_decref(report);
}

static void test_perf_transfer_path_that_cannot_be_had_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const char *net;
        const char *memory;
        const char *text;
    } cases[] = {
        {"lend", "ucx", "shared", "sender: UNSUPPORTED: send.path is LEND, but peer "},
        {"pull", "ucx", "shared", "--path is pull, and the library took the path UCX messages: with --net ucx and --mem shared "
                                  "there is no other\n"},
        {"lend", "auto", "host", "--path is lend, and the library took the path "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        PERF_OK("--bytes=5000", "--path", cases[i].path, "--net", cases[i].net, "--mem", cases[i].memory);
        expect_refusal(cases[i].text);
    }
}

static void test_perf_transfer_of_nothing_has_no_speed(void **state)
{
    (void)state;
    PERF_OK("--bytes=0", "--tensors=3");
    assert_int_equal(output.code, 0);
    assert_non_null(strstr(output.out, "transfer of 0 B as 3 tensors, path auto, net auto, memory shared, 20 rounds"));
    assert_non_null(strstr(output.out, "\n  view: 0.00 GB/s by "));
}

static void test_perf_transfer_text_has_all_rows(void **state)
{
    (void)state;
    static const char *const rows[] = {"\n             view p50, us    p99, us  copy p50, us    p99, us\n",
                                       "\n  hand-over  ",
                                       "\n  stage      ",
                                       "\n  reserve               -          -             -          -   sender",
                                       "\n  push       ",
                                       "\n  offer      ",
                                       "\n  ready      ",
                                       "\n  load       ",
                                       "\n  release    ",
                                       " GB/s by lend; 1.31 MB asked, 1.31 MB moved (copied by both sides)\n",
                                       " GB/s by pull; 1.31 MB asked, 2.62 MB moved (copied by both sides)\n",
                                       "\n  plugin release "};
    PERF_OK("--bytes=65536");
    assert_int_equal(output.code, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strstr(output.out, rows[i]) == NULL) {
            fail_msg("\"%s\" is not in:\n%s", rows[i], output.out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_perf_transfer_wrong_words_are_usage_errors),
        cmocka_unit_test(test_perf_transfer_help_has_all_options),
        cmocka_unit_test(test_perf_transfer_parts_add_up),
        cmocka_unit_test(test_perf_transfer_forced_path_must_be_the_one_taken),
        cmocka_unit_test(test_perf_transfer_phases_are_those_of_the_statistics),
        cmocka_unit_test(test_perf_transfer_of_what_is_offered_early_has_all_times),
        cmocka_unit_test(test_perf_transfer_path_that_cannot_be_had_is_told),
        cmocka_unit_test(test_perf_transfer_path_must_be_on_the_net_that_was_asked_for),
        cmocka_unit_test(test_perf_transfer_refusals_come_with_the_librarys_words),
        cmocka_unit_test(test_perf_transfer_without_cuda_says_what_is_missing),
        cmocka_unit_test(test_perf_transfer_between_pools_of_device_memory),
        cmocka_unit_test(test_perf_transfer_deadline_ends_the_measurement),
        cmocka_unit_test(test_perf_transfer_interrupt_ends_the_measurement),
        cmocka_unit_test(test_perf_transfer_json_has_the_promised_keys),
        cmocka_unit_test(test_perf_transfer_forced_paths_are_the_ones_taken),
        cmocka_unit_test(test_perf_transfer_of_nothing_has_no_speed),
        cmocka_unit_test(test_perf_transfer_text_has_all_rows),
    };
    return cmocka_run_group_tests_name("perf_transfer", tests, NULL, NULL);
}
