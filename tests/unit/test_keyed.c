/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/keyed.h"

#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ROOM 512u

/* One keyed list without generations and one positional entry, as a member would write it. */
static size_t payload_make(uint8_t *out, const uint64_t *keys, const uint8_t *states, uint32_t count)
{
    const uint32_t head[] = {0, count};
    memset(out, 0, ROOM);
    out[0] = CONVOY_STATE_TRANSFERRING;
    memcpy(out + 8, head, sizeof head);
    memcpy(out + 16, keys, sizeof *keys * count);
    memcpy(out + 16 + sizeof *keys * count, states, count);
    return 16 + 9 * (size_t)count;
}

struct bench {
    struct convoy_payload_shape shape;
    struct convoy_keyed keyed;
    struct convoy_memory_plan plan;
    uint8_t positional[8];
};

static void bench_place(struct bench *bench, size_t bytes_max)
{
    convoy_keyed_place(&bench->keyed, bytes_max, bench->positional, &bench->plan);
    assert_true(convoy_memory_plan_make(&bench->plan));
    convoy_keyed_place(&bench->keyed, bytes_max, bench->positional, &bench->plan);
}

static void bench_open(struct bench *bench, size_t bytes_max)
{
    memset(bench, 0, sizeof *bench);
    convoy_payload_shape_add(&bench->shape, 1, 0);
    convoy_payload_shape_add(&bench->shape, 0, CONVOY_POLL_KEYED);
    bench_place(bench, bytes_max);
    convoy_keyed_prepare(&bench->keyed, &bench->shape);
    convoy_keyed_ops.begin(&bench->keyed);
}

static int32_t member(struct bench *bench, const uint64_t *keys, const uint8_t *states, uint32_t count)
{
    uint8_t payload[ROOM];
    return convoy_keyed_ops.member(&bench->keyed, 0, payload, payload_make(payload, keys, states, count));
}

static void test_keyed_lists_are_merged_by_key(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 400);
    assert_int_equal(member(&bench, (const uint64_t[]){1, 5, 9}, (const uint8_t[]){4, 3, 2}, 3), CONVOY_OK);
    assert_int_equal(member(&bench, (const uint64_t[]){0, 5}, (const uint8_t[]){1, 200}, 2), CONVOY_OK);
    const struct convoy_table *table = convoy_keyed_current(&bench.keyed);
    assert_int_equal(table->starts[1], 4);
    assert_memory_equal(table->keys, ((const uint64_t[]){0, 1, 5, 9}), 4 * sizeof(uint64_t));
    assert_memory_equal(table->states, ((const uint8_t[]){1, 4, 1, 2}), 4);
    assert_memory_equal(table->listed, ((const uint16_t[]){1, 1, 2, 1}), 4 * sizeof(uint16_t));
    assert_int_equal(bench.keyed.positional.unknown[1], 1);
    convoy_memory_table_free(bench.plan.base);
}

/* The usual round does not touch the identities: their version stays. */
static void test_keyed_same_lists_again_keep_the_version(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 400);
    const uint64_t keys[] = {1, 5, 9};
    assert_int_equal(member(&bench, keys, (const uint8_t[]){4, 3, 2}, 3), CONVOY_OK);
    uint64_t version = bench.keyed.version;
    convoy_keyed_ops.begin(&bench.keyed);
    assert_int_equal(member(&bench, keys, (const uint8_t[]){4, 4, 4}, 3), CONVOY_OK);
    assert_int_equal(member(&bench, keys, (const uint8_t[]){4, 3, 4}, 3), CONVOY_OK);
    assert_true(bench.keyed.version == version);
    assert_memory_equal(convoy_keyed_current(&bench.keyed)->states, ((const uint8_t[]){4, 3, 4}), 3);
    assert_int_equal(convoy_keyed_current(&bench.keyed)->listed[0], 2);
    convoy_memory_table_free(bench.plan.base);
}

