/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/deliver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 3u
#define SLOTS 4u
#define WIDTH 2u

static const int32_t ids[MEMBERS] = {7, 8, 9};

/* Three members with rows {1, 10}, {2, 20}, {3, 30}; columns "a" (SUM) and "b" (MAX), fallbacks -1 and -2. */
struct fixture {
    struct convoy_grid grid;
    struct convoy_gather gather;
    struct convoy_placement placement;
    struct convoy_error error;
    int64_t table[SLOTS * WIDTH];
    int64_t first[SLOTS * WIDTH];
    struct convoy_sync_reduced reduced[WIDTH];
    uint8_t presence[SLOTS];
    struct convoy_sync_result result;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    f->grid = (struct convoy_grid){.member_count = MEMBERS, .inner = 1, .slots = SLOTS, .width = 2, .common = {0, 1}};
    f->grid.own.count = WIDTH;
    f->grid.own.columns[0] = (struct convoy_schema_column){.reduction = CONVOY_REDUCE_SUM, .fallback = -1};
    f->grid.own.columns[1] = (struct convoy_schema_column){.reduction = CONVOY_REDUCE_MAX, .fallback = -2};
    if (convoy_gather_init(&f->gather, &f->grid, NULL) != CONVOY_OK ||
        convoy_placement_init(&f->placement, &f->grid, NULL) != CONVOY_OK) {
        return -1;
    }
    convoy_mask_clear(&f->gather.mask);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        f->gather.presence[i] = CONVOY_PRESENT;
        f->gather.rows[2 * i] = i + 1;
        f->gather.rows[2 * i + 1] = 10 * (i + 1);
    }
    f->error.struct_size = sizeof f->error;
    f->result = (struct convoy_sync_result){
        .table = f->table, .table_capacity = SLOTS * WIDTH, .first = f->first, .first_capacity = SLOTS * WIDTH,
        .reduced = f->reduced, .reduced_capacity = WIDTH, .presence = f->presence, .presence_capacity = SLOTS};
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

static void deliver(struct fixture *f)
{
    struct convoy_conflict conflict;
    assert_int_equal(convoy_deliver_check(&f->grid, &f->result, &f->error), CONVOY_OK);
    assert_true(convoy_placement_compute(&f->placement, &f->gather, &conflict));
    convoy_deliver_write(&f->grid, &f->gather, &f->placement, &f->result);
}

/* Neither the spare slot nor the lost member counts in the reductions, and both read as the fallback. */
static void test_deliver_absent_rows_are_fallback_and_do_not_count(void **state)
{
    struct fixture *f = *state;
    const int64_t table[] = {1, 10, -1, -2, 3, 30, -1, -2};
    const uint8_t presence[] = {CONVOY_PRESENT, CONVOY_PRESENT_LOST, CONVOY_PRESENT, CONVOY_PRESENT_EMPTY};
    f->gather.presence[1] = CONVOY_PRESENT_LOST;
    deliver(f);
    assert_memory_equal(f->table, table, sizeof table);
    assert_memory_equal(f->first, table, sizeof table);
    assert_memory_equal(f->presence, presence, sizeof presence);
    assert_int_equal(f->reduced[0].value, 4);
    assert_int_equal(f->reduced[1].value, 30);
}

/* All-zero rows are rows: presence says who is there, not the content. */
static void test_deliver_zero_row_stays_a_zero_row(void **state)
{
    struct fixture *f = *state;
    f->gather.rows[2] = 0;
    f->gather.rows[3] = 0;
    deliver(f);
    assert_int_equal(f->table[2], 0);
    assert_int_equal(f->table[3], 0);
    assert_int_equal(f->presence[1], CONVOY_PRESENT);
}

/* A column that the group goes on without is its fallback in every row; the other one moved up in the carried row. */
static void test_deliver_cut_column_is_filled_by_its_fallback(void **state)
{
    struct fixture *f = *state;
    const int64_t table[] = {-1, 1, -1, 2, -1, 3, -1, -2};
    convoy_gather_fini(&f->gather);
    f->grid.width = 1;
    f->grid.common[0] = CONVOY_GRID_CUT;
    f->grid.common[1] = 0;
    assert_int_equal(convoy_gather_init(&f->gather, &f->grid, NULL), CONVOY_OK);
    convoy_mask_clear(&f->gather.mask);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        f->gather.rows[i] = i + 1;
        f->gather.presence[i] = CONVOY_PRESENT;
    }
    deliver(f);
    assert_memory_equal(f->table, table, sizeof table);
    assert_int_equal(f->result.width, 2);
}

