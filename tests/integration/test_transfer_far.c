/* SPDX-License-Identifier: Apache-2.0 */
/* Whole requests between two hosts, bit for bit, by every way of asking for them, and what is left afterwards. */
#include "tests/lib/expect.h"
#include "tests/lib/far_hosts.h"
#include "tests/lib/kinds.h"
#include "tests/lib/scale.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* -- one after the other, of every size -- */

static const uint64_t sizes[] = {4096,  0,     1,      511,      512,      513,      61439,      61440,
                                 61441, 65536, 122880, 1048577, 16777217, 64u << 20, (64u << 20) + 1};
#define SIZES (sizeof sizes / sizeof sizes[0])

static void check_data(struct engine *engine, convoy_transfer transfer, const uint8_t *data, uint64_t bytes)
{
    engine_look(engine, transfer);
    EXPECT_EQUAL(engine->payload.tensor_count, 1);
    EXPECT_EQUAL(engine->views[0].bytes, bytes);
    EXPECT(bytes == 0 || memcmp(engine->views[0].data, data, bytes) == 0);
}

static void run_sizes(const struct rank *rank, void *argument)
{
    struct engine *engine = far_open(rank, 0, 0);
    uint8_t *data = malloc(sizes[SIZES - 1]);
    uint8_t *destination = malloc(sizes[SIZES - 1]);
    convoy_peer peer = rank->index == 0 ? far_connect(rank, engine) : 0;
    (void)argument;
    EXPECT(data != NULL && destination != NULL);
    engine_fill(data, sizes[SIZES - 1], 1);
    for (size_t i = 0; i < 3 * SIZES; i++) {
        uint64_t bytes = sizes[i / 3];
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        struct convoy_load load = {.struct_size = sizeof load,
                                   .mode = i % 3 == 0 ? CONVOY_LOAD_VIEW : CONVOY_LOAD_COPY,
                                   .destination = i % 3 == 2 ? destination : NULL,
                                   .destination_bytes = i % 3 == 2 ? bytes : 0,
                                   .timeout_ns = ENGINE_TIMEOUT_NS};
        convoy_transfer transfer = 0;
        if (rank->index == 0) {
            transfer = far_send(engine, peer, "sizes", data, &bytes, i % 2 == 0 ? CONVOY_STAGE_CHECKSUM : 0);
        } else {
            EXPECT_OK(engine->table->accept_start(engine->handle, &load, &transfer, &engine->error), &engine->error);
        }
        engine_wait(engine, transfer, CONVOY_OK, &result);
        EXPECT_EQUAL(result.path, CONVOY_PATH_MESSAGES);
        EXPECT_EQUAL(result.payload_bytes, bytes);
        EXPECT_EQUAL(result.moved_bytes, bytes);
        if (rank->index == 1) {
            check_data(engine, transfer, data, bytes);
            EXPECT(i % 3 != 2 || bytes == 0 || engine->views[0].data == destination);
        }
        far_release(engine, transfer);
    }
    far_finish(rank, engine);
    free(data);
    free(destination);
}

static void test_far_sizes_around_every_border_arrive_whole(void **state)
{
    (void)state;
    far_run(run_sizes, NULL);
}

/* -- tensors of every kind, and a descriptor that takes more than one frame -- */

static void run_kinds(const struct rank *rank, void *argument)
{
    static char scalars[1000000];
    struct engine *engine = far_open(rank, 0, 0);
    (void)argument;
    memset(scalars, ' ', sizeof scalars);
    (void)memcpy(scalars, "{\"seed\": 18446744073709551615, \"cfg\": 1.10}", 43);
    if (rank->index == 0) {
        struct convoy_stage stage = kinds_stage();
        stage.scalars = scalars;
        stage.scalars_length = sizeof scalars;
        stage.attempt = 3;
        const struct convoy_send send = {.struct_size = sizeof send, .peer = far_connect(rank, engine)};
        convoy_transfer sent = 0;
        EXPECT_OK(engine->table->send(engine->handle, &stage, &send, &sent, &engine->error), &engine->error);
        far_release(engine, sent);
    } else {
        convoy_transfer loaded = far_accept(engine, CONVOY_LOAD_VIEW);
        engine_wait(engine, loaded, CONVOY_OK, NULL);
        engine_look(engine, loaded);
        kinds_check(engine);
        EXPECT_EQUAL(engine->payload.attempt, 3);
        EXPECT(engine->payload.scalars_length == sizeof scalars &&
               memcmp(engine->payload.scalars, scalars, sizeof scalars) == 0);
        far_release(engine, loaded);
    }
    far_finish(rank, engine);
}

