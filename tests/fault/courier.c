/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fault/courier.h"

#include "tests/lib/expect.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES 400000u /* more than is copied at once, several chunks */
#define CONNECT_NS 2000000000ull

#define CALL(courier, name, ...)                                                                                       \
    ((courier)->engine->table->name((courier)->engine->handle, __VA_ARGS__, &(courier)->engine->error))
#define CALL_OK(courier, name, ...) EXPECT_OK(CALL(courier, name, __VA_ARGS__), &(courier)->engine->error)

static const uint64_t data_bytes = BYTES;

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint8_t *courier_make_data(void)
{
    uint8_t *data = malloc(BYTES);
    EXPECT(data != NULL);
    engine_fill(data, BYTES, 21);
    return data;
}

/* OK, or that the other is gone. */
static void expect_loss(struct courier *courier, int32_t status)
{
    bool is_loss = status == CONVOY_PEER_LOST || status == CONVOY_CLOSED;
    EXPECT_OK(is_loss ? CONVOY_OK : status, &courier->engine->error);
}

/* -- keeping step -------------------------------------------------------------------------------------------------- */

static bool is_dead(const struct courier *courier)
{
    return __atomic_load_n(&courier->life->is_dead, __ATOMIC_ACQUIRE) != 0;
}

static void come_to(struct courier *courier, uint32_t step)
{
    __atomic_store_n(&courier->life->steps[courier->role], step, __ATOMIC_RELEASE);
}

/* false: the other has died before it came so far. The engine is kept going meanwhile, as a host does. */
static bool await_step(struct courier *courier, uint32_t step)
{
    const uint32_t *other = &courier->life->steps[COURIER_ROLES - 1 - courier->role];
    uint64_t end = now_ns() + COURIER_TIMEOUT_NS;
    while (__atomic_load_n(other, __ATOMIC_ACQUIRE) < step) {
        if (is_dead(courier)) {
            return __atomic_load_n(other, __ATOMIC_ACQUIRE) >= step;
        }
        EXPECT(now_ns() < end);
        (void)engine_figures(courier->engine);
        (void)sched_yield();
    }
    return true;
}

static bool is_waiting(uint32_t state)
{
    return state == CONVOY_TRANSFER_WAITING || state == CONVOY_TRANSFER_RESERVED || state == CONVOY_TRANSFER_FILLING;
}

/* Its end, and nothing but OK or PEER_LOST. What is for nobody in particular does not end by a death: it is given up. */
static bool end_of(struct courier *courier, convoy_transfer transfer, bool is_bound)
{
    uint64_t end = now_ns() + COURIER_TIMEOUT_NS;
    bool has_died = false;
    for (;;) {
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        int32_t status = CALL(courier, transfer_test, transfer, &result);
        if (status != CONVOY_IN_PROGRESS) {
            expect_loss(courier, status);
            EXPECT(status == CONVOY_OK || courier->engine->error.text[0] != '\0');
            return status == CONVOY_OK;
        }
        if (has_died && !is_bound && is_waiting(result.state)) {
            return false;
        }
        if (is_dead(courier) && !has_died) {
            has_died = true;
            end = now_ns() + COURIER_NOTICE_NS;
        }
        EXPECT(now_ns() < end);
        (void)sched_yield();
    }
}

static void release(struct courier *courier, convoy_transfer transfer)
{
    CALL_OK(courier, release, transfer);
}

/* -- who sends ----------------------------------------------------------------------------------------------------- */

static bool start_send(struct courier *courier, const char *request, uint64_t address, convoy_transfer *sent_out)
{
    const struct convoy_tensor_source tensor = engine_tensor(courier->data, &data_bytes);
    const struct convoy_stage stage = engine_stage(request, &tensor, 1);
    const struct convoy_send send = {
        .struct_size = sizeof send, .peer = courier->peer, .address = address, .timeout_ns = COURIER_TIMEOUT_NS};
    int32_t status = CALL(courier, send_start, &stage, &send, sent_out);
    expect_loss(courier, status);
    return status == CONVOY_OK;
}

