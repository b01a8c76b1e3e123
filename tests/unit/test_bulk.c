/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes over TCP loopback: bytes exact, order, many at once, pieces, and everything that is refused. */
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "tests/lib/bulknode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define CHUNK CONVOY_BULK_CHUNK_BYTES
#define WAIT_MS 20000u

static const size_t sizes[] = {0,         1,         63,        64,        4095,          4096,         CHUNK - 1,
                               CHUNK,     CHUNK + 1, 65536,     2 * CHUNK, 2 * CHUNK + 1, MIB - 1,      MIB,
                               MIB + 1,   3 * MIB,   8191,      8192,      8193,          10 * CHUNK};
#define SIZES (sizeof sizes / sizeof sizes[0])

static void run_pair(rank_fn run)
{
    struct ranks *ranks = ranks_create(2, sizeof(struct bulknode_shared));
    ranks_start(ranks, run, NULL, 0);
    ranks_finish(ranks);
}

/* Both are connected when it returns. */
static void open_pair(struct bulknode *node, const struct rank *rank, size_t region_bytes)
{
    bulknode_open(node, rank, region_bytes, NULL);
    bulknode_connect(node, 1 - rank->index);
    rank_barrier(rank);
}

/* The one that has heard everything tells the other, so that nobody leaves while his answers are needed. */
static void close_pair(struct bulknode *node)
{
    rank_mark(node->rank, 100);
    uint64_t deadline_ns = convoy_now_ns() + 10 * CONVOY_NS_PER_S;
    EXPECT_EQUAL(bulknode_frame(node, 1 - node->rank->index, node->rank->index + 1000000u, 16), CONVOY_OK);
    while (node->next_frame < 1000000 && convoy_now_ns() < deadline_ns) {
        convoy_bulk_sleep(node->bulk, deadline_ns);
    }
    EXPECT(node->next_frame >= 1000000);
    EXPECT(bulknode_close(node, CONVOY_NS_PER_S) < 3000);
}

/* -- sizes --------------------------------------------------------------------------------------------------------- */

static void send_sizes(struct bulknode *node, uint32_t flags)
{
    uint8_t *data = malloc(4 * MIB);
    uint64_t total = 0;
    for (size_t i = 0; i < SIZES; i++) {
        bulknode_fill(data, i, 0, sizes[i]);
        (void)bulknode_send(node, 1, i, data, sizes[i], flags);
        EXPECT(bulknode_await(node, &node->ended, i + 1, WAIT_MS));
        EXPECT_EQUAL(node->statuses[i], CONVOY_OK);
        EXPECT_EQUAL(node->lost[i], 0);
        total += sizes[i];
    }
    EXPECT_EQUAL(node->released, SIZES);
    EXPECT_EQUAL(bulknode_count(node, 1, "bytes_sent"), total);
    EXPECT_EQUAL(bulknode_count(node, 1, "bytes_applied"), total);
    EXPECT_EQUAL(bulknode_count(node, -1, "streams_open"), 0);
    free(data);
}

static void sizes_run(const struct rank *rank, void *argument)
{
    struct bulknode node;
    (void)argument;
    open_pair(&node, rank, 4 * MIB);
    if (rank->index == 0) {
        send_sizes(&node, 0);
    }
    close_pair(&node);
}

static void sizes_receive(const struct rank *rank, void *argument)
{
    struct bulknode node;
    (void)argument;
    open_pair(&node, rank, 4 * MIB);
    if (rank->index == 0) {
        send_sizes(&node, CONVOY_BULK_CHECKSUM);
    } else {
        uint64_t chunks = 0;
        uint64_t total = 0;
        for (size_t i = 0; i < SIZES; i++) {
            chunks += sizes[i] == 0 ? 1 : (sizes[i] + CHUNK - 1) / CHUNK;
            total += sizes[i];
        }
        EXPECT(bulknode_await(&node, &node.landed_chunks, chunks, WAIT_MS));
        for (size_t i = 0; i < SIZES; i++) {
            EXPECT_EQUAL(node.landed[i], sizes[i]);
            EXPECT(bulknode_is_right(&node, i, sizes[i]));
        }
        EXPECT_EQUAL(bulknode_count(&node, 0, "bytes_received"), total);
        EXPECT_EQUAL(bulknode_count(&node, 0, "chunks_dropped"), 0);
    }
    close_pair(&node);
}