static void test_deliver_arrays_left_out_are_not_written(void **state)
{
    struct fixture *f = *state;
    memset(&f->result, 0, sizeof f->result);
    deliver(f);
    assert_int_equal(f->result.width, WIDTH);
    assert_int_equal(f->table[0], 0);
}

static void test_deliver_unaligned_outputs_are_right(void **state)
{
    struct fixture *f = *state;
    char room[sizeof f->table + 1];
    int64_t copy[SLOTS * WIDTH];
    f->result.table = (int64_t *)(void *)(room + 1);
    deliver(f);
    memcpy(copy, room + 1, sizeof copy);
    assert_memory_equal(copy, f->first, sizeof copy);
}

static void test_deliver_too_little_room_is_named(void **state)
{
    struct fixture *f = *state;
    size_t *capacities[4] = {&f->result.table_capacity, &f->result.first_capacity, &f->result.reduced_capacity,
                             &f->result.presence_capacity};
    const char *texts[4] = {"result.table_capacity is 7, needed are 8", "result.first_capacity is 7, needed are 8",
                            "result.reduced_capacity is 1, needed are 2",
                            "result.presence_capacity is 3, needed are 4"};
    for (size_t i = 0; i < 4; i++) {
        (*capacities[i])--;
        assert_int_equal(convoy_deliver_check(&f->grid, &f->result, &f->error), CONVOY_BUFFER_TOO_SMALL);
        assert_string_equal(f->error.text, texts[i]);
        (*capacities[i])++;
    }
}

/* Elements of a later release's host: the first 16 bytes of each are written, what lies beyond is left as it was. */
static void test_deliver_stride_of_reduced_is_honoured(void **state)
{
    struct fixture *f = *state;
    struct wide {
        struct convoy_sync_reduced reduced;
        uint64_t later;
    } wide[WIDTH];
    const uint8_t lost[2] = {CONVOY_PRESENT, CONVOY_PRESENT_LOST};
    f->result.reduced = &wide[0].reduced;
    f->result.reduced_stride = sizeof wide[0];
    for (uint32_t i = 0; i < 2; i++) {
        memset(wide, 0x77, sizeof wide);
        f->gather.presence[1] = lost[i];
        deliver(f);
        assert_int_equal(wide[0].reduced.value, i == 0 ? 6 : 4);
        assert_int_equal(wide[1].reduced.value, 30);
        assert_int_equal(wide[1].reduced.agreed, 1);
        assert_int_equal(wide[0].later, 0x7777777777777777);
        assert_int_equal(wide[1].later, 0x7777777777777777);
    }
    f->result.presence = (uint8_t *)&wide[1].later; /* the gap behind the last one is the caller's */
    assert_int_equal(convoy_deliver_check(&f->grid, &f->result, &f->error), CONVOY_OK);
    f->result.presence = (uint8_t *)&wide[1].reduced;
    assert_int_equal(convoy_deliver_check(&f->grid, &f->result, &f->error), CONVOY_INVALID_ARGUMENT);
}

/* Rows that are whole are written another way. */
static void test_deliver_whole_rows_honour_the_stride_too(void **state)
{
    struct fixture *f = *state;
    struct convoy_sync_reduced wide[2 * WIDTH];
    memset(wide, 0x77, sizeof wide);
    f->result.reduced = wide;
    f->result.reduced_stride = 2 * sizeof wide[0];
    f->grid.slots = MEMBERS;
    f->gather.present = MEMBERS;
    convoy_deliver_whole(&f->grid, &f->gather, &f->result);
    assert_int_equal(wide[0].value, 6);
    assert_int_equal(wide[1].value, 0x7777777777777777);
    assert_int_equal(wide[2].value, 30);
    assert_int_equal(wide[3].value, 0x7777777777777777);
}