static bool send_one(struct courier *courier, const char *request, uint64_t address)
{
    convoy_transfer sent = 0;
    if (!start_send(courier, request, address, &sent)) {
        return false;
    }
    bool is_good = end_of(courier, sent, true);
    release(courier, sent);
    return is_good;
}

/* Nobody wants it, and its sender neither before long. */
static bool send_withdrawn(struct courier *courier)
{
    convoy_transfer sent = 0;
    if (!start_send(courier, "nobody's", 0, &sent)) {
        return false;
    }
    struct convoy_transfer_result result = {.struct_size = sizeof result, .state = CONVOY_TRANSFER_QUEUED};
    while (result.state == CONVOY_TRANSFER_QUEUED || result.state == CONVOY_TRANSFER_STAGING) {
        (void)CALL(courier, transfer_test, sent, &result);
    }
    CALL_OK(courier, abort, sent, "not wanted", 10);
    release(courier, sent);
    uint64_t end = now_ns() + COURIER_TIMEOUT_NS;
    while (!is_dead(courier) && engine_figures(courier->engine).taken != 0) {
        EXPECT(now_ns() < end);
        (void)sched_yield();
    }
    return !is_dead(courier);
}

static convoy_transfer stage(struct courier *courier, const char *request)
{
    const struct convoy_tensor_source tensor = engine_tensor(courier->data, &data_bytes);
    const struct convoy_stage stage = engine_stage(request, &tensor, 1);
    convoy_transfer staged = 0;
    CALL_OK(courier, stage_start, &stage, &staged);
    engine_wait(courier->engine, staged, CONVOY_OK, NULL);
    return staged;
}

static bool send_by_broker(struct courier *courier)
{
    struct courier_life *life = courier->life;
    struct convoy_text_buffer text = {
        .struct_size = sizeof text, .data = life->descriptor, .capacity = sizeof life->descriptor};
    convoy_transfer staged = stage(courier, "broker");
    CALL_OK(courier, descriptor, staged, CONVOY_DESCRIPTOR_BINARY, &text);
    life->descriptor_bytes = text.length;
    come_to(courier, 2);
    bool is_good = await_step(courier, 2);
    release(courier, staged);
    return is_good;
}

static bool send_raw(struct courier *courier)
{
    convoy_transfer staged = stage(courier, "raw");
    engine_look(courier->engine, staged);
    const struct convoy_raw_piece piece = {
        .source = courier->engine->views[0].data, .target = courier->life->addresses[1], .bytes = BYTES};
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = courier->peer,
                                   .pieces = &piece,
                                   .piece_stride = sizeof piece,
                                   .piece_count = 1};
    int32_t status = CALL(courier, transfer_sync, &raw, COURIER_TIMEOUT_NS);
    expect_loss(courier, status);
    release(courier, staged);
    return status == CONVOY_OK;
}

static bool dial(struct courier *courier)
{
    const char *session = courier->life->sessions[COURIER_LISTENER];
    uint64_t began = now_ns();
    if (!await_step(courier, 1)) {
        return false;
    }
    int32_t status = CALL(courier, peer_connect, session, strlen(session), CONNECT_NS, &courier->peer);
    EXPECT(now_ns() - began < COURIER_NOTICE_NS);
    EXPECT(status == CONVOY_OK || courier->engine->error.text[0] != '\0');
    return status == CONVOY_OK;
}

static bool run_dialer(struct courier *courier)
{
    return dial(courier) && send_withdrawn(courier) && send_one(courier, "view", 0) && send_one(courier, "copy", 0) &&
           send_by_broker(courier) && await_step(courier, 3) &&
           send_one(courier, "push", courier->life->addresses[0]) && send_raw(courier) && await_step(courier, 4);
}

/* -- who receives -------------------------------------------------------------------------------------------------- */