/* kvcache-ai/Mooncake 2161 and others: every size around a boundary, byte for byte, with and without checksum. */
static void test_bulk_every_size_arrives_byte_for_byte(void **state)
{
    (void)state;
    run_pair(sizes_run);
    run_pair(sizes_receive);
}

/* -- many ---------------------------------------------------------------------------------------------------------- */

/* LIMIT says that a megabyte of them waits: it is waited out. */
static uint64_t send_frame(struct bulknode *node, uint64_t number)
{
    uint64_t refused = 0;
    int32_t status;
    while ((status = bulknode_frame(node, 1 - node->rank->index, number, 8 + (size_t)(number * 97 % 8000))) ==
           CONVOY_LIMIT) {
        bulknode_work(node, 1);
        refused++;
    }
    EXPECT_EQUAL(status, CONVOY_OK);
    return refused;
}

/* Both send to both at once: streams of different lengths in turn, frames between them, nothing out of order. */
static void many_run(const struct rank *rank, void *argument)
{
    struct bulknode node;
    const size_t each = MIB + 12345;
    uint8_t *data = malloc(BULKNODE_TRANSFERS * each);
    uint64_t sent = 0;
    uint64_t refused = 0;
    (void)argument;
    open_pair(&node, rank, each);
    for (uint32_t i = 0; i < BULKNODE_TRANSFERS; i++) {
        bulknode_fill(data + i * each, i, 0, each - 1000 * i);
        (void)bulknode_send(&node, 1 - rank->index, i, data + i * each, each - 1000 * i, 0);
        for (uint32_t k = 0; k < 10; k++) {
            refused += send_frame(&node, sent++);
        }
    }
    EXPECT(refused != 0);
    EXPECT(bulknode_await(&node, &node.ended, BULKNODE_TRANSFERS, WAIT_MS));
    EXPECT(bulknode_await(&node, &node.frames, sent, WAIT_MS));
    EXPECT_EQUAL(node.wrong_frames, 0);
    for (uint32_t i = 0; i < BULKNODE_TRANSFERS; i++) {
        EXPECT_EQUAL(node.statuses[i], CONVOY_OK);
        while (node.landed[i] < each - 1000 * i) {
            bulknode_work(&node, 1);
        }
        EXPECT(bulknode_is_right(&node, i, each - 1000 * i));
    }
    close_pair(&node);
    free(data);
}

static void test_bulk_many_streams_and_frames_both_ways_keep_bytes_and_order(void **state)
{
    (void)state;
    run_pair(many_run);
}

/* -- pieces -------------------------------------------------------------------------------------------------------- */

#define PIECES 256u

static void pieces_run(const struct rank *rank, void *argument)
{
    struct bulknode node;
    struct convoy_bulk_piece pieces[PIECES + 2];
    uint8_t *data = malloc(2 * PIECES * 1024);
    uint64_t stream;
    (void)argument;
    open_pair(&node, rank, MIB);
    if (rank->index == 0) {
        for (uint32_t i = 0; i < PIECES; i++) { /* strided, and with empty ones at both ends */
            bulknode_fill(data + i * 2048, 5, i * 1024, 1024);
            pieces[i + 1] = (struct convoy_bulk_piece){data + i * 2048, 1024};
        }
        pieces[0] = pieces[PIECES + 1] = (struct convoy_bulk_piece){NULL, 0};
        const struct convoy_bulk_send send = {
            .peer = 1, .transfer = 5, .generation = 1, .pieces = pieces, .piece_count = PIECES + 2, .cookie = 5};
        EXPECT_OK(convoy_bulk_send(node.bulk, &send, &stream, NULL), NULL);
        EXPECT(bulknode_await(&node, &node.ended, 1, WAIT_MS));
        EXPECT_EQUAL(node.statuses[5], CONVOY_OK);
        EXPECT_EQUAL(bulknode_count(&node, 1, "chunks_sent"), (PIECES * 1024 + CHUNK - 1) / CHUNK);
    } else {
        EXPECT(bulknode_await(&node, &node.landed[5], PIECES * 1024, WAIT_MS));
        EXPECT(bulknode_is_right(&node, 5, PIECES * 1024));
    }
    close_pair(&node);
    free(data);
}

