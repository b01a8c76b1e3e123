/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/report.h"

#include "cli/progress.h"
#include "core/clock.h"
#include "core/status.h"

#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const char *report_word(const char *const *words, size_t count, uint32_t value)
{
    return value < count && words[value] != NULL ? words[value] : "unknown";
}

static const char *report_condition(uint32_t condition)
{
    static const char *const words[] = {
        [CONVOY_MEMBER_HEARD] = "heard",       [CONVOY_MEMBER_MISSING] = "not heard",
        [CONVOY_MEMBER_LOST] = "lost",         [CONVOY_MEMBER_CLOSED] = "closed",
        [CONVOY_MEMBER_DIVERGED] = "diverged", [CONVOY_MEMBER_ERROR] = "error",
        [CONVOY_MEMBER_UNKNOWN] = "unknown",   [CONVOY_MEMBER_ABANDONED] = "abandoned the round",
    };
    return report_word(words, COUNT(words), condition);
}

static const char *report_notice(uint32_t noticed_by)
{
    static const char *const words[] = {
        [CONVOY_NOTICED_NONE] = "",
        [CONVOY_NOTICED_PROCESS] = " (its process ended)",
        [CONVOY_NOTICED_LINK] = " (its link failed)",
        [CONVOY_NOTICED_PEER] = " (another member said so)",
        [CONVOY_NOTICED_CLOSE] = " (it said goodbye)",
    };
    return report_word(words, COUNT(words), noticed_by);
}

static const char *report_field(uint32_t field)
{
    static const char *const words[] = {
        [CONVOY_FIELD_NONE] = "none",     [CONVOY_FIELD_OPERATION] = "operation", [CONVOY_FIELD_WIRE] = "wire version",
        [CONVOY_FIELD_EPOCH] = "epoch",   [CONVOY_FIELD_COUNTS] = "counts",       [CONVOY_FIELD_DIGEST] = "digest",
        [CONVOY_FIELD_SCHEMA] = "schema", [CONVOY_FIELD_POLICY] = "policy",       [CONVOY_FIELD_TAG] = "step tag",
    };
    return report_word(words, COUNT(words), field);
}

/* How a rank ended, in a few words. */
static void report_ending(const struct convoy_run_report *report, uint32_t rank, char *text, size_t capacity)
{
    const struct convoy_board_rank *board = &report->board->ranks[rank];
    int wait_status = report->crew->wait_status[rank];
    if (report->crew->has_ended[rank] && WIFSIGNALED(wait_status)) {
        (void)snprintf(text, capacity, "killed by SIG%s", sigabbrev_np(WTERMSIG(wait_status)));
    } else if (board->outcome == CONVOY_BOARD_FINISHED) {
        (void)snprintf(text, capacity, "finished");
    } else if (board->outcome == CONVOY_BOARD_STOPPED) {
        (void)snprintf(text, capacity, board->is_log_full ? "stopped, log full" : "stopped");
    } else if (board->outcome == CONVOY_BOARD_FAILED) {
        (void)snprintf(text, capacity, "%s", convoy_status_name(board->failure.error.status));
    } else {
        (void)snprintf(text, capacity, "exit %d", WEXITSTATUS(wait_status));
    }
}

static void report_latency(FILE *out, const struct convoy_histogram *histogram)
{
    if (histogram->count == 0) {
        (void)fprintf(out, "  %8s %8s %9s", "-", "-", "-");
        return;
    }
    (void)fprintf(out, "  %8.1f %8.1f %9.1f", (double)convoy_histogram_quantile(histogram, 500) / 1e3,
                  (double)convoy_histogram_quantile(histogram, 990) / 1e3, (double)histogram->max_ns / 1e3);
}

static void report_rank(FILE *out, const struct convoy_run_report *report, uint32_t rank)
{
    const struct convoy_board_rank *board = &report->board->ranks[rank];
    char ending[64];
    report_ending(report, rank, ending, sizeof ending);
    (void)fprintf(
        out, "%4" PRIu32 " %3" PRIu32 " %3" PRIu32 " %3" PRIu32 " %9" PRIu64 " %9" PRIu64 " %8" PRIu64 " %8" PRIu64,
        rank, convoy_shape_dp_of(&report->shape, rank), convoy_shape_tp_of(&report->shape, rank),
        convoy_shape_cp_of(&report->shape, rank), atomic_load(&board->steps), atomic_load(&board->rounds),
        atomic_load(&board->committed), atomic_load(&board->dropped));
    report_latency(out, &board->gather);
    report_latency(out, &board->reduce);
    (void)fprintf(out, "  %s\n", ending);
}

