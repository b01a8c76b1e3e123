/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the independent reference checker, a program of its own beside this one, over the logs of a replay. */
#ifndef CONVOY_CLI_RUN_CHECK_H
#define CONVOY_CLI_RUN_CHECK_H

#include "convoy/base.h"

#include <stdbool.h>

struct convoy_run_check {
    const char *program; /* NULL: convoy-reference beside this command */
    const char *log_directory;
    uint32_t rank_count;
    bool may_end_early; /* some rank failed: the last step may be incomplete */
};

/* OK: all is equal. INVARIANT: it is not, the checker has printed where. NOT_FOUND, SYSTEM: it could not run.
 * error: is set only when the checker could not run. */
int32_t convoy_run_check(const struct convoy_run_check *check, struct convoy_error *error);

#endif
