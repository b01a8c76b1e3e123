/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child processes of one command. They die with the parent, and the parent reaps every one of them. While a crew
 * lives, SIGCHLD, SIGINT and SIGTERM are blocked in the parent and arrive as events of convoy_crew_wait.
 */
#ifndef CONVOY_CLI_CREW_H
#define CONVOY_CLI_CREW_H

#include "convoy/base.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#define CONVOY_CREW_MAX 64u

enum convoy_crew_event {
    CONVOY_CREW_TICK, /* the time is up */
    CONVOY_CREW_CHILD,
    CONVOY_CREW_INTERRUPT,
};

struct convoy_crew {
    sigset_t mask_before;
    uint32_t count;
    uint32_t alive;
    pid_t pids[CONVOY_CREW_MAX];
    int wait_status[CONVOY_CREW_MAX]; /* of waitpid, for those that ended */
    bool has_ended[CONVOY_CREW_MAX];
};

/* Runs in the child; its return value is the exit code. */
typedef int (*convoy_crew_fn)(void *user, uint32_t index);

void convoy_crew_init(struct convoy_crew *crew);

/* Kills and reaps what still lives, restores the signal mask. */
void convoy_crew_fini(struct convoy_crew *crew);

/* Forks the next child. SYSTEM. */
int32_t convoy_crew_fork(struct convoy_crew *crew, convoy_crew_fn run, void *user, struct convoy_error *error);

/* Waits for one event and reaps children that ended. */
enum convoy_crew_event convoy_crew_wait(struct convoy_crew *crew, uint32_t timeout_ms);

void convoy_crew_kill(struct convoy_crew *crew);

#endif
