/* SPDX-License-Identifier: Apache-2.0 */
/* Generations of a pool: every edge of their states, what goes on in the new one and stays in the old, and that memory is
 * returned with the last slot, never earlier. */
#include "core/error.h"
#include "pool/part.h"
#include "tests/lib/mappings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB UINT64_C(1024)
#define BLOCK (64 * KIB)
#define OLD_MAX (CONVOY_POOL_GENERATIONS - 1)

static uint32_t ended_count;

static void note_ended(void *user)
{
    (void)user;
    ended_count++;
}

static uint32_t asked_count;
static const void *held; /* that somebody else does not let go of */

static bool let_go(void *user, void *memory, uint64_t bytes)
{
    (void)user;
    assert_int_equal(bytes % BLOCK, 0);
    *(volatile uint8_t *)memory = 1; /* it is there still */
    asked_count++;
    return memory != held;
}

static struct convoy_pool *opened(uint64_t bytes)
{
    const struct convoy_pool_options options = {.kind = CONVOY_POOL_SHARED,
                                                .bytes = bytes,
                                                .block_bytes = BLOCK,
                                                .lease_max = 16,
                                                .reference_max = 16,
                                                .ended = note_ended,
                                                .let_go = let_go};
    struct convoy_pool *pool = NULL;
    ended_count = asked_count = 0;
    held = NULL;
    assert_int_equal(convoy_pool_open(&options, &pool, NULL), CONVOY_OK);
    return pool;
}

static const struct convoy_pool_request request_of = {
    .owner = {"r-1", 3, 1}, .bytes = BLOCK, .now_ns = 5, .deadline_ns = CONVOY_LEASE_NEVER};

static struct convoy_slot taken(struct convoy_pool *pool)
{
    struct convoy_slot slot;
    assert_int_equal(convoy_pool_take(pool, &request_of, &slot, NULL), CONVOY_OK);
    assert_null(convoy_pool_check(pool));
    return slot;
}

static void renewed(struct convoy_pool *pool, uint64_t bytes)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_pool_renew(pool, bytes, &request_of, 0, NULL, &error) != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
    (void)convoy_pool_switch(pool);
    assert_null(convoy_pool_check(pool));
}

static void retired(struct convoy_pool *pool, const struct convoy_slot *slot)
{
    assert_int_equal(convoy_pool_retire(pool, slot->lease, CONVOY_LEASE_END_RELEASED, NULL), CONVOY_OK);
    assert_null(convoy_pool_check(pool));
}

/* -- states, by a second list of the edges -- */

static void test_pool_renew_every_pair_of_states_is_as_listed(void **state)
{
    (void)state;
    static const uint32_t edges[][2] = {
        {CONVOY_PART_FREE, CONVOY_PART_MADE},   {CONVOY_PART_MADE, CONVOY_PART_CURRENT},
        {CONVOY_PART_MADE, CONVOY_PART_ENDED},  {CONVOY_PART_CURRENT, CONVOY_PART_OLD},
        {CONVOY_PART_OLD, CONVOY_PART_ENDED},   {CONVOY_PART_ENDED, CONVOY_PART_FREE},
    };
    for (uint32_t from = 0; from < CONVOY_PART_STATES + 1; from++) {
        for (uint32_t to = 0; to < CONVOY_PART_STATES + 1; to++) {
            bool is_listed = false;
            for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
                is_listed = is_listed || (edges[i][0] == from && edges[i][1] == to);
            }
            struct convoy_pool_part part = {.state = (enum convoy_pool_part_state)from};
            assert_int_equal(convoy_pool_part_move(&part, (enum convoy_pool_part_state)to), is_listed);
            assert_int_equal(part.state, is_listed ? to : from);
        }
        assert_int_equal(strcmp(convoy_pool_part_name((enum convoy_pool_part_state)from), "UNKNOWN") == 0,
                         from == CONVOY_PART_STATES);
    }
}

/* -- old and new -- */

