/* SPDX-License-Identifier: Apache-2.0 */
/* The gate of a group: who is let in and who is told what, readers that settle the record, and handles that a fork has
 * brought along. The group is a handle only: there is no engine behind it. */
#include "plugin/handle.h"

#include "convoy/move.h"

#include "core/error.h"
#include "core/memory.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUNDS 20000u

struct scene {
    struct convoy_context context;
    struct convoy_group group;
    struct convoy_poll poll;
    struct convoy_stats_wait waited;
    struct convoy_round_summary summary;
    _Atomic uint32_t alive;
    _Atomic uint32_t is_over;
    uint8_t state;
    uint32_t lines;
    bool was_late; /* when a line came */
    struct convoy_error error; /* of another thread's call */
};

static void take_line(void *user, uint32_t level, const char *text, size_t length)
{
    struct scene *scene = user;
    (void)level;
    (void)text;
    (void)length;
    scene->lines++;
    scene->was_late |= convoy_record_is_late(&scene->group.record);
}

/* A round that went the whole way, so that short ones can follow. */
static void record_first_round(struct scene *scene)
{
    struct convoy_poll_record round = {.status = CONVOY_OK, .round = 1, .list_count = 1, .may_repeat = true};
    round.lists[0] = (struct convoy_poll_record_list){.count = 1, .input = &scene->state, .output = &scene->state};
    convoy_record_poll(&scene->group.record, &round);
}

static int scene_setup(void **state)
{
    struct scene *scene = aligned_alloc(CONVOY_LINE_BYTES, (sizeof *scene + 63) / 64 * 64);
    *state = scene;
    memset(scene, 0, sizeof *scene);
    const struct convoy_context_config config = {.struct_size = sizeof config, .log = take_line, .log_user = scene};
    struct convoy_group *group = &scene->group;
    scene->alive = CONVOY_ALIVE_HERE;
    scene->context.alive = group->alive = &scene->alive;
    group->context = &scene->context;
    group->phase = CONVOY_PHASE_OPEN;
    scene->context.move = CONVOY_CONTEXT_RUNNING;
    group->options.name = "tp";
    group->options.name_length = 2;
    if (convoy_runtime_open(&config, &scene->context.runtime, NULL) != CONVOY_OK ||
        convoy_record_open(&group->record, 64, NULL) != CONVOY_OK) {
        return -1;
    }
    group->record.waited = &scene->waited;
    group->record.summary = &scene->summary;
    scene->poll.quick.round.input = &scene->state;
    scene->poll.quick.round.output = &scene->state;
    record_first_round(scene);
    return 0;
}

static int scene_teardown(void **state)
{
    struct scene *scene = *state;
    convoy_record_close(&scene->group.record);
    convoy_runtime_destroy(scene->context.runtime);
    free(scene);
    return 0;
}

static void short_round(struct scene *scene)
{
    scene->poll.quick.round.moved = CONVOY_POLL_MOVED_YES;
    convoy_record_poll_short(&scene->group.record, &scene->poll);
}

/* -- the gate ------------------------------------------------------------------------------------------------------ */

static void test_handle_one_call_is_inside_at_a_time(void **state)
{
    struct scene *scene = *state;
    for (int i = 0; i < 3; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        assert_int_equal(convoy_group_enter(&scene->group, &error), CONVOY_OK);
        assert_int_equal(scene->group.inside, 1);
        assert_int_equal(convoy_group_enter(&scene->group, &error), CONVOY_BUSY);
        assert_non_null(strstr(error.text, "group tp"));
        assert_int_equal(scene->group.inside, 1);
        convoy_group_leave(&scene->group);
        assert_int_equal(scene->group.inside, 0);
    }
}

/* Leaves status and text to the thread that checks them. */
static void *enter_from_another(void *argument)
{
    struct scene *scene = argument;
    scene->error = (struct convoy_error)CONVOY_ERROR_INIT;
    (void)convoy_group_enter(&scene->group, &scene->error);
    return NULL;
}

static void test_handle_call_from_another_thread_is_told_of_the_one_inside(void **state)
{
    struct scene *scene = *state;
    pthread_t thread;
    assert_int_equal(convoy_group_enter(&scene->group, NULL), CONVOY_OK);
    assert_int_equal(pthread_create(&thread, NULL, enter_from_another, scene), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(scene->error.status, CONVOY_BUSY);
    assert_string_equal(scene->error.text, "another call is inside group tp; calls of one group are serialized");
    convoy_group_leave(&scene->group);
}

#ifdef CONVOY_DEBUG
static void test_handle_debug_build_tells_a_call_from_a_callback(void **state)
{
    struct scene *scene = *state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_group_enter(&scene->group, NULL), CONVOY_OK);
    assert_int_equal(convoy_group_enter(&scene->group, &error), CONVOY_BUSY);
    assert_non_null(strstr(error.text, "a call of group tp from a callback of another one of it"));
    convoy_group_leave(&scene->group);
}
#endif

