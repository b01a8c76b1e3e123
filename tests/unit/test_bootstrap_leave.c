/* SPDX-License-Identifier: Apache-2.0 */
/* Members that die, leave, fail or are canceled while their group opens. */
#include "tests/unit/bootstrap_hand.h"

enum leave { LEAVE_CLOSE, LEAVE_RESET, LEAVE_GARBAGE, LEAVE_HALF_FRAME };

static void leave(struct convoy_frame_stream *stream, enum leave how)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    static const char garbage[16] = "not a frame here";
    static const char half[9] = {8, 0, 0, 0, CONVOY_MESSAGE_FAILED, 0, 0, 0, 1};
    switch (how) {
    case LEAVE_CLOSE: break;
    case LEAVE_RESET: assert_int_equal(setsockopt(stream->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0); break;
    case LEAVE_GARBAGE: assert_int_equal(send(stream->fd, garbage, sizeof garbage, 0), sizeof garbage); break;
    case LEAVE_HALF_FRAME: assert_int_equal(send(stream->fd, half, sizeof half, 0), sizeof half); break;
    }
    if (how == LEAVE_GARBAGE) {
        assert_true(is_dropped(stream->fd));
    }
    convoy_frame_close(stream);
}

/* A member that was admitted goes away before the others came: they all learn who. */
static void test_bootstrap_member_that_dies_midway_is_named_on_all_others(void **state)
{
    (void)state;
    static const int32_t statuses[] = {CONVOY_PEER_LOST, CONVOY_PEER_LOST, CONVOY_MALFORMED, CONVOY_PEER_LOST};
    for (uint32_t how = LEAVE_CLOSE; how <= LEAVE_HALF_FRAME; how++) {
        struct cast cast;
        struct convoy_runtime *runtime;
        struct convoy_frame_stream stream;
        cast_init(&cast, 3, cast_free_port());
        assert_int_equal(convoy_runtime_open(&cast.members[1].config, &runtime, NULL), CONVOY_OK);
        cast_start(&cast.members[0]);
        join_by_hand(&cast, runtime, &stream);
        leave(&stream, (enum leave)how);
        cast_start(&cast.members[2]);
        for (uint32_t i = 0; i < 3; i += 2) {
            cast_join(&cast.members[i]);
            cast_assert_failed(&cast.members[i], statuses[how], "group tp: member 13", "");
            assert_int_equal(cast.members[i].error.rank, 13);
        }
        convoy_runtime_destroy(runtime);
    }
}

/* It is gone after opening: the exchange that the others are in fails. */
static void test_bootstrap_member_that_leaves_before_an_exchange_is_named(void **state)
{
    (void)state;
    for (uint32_t gone = 0; gone < 3; gone++) {
        struct cast cast;
        cast_init(&cast, 3, cast_free_port());
        cast.members[gone].exchange_count = 1;
        cast_run(&cast);
        assert_int_equal(cast.members[gone].status, CONVOY_OK);
        for (uint32_t i = 0; i < 3; i++) {
            if (i != gone) {
                assert_int_equal(cast.members[i].exchanged, 1);
                cast_assert_failed(&cast.members[i], CONVOY_PEER_LOST, "went away", "");
                assert_int_equal(cast.members[i].error.rank, cast.ids[gone]);
            }
        }
    }
}

/* Thread: opens, then reports a failure instead of exchanging. */
static void *play_failing(void *argument)
{
    struct cast_member *member = argument;
    struct convoy_runtime *runtime;
    struct convoy_bootstrap *bootstrap;
    struct convoy_error cause = CONVOY_ERROR_INIT;
    (void)convoy_error_set(&cause, CONVOY_INIT_FAILED, "the device is missing");
    member->status = convoy_runtime_open(&member->config, &runtime, &member->error);
    member->status = convoy_bootstrap_open(runtime, &member->options, convoy_now_ns() + CAST_TIMEOUT_NS, &bootstrap,
                                           &member->agreement, &member->error);
    if (member->status == CONVOY_OK) {
        convoy_bootstrap_fail(bootstrap, &cause);
        convoy_bootstrap_close(bootstrap);
    }
    convoy_runtime_destroy(runtime);
    return NULL;
}

static void test_bootstrap_reported_failure_reaches_all_others_with_status_id_and_text(void **state)
{
    (void)state;
    for (uint32_t failing = 0; failing < 3; failing++) {
        struct cast cast;
        char who[32];
        cast_init(&cast, 3, cast_free_port());
        (void)snprintf(who, sizeof who, "member %d: ", cast.ids[failing]);
        for (uint32_t i = 0; i < 3; i++) {
            void *(*play)(void *) = i == failing ? play_failing : cast_play;
            assert_int_equal(pthread_create(&cast.members[i].thread, NULL, play, &cast.members[i]), 0);
        }
        for (uint32_t i = 0; i < 3; i++) {
            cast_join(&cast.members[i]);
            if (i != failing) {
                cast_assert_failed(&cast.members[i], CONVOY_INIT_FAILED, who, "the device is missing");
                assert_int_equal(cast.members[i].error.rank, cast.ids[failing]);
            }
        }
    }
}

