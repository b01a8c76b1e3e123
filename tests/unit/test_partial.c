/* SPDX-License-Identifier: Apache-2.0 */
#include "round/partial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PARTIAL_TURNS 20000
#define PARTIAL_HOSTS 4

static uint32_t partial_random(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static struct convoy_partial_head partial_any(uint32_t *seed)
{
    struct convoy_partial_head head = {
        .fingerprint = partial_random(seed, 3), /* 0: nothing but error rows */
        .votes_and = partial_random(seed, 16),
        .votes_or = partial_random(seed, 16),
        .lost_count = partial_random(seed, 4),
        .culprit = UINT32_MAX,
        .error_member = UINT32_MAX,
    };
    if (partial_random(seed, 3) == 0) {
        head.tag_min = 1 + partial_random(seed, 3);
        head.tag_max = head.tag_min + partial_random(seed, 2);
    }
    if (partial_random(seed, 4) == 0) {
        head.error_member = partial_random(seed, 64);
        head.error_reason = (int32_t)head.error_member * 10; /* one member has one reason */
    }
    if (partial_random(seed, 4) == 0) {
        head.flags = CONVOY_PARTIAL_FAILED;
        head.status = partial_random(seed, 2) == 0 ? CONVOY_BROKEN : CONVOY_PEER_LOST;
        head.culprit = partial_random(seed, 64);
    }
    return head;
}

static struct convoy_partial_head partial_fold(const struct convoy_partial_head *heads, const uint32_t *order)
{
    struct convoy_partial_head sum = heads[order[0]];
    for (uint32_t i = 1; i < PARTIAL_HOSTS; i++) {
        convoy_partial_combine(&sum, &heads[order[i]]);
    }
    return sum;
}

/* Leaders add up in whatever order the messages come: all must come to the same sum. */
static void test_partial_combine_does_not_depend_on_order(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int turn = 0; turn < PARTIAL_TURNS; turn++) {
        struct convoy_partial_head heads[PARTIAL_HOSTS];
        uint32_t order[PARTIAL_HOSTS] = {0, 1, 2, 3};
        for (uint32_t i = 0; i < PARTIAL_HOSTS; i++) {
            heads[i] = partial_any(&seed);
        }
        struct convoy_partial_head first = partial_fold(heads, order);
        for (uint32_t i = PARTIAL_HOSTS - 1; i > 0; i--) {
            uint32_t j = partial_random(&seed, i + 1);
            uint32_t swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
        struct convoy_partial_head second = partial_fold(heads, order);
        if ((first.flags & CONVOY_PARTIAL_FAILED) != 0) { /* whether it also diverged is nobody's question then */
            first.flags = second.flags = CONVOY_PARTIAL_FAILED;
            first.fingerprint = second.fingerprint = 0;
        }
        first.fingerprint = first.flags != 0 ? 0 : first.fingerprint; /* of a mixed sum it says nothing */
        second.fingerprint = second.flags != 0 ? 0 : second.fingerprint;
        assert_memory_equal(&first, &second, sizeof first);
    }
}

static void test_partial_differing_fingerprints_or_tags_diverge(void **state)
{
    (void)state;
    struct convoy_partial_head a = {.fingerprint = 1, .tag_min = 5, .tag_max = 5};
    struct convoy_partial_head b = {.fingerprint = 1};
    struct convoy_partial_head errors = {.fingerprint = 0};
    struct convoy_partial_head c = {.fingerprint = 2};
    struct convoy_partial_head d = {.fingerprint = 1, .tag_min = 6, .tag_max = 6};
    struct convoy_partial_head sum = a;
    convoy_partial_combine(&sum, &b); /* no tag: takes no part */
    convoy_partial_combine(&sum, &errors);
    assert_false(convoy_partial_is_diverged(&sum));
    struct convoy_partial_head mixed = sum;
    convoy_partial_combine(&mixed, &c);
    assert_true(convoy_partial_is_diverged(&mixed));
    convoy_partial_combine(&sum, &d);
    assert_true(convoy_partial_is_diverged(&sum));
}

/* Every length that does not fit is refused, and so is a member that does not exist. */
static void test_partial_read_checks_lengths_and_members(void **state)
{
    (void)state;
    uint8_t bytes[sizeof(struct convoy_partial_head) + 100] = {0};
    struct convoy_partial_head head = {.payload_bytes = 10, .culprit = UINT32_MAX, .error_member = UINT32_MAX};
    struct convoy_partial_head out;
    memcpy(bytes, &head, sizeof head);
    for (size_t length = 0; length <= sizeof bytes; length++) {
        assert_int_equal(convoy_partial_read(&out, bytes, length, 4), length == sizeof head + 10);
    }
    head.payload_bytes = 0;
    head.row_count = 5;
    memcpy(bytes, &head, sizeof head);
    assert_false(convoy_partial_read(&out, bytes, sizeof head, 4)); /* more rows than members */
    head.row_count = UINT32_MAX;
    memcpy(bytes, &head, sizeof head);
    assert_false(convoy_partial_read(&out, bytes, sizeof head, UINT32_MAX));
    head.row_count = 0;
    head.culprit = 4;
    memcpy(bytes, &head, sizeof head);
    assert_false(convoy_partial_read(&out, bytes, sizeof head, 4));
    assert_true(convoy_partial_read(&out, bytes, sizeof head, 5));
    head.culprit = UINT32_MAX;
    head.error_member = 9;
    memcpy(bytes, &head, sizeof head);
    assert_false(convoy_partial_read(&out, bytes, sizeof head, 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_combine_does_not_depend_on_order),
        cmocka_unit_test(test_partial_differing_fingerprints_or_tags_diverge),
        cmocka_unit_test(test_partial_read_checks_lengths_and_members),
    };
    return cmocka_run_group_tests_name("partial", tests, NULL, NULL);
}