struct phase_row {
    uint32_t phase;
    int32_t status;
    const char *words;
};

/* Who is turned away leaves the gate as it was. */
static void test_handle_phases_that_let_nobody_in_say_why(void **state)
{
    struct scene *scene = *state;
    static const struct phase_row rows[] = {
        {CONVOY_PHASE_OPENING, CONVOY_BAD_STATE, "group tp is still opening"},
        {CONVOY_PHASE_FAILED, CONVOY_BAD_STATE, "group tp failed to open; close it"},
        {CONVOY_PHASE_CLOSING, CONVOY_CLOSED, "group tp is closed"},
        {CONVOY_PHASE_CLOSED, CONVOY_CLOSED, "group tp is closed"},
        {CONVOY_PHASE_HALTED, CONVOY_MOVED, "group tp: another build takes it over"},
        {CONVOY_PHASE_FROZEN, CONVOY_MOVED, "group tp: another build takes it over"},
        {CONVOY_PHASE_RETIRED, CONVOY_MOVED, "group tp: another build takes it over"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        scene->group.phase = rows[i].phase;
        assert_int_equal(convoy_group_enter(&scene->group, &error), rows[i].status);
        assert_string_equal(error.text, rows[i].words);
        assert_int_equal(scene->group.inside, 0);
    }
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_group_enter(NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(error.text, "group is NULL");
}

/* -- fork ---------------------------------------------------------------------------------------------------------- */

/* The word of this process, of one where the kernel does not wipe, and of neither. */
static void test_handle_forked_is_told_by_the_word(void **state)
{
    struct scene *scene = *state;
    const uint32_t words[] = {CONVOY_ALIVE_HERE, CONVOY_ALIVE_ASK | (uint32_t)getpid(), 0,
                              CONVOY_ALIVE_ASK | (uint32_t)getppid(), (uint32_t)getpid()};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        bool is_here = i < 2;
        scene->alive = words[i];
        assert_int_equal(convoy_handle_is_forked(&scene->alive), !is_here);
        assert_int_equal(convoy_handle_is_here(&scene->alive), is_here);
        assert_int_equal(convoy_context_check(&scene->context, &error), is_here ? CONVOY_OK : CONVOY_FORKED);
        assert_int_equal(is_here, strstr(error.text, "this context was inherited through fork") == NULL);
        assert_int_equal(convoy_group_enter(&scene->group, &error), is_here ? CONVOY_OK : CONVOY_FORKED);
        assert_int_equal(is_here, strstr(error.text, "this group was inherited through fork") == NULL);
        if (is_here) {
            convoy_group_leave(&scene->group);
        }
    }
}

static void test_handle_context_that_closes_or_is_none_is_refused(void **state)
{
    struct scene *scene = *state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_context_check(NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(error.text, "context is NULL");
    scene->context.is_closing = 1;
    assert_int_equal(convoy_context_check(&scene->context, &error), CONVOY_CLOSED);
    assert_string_equal(error.text, "the context is closing");
}

/* -- readers ------------------------------------------------------------------------------------------------------- */

static void test_handle_reader_settles_when_nobody_is_inside(void **state)
{
    struct scene *scene = *state;
    convoy_group_settle(&scene->group); /* nothing is late */
    assert_int_equal(convoy_call_log_count(scene->group.record.log), 1);
    short_round(scene);
    convoy_group_settle(&scene->group);
    assert_int_equal(convoy_call_log_count(scene->group.record.log), 2);
    assert_int_equal(scene->group.inside, 0);
    assert_false(convoy_record_is_late(&scene->group.record));
}

/* A call that stays inside keeps its record: the reader gives up and reads what there is. */
static void test_handle_reader_gives_up_on_a_call_that_stays(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(convoy_group_enter(&scene->group, NULL), CONVOY_OK);
    short_round(scene);
    convoy_group_settle(&scene->group);
    assert_true(convoy_record_is_late(&scene->group.record));
    assert_int_equal(convoy_call_log_count(scene->group.record.log), 1);
    assert_int_equal(scene->group.inside, 1);
    convoy_group_leave(&scene->group);
}

static void *enter_behind_reader(void *argument)
{
    struct scene *scene = argument;
    atomic_store(&scene->is_over, 1);
    int32_t status = convoy_group_enter(&scene->group, NULL);
    if (status == CONVOY_OK) {
        convoy_group_leave(&scene->group);
    }
    return (void *)(intptr_t)status;
}

/* A reader is no call: who comes meanwhile waits for it and is let in. */
static void test_handle_call_waits_for_a_reader(void **state)
{
    struct scene *scene = *state;
    pthread_t thread;
    scene->group.inside = 2;
    assert_int_equal(pthread_create(&thread, NULL, enter_behind_reader, scene), 0);
    while (atomic_load(&scene->is_over) == 0) {
    }
    atomic_store(&scene->group.inside, 0);
    void *status = scene;
    assert_int_equal(pthread_join(thread, &status), 0);
    assert_null(status); /* OK is 0 */
    scene->group.inside = 1;
    assert_false(convoy_group_wait_reader(&scene->group));
}

static void *read_on(void *argument)
{
    struct scene *scene = argument;
    while (atomic_load(&scene->is_over) == 0) {
        convoy_group_settle(&scene->group);
    }
    return NULL;
}

/* Rounds and readers at the same time: each round is written once, whoever writes it. */
static void test_handle_rounds_beside_a_reader_are_all_written_once(void **state)
{
    struct scene *scene = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_on, scene), 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        assert_int_equal(convoy_group_enter(&scene->group, NULL), CONVOY_OK);
        convoy_record_keep(&scene->group.record);
        short_round(scene);
        convoy_group_leave(&scene->group);
    }
    atomic_store(&scene->is_over, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    convoy_group_settle(&scene->group);
    assert_int_equal(convoy_call_log_count(scene->group.record.log), ROUNDS + 1);
    assert_int_equal(scene->group.record.stats->operations[0].outcomes[CONVOY_STATS_OUTCOME_OK], ROUNDS + 1);
}

/* -- what a call returns ------------------------------------------------------------------------------------------- */

static void test_handle_canceled_by_a_close_is_closed(void **state)
{
    struct scene *scene = *state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const int32_t same[] = {CONVOY_OK, CONVOY_IN_PROGRESS, CONVOY_CANCELED, CONVOY_TIMED_OUT};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_int_equal(convoy_group_status(&scene->group, same[i], &error), same[i]);
        assert_string_equal(error.text, "");
    }
    scene->group.phase = CONVOY_PHASE_CLOSING;
    assert_int_equal(convoy_group_status(&scene->group, CONVOY_TIMED_OUT, &error), CONVOY_TIMED_OUT);
    assert_int_equal(convoy_group_status(&scene->group, CONVOY_OK, &error), CONVOY_OK);
    assert_int_equal(convoy_group_status(&scene->group, CONVOY_CANCELED, &error), CONVOY_CLOSED);
    assert_string_equal(error.text, "group tp was closed during the call");
    assert_int_equal(error.status, CONVOY_CLOSED);
}

