/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/bulk_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK CONVOY_BULK_CHUNK_BYTES

/* The drawing in net/bulk.h, written down again; and the slot's way round. */
static void test_bulk_stream_edges_are_those_of_the_drawing(void **state)
{
    static const struct {
        enum bulk_stream_state from;
        enum bulk_stream_state to;
    } legal[] = {
        {BULK_FREE, BULK_QUEUED},     {BULK_QUEUED, BULK_SENDING},   {BULK_QUEUED, BULK_ENDED},
        {BULK_SENDING, BULK_SENT},    {BULK_SENDING, BULK_STOPPING}, {BULK_SENDING, BULK_ENDED},
        {BULK_SENT, BULK_STOPPING},   {BULK_SENT, BULK_ENDED},       {BULK_STOPPING, BULK_ENDED},
        {BULK_ENDED, BULK_FREE},
    };
    (void)state;
    for (int from = 0; from < BULK_STREAM_STATES; from++) {
        for (int to = 0; to < BULK_STREAM_STATES; to++) {
            bool is_legal = false;
            for (size_t i = 0; i < sizeof legal / sizeof legal[0]; i++) {
                is_legal = is_legal || ((int)legal[i].from == from && (int)legal[i].to == to);
            }
            assert_int_equal(convoy_bulk_stream_may((enum bulk_stream_state)from, (enum bulk_stream_state)to),
                             is_legal);
        }
    }
}

static uint64_t start(struct bulk_pair *pair, uint64_t transfer, const void *data, size_t bytes)
{
    return bulknode_send(&pair->a, 0, transfer, data, bytes, 0);
}

/* Each way from each state, with the events that it must bring, in this order. */
static void test_bulk_stream_ends_from_every_state_with_both_events_once(void **state)
{
    static uint8_t data[3 * CHUNK];
    static const enum bulk_stream_state froms[] = {BULK_QUEUED, BULK_SENDING, BULK_SENT, BULK_STOPPING};
    (void)state;
    for (size_t i = 0; i < sizeof froms / sizeof froms[0]; i++) {
        for (int is_broken = 0; is_broken < 2; is_broken++) {
            struct bulk_pair pair;
            pair_open(&pair, 4 * CHUNK, NULL);
            fake_wire.refuse = froms[i] == BULK_QUEUED ? 100 : 0;
            pair.a.bulk->options.window = froms[i] == BULK_SENDING ? 1 : 32;
            uint64_t stream = start(&pair, 1, data, sizeof data);
            if (froms[i] == BULK_STOPPING) {
                EXPECT_EQUAL(convoy_bulk_abort(pair.a.bulk, stream, NULL), CONVOY_OK);
            }
            EXPECT_EQUAL(convoy_bulk_stream_find(pair.a.bulk, stream)->state, froms[i]);
            if (is_broken) {
                fake_wire_break(pair.a.bulk->link);
            } else if (froms[i] != BULK_STOPPING) {
                EXPECT_EQUAL(convoy_bulk_abort(pair.a.bulk, stream, NULL), CONVOY_OK);
            }
            fake_wire.refuse = 0;
            pair_settle(&pair);
            EXPECT(pair.a.released == 1 && pair.a.ended == 1);
            EXPECT_EQUAL(pair.a.statuses[1],
                         is_broken && froms[i] != BULK_STOPPING ? CONVOY_PEER_LOST : CONVOY_CANCELED);
            EXPECT_EQUAL(convoy_bulk_abort(pair.a.bulk, stream, NULL), CONVOY_CLOSED);
            EXPECT_EQUAL(pair.b.aborted, froms[i] == BULK_STOPPING || (!is_broken && froms[i] != BULK_QUEUED));
            EXPECT_EQUAL(pair.a.bulk->free_count, pair.a.bulk->options.stream_count);
            pair_close(&pair);
        }
    }
}

/* A value of a slot that another stream has now is refused, never applied to that one. */
static void test_bulk_stream_stale_value_is_refused(void **state)
{
    const struct convoy_bulk_options one = {.stream_count = 1};
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 64, &one);
    uint64_t first = start(&pair, 1, "first", 5);
    pair_settle(&pair);
    fake_wire.refuse = 1;
    uint64_t second = start(&pair, 2, "second", 6);
    EXPECT(first != second && (uint32_t)first == (uint32_t)second);
    EXPECT_EQUAL(convoy_bulk_abort(pair.a.bulk, first, NULL), CONVOY_CLOSED);
    pair_settle(&pair);
    EXPECT_EQUAL(pair.a.statuses[2], CONVOY_OK);
    EXPECT(memcmp(pair.b.memory + 2 * 64, "second", 6) == 0);
    pair_close(&pair);
}

/* Pieces of odd lengths around the chunk size, empty ones among them, against one block. */
static void test_bulk_stream_pieces_are_one_range(void **state)
{
    static uint8_t data[4 * CHUNK];
    const size_t lengths[] = {0, 1, CHUNK - 1, 0, 0, CHUNK, 7, CHUNK + 3, 2, 0};
    struct convoy_bulk_piece pieces[sizeof lengths / sizeof lengths[0]];
    size_t total = 0;
    uint64_t stream;
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 4 * CHUNK, NULL);
    bulknode_fill(data, 6, 0, sizeof data);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        pieces[i] = (struct convoy_bulk_piece){lengths[i] != 0 ? data + total : NULL, lengths[i]};
        total += lengths[i];
    }
    const struct convoy_bulk_send send = {.peer = 0, .transfer = 6, .generation = 1, .pieces = pieces,
                                          .piece_count = sizeof lengths / sizeof lengths[0], .cookie = 6};
    EXPECT_OK(convoy_bulk_send(pair.a.bulk, &send, &stream, NULL), NULL);
    pair_settle(&pair);
    EXPECT_EQUAL(pair.a.statuses[6], CONVOY_OK);
    EXPECT_EQUAL(pair.b.landed[6], total);
    EXPECT(bulknode_is_right(&pair.b, 6, total));
    EXPECT_EQUAL(pair_counts(&pair.a)->sent_chunks, (total + CHUNK - 1) / CHUNK);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_stream_edges_are_those_of_the_drawing),
        cmocka_unit_test(test_bulk_stream_ends_from_every_state_with_both_events_once),
        cmocka_unit_test(test_bulk_stream_stale_value_is_refused),
        cmocka_unit_test(test_bulk_stream_pieces_are_one_range),
    };
    return cmocka_run_group_tests_name("bulk_stream", tests, NULL, NULL);
}
