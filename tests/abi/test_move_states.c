/* SPDX-License-Identifier: Apache-2.0 */
/* The table at the top of convoy/move.h, cell by cell, for groups; and what lies between two steps of a move. */
#include "tests/abi/pair.h"

#include "tests/lib/expect.h"
#include "tests/lib/moving.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONG_NS 5000000000ull
#define SHORT_NS 1000000ull

enum state { QUIESCING = 0, QUIESCED, IMPORTED, RETIRED, STATES };

static const char *const state_names[STATES] = {"quiescing", "quiesced", "imported", "retired"};

/* By kind: start, test, wait, abandon, reopen, cancel, close, look, open. An operation is open in a context that is
 * quiescing, and its peer does not come. */
static const int32_t wanted[STATES][CALL_KINDS] = {
    [QUIESCING] = {CONVOY_MOVED, CONVOY_IN_PROGRESS, CONVOY_TIMED_OUT, CONVOY_BROKEN, CONVOY_MOVED, CONVOY_OK, CONVOY_OK,
                   CONVOY_OK, CONVOY_OK},
    [QUIESCED] = {CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED,
                  CONVOY_OK, CONVOY_MOVED},
    [IMPORTED] = {CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED,
                  CONVOY_OK, CONVOY_MOVED},
    [RETIRED] = {CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_MOVED, CONVOY_OK,
                 CONVOY_MOVED, CONVOY_MOVED},
};

static void begin(struct moving *moving, struct pair *pair)
{
    moving_begin(moving, pair->own->context, &pair->own->config, moving_first_build(), moving_second_build());
}

/* From here on the pair's own member is what was imported. */
static void adopt(struct pair *pair, const struct moving *moving)
{
    pair->own->group = moving_handle(moving, pair->own->group);
    pair->own_alone = moving_handle(moving, pair->own_alone);
    pair->own->context = moving->new_context;
    pair->own->plugin = moving->to->plugin;
    calls_init(&pair->calls, &pair->own->plugin, pair->own->group, pair->own_alone);
}

static void move_on(struct moving *moving)
{
    EXPECT_OK(moving_quiesce(moving, LONG_NS), &moving->error);
    moving_export(moving);
    EXPECT_OK(moving_import(moving), &moving->error);
}

/* The whole move of the pair's own member. */
static void move(struct pair *pair)
{
    struct moving moving;
    begin(&moving, pair);
    move_on(&moving);
    moving_complete(&moving);
    adopt(pair, &moving);
}

/* -- the walk ------------------------------------------------------------------------------------------------------ */

static enum call_family family_of(const struct call *call)
{
    return call->family < CALL_FAMILIES ? call->family : CALL_POLL;
}

static bool is_right(enum state state, const struct call *call, struct calls *calls)
{
    calls->timeout_ns = call->kind == CALL_CLOSE ? LONG_NS : SHORT_NS;
    calls->error.text[0] = '\0';
    int32_t status = call->run(calls);
    if (status != wanted[state][call->kind]) {
        print_error("%s in a context that is %s: %d instead of %d (%s)\n", call->name, state_names[state], status,
                    wanted[state][call->kind], calls->error.text);
    }
    return status == wanted[state][call->kind];
}

static bool check_quiescing(const struct call *call)
{
    struct moving moving;
    struct pair *pair = pair_create();
    pair_open(pair);
    calls_start(&pair->calls, family_of(call));
    begin(&moving, pair);
    EXPECT_STATUS(moving_quiesce(&moving, SHORT_NS), CONVOY_DRAIN_TIMEOUT, &moving.error);
    EXPECT_EQUAL(moving_holdings(moving.from, moving.old_context).state, CONVOY_CONTEXT_QUIESCING);
    bool right = is_right(QUIESCING, call, &pair->calls);
    moving_cancel(&moving);
    pair_destroy(pair);
    return right;
}

