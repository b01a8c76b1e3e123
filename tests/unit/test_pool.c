/* SPDX-License-Identifier: Apache-2.0 */
/* A pool: memory of each kind, slots and what refuses them, what frees them, the sweep, addresses, several threads. */
#include "core/error.h"
#include "net/shared_file.h"
#include "pool/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB UINT64_C(1024)
#define PEER 4u

static struct convoy_pool *opened(enum convoy_pool_kind kind, void *memory, uint64_t bytes)
{
    const struct convoy_pool_options options = {.kind = kind,
                                                .memory = memory,
                                                .bytes = bytes,
                                                .block_bytes = 64 * KIB,
                                                .lease_max = 16,
                                                .reference_max = 32};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_pool *pool = NULL;
    int32_t status = convoy_pool_open(&options, &pool, &error);
    if (status != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
    return pool;
}

static const struct convoy_pool_request request_of = {.owner = {"r-1", 3, 2}, .now_ns = 5, .deadline_ns = 1000};

static struct convoy_slot taken(struct convoy_pool *pool, uint64_t bytes)
{
    struct convoy_pool_request request = request_of;
    struct convoy_slot slot;
    request.bytes = bytes;
    assert_int_equal(convoy_pool_take(pool, &request, &slot, NULL), CONVOY_OK);
    return slot;
}

static struct convoy_pool_figures figures_of(struct convoy_pool *pool)
{
    struct convoy_pool_figures figures;
    convoy_pool_figures(pool, &figures);
    assert_null(convoy_pool_check(pool));
    return figures;
}

static void refused(struct convoy_pool *pool, uint64_t bytes, int32_t wanted, const char *text)
{
    struct convoy_pool_request request = request_of;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_slot slot = {.offset = 77};
    request.bytes = bytes;
    assert_int_equal(convoy_pool_take(pool, &request, &slot, &error), wanted);
    assert_int_equal(slot.offset, 77);
    if (strstr(error.text, text) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", text, error.text);
    }
}

/* What is written into a shared pool is what a peer reads that has mapped its file. */
static void test_pool_shared_memory_is_seen_by_a_reader(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_SHARED, NULL, 200 * KIB); /* rounded up to four blocks */
    assert_int_equal(convoy_pool_bytes(pool), 256 * KIB);
    struct convoy_slot slot = taken(pool, 70 * KIB);
    assert_int_equal(slot.bytes, 128 * KIB);
    assert_ptr_equal(slot.address, (uint8_t *)convoy_pool_memory(pool) + slot.offset);
    memset(slot.address, 0x5a, (size_t)slot.bytes);
    const void *view = NULL;
    size_t bytes = 0;
    assert_int_equal(convoy_shared_file_view(convoy_pool_file(pool), 256 * KIB, &view, &bytes, NULL), CONVOY_OK);
    convoy_pool_close(pool); /* the view stays the reader's */
    assert_int_equal(((const uint8_t *)view)[slot.offset], 0x5a);
    assert_int_equal(((const uint8_t *)view)[slot.offset + slot.bytes - 1], 0x5a);
    (void)munmap((void *)(uintptr_t)view, bytes);
}

static void test_pool_of_the_hosts_memory(void **state)
{
    (void)state;
    uint8_t *memory = calloc(3, 64 * KIB);
    struct convoy_pool *pool = opened(CONVOY_POOL_HOST, memory, 3 * 64 * KIB - 1); /* rounded down to two */
    assert_int_equal(convoy_pool_bytes(pool), 128 * KIB);
    assert_int_equal(convoy_pool_file(pool), -1);
    struct convoy_slot slot = taken(pool, 1);
    assert_true((uint8_t *)slot.address >= memory && (uint8_t *)slot.address < memory + 128 * KIB);
    convoy_pool_close(pool);
    free(memory);
}

/* Of device memory no byte is ever touched: this address cannot be. */
static void test_pool_of_device_memory_is_only_numbers(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_DEVICE, (void *)(uintptr_t)0x7000000000000, 256 * KIB);
    struct convoy_slot slot = taken(pool, 256 * KIB);
    assert_int_equal((uintptr_t)slot.address, 0x7000000000000);
    assert_int_equal(convoy_pool_retire(pool, slot.lease, CONVOY_LEASE_END_RELEASED, NULL), CONVOY_OK);
    assert_int_equal(figures_of(pool).blocks.free, 256 * KIB);
    convoy_pool_close(pool);
}