static void test_far_tensors_of_every_kind_arrive_bit_for_bit(void **state)
{
    (void)state;
    far_run(run_kinds, NULL);
}

/* -- several in flight, both ways at once -- */

#define FLIGHT 8u
#define FLIGHTS 40u
#define FLIGHT_BYTES (1u << 20)

static void fly(struct engine *engine, convoy_peer peer, uint32_t round, uint32_t index, const uint8_t *const data[2])
{
    convoy_transfer sent[FLIGHT];
    convoy_transfer loaded[FLIGHT];
    uint64_t bytes[FLIGHT];
    char request[32];
    for (uint32_t i = 0; i < FLIGHT; i++) {
        bytes[i] = (round * FLIGHT + i) * 7919u % FLIGHT_BYTES;
        (void)snprintf(request, sizeof request, "%u", i);
        sent[i] = far_send(engine, peer, request, data[index], &bytes[i], i % 2 == 0 ? CONVOY_STAGE_CHECKSUM : 0);
    }
    for (uint32_t i = 0; i < FLIGHT; i++) {
        loaded[i] = far_accept(engine, i % 2);
    }
    for (uint32_t i = 0; i < FLIGHT; i++) {
        engine_wait(engine, loaded[i], CONVOY_OK, NULL);
        engine_look(engine, loaded[i]);
        uint32_t number = (uint32_t)(engine->payload.request[0] - '0');
        check_data(engine, loaded[i], data[1 - index], bytes[number]);
        far_release(engine, loaded[i]);
    }
    for (uint32_t i = 0; i < FLIGHT; i++) {
        engine_wait(engine, sent[i], CONVOY_OK, NULL);
        far_release(engine, sent[i]);
    }
}

static void run_flights(const struct rank *rank, void *argument)
{
    static uint8_t data[2][FLIGHT_BYTES];
    const uint8_t *const both[2] = {data[0], data[1]};
    struct engine *engine = far_open(rank, 0, 0);
    convoy_peer peer = far_connect(rank, engine); /* both at once: one connection comes of it */
    (void)argument;
    engine_fill(data[0], FLIGHT_BYTES, 1);
    engine_fill(data[1], FLIGHT_BYTES, 2);
    for (uint32_t i = 0; i < test_scaled(FLIGHTS, 50 * FLIGHTS); i++) {
        fly(engine, peer, i, rank->index, both);
        rank_barrier(rank);
    }
    EXPECT_EQUAL(engine_counter(engine, "peers_connected"), 1);
    far_finish(rank, engine);
}

static void test_far_many_in_flight_both_ways_share_one_connection_and_leave_nothing(void **state)
{
    (void)state;
    far_run(run_flights, NULL);
}

/* -- by descriptor -- */

#define PULL_BYTES 300000u
#define SMALL_BYTES 100000u

static void offer_descriptors(const struct rank *rank, struct engine *engine)
{
    struct far_shared *shared = rank->shared;
    static uint8_t data[PULL_BYTES];
    const uint64_t bytes = PULL_BYTES;
    const struct convoy_tensor_source tensor = engine_tensor(data, &bytes);
    const struct convoy_stage stage = engine_stage("pulled", &tensor, 1);
    convoy_transfer staged = 0;
    engine_fill(data, PULL_BYTES, 9);
    EXPECT_OK(engine->table->stage_start(engine->handle, &stage, &staged, &engine->error), &engine->error);
    engine_wait(engine, staged, CONVOY_OK, NULL);
    for (uint32_t form = CONVOY_DESCRIPTOR_BINARY; form <= CONVOY_DESCRIPTOR_JSON; form++) {
        struct convoy_text_buffer text = {
            .struct_size = sizeof text, .data = shared->text, .capacity = sizeof shared->text};
        EXPECT_OK(engine->table->descriptor(engine->handle, staged, form, &text, &engine->error), &engine->error);
        shared->numbers[0] = text.length;
        rank_barrier(rank);
        rank_barrier(rank);
    }
    far_release(engine, staged);
    rank_barrier(rank);
    rank_barrier(rank); /* it has asked for what is no more */
}

