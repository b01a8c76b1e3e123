/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/placement.h"

#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 4u
#define NONE CONVOY_GATHER_NO_SLOT

static const struct convoy_grid grid = {.member_count = MEMBERS, .inner = 2, .slots = 3, .width = 1};

/* Four members, two to a data-parallel rank, three slots. */
struct fixture {
    struct convoy_gather gather;
    struct convoy_placement placement;
    struct convoy_conflict conflict;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (convoy_gather_init(&f->gather, &grid, NULL) != CONVOY_OK ||
        convoy_placement_init(&f->placement, &grid, NULL) != CONVOY_OK) {
        return -1;
    }
    convoy_mask_clear(&f->gather.mask);
    memset(f->gather.presence, CONVOY_PRESENT, MEMBERS);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    convoy_gather_fini(&f->gather);
    convoy_placement_fini(&f->placement);
    free(f);
    return 0;
}

static bool place_world(struct fixture *f, const uint32_t slots[MEMBERS])
{
    convoy_gather_prepare(&f->gather, true);
    memcpy(f->gather.slot_of, slots, MEMBERS * sizeof *slots);
    return convoy_placement_compute(&f->placement, &f->gather, &f->conflict);
}

static void assert_cell(struct fixture *f, uint32_t slot, uint32_t position, uint32_t member, uint8_t presence)
{
    uint8_t seen;
    assert_int_equal(convoy_placement_cell(&f->placement, &f->gather, slot, position, &seen), member);
    assert_int_equal(seen, presence);
}

static void test_placement_plain_spare_slots_are_empty(void **state)
{
    struct fixture *f = *state;
    assert_true(convoy_placement_compute(&f->placement, &f->gather, &f->conflict));
    assert_cell(f, 1, 0, 2, CONVOY_PRESENT);
    assert_cell(f, 1, 1, 3, CONVOY_PRESENT);
    assert_cell(f, 2, 0, CONVOY_PLACEMENT_EMPTY, CONVOY_PRESENT_EMPTY);
}

static void test_placement_world_rows_go_to_the_slots_named(void **state)
{
    struct fixture *f = *state;
    assert_true(place_world(f, (const uint32_t[]){2, 2, 0, NONE}));
    assert_cell(f, 2, 0, 0, CONVOY_PRESENT);
    assert_cell(f, 2, 1, 1, CONVOY_PRESENT);
    assert_cell(f, 0, 0, 2, CONVOY_PRESENT);
    assert_cell(f, 0, 1, CONVOY_PLACEMENT_EMPTY, CONVOY_PRESENT_EMPTY); /* its row was to be dropped */
    assert_cell(f, 1, 0, CONVOY_PLACEMENT_EMPTY, CONVOY_PRESENT_EMPTY);
}

static void test_placement_world_lost_member_shows_in_its_ranks_slot(void **state)
{
    struct fixture *f = *state;
    f->gather.presence[0] = CONVOY_PRESENT_LOST;
    f->gather.presence[2] = CONVOY_PRESENT_LOST;
    f->gather.presence[3] = CONVOY_PRESENT_ERROR;
    assert_true(place_world(f, (const uint32_t[]){0, 2, 0, 0})); /* slots of absent members are left over */
    assert_cell(f, 2, 0, 0, CONVOY_PRESENT_LOST);
    assert_cell(f, 2, 1, 1, CONVOY_PRESENT);
    assert_cell(f, 0, 0, CONVOY_PLACEMENT_EMPTY, CONVOY_PRESENT_EMPTY);
}

static void test_placement_world_slot_claimed_twice_names_both(void **state)
{
    struct fixture *f = *state;
    assert_false(place_world(f, (const uint32_t[]){1, NONE, NONE, 1}));
    assert_int_equal(f->conflict.kind, CONVOY_CONFLICT_SLOT);
    assert_int_equal(f->conflict.first, 0);
    assert_int_equal(f->conflict.second, 3);
    assert_int_equal(f->conflict.slot, 1);
}

static void test_placement_world_rank_that_names_two_slots_is_a_conflict(void **state)
{
    struct fixture *f = *state;
    assert_false(place_world(f, (const uint32_t[]){1, 0, 2, 2}));
    assert_int_equal(f->conflict.kind, CONVOY_CONFLICT_RANK_SLOT);
    assert_int_equal(f->conflict.first, 0);
    assert_int_equal(f->conflict.second, 1);
    assert_int_equal(f->conflict.slot, 1);
    assert_int_equal(f->conflict.second_slot, 0);
}

#ifdef CONVOY_FAULTS
static void test_placement_without_memory_says_so(void **state)
{
    (void)state;
    for (int64_t skip_count = 0; skip_count < 2; skip_count++) {
        struct convoy_placement placement;
        (void)convoy_memory_fail_after(skip_count);
        assert_int_equal(convoy_placement_init(&placement, &grid, NULL), CONVOY_NO_MEMORY);
        convoy_placement_fini(&placement);
    }
    (void)convoy_memory_fail_after(-1);
}
#endif

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_placement_plain_spare_slots_are_empty),
        CASE(test_placement_world_rows_go_to_the_slots_named),
        CASE(test_placement_world_lost_member_shows_in_its_ranks_slot),
        CASE(test_placement_world_slot_claimed_twice_names_both),
        CASE(test_placement_world_rank_that_names_two_slots_is_a_conflict),
#ifdef CONVOY_FAULTS
        CASE(test_placement_without_memory_says_so),
#endif
    };
    return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
