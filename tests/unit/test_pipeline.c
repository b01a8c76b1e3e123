/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline from its options to its verdict: real processes with the library that was built. The last line says what
 * came of it, and the exit code says the same.
 */
#include "cli/pipeline.h"
#include "cli/pipeline_role.h"
#include "cli/safetensors.h"
#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/plugin.h"

#include <signal.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cli_capture.h"
#include "fake_ip.h"

#include <cmocka.h>

#define REQUESTS 6u

static struct cli_output output;
static struct convoy_trace_request requests[REQUESTS] = {{0, 10, 1}, {20, 0, 2}, {40, 500, 3},
                                                         {40, 1, 4}, {60, 9, 5}, {3600000, 17000, 6}};
static const struct convoy_trace trace = {.requests = requests, .count = REQUESTS};
static struct convoy_pipeline_options options;

static int prepare(void **state)
{
    options = (struct convoy_pipeline_options){
        .shape = {{1, 2, 1}},
        .requests = 100,
        .hosts = 1,
        .plugin = plugin_path(),
        .out = *state,
        .trace = &trace,
        .timeout_ns = 5 * CONVOY_NS_PER_S,
    };
    return 0;
}

static int run_options_now(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return convoy_pipeline_run(&options);
}

static void run(void)
{
    CLI_RUN(&output, run_options_now, "pipeline");
}

static void expect_out(const char *part)
{
    if (strstr(output.out, part) == NULL) {
        fail_msg("\"%s\" is not in:\n%s\nand stderr is:\n%s", part, output.out, output.err);
    }
}

static void expect_err(const char *part)
{
    if (strstr(output.err, part) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", part, output.err);
    }
}

static void test_pipeline_carries_every_tensor_of_every_request(void **state)
{
    struct convoy_safetensors_difference differences[CONVOY_SAFETENSORS_KINDS];
    struct convoy_safetensors sent = {0};
    struct convoy_safetensors came = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    char path[PLUGIN_FILE_PATH_BYTES];
    run();
    assert_string_equal(output.err, "");
    assert_int_equal(output.code, 0);
    expect_out("\npipeline: 6 requests through 1 encoder -> 2 denoisers -> 1 decoder on 1 host, tensors of /tmp/");
    expect_out("  leaks: 0 in 4 pools at the end (0 bytes quarantined); ");
    expect_out("\npipeline passed: every tensor of 6 requests equals ");
    folder_path(state, "in.safetensors", path);
    assert_int_equal(convoy_safetensors_read(&sent, path, &error), CONVOY_OK);
    folder_path(state, "out.safetensors", path);
    assert_int_equal(convoy_safetensors_read(&came, path, &error), CONVOY_OK);
    assert_true(convoy_safetensors_compare(&sent, &came, differences));
    convoy_safetensors_fini(&sent);
    convoy_safetensors_fini(&came);
}

static void test_pipeline_of_other_shapes_passes(void **state)
{
    (void)state;
    static const struct convoy_pipeline_shape shapes[] = {{{1, 1, 1}}, {{2, 1, 2}}, {{2, 3, 2}}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        options.shape = shapes[i];
        options.requests = 4;
        run();
        assert_int_equal(output.code, 0);
        expect_out("\npipeline passed: every tensor of 4 requests ");
    }
}

static void test_pipeline_trace_events_are_of_all_members(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    folder_path(state, "trace.json", path);
    options.trace_out = path;
    options.requests = 3;
    run();
    assert_int_equal(output.code, 0);
    expect_out(" trace events in ");
    expect_out(", of the last 256 transfers of each process\n");
    struct file_bytes text = file_read(path);
    text.bytes[text.size] = '\0';
    static const char *const parts[] = {"encoder 0", "denoiser 0", "denoiser 1", "decoder 0", "request-2"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        assert_non_null(strstr((const char *)text.bytes, parts[i]));
    }
    free(text.bytes);
}

static void test_pipeline_that_cannot_begin_says_why(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    folder_path(state, "no.safetensors", path);
    file_write(path, "nonsense", 8);
    options.tensors = path;
    run();
    assert_int_equal(output.code, 1);
    expect_err("convoy run: ");
    expect_err("no.safetensors");
    options.tensors = "/nowhere/it.safetensors";
    run();
    assert_int_equal(output.code, 1);
    expect_err("/nowhere/it.safetensors");
    assert_string_equal(output.out, "");
}

static void test_pipeline_whose_roles_cannot_open_the_plugin_fails(void **state)
{
    (void)state;
    char path[PLUGIN_FILE_PATH_BYTES];
    plugin_file("no_entry", path);
    options.plugin = path;
    run();
    assert_int_equal(output.code, 1);
    expect_out(": failed after 0 requests, NO_ENTRY: ");
    expect_out("no_entry.so: it has convoy's note but no function convoy_query");
    expect_out("\npipeline FAILED: ");
    expect_out(", not known of 4 pools; ");
}

/* The last request comes an hour later. */
static void test_pipeline_stops_at_its_deadline(void **state)
{
    (void)state;
    options.speed = 1;
    options.deadline_s = 1;
    run();
    assert_int_equal(output.code, 1);
    expect_out("pipeline FAILED: "); /* by the parent's clock or by that of a role */
    if (strstr(output.out, " connecting to ") == NULL) { /* else the machine is so busy that they had not met by then */
        expect_out(" in time");
    }
}

