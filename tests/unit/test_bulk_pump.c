/* SPDX-License-Identifier: Apache-2.0 */
/* What goes when: windows, turns, answers, small segments, order of frames. */
#include "tests/unit/bulk_pair.h"

#include "core/clock.h"
#include "core/memory.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK CONVOY_BULK_CHUNK_BYTES

static uint8_t data[64 * CHUNK];

static struct bulk_header sent(const struct bulk_pair *pair, uint32_t index)
{
    struct bulk_header header;
    size_t bytes;
    (void)fake_wire_data(pair->b.bulk->link, index, &bytes);
    EXPECT(convoy_bulk_header_decode(fake_wire_header(pair->b.bulk->link, index), BULK_HEADER_BYTES, bytes, &header));
    return header;
}

static void test_bulk_pump_never_has_more_than_a_window_under_way(void **state)
{
    const struct convoy_bulk_options options = {.window = 5};
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 64 * CHUNK, &options);
    (void)bulknode_send(&pair.a, 0, 1, data, sizeof data, 0);
    for (uint32_t i = 0; i < 10; i++) {
        (void)convoy_bulk_progress(pair.a.bulk);
    }
    EXPECT_EQUAL(fake_wire_waiting(pair.b.bulk->link), 5);
    EXPECT_EQUAL(convoy_bulk_arm(pair.a.bulk), true); /* nothing to do until an answer comes */
    for (uint32_t i = 0; pair.a.ended == 0; i++) {
        (void)convoy_bulk_progress(pair.b.bulk);
        (void)convoy_bulk_progress(pair.a.bulk);
        EXPECT(bulk_peer_in_flight(&pair.a.bulk->peers[0]) <= 5 && i < 10000);
    }
    EXPECT_EQUAL(pair.b.landed[1], sizeof data);
    pair_close(&pair);
}

/* A long one does not hold up a short one that comes later. */
static void test_bulk_pump_gives_each_stream_its_turn(void **state)
{
    const struct convoy_bulk_options options = {.window = 8};
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 64 * CHUNK, &options);
    fake_wire.refuse = 100; /* until all three wait */
    (void)bulknode_send(&pair.a, 0, 1, data, 20 * CHUNK, 0);
    (void)bulknode_send(&pair.a, 0, 2, data, 20 * CHUNK, 0);
    (void)bulknode_send(&pair.a, 0, 3, data, 2 * CHUNK, 0);
    fake_wire.refuse = 0;
    (void)convoy_bulk_progress(pair.a.bulk);
    static const uint64_t turns[] = {1, 2, 3, 1, 2, 3, 1, 2};
    EXPECT_EQUAL(fake_wire_waiting(pair.b.bulk->link), 8);
    for (uint32_t i = 0; i < 8; i++) {
        EXPECT_EQUAL(sent(&pair, i).transfer, turns[i]);
        EXPECT_EQUAL(sent(&pair, i).sequence, i);
    }
    pair_settle(&pair);
    EXPECT_EQUAL(pair.a.ended, 3);
    pair_close(&pair);
}

/* Frames keep their order among themselves and go before chunks that still wait, never before those that went. */
static void test_bulk_pump_frames_keep_their_order(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 64 * CHUNK, NULL);
    (void)bulknode_send(&pair.a, 0, 1, data, CHUNK, 0);
    fake_wire.refuse = 3;
    for (uint64_t i = 0; i < 100; i++) {
        EXPECT_EQUAL(bulknode_frame(&pair.a, 0, i, 8 + (size_t)i * 80), CONVOY_OK);
    }
    EXPECT_EQUAL(sent(&pair, 0).kind, BULK_CHUNK);
    pair_settle(&pair);
    EXPECT(pair.b.frames == 100 && pair.b.wrong_frames == 0);
    EXPECT_EQUAL(pair.b.landed[1], CHUNK);
    pair_close(&pair);
}

