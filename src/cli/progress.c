/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"

#include "core/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_TERMINAL_NS (100 * CONVOY_NS_PER_MS)
#define PROGRESS_PLAIN_NS (2 * CONVOY_NS_PER_S)

bool convoy_progress_is_terminal(FILE *out)
{
    const char *term = getenv("TERM");
    return isatty(fileno(out)) && term != NULL && strcmp(term, "dumb") != 0;
}

const char *convoy_progress_number(char text[32], uint64_t number)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, number);
    char *to = text;
    for (int i = 0; i < length; i++) {
        if (i != 0 && (length - i) % 3 == 0) {
            *to++ = ',';
        }
        *to++ = digits[i];
    }
    *to = '\0';
    return text;
}

static const char *progress_time(char text[32], uint64_t trace_step)
{
    uint64_t seconds = trace_step * CONVOY_TRACE_STEP_MS / 1000;
    (void)snprintf(text, 32, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, seconds / 3600, seconds / 60 % 60, seconds % 60);
    return text;
}

/* The figures of rank 0, and the requests of all shards. */
static void progress_line(const struct convoy_progress *progress, uint64_t now_ns, char *line, size_t capacity)
{
    const struct convoy_board *board = progress->board;
    uint64_t done = 0;
    for (uint32_t i = 0; i < board->rank_count; i += convoy_shape_shard(&progress->shape)) {
        done += atomic_load(&board->ranks[i].committed) + atomic_load(&board->ranks[i].dropped);
    }
    uint64_t steps = atomic_load(&board->ranks[0].steps);
    double seconds = (double)(now_ns - progress->started_ns) / (double)CONVOY_NS_PER_S;
    char numbers[4][32];
    char times[2][32];
    (void)snprintf(line, capacity, "step %s  trace %s, last arrival %s  requests %s of %s  %s steps/s",
                   convoy_progress_number(numbers[0], steps),
                   progress_time(times[0], atomic_load(&board->ranks[0].trace_step)),
                   progress_time(times[1], convoy_trace_step(progress->trace, progress->trace->count - 1)),
                   convoy_progress_number(numbers[1], done), convoy_progress_number(numbers[2], progress->trace->count),
                   convoy_progress_number(numbers[3], (uint64_t)((double)steps / (seconds > 0 ? seconds : 1))));
}

static void progress_print(struct convoy_progress *progress, uint64_t now_ns, const char *line_end)
{
    char line[256];
    uint32_t running = convoy_board_count(progress->board, CONVOY_BOARD_RUNNING);
    progress->shown_ns = now_ns;
    if (running < progress->board->rank_count) {
        (void)snprintf(line, sizeof line, "opening: %" PRIu32 " of %" PRIu32 " ranks are ready", running,
                       progress->board->rank_count);
    } else {
        progress_line(progress, now_ns, line, sizeof line);
    }
    (void)fprintf(progress->out, "%s%s%s", progress->is_terminal ? "\r" : "", line,
                  progress->is_terminal ? "\033[K" : "");
    (void)fputs(line_end, progress->out);
    (void)fflush(progress->out);
}

void convoy_progress_show(struct convoy_progress *progress, uint64_t now_ns)
{
    uint64_t every_ns = progress->is_terminal ? PROGRESS_TERMINAL_NS : PROGRESS_PLAIN_NS;
    if (now_ns - progress->shown_ns >= every_ns) {
        progress_print(progress, now_ns, progress->is_terminal ? "" : "\n");
    }
}

void convoy_progress_end(struct convoy_progress *progress)
{
    progress_print(progress, convoy_now_ns(), "\n");
}
