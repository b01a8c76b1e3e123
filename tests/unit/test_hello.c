/* SPDX-License-Identifier: Apache-2.0 */
#include "net/hello.h"

#include "core/bytes.h"
#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int32_t ids[3] = {5, 0, 2147483647};

static struct convoy_hello make_hello(void)
{
    struct convoy_hello hello = {
        .wire_min = 1,
        .wire_max = 3,
        .critical_features = 0x10,
        .optional_features = 0x20,
        .epoch = 0x1122334455667788ull,
        .incarnation = 9,
        .build_id = {1, 2, 3, 4, 5, 6, 7, 8},
        .nonce = {0xaa, [31] = 0xbb},
        .has_group = true,
        .group = {.name = "tp.0",
                  .name_length = 4,
                  .member_ids = ids,
                  .member_count = 3,
                  .own_index = 2,
                  .own_id = 2147483647,
                  .listener_index = 1,
                  .blob_bytes_max = 16384,
                  .policy = 1},
        .has_offer = true,
        .offer_epoch = 77,
        .offer_salt = {[31] = 3},
    };
    return hello;
}

/* A copy of exactly this many bytes on the heap, so that a sanitizer sees any read past them. */
static int32_t decode_exact(const uint8_t *data, size_t bytes)
{
    struct convoy_hello hello;
    uint8_t *copy = malloc(bytes != 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    int32_t status = convoy_hello_decode(copy, bytes, &hello, NULL);
    free(copy);
    return status;
}

/* The frozen part, byte by byte: this test must never be changed. */
static void test_hello_first_64_bytes_are_frozen(void **state)
{
    (void)state;
    static const uint8_t fixed[48] = {
        0x89, 'c',  'o',  'n',  'v',  'o',  'y',  '\n', /* magic */
        196,  0,    0,    0,    1,    0,    3,    0,    /* length, wire min, wire max */
        0x10, 0,    0,    0,    0,    0,    0,    0,    /* critical features */
        0x20, 0,    0,    0,    0,    0,    0,    0,    /* optional features */
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* epoch */
        9,    0,    0,    0,    0,    0,    0,    0,    /* incarnation; then the configuration hash */
    };
    static const uint8_t nonce_head[4] = {1, 0x80, 32, 0};
    struct convoy_hello hello = make_hello();
    uint8_t bytes[CONVOY_HELLO_BYTES_MAX];
    size_t length = convoy_hello_encode(&hello, bytes);
    assert_int_equal(length, 196);
    assert_memory_equal(bytes, fixed, sizeof fixed);
    assert_memory_equal(bytes + 56, hello.build_id, 8);
    assert_memory_equal(bytes + 64, nonce_head, 4);
    assert_memory_equal(bytes + 68, hello.nonce, 32);
}

static void test_hello_decode_gives_what_was_encoded(void **state)
{
    (void)state;
    struct convoy_hello hello = make_hello();
    struct convoy_hello back;
    uint8_t bytes[CONVOY_HELLO_BYTES_MAX];
    size_t length = convoy_hello_encode(&hello, bytes);
    assert_int_equal(convoy_hello_decode(bytes, length, &back, NULL), CONVOY_OK);
    assert_int_equal(back.wire_max, 3);
    assert_int_equal(back.epoch, hello.epoch);
    assert_int_equal(back.incarnation, 9);
    assert_memory_equal(back.nonce, hello.nonce, 32);
    assert_true(back.has_group && back.has_offer);
    assert_int_equal(back.group.name_length, 4);
    assert_memory_equal(back.group.name, "tp.0", 4);
    assert_int_equal(back.group.member_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(convoy_hello_member(&back.group, i), ids[i]);
    }
    assert_int_equal(back.group.own_index, 2);
    assert_int_equal(back.group.own_id, 2147483647);
    assert_int_equal(back.group.listener_index, 1);
    assert_int_equal(back.group.blob_bytes_max, 16384);
    assert_int_equal(back.group.policy, 1);
    assert_int_equal(back.offer_epoch, 77);
    assert_int_equal(back.offer_salt[31], 3);
}

static void test_hello_largest_group_fits(void **state)
{
    (void)state;
    static int32_t many[CONVOY_HELLO_MEMBERS_MAX];
    static uint8_t bytes[CONVOY_HELLO_BYTES_MAX];
    char name[CONVOY_HELLO_NAME_MAX];
    memset(name, 'n', sizeof name);
    struct convoy_hello hello = make_hello();
    struct convoy_hello back;
    hello.group.name = name;
    hello.group.name_length = sizeof name;
    hello.group.member_ids = many;
    hello.group.member_count = CONVOY_HELLO_MEMBERS_MAX;
    size_t length = convoy_hello_encode(&hello, bytes);
    assert_in_range(length, 4096, CONVOY_HELLO_BYTES_MAX);
    assert_int_equal(convoy_hello_decode(bytes, length, &back, NULL), CONVOY_OK);
}

static void test_hello_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    struct convoy_hello hello = make_hello();
    uint8_t bytes[CONVOY_HELLO_BYTES_MAX];
    size_t length = convoy_hello_encode(&hello, bytes);
    for (size_t cut = 0; cut < length; cut++) {
        assert_int_equal(decode_exact(bytes, cut), CONVOY_MALFORMED);
        if (cut >= CONVOY_HELLO_FIXED_BYTES) { /* also when the length says so */
            uint8_t shorter[CONVOY_HELLO_BYTES_MAX];
            memcpy(shorter, bytes, cut);
            convoy_bytes_put_u32(shorter + 8, (uint32_t)cut);
            int32_t status = decode_exact(shorter, cut);
            bool lacks_only_the_offer = cut == length - 4 - 8 - CONVOY_HELLO_SALT_BYTES;
            assert_int_equal(status, lacks_only_the_offer ? CONVOY_OK : CONVOY_MALFORMED);
        }
    }
}

