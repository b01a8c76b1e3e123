/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole gathers without an engine: calls are captured, merged over random partitions into hosts, placed and delivered,
 * and compared with a plain computation over all inputs that uses nothing of src/.
 */
#include "sync/deliver.h"
#include "sync/intake.h"

#include "tests/lib/fake_round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 16u
#define SLOTS 20u
#define WIDTH 8u
#define NO_SLOT 0xffffffffu
#define ROUNDS 20000u

static const int64_t fallbacks[WIDTH] = {0, 0, 1, 0, 1, 4, 0, 0};
static const char ways[WIDTH + 1] = "MMmMmemM"; /* M max, m min, e all equal but 4 */

/* What all members bring to one round, and what each of them is. */
struct scene {
    uint64_t random;
    uint32_t members;
    uint32_t inner;
    uint32_t slots;
    uint32_t declared[MEMBERS]; /* 7 or 8 columns */
    bool is_world;
    struct convoy_sync_call calls[MEMBERS];
    int64_t rows[MEMBERS][WIDTH];
    uint8_t active[MEMBERS][MEMBERS];
    enum convoy_absence absence[MEMBERS];
};

/* The plain computation. */
struct expected {
    bool is_diverged;
    enum convoy_conflict_kind kind;
    uint32_t first;
    uint32_t second;
    uint64_t version;
    uint32_t skew;
    uint8_t presence[SLOTS * MEMBERS];
    int64_t table[SLOTS * MEMBERS][WIDTH];
    struct convoy_sync_reduced reduced[WIDTH];
};

static uint32_t draw(struct scene *scene, uint32_t below)
{
    scene->random = scene->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(scene->random >> 33) % below;
}

static int64_t draw_value(struct scene *scene, uint32_t column)
{
    static const int64_t extremes[] = {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, (int64_t)INT32_MIN - 1,
                                       (int64_t)INT32_MAX + 1, 0, -1};
    switch (draw(scene, 12)) {
    case 0:
        return extremes[draw(scene, 8)];
    case 1:
        return 0;
    default:
        return column == 5 ? 1 + draw(scene, 5) : draw(scene, 8192);
    }
}

static void draw_mask(struct scene *scene, uint32_t member, uint64_t version, uint32_t bits)
{
    struct convoy_sync_call *call = &scene->calls[member];
    call->mask_version = draw(scene, 20) == 0 && version != 0 ? version - 1 : version;
    if (draw(scene, 400) == 0) {
        bits ^= 1u; /* one that disagrees */
    }
    for (uint32_t i = 0; i < scene->members; i++) {
        scene->active[member][i] = (uint8_t)(bits >> i & 1u);
    }
    bool is_full = (bits & ((1u << scene->members) - 1u)) == (1u << scene->members) - 1u;
    call->active = is_full && draw(scene, 2) == 0 ? NULL : scene->active[member];
    call->active_count = call->active != NULL ? scene->members : 0;
}

static void draw_shape(struct scene *scene)
{
    scene->members = 1 + draw(scene, MEMBERS);
    do {
        scene->inner = 1 + draw(scene, scene->members);
    } while (scene->members % scene->inner != 0);
    scene->slots = scene->members / scene->inner + draw(scene, 4);
    bool is_mixed = draw(scene, 4) == 0;
    uint32_t declared = 7 + draw(scene, 2);
    for (uint32_t i = 0; i < scene->members; i++) {
        scene->declared[i] = is_mixed ? 7 + draw(scene, 2) : declared;
    }
}

static uint32_t draw_slot(struct scene *scene, uint32_t member)
{
    uint32_t rank = member / scene->inner;
    switch (draw(scene, 150)) {
    case 0:
        return draw(scene, scene->slots);
    case 1:
        return NO_SLOT;
    default:
        return scene->slots - 1 - rank;
    }
}

