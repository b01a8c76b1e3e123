/* SPDX-License-Identifier: Apache-2.0 */
/* What is dropped, counted and broken off on arrival; then random wires and random bytes against a model. */
#include "tests/unit/bulk_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK CONVOY_BULK_CHUNK_BYTES

static uint8_t data[16 * CHUNK];

/* Where the fields of a header lie that the tests change. */
enum { AT_EPOCH = 4, AT_FROM = 8, AT_TO = 16, AT_GENERATION = 32, AT_OFFSET = 40, AT_SEQUENCE = 48, AT_CHECKSUM = 56 };

static void test_bulk_receive_of_or_for_another_incarnation_is_stale(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, CHUNK, NULL);
    (void)bulknode_send(&pair.a, 0, 1, data, 100, 0);
    (void)bulknode_send(&pair.a, 0, 2, data, 100, 0);
    fake_wire_repeat(pair.b.bulk->link, 0);
    fake_wire_header(pair.b.bulk->link, 0)[AT_FROM] ^= 1;
    fake_wire_header(pair.b.bulk->link, 1)[AT_TO] ^= 1;
    fake_wire_lose(pair.b.bulk->link, 2);
    for (uint32_t i = 0; i < 4; i++) {
        (void)convoy_bulk_progress(pair.b.bulk);
    }
    EXPECT(pair.b.bulk->stale == 2 && pair.b.resolves == 0 && pair.b.landed_chunks == 0);
    pair_close(&pair);
}

/* The peer's second connection makes its first one stale, whatever of it still comes. */
static void test_bulk_receive_of_an_earlier_connection_is_stale(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, CHUNK, NULL);
    (void)bulknode_send(&pair.a, 0, 1, data, 100, 0);
    EXPECT_EQUAL(fake_wire_waiting(pair.b.bulk->link), 1);
    fake_wire_repeat(pair.b.bulk->link, 0);
    fake_wire_lose(pair.b.bulk->link, 0); /* it comes late */
    pair_connect(&pair.a, &pair.b);
    EXPECT_EQUAL(pair.a.bulk->peers[0].is_up, true);
    (void)bulknode_send(&pair.a, 0, 2, data, 200, 0);
    fake_wire_repeat(pair.b.bulk->link, 0);
    fake_wire_lose(pair.b.bulk->link, 0);
    pair_settle(&pair);
    EXPECT_EQUAL(pair_counts(&pair.b)->stale, 1);
    EXPECT(pair.b.landed[1] == 0 && pair.b.landed[2] == 200);
    EXPECT(pair.a.statuses[1] == CONVOY_PEER_LOST && pair.a.lost[1] == 100 && pair.a.statuses[2] == CONVOY_OK);
    pair_close(&pair);
}

/* We connect anew, the peer has noticed nothing: its stream goes on as if nothing had been. */
static void test_bulk_receive_goes_on_when_only_we_connect_again(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 16 * CHUNK, NULL);
    bulknode_fill(data, 1, 0, sizeof data);
    (void)bulknode_send(&pair.a, 0, 1, data, sizeof data, 0);
    for (uint32_t i = 0; i < 5; i++) {
        (void)convoy_bulk_progress(pair.b.bulk);
    }
    pair_connect(&pair.b, &pair.a);
    pair_settle(&pair);
    EXPECT_EQUAL(pair.a.statuses[1], CONVOY_OK);
    EXPECT(bulknode_is_right(&pair.b, 1, sizeof data));
    pair_close(&pair);
}

static void test_bulk_receive_repeated_chunk_is_late(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 4 * CHUNK, NULL);
    (void)bulknode_send(&pair.a, 0, 1, data, 3 * CHUNK, 0);
    fake_wire_repeat(pair.b.bulk->link, 1);
    pair_settle(&pair);
    EXPECT_EQUAL(pair_counts(&pair.b)->late, 1);
    EXPECT(pair.b.landed[1] == 3 * CHUNK && pair.b.resolves == 3);
    EXPECT_EQUAL(pair.a.statuses[1], CONVOY_OK);
    pair_close(&pair);
}