static void test_pool_that_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        struct convoy_pool_options options;
        int32_t status;
        const char *text;
    } rows[] = {
        {{.kind = CONVOY_POOL_SHARED, .memory = NULL, .bytes = 1,
          .block_bytes = 3, .lease_max = 1, .reference_max = 1},
         CONVOY_INVALID_ARGUMENT, "block of 3 bytes"},
        {{.kind = CONVOY_POOL_HOST, .memory = NULL, .bytes = 65536,
          .block_bytes = 65536, .lease_max = 1, .reference_max = 1},
         CONVOY_INVALID_ARGUMENT, "memory is NULL with 65536"},
        {{.kind = CONVOY_POOL_SHARED, .memory = NULL, .bytes = 65536,
          .block_bytes = 65536, .lease_max = 0, .reference_max = 1},
         CONVOY_INVALID_ARGUMENT, "leases: 0"},
        {{.kind = CONVOY_POOL_DEVICE, .memory = (void *)1, .bytes = UINT64_MAX,
          .block_bytes = 1, .lease_max = 1, .reference_max = 1},
         CONVOY_LIMIT, "more than 2147483647 blocks of 1"},
        {{.kind = CONVOY_POOL_SHARED, .memory = NULL, .bytes = UINT64_C(1) << 50,
          .block_bytes = UINT64_C(1) << 30, .lease_max = 1, .reference_max = 1},
         CONVOY_SYSTEM, "reserve"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        struct convoy_pool *pool = NULL;
        assert_int_equal(convoy_pool_open(&rows[i].options, &pool, &error), rows[i].status);
        assert_non_null(strstr(error.text, rows[i].text));
        assert_null(pool);
    }
    convoy_pool_close(NULL);
}

/* Mooncake PR 2399: a pool of no bytes is legal, serves what has no payload, and says clearly what it cannot hold. */
static void test_pool_of_no_bytes(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_SHARED, NULL, 0);
    struct convoy_slot slot = taken(pool, 0);
    assert_null(slot.address);
    assert_int_equal(slot.bytes, 0);
    refused(pool, 1, CONVOY_LIMIT, "1 bytes, the pool has 0");
    assert_int_equal(convoy_pool_fits(pool, NULL, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_pool_fits(pool, &(uint64_t){1}, 1, NULL), CONVOY_LIMIT);
    assert_int_equal(convoy_pool_find(pool, pool, 0, &slot, NULL), CONVOY_NOT_FOUND);
    assert_int_equal(convoy_pool_retire(pool, slot.lease, CONVOY_LEASE_END_RELEASED, NULL), CONVOY_OK);
    assert_int_equal(figures_of(pool).leases.counts[CONVOY_LEASE_FREE], 16);
    convoy_pool_close(pool);
}

/* google/tpu-sync PR 722: exhaustion is a status of its own, never a transfer that did not happen. */
static void test_pool_exhaustion_is_told_with_figures(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_SHARED, NULL, 256 * KIB);
    (void)taken(pool, 128 * KIB);
    (void)taken(pool, 10);
    refused(pool, 128 * KIB, CONVOY_POOL_EXHAUSTED,
            "131072 bytes asked, the largest free block has 65536, 65536 of 262144 are free, 2 slots live");
    refused(pool, 256 * KIB + 1, CONVOY_LIMIT, "262145 bytes, the pool has 262144 in blocks of up to 262144");
    struct convoy_pool_request request = request_of;
    char longest[300] = {0};
    memset(longest, 'r', sizeof longest);
    request.owner = (struct convoy_lease_owner){longest, 256, 1};
    request.bytes = 1;
    struct convoy_slot slot;
    assert_int_equal(convoy_pool_take(pool, &request, &slot, NULL), CONVOY_LIMIT);
    assert_int_equal(figures_of(pool).exhausted, 1);
    assert_int_equal(figures_of(pool).blocks.asked, 128 * KIB + 10);
    for (uint32_t i = 0; i < 14; i++) {
        (void)taken(pool, 0);
    }
    refused(pool, 0, CONVOY_POOL_EXHAUSTED, "all leases");
    refused(pool, 1, CONVOY_POOL_EXHAUSTED, "all leases");
    assert_int_equal(figures_of(pool).blocks.live_count, 2); /* the block went back */
    convoy_pool_close(pool);
}

