/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline_figures.h"

#include "core/error.h"
#include "core/memory.h"

#include <stdlib.h>

struct interval {
    uint64_t begin;
    uint64_t end;
};

/* -- one record ----------------------------------------------------------------------------------------------------- */

/* Pulled, or lent: the sender is passive, so there is nothing to reserve or push. */
static bool is_pushed(uint32_t path)
{
    return path == CONVOY_PATH_PUSH || path == CONVOY_PATH_MESSAGES || path == CONVOY_PATH_RMA;
}

uint32_t convoy_pipeline_path_taken(uint32_t sender_path, uint32_t receiver_path)
{
    return is_pushed(sender_path) || receiver_path == 0 ? sender_path : receiver_path;
}

/* A send starts after its stage, which may be over by then, and anew with each attempt. */
static uint64_t whole_begin(const uint64_t *sent)
{
    uint64_t ready_ns = sent[CONVOY_TIME_READY];
    return ready_ns != 0 && ready_ns < sent[CONVOY_TIME_STARTED] ? ready_ns : sent[CONVOY_TIME_STARTED];
}

static struct interval stretch_interval(const struct convoy_pipeline_record *record,
                                        enum convoy_pipeline_stretch stretch)
{
    const uint64_t *sent = record->sender.times_ns;
    const uint64_t *got = record->receiver.times_ns;
    bool is_push = is_pushed(record->sender.path);
    switch (stretch) {
    case CONVOY_PIPELINE_STAGE:
        return (struct interval){sent[CONVOY_TIME_READY], sent[CONVOY_TIME_STAGED]};
    case CONVOY_PIPELINE_RESERVE:
        return is_push ? (struct interval){sent[CONVOY_TIME_STAGED], sent[CONVOY_TIME_OFFERED]} : (struct interval){0};
    case CONVOY_PIPELINE_PUSH:
        return is_push ? (struct interval){sent[CONVOY_TIME_OFFERED], sent[CONVOY_TIME_LOADED]} : (struct interval){0};
    case CONVOY_PIPELINE_READY:
        return (struct interval){sent[CONVOY_TIME_STAGED], got[CONVOY_TIME_OFFERED]};
    case CONVOY_PIPELINE_LOAD:
        return (struct interval){got[CONVOY_TIME_OFFERED], got[CONVOY_TIME_LOADED]};
    case CONVOY_PIPELINE_RELEASE:
        return (struct interval){record->receiver.released_ns, sent[CONVOY_TIME_RETURNED]};
    case CONVOY_PIPELINE_WHOLE:
        return (struct interval){whole_begin(sent), got[CONVOY_TIME_LOADED]};
    case CONVOY_PIPELINE_STRETCHES:
        break;
    }
    return (struct interval){0};
}

bool convoy_pipeline_stretch_of(const struct convoy_pipeline_record *record, enum convoy_pipeline_stretch stretch,
                                uint64_t *ns_out)
{
    struct interval interval = stretch_interval(record, stretch);
    if (interval.begin == 0 || interval.end < interval.begin) {
        return false;
    }
    *ns_out = interval.end - interval.begin;
    return true;
}

/* -- all of a hop --------------------------------------------------------------------------------------------------- */

static bool is_done(const struct convoy_pipeline_record *record)
{
    return record->sender.is_done != 0 && record->receiver.is_done != 0;
}

