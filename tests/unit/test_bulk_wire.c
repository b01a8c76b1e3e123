/* SPDX-License-Identifier: Apache-2.0 */
#include "core/bytes.h"
#include "net/bulk.h"
#include "net/bulk_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct bulk_header sample = {.kind = BULK_CHUNK,
                                          .flags = BULK_FLAG_PUSH | BULK_FLAG_CHECKSUM,
                                          .epoch = 0x01020304,
                                          .from = 0x1111111111111112,
                                          .to = 0x2222222222222223,
                                          .transfer = 0x3333333333333334,
                                          .generation = 0x4444444444444445,
                                          .offset = 0x5555555555555556,
                                          .sequence = 0x6666666666666667,
                                          .checksum = 0x7777777777777778};

static void test_bulk_wire_header_round_trip_is_exact(void **state)
{
    uint8_t bytes[BULK_HEADER_BYTES];
    struct bulk_header back = {.kind = BULK_FRAME};
    (void)state;
    convoy_bulk_header_encode(&sample, bytes);
    assert_true(convoy_bulk_header_decode(bytes, sizeof bytes, 100, &back));
    assert_int_equal(back.kind, sample.kind);
    assert_int_equal(back.flags, sample.flags);
    assert_int_equal(back.epoch, sample.epoch);
    assert_true(back.from == sample.from && back.to == sample.to && back.transfer == sample.transfer);
    assert_true(back.generation == sample.generation && back.offset == sample.offset);
    assert_true(back.sequence == sample.sequence && back.checksum == sample.checksum);
}

/* The bytes are part of the wire version: little-endian, in this order. */
static void test_bulk_wire_header_bytes_are_as_documented(void **state)
{
    static const uint8_t golden[BULK_HEADER_BYTES] = {
        0x1c, 0xb4, 2,    3,    4,    3,    2,    1,    0x12, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
        0x23, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x34, 0x33, 0x33, 0x33, 0x33, 0x33, 0x33, 0x33,
        0x45, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x56, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55,
        0x67, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x78, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77};
    uint8_t bytes[BULK_HEADER_BYTES];
    (void)state;
    convoy_bulk_header_encode(&sample, bytes);
    assert_memory_equal(bytes, golden, sizeof golden);
}

static bool fits(enum bulk_kind kind, uint8_t flags, uint64_t offset, size_t data_bytes)
{
    uint8_t bytes[BULK_HEADER_BYTES];
    struct bulk_header back;
    const struct bulk_header header = {.kind = kind, .flags = flags, .offset = offset};
    convoy_bulk_header_encode(&header, bytes);
    return convoy_bulk_header_decode(bytes, sizeof bytes, data_bytes, &back);
}

static void test_bulk_wire_header_that_does_not_fit_its_data_is_refused(void **state)
{
    (void)state;
    assert_true(fits(BULK_FRAME, 0, 0, 1));
    assert_true(fits(BULK_FRAME, 0, 0, CONVOY_BULK_FRAME_BYTES));
    assert_false(fits(BULK_FRAME, 0, 0, 0));
    assert_false(fits(BULK_FRAME, 0, 0, CONVOY_BULK_FRAME_BYTES + 1));
    assert_false(fits(BULK_FRAME, 1, 0, 8));
    assert_true(fits(BULK_CHUNK, 0, UINT64_MAX - 10, 10));
    assert_false(fits(BULK_CHUNK, 0, UINT64_MAX - 10, 11)); /* past 2^64 */
    assert_true(fits(BULK_CHUNK, 3, 0, CONVOY_BULK_CHUNK_BYTES));
    assert_false(fits(BULK_CHUNK, 0, 0, CONVOY_BULK_CHUNK_BYTES + 1));
    assert_false(fits(BULK_CHUNK, 4, 0, 8));
    assert_true(fits(BULK_ABORT, BULK_FLAG_PUSH, 0, 0));
    assert_false(fits(BULK_ABORT, 0, 0, 1));
    assert_false(fits(BULK_ABORT, BULK_FLAG_CHECKSUM, 0, 0));
    assert_true(fits(BULK_ACK, 0, 0, CONVOY_BULK_WINDOW_MAX));
    assert_false(fits(BULK_ACK, 0, 0, CONVOY_BULK_WINDOW_MAX + 1));
    assert_false(fits(BULK_ACK, 1, 0, 0));
    assert_false(fits((enum bulk_kind)0, 0, 0, 8));
    assert_false(fits((enum bulk_kind)5, 0, 0, 0));
}

