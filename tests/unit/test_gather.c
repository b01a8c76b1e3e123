/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/gather.h"

#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 3u

static const struct convoy_grid grid = {
    .member_count = MEMBERS, .inner = 1, .slots = 5, .width = 2, .own = {.count = 2}, .common = {0, 1}};
static const struct convoy_merge_ops *const ops = &convoy_gather_ops;

static int setup(void **state)
{
    struct convoy_gather *gather = calloc(1, sizeof *gather);
    *state = gather;
    if (convoy_gather_init(gather, &grid, NULL) != CONVOY_OK) {
        return -1;
    }
    ops->begin(gather);
    return 0;
}

static int teardown(void **state)
{
    convoy_gather_fini(*state);
    free(*state);
    return 0;
}

static size_t payload_of(const struct convoy_gather *gather, uint32_t slot, int64_t value, uint8_t *payload)
{
    struct convoy_mask mask;
    int64_t values[2] = {value, -value};
    const uint8_t active[MEMBERS] = {1, 0, 1};
    convoy_mask_set(&mask, 0, 2, active, MEMBERS, MEMBERS);
    return convoy_row_encode(&gather->form, values, slot, &mask, payload);
}

static void bring(struct convoy_gather *gather, uint32_t index, int64_t value)
{
    uint8_t payload[CONVOY_ROW_BYTES_MAX];
    size_t length = payload_of(gather, index, value, payload);
    assert_int_equal(ops->member(gather, index, payload, length), CONVOY_OK);
}

static void test_gather_member_twice_or_outside_is_malformed(void **state)
{
    struct convoy_gather *gather = *state;
    uint8_t payload[CONVOY_ROW_BYTES_MAX];
    size_t length = payload_of(gather, 0, 7, payload);
    assert_int_equal(ops->member(gather, 1, payload, length), CONVOY_OK);
    assert_int_equal(ops->member(gather, 1, payload, length), CONVOY_MALFORMED);
    assert_int_equal(ops->member(gather, MEMBERS, payload, length), CONVOY_MALFORMED);
    assert_int_equal(ops->member(gather, 2, payload, length - 1), CONVOY_MALFORMED);
    assert_int_equal(gather->seen, 1);
}

static void test_gather_slot_outside_the_table_is_malformed(void **state)
{
    struct convoy_gather *gather = *state;
    uint8_t payload[CONVOY_ROW_BYTES_MAX];
    convoy_gather_prepare(gather, true);
    size_t length = payload_of(gather, 5, 7, payload);
    assert_int_equal(ops->member(gather, 0, payload, length), CONVOY_MALFORMED);
    length = payload_of(gather, CONVOY_GATHER_NO_SLOT, 7, payload);
    assert_int_equal(ops->member(gather, 0, payload, length), CONVOY_OK);
    length = payload_of(gather, 4, 7, payload);
    assert_int_equal(ops->member(gather, 1, payload, length), CONVOY_OK);
}

static void test_gather_begin_forgets_the_last_round(void **state)
{
    struct convoy_gather *gather = *state;
    bring(gather, 0, 7);
    ops->absent(gather, 1, CONVOY_ABSENT_LOST, 0);
    ops->begin(gather);
    assert_int_equal(gather->seen, 0);
    assert_int_equal(gather->mask.total, 0);
    assert_int_equal(gather->presence[1], CONVOY_GATHER_UNSEEN);
}

/* Fills a state with one of each kind and encodes it. */
static uint8_t *encode_of(struct convoy_gather *gather, int64_t value, size_t *length_out)
{
    uint8_t room[1024];
    bring(gather, 0, value);
    ops->absent(gather, 1, CONVOY_ABSENT_LOST, 0);
    ops->absent(gather, 2, CONVOY_ABSENT_ERROR, -5);
    *length_out = ops->encode(gather, room, sizeof room);
    assert_in_range(*length_out, 1, convoy_gather_partial_bytes_max(&grid));
    assert_int_equal(ops->encode(gather, room, *length_out - 1), 0);
    uint8_t *bytes = malloc(*length_out);
    memcpy(bytes, room, *length_out);
    ops->begin(gather);
    return bytes;
}

