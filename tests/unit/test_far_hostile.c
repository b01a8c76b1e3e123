/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer that knows the secret, introduces itself correctly, and then sends over a real UCX link what no engine would: chunks
 * for other slots, of other generations, beyond the end, twice, out of order; answers to what was never sent; notices that are
 * none; a flood. The engine refuses, counts, loses it where the protocol is broken, touches no byte but what it asked for, and
 * serves another peer all the while.
 */
#include "core/bytes.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "net/bulk_wire.h"
#include "net/dial.h"
#include "net/handshake.h"
#include "net/link.h"
#include "xfer/far.h"
#include "xfer/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 200000u
#define NOTE_BYTES 100u
#define GUARD_BYTES 4096u
#define HALF 60000u
#define LONG_NS (20 * CONVOY_NS_PER_S)
#define FLOOD 20000u
#define CANARY 0xa7

static struct convoy_runtime *runtime;
static struct convoy_xfer *victim;
static struct convoy_xfer *neighbour; /* an honest one */
static convoy_peer neighbours_peer;
static uint8_t memory[GUARD_BYTES + BYTES + GUARD_BYTES];

static void check(int32_t status, const struct convoy_error *error)
{
    if (status != CONVOY_OK) {
        fail_msg("status %d: %s", (int)status, error->text);
    }
}

/* -- engines ------------------------------------------------------------------------------------------------------- */

static struct convoy_xfer *open_engine(void)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_xfer *engine = NULL;
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = 4u << 20, .pool_block_bytes = 4096, .transfer_max = 64, .peer_max = 16};
    check(convoy_xfer_open(runtime, &options, &engine, &error), &error);
    return engine;
}

static int set_up(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    static const char settings[] = "{\"net\": \"ucx\"}";
    const struct convoy_context_config config = {
        .struct_size = sizeof config, .settings = settings, .settings_length = sizeof settings - 1};
    (void)state;
    check(convoy_runtime_open(&config, &runtime, &error), &error);
    victim = open_engine();
    neighbour = open_engine();
    check(convoy_xfer_connect(neighbour, victim->session, strlen(victim->session), LONG_NS, &neighbours_peer, &error), &error);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    struct convoy_xfer *const engines[] = {neighbour, victim};
    for (size_t i = 0; i < 2; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        check(convoy_xfer_close(engines[i], convoy_deadline_after(convoy_now_ns(), LONG_NS), &error), &error);
        convoy_xfer_destroy(engines[i]);
    }
    convoy_runtime_destroy(runtime);
    return 0;
}

static uint64_t soon(void)
{
    return convoy_deadline_after(convoy_now_ns(), LONG_NS);
}

/* A small one from the honest peer, whatever the other one does. */
static void serve_neighbour(void)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    static uint8_t data[50000];
    uint64_t shape = sizeof data;
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(i * 7);
    }
    const struct convoy_tensor_source tensor = {.name = "data",
                                                .name_length = 4,
                                                .dtype = "uint8",
                                                .dtype_length = 5,
                                                .rank = 1,
                                                .shape = &shape,
                                                .data = data};
    const struct convoy_stage stage = {.struct_size = sizeof stage,
                                       .request = "honest",
                                       .request_length = 6,
                                       .tensors = &tensor,
                                       .tensor_count = 1};
    const struct convoy_send send = {.struct_size = sizeof send, .peer = neighbours_peer, .timeout_ns = LONG_NS};
    const struct convoy_load load = {
        .struct_size = sizeof load, .request = "honest", .request_length = 6, .timeout_ns = LONG_NS};
    struct convoy_xfer_contents contents;
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    check(convoy_xfer_send(neighbour, &stage, &send, false, &sent, &error), &error);
    check(convoy_xfer_accept(victim, &load, false, &loaded, &error), &error);
    check(convoy_xfer_wait(victim, loaded, soon(), NULL, &error), &error);
    check(convoy_xfer_contents(victim, loaded, &contents, &error), &error);
    assert_memory_equal(contents.base, data, sizeof data);
    check(convoy_xfer_wait(neighbour, sent, soon(), NULL, &error), &error);
    check(convoy_xfer_release(victim, loaded, &error), &error);
    check(convoy_xfer_release(neighbour, sent, &error), &error);
}

