/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/two_level.h"

#include "tests/lib/poll_grid.h"
#include "tests/lib/poll_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t states_3[] = {3};

static void test_two_level_random_rounds_equal_a_flat_reduce(void **state)
{
    (void)state;
    static struct scene scene;
    static struct scene_outcome outcome;
    uint64_t seed = 4242;
    for (uint32_t shape = 0; shape < 40; shape++) {
        struct poll_grid *grid = poll_grid_create(1 + shape % 4, 1 + shape / 4 % 2);
        uint32_t count = grid->t_count * grid->c_count;
        struct scene_memory memory;
        scene_memory_reset(&memory);
        for (uint32_t round = 0; round < 50; round++) {
            scene_draw(&scene, count, &seed);
            for (uint32_t i = 0; i < count; i++) {
                scene_call(&scene, i, &grid->rank[i], &seed);
            }
            scene_reduce(&scene, count, &memory, &outcome);
            poll_grid_run(grid, CONVOY_OK);
            for (uint32_t i = 0; i < count; i++) {
                scene_assert(&scene, i, &outcome, &grid->rank[i], false);
            }
        }
        poll_grid_destroy(grid);
    }
}

/* sgl-project/sglang issue 21297, PR 21299: a key that becomes known at another time on each rank of a 2 x 2 shard. */
static void test_two_level_key_known_late_is_bootstrapping_until_all_know_it(void **state)
{
    (void)state;
    const uint32_t known_from[] = {5, 6, 8, 12};
    const uint64_t keys[] = {99};
    struct poll_grid *grid = poll_grid_create(2, 2);
    for (uint32_t round = 1; round <= 13; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            poll_rank_reset(&grid->rank[i]);
            struct convoy_poll_list *list = poll_rank_add(&grid->rank[i], states_3, keys, 1);
            list->count = round >= known_from[i] ? 1 : 0;
        }
        poll_grid_run(grid, CONVOY_OK);
        for (uint32_t i = 0; i < 4; i++) {
            const struct convoy_poll_outcome *outcome = &grid->rank[i].outcomes[0][0];
            assert_int_equal(grid->rank[i].list_results[0].outcome_count, round >= 5 ? 1 : 0);
            assert_true(round < 5 || outcome->state == (round < 12 ? 1 : 3));
        }
    }
    poll_grid_destroy(grid);
}

/* What one first-level group agrees on is no end: a Success there may still fail while the other group transfers. */
static void test_two_level_first_level_success_decides_nothing(void **state)
{
    (void)state;
    const uint64_t keys[] = {7};
    const uint8_t steps[3][2] = {{4, 3}, {0, 3}, {4, 4}};
    const uint8_t expected[3] = {3, 0, 0};
    struct poll_grid *grid = poll_grid_create(1, 2);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 2; i++) {
            poll_rank_reset(&grid->rank[i]);
            (void)poll_rank_add(&grid->rank[i], &steps[round][i], keys, 1);
        }
        poll_grid_run(grid, CONVOY_OK);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(grid->rank[i].states[0][0], expected[round]);
            assert_int_equal(grid->rank[i].outcomes[0][0].flags, round == 2 ? CONVOY_OUTCOME_DECIDED : 0);
        }
    }
    poll_grid_destroy(grid);
}

static void grid_fill(struct poll_grid *grid, const uint8_t *states, size_t count)
{
    for (uint32_t i = 0; i < grid->t_count * grid->c_count; i++) {
        poll_rank_reset(&grid->rank[i]);
        (void)poll_rank_add(&grid->rank[i], states, NULL, count);
    }
}

