/* SPDX-License-Identifier: Apache-2.0 */
/* Public reports about transfers between processes: peers that sleep, stand still or die, and places with few rights. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/scale.h"
#include "tests/lib/scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define NS_PER_MS 1000000ull

struct shared {
    struct scene_sessions sessions;
    _Atomic uint32_t done;
    uint64_t address; /* of a receive slot */
    uint32_t limit;
};

/* -- NVIDIA/TensorRT-LLM PR 12640: what moves does not depend on the receiver's host calling in -- */

#define SLEEPERS 64u

static void sleep_and_receive(const struct rank *rank, struct engine *engine)
{
    uint8_t *memory = calloc(SLEEPERS, MIB);
    convoy_transfer loaded[SLEEPERS];
    EXPECT(memory != NULL);
    for (uint32_t i = 0; i < SLEEPERS; i++) {
        const struct convoy_load load = {.struct_size = sizeof load,
                                         .mode = CONVOY_LOAD_COPY,
                                         .destination = memory + (size_t)i * MIB,
                                         .destination_bytes = MIB,
                                         .timeout_ns = ENGINE_TIMEOUT_NS};
        CALL_OK(engine, accept_start, &load, &loaded[i]);
    }
    rank_mark(rank, 2);
    rank_await_mark(rank, 0, 3); /* no call of this process meanwhile */
    for (uint32_t i = 0; i < SLEEPERS; i++) {
        CALL_OK(engine, transfer_test, loaded[i], NULL);
        EXPECT(engine_is_filled(memory + (size_t)i * MIB, MIB, i));
        release(engine, loaded[i]);
    }
    free(memory);
}

static void send_to_sleeper(const struct rank *rank, struct engine *engine)
{
    convoy_peer peer = scene_connect(rank, engine, 1);
    convoy_transfer sent[SLEEPERS];
    static uint8_t data[MIB];
    const uint64_t bytes = MIB;
    uint32_t first = 0;
    rank_await_mark(rank, 1, 2);
    for (uint32_t i = 0; i < SLEEPERS;) {
        const struct convoy_tensor_source tensor = engine_tensor(data, &bytes);
        struct convoy_stage stage = engine_stage("sleeper", &tensor, 1);
        const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = ENGINE_TIMEOUT_NS};
        engine_fill(data, MIB, i);
        stage.hint_flags = CONVOY_STAGE_INLINE; /* data is filled anew for the next one */
        int32_t status = CALL(engine, send_start, &stage, &send, &sent[i]);
        EXPECT(status == CONVOY_OK || status == CONVOY_POOL_EXHAUSTED);
        i += status == CONVOY_OK;
        if (status == CONVOY_POOL_EXHAUSTED && first < i) {
            engine_wait(engine, sent[first], CONVOY_OK, NULL);
            release(engine, sent[first++]);
        }
    }
    while (first < SLEEPERS) {
        engine_wait(engine, sent[first], CONVOY_OK, NULL);
        release(engine, sent[first++]);
    }
    rank_mark(rank, 3);
    engine_await_empty(engine);
}

static void test_reports_receiver_whose_host_sleeps_is_served(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = pool_of(8 * MIB); /* an eighth of what is sent */
    const struct scene_plan plan = {.parts = {send_to_sleeper, sleep_and_receive}, .options = &options};
    scene_play(&plan, sizeof(struct shared));
}

/* -- sgl-project/sglang PRs 31144, 31306 and 36029, PR 30398: no call waits for a peer that stands still with its ring
 *    full, not even the last ones: release, and close with a deadline -- */

#define CALLS 2000u

static int compare(const void *a, const void *b)
{
    return *(const uint64_t *)a < *(const uint64_t *)b ? -1 : *(const uint64_t *)a > *(const uint64_t *)b;
}

