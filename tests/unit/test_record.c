/* SPDX-License-Identifier: Apache-2.0 */
/* What a group remembers of its poll rounds: whole ones, repeated ones, short ones that are written late or put aside,
 * and the notice that nothing moves. */
#include "record_scene.h"

#include <cmocka.h>

/* A round of one list of `count` entries in the scene's memory. */
static struct convoy_poll_record one_list(struct scene *scene, int32_t status, uint32_t count)
{
    struct convoy_poll_record round = {.status = status, .round = scene->summary.round, .epoch = 7, .tag = 9,
                                       .votes = 5, .votes_and = 1, .votes_or = 7, .list_count = 1, .may_repeat = true};
    round.lists[0] = (struct convoy_poll_record_list){
        .count = count, .input = scene->input, .output = status == CONVOY_OK ? scene->output : NULL};
    return round;
}

static void poll_once(struct scene *scene, uint32_t count)
{
    const struct convoy_poll_record round = one_list(scene, CONVOY_OK, count);
    convoy_record_poll(&scene->record, &round);
}

static void test_record_poll_round_is_logged_and_counted(void **state)
{
    struct scene *scene = *state;
    struct scene_entry entry;
    memcpy(scene->input, "\1\4\3", 3);
    memcpy(scene->output, "\1\2\0", 3);
    scene_round(scene, 12);
    struct convoy_poll_record round = one_list(scene, CONVOY_OK, 3);
    round.lists[0].name = "prealloc";
    round.lists[0].name_length = 8;
    convoy_record_poll(&scene->record, &round);
    scene_read(scene, 1, &entry);
    assert_int_equal(entry.header.operation, CONVOY_OPERATION_POLL);
    assert_int_equal(entry.header.round, 12);
    assert_int_equal(entry.header.epoch, 7);
    assert_int_equal(entry.header.tag, 9);
    assert_int_equal(entry.header.votes, 5);
    assert_int_equal(entry.header.votes_and, 1);
    assert_int_equal(entry.header.votes_or, 7);
    assert_int_equal(entry.header.status, CONVOY_OK);
    assert_int_equal(entry.header.list_count, 1);
    assert_int_equal(entry.header.lists[0].input_count, 3);
    assert_int_equal(entry.header.lists[0].output_count, 3);
    assert_string_equal(entry.header.lists[0].name, "prealloc");
    assert_memory_equal(entry.bytes, "\1\4\3", 3);
    assert_memory_equal(entry.output, "\1\2\0", 3);
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_POLL), 1);
    assert_int_equal(scene_stats(scene, CONVOY_OPERATION_POLL)->entries, 3);
    assert_int_equal(scene_stats(scene, CONVOY_OPERATION_POLL)->bytes_received, 12);
    assert_int_equal(scene_stats(scene, CONVOY_OPERATION_POLL)->waits[CONVOY_WAIT_SPIN], 1);
}

/* Lists that do not lie one after the other are put together, and a round by keys is counted as such. */
static void test_record_poll_of_scattered_keyed_lists_is_one_entry(void **state)
{
    struct scene *scene = *state;
    struct scene_entry entry;
    char name[40];
    memset(name, 'n', sizeof name);
    memcpy(scene->input, "\1\4\0\3", 4);
    memcpy(scene->output, "\1\2\0\2", 4);
    scene_round(scene, 1);
    struct convoy_poll_record round = one_list(scene, CONVOY_OK, 2);
    round.list_count = 3;
    round.lists[1] = (struct convoy_poll_record_list){.name = name, .name_length = sizeof name, .count = 1,
                                                      .flags = CONVOY_POLL_KEYED, .input = scene->input + 3,
                                                      .output = scene->output + 3};
    convoy_record_poll(&scene->record, &round);
    scene_read(scene, 1, &entry);
    assert_int_equal(entry.header.operation, CONVOY_OPERATION_POLL_KEYED);
    assert_int_equal(entry.header.input_bytes, 3);
    assert_memory_equal(entry.bytes, "\1\4\3", 3);
    assert_memory_equal(entry.output, "\1\2\2", 3);
    assert_int_equal(strlen(entry.header.lists[1].name), CONVOY_CALL_NAME_BYTES - 1);
    assert_int_equal(entry.header.lists[2].input_count, 0);
    assert_int_equal(entry.header.lists[2].output_count, 0);
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_POLL_KEYED), 1);
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_POLL), 0);
    assert_false(scene->record.has_form); /* values of a repeat are one range */
}

