/* SPDX-License-Identifier: Apache-2.0 */
/* States by the block against one loop over bytes, for every length, alignment and place of what is odd. */
#include "poll/states_wide.h"

#include "convoy/poll.h"
#include "core/cpu.h"
#include "poll/states_packed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define LENGTH_MAX 140u
#define MEMBERS_MAX 5u
#define STRIDE (LENGTH_MAX + 13u) /* no alignment */
#define GUARD 0xa5u

typedef bool (*copy_fn)(uint8_t *into, const uint8_t *from, size_t count);
typedef struct convoy_states_seen (*merge_fn)(uint8_t *into, uint8_t *copy, const struct convoy_states_lists *lists,
                                              size_t count);

static bool copy_narrow(uint8_t *into, const uint8_t *from, size_t count)
{
    return convoy_states_copy(into, from, count);
}

static struct convoy_states_seen merge_narrow(uint8_t *into, uint8_t *copy, const struct convoy_states_lists *lists,
                                              size_t count)
{
    return convoy_states_merge(into, copy, lists, count);
}

static uint64_t seed;

static uint64_t draw(void)
{
    seed = (seed ^ (seed >> 31)) * UINT64_C(0x94d049bb133111eb) + 0x9e3779b97f4a7c15ull;
    return seed >> 40;
}

static void fill(uint8_t *states, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        states[i] = (uint8_t)(draw() % 5);
    }
}

static void check_copy(copy_fn copy, size_t count, size_t bad)
{
    uint8_t from[LENGTH_MAX + 1];
    uint8_t into[LENGTH_MAX + 2];
    fill(from, sizeof from);
    from[1 + bad] = bad < count ? (uint8_t)(5 + draw() % 251) : from[1 + bad];
    memset(into, GUARD, sizeof into);
    assert_int_equal(copy(into + 1, from + 1, count), bad >= count);
    assert_memory_equal(into + 1, from + 1, count);
    assert_int_equal(into[0], GUARD);
    assert_int_equal(into[1 + count], GUARD);
}

static void test_states_copy_finds_what_is_unknown(void **state)
{
    (void)state;
    for (size_t count = 0; count < LENGTH_MAX; count++) {
        for (size_t bad = 0; bad <= count; bad++) {
            check_copy(copy_narrow, count, bad);
            if (count >= CONVOY_STATES_WIDE && convoy_cpu_has_avx2()) {
                check_copy(convoy_states_copy_wide, count, bad);
            }
        }
    }
}

static void test_states_spread_copies_any_bytes(void **state)
{
    (void)state;
    for (size_t count = 0; count < LENGTH_MAX; count++) {
        uint8_t from[LENGTH_MAX + 1];
        uint8_t into[LENGTH_MAX + 2];
        for (size_t i = 0; i < sizeof from; i++) {
            from[i] = (uint8_t)draw();
        }
        memset(into, GUARD, sizeof into);
        convoy_states_spread(into + 1, from + 1, count);
        assert_memory_equal(into + 1, from + 1, count);
        assert_int_equal(into[0], GUARD);
        assert_int_equal(into[1 + count], GUARD);
    }
}

/* What was there before, the members' lists and the outcome that one loop gives. */
struct scene {
    uint8_t members[MEMBERS_MAX * STRIDE];
    uint8_t into[LENGTH_MAX + 2];
    uint8_t expected[LENGTH_MAX];
    uint32_t count;
    size_t length;
};

static void scene_make(struct scene *scene, uint32_t members, size_t length)
{
    scene->count = members;
    scene->length = length;
    fill(scene->members, sizeof scene->members);
    memset(scene->into, GUARD, sizeof scene->into);
    memset(scene->expected, 4, sizeof scene->expected);
    for (uint32_t member = 0; member < members; member++) {
        for (size_t i = 0; i < length; i++) {
            uint8_t theirs = scene->members[member * STRIDE + i];
            scene->expected[i] = theirs < scene->expected[i] ? theirs : scene->expected[i];
        }
    }
}

static struct convoy_states_seen scene_merge(struct scene *scene, merge_fn merge)
{
    const struct convoy_states_lists lists = {scene->members, STRIDE, scene->count};
    uint8_t copy[LENGTH_MAX + 2];
    memset(copy, GUARD, sizeof copy);
    struct convoy_states_seen seen = merge(scene->into + 1, copy + 1, &lists, scene->length);
    assert_int_equal(scene->into[0], GUARD);
    assert_int_equal(scene->into[1 + scene->length], GUARD);
    assert_int_equal(copy[0], GUARD);
    assert_int_equal(copy[1 + scene->length], GUARD);
    assert_memory_equal(copy + 1, scene->into + 1, scene->length);
    return seen;
}

static void check_merge(merge_fn merge, uint32_t members, size_t length)
{
    struct scene scene;
    scene_make(&scene, members, length);
    struct convoy_states_seen seen = scene_merge(&scene, merge);
    assert_int_equal(seen.unknown & CONVOY_STATES_HIGH_BITS, 0);
    assert_memory_equal(scene.into + 1, scene.expected, length);
    seen = scene_merge(&scene, merge);
    assert_int_equal(seen.moved, 0);
    for (size_t at = 0; at < length; at++) { /* one place that was otherwise in the round before */
        scene.into[1 + at] ^= 1;
        seen = scene_merge(&scene, merge);
        assert_int_not_equal(seen.moved, 0);
        assert_memory_equal(scene.into + 1, scene.expected, length);
    }
    for (size_t at = 0; at < length; at++) { /* one state of a newer peer */
        uint8_t *odd = &scene.members[draw() % members * STRIDE + at];
        uint8_t kept = *odd;
        *odd = (uint8_t)(5 + draw() % 251);
        assert_int_not_equal(scene_merge(&scene, merge).unknown & CONVOY_STATES_HIGH_BITS, 0);
        *odd = kept;
    }
}

