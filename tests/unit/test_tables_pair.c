/* SPDX-License-Identifier: Apache-2.0 */
/* The tables as two members call them: rounds of both forms, waits that give up, an operation that is abandoned and a
 * group that is reopened, two levels, and opens that do not come to an end. Both members are driven by one thread, but
 * for the rounds that block. */
#include "table_member.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <cmocka.h>

#define ROUNDS 200u

static int pair_setup(void **state)
{
    *state = pair_open();
    return 0;
}

static int pair_teardown(void **state)
{
    pair_close(*state);
    return 0;
}

/* -- rounds -------------------------------------------------------------------------------------------------------- */

static void test_tables_pair_reduce_in_two_steps_is_the_least_state(void **state)
{
    struct table_member *pair = *state;
    assert_int_equal(polls->reduce_start(pair[0].group, &pair[0].poll, &pair[0].operation, NULL), CONVOY_OK);
    assert_int_equal(polls->reduce_test(pair[0].group, pair[0].operation, &pair[0].poll_result, NULL),
                     CONVOY_IN_PROGRESS);
    assert_int_equal(group_state(&pair[0]), CONVOY_GROUP_ACTIVE);
    assert_int_equal(polls->reduce_start(pair[1].group, &pair[1].poll, &pair[1].operation, NULL), CONVOY_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(polls->reduce_wait(pair[i].group, pair[i].operation, LONG_NS, &pair[i].poll_result, NULL),
                         CONVOY_OK);
        assert_int_equal(pair[i].states_out[0], CONVOY_STATE_SUCCESS);
        assert_int_equal(pair[i].states_out[1], 2);
        assert_int_equal(pair[i].poll_result.votes_or, 3);
        assert_int_equal(pair[i].poll_result.votes_and, 0);
        assert_int_equal(pair[i].poll_result.written_bytes, sizeof pair[i].poll_result);
    }
    assert_non_null(strstr(group_text(&pair[1], CONVOY_TOPIC_DUMP), "\"members\""));
}

static void test_tables_pair_gather_in_two_steps_has_both_rows(void **state)
{
    struct table_member *pair = *state;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(syncs->gather_start(pair[i].group, &pair[i].sync, &pair[i].operation, NULL), CONVOY_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(syncs->gather_wait(pair[i].group, pair[i].operation, LONG_NS, &pair[i].sync_result, NULL),
                         CONVOY_OK);
        assert_memory_equal(pair[i].table, pair[0].row, sizeof pair[0].row);
        assert_memory_equal(pair[i].table + WIDTH, pair[1].row, sizeof pair[1].row);
        assert_non_null(strstr(group_text(&pair[i], CONVOY_TOPIC_CALL_LOG), "\"operation\":\"sync\""));
    }
}

/* Both families in turn, so that the short ways are taken and left again. 0 or the number of the round that went wrong. */
static void *many_rounds(void *argument)
{
    struct table_member *member = argument;
    for (uintptr_t round = 1; round <= ROUNDS; round++) {
        bool is_poll = round % 20 < 10;
        member->row[0] = (int64_t)round;
        member->states[0] = (uint8_t)(round % 5);
        int32_t status =
            is_poll ? polls->reduce(member->group, &member->poll, LONG_NS, &member->poll_result, &member->error)
                    : syncs->gather(member->group, &member->sync, LONG_NS, &member->sync_result, &member->error);
        bool is_right = is_poll ? member->states_out[0] == round % 5 && member->states_out[1] == 2
                                : member->table[0] == (int64_t)round && member->table[WIDTH] == (int64_t)round;
        if (status != CONVOY_OK || !is_right) {
            return (void *)round;
        }
    }
    return NULL;
}

static void test_tables_pair_blocking_rounds_are_right_and_all_remembered(void **state)
{
    struct table_member *pair = *state;
    pthread_t peer;
    void *wrong = pair;
    assert_int_equal(pthread_create(&peer, NULL, many_rounds, &pair[1]), 0);
    assert_null(many_rounds(&pair[0]));
    assert_int_equal(pthread_join(peer, &wrong), 0);
    assert_null(wrong);
    for (uint32_t i = 0; i < 2; i++) {
        const char *text = group_text(&pair[i], CONVOY_TOPIC_PROMETHEUS);
        char words[128];
        for (uint32_t j = 0; j < 2; j++) {
            (void)snprintf(words, sizeof words, "convoy_rounds_total{group=\"tp\",rank=\"%d\",operation=\"%s\","
                           "status=\"OK\"} 100", pair[i].ids[i], j == 0 ? "poll" : "sync");
            assert_non_null(strstr(text, words));
        }
        json_t *calls = json_loads(group_text(&pair[i], CONVOY_TOPIC_CALL_LOG), 0, NULL);
        assert_int_equal(json_array_size(calls), 64);
        for (size_t k = 0; k < 64; k++) { /* the last ones, each once and in order */
            const json_t *round = json_object_get(json_array_get(calls, k), "round");
            assert_int_equal(json_integer_value(round), ROUNDS - 63 + k);
        }
        json_decref(calls);
    }
}