static void test_record_failed_poll_has_input_and_no_output(void **state)
{
    struct scene *scene = *state;
    struct scene_entry entry;
    const int32_t statuses[] = {CONVOY_DIVERGED, CONVOY_PEER_LOST, CONVOY_BROKEN};
    scene->input[0] = CONVOY_STATE_TRANSFERRING;
    scene_round(scene, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const struct convoy_poll_record round = one_list(scene, statuses[i], 1);
        convoy_record_poll(&scene->record, &round);
        scene_read(scene, i + 1, &entry);
        assert_int_equal(entry.header.status, statuses[i]);
        assert_int_equal(entry.header.lists[0].input_count, 1);
        assert_int_equal(entry.header.lists[0].output_count, 0);
        assert_int_equal(entry.header.output_bytes, 0);
        assert_int_equal(entry.bytes[0], CONVOY_STATE_TRANSFERRING);
        assert_int_equal(scene->record.is_broken, i != 0);
    }
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_POLL), 0);
    assert_int_equal(scene_all(scene, CONVOY_OPERATION_POLL), 3);
    poll_once(scene, 1);
    assert_false(scene->record.is_broken);
}

/* More than an entry keeps: nothing is built on it, and what moves beyond the kept part is still seen. */
static void test_record_long_poll_is_cut_and_watched_whole(void **state)
{
    struct scene *scene = *state;
    struct scene_entry entry;
    const uint32_t count = CONVOY_RECORD_ENTRY_BYTES + 13; /* words of eight and a rest */
    scene_round(scene, 1);
    poll_once(scene, count);
    assert_false(scene->record.has_form);
    scene_read(scene, 1, &entry);
    assert_int_equal(entry.header.input_bytes, count);
    poll_once(scene, count);
    assert_int_equal(scene->record.stall.still, 1);
    const uint32_t places[] = {0, CONVOY_RECORD_ENTRY_BYTES + 1, count - 1};
    for (uint32_t i = 0; i < 3; i++) {
        scene->output[places[i]]++;
        poll_once(scene, count);
        assert_int_equal(scene->record.stall.still, 0);
        poll_once(scene, count);
        assert_int_equal(scene->record.stall.still, 1);
    }
}

/* Two lists that are each as long as an entry, apart from each other: what is kept ends with the room. */
static void test_record_scattered_lists_end_with_the_room(void **state)
{
    struct scene *scene = *state;
    struct convoy_poll_record round = one_list(scene, CONVOY_OK, 1000);
    struct scene_entry entry;
    round.list_count = 2;
    round.lists[1] = round.lists[0];
    round.lists[1].input += 2000;
    round.lists[1].output += 2000;
    scene->output[2999] = 1; /* the last of the second list */
    convoy_record_poll(&scene->record, &round);
    scene_read(scene, 1, &entry);
    assert_int_equal(entry.header.input_bytes, 2000);
    assert_false(scene->record.has_form);
    convoy_record_poll(&scene->record, &round);
    assert_int_equal(scene->record.stall.still, 1);
    scene->output[2999] = 2;
    convoy_record_poll(&scene->record, &round);
    assert_int_equal(scene->record.stall.still, 0);
}

