/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/crew.h"

#include "core/error.h"

#include <errno.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void crew_signals(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGCHLD);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGTERM);
}

void convoy_crew_init(struct convoy_crew *crew)
{
    sigset_t set;
    *crew = (struct convoy_crew){0};
    crew_signals(&set);
    (void)sigprocmask(SIG_BLOCK, &set, &crew->mask_before);
}

static void crew_reap(struct convoy_crew *crew)
{
    for (uint32_t i = 0; i < crew->count; i++) {
        if (!crew->has_ended[i] && waitpid(crew->pids[i], &crew->wait_status[i], WNOHANG) == crew->pids[i]) {
            crew->has_ended[i] = true;
            crew->alive--;
        }
    }
}

void convoy_crew_kill(struct convoy_crew *crew)
{
    for (uint32_t i = 0; i < crew->count; i++) {
        if (!crew->has_ended[i]) { /* not reaped, so the number still is this child's */
            (void)kill(crew->pids[i], SIGKILL);
        }
    }
}

void convoy_crew_fini(struct convoy_crew *crew)
{
    convoy_crew_kill(crew);
    while (crew->alive != 0) {
        (void)convoy_crew_wait(crew, 100);
    }
    (void)sigprocmask(SIG_SETMASK, &crew->mask_before, NULL);
}

/* The child's first steps: it must not outlive the parent, and Ctrl-C on the terminal is the parent's to handle. */
static void crew_become_child(const struct convoy_crew *crew, pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* it died before the line above */
    }
    (void)signal(SIGINT, SIG_IGN);
    (void)sigprocmask(SIG_SETMASK, &crew->mask_before, NULL);
}

int32_t convoy_crew_fork(struct convoy_crew *crew, convoy_crew_fn run, void *user, struct convoy_error *error)
{
    if (crew->count == CONVOY_CREW_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "more than %u processes", CONVOY_CREW_MAX);
    }
    pid_t parent = getpid();
    (void)fflush(NULL); /* or both would write what is buffered now */
    pid_t pid = fork();
    if (pid < 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "starting process %u", crew->count);
    }
    if (pid == 0) {
        crew_become_child(crew, parent);
        int code = run(user, crew->count);
        (void)fflush(NULL);
        _exit(code);
    }
    crew->pids[crew->count++] = pid;
    crew->alive++;
    return CONVOY_OK;
}

enum convoy_crew_event convoy_crew_wait(struct convoy_crew *crew, uint32_t timeout_ms)
{
    sigset_t set;
    struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
    crew_signals(&set);
    int signal_number = sigtimedwait(&set, NULL, &timeout);
    uint32_t alive = crew->alive;
    crew_reap(crew);
    if (signal_number == SIGINT || signal_number == SIGTERM) {
        return CONVOY_CREW_INTERRUPT;
    }
    return crew->alive != alive || signal_number == SIGCHLD ? CONVOY_CREW_CHILD : CONVOY_CREW_TICK;
}
