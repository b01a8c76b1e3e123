/* SPDX-License-Identifier: Apache-2.0 */
#include "core/clock.h"
#include "core/error.h"
#include "net/fd_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int ends[2];

static int setup(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int teardown(void **state)
{
    (void)state;
    (void)close(ends[0]);
    (void)close(ends[1]);
    return 0;
}

static uint64_t soon(void)
{
    return convoy_now_ns() + 10 * CONVOY_NS_PER_S;
}

static struct convoy_fd_message message_of(const char *text)
{
    struct convoy_fd_message message = {.bytes = (uint32_t)strlen(text) + 1};
    memcpy(message.data, text, message.bytes);
    return message;
}

static void test_fd_channel_carries_bytes_and_descriptors_closed_on_exec(void **state)
{
    (void)state;
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    struct convoy_fd_message sent = message_of("hello");
    sent.fd_count = 2;
    sent.fds[0] = pipe_fds[0];
    sent.fds[1] = pipe_fds[1];
    assert_int_equal(convoy_fd_channel_send(ends[0], &sent, soon(), NULL), CONVOY_OK);
    struct convoy_fd_message got;
    assert_int_equal(convoy_fd_channel_recv(ends[1], &got, soon(), NULL), CONVOY_OK);
    assert_int_equal(got.bytes, 6);
    assert_string_equal((char *)got.data, "hello");
    assert_int_equal(got.fd_count, 2);
    assert_int_equal(fcntl(got.fds[0], F_GETFD), FD_CLOEXEC);
    int writer = convoy_fd_message_take(&got, 1);
    assert_int_equal(convoy_fd_message_take(&got, 1), -1);
    int reader = got.fds[0];
    convoy_fd_message_fini(&got);
    assert_int_equal(fcntl(reader, F_GETFD), -1); /* what was not taken is closed */
    assert_int_equal(fcntl(writer, F_GETFD), FD_CLOEXEC);
    (void)close(writer);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
}

static void test_fd_channel_deadlines_end_both_directions(void **state)
{
    (void)state;
    struct convoy_fd_message message = message_of("x");
    assert_int_equal(convoy_fd_channel_recv(ends[1], &message, convoy_now_ns() + CONVOY_NS_PER_MS, NULL),
                     CONVOY_TIMED_OUT);
    int32_t status = CONVOY_OK;
    message = message_of("x");
    for (int i = 0; status == CONVOY_OK && i < 100000; i++) {
        status = convoy_fd_channel_send(ends[0], &message, 1, NULL);
    }
    assert_int_equal(status, CONVOY_TIMED_OUT);
    assert_int_equal(convoy_fd_channel_recv(ends[1], &message, 1, NULL), CONVOY_OK); /* passed, but it is there */
}

static void test_fd_channel_other_end_gone_is_truncated(void **state)
{
    (void)state;
    struct convoy_fd_message message = message_of("x");
    (void)shutdown(ends[1], SHUT_RDWR);
    assert_int_equal(convoy_fd_channel_recv(ends[0], &message, soon(), NULL), CONVOY_TRUNCATED);
    message = message_of("x");
    assert_int_equal(convoy_fd_channel_send(ends[0], &message, soon(), NULL), CONVOY_TRUNCATED);
}

static void test_fd_channel_too_long_a_message_is_malformed_and_empty(void **state)
{
    (void)state;
    char bytes[CONVOY_FD_MESSAGE_BYTES_MAX + 1] = {0};
    assert_int_equal(send(ends[0], bytes, sizeof bytes, 0), sizeof bytes);
    struct convoy_fd_message message;
    assert_int_equal(convoy_fd_channel_recv(ends[1], &message, soon(), NULL), CONVOY_MALFORMED);
    assert_int_equal(message.bytes, 0);
}

/* A receiver at its limit of open files gets a status and keeps nothing. */
static void test_fd_channel_descriptors_beyond_the_file_limit_are_limit(void **state)
{
    (void)state;
    struct convoy_fd_message message = message_of("x");
    message.fd_count = CONVOY_FD_MESSAGE_FDS_MAX;
    for (uint32_t i = 0; i < message.fd_count; i++) {
        message.fds[i] = ends[0];
    }
    assert_int_equal(convoy_fd_channel_send(ends[0], &message, soon(), NULL), CONVOY_OK);
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    int next = dup(ends[0]);
    (void)close(next);
    struct rlimit tight = {.rlim_cur = (rlim_t)next + 3, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    int32_t status = convoy_fd_channel_recv(ends[1], &message, soon(), NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(status, CONVOY_LIMIT);
    int after = dup(ends[0]);
    (void)close(after);
    assert_int_equal(after, next);
}

static void test_fd_channel_credentials_are_those_of_the_peer(void **state)
{
    (void)state;
    struct convoy_fd_credentials who;
    assert_int_equal(convoy_fd_channel_credentials(ends[0], &who), CONVOY_OK);
    assert_int_equal(who.pid, getpid());
    assert_int_equal(who.uid, geteuid());
    assert_int_equal(convoy_fd_channel_credentials(-1, &who), CONVOY_SYSTEM);
}

static void test_fd_channel_bad_socket_is_system_with_errno(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_fd_message message = message_of("x");
    assert_int_equal(convoy_fd_channel_send(-1, &message, soon(), &error), CONVOY_SYSTEM);
    assert_int_equal(error.sys_errno, EBADF);
    assert_int_equal(convoy_fd_channel_recv(-1, &message, 1, &error), CONVOY_TIMED_OUT);
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(convoy_fd_channel_recv(file, &message, soon(), &error), CONVOY_SYSTEM);
    assert_int_equal(error.sys_errno, ENOTSOCK);
    (void)close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fd_channel_carries_bytes_and_descriptors_closed_on_exec, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fd_channel_deadlines_end_both_directions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fd_channel_other_end_gone_is_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fd_channel_too_long_a_message_is_malformed_and_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fd_channel_descriptors_beyond_the_file_limit_are_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fd_channel_credentials_are_those_of_the_peer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fd_channel_bad_socket_is_system_with_errno, setup, teardown),
    };
    return cmocka_run_group_tests_name("fd_channel", tests, NULL, NULL);
}
