/* SPDX-License-Identifier: Apache-2.0 */
/* Buddy arithmetic: rounding, order of use, merging, several at once, and random use against a plain model. */
#include "pool/buddy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MIB CONVOY_BUDDY_BLOCK_BYTES

static struct convoy_buddy_block taken(struct convoy_buddy *buddy, uint64_t bytes)
{
    struct convoy_buddy_block block = {UINT64_MAX, 0};
    assert_int_equal(convoy_buddy_take(buddy, bytes, &block), CONVOY_BUDDY_OK);
    return block;
}

static void assert_sound(const struct convoy_buddy *buddy)
{
    const char *wrong = convoy_buddy_check(buddy);
    if (wrong != NULL) {
        fail_msg("%s", wrong);
    }
}

static struct convoy_buddy_figures figures_of(const struct convoy_buddy *buddy)
{
    struct convoy_buddy_figures figures;
    convoy_buddy_figures(buddy, &figures);
    return figures;
}

static void test_buddy_rounds_to_a_power_of_two_of_blocks(void **state)
{
    (void)state;
    static const struct {
        uint64_t asked;
        uint64_t taken;
    } rows[] = {
        {1, MIB},           {512, MIB},         {MIB - 1, MIB},     {MIB, MIB},           {MIB + 1, 2 * MIB},
        {2 * MIB, 2 * MIB}, {2 * MIB + 1, 4 * MIB}, {5 * MIB, 8 * MIB}, {9 * MIB, 16 * MIB}, {16 * MIB, 16 * MIB},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct convoy_buddy *buddy = convoy_buddy_create(16 * MIB, MIB);
        assert_int_equal(taken(buddy, rows[i].asked).bytes, rows[i].taken);
        assert_int_equal(convoy_buddy_rounded(buddy, rows[i].asked), rows[i].taken);
        assert_int_equal(figures_of(buddy).asked, rows[i].asked);
        assert_int_equal(figures_of(buddy).taken, rows[i].taken);
        assert_int_equal(figures_of(buddy).free, 16 * MIB - rows[i].taken);
        assert_sound(buddy);
        convoy_buddy_destroy(buddy);
    }
}

static void test_buddy_refuses_with_the_reason_and_changes_nothing(void **state)
{
    (void)state;
    struct convoy_buddy *buddy = convoy_buddy_create(4 * MIB, MIB);
    struct convoy_buddy_block block = {7, 7};
    assert_int_equal(convoy_buddy_take(buddy, 0, &block), CONVOY_BUDDY_ZERO);
    assert_int_equal(convoy_buddy_take(buddy, 4 * MIB + 1, &block), CONVOY_BUDDY_TOO_LARGE);
    assert_int_equal(convoy_buddy_take(buddy, UINT64_MAX, &block), CONVOY_BUDDY_TOO_LARGE);
    assert_int_equal(convoy_buddy_rounded(buddy, UINT64_MAX), 0);
    assert_int_equal(convoy_buddy_rounded(buddy, 0), 0);
    (void)taken(buddy, 3 * MIB);
    assert_int_equal(convoy_buddy_take(buddy, 1, &block), CONVOY_BUDDY_FULL);
    assert_int_equal(convoy_buddy_give(buddy, MIB), CONVOY_BUDDY_UNKNOWN);
    assert_int_equal(convoy_buddy_give(buddy, 1), CONVOY_BUDDY_UNKNOWN);
    assert_int_equal(convoy_buddy_give(buddy, 4 * MIB), CONVOY_BUDDY_UNKNOWN);
    assert_int_equal(convoy_buddy_give(buddy, UINT64_MAX), CONVOY_BUDDY_UNKNOWN);
    assert_int_equal(block.offset, 7);
    assert_int_equal(convoy_buddy_give(buddy, 0), CONVOY_BUDDY_OK);
    assert_int_equal(convoy_buddy_give(buddy, 0), CONVOY_BUDDY_UNKNOWN); /* twice */
    assert_int_equal(figures_of(buddy).largest_free, 4 * MIB);
    assert_sound(buddy);
    convoy_buddy_destroy(buddy);
}

static void test_buddy_cannot_be_made_of_nothing(void **state)
{
    (void)state;
    assert_null(convoy_buddy_create(4 * MIB, 0));
    assert_null(convoy_buddy_create(4 * MIB, 3));
    assert_null(convoy_buddy_create(MIB - 1, MIB));
    assert_null(convoy_buddy_create(UINT64_MAX, 512));
    convoy_buddy_destroy(NULL);
}

