/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/random_scene.h"

#include <string.h>

#define ERA_STEPS 40u

static const int64_t fallbacks[SCENE_WIDTH] = {0, 0, 1, 0, 1, 4, 0, 0};
static const char ways[SCENE_WIDTH + 1] = "MMmMmemM"; /* M max, m min, e all equal but 4 */

uint32_t random_scene_pick(struct scene *scene, uint32_t below)
{
    scene->random += 0x9e3779b97f4a7c15ull;
    uint64_t value = scene->random;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)((value ^ value >> 31) >> 33) % below;
}

/* Two generations of each key, both ends of the range among the keys. */
uint64_t random_scene_key(const struct scene *scene, uint32_t identity)
{
    static const uint64_t keys[SCENE_IDENTITIES / 2] = {0,          1,           255,        1u << 20,
                                                        1ull << 32, 1ull << 63, UINT64_MAX - 1, UINT64_MAX};
    (void)scene;
    return keys[identity / 2];
}

uint32_t random_scene_generation(const struct scene *scene, uint32_t identity)
{
    return (uint32_t)scene->era + (identity % 2) * 0x80000000u;
}

/* -- drawing ------------------------------------------------------------------------------------------------------ */

static enum scene_kind draw_kind(struct scene *scene)
{
    uint32_t draw = random_scene_pick(scene, 40);
    if (draw < 6) {
        return (enum scene_kind)(SCENE_LISTS_ERROR_ROW + draw % 5);
    }
    return draw < 24 ? SCENE_LISTS : SCENE_ROW;
}

static uint8_t draw_state(struct scene *scene)
{
    uint32_t draw = random_scene_pick(scene, 16); /* mostly in the middle: decisions must stay rare to be interesting */
    return (uint8_t)(draw < 1 ? 0 : draw < 4 ? 1 : draw < 7 ? 2 : draw < 10 ? 3 : 4);
}

/* A random subset of the universe in random order. */
static void draw_identities(struct scene *scene, struct scene_list *list, uint32_t member, uint32_t percent)
{
    uint8_t order[SCENE_IDENTITIES];
    list->count[member] = 0;
    for (uint32_t i = 0; i < SCENE_IDENTITIES; i++) {
        uint32_t j = random_scene_pick(scene, i + 1);
        order[i] = order[j];
        order[j] = (uint8_t)i;
    }
    for (uint32_t i = 0; i < SCENE_IDENTITIES; i++) {
        if (random_scene_pick(scene, 100) < percent) {
            list->identities[member][list->count[member]++] = order[i];
        }
    }
}

static void draw_list(struct scene *scene, struct scene_list *list)
{
    static const uint32_t kinds[3] = {0, CONVOY_POLL_KEYED, CONVOY_POLL_KEYED | CONVOY_POLL_ABSENT_SKIP};
    uint32_t count = random_scene_pick(scene, 4) == 0 ? 0 : random_scene_pick(scene, SCENE_ENTRIES_MAX + 1);
    uint32_t percent = random_scene_pick(scene, 4) == 0 ? 100 : random_scene_pick(scene, 101);
    list->flags = kinds[random_scene_pick(scene, 3)];
    for (uint32_t i = 0; i < scene->members; i++) {
        list->count[i] = count;
        if (list->flags != 0) {
            draw_identities(scene, list, i, random_scene_pick(scene, 6) == 0 ? 0 : percent);
        }
        for (uint32_t k = 0; k < list->count[i]; k++) {
            list->states[i][k] = draw_state(scene);
        }
    }
}

static int64_t draw_value(struct scene *scene, uint32_t column)
{
    static const int64_t extremes[] = {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, (int64_t)INT32_MIN - 1,
                                       (int64_t)INT32_MAX + 1};
    uint32_t draw = random_scene_pick(scene, 60);
    if (draw < 12) {
        return draw < 6 ? extremes[draw] : 0;
    }
    return column == 5 ? 1 + random_scene_pick(scene, 5) : random_scene_pick(scene, 8192);
}

