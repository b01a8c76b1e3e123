/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_check.h"

#include "cli/place.h"
#include "core/error.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* waitpid over interruptions. SIGCHLD may be blocked; that does not matter here. */
static int check_wait(pid_t pid, int *wait_status_out)
{
    pid_t waited = 0;
    do {
        waited = waitpid(pid, wait_status_out, 0);
    } while (waited < 0 && errno == EINTR);
    return waited == pid ? 0 : -1;
}

int32_t convoy_run_check(const struct convoy_run_check *check, struct convoy_error *error)
{
    char beside[CONVOY_PLACE_PATH_BYTES];
    char count[16];
    const char *program = check->program;
    if (program == NULL) {
        int32_t status = convoy_place_beside(beside, "convoy-reference", error);
        if (status != CONVOY_OK) {
            return status;
        }
        program = beside;
    }
    (void)snprintf(count, sizeof count, "%u", check->rank_count);
    char *const argv[] = {(char *)"convoy-reference", (char *)check->log_directory, count,
                          check->may_end_early ? (char *)"--ended-early" : NULL, NULL};
    pid_t pid = 0;
    (void)fflush(NULL); /* its lines come after ours */
    int code = posix_spawn(&pid, program, NULL, NULL, argv, environ);
    if (code != 0) {
        return convoy_error_set_errno(error, CONVOY_NOT_FOUND, code, "starting the reference checker %.120s", program);
    }
    int wait_status = 0;
    if (check_wait(pid, &wait_status) != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "waiting for the reference checker");
    }
    if (WIFSIGNALED(wait_status)) {
        return convoy_error_set(error, CONVOY_SYSTEM, "the reference checker was ended by signal %d",
                                WTERMSIG(wait_status));
    }
    return WEXITSTATUS(wait_status) == 0 ? CONVOY_OK : CONVOY_INVARIANT;
}