/* A lane that loses is broken: no stream on it can be trusted any more. */
static void test_bulk_receive_missing_chunk_breaks_the_peer_off(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 4 * CHUNK, NULL);
    (void)bulknode_send(&pair.a, 0, 1, data, 3 * CHUNK, 0);
    fake_wire_lose(pair.b.bulk->link, 1);
    pair_settle(&pair);
    EXPECT(pair.b.downs == 1 && pair.b.landed[1] == CHUNK);
    fake_wire_break(pair.a.bulk->link);
    pair_settle(&pair);
    EXPECT_EQUAL(pair.a.statuses[1], CONVOY_PEER_LOST);
    EXPECT(pair.a.lost[1] == 3 * CHUNK || pair.a.lost[1] == 2 * CHUNK);
    pair_close(&pair);
}

/* A byte changed on the way: not one byte lands, the sender knows which stream, the owner hears that it was stopped. */
static void test_bulk_receive_damaged_chunk_does_not_land(void **state)
{
    struct bulk_pair pair;
    size_t bytes;
    (void)state;
    pair_open(&pair, 4 * CHUNK, NULL);
    bulknode_fill(data, 1, 0, 3 * CHUNK);
    (void)bulknode_send(&pair.a, 0, 1, data, 3 * CHUNK, CONVOY_BULK_CHECKSUM);
    fake_wire_data(pair.b.bulk->link, 1, &bytes)[500] ^= 4;
    pair_settle(&pair);
    EXPECT(pair.a.statuses[1] == CONVOY_MALFORMED && pair.a.lost[1] == CHUNK);
    EXPECT(pair.b.landed[1] == 2 * CHUNK && pair.b.aborted == 1 && pair.b.resolves == 2);
    for (size_t i = CHUNK; i < 2 * CHUNK; i++) {
        EXPECT(pair.b.memory[pair.b.region_bytes + i] == 0);
    }
    pair_close(&pair);
}

static void test_bulk_receive_refusal_in_the_middle_is_exact(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, 16 * CHUNK, NULL);
    (void)bulknode_send(&pair.a, 0, 1, data, 16 * CHUNK, 0);
    for (uint32_t i = 0; i < 3; i++) {
        (void)convoy_bulk_progress(pair.b.bulk);
    }
    uint64_t landed = pair.b.landed[1];
    pair.b.generations[1] = 2; /* its owner is another now */
    convoy_bulk_barrier(pair.b.bulk);
    pair_settle(&pair);
    EXPECT_EQUAL(pair.b.landed[1], landed);
    EXPECT_EQUAL(pair.a.statuses[1], CONVOY_PEER_ERROR);
    EXPECT_EQUAL(pair.a.lost[1], 16 * CHUNK - landed);
    pair_close(&pair);
}