static void test_two_level_time_out_at_the_first_level_stays_open(void **state)
{
    (void)state;
    struct poll_grid *grid = poll_grid_create(2, 1);
    grid_fill(grid, (const uint8_t[]){4, 3}, 2);
    struct poll_rank *rank = &grid->rank[0];
    assert_int_equal(poll_grid_start(grid, 0), CONVOY_OK);
    assert_int_equal(convoy_two_level_wait(rank->poll, rank->operation, 1000, &rank->result, &rank->error),
                     CONVOY_TIMED_OUT);
    convoy_poll_cancel(rank->poll, "stop", 4);
    assert_int_equal(convoy_two_level_wait(rank->poll, rank->operation, 1000, &rank->result, &rank->error),
                     CONVOY_CANCELED);
    assert_int_equal(rank->states[0][0], 0xa5);
    convoy_operation unused;
    assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &unused, NULL), CONVOY_BUSY);
    assert_int_equal(poll_grid_start(grid, 1), CONVOY_OK);
    assert_int_equal(poll_grid_test(grid, 0), CONVOY_OK);
    assert_memory_equal(rank->states[0], ((const uint8_t[]){4, 3}), 2);
    poll_grid_destroy(grid);
}

static void test_two_level_second_level_open_is_busy_and_cancel_reaches_it(void **state)
{
    (void)state;
    struct poll_grid *grid = poll_grid_create(1, 2);
    grid_fill(grid, (const uint8_t[]){4}, 1);
    struct poll_rank *rank = &grid->rank[0];
    convoy_operation unused;
    assert_int_equal(poll_grid_start(grid, 0), CONVOY_OK);
    assert_int_equal(poll_grid_test(grid, 0), CONVOY_IN_PROGRESS);
    assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &unused, NULL), CONVOY_BUSY);
    assert_int_equal(convoy_poll_start(grid->second_poll[0], &rank->call, &unused, NULL), CONVOY_BUSY);
    convoy_poll_cancel(rank->poll, "stop", 4);
    assert_int_equal(convoy_two_level_wait(rank->poll, rank->operation, 1000, &rank->result, &rank->error),
                     CONVOY_CANCELED);
    assert_int_equal(poll_grid_start(grid, 1), CONVOY_OK);
    assert_int_equal(poll_grid_test(grid, 1), CONVOY_OK);
    assert_int_equal(poll_grid_test(grid, 0), CONVOY_OK);
    assert_int_equal(poll_grid_test(grid, 0), CONVOY_OK); /* readable again until the next start */
    poll_grid_destroy(grid);
}

/* A failure in one first-level group must not leave the members of the other waiting at the second level. */
static void test_two_level_failure_at_the_first_level_posts_an_error_row(void **state)
{
    (void)state;
    const uint8_t states[] = {4, 4, 4};
    struct poll_grid *grid = poll_grid_create(2, 2);
    for (uint32_t round = 0; round < 3; round++) {
        grid_fill(grid, states, 3);
        grid->rank[2].lists[0].count = 2; /* rank 2 is t 1, c 0: first group 0 diverges, group 1 does not */
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(poll_grid_start(grid, i), CONVOY_OK);
        }
        assert_int_equal(poll_grid_test(grid, 0), CONVOY_DIVERGED);
        assert_int_equal(poll_grid_test(grid, 2), CONVOY_DIVERGED);
        assert_int_equal(poll_grid_test(grid, 1), CONVOY_PEER_ERROR);
        assert_int_equal(poll_grid_test(grid, 3), CONVOY_PEER_ERROR);
        assert_int_equal(poll_grid_test(grid, 0), CONVOY_DIVERGED);
        grid_fill(grid, states, 3);
        poll_grid_run(grid, CONVOY_OK);
    }
    poll_grid_destroy(grid);
}

static void test_two_level_abandon_at_the_first_level_posts_an_error_row(void **state)
{
    (void)state;
    struct poll_grid *grid = poll_grid_create(2, 2);
    grid_fill(grid, (const uint8_t[]){4}, 1);
    assert_int_equal(poll_grid_start(grid, 0), CONVOY_OK);
    assert_int_equal(convoy_poll_abandon(grid->rank[0].poll, grid->rank[0].operation, NULL), CONVOY_BROKEN);
    assert_int_equal(poll_grid_start(grid, 1), CONVOY_OK);
    assert_int_equal(poll_grid_start(grid, 3), CONVOY_OK);
    assert_int_equal(poll_grid_test(grid, 1), CONVOY_PEER_ERROR);
    assert_int_equal(poll_grid_test(grid, 0), CONVOY_BROKEN);
    /* Rank 2 finds its first group broken when it starts, and tells its second group. */
    assert_int_equal(poll_grid_start(grid, 2), CONVOY_BROKEN);
    assert_int_equal(poll_grid_test(grid, 3), CONVOY_PEER_ERROR);
    fake_group_reopen(grid->first[0]);
    poll_grid_run(grid, CONVOY_OK);
    poll_grid_destroy(grid);
}