static int32_t pull(const struct rank *rank, struct engine *engine, uint8_t *destination, convoy_transfer *loaded_out)
{
    const struct far_shared *shared = rank->shared;
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = destination != NULL ? CONVOY_LOAD_COPY : CONVOY_LOAD_VIEW,
                                     .descriptor = shared->text,
                                     .descriptor_length = shared->numbers[0],
                                     .destination = destination,
                                     .destination_bytes = destination != NULL ? PULL_BYTES : 0,
                                     .timeout_ns = ENGINE_TIMEOUT_NS};
    EXPECT_OK(engine->table->load_start(engine->handle, &load, loaded_out, &engine->error), &engine->error);
    return engine->table->transfer_wait(engine->handle, *loaded_out, ENGINE_TIMEOUT_NS, NULL, &engine->error);
}

static void pull_descriptors(const struct rank *rank, struct engine *engine)
{
    static uint8_t destination[PULL_BYTES];
    convoy_transfer loaded = 0;
    for (uint32_t form = CONVOY_DESCRIPTOR_BINARY; form <= CONVOY_DESCRIPTOR_JSON; form++) {
        rank_barrier(rank);
        for (uint32_t i = 0; i < 2; i++) {
            EXPECT_OK(pull(rank, engine, i == 0 ? NULL : destination, &loaded), &engine->error);
            engine_look(engine, loaded);
            EXPECT(engine_is_filled(engine->views[0].data, PULL_BYTES, 9));
            far_release(engine, loaded);
        }
        rank_barrier(rank);
    }
    rank_barrier(rank);
    int32_t status = pull(rank, engine, NULL, &loaded);
    EXPECT(status == CONVOY_NOT_FOUND || status == CONVOY_CLOSED);
    far_release(engine, loaded);
    rank_barrier(rank);
}

static void run_pull(const struct rank *rank, void *argument)
{
    struct engine *engine = far_open(rank, 0, 0);
    (void)argument;
    (void)far_connect(rank, engine);
    if (rank->index == 0) {
        offer_descriptors(rank, engine);
    } else {
        pull_descriptors(rank, engine);
    }
    far_finish(rank, engine);
}

static void test_far_descriptors_are_pulled_into_slots_and_destinations(void **state)
{
    (void)state;
    far_run(run_pull, NULL);
}

/* -- a small pool, and slots made at open -- */

static void run_small(const struct rank *rank, void *argument)
{
    static uint8_t data[65536];
    const uint64_t bytes = sizeof data;
    struct engine *engine = far_open(rank, rank->index == 0 ? 0 : 3 * sizeof data, rank->index == 0 ? 0 : 1);
    convoy_peer peer = rank->index == 0 ? far_connect(rank, engine) : 0;
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    convoy_transfer held[4];
    uint32_t prealloc_count = 0;
    (void)argument;
    engine_fill(data, sizeof data, 8);
    for (uint32_t i = 0; i < 3; i++) { /* the slot that there is, and what the pool has beside it */
        held[i] = rank->index == 0 ? far_send(engine, peer, "fits", data, &bytes, 0) : far_accept(engine, CONVOY_LOAD_VIEW);
        engine_wait(engine, held[i], CONVOY_OK, &result);
        prealloc_count += result.slot_id != 0;
    }
    EXPECT_EQUAL(prealloc_count, rank->index);
    held[3] = rank->index == 0 ? far_send(engine, peer, "too much", data, &bytes, 0) : far_accept(engine, CONVOY_LOAD_COPY);
    engine_wait(engine, held[3], CONVOY_POOL_EXHAUSTED, &result);
    EXPECT(result.retry_after_ms != 0);
    for (uint32_t i = 0; i < 4; i++) {
        far_release(engine, held[i]);
    }
    rank_barrier(rank);
    held[0] = rank->index == 0 ? far_send(engine, peer, "again", data, &bytes, 0) : far_accept(engine, CONVOY_LOAD_VIEW);
    engine_wait(engine, held[0], CONVOY_OK, &result);
    EXPECT_EQUAL(result.slot_id, rank->index); /* used again */
    far_release(engine, held[0]);
    rank_barrier(rank);
    EXPECT_EQUAL(engine_figures(engine).taken, rank->index == 0 ? 0 : sizeof data);
    EXPECT_EQUAL(engine_figures(engine).quarantined, 0);
    rank_barrier(rank);
    engine_destroy(engine);
}