static void test_keyed_descending_or_repeated_keys_are_malformed(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 400);
    assert_int_equal(member(&bench, (const uint64_t[]){5, 1}, (const uint8_t[]){4, 3}, 2), CONVOY_MALFORMED);
    assert_int_equal(member(&bench, (const uint64_t[]){5, 5}, (const uint8_t[]){4, 3}, 2), CONVOY_MALFORMED);
    assert_int_equal(member(&bench, (const uint64_t[]){5, 6}, (const uint8_t[]){4, 3}, 2), CONVOY_OK);
    convoy_memory_table_free(bench.plan.base);
}

static void test_keyed_partial_of_a_host_is_what_its_members_brought(void **state)
{
    (void)state;
    struct bench here;
    struct bench there;
    uint8_t blob[ROOM];
    bench_open(&here, 400);
    bench_open(&there, 400);
    assert_int_equal(member(&there, (const uint64_t[]){1, 5}, (const uint8_t[]){4, 3}, 2), CONVOY_OK);
    assert_int_equal(member(&there, (const uint64_t[]){5}, (const uint8_t[]){2}, 1), CONVOY_OK);
    size_t length = convoy_keyed_ops.encode(&there.keyed, blob, sizeof blob);
    assert_in_range(length, 1, convoy_keyed_partial_bytes_max(400));
    assert_int_equal(convoy_keyed_ops.encode(&there.keyed, blob, length - 1), 0);
    assert_int_equal(convoy_keyed_ops.partial(&here.keyed, blob, length), CONVOY_OK);
    assert_int_equal(member(&here, (const uint64_t[]){5}, (const uint8_t[]){4}, 1), CONVOY_OK);
    const struct convoy_table *table = convoy_keyed_current(&here.keyed);
    assert_memory_equal(table->states, ((const uint8_t[]){4, 2}), 2);
    assert_memory_equal(table->listed, ((const uint16_t[]){1, 3}), 2 * sizeof(uint16_t));
    assert_int_equal(here.keyed.positional.members, 3);
    for (size_t cut = 0; cut < length; cut++) {
        convoy_keyed_ops.begin(&here.keyed);
        assert_int_equal(convoy_keyed_ops.partial(&here.keyed, blob, cut), CONVOY_MALFORMED);
    }
    convoy_memory_table_free(here.plan.base);
    convoy_memory_table_free(there.plan.base);
}

/* listed_by beyond the members of the host that sends it cannot be. */
static void test_keyed_partial_listed_by_too_many_is_malformed(void **state)
{
    (void)state;
    struct bench bench;
    uint8_t blob[ROOM];
    bench_open(&bench, 400);
    assert_int_equal(member(&bench, (const uint64_t[]){5}, (const uint8_t[]){2}, 1), CONVOY_OK);
    size_t length = convoy_keyed_ops.encode(&bench.keyed, blob, sizeof blob);
    size_t listed = length - 3; /* u16 listed, then one state */
    for (uint32_t value = 0; value < 4; value++) {
        blob[listed] = (uint8_t)value;
        convoy_keyed_ops.begin(&bench.keyed);
        int32_t expected = value == 1 ? CONVOY_OK : CONVOY_MALFORMED;
        assert_int_equal(convoy_keyed_ops.partial(&bench.keyed, blob, length), expected);
    }
    convoy_memory_table_free(bench.plan.base);
}

