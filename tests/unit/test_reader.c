/* SPDX-License-Identifier: Apache-2.0 */
/* A reader of bytes: what it gives, and that it never looks beyond their end, whatever is asked in whatever order. */
#include "core/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const uint8_t bytes[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 0};

static void test_reader_gives_what_lies_there_in_order(void **state)
{
    (void)state;
    struct convoy_reader reader = convoy_reader_of(bytes, sizeof bytes);
    assert_int_equal(convoy_reader_u8(&reader), 0x01);
    assert_int_equal(convoy_reader_u16(&reader), 0x0302);
    assert_int_equal(convoy_reader_u32(&reader), 0x07060504);
    assert_true(convoy_reader_is(&reader, bytes + 7, 3));
    assert_false(convoy_reader_is_done(&reader));
    assert_int_equal(convoy_reader_u32(&reader), 0x0e0d0c0b);
    assert_true(convoy_reader_zeros(&reader, 2));
    assert_true(convoy_reader_is_done(&reader));
    reader = convoy_reader_of(bytes, 8);
    assert_true(convoy_reader_u64(&reader) == UINT64_C(0x0807060504030201));
    assert_true(convoy_reader_is_done(&reader));
}

/* Each kind, with every length that is too short for it, in a block of its own that a sanitizer watches. */
static void test_reader_is_short_for_good(void **state)
{
    (void)state;
    for (size_t length = 0; length < 8; length++) {
        uint8_t *copy = malloc(length + 1);
        assert_non_null(copy);
        memcpy(copy, bytes, length);
        struct convoy_reader reader = convoy_reader_of(copy, length);
        assert_true(convoy_reader_u64(&reader) == 0);
        assert_true(reader.is_short);
        assert_int_equal(convoy_reader_u8(&reader), 0); /* though there may be one */
        assert_null(convoy_reader_take(&reader, 0));
        assert_false(convoy_reader_is_done(&reader));
        reader = convoy_reader_of(copy, length);
        assert_int_equal(convoy_reader_u32(&reader) != 0, length >= 4);
        reader = convoy_reader_of(copy, length);
        assert_int_equal(convoy_reader_u16(&reader) != 0, length >= 2);
        reader = convoy_reader_of(copy, length);
        assert_false(convoy_reader_is(&reader, bytes, length + 1));
        assert_false(convoy_reader_zeros(&reader, 0));
        free(copy);
    }
}

static void test_reader_takes_no_length_that_wraps(void **state)
{
    (void)state;
    struct convoy_reader reader = convoy_reader_of(bytes, sizeof bytes);
    (void)convoy_reader_u8(&reader);
    assert_null(convoy_reader_take(&reader, SIZE_MAX));
    assert_true(reader.is_short);
}

static void test_reader_parts_end_where_they_were_cut(void **state)
{
    (void)state;
    struct convoy_reader reader = convoy_reader_of(bytes, sizeof bytes);
    struct convoy_reader part = convoy_reader_part(&reader, 3);
    assert_int_equal(convoy_reader_u16(&part), 0x0201);
    assert_int_equal(convoy_reader_u16(&part), 0);
    assert_true(part.is_short);
    assert_int_equal(convoy_reader_u8(&reader), 4); /* which goes on behind it */
    part = convoy_reader_part(&reader, 99);
    assert_true(part.is_short);
    assert_true(reader.is_short);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader_gives_what_lies_there_in_order),
        cmocka_unit_test(test_reader_is_short_for_good),
        cmocka_unit_test(test_reader_takes_no_length_that_wraps),
        cmocka_unit_test(test_reader_parts_end_where_they_were_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