static void test_bulk_small_pieces_travel_together(void **state)
{
    (void)state;
    run_pair(pieces_run);
}

/* -- refused ------------------------------------------------------------------------------------------------------- */

static void refused_run(const struct rank *rank, void *argument)
{
    struct bulknode node;
    uint8_t *data = malloc(4 * MIB);
    (void)argument;
    bulknode_open(&node, rank, 4 * MIB, NULL);
    node.generations[3] = 9; /* its memory belongs to another by now */
    bulknode_connect(&node, 1 - rank->index);
    rank_barrier(rank);
    if (rank->index == 0) {
        bulknode_fill(data, 4, 0, 4 * MIB);
        (void)bulknode_send(&node, 1, 3, data, 4 * MIB, 0);
        (void)bulknode_send(&node, 1, 4, data, 4 * MIB, 0);
        EXPECT(bulknode_await(&node, &node.ended, 2, WAIT_MS));
        EXPECT_EQUAL(node.statuses[3], CONVOY_PEER_ERROR);
        EXPECT_EQUAL(node.lost[3], 4 * MIB);
        EXPECT_EQUAL(node.statuses[4], CONVOY_OK);
    } else {
        EXPECT(bulknode_await(&node, &node.landed[4], 4 * MIB, WAIT_MS));
        EXPECT_EQUAL(node.landed[3], 0);
        EXPECT(bulknode_is_right(&node, 3, 0) && bulknode_is_right(&node, 4, 4 * MIB));
        uint64_t dropped = bulknode_count(&node, 0, "chunks_dropped");
        EXPECT(dropped >= 1 && dropped <= CONVOY_BULK_WINDOW_MAX); /* the rest need not come */
    }
    close_pair(&node);
    free(data);
}

/* openucx/ucx has no such check: a late chunk is dropped before a byte of it lands, the others go on. */
static void test_bulk_stream_that_nobody_wants_ends_and_lands_nowhere(void **state)
{
    (void)state;
    run_pair(refused_run);
}

/* -- abort --------------------------------------------------------------------------------------------------------- */

static void abort_sender(struct bulknode *node, uint32_t round, uint8_t *data)
{
    uint64_t stream = bulknode_send(node, 1, round, data, 4 * MIB, 0);
    for (uint32_t i = 0; i < round; i++) {
        (void)convoy_bulk_progress(node->bulk);
    }
    int32_t status = convoy_bulk_abort(node->bulk, stream, NULL);
    memset(data, 0xee, 4 * MIB); /* nothing of it is read any more */
    EXPECT(status == CONVOY_OK || status == CONVOY_CLOSED);
    EXPECT(bulknode_await(node, &node->ended, round + 1, WAIT_MS));
    EXPECT(node->statuses[round] == CONVOY_CANCELED || status == CONVOY_CLOSED);
    EXPECT_EQUAL(convoy_bulk_abort(node->bulk, stream, NULL), CONVOY_CLOSED);
    bulknode_fill(data, round + 1, 0, 4 * MIB);
}

