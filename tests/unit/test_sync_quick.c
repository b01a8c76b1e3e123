/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers over real engines: those that go the short way, what is left to the whole way, and those of one data-parallel
 * rank, which hear nobody. The other members mostly come first, so that nobody waits.
 */
#include "sync/quick.h"

#include "sync/sync_parts.h"
#include "tests/lib/expect.h"
#include "tests/lib/neighbours.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define WIDTH 8u
#define MEMBERS 3u

struct side {
    struct neighbour *member;
    struct convoy_sync *sync;
    int64_t row[WIDTH];
    uint8_t active[MEMBERS];
    struct convoy_sync_call call;
    int64_t table[MEMBERS][WIDTH];
    int64_t first[MEMBERS][WIDTH];
    struct convoy_sync_reduced reduced[WIDTH];
    uint8_t presence[MEMBERS];
    struct convoy_sync_result result;
    struct convoy_sync_short said;
    convoy_operation operation;
    uint32_t idles;
};

struct scene {
    struct neighbours *all;
    struct side sides[MEMBERS];
};

static void on_idle(void *user)
{
    ((struct side *)user)->idles++;
}

/* inner: members of one data-parallel rank. */
static void sides_open(struct scene *scene, uint32_t count, uint32_t inner)
{
    static uint8_t bytes[CONVOY_GRID_BYTES_MAX];
    struct convoy_schema schema;
    struct convoy_grid grid;
    struct convoy_blob blobs[MEMBERS];
    const struct convoy_sync_schema given = {.builtin = "sglang-8", .builtin_length = 8};
    struct convoy_grid_own own = {.member_count = count, .inner = inner, .schema = &schema};
    EXPECT_OK(convoy_schema_load(&schema, &given, NULL), NULL);
    EXPECT_OK(convoy_grid_check(&own, NULL), NULL);
    for (uint32_t i = 0; i < count; i++) {
        blobs[i] = (struct convoy_blob){bytes, convoy_grid_encode(&own, bytes, sizeof bytes)};
    }
    EXPECT_OK(convoy_grid_agree(blobs, scene->all->ids, &own, &grid, NULL), NULL);
    for (uint32_t i = 0; i < count; i++) {
        scene->sides[i].member = &scene->all->members[i];
        const struct convoy_sync_options options = {scene->sides[i].member->engine, &grid, scene->all->ids, i,
                                                    NEIGHBOURS_BLOB_BYTES, 77};
        EXPECT_OK(convoy_sync_open(&options, &scene->sides[i].sync, NULL), NULL);
    }
}

static void side_fill(struct side *side, int64_t tokens)
{
    const int64_t row[WIDTH] = {tokens, tokens, 1, 0, 1, 2, 0, 0};
    memcpy(side->row, row, sizeof row);
    memset(side->table, 0xa5, sizeof side->table);
    memset(side->active, 1, sizeof side->active);
    side->call = (struct convoy_sync_call){.struct_size = sizeof side->call, .row = side->row, .votes = 3, .tag = 9};
    side->result = (struct convoy_sync_result){
        .struct_size = sizeof side->result, .table = side->table[0], .table_capacity = MEMBERS * WIDTH,
        .first = side->first[0], .first_capacity = MEMBERS * WIDTH, .reduced = side->reduced, .reduced_capacity = WIDTH,
        .presence = side->presence, .presence_capacity = MEMBERS, .report = &side->member->report};
    side->member->report = (struct convoy_report){.struct_size = sizeof side->member->report,
                                                  .members = side->member->rows,
                                                  .member_stride = sizeof side->member->rows[0],
                                                  .member_capacity = NEIGHBOURS_MAX};
    side->member->error = (struct convoy_error)CONVOY_ERROR_INIT;
}

static void scene_fill(struct scene *scene, int64_t tokens)
{
    for (uint32_t i = 0; i < scene->all->count; i++) {
        side_fill(&scene->sides[i], tokens + i);
    }
    scene->sides[1].call.votes = 6;
}