static void draw_rows(struct scene *scene)
{
    uint64_t version = random_scene_pick(scene, 1000);
    bool is_masked = random_scene_pick(scene, 4) == 0;
    uint8_t mask[SCENE_MEMBERS_MAX];
    for (uint32_t i = 0; i < scene->members; i++) {
        mask[i] = !is_masked || random_scene_pick(scene, 3) != 0;
    }
    for (uint32_t i = 0; i < scene->members; i++) {
        scene->has_row[i] = random_scene_pick(scene, 10) != 0;
        bool is_old = i != 0 && version != 0 && random_scene_pick(scene, 20) == 0;
        scene->mask_version[i] = version - is_old;
        for (uint32_t j = 0; j < scene->members; j++) {
            scene->active[i][j] = is_old ? 1 : mask[j];
        }
        for (uint32_t column = 0; column < SCENE_WIDTH; column++) {
            int64_t value = draw_value(scene, column);
            scene->rows[i][column] = scene->has_row[i] ? value : fallbacks[column];
        }
    }
}

void random_scene_draw(struct scene *scene, uint64_t seed, uint64_t step, const uint32_t *members)
{
    scene->random = seed ^ step * 0xd1342543de82ef95ull;
    scene->kind = draw_kind(scene);
    scene->group = random_scene_pick(scene, 2);
    scene->members = members[scene->group];
    scene->odd = random_scene_pick(scene, scene->members);
    scene->reason = (int32_t)random_scene_pick(scene, 1000) - 500;
    scene->tag = random_scene_pick(scene, 3) == 0 && scene->kind != SCENE_OTHER_TAG ? 0 : step;
    scene->era = step / ERA_STEPS;
    scene->list_count = random_scene_pick(scene, SCENE_LISTS_MAX);
    for (uint32_t i = 0; i < scene->members; i++) {
        scene->votes[i] = random_scene_pick(scene, 3) == 0 ? 0 : random_scene_pick(scene, 256) | 0x40000000u;
    }
    for (uint32_t i = 0; i < scene->list_count; i++) {
        draw_list(scene, &scene->lists[i]);
    }
    draw_rows(scene);
}

/* -- the plain computation ----------------------------------------------------------------------------------------- */

static void expect_positional(const struct scene_list *list, uint32_t members, uint8_t *states)
{
    for (uint32_t k = 0; k < list->count[0]; k++) {
        states[k] = 4;
        for (uint32_t i = 0; i < members; i++) {
            states[k] = list->states[i][k] < states[k] ? list->states[i][k] : states[k];
        }
    }
}

static void finish_identity(struct scene_identity *identity, uint32_t members, uint32_t flags, uint8_t *decided)
{
    if (identity->listed_by == 0) {
        return;
    }
    if (*decided != SCENE_UNDECIDED) {
        identity->state = *decided;
        identity->is_decided = true;
        return;
    }
    bool is_held_back = identity->listed_by < members && (flags & CONVOY_POLL_ABSENT_SKIP) == 0;
    identity->state = is_held_back && identity->state > 1 ? 1 : identity->state;
    if (identity->state == 0 || identity->state == 4) {
        *decided = identity->state;
    }
}

static void expect_keyed(const struct scene_list *list, uint32_t members, uint8_t *decided,
                         struct scene_identity *identities)
{
    for (uint32_t i = 0; i < members; i++) {
        for (uint32_t k = 0; k < list->count[i]; k++) {
            struct scene_identity *identity = &identities[list->identities[i][k]];
            bool is_lower = identity->listed_by == 0 || list->states[i][k] < identity->state;
            identity->state = is_lower ? list->states[i][k] : identity->state;
            identity->listed_by++;
        }
    }
    for (uint32_t i = 0; i < SCENE_IDENTITIES; i++) {
        finish_identity(&identities[i], members, list->flags, &decided[i]);
    }
}

