/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/poll_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Ascending, with both ends of the range. */
static const uint64_t scene_keys[SCENE_KEYS] = {0, 1, 2, 9, 255, 256, 1u << 20, 1ull << 32, 1ull << 40, 1ull << 63,
                                                UINT64_MAX - 1, UINT64_MAX};
static const uint32_t scene_generations[SCENE_GENERATIONS] = {0, 0x80000001u};

uint32_t scene_random(uint64_t *seed, uint32_t below)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (uint32_t)((*seed >> 16) % below);
}

void scene_memory_reset(struct scene_memory *memory)
{
    memset(memory->decided, 255, sizeof memory->decided);
}

static uint8_t state_draw(uint64_t *seed)
{
    uint32_t draw = scene_random(seed, 16); /* mostly in the middle: decisions must stay rare to be interesting */
    return (uint8_t)(draw < 1 ? 0 : draw < 4 ? 1 : draw < 7 ? 2 : draw < 10 ? 3 : 4);
}

static void list_put(struct scene_list *list, uint32_t key, uint32_t generation)
{
    uint32_t at = list->count++;
    list->key_index[at] = key;
    list->generation_index[at] = generation;
    list->keys[at] = scene_keys[key];
    list->generations[at] = scene_generations[generation];
}

/* A subset of the universe in random order. percent: how likely each identity is in it. */
static void keyed_draw(struct scene_list *list, uint32_t percent, uint32_t generations, uint64_t *seed)
{
    uint32_t order[SCENE_KEYS * SCENE_GENERATIONS];
    uint32_t total = SCENE_KEYS * generations;
    for (uint32_t i = 0; i < total; i++) {
        uint32_t j = scene_random(seed, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    list->count = 0;
    for (uint32_t i = 0; i < total; i++) {
        if (scene_random(seed, 100) < percent) {
            list_put(list, order[i] / generations, order[i] % generations);
        }
    }
}

static void list_draw(struct scene *scene, uint32_t index, uint32_t members, uint64_t *seed)
{
    uint32_t count = scene_random(seed, SCENE_ENTRIES + 1);
    uint32_t percent = scene_random(seed, 4) == 0 ? 100 : scene_random(seed, 101);
    uint32_t generations = 1 + scene_random(seed, 2);
    scene->flags[index] = (const uint32_t[]){0, 1, 3}[scene_random(seed, 3)];
    for (uint32_t member = 0; member < members; member++) {
        struct scene_list *list = &scene->lists[member][index];
        if (scene->flags[index] != 0) {
            keyed_draw(list, percent, generations, seed);
            continue;
        }
        list->count = count;
    }
}

void scene_draw(struct scene *scene, uint32_t members, uint64_t *seed)
{
    scene->list_count = scene_random(seed, SCENE_LISTS + 1);
    for (uint32_t i = 0; i < scene->list_count; i++) {
        list_draw(scene, i, members, seed);
    }
    for (uint32_t member = 0; member < members; member++) {
        scene->votes[member] = scene_random(seed, 4) == 0 ? 0 : scene_random(seed, 256);
    }
    scene_redraw(scene, members, seed);
}

void scene_redraw(struct scene *scene, uint32_t members, uint64_t *seed)
{
    for (uint32_t member = 0; member < members; member++) {
        for (uint32_t i = 0; i < scene->list_count; i++) {
            struct scene_list *list = &scene->lists[member][i];
            for (uint32_t k = 0; k < list->count; k++) {
                list->states[k] = state_draw(seed);
                list->wide_states[k] = list->states[k];
            }
        }
    }
}

void scene_call(const struct scene *scene, uint32_t member, struct poll_rank *rank, uint64_t *seed)
{
    poll_rank_reset(rank);
    rank->call.votes = scene->votes[member];
    for (uint32_t i = 0; i < scene->list_count; i++) {
        const struct scene_list *list = &scene->lists[member][i];
        bool is_wide = scene_random(seed, 2) != 0;
        bool is_keyed = scene->flags[i] != 0;
        struct convoy_poll_list *out = poll_rank_add(rank, list->states, is_keyed ? list->keys : NULL, list->count);
        out->flags = scene->flags[i];
        if (is_wide) {
            out->states = list->wide_states;
            out->state_bytes = 4;
        }
        uint32_t any = 0;
        for (uint32_t k = 0; k < list->count && is_keyed; k++) {
            any |= list->generations[k];
        }
        out->generations = is_keyed && (any != 0 || is_wide) ? list->generations : NULL;
    }
}

static void identity_finish(struct scene_identity *identity, uint32_t members, uint32_t flags, uint8_t *decided)
{
    if (identity->listed == 0) {
        return;
    }
    if (*decided != 255) {
        identity->state = *decided;
        identity->is_decided = true;
        return;
    }
    if (identity->listed < members && (flags & CONVOY_POLL_ABSENT_SKIP) == 0 && identity->state > 1) {
        identity->state = 1;
    }
    if (identity->state == 0 || identity->state == 4) {
        *decided = identity->state;
    }
}

static void keyed_reduce(const struct scene *scene, uint32_t index, uint32_t members, struct scene_memory *memory,
                         struct scene_outcome *outcome)
{
    for (uint32_t member = 0; member < members; member++) {
        const struct scene_list *list = &scene->lists[member][index];
        for (uint32_t k = 0; k < list->count; k++) {
            struct scene_identity *identity =
                &outcome->keyed[index][list->key_index[k]][list->generation_index[k]];
            identity->state = identity->listed == 0 || list->states[k] < identity->state ? list->states[k]
                                                                                         : identity->state;
            identity->listed++;
        }
    }
    for (uint32_t key = 0; key < SCENE_KEYS; key++) {
        for (uint32_t generation = 0; generation < SCENE_GENERATIONS; generation++) {
            identity_finish(&outcome->keyed[index][key][generation], members, scene->flags[index],
                            &memory->decided[index][key][generation]);
        }
    }
}

void scene_reduce(const struct scene *scene, uint32_t members, struct scene_memory *memory,
                  struct scene_outcome *outcome)
{
    memset(outcome, 0, sizeof *outcome);
    outcome->votes_and = UINT32_MAX;
    for (uint32_t member = 0; member < members; member++) {
        outcome->votes_and &= scene->votes[member];
        outcome->votes_or |= scene->votes[member];
    }
    for (uint32_t i = 0; i < scene->list_count; i++) {
        if (scene->flags[i] != 0) {
            keyed_reduce(scene, i, members, memory, outcome);
            continue;
        }
        for (uint32_t k = 0; k < scene->lists[0][i].count; k++) {
            outcome->positional[i][k] = 4;
            for (uint32_t member = 0; member < members; member++) {
                uint8_t brought = scene->lists[member][i].states[k];
                outcome->positional[i][k] = brought < outcome->positional[i][k] ? brought : outcome->positional[i][k];
            }
        }
    }
}

static void outcomes_assert(const struct scene_outcome *outcome, uint32_t index, const struct poll_rank *rank,
                            bool has_listed)
{
    size_t at = 0;
    for (uint32_t key = 0; key < SCENE_KEYS; key++) {
        for (uint32_t generation = 0; generation < SCENE_GENERATIONS; generation++) {
            const struct scene_identity *identity = &outcome->keyed[index][key][generation];
            const struct convoy_poll_outcome *got = &rank->outcomes[index][at];
            if (identity->listed == 0) {
                continue;
            }
            assert_true(at < rank->list_results[index].outcome_count);
            assert_true(got->key == scene_keys[key]);
            assert_int_equal(got->generation, scene_generations[generation]);
            assert_int_equal(got->state, identity->state);
            assert_int_equal(got->flags, identity->is_decided ? CONVOY_OUTCOME_DECIDED : 0);
            assert_true(!has_listed || got->listed_by == identity->listed);
            at++;
        }
    }
    assert_int_equal(rank->list_results[index].outcome_count, at);
}

void scene_assert(const struct scene *scene, uint32_t member, const struct scene_outcome *outcome,
                  const struct poll_rank *rank, bool has_listed)
{
    assert_int_equal(rank->result.votes_and, outcome->votes_and);
    assert_int_equal(rank->result.votes_or, outcome->votes_or);
    for (uint32_t i = 0; i < scene->list_count; i++) {
        const struct scene_list *list = &scene->lists[member][i];
        assert_int_equal(rank->list_results[i].states_count, list->count);
        assert_int_equal(rank->states[i][list->count], 0xa5);
        for (uint32_t k = 0; k < list->count; k++) {
            uint8_t expected = scene->flags[i] == 0
                                   ? outcome->positional[i][k]
                                   : outcome->keyed[i][list->key_index[k]][list->generation_index[k]].state;
            assert_int_equal(rank->states[i][k], expected);
        }
        if (scene->flags[i] != 0) {
            outcomes_assert(outcome, i, rank, has_listed);
        }
    }
}