/* All but the first contribute, the whole way. */
static void others_start(struct scene *scene)
{
    for (uint32_t i = 1; i < scene->all->count; i++) {
        struct side *side = &scene->sides[i];
        EXPECT_OK(convoy_sync_start(side->sync, &side->call, &side->operation, &side->member->error),
                  &side->member->error);
    }
}

static void others_test(struct scene *scene, int32_t status)
{
    for (uint32_t i = 1; i < scene->all->count; i++) {
        struct side *side = &scene->sides[i];
        EXPECT_STATUS(convoy_sync_test(side->sync, side->operation, &side->result, &side->member->error), status,
                      &side->member->error);
    }
}

static enum convoy_quick_end gather_short(struct side *side, uint64_t timeout_ns, int32_t *status_out)
{
    const struct convoy_quick_call how = {timeout_ns, &side->member->error, on_idle, NULL, side};
    return convoy_sync_quick(side->sync, &side->call, &how, &side->result, &side->said, status_out);
}

static int32_t gather_whole(struct side *side)
{
    return convoy_sync_gather(side->sync, &side->call, 0, &side->result, &side->member->error);
}

static void expect_table(const struct scene *scene, uint32_t index, int64_t tokens)
{
    const struct side *side = &scene->sides[index];
    for (uint32_t i = 0; i < scene->all->count; i++) {
        EXPECT_EQUAL(side->table[i][0], tokens + i);
        EXPECT_EQUAL(side->table[i][5], 2);
        EXPECT_EQUAL(side->first[i][1], tokens + i);
        EXPECT_EQUAL(side->presence[i], CONVOY_PRESENT);
    }
    EXPECT_EQUAL(side->result.votes_and, 2);
    EXPECT_EQUAL(side->result.votes_or, 7);
    EXPECT_EQUAL(side->result.width, WIDTH);
    EXPECT_EQUAL(side->result.epoch, NEIGHBOURS_EPOCH);
    EXPECT_EQUAL(side->result.mask_skew, 0);
}

/* A round of which the first member's part goes the whole way; then the next may go the short one. */
static void round_whole(struct scene *scene, int64_t tokens)
{
    scene_fill(scene, tokens);
    others_start(scene);
    EXPECT_OK(gather_whole(&scene->sides[0]), &scene->sides[0].member->error);
    others_test(scene, CONVOY_OK);
    expect_table(scene, 0, tokens);
    EXPECT(scene->sides[0].sync->quick.generation != 0);
}

static struct scene *scene_create(const char *settings)
{
    struct scene *scene = calloc(1, sizeof *scene);
    EXPECT(scene != NULL);
    scene->all = neighbours_create(MEMBERS, settings, 0);
    sides_open(scene, MEMBERS, 1);
    round_whole(scene, 5);
    return scene;
}

static void scene_destroy(struct scene *scene)
{
    for (uint32_t i = 0; i < scene->all->count; i++) {
        convoy_sync_close(scene->sides[i].sync);
    }
    neighbours_destroy(scene->all);
    free(scene);
}

/* Narrow rows (values fit 32 bits) and wide ones. */
static void test_sync_quick_gathers_all_rows(void **state)
{
    (void)state;
    static const int64_t tokens[] = {0, 100, INT32_MAX - 2, (int64_t)INT32_MAX + 1, INT64_C(1) << 40, -7};
    struct scene *scene = scene_create(NULL);
    struct side *side = &scene->sides[0];
    int32_t status = 0;
    for (uint32_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        scene_fill(scene, tokens[i]);
        others_start(scene);
        EXPECT_EQUAL(gather_short(side, 0, &status), CONVOY_QUICK_OVER);
        expect_table(scene, 0, tokens[i]);
        EXPECT_EQUAL(side->result.round, i + 2);
        EXPECT_EQUAL(side->said.tag, 9);
        EXPECT_EQUAL(side->said.votes, 3);
        EXPECT_BYTES(side->said.row, side->row, sizeof side->row);
        EXPECT_BYTES(side->said.table, side->table, sizeof side->table);
        EXPECT_EQUAL(side->reduced[0].value, tokens[i] + MEMBERS - 1);
        EXPECT_EQUAL(side->idles, i + 1);
        others_test(scene, CONVOY_OK);
        expect_table(scene, 2, tokens[i]);
        /* read again, as the whole way would have left it */
        memset(side->table, 0, sizeof side->table);
        EXPECT_OK(convoy_sync_test(side->sync, side->sync->operation, &side->result, NULL), NULL);
        expect_table(scene, 0, tokens[i]);
    }
    scene_destroy(scene);
}