/* An overflow is passed on by hosts, whichever way the members are split; what fits exactly is none. */
static void test_keyed_overflow_is_counted_and_passed_on(void **state)
{
    (void)state;
    struct bench bench;
    uint8_t blob[ROOM];
    const uint64_t keys[] = {1, 2, 3, 4};
    const uint8_t states[] = {4, 4, 4, 4};
    bench_open(&bench, 16 + 9 * 5);
    assert_int_equal(member(&bench, keys, states, 4), CONVOY_OK);
    assert_int_equal(member(&bench, (const uint64_t[]){9}, states, 1), CONVOY_OK);
    assert_false(bench.keyed.has_overflow);
    assert_int_equal(member(&bench, (const uint64_t[]){10}, states, 1), CONVOY_OK);
    assert_true(bench.keyed.has_overflow);
    assert_int_equal(bench.keyed.overflow_entries, 6);
    assert_int_equal(member(&bench, (const uint64_t[]){3, 11}, states, 2), CONVOY_OK);
    assert_int_equal(bench.keyed.overflow_entries, 7);
    size_t length = convoy_keyed_ops.encode(&bench.keyed, blob, sizeof blob);
    convoy_keyed_ops.begin(&bench.keyed);
    assert_int_equal(convoy_keyed_ops.partial(&bench.keyed, blob, length), CONVOY_OK);
    assert_true(bench.keyed.has_overflow);
    assert_int_equal(bench.keyed.positional.members, 4);
    assert_int_equal(bench.keyed.overflow_entries, 7);
    convoy_keyed_ops.begin(&bench.keyed);
    assert_int_equal(member(&bench, keys, states, 4), CONVOY_OK);
    assert_false(bench.keyed.has_overflow);
    convoy_memory_table_free(bench.plan.base);
}

/* A size that only a broken host can claim stays one that every host can pass on. */
static void test_keyed_overflow_size_saturates(void **state)
{
    (void)state;
    struct bench bench;
    uint8_t blob[ROOM];
    bench_open(&bench, 400);
    struct convoy_payload_head head = {.members = 1, .flags = CONVOY_PAYLOAD_OVERFLOW, .needed = UINT32_MAX};
    memcpy(blob, &head, sizeof head);
    assert_int_equal(convoy_keyed_ops.partial(&bench.keyed, blob, sizeof head), CONVOY_OK);
    assert_int_equal(convoy_keyed_ops.partial(&bench.keyed, blob, sizeof head), CONVOY_OK);
    size_t length = convoy_keyed_ops.encode(&bench.keyed, blob, sizeof blob);
    convoy_keyed_ops.begin(&bench.keyed);
    assert_int_equal(convoy_keyed_ops.partial(&bench.keyed, blob, length), CONVOY_OK);
    assert_true(bench.keyed.overflow_entries == UINT32_MAX);
    convoy_memory_table_free(bench.plan.base);
}

/* -- what all agree on ----------------------------------------------------------------------------------------------- */

#define AGREED 40u

/* Keyed lists alone, of which two members have brought the same identities. */
static void agreed_open(struct bench *bench, uint64_t salt)
{
    uint64_t payload[ROOM];
    uint32_t head[] = {0, AGREED};
    memset(bench, 0, sizeof *bench);
    convoy_payload_shape_add(&bench->shape, 0, CONVOY_POLL_KEYED);
    bench_place(bench, 2048);
    convoy_keyed_prepare(&bench->keyed, &bench->shape);
    convoy_keyed_ops.begin(&bench->keyed);
    memset(payload, CONVOY_STATE_TRANSFERRING, sizeof payload);
    memcpy(payload, head, sizeof head);
    for (uint32_t i = 0; i < AGREED; i++) {
        payload[1 + i] = i + salt;
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(convoy_keyed_ops.member(&bench->keyed, i, (const uint8_t *)payload, 8 + 9 * AGREED), CONVOY_OK);
    }
    convoy_keyed_agree(&bench->keyed);
}

static size_t same_make(const struct bench *bench, uint8_t *out, uint8_t state)
{
    const struct convoy_payload_same same = {CONVOY_PAYLOAD_SAME, bench->keyed.agreed.digest};
    uint8_t states[AGREED];
    memset(states, state, sizeof states);
    memcpy(out, &same, sizeof same);
    convoy_states_pack(out + sizeof same, states, AGREED);
    return sizeof same + convoy_payload_short_bytes(AGREED);
}

