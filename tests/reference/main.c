/* SPDX-License-Identifier: Apache-2.0 */
/* convoy-reference DIR RANKS [--ended-early]: checks the logs rank-0.log ... of a replay. Exit code 0: equal, 1: not,
 * 2: usage. */
#include "reference/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_logs(const char *folder, struct reference_log *logs, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        char path[4200];
        int length = snprintf(path, sizeof path, "%s/rank-%" PRIu32 ".log", folder, rank);
        if (length < 0 || (size_t)length >= sizeof path || reference_log_open(&logs[rank], path) != 0) {
            return -1;
        }
        const struct reference_log *log = &logs[rank];
        if (log->rank != rank || log->dp * log->tp * log->cp != ranks || log->dp != logs[0].dp ||
            log->tp != logs[0].tp || log->cp != logs[0].cp || log->request_count != logs[0].request_count ||
            log->seed != logs[0].seed) {
            fprintf(stderr, "reference: %s is of another replay than rank-0.log, or not of %u ranks\n", path, ranks);
            return -1;
        }
    }
    return 0;
}

static void summarise(const struct reference_check *check)
{
    printf("reference: %" PRIu64 " steps, %" PRIu64 " reductions, %" PRIu64 " commits and %" PRIu64
           " drops on %u rank%s are equal to the local computation%s\n",
           check->steps, check->reductions, check->committed, check->dropped, check->ranks,
           check->ranks == 1 ? "" : "s", check->has_ended_early ? "; the last step is incomplete" : "");
}

int main(int argc, char **argv)
{
    struct reference_log logs[REFERENCE_RANKS_MAX];
    int is_early = argc == 4 && strcmp(argv[3], "--ended-early") == 0;
    unsigned long ranks = argc >= 3 ? strtoul(argv[2], NULL, 10) : 0;
    if ((argc != 3 && !is_early) || ranks < 1 || ranks > REFERENCE_RANKS_MAX) {
        fprintf(stderr, "usage: convoy-reference DIR RANKS [--ended-early]\n");
        return 2;
    }
    memset(logs, 0, sizeof logs);
    struct reference_check check = {.logs = logs, .ranks = (uint32_t)ranks, .may_end_early = is_early};
    int is_wrong = open_logs(argv[1], logs, check.ranks) != 0 || reference_check_run(&check) != 0;
    for (uint32_t rank = 0; rank < check.ranks; rank++) {
        reference_log_close(&logs[rank]);
    }
    if (!is_wrong) {
        summarise(&check);
    }
    return is_wrong ? 1 : 0;
}