/* The table alone, and a table that the caller does not want. */
static void test_sync_quick_without_other_arrays(void **state)
{
    (void)state;
    struct scene *scene = scene_create(NULL);
    struct side *side = &scene->sides[0];
    int32_t status = 0;
    for (uint32_t has_table = 0; has_table < 2; has_table++) {
        scene_fill(scene, 30);
        side->result.first = NULL;
        side->result.reduced = NULL;
        side->result.presence = NULL;
        side->result.first_capacity = side->result.reduced_capacity = side->result.presence_capacity = 0;
        side->result.table = has_table != 0 ? side->table[0] : NULL;
        EXPECT_OK(convoy_sync_check_room_any(side->sync, &side->result, NULL), NULL);
        memset(side->first, 0x77, sizeof side->first);
        others_start(scene);
        EXPECT_EQUAL(gather_short(side, 0, &status), CONVOY_QUICK_OVER);
        EXPECT_EQUAL(side->said.table[WIDTH], 31);
        EXPECT_EQUAL(side->table[2][0], has_table != 0 ? 32 : (int64_t)0xa5a5a5a5a5a5a5a5);
        EXPECT_EQUAL(side->first[0][0], 0x7777777777777777);
        others_test(scene, CONVOY_OK);
    }
    scene_destroy(scene);
}

/* A stride that changes from call to call is looked at anew, by the check and by who writes. */
static void test_sync_quick_honours_the_stride_of_reduced(void **state)
{
    (void)state;
    static const size_t strides[] = {0, 32, 16, 48, 32};
    struct convoy_sync_reduced wide[3 * WIDTH];
    struct scene *scene = scene_create(NULL);
    struct side *side = &scene->sides[0];
    int32_t status = 0;
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        size_t step = strides[i] != 0 ? strides[i] / 16 : 1;
        scene_fill(scene, 30);
        memset(wide, 0x77, sizeof wide);
        side->result.reduced = wide;
        side->result.reduced_stride = strides[i];
        EXPECT_OK(convoy_sync_check_room_any(side->sync, &side->result, NULL), NULL);
        others_start(scene);
        EXPECT_EQUAL(gather_short(side, 0, &status), CONVOY_QUICK_OVER);
        EXPECT_EQUAL(wide[0].value, 30 + MEMBERS - 1);
        EXPECT_EQUAL(wide[5 * step].value, 2);
        EXPECT_EQUAL(wide[5 * step + 1].value, step > 1 ? 0x7777777777777777 : 0);
        others_test(scene, CONVOY_OK);
    }
    scene_fill(scene, 30);
    side->result.reduced = wide;
    side->result.reduced_stride = 8; /* all else as in the call that was checked last */
    EXPECT_STATUS(gather_whole(side), CONVOY_TOO_OLD, &side->member->error);
    scene_destroy(scene);
}

static void change_policy(struct side *side) { side->call.policy = CONVOY_SYNC_ERRORS_AS_PRESENCE; }
static void change_row(struct side *side) { side->call.row = NULL; }
static void change_stride(struct side *side) { side->call.row_stride = 16; }
static void change_flags(struct side *side) { side->call.critical_flags = CONVOY_CALL_ERROR_ROW; }
static void change_version(struct side *side) { side->call.mask_version = 1; }
static void change_room(struct side *side) { side->result.table_capacity = 1; }

