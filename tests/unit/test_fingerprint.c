/* SPDX-License-Identifier: Apache-2.0 */
#include "round/fingerprint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct convoy_round_header fingerprint_sample = {
    .operation = 1, .wire = 1, .epoch = 5, .counts = 0x801, .digest = 6, .schema = 7, .policy = 8};

/* A change of any single bit changes the fingerprint, and is told as the field that it lies in. */
static void test_fingerprint_changes_with_each_bit_of_the_header(void **state)
{
    (void)state;
    static const uint32_t fields[16] = {
        CONVOY_FIELD_OPERATION, CONVOY_FIELD_WIRE,   CONVOY_FIELD_EPOCH,  CONVOY_FIELD_EPOCH,
        CONVOY_FIELD_COUNTS,    CONVOY_FIELD_COUNTS, CONVOY_FIELD_DIGEST, CONVOY_FIELD_DIGEST,
        CONVOY_FIELD_SCHEMA,    CONVOY_FIELD_SCHEMA, CONVOY_FIELD_POLICY, CONVOY_FIELD_POLICY,
        CONVOY_FIELD_POLICY,    CONVOY_FIELD_POLICY, CONVOY_FIELD_POLICY, CONVOY_FIELD_POLICY,
    };
    uint64_t print = convoy_fingerprint(&fingerprint_sample);
    for (size_t bit = 0; bit < 8 * sizeof fingerprint_sample; bit++) {
        struct convoy_round_header other = fingerprint_sample;
        ((uint8_t *)&other)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_true(convoy_fingerprint(&other) != print);
        assert_int_equal(convoy_fingerprint_field(&fingerprint_sample, &other), fields[bit / 32]);
    }
    assert_int_equal(convoy_fingerprint_field(&fingerprint_sample, &fingerprint_sample), CONVOY_FIELD_NONE);
}

/* Part of the wire version: another build must come to the same number. */
static void test_fingerprint_of_the_sample_is_the_golden_one(void **state)
{
    (void)state;
    assert_int_equal(convoy_fingerprint(&fingerprint_sample), UINT64_C(0x1e5c42c74abf99c3));
}

/* A count in one field must not hide behind the same number in another. */
static void test_fingerprint_tells_fields_apart(void **state)
{
    (void)state;
    struct convoy_round_header a = {.counts = 1};
    struct convoy_round_header b = {.digest = 1};
    struct convoy_round_header c = {.schema = 1};
    assert_true(convoy_fingerprint(&a) != convoy_fingerprint(&b));
    assert_true(convoy_fingerprint(&b) != convoy_fingerprint(&c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fingerprint_changes_with_each_bit_of_the_header),
        cmocka_unit_test(test_fingerprint_of_the_sample_is_the_golden_one),
        cmocka_unit_test(test_fingerprint_tells_fields_apart),
    };
    return cmocka_run_group_tests_name("fingerprint", tests, NULL, NULL);
}