static void test_far_small_pool_refuses_with_figures_and_takes_again_later(void **state)
{
    (void)state;
    far_run(run_small, NULL);
}

/* -- nobody calls: convoy's own threads move all of it -- */

#define ASLEEP_BYTES (16u << 20)

static void await_completion(struct engine *engine, convoy_transfer transfer)
{
    struct convoy_completion completion = {.transfer = 0};
    struct pollfd fd = {.fd = engine->info.completion_fd, .events = POLLIN};
    size_t count = 0;
    EXPECT_EQUAL(poll(&fd, 1, (int)(ENGINE_TIMEOUT_NS / 1000000)), 1);
    EXPECT_OK(engine->table->completions(engine->handle, &completion, sizeof completion, 1, &count, &engine->error),
              &engine->error);
    EXPECT_EQUAL(count, 1);
    EXPECT_EQUAL(completion.transfer, transfer);
    EXPECT_EQUAL(completion.status, CONVOY_OK);
}

static void run_asleep(const struct rank *rank, void *argument)
{
    const uint64_t bytes = ASLEEP_BYTES;
    struct engine *engine = far_open(rank, 0, 0);
    convoy_peer peer = rank->index == 0 ? far_connect(rank, engine) : 0;
    uint8_t *data = malloc(bytes);
    (void)argument;
    EXPECT(data != NULL);
    engine_fill(data, bytes, 6);
    for (uint32_t i = 0; i < 5; i++) {
        rank_barrier(rank);
        convoy_transfer transfer = rank->index == 0 ? far_send(engine, peer, "asleep", data, &bytes, CONVOY_STAGE_CHECKSUM)
                                                    : far_accept(engine, CONVOY_LOAD_VIEW);
        await_completion(engine, transfer);
        if (rank->index == 1) {
            check_data(engine, transfer, data, bytes);
        }
        far_release(engine, transfer);
    }
    far_finish(rank, engine);
    free(data);
}

static void test_far_hosts_that_only_sleep_on_completions_are_served(void **state)
{
    (void)state;
    far_run(run_asleep, NULL);
}

/* -- without UCX, and where it is not wanted -- */

static const struct convoy_transfer_options secluded = {.struct_size = sizeof secluded,
                                                        .critical_flags = CONVOY_ENGINE_PRIVATE,
                                                        .pool_bytes = 1u << 20,
                                                        .pool_block_bytes = 4096};

static void expect_no_way(struct engine *engine, const char *session, int32_t wanted, const char *text)
{
    convoy_peer peer = 0;
    EXPECT_STATUS(engine->table->peer_connect(engine->handle, session, strlen(session), ENGINE_TIMEOUT_NS, &peer,
                                              &engine->error),
                  wanted, &engine->error);
    EXPECT_TEXT(engine->error.text, text);
}

static void pass_near(struct engine *sender, struct engine *receiver)
{
    static const uint8_t data[16] = {1, 2, 3};
    const uint64_t bytes = sizeof data;
    convoy_transfer sent = far_send(sender, engine_connect(sender, receiver->info.session), "near", data, &bytes, 0);
    convoy_transfer loaded = far_accept(receiver, CONVOY_LOAD_VIEW);
    engine_wait(receiver, loaded, CONVOY_OK, NULL);
    check_data(receiver, loaded, data, bytes);
    engine_wait(sender, sent, CONVOY_OK, NULL);
    far_release(receiver, loaded);
    far_release(sender, sent);
}