static void expect_lists(const struct scene *scene, struct scene_memory *memory, struct scene_expected *expected)
{
    if (memory->era != scene->era) {
        memory->era = scene->era;
        memset(memory->decided, SCENE_UNDECIDED, sizeof memory->decided);
    }
    for (uint32_t i = 0; i < scene->list_count; i++) {
        if (scene->lists[i].flags == 0) {
            expect_positional(&scene->lists[i], scene->members, expected->positional[i]);
        } else {
            expect_keyed(&scene->lists[i], scene->members, memory->decided[i], expected->keyed[i]);
        }
    }
}

/* The mask of the lowest member with the highest version counts; whoever is behind is skew. */
static uint32_t expect_mask(const struct scene *scene, struct scene_expected *expected)
{
    bool has_error = scene->kind == SCENE_ROW_ERROR_ROW;
    uint32_t winner = UINT32_MAX;
    for (uint32_t i = 0; i < scene->members; i++) {
        if ((!has_error || i != scene->odd) &&
            (winner == UINT32_MAX || scene->mask_version[i] > scene->mask_version[winner])) {
            winner = i;
        }
    }
    for (uint32_t i = 0; i < scene->members; i++) {
        expected->mask_skew += (!has_error || i != scene->odd) && scene->mask_version[i] < scene->mask_version[winner];
    }
    expected->mask_version = scene->mask_version[winner];
    return winner;
}

static void expect_column(const struct scene *scene, uint32_t inner, uint32_t column, struct scene_expected *expected)
{
    struct convoy_sync_reduced *reduced = &expected->reduced[column];
    const char way = ways[column];
    uint32_t counted = 0;
    reduced->value = fallbacks[column];
    for (uint32_t i = 0; i < scene->members; i += inner) {
        int64_t value = expected->table[i][column];
        if (expected->presence[i] != CONVOY_PRESENT || (way == 'e' && value == 4)) {
            continue;
        }
        bool is_better = (way == 'M' && value > reduced->value) || (way == 'm' && value < reduced->value);
        reduced->agreed = counted == 0 || way != 'e' || (reduced->agreed && value == reduced->value);
        reduced->value = counted == 0 || is_better ? value : reduced->value;
        counted++;
    }
}

static void expect_rows(const struct scene *scene, uint32_t inner, struct scene_expected *expected)
{
    uint32_t winner = expect_mask(scene, expected);
    for (uint32_t i = 0; i < scene->members; i++) {
        bool is_error = scene->kind == SCENE_ROW_ERROR_ROW && i == scene->odd;
        expected->presence[i] = is_error                    ? CONVOY_PRESENT_ERROR
                                : scene->active[winner][i] ? CONVOY_PRESENT
                                                           : CONVOY_PRESENT_INACTIVE;
        memcpy(expected->table[i], expected->presence[i] == CONVOY_PRESENT ? scene->rows[i] : fallbacks,
               sizeof fallbacks);
    }
    for (uint32_t column = 0; column < SCENE_WIDTH; column++) {
        expect_column(scene, inner, column, expected);
    }
}

void random_scene_expect(const struct scene *scene, uint32_t inner, struct scene_memory *memory,
                  struct scene_expected *expected_out)
{
    static const int32_t statuses[SCENE_KINDS] = {CONVOY_OK,       CONVOY_OK,       CONVOY_PEER_ERROR, CONVOY_OK,
                                                  CONVOY_DIVERGED, CONVOY_DIVERGED, CONVOY_DIVERGED};
    memset(expected_out, 0, sizeof *expected_out);
    expected_out->status = statuses[scene->kind];
    expected_out->votes_and = UINT32_MAX;
    for (uint32_t i = 0; i < scene->members; i++) {
        expected_out->votes_and &= scene->votes[i];
        expected_out->votes_or |= scene->votes[i];
    }
    if (scene->kind == SCENE_LISTS) {
        expect_lists(scene, memory, expected_out);
    } else if (scene->kind == SCENE_ROW || scene->kind == SCENE_ROW_ERROR_ROW) {
        expect_rows(scene, inner, expected_out);
    }
}