static void test_pool_renew_goes_on_in_new_memory_and_keeps_what_is_taken(void **state)
{
    (void)state;
    uint32_t mapped = mappings_count();
    struct convoy_pool *pool = opened(4 * BLOCK);
    struct convoy_slot old = taken(pool);
    struct convoy_slot found;
    struct convoy_pool_figures figures;
    memset(old.address, 0x5a, BLOCK);
    renewed(pool, 2 * BLOCK);
    struct convoy_slot next = taken(pool);
    assert_int_equal(next.offset, 4 * BLOCK); /* counts on: it can be no slot of the old one */
    assert_ptr_equal(next.address, convoy_pool_memory(pool));
    assert_int_equal(convoy_pool_bytes(pool), 2 * BLOCK);
    assert_int_equal(*((const uint8_t *)old.address + BLOCK - 1), 0x5a);
    assert_int_equal(convoy_pool_find(pool, (uint8_t *)old.address + 7, 9, &found, NULL), CONVOY_OK);
    assert_int_equal(found.lease, old.lease);
    assert_int_equal(found.offset, old.offset);
    convoy_pool_figures(pool, &figures);
    assert_int_equal(figures.blocks.capacity, 2 * BLOCK);
    assert_int_equal(figures.blocks.taken, BLOCK);
    assert_int_equal(figures.old_count, 1);
    assert_int_equal(figures.old_bytes, 4 * BLOCK);
    assert_int_equal(figures.old_taken, BLOCK);
    assert_int_equal(mappings_count(), mapped + 2);
    retired(pool, &old);
    convoy_pool_close(pool);
    assert_int_equal(mappings_count(), mapped);
}

/* Quarantined: what is retired and still read keeps its generation. */
static void test_pool_renew_memory_goes_with_its_last_reader_and_not_before(void **state)
{
    (void)state;
    uint64_t ended[CONVOY_POOL_GENERATIONS];
    uint32_t mapped = mappings_count();
    uint32_t files = mappings_files();
    struct convoy_pool *pool = opened(4 * BLOCK);
    struct convoy_slot first = taken(pool);
    struct convoy_slot second = taken(pool);
    assert_int_equal(convoy_pool_filled(pool, first.lease, 9, NULL), CONVOY_OK);
    assert_int_equal(convoy_pool_refer(pool, first.lease, 3, CONVOY_REFERENCE_READ, NULL), CONVOY_OK);
    renewed(pool, BLOCK);
    retired(pool, &second);
    retired(pool, &first);
    assert_false(convoy_pool_has_ended(pool));
    assert_int_equal(convoy_pool_reap(pool, ended), 0);
    assert_int_equal(convoy_pool_unrefer(pool, first.lease, 3, CONVOY_REFERENCE_READ, NULL), CONVOY_OK);
    assert_true(convoy_pool_has_ended(pool));
    assert_int_equal(ended_count, 1);
    assert_int_equal(mappings_count(), mapped + 2);
    assert_int_equal(convoy_pool_reap(pool, ended), 1);
    assert_int_equal(ended[0], 1);
    assert_int_equal(mappings_count(), mapped + 1);
    assert_int_equal(mappings_files(), files + 1);
    assert_int_equal(convoy_pool_find(pool, first.address, 1, &second, NULL), CONVOY_NOT_FOUND);
    convoy_pool_close(pool);
}

static void test_pool_renew_of_an_empty_one_ends_it_at_once(void **state)
{
    (void)state;
    uint64_t ended[CONVOY_POOL_GENERATIONS];
    uint32_t mapped = mappings_count();
    struct convoy_pool *pool = opened(BLOCK);
    for (uint64_t i = 1; i <= 3 * CONVOY_POOL_GENERATIONS; i++) {
        renewed(pool, i * BLOCK);
        assert_int_equal(convoy_pool_reap(pool, ended), 1);
        assert_int_equal(ended[0], i);
    }
    assert_int_equal(mappings_count(), mapped + 1);
    convoy_pool_close(pool);
}

static void test_pool_renew_is_refused_while_too_many_are_alive(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_slot slots[OLD_MAX];
    uint64_t ended[CONVOY_POOL_GENERATIONS];
    struct convoy_pool *pool = opened(BLOCK);
    for (uint32_t i = 0; i < OLD_MAX; i++) {
        slots[i] = taken(pool);
        renewed(pool, BLOCK);
    }
    assert_int_equal(convoy_pool_renew(pool, BLOCK, &request_of, 0, NULL, &error), CONVOY_LIMIT);
    assert_non_null(strstr(error.text, "7 old generations are alive, allowed are 7: 458752 of their 458752 bytes"));
    retired(pool, &slots[3]); /* any of them will do */
    assert_int_equal(convoy_pool_reap(pool, ended), 1);
    assert_int_equal(ended[0], 4);
    renewed(pool, BLOCK);
    for (uint32_t i = 0; i < OLD_MAX; i++) {
        if (i != 3) {
            retired(pool, &slots[i]);
        }
    }
    convoy_pool_close(pool);
}