static void test_keyed_agreed_identities_need_not_be_sent(void **state)
{
    (void)state;
    struct bench bench;
    uint8_t payload[ROOM];
    agreed_open(&bench, 1);
    assert_true(convoy_keyed_is_agreed(&bench.keyed));
    uint64_t version = bench.keyed.version;
    convoy_keyed_ops.begin(&bench.keyed);
    size_t bytes = same_make(&bench, payload, CONVOY_STATE_SUCCESS);
    assert_int_equal(convoy_keyed_ops.member(&bench.keyed, 0, payload, bytes), CONVOY_OK);
    payload[sizeof(struct convoy_payload_same)] = 0xf4; /* the twenty-first is of a newer peer */
    assert_int_equal(convoy_keyed_ops.member(&bench.keyed, 1, payload, bytes), CONVOY_OK);
    const struct convoy_table *table = convoy_keyed_current(&bench.keyed);
    assert_int_equal(table->states[0], CONVOY_STATE_SUCCESS);
    assert_int_equal(table->states[AGREED / 2], CONVOY_STATE_BOOTSTRAPPING);
    assert_int_equal(bench.keyed.positional.unknown[0], 1);
    assert_int_equal(table->listed[3], 2);
    assert_true(bench.keyed.version == version);
    convoy_memory_table_free(bench.plan.base);
}

static void same_refused(struct bench *bench, const uint8_t *payload, size_t bytes)
{
    convoy_keyed_ops.begin(&bench->keyed);
    assert_int_equal(convoy_keyed_ops.member(&bench->keyed, 0, payload, bytes), CONVOY_MALFORMED);
}

static void test_keyed_reference_to_what_is_not_agreed_is_malformed(void **state)
{
    (void)state;
    struct bench bench;
    struct bench other;
    uint8_t payload[ROOM];
    agreed_open(&bench, 1);
    agreed_open(&other, 2);
    size_t bytes = same_make(&bench, payload, CONVOY_STATE_SUCCESS);
    same_refused(&bench, payload, bytes - 1);
    same_refused(&bench, payload, bytes + 1);
    same_refused(&bench, payload, sizeof(struct convoy_payload_same) - 1);
    same_refused(&other, payload, bytes); /* another digest */
    payload[0] = CONVOY_PAYLOAD_SAME | CONVOY_PAYLOAD_GENERATIONS;
    same_refused(&bench, payload, bytes);
    (void)same_make(&bench, payload, CONVOY_STATE_SUCCESS);
    bench.keyed.agreed.is_there = false;
    same_refused(&bench, payload, bytes);
    convoy_memory_table_free(bench.plan.base);
    convoy_memory_table_free(other.plan.base);
}

/* A round in which one member lacks an identity ends the agreement. */
static void test_keyed_agreement_takes_all_members(void **state)
{
    (void)state;
    struct bench bench;
    const uint32_t none[] = {0, 0};
    uint8_t payload[ROOM];
    agreed_open(&bench, 1);
    convoy_keyed_ops.begin(&bench.keyed);
    size_t bytes = same_make(&bench, payload, CONVOY_STATE_SUCCESS);
    assert_int_equal(convoy_keyed_ops.member(&bench.keyed, 0, payload, bytes), CONVOY_OK);
    assert_int_equal(convoy_keyed_ops.member(&bench.keyed, 1, (const uint8_t *)none, sizeof none), CONVOY_OK);
    convoy_keyed_agree(&bench.keyed);
    assert_false(convoy_keyed_is_agreed(&bench.keyed));
    same_refused(&bench, payload, bytes);
    convoy_memory_table_free(bench.plan.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keyed_lists_are_merged_by_key),
        cmocka_unit_test(test_keyed_same_lists_again_keep_the_version),
        cmocka_unit_test(test_keyed_descending_or_repeated_keys_are_malformed),
        cmocka_unit_test(test_keyed_partial_of_a_host_is_what_its_members_brought),
        cmocka_unit_test(test_keyed_partial_listed_by_too_many_is_malformed),
        cmocka_unit_test(test_keyed_overflow_is_counted_and_passed_on),
        cmocka_unit_test(test_keyed_overflow_size_saturates),
        cmocka_unit_test(test_keyed_agreed_identities_need_not_be_sent),
        cmocka_unit_test(test_keyed_reference_to_what_is_not_agreed_is_malformed),
        cmocka_unit_test(test_keyed_agreement_takes_all_members),
    };
    return cmocka_run_group_tests_name("keyed", tests, NULL, NULL);
}