static bool check_still(enum state state, const struct call *call)
{
    struct moving moving;
    struct calls *calls;
    struct calls *imported = calloc(1, sizeof *imported);
    struct pair *pair = pair_create();
    EXPECT(imported != NULL);
    pair_open(pair);
    pair_round(pair);
    begin(&moving, pair);
    move_on(&moving);
    calls_init(imported, &moving.to->plugin, moving_handle(&moving, pair->own->group),
               moving_handle(&moving, pair->own_alone));
    imported->operation = pair->calls.operation;
    if (state == RETIRED) {
        EXPECT_OK(moving.to->move->resume(moving.new_context, &moving.error), &moving.error);
        EXPECT_OK(moving.from->move->retire(moving.old_context, LONG_NS, &moving.error), &moving.error);
    }
    calls = state == IMPORTED ? imported : &pair->calls;
    bool right = is_right(state, call, calls);
    if (state == RETIRED) {
        moving_complete(&moving); /* resume and retire once more: both are fine */
        adopt(pair, &moving);
        pair_round(pair);
    } else {
        moving_cancel(&moving);
        pair_round(pair);
    }
    pair_destroy(pair);
    free(imported);
    return right;
}

static void test_move_states_every_call_answers_as_written(void **unused)
{
    (void)unused;
    unsigned wrong = 0;
    for (size_t i = 0; i < calls_count; i++) {
        wrong += check_quiescing(&calls_list[i]) ? 0 : 1;
        for (int state = QUIESCED; state < STATES; state++) {
            wrong += check_still((enum state)state, &calls_list[i]) ? 0 : 1;
        }
    }
    assert_int_equal(wrong, 0);
}

/* The calls of the family itself. */
static void test_move_states_steps_in_wrong_states_are_refused(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = pair_create();
    pair_open(pair);
    begin(&moving, pair);
    const struct convoy_move_table *old = moving.from->move;
    const struct convoy_move_table *new = moving.to->move;
    struct convoy_text_buffer text = {.struct_size = sizeof text};
    EXPECT_EQUAL(old->export_state(moving.old_context, &moving_options, &text, NULL), CONVOY_BAD_STATE);
    EXPECT_EQUAL(old->retire(moving.old_context, 1, NULL), CONVOY_BAD_STATE);
    EXPECT_EQUAL(old->resume(moving.old_context, NULL), CONVOY_OK);
    move_on(&moving);
    EXPECT_EQUAL(old->quiesce(moving.old_context, 1, NULL), CONVOY_OK);
    EXPECT_EQUAL(moving_import(&moving), CONVOY_BAD_STATE);
    EXPECT_EQUAL(new->quiesce(moving.new_context, 1, NULL), CONVOY_BAD_STATE);
    EXPECT_EQUAL(new->export_state(moving.new_context, &moving_options, &text, NULL), CONVOY_BAD_STATE);
    EXPECT_EQUAL(new->retire(moving.new_context, 1, NULL), CONVOY_BAD_STATE);
    moving_cancel(&moving);
    pair_round(pair);
    pair_destroy(pair);
}

/* Whoever resumes first has it: the old one is refused from then on, and retires. */
static void test_move_states_old_resume_after_the_new_one_is_refused(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = pair_create();
    pair_open(pair);
    pair_round(pair);
    begin(&moving, pair);
    move_on(&moving);
    EXPECT_OK(moving.to->move->resume(moving.new_context, &moving.error), &moving.error);
    EXPECT_STATUS(moving.from->move->resume(moving.old_context, &moving.error), CONVOY_BAD_STATE, &moving.error);
    EXPECT_TEXT(moving.error.text, "another context has resumed what this one had exported; retire it");
    EXPECT_EQUAL(moving_holdings(moving.from, moving.old_context).state, CONVOY_CONTEXT_QUIESCED);
    moving_complete(&moving);
    adopt(pair, &moving);
    pair_round(pair);
    pair_destroy(pair);
}

/* One state, two importers: the second one cannot resume, and neither can anybody import what has an owner. */
static void test_move_states_second_import_of_a_state_cannot_resume(void **unused)
{
    (void)unused;
    struct moving moving;
    struct moving other;
    struct moving late;
    struct pair *pair = pair_create();
    pair_open(pair);
    begin(&moving, pair);
    move_on(&moving);
    begin(&other, pair);
    other.state = moving.state;
    other.bytes = moving.bytes;
    EXPECT_OK(moving_import(&other), &other.error);
    EXPECT_OK(moving.to->move->resume(moving.new_context, &moving.error), &moving.error);
    EXPECT_STATUS(other.to->move->resume(other.new_context, &other.error), CONVOY_BAD_STATE, &other.error);
    EXPECT_TEXT(other.error.text, "another context has resumed what this one has imported; close it");
    EXPECT_OK(other.to->plugin.core->context_close(other.new_context, LONG_NS, &other.error), &other.error);
    begin(&late, pair);
    late.state = moving.state;
    late.bytes = moving.bytes;
    EXPECT_STATUS(moving_import(&late), CONVOY_BAD_STATE, &late.error);
    EXPECT_OK(late.to->plugin.core->context_close(late.new_context, LONG_NS, &late.error), &late.error);
    moving_complete(&moving);
    adopt(pair, &moving);
    pair_round(pair);
    pair_destroy(pair);
}