static void test_pool_takes_together_or_not_at_all(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_SHARED, NULL, 512 * KIB);
    struct convoy_slot slots[20];
    uint64_t bytes[20] = {100 * KIB, 1, 200 * KIB};
    struct convoy_error error = CONVOY_ERROR_INIT;
    const uint64_t never[2] = {512 * KIB, 1};
    assert_int_equal(convoy_pool_fits(pool, never, 2, &error), CONVOY_LIMIT);
    assert_int_equal(convoy_pool_fits(pool, bytes, 4, NULL), CONVOY_OK); /* the last one is 0 */
    assert_int_equal(convoy_pool_fits(pool, bytes, 3, NULL), CONVOY_OK);
    assert_int_equal(convoy_pool_take_all(pool, &request_of, bytes, 3, slots, NULL), CONVOY_OK);
    assert_int_equal(slots[0].bytes, 128 * KIB);
    assert_int_equal(slots[2].bytes, 256 * KIB);
    assert_int_equal(convoy_pool_fits(pool, bytes, 2, &error), CONVOY_POOL_EXHAUSTED);
    assert_non_null(strstr(error.text, "102401 bytes asked"));
    assert_int_equal(convoy_pool_take_all(pool, &request_of, bytes, 2, slots, &error), CONVOY_POOL_EXHAUSTED);
    assert_int_equal(convoy_pool_take_all(pool, &request_of, bytes, 4, slots, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_pool_take_all(pool, &request_of, bytes, 257, slots, &error), CONVOY_LIMIT);
    assert_int_equal(convoy_pool_take_all(pool, &request_of, bytes, 0, slots, &error), CONVOY_OK);
    assert_int_equal(figures_of(pool).exhausted, 1); /* asking whether it fits is no request */
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(convoy_pool_retire(pool, slots[i].lease, CONVOY_LEASE_END_RELEASED, NULL), CONVOY_OK);
    }
    for (uint32_t i = 0; i < 14; i++) {
        (void)taken(pool, 0);
    }
    bytes[0] = bytes[1] = bytes[2] = 1; /* blocks for three, leases for two: all comes back */
    assert_int_equal(convoy_pool_take_all(pool, &request_of, bytes, 3, slots, &error), CONVOY_POOL_EXHAUSTED);
    assert_int_equal(figures_of(pool).blocks.live_count, 0);
    assert_int_equal(figures_of(pool).leases.counts[CONVOY_LEASE_TAKEN], 14);
    convoy_pool_close(pool);
}

/* A slot given back while a peer still reads it is nobody's until that peer lets go, or is proven dead. */
static void test_pool_quarantine_lowers_the_capacity_and_ends(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_SHARED, NULL, 128 * KIB);
    for (uint32_t turn = 0; turn < 2; turn++) {
        struct convoy_slot slot = taken(pool, 128 * KIB);
        struct convoy_lease_view view;
        char request[CONVOY_REQUEST_BYTES + 1];
        assert_int_equal(convoy_pool_filled(pool, slot.lease, 100, NULL), CONVOY_OK);
        assert_int_equal(convoy_pool_refer(pool, slot.lease, PEER, CONVOY_REFERENCE_READ, NULL), CONVOY_OK);
        assert_int_equal(convoy_pool_retire(pool, slot.lease, CONVOY_LEASE_END_RELEASED, NULL), CONVOY_OK);
        assert_int_equal(figures_of(pool).leases.bytes[CONVOY_LEASE_RETIRED], 128 * KIB);
        refused(pool, 1, CONVOY_POOL_EXHAUSTED, "0 of 131072 are free");
        assert_true(convoy_pool_look(pool, slot.lease, &view, request));
        assert_string_equal(request, "r-1");
        assert_int_equal(view.filled, 100);
        if (turn == 0) {
            assert_int_equal(convoy_pool_unrefer(pool, slot.lease, PEER + 1, CONVOY_REFERENCE_READ, NULL), CONVOY_NOT_FOUND);
            assert_int_equal(convoy_pool_unrefer(pool, slot.lease, PEER, CONVOY_REFERENCE_READ, NULL), CONVOY_OK);
        } else {
            assert_int_equal(convoy_pool_drop_peer(pool, PEER + 1), 0);
            assert_int_equal(convoy_pool_drop_peer(pool, PEER), 1);
        }
        assert_false(convoy_pool_look(pool, slot.lease, &view, NULL));
        assert_int_equal(figures_of(pool).blocks.free, 128 * KIB);
    }
    convoy_pool_close(pool);
}