static void run_without(const struct rank *rank, void *argument)
{
    (void)argument;
    if (rank->index != 0) {
        return;
    }
    engine_settings = "{\"ucx_library\": \"/nowhere/libucp.so\"}";
    struct engine *without = engine_create(NULL);
    struct engine *other = engine_create(NULL);
    struct engine *alone = engine_create(&secluded);
    engine_settings = "{\"net\": \"shm\"}";
    struct engine *near = engine_create(NULL);
    engine_settings = "{\"net\": \"ucx\"}";
    struct engine *far = engine_create(NULL);
    engine_settings = NULL;
    expect_no_way(without, alone->info.session, CONVOY_INIT_FAILED, "UCX");
    expect_no_way(far, without->info.session, CONVOY_INIT_FAILED, "UCX");
    expect_no_way(far, near->info.session, CONVOY_UNSUPPORTED, "net is shm");
    expect_no_way(near, far->info.session, CONVOY_UNSUPPORTED, "net is shm");
    pass_near(without, other);
    pass_near(near, without);
    struct engine *const all[] = {without, other, alone, near, far};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        engine_destroy(all[i]);
    }
}

static void test_far_without_ucx_says_what_is_missing_and_one_host_goes_on(void **state)
{
    (void)state;
    far_run(run_without, NULL);
}

/* -- opening UCX for a peer that comes in: a pipe in the library's place holds it up for as long as the test wants -- */

struct caller {
    struct engine *engine;
    const char *session;
    int32_t status;
    struct convoy_error error;
};

static void *call(void *argument)
{
    struct caller *caller = argument;
    convoy_peer peer = 0;
    caller->error.struct_size = sizeof caller->error;
    caller->status = caller->engine->table->peer_connect(caller->engine->handle, caller->session, strlen(caller->session),
                                                         ENGINE_TIMEOUT_NS, &peer, &caller->error);
    return NULL;
}