static void change_mask(struct side *side)
{
    side->call.active = side->active;
    side->call.active_count = MEMBERS;
}

static void test_sync_quick_other_calls_are_left_to_the_whole_way(void **state)
{
    (void)state;
    static void (*const changes[])(struct side *) = {change_policy, change_row,     change_stride, change_flags,
                                                     change_mask,   change_version, change_room};
    struct scene *scene = scene_create(NULL);
    struct side *side = &scene->sides[0];
    int32_t status = 12345;
    for (uint32_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        scene_fill(scene, 5);
        changes[i](side);
        EXPECT_EQUAL(gather_short(side, 0, &status), CONVOY_QUICK_CLOSED);
        EXPECT_EQUAL(status, 12345);
    }
    EXPECT_EQUAL(convoy_engine_next_round(side->member->engine), 2); /* nothing was sent */
    scene_fill(scene, 5);
    others_start(scene);
    EXPECT_EQUAL(gather_short(side, 0, &status), CONVOY_QUICK_OVER);
    others_test(scene, CONVOY_OK);
    scene_destroy(scene);
}

/* What a whole round leaves that no short one can build on. */
static void test_sync_quick_is_closed_after_other_rounds(void **state)
{
    (void)state;
    static void (*const changes[])(struct side *) = {change_policy, change_mask, change_version};
    struct scene *scene = scene_create(NULL);
    int32_t status = 0;
    for (uint32_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        scene_fill(scene, 5);
        for (uint32_t member = 0; member < MEMBERS; member++) {
            changes[i](&scene->sides[member]);
            scene->sides[member].active[1] = 0;
        }
        others_start(scene);
        EXPECT_OK(gather_whole(&scene->sides[0]), &scene->sides[0].member->error);
        others_test(scene, CONVOY_OK);
        scene_fill(scene, 5);
        EXPECT_EQUAL(gather_short(&scene->sides[0], 0, &status), CONVOY_QUICK_CLOSED);
        round_whole(scene, 8);
    }
    scene_destroy(scene);
}

/* How another member contributes to a round that this one begins the short way, and how that ends. */
struct ending {
    uint64_t tag;
    uint32_t policy;
    uint32_t critical_flags;
    int32_t status;
    const char *text;
};

static void test_sync_quick_unlike_peers_end_the_round_as_the_whole_way_does(void **state)
{
    (void)state;
    static const struct ending endings[] = {
        {10, 0, 0, CONVOY_DIVERGED, "step tag differs: 10 is at rank 11, 9 at this rank 10"},
        {9, CONVOY_SYNC_WORLD, 0, CONVOY_DIVERGED, "policy differs"},
        {9, 0, CONVOY_CALL_ERROR_ROW, CONVOY_PEER_ERROR, "rank 11 contributed no row in round"},
        {0, 0, 0, CONVOY_OK, ""},
    };
    struct scene *scene = scene_create(NULL);
    struct side *side = &scene->sides[0];
    for (uint32_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        int32_t status = 0;
        scene_fill(scene, 50);
        scene->sides[1].call.tag = endings[i].tag;
        scene->sides[1].call.policy = endings[i].policy;
        scene->sides[1].call.critical_flags = endings[i].critical_flags;
        others_start(scene);
        EXPECT_EQUAL(gather_short(side, 0, &status), CONVOY_QUICK_ENDED);
        EXPECT_STATUS(status, endings[i].status, &side->member->error);
        EXPECT_TEXT(side->member->error.text, endings[i].text);
        EXPECT_BYTES(side->said.row, side->row, sizeof side->row);
        EXPECT_EQUAL(side->said.tag, 9);
        for (uint32_t other = 1; other < MEMBERS; other++) {
            struct side *one = &scene->sides[other];
            EXPECT_EQUAL(convoy_sync_test(one->sync, one->operation, &one->result, NULL), endings[i].status);
        }
        round_whole(scene, 8);
    }
    scene_destroy(scene);
}