/* The lower half is kept, upper halves go to the end of their lists, and the first of the first list that is not empty
 * is taken: what was given back last is used last. */
static void test_buddy_takes_the_very_blocks_of_another_and_no_others(void **state)
{
    (void)state;
    struct convoy_buddy *from = convoy_buddy_create(27 * MIB, MIB);
    struct convoy_buddy *to = convoy_buddy_create(27 * MIB, MIB);
    static const uint64_t sizes[] = {MIB, 3 * MIB, 2 * MIB, 5 * MIB, MIB, 1};
    struct convoy_buddy_block blocks[COUNT(sizes)];
    for (size_t i = 0; i < COUNT(sizes); i++) {
        blocks[i] = taken(from, sizes[i]);
    }
    for (size_t i = COUNT(sizes); i-- > 0;) {
        assert_int_equal(convoy_buddy_take_at(to, &blocks[i], sizes[i]), CONVOY_BUDDY_OK);
        assert_int_equal(convoy_buddy_take_at(to, &blocks[i], sizes[i]), CONVOY_BUDDY_UNKNOWN);
        assert_sound(to);
    }
    assert_int_equal(figures_of(to).taken, figures_of(from).taken);
    assert_int_equal(figures_of(to).asked, figures_of(from).asked);
    static const struct convoy_buddy_block none[] = {
        {MIB / 2, MIB}, {0, 3 * MIB}, {MIB, 2 * MIB}, {26 * MIB, 2 * MIB}, {27 * MIB, MIB}, {0, 0}, {0, 32 * MIB}};
    for (size_t i = 0; i < COUNT(none); i++) {
        assert_int_equal(convoy_buddy_take_at(to, &none[i], 1), CONVOY_BUDDY_UNKNOWN);
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_int_equal(convoy_buddy_give(to, blocks[i].offset), CONVOY_BUDDY_OK);
    }
    assert_sound(to);
    assert_int_equal(figures_of(to).taken, 0);
    convoy_buddy_destroy(from);
    convoy_buddy_destroy(to);
}

static void test_buddy_order_of_use(void **state)
{
    (void)state;
    struct convoy_buddy *buddy = convoy_buddy_create(8 * MIB, MIB);
    assert_int_equal(taken(buddy, MIB).offset, 0);      /* leaves 1, 2-3, 4-7 */
    assert_int_equal(taken(buddy, MIB).offset, MIB);    /* the smallest list first */
    assert_int_equal(taken(buddy, MIB).offset, 2 * MIB);
    assert_int_equal(taken(buddy, 2 * MIB).offset, 4 * MIB);
    assert_int_equal(convoy_buddy_give(buddy, MIB), CONVOY_BUDDY_OK); /* after 3, which waits already */
    assert_int_equal(taken(buddy, MIB).offset, 3 * MIB);
    assert_int_equal(taken(buddy, MIB).offset, MIB);
    assert_int_equal(convoy_buddy_give(buddy, 0), CONVOY_BUDDY_OK);
    assert_int_equal(convoy_buddy_give(buddy, MIB), CONVOY_BUDDY_OK); /* merged to 0-1, at the end behind 6-7 */
    assert_int_equal(taken(buddy, 2 * MIB).offset, 6 * MIB);
    assert_int_equal(taken(buddy, 2 * MIB).offset, 0);
    assert_sound(buddy);
    convoy_buddy_destroy(buddy);
}

/* vulkano-rs/vulkano issue 2832: neighbours find each other again, in whatever order they come back. */
static void test_buddy_merges_back_to_one(void **state)
{
    (void)state;
    struct convoy_buddy *buddy = convoy_buddy_create(64 * MIB, MIB);
    uint64_t offsets[64];
    for (size_t i = 0; i < COUNT(offsets); i++) {
        offsets[i] = taken(buddy, MIB).offset;
    }
    assert_int_equal(figures_of(buddy).live_count, 64);
    assert_int_equal(figures_of(buddy).largest_free, 0);
    assert_true(figures_of(buddy).fragmentation == 0);
    for (size_t i = 0; i < COUNT(offsets); i += 2) {
        assert_int_equal(convoy_buddy_give(buddy, offsets[i]), CONVOY_BUDDY_OK);
    }
    assert_int_equal(figures_of(buddy).largest_free, MIB); /* half is free, and all of it in single blocks */
    assert_true(figures_of(buddy).fragmentation > 0.96);
    assert_int_equal(figures_of(buddy).free_counts[0], 32);
    for (size_t i = 1; i < COUNT(offsets); i += 2) {
        assert_int_equal(convoy_buddy_give(buddy, offsets[i]), CONVOY_BUDDY_OK);
        assert_sound(buddy);
    }
    assert_int_equal(figures_of(buddy).largest_free, 64 * MIB);
    assert_int_equal(figures_of(buddy).free_counts[6], 1);
    convoy_buddy_destroy(buddy);
}

