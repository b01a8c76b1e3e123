/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/report_swap.h"

#include "core/clock.h"
#include "core/status.h"

#include <inttypes.h>

static double milliseconds(uint64_t ns)
{
    return (double)ns / (double)CONVOY_NS_PER_MS;
}

/* turn: what the host does again and again, such as "step". */
void convoy_report_swaps_head(FILE *out, const char *turn)
{
    (void)fprintf(out, "\nswaps, all in ms%9s %8s %8s %14s %9s  %s\n", "made", "failed", "pause", "longest", "in all",
                  "then on");
    (void)fprintf(out, "%*s%s meanwhile\n", 45, "", turn);
}

void convoy_report_swap(FILE *out, const struct convoy_swap_line *line)
{
    const struct convoy_swap_tally *tally = line->tally;
    if (line->wanted == 0) {
        return;
    }
    (void)fprintf(out, "%-16s %8" PRIu32 " %8" PRIu32 " %8.3f %14.3f %9.3f  ", line->name, tally->count, tally->failures,
                  milliseconds(tally->pause_ns_max), milliseconds(tally->turn_ns_max), milliseconds(tally->total_ns_max));
    if (tally->count != 0) {
        (void)fprintf(out, "release %s, build %.12s\n", tally->release, tally->build_id);
    } else {
        (void)fprintf(out, "what it began with\n");
    }
    if (tally->failures != 0) {
        (void)fprintf(out, "    %s: %s\n", convoy_status_name(tally->error.status), tally->error.text);
    }
}

bool convoy_report_swap_is_right(const struct convoy_swap_line *line, char *why_out, size_t capacity)
{
    if (line->tally->failures != 0) {
        (void)snprintf(why_out, capacity, "a swap of %s failed", line->name);
        return false;
    }
    if (line->tally->count < line->wanted) {
        (void)snprintf(why_out, capacity, "%s made %" PRIu32 " of %" PRIu32 " swaps before it ended", line->name,
                       line->tally->count, line->wanted);
        return false;
    }
    return true;
}