/* Rows of one member that need more bytes than those of this one. */
static void test_sync_quick_longer_row_of_a_peer(void **state)
{
    (void)state;
    struct scene *scene = scene_create(NULL);
    struct side *side = &scene->sides[0];
    int32_t status = 0;
    scene_fill(scene, INT64_C(0x7fffffff)); /* this one's row is narrow, the others' are not */
    others_start(scene);
    EXPECT_EQUAL(gather_short(side, 0, &status), CONVOY_QUICK_ENDED);
    EXPECT_OK(status, &side->member->error);
    expect_table(scene, 0, INT64_C(0x7fffffff));
    others_test(scene, CONVOY_OK);
    scene_destroy(scene);
}

static void test_sync_quick_timeout_leaves_the_round_open(void **state)
{
    (void)state;
    struct scene *scene = scene_create(NULL);
    struct side *side = &scene->sides[0];
    int32_t status = 0;
    scene_fill(scene, 60);
    EXPECT_EQUAL(gather_short(side, CONVOY_NS_PER_MS, &status), CONVOY_QUICK_ENDED);
    EXPECT_STATUS(status, CONVOY_TIMED_OUT, NULL);
    EXPECT_TEXT(side->member->error.text, "in round 2 (sync) and did not hear from ranks 11, 12");
    EXPECT_EQUAL(side->result.report->member_count, 2);
    EXPECT_EQUAL(gather_short(side, CONVOY_NS_PER_MS, &status), CONVOY_QUICK_CLOSED);
    others_start(scene);
    EXPECT_OK(convoy_sync_wait(side->sync, side->sync->operation, 0, &side->result, &side->member->error), NULL);
    expect_table(scene, 0, 60);
    others_test(scene, CONVOY_OK);
    scene_destroy(scene);
}

static void test_sync_quick_sealed_cell_is_left_to_the_whole_way(void **state)
{
    (void)state;
    struct scene *scene = scene_create(NULL);
    struct side *side = &scene->sides[0];
    int32_t status = 0;
    scene_fill(scene, 60);
    others_start(scene);
    EXPECT_STATUS(convoy_engine_abandon(scene->sides[1].member->engine, scene->sides[1].operation, NULL), CONVOY_BROKEN,
                  NULL);
    EXPECT_EQUAL(gather_short(side, 0, &status), CONVOY_QUICK_CLOSED);
    EXPECT_STATUS(gather_whole(side), CONVOY_BROKEN, NULL);
    EXPECT_TEXT(side->member->error.text, "rank 11 abandoned round 2");
    scene_destroy(scene);
}

/* -- one data-parallel rank -------------------------------------------------------------------------------------- */

static struct scene *alone_create(void)
{
    struct scene *scene = calloc(1, sizeof *scene);
    EXPECT(scene != NULL);
    scene->all = neighbours_create(2, NULL, 0);
    sides_open(scene, 2, 2);
    scene_fill(scene, 5);
    return scene;
}

static void test_sync_alone_is_over_at_once(void **state)
{
    (void)state;
    struct scene *scene = alone_create();
    struct side *side = &scene->sides[1];
    convoy_operation last = 0;
    for (int64_t tokens = 1; tokens < 4; tokens++) {
        side_fill(side, tokens);
        EXPECT_OK(convoy_sync_start(side->sync, &side->call, &side->operation, NULL), NULL);
        EXPECT(convoy_alone_owns(side->operation) && side->operation != last);
        EXPECT_STATUS(convoy_sync_test(side->sync, last, &side->result, NULL), CONVOY_CLOSED, NULL);
        EXPECT_OK(convoy_sync_wait(side->sync, side->operation, 0, &side->result, NULL), NULL);
        EXPECT_EQUAL(side->table[0][0], tokens); /* every row is this member's */
        EXPECT_EQUAL(side->table[1][0], tokens);
        EXPECT_EQUAL(side->first[0][0], tokens);
        EXPECT_EQUAL(side->result.votes_and, 3);
        EXPECT_EQUAL(side->result.votes_or, 3);
        EXPECT_EQUAL(side->result.round, 0);
        EXPECT_EQUAL(side->result.epoch, NEIGHBOURS_EPOCH);
        last = side->operation;
    }
    EXPECT_EQUAL(convoy_engine_next_round(side->member->engine), 1);
    scene_destroy(scene);
}