static void test_pool_renew_that_cannot_be_changes_nothing(void **state)
{
    (void)state;
    static uint8_t memory[BLOCK];
    const struct convoy_pool_options host = {.kind = CONVOY_POOL_HOST,
                                             .memory = memory,
                                             .bytes = BLOCK,
                                             .block_bytes = BLOCK,
                                             .lease_max = 1,
                                             .reference_max = 1};
    struct convoy_slot slots[4];
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_pool *theirs = NULL;
    uint32_t mapped = mappings_count();
    struct convoy_pool *pool = opened(4 * BLOCK);
    assert_int_equal(convoy_pool_renew(pool, 0, &request_of, 0, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_pool_renew(pool, UINT64_MAX, &request_of, 0, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_pool_renew(pool, BLOCK << 30, &request_of, 0, NULL, &error), CONVOY_NO_MEMORY);
    assert_int_equal(convoy_pool_renew(pool, 3 * BLOCK, &request_of, 4, slots, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "do not hold the 4 preallocated slots"));
    assert_int_equal(convoy_pool_renew(pool, 4 * BLOCK, &request_of, 4, slots, &error), CONVOY_OK);
    convoy_pool_undo(pool);
    assert_null(convoy_pool_check(pool));
    assert_int_equal(mappings_count(), mapped + 1);
    assert_int_equal(convoy_pool_current(pool).generation, 1);
    assert_int_equal(convoy_pool_open(&host, &theirs, NULL), CONVOY_OK);
    assert_int_equal(convoy_pool_renew(theirs, BLOCK, &request_of, 0, NULL, &error), CONVOY_UNSUPPORTED);
    convoy_pool_close(theirs);
    convoy_pool_close(pool);
}

static void test_pool_renew_slots_of_the_next_one_are_there_at_the_switch(void **state)
{
    (void)state;
    struct convoy_slot slots[2];
    struct convoy_pool_share share;
    struct convoy_pool *pool = opened(BLOCK);
    assert_int_equal(convoy_pool_renew(pool, 4 * BLOCK, &request_of, 2, slots, NULL), CONVOY_OK);
    struct convoy_slot before = taken(pool);
    assert_int_equal(before.offset, 0);
    assert_int_equal(convoy_pool_switch(pool), 2);
    assert_int_equal(slots[1].offset, 2 * BLOCK);
    assert_true(convoy_pool_generation_at(pool, slots[1].offset, &share));
    assert_int_equal(share.generation, 2);
    assert_int_equal(share.base, BLOCK);
    assert_false(convoy_pool_generation_at(pool, 5 * BLOCK, &share));
    assert_true(convoy_pool_share(pool, 1, &share)); /* old, and still to be had */
    assert_int_equal(share.bytes, BLOCK);
    assert_int_equal(close(share.file), 0);
    retired(pool, &before);
    assert_false(convoy_pool_share(pool, 1, &share));
    assert_true(convoy_pool_share(pool, 0, &share));
    assert_int_equal(share.generation, 2);
    assert_int_equal(close(share.file), 0);
    convoy_pool_close(pool);
}

/* Whoever holds a generation's memory is asked before it goes, whichever way that is, and keeps it by a no. */
static void test_pool_renew_memory_that_somebody_holds_stays_mapped(void **state)
{
    (void)state;
    uint64_t ended[CONVOY_POOL_GENERATIONS];
    uint64_t bytes = 0;
    uint32_t mapped = mappings_count();
    uint32_t files = mappings_files();
    struct convoy_pool *pool = opened(BLOCK);
    held = convoy_pool_memory(pool);
    renewed(pool, 2 * BLOCK);
    assert_int_equal(convoy_pool_reap(pool, ended), 1);
    assert_int_equal(asked_count, 1);
    assert_int_equal(mappings_count(), mapped + 2);
    assert_int_equal(mappings_files(), files + 1);
    uint8_t *left = (uint8_t *)(uintptr_t)held;
    held = NULL;
    assert_int_equal(convoy_pool_renew(pool, 3 * BLOCK, &request_of, 0, NULL, NULL), CONVOY_OK);
    assert_non_null(convoy_pool_made(pool, &bytes));
    assert_int_equal(bytes, 3 * BLOCK);
    convoy_pool_undo(pool);
    assert_int_equal(asked_count, 2);
    assert_int_equal(mappings_count(), mapped + 2);
    convoy_pool_close(pool);
    assert_int_equal(asked_count, 3);
    assert_int_equal(mappings_count(), mapped + 1);
    assert_int_equal(munmap(left, BLOCK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_renew_every_pair_of_states_is_as_listed),
        cmocka_unit_test(test_pool_renew_goes_on_in_new_memory_and_keeps_what_is_taken),
        cmocka_unit_test(test_pool_renew_memory_goes_with_its_last_reader_and_not_before),
        cmocka_unit_test(test_pool_renew_of_an_empty_one_ends_it_at_once),
        cmocka_unit_test(test_pool_renew_is_refused_while_too_many_are_alive),
        cmocka_unit_test(test_pool_renew_that_cannot_be_changes_nothing),
        cmocka_unit_test(test_pool_renew_slots_of_the_next_one_are_there_at_the_switch),
        cmocka_unit_test(test_pool_renew_memory_that_somebody_holds_stays_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
