/* SPDX-License-Identifier: Apache-2.0 */
/* Landings: what may land where, in which order, and that nothing else does. */
#include "xfer/landing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define NOTE_BYTES 80u
#define PAYLOAD_BYTES 1000u

static uint8_t note[NOTE_BYTES];
static uint8_t payload[PAYLOAD_BYTES];

struct one {
    struct convoy_landings *landings;
    uint64_t number;
    uint64_t generation;
};

static struct one one_open(uint64_t note_bytes, uint64_t payload_bytes)
{
    struct one one = {.landings = convoy_landings_create(4)};
    const struct convoy_landing_place place = {.peer = 3,
                                               .owner = 77,
                                               .note = note,
                                               .note_bytes = note_bytes,
                                               .payload = payload,
                                               .payload_bytes = payload_bytes};
    assert_non_null(one.landings);
    one.number = convoy_landing_open(one.landings, &place, &one.generation);
    assert_int_not_equal(one.number, CONVOY_LANDING_NONE);
    return one;
}

static struct convoy_landing_chunk chunk_at(const struct one *one, uint64_t offset, uint64_t bytes)
{
    return (struct convoy_landing_chunk){
        .peer = 3, .number = one->number, .generation = one->generation, .offset = offset, .bytes = bytes};
}

static uint64_t refused(const struct one *one)
{
    struct convoy_landing_figures figures;
    convoy_landing_figures(one->landings, &figures);
    return figures.refused;
}

/* It lands, where it should. */
static void land(const struct one *one, uint64_t offset, uint64_t bytes, const uint8_t *where)
{
    const struct convoy_landing_chunk chunk = chunk_at(one, offset, bytes);
    assert_ptr_equal(convoy_landing_resolve(one->landings, &chunk), where);
    convoy_landing_landed(one->landings, &chunk);
}

static void expect_refused(const struct one *one, const struct convoy_landing_chunk *chunk)
{
    uint64_t before = refused(one);
    assert_null(convoy_landing_resolve(one->landings, chunk));
    assert_int_equal(refused(one), before + 1);
}

static void test_landing_is_whole_once_both_parts_are_there_and_says_so_once(void **state)
{
    (void)state;
    uint64_t owner = 0;
    uint64_t number = 0;
    struct one one = one_open(NOTE_BYTES, PAYLOAD_BYTES);
    land(&one, CONVOY_LANDING_PAYLOAD, 600, payload);
    land(&one, 0, NOTE_BYTES, note);
    assert_false(convoy_landing_whole(one.landings, &owner, &number));
    land(&one, CONVOY_LANDING_PAYLOAD + 600, 400, payload + 600);
    assert_true(convoy_landing_whole(one.landings, &owner, &number));
    assert_int_equal(owner, 77);
    assert_int_equal(number, one.number);
    assert_false(convoy_landing_whole(one.landings, &owner, &number));
    convoy_landings_destroy(one.landings);
}

static void test_landing_without_any_byte_is_whole_at_once(void **state)
{
    (void)state;
    uint64_t owner = 0;
    uint64_t number = 0;
    struct one one = one_open(0, 0);
    assert_true(convoy_landing_whole(one.landings, &owner, &number));
    assert_true(convoy_landing_close(one.landings, one.number));
    assert_false(convoy_landing_whole(one.landings, &owner, &number));
    convoy_landings_destroy(one.landings);
}

