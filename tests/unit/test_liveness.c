/* SPDX-License-Identifier: Apache-2.0 */
#include "core/memory.h"
#include "net/liveness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 10000

/* A process that lives until its end of `life` is closed or it is killed; `pidfd` is one that it made of itself. */
struct subject {
    pid_t pid;
    int pidfd;
    int life;
};

static int send_fd(int socket_fd, int fd)
{
    char room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {.iov_base = "x", .iov_len = 1};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    return sendmsg(socket_fd, &header, 0) == 1 ? 0 : -1;
}

static int receive_fd(int socket_fd)
{
    char room[CMSG_SPACE(sizeof(int))];
    char byte = 0;
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd = -1;
    if (recvmsg(socket_fd, &header, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&header) != NULL) {
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof fd);
    }
    return fd;
}

static void live(int socket_fd)
{
    int pidfd = -1;
    char byte = 0;
    if (convoy_liveness_self(&pidfd, NULL) == CONVOY_OK && send_fd(socket_fd, pidfd) == 0) {
        (void)!read(socket_fd, &byte, 1);
    }
    _exit(0);
}

static struct subject start_subject(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    struct subject subject = {.pid = fork(), .life = pair[0]};
    assert_true(subject.pid >= 0);
    if (subject.pid == 0) {
        (void)close(pair[0]);
        live(pair[1]);
    }
    (void)close(pair[1]);
    subject.pidfd = receive_fd(pair[0]);
    assert_true(convoy_liveness_is_pidfd(subject.pidfd));
    return subject;
}

static void end_subject(const struct subject *subject)
{
    (void)close(subject->life);
    (void)close(subject->pidfd);
    (void)waitpid(subject->pid, NULL, 0);
}

/* The process has ended and is not reaped. */
static void wait_zombie(pid_t pid)
{
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static void test_liveness_running_process_is_alive(void **state)
{
    (void)state;
    struct subject subject = start_subject();
    const int pidfds[] = {-1, subject.pidfd};
    uint8_t ended[2] = {0};
    struct convoy_liveness liveness;
    assert_int_equal(convoy_liveness_init(&liveness, pidfds, 2), CONVOY_OK);
    assert_int_equal(liveness.count, 1);
    assert_int_equal(convoy_liveness_check(&liveness, ended), 0);
    assert_int_equal(ended[1], 0);
    convoy_liveness_fini(&liveness);
    end_subject(&subject);
}

/* kill(pid, 0) would call it alive. */
static void test_liveness_unreaped_zombie_has_ended_and_is_found_once(void **state)
{
    (void)state;
    struct subject subject = start_subject();
    const int pidfds[] = {subject.pidfd, -1, subject.pidfd}; /* two members, threads of one process */
    uint8_t ended[3] = {0};
    struct convoy_liveness liveness;
    assert_int_equal(convoy_liveness_init(&liveness, pidfds, 3), CONVOY_OK);
    assert_int_equal(kill(subject.pid, SIGKILL), 0);
    wait_zombie(subject.pid);
    assert_int_equal(kill(subject.pid, 0), 0);
    assert_int_equal(convoy_liveness_check(&liveness, ended), 2);
    assert_int_equal(ended[0] + 2 * ended[1] + 4 * ended[2], 5);
    assert_int_equal(convoy_liveness_check(&liveness, ended), 0);
    convoy_liveness_fini(&liveness);
    end_subject(&subject);
}

/* The child of a killed process holds all that it had open; only the process itself counts. */
static void test_liveness_forked_child_does_not_keep_its_parent_alive(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    pid_t parent = fork();
    if (parent == 0) {
        (void)close(pair[0]);
        int pidfd = -1;
        (void)convoy_liveness_self(&pidfd, NULL);
        pid_t child = fork();
        if (child != 0) {
            (void)send_fd(pair[1], pidfd);
        }
        char byte = 0;
        (void)!read(pair[1], &byte, 1); /* both wait, with the same descriptors */
        _exit(0);
    }
    (void)close(pair[1]);
    const int pidfds[] = {receive_fd(pair[0])};
    uint8_t ended[1] = {0};
    struct convoy_liveness liveness;
    assert_int_equal(convoy_liveness_init(&liveness, pidfds, 1), CONVOY_OK);
    assert_int_equal(convoy_liveness_check(&liveness, ended), 0);
    assert_int_equal(kill(parent, SIGKILL), 0);
    wait_zombie(parent);
    struct pollfd end_of_file = {.fd = pair[0], .events = POLLIN};
    assert_int_equal(poll(&end_of_file, 1, 0), 0); /* the child keeps the socket open */
    assert_int_equal(convoy_liveness_check(&liveness, ended), 1);
    convoy_liveness_fini(&liveness);
    (void)close(pidfds[0]);
    (void)close(pair[0]);
    (void)waitpid(parent, NULL, 0);
}

/* openucx/ucx issue 11546: neither sees the other's process numbers, the pidfd works all the same. */
static void test_liveness_works_across_pid_namespaces(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    pid_t keeper = fork();
    if (keeper == 0) {
        (void)close(pair[0]);
        if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
            _exit(77);
        }
        if (fork() == 0) {
            live(getpid() == 1 ? pair[1] : -1);
        }
        (void)close(pair[1]);
        (void)wait(NULL);
        _exit(0);
    }
    (void)close(pair[1]);
    const int pidfds[] = {receive_fd(pair[0])};
    int code = 0;
    if (pidfds[0] < 0) {
        (void)close(pair[0]);
        (void)waitpid(keeper, &code, 0);
        assert_int_equal(WEXITSTATUS(code), 77);
        print_message("skipped: pid namespaces cannot be made here\n");
        skip();
    }
    uint8_t ended[1] = {0};
    struct convoy_liveness liveness;
    assert_int_equal(convoy_liveness_init(&liveness, pidfds, 1), CONVOY_OK);
    assert_int_equal(convoy_liveness_check(&liveness, ended), 0);
    (void)close(pair[0]); /* ends it */
    struct pollfd end = {.fd = pidfds[0], .events = POLLIN};
    assert_int_equal(poll(&end, 1, WAIT_MS), 1);
    assert_int_equal(convoy_liveness_check(&liveness, ended), 1);
    convoy_liveness_fini(&liveness);
    (void)close(pidfds[0]);
    (void)waitpid(keeper, NULL, 0);
}