static void call_beside_stopped(const struct rank *rank, struct engine *engine)
{
    static uint64_t times[CALLS];
    struct convoy_transfer_answer answer = {.struct_size = sizeof answer};
    convoy_peer peer = scene_connect(rank, engine, 1);
    const struct convoy_transfer_query query = {
        .struct_size = sizeof query, .request = "x", .request_length = 1, .peer = peer};
    rank_mark(rank, 2);
    rank_await_parent(rank, 1); /* it stands still */
    for (uint32_t i = 0; i < CALLS; i++) {
        uint64_t start = convoy_now_ns();
        convoy_transfer sent = send_bytes(engine, peer, "stalled", 1, "0123456789", 10);
        CALL_OK(engine, abort, sent, "stalled", 7);
        release(engine, sent);
        times[i] = convoy_now_ns() - start;
    }
    qsort(times, CALLS, sizeof times[0], compare);
    EXPECT(times[CALLS * 99 / 100] < 5 * NS_PER_MS);
    EXPECT_EQUAL(engine_figures(engine).quarantined_count, CALLS); /* it may still read all of that */
    CALL_STATUS(engine, CONVOY_TIMED_OUT, query, &query, 10 * NS_PER_MS, &answer);
    uint64_t start = convoy_now_ns();
    int32_t status = engine->table->engine_close(engine->handle, 1000 * NS_PER_MS, &engine->error);
    EXPECT(status == CONVOY_OK || status == CONVOY_DRAIN_TIMEOUT);
    EXPECT(convoy_now_ns() - start < 10000 * NS_PER_MS);
    rank_mark(rank, 3);
}

static void stand_still(const struct rank *rank, struct engine *engine)
{
    (void)scene_connect(rank, engine, 0);
    rank_mark(rank, 2);
    rank_await_mark(rank, 0, 3);
}

static void test_reports_no_call_waits_for_a_peer_that_stands_still(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(64 * MIB);
    const struct scene_plan plan = {.parts = {call_beside_stopped, stand_still}, .options = &options};
    options.transfer_max = 2 * CALLS + 16;
    struct ranks *ranks = scene_create(&plan, sizeof(struct shared));
    scene_start(ranks, &plan);
    ranks_await_mark(ranks, 0, 2);
    ranks_await_mark(ranks, 1, 2);
    ranks_stop(ranks, 1);
    ranks_mark(ranks, 1);
    ranks_await_mark(ranks, 0, 3);
    ranks_signal(ranks, 1, SIGCONT);
    ranks_finish(ranks);
}

/* -- openucx/ucx PR 11629, issues 2893 and 5027: a peer that dies while eight threads push. Each push ends, nothing
 *    crashes, and the survivor talks to others -- */

#define PUSHERS 8u

struct pusher {
    const struct rank *rank;
    struct engine *engine;
    convoy_peer peer;
};

static void *push_main(void *argument)
{
    const struct pusher *pusher = argument;
    struct shared *shared = pusher->rank->shared;
    const struct convoy_transfer_table *table = pusher->engine->table;
    convoy_transfer_engine *handle = pusher->engine->handle;
    struct convoy_error error = {.struct_size = sizeof error};
    static const uint8_t block[4096] = {1};
    const uint64_t bytes = sizeof block;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK) {
        const struct convoy_tensor_source tensor = engine_tensor(block, &bytes);
        const struct convoy_stage stage = engine_stage("push", &tensor, 1);
        const struct convoy_send send = {
            .struct_size = sizeof send, .peer = pusher->peer, .timeout_ns = 5 * ENGINE_TIMEOUT_NS};
        convoy_transfer sent = 0;
        status = table->send(handle, &stage, &send, &sent, &error);
        if (sent != 0) {
            EXPECT_OK(table->release(handle, sent, NULL), NULL);
        }
        atomic_fetch_add(&shared->done, 1);
    }
    EXPECT_STATUS(status, CONVOY_PEER_LOST, &error);
    return NULL;
}