/* -- the hostile one ----------------------------------------------------------------------------------------------- */

struct hostile {
    struct convoy_link *link;
    struct convoy_frame_stream stream;
    uint64_t incarnation;
    uint64_t bulk; /* its own, */
    uint64_t theirs; /* and the victim's */
    uint64_t sequence;
    bool has_room;
    bool is_down;
    struct convoy_room room;
    convoy_transfer load;
    uint64_t refused; /* chunks, before it came */
};

static void on_message(void *user, const void *header_bytes, size_t header_length, const void *data, size_t bytes)
{
    struct hostile *hostile = user;
    struct bulk_header header;
    if (convoy_bulk_header_decode(header_bytes, header_length, bytes, &header) && header.kind == BULK_FRAME &&
        convoy_bytes_u16(data) == CONVOY_SAY_ROOM) {
        memcpy(&hostile->room, (const uint8_t *)data + CONVOY_FAR_FRAME_HEAD_BYTES, sizeof hostile->room);
        hostile->has_room = true;
    }
}

static void on_down(void *user, uint32_t peer, int32_t ucx_status)
{
    struct hostile *hostile = user;
    (void)peer;
    (void)ucx_status;
    hostile->is_down = true;
}

static void introduce(struct hostile *hostile, const struct convoy_wait *wait)
{
    struct convoy_frame frame;
    struct convoy_introduction ours = {.flags = CONVOY_INTRODUCE_REMOTE, .incarnation = hostile->incarnation};
    uint8_t bytes[CONVOY_INTRODUCE_BYTES];
    (void)snprintf(ours.session, sizeof ours.session, "hostile");
    convoy_introduction_encode(&ours, bytes);
    assert_int_equal(convoy_frame_queue(&hostile->stream, CONVOY_INTRODUCE_ASK, bytes, sizeof bytes), CONVOY_OK);
    assert_int_equal(convoy_frame_wait_flush(&hostile->stream, wait), CONVOY_OK);
    assert_int_equal(convoy_frame_wait_recv(&hostile->stream, wait, &frame), CONVOY_OK);
    assert_int_equal(frame.type, CONVOY_INTRODUCE_ANSWER);
    convoy_memory_free(frame.body);
}

static void exchange(struct hostile *hostile, const struct convoy_wait *wait)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_frame frame;
    uint8_t own[CONVOY_FAR_ADDRESS_BYTES];
    size_t bytes = 0;
    const void *link = convoy_link_address(hostile->link, &bytes);
    convoy_bulk_address_encode(hostile->bulk, link, bytes, own);
    hostile->stream.limit = CONVOY_FAR_ADDRESS_BYTES;
    assert_int_equal(convoy_frame_queue(&hostile->stream, CONVOY_INTRODUCE_BULK, own,
                                        (uint32_t)(bytes + BULK_ADDRESS_HEAD_BYTES)), CONVOY_OK);
    assert_int_equal(convoy_frame_wait_flush(&hostile->stream, wait), CONVOY_OK);
    assert_int_equal(convoy_frame_wait_recv(&hostile->stream, wait, &frame), CONVOY_OK);
    assert_int_equal(frame.type, CONVOY_INTRODUCE_BULK);
    assert_true(convoy_bulk_address_decode(frame.body, frame.bytes, &hostile->theirs));
    check(convoy_link_connect(hostile->link, 0, frame.body + BULK_ADDRESS_HEAD_BYTES,
                              frame.bytes - BULK_ADDRESS_HEAD_BYTES, &error), &error);
    convoy_memory_free(frame.body);
}

