/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `convoy doctor` finds out about this process and machine, against what this test finds by itself; and what it
 * says where the system refuses something, which limits set here make it do.
 */
#include "cli/doctor.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool is_unlimited;

/* Stands before the C library's: not every machine lets a test lift its limits. */
int getrlimit(__rlimit_resource_t resource, struct rlimit *limits)
{
    if (is_unlimited) {
        *limits = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
        return 0;
    }
    return prlimit(0, resource, NULL, limits);
}

static json_int_t number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value)) {
        fail_msg("%s is no number", name);
    }
    return json_integer_value(value);
}

static bool flag(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_boolean(value)) {
        fail_msg("%s is no flag", name);
    }
    return json_is_true(value);
}

static const char *text(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));
    if (value == NULL) {
        fail_msg("%s is no text", name);
    }
    return value;
}

static bool is_null(const json_t *object, const char *name)
{
    return json_is_null(json_object_get(object, name));
}

/* Lowers the soft limit while something is looked at; the test must put it back before it checks anything. */
static struct rlimit limit_lower(int resource, rlim_t value)
{
    struct rlimit before;
    assert_int_equal(getrlimit(resource, &before), 0);
    const struct rlimit lower = {.rlim_cur = value, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(resource, &lower), 0);
    return before;
}

static void test_doctor_system_shared_memory_is_that_of_dev_shm(void **state)
{
    (void)state;
    struct statvfs shm;
    json_t *memory = convoy_doctor_shared_memory();
    assert_non_null(memory);
    assert_true(flag(memory, "memfd"));
    assert_true(is_null(memory, "error"));
    if (statvfs("/dev/shm", &shm) == 0) {
        assert_int_equal(number(memory, "shm_bytes"), shm.f_blocks * shm.f_frsize);
        assert_true(number(memory, "shm_free_bytes") <= number(memory, "shm_bytes"));
    } else {
        assert_true(is_null(memory, "shm_bytes") && is_null(memory, "shm_free_bytes"));
    }
    json_decref(memory);
}

static void test_doctor_system_memfd_that_is_refused_has_its_reason(void **state)
{
    (void)state;
    struct rlimit before = limit_lower(RLIMIT_NOFILE, 0);
    json_t *memory = convoy_doctor_shared_memory();
    (void)setrlimit(RLIMIT_NOFILE, &before);
    assert_false(flag(memory, "memfd"));
    assert_string_equal(text(memory, "error"), strerror(EMFILE));
    json_decref(memory);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    before = limit_lower(RLIMIT_FSIZE, 0);
    memory = convoy_doctor_shared_memory();
    (void)setrlimit(RLIMIT_FSIZE, &before);
    (void)signal(SIGXFSZ, handler);
    assert_false(flag(memory, "memfd"));
    assert_string_equal(text(memory, "error"), strerror(EFBIG));
    json_decref(memory);
}

/* Whether a process may read another depends on the machine; what is said must fit together. */
static void test_doctor_system_process_vm_says_why_not(void **state)
{
    (void)state;
    json_t *vm = convoy_doctor_process_vm();
    assert_non_null(vm);
    assert_int_equal(is_null(vm, "error"), flag(vm, "of_child") && flag(vm, "of_other"));
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    if (file != NULL) {
        assert_int_equal(number(vm, "ptrace_scope"), fgetc(file) - '0');
        (void)fclose(file);
    } else {
        assert_true(is_null(vm, "ptrace_scope"));
    }
    json_decref(vm);
    struct rlimit before = limit_lower(RLIMIT_NOFILE, 0);
    vm = convoy_doctor_process_vm();
    (void)setrlimit(RLIMIT_NOFILE, &before);
    assert_false(flag(vm, "of_child") || flag(vm, "of_other"));
    assert_string_equal(text(vm, "error"), strerror(EMFILE));
    assert_true(is_null(vm, "ptrace_scope"));
    json_decref(vm);
}

static void test_doctor_system_limits_are_the_soft_ones_and_the_hard(void **state)
{
    (void)state;
    struct rlimit files = limit_lower(RLIMIT_NOFILE, 200);
    struct rlimit memory = limit_lower(RLIMIT_MEMLOCK, 4096);
    json_t *limits = convoy_doctor_limits();
    (void)setrlimit(RLIMIT_NOFILE, &files);
    (void)setrlimit(RLIMIT_MEMLOCK, &memory);
    assert_int_equal(number(limits, "descriptors"), 200);
    assert_int_equal(number(limits, "descriptors_hard"),
                     files.rlim_max == RLIM_INFINITY ? -1 : (json_int_t)files.rlim_max);
    assert_int_equal(number(limits, "memlock_bytes"), 4096);
    json_decref(limits);
}