static void push_until_it_dies(const struct rank *rank, struct engine *engine)
{
    struct pusher pusher = {.rank = rank, .engine = engine, .peer = scene_connect(rank, engine, 1)};
    pthread_t threads[PUSHERS];
    convoy_peer other = scene_connect(rank, engine, 2);
    for (uint32_t i = 0; i < PUSHERS; i++) {
        EXPECT(pthread_create(&threads[i], NULL, push_main, &pusher) == 0);
    }
    for (uint32_t i = 0; i < PUSHERS; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    convoy_transfer sent = send_bytes(engine, other, "last", 1, "x", 1);
    engine_wait(engine, sent, CONVOY_OK, NULL);
    release(engine, sent);
    engine_await_empty(engine);
    rank_mark(rank, 2);
}

static void accept_pushes(const struct rank *rank, struct engine *engine)
{
    do { /* rank 1: until it is killed */
        convoy_transfer loaded = accept_by(engine, NULL, 0, CONVOY_LOAD_VIEW, 5 * ENGINE_TIMEOUT_NS);
        engine_wait(engine, loaded, CONVOY_OK, NULL);
        release(engine, loaded);
    } while (rank->index == 1);
    rank_await_mark(rank, 0, 2);
}

static void test_reports_peer_that_dies_under_pushes_of_eight_threads_ends_them_all(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {push_until_it_dies, accept_pushes, accept_pushes}};
    for (uint32_t i = 0; i < test_scaled(5, 500); i++) {
        struct ranks *ranks = scene_create(&plan, sizeof(struct shared));
        struct shared *shared = ranks_shared(ranks);
        scene_start(ranks, &plan);
        AWAIT(atomic_load(&shared->done) >= 50 + 37 * (i % 10));
        ranks_signal(ranks, 1, SIGKILL);
        ranks_finish(ranks);
    }
}

/* -- vllm-project/vllm issues 51579 and 54002, PRs 51317 and 57422, vllm-project/vllm-omni PR 7840: whoever is killed
 *    leaves no file behind, least of all in shared memory -- */

/* A group that nobody else on the machine has: a new file carries the group of the process that made it. */
#define MARK_GROUP 54321u

static uint32_t count_files(const char *path)
{
    uint32_t count = 0;
    DIR *directory = opendir(path);
    EXPECT(directory != NULL);
    for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        struct stat status;
        if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_gid == MARK_GROUP) {
            fprintf(stderr, "%s/%s is of the group of this test\n", path, entry->d_name);
            count++;
        }
    }
    (void)closedir(directory);
    return count;
}

static void exchange_until_killed(const struct rank *rank, struct engine *engine)
{
    struct shared *shared = rank->shared;
    convoy_peer peer = scene_connect(rank, engine, 1 - rank->index);
    for (;;) {
        convoy_transfer sent = send_bytes(engine, peer, "killed", 1, rank->shared, sizeof(struct shared));
        convoy_transfer loaded = accept_by(engine, NULL, 0, CONVOY_LOAD_VIEW, 5 * ENGINE_TIMEOUT_NS);
        engine_wait(engine, loaded, CONVOY_OK, NULL);
        release(engine, loaded);
        engine_wait(engine, sent, CONVOY_OK, NULL);
        release(engine, sent);
        atomic_fetch_add(&shared->done, 1);
    }
}

static void test_reports_killed_processes_leave_no_files(void **state)
{
    (void)state;
    static const struct scene_plan plan = {.parts = {exchange_until_killed, exchange_until_killed}};
    char probe[] = "/dev/shm/convoy-probe-XXXXXX";
    (void)setfsgid(MARK_GROUP);
    int file = mkstemp(probe);
    EXPECT(file >= 0);
    EXPECT_EQUAL(count_files("/dev/shm"), 1); /* what is left would be seen */
    EXPECT_EQUAL(unlink(probe) + close(file), 0);
    for (uint32_t i = 0; i < test_scaled(10, 50); i++) {
        struct ranks *ranks = scene_create(&plan, sizeof(struct shared));
        struct shared *shared = ranks_shared(ranks);
        scene_start(ranks, &plan);
        AWAIT(i == 0 || atomic_load(&shared->done) >= 13 * i % 40);
        ranks_stop(ranks, 1); /* else it may see the other one's end before its own */
        ranks_signal(ranks, 0, SIGKILL); /* 0: also while it opens */
        ranks_signal(ranks, 1, SIGKILL);
        ranks_finish(ranks);
    }
    (void)setfsgid(getgid());
    EXPECT_EQUAL(count_files("/dev/shm"), 0);
    EXPECT_EQUAL(count_files("/tmp"), 0);
    EXPECT_EQUAL(count_files("/run"), 0);
}