static void test_record_repeat_needs_a_round_to_repeat(void **state)
{
    struct scene *scene = *state;
    struct scene_entry entry;
    const struct convoy_call_values values = {.round = 2, .epoch = 7, .tag = 10, .votes = 1, .votes_and = 0,
                                              .votes_or = 9, .input = scene->input, .output = scene->output};
    scene_round(scene, 1);
    assert_false(convoy_record_poll_repeat(&scene->record, &values));
    struct convoy_poll_record round = one_list(scene, CONVOY_OK, 2);
    round.may_repeat = false;
    convoy_record_poll(&scene->record, &round);
    assert_false(convoy_record_poll_repeat(&scene->record, &values));
    assert_int_equal(convoy_call_log_count(scene->record.log), 1);
    poll_once(scene, 2);
    memcpy(scene->input, "\3\4", 2);
    memcpy(scene->output, "\2\4", 2);
    assert_true(convoy_record_poll_repeat(&scene->record, &values));
    scene_read(scene, 3, &entry);
    assert_int_equal(entry.header.round, 2);
    assert_int_equal(entry.header.tag, 10);
    assert_int_equal(entry.header.votes_or, 9);
    assert_int_equal(entry.header.status, CONVOY_OK);
    assert_memory_equal(entry.bytes, "\3\4", 2);
    assert_memory_equal(entry.output, "\2\4", 2);
    assert_int_equal(scene->record.stall.still, 0);
    assert_true(convoy_record_poll_repeat(&scene->record, &values));
    assert_int_equal(scene->record.stall.still, 1);
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_POLL), 4);
    assert_int_equal(scene_stats(scene, CONVOY_OPERATION_POLL)->entries, 8);
}

/* -- late rounds --------------------------------------------------------------------------------------------------- */

/* The end of a short round `number` of two entries whose states are (number, 1). */
static void short_round(struct scene *scene, uint64_t number, enum convoy_poll_moved moved)
{
    scene_round(scene, number);
    scene->input[0] = (uint8_t)number;
    scene->output[0] = (uint8_t)number;
    scene->poll.quick.round = (struct convoy_poll_short_round){scene->input, scene->output, moved};
    scene->poll.quick.engine.tag = 100 + number;
    scene->poll.quick.engine.votes = (uint32_t)number;
    convoy_record_poll_short(&scene->record, &scene->poll);
}

/* A first round, on which short ones are built: entry 1 of the log. */
static void first_round(struct scene *scene)
{
    scene_round(scene, 1);
    scene->input[1] = scene->output[1] = 1;
    poll_once(scene, 2);
}

static void check_short(const struct scene *scene, uint64_t number)
{
    struct scene_entry entry;
    scene_read(scene, number, &entry);
    assert_int_equal(entry.header.operation, CONVOY_OPERATION_POLL);
    assert_int_equal(entry.header.round, number);
    assert_int_equal(entry.header.epoch, 7);
    assert_int_equal(entry.header.tag, 100 + number);
    assert_int_equal(entry.header.votes, number);
    assert_int_equal(entry.header.votes_and, 1);
    assert_int_equal(entry.header.votes_or, 3);
    assert_int_equal(entry.bytes[0], number);
    assert_int_equal(entry.output[0], number);
    assert_int_equal(entry.output[1], 1);
}

static void test_record_short_round_is_written_when_settled(void **state)
{
    struct scene *scene = *state;
    first_round(scene);
    assert_false(convoy_record_is_late(&scene->record));
    short_round(scene, 2, CONVOY_POLL_MOVED_YES);
    assert_true(convoy_record_is_late(&scene->record));
    assert_int_equal(convoy_call_log_count(scene->record.log), 1);
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_POLL), 1);
    convoy_record_settle(&scene->record);
    assert_false(convoy_record_is_late(&scene->record));
    check_short(scene, 2);
    convoy_record_settle(&scene->record);
    assert_int_equal(convoy_call_log_count(scene->record.log), 2);
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_POLL), 2);
    assert_int_equal(scene_stats(scene, CONVOY_OPERATION_POLL)->bytes_received, 1 + 2);
}

