/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of a replay, each in a thread of this process: they finish a trace with results that the reference checker
 * accepts, stop when they are asked to, and put on the board what made them fail.
 */
#include "cli/options.h"
#include "cli/replay.h"
#include "cli/run_check.h"
#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/plugin.h"

#include <pthread.h>
#include <sched.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cli_capture.h"
#include "plugin_files.h"

#include <cmocka.h>

/* Two bursts, with an idle gap of ten minutes between them, which the replay jumps over. */
static struct convoy_trace_request requests[] = {
    {40000, 100, 3}, {40000, 4000, 1}, {40010, 50, 2}, {40100, 900, 5}, {40100, 20, 1}, {640000, 100, 2}, {640005, 10, 1}};
static const struct convoy_trace trace = {.requests = requests, .count = 7, .capacity = 7};

static struct convoy_rank_setup setup;
static struct cli_output output;

struct party {
    pthread_t thread;
    uint32_t rank;
    int code;
    struct convoy_rank result; /* for tests that make the calls themselves */
    int32_t status;
};

static struct party party[CONVOY_SHAPE_RANKS_MAX];

static void set_up(const char *folder, uint32_t dp, uint32_t tp, uint32_t cp)
{
    setup = (struct convoy_rank_setup){.shape = {.dp = dp, .tp = tp, .cp = cp},
                                       .trace = &trace,
                                       .plugin = plugin_path(),
                                       .log_directory = folder,
                                       .log_limit_bytes = 4u << 20,
                                       .seed = 3,
                                       .timeout_ns = 20 * CONVOY_NS_PER_S,
                                       .board = convoy_board_create(dp * tp * cp)};
    assert_non_null(setup.board);
    for (uint32_t i = 0; i < convoy_rank_port_count(&setup.shape); i++) {
        setup.ports[i] = plugin_port();
    }
}

static void *replay_thread(void *user)
{
    struct party *self = user;
    self->code = convoy_replay_rank(&setup, self->rank);
    return NULL;
}

static void run_threads(void *(*run)(void *))
{
    for (uint32_t i = 0; i < setup.board->rank_count; i++) {
        party[i].rank = i;
        assert_int_equal(pthread_create(&party[i].thread, NULL, run, &party[i]), 0);
    }
    for (uint32_t i = 0; i < setup.board->rank_count; i++) {
        assert_int_equal(pthread_join(party[i].thread, NULL), 0);
    }
}

static int check_logs(int argc, char **argv)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_run_check check = {
        .log_directory = setup.log_directory, .rank_count = setup.board->rank_count, .may_end_early = argc > 1};
    (void)argv;
    return convoy_run_check(&check, &error) == CONVOY_OK ? 0 : 1;
}

static void expect_equal_logs(bool may_end_early)
{
    const char *words[] = {"check", may_end_early ? "early" : NULL, NULL};
    cli_run(&output, check_logs, words);
    if (output.code != 0) {
        fail_msg("the checker refuses: %s%s", output.out, output.err);
    }
}

static void expect_ends(enum convoy_board_outcome outcome, int code)
{
    assert_int_equal(convoy_board_count(setup.board, CONVOY_BOARD_ENDED), setup.board->rank_count);
    for (uint32_t i = 0; i < setup.board->rank_count; i++) {
        assert_int_equal(setup.board->ranks[i].outcome, outcome);
        assert_int_equal(party[i].code, code);
    }
}

static void test_replay_of_all_shapes_ends_with_equal_results(void **state)
{
    static const uint32_t shapes[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        set_up(*state, shapes[i][0], shapes[i][1], shapes[i][2]);
        run_threads(replay_thread);
        expect_ends(CONVOY_BOARD_FINISHED, CONVOY_EXIT_OK);
        uint64_t done = 0;
        for (uint32_t rank = 0; rank < setup.board->rank_count; rank += convoy_shape_shard(&setup.shape)) {
            done += setup.board->ranks[rank].committed + setup.board->ranks[rank].dropped;
        }
        assert_int_equal(done, trace.count);
        const struct convoy_board_rank *first = &setup.board->ranks[0];
        assert_string_equal(first->release, CONVOY_RELEASE);
        assert_int_equal(first->gather.count, first->steps);
        assert_int_equal(first->rounds, first->gather.count + 2 * first->reduce.count);
        assert_true(first->steps < 2000); /* the gap alone has 30,000 */
        expect_equal_logs(false);
        convoy_board_destroy(setup.board);
    }
}