static void test_states_merge_is_min_and_says_what_moved(void **state)
{
    (void)state;
    for (uint32_t members = 1; members <= MEMBERS_MAX; members++) {
        for (size_t length = 0; length < LENGTH_MAX; length++) {
            check_merge(merge_narrow, members, length);
            if (length >= CONVOY_STATES_WIDE && convoy_cpu_has_avx2()) {
                check_merge(convoy_states_merge_wide, members, length);
            }
        }
    }
}

/* Where the machine cannot do it, the long lists go the other way, and both tests above have said nothing of it. */
static void test_states_wide_is_what_this_machine_has(void **state)
{
    (void)state;
#if defined(__x86_64__)
    assert_int_equal(convoy_cpu_has_avx2(), __builtin_cpu_supports("avx2") != 0);
#else
    assert_false(convoy_cpu_has_avx2());
#endif
}

/* -- by the half byte -------------------------------------------------------------------------------------------- */

static void check_pack(size_t count)
{
    uint8_t states[CONVOY_PACKED_MAX];
    uint8_t packed[CONVOY_PACKED_MAX + 1];
    for (size_t i = 0; i < count; i++) {
        states[i] = (uint8_t)(draw() % 16);
    }
    memset(packed, GUARD, sizeof packed);
    convoy_states_pack(packed, states, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(convoy_packed_state(packed, count, i), states[i]);
    }
    assert_int_equal(packed[convoy_packed_bytes(count)], GUARD);
}

static void test_states_packed_are_found_again(void **state)
{
    (void)state;
    for (size_t count = CONVOY_PACKED_MIN; count <= CONVOY_PACKED_MAX; count++) {
        assert_true(convoy_packed_pays(count));
        check_pack(count);
    }
    assert_false(convoy_packed_pays(CONVOY_PACKED_MIN - 1));
    assert_false(convoy_packed_pays(CONVOY_PACKED_MAX + 1));
    assert_int_equal(convoy_packed_bytes(CONVOY_PACKED_MAX), 32); /* what is left of the first line */
}

/* bad: an entry of the last member that is above 4. */
static void check_merge_packed(size_t count, uint32_t members, size_t bad)
{
    uint8_t states[MEMBERS_MAX][CONVOY_PACKED_MAX];
    uint8_t cells[MEMBERS_MAX * STRIDE];
    uint8_t into[CONVOY_PACKED_MAX + 1];
    uint8_t copy[CONVOY_PACKED_MAX + 1];
    uint8_t least[CONVOY_PACKED_MAX];
    const struct convoy_states_lists lists = {cells, STRIDE, members};
    memset(least, CONVOY_STATE_SUCCESS, sizeof least);
    memset(into, GUARD, sizeof into);
    memset(copy, GUARD, sizeof copy);
    for (uint32_t member = 0; member < members; member++) {
        fill(states[member], count);
        for (size_t i = 0; i < count; i++) {
            least[i] = states[member][i] < least[i] ? states[member][i] : least[i];
        }
        if (member == members - 1 && bad < count) {
            states[member][bad] = (uint8_t)(5 + draw() % 11);
        }
        convoy_states_pack(cells + (size_t)member * STRIDE, states[member], count);
    }
    struct convoy_states_seen seen = convoy_states_merge_packed(into, copy, &lists, count);
    assert_int_equal((seen.unknown & CONVOY_STATES_HIGH_BITS) != 0, bad < count);
    assert_int_equal(into[count], GUARD);
    assert_int_equal(copy[count], GUARD);
    if (bad < count) {
        return;
    }
    assert_true(seen.moved != 0);
    assert_memory_equal(into, least, count);
    assert_memory_equal(copy, least, count);
    assert_true(convoy_states_merge_packed(into, copy, &lists, count).moved == 0);
    size_t at = draw() % count;
    into[at] ^= 1;
    assert_true(convoy_states_merge_packed(into, copy, &lists, count).moved != 0);
    assert_memory_equal(into, least, count);
}

static void test_states_merge_of_packed_ones_is_min(void **state)
{
    (void)state;
    for (size_t count = CONVOY_PACKED_MIN; count <= CONVOY_PACKED_MAX; count++) {
        for (uint32_t members = 1; members <= MEMBERS_MAX; members++) {
            check_merge_packed(count, members, SIZE_MAX);
        }
        for (size_t bad = 0; bad < count; bad++) {
            check_merge_packed(count, 2, bad);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_copy_finds_what_is_unknown),
        cmocka_unit_test(test_states_spread_copies_any_bytes),
        cmocka_unit_test(test_states_merge_is_min_and_says_what_moved),
        cmocka_unit_test(test_states_packed_are_found_again),
        cmocka_unit_test(test_states_merge_of_packed_ones_is_min),
        cmocka_unit_test(test_states_wide_is_what_this_machine_has),
    };
    return cmocka_run_group_tests_name("states", tests, NULL, NULL);
}
