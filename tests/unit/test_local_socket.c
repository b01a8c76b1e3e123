/* SPDX-License-Identifier: Apache-2.0 */
#include "core/clock.h"
#include "core/error.h"
#include "net/local_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static uint8_t session[CONVOY_LOCAL_SESSION_BYTES] = {1, 2, 3};
static char directory[64];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof directory, "/tmp/convoy-test-XXXXXX");
    return mkdtemp(directory) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(directory);
}

static struct convoy_local_socket open_at(uint32_t index, const char *path, struct convoy_host_keys *keys)
{
    struct convoy_local_socket at;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_local_socket_options options = {.session = session, .index = index, .shared_directory = path};
    if (convoy_local_socket_open(&options, &at, keys, &error) != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
    return at;
}

static void test_local_socket_file_is_private_works_and_goes_away(void **state)
{
    (void)state;
    struct convoy_host_keys keys[2];
    struct convoy_local_socket server = open_at(0, directory, &keys[0]);
    struct convoy_local_socket client = open_at(1, directory, &keys[1]);
    assert_true(convoy_host_keys_share_directory(&keys[0], &keys[1]));
    assert_true(convoy_host_keys_share_network(&keys[0], &keys[1]));
    struct stat status;
    assert_int_equal(fstatat(server.directory_fd, server.file, &status, 0), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    for (int by_network = 0; by_network < 2; by_network++) {
        const struct convoy_local_socket_target target = {0, by_network, !by_network};
        int fd = -1;
        assert_int_equal(convoy_local_socket_connect(&client, &target, 0, &fd, NULL), CONVOY_OK);
        int other = convoy_local_socket_accept(&server);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        assert_int_equal(fcntl(other, F_GETFD), FD_CLOEXEC);
        (void)close(fd);
        (void)close(other);
    }
    convoy_local_socket_stop(&server);
    assert_int_equal(convoy_local_socket_accept(&server), -1);
    convoy_local_socket_fini(&server);
    convoy_local_socket_fini(&client);
}

static void test_local_socket_nobody_there_is_noticed_at_once(void **state)
{
    (void)state;
    struct convoy_host_keys keys;
    struct convoy_local_socket client = open_at(1, directory, &keys);
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint64_t before_ns = convoy_now_ns();
    const struct convoy_local_socket_target target = {0, true, true};
    int fd = -1;
    assert_int_equal(convoy_local_socket_connect(&client, &target, before_ns + 60 * CONVOY_NS_PER_S, &fd, &error),
                     CONVOY_SYSTEM);
    assert_true(convoy_now_ns() - before_ns < CONVOY_NS_PER_S);
    assert_int_equal(error.sys_errno, ENOENT);
    assert_int_equal(fd, -1);
    convoy_local_socket_fini(&client);
}

/* A directory whose path is longer than a socket address can be. */
static void test_local_socket_long_directory_works(void **state)
{
    (void)state;
    char path[224];
    (void)snprintf(path, sizeof path, "%s/%0150d", directory, 7);
    assert_int_equal(mkdir(path, 0700), 0);
    struct convoy_host_keys keys;
    struct convoy_local_socket server = open_at(0, path, &keys);
    const struct convoy_local_socket_target target = {0, false, true};
    int fd = -1;
    assert_int_equal(convoy_local_socket_connect(&server, &target, 0, &fd, NULL), CONVOY_OK);
    (void)close(fd);
    convoy_local_socket_fini(&server);
    assert_int_equal(rmdir(path), 0);
}

static void test_local_socket_missing_directory_says_so_and_keeps_the_abstract_socket(void **state)
{
    (void)state;
    struct convoy_host_keys keys;
    struct convoy_local_socket at;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_local_socket_options options = {session, 0, "/nowhere"};
    assert_int_equal(convoy_local_socket_open(&options, &at, &keys, &error), CONVOY_SYSTEM);
    assert_string_equal(error.text, "no socket in shared_directory /nowhere: No such file or directory");
    assert_int_equal(keys.flags, CONVOY_HOST_HAS_BOOT | CONVOY_HOST_HAS_NETWORK);
    assert_true(at.abstract_fd >= 0);
    convoy_local_socket_fini(&at);
}

/* Leaves the file of a socket in the directory as a killed process would; returns the listener when it is to live. */
static int leave_file(const char *name, int type, bool is_alive, bool is_old)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory, name);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1), 0);
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(is_old ? utimensat(AT_FDCWD, address.sun_path, old, 0) : 0, 0);
    if (is_alive) {
        return fd;
    }
    (void)close(fd);
    return -1;
}

