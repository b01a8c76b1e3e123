/* SPDX-License-Identifier: Apache-2.0 */
/* Members as processes, in namespaces and under limits. test_local.c has what threads of one process can show. */
#include "tests/unit/local_member.h"

#include "net/liveness.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#define WAIT_MS 10000
#define MARK_OPEN 1u

static struct plan plan;
static char directory[64];
static char directory_settings[128];

static int setup(void **state)
{
    (void)state;
    plan = (struct plan){.gather = test_allgather_create(MEMBERS_MAX), .fail_after = -1};
    (void)snprintf(directory, sizeof directory, "/tmp/convoy-test-XXXXXX");
    if (plan.gather == NULL || mkdtemp(directory) == NULL) {
        return -1;
    }
    (void)snprintf(directory_settings, sizeof directory_settings, "{\"shared_directory\": \"%s\"}", directory);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_allgather_destroy(plan.gather);
    return rmdir(directory); /* fails when a socket file was left behind */
}

static void run(uint32_t count, rank_fn member_main)
{
    test_allgather_destroy(plan.gather);
    plan.gather = test_allgather_create(count);
    struct ranks *ranks = ranks_create(count, 0);
    ranks_start(ranks, member_main, NULL, 0);
    ranks_finish(ranks);
}

/* Whether a child may make these namespaces; otherwise the running test is skipped with the reason. */
static void need_namespaces(int flags)
{
    int code = 0;
    pid_t child = fork();
    if (child == 0) {
        _exit(unshare(flags) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    if (code != 0) {
        print_message("skipped: namespaces cannot be made here\n");
        skip();
    }
}

/* -- processes ----------------------------------------------------------------------------------------------------- */

static void share(const struct rank *rank)
{
    struct member member;
    int before = count_descriptors();
    member_init(&member, rank, &plan);
    EXPECT_OK(member_open(&member), &member.error);
    EXPECT_EQUAL(member.local.hosts.host_count, 1);
    EXPECT_EQUAL(member.warnings, 0);
    member_meet(&member);
    member_fini(&member);
    EXPECT_EQUAL(count_descriptors(), before);
}

static void share_main(const struct rank *rank, void *argument)
{
    (void)argument;
    share(rank);
}

static void test_local_processes_share_one_segment(void **state)
{
    (void)state;
    for (uint32_t count = 2; count <= MEMBERS_MAX; count++) {
        run(count, share_main);
    }
}

/* The victim forks a child that keeps everything open, and is killed; nobody reaps it while the others look. */
static void survive_main(const struct rank *rank, void *argument)
{
    (void)argument;
    struct member member;
    struct convoy_liveness liveness;
    uint8_t ended[3] = {0};
    member_init(&member, rank, &plan);
    EXPECT_OK(member_open(&member), &member.error);
    EXPECT_OK(convoy_liveness_init(&liveness, member.local.pidfds, 3), NULL);
    EXPECT_EQUAL(convoy_liveness_check(&liveness, ended), 0);
    rank_barrier(rank);
    if (rank->index == 1 && fork() != 0) {
        rank_mark(rank, MARK_OPEN);
    }
    if (rank->index == 1) {
        (void)pause(); /* until killed, the child when its parent's runner ends it */
    }
    struct pollfd victim = {.fd = member.local.pidfds[1], .events = POLLIN};
    EXPECT_EQUAL(poll(&victim, 1, WAIT_MS), 1);
    EXPECT_EQUAL(convoy_liveness_check(&liveness, ended), 1);
    EXPECT_EQUAL(ended[0] + 2 * ended[1] + 4 * ended[2], 2);
    rank_barrier_of(rank, 1, 2);
    convoy_liveness_fini(&liveness);
    member_fini(&member);
}

static void test_local_killed_member_is_noticed_as_zombie_and_with_a_living_child(void **state)
{
    (void)state;
    test_allgather_destroy(plan.gather);
    plan.gather = test_allgather_create(3);
    struct ranks *ranks = ranks_create(3, 0);
    ranks_start(ranks, survive_main, NULL, 0);
    ranks_await_mark(ranks, 1, MARK_OPEN);
    ranks_signal(ranks, 1, SIGKILL);
    ranks_await_exit(ranks, 1);
    ranks_await_exit(ranks, 0);
    ranks_await_exit(ranks, 2);
    ranks_finish(ranks);
}

/* -- namespaces ---------------------------------------------------------------------------------------------------- */

static void apart_main(const struct rank *rank, void *argument)
{
    (void)argument;
    struct member member;
    EXPECT(rank->index != 1 || unshare(CLONE_NEWNET) == 0);
    member_init(&member, rank, &plan);
    EXPECT_OK(member_open(&member), &member.error);
    EXPECT_EQUAL(member.local.hosts.host_count, 2);
    EXPECT_EQUAL(member.local.hosts.host_of[2], 0);
    EXPECT_EQUAL(member.local.segment_fd >= 0, rank->index != 1);
    EXPECT_EQUAL(member.warnings, 1);
    EXPECT_TEXT(member.warning, "different network namespaces and no common shared_directory");
    member_fini(&member);
}

/* openucx/ucx issue 11546: two network namespaces of one machine do not meet without a shared directory. */
static void test_local_two_network_namespaces_are_two_hosts_with_one_warning(void **state)
{
    (void)state;
    need_namespaces(CLONE_NEWNET);
    run(3, apart_main);
}

static void contained_main(const struct rank *rank, void *argument)
{
    (void)argument;
    EXPECT(rank->index != 1 || unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) == 0);
    share(rank);
}

/* openucx/ucx issue 11546: separate network, ipc and mount namespaces with one directory in common share memory. */
static void test_local_containers_with_a_shared_directory_are_one_host(void **state)
{
    (void)state;
    need_namespaces(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS);
    for (uint32_t i = 0; i < 3; i++) {
        plan.settings[i] = directory_settings;
    }
    run(3, contained_main);
}

static void small_main(const struct rank *rank, void *argument)
{
    (void)argument;
    EXPECT_EQUAL(unshare(CLONE_NEWNS), 0);
    EXPECT_EQUAL(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    EXPECT_EQUAL(mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k"), 0);
    share(rank);
}

/* ROCm/rocm-systems PR 3700, openucx/ucx PR 8508: a container's small /dev/shm is not what the segment lives in. */
static void test_local_tiny_shared_memory_mount_does_not_matter(void **state)
{
    (void)state;
    need_namespaces(CLONE_NEWNS);
    run(2, small_main);
}

/* -- limits -------------------------------------------------------------------------------------------------------- */

/* From now on pidfd_open fails with EPERM in this process. */
static void forbid_pidfds(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 434, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    EXPECT_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EXPECT_EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void forbidden_main(const struct rank *rank, void *argument)
{
    (void)argument;
    struct member member;
    if (rank->index == 0) {
        forbid_pidfds();
    }
    member_init(&member, rank, &plan);
    EXPECT_OK(member_open(&member), &member.error);
    EXPECT_EQUAL(member.local.hosts.host_count, 2);
    EXPECT_EQUAL(member.local.hosts.host_of[2], 1);
    EXPECT_EQUAL(member.warnings, 1);
    EXPECT_TEXT(member.warning, "rank 10: pidfd_open: Operation not permitted");
    member_fini(&member);
}

/* openucx/ucx issues 8958, 3545, 4224: a forbidden call is a reason for another path, never fatal. */
static void test_local_sandbox_without_pidfds_falls_back_with_one_warning(void **state)
{
    (void)state;
    run(3, forbidden_main);
}

static void limited_main(const struct rank *rank, void *argument)
{
    (void)argument;
    struct member member;
    member_init(&member, rank, &plan);
    if (rank->index == 1) { /* room for its own sockets, not for what the others send */
        int next = dup(0);
        (void)close(next);
        EXPECT_EQUAL(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next + 3, (rlim_t)next + 3}), 0);
    }
    EXPECT_OK(member_open(&member), &member.error);
    EXPECT_EQUAL(member.local.hosts.host_count, 2);
    EXPECT_EQUAL(member.local.hosts.host_of[5], 0);
    EXPECT_EQUAL(member.local.pidfds[1], -1); /* whom the others had already been given */
    EXPECT_EQUAL(member.warnings, 1);
    EXPECT_TEXT(member.warning, "limit of open files");
    member_fini(&member);
}

static void test_local_member_at_its_file_limit_is_a_host_of_its_own(void **state)
{
    (void)state;
    run(6, limited_main);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_local_processes_share_one_segment, setup, teardown),
        cmocka_unit_test_setup_teardown(test_local_killed_member_is_noticed_as_zombie_and_with_a_living_child, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_local_two_network_namespaces_are_two_hosts_with_one_warning, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_local_containers_with_a_shared_directory_are_one_host, setup, teardown),
        cmocka_unit_test_setup_teardown(test_local_tiny_shared_memory_mount_does_not_matter, setup, teardown),
        cmocka_unit_test_setup_teardown(test_local_sandbox_without_pidfds_falls_back_with_one_warning, setup, teardown),
        cmocka_unit_test_setup_teardown(test_local_member_at_its_file_limit_is_a_host_of_its_own, setup, teardown),
    };
    return cmocka_run_group_tests_name("local_processes", tests, NULL, NULL);
}