static void report_totals(FILE *out, const struct convoy_run_report *report)
{
    uint64_t committed = 0;
    uint64_t dropped = 0;
    uint64_t rounds = 0;
    for (uint32_t i = 0; i < report->board->rank_count; i++) {
        const struct convoy_board_rank *board = &report->board->ranks[i];
        bool is_first = convoy_shape_position_of(&report->shape, i) == 0;
        rounds += atomic_load(&board->rounds);
        committed += is_first ? atomic_load(&board->committed) : 0;
        dropped += is_first ? atomic_load(&board->dropped) : 0;
    }
    const struct convoy_board_rank *first = &report->board->ranks[0];
    double seconds = (double)first->wall_ns / (double)CONVOY_NS_PER_S;
    uint64_t steps = atomic_load(&first->steps);
    char numbers[5][32];
    (void)fprintf(out, "requests committed %s, dropped %s; rounds over all ranks %s\n",
                  convoy_progress_number(numbers[0], committed), convoy_progress_number(numbers[1], dropped),
                  convoy_progress_number(numbers[2], rounds));
    (void)fprintf(out, "steps %s in %.2f s, %s steps per second; wall time %.2f s\n",
                  convoy_progress_number(numbers[3], steps), seconds,
                  convoy_progress_number(numbers[4], seconds > 0 ? (uint64_t)((double)steps / seconds) : 0),
                  (double)report->wall_ns / (double)CONVOY_NS_PER_S);
}

void convoy_report_table(FILE *out, const struct convoy_run_report *report)
{
    (void)fprintf(out, "\n%4s %3s %3s %3s %9s %9s %8s %8s  %27s  %27s\n", "", "", "", "", "", "", "", "", "gather, us",
                  "poll reduce (2 levels), us");
    (void)fprintf(out, "%4s %3s %3s %3s %9s %9s %8s %8s  %8s %8s %9s  %8s %8s %9s  %s\n", "rank", "dp", "tp", "cp",
                  "steps", "rounds", "commits", "dropped", "p50", "p99", "max", "p50", "p99", "max", "ended");
    for (uint32_t i = 0; i < report->board->rank_count; i++) {
        report_rank(out, report, i);
    }
    (void)fputc('\n', out);
    report_totals(out, report);
    const struct convoy_board_rank *first = &report->board->ranks[0];
    if (first->release[0] != '\0') {
        (void)fprintf(out, "plugin release %s, build id %s\n", first->release, first->build_id);
    }
}

static void report_age(char *text, size_t capacity, uint64_t age_ns)
{
    if (age_ns == UINT64_MAX) {
        (void)snprintf(text, capacity, "never heard");
    } else {
        (void)snprintf(text, capacity, "%.1f ms ago", (double)age_ns / (double)CONVOY_NS_PER_MS);
    }
}

static void report_member(FILE *out, const struct convoy_member_report *member)
{
    static const char *const operations[] = {"nothing", "poll", "keyed poll", "sync"};
    char age[48];
    report_age(age, sizeof age, member->age_ns);
    (void)fprintf(out,
                  "        rank %" PRId32 ": %s%s; last round %" PRIu64 " (%s, tag %" PRIu64 ", epoch %" PRIu64 "), %s",
                  member->rank, report_condition(member->condition), report_notice(member->noticed_by), member->round,
                  report_word(operations, COUNT(operations), member->operation), member->tag, member->epoch, age);
    if (member->behind >= 0 && member->condition == CONVOY_MEMBER_UNKNOWN) {
        (void)fprintf(out, ", behind rank %" PRId32, member->behind);
    }
    if (member->reason != 0) {
        (void)fprintf(out, ", reason %" PRId32 " %s", member->reason, convoy_status_name(member->reason));
    }
    (void)fputc('\n', out);
}

static void report_failure(FILE *out, uint32_t rank, const struct convoy_board_rank *board)
{
    const struct convoy_board_failure *failure = &board->failure;
    (void)fprintf(out, "rank %" PRIu32 ": %s in step %" PRIu64 " ended %s after %.1f ms: %s\n", rank, failure->call,
                  atomic_load(&board->steps), convoy_status_name(failure->error.status),
                  (double)failure->elapsed_ns / (double)CONVOY_NS_PER_MS, failure->error.text);
    if (failure->field != CONVOY_FIELD_NONE) {
        (void)fprintf(out, "    first field that differs: %s\n", report_field(failure->field));
    }
    if (failure->member_count != 0) {
        (void)fprintf(out, "    member report:\n");
    }
    for (uint32_t i = 0; i < failure->member_count; i++) {
        report_member(out, &failure->members[i]);
    }
    if (failure->was_abandoned) {
        (void)fprintf(out, "    gave the round up: %s\n", convoy_status_name(failure->abandon_status));
    }
}

void convoy_report_failures(FILE *out, const struct convoy_run_report *report)
{
    for (uint32_t i = 0; i < report->board->rank_count; i++) {
        const struct convoy_board_rank *board = &report->board->ranks[i];
        char ending[64];
        report_ending(report, i, ending, sizeof ending);
        if (board->outcome == CONVOY_BOARD_FAILED) {
            report_failure(out, i, board);
        } else if (board->outcome == CONVOY_BOARD_NONE) {
            (void)fprintf(out, "rank %" PRIu32 ": %s in step %" PRIu64 "\n", i, ending, atomic_load(&board->steps));
        }
    }
}