static void test_gather_partial_carries_everything(void **state)
{
    struct convoy_gather *gather = *state;
    for (int is_world = 0; is_world < 2; is_world++) {
        for (int64_t value = 1; value != 0; value = value == 1 ? INT64_MAX : 0) {
            size_t length;
            convoy_gather_prepare(gather, is_world);
            ops->begin(gather);
            uint8_t *bytes = encode_of(gather, value, &length);
            assert_int_equal(ops->partial(gather, bytes, length), CONVOY_OK);
            assert_int_equal(gather->rows[0], value);
            assert_int_equal(gather->rows[1], -value);
            assert_int_equal(gather->presence[0], CONVOY_PRESENT);
            assert_int_equal(gather->presence[1], CONVOY_PRESENT_LOST);
            assert_int_equal(gather->presence[2], CONVOY_PRESENT_ERROR);
            assert_int_equal(gather->mask.version, 2);
            assert_false(convoy_mask_is_active(&gather->mask, 1));
            assert_int_equal(ops->partial(gather, bytes, length), CONVOY_MALFORMED); /* members twice */
            free(bytes);
        }
    }
}

static void test_gather_partial_that_ends_early_is_malformed(void **state)
{
    struct convoy_gather *gather = *state;
    size_t length;
    uint8_t *bytes = encode_of(gather, 7, &length);
    for (size_t cut = 0; cut < length; cut++) {
        uint8_t *exact = malloc(cut != 0 ? cut : 1);
        memcpy(exact, bytes, cut);
        ops->begin(gather);
        assert_int_equal(ops->partial(gather, exact, cut), CONVOY_MALFORMED);
        free(exact);
    }
    free(bytes);
}

struct damage {
    size_t offset;
    uint8_t value;
};

/* Head: flags 0, entries 4, version 8, first 16, other 20, agreeing 24, total 28; bits 32; entries from 36. */
static const struct damage damages[] = {
    {0, 0x02 | 0x04}, /* slots in a plain gather */
    {0, 0x08},        /* unknown flag */
    {0, 0x00},        /* no bits although they are there */
    {4, 2},           /* an entry too few */
    {4, 4},           /* an entry too many */
    {16, MEMBERS},    /* first member outside */
    {20, 0},          /* other member below the first: 0xffffff00 is outside */
    {24, 0},          /* nobody agrees */
    {24, 2},          /* more agree than there are */
    {28, 0},          /* nobody brought a mask, but there is a first */
    {28, 2},          /* more masks than rows */
    {32, 0x07},       /* all active has no bits */
    {32, 0x0d},       /* a bit behind the last member */
    {36, MEMBERS},    /* index outside */
    {37, 1},          /* index outside, high byte */
    {38, CONVOY_PRESENT_EMPTY},
    {38, CONVOY_PRESENT_INACTIVE},
    {39, 1},
    {48, 0}, /* index twice */
};

static void test_gather_partial_that_contradicts_itself_is_malformed(void **state)
{
    struct convoy_gather *gather = *state;
    size_t length;
    uint8_t *bytes = encode_of(gather, 7, &length);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        uint8_t before = bytes[damages[i].offset];
        assert_int_not_equal(before, damages[i].value);
        bytes[damages[i].offset] = damages[i].value;
        ops->begin(gather);
        if (ops->partial(gather, bytes, length) != CONVOY_MALFORMED) {
            fail_msg("damage %zu was not seen", i);
        }
        bytes[damages[i].offset] = before;
    }
    ops->begin(gather);
    assert_int_equal(ops->partial(gather, bytes, length), CONVOY_OK);
    free(bytes);
}

#ifdef CONVOY_FAULTS
static void test_gather_without_memory_says_so(void **state)
{
    (void)state;
    for (int64_t skip_count = 0; skip_count < 3; skip_count++) {
        struct convoy_gather gather;
        (void)convoy_memory_fail_after(skip_count);
        assert_int_equal(convoy_gather_init(&gather, &grid, NULL), CONVOY_NO_MEMORY);
        convoy_gather_fini(&gather);
    }
    (void)convoy_memory_fail_after(-1);
}
#endif

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_gather_member_twice_or_outside_is_malformed),
        CASE(test_gather_slot_outside_the_table_is_malformed),
        CASE(test_gather_begin_forgets_the_last_round),
        CASE(test_gather_partial_carries_everything),
        CASE(test_gather_partial_that_ends_early_is_malformed),
        CASE(test_gather_partial_that_contradicts_itself_is_malformed),
#ifdef CONVOY_FAULTS
        CASE(test_gather_without_memory_says_so),
#endif
    };
    return cmocka_run_group_tests_name("gather", tests, NULL, NULL);
}
