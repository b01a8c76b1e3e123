/* SPDX-License-Identifier: Apache-2.0 */
/* The shared queues of two engines: order, fullness, wrap-around, sleep, and a peer that writes nonsense. */
#include "core/memory.h"
#include "xfer/ring.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <poll.h>
#include <unistd.h>

#include <cmocka.h>

#define STREAM 200000u
#define PATIENCE_MS 10000

struct pair {
    void *memory;
    struct convoy_ring sides[2];
};

static struct pair pair_of(void)
{
    struct pair pair = {.memory = convoy_memory_aligned(CONVOY_LINE_BYTES, CONVOY_RING_BYTES)};
    convoy_ring_init(&pair.sides[0], pair.memory, 0);
    convoy_ring_init(&pair.sides[1], pair.memory, 1);
    return pair;
}

static struct convoy_ring_entry entry_of(uint32_t number)
{
    struct convoy_ring_entry entry = {.type = (uint16_t)(number * 7), .length = (uint16_t)(number % 57)};
    memset(entry.data, (int)(number & 0xff), sizeof entry.data);
    return entry;
}

static void put(struct convoy_ring *ring, uint32_t number)
{
    bool must_wake = true;
    struct convoy_ring_entry entry = entry_of(number);
    assert_int_equal(convoy_ring_put(ring, &entry, &must_wake), CONVOY_RING_OK);
    assert_false(must_wake);
}

static void take(struct convoy_ring *ring, uint32_t number)
{
    struct convoy_ring_entry entry;
    struct convoy_ring_entry wanted = entry_of(number);
    assert_int_equal(convoy_ring_take(ring, &entry), CONVOY_RING_OK);
    assert_int_equal(entry.type, wanted.type);
    assert_int_equal(entry.length, wanted.length);
    assert_memory_equal(entry.data, wanted.data, wanted.length);
}

static void test_ring_both_ways_in_order(void **state)
{
    (void)state;
    struct pair pair = pair_of();
    struct convoy_ring_entry entry;
    assert_int_equal(convoy_ring_take(&pair.sides[0], &entry), CONVOY_RING_EMPTY);
    for (uint32_t i = 0; i < 1000; i++) {
        put(&pair.sides[0], i);
        put(&pair.sides[1], i + 5000);
        put(&pair.sides[0], i + 1);
        take(&pair.sides[1], i);
        take(&pair.sides[0], i + 5000);
        take(&pair.sides[1], i + 1);
        assert_int_equal(convoy_ring_take(&pair.sides[1], &entry), CONVOY_RING_EMPTY);
    }
    convoy_memory_free(pair.memory);
}

static void test_ring_is_full_after_so_many_and_has_room_again(void **state)
{
    (void)state;
    struct pair pair = pair_of();
    struct convoy_ring_entry entry = entry_of(1);
    bool must_wake;
    for (uint32_t turn = 0; turn < 5; turn++) {
        for (uint32_t i = 0; i < CONVOY_RING_ENTRIES; i++) {
            put(&pair.sides[1], i);
        }
        assert_int_equal(convoy_ring_put(&pair.sides[1], &entry, &must_wake), CONVOY_RING_FULL);
        take(&pair.sides[0], 0);
        put(&pair.sides[1], 99);
        assert_int_equal(convoy_ring_put(&pair.sides[1], &entry, &must_wake), CONVOY_RING_FULL);
        for (uint32_t i = 1; i < CONVOY_RING_ENTRIES; i++) {
            take(&pair.sides[0], i);
        }
        take(&pair.sides[0], 99);
        assert_int_equal(convoy_ring_take(&pair.sides[0], &entry), CONVOY_RING_EMPTY);
    }
    convoy_memory_free(pair.memory);
}