/* -- Mellanox/nv_peer_memory issue 31, kvcache-ai/Mooncake issue 4004: whoever sees that it has come sees all of it -- */

static void fill_and_look(const struct rank *rank, struct engine *engine)
{
    static const uint64_t sizes[4] = {1, 4096, 70001, MIB};
    struct shared *shared = rank->shared;
    convoy_peer peer = scene_connect(rank, engine, 1 - rank->index);
    uint8_t *data = malloc(MIB);
    EXPECT(data != NULL);
    for (uint32_t i = 0; i < test_scaled(400, 100000); i++) {
        uint64_t bytes = sizes[i % 4];
        if (rank->index == 0) {
            engine_fill(data, bytes, i);
            convoy_transfer staged = stage_bytes(engine, "signal", data, bytes);
            rank_await_mark(rank, 1, 2 + 2 * i);
            const struct convoy_send send = {.struct_size = sizeof send,
                                             .path = CONVOY_PATH_PUSH,
                                             .peer = peer,
                                             .staged = staged,
                                             .address = shared->address};
            convoy_transfer sent = 0;
            CALL_OK(engine, send, NULL, &send, &sent);
            release(engine, sent);
            rank_await_mark(rank, 1, 3 + 2 * i);
            release(engine, staged);
        } else {
            struct convoy_reserved_slot slot = reserve_slot(engine, "signal", bytes, 0, NULL);
            memset(slot.address, 0x5a, bytes);
            shared->address = (uint64_t)(uintptr_t)slot.address;
            rank_mark(rank, 2 + 2 * i);
            while (CALL(engine, transfer_test, slot.transfer, NULL) == CONVOY_IN_PROGRESS) {
            }
            EXPECT(engine_is_filled(slot.address, bytes, i));
            release(engine, slot.transfer);
            rank_mark(rank, 3 + 2 * i);
        }
    }
    free(data);
    rank_barrier(rank);
}

static void test_reports_bytes_are_all_there_when_the_slot_says_filled(void **state)
{
    (void)state;
    const struct scene_plan plan = {.parts = {fill_and_look, fill_and_look},
                                    .timeout_ms = test_scaled(SCENE_TIMEOUT_MS, 40 * SCENE_TIMEOUT_MS)};
    scene_play(&plan, sizeof(struct shared));
}

/* -- few rights -- */

/* One tensor there and back; the path that it took. */
static uint32_t exchange(const struct rank *rank, struct engine *engine, int32_t wanted)
{
    convoy_peer peer = scene_connect(rank, engine, 1 - rank->index);
    struct convoy_transfer_result result = {.path = 0};
    static uint8_t data[BYTES];
    if (rank->index == 0) {
        engine_fill(data, BYTES, 8);
        convoy_transfer sent = send_bytes(engine, peer, "rights", 1, data, BYTES);
        engine_wait(engine, sent, wanted, NULL);
        release(engine, sent);
    } else {
        convoy_transfer loaded = accept_by(engine, NULL, 0, CONVOY_LOAD_COPY, ENGINE_TIMEOUT_NS);
        engine_wait(engine, loaded, wanted, &result);
        EXPECT(wanted != CONVOY_OK || engine_is_filled(staged_address(engine, loaded), BYTES, 8));
        release(engine, loaded);
    }
    scene_part_ways(rank, engine);
    return result.path;
}