/* A range that is no power of two is used to its last block, and none of its parts merges across. */
static void test_buddy_capacity_of_any_number_of_blocks(void **state)
{
    (void)state;
    struct convoy_buddy *buddy = convoy_buddy_create(7 * MIB + 12345, MIB);
    assert_int_equal(figures_of(buddy).capacity, 7 * MIB);
    assert_int_equal(figures_of(buddy).largest_free, 4 * MIB);
    assert_int_equal(taken(buddy, MIB).offset, 6 * MIB);
    assert_int_equal(taken(buddy, 2 * MIB).offset, 4 * MIB);
    assert_int_equal(taken(buddy, 4 * MIB).offset, 0);
    assert_int_equal(figures_of(buddy).free, 0);
    assert_int_equal(convoy_buddy_give(buddy, 4 * MIB), CONVOY_BUDDY_OK);
    assert_int_equal(convoy_buddy_give(buddy, 6 * MIB), CONVOY_BUDDY_OK);
    assert_int_equal(convoy_buddy_give(buddy, 0), CONVOY_BUDDY_OK);
    assert_int_equal(figures_of(buddy).largest_free, 4 * MIB);
    assert_sound(buddy);
    convoy_buddy_destroy(buddy);
}

static void test_buddy_takes_several_or_none(void **state)
{
    (void)state;
    struct convoy_buddy *buddy = convoy_buddy_create(16 * MIB, MIB);
    const uint64_t fit[] = {MIB, 8 * MIB, 1, 4 * MIB, 2 * MIB};
    const uint64_t never[] = {8 * MIB, 4 * MIB, 4 * MIB, 1}; /* each one would fit */
    const uint64_t full[] = {8 * MIB, 0, 4 * MIB, 4 * MIB};
    const uint64_t zero[] = {MIB, 0};
    const uint64_t large[] = {MIB, 17 * MIB};
    struct convoy_buddy_block blocks[5] = {{9, 9}};
    assert_int_equal(convoy_buddy_fits(buddy, never, COUNT(never)), CONVOY_BUDDY_TOO_LARGE);
    assert_int_equal(convoy_buddy_take_all(buddy, never, COUNT(never), blocks), CONVOY_BUDDY_TOO_LARGE);
    assert_int_equal(convoy_buddy_fits(buddy, full, COUNT(full)), CONVOY_BUDDY_OK);
    struct convoy_buddy_block held = taken(buddy, 1);
    assert_int_equal(convoy_buddy_fits(buddy, full, COUNT(full)), CONVOY_BUDDY_FULL);
    assert_int_equal(convoy_buddy_fits(buddy, never, COUNT(never)), CONVOY_BUDDY_TOO_LARGE);
    assert_int_equal(convoy_buddy_give(buddy, held.offset), CONVOY_BUDDY_OK);
    assert_int_equal(convoy_buddy_take_all(buddy, zero, COUNT(zero), blocks), CONVOY_BUDDY_ZERO);
    assert_int_equal(convoy_buddy_take_all(buddy, large, COUNT(large), blocks), CONVOY_BUDDY_TOO_LARGE);
    assert_int_equal(convoy_buddy_fits(buddy, NULL, 0), CONVOY_BUDDY_OK);
    assert_int_equal(blocks[0].offset, 9);
    assert_int_equal(figures_of(buddy).live_count, 0);
    assert_int_equal(convoy_buddy_fits(buddy, fit, COUNT(fit)), CONVOY_BUDDY_OK);
    assert_int_equal(convoy_buddy_take_all(buddy, fit, COUNT(fit), blocks), CONVOY_BUDDY_OK);
    for (size_t i = 0; i < COUNT(fit); i++) {
        assert_int_equal(blocks[i].bytes, fit[i] == 1 ? MIB : fit[i]);
    }
    assert_int_equal(figures_of(buddy).free, 0);
    assert_sound(buddy);
    convoy_buddy_destroy(buddy);
}

