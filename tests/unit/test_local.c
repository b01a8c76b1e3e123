/* SPDX-License-Identifier: Apache-2.0 */
/* Members as threads of one process. test_local_processes.c has those that need processes and namespaces. */
#include "tests/unit/local_member.h"

#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static struct member members[MEMBERS_MAX];

static void *open_main(void *argument)
{
    member_open(argument);
    return NULL;
}

static void *see_main(void *argument)
{
    struct member *member = argument;
    member->status = member_sees_all(member) ? CONVOY_OK : CONVOY_INVARIANT;
    return NULL;
}

static void run_all(uint32_t count, void *(*main_fn)(void *))
{
    pthread_t threads[MEMBERS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, main_fn, &members[i]), 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static struct test_allgather *init_all(uint32_t count)
{
    struct test_allgather *shared = test_allgather_create(count);
    assert_non_null(shared);
    for (uint32_t i = 0; i < count; i++) {
        member_init(&members[i], shared, i, count);
    }
    return shared;
}

static void close_all(uint32_t count, struct test_allgather *shared)
{
    for (uint32_t i = 0; i < count; i++) {
        member_close(&members[i]);
    }
    test_allgather_destroy(shared);
}

static void assert_all(uint32_t count, int32_t status, uint32_t host_count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (members[i].status != status) {
            fail_msg("member %u: status %d, text %s", i, members[i].status, members[i].error.text);
        }
        if (status == CONVOY_OK) {
            assert_int_equal(members[i].local.hosts.host_count, host_count);
        }
    }
}

static void test_local_threads_of_one_process_share_one_segment(void **state)
{
    (void)state;
    for (uint32_t count = 2; count <= MEMBERS_MAX; count++) {
        int before = count_descriptors();
        struct test_allgather *shared = init_all(count);
        run_all(count, open_main);
        assert_all(count, CONVOY_OK, 1);
        assert_int_equal(members[0].warnings, 0);
        run_all(count, see_main);
        assert_all(count, CONVOY_OK, 1);
        close_all(count, shared);
        assert_int_equal(count_descriptors(), before);
    }
}

static void test_local_segment_cannot_change_size(void **state)
{
    (void)state;
    struct test_allgather *shared = init_all(2);
    run_all(2, open_main);
    assert_all(2, CONVOY_OK, 1);
    for (uint32_t i = 0; i < 2; i++) {
        int fd = members[i].local.segment_fd;
        assert_int_equal(members[i].local.segment_bytes, 2 * 4096);
        assert_int_equal(ftruncate(fd, 4096), -1);
        assert_int_equal(ftruncate(fd, 3 * 4096), -1);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        assert_int_equal(fcntl(members[i].local.pidfds[1 - i], F_GETFD), FD_CLOEXEC);
    }
    close_all(2, shared);
}

static void test_local_net_ucx_keeps_every_member_alone_without_warning(void **state)
{
    (void)state;
    struct test_allgather *shared = init_all(3);
    strcpy(members[1].runtime.settings.net, "ucx");
    run_all(3, open_main);
    assert_all(3, CONVOY_OK, 2);
    assert_int_equal(members[1].local.segment_fd, -1);
    assert_int_equal(members[0].local.hosts.host_of[2], 0);
    assert_int_equal(members[0].warnings + members[1].warnings + members[2].warnings, 0);
    close_all(3, shared);
}

static void test_local_net_shm_refuses_a_second_host_on_all(void **state)
{
    (void)state;
    int before = count_descriptors();
    struct test_allgather *shared = init_all(3);
    strcpy(members[0].runtime.settings.net, "shm");
    strcpy(members[2].runtime.settings.net, "ucx");
    run_all(3, open_main);
    assert_all(3, CONVOY_UNREACHABLE, 0);
    assert_non_null(strstr(members[1].error.text, "rank 10 is configured net=shm and shares no memory with rank 12"));
    assert_non_null(strstr(members[1].error.text, "net=ucx"));
    close_all(3, shared);
    assert_int_equal(count_descriptors(), before);
}

static void test_local_net_shm_on_one_host_is_fine(void **state)
{
    (void)state;
    struct test_allgather *shared = init_all(2);
    strcpy(members[0].runtime.settings.net, "shm");
    run_all(2, open_main);
    assert_all(2, CONVOY_OK, 1);
    close_all(2, shared);
}

/* ROCm/rocm-systems PR 3700, NVIDIA/cudf issue 22233: no room for shared memory is a status and a fallback, never a
 * signal. RLIMIT_FSIZE bounds a memfd as a full memory file system would. */
static void test_local_without_room_for_the_segment_every_member_is_a_host(void **state)
{
    (void)state;
    int before = count_descriptors();
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct test_allgather *shared = init_all(3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 4096, .rlim_max = old.rlim_max}), 0);
    run_all(3, open_main);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_all(3, CONVOY_OK, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(members[i].warnings, 1);
        assert_non_null(strstr(members[i].warning, strerror(EFBIG)));
        assert_int_equal(members[i].local.segment_fd, -1);
        assert_int_equal(members[i].local.pidfds[0], -1);
    }
    close_all(3, shared);
    assert_int_equal(count_descriptors(), before);
}

/* A member with another token cannot be reached and cannot reach: it goes alone at once, far before the deadline. */
static void test_local_member_with_another_token_is_a_host_of_its_own(void **state)
{
    (void)state;
    struct test_allgather *shared = init_all(3);
    members[1].agreement.session[0] ^= 1;
    uint64_t before_ns = convoy_now_ns();
    run_all(3, open_main);
    assert_true(convoy_now_ns() - before_ns < CONVOY_NS_PER_S);
    assert_all(3, CONVOY_OK, 2);
    assert_int_equal(members[0].local.hosts.host_of[1], 1);
    assert_int_equal(members[0].local.hosts.host_of[2], 0);
    assert_int_equal(members[1].warnings, 1);
    assert_non_null(strstr(members[1].warning, "rank 11: no shared memory with rank 10"));
    assert_non_null(strstr(members[1].warning, strerror(ECONNREFUSED)));
    close_all(3, shared);
}

static void test_local_each_allocation_failing_ends_all_members_and_leaks_nothing(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    int before = count_descriptors();
    bool has_failed = true;
    for (int64_t skip_count = 0; has_failed; skip_count++) {
        assert_in_range(skip_count, 0, 200);
        struct test_allgather *shared = init_all(3);
        (void)convoy_memory_fail_after(skip_count);
        run_all(3, open_main);
        has_failed = members[0].status != CONVOY_OK;
        (void)convoy_memory_fail_after(-1);
        assert_all(3, has_failed ? CONVOY_NO_MEMORY : CONVOY_OK, 1);
        close_all(3, shared);
        assert_int_equal(count_descriptors(), before);
        assert_true(skip_count > 15 || has_failed); /* the sweep is one */
    }
#else
    skip(); /* needs a variant with fault hooks */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local_threads_of_one_process_share_one_segment),
        cmocka_unit_test(test_local_segment_cannot_change_size),
        cmocka_unit_test(test_local_net_ucx_keeps_every_member_alone_without_warning),
        cmocka_unit_test(test_local_net_shm_refuses_a_second_host_on_all),
        cmocka_unit_test(test_local_net_shm_on_one_host_is_fine),
        cmocka_unit_test(test_local_without_room_for_the_segment_every_member_is_a_host),
        cmocka_unit_test(test_local_member_with_another_token_is_a_host_of_its_own),
        cmocka_unit_test(test_local_each_allocation_failing_ends_all_members_and_leaks_nothing),
    };
    return cmocka_run_group_tests_name("local", tests, NULL, NULL);
}