/* Counters go past 2^32 as if nothing were. */
static void test_ring_counts_over_the_end_of_its_counter(void **state)
{
    (void)state;
    struct pair pair = pair_of();
    for (uint32_t i = 0; i < CONVOY_RING_ENTRIES; i++) { /* every entry has been used */
        put(&pair.sides[0], i);
        take(&pair.sides[1], i);
    }
    /* The state after 2^32 - 64 entries more: all numbers moved by as much. */
    uint32_t *words = pair.memory;
    for (uint32_t i = 0; i < CONVOY_RING_ENTRIES; i++) {
        words[(3 + i) * 16] += UINT32_MAX - 2 * CONVOY_RING_ENTRIES + 1;
    }
    pair.sides[0].put = pair.sides[1].taken = UINT32_MAX - CONVOY_RING_ENTRIES + 1;
    words[16] = pair.sides[1].taken; /* consumed */
    for (uint32_t i = 0; i < 3 * CONVOY_RING_ENTRIES; i++) {
        put(&pair.sides[0], i);
        take(&pair.sides[1], i);
    }
    assert_int_equal(pair.sides[1].taken, 2 * CONVOY_RING_ENTRIES);
    convoy_memory_free(pair.memory);
}

static void test_ring_a_peer_that_writes_nonsense_is_malformed_for_good(void **state)
{
    (void)state;
    static const struct {
        size_t word; /* of the queue that side 1 reads, or whose room side 0 asks for */
        uint32_t value;
        bool is_put;
    } rows[] = {
        {16, 1, true},                    /* consumed more than was put */
        {16, UINT32_MAX - 64, true},      /* consumed less than can be */
        {48, 2, false},                   /* a number that is not next */
        {48, UINT32_MAX, false},
        {49, 57u << 16, false},           /* one byte longer than an entry */
        {49, UINT32_MAX, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pair pair = pair_of();
        struct convoy_ring_entry entry = entry_of(3);
        bool must_wake;
        if (rows[i].word == 49) {
            put(&pair.sides[0], 3);
        }
        ((uint32_t *)pair.memory)[rows[i].word] = rows[i].value;
        for (uint32_t twice = 0; twice < 2; twice++) {
            if (rows[i].is_put) {
                assert_int_equal(convoy_ring_put(&pair.sides[0], &entry, &must_wake), CONVOY_RING_MALFORMED);
            } else {
                assert_int_equal(convoy_ring_take(&pair.sides[1], &entry), CONVOY_RING_MALFORMED);
            }
            ((uint32_t *)pair.memory)[rows[i].word] = 0;
        }
        assert_false(convoy_ring_doze(&pair.sides[rows[i].is_put ? 0 : 1])); /* nobody sleeps on it */
        convoy_memory_free(pair.memory);
    }
}

/* However many were put, as the peer counts: an entry is there when its own number says so. */
static void test_ring_reader_believes_no_count_without_an_entry(void **state)
{
    (void)state;
    struct pair pair = pair_of();
    struct convoy_ring_entry entry;
    ((uint32_t *)pair.memory)[0] = 5; /* produced */
    assert_int_equal(convoy_ring_take(&pair.sides[1], &entry), CONVOY_RING_EMPTY);
    assert_true(convoy_ring_doze(&pair.sides[1]));
    convoy_ring_awake(&pair.sides[1]);
    put(&pair.sides[0], 1);
    take(&pair.sides[1], 1);
    convoy_memory_free(pair.memory);
}

/* Any bytes at all: answers, and stays inside the memory (which the sanitizer watches). */
static void test_ring_of_random_bytes(void **state)
{
    (void)state;
    struct pair pair = pair_of();
    uint64_t seed = 9;
    for (uint32_t turn = 0; turn < 20000; turn++) {
        uint32_t *words = pair.memory;
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        words[(seed >> 40) % (CONVOY_RING_BYTES / 4)] = (seed & 0x300) == 0 ? (uint32_t)(seed >> 32) : (uint32_t)(seed >> 61);
        struct convoy_ring_entry entry = entry_of(turn);
        bool must_wake;
        struct convoy_ring *ring = &pair.sides[turn & 1];
        (void)convoy_ring_put(ring, &entry, &must_wake);
        if (convoy_ring_take(ring, &entry) == CONVOY_RING_OK) {
            assert_in_range(entry.length, 0, CONVOY_RING_DATA_BYTES);
        }
        if (turn % 50 == 0) {
            memset(pair.memory, 0, CONVOY_RING_BYTES);
            convoy_ring_init(&pair.sides[0], pair.memory, 0);
            convoy_ring_init(&pair.sides[1], pair.memory, 1);
        }
    }
    convoy_memory_free(pair.memory);
}

static void test_ring_tells_whom_to_wake(void **state)
{
    (void)state;
    struct pair pair = pair_of();
    struct convoy_ring_entry entry = entry_of(1);
    bool must_wake = false;
    assert_true(convoy_ring_doze(&pair.sides[1]));
    assert_int_equal(convoy_ring_put(&pair.sides[0], &entry, &must_wake), CONVOY_RING_OK);
    assert_true(must_wake);
    convoy_ring_awake(&pair.sides[1]);
    assert_int_equal(convoy_ring_put(&pair.sides[0], &entry, &must_wake), CONVOY_RING_OK);
    assert_false(must_wake);
    assert_false(convoy_ring_doze(&pair.sides[1])); /* something is there */
    assert_int_equal(convoy_ring_put(&pair.sides[0], &entry, &must_wake), CONVOY_RING_OK);
    assert_false(must_wake); /* and so it did not go to sleep */
    convoy_memory_free(pair.memory);
}

/* A stream between two threads, of which the reader sleeps whenever nothing is there: all arrive, in order, and no wake
 * is missed. */
struct stream {
    struct convoy_ring *ring;
    int event;
    _Atomic uint32_t wrong;
    uint32_t sleeps;
};

static void *stream_read(void *argument)
{
    struct stream *stream = argument;
    for (uint32_t i = 0; i < STREAM;) {
        struct convoy_ring_entry entry;
        enum convoy_ring_status status = convoy_ring_take(stream->ring, &entry);
        if (status == CONVOY_RING_OK) {
            uint32_t number;
            memcpy(&number, entry.data, sizeof number);
            stream->wrong += number != i || entry.length != sizeof number;
            i++;
        } else if (status != CONVOY_RING_EMPTY) {
            stream->wrong++;
            break;
        } else if (convoy_ring_doze(stream->ring)) {
            struct pollfd wait = {.fd = stream->event, .events = POLLIN};
            uint64_t count;
            stream->sleeps++;
            if (poll(&wait, 1, PATIENCE_MS) != 1 || read(stream->event, &count, sizeof count) != sizeof count) {
                stream->wrong++;
                break;
            }
            convoy_ring_awake(stream->ring);
        }
    }
    return NULL;
}

static void test_ring_stream_between_threads_misses_no_wake(void **state)
{
    (void)state;
    struct pair pair = pair_of();
    struct stream stream = {.ring = &pair.sides[1], .event = eventfd(0, EFD_CLOEXEC)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stream_read, &stream), 0);
    for (uint32_t i = 0; i < STREAM && stream.wrong == 0;) {
        struct convoy_ring_entry entry = {.type = 1, .length = sizeof i};
        bool must_wake = false;
        memcpy(entry.data, &i, sizeof i);
        enum convoy_ring_status status = convoy_ring_put(&pair.sides[0], &entry, &must_wake);
        if (must_wake) {
            assert_int_equal(write(stream.event, &(uint64_t){1}, sizeof(uint64_t)), sizeof(uint64_t));
        }
        if (status == CONVOY_RING_FULL || i % 1000 == 999) {
            (void)sched_yield();
        }
        i += status == CONVOY_RING_OK;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(stream.wrong, 0);
    (void)close(stream.event);
    convoy_memory_free(pair.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_both_ways_in_order),
        cmocka_unit_test(test_ring_is_full_after_so_many_and_has_room_again),
        cmocka_unit_test(test_ring_counts_over_the_end_of_its_counter),
        cmocka_unit_test(test_ring_a_peer_that_writes_nonsense_is_malformed_for_good),
        cmocka_unit_test(test_ring_reader_believes_no_count_without_an_entry),
        cmocka_unit_test(test_ring_of_random_bytes),
        cmocka_unit_test(test_ring_tells_whom_to_wake),
        cmocka_unit_test(test_ring_stream_between_threads_misses_no_wake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