static void draw_round(struct scene *scene)
{
    uint64_t version = draw(scene, 3);
    uint32_t bits = scene->members == 4 ? draw(scene, 16) : draw(scene, 4) == 0 ? draw(scene, 1u << 16) : 0xffffu;
    scene->is_world = draw(scene, 3) == 0;
    memset(scene->calls, 0, sizeof scene->calls);
    for (uint32_t i = 0; i < scene->members; i++) {
        struct convoy_sync_call *call = &scene->calls[i];
        bool is_zero = draw(scene, 8) == 0;
        scene->absence[i] = draw(scene, 25) == 0 ? CONVOY_ABSENT_LOST + draw(scene, 2) : 0;
        for (uint32_t j = 0; j < WIDTH; j++) {
            scene->rows[i][j] = is_zero ? 0 : draw_value(scene, j);
        }
        call->row = draw(scene, 16) == 0 ? NULL : scene->rows[i];
        if (call->row == NULL) {
            memcpy(scene->rows[i], fallbacks, sizeof fallbacks);
        }
        draw_mask(scene, i, version, bits);
        call->policy = CONVOY_SYNC_ERRORS_AS_PRESENCE | (scene->is_world ? CONVOY_SYNC_WORLD : 0);
        call->slot = draw_slot(scene, i);
    }
}

/* -- the plain computation --------------------------------------------------------------------------------------- */

static bool is_active(const struct scene *scene, uint32_t by, uint32_t member)
{
    return scene->calls[by].active == NULL || scene->active[by][member] != 0;
}

/* Lowest member of the highest version, or NO_SLOT when nobody is there. */
static uint32_t expect_mask(const struct scene *scene, struct expected *expected)
{
    uint32_t winner = NO_SLOT;
    for (uint32_t i = 0; i < scene->members; i++) {
        bool is_better = winner == NO_SLOT || scene->calls[i].mask_version > scene->calls[winner].mask_version;
        winner = scene->absence[i] == 0 && is_better ? i : winner;
    }
    for (uint32_t i = 0; i < scene->members && winner != NO_SLOT; i++) {
        if (scene->absence[i] != 0) {
            continue;
        }
        bool is_same = true;
        for (uint32_t j = 0; j < scene->members; j++) {
            is_same = is_same && is_active(scene, i, j) == is_active(scene, winner, j);
        }
        bool is_current = scene->calls[i].mask_version == scene->calls[winner].mask_version;
        expected->skew += !is_current;
        if (is_current && !is_same && !expected->is_diverged) {
            expected->is_diverged = true;
            expected->kind = CONVOY_CONFLICT_MASK;
            expected->first = winner;
            expected->second = i;
        }
    }
    expected->version = winner != NO_SLOT ? scene->calls[winner].mask_version : 0;
    return winner;
}

/* First pair, by the higher member, of members whose slots cannot both be. */
static void expect_slots(const struct scene *scene, struct expected *expected)
{
    for (uint32_t i = 0; i < scene->members && !expected->is_diverged; i++) {
        for (int same_rank = 1; same_rank >= 0 && !expected->is_diverged; same_rank--) {
            for (uint32_t j = 0; j < i && !expected->is_diverged; j++) {
                uint32_t slots[2] = {scene->calls[j].slot, scene->calls[i].slot};
                bool is_rank = j / scene->inner == i / scene->inner;
                bool is_claim = scene->absence[i] == 0 && scene->absence[j] == 0 && slots[0] != NO_SLOT &&
                                slots[1] != NO_SLOT;
                if (is_claim && is_rank == same_rank && (slots[0] == slots[1]) != is_rank) {
                    expected->is_diverged = true;
                    expected->kind = is_rank ? CONVOY_CONFLICT_RANK_SLOT : CONVOY_CONFLICT_SLOT;
                    expected->first = j;
                    expected->second = i;
                }
            }
        }
    }
}

static uint32_t slot_of_rank(const struct scene *scene, uint32_t rank)
{
    if (!scene->is_world) {
        return rank;
    }
    for (uint32_t i = rank * scene->inner; i < (rank + 1) * scene->inner; i++) {
        if (scene->absence[i] == 0 && scene->calls[i].slot != NO_SLOT) {
            return scene->calls[i].slot;
        }
    }
    return NO_SLOT;
}

