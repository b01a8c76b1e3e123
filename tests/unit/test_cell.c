/* SPDX-License-Identifier: Apache-2.0 */
#include "round/cell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_cell_word_keeps_its_parts(void **state)
{
    (void)state;
    const uint64_t rounds[] = {0, 1, 2, UINT64_C(0xffffffffff)};
    for (size_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        uint64_t word = convoy_word_sealed(CONVOY_GENERATION_MAX, rounds[i], CONVOY_SEAL_CLOSED, 1023);
        assert_int_equal(convoy_word_generation(word), CONVOY_GENERATION_MAX);
        assert_int_equal(convoy_word_round(word), rounds[i]);
        assert_int_equal(convoy_word_reason(word), CONVOY_SEAL_CLOSED);
        assert_int_equal(convoy_word_sealer(word), 1023);
    }
    assert_int_equal(convoy_word_reason(convoy_word(7, 9)), CONVOY_SEAL_NONE);
}

/* Each word that a cell of round 10's parity can hold, and what it says about (generation 3, round 10). */
static void test_cell_view_of_each_word_is_what_the_protocol_says(void **state)
{
    (void)state;
    const struct {
        uint64_t word;
        enum convoy_cell_view view;
    } rows[] = {
        {0, CONVOY_CELL_PENDING},                                                  /* never used */
        {convoy_word(3, 8), CONVOY_CELL_PENDING},                                  /* two rounds back */
        {convoy_word(3, 10), CONVOY_CELL_PUBLISHED},
        {convoy_word_sealed(3, 10, CONVOY_SEAL_LOST, 0), CONVOY_CELL_SEALED},
        {convoy_word_sealed(3, 10, CONVOY_SEAL_ABANDON, 5), CONVOY_CELL_SEALED},
        {convoy_word_sealed(3, 10, CONVOY_SEAL_CLOSED, 5), CONVOY_CELL_SEALED},
        {convoy_word_sealed(3, 8, CONVOY_SEAL_LOST, 5), CONVOY_CELL_PENDING},      /* sealed by degrade two rounds back */
        {convoy_word(2, 10), CONVOY_CELL_PENDING},                                 /* the failed round's own number */
        {convoy_word_sealed(2, 10, CONVOY_SEAL_ABANDON, 5), CONVOY_CELL_PENDING},  /* its seal, before the reopen */
        {convoy_word(2, 12), CONVOY_CELL_PENDING},
        {convoy_word(4, 10), CONVOY_CELL_MOVED_ON},
        {convoy_word(4, 8), CONVOY_CELL_MOVED_ON},
        {convoy_word_sealed(4, 10, CONVOY_SEAL_ABANDON, 5), CONVOY_CELL_MOVED_ON},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(convoy_cell_view_of(rows[i].word, 3, 10), rows[i].view);
    }
}

static void test_cell_bytes_are_whole_lines_and_hold_the_payload(void **state)
{
    (void)state;
    for (size_t payload = 0; payload < 1000; payload++) {
        size_t bytes = convoy_cell_bytes(payload);
        assert_int_equal(bytes % CONVOY_LINE_BYTES, 0);
        assert_true(bytes >= offsetof(struct convoy_cell, payload) + payload);
        assert_true(bytes < offsetof(struct convoy_cell, payload) + payload + 2 * CONVOY_LINE_BYTES);
    }
    assert_int_equal(convoy_cell_bytes(32), 128); /* eight columns of 32 bits lie in the hot line */
}

/* Golden image: builds of different releases share one segment, so these bytes are part of the wire version. */
static void test_cell_image_is_the_golden_one(void **state)
{
    (void)state;
    struct convoy_cell cell;
    memset(&cell, 0, sizeof cell);
    cell.cold.operation = 0x11121314;
    cell.cold.policy = 0x2122232425262728;
    atomic_store(&cell.word, convoy_word_sealed(0x123, 0x456789abcd, CONVOY_SEAL_ABANDON, 0x3ff));
    cell.fingerprint = 0x3132333435363738;
    cell.votes = 0x41424344;
    cell.info = CONVOY_INFO_ERROR | 4;
    cell.tag = 0x5152535455565758;
    cell.payload[0] = 0x61;
    cell.payload[31] = 0x62;
    uint8_t golden[128] = {0x14, 0x13, 0x12, 0x11};
    const uint8_t policy[] = {0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21};
    const uint8_t hot[] = {0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0xf1, 0xbf, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,
                           0x44, 0x43, 0x42, 0x41, 0x04, 0x00, 0x00, 0x01, 0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51};
    memcpy(golden + 40, policy, sizeof policy);
    memcpy(golden + 64, hot, sizeof hot);
    golden[96] = 0x61;
    golden[127] = 0x62;
    assert_memory_equal(&cell, golden, sizeof golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cell_word_keeps_its_parts),
        cmocka_unit_test(test_cell_view_of_each_word_is_what_the_protocol_says),
        cmocka_unit_test(test_cell_bytes_are_whole_lines_and_hold_the_payload),
        cmocka_unit_test(test_cell_image_is_the_golden_one),
    };
    return cmocka_run_group_tests_name("cell", tests, NULL, NULL);
}