/* 600 s of trace at 10,000 times the speed; that it begins at 40 s costs nothing. */
static void test_replay_with_a_speed_keeps_the_pace(void **state)
{
    set_up(*state, 1, 1, 1);
    setup.speed = 10000;
    uint64_t began_ns = convoy_now_ns();
    run_threads(replay_thread);
    uint64_t took_ns = convoy_now_ns() - began_ns;
    expect_ends(CONVOY_BOARD_FINISHED, CONVOY_EXIT_OK);
    assert_true(took_ns >= 60 * CONVOY_NS_PER_MS);
    assert_true(setup.board->ranks[0].wall_ns >= 59 * CONVOY_NS_PER_MS && setup.board->ranks[0].wall_ns <= took_ns);
    expect_equal_logs(false);
    convoy_board_destroy(setup.board);
}

/* One wish is enough: it goes round with the votes, and all leave at the same step. */
static void test_replay_stops_together_when_asked(void **state)
{
    set_up(*state, 2, 1, 1);
    setup.speed = 0.001; /* without the wish it would sleep for days */
    atomic_store(&setup.board->is_stop_wanted, 1);
    run_threads(replay_thread);
    expect_ends(CONVOY_BOARD_STOPPED, CONVOY_EXIT_OK);
    assert_int_equal(setup.board->ranks[0].steps, 1);
    assert_int_equal(setup.board->ranks[1].steps, 1);
    expect_equal_logs(false);
    convoy_board_destroy(setup.board);
}

static void test_replay_diverged_tag_fails_all_ranks_with_the_field(void **state)
{
    set_up(*state, 2, 1, 1);
    setup.fault = (struct convoy_run_fault){.kind = CONVOY_RUN_FAULT_DIVERGE, .rank = 1, .step = 2};
    run_threads(replay_thread);
    expect_ends(CONVOY_BOARD_FAILED, CONVOY_EXIT_FAILURE);
    for (int i = 0; i < 2; i++) {
        const struct convoy_board_failure *failure = &setup.board->ranks[i].failure;
        assert_string_equal(failure->call, "gather");
        assert_int_equal(failure->error.status, CONVOY_DIVERGED);
        assert_int_equal(failure->field, CONVOY_FIELD_TAG);
        assert_int_equal(failure->member_count, 2);
        assert_int_equal(setup.board->ranks[i].steps, 2);
        assert_false(failure->was_abandoned); /* a diverged operation is over */
    }
    expect_equal_logs(true);
    convoy_board_destroy(setup.board);
}

/* Rank 1 sleeps longer than the timeout, so rank 0 gives the open operation up; rank 1 then finds it gone. */
static void test_replay_stalled_rank_is_reported_as_missing(void **state)
{
    set_up(*state, 2, 1, 1);
    setup.timeout_ns = 200 * CONVOY_NS_PER_MS;
    setup.fault = (struct convoy_run_fault){.kind = CONVOY_RUN_FAULT_STALL, .rank = 1, .step = 1, .stall_ms = 1500};
    run_threads(replay_thread);
    expect_ends(CONVOY_BOARD_FAILED, CONVOY_EXIT_FAILURE);
    const struct convoy_board_failure *failure = &setup.board->ranks[0].failure;
    assert_string_equal(failure->call, "gather");
    assert_int_equal(failure->error.status, CONVOY_TIMED_OUT);
    assert_int_equal(failure->member_count, 1);
    assert_int_equal(failure->members[0].index, 1);
    assert_int_equal(failure->members[0].condition, CONVOY_MEMBER_MISSING);
    assert_true(failure->elapsed_ns >= setup.timeout_ns);
    assert_true(failure->was_abandoned);
    convoy_board_destroy(setup.board);
}

