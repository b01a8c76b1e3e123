/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_swap.h"

#include "core/error.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SWAP_STEP_MAX 1000000000000ull

/* Takes a whole number; moves *text behind it. */
static bool swap_take_number(const char **text, uint64_t high, uint64_t *number_out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)**text)) {
        return false;
    }
    errno = 0;
    *number_out = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0 && *number_out <= high;
}

/* Takes ":word=" at *text. */
static bool swap_take_word(const char **text, const char *word)
{
    size_t length = strlen(word);
    if (**text != ':' || strncmp(*text + 1, word, length) != 0 || (*text)[length + 1] != '=') {
        return false;
    }
    *text += length + 2;
    return true;
}

/* The parts behind the step, each at most once, in any order. */
static bool swap_take_parts(struct convoy_run_swap *swap, const char *text)
{
    uint64_t rank = CONVOY_RUN_SWAP_EVERYBODY;
    bool is_fine = true;
    while (is_fine && *text != '\0') {
        if (swap_take_word(&text, "rank")) {
            is_fine = swap_take_number(&text, UINT32_MAX - 1, &rank);
        } else if (swap_take_word(&text, "every")) {
            is_fine = swap_take_number(&text, SWAP_STEP_MAX, &swap->every);
        } else if (swap_take_word(&text, "back")) {
            is_fine = swap_take_number(&text, SWAP_STEP_MAX, &swap->back);
        } else {
            is_fine = false;
        }
    }
    swap->rank = (uint32_t)rank;
    return is_fine;
}

static int32_t swap_refuse(struct convoy_error *error, const char *text)
{
    return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                            "--swap is \"%.80s\": must be FILE@STEP, and may go on with :rank=N, :every=STEPS, :back=STEP",
                            text);
}

int32_t convoy_run_swap_parse(struct convoy_run_swap *swap_out, const char *text, uint32_t rank_count,
                              struct convoy_error *error)
{
    struct convoy_run_swap swap = {.back = CONVOY_RUN_SWAP_NEVER};
    const char *at = strrchr(text, '@');
    if (at == NULL || at == text || (size_t)(at - text) >= sizeof swap.path) {
        return swap_refuse(error, text);
    }
    memcpy(swap.path, text, (size_t)(at - text));
    const char *rest = at + 1;
    if (!swap_take_number(&rest, SWAP_STEP_MAX, &swap.step) || !swap_take_parts(&swap, rest)) {
        return swap_refuse(error, text);
    }
    if (swap.rank != CONVOY_RUN_SWAP_EVERYBODY && swap.rank >= rank_count) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "--swap names rank %" PRIu32 ": must be 0 to %" PRIu32,
                                swap.rank, rank_count - 1);
    }
    if (swap.back <= swap.step) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "--swap goes back at step %" PRIu64 ": must be behind step %" PRIu64, swap.back, swap.step);
    }
    *swap_out = swap;
    return CONVOY_OK;
}

static bool swap_is_of(const struct convoy_run_swap *swap, uint32_t rank)
{
    return swap->path[0] != '\0' && (swap->rank == CONVOY_RUN_SWAP_EVERYBODY || swap->rank == rank);
}

uint64_t convoy_run_swap_there(const struct convoy_run_swap *swap, uint32_t rank)
{
    return swap_is_of(swap, rank) ? swap->step + rank * swap->every : CONVOY_RUN_SWAP_NEVER;
}

uint64_t convoy_run_swap_back(const struct convoy_run_swap *swap, uint32_t rank)
{
    bool is_due = swap_is_of(swap, rank) && swap->back != CONVOY_RUN_SWAP_NEVER;
    return is_due ? swap->back + rank * swap->every : CONVOY_RUN_SWAP_NEVER;
}

uint32_t convoy_run_swap_count(const struct convoy_run_swap *swap, uint32_t rank)
{
    bool is_there = convoy_run_swap_there(swap, rank) != CONVOY_RUN_SWAP_NEVER;
    bool is_back = convoy_run_swap_back(swap, rank) != CONVOY_RUN_SWAP_NEVER;
    return (is_there ? 1u : 0u) + (is_back ? 1u : 0u);
}