static void test_bulk_wire_header_of_another_length_or_magic_is_refused(void **state)
{
    uint8_t bytes[BULK_HEADER_BYTES + 1] = {0};
    struct bulk_header back;
    (void)state;
    convoy_bulk_header_encode(&sample, bytes);
    assert_false(convoy_bulk_header_decode(bytes, BULK_HEADER_BYTES - 1, 8, &back));
    assert_false(convoy_bulk_header_decode(bytes, BULK_HEADER_BYTES + 1, 8, &back));
    assert_false(convoy_bulk_header_decode(bytes, 0, 8, &back));
    bytes[0] ^= 1;
    assert_false(convoy_bulk_header_decode(bytes, BULK_HEADER_BYTES, 8, &back));
}

/* One bit anywhere in data or place makes another checksum. */
static void test_bulk_wire_checksum_covers_data_and_place(void **state)
{
    uint8_t data[1000] = {1, 2, 3};
    struct bulk_header header = sample;
    uint64_t sum = convoy_bulk_checksum(&header, data, sizeof data);
    (void)state;
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] ^= 0x10;
        assert_true(convoy_bulk_checksum(&header, data, sizeof data) != sum);
        data[i] ^= 0x10;
    }
    header.offset++;
    assert_true(convoy_bulk_checksum(&header, data, sizeof data) != sum);
    header = sample;
    header.generation++;
    assert_true(convoy_bulk_checksum(&header, data, sizeof data) != sum);
    header = sample;
    header.transfer++;
    assert_true(convoy_bulk_checksum(&header, data, sizeof data) != sum);
    header = sample;
    header.sequence++; /* not part of the place: it depends on what else is sent */
    assert_true(convoy_bulk_checksum(&header, data, sizeof data) == sum);
}

static void test_bulk_wire_address_round_trip_and_refusals(void **state)
{
    uint8_t bytes[BULK_ADDRESS_HEAD_BYTES + 5];
    uint64_t incarnation = 0;
    (void)state;
    convoy_bulk_address_encode(77, "links", 5, bytes);
    assert_true(convoy_bulk_address_decode(bytes, sizeof bytes, &incarnation));
    assert_int_equal(incarnation, 77);
    assert_memory_equal(bytes + BULK_ADDRESS_HEAD_BYTES, "links", 5);
    for (size_t length = 0; length <= BULK_ADDRESS_HEAD_BYTES; length++) {
        assert_false(convoy_bulk_address_decode(bytes, length, &incarnation));
    }
    bytes[3] = '2';
    assert_false(convoy_bulk_address_decode(bytes, sizeof bytes, &incarnation));
    convoy_bulk_address_encode(0, "links", 5, bytes);
    assert_false(convoy_bulk_address_decode(bytes, sizeof bytes, &incarnation));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_wire_header_round_trip_is_exact),
        cmocka_unit_test(test_bulk_wire_header_bytes_are_as_documented),
        cmocka_unit_test(test_bulk_wire_header_that_does_not_fit_its_data_is_refused),
        cmocka_unit_test(test_bulk_wire_header_of_another_length_or_magic_is_refused),
        cmocka_unit_test(test_bulk_wire_checksum_covers_data_and_place),
        cmocka_unit_test(test_bulk_wire_address_round_trip_and_refusals),
    };
    return cmocka_run_group_tests_name("bulk_wire", tests, NULL, NULL);
}