/* The host's callback may look at the group: the record is complete before the first line. */
static void test_handle_failure_settles_the_record_and_then_tells_the_host(void **state)
{
    struct scene *scene = *state;
    short_round(scene);
    convoy_log_line(&scene->context.runtime->log, CONVOY_LOG_WARN, "something");
    assert_int_equal(convoy_group_status(&scene->group, CONVOY_OK, NULL), CONVOY_OK);
    assert_int_equal(scene->lines, 0);
    assert_true(convoy_record_is_late(&scene->group.record));
    assert_int_equal(convoy_group_status(&scene->group, CONVOY_PEER_LOST, NULL), CONVOY_PEER_LOST);
    assert_int_equal(scene->lines, 1);
    assert_false(scene->was_late);
    assert_int_equal(convoy_call_log_count(scene->group.record.log), 2);
}

#define SCENE_TEST(test) cmocka_unit_test_setup_teardown(test, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(test_handle_one_call_is_inside_at_a_time),
        SCENE_TEST(test_handle_call_from_another_thread_is_told_of_the_one_inside),
#ifdef CONVOY_DEBUG
        SCENE_TEST(test_handle_debug_build_tells_a_call_from_a_callback),
#endif
        SCENE_TEST(test_handle_phases_that_let_nobody_in_say_why),
        SCENE_TEST(test_handle_forked_is_told_by_the_word),
        SCENE_TEST(test_handle_context_that_closes_or_is_none_is_refused),
        SCENE_TEST(test_handle_reader_settles_when_nobody_is_inside),
        SCENE_TEST(test_handle_reader_gives_up_on_a_call_that_stays),
        SCENE_TEST(test_handle_call_waits_for_a_reader),
        SCENE_TEST(test_handle_rounds_beside_a_reader_are_all_written_once),
        SCENE_TEST(test_handle_canceled_by_a_close_is_closed),
        SCENE_TEST(test_handle_failure_settles_the_record_and_then_tells_the_host),
    };
    return cmocka_run_group_tests_name("handle", tests, NULL, NULL);
}