static void test_deliver_stride_that_nobody_has_is_refused(void **state)
{
    struct fixture *f = *state;
    f->result.reduced_stride = sizeof(struct convoy_sync_reduced) - 1;
    assert_int_equal(convoy_deliver_check(&f->grid, &f->result, &f->error), CONVOY_TOO_OLD);
    assert_string_equal(f->error.text, "result.reduced_stride is 15, release 1.0 has 16; set it to sizeof");
    f->result.reduced_stride = 65537;
    assert_int_equal(convoy_deliver_check(&f->grid, &f->result, &f->error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(f->error.text, "result.reduced_stride is 65537, allowed are 16 to 65536");
}

/* Every pair of outputs, by one byte at either end, and side by side. */
static void test_deliver_overlapping_outputs_are_refused_by_name(void **state)
{
    struct fixture *f = *state;
    f->result.first = f->table + SLOTS * WIDTH - 1;
    assert_int_equal(convoy_deliver_check(&f->grid, &f->result, &f->error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(f->error.text, "result.table (at "));
    assert_non_null(strstr(f->error.text, "result.first (at "));
    f->result.first = f->table + SLOTS * WIDTH;
    assert_int_equal(convoy_deliver_check(&f->grid, &f->result, &f->error), CONVOY_OK);
    f->result.presence = (uint8_t *)f->reduced + sizeof f->reduced - 1;
    assert_int_equal(convoy_deliver_check(&f->grid, &f->result, &f->error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(f->error.text, "result.reduced (at "));
    assert_non_null(strstr(f->error.text, "result.presence (at "));
    f->result.presence = (uint8_t *)f->reduced + sizeof f->reduced;
    assert_int_equal(convoy_deliver_check(&f->grid, &f->result, &f->error), CONVOY_OK);
}

static void test_deliver_conflicts_read_as_sentences(void **state)
{
    struct fixture *f = *state;
    struct convoy_conflict conflict = {CONVOY_CONFLICT_MASK, 0, 2, 3, 4};
    f->gather.mask.version = 12;
    assert_int_equal(convoy_deliver_conflict(&conflict, &f->gather, ids, 5, &f->error), CONVOY_DIVERGED);
    assert_string_equal(f->error.text,
                        "round 5: members 7 and 9 bring active masks of version 12 with different bits");
    conflict.kind = CONVOY_CONFLICT_SLOT;
    assert_int_equal(convoy_deliver_conflict(&conflict, &f->gather, ids, 5, &f->error), CONVOY_DIVERGED);
    assert_string_equal(f->error.text, "round 5: members 7 and 9 both claim slot 3");
    conflict.kind = CONVOY_CONFLICT_RANK_SLOT;
    assert_int_equal(convoy_deliver_conflict(&conflict, &f->gather, ids, 5, &f->error), CONVOY_DIVERGED);
    assert_string_equal(f->error.text,
                        "round 5: members 7 and 9 are one data-parallel rank but name slots 3 and 4");
    assert_int_equal(f->error.rank, 9);
    assert_int_equal(f->error.round, 5);
}

static void test_deliver_report_has_all_members_and_is_cut_to_its_room(void **state)
{
    struct fixture *f = *state;
    struct convoy_conflict conflict = {CONVOY_CONFLICT_SLOT, 0, 2, 3, 4};
    struct convoy_member_report rows[MEMBERS + 1] = {0};
    struct convoy_member_report row = {.round = 5};
    struct convoy_report report = {.members = rows, .member_stride = sizeof rows[0], .member_capacity = 2};
    f->gather.presence[1] = CONVOY_PRESENT_LOST;
    convoy_deliver_report(&conflict, &f->gather, ids, &row, &report);
    assert_int_equal(report.member_count, MEMBERS);
    assert_int_equal(rows[0].rank, 7);
    assert_int_equal(rows[0].condition, CONVOY_MEMBER_DIVERGED);
    assert_int_equal(rows[1].condition, CONVOY_MEMBER_LOST);
    assert_int_equal(rows[2].rank, 0);
    report.member_capacity = MEMBERS;
    convoy_deliver_report(&conflict, &f->gather, ids, &row, &report);
    assert_int_equal(rows[2].condition, CONVOY_MEMBER_DIVERGED);
    assert_int_equal(rows[2].round, 5);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_deliver_absent_rows_are_fallback_and_do_not_count),
        CASE(test_deliver_zero_row_stays_a_zero_row),
        CASE(test_deliver_cut_column_is_filled_by_its_fallback),
        CASE(test_deliver_arrays_left_out_are_not_written),
        CASE(test_deliver_unaligned_outputs_are_right),
        CASE(test_deliver_too_little_room_is_named),
        CASE(test_deliver_stride_of_reduced_is_honoured),
        CASE(test_deliver_whole_rows_honour_the_stride_too),
        CASE(test_deliver_stride_that_nobody_has_is_refused),
        CASE(test_deliver_overlapping_outputs_are_refused_by_name),
        CASE(test_deliver_conflicts_read_as_sentences),
        CASE(test_deliver_report_has_all_members_and_is_cut_to_its_room),
    };
    return cmocka_run_group_tests_name("deliver", tests, NULL, NULL);
}