static void test_replay_that_cannot_open_says_what_is_missing(void **state)
{
    static char longest[5000];
    memset(longest, 'a', sizeof longest - 1);
    const struct {
        const char *plugin;
        const char *folder;
        int32_t status;
        const char *text;
    } cases[] = {
        {"/nowhere/it.so", *state, CONVOY_NOT_FOUND, "/nowhere/it.so"},
        {plugin_path(), "/nowhere", CONVOY_SYSTEM, "creating /nowhere/rank-0.log"},
        {plugin_path(), longest, CONVOY_INVALID_ARGUMENT, "the log directory's name is too long"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set_up(cases[i].folder, 1, 1, 1);
        setup.plugin = cases[i].plugin;
        run_threads(replay_thread);
        expect_ends(CONVOY_BOARD_FAILED, CONVOY_EXIT_FAILURE);
        const struct convoy_board_failure *failure = &setup.board->ranks[0].failure;
        assert_string_equal(failure->call, "open");
        assert_int_equal(failure->error.status, cases[i].status);
        assert_non_null(strstr(failure->error.text, cases[i].text));
        assert_int_equal(setup.board->ranks[0].steps, 0);
        convoy_board_destroy(setup.board);
    }
}

/* -- the calls of a rank ------------------------------------------------------------------------------------------- */

static void test_rank_needs_a_port_for_each_group(void **state)
{
    (void)state;
    static const struct {
        struct convoy_shape shape;
        uint32_t ports;
    } cases[] = {{{1, 1, 1}, 3}, {{2, 2, 1}, 7}, {{4, 2, 3}, 21}, {{64, 1, 1}, 129}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(convoy_rank_port_count(&cases[i].shape), cases[i].ports);
    }
}

/* Ranks of one shard whose queues differ: the digest of the ids tells. */
static void *diverging_reduce(void *user)
{
    struct party *self = user;
    struct convoy_rank *rank = &self->result;
    self->status = convoy_rank_init(rank, &setup, self->rank);
    if (self->status == CONVOY_OK) {
        rank->ids[0] = 7;
        rank->ids[1] = 8 + self->rank;
        rank->states[0] = CONVOY_STATE_SUCCESS;
        self->status = convoy_rank_reduce(rank, 0, 2);
        convoy_rank_fail(rank, "reduce", self->status);
    }
    convoy_rank_fini(rank);
    return NULL;
}

static void test_rank_reduce_over_different_queues_diverges(void **state)
{
    set_up(*state, 1, 2, 1);
    run_threads(diverging_reduce);
    for (int i = 0; i < 2; i++) {
        const struct convoy_board_failure *failure = &setup.board->ranks[i].failure;
        assert_int_equal(party[i].status, CONVOY_DIVERGED);
        assert_string_equal(failure->call, "reduce");
        assert_int_equal(failure->error.status, CONVOY_DIVERGED);
        assert_int_equal(failure->field, CONVOY_FIELD_DIGEST);
        assert_int_equal(setup.board->ranks[i].outcome, CONVOY_BOARD_FAILED);
        assert_int_equal(setup.board->ranks[i].rounds, 0);
    }
    convoy_board_destroy(setup.board);
}

/* Rank 1 opens and never reduces, so the reduce of rank 0 times out and stays open until it is given up. */
static void *lonely_reduce(void *user)
{
    struct party *self = user;
    struct convoy_rank *rank = &self->result;
    self->status = convoy_rank_init(rank, &setup, self->rank);
    if (self->status == CONVOY_OK && self->rank == 0) {
        self->status = convoy_rank_reduce(rank, 0, 1);
        convoy_rank_fail(rank, "reduce", self->status);
        atomic_store(&rank->board->phase, CONVOY_BOARD_ENDED);
    } else {
        atomic_store(&rank->board->phase, CONVOY_BOARD_DECIDED);
        while (self->status == CONVOY_OK && convoy_board_count(setup.board, CONVOY_BOARD_ENDED) == 0) {
            (void)sched_yield(); /* its leaving would change how the other's operation ends */
        }
    }
    convoy_rank_fini(rank);
    return NULL;
}

static void test_rank_reduce_that_timed_out_is_abandoned(void **state)
{
    set_up(*state, 1, 2, 1);
    setup.timeout_ns = 100 * CONVOY_NS_PER_MS;
    run_threads(lonely_reduce);
    const struct convoy_board_failure *failure = &setup.board->ranks[0].failure;
    assert_int_equal(party[0].status, CONVOY_TIMED_OUT);
    assert_true(failure->was_abandoned);
    assert_int_equal(failure->abandon_status, CONVOY_BROKEN); /* nobody can have a result any more */
    assert_int_equal(party[1].status, CONVOY_OK);
    convoy_board_destroy(setup.board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay_of_all_shapes_ends_with_equal_results),
        cmocka_unit_test(test_replay_with_a_speed_keeps_the_pace),
        cmocka_unit_test(test_replay_stops_together_when_asked),
        cmocka_unit_test(test_replay_diverged_tag_fails_all_ranks_with_the_field),
        cmocka_unit_test(test_replay_stalled_rank_is_reported_as_missing),
        cmocka_unit_test(test_replay_that_cannot_open_says_what_is_missing),
        cmocka_unit_test(test_rank_needs_a_port_for_each_group),
        cmocka_unit_test(test_rank_reduce_over_different_queues_diverges),
        cmocka_unit_test(test_rank_reduce_that_timed_out_is_abandoned),
    };
    return cmocka_run_group_tests_name("replay", tests, folder_setup, folder_teardown);
}