/* The exporter goes on: what was imported of it meanwhile cannot resume, and its state is good for nobody. */
static void test_move_states_import_of_what_went_on_is_refused(void **unused)
{
    (void)unused;
    struct moving moving;
    struct moving late;
    struct pair *pair = pair_create();
    pair_open(pair);
    begin(&moving, pair);
    move_on(&moving);
    EXPECT_OK(moving.from->move->resume(moving.old_context, &moving.error), &moving.error);
    EXPECT_STATUS(moving.to->move->resume(moving.new_context, &moving.error), CONVOY_BAD_STATE, &moving.error);
    EXPECT_OK(moving.to->plugin.core->context_close(moving.new_context, LONG_NS, &moving.error), &moving.error);
    pair_round(pair);
    begin(&late, pair);
    late.state = moving.state;
    late.bytes = moving.bytes;
    EXPECT_STATUS(moving_import(&late), CONVOY_BAD_STATE, &late.error);
    EXPECT_TEXT(late.error.text, "the exporter has resumed since");
    EXPECT_OK(moving_quiesce(&late, LONG_NS), &late.error); /* another export has another word, maybe of the same number */
    free(moving.state);
    void *stale = malloc(moving.bytes);
    EXPECT(stale != NULL);
    free(stale);
    moving_export(&late);
    EXPECT_OK(moving_import(&late), &late.error);
    moving_complete(&late);
    adopt(pair, &late);
    pair_round(pair);
    pair_destroy(pair);
}

/* Any alignment, and what a later caller would say beside it. */
static void test_move_states_state_may_lie_anywhere_and_options_are_checked(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = pair_create();
    struct convoy_text_buffer text = {.struct_size = sizeof text};
    struct convoy_export_options options = moving_options;
    pair_open(pair);
    begin(&moving, pair);
    EXPECT_OK(moving_quiesce(&moving, LONG_NS), &moving.error);
    const struct convoy_move_table *old = moving.from->move;
    EXPECT_STATUS(old->export_state(moving.old_context, NULL, &text, &moving.error), CONVOY_INVALID_ARGUMENT, &moving.error);
    options.critical_flags = 4;
    EXPECT_STATUS(old->export_state(moving.old_context, &options, &text, &moving.error), CONVOY_UNSUPPORTED, &moving.error);
    options.critical_flags = 0;
    options.format_max = 65535;
    EXPECT_STATUS(old->export_state(moving.old_context, &options, &text, &moving.error), CONVOY_BUFFER_TOO_SMALL,
                  &moving.error);
    moving_export(&moving);
    char *aligned = moving.state;
    char *room = malloc(moving.bytes + 1);
    EXPECT(room != NULL);
    memcpy(room + 1, aligned, moving.bytes);
    moving.state = room + 1;
    EXPECT_OK(moving_import(&moving), &moving.error);
    free(room);
    moving.state = aligned;
    moving_complete(&moving);
    adopt(pair, &moving);
    pair_round(pair);
    pair_destroy(pair);
}

/* -- quiescing ----------------------------------------------------------------------------------------------------- */

static void test_move_states_open_operation_names_who_is_missing_and_ends_well_after_resume(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    pair_open(pair);
    calls_start(calls, CALL_POLL);
    begin(&moving, pair);
    EXPECT_STATUS(moving_quiesce(&moving, SHORT_NS), CONVOY_DRAIN_TIMEOUT, &moving.error);
    EXPECT_TEXT(moving.error.text, "group pair: poll round 1 is open, rank 1 is missing");
    EXPECT_EQUAL(moving_holdings(moving.from, moving.old_context).operation_count, 1);
    moving_cancel(&moving);
    calls_start(&pair->peer_calls, CALL_POLL);
    EXPECT_OK(calls->plugin.poll->reduce_wait(calls->group, calls->operation, LONG_NS, &calls->poll_result, &calls->error),
              &calls->error);
    pair->peer_calls.timeout_ns = LONG_NS;
    EXPECT_OK(pair->peer_calls.plugin.poll->reduce_wait(pair->peer_calls.group, pair->peer_calls.operation, LONG_NS,
                                                        &pair->peer_calls.poll_result, &calls->error),
              &calls->error);
    move(pair);
    pair_round(pair);
    pair_destroy(pair);
}