static void expect_cells(const struct scene *scene, uint32_t winner, uint32_t width, struct expected *expected)
{
    for (uint32_t cell = 0; cell < scene->slots * scene->inner; cell++) {
        expected->presence[cell] = CONVOY_PRESENT_EMPTY;
        memcpy(expected->table[cell], fallbacks, sizeof fallbacks);
    }
    for (uint32_t i = 0; i < scene->members; i++) {
        uint32_t slot = slot_of_rank(scene, i / scene->inner);
        if (slot == NO_SLOT || (scene->is_world && scene->absence[i] == 0 && scene->calls[i].slot == NO_SLOT)) {
            continue;
        }
        uint32_t cell = slot * scene->inner + i % scene->inner;
        expected->presence[cell] = scene->absence[i] == CONVOY_ABSENT_LOST    ? CONVOY_PRESENT_LOST
                                   : scene->absence[i] == CONVOY_ABSENT_ERROR ? CONVOY_PRESENT_ERROR
                                   : is_active(scene, winner, i)              ? CONVOY_PRESENT
                                                                              : CONVOY_PRESENT_INACTIVE;
        if (expected->presence[cell] == CONVOY_PRESENT) {
            memcpy(expected->table[cell], scene->rows[i], 8 * width);
        }
    }
}

static void expect_reduced(const struct scene *scene, uint32_t column, struct expected *expected)
{
    struct convoy_sync_reduced *reduced = &expected->reduced[column];
    char way = ways[column];
    uint32_t counted = 0;
    *reduced = (struct convoy_sync_reduced){.value = fallbacks[column], .agreed = 0};
    for (uint32_t slot = 0; slot < scene->slots; slot++) {
        int64_t value = expected->table[slot * scene->inner][column];
        if (expected->presence[slot * scene->inner] != CONVOY_PRESENT || (way == 'e' && value == 4)) {
            continue;
        }
        bool is_better = (way == 'M' && value > reduced->value) || (way == 'm' && value < reduced->value);
        reduced->agreed = counted == 0 || way != 'e' || (reduced->agreed && value == reduced->value);
        reduced->value = counted == 0 || is_better ? value : reduced->value;
        counted++;
    }
}

static void expect_all(const struct scene *scene, struct expected *expected)
{
    memset(expected, 0, sizeof *expected);
    uint32_t width = WIDTH;
    for (uint32_t i = 0; i < scene->members; i++) {
        width = scene->declared[i] < width ? scene->declared[i] : width;
    }
    uint32_t winner = expect_mask(scene, expected);
    if (scene->is_world) {
        expect_slots(scene, expected);
    }
    if (!expected->is_diverged) {
        expect_cells(scene, winner, width, expected);
        for (uint32_t column = 0; column < WIDTH; column++) {
            expect_reduced(scene, column, expected);
        }
    }
}

/* -- the code under test ------------------------------------------------------------------------------------------ */

static int32_t ids[MEMBERS];

static void agree_grids(const struct scene *scene, struct convoy_grid *grids)
{
    static uint8_t bytes[MEMBERS][CONVOY_GRID_BYTES_MAX];
    static struct convoy_schema schemas[MEMBERS];
    struct convoy_blob blobs[MEMBERS];
    struct convoy_grid_own own[MEMBERS];
    for (uint32_t i = 0; i < scene->members; i++) {
        struct convoy_sync_schema given = {.builtin = scene->declared[i] == 7 ? "sglang-7" : "sglang-8",
                                           .builtin_length = 8};
        assert_int_equal(convoy_schema_load(&schemas[i], &given, NULL), CONVOY_OK);
        own[i] = (struct convoy_grid_own){scene->members, scene->inner, scene->slots, &schemas[i]};
        assert_int_equal(convoy_grid_check(&own[i], NULL), CONVOY_OK);
        blobs[i] = (struct convoy_blob){bytes[i], convoy_grid_encode(&own[i], bytes[i], sizeof bytes[i])};
    }
    for (uint32_t i = 0; i < scene->members; i++) {
        assert_int_equal(convoy_grid_agree(blobs, ids, &own[i], &grids[i], NULL), CONVOY_OK);
        assert_true(grids[i].hash == grids[0].hash);
    }
}

static void check_result(const struct scene *scene, const struct convoy_grid *grid, const struct convoy_gather *gather,
                         const struct convoy_placement *placement, const struct expected *expected)
{
    int64_t table[SLOTS * MEMBERS * WIDTH];
    int64_t first[SLOTS * WIDTH];
    struct convoy_sync_reduced reduced[WIDTH];
    uint8_t presence[SLOTS * MEMBERS];
    struct convoy_sync_result result = {.table = table, .first = first, .reduced = reduced, .presence = presence};
    uint32_t width = grid->own.count;
    convoy_deliver_write(grid, gather, placement, &result);
    assert_memory_equal(presence, expected->presence, scene->slots * scene->inner);
    for (uint32_t cell = 0; cell < scene->slots * scene->inner; cell++) {
        assert_memory_equal(table + cell * width, expected->table[cell], 8 * width);
    }
    for (uint32_t slot = 0; slot < scene->slots; slot++) {
        assert_memory_equal(first + slot * width, expected->table[slot * scene->inner], 8 * width);
    }
    assert_memory_equal(reduced, expected->reduced, width * sizeof reduced[0]);
    assert_true(result.mask_version == expected->version);
    assert_int_equal(result.mask_skew, expected->skew);
    assert_int_equal(result.width, width);
}