static void limit_locked_memory(uint64_t bytes)
{
    const struct rlimit limit = {bytes, bytes};
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    EXPECT_EQUAL(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    EXPECT_EQUAL(syscall(SYS_capget, &header, sets), 0);
    sets[0].effective &= ~(1u << CAP_IPC_LOCK); /* root is not limited otherwise */
    EXPECT_EQUAL(syscall(SYS_capset, &header, sets), 0);
}

static void run_locked(const struct rank *rank, void *argument)
{
    const struct shared *shared = rank->shared;
    const struct convoy_transfer_options usual = {.struct_size = sizeof usual}; /* 256 MiB */
    (void)argument;
    limit_locked_memory(shared->limit);
    struct engine *engine = scene_open(rank, &usual);
    EXPECT_EQUAL(engine->info.pool_bytes, 256ull * MIB);
    uint32_t path = exchange(rank, engine, CONVOY_OK);
    EXPECT(rank->index == 0 || path == CONVOY_PATH_PULL);
    engine_destroy(engine);
}

/* NVIDIA/nvidia-container-toolkit issue 2037, kvcache-ai/Mooncake issue 1382, openucx/ucx PR 8090: pools on one host lock
 * no memory, so whatever the limit is, they open and lend. */
static void test_reports_locked_memory_limit_does_not_matter_on_one_host(void **state)
{
    (void)state;
    static const uint32_t limits[3] = {0, 65536, 8 * MIB};
    for (int i = 0; i < 3; i++) {
        struct ranks *ranks = ranks_create(2, sizeof(struct shared));
        ((struct shared *)ranks_shared(ranks))->limit = limits[i];
        ranks_start(ranks, run_locked, NULL, SCENE_TIMEOUT_MS);
        ranks_finish(ranks);
    }
}

/* process_vm_readv and process_vm_writev fail with EPERM from now on. */
static void forbid_process_vm(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1 /* EPERM */),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    EXPECT_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EXPECT_EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void run_forbidden(const struct rank *rank, void *argument)
{
    (void)argument;
    forbid_process_vm();
    struct engine *engine = scene_open(rank, NULL);
    uint32_t path = exchange(rank, engine, CONVOY_OK);
    EXPECT(rank->index == 0 || path == CONVOY_PATH_PULL);
    engine_destroy(engine);
}

/* openucx/ucx issues 8958, 3545 and 4224, PR 9213: shared pools need no direct copy between processes. */
static void test_reports_forbidden_direct_copy_is_not_needed_on_one_host(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(2, sizeof(struct shared));
    ranks_start(ranks, run_forbidden, NULL, SCENE_TIMEOUT_MS);
    ranks_finish(ranks);
}

/* openucx/ucx issue 11546: pid, ipc and mount namespaces of their own, as containers have. Descriptors are passed, no
 * path under /proc and no name is needed. */
static void await_child(pid_t child)
{
    int status = 0;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void run_contained(const struct rank *rank, void *argument)
{
    (void)argument;
    pid_t child = fork();
    if (child != 0) { /* the rank itself stays outside */
        await_child(child);
        return;
    }
    EXPECT_EQUAL(unshare(CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS), 0);
    child = fork(); /* the first in the new namespace */
    if (child != 0) {
        await_child(child);
        _exit(0);
    }
    EXPECT_EQUAL(getpid(), 1);
    struct engine *engine = scene_open(rank, NULL);
    uint32_t path = exchange(rank, engine, CONVOY_OK);
    EXPECT(rank->index == 0 || path == CONVOY_PATH_PULL);
    engine_destroy(engine);
    _exit(0);
}

static void test_reports_containers_on_one_host_lend_to_each_other(void **state)
{
    (void)state;
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        _exit(unshare(CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS) == 0 ? 0 : 1);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    if (status != 0) {
        print_message("pid, ipc and mount namespaces cannot be made here\n");
        skip();
    }
    struct ranks *ranks = ranks_create(2, sizeof(struct shared));
    ranks_start(ranks, run_contained, NULL, SCENE_TIMEOUT_MS);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_receiver_whose_host_sleeps_is_served),
        cmocka_unit_test(test_reports_no_call_waits_for_a_peer_that_stands_still),
        cmocka_unit_test(test_reports_peer_that_dies_under_pushes_of_eight_threads_ends_them_all),
        cmocka_unit_test(test_reports_killed_processes_leave_no_files),
        cmocka_unit_test(test_reports_bytes_are_all_there_when_the_slot_says_filled),
        cmocka_unit_test(test_reports_locked_memory_limit_does_not_matter_on_one_host),
        cmocka_unit_test(test_reports_forbidden_direct_copy_is_not_needed_on_one_host),
        cmocka_unit_test(test_reports_containers_on_one_host_lend_to_each_other),
    };
    return cmocka_run_group_tests_name("reports_transfer_peers", tests, NULL, NULL);
}