static bool exists(const char *name)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static void remove_file(const char *name)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_int_equal(unlink(path), 0);
}

/* vllm-project/vllm issues 51579, 54002: what killed processes left is reclaimed; what lives, may live, or is somebody
 * else's stays. */
static void test_local_socket_stale_files_are_reclaimed_and_others_stay(void **state)
{
    (void)state;
    struct convoy_host_keys keys;
    struct convoy_local_socket first = open_at(0, "", &keys);
    char names[5][80];
    const char *const words[] = {"dead", "alive", "young", "foreign", "alien"};
    for (int i = 0; i < 5; i++) {
        (void)snprintf(names[i], sizeof names[i], "convoy-%016llx-%s.sock",
                       (unsigned long long)(first.boot_tag + (i == 3)), words[i]);
    }
    (void)leave_file(names[0], SOCK_SEQPACKET, false, true);
    int alive = leave_file(names[1], SOCK_SEQPACKET, true, true);
    (void)leave_file(names[2], SOCK_SEQPACKET, false, false);
    (void)leave_file(names[3], SOCK_SEQPACKET, false, true);
    int alien = leave_file(names[4], SOCK_STREAM, true, true);
    struct convoy_local_socket second = open_at(1, directory, &keys);
    assert_false(exists(names[0]));
    for (int i = 1; i < 5; i++) {
        assert_true(exists(names[i]));
        remove_file(names[i]);
    }
    (void)close(alive);
    (void)close(alien);
    convoy_local_socket_fini(&second);
    convoy_local_socket_fini(&first);
}

/* The queue of a Unix socket is full: the member is told to come later, and is served when it does. */
static void test_local_socket_full_queue_is_in_progress_not_refused(void **state)
{
    (void)state;
    struct convoy_host_keys keys;
    struct convoy_local_socket server = open_at(0, "", &keys);
    assert_int_equal(listen(server.abstract_fd, 1), 0);
    const struct convoy_local_socket_target target = {0, true, false};
    int fds[8];
    int32_t status = CONVOY_OK;
    int count = 0;
    while (count < 8 && (status = convoy_local_socket_connect(&server, &target, 0, &fds[count], NULL)) == CONVOY_OK) {
        count++;
    }
    assert_int_equal(status, CONVOY_IN_PROGRESS);
    struct convoy_error error = CONVOY_ERROR_INIT;
    int fd = -1;
    assert_int_equal(convoy_local_socket_connect(&server, &target, convoy_now_ns() + CONVOY_NS_PER_MS, &fd, &error),
                     CONVOY_TIMED_OUT);
    int accepted = convoy_local_socket_accept(&server);
    assert_int_equal(convoy_local_socket_connect(&server, &target, convoy_now_ns() + CONVOY_NS_PER_S, &fd, &error),
                     CONVOY_OK);
    (void)close(accepted);
    (void)close(fd);
    while (count > 0) {
        (void)close(fds[--count]);
    }
    convoy_local_socket_fini(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_local_socket_file_is_private_works_and_goes_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_local_socket_nobody_there_is_noticed_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_local_socket_long_directory_works, setup, teardown),
        cmocka_unit_test_setup_teardown(test_local_socket_missing_directory_says_so_and_keeps_the_abstract_socket,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_local_socket_stale_files_are_reclaimed_and_others_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_local_socket_full_queue_is_in_progress_not_refused, setup, teardown),
    };
    return cmocka_run_group_tests_name("local_socket", tests, NULL, NULL);
}
