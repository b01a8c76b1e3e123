/* SPDX-License-Identifier: Apache-2.0 */
/* Public reports about what many threads and many peers of one process do at once, and about strangers at the port. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/scale.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define THREADS 8u
#define EVICTED 12u

/* -- kvcache-ai/Mooncake issues 1267 and 1369: connect, send, look and disconnect from many threads at once -- */

struct crowd {
    struct engine *sender;
    struct engine *receiver;
    _Atomic uint32_t moved;
    _Atomic bool must_stop;
    _Atomic int32_t unexpected; /* expectations are for the test's own thread */
};

static void note(struct crowd *crowd, int32_t status, int32_t other)
{
    if (status != CONVOY_OK && status != other) {
        atomic_store(&crowd->unexpected, status);
    }
}

static void *come_and_go(void *argument)
{
    struct crowd *crowd = argument;
    const struct convoy_transfer_table *table = crowd->sender->table;
    convoy_transfer_engine *handle = crowd->sender->handle;
    const char *session = crowd->receiver->info.session;
    static const uint8_t block[4096] = {1};
    const uint64_t bytes = sizeof block;
    for (uint32_t i = 0; i < test_scaled(60, 3000); i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        struct convoy_peer_info info = {.struct_size = sizeof info};
        struct convoy_engine_figures figures = {.struct_size = sizeof figures};
        const struct convoy_tensor_source tensor = engine_tensor(block, &bytes);
        const struct convoy_stage stage = engine_stage("crowd", &tensor, 1);
        struct convoy_send send = {.struct_size = sizeof send, .timeout_ns = ENGINE_TIMEOUT_NS};
        convoy_transfer sent = 0;
        note(crowd, table->peer_connect(handle, session, strlen(session), ENGINE_TIMEOUT_NS, &send.peer, &error), CONVOY_OK);
        int32_t status = table->send(handle, &stage, &send, &sent, &error);
        note(crowd, status == CONVOY_CLOSED ? CONVOY_PEER_LOST : status, CONVOY_PEER_LOST);
        atomic_fetch_add(&crowd->moved, status == CONVOY_OK);
        note(crowd, table->pool_figures(handle, &figures, &error), CONVOY_OK);
        note(crowd, table->peer_info(handle, send.peer, &info, &error), CONVOY_CLOSED);
        if (sent != 0) {
            note(crowd, table->release(handle, sent, &error), CONVOY_OK);
        }
        if (i % 4 == 3) {
            note(crowd, table->peer_disconnect(handle, send.peer, &error), CONVOY_CLOSED);
        }
    }
    return NULL;
}

static void *take_all(void *argument)
{
    struct crowd *crowd = argument;
    const struct convoy_transfer_table *table = crowd->receiver->table;
    convoy_transfer_engine *handle = crowd->receiver->handle;
    while (!atomic_load(&crowd->must_stop)) {
        const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = 20000000};
        struct convoy_error error = {.struct_size = sizeof error};
        convoy_transfer loaded = 0;
        (void)table->accept(handle, &load, &loaded, &error);
        if (loaded != 0) {
            note(crowd, table->release(handle, loaded, &error), CONVOY_OK);
        }
    }
    return NULL;
}

