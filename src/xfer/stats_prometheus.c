/* SPDX-License-Identifier: Apache-2.0 */
/* Stats as Prometheus text. */
#include "core/memory.h"
#include "xfer/stats.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OCTAVE_FIRST 8u /* 256 ns */
#define OCTAVE_LAST 34u /* 17 s */
#define OCTAVE_STEP 2u
#define NAME_BYTES 96u
#define LABEL_BYTES (2u * CONVOY_SESSION_BYTES)
#define ROOM_FIRST 16384u

/* Text that grows. */
struct page {
    char *text; /* NULL: out of memory */
    size_t room;
    size_t length;
    char engine[LABEL_BYTES]; /* its session, escaped */
    char last[NAME_BYTES];    /* the metric whose head is printed */
};

static bool grow(struct page *page)
{
    char *grown = convoy_memory_zalloc(2 * page->room);
    if (grown != NULL) {
        memcpy(grown, page->text, page->length);
    }
    convoy_memory_free(page->text);
    page->text = grown;
    page->room *= 2;
    return grown != NULL;
}

static void print(struct page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void print(struct page *page, const char *format, ...)
{
    for (bool is_done = page->text == NULL; !is_done;) {
        va_list args;
        va_start(args, format);
        int length = vsnprintf(page->text + page->length, page->room - page->length, format, args);
        va_end(args);
        is_done = length < 0 || (size_t)length < page->room - page->length || !grow(page);
        page->length += is_done && length > 0 && page->text != NULL ? (size_t)length : 0;
    }
}

/* Backslash, quote and line feed, as the format wants. */
static void escape(const char *from, char out[LABEL_BYTES])
{
    size_t used = 0;
    for (; *from != '\0' && used + 3 < LABEL_BYTES; from++) {
        if (*from == '\\' || *from == '"' || *from == '\n') {
            out[used++] = '\\';
        }
        out[used++] = *from == '\n' ? 'n' : *from;
    }
    out[used] = '\0';
}

static void name_metric(const struct convoy_xfer_sample *sample, char out[NAME_BYTES])
{
    bool is_phase = sample->type == CONVOY_XFER_HISTOGRAM;
    bool is_counter = sample->type == CONVOY_XFER_COUNTER;
    bool is_plain = strcmp(sample->section, "counters") == 0 || strcmp(sample->section, "engine") == 0 || is_phase;
    (void)snprintf(out, NAME_BYTES, "convoy_transfer_%s%s%s%s", is_plain ? "" : sample->section, is_plain ? "" : "_",
                   sample->name, is_phase ? "_seconds" : is_counter ? "_total" : "");
}

static void print_head(struct page *page, const char *metric, const struct convoy_xfer_sample *sample)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    if (strcmp(page->last, metric) != 0) {
        (void)snprintf(page->last, sizeof page->last, "%s", metric);
        print(page, "# HELP %s %s\n# TYPE %s %s\n", metric, sample->help, metric, types[sample->type]);
    }
}

/* All of a line but its value. end: of a bucket, or NULL. */
static void print_labels(struct page *page, const char *metric, const char *suffix,
                         const struct convoy_xfer_sample *sample, const char *end)
{
    print(page, "%s%s{engine=\"%s\"", metric, suffix, page->engine);
    if (sample->label != NULL) {
        print(page, ",%s=\"%s\"", sample->label, sample->value);
    }
    if (end != NULL) {
        print(page, ",le=\"%s\"", end);
    }
    print(page, "} ");
}

/* As round/stats_prometheus.c: a subset of the histogram's own buckets, whose ends are exact. */
static void print_histogram(struct page *page, const char *metric, const struct convoy_xfer_sample *sample)
{
    struct convoy_latency_view view;
    char end[32];
    convoy_latency_read(sample->histogram, &view);
    if (view.count == 0) { /* a path that was not taken, or has no such phase */
        return;
    }
    for (uint32_t octave = OCTAVE_FIRST; octave <= OCTAVE_LAST; octave += OCTAVE_STEP) {
        (void)snprintf(end, sizeof end, "%.12g", (double)((uint64_t)1 << octave) * 1e-9);
        print_labels(page, metric, "_bucket", sample, end);
        print(page, "%llu\n", (unsigned long long)convoy_latency_count_within(&view, octave));
    }
    print_labels(page, metric, "_bucket", sample, "+Inf");
    print(page, "%llu\n", (unsigned long long)view.count);
    print_labels(page, metric, "_sum", sample, NULL);
    print(page, "%.9f\n", (double)view.sum_ns * 1e-9);
    print_labels(page, metric, "_count", sample, NULL);
    print(page, "%llu\n", (unsigned long long)view.count);
}

static void print_sample(void *user, const struct convoy_xfer_sample *sample)
{
    struct page *page = user;
    char metric[NAME_BYTES];
    name_metric(sample, metric);
    print_head(page, metric, sample);
    if (sample->type == CONVOY_XFER_HISTOGRAM) {
        print_histogram(page, metric, sample);
    } else {
        print_labels(page, metric, "", sample, NULL);
        print(page, "%llu\n", (unsigned long long)sample->number);
    }
}

char *convoy_xfer_prometheus(struct convoy_xfer *engine, size_t *length_out)
{
    struct page page = {.text = convoy_memory_zalloc(ROOM_FIRST), .room = ROOM_FIRST};
    struct convoy_xfer_snapshot *snapshot = convoy_memory_zalloc(sizeof *snapshot);
    if (snapshot == NULL || page.text == NULL) {
        convoy_memory_free(snapshot);
        convoy_memory_free(page.text);
        return NULL;
    }
    convoy_xfer_lock(engine);
    convoy_xfer_snapshot_take(engine, snapshot);
    convoy_xfer_unlock(engine);
    escape(snapshot->session, page.engine);
    convoy_xfer_snapshot_walk(snapshot, print_sample, &page);
    convoy_memory_free(snapshot);
    *length_out = page.length;
    return page.text;
}