static void send_raw(struct hostile *hostile, const struct bulk_header *header, const void *data, size_t bytes)
{
    uint8_t encoded[BULK_HEADER_BYTES];
    uint64_t end_ns = soon();
    int32_t status = CONVOY_LIMIT;
    convoy_bulk_header_encode(header, encoded);
    while (status == CONVOY_LIMIT && convoy_now_ns() < end_ns) {
        status = convoy_link_send(hostile->link, 0, encoded, sizeof encoded, data, bytes);
        (void)convoy_link_progress(hostile->link);
    }
    assert_true(status == CONVOY_OK || status == CONVOY_PEER_LOST);
}

static struct bulk_header header_of(const struct hostile *hostile, enum bulk_kind kind)
{
    return (struct bulk_header){.kind = kind, .epoch = 1, .from = hostile->bulk, .to = hostile->theirs};
}

static void send_frame(struct hostile *hostile, uint16_t type, const void *body, uint16_t length)
{
    const struct bulk_header header = header_of(hostile, BULK_FRAME);
    uint8_t frame[CONVOY_FAR_FRAME_HEAD_BYTES + CONVOY_RING_DATA_BYTES] = {0};
    convoy_bytes_put_u16(frame, type);
    convoy_bytes_put_u16(frame + 2, length);
    convoy_bytes_put_u64(frame + 8, hostile->incarnation);
    memcpy(frame + CONVOY_FAR_FRAME_HEAD_BYTES, body, length);
    send_raw(hostile, &header, frame, CONVOY_FAR_FRAME_HEAD_BYTES + length);
}

static void send_chunk(struct hostile *hostile, const struct convoy_room *room, uint64_t offset, size_t bytes)
{
    static uint8_t data[CONVOY_BULK_CHUNK_BYTES];
    struct bulk_header header = header_of(hostile, BULK_CHUNK);
    header.transfer = room->landing;
    header.generation = room->generation;
    header.offset = offset;
    header.sequence = hostile->sequence++;
    header.flags = BULK_FLAG_PUSH;
    memset(data, 0xee, sizeof data);
    send_raw(hostile, &header, data, bytes);
}

static uint64_t refused_chunks(void)
{
    struct convoy_landing_figures figures;
    convoy_landing_figures(victim->far->landings, &figures);
    return figures.refused;
}

/* It connects as any peer does, offers something, and is given room in the guarded memory. */
static void arrive(struct hostile *hostile, uint64_t number)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_session session;
    struct convoy_hello ours;
    struct convoy_hello theirs;
    const struct convoy_wait wait = {.cancel_fd = -1, .deadline_ns = soon()};
    *hostile = (struct hostile){.stream = {.fd = -1, .limit = CONVOY_INTRODUCE_BYTES + 1024},
                                .incarnation = UINT64_C(0xbad0000) + number,
                                .bulk = UINT64_C(0xbad1000) + number};
    const struct convoy_link_options options = {.runtime = runtime,
                                                .peer_count = 1,
                                                .message_bytes_max = CONVOY_BULK_CHUNK_BYTES,
                                                .recv = on_message,
                                                .down = on_down,
                                                .user = hostile};
    memset(memory, CANARY, sizeof memory);
    check(convoy_link_open(&options, &hostile->link, &error), &error);
    check(convoy_session_parse(victim->session, strlen(victim->session), &session, &error), &error);
    check(convoy_dial(&session.where, &wait, &hostile->stream.fd, &error), &error);
    check(convoy_handshake_hello(runtime, &ours, &error), &error);
    check(convoy_handshake_connect(runtime, hostile->stream.fd, &wait, &ours, &theirs, &error), &error);
    introduce(hostile, &wait);
    exchange(hostile, &wait);
    send_frame(hostile, CONVOY_SAY_HELLO, "", 0);
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = CONVOY_LOAD_COPY,
                                     .request = "hostile",
                                     .request_length = 7,
                                     .destination = memory + GUARD_BYTES,
                                     .destination_bytes = BYTES,
                                     .timeout_ns = LONG_NS};
    check(convoy_xfer_accept(victim, &load, false, &hostile->load, &error), &error);
    const struct convoy_offer offer = {.serial = 77,
                                       .sequence = 1,
                                       .digest = convoy_request_digest("hostile", 7),
                                       .bytes = BYTES,
                                       .note = NOTE_BYTES,
                                       .attempt = 1};
    send_frame(hostile, CONVOY_SAY_OFFER, &offer, sizeof offer);
    while (!hostile->has_room && convoy_now_ns() < wait.deadline_ns) {
        (void)convoy_link_progress(hostile->link);
    }
    assert_true(hostile->has_room);
    assert_int_equal(hostile->room.put, CONVOY_ROOM_NO_PUT);
    hostile->refused = refused_chunks();
}