static void test_reports_threads_that_connect_send_and_leave_at_once_are_kept_apart(void **state)
{
    (void)state;
    struct crowd crowd = {.sender = engine_create(NULL), .receiver = engine_create(NULL)};
    pthread_t threads[THREADS + 2];
    for (uint32_t i = 0; i < THREADS + 2; i++) {
        EXPECT(pthread_create(&threads[i], NULL, i < THREADS ? come_and_go : take_all, &crowd) == 0);
    }
    for (uint32_t i = 0; i < THREADS + 2; i++) {
        if (i == THREADS) {
            atomic_store(&crowd.must_stop, true);
        }
        EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    EXPECT_EQUAL(crowd.unexpected, 0);
    EXPECT(crowd.moved > 0);
    await_idle(crowd.sender, 0);
    await_idle(crowd.receiver, 0);
    engine_destroy(crowd.sender);
    engine_destroy(crowd.receiver);
}

/* kvcache-ai/Mooncake PR 4001: released the moment it shows as complete, over and over; sums of bytes stay exact. */
static void test_reports_what_shows_as_complete_is_released_at_once(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = pool_of(4u << 20);
    struct two *two = two_open_with(&options);
    uint32_t rounds = test_scaled(3000, 1000000);
    struct convoy_peer_info info = {.struct_size = sizeof info};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        uint64_t bytes = 1 + i * 7919u % BYTES;
        convoy_transfer loaded = accept_by(two->receiver, NULL, 0, i % 2, 0);
        convoy_transfer sent = send_bytes(two->sender, two->peer, "at once", 1, two->memory, bytes);
        struct convoy_completion done;
        size_t count = 0;
        while (count == 0) {
            CALL_OK(two->receiver, completions, &done, sizeof done, 1, &count);
        }
        EXPECT_EQUAL(done.transfer, loaded);
        EXPECT_EQUAL(done.status, CONVOY_OK);
        release(two->receiver, done.transfer);
        do {
            count = 0;
            CALL_OK(two->sender, completions, &done, sizeof done, 1, &count);
        } while (count == 0 || done.transfer != sent);
        release(two->sender, sent);
        sum += bytes;
    }
    CALL_OK(two->sender, peer_info, two->peer, &info);
    EXPECT_EQUAL(info.sent_bytes, sum);
    await_idle(two->sender, 0);
    two_close(two);
}

/* -- ray-project/ray PR 65962, kvcache-ai/Mooncake issues 1000 and 2913: fewer places than peers, which take turns; a peer
 *    that gave up its place keeps what it was lent, and the others notice nothing -- */

static void test_reports_peers_take_turns_in_few_places(void **state)
{
    (void)state;
    struct convoy_transfer_options few = pool_of(8u << 20);
    few.peer_max = 2;
    struct engine *sender = engine_create(&few);
    struct engine *receivers[EVICTED];
    convoy_transfer held[EVICTED];
    convoy_peer peers[EVICTED];
    uint8_t data[4096];
    for (uint32_t i = 0; i < EVICTED; i++) {
        struct convoy_transfer_options small = pool_of(1u << 20);
        receivers[i] = engine_create(&small);
        if (i >= 2) {
            const char *session = receivers[i]->info.session;
            CALL_STATUS(sender, CONVOY_LIMIT, peer_connect, session, strlen(session), ENGINE_TIMEOUT_NS, &peers[i]);
            CALL_OK(sender, peer_disconnect, peers[i - 2]);
            receivers[i - 2]->table->release(receivers[i - 2]->handle, held[i - 2], NULL);
        }
        AWAIT(CALL(sender, peer_connect, receivers[i]->info.session, strlen(receivers[i]->info.session), ENGINE_TIMEOUT_NS,
                   &peers[i]) != CONVOY_LIMIT); /* until what was lent is back */
        engine_fill(data, sizeof data, i);
        convoy_transfer sent = send_bytes(sender, peers[i], "turn", 1, data, sizeof data);
        held[i] = accept_by(receivers[i], "turn", 0, CONVOY_LOAD_VIEW, 0);
        engine_wait(receivers[i], held[i], CONVOY_OK, NULL);
        engine_wait(sender, sent, CONVOY_OK, NULL);
        release(sender, sent);
        for (uint32_t j = i >= 1 ? i - 1 : 0; j <= i; j++) { /* those that have a place, old and new */
            EXPECT(engine_is_filled(staged_address(receivers[j], held[j]), sizeof data, j));
        }
    }
    CALL_OK(sender, peer_disconnect, peers[EVICTED - 1]);
    EXPECT(engine_is_filled(staged_address(receivers[EVICTED - 1], held[EVICTED - 1]), sizeof data, EVICTED - 1));
    release(receivers[EVICTED - 1], held[EVICTED - 1]);
    release(receivers[EVICTED - 2], held[EVICTED - 2]);
    await_idle(sender, 0);
    for (uint32_t i = 0; i < EVICTED; i++) {
        engine_destroy(receivers[i]);
    }
    engine_destroy(sender);
}