static void test_landing_refuses_what_is_foreign_repeated_out_of_order_or_out_of_range(void **state)
{
    (void)state;
    struct one one = one_open(NOTE_BYTES, PAYLOAD_BYTES);
    struct convoy_landing_chunk chunk = chunk_at(&one, 0, 10);
    chunk.peer = 2;
    expect_refused(&one, &chunk);
    chunk = chunk_at(&one, 0, 10);
    chunk.generation++;
    expect_refused(&one, &chunk);
    chunk = chunk_at(&one, 0, 10);
    chunk.number = 0;
    expect_refused(&one, &chunk);
    chunk.number = 5;
    expect_refused(&one, &chunk);
    chunk.number = 2; /* one that is not open */
    expect_refused(&one, &chunk);
    const uint64_t wrong[][2] = {{1, 10},
                                 {0, NOTE_BYTES + 1},
                                 {0, 0},
                                 {0, UINT64_MAX},
                                 {CONVOY_LANDING_PAYLOAD - 1, 2},
                                 {CONVOY_LANDING_PAYLOAD + 1, 1},
                                 {CONVOY_LANDING_PAYLOAD, PAYLOAD_BYTES + 1},
                                 {CONVOY_LANDING_PAYLOAD, UINT64_MAX},
                                 {UINT64_MAX, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        chunk = chunk_at(&one, wrong[i][0], wrong[i][1]);
        expect_refused(&one, &chunk);
    }
    land(&one, CONVOY_LANDING_PAYLOAD, 600, payload);
    chunk = chunk_at(&one, CONVOY_LANDING_PAYLOAD, 600);
    expect_refused(&one, &chunk);
    chunk = chunk_at(&one, CONVOY_LANDING_PAYLOAD + 600, 401);
    expect_refused(&one, &chunk);
    convoy_landings_destroy(one.landings);
}

static void test_landing_that_was_closed_takes_nothing_also_when_its_number_is_used_again(void **state)
{
    (void)state;
    struct one one = one_open(0, PAYLOAD_BYTES);
    const struct convoy_landing_chunk late = chunk_at(&one, CONVOY_LANDING_PAYLOAD, 10);
    const struct convoy_landing_place place = {.peer = 3, .payload = payload, .payload_bytes = PAYLOAD_BYTES};
    assert_true(convoy_landing_close(one.landings, one.number));
    expect_refused(&one, &late);
    convoy_landing_landed(one.landings, &late); /* a chunk whose landing was closed under it counts for nobody */
    uint64_t numbers[4];
    uint64_t generation = 0;
    for (uint32_t i = 0; i < 4; i++) {
        numbers[i] = convoy_landing_open(one.landings, &place, &generation);
        assert_int_not_equal(numbers[i], CONVOY_LANDING_NONE);
        assert_int_not_equal(generation, one.generation);
    }
    expect_refused(&one, &late);
    assert_int_equal(convoy_landing_open(one.landings, &place, &generation), CONVOY_LANDING_NONE);
    assert_true(convoy_landing_close(one.landings, numbers[2]));
    assert_int_equal(convoy_landing_open(one.landings, &place, &generation), numbers[2]);
    convoy_landings_destroy(one.landings);
}

static void test_landing_closed_under_a_chunk_is_nobodys_until_the_chunk_is_there(void **state)
{
    (void)state;
    uint64_t owner = 0;
    uint64_t number = 0;
    uint64_t generation = 0;
    struct one one = one_open(0, PAYLOAD_BYTES);
    const struct convoy_landing_chunk chunk = chunk_at(&one, CONVOY_LANDING_PAYLOAD, 10);
    const struct convoy_landing_place place = {.peer = 3, .payload = payload, .payload_bytes = PAYLOAD_BYTES};
    assert_ptr_equal(convoy_landing_resolve(one.landings, &chunk), payload);
    assert_false(convoy_landing_close(one.landings, one.number));
    assert_false(convoy_landing_quiet(one.landings, &owner, &number));
    for (uint32_t i = 0; i < 3; i++) { /* its number is not used again meanwhile */
        assert_int_not_equal(convoy_landing_open(one.landings, &place, &generation), one.number);
    }
    assert_int_equal(convoy_landing_open(one.landings, &place, &generation), CONVOY_LANDING_NONE);
    convoy_landing_landed(one.landings, &chunk);
    assert_true(convoy_landing_quiet(one.landings, &owner, &number));
    assert_int_equal(owner, 77);
    assert_int_equal(number, one.number);
    assert_false(convoy_landing_quiet(one.landings, &owner, &number));
    assert_false(convoy_landing_whole(one.landings, &owner, &number));
    assert_int_equal(convoy_landing_open(one.landings, &place, &generation), one.number);
    convoy_landings_destroy(one.landings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_landing_is_whole_once_both_parts_are_there_and_says_so_once),
        cmocka_unit_test(test_landing_without_any_byte_is_whole_at_once),
        cmocka_unit_test(test_landing_refuses_what_is_foreign_repeated_out_of_order_or_out_of_range),
        cmocka_unit_test(test_landing_that_was_closed_takes_nothing_also_when_its_number_is_used_again),
        cmocka_unit_test(test_landing_closed_under_a_chunk_is_nobodys_until_the_chunk_is_there),
    };
    return cmocka_run_group_tests_name("landing", tests, NULL, NULL);
}