static void await_refused(struct hostile *hostile, uint64_t count)
{
    uint64_t end_ns = soon();
    while (refused_chunks() - hostile->refused < count && convoy_now_ns() < end_ns) {
        (void)convoy_link_progress(hostile->link);
    }
    assert_int_equal(refused_chunks() - hostile->refused, count);
}

static void expect_untouched(uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        assert_int_equal(memory[i], CANARY);
    }
}

/* It goes; what it was given room for has ended with it, for this reason. */
static void leave(struct hostile *hostile, int32_t status)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_link_close(hostile->link, convoy_now_ns());
    convoy_frame_close(&hostile->stream);
    assert_int_equal(convoy_xfer_wait(victim, hostile->load, soon(), NULL, &error), status);
    check(convoy_xfer_release(victim, hostile->load, &error), &error);
    serve_neighbour();
}

/* -- chunks -------------------------------------------------------------------------------------------------------- */

static void test_far_hostile_chunks_that_were_not_asked_for_touch_nothing(void **state)
{
    struct hostile hostile;
    (void)state;
    arrive(&hostile, 1);
    struct convoy_room other = hostile.room;
    other.landing++;
    send_chunk(&hostile, &other, CONVOY_LANDING_PAYLOAD, HALF);
    other = hostile.room;
    other.landing = UINT64_MAX;
    send_chunk(&hostile, &other, CONVOY_LANDING_PAYLOAD, HALF);
    other = hostile.room;
    other.generation--;
    send_chunk(&hostile, &other, CONVOY_LANDING_PAYLOAD, HALF);
    const uint64_t offsets[] = {BYTES, BYTES - 10, 1, UINT64_C(1) << 40, NOTE_BYTES};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        send_chunk(&hostile, &hostile.room, CONVOY_LANDING_PAYLOAD + offsets[i], HALF);
    }
    send_chunk(&hostile, &hostile.room, CONVOY_LANDING_PAYLOAD - 10, HALF); /* from one part into the other */
    send_chunk(&hostile, &hostile.room, 0, NOTE_BYTES + 1);
    send_chunk(&hostile, &hostile.room, CONVOY_LANDING_PAYLOAD, 0);
    await_refused(&hostile, 11);
    expect_untouched(0, sizeof memory);
    serve_neighbour(); /* while it is still there */
    leave(&hostile, CONVOY_PEER_LOST);
}

static void test_far_hostile_chunks_that_come_twice_do_not_make_a_payload_whole(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct hostile hostile;
    (void)state;
    arrive(&hostile, 2);
    send_chunk(&hostile, &hostile.room, CONVOY_LANDING_PAYLOAD, HALF);
    send_chunk(&hostile, &hostile.room, 0, NOTE_BYTES);
    for (uint32_t i = 0; i < 3; i++) { /* as many bytes as there should be, but not those */
        send_chunk(&hostile, &hostile.room, CONVOY_LANDING_PAYLOAD, i < 2 ? HALF : BYTES - 3 * HALF);
    }
    send_chunk(&hostile, &hostile.room, CONVOY_LANDING_PAYLOAD + HALF - 1, HALF); /* overlaps */
    send_chunk(&hostile, &hostile.room, 0, NOTE_BYTES);                           /* behind the end of its part */
    await_refused(&hostile, 5);
    assert_int_equal(convoy_xfer_wait(victim, hostile.load, 0, NULL, &error), CONVOY_IN_PROGRESS);
    expect_untouched(0, GUARD_BYTES);
    expect_untouched(GUARD_BYTES + HALF, sizeof memory);
    leave(&hostile, CONVOY_PEER_LOST);
}