static void check_state(const struct scene *scene, const struct convoy_grid *grid, const struct convoy_gather *gather,
                        const struct expected *expected)
{
    struct convoy_placement placement;
    struct convoy_conflict conflict;
    assert_int_equal(convoy_placement_init(&placement, grid, NULL), CONVOY_OK);
    bool is_placed = convoy_placement_compute(&placement, gather, &conflict);
    assert_int_equal(is_placed, !expected->is_diverged);
    if (is_placed) {
        check_result(scene, grid, gather, &placement, expected);
    } else {
        assert_int_equal(conflict.kind, expected->kind);
        assert_int_equal(conflict.first, expected->first);
        assert_int_equal(conflict.second, expected->second);
    }
    convoy_placement_fini(&placement);
}

/* The states of all hosts, and one more; see fake_round. */
struct states {
    struct convoy_gather gathers[MEMBERS + 1];
    void *pointers[MEMBERS + 1];
    uint32_t host_of[MEMBERS];
    uint32_t hosts;
};

static void draw_hosts(struct scene *scene, struct states *states)
{
    states->hosts = 1 + draw(scene, scene->members);
    for (uint32_t i = 0; i < scene->members; i++) {
        states->host_of[i] = i < states->hosts ? i : draw(scene, states->hosts);
    }
}

static void run_round(struct scene *scene, const struct convoy_grid *grids, struct states *states)
{
    static uint8_t payloads[MEMBERS][CONVOY_ROW_BYTES_MAX];
    struct fake_round_member members[MEMBERS];
    struct expected expected;
    draw_round(scene);
    draw_hosts(scene, states);
    expect_all(scene, &expected);
    for (uint32_t i = 0; i < scene->members; i++) {
        assert_int_equal(convoy_intake_check(&grids[i], &scene->calls[i], NULL), CONVOY_OK);
        size_t length = convoy_intake_encode(&grids[i], &scene->calls[i], i, payloads[i]);
        members[i] = (struct fake_round_member){payloads[i], length, scene->absence[i]};
    }
    for (uint32_t i = 0; i <= states->hosts; i++) {
        convoy_gather_prepare(&states->gathers[i], scene->is_world);
    }
    struct fake_round round = {&convoy_gather_ops, members, scene->members, states->host_of, states->hosts,
                               states->pointers, convoy_gather_partial_bytes_max(&grids[0])};
    assert_int_equal(fake_round_run(&round), CONVOY_OK);
    for (uint32_t i = 0; i <= states->hosts; i++) {
        check_state(scene, &grids[i % scene->members], &states->gathers[i], &expected);
    }
}

/*
 * sgl-project/sglang PR 20853 and issue 26454: reduced facts are the same on all ranks, whatever each brought.
 * uccl-project/uccl PR 940: rows without tokens, and no row at all, take part like any other.
 */
static void test_sync_random_rounds_equal_a_plain_computation(void **state)
{
    (void)state;
    struct scene scene = {.random = 20240229};
    static struct convoy_grid grids[MEMBERS];
    static struct states states;
    for (uint32_t done = 0; done < ROUNDS; done += 50) {
        draw_shape(&scene);
        agree_grids(&scene, grids);
        for (uint32_t i = 0; i <= scene.members; i++) {
            assert_int_equal(convoy_gather_init(&states.gathers[i], &grids[0], NULL), CONVOY_OK);
            states.pointers[i] = &states.gathers[i];
        }
        for (uint32_t round = 0; round < 50; round++) {
            run_round(&scene, grids, &states);
        }
        for (uint32_t i = 0; i <= scene.members; i++) {
            convoy_gather_fini(&states.gathers[i]);
        }
    }
}

int main(void)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        ids[i] = (int32_t)(100 + i);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync_random_rounds_equal_a_plain_computation),
    };
    return cmocka_run_group_tests_name("sync_rounds", tests, NULL, NULL);
}