/* A free by the handle of an earlier lease of the same memory is refused, and the new owner's bytes stay. */
static void test_pool_stale_handles_free_nothing(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_SHARED, NULL, 64 * KIB);
    struct convoy_slot old = taken(pool, 100);
    assert_int_equal(convoy_pool_retire(pool, old.lease, CONVOY_LEASE_END_RELEASED, NULL), CONVOY_OK);
    struct convoy_slot young = taken(pool, 100);
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_ptr_equal(old.address, young.address);
    memcpy(young.address, "mine", 5);
    assert_int_equal(convoy_pool_retire(pool, old.lease, CONVOY_LEASE_END_RELEASED, &error), CONVOY_CLOSED);
    assert_non_null(strstr(error.text, "stale"));
    assert_int_equal(convoy_pool_filled(pool, old.lease, 1, NULL), CONVOY_CLOSED);
    assert_int_equal(convoy_pool_refer(pool, old.lease, PEER, CONVOY_REFERENCE_WRITE, NULL), CONVOY_CLOSED);
    assert_int_equal(convoy_pool_adopt(pool, old.lease, &request_of.owner, 1, NULL), CONVOY_CLOSED);
    assert_string_equal(young.address, "mine");
    assert_int_equal(figures_of(pool).leases.stale, 4);
    assert_int_equal(convoy_pool_adopt(pool, young.lease, &(struct convoy_lease_owner){"r-2", 3, 1}, 7, NULL), CONVOY_OK);
    assert_int_equal(convoy_pool_filled(pool, young.lease, 65 * KIB, NULL), CONVOY_LIMIT);
    assert_int_equal(convoy_pool_filled(pool, young.lease, 5, NULL), CONVOY_OK);
    assert_int_equal(convoy_pool_filled(pool, young.lease, 5, NULL), CONVOY_BAD_STATE);
    convoy_pool_close(pool);
}

#ifdef CONVOY_DEBUG
static void test_pool_freed_slots_are_poisoned(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_SHARED, NULL, 128 * KIB);
    struct convoy_slot slot = taken(pool, 100);
    memset(slot.address, 1, 100);
    assert_int_equal(convoy_pool_retire(pool, slot.lease, CONVOY_LEASE_END_RELEASED, NULL), CONVOY_OK);
    const uint8_t *memory = slot.address;
    for (uint64_t i = 0; i < slot.bytes; i++) {
        assert_int_equal(memory[i], CONVOY_POOL_POISON);
    }
    assert_int_equal(memory[slot.bytes], 0); /* and nothing beyond */
    convoy_pool_close(pool);
}
#endif

struct told {
    uint32_t count;
    char request[16];
    enum convoy_lease_state state;
};

static void told_expired(void *user, const struct convoy_lease_view *view)
{
    struct told *told = user;
    told->count++;
    told->state = view->state;
    (void)strncpy(told->request, view->owner.request, sizeof told->request - 1);
}

static void test_pool_sweep_retires_and_says_whom(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_SHARED, NULL, 256 * KIB);
    struct told told = {0};
    (void)taken(pool, 1);
    struct convoy_slot written = taken(pool, 1);
    assert_int_equal(convoy_pool_refer(pool, written.lease, PEER, CONVOY_REFERENCE_WRITE, NULL), CONVOY_OK);
    assert_int_equal(convoy_pool_sweep(pool, 999, told_expired, &told), 0);
    assert_int_equal(convoy_pool_sweep(pool, 1000, told_expired, &told), 2);
    assert_int_equal(told.count, 2);
    assert_int_equal(told.state, CONVOY_LEASE_TAKEN);
    assert_string_equal(told.request, "r-1");
    assert_int_equal(convoy_pool_sweep(pool, UINT64_MAX, NULL, NULL), 0);
    assert_int_equal(figures_of(pool).expired, 2);
    assert_int_equal(figures_of(pool).blocks.live_count, 1); /* whom a peer may still write to is not given away */
    assert_int_equal(convoy_pool_drop_peer(pool, PEER), 1);
    assert_int_equal(figures_of(pool).blocks.live_count, 0);
    convoy_pool_close(pool);
}