/* -- ai-dynamo/nixl issue 1159: what is not there yet, what does not answer and what is nonsense are three things, and
 *    none of them hurts the engine at whose port they come -- */

static int dial_port(uint16_t port)
{
    const struct sockaddr_in there = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0 && connect(fd, (const struct sockaddr *)&there, sizeof there) == 0);
    return fd;
}

static uint16_t port_of(const struct engine *engine)
{
    return (uint16_t)strtoul(strchr(engine->info.session, ':') + 1, NULL, 10);
}

static void test_reports_strangers_at_the_port_harm_nobody(void **state)
{
    (void)state;
    struct two *two = two_open();
    uint8_t noise[4096];
    for (uint32_t i = 0; i < test_scaled(100, 5000); i++) {
        int fd = dial_port(port_of(two->receiver));
        engine_fill(noise, sizeof noise, i);
        if (i % 3 == 1) {
            memset(noise, 0xff, 64); /* counts too large */
        } else if (i % 3 == 2) {
            memset(noise, 0, sizeof noise);
        }
        (void)send(fd, noise, i * 37 % sizeof noise, MSG_NOSIGNAL);
        (void)close(fd);
    }
    struct engine *third = engine_create(NULL);
    (void)engine_connect(third, two->receiver->info.session);
    convoy_transfer loaded = accept_by(two->receiver, NULL, two->peer * 0, CONVOY_LOAD_VIEW, 0);
    convoy_transfer sent = send_bytes(two->sender, two->peer, "still well", 1, two->memory, BYTES);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    release(two->receiver, loaded);
    release(two->sender, sent);
    engine_destroy(third);
    two_close(two);
}

static void test_reports_not_there_yet_differs_from_nonsense(void **state)
{
    (void)state;
    struct engine *engine = engine_create(NULL);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof here;
    convoy_peer peer = 0;
    char session[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0 && bind(fd, (struct sockaddr *)&here, sizeof here) == 0);
    EXPECT_EQUAL(getsockname(fd, (struct sockaddr *)&here, &bytes), 0);
    (void)snprintf(session, sizeof session, "127.0.0.1:%u+0000000000000001", ntohs(here.sin_port));
    int32_t status = CALL(engine, peer_connect, session, strlen(session), 300000000, &peer); /* nobody listens */
    EXPECT(status == CONVOY_UNREACHABLE || status == CONVOY_TIMED_OUT);
    EXPECT_EQUAL(listen(fd, 1), 0);
    CALL_STATUS(engine, CONVOY_TIMED_OUT, peer_connect, session, strlen(session), 300000000, &peer); /* nobody answers */
    CALL_STATUS(engine, CONVOY_INVALID_ARGUMENT, peer_connect, session, 4, 300000000, &peer);
    (void)close(fd);
    engine_destroy(engine);
}

/* However many transfers an engine is opened for, others connect to it. */
static void test_reports_engines_of_any_size_connect(void **state)
{
    (void)state;
    static const uint32_t counts[5] = {1, 1000, 1025, 3333, 65536};
    struct engine *engine = engine_create(NULL);
    for (int i = 0; i < 5; i++) {
        struct convoy_transfer_options options = pool_of(1u << 20);
        options.transfer_max = counts[i];
        struct engine *other = engine_create(&options);
        (void)engine_connect(engine, other->info.session);
        engine_destroy(other);
    }
    engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_threads_that_connect_send_and_leave_at_once_are_kept_apart),
        cmocka_unit_test(test_reports_what_shows_as_complete_is_released_at_once),
        cmocka_unit_test(test_reports_peers_take_turns_in_few_places),
        cmocka_unit_test(test_reports_strangers_at_the_port_harm_nobody),
        cmocka_unit_test(test_reports_not_there_yet_differs_from_nonsense),
        cmocka_unit_test(test_reports_engines_of_any_size_connect),
    };
    return cmocka_run_group_tests_name("reports_transfer_threads", tests, NULL, NULL);
}