/* -- what breaks the protocol -------------------------------------------------------------------------------------- */

static uint64_t lost_peers(void)
{
    convoy_xfer_lock(victim);
    convoy_xfer_pump(victim);
    uint64_t lost = victim->counters[CONVOY_XFER_COUNT_peers_lost];
    convoy_xfer_unlock(victim);
    return lost;
}

static void skip_in_sequence(struct hostile *hostile)
{
    hostile->sequence += 3;
    send_chunk(hostile, &hostile->room, CONVOY_LANDING_PAYLOAD, HALF);
}

static void answer_what_was_not_sent(struct hostile *hostile)
{
    struct bulk_header ack = header_of(hostile, BULK_ACK);
    ack.generation = 1;
    for (uint32_t epoch = 1; epoch < 64; epoch++) { /* one of them is that of the connection */
        ack.generation = epoch;
        ack.sequence = 5;
        ack.offset = 1;
        send_raw(hostile, &ack, NULL, 0);
    }
}

static void say_nothing_known(struct hostile *hostile)
{
    send_frame(hostile, CONVOY_SAY_TYPES + 5, "garbage", 7);
}

static void say_it_too_short(struct hostile *hostile)
{
    send_frame(hostile, CONVOY_SAY_OFFER, "garbage", 7);
}

static void test_far_hostile_peer_that_breaks_the_protocol_is_lost_at_once(void **state)
{
    void (*const ways[])(struct hostile *) = {skip_in_sequence, answer_what_was_not_sent, say_nothing_known,
                                              say_it_too_short};
    (void)state;
    for (uint32_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct hostile hostile;
        arrive(&hostile, 10 + i);
        uint64_t lost = lost_peers();
        uint64_t end_ns = soon();
        ways[i](&hostile);
        while (lost_peers() == lost && convoy_now_ns() < end_ns) { /* its own connection stands meanwhile */
            (void)convoy_link_progress(hostile.link);
        }
        assert_int_equal(lost_peers(), lost + 1);
        expect_untouched(0, sizeof memory);
        leave(&hostile, CONVOY_PEER_LOST);
    }
}

/* -- floods -------------------------------------------------------------------------------------------------------- */

static void test_far_hostile_flood_keeps_nobody_else_from_being_served(void **state)
{
    struct hostile hostile;
    (void)state;
    arrive(&hostile, 20);
    for (uint32_t i = 0; i < FLOOD; i++) {
        const struct convoy_reply reply = {.serial = i, .status = CONVOY_CANCELED};
        const struct convoy_put put = {.landing = hostile.room.landing, .generation = hostile.room.generation, .bytes = BYTES};
        const struct bulk_header none = {.kind = BULK_FRAME, .epoch = 9, .from = i + 1, .to = hostile.theirs};
        send_frame(&hostile, CONVOY_SAY_BACK, &reply, sizeof reply);
        send_frame(&hostile, CONVOY_SAY_PUT, &put, sizeof put); /* it was allowed to put nothing */
        send_raw(&hostile, &none, "x", 1);
        if (i % 5000 == 0) {
            serve_neighbour();
        }
    }
    expect_untouched(0, sizeof memory);
    leave(&hostile, CONVOY_PEER_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_hostile_chunks_that_were_not_asked_for_touch_nothing),
        cmocka_unit_test(test_far_hostile_chunks_that_come_twice_do_not_make_a_payload_whole),
        cmocka_unit_test(test_far_hostile_peer_that_breaks_the_protocol_is_lost_at_once),
        cmocka_unit_test(test_far_hostile_flood_keeps_nobody_else_from_being_served),
    };
    return cmocka_run_group_tests_name("far_hostile", tests, set_up, tear_down);
}