/* Stopped after more and more steps: queued, sending, sent. What has landed is right, and nothing lands after it. */
static void abort_run(const struct rank *rank, void *argument)
{
    struct bulknode node;
    uint8_t *data = malloc(4 * MIB);
    (void)argument;
    open_pair(&node, rank, 4 * MIB);
    if (rank->index == 0) {
        bulknode_fill(data, 0, 0, 4 * MIB);
        for (uint32_t round = 0; round < 50; round++) {
            abort_sender(&node, round, data);
        }
        node.shared->numbers[0] = bulknode_count(&node, 1, "bytes_applied");
        EXPECT_EQUAL(bulknode_frame(&node, 1, 0, 8), CONVOY_OK);
    } else {
        EXPECT(bulknode_await(&node, &node.frames, 1, WAIT_MS));
        uint64_t total = 0;
        for (uint32_t round = 0; round < 50; round++) {
            total += node.landed[round];
            EXPECT(bulknode_is_right(&node, round, node.landed[round]));
        }
        EXPECT_EQUAL(total, node.shared->numbers[0]); /* what the sender knows is exact */
    }
    close_pair(&node);
    free(data);
}

static void test_bulk_abort_at_any_time_stops_reading_and_landing(void **state)
{
    (void)state;
    run_pair(abort_run);
}

/* -- arguments ----------------------------------------------------------------------------------------------------- */

static int32_t try_send(struct bulknode *node, struct convoy_bulk_send send, const char *part)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint64_t stream;
    int32_t status = convoy_bulk_send(node->bulk, &send, &stream, &error);
    EXPECT_TEXT(error.text, part);
    return status;
}

