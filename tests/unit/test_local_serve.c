/* SPDX-License-Identifier: Apache-2.0 */
/* The talk over the local sockets, both ends in one thread: neither waits for what the other has not done. */
#include "net/local_serve.h"

#include "core/clock.h"
#include "core/error.h"
#include "net/liveness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static uint8_t session[CONVOY_LOCAL_SESSION_BYTES] = {4, 5, 6};
static uint32_t warnings;

static int setup(void **state)
{
    (void)state;
    warnings = 0;
    return 0;
}

static void count_log(void *user, uint32_t level, const char *text, size_t length)
{
    (void)user;
    (void)length;
    warnings += level == CONVOY_LOG_WARN && strstr(text, "turned a connection away") != NULL;
}

static size_t page_each(const void *user, uint32_t count)
{
    (void)user;
    return 4096u * count;
}

/* Two ends of a talk between member 0, the server, and member 1. */
struct talk {
    struct convoy_runtime runtime;
    struct convoy_group_options options;
    struct convoy_agreement agreement;
    struct convoy_local_request request;
    int pidfds[2][3];
    struct convoy_local_join join[2];
    struct convoy_local_socket at[2];
};

static void talk_init(struct talk *talk)
{
    memset(talk, 0, sizeof *talk);
    convoy_log_init(&talk->runtime.log, count_log, NULL, CONVOY_LOG_WARN);
    talk->options.name = "tp";
    talk->options.name_length = 2;
    memcpy(talk->agreement.session, session, sizeof session);
    talk->request = (struct convoy_local_request){
        .runtime = &talk->runtime, .options = &talk->options, .agreement = &talk->agreement,
        .deadline_ns = convoy_now_ns() + 10 * CONVOY_NS_PER_S, .segment_bytes = page_each};
    memset(talk->pidfds, 0xff, sizeof talk->pidfds);
    for (uint32_t i = 0; i < 2; i++) {
        struct convoy_host_keys keys;
        talk->join[i] = (struct convoy_local_join){.request = &talk->request, .own_index = i, .member_count = 3,
                                                   .pidfds = talk->pidfds[i], .segment_fd = -1};
        assert_int_equal(convoy_liveness_self(&talk->join[i].own_pidfd, NULL), CONVOY_OK);
        const struct convoy_local_socket_options options = {session, i, ""};
        assert_int_equal(convoy_local_socket_open(&options, &talk->at[i], &keys, NULL), CONVOY_OK);
    }
}

static void talk_fini(struct talk *talk)
{
    for (int i = 0; i < 2; i++) {
        convoy_local_join_release(&talk->join[i]);
        (void)close(talk->join[i].own_pidfd);
        convoy_local_socket_fini(&talk->at[i]);
    }
    convoy_log_fini(&talk->runtime.log);
}

static int talk_connect(const struct talk *talk)
{
    const struct convoy_local_socket_target target = {0, true, false};
    int fd = -1;
    assert_int_equal(convoy_local_socket_connect(&talk->at[1], &target, 0, &fd, NULL), CONVOY_OK);
    return fd;
}

/* A silent one, one with rubbish, one with the wrong token, one that says to be another. */
static void test_local_serve_turns_strangers_away_and_serves_the_member(void **state)
{
    (void)state;
    struct talk talk;
    talk_init(&talk);
    int fds[6];
    for (int i = 0; i < 6; i++) {
        fds[i] = talk_connect(&talk);
    }
    assert_int_equal(send(fds[1], "rubbish", 7, 0), 7);
    talk.agreement.session[0] ^= 1;
    assert_int_equal(convoy_local_join_ask(&talk.join[1], fds[2], 0, NULL), CONVOY_OK);
    talk.agreement.session[0] ^= 1;
    talk.join[1].own_index = 2; /* knows the token, but nobody waits for it */
    assert_int_equal(convoy_local_join_ask(&talk.join[1], fds[3], 0, NULL), CONVOY_OK);
    talk.join[1].own_index = 1;
    assert_int_equal(convoy_local_join_ask(&talk.join[1], fds[4], 0, NULL), CONVOY_OK);
    const uint8_t coming[] = {CONVOY_LOCAL_NOT_JOINING, CONVOY_LOCAL_CONNECTED, CONVOY_LOCAL_NOT_JOINING};
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_local_serve(&talk.join[0], &talk.at[0], coming, &error), CONVOY_OK);
    assert_int_equal(convoy_local_join_receive(&talk.join[1], fds[4], 0, &error), CONVOY_OK);
    assert_int_equal(talk.join[1].segment_bytes, 2 * 4096);
    assert_true(talk.pidfds[0][1] >= 0 && talk.pidfds[1][0] >= 0);
    assert_int_equal(talk.pidfds[0][2], -1);
    convoy_log_flush(&talk.runtime.log);
    assert_int_equal(warnings, 4);
    for (int i = 0; i < 6; i++) {
        (void)close(fds[i]);
    }
    talk_fini(&talk);
}

/* One that comes twice is taken once, and one that was to come and did not is not waited for. */
static void test_local_serve_takes_each_member_once_and_waits_for_nobody(void **state)
{
    (void)state;
    struct talk talk;
    talk_init(&talk);
    int fds[2];
    for (int i = 0; i < 2; i++) {
        fds[i] = talk_connect(&talk);
        assert_int_equal(convoy_local_join_ask(&talk.join[1], fds[i], 0, NULL), CONVOY_OK);
    }
    const uint8_t coming[] = {CONVOY_LOCAL_NOT_JOINING, CONVOY_LOCAL_CONNECTED, CONVOY_LOCAL_CONNECTED};
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint64_t before_ns = convoy_now_ns();
    assert_int_equal(convoy_local_serve(&talk.join[0], &talk.at[0], coming, &error), CONVOY_OK);
    assert_true(convoy_now_ns() - before_ns < CONVOY_NS_PER_S);
    assert_int_equal(convoy_local_join_receive(&talk.join[1], fds[0], 0, &error), CONVOY_OK);
    convoy_log_flush(&talk.runtime.log);
    assert_int_equal(warnings, 1);
    (void)close(fds[0]);
    (void)close(fds[1]);
    talk_fini(&talk);
}

/* A server that does not hold the token is believed nothing. */
static void test_local_join_answer_without_the_token_is_unauthenticated(void **state)
{
    (void)state;
    struct talk talk;
    talk_init(&talk);
    int fd = talk_connect(&talk);
    assert_int_equal(convoy_local_join_ask(&talk.join[1], fd, 0, NULL), CONVOY_OK);
    const uint8_t coming[] = {CONVOY_LOCAL_NOT_JOINING, CONVOY_LOCAL_CONNECTED, CONVOY_LOCAL_NOT_JOINING};
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_local_serve(&talk.join[0], &talk.at[0], coming, &error), CONVOY_OK);
    talk.agreement.session[0] ^= 1;
    assert_int_equal(convoy_local_join_receive(&talk.join[1], fd, 0, &error), CONVOY_UNAUTHENTICATED);
    assert_int_equal(talk.join[1].segment_fd, -1);
    (void)close(fd);
    talk_fini(&talk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_local_serve_turns_strangers_away_and_serves_the_member, setup),
        cmocka_unit_test_setup(test_local_serve_takes_each_member_once_and_waits_for_nobody, setup),
        cmocka_unit_test_setup(test_local_join_answer_without_the_token_is_unauthenticated, setup),
    };
    return cmocka_run_group_tests_name("local_serve", tests, NULL, NULL);
}