/* The signal waits, blocked, until the command listens for it. */
static void test_pipeline_stops_when_it_is_interrupted(void **state)
{
    (void)state;
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    assert_int_equal(raise(SIGINT), 0);
    options.speed = 1;
    run();
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &set, NULL), 0);
    assert_int_equal(output.code, 1);
    expect_out("\npipeline FAILED: it was interrupted\n");
}

/* With a pretended ip command no role ever starts, but where each was to start is written down. */
static void test_pipeline_on_two_hosts_puts_roles_into_namespaces(void **state)
{
    static char log[16384];
    static const char *const wanted[] = {"-0 /", "-0 /", "-1 /", "-1 /"};
    fake_ip_install(*state);
    fake_ip_reset(*state, NULL, NULL);
    options.hosts = 2;
    run();
    fake_ip_log(*state, log, sizeof log);
    fake_ip_remove();
    assert_int_equal(output.code, 1);
    expect_out(" on 2 hosts, ");
    expect_out("encoder 0: ended without a word");
    for (uint32_t i = 0; i < 4; i++) {
        char member[32];
        (void)snprintf(member, sizeof member, " --member %u\n", i);
        char *end = strstr(log, member);
        assert_non_null(end);
        *end = '\0';
        char *line = strrchr(log, '\n') != NULL ? strrchr(log, '\n') : log;
        assert_non_null(strstr(line, "netns exec convoy-"));
        assert_non_null(strstr(line, wanted[i]));
        assert_non_null(strstr(line, " pipeline-role --board "));
        *end = ' ';
    }
    assert_non_null(strstr(log, "netns del convoy-"));
}

/* -- one role as a command ------------------------------------------------------------------------------------------ */

static void test_pipeline_role_is_no_command_for_users(void **state)
{
    (void)state;
    CLI_RUN(&output, convoy_cli_pipeline_role, "--member=0");
    assert_int_equal(output.code, 2);
    expect_err("convoy pipeline-role is started by convoy run.");
    CLI_RUN(&output, convoy_cli_pipeline_role, "--board=0", "--member=64");
    assert_int_equal(output.code, 2);
    CLI_RUN(&output, convoy_cli_pipeline_role, "--board=1023", "--member=0");
    assert_int_equal(output.code, 1);
    expect_err("looking at descriptor 1023");
}

static void test_pipeline_role_of_a_member_that_is_not_there_is_refused(void **state)
{
    (void)state;
    char file[24];
    struct convoy_pipeline_board *board = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_pipeline_board_create(&options.shape, 1, &board, &error), CONVOY_OK);
    (void)snprintf(file, sizeof file, "--board=%d", board->file);
    CLI_RUN(&output, convoy_cli_pipeline_role, file, "--member=4");
    assert_int_equal(output.code, 1);
    expect_err("--member is 4: must be below 4");
    convoy_pipeline_board_destroy(board);
}

/* Its engine opens, and then it waits for members that nobody started. */
static void test_pipeline_role_names_who_is_not_there(void **state)
{
    char file[24];
    struct convoy_pipeline_board *board = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_pipeline_board_create(&options.shape, 1, &board, &error), CONVOY_OK);
    (void)snprintf(board->setup.plugin, sizeof board->setup.plugin, "%s", plugin_path());
    (void)snprintf(board->setup.folder, sizeof board->setup.folder, "%s", (const char *)*state);
    board->setup.hosts = 1;
    board->setup.window = 1;
    board->setup.pool_bytes = 1u << 24;
    board->setup.timeout_ns = CONVOY_NS_PER_S;
    board->setup.deadline_ns = convoy_now_ns() + 300 * CONVOY_NS_PER_MS;
    (void)snprintf(file, sizeof file, "--board=%d", board->file);
    CLI_RUN(&output, convoy_cli_pipeline_role, file, "--member=1");
    assert_int_equal(output.code, 1);
    const struct convoy_pipeline_member *member = &board->members[1];
    assert_int_equal(member->outcome, CONVOY_PIPELINE_FAILED);
    assert_int_equal(member->error.status, CONVOY_TIMED_OUT);
    assert_string_equal(member->error.text, "encoder 0 did not come to listen in time");
    assert_int_equal(atomic_load(&member->phase), CONVOY_PIPELINE_ENDED);
    assert_int_equal(atomic_load(&board->is_stop_wanted), 1);
    assert_int_not_equal(strlen(member->session), 0);
    convoy_pipeline_board_destroy(board);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup(function, prepare)
    const struct CMUnitTest tests[] = {
        CASE(test_pipeline_carries_every_tensor_of_every_request),
        CASE(test_pipeline_of_other_shapes_passes),
        CASE(test_pipeline_trace_events_are_of_all_members),
        CASE(test_pipeline_that_cannot_begin_says_why),
        CASE(test_pipeline_whose_roles_cannot_open_the_plugin_fails),
        CASE(test_pipeline_stops_at_its_deadline),
        CASE(test_pipeline_stops_when_it_is_interrupted),
        CASE(test_pipeline_on_two_hosts_puts_roles_into_namespaces),
        CASE(test_pipeline_role_is_no_command_for_users),
        CASE(test_pipeline_role_of_a_member_that_is_not_there_is_refused),
        CASE(test_pipeline_role_names_who_is_not_there),
    };
    return cmocka_run_group_tests_name("pipeline", tests, folder_setup, folder_teardown);
}