static void test_buddy_finds_the_block_of_an_address(void **state)
{
    (void)state;
    struct convoy_buddy *buddy = convoy_buddy_create(16 * MIB, MIB);
    struct convoy_buddy_block block;
    (void)taken(buddy, MIB);
    assert_int_equal(taken(buddy, 4 * MIB).offset, 4 * MIB);
    assert_true(convoy_buddy_find(buddy, 4 * MIB, 4 * MIB, &block));
    assert_int_equal(block.offset, 4 * MIB);
    assert_int_equal(block.bytes, 4 * MIB);
    assert_true(convoy_buddy_find(buddy, 7 * MIB + 5, MIB - 5, &block));
    assert_int_equal(block.offset, 4 * MIB);
    assert_false(convoy_buddy_find(buddy, 7 * MIB + 5, MIB - 4, &block)); /* one byte beyond */
    assert_false(convoy_buddy_find(buddy, 4 * MIB, UINT64_MAX, &block));
    assert_false(convoy_buddy_find(buddy, 2 * MIB, 1, &block)); /* free */
    assert_false(convoy_buddy_find(buddy, 16 * MIB, 0, &block));
    assert_false(convoy_buddy_find(buddy, UINT64_MAX, 1, &block));
    convoy_buddy_destroy(buddy);
}

/* -- against a model that knows only which blocks are taken ---------------------------------------------------------- */

#define MODEL_UNITS 61u /* no power of two */
#define MODEL_STEPS 20000u

struct model {
    struct convoy_buddy *buddy;
    uint32_t owner[MODEL_UNITS]; /* start + 1 of the live block that holds this unit; 0 = free */
    uint64_t asked[MODEL_UNITS];
    uint64_t live_count;
    uint64_t seed;
};

static uint64_t draw(struct model *model, uint64_t below)
{
    model->seed = model->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (model->seed >> 33) % below;
}

/* Whether a place of `units`, at a multiple of them, is free of live blocks. Merging makes each such place one block. */
static bool model_has_room(const struct model *model, uint32_t units)
{
    for (uint32_t at = 0; at + units <= MODEL_UNITS; at += units) {
        uint32_t free = 0;
        while (free < units && model->owner[at + free] == 0) {
            free++;
        }
        if (free == units) {
            return true;
        }
    }
    return false;
}

static void model_take(struct model *model)
{
    uint64_t bytes = 1 + draw(model, UINT64_C(1) << (10 + draw(model, 6)));
    uint64_t rounded = convoy_buddy_rounded(model->buddy, bytes);
    uint32_t units = (uint32_t)(rounded / 1024);
    struct convoy_buddy_block block;
    if (!model_has_room(model, units)) {
        assert_int_equal(convoy_buddy_take(model->buddy, bytes, &block), CONVOY_BUDDY_FULL);
        assert_int_equal(convoy_buddy_fits(model->buddy, &bytes, 1), CONVOY_BUDDY_FULL);
        return;
    }
    block = taken(model->buddy, bytes);
    assert_int_equal(block.bytes, rounded);
    assert_int_equal(block.offset % rounded, 0);
    uint32_t at = (uint32_t)(block.offset / 1024);
    for (uint32_t i = 0; i < units; i++) {
        assert_int_equal(model->owner[at + i], 0);
        model->owner[at + i] = at + 1;
    }
    model->asked[at] = bytes;
    model->live_count++;
}

static void model_give(struct model *model)
{
    uint32_t at = (uint32_t)draw(model, MODEL_UNITS);
    bool is_start = model->owner[at] == at + 1;
    assert_int_equal(convoy_buddy_give(model->buddy, at * UINT64_C(1024)),
                     is_start ? CONVOY_BUDDY_OK : CONVOY_BUDDY_UNKNOWN);
    for (uint32_t i = 0; i < MODEL_UNITS && is_start; i++) {
        model->owner[i] = model->owner[i] == at + 1 ? 0 : model->owner[i];
    }
    model->live_count -= is_start;
    model->asked[at] = is_start ? 0 : model->asked[at];
}