static void test_pool_finds_the_slot_of_an_address(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_SHARED, NULL, 256 * KIB);
    struct convoy_slot slot = taken(pool, 128 * KIB);
    struct convoy_slot found;
    uint8_t *memory = slot.address;
    assert_int_equal(convoy_pool_find(pool, memory + 5, 128 * KIB - 5, &found, NULL), CONVOY_OK);
    assert_int_equal(found.lease, slot.lease);
    assert_ptr_equal(found.address, memory);
    assert_int_equal(convoy_pool_find(pool, memory + 5, 128 * KIB - 4, &found, NULL), CONVOY_NOT_FOUND);
    assert_int_equal(convoy_pool_find(pool, memory + 128 * KIB, 1, &found, NULL), CONVOY_NOT_FOUND);
    assert_int_equal(convoy_pool_find(pool, memory - 1, 1, &found, NULL), CONVOY_NOT_FOUND);
    assert_int_equal(convoy_pool_find(pool, memory, UINT64_MAX, &found, NULL), CONVOY_NOT_FOUND);
    assert_int_equal(convoy_pool_find(pool, NULL, 1, &found, NULL), CONVOY_NOT_FOUND);
    convoy_pool_close(pool);
}

/* Several threads take, fill and give back at once: nobody ever sees another's bytes in a slot of its own. */
#define THREADS 4u
#define TURNS 3000u

struct worker {
    struct convoy_pool *pool;
    uint8_t mark;
    uint32_t exhausted;
    uint32_t foreign;
};

static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        struct convoy_pool_request request = request_of;
        struct convoy_slot slot;
        request.bytes = 1 + (turn * 7919u) % (100 * KIB);
        if (convoy_pool_take(worker->pool, &request, &slot, NULL) != CONVOY_OK) {
            worker->exhausted++;
            continue;
        }
        memset(slot.address, worker->mark, 64);
        ((uint8_t *)slot.address)[slot.bytes - 1] = worker->mark;
        worker->foreign += ((uint8_t *)slot.address)[63] != worker->mark;
        worker->foreign += ((uint8_t *)slot.address)[slot.bytes - 1] != worker->mark;
        worker->foreign += convoy_pool_retire(worker->pool, slot.lease, CONVOY_LEASE_END_RELEASED, NULL) != CONVOY_OK;
    }
    return NULL;
}

static void test_pool_threads_share_it(void **state)
{
    (void)state;
    struct convoy_pool *pool = opened(CONVOY_POOL_SHARED, NULL, 256 * KIB);
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.pool = pool, .mark = (uint8_t)(i + 1)};
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    }
    uint64_t exhausted = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].foreign, 0);
        exhausted += workers[i].exhausted;
    }
    assert_int_equal(figures_of(pool).exhausted, exhausted);
    assert_int_equal(figures_of(pool).blocks.largest_free, 256 * KIB);
    convoy_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_shared_memory_is_seen_by_a_reader),
        cmocka_unit_test(test_pool_of_the_hosts_memory),
        cmocka_unit_test(test_pool_of_device_memory_is_only_numbers),
        cmocka_unit_test(test_pool_that_cannot_be_is_refused),
        cmocka_unit_test(test_pool_of_no_bytes),
        cmocka_unit_test(test_pool_exhaustion_is_told_with_figures),
        cmocka_unit_test(test_pool_takes_together_or_not_at_all),
        cmocka_unit_test(test_pool_quarantine_lowers_the_capacity_and_ends),
        cmocka_unit_test(test_pool_stale_handles_free_nothing),
#ifdef CONVOY_DEBUG
        cmocka_unit_test(test_pool_freed_slots_are_poisoned),
#endif
        cmocka_unit_test(test_pool_sweep_retires_and_says_whom),
        cmocka_unit_test(test_pool_finds_the_slot_of_an_address),
        cmocka_unit_test(test_pool_threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
