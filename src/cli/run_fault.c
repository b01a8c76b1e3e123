/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_fault.h"

#include "core/error.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FAULT_STEP_MAX 1000000000000ull
#define FAULT_STALL_MS_MAX 600000ull

/* Takes a whole number that ends in `end_char`; moves *text behind it. */
static bool fault_take_number(const char **text, char end_char, uint64_t high, uint64_t *number_out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)**text)) {
        return false;
    }
    errno = 0;
    *number_out = strtoull(*text, &end, 10);
    if (errno != 0 || *end != end_char || *number_out > high) {
        return false;
    }
    *text = end_char != '\0' ? end + 1 : end;
    return true;
}

static enum convoy_run_fault_kind fault_take_kind(const char **text)
{
    static const struct {
        const char *word;
        enum convoy_run_fault_kind kind;
    } kinds[] = {
        {"kill:", CONVOY_RUN_FAULT_KILL}, {"stall:", CONVOY_RUN_FAULT_STALL}, {"diverge:", CONVOY_RUN_FAULT_DIVERGE}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i].word);
        if (strncmp(*text, kinds[i].word, length) == 0) {
            *text += length;
            return kinds[i].kind;
        }
    }
    return CONVOY_RUN_FAULT_NONE;
}

int32_t convoy_run_fault_parse(struct convoy_run_fault *fault_out, const char *text, uint32_t rank_count,
                               struct convoy_error *error)
{
    const char *rest = text;
    uint64_t rank = 0;
    struct convoy_run_fault fault = {.kind = fault_take_kind(&rest)};
    bool is_stall = fault.kind == CONVOY_RUN_FAULT_STALL;
    if (fault.kind == CONVOY_RUN_FAULT_NONE || !fault_take_number(&rest, '@', UINT32_MAX, &rank) ||
        !fault_take_number(&rest, is_stall ? ':' : '\0', FAULT_STEP_MAX, &fault.step) ||
        (is_stall && !fault_take_number(&rest, '\0', FAULT_STALL_MS_MAX, &fault.stall_ms))) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "--fault is \"%.60s\": must be kill:RANK@STEP, stall:RANK@STEP:MS (up to %" PRIu64
                                " ms) or diverge:RANK@STEP",
                                text, (uint64_t)FAULT_STALL_MS_MAX);
    }
    if (rank >= rank_count) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "--fault names rank %" PRIu64 ": must be 0 to %" PRIu32,
                                rank, rank_count - 1);
    }
    fault.rank = (uint32_t)rank;
    *fault_out = fault;
    return CONVOY_OK;
}
