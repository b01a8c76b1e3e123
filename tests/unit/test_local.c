/* SPDX-License-Identifier: Apache-2.0 */
/* Members as threads of one process. test_local_processes.c has those that need processes and namespaces. */
#include "tests/unit/local_member.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>

#include <cmocka.h>

static struct plan plan;

static int setup(void **state)
{
    (void)state;
    plan = (struct plan){.port = free_port(), .fail_after = -1};
    return 0;
}

static void run(uint32_t count, rank_fn member_main)
{
    struct ranks *ranks = ranks_create(count, 0);
    ranks_start_threads(ranks, member_main, NULL, 0);
    ranks_finish(ranks);
}

static void share_main(const struct rank *rank, void *argument)
{
    (void)argument;
    struct member member;
    member_init(&member, rank, &plan);
    EXPECT_OK(member_open(&member), &member.error);
    EXPECT_EQUAL(member.local.hosts.host_count, 1);
    EXPECT_EQUAL(member.local.segment_bytes, rank->count * PAGE);
    EXPECT_EQUAL(member.warnings, 0);
    member_meet(&member);
    member_fini(&member);
}

static void test_local_threads_of_one_process_share_one_segment(void **state)
{
    (void)state;
    for (uint32_t count = 2; count <= MEMBERS_MAX; count++) {
        int before = count_descriptors();
        run(count, share_main);
        assert_int_equal(count_descriptors(), before);
    }
}

static void seal_main(const struct rank *rank, void *argument)
{
    (void)argument;
    struct member member;
    member_init(&member, rank, &plan);
    EXPECT_OK(member_open(&member), &member.error);
    EXPECT_EQUAL(ftruncate(member.local.segment_fd, PAGE), -1);
    EXPECT_EQUAL(ftruncate(member.local.segment_fd, 3 * PAGE), -1);
    EXPECT_EQUAL(fcntl(member.local.segment_fd, F_GETFD), FD_CLOEXEC);
    EXPECT_EQUAL(fcntl(member.local.pidfds[1 - rank->index], F_GETFD), FD_CLOEXEC);
    member_fini(&member);
}

static void test_local_segment_cannot_change_size_and_is_closed_on_exec(void **state)
{
    (void)state;
    run(2, seal_main);
}

static void one_ucx_main(const struct rank *rank, void *argument)
{
    (void)argument;
    struct member member;
    member_init(&member, rank, &plan);
    EXPECT_OK(member_open(&member), &member.error);
    EXPECT_EQUAL(member.local.hosts.host_count, 2);
    EXPECT_EQUAL(member.local.hosts.host_of[1], 1);
    EXPECT_EQUAL(member.local.hosts.host_of[2], 0);
    EXPECT_EQUAL(member.local.segment_fd >= 0, rank->index != 1);
    EXPECT_EQUAL(member.warnings, 0);
    member_fini(&member);
}

static void test_local_net_ucx_keeps_that_member_alone_without_warning(void **state)
{
    (void)state;
    plan.settings[0] = "{\"shared_directory\": \"/nowhere\"}"; /* a reason to be apart, but not from this member */
    plan.settings[1] = "{\"net\": \"ucx\"}";
    run(3, one_ucx_main);
}

static void refuse_main(const struct rank *rank, void *argument)
{
    (void)argument;
    struct member member;
    member_init(&member, rank, &plan);
    EXPECT_STATUS(member_open(&member), CONVOY_UNREACHABLE, &member.error);
    EXPECT_TEXT(member.error.text, "rank 10 is configured net=shm and shares no memory with rank 12");
    EXPECT_TEXT(member.error.text, "net=ucx");
    member_fini(&member);
}

static void test_local_net_shm_refuses_a_second_host_on_all(void **state)
{
    (void)state;
    int before = count_descriptors();
    plan.settings[0] = "{\"net\": \"shm\"}";
    plan.settings[2] = "{\"net\": \"ucx\"}";
    run(3, refuse_main);
    assert_int_equal(count_descriptors(), before);
}

static void test_local_net_shm_on_one_host_is_fine(void **state)
{
    (void)state;
    plan.settings[0] = "{\"net\": \"shm\"}";
    run(2, share_main);
}