static void arguments_run(const struct rank *rank, void *argument)
{
    struct bulknode node;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_bulk *none;
    uint8_t bytes[16] = {0};
    size_t own_bytes;
    const struct convoy_bulk_piece null_piece = {NULL, 5};
    const struct convoy_bulk_piece long_piece = {bytes, 5};
    (void)argument;
    bulknode_open(&node, rank, 4096, NULL);
    const struct convoy_bulk_options wrong[] = {{.peer_count = 0},
                                                {.peer_count = CONVOY_BULK_PEERS_MAX + 1},
                                                {.peer_count = 1, .stream_count = CONVOY_BULK_STREAMS_MAX + 1},
                                                {.peer_count = 1, .window = 3},
                                                {.peer_count = 1, .window = CONVOY_BULK_WINDOW_MAX + 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        EXPECT_STATUS(convoy_bulk_open(&wrong[i], &none, &error), CONVOY_INVALID_ARGUMENT, &error);
        EXPECT_TEXT(error.text, "allowed are");
    }
    EXPECT_STATUS(convoy_bulk_frame(node.bulk, 0, bytes, 8, &error), CONVOY_BAD_STATE, &error);
    EXPECT_STATUS(convoy_bulk_connect(node.bulk, 1, bytes, sizeof bytes, &error), CONVOY_MALFORMED, &error);
    const void *own = convoy_bulk_address(node.bulk, &own_bytes);
    EXPECT_STATUS(convoy_bulk_connect(node.bulk, 1, own, own_bytes, &error), CONVOY_INVALID_ARGUMENT, &error);
    bulknode_connect(&node, 1 - rank->index);
    EXPECT_STATUS(convoy_bulk_connect(node.bulk, 2, node.shared->ports[1 - rank->index].address,
                                      (size_t)node.shared->ports[1 - rank->index].bytes, &error),
                  CONVOY_BUSY, &error);
    rank_barrier(rank);
    uint32_t peer = 1 - rank->index;
    EXPECT_STATUS(convoy_bulk_frame(node.bulk, peer, bytes, 0, &error), CONVOY_INVALID_ARGUMENT, &error);
    EXPECT_STATUS(convoy_bulk_frame(node.bulk, peer, bytes, CONVOY_BULK_FRAME_BYTES + 1, &error),
                  CONVOY_INVALID_ARGUMENT, &error);
    EXPECT_EQUAL(try_send(&node, (struct convoy_bulk_send){.peer = 7}, "peer is 7"), CONVOY_INVALID_ARGUMENT);
    EXPECT_EQUAL(try_send(&node, (struct convoy_bulk_send){.peer = peer, .flags = 8}, "flags is 0x8"),
                 CONVOY_INVALID_ARGUMENT);
    EXPECT_EQUAL(try_send(&node, (struct convoy_bulk_send){.peer = peer, .piece_count = 1}, "piece_count is 1"),
                 CONVOY_INVALID_ARGUMENT);
    EXPECT_EQUAL(try_send(&node, (struct convoy_bulk_send){.peer = peer, .piece_count = 1, .pieces = &null_piece},
                          "pieces[0].data"),
                 CONVOY_INVALID_ARGUMENT);
    EXPECT_EQUAL(try_send(&node, (struct convoy_bulk_send){.peer = peer, .piece_count = 1, .pieces = &long_piece,
                                                           .offset = UINT64_MAX - 2},
                          "pieces[0].bytes"),
                 CONVOY_INVALID_ARGUMENT);
    EXPECT_STATUS(convoy_bulk_abort(node.bulk, 12345, &error), CONVOY_CLOSED, &error);
    EXPECT_EQUAL(node.released + node.ended, 0);
    close_pair(&node);
}

static void test_bulk_refusals_name_parameter_value_and_range(void **state)
{
    (void)state;
    run_pair(arguments_run);
}

/* -- deadline, limit ----------------------------------------------------------------------------------------------- */

/* Rank 1 makes no progress: what is sent stops at the window, and at the deadline. */
static void deadline_run(const struct rank *rank, void *argument)
{
    struct bulknode node;
    const struct convoy_bulk_options few = {.stream_count = 2, .window = 4};
    uint8_t *data = calloc(1, 4 * MIB);
    uint64_t stream;
    (void)argument;
    bulknode_open(&node, rank, 4 * MIB, &few);
    bulknode_connect(&node, 1 - rank->index);
    rank_barrier(rank);
    if (rank->index == 0) {
        const struct convoy_bulk_piece piece = {data, 4 * MIB};
        struct convoy_bulk_send send = {.peer = 1, .transfer = 1, .generation = 1, .pieces = &piece, .piece_count = 1};
        send.deadline_ns = convoy_now_ns() + 100 * CONVOY_NS_PER_MS;
        EXPECT_OK(convoy_bulk_send(node.bulk, &send, &stream, NULL), NULL);
        send.cookie = 1;
        EXPECT_OK(convoy_bulk_send(node.bulk, &send, &stream, NULL), NULL);
        EXPECT_EQUAL(convoy_bulk_send(node.bulk, &send, &stream, NULL), CONVOY_LIMIT);
        EXPECT(bulknode_await(&node, &node.released, 2, 2000));
        EXPECT(bulknode_count(&node, 1, "chunks_in_flight") <= 4);
        rank_mark(rank, 1);
        EXPECT(bulknode_await(&node, &node.ended, 2, WAIT_MS));
        EXPECT(node.statuses[0] == CONVOY_TIMED_OUT && node.statuses[1] == CONVOY_TIMED_OUT);
    } else {
        rank_await_mark(rank, 0, 1);
    }
    close_pair(&node);
    free(data);
}

static void test_bulk_deadline_releases_the_source_though_the_peer_is_silent(void **state)
{
    (void)state;
    run_pair(deadline_run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_every_size_arrives_byte_for_byte),
        cmocka_unit_test(test_bulk_many_streams_and_frames_both_ways_keep_bytes_and_order),
        cmocka_unit_test(test_bulk_small_pieces_travel_together),
        cmocka_unit_test(test_bulk_stream_that_nobody_wants_ends_and_lands_nowhere),
        cmocka_unit_test(test_bulk_abort_at_any_time_stops_reading_and_landing),
        cmocka_unit_test(test_bulk_refusals_name_parameter_value_and_range),
        cmocka_unit_test(test_bulk_deadline_releases_the_source_though_the_peer_is_silent),
    };
    return cmocka_run_group_tests_name("bulk", tests, NULL, NULL);
}