/* Whole rounds and repeats write what was late before themselves. */
static void test_record_whole_round_comes_after_the_late_one(void **state)
{
    struct scene *scene = *state;
    struct scene_entry entry;
    first_round(scene);
    short_round(scene, 2, CONVOY_POLL_MOVED_YES);
    convoy_record_keep(&scene->record);
    short_round(scene, 3, CONVOY_POLL_MOVED_YES);
    poll_once(scene, 2);
    check_short(scene, 2);
    check_short(scene, 3);
    scene_read(scene, 4, &entry);
    assert_int_equal(entry.header.tag, 9);
    short_round(scene, 5, CONVOY_POLL_MOVED_YES);
    const struct convoy_call_values values = {.tag = 77, .input = scene->input, .output = scene->output};
    assert_true(convoy_record_poll_repeat(&scene->record, &values));
    check_short(scene, 5);
    scene_read(scene, 6, &entry);
    assert_int_equal(entry.header.tag, 77);
}

/* Put aside up to the bound, the next one is written with all before it; memory of the rounds is used again meanwhile,
 * and order, bytes and what each was waited for stay. */
static void test_record_rounds_put_aside_are_written_in_order(void **state)
{
    struct scene *scene = *state;
    first_round(scene);
    convoy_record_keep(&scene->record); /* nothing is late */
    assert_int_equal(scene->record.kept_count, 0);
    for (uint64_t number = 2; number < 2 + CONVOY_RECORD_KEPT; number++) {
        short_round(scene, number, CONVOY_POLL_MOVED_YES);
        convoy_record_keep(&scene->record);
        assert_int_equal(scene->record.kept_count, number - 1);
        assert_true(convoy_record_is_late(&scene->record));
        assert_int_equal(convoy_call_log_count(scene->record.log), 1);
    }
    uint64_t last = 2 + CONVOY_RECORD_KEPT;
    short_round(scene, last, CONVOY_POLL_MOVED_YES);
    convoy_record_keep(&scene->record);
    assert_int_equal(scene->record.kept_count, 0);
    assert_false(convoy_record_is_late(&scene->record));
    uint64_t received = 1;
    for (uint64_t number = 2; number <= last; number++) {
        check_short(scene, number);
        received += number;
    }
    assert_int_equal(convoy_call_log_count(scene->record.log), last);
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_POLL), last);
    assert_int_equal(scene_stats(scene, CONVOY_OPERATION_POLL)->bytes_received, received);
}

/* Settling writes those put aside and then the late one. */
static void test_record_settle_writes_the_late_round_after_those_put_aside(void **state)
{
    struct scene *scene = *state;
    first_round(scene);
    short_round(scene, 2, CONVOY_POLL_MOVED_YES);
    convoy_record_keep(&scene->record);
    short_round(scene, 3, CONVOY_POLL_MOVED_YES);
    convoy_record_start(&scene->record); /* of a call that is not short */
    check_short(scene, 2);
    check_short(scene, 3);
    assert_false(convoy_record_is_late(&scene->record));
}

/* A round of which more is kept than a place aside has room for: exactly what fits, and one byte more on each side. */
static void test_record_round_too_long_to_put_aside_is_written_at_once(void **state)
{
    struct scene *scene = *state;
    const uint32_t fits = CONVOY_RECORD_KEPT_BYTES / 2;
    for (uint32_t count = fits; count <= fits + 1; count++) {
        scene_round(scene, 1);
        poll_once(scene, count);
        uint64_t before = convoy_call_log_count(scene->record.log);
        short_round(scene, 2, CONVOY_POLL_MOVED_YES);
        convoy_record_keep(&scene->record);
        assert_int_equal(scene->record.kept_count, count == fits ? 1 : 0);
        assert_int_equal(convoy_call_log_count(scene->record.log), before + (count == fits ? 0 : 1));
        convoy_record_settle(&scene->record);
    }
}

/* -- times, stalls, counts ----------------------------------------------------------------------------------------- */