static void test_bulk_pump_frames_beyond_the_bound_are_limit(void **state)
{
    struct bulk_pair pair;
    struct convoy_error error = {.struct_size = sizeof error};
    uint8_t frame[CONVOY_BULK_FRAME_BYTES] = {0};
    (void)state;
    pair_open(&pair, 64, NULL);
    pair.a.bulk->peers[0].proven_bytes = CONVOY_BULK_FRAME_BYTES;
    fake_wire.refuse = 1000;
    for (uint32_t i = 0; i < CONVOY_BULK_QUEUE_BYTES / CONVOY_BULK_FRAME_BYTES; i++) {
        EXPECT_OK(convoy_bulk_frame(pair.a.bulk, 0, frame, sizeof frame, NULL), NULL);
    }
    EXPECT_STATUS(convoy_bulk_frame(pair.a.bulk, 0, frame, sizeof frame, &error), CONVOY_LIMIT, &error);
    EXPECT_TEXT(error.text, "wait for peer 0");
    pair_close(&pair); /* frees what waits */
}

/* The host has chosen small TCP segments: chunks shrink until they fit, once, and the bytes are right. */
static void test_bulk_pump_fits_chunks_to_a_smaller_segment(void **state)
{
    static const size_t segments[] = {1100, 8192, 16384, 40000};
    (void)state;
    for (size_t i = 0; i < sizeof segments / sizeof segments[0]; i++) {
        struct bulk_pair pair;
        pair_open(&pair, 8 * CHUNK, NULL);
        fake_wire.segment_bytes = segments[i];
        bulknode_fill(data, 1, 0, 5 * CHUNK + 77);
        (void)bulknode_send(&pair.a, 0, 1, data, 5 * CHUNK + 77, CONVOY_BULK_CHECKSUM);
        pair_settle(&pair);
        EXPECT_EQUAL(pair.a.statuses[1], CONVOY_OK);
        EXPECT(bulknode_is_right(&pair.b, 1, 5 * CHUNK + 77));
        size_t chunk = pair.a.bulk->peers[0].chunk_bytes;
        EXPECT(chunk + BULK_HEADER_BYTES <= segments[i] && 2 * chunk + BULK_HEADER_BYTES > segments[i]);
        EXPECT(fake_wire.refused < 10);
        EXPECT_EQUAL(bulknode_frame(&pair.a, 0, 0, 8000), CONVOY_OK); /* longer than the segment */
        pair_settle(&pair);
        EXPECT(pair.b.frames == 1 && pair.b.wrong_frames == 0);
        pair_close(&pair);
    }
}

/* A busy connection is no small segment. */
static void test_bulk_pump_busy_connection_keeps_the_chunk_size(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 8 * CHUNK, NULL);
    fake_wire.refuse = 1000;
    (void)bulknode_send(&pair.a, 0, 1, data, 8 * CHUNK, 0);
    for (uint32_t i = 0; i < 10; i++) {
        (void)convoy_bulk_progress(pair.a.bulk);
    }
    fake_wire.refuse = 0;
    pair_settle(&pair);
    EXPECT_EQUAL(pair_counts(&pair.a)->sent_chunks, 8);
    pair_close(&pair);
}

/* One answer for many chunks, and the last one at once. */
static void test_bulk_pump_answers_are_gathered(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 64 * CHUNK, NULL);
    (void)bulknode_send(&pair.a, 0, 1, data, 64 * CHUNK, 0);
    pair_settle(&pair);
    EXPECT_EQUAL(pair.a.ended, 1);
    EXPECT(pair_counts(&pair.b)->sent_acks <= 64 / BULK_ACK_EVERY + 3);
    EXPECT_EQUAL(pair_counts(&pair.a)->received_acks, pair_counts(&pair.b)->sent_acks);
    pair_close(&pair);
}

static void test_bulk_pump_send_that_fails_ends_all_streams_of_the_peer(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 64 * CHUNK, NULL);
    fake_wire.refuse = 100;
    (void)bulknode_send(&pair.a, 0, 1, data, 3 * CHUNK, 0);
    (void)bulknode_send(&pair.a, 0, 2, data, 3 * CHUNK, 0);
    fake_wire.refuse = 0;
    fake_wire.fail_sends = 1;
    pair_settle(&pair);
    EXPECT(pair.a.downs == 1 && pair.a.ended == 2 && pair.a.released == 2);
    EXPECT(pair.a.lost[1] == 3 * CHUNK && pair.a.lost[2] == 3 * CHUNK);
    EXPECT_EQUAL(bulknode_frame(&pair.a, 0, 0, 8), CONVOY_PEER_LOST);
    pair_close(&pair);
}