/* -- rounds that do not end well ----------------------------------------------------------------------------------- */

static void test_tables_pair_wait_without_the_peer_times_out_with_a_report(void **state)
{
    struct table_member *pair = *state;
    struct convoy_member_report rows[2];
    pair->report = (struct convoy_report){.struct_size = sizeof pair->report, .members = rows,
                                          .member_stride = sizeof rows[0], .member_capacity = 2};
    pair->poll_result.report = &pair->report;
    assert_int_equal(polls->reduce(pair->group, &pair->poll, SHORT_NS, &pair->poll_result, &pair->error),
                     CONVOY_TIMED_OUT);
    assert_int_equal(pair->report.own_rank, 10);
    assert_int_equal(pair->report.member_count, 1);
    assert_int_equal(rows[0].rank, 11);
    assert_int_equal(group_state(pair), CONVOY_GROUP_STUCK);
    pair->poll_result.report = NULL;
    assert_int_equal(core->group_cancel(pair->group, "enough", 6, NULL), CONVOY_OK);
    struct convoy_group_info info = {.struct_size = sizeof info};
    assert_int_equal(core->group_info(pair->group, &info, NULL), CONVOY_OK);
    assert_int_equal(polls->reduce_wait(pair->group, info.operation, LONG_NS, &pair->poll_result, &pair->error),
                     CONVOY_CANCELED);
    assert_non_null(strstr(pair->error.text, "enough"));
    const char *text = group_text(pair, CONVOY_TOPIC_PROMETHEUS);
    assert_non_null(strstr(text, "operation=\"poll\",status=\"TIMED_OUT\"} 1"));
    assert_non_null(strstr(text, "operation=\"poll\",status=\"CANCELED\"} 1"));
    assert_non_null(strstr(text, "event=\"cancel\"} 1"));
}

static void test_tables_pair_gather_without_the_peer_times_out_with_a_report(void **state)
{
    struct table_member *pair = *state;
    pair->report = (struct convoy_report){.struct_size = sizeof pair->report};
    pair->sync_result.report = &pair->report;
    assert_int_equal(syncs->gather(pair->group, &pair->sync, SHORT_NS, &pair->sync_result, &pair->error),
                     CONVOY_TIMED_OUT);
    assert_int_equal(pair->report.own_rank, 10);
    assert_int_equal(pair->report.member_count, 1);
    assert_int_equal(syncs->gather_start(pair->group, &pair->sync, &pair->operation, NULL), CONVOY_BUSY);
    assert_int_equal(polls->reduce_start(pair->group, &pair->poll, &pair->operation, NULL), CONVOY_BUSY);
}

struct reopening {
    struct table_member *member;
    struct convoy_reopen_result result;
    int32_t status;
};

static void *reopen(void *argument)
{
    struct reopening *reopening = argument;
    reopening->result.struct_size = sizeof reopening->result;
    reopening->status =
        core->group_reopen(reopening->member->group, LONG_NS, &reopening->result, &reopening->member->error);
    return NULL;
}

static void reopen_both(struct table_member *pair)
{
    struct reopening both[2] = {{.member = &pair[0]}, {.member = &pair[1]}};
    pthread_t peer;
    assert_int_equal(pthread_create(&peer, NULL, reopen, &both[1]), 0);
    (void)reopen(&both[0]);
    assert_int_equal(pthread_join(peer, NULL), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(both[i].status, CONVOY_OK);
        assert_int_equal(both[i].result.epoch, both[0].result.epoch);
        assert_int_equal(both[i].result.lost_count, 0);
        assert_int_equal(both[i].result.written_bytes, sizeof both[i].result);
        assert_int_equal(group_state(&pair[i]), CONVOY_GROUP_READY);
    }
}