static void test_record_every_16th_call_is_timed(void **state)
{
    struct scene *scene = *state;
    uint64_t timed = 0;
    scene_round(scene, 1);
    for (uint32_t call = 0; call < 64; call++) {
        convoy_record_start(&scene->record);
        assert_int_equal(scene->record.started_ns != 0, call % (CONVOY_RECORD_SAMPLE_MASK + 1) == 0);
        timed += scene->record.started_ns != 0;
        while (scene->record.started_ns != 0 && convoy_now_ns() == scene->record.started_ns) {
        }
        poll_once(scene, 1);
        assert_int_equal(scene->record.started_ns, 0);
        struct convoy_latency_view view;
        convoy_latency_read(&scene_stats(scene, CONVOY_OPERATION_POLL)->call_ns, &view);
        assert_int_equal(view.count, timed);
    }
    assert_int_equal(timed, 4);
}

/* A notice for each thousand rounds without any move, whichever way they went; an empty round is no stall. */
static void test_record_stall_is_told_once_per_interval(void **state)
{
    struct scene *scene = *state;
    first_round(scene);
    for (uint64_t still = 1; still <= 2 * CONVOY_RECORD_STALL_ROUNDS; still++) {
        switch (still % 3) {
        case 0: poll_once(scene, 2); break;
        case 1: short_round(scene, 0, CONVOY_POLL_MOVED_NO); break;
        default: short_round(scene, 0, CONVOY_POLL_MOVED_UNKNOWN); break;
        }
        assert_int_equal(scene->record.stall.still, still);
        assert_int_equal(scene->record.stalls, still / CONVOY_RECORD_STALL_ROUNDS);
    }
    assert_int_equal(scene->record.stats->events[CONVOY_EVENT_STALL], 2);
    short_round(scene, 9, CONVOY_POLL_MOVED_UNKNOWN);
    assert_int_equal(scene->record.stall.still, 0);
    short_round(scene, 9, CONVOY_POLL_MOVED_NO);
    assert_int_equal(scene->record.stall.still, 1);
    poll_once(scene, 0);
    assert_int_equal(scene->record.stall.still, 0);
    poll_once(scene, 0);
    assert_int_equal(scene->record.stall.still, 0);
}

static void test_record_given_up_waits_are_counted_and_others_not(void **state)
{
    struct scene *scene = *state;
    const int32_t statuses[] = {CONVOY_IN_PROGRESS, CONVOY_OK, CONVOY_BUSY, CONVOY_PEER_LOST};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        convoy_record_gave_up(&scene->record, CONVOY_OPERATION_POLL, 1, statuses[i]);
        assert_int_equal(scene_all(scene, CONVOY_OPERATION_POLL), 0);
    }
    convoy_record_gave_up(&scene->record, CONVOY_OPERATION_POLL, 1, CONVOY_TIMED_OUT);
    convoy_record_gave_up(&scene->record, CONVOY_OPERATION_POLL, 1, CONVOY_CANCELED);
    assert_int_equal(scene_all(scene, CONVOY_OPERATION_POLL), 2);
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_POLL), 0);
    assert_int_equal(convoy_call_log_count(scene->record.log), 0);
}

/* Who waits in slices has given up once. A cancel is always one that somebody asked for. */
static void test_record_time_outs_count_once_per_operation(void **state)
{
    struct scene *scene = *state;
    for (uint32_t i = 0; i < 3; i++) {
        convoy_record_gave_up(&scene->record, CONVOY_OPERATION_POLL, 1, CONVOY_TIMED_OUT);
        convoy_record_gave_up(&scene->record, CONVOY_OPERATION_POLL, 1, CONVOY_CANCELED);
    }
    assert_int_equal(scene_all(scene, CONVOY_OPERATION_POLL), 4);
    convoy_record_gave_up(&scene->record, CONVOY_OPERATION_SYNC, 2, CONVOY_TIMED_OUT);
    convoy_record_gave_up(&scene->record, CONVOY_OPERATION_SYNC, 2, CONVOY_TIMED_OUT);
    assert_int_equal(scene_all(scene, CONVOY_OPERATION_SYNC), 1);
    assert_int_equal(scene_all(scene, CONVOY_OPERATION_POLL), 4);
}

