/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: every way, length and alignment, and nothing beyond. */
#include "core/copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ROOM 1024u

static void check(size_t to_at, size_t from_at, size_t bytes, enum convoy_copy_way way)
{
    uint8_t from[ROOM];
    uint8_t to[ROOM];
    for (size_t i = 0; i < ROOM; i++) {
        from[i] = (uint8_t)(i * 37 + bytes);
    }
    memset(to, 0xee, sizeof to);
    convoy_copy(to + to_at, from + from_at, bytes, way);
    assert_memory_equal(to + to_at, from + from_at, bytes);
    for (size_t i = 0; i < ROOM; i++) {
        if (i < to_at || i >= to_at + bytes) {
            assert_int_equal(to[i], 0xee);
        }
    }
}

static void test_copy_every_length_and_alignment(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 300; bytes++) {
        for (size_t at = 0; at < 64; at += bytes % 7 + 1) {
            for (uint32_t way = 0; way < CONVOY_COPY_WAYS; way++) {
                check(100 + at, 70 + at % 16, bytes, (enum convoy_copy_way)way);
                check(100, 70 + at, bytes, (enum convoy_copy_way)way);
            }
        }
    }
}

static void test_copy_nothing_touches_nothing(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < CONVOY_COPY_WAYS; way++) {
        convoy_copy(NULL, NULL, 0, (enum convoy_copy_way)way);
    }
}

static void test_copy_plain_way_is_always_there(void **state)
{
    (void)state;
    assert_true(convoy_copy_can(CONVOY_COPY_PLAIN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy_every_length_and_alignment),
        cmocka_unit_test(test_copy_nothing_touches_nothing),
        cmocka_unit_test(test_copy_plain_way_is_always_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
