/* SPDX-License-Identifier: Apache-2.0 */
/* What users reported about UCX inside a host's process, replayed through the plugin: two copies, other versions,
 * hidden modules, odd environments, signals, lost wake-ups, progress threads that burn a core. Members are processes
 * of one machine that are told to use UCX. */
#include "tests/lib/crowd.h"
#include "tests/lib/describe.h"
#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/scale.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <ucp/api/ucp.h>

#define UCX_SETTINGS "{\"net\":\"ucx\"}"

/* Not opened yet. */
static struct plugin_member *ucx_create(const struct rank *rank, const struct crowd *crowd, const char *settings)
{
    struct plugin_member *member = plugin_member_create(rank->index, rank->count, "ucx", crowd->ports[0]);
    member->config.settings = settings;
    member->config.settings_length = strlen(settings);
    return member;
}

static void ucx_expect_round(struct plugin_member *member)
{
    struct exchange exchange;
    exchange_init(&exchange, 8, CONVOY_STATE_TRANSFERRING);
    EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
    EXPECT_EQUAL(exchange.states_out[7], CONVOY_STATE_TRANSFERRING);
}

/* The open must fail with this status and a text that has both parts. */
static void ucx_expect_refusal(const struct rank *rank, struct plugin_member *member, const char *one,
                               const char *other)
{
    const struct convoy_core_table *core = member->plugin.core;
    EXPECT_OK(core->context_open(&member->config, &member->context, &member->error), &member->error);
    EXPECT_STATUS(core->group_open(member->context, &member->options, &member->group, &member->error),
                  CONVOY_INIT_FAILED, &member->error);
    EXPECT_TEXT(member->error.text, one);
    EXPECT_TEXT(member->error.text, other);
    crowd_close(rank, member);
}

/* Path of a small library that was built with this program. */
static void shim_path(const char *name, char *path_out, size_t bytes)
{
    char own[512];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    EXPECT(length > 0);
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    (void)snprintf(path_out, bytes, "%s/../lib/%s.so", own, name);
}

/* -- a host that has UCX itself ------------------------------------------------------------------------------------ */

typedef ucs_status_t (*init_fn)(unsigned, unsigned, const ucp_params_t *, const ucp_config_t *, ucp_context_h *);
typedef void (*cleanup_fn)(ucp_context_h);

struct host_ucx {
    cleanup_fn cleanup;
    ucp_context_h context;
};

static void host_ucx_init(struct host_ucx *host)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    init_fn init;
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL);
    EXPECT(library != NULL);
    *(void **)&init = dlsym(library, "ucp_init_version");
    *(void **)&host->cleanup = dlsym(library, "ucp_cleanup");
    EXPECT(init != NULL && host->cleanup != NULL);
    EXPECT_EQUAL(init(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &host->context), UCS_OK);
}

static void expect_loaded_by(struct plugin_member *member, const char *who)
{
    json_t *net = describe_context(member, CONVOY_TOPIC_NET);
    EXPECT_TEXT(json_string_value(json_object_get(net, "loaded_by")), who);
    json_decref(net);
}

static void host_first_run(const struct rank *rank, void *crowd)
{
    struct host_ucx host;
    host_ucx_init(&host);
    struct plugin_member *member = ucx_create(rank, crowd, UCX_SETTINGS);
    plugin_member_open(member);
    ucx_expect_round(member);
    expect_loaded_by(member, "host");
    crowd_close(rank, member);
    host.cleanup(host.context);
}

static void plugin_first_run(const struct rank *rank, void *crowd)
{
    struct host_ucx host;
    struct plugin_member *member = ucx_create(rank, crowd, UCX_SETTINGS);
    plugin_member_open(member);
    ucx_expect_round(member);
    host_ucx_init(&host);
    ucx_expect_round(member);
    expect_loaded_by(member, "convoy");
    host.cleanup(host.context);
    ucx_expect_round(member);
    crowd_close(rank, member);
}

static void foreign_names_run(const struct rank *rank, void *crowd)
{
    char path[600];
    shim_path("global_ucp", path, sizeof path);
    EXPECT(dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL);
    ucx_expect_refusal(rank, ucx_create(rank, crowd, UCX_SETTINGS), "two copies of UCX", "global_ucp.so");
}

/* ai-dynamo/nixl issue 1668, PR 1673: the host loaded UCX first and has a context, or does so later: one copy, both
 * work. A library that exports a few names of UCX is refused by name. */
static void test_reports_plugin_hosts_own_ucx_is_shared_and_a_false_one_refused(void **state)
{
    (void)state;
    crowd_run(2, host_first_run, 0);
    crowd_run(2, plugin_first_run, 0);
    crowd_run(2, foreign_names_run, 0);
}

