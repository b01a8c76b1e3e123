/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pair of network namespaces of `convoy perf --hosts 2`: which `ip` commands make and remove it, what is cleaned up
 * when one of them fails, and once for real where this machine allows it.
 */
#include "cli/two_hosts.h"
#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cli_capture.h"
#include "fake_ip.h"

#include <cmocka.h>

static struct convoy_two_hosts hosts;

static int setup(void **state)
{
    int result = folder_setup(state);
    fake_ip_install(*state);
    return result;
}

static int teardown(void **state)
{
    fake_ip_remove();
    return folder_teardown(state);
}

static void expect_log(const char *folder, const char *format)
{
    char wanted[2048];
    char log[2048];
    size_t length = 0;
    for (const char *at = format; *at != '\0' && length < sizeof wanted - 32; at++) { /* P stands for the number */
        length += (size_t)(*at == 'P' ? snprintf(wanted + length, 16, "%d", (int)getpid())
                                      : snprintf(wanted + length, 2, "%c", *at));
    }
    fake_ip_log(folder, log, sizeof log);
    assert_string_equal(log, wanted);
}

#define LOG_NAMESPACES "netns add convoy-P-0\nnetns add convoy-P-1\n"
#define LOG_LINK "link add convoy0 netns convoy-P-0 type veth peer name convoy1 netns convoy-P-1\n"
#define LOG_FIRST                                                                                                      \
    "-n convoy-P-0 addr add 10.231.77.1/30 dev convoy0\n-n convoy-P-0 link set convoy0 up\n"                           \
    "-n convoy-P-0 link set lo up\n"
#define LOG_SECOND                                                                                                     \
    "-n convoy-P-1 addr add 10.231.77.2/30 dev convoy1\n-n convoy-P-1 link set convoy1 up\n"                           \
    "-n convoy-P-1 link set lo up\n"
#define LOG_CARRIER_0 "netns exec convoy-P-0 grep -qx up /sys/class/net/convoy0/operstate\n"
#define LOG_CARRIER_1 "netns exec convoy-P-1 grep -qx up /sys/class/net/convoy1/operstate\n"
#define LOG_REMOVED "netns del convoy-P-0\nnetns del convoy-P-1\n"

static void test_two_hosts_are_made_and_removed_by_these_commands(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    fake_ip_reset(*state, NULL, NULL);
    assert_int_equal(convoy_two_hosts_open(&hosts, &error), CONVOY_OK);
    assert_true(hosts.exists[0] && hosts.exists[1]);
    expect_log(*state, LOG_NAMESPACES LOG_LINK LOG_FIRST LOG_SECOND LOG_CARRIER_0 LOG_CARRIER_1);
    fake_ip_reset(*state, NULL, NULL);
    convoy_two_hosts_close(&hosts);
    convoy_two_hosts_close(&hosts); /* nothing is left to remove */
    assert_false(hosts.exists[0] || hosts.exists[1]);
    expect_log(*state, LOG_REMOVED);
}

static void test_two_hosts_wait_for_a_late_carrier(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    fake_ip_reset(*state, NULL, "*convoy1/operstate");
    assert_int_equal(convoy_two_hosts_open(&hosts, &error), CONVOY_OK);
    expect_log(*state,
               LOG_NAMESPACES LOG_LINK LOG_FIRST LOG_SECOND LOG_CARRIER_0 LOG_CARRIER_1 LOG_CARRIER_1);
    convoy_two_hosts_close(&hosts);
}

static void test_two_hosts_failed_step_is_named_and_leaves_nothing(void **state)
{
    static const struct {
        const char *fail;
        const char *text;
        const char *log;
    } cases[] = {
        {"netns add *", "\"ip netns add convoy-", "netns add convoy-P-0\n"},
        {"netns add *-1", "-1\" failed (two hosts need root)", LOG_NAMESPACES "netns del convoy-P-0\n"},
        {"* type veth *", "\"ip link add convoy0 netns convoy-", LOG_NAMESPACES LOG_LINK LOG_REMOVED},
        {"*convoy0 up", "link set convoy0 up\" failed (two hosts need root)",
         LOG_NAMESPACES LOG_LINK "-n convoy-P-0 addr add 10.231.77.1/30 dev convoy0\n"
                                 "-n convoy-P-0 link set convoy0 up\n" LOG_REMOVED},
        {"*77.2/30*", "addr add 10.231.77.2/30 dev convoy1\" failed (two hosts need root)",
         LOG_NAMESPACES LOG_LINK LOG_FIRST "-n convoy-P-1 addr add 10.231.77.2/30 dev convoy1\n" LOG_REMOVED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        fake_ip_reset(*state, cases[i].fail, NULL);
        assert_int_equal(convoy_two_hosts_open(&hosts, &error), CONVOY_SYSTEM);
        assert_non_null(strstr(error.text, cases[i].text));
        assert_false(hosts.exists[0] || hosts.exists[1]);
        expect_log(*state, cases[i].log);
    }
}

static void test_two_hosts_without_the_ip_command_name_its_package(void **state)
{
    char path[8192];
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)snprintf(path, sizeof path, "%s", getenv("PATH"));
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    int32_t status = convoy_two_hosts_open(&hosts, &error);
    assert_int_equal(setenv("PATH", path, 1), 0);
    assert_int_equal(status, CONVOY_SYSTEM);
    assert_int_equal(strncmp(error.text, "starting ip (package iproute2)", 30), 0);
    assert_int_equal(error.sys_errno, 2);
    assert_false(hosts.exists[0]);
    (void)state;
}

static int open_for_real(int argc, char **argv)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)argc;
    (void)argv;
    return convoy_two_hosts_open(&hosts, &error);
}

static void test_two_hosts_reach_each_other(void **state)
{
    (void)state;
    static struct cli_output output;
    char command[128];
    fake_ip_remove();
    cli_run(&output, open_for_real, (const char *const[]){"open", NULL});
    if (output.code != CONVOY_OK) {
        print_message("skipped: network namespaces cannot be made here (root, iproute2, veth)\n");
        skip();
    }
    (void)snprintf(command, sizeof command, "ip -n %s route get 10.231.77.2 | grep -q 'dev convoy0 src 10.231.77.1'",
                   hosts.names[0]);
    int route = system(command);
    convoy_two_hosts_close(&hosts);
    assert_int_equal(route, 0);
    (void)snprintf(command, sizeof command, "ip netns list | grep -q '^%s'", hosts.names[0]);
    assert_int_not_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_hosts_are_made_and_removed_by_these_commands),
        cmocka_unit_test(test_two_hosts_wait_for_a_late_carrier),
        cmocka_unit_test(test_two_hosts_failed_step_is_named_and_leaves_nothing),
        cmocka_unit_test(test_two_hosts_without_the_ip_command_name_its_package),
        cmocka_unit_test(test_two_hosts_reach_each_other), /* last: it takes the pretended command away */
    };
    return cmocka_run_group_tests_name("two_hosts", tests, setup, teardown);
}