/* Answers to what was never sent, or that contradict themselves. */
static void test_bulk_receive_false_answers_break_the_peer_off(void **state)
{
    static const struct {
        int64_t sequence;
        int64_t offset;
        size_t reasons;
        uint8_t reason;
    } cases[] = {{5, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 2, 0}, {0, 0, 1, 3}, {1 << 20, 0, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bulk_pair pair;
        uint8_t encoded[BULK_HEADER_BYTES];
        uint8_t reasons[4] = {cases[i].reason};
        pair_open(&pair, CHUNK, NULL);
        (void)bulknode_send(&pair.a, 0, 1, data, 100, 0);
        const struct bulk_header header = {.kind = BULK_ACK,
                                           .epoch = pair.b.bulk->peers[0].epoch,
                                           .from = pair.b.bulk->incarnation,
                                           .to = pair.a.bulk->incarnation,
                                           .generation = pair.a.bulk->peers[0].epoch,
                                           .sequence = (uint64_t)(1 + cases[i].sequence),
                                           .offset = (uint64_t)(100 + cases[i].offset)};
        convoy_bulk_header_encode(&header, encoded);
        fake_wire_inject(pair.a.bulk->link, encoded, sizeof encoded, reasons, cases[i].reasons);
        (void)convoy_bulk_progress(pair.a.bulk);
        EXPECT(pair.a.downs == 1 && pair.a.statuses[1] == CONVOY_PEER_LOST && pair.a.lost[1] == 100);
        pair_close(&pair);
    }
}

static void test_bulk_receive_late_answers_are_counted(void **state)
{
    struct bulk_pair pair;
    (void)state;
    pair_open(&pair, CHUNK, NULL);
    (void)bulknode_send(&pair.a, 0, 1, data, 100, 0);
    for (uint32_t i = 0; fake_wire_waiting(pair.a.bulk->link) == 0 && i < 10; i++) {
        (void)convoy_bulk_progress(pair.b.bulk);
    }
    fake_wire_repeat(pair.a.bulk->link, 0);
    fake_wire_repeat(pair.a.bulk->link, 0);
    fake_wire_header(pair.a.bulk->link, 2)[AT_GENERATION] ^= 0x40; /* of an earlier connection of ours */
    pair_settle(&pair);
    EXPECT(pair_counts(&pair.a)->late == 1 && pair_counts(&pair.a)->stale == 1);
    EXPECT_EQUAL(pair.a.statuses[1], CONVOY_OK);
    pair_close(&pair);
}

/* -- random -------------------------------------------------------------------------------------------------------- */

static uint64_t seed;

static uint32_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 16);
}

/* Any bytes as header and data, headers of our own with bytes changed among them: nothing lands outside, nothing hangs,
 * nothing is read past its end (the sanitizers look on), and memory that no message named stays as it was. */
static void garbage_round(struct bulk_pair *pair)
{
    uint8_t header[BULK_HEADER_BYTES];
    uint8_t payload[256];
    size_t bytes = next_random() % sizeof payload;
    for (size_t i = 0; i < sizeof payload; i++) {
        payload[i] = (uint8_t)next_random();
    }
    const struct bulk_header sane = {.kind = (enum bulk_kind)(1 + next_random() % 4),
                                     .flags = (uint8_t)(next_random() % 4),
                                     .epoch = pair->b.bulk->peers[0].their_epoch + (next_random() % 64 == 0),
                                     .from = pair->a.bulk->incarnation,
                                     .to = pair->b.bulk->incarnation,
                                     .transfer = next_random() % 80,
                                     .generation = 1 + next_random() % 2,
                                     .offset = next_random() % 5000,
                                     .sequence = pair->b.bulk->peers[0].processed + next_random() % 2};
    convoy_bulk_header_encode(&sane, header);
    for (uint32_t changes = next_random() % 4; changes > 1; changes--) {
        header[next_random() % sizeof header] = (uint8_t)next_random();
    }
    fake_wire_inject(pair->b.bulk->link, header, next_random() % 16 == 0 ? next_random() % 64 : sizeof header, payload,
                     bytes);
}

static void test_bulk_receive_garbage_harms_nobody(void **state)
{
    struct bulk_pair pair;
    (void)state;
    seed = 0x9e3779b97f4a7c15;
    pair_open(&pair, 4096, NULL);
    for (uint32_t i = 0; i < 20000; i++) {
        garbage_round(&pair);
        (void)convoy_bulk_progress(pair.b.bulk);
        pair_settle(&pair);
        if (!pair.b.bulk->peers[0].is_up || !pair.a.bulk->peers[0].is_up) {
            pair_connect(&pair.a, &pair.b);
            pair_connect(&pair.b, &pair.a);
        }
    }
    EXPECT(pair.b.bulk->refused > 100);
    EXPECT(pair.b.bulk->stale > 100);
    EXPECT(pair.a.downs + pair.b.downs > 100);
    pair_connect(&pair.a, &pair.b);
    pair_connect(&pair.b, &pair.a);
    memset(pair.b.memory, 0, 4096);
    memset(&pair.b.landed, 0, sizeof pair.b.landed);
    pair.a.bulk->epochs += 1000; /* above what garbage has claimed */
    pair.a.bulk->peers[0].epoch = pair.b.bulk->peers[0].their_epoch + 1;
    bulknode_fill(data, 0, 0, 4096);
    (void)bulknode_send(&pair.a, 0, 0, data, 4096, 0);
    pair_settle(&pair);
    EXPECT_EQUAL(pair.a.statuses[0], CONVOY_OK);
    EXPECT(bulknode_is_right(&pair.b, 0, 4096));
    pair_close(&pair);
}