static void check_data(struct courier *courier, convoy_transfer loaded)
{
    engine_look(courier->engine, loaded);
    EXPECT_EQUAL(courier->engine->payload.payload_bytes, BYTES);
    EXPECT(engine_is_filled(courier->engine->views[0].data, BYTES, 21));
}

static bool accept_one(struct courier *courier, const char *request, uint32_t mode)
{
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = mode,
                                     .request = request,
                                     .request_length = strlen(request),
                                     .timeout_ns = COURIER_TIMEOUT_NS};
    convoy_transfer loaded = 0;
    CALL_OK(courier, accept_start, &load, &loaded);
    bool is_good = end_of(courier, loaded, false);
    if (is_good) {
        check_data(courier, loaded);
    }
    release(courier, loaded);
    return is_good;
}

static bool load_by_broker(struct courier *courier)
{
    const struct courier_life *life = courier->life;
    convoy_transfer loaded = 0;
    if (!await_step(courier, 2)) {
        return false;
    }
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .descriptor = life->descriptor,
                                     .descriptor_length = life->descriptor_bytes,
                                     .timeout_ns = COURIER_TIMEOUT_NS};
    int32_t status = CALL(courier, load_start, &load, &loaded);
    EXPECT(status == CONVOY_OK || status == CONVOY_UNREACHABLE); /* it has died just now */
    bool is_good = status == CONVOY_OK && end_of(courier, loaded, true);
    if (is_good) {
        check_data(courier, loaded);
    }
    if (status == CONVOY_OK) {
        release(courier, loaded);
    }
    come_to(courier, 2);
    return is_good;
}

static bool receive_in_slots(struct courier *courier)
{
    static const char *const requests[2] = {"push", "raw"};
    struct convoy_reserved_slot slots[2];
    for (uint32_t i = 0; i < 2; i++) {
        const struct convoy_reserve reserve = {.struct_size = sizeof reserve,
                                               .request = requests[i],
                                               .request_length = strlen(requests[i]),
                                               .bytes = &data_bytes,
                                               .count = 1};
        struct convoy_reservation reservation = {.struct_size = sizeof reservation,
                                                 .slots = &slots[i],
                                                 .slot_stride = sizeof slots[i],
                                                 .slot_capacity = 1};
        CALL_OK(courier, reserve, &reserve, &reservation);
        courier->life->addresses[i] = (uint64_t)(uintptr_t)slots[i].address;
    }
    come_to(courier, 3);
    bool is_good = true;
    for (uint32_t i = 0; i < 2; i++) {
        is_good = is_good && end_of(courier, slots[i].transfer, false);
        EXPECT(!is_good || engine_is_filled(slots[i].address, BYTES, 21));
        release(courier, slots[i].transfer);
    }
    come_to(courier, 4);
    return is_good;
}

static bool run_listener(struct courier *courier)
{
    come_to(courier, 1);
    return accept_one(courier, "view", CONVOY_LOAD_VIEW) && accept_one(courier, "copy", CONVOY_LOAD_COPY) &&
           load_by_broker(courier) && receive_in_slots(courier);
}

/* -- the whole ----------------------------------------------------------------------------------------------------- */

bool courier_run(struct courier *courier)
{
    courier->peer = 0;
    memcpy(courier->life->sessions[courier->role], courier->engine->info.session, CONVOY_SESSION_BYTES);
    return courier->role == COURIER_DIALER ? run_dialer(courier) : run_listener(courier);
}

void courier_await_empty(struct courier *courier)
{
    uint64_t end = now_ns() + COURIER_NOTICE_NS;
    for (;;) {
        struct convoy_engine_figures figures = engine_figures(courier->engine);
        struct convoy_engine_info info = {.struct_size = sizeof info};
        CALL_OK(courier, engine_info, &info);
        if (figures.taken == 0 && figures.quarantined == 0 && figures.reader_count == 0 && info.transfer_count == 0 &&
            info.peer_count == 0) {
            return;
        }
        EXPECT(now_ns() < end);
        (void)sched_yield();
    }
}