static void old_version_run(const struct rank *rank, void *crowd)
{
    char path[600];
    char settings[700];
    shim_path("old_ucp", path, sizeof path);
    (void)snprintf(settings, sizeof settings, "{\"net\":\"ucx\",\"ucx_library\":\"%s\"}", path);
    ucx_expect_refusal(rank, ucx_create(rank, crowd, settings), "1.12.1", "1.13");
}

/* ai-dynamo/nixl issues 386 and 166, sgl-project/sglang issue 5709: an older UCX comes first: refused, with both
 * versions. */
static void test_reports_plugin_older_ucx_is_refused_with_both_versions(void **state)
{
    (void)state;
    crowd_run(2, old_version_run, 0);
}

static void hidden_modules_run(const struct rank *rank, void *crowd)
{
    EXPECT_EQUAL(setenv("UCX_MODULE_DIR", "/nowhere", 1), 0);
    struct plugin_member *member = ucx_create(rank, crowd, UCX_SETTINGS);
    plugin_member_open(member);
    ucx_expect_round(member);
    json_t *net = describe_context(member, CONVOY_TOPIC_NET);
    char *transports = json_dumps(json_object_get(net, "transports"), 0);
    EXPECT(transports != NULL);
    EXPECT_TEXT(transports, "\"tcp\"");
    EXPECT(strstr(transports, "cma") == NULL && strstr(transports, "rc_") == NULL);
    free(transports);
    json_decref(net);
    crowd_close(rank, member);
}

/* openucx/ucx issue 8092: UCX came in with local scope and its modules are not found: what is left works, and is
 * listed. */
static void test_reports_plugin_hidden_modules_leave_what_is_built_in(void **state)
{
    (void)state;
    crowd_run(2, hidden_modules_run, 0);
}

/* -- environments ------------------------------------------------------------------------------------------------ */

struct odd_environment {
    const char *name;
    const char *value;
};