static void test_sync_alone_error_row(void **state)
{
    (void)state;
    struct scene *scene = alone_create();
    struct side *side = &scene->sides[0];
    side->call.critical_flags = CONVOY_CALL_ERROR_ROW;
    side->call.error_reason = -9;
    EXPECT_OK(convoy_sync_start(side->sync, &side->call, &side->operation, NULL), NULL);
    EXPECT_STATUS(convoy_sync_test(side->sync, side->operation, &side->result, &side->member->error), CONVOY_PEER_ERROR,
                  NULL);
    EXPECT_TEXT(side->member->error.text, "rank 10 contributed no row, reason -9");
    EXPECT_EQUAL(side->member->error.rank, 10);
    side->call.policy = CONVOY_SYNC_ERRORS_AS_PRESENCE;
    EXPECT_OK(convoy_sync_start(side->sync, &side->call, &side->operation, NULL), NULL);
    EXPECT_OK(convoy_sync_test(side->sync, side->operation, &side->result, NULL), NULL);
    EXPECT_EQUAL(side->presence[0], CONVOY_PRESENT_ERROR);
    EXPECT_EQUAL(side->presence[1], CONVOY_PRESENT_ERROR);
    scene_destroy(scene);
}

/* A policy that asks for it makes a round, and none such is one that a short round can follow. */
static void test_sync_alone_exchange_is_a_round(void **state)
{
    (void)state;
    struct scene *scene = alone_create();
    struct side *side = &scene->sides[0];
    int32_t status = 0;
    for (uint32_t i = 0; i < 2; i++) {
        scene->sides[i].call.policy = CONVOY_SYNC_EXCHANGE;
    }
    others_start(scene);
    EXPECT_OK(gather_whole(side), &side->member->error);
    others_test(scene, CONVOY_OK);
    EXPECT_EQUAL(side->result.round, 1);
    EXPECT_EQUAL(side->result.votes_and, 2);
    EXPECT_EQUAL(side->table[1][0], 6); /* the other's row */
    scene_fill(scene, 5);
    EXPECT_EQUAL(gather_short(side, 0, &status), CONVOY_QUICK_CLOSED);
    scene_destroy(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync_quick_gathers_all_rows),
        cmocka_unit_test(test_sync_quick_without_other_arrays),
        cmocka_unit_test(test_sync_quick_honours_the_stride_of_reduced),
        cmocka_unit_test(test_sync_quick_other_calls_are_left_to_the_whole_way),
        cmocka_unit_test(test_sync_quick_is_closed_after_other_rounds),
        cmocka_unit_test(test_sync_quick_unlike_peers_end_the_round_as_the_whole_way_does),
        cmocka_unit_test(test_sync_quick_longer_row_of_a_peer),
        cmocka_unit_test(test_sync_quick_timeout_leaves_the_round_open),
        cmocka_unit_test(test_sync_quick_sealed_cell_is_left_to_the_whole_way),
        cmocka_unit_test(test_sync_alone_is_over_at_once),
        cmocka_unit_test(test_sync_alone_error_row),
        cmocka_unit_test(test_sync_alone_exchange_is_a_round),
    };
    return cmocka_run_group_tests_name("sync_quick", tests, NULL, NULL);
}