static int compare_numbers(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static int compare_intervals(const void *left, const void *right)
{
    return compare_numbers(&((const struct interval *)left)->begin, &((const struct interval *)right)->begin);
}

static void figures_quantiles(struct convoy_pipeline_board *board, uint32_t hop,
                              struct convoy_pipeline_figures *figures, uint64_t *samples)
{
    for (uint32_t stretch = 0; stretch < CONVOY_PIPELINE_STRETCHES; stretch++) {
        struct convoy_pipeline_quantiles *quantiles = &figures->stretches[stretch];
        uint32_t count = 0;
        for (uint32_t i = 0; i < board->setup.request_count; i++) {
            const struct convoy_pipeline_record *record = convoy_pipeline_board_record(board, hop, i);
            count += is_done(record) && convoy_pipeline_stretch_of(record, (enum convoy_pipeline_stretch)stretch,
                                                                   &samples[count]);
        }
        if (count != 0) {
            qsort(samples, count, sizeof *samples, compare_numbers);
            *quantiles = (struct convoy_pipeline_quantiles){
                .count = count, .median_ns = samples[count / 2], .p99_ns = samples[count - 1 - count / 100]};
        }
    }
}

/* Length of the union: requests overlap, and idle time between arrivals is not the hop's. */
static uint64_t figures_busy(struct convoy_pipeline_board *board, uint32_t hop, struct interval *intervals)
{
    uint32_t count = 0;
    uint64_t busy_ns = 0;
    uint64_t end = 0;
    for (uint32_t i = 0; i < board->setup.request_count; i++) {
        const struct convoy_pipeline_record *record = convoy_pipeline_board_record(board, hop, i);
        if (is_done(record)) {
            intervals[count++] = stretch_interval(record, CONVOY_PIPELINE_WHOLE);
        }
    }
    qsort(intervals, count, sizeof *intervals, compare_intervals);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t begin = intervals[i].begin > end ? intervals[i].begin : end;
        busy_ns += intervals[i].end > begin ? intervals[i].end - begin : 0;
        end = intervals[i].end > end ? intervals[i].end : end;
    }
    return busy_ns;
}

static void figures_sum(struct convoy_pipeline_board *board, uint32_t hop, struct convoy_pipeline_figures *figures)
{
    for (uint32_t i = 0; i < board->setup.request_count; i++) {
        const struct convoy_pipeline_record *record = convoy_pipeline_board_record(board, hop, i);
        const struct convoy_pipeline_side *sender = &record->sender;
        const struct convoy_pipeline_side *receiver = &record->receiver;
        figures->retries += sender->retries + receiver->retries + (sender->attempts > 1 ? sender->attempts - 1 : 0);
        figures->refusals += sender->refusals;
        if (is_done(record)) {
            figures->requests++;
            figures->asked_bytes += sender->payload_bytes;
            figures->moved_bytes += sender->moved_bytes + receiver->moved_bytes;
            uint32_t path = convoy_pipeline_path_taken(sender->path, receiver->path);
            figures->paths[path < CONVOY_PIPELINE_PATHS ? path : 0]++;
        }
    }
}

int32_t convoy_pipeline_figures_make(struct convoy_pipeline_board *board, uint32_t hop,
                                     struct convoy_pipeline_figures *figures_out, struct convoy_error *error)
{
    uint32_t count = board->setup.request_count;
    struct convoy_pipeline_figures figures = {0};
    uint64_t *samples = convoy_memory_array(count + 1u, sizeof *samples);
    struct interval *intervals = convoy_memory_array(count + 1u, sizeof *intervals);
    if (samples == NULL || intervals == NULL) {
        convoy_memory_free(samples);
        convoy_memory_free(intervals);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the figures of %u requests", count);
    }
    figures_sum(board, hop, &figures);
    figures_quantiles(board, hop, &figures, samples);
    figures.busy_ns = figures_busy(board, hop, intervals);
    convoy_memory_free(samples);
    convoy_memory_free(intervals);
    *figures_out = figures;
    return CONVOY_OK;
}

/* -- words ---------------------------------------------------------------------------------------------------------- */

const char *convoy_pipeline_stretch_name(enum convoy_pipeline_stretch stretch)
{
    static const char *const names[CONVOY_PIPELINE_STRETCHES] = {"stage", "reserve", "push",  "ready",
                                                                 "load",  "release", "whole"};
    return names[stretch];
}

const char *convoy_pipeline_path_name(uint32_t path)
{
    static const char *const names[CONVOY_PIPELINE_PATHS] = {"other",      "lend",         "push",   "pull",
                                                             "process_vm", "UCX messages", "UCX RMA"};
    return names[path < CONVOY_PIPELINE_PATHS ? path : 0];
}