static int quiet_stderr(void)
{
    int fd = memfd_create("stderr", MFD_CLOEXEC);
    int old = dup(STDERR_FILENO);
    EXPECT(fd >= 0 && old >= 0);
    EXPECT_EQUAL(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    (void)close(fd);
    return old;
}

static void environment_run(const struct rank *rank, const struct crowd *crowd, const struct odd_environment *odd)
{
    struct stat written;
    int old = quiet_stderr();
    EXPECT_EQUAL(setenv(odd->name, odd->value, 1), 0);
    ucx_expect_refusal(rank, ucx_create(rank, crowd, UCX_SETTINGS), odd->value, "tcp");
    EXPECT_EQUAL(fstat(STDERR_FILENO, &written), 0);
    (void)dup2(old, STDERR_FILENO);
    EXPECT_EQUAL(written.st_size, 0);
    EXPECT_TEXT(getenv(odd->name), odd->value); /* the host's environment is as it was */
}

static void no_transport_run(const struct rank *rank, void *crowd)
{
    environment_run(rank, crowd, &(const struct odd_environment){"UCX_TLS", "rc_x"});
}

static void empty_list_run(const struct rank *rank, void *crowd)
{
    environment_run(rank, crowd, &(const struct odd_environment){"UCX_TLS", ""});
}

static void no_device_run(const struct rank *rank, void *crowd)
{
    environment_run(rank, crowd, &(const struct odd_environment){"UCX_NET_DEVICES", "nosuch0"});
}

/* openucx/ucx issues 2953 and 9610, PR 4793: the host's environment names what does not exist here: an error that
 * has the value and lists what is there, nothing on stderr. */
static void test_reports_plugin_environment_naming_nothing_here_is_a_clear_error(void **state)
{
    (void)state;
    crowd_run(2, no_transport_run, 0);
    crowd_run(2, empty_list_run, 0);
    crowd_run(2, no_device_run, 0);
}

/* -- signals ------------------------------------------------------------------------------------------------------ */

static sigjmp_buf segv_back;

static void segv_handler(int signal_number)
{
    siglongjmp(segv_back, signal_number);
}

static void signals_read(struct sigaction actions[NSIG])
{
    for (int i = 1; i < NSIG; i++) {
        (void)sigaction(i, NULL, &actions[i]);
    }
}

static void signals_expect(const struct sigaction before[NSIG])
{
    struct sigaction after[NSIG];
    signals_read(after);
    for (int i = 1; i < NSIG; i++) {
        if (i == 32 || i == 33) { /* the C library's own: not to be read */
            continue;
        }
        EXPECT(after[i].sa_handler == before[i].sa_handler);
        EXPECT_EQUAL(after[i].sa_flags, before[i].sa_flags);
        EXPECT_BYTES(&after[i].sa_mask, &before[i].sa_mask, 8); /* what the kernel fills of it */
    }
}

static void signals_run(const struct rank *rank, void *crowd)
{
    struct sigaction before[NSIG];
    const struct sigaction own = {.sa_handler = segv_handler};
    sigset_t mask_before;
    sigset_t mask_after;
    EXPECT_EQUAL(sigaction(SIGSEGV, &own, NULL), 0);
    signals_read(before);
    EXPECT_EQUAL(sigprocmask(SIG_BLOCK, NULL, &mask_before), 0);
    struct plugin_member *member = ucx_create(rank, crowd, UCX_SETTINGS);
    plugin_member_open(member);
    ucx_expect_round(member);
    signals_expect(before);
    int caught = sigsetjmp(segv_back, 1);
    if (caught == 0) {
        (void)raise(SIGSEGV);
    }
    EXPECT_EQUAL(caught, SIGSEGV);
    ucx_expect_round(member);
    crowd_close(rank, member);
    signals_expect(before);
    EXPECT_EQUAL(sigprocmask(SIG_BLOCK, NULL, &mask_after), 0);
    EXPECT_BYTES(&mask_after, &mask_before, sizeof mask_before);
}

/* openucx/ucx issue 3337, bytedance/byteps PR 424: dispositions and mask are the host's after open, use and close,
 * and its own handler of SIGSEGV runs. */
static void test_reports_plugin_signals_stay_the_hosts(void **state)
{
    (void)state;
    crowd_run(2, signals_run, 0);
}

/* -- wake-ups and idling ---------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Rank 1 comes late by a random gap (its own business, nothing is ordered by it); rank 0 sleeps until it is woken. */
static void wakeup_run(const struct rank *rank, void *crowd)
{
    uint32_t never = 0;
    uint64_t random = 99;
    struct plugin_member *member = ucx_create(rank, crowd, "{\"net\":\"ucx\",\"yield_us\":0,\"spin_pauses\":0}");
    plugin_member_open(member);
    for (uint32_t i = 0; i < test_scaled(300, 1000000); i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (rank->index == 1 && random >> 60 < 4) {
            (void)ranks_futex_wait(&never, 0, 1 + (uint32_t)(random >> 40) % 8);
        }
        uint64_t started = now_ns();
        ucx_expect_round(member);
        EXPECT(now_ns() - started < 2000000000u); /* lost events cost users up to 20 s */
    }
    crowd_close(rank, member);
}

/* openucx/ucx issues 1492, 934 and 7864, rapidsai/ucxx issue 15: in wake-up mode no event is lost. */
static void test_reports_plugin_sleeping_member_misses_no_wakeup(void **state)
{
    (void)state;
    crowd_run(2, wakeup_run, 0);
}

static uint64_t used_us(struct rusage *usage)
{
    (void)getrusage(RUSAGE_SELF, usage);
    return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000u +
           (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

static void idle_run(const struct rank *rank, void *crowd)
{
    const uint32_t idle_ms = test_scaled(1000, 30000);
    uint32_t never = 0;
    struct rusage usage;
    struct plugin_member *member = ucx_create(rank, crowd, UCX_SETTINGS);
    plugin_member_open(member);
    ucx_expect_round(member);
    rank_barrier(rank);
    uint64_t before_us = used_us(&usage);
    long wakeups = usage.ru_nvcsw;
    (void)ranks_futex_wait(&never, 0, idle_ms);
    EXPECT(used_us(&usage) - before_us < idle_ms * 20u); /* 2 % of one core */
    EXPECT(usage.ru_nvcsw - wakeups < 100);
    rank_barrier(rank);
    uint64_t started = now_ns();
    ucx_expect_round(member);
    EXPECT(now_ns() - started < 2000000000u);
    crowd_close(rank, member);
}

/* openucx/ucx issue 8914, ai-dynamo/nixl PR 297: eight idle members sleep, and the first call afterwards is quick. */
static void test_reports_plugin_idle_members_sleep(void **state)
{
    (void)state;
    crowd_run(8, idle_run, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_plugin_hosts_own_ucx_is_shared_and_a_false_one_refused),
        cmocka_unit_test(test_reports_plugin_older_ucx_is_refused_with_both_versions),
        cmocka_unit_test(test_reports_plugin_hidden_modules_leave_what_is_built_in),
        cmocka_unit_test(test_reports_plugin_environment_naming_nothing_here_is_a_clear_error),
        cmocka_unit_test(test_reports_plugin_signals_stay_the_hosts),
        cmocka_unit_test(test_reports_plugin_sleeping_member_misses_no_wakeup),
        cmocka_unit_test(test_reports_plugin_idle_members_sleep),
    };
    return cmocka_run_group_tests_name("reports_plugin", tests, NULL, NULL);
}