static void test_move_states_end_that_nobody_read_keeps_it_quiescing(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    pair_open(pair);
    calls_start(calls, CALL_SYNC);
    calls_start(&pair->peer_calls, CALL_SYNC);
    begin(&moving, pair);
    EXPECT_STATUS(moving_quiesce(&moving, SHORT_NS), CONVOY_DRAIN_TIMEOUT, &moving.error);
    EXPECT_TEXT(moving.error.text, "group pair: sync round 1 is open");
    EXPECT_OK(calls->plugin.sync->gather_wait(calls->group, calls->operation, LONG_NS, &calls->sync_result, &calls->error),
              &calls->error);
    move_on(&moving);
    moving_complete(&moving);
    adopt(pair, &moving);
    pair_destroy(pair);
}

/* Level one ends in a group that is halted, and level two begins in another one. */
static void test_move_states_open_operation_of_two_levels_ends_while_quiescing(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    struct calls *peer = &pair->peer_calls;
    pair_open(pair);
    calls_start(calls, CALL_POLL2);
    begin(&moving, pair);
    EXPECT_STATUS(moving_quiesce(&moving, SHORT_NS), CONVOY_DRAIN_TIMEOUT, &moving.error);
    calls_start(peer, CALL_POLL2);
    EXPECT_OK(calls->plugin.poll->reduce2_wait(calls->group, calls->operation, LONG_NS, &calls->poll_result, &calls->error),
              &calls->error);
    EXPECT_OK(peer->plugin.poll->reduce2_wait(peer->group, peer->operation, LONG_NS, &peer->poll_result, &peer->error),
              &peer->error);
    move_on(&moving);
    moving_complete(&moving);
    adopt(pair, &moving);
    calls_start(calls, CALL_POLL2);
    calls_start(peer, CALL_POLL2);
    EXPECT_OK(calls->plugin.poll->reduce2_wait(calls->group, calls->operation, LONG_NS, &calls->poll_result, &calls->error),
              &calls->error);
    EXPECT_OK(peer->plugin.poll->reduce2_wait(peer->group, peer->operation, LONG_NS, &peer->poll_result, &peer->error),
              &peer->error);
    pair_destroy(pair);
}

static void *reduce_main(void *argument)
{
    struct calls *calls = argument;
    EXPECT_OK(calls->plugin.poll->reduce(calls->group, &calls->poll, LONG_NS, &calls->poll_result, &calls->error),
              &calls->error);
    return NULL;
}

/* A thread waits for its peer inside a blocking call: its round ends first. */
static void test_move_states_call_that_is_inside_is_waited_for(void **unused)
{
    (void)unused;
    struct moving moving;
    pthread_t thread;
    struct pair *pair = pair_create();
    pair_open(pair);
    EXPECT_EQUAL(pthread_create(&thread, NULL, reduce_main, &pair->calls), 0);
    while (moving_holdings(moving_first_build(), pair->own->context).operation_count == 0) {
    }
    begin(&moving, pair);
    EXPECT_STATUS(moving_quiesce(&moving, SHORT_NS), CONVOY_DRAIN_TIMEOUT, &moving.error);
    EXPECT_TEXT(moving.error.text, "rank 1 is missing");
    calls_start(&pair->peer_calls, CALL_POLL);
    move_on(&moving);
    EXPECT_EQUAL(pthread_join(thread, NULL), 0);
    EXPECT_OK(pair->peer_calls.plugin.poll->reduce_wait(pair->peer_calls.group, pair->peer_calls.operation, LONG_NS,
                                                        &pair->peer_calls.poll_result, &pair->peer_calls.error),
              &pair->peer_calls.error);
    moving_complete(&moving);
    adopt(pair, &moving);
    pair_round(pair);
    pair_destroy(pair);
}