struct cancelable {
    struct convoy_bootstrap *bootstrap;
    struct convoy_error error;
    int32_t status;
    pthread_t thread;
};

static void *connect_cancelable(void *argument)
{
    struct cancelable *cancelable = argument;
    struct convoy_agreement agreement;
    cancelable->status = convoy_bootstrap_connect(cancelable->bootstrap, &agreement, &cancelable->error);
    return NULL;
}

/* Listener and connecting member alike stop within moments when another thread cancels them. */
static void test_bootstrap_cancel_from_another_thread_ends_the_wait(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct cast cast;
        struct convoy_runtime *runtime;
        struct cancelable cancelable = {.error = CONVOY_ERROR_INIT};
        cast_init(&cast, 2, cast_free_port());
        assert_int_equal(convoy_runtime_open(&cast.members[i].config, &runtime, NULL), CONVOY_OK);
        assert_int_equal(convoy_bootstrap_create(runtime, &cast.members[i].options, CONVOY_DEADLINE_NEVER,
                                                 &cancelable.bootstrap, NULL),
                         CONVOY_OK);
        assert_int_equal(pthread_create(&cancelable.thread, NULL, connect_cancelable, &cancelable), 0);
        if (i == 0) {
            (void)close(connect_plain(cast.port)); /* it is listening now */
        }
        convoy_bootstrap_cancel(cancelable.bootstrap);
        assert_int_equal(pthread_join(cancelable.thread, NULL), 0);
        assert_int_equal(cancelable.status, CONVOY_CANCELED);
        assert_non_null(strstr(cancelable.error.text, "group tp: opening was canceled"));
        convoy_bootstrap_close(cancelable.bootstrap);
        convoy_runtime_destroy(runtime);
    }
}

/* One cancels after the others came: they learn who left. */
static void test_bootstrap_canceled_member_is_named_on_the_others(void **state)
{
    (void)state;
    struct cast cast;
    struct convoy_runtime *runtime;
    struct cancelable cancelable = {.error = CONVOY_ERROR_INIT};
    cast_init(&cast, 3, cast_free_port());
    assert_int_equal(convoy_runtime_open(&cast.members[0].config, &runtime, NULL), CONVOY_OK);
    assert_int_equal(convoy_bootstrap_create(runtime, &cast.members[0].options, CONVOY_DEADLINE_NEVER,
                                             &cancelable.bootstrap, NULL),
                     CONVOY_OK);
    assert_int_equal(pthread_create(&cancelable.thread, NULL, connect_cancelable, &cancelable), 0);
    struct convoy_frame_stream stream;
    join_by_hand(&cast, runtime, &stream);
    convoy_bootstrap_cancel(cancelable.bootstrap);
    struct convoy_notice notice = {.status = 0};
    assert_int_equal(await_message(&stream, CONVOY_MESSAGE_FAILED, &notice), CONVOY_OK);
    convoy_frame_close(&stream);
    assert_int_equal(pthread_join(cancelable.thread, NULL), 0);
    assert_int_equal(notice.status, CONVOY_PEER_LOST);
    assert_string_equal(notice.text, "member 3 canceled the opening");
    convoy_bootstrap_close(cancelable.bootstrap);
    convoy_runtime_destroy(runtime);
}

static void test_bootstrap_same_group_twice_in_one_context_is_busy(void **state)
{
    (void)state;
    struct cast cast;
    struct convoy_runtime *runtime;
    cast_init(&cast, 2, cast_free_port());
    assert_int_equal(convoy_runtime_open(&cast.members[0].config, &runtime, NULL), CONVOY_OK);
    cast.members[0].runtime = runtime;
    struct cast_member second = cast.members[0];
    cast_start(&cast.members[0]);
    (void)close(connect_plain(cast.port));
    (void)cast_play(&second);
    cast_assert_failed(&second, CONVOY_BUSY, "group tp", "already opening");
    cast_start(&cast.members[1]);
    cast_join(&cast.members[0]);
    cast_join(&cast.members[1]);
    cast_assert_ok(&cast);
    convoy_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_bootstrap_member_that_dies_midway_is_named_on_all_others),
        CASE(test_bootstrap_member_that_leaves_before_an_exchange_is_named),
        CASE(test_bootstrap_reported_failure_reaches_all_others_with_status_id_and_text),
        CASE(test_bootstrap_cancel_from_another_thread_ends_the_wait),
        CASE(test_bootstrap_canceled_member_is_named_on_the_others),
        CASE(test_bootstrap_same_group_twice_in_one_context_is_busy),
    };
    return cmocka_run_group_tests_name("bootstrap_leave", tests, cast_warm_up, NULL);
}