static void test_two_level_refused_call_tells_both_levels_when_asked(void **state)
{
    (void)state;
    struct poll_grid *grid = poll_grid_create(2, 2);
    grid_fill(grid, (const uint8_t[]){4}, 1);
    grid->rank[0].lists[0].states = (const uint8_t[]){9};
    assert_int_equal(poll_grid_start(grid, 0), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_engine_next_round(fake_group_engine(grid->first[0], 0)), 1);
    grid->rank[0].call.hint_flags = CONVOY_CALL_POST_ERROR;
    assert_int_equal(poll_grid_start(grid, 0), CONVOY_INVALID_ARGUMENT);
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(poll_grid_start(grid, i), CONVOY_OK);
    }
    assert_int_equal(poll_grid_test(grid, 2), CONVOY_PEER_ERROR);
    assert_int_equal(poll_grid_test(grid, 1), CONVOY_PEER_ERROR);
    const struct fake_group *const groups[] = {grid->first[0], grid->second[0]};
    for (uint32_t level = 0; level < 2; level++) { /* the rows differ from the others' in nothing but being errors */
        const struct convoy_contribution *row = fake_group_contribution(groups[level], 0);
        assert_true(row->is_error);
        assert_memory_equal(&row->header, &fake_group_contribution(groups[level], 1)->header, sizeof row->header);
    }
    assert_int_equal(poll_grid_test(grid, 3), CONVOY_PEER_ERROR);
    grid_fill(grid, (const uint8_t[]){4}, 1);
    poll_grid_run(grid, CONVOY_OK);
    poll_grid_destroy(grid);
}

static void test_two_level_and_plain_reduce_on_one_group_diverge(void **state)
{
    (void)state;
    struct poll_grid *grid = poll_grid_create(2, 1);
    grid_fill(grid, (const uint8_t[]){4}, 1);
    struct poll_rank *plain = &grid->rank[1];
    assert_int_equal(poll_grid_start(grid, 0), CONVOY_OK);
    assert_int_equal(convoy_poll_start(plain->poll, &plain->call, &plain->operation, NULL), CONVOY_OK);
    assert_int_equal(poll_grid_test(grid, 0), CONVOY_DIVERGED);
    assert_int_equal(convoy_poll_test(plain->poll, plain->operation, &plain->result, NULL), CONVOY_DIVERGED);
    poll_grid_destroy(grid);
}

static void test_two_level_same_group_twice_is_refused(void **state)
{
    (void)state;
    struct poll_grid *grid = poll_grid_create(1, 1);
    struct poll_rank *rank = &grid->rank[0];
    assert_int_equal(convoy_two_level_start(rank->poll, rank->poll, &rank->call, &rank->operation, &rank->error),
                     CONVOY_INVALID_ARGUMENT);
    poll_grid_destroy(grid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_level_random_rounds_equal_a_flat_reduce),
        cmocka_unit_test(test_two_level_key_known_late_is_bootstrapping_until_all_know_it),
        cmocka_unit_test(test_two_level_first_level_success_decides_nothing),
        cmocka_unit_test(test_two_level_time_out_at_the_first_level_stays_open),
        cmocka_unit_test(test_two_level_second_level_open_is_busy_and_cancel_reaches_it),
        cmocka_unit_test(test_two_level_failure_at_the_first_level_posts_an_error_row),
        cmocka_unit_test(test_two_level_abandon_at_the_first_level_posts_an_error_row),
        cmocka_unit_test(test_two_level_refused_call_tells_both_levels_when_asked),
        cmocka_unit_test(test_two_level_and_plain_reduce_on_one_group_diverge),
        cmocka_unit_test(test_two_level_same_group_twice_is_refused),
    };
    return cmocka_run_group_tests_name("two_level", tests, NULL, NULL);
}