static void test_move_states_group_that_opens_is_waited_for(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = pair_create();
    pair_start_own(pair);
    begin(&moving, pair);
    EXPECT_STATUS(moving_quiesce(&moving, SHORT_NS), CONVOY_DRAIN_TIMEOUT, &moving.error);
    EXPECT_TEXT(moving.error.text, "group pair: it is still opening");
    moving_cancel(&moving);
    pair_destroy(pair);
}

/* -- what is carried over ------------------------------------------------------------------------------------------ */

static void test_move_states_broken_group_has_its_report_and_reopens(void **unused)
{
    (void)unused;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    pair_open(pair);
    pair_round(pair);
    calls_start(calls, CALL_POLL);
    EXPECT_EQUAL(calls->plugin.core->operation_abandon(calls->group, calls->operation, NULL), CONVOY_BROKEN);
    convoy_operation broken = calls->operation;
    move(pair);
    EXPECT_OK(calls->plugin.core->group_info(calls->group, &calls->info, &calls->error), &calls->error);
    EXPECT_EQUAL(calls->info.state, CONVOY_GROUP_BROKEN);
    EXPECT_OK(calls->plugin.core->operation_report(calls->group, &calls->report, &calls->error), &calls->error);
    EXPECT_EQUAL(calls->report.round, 2);
    EXPECT(calls->report.operation == broken);
    EXPECT(calls->report.member_count != 0);
    EXPECT_EQUAL(calls->plugin.poll->reduce_test(calls->group, broken, &calls->poll_result, &calls->error), CONVOY_BROKEN);
    EXPECT_EQUAL(calls->plugin.poll->reduce(calls->group, &calls->poll, 1, &calls->poll_result, &calls->error),
                 CONVOY_BROKEN);
    EXPECT_TEXT(calls->error.text, "broken since round 2");
    EXPECT_OK(calls->plugin.core->group_reopen(calls->group, LONG_NS, &calls->reopened, &calls->error), &calls->error);
    EXPECT_EQUAL(calls->reopened.next_round, 2);
    EXPECT_OK(pair->peer->plugin.core->group_reopen(pair->peer->group, LONG_NS, NULL, &calls->error), &calls->error);
    pair_round(pair);
    pair_destroy(pair);
}

/* What test says of an operation that is over, it says after the move too, until the next one starts. */
static void test_move_states_end_is_read_again(void **unused)
{
    (void)unused;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    pair_open(pair);
    pair->calls.state = 3;
    pair->peer_calls.state = 2;
    pair_round(pair);
    convoy_operation over = calls->operation;
    move(pair);
    calls->state_out = 9;
    EXPECT_OK(calls->plugin.poll->reduce_test(calls->group, over, &calls->poll_result, &calls->error), &calls->error);
    EXPECT_EQUAL(calls->state_out, 2);
    EXPECT_EQUAL(calls->poll_result.round, 1);
    calls_start(&pair->peer_calls, CALL_SYNC);
    calls_start(calls, CALL_SYNC);
    EXPECT(calls->operation != over);
    EXPECT_OK(calls->plugin.sync->gather_wait(calls->group, calls->operation, LONG_NS, &calls->sync_result, &calls->error),
              &calls->error);
    EXPECT_OK(pair->peer_calls.plugin.sync->gather_wait(pair->peer_calls.group, pair->peer_calls.operation, LONG_NS,
                                                        &pair->peer_calls.sync_result, &calls->error),
              &calls->error);
    over = calls->operation;
    int64_t table[CALLS_MEMBERS_MAX * CALLS_WIDTH];
    memcpy(table, calls->table, sizeof table);
    move(pair);
    memset(calls->table, 0x11, sizeof calls->table);
    EXPECT_OK(calls->plugin.sync->gather_test(calls->group, over, &calls->sync_result, &calls->error), &calls->error);
    EXPECT_BYTES(calls->table, table, 2 * CALLS_WIDTH * sizeof table[0]);
    EXPECT_EQUAL(calls->plugin.poll->reduce_test(calls->group, over - 256, &calls->poll_result, NULL), CONVOY_CLOSED);
    pair_destroy(pair);
}

/* A cancel that no wait has taken yet. */
static void test_move_states_cancel_is_carried_over(void **unused)
{
    (void)unused;
    struct pair *pair = pair_create();
    struct calls *calls = &pair->calls;
    pair_open(pair);
    EXPECT_OK(calls->plugin.core->group_cancel(calls->group, "shutting down", 13, &calls->error), &calls->error);
    move(pair);
    EXPECT_EQUAL(calls->plugin.poll->reduce(calls->group, &calls->poll, LONG_NS, &calls->poll_result, &calls->error),
                 CONVOY_CANCELED);
    EXPECT_TEXT(calls->error.text, "shutting down");
    pair_destroy(pair);
}