/* Of either family: the round is sealed for both, starts are refused until the group is reopened, and then all is well. */
static void test_tables_pair_abandoned_operation_breaks_the_group_until_it_is_reopened(void **state)
{
    struct table_member *pair = *state;
    for (int i = 0; i < 2; i++) {
        int32_t status = i == 0 ? polls->reduce_start(pair->group, &pair->poll, &pair->operation, NULL)
                                : syncs->gather_start(pair->group, &pair->sync, &pair->operation, NULL);
        assert_int_equal(status, CONVOY_OK);
        assert_int_equal(core->operation_abandon(pair->group, pair->operation + 1, NULL), CONVOY_CLOSED);
        assert_int_equal(core->operation_abandon(pair->group, pair->operation, &pair->error), CONVOY_BROKEN);
        assert_int_equal(group_state(pair), CONVOY_GROUP_BROKEN);
        assert_int_equal(polls->reduce_start(pair->group, &pair->poll, &pair->operation, NULL), CONVOY_BROKEN);
        status = i == 0 ? polls->reduce(pair[1].group, &pair[1].poll, LONG_NS, &pair[1].poll_result, NULL)
                        : syncs->gather(pair[1].group, &pair[1].sync, LONG_NS, &pair[1].sync_result, NULL);
        assert_int_equal(status, CONVOY_BROKEN);
        struct convoy_reopen_result old = {.struct_size = 8};
        assert_int_equal(core->group_reopen(pair->group, LONG_NS, &old, &pair->error), CONVOY_TOO_OLD);
        reopen_both(pair);
    }
    const char *text = group_text(pair, CONVOY_TOPIC_PROMETHEUS);
    assert_non_null(strstr(text, "event=\"reopen\"} 2"));
    assert_non_null(strstr(text, "operation=\"sync\",status=\"BROKEN\"} 1"));
    test_tables_pair_reduce_in_two_steps_is_the_least_state(state);
}

static void test_tables_pair_closed_peer_is_lost_to_the_other(void **state)
{
    struct table_member *pair = *state;
    assert_int_equal(core->group_close(pair[1].group, LONG_NS, NULL), CONVOY_OK);
    assert_int_equal(syncs->gather(pair->group, &pair->sync, LONG_NS, &pair->sync_result, &pair->error),
                     CONVOY_PEER_LOST);
    assert_int_equal(pair->error.rank, 11);
    assert_int_equal(polls->reduce(pair[1].group, &pair[1].poll, 0, &pair[1].poll_result, &pair[1].error),
                     CONVOY_CLOSED);
    assert_string_equal(pair[1].error.text, "group tp is closed");
}

/* -- two levels ---------------------------------------------------------------------------------------------------- */

static convoy_group *open_second(struct table_member *member)
{
    struct convoy_group_options options = member->options;
    convoy_group *second;
    options.name = "cp";
    options.member_count = 1;
    options.own_index = 0;
    options.member_ids = &options.own_id;
    assert_int_equal(core->group_open(member->context, &options, &second, &member->error), CONVOY_OK);
    return second;
}