static void model_compare(const struct model *model)
{
    struct convoy_buddy_figures figures = figures_of(model->buddy);
    uint64_t taken_units = 0;
    uint64_t asked = 0;
    for (uint32_t i = 0; i < MODEL_UNITS; i++) {
        struct convoy_buddy_block block;
        taken_units += model->owner[i] != 0;
        asked += model->asked[i];
        assert_int_equal(convoy_buddy_find(model->buddy, i * UINT64_C(1024), 1, &block), model->owner[i] != 0);
        if (model->owner[i] != 0) {
            assert_int_equal(block.offset, (model->owner[i] - 1) * UINT64_C(1024));
        }
    }
    assert_int_equal(figures.live_count, model->live_count);
    assert_int_equal(figures.taken, taken_units * 1024);
    assert_int_equal(figures.asked, asked);
    assert_sound(model->buddy);
}

static void test_buddy_random_use_is_like_the_model(void **state)
{
    (void)state;
    struct model model = {.buddy = convoy_buddy_create(MODEL_UNITS * UINT64_C(1024), 1024), .seed = 20};
    for (uint32_t step = 0; step < MODEL_STEPS; step++) {
        if (draw(&model, 100) < 45) {
            model_take(&model);
        } else {
            model_give(&model);
        }
        model_compare(&model);
    }
    convoy_buddy_destroy(model.buddy);
}

/* What fits together is what can be taken one after the other, the largest first; and take_all takes exactly that. */
static void test_buddy_random_sets_fit_as_they_say(void **state)
{
    (void)state;
    struct model model = {.seed = 5};
    uint32_t fitted = 0;
    for (uint32_t turn = 0; turn < 2000; turn++) {
        struct convoy_buddy *buddy = convoy_buddy_create(32 * 1024, 1024);
        struct convoy_buddy_block blocks[6];
        uint64_t sizes[6];
        for (uint32_t i = 0; i < 8; i++) { /* holes */
            if (convoy_buddy_take(buddy, UINT64_C(1024) << draw(&model, 3), &blocks[i % 2]) == CONVOY_BUDDY_OK && i % 2 != 0) {
                (void)convoy_buddy_give(buddy, blocks[draw(&model, 2)].offset);
            }
        }
        for (size_t i = 0; i < COUNT(sizes); i++) {
            sizes[i] = UINT64_C(1024) << draw(&model, 4);
        }
        bool fits = convoy_buddy_fits(buddy, sizes, COUNT(sizes)) == CONVOY_BUDDY_OK;
        uint64_t before = figures_of(buddy).taken;
        bool is_taken = convoy_buddy_take_all(buddy, sizes, COUNT(sizes), blocks) == CONVOY_BUDDY_OK;
        assert_int_equal(fits, is_taken);
        assert_sound(buddy);
        for (size_t i = 0; i < COUNT(sizes) && is_taken; i++) {
            assert_int_equal(blocks[i].bytes, sizes[i]);
            assert_int_equal(convoy_buddy_give(buddy, blocks[i].offset), CONVOY_BUDDY_OK);
        }
        assert_int_equal(figures_of(buddy).taken, before);
        bool one_by_one = true;
        for (uint64_t size = 8192; size >= 1024; size /= 2) {
            for (size_t i = 0; i < COUNT(sizes) && one_by_one; i++) {
                one_by_one = sizes[i] != size || convoy_buddy_take(buddy, size, &blocks[i]) == CONVOY_BUDDY_OK;
            }
        }
        assert_int_equal(one_by_one, fits);
        fitted += fits;
        convoy_buddy_destroy(buddy);
    }
    assert_true(fitted > 200 && fitted < 1800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buddy_rounds_to_a_power_of_two_of_blocks),
        cmocka_unit_test(test_buddy_refuses_with_the_reason_and_changes_nothing),
        cmocka_unit_test(test_buddy_cannot_be_made_of_nothing),
        cmocka_unit_test(test_buddy_takes_the_very_blocks_of_another_and_no_others),
        cmocka_unit_test(test_buddy_order_of_use),
        cmocka_unit_test(test_buddy_merges_back_to_one),
        cmocka_unit_test(test_buddy_capacity_of_any_number_of_blocks),
        cmocka_unit_test(test_buddy_takes_several_or_none),
        cmocka_unit_test(test_buddy_finds_the_block_of_an_address),
        cmocka_unit_test(test_buddy_random_use_is_like_the_model),
        cmocka_unit_test(test_buddy_random_sets_fit_as_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