/* Both sides send, abort, refuse and are refused by the connection at random; the sums must agree. */
static void random_scene(uint64_t number)
{
    const struct convoy_bulk_options options = {.window = 4 + next_random() % 60, .stream_count = 40};
    struct bulk_pair pair;
    uint64_t streams[30];
    pair_open(&pair, 16 * CHUNK, &options);
    fake_wire.random = next_random;
    fake_wire.refuse_of_256 = next_random() % 200;
    for (uint32_t i = 0; i < 30; i++) {
        size_t bytes = next_random() % (next_random() % 2 == 0 ? 2000 : sizeof data);
        uint32_t flags = next_random() % 2 == 0 ? CONVOY_BULK_CHECKSUM : 0;
        pair.b.generations[i] = next_random() % 8 == 0 ? 2 : 1;
        streams[i] = bulknode_send(&pair.a, 0, i, data, bytes, flags);
        for (uint32_t steps = next_random() % 20; steps != 0; steps--) {
            (void)convoy_bulk_progress(next_random() % 2 == 0 ? pair.a.bulk : pair.b.bulk);
        }
        if (next_random() % 4 == 0) {
            (void)convoy_bulk_abort(pair.a.bulk, streams[next_random() % (i + 1)], NULL);
        }
        if (next_random() % 8 == 0) {
            pair.b.generations[next_random() % (i + 1)] = 2;
        }
    }
    uint64_t deadline = 0;
    while (pair.a.ended < 30) {
        pair_settle(&pair);
        EXPECT(deadline++ < 100000);
    }
    uint64_t landed = 0;
    for (uint32_t i = 0; i < 30; i++) {
        landed += pair.b.landed[i];
        EXPECT(pair.a.statuses[i] != CONVOY_OK || pair.a.lost[i] == 0);
    }
    EXPECT_EQUAL(landed, pair_counts(&pair.a)->applied_bytes);
    EXPECT_EQUAL(pair_counts(&pair.b)->late + pair_counts(&pair.b)->stale + pair.b.downs + pair.a.downs, 0);
    EXPECT_EQUAL(pair.a.bulk->free_count, 40);
    pair_close(&pair);
    (void)number;
}

static void test_bulk_receive_random_scenes_account_for_every_byte(void **state)
{
    (void)state;
    seed = 0x2545f4914f6cdd1d;
    for (uint64_t i = 0; i < 60; i++) {
        random_scene(i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_receive_of_or_for_another_incarnation_is_stale),
        cmocka_unit_test(test_bulk_receive_of_an_earlier_connection_is_stale),
        cmocka_unit_test(test_bulk_receive_goes_on_when_only_we_connect_again),
        cmocka_unit_test(test_bulk_receive_repeated_chunk_is_late),
        cmocka_unit_test(test_bulk_receive_missing_chunk_breaks_the_peer_off),
        cmocka_unit_test(test_bulk_receive_damaged_chunk_does_not_land),
        cmocka_unit_test(test_bulk_receive_refusal_in_the_middle_is_exact),
        cmocka_unit_test(test_bulk_receive_false_answers_break_the_peer_off),
        cmocka_unit_test(test_bulk_receive_late_answers_are_counted),
        cmocka_unit_test(test_bulk_receive_garbage_harms_nobody),
        cmocka_unit_test(test_bulk_receive_random_scenes_account_for_every_byte),
    };
    return cmocka_run_group_tests_name("bulk_receive", tests, NULL, NULL);
}