/* What was closed before is not handed over, and a close of a context that is quiesced says goodbye. */
static void test_move_states_closed_context_says_goodbye_from_any_state(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = pair_create();
    pair_open(pair);
    begin(&moving, pair);
    EXPECT_OK(moving_quiesce(&moving, LONG_NS), &moving.error);
    EXPECT_OK(moving.from->plugin.core->context_close(moving.old_context, LONG_NS, &moving.error), &moving.error);
    EXPECT_OK(moving.to->plugin.core->context_close(moving.new_context, LONG_NS, &moving.error), &moving.error);
    pair->own->context = NULL;
    pair->own->group = NULL;
    struct calls *peer = &pair->peer_calls;
    EXPECT_EQUAL(peer->plugin.poll->reduce(peer->group, &peer->poll, LONG_NS, &peer->poll_result, &peer->error),
                 CONVOY_PEER_LOST);
    EXPECT_OK(peer->plugin.core->operation_report(peer->group, &peer->report, &peer->error), &peer->error);
    EXPECT_EQUAL(peer->rows[0].condition, CONVOY_MEMBER_CLOSED);
    pair_destroy(pair);
}

static void test_move_states_retired_context_holds_nothing(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = pair_create();
    pair_open(pair);
    begin(&moving, pair);
    struct convoy_holdings before = moving_holdings(moving.from, moving.old_context);
    EXPECT_EQUAL(before.group_count, 2);
    EXPECT_EQUAL(before.descriptor_count, 2);
    EXPECT_EQUAL(before.mapping_count, 1);
    move_on(&moving);
    struct convoy_holdings imported = moving_holdings(moving.to, moving.new_context);
    EXPECT_EQUAL(imported.descriptor_count, 3); /* with the word that says who owns it */
    EXPECT_EQUAL(imported.mapping_count, 2);
    EXPECT_OK(moving.to->move->resume(moving.new_context, &moving.error), &moving.error);
    struct convoy_holdings resumed = moving_holdings(moving.to, moving.new_context);
    EXPECT_EQUAL(resumed.descriptor_count, 2);
    EXPECT_EQUAL(resumed.mapping_count, 1);
    EXPECT_OK(moving.from->move->retire(moving.old_context, LONG_NS, &moving.error), &moving.error);
    struct convoy_holdings after = moving_holdings(moving.from, moving.old_context);
    EXPECT_EQUAL(after.group_count, 2);
    EXPECT_EQUAL(after.descriptor_count + after.mapping_count + after.operation_count + after.call_count, 0);
    EXPECT_EQUAL(after.thread_count, 0);
    moving_complete(&moving);
    adopt(pair, &moving);
    pair_round(pair);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_states_every_call_answers_as_written),
        cmocka_unit_test(test_move_states_steps_in_wrong_states_are_refused),
        cmocka_unit_test(test_move_states_old_resume_after_the_new_one_is_refused),
        cmocka_unit_test(test_move_states_second_import_of_a_state_cannot_resume),
        cmocka_unit_test(test_move_states_import_of_what_went_on_is_refused),
        cmocka_unit_test(test_move_states_state_may_lie_anywhere_and_options_are_checked),
        cmocka_unit_test(test_move_states_open_operation_names_who_is_missing_and_ends_well_after_resume),
        cmocka_unit_test(test_move_states_end_that_nobody_read_keeps_it_quiescing),
        cmocka_unit_test(test_move_states_open_operation_of_two_levels_ends_while_quiescing),
        cmocka_unit_test(test_move_states_call_that_is_inside_is_waited_for),
        cmocka_unit_test(test_move_states_group_that_opens_is_waited_for),
        cmocka_unit_test(test_move_states_broken_group_has_its_report_and_reopens),
        cmocka_unit_test(test_move_states_end_is_read_again),
        cmocka_unit_test(test_move_states_cancel_is_carried_over),
        cmocka_unit_test(test_move_states_closed_context_says_goodbye_from_any_state),
        cmocka_unit_test(test_move_states_retired_context_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