static void test_tables_pair_two_levels_go_through_both_groups(void **state)
{
    struct table_member *pair = *state;
    for (uint32_t i = 0; i < 2; i++) {
        convoy_group *second = open_second(&pair[i]);
        assert_int_equal(polls->reduce2_start(pair[i].group, second, &pair[i].poll, &pair[i].operation, NULL),
                         CONVOY_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(polls->reduce2_wait(pair[i].group, pair[i].operation, LONG_NS, &pair[i].poll_result, NULL),
                         CONVOY_OK);
        assert_int_equal(pair[i].states_out[1], 2);
        assert_int_equal(polls->reduce2_test(pair[i].group, pair[i].operation, &pair[i].poll_result, NULL), CONVOY_OK);
    }
}

static void test_tables_pair_two_levels_refuse_groups_that_cannot_take_part(void **state)
{
    struct table_member *pair = *state;
    convoy_group *second = open_second(pair);
    convoy_operation *operation = &pair->operation;
    assert_int_equal(polls->reduce2_start(pair->group, pair->group, &pair->poll, operation, &pair->error),
                     CONVOY_INVALID_ARGUMENT);
    assert_string_equal(pair->error.text, "first and second are the same group");
    assert_int_equal(polls->reduce2_start(NULL, second, &pair->poll, operation, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(polls->reduce2_start(pair->group, NULL, &pair->poll, operation, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(polls->reduce2_start(pair->group, second, &pair->poll, NULL, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(polls->reduce2_abandon(NULL, 1, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(polls->reduce2_start(pair->group, second, &pair->poll, operation, NULL), CONVOY_OK);
    assert_int_equal(polls->reduce2_wait(pair->group, *operation, SHORT_NS, &pair->poll_result, NULL),
                     CONVOY_TIMED_OUT);
    assert_int_equal(polls->reduce2_abandon(pair->group, *operation, NULL), CONVOY_BROKEN);
    assert_int_equal(group_state(pair), CONVOY_GROUP_BROKEN);
    assert_int_equal(core->group_close(second, LONG_NS, NULL), CONVOY_OK);
    assert_int_equal(polls->reduce2_start(pair->group, second, &pair->poll, operation, &pair->error), CONVOY_CLOSED);
    assert_string_equal(pair->error.text, "group cp is closed");
    assert_int_equal(polls->reduce2_test(pair->group, 1, &pair->poll_result, NULL), CONVOY_CLOSED);
}

/* -- opens --------------------------------------------------------------------------------------------------------- */

static void test_tables_open_without_the_peer_goes_on_and_ends_with_its_close(void **state)
{
    struct table_member *member = calloc(1, sizeof *member);
    (void)state;
    member_init(member, 0, 2, plugin_port());
    assert_int_equal(core->group_open_start(member->context, &member->options, &member->group, NULL), CONVOY_OK);
    assert_int_equal(core->group_open_test(member->group, NULL), CONVOY_IN_PROGRESS);
    assert_int_equal(core->group_open_wait(member->group, SHORT_NS, &member->error), CONVOY_TIMED_OUT);
    unsigned waited_ms = 0; /* since the open started, so more than the wait itself took */
    assert_int_equal(sscanf(member->error.text, "group tp is not open after %u ms and goes on opening", &waited_ms), 1);
    assert_true(waited_ms >= 1);
    assert_int_equal(group_state(member), CONVOY_GROUP_OPENING);
    assert_string_equal(group_text(member, CONVOY_TOPIC_DUMP), "{\"group\":\"tp\",\"state\":\"opening\"}");
    assert_int_equal(polls->reduce(member->group, &member->poll, 0, &member->poll_result, NULL), CONVOY_BAD_STATE);
    assert_int_equal(core->group_close(member->group, LONG_NS, NULL), CONVOY_OK);
    assert_int_equal(group_state(member), CONVOY_GROUP_CLOSED);
    alone_close(member);
}

static void test_tables_open_that_is_canceled_or_late_has_failed(void **state)
{
    struct table_member *member = calloc(1, sizeof *member);
    (void)state;
    member_init(member, 0, 2, plugin_port());
    assert_int_equal(core->group_open_start(member->context, &member->options, &member->group, NULL), CONVOY_OK);
    int32_t status = CONVOY_IN_PROGRESS;
    while (status == CONVOY_IN_PROGRESS) { /* it is heard once the open has come to its first wait */
        assert_int_equal(core->group_cancel(member->group, "no", 2, NULL), CONVOY_OK);
        status = core->group_open_test(member->group, &member->error);
    }
    assert_int_equal(status, CONVOY_CANCELED);
    member->options.open_timeout_ns = SHORT_NS;
    assert_int_equal(core->group_open(member->context, &member->options, &member->group, &member->error),
                     CONVOY_TIMED_OUT);
    assert_int_equal(core->group_open_start(member->context, &member->options, &member->group, NULL), CONVOY_OK);
    for (int i = 0; i < 2; i++) { /* as often as it is asked */
        assert_int_equal(core->group_open_wait(member->group, LONG_NS, &member->error), CONVOY_TIMED_OUT);
        assert_non_null(strstr(member->error.text, "11"));
    }
    assert_int_equal(group_state(member), CONVOY_GROUP_FAILED);
    assert_int_equal(polls->reduce(member->group, &member->poll, 0, &member->poll_result, &member->error),
                     CONVOY_BAD_STATE);
    assert_string_equal(member->error.text, "group tp failed to open; close it");
    alone_close(member);
}

#define PAIR_TEST(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_tables_pair_reduce_in_two_steps_is_the_least_state),
        PAIR_TEST(test_tables_pair_gather_in_two_steps_has_both_rows),
        PAIR_TEST(test_tables_pair_blocking_rounds_are_right_and_all_remembered),
        PAIR_TEST(test_tables_pair_wait_without_the_peer_times_out_with_a_report),
        PAIR_TEST(test_tables_pair_gather_without_the_peer_times_out_with_a_report),
        PAIR_TEST(test_tables_pair_abandoned_operation_breaks_the_group_until_it_is_reopened),
        PAIR_TEST(test_tables_pair_closed_peer_is_lost_to_the_other),
        PAIR_TEST(test_tables_pair_two_levels_go_through_both_groups),
        PAIR_TEST(test_tables_pair_two_levels_refuse_groups_that_cannot_take_part),
        cmocka_unit_test(test_tables_open_without_the_peer_goes_on_and_ends_with_its_close),
        cmocka_unit_test(test_tables_open_that_is_canceled_or_late_has_failed),
    };
    return cmocka_run_group_tests_name("tables_pair", tests, NULL, NULL);
}