/* Whether a known item is marked critical does not matter to who knows it. */
static bool is_critical_mark(const uint8_t *bytes, size_t length, size_t bit)
{
    size_t item = CONVOY_HELLO_FIXED_BYTES;
    while (item + 4 < length && 8 * (item + 1) + 7 != bit) {
        item += 4u + convoy_bytes_u16(bytes + item + 2);
    }
    return 8 * (item + 1) + 7 == bit;
}

/* No single flipped bit is read past the end or taken for the same hello. */
static void test_hello_flipped_bit_never_gives_the_same_hello(void **state)
{
    (void)state;
    struct convoy_hello hello = make_hello();
    uint8_t bytes[CONVOY_HELLO_BYTES_MAX];
    uint8_t flipped[CONVOY_HELLO_BYTES_MAX];
    uint8_t again[CONVOY_HELLO_BYTES_MAX];
    size_t length = convoy_hello_encode(&hello, bytes);
    uint32_t accepted = 0;
    for (size_t bit = 0; bit < 8 * length; bit++) {
        struct convoy_hello back;
        memcpy(flipped, bytes, length);
        flipped[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int32_t status = decode_exact(flipped, length);
        assert_true(status == CONVOY_OK || status == CONVOY_MALFORMED || status == CONVOY_VERSION_MISMATCH);
        if (!is_critical_mark(bytes, length, bit) && convoy_hello_decode(flipped, length, &back, NULL) == CONVOY_OK) {
            accepted++;
            assert_false(convoy_hello_encode(&back, again) == length && memcmp(again, bytes, length) == 0);
        }
    }
    assert_true(accepted > 100); /* nonce, epoch, own place and the like are anything */
}

/* Appends an item to a good hello. */
static int32_t decode_with_item(uint16_t type, uint16_t length, struct convoy_error *error)
{
    struct convoy_hello hello = make_hello();
    struct convoy_hello back;
    uint8_t bytes[CONVOY_HELLO_BYTES_MAX] = {0};
    size_t end = convoy_hello_encode(&hello, bytes);
    convoy_bytes_put_u16(bytes + end, type);
    convoy_bytes_put_u16(bytes + end + 2, length);
    convoy_bytes_put_u32(bytes + 8, (uint32_t)(end + 4 + length));
    return convoy_hello_decode(bytes, end + 4 + length, &back, error);
}

static void test_hello_unknown_item_is_ignored_unless_critical(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(decode_with_item(0x1234, 8, &error), CONVOY_OK);
    assert_int_equal(decode_with_item(7, 0, &error), CONVOY_OK);
    assert_int_equal(decode_with_item(0x8000 | 0x1234, 8, &error), CONVOY_VERSION_MISMATCH);
    assert_non_null(strstr(error.text, "4660"));
}

static void test_hello_repeated_item_is_refused(void **state)
{
    (void)state;
    assert_int_equal(decode_with_item(0x8001, 32, NULL), CONVOY_MALFORMED);
    assert_int_equal(decode_with_item(0x8004, 12, NULL), CONVOY_MALFORMED);
    assert_int_equal(decode_with_item(6, 40, NULL), CONVOY_MALFORMED);
}

static void test_hello_length_knows_strangers_by_their_first_byte(void **state)
{
    (void)state;
    struct convoy_hello hello = make_hello();
    uint8_t bytes[CONVOY_HELLO_BYTES_MAX];
    uint32_t length = 0;
    (void)convoy_hello_encode(&hello, bytes);
    assert_int_equal(convoy_hello_length((const uint8_t *)"GET /", 5, &length), CONVOY_MALFORMED);
    assert_int_equal(convoy_hello_length((const uint8_t *)"\x16", 1, &length), CONVOY_MALFORMED);
    for (size_t bytes_seen = 0; bytes_seen < CONVOY_HELLO_FIXED_BYTES; bytes_seen++) {
        assert_int_equal(convoy_hello_length(bytes, bytes_seen, &length), CONVOY_IN_PROGRESS);
    }
    assert_int_equal(convoy_hello_length(bytes, CONVOY_HELLO_FIXED_BYTES, &length), CONVOY_OK);
    assert_int_equal(length, 196);
    convoy_bytes_put_u32(bytes + 8, CONVOY_HELLO_BYTES_MAX + 1);
    assert_int_equal(convoy_hello_length(bytes, CONVOY_HELLO_FIXED_BYTES, &length), CONVOY_MALFORMED);
    convoy_bytes_put_u32(bytes + 8, CONVOY_HELLO_FIXED_BYTES - 1);
    assert_int_equal(convoy_hello_length(bytes, CONVOY_HELLO_FIXED_BYTES, &length), CONVOY_MALFORMED);
}

/* What is each member's own does not count, everything else does. */
static void test_hello_configuration_covers_what_must_agree(void **state)
{
    (void)state;
    const struct convoy_hello_group group = make_hello().group;
    uint64_t hash = convoy_hello_configuration(&group);
    struct convoy_hello_group other = group;
    other.own_index = 0;
    other.own_id = 5;
    assert_true(convoy_hello_configuration(&other) == hash);
    static const int32_t reordered[3] = {0, 5, 2147483647};
    struct convoy_hello_group changed[6] = {group, group, group, group, group, group};
    changed[0].name = "tp.1";
    changed[1].member_ids = reordered;
    changed[2].member_count = 2;
    changed[3].listener_index = 0;
    changed[4].blob_bytes_max = 1;
    changed[5].policy = 0;
    for (size_t i = 0; i < 6; i++) {
        assert_true(convoy_hello_configuration(&changed[i]) != hash);
    }
}

/* wire min and max, critical and optional features of both; the result. */
static void test_hello_choice_is_the_same_from_both_sides(void **state)
{
    (void)state;
    static const struct {
        uint16_t wire[4];
        uint64_t features[4];
        int32_t status;
        uint32_t chosen;
        uint64_t common;
    } rows[] = {
        {{1, 1, 1, 1}, {0, 0, 0, 0}, CONVOY_OK, 1, 0},
        {{1, 3, 2, 5}, {0, 0, 0, 0}, CONVOY_OK, 3, 0},
        {{1, 3, 3, 5}, {0, 0, 0, 0}, CONVOY_OK, 3, 0},
        {{1, 2, 3, 5}, {0, 0, 0, 0}, CONVOY_VERSION_MISMATCH, 0, 0},
        {{2, 1, 1, 2}, {0, 0, 0, 0}, CONVOY_VERSION_MISMATCH, 0, 0},
        {{1, 1, 1, 1}, {1, 0, 0, 1}, CONVOY_OK, 1, 1},
        {{1, 1, 1, 1}, {0, 6, 0, 3}, CONVOY_OK, 1, 2},
        {{1, 1, 1, 1}, {1, 0, 0, 2}, CONVOY_VERSION_MISMATCH, 0, 0},
        {{1, 1, 1, 1}, {1, 2, 2, 0}, CONVOY_VERSION_MISMATCH, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint16_t *wire = rows[i].wire;
        const uint64_t *features = rows[i].features;
        const struct convoy_hello one = {.wire_min = wire[0], .wire_max = wire[1], .critical_features = features[0],
                                         .optional_features = features[1]};
        const struct convoy_hello two = {.wire_min = wire[2], .wire_max = wire[3], .critical_features = features[2],
                                         .optional_features = features[3]};
        struct convoy_hello_choice forth = {.wire = 0};
        struct convoy_hello_choice back = {.wire = 0};
        assert_int_equal(convoy_hello_choose(&one, &two, &forth, NULL), rows[i].status);
        assert_int_equal(convoy_hello_choose(&two, &one, &back, NULL), rows[i].status);
        assert_int_equal(forth.wire, rows[i].chosen);
        assert_int_equal(forth.features, rows[i].common);
        assert_memory_equal(&forth, &back, sizeof forth);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_first_64_bytes_are_frozen),
        cmocka_unit_test(test_hello_decode_gives_what_was_encoded),
        cmocka_unit_test(test_hello_largest_group_fits),
        cmocka_unit_test(test_hello_cut_at_any_byte_is_refused),
        cmocka_unit_test(test_hello_flipped_bit_never_gives_the_same_hello),
        cmocka_unit_test(test_hello_unknown_item_is_ignored_unless_critical),
        cmocka_unit_test(test_hello_repeated_item_is_refused),
        cmocka_unit_test(test_hello_length_knows_strangers_by_their_first_byte),
        cmocka_unit_test(test_hello_configuration_covers_what_must_agree),
        cmocka_unit_test(test_hello_choice_is_the_same_from_both_sides),
    };
    return cmocka_run_group_tests_name("hello", tests, NULL, NULL);
}