/* Added up over the lists of the last round; more results than it had lists are not looked at. */
static void test_record_counts_of_results_are_added_up(void **state)
{
    struct scene *scene = *state;
    struct convoy_poll_list_result lists[] = {
        {.foreign_count = 1, .injected_count = 2, .unknown_count = 3, .demoted_count = 4},
        {.foreign_count = 1000, .injected_count = 1000, .unknown_count = 1000, .demoted_count = 1000}};
    const struct convoy_poll_result result = {.lists = lists, .list_capacity = 2};
    scene_round(scene, 1);
    poll_once(scene, 1);
    convoy_record_poll_counts(&scene->record, &result);
    convoy_record_poll_counts(&scene->record, &result);
    const struct convoy_operation_stats *stats = scene_stats(scene, CONVOY_OPERATION_POLL);
    assert_int_equal(stats->foreign_stamps, 2);
    assert_int_equal(stats->injected, 4);
    assert_int_equal(stats->unknown_states, 6);
    assert_int_equal(stats->demoted, 8);
    lists[0] = (struct convoy_poll_list_result){0};
    convoy_record_poll_counts(&scene->record, &result);
    assert_int_equal(stats->demoted, 8);
}

static void test_record_of_a_closed_group_keeps_its_counters(void **state)
{
    struct scene *scene = *state;
    scene_round(scene, 1);
    poll_once(scene, 1);
    convoy_record_shrink(&scene->record);
    assert_null(scene->record.log);
    assert_null(scene->record.waited);
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_POLL), 1);
}

#ifdef CONVOY_FAULTS
static void test_record_open_without_memory_says_so_and_can_be_closed(void **state)
{
    (void)state;
    int32_t status = CONVOY_NO_MEMORY;
    for (int64_t skip = 0; status != CONVOY_OK; skip++) {
        struct convoy_record *record = calloc(1, sizeof *record);
        struct convoy_error error = CONVOY_ERROR_INIT;
        (void)convoy_memory_fail_after(skip);
        status = convoy_record_open(record, 16, &error);
        (void)convoy_memory_fail_after(-1);
        assert_true(skip < 10);
        if (status != CONVOY_OK) {
            assert_int_equal(status, CONVOY_NO_MEMORY);
            assert_non_null(strstr(error.text, "a call log of 16 rounds"));
        }
        convoy_record_close(record);
        free(record);
    }
}
#endif

#define SCENE_TEST(test) cmocka_unit_test_setup_teardown(test, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(test_record_poll_round_is_logged_and_counted),
        SCENE_TEST(test_record_poll_of_scattered_keyed_lists_is_one_entry),
        SCENE_TEST(test_record_failed_poll_has_input_and_no_output),
        SCENE_TEST(test_record_long_poll_is_cut_and_watched_whole),
        SCENE_TEST(test_record_scattered_lists_end_with_the_room),
        SCENE_TEST(test_record_repeat_needs_a_round_to_repeat),
        SCENE_TEST(test_record_short_round_is_written_when_settled),
        SCENE_TEST(test_record_whole_round_comes_after_the_late_one),
        SCENE_TEST(test_record_rounds_put_aside_are_written_in_order),
        SCENE_TEST(test_record_settle_writes_the_late_round_after_those_put_aside),
        SCENE_TEST(test_record_round_too_long_to_put_aside_is_written_at_once),
        SCENE_TEST(test_record_every_16th_call_is_timed),
        SCENE_TEST(test_record_stall_is_told_once_per_interval),
        SCENE_TEST(test_record_given_up_waits_are_counted_and_others_not),
        SCENE_TEST(test_record_time_outs_count_once_per_operation),
        SCENE_TEST(test_record_counts_of_results_are_added_up),
        SCENE_TEST(test_record_of_a_closed_group_keeps_its_counters),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_record_open_without_memory_says_so_and_can_be_closed),
#endif
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