static void test_doctor_system_unlimited_is_minus_one(void **state)
{
    (void)state;
    is_unlimited = true;
    json_t *limits = convoy_doctor_limits();
    is_unlimited = false;
    assert_int_equal(number(limits, "memlock_bytes"), -1);
    assert_int_equal(number(limits, "descriptors"), -1);
    assert_int_equal(number(limits, "descriptors_hard"), -1);
    json_decref(limits);
}

static void test_doctor_system_namespaces_are_those_of_this_process(void **state)
{
    (void)state;
    static const char *const names[] = {"net", "pid", "mnt", "user", "ipc"};
    json_t *spaces = convoy_doctor_namespaces();
    assert_int_equal(json_object_size(spaces), 5);
    for (size_t i = 0; i < 5; i++) {
        char path[40];
        char link[64] = {0};
        char wanted[64];
        (void)snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        if (readlink(path, link, sizeof link - 1) < 0) {
            assert_true(is_null(spaces, names[i]));
            continue;
        }
        (void)snprintf(wanted, sizeof wanted, "%s:[%lld]", names[i], (long long)number(spaces, names[i]));
        assert_string_equal(link, wanted);
    }
    json_decref(spaces);
}

/* The threshold is glibc's own; a process with no free descriptor cannot ask for it. */
static void test_doctor_system_processor_counts_the_usable_cores(void **state)
{
    (void)state;
    cpu_set_t before;
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    json_t *processor = convoy_doctor_processor();
    assert_int_equal(number(processor, "cores_usable"), CPU_COUNT(&before));
    assert_int_equal(number(processor, "cores_online"), sysconf(_SC_NPROCESSORS_ONLN));
    assert_true(is_null(processor, "streaming_threshold_bytes") ||
                number(processor, "streaming_threshold_bytes") >= 4096);
    json_decref(processor);
    size_t core = 0;
    while (!CPU_ISSET(core, &before)) {
        core++;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    struct rlimit files = limit_lower(RLIMIT_NOFILE, 0);
    processor = convoy_doctor_processor();
    (void)setrlimit(RLIMIT_NOFILE, &files);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(number(processor, "cores_usable"), 1);
    assert_true(is_null(processor, "streaming_threshold_bytes"));
    json_decref(processor);
}

static void test_doctor_system_peer_on_this_machine_is_reached_over_lo(void **state)
{
    (void)state;
    json_t *peer = convoy_doctor_peer("127.0.0.1");
    assert_string_equal(text(peer, "host"), "127.0.0.1");
    assert_string_equal(text(peer, "address"), "127.0.0.1");
    assert_string_equal(text(peer, "source"), "127.0.0.1");
    assert_string_equal(text(peer, "interface"), "lo");
    assert_true(is_null(peer, "error"));
    json_decref(peer);
    peer = convoy_doctor_peer("::1"); /* the machine may have no IPv6 */
    assert_string_equal(text(peer, "address"), "::1");
    assert_string_equal(text(peer, "interface"), is_null(peer, "error") ? "lo" : "");
    json_decref(peer);
}

/* The kernel refuses a route to the broadcast address; a name that is too long is refused before any server is asked. */
static void test_doctor_system_peer_that_cannot_be_reached_says_why(void **state)
{
    (void)state;
    char name[300];
    json_t *peer = convoy_doctor_peer("255.255.255.255");
    assert_string_equal(text(peer, "address"), "255.255.255.255");
    assert_string_equal(text(peer, "source"), "");
    assert_string_equal(text(peer, "interface"), "");
    assert_true(strlen(text(peer, "error")) > 0);
    json_decref(peer);
    struct rlimit files = limit_lower(RLIMIT_NOFILE, 0);
    peer = convoy_doctor_peer("127.0.0.1");
    (void)setrlimit(RLIMIT_NOFILE, &files);
    assert_string_equal(text(peer, "error"), strerror(EMFILE));
    json_decref(peer);
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    peer = convoy_doctor_peer(name);
    assert_string_equal(text(peer, "host"), name);
    assert_true(is_null(peer, "address") && is_null(peer, "source") && is_null(peer, "interface"));
    assert_true(strlen(text(peer, "error")) > 0);
    json_decref(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doctor_system_shared_memory_is_that_of_dev_shm),
        cmocka_unit_test(test_doctor_system_memfd_that_is_refused_has_its_reason),
        cmocka_unit_test(test_doctor_system_process_vm_says_why_not),
        cmocka_unit_test(test_doctor_system_limits_are_the_soft_ones_and_the_hard),
        cmocka_unit_test(test_doctor_system_unlimited_is_minus_one),
        cmocka_unit_test(test_doctor_system_namespaces_are_those_of_this_process),
        cmocka_unit_test(test_doctor_system_processor_counts_the_usable_cores),
        cmocka_unit_test(test_doctor_system_peer_on_this_machine_is_reached_over_lo),
        cmocka_unit_test(test_doctor_system_peer_that_cannot_be_reached_says_why),
    };
    return cmocka_run_group_tests_name("doctor_system", tests, NULL, NULL);
}
