/* SPDX-License-Identifier: Apache-2.0 */
#include "core/error.h"
#include "net/ucx.h"
#include "tests/lib/expect.h"
#include "tests/lib/ucx_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Runs with stdout and stderr in a file; fails if anything was written. */
static void refuse_silently(const char *name, const char *value, const char *const *parts)
{
    int sink = memfd_create("sink", MFD_CLOEXEC);
    int out = dup(1);
    int err = dup(2);
    (void)setenv(name, value, 1);
    (void)fflush(NULL);
    EXPECT(dup2(sink, 1) == 1 && dup2(sink, 2) == 2);
    ucx_case_refuse(NULL, parts);
    (void)fflush(NULL);
    EXPECT(dup2(out, 1) == 1 && dup2(err, 2) == 2);
    (void)unsetenv(name);
    EXPECT_EQUAL(lseek(sink, 0, SEEK_END), 0);
}

static void odd_environment(const struct rank *rank, void *argument)
{
    (void)rank;
    (void)argument;
    refuse_silently("UCX_TLS", "rc_x", (const char *const[]){"TLS=\"rc_x\" (UCX_*)", "available here", "tcp/lo", NULL});
    refuse_silently("UCX_TLS", "", (const char *const[]){"TLS=\"\" (UCX_*)", "tcp/lo", NULL});
    refuse_silently("UCX_NET_DEVICES", "nosuch0",
                    (const char *const[]){"NET_DEVICES=\"nosuch0\" (UCX_*)", "tcp/lo", NULL});
}

/* openucx/ucx 2953, 9610, PR 4793: what is not here is an error that lists what is, and nothing is printed. */
static void test_ucx_environment_naming_what_is_not_here_is_refused_silently(void **state)
{
    (void)state;
    ucx_case_run(odd_environment);
}

static void expect_setting(struct convoy_runtime *runtime, const char *name, const char *value, const char *source)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    EXPECT_OK(convoy_ucx_probe(runtime, &error), &error);
    json_t *all = convoy_ucx_describe(runtime);
    const json_t *row = json_object_get(json_object_get(all, "settings"), name);
    EXPECT(strcmp(json_string_value(json_object_get(row, "value")), value) == 0);
    EXPECT(strcmp(json_string_value(json_object_get(row, "source")), source) == 0);
    EXPECT(json_is_true(json_object_get(row, "read_back")));
    json_decref(all);
    convoy_runtime_destroy(runtime);
}

static void precedence(const struct rank *rank, void *argument)
{
    (void)rank;
    (void)argument;
    expect_setting(ucx_case_runtime(NULL), "TLS", "^sm", "convoy default");
    (void)setenv("UCX_TLS", "tcp,self", 1);
    expect_setting(ucx_case_runtime(NULL), "TLS", "tcp,self", "UCX_*");
    (void)setenv("CONVOY_UCX_TLS", "all", 1);
    expect_setting(ucx_case_runtime(NULL), "TLS", "all", "CONVOY_*");
    expect_setting(ucx_case_runtime("{\"ucx_tls\": \"tcp\"}"), "TLS", "tcp", "object");
    expect_setting(ucx_case_runtime("{\"ucx_net_devices\": \"lo\"}"), "NET_DEVICES", "lo", "object");
}

static void test_ucx_settings_come_from_object_then_convoy_then_ucx(void **state)
{
    (void)state;
    ucx_case_run(precedence);
}

static void forced(const struct rank *rank, void *argument)
{
    (void)rank;
    (void)argument;
    (void)setenv("UCX_PROTO_ENABLE", "y", 1);
    (void)setenv("UCX_RNDV_THRESH", "64K", 1);
    expect_setting(ucx_case_runtime(NULL), "PROTO_ENABLE", "n", "convoy default");
    expect_setting(ucx_case_runtime(NULL), "RNDV_THRESH", "64K", "UCX_*");
    (void)unsetenv("UCX_RNDV_THRESH");
    expect_setting(ucx_case_runtime(NULL), "RNDV_THRESH", "inf", "convoy default");
    EXPECT_TEXT(getenv("UCX_PROTO_ENABLE"), "y"); /* the host's environment is the host's */
}

/* Messages that go at once or not at all need the old protocols, whatever the host wants of its own UCX. */
static void test_ucx_new_protocols_stay_off_whatever_the_host_set(void **state)
{
    (void)state;
    ucx_case_run(forced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ucx_environment_naming_what_is_not_here_is_refused_silently),
        cmocka_unit_test(test_ucx_settings_come_from_object_then_convoy_then_ucx),
        cmocka_unit_test(test_ucx_new_protocols_stay_off_whatever_the_host_set),
    };
    return cmocka_run_group_tests_name("ucx_config", tests, NULL, NULL);
}