static void alone_main(const struct rank *rank, void *argument)
{
    (void)argument;
    struct member member;
    member_init(&member, rank, &plan);
    EXPECT_OK(member_open(&member), &member.error);
    EXPECT_EQUAL(member.local.hosts.host_count, 3);
    EXPECT_EQUAL(member.warnings, 1);
    EXPECT_TEXT(member.warning, strerror(EFBIG));
    EXPECT_EQUAL(member.local.segment_fd, -1);
    EXPECT_EQUAL(member.local.pidfds[(rank->index + 1) % 3], -1);
    member_fini(&member);
}

/* ROCm/rocm-systems PR 3700, NVIDIA/cudf issue 22233: no room for shared memory is a status and a fallback, never a
 * signal. RLIMIT_FSIZE bounds a memfd as a full memory file system would. */
static void test_local_without_room_for_the_segment_every_member_is_a_host(void **state)
{
    (void)state;
    int before = count_descriptors();
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = PAGE, .rlim_max = old.rlim_max}), 0);
    run(3, alone_main);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(count_descriptors(), before);
}

static void stranger_main(const struct rank *rank, void *argument)
{
    (void)argument;
    struct member member;
    member_init(&member, rank, &plan);
    uint64_t before_ns = convoy_now_ns();
    EXPECT_OK(member_open(&member), &member.error);
    EXPECT(convoy_now_ns() - before_ns < 2 * CONVOY_NS_PER_S);
    EXPECT_EQUAL(member.local.hosts.host_count, 2);
    EXPECT_EQUAL(member.local.hosts.host_of[2], 0);
    EXPECT_EQUAL(member.warnings, 1);
    EXPECT_TEXT(member.warning, strerror(ECONNREFUSED));
    EXPECT_TEXT(member.warning, rank->index == 1 ? "rank 11: no shared memory with rank 10"
                                                 : ": no shared memory with rank 11");
    member_fini(&member);
}

/* A member with another token cannot be reached and cannot reach: it goes alone at once, far before the deadline. */
static void test_local_member_with_another_token_is_a_host_of_its_own(void **state)
{
    (void)state;
    plan.other_token = 2;
    run(3, stranger_main);
}

#ifdef CONVOY_FAULTS
static void fail_main(const struct rank *rank, void *argument)
{
    bool *has_failed = argument;
    struct member member;
    member_init(&member, rank, &plan);
    rank_barrier(rank);
    if (rank->index == 0) {
        (void)convoy_memory_fail_after(plan.fail_after);
    }
    rank_barrier(rank);
    int32_t status = member_open(&member);
    rank_barrier(rank);
    if (rank->index == 0) {
        (void)convoy_memory_fail_after(-1);
        *has_failed = status != CONVOY_OK;
    }
    EXPECT(status == CONVOY_OK || status == CONVOY_NO_MEMORY || status == CONVOY_PEER_LOST);
    rank_barrier(rank);
    member_fini(&member);
}
#endif

static void test_local_each_allocation_failing_ends_all_members_and_leaks_nothing(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    int before = count_descriptors();
    bool has_failed = true;
    for (plan.fail_after = 0; has_failed; plan.fail_after++) {
        assert_in_range(plan.fail_after, 0, 400);
        struct ranks *ranks = ranks_create(2, 0);
        ranks_start_threads(ranks, fail_main, &has_failed, 0);
        ranks_finish(ranks);
        assert_int_equal(count_descriptors(), before);
    }
    assert_true(plan.fail_after > 20); /* the sweep was one */
#else
    skip(); /* needs a variant with fault hooks */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_local_threads_of_one_process_share_one_segment, setup),
        cmocka_unit_test_setup(test_local_segment_cannot_change_size_and_is_closed_on_exec, setup),
        cmocka_unit_test_setup(test_local_net_ucx_keeps_that_member_alone_without_warning, setup),
        cmocka_unit_test_setup(test_local_net_shm_refuses_a_second_host_on_all, setup),
        cmocka_unit_test_setup(test_local_net_shm_on_one_host_is_fine, setup),
        cmocka_unit_test_setup(test_local_without_room_for_the_segment_every_member_is_a_host, setup),
        cmocka_unit_test_setup(test_local_member_with_another_token_is_a_host_of_its_own, setup),
        cmocka_unit_test_setup(test_local_each_allocation_failing_ends_all_members_and_leaks_nothing, setup),
    };
    return cmocka_run_group_tests_name("local", tests, NULL, NULL);
}