/* Whoever reads the pipe instead of a library stands still; a writer that comes finds out. */
static int await_reader(const char *pipe)
{
    int fd = -1;
    while (fd < 0) { /* bounded by the deadline of the ranks */
        fd = open(pipe, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    }
    return fd;
}

static void query_some(struct engine *asker, convoy_peer peer)
{
    const struct convoy_transfer_query query = {
        .struct_size = sizeof query, .request = "none", .request_length = 4, .peer = peer};
    for (uint32_t i = 0; i < 100; i++) { /* answered by the other's progress thread, since its host is not inside */
        struct convoy_transfer_answer answer = {.struct_size = sizeof answer};
        EXPECT_OK(asker->table->query(asker->handle, &query, ENGINE_TIMEOUT_NS, &answer, &asker->error), &asker->error);
        EXPECT_EQUAL(answer.status, CONVOY_NOT_FOUND);
    }
}

static void run_opening(const struct rank *rank, void *argument)
{
    char pipe[] = "/tmp/convoy_far_XXXXXX";
    char name[64];
    char settings[128];
    pthread_t thread;
    (void)argument;
    if (rank->index != 0) {
        return;
    }
    EXPECT(mkdtemp(pipe) != NULL);
    (void)snprintf(name, sizeof name, "%s/ucp", pipe);
    EXPECT_EQUAL(mkfifo(name, 0600), 0);
    (void)snprintf(settings, sizeof settings, "{\"ucx_library\": \"%s\"}", name);
    engine_settings = settings;
    struct engine *called = engine_create(NULL);
    engine_settings = NULL;
    struct engine *near = engine_create(NULL);
    struct caller caller = {.engine = engine_create(&secluded), .session = called->info.session};
    convoy_peer peer = engine_connect(near, called->info.session);
    EXPECT_EQUAL(pthread_create(&thread, NULL, call, &caller), 0);
    int fd = await_reader(name); /* it has begun to open UCX */
    query_some(near, peer);
    EXPECT_EQUAL(close(fd), 0); /* an empty file is no library */
    while (pthread_tryjoin_np(thread, NULL) != 0) { /* as often as it is tried */
        fd = open(name, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        EXPECT(fd < 0 || close(fd) == 0);
    }
    EXPECT_EQUAL(caller.status, CONVOY_INIT_FAILED);
    EXPECT_TEXT(caller.error.text, name);
    query_some(near, peer);
    engine_destroy(caller.engine);
    engine_destroy(near);
    engine_destroy(called);
    EXPECT(unlink(name) == 0 && rmdir(pipe) == 0);
}

static void test_far_opening_ucx_for_one_peer_keeps_no_other_waiting(void **state)
{
    (void)state;
    far_run(run_opening, NULL);
}

/* -- a pool that nobody may read -- */

static void run_private(const struct rank *rank, void *argument)
{
    static uint8_t data[SMALL_BYTES];
    const uint64_t bytes = sizeof data;
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    (void)argument;
    if (rank->index != 0) {
        return;
    }
    struct engine *sender = engine_create(&secluded);
    struct engine *receiver = engine_create(NULL);
    engine_fill(data, sizeof data, 3);
    convoy_transfer sent = far_send(sender, engine_connect(sender, receiver->info.session), "private", data, &bytes, 0);
    convoy_transfer loaded = far_accept(receiver, CONVOY_LOAD_VIEW);
    engine_wait(receiver, loaded, CONVOY_OK, NULL);
    check_data(receiver, loaded, data, bytes);
    engine_wait(sender, sent, CONVOY_OK, &result);
    EXPECT_EQUAL(result.path, CONVOY_PATH_MESSAGES);
    far_release(receiver, loaded);
    far_release(sender, sent);
    engine_destroy(sender);
    engine_destroy(receiver);
}

static void test_far_private_pool_goes_as_messages_to_a_neighbour_too(void **state)
{
    (void)state;
    far_run(run_private, NULL);
}

/* -- a pool of the host's, where the system forbids to read another process -- */

/* From here on this process may not call process_vm_readv. */
static void forbid_process_vm(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = 4, .filter = filter};
    EXPECT_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EXPECT_EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void run_forbidden(const struct rank *rank, void *argument)
{
    static uint8_t pool[1u << 20] __attribute__((aligned(4096)));
    static uint8_t data[SMALL_BYTES];
    const uint64_t bytes = sizeof data;
    const struct convoy_transfer_options host = {.struct_size = sizeof host,
                                                 .pool_kind = CONVOY_MEMORY_HOST,
                                                 .pool_memory = pool,
                                                 .pool_bytes = sizeof pool,
                                                 .pool_block_bytes = 4096};
    engine_fill(data, sizeof data, 2);
    forbid_process_vm();
    struct engine *engine = scene_open(rank, rank->index == 0 ? &host : NULL);
    if (rank->index == *(const uint32_t *)argument) { /* whoever finds out first */
        (void)far_connect(rank, engine);
        rank_barrier(rank);
    } else {
        rank_barrier(rank);
    }
    convoy_peer peer = far_connect(rank, engine);
    convoy_transfer transfer =
        rank->index == 0 ? far_send(engine, peer, "host", data, &bytes, 0) : far_accept(engine, CONVOY_LOAD_VIEW);
    engine_wait(engine, transfer, CONVOY_OK, NULL);
    if (rank->index == 1) {
        check_data(engine, transfer, data, bytes);
    }
    far_release(engine, transfer);
    far_finish(rank, engine);
}

static void test_far_pool_that_the_system_forbids_to_read_goes_as_messages(void **state)
{
    (void)state;
    for (uint32_t connector = 0; connector < 2; connector++) {
        far_run(run_forbidden, &connector);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_sizes_around_every_border_arrive_whole),
        cmocka_unit_test(test_far_tensors_of_every_kind_arrive_bit_for_bit),
        cmocka_unit_test(test_far_many_in_flight_both_ways_share_one_connection_and_leave_nothing),
        cmocka_unit_test(test_far_descriptors_are_pulled_into_slots_and_destinations),
        cmocka_unit_test(test_far_small_pool_refuses_with_figures_and_takes_again_later),
        cmocka_unit_test(test_far_hosts_that_only_sleep_on_completions_are_served),
        cmocka_unit_test(test_far_without_ucx_says_what_is_missing_and_one_host_goes_on),
        cmocka_unit_test(test_far_opening_ucx_for_one_peer_keeps_no_other_waiting),
        cmocka_unit_test(test_far_private_pool_goes_as_messages_to_a_neighbour_too),
        cmocka_unit_test(test_far_pool_that_the_system_forbids_to_read_goes_as_messages),
    };
    return cmocka_run_group_tests_name("transfer_far", tests, far_make_hosts, far_remove_hosts);
}