static void test_liveness_closed_descriptor_is_no_death(void **state)
{
    (void)state;
    int pidfds[1] = {-1};
    uint8_t ended[1] = {0};
    assert_int_equal(convoy_liveness_self(&pidfds[0], NULL), CONVOY_OK);
    assert_int_equal(fcntl(pidfds[0], F_GETFD), FD_CLOEXEC);
    struct convoy_liveness liveness;
    assert_int_equal(convoy_liveness_init(&liveness, pidfds, 1), CONVOY_OK);
    (void)close(pidfds[0]);
    assert_int_equal(convoy_liveness_check(&liveness, ended), 0);
    assert_int_equal(ended[0], 0);
    assert_int_equal(liveness.invalid, 1);
    convoy_liveness_fini(&liveness);
    convoy_liveness_fini(&liveness);
}

static void test_liveness_other_files_are_no_pidfd(void **state)
{
    (void)state;
    int pidfd = -1;
    assert_int_equal(convoy_liveness_self(&pidfd, NULL), CONVOY_OK);
    assert_true(convoy_liveness_is_pidfd(pidfd));
    (void)close(pidfd);
    assert_false(convoy_liveness_is_pidfd(pidfd));
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_false(convoy_liveness_is_pidfd(file));
    (void)close(file);
}

static void test_liveness_without_memory_gives_a_status(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    struct convoy_liveness liveness;
    const int pidfds[] = {-1};
    for (int64_t i = 0; i < 2; i++) {
        (void)convoy_memory_fail_after(i);
        assert_int_equal(convoy_liveness_init(&liveness, pidfds, 1), CONVOY_NO_MEMORY);
    }
    (void)convoy_memory_fail_after(-1);
#else
    skip(); /* needs a variant with fault hooks */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_liveness_running_process_is_alive),
        cmocka_unit_test(test_liveness_unreaped_zombie_has_ended_and_is_found_once),
        cmocka_unit_test(test_liveness_forked_child_does_not_keep_its_parent_alive),
        cmocka_unit_test(test_liveness_works_across_pid_namespaces),
        cmocka_unit_test(test_liveness_closed_descriptor_is_no_death),
        cmocka_unit_test(test_liveness_other_files_are_no_pidfd),
        cmocka_unit_test(test_liveness_without_memory_gives_a_status),
    };
    return cmocka_run_group_tests_name("liveness", tests, NULL, NULL);
}