/* What was started by another thread while one sleeps makes the descriptor readable. */
static void test_bulk_pump_sleeper_is_woken_for_events_and_deadlines(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 64 * CHUNK, NULL);
    pair_settle(&pair);
    EXPECT(convoy_bulk_arm(pair.a.bulk));
    struct pollfd fd = {.fd = convoy_bulk_fd(pair.a.bulk), .events = POLLIN};
    EXPECT_EQUAL(poll(&fd, 1, 0), 0);
    (void)bulknode_send(&pair.a, 0, 1, data, 10, 0); /* RELEASED waits */
    EXPECT_EQUAL(poll(&fd, 1, 0), 1);
    EXPECT(!convoy_bulk_arm(pair.a.bulk));
    pair_settle(&pair);
    EXPECT(convoy_bulk_arm(pair.a.bulk));
    EXPECT_EQUAL(poll(&fd, 1, 0), 0);
    EXPECT_EQUAL(convoy_bulk_wake_ns(pair.a.bulk), CONVOY_DEADLINE_NEVER);
    pair_close(&pair);
}

#ifdef CONVOY_FAULTS
/* Each allocation of opening, connecting, a frame kept, and a frame delivered fails once. */
static void test_bulk_failing_at_each_allocation_is_no_memory(void **state)
{
    struct bulk_pair pair;
    const struct convoy_bulk_options options = {.peer_count = 1};
    struct convoy_bulk_options full;
    int32_t status = CONVOY_NO_MEMORY;
    (void)state;
    pair_open(&pair, 64, NULL);
    full = pair.a.bulk->options;
    full.peer_count = options.peer_count;
    for (int64_t skip = 0; status != CONVOY_OK; skip++) {
        struct convoy_bulk *bulk = NULL;
        (void)convoy_memory_fail_after(skip);
        status = convoy_bulk_open(&full, &bulk, NULL);
        (void)convoy_memory_fail_after(-1);
        EXPECT(status == CONVOY_OK || status == CONVOY_NO_MEMORY);
        EXPECT((bulk != NULL) == (status == CONVOY_OK) && skip < 50);
        convoy_bulk_close(bulk, 0);
    }
    fake_wire.refuse = 1;
    pair.a.bulk->peers[0].proven_bytes = 64;
    (void)convoy_memory_fail_after(0);
    EXPECT_EQUAL(bulknode_frame(&pair.a, 0, 0, 8), CONVOY_NO_MEMORY);
    fake_wire.refuse = 0;
    EXPECT_EQUAL(bulknode_frame(&pair.a, 0, 0, 8), CONVOY_OK);
    (void)convoy_memory_fail_after(0);
    (void)convoy_bulk_progress(pair.b.bulk); /* a frame must not vanish: the peer is dropped, and told of */
    (void)convoy_memory_fail_after(-1);
    pair_settle(&pair);
    EXPECT(pair.b.downs == 1 && pair.b.frames == 0);
    pair_close(&pair);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_pump_never_has_more_than_a_window_under_way),
        cmocka_unit_test(test_bulk_pump_gives_each_stream_its_turn),
        cmocka_unit_test(test_bulk_pump_frames_keep_their_order),
        cmocka_unit_test(test_bulk_pump_frames_beyond_the_bound_are_limit),
        cmocka_unit_test(test_bulk_pump_fits_chunks_to_a_smaller_segment),
        cmocka_unit_test(test_bulk_pump_busy_connection_keeps_the_chunk_size),
        cmocka_unit_test(test_bulk_pump_answers_are_gathered),
        cmocka_unit_test(test_bulk_pump_send_that_fails_ends_all_streams_of_the_peer),
        cmocka_unit_test(test_bulk_pump_sleeper_is_woken_for_events_and_deadlines),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_bulk_failing_at_each_allocation_is_no_memory),
#endif
    };
    return cmocka_run_group_tests_name("bulk_pump", tests, NULL, NULL);
}
