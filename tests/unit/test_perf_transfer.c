/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy perf transfer`: what is refused, by whom, and what is printed of what was measured. */
#include "cli/perf.h"
#include "cli/perf_memory.h"
#include "cli/perf_transfer_load.h"
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

static void expect_quantiles(const json_t *kind, const char *name)
{
    const json_t *quantiles = json_object_get(kind, name);
    json_int_t median = json_integer_value(json_object_get(quantiles, "median"));
    assert_true(json_is_object(quantiles));
    assert_true(median <= json_integer_value(json_object_get(quantiles, "p99")));
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
        expect_quantiles(kind, "stage_ns");
        expect_quantiles(kind, "load_ns");
        expect_quantiles(kind, "hand_over_ns");
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
    static const char *const paths[] = {"push", "pull"};
    for (size_t i = 0; i < 2; i++) {
        PERF_OK("--bytes=5000", "--net=shm", "--json", "--path", paths[i]);
        json_t *report = expect_json();
        assert_true(json_is_null(json_object_get(report, "view")));
        assert_string_equal(json_string_value(json_object_get(json_object_get(report, "copy"), "path")), paths[i]);
        json_decref(report);
    }
}

static void test_perf_transfer_of_nothing_has_no_speed(void **state)
{
    (void)state;
    PERF_OK("--bytes=0", "--tensors=3");
    assert_int_equal(output.code, 0);
    assert_non_null(strstr(output.out, "transfer of 0 B as 3 tensors, path auto, net auto, memory shared, 20 rounds"));
    assert_non_null(strstr(output.out, "   0.00 GB/s by "));
}

static void test_perf_transfer_text_has_all_rows(void **state)
{
    (void)state;
    static const char *const rows[] = {"\n  stage     view   median ", "\n  load      view   median ",
                                       "\n  hand-over view   median ", "\n  stage     copy   median ",
                                       "\n  hand-over copy   median ", " GB/s by lend\n", "\n  plugin release "};
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
