/* SPDX-License-Identifier: Apache-2.0 */
#include "round/stats_names.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#define OCTAVE_FIRST 8u /* 256 ns */
#define OCTAVE_LAST 34u /* 17 s */
#define OCTAVE_STEP 2u
#define LABEL_BYTES 288u /* of a name of 127 bytes, each escaped */

/* Text that may be longer than its room: goes on counting. */
struct writer {
    char *text;
    size_t capacity;
    size_t length;
};

static void print(struct writer *writer, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void print(struct writer *writer, const char *format, ...)
{
    size_t used = writer->length < writer->capacity ? writer->length : writer->capacity;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(writer->capacity != 0 ? writer->text + used : NULL, writer->capacity - used, format, args);
    va_end(args);
    writer->length += length > 0 ? (size_t)length : 0;
}

static void print_head(struct writer *writer, const char *metric, const char *type, const char *help)
{
    print(writer, "# HELP convoy_%s %s\n# TYPE convoy_%s %s\n", metric, help, metric, type);
}

/* Backslash, quote and line feed are escaped, as the text format wants. */
static void escape(const char *name, size_t length, char out[LABEL_BYTES])
{
    size_t used = 0;
    for (size_t i = 0; i < length && used + 3 < LABEL_BYTES; i++) {
        bool is_special = name[i] == '\\' || name[i] == '"' || name[i] == '\n';
        if (is_special) {
            out[used++] = '\\';
        }
        out[used++] = name[i] == '\n' ? 'n' : name[i];
    }
    out[used] = '\0';
}

/* One line but for its value. */
struct line {
    const char *metric;
    const struct convoy_stats_source *source;
    const char *operation; /* NULL = no such label */
    const char *label;     /* one more label, or NULL */
    const char *value;     /* of that label */
};

static void print_line(struct writer *writer, const struct line *line)
{
    char group[LABEL_BYTES];
    escape(line->source->group, line->source->group_length, group);
    print(writer, "convoy_%s{group=\"%s\",rank=\"%d\"", line->metric, group, line->source->rank);
    if (line->operation != NULL) {
        print(writer, ",operation=\"%s\"", line->operation);
    }
    if (line->label != NULL) {
        print(writer, ",%s=\"%s\"", line->label, line->value);
    }
    print(writer, "} ");
}

static void print_count(struct writer *writer, const struct line *line, uint64_t count)
{
    print_line(writer, line);
    print(writer, "%llu\n", (unsigned long long)count);
}

/* -- metrics, each over one operation of one group ----------------------------------------------------------------- */

typedef void (*metric_fn)(struct writer *writer, struct line *line, const struct convoy_operation_stats *stats,
                          uint32_t field);

static void print_outcomes(struct writer *writer, struct line *line, const struct convoy_operation_stats *stats,
                           uint32_t field)
{
    (void)field;
    for (uint32_t i = 0; i < CONVOY_STATS_OUTCOMES; i++) {
        line->label = "status";
        line->value = convoy_stats_outcome_name(i);
        print_count(writer, line, convoy_stats_load(&stats->outcomes[i]));
    }
}

static void print_waits(struct writer *writer, struct line *line, const struct convoy_operation_stats *stats,
                        uint32_t field)
{
    (void)field;
    for (uint32_t i = 0; i < CONVOY_WAIT_KINDS; i++) {
        line->label = "kind";
        line->value = convoy_stats_wait_name(i);
        print_count(writer, line, convoy_stats_load(&stats->waits[i]));
    }
}

static void print_field(struct writer *writer, struct line *line, const struct convoy_operation_stats *stats,
                        uint32_t field)
{
    print_count(writer, line, convoy_stats_load(convoy_stats_field_of(stats, field)));
}

/* The histogram's own buckets are finer; a subset keeps the page small, and their ends are exact. field: 0 call, 1
 * wait. */
static void print_histogram(struct writer *writer, struct line *line, const struct convoy_operation_stats *stats,
                            uint32_t field)
{
    struct convoy_latency_view view;
    convoy_latency_read(field == 0 ? &stats->call_ns : &stats->wait_ns, &view);
    char metric[64];
    char end[32];
    (void)snprintf(metric, sizeof metric, "%s_bucket", line->metric);
    struct line bucket = {metric, line->source, line->operation, "le", end};
    for (uint32_t octave = OCTAVE_FIRST; octave <= OCTAVE_LAST; octave += OCTAVE_STEP) {
        (void)snprintf(end, sizeof end, "%.12g", (double)((uint64_t)1 << octave) * 1e-9);
        print_count(writer, &bucket, convoy_latency_count_within(&view, octave));
    }
    (void)snprintf(end, sizeof end, "+Inf");
    print_count(writer, &bucket, view.count);
    bucket.label = NULL;
    (void)snprintf(metric, sizeof metric, "%s_sum", line->metric);
    print_line(writer, &bucket);
    print(writer, "%.9g\n", (double)view.sum_ns * 1e-9);
    (void)snprintf(metric, sizeof metric, "%s_count", line->metric);
    print_count(writer, &bucket, view.count);
}

struct metric {
    const char *name;
    const char *type;
    const char *help;
    metric_fn print;
    uint32_t field;
};

/* All lines of one metric stand together, as the format wants. */
static void print_metric(struct writer *writer, const struct metric *metric, const struct convoy_stats_source *sources,
                         size_t count)
{
    print_head(writer, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < CONVOY_STATS_OPERATIONS; j++) {
            struct line line = {metric->name, &sources[i],
                                convoy_stats_operation_name(j + CONVOY_OPERATION_POLL), NULL, NULL};
            metric->print(writer, &line, &sources[i].stats->operations[j], metric->field);
        }
    }
}

static void print_events(struct writer *writer, const struct convoy_stats_source *sources, size_t count)
{
    print_head(writer, "events_total", "counter", "What happened beside rounds.");
    for (size_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < CONVOY_STATS_EVENTS; j++) {
            struct line line = {"events_total", &sources[i], NULL, "event", convoy_stats_event_name(j)};
            print_count(writer, &line, convoy_stats_load(&sources[i].stats->events[j]));
        }
    }
}

static void print_rewires(struct writer *writer, const struct convoy_stats_source *sources, size_t count)
{
    print_head(writer, "rewires_total", "counter", "Ways to members on other hosts made anew after one end moved.");
    for (size_t i = 0; i < count; i++) {
        struct line line = {"rewires_total", &sources[i], NULL, NULL, NULL};
        print_count(writer, &line, convoy_stats_load(&sources[i].stats->rewires));
    }
}

size_t convoy_stats_prometheus(const struct convoy_stats_source *sources, size_t count, char *text, size_t capacity)
{
    static const struct metric metrics[] = {
        {"rounds_total", "counter", "Rounds by operation and how they ended.", print_outcomes, 0},
        {"waits_total", "counter", "Rounds by the most expensive kind of waiting.", print_waits, 0},
        {"call_seconds", "histogram", "Time of a call, from start to result.", print_histogram, 0},
        {"wait_seconds", "histogram", "Time of a call spent waiting for other members.", print_histogram, 1},
    };
    struct writer writer = {.text = text, .capacity = capacity};
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        print_metric(&writer, &metrics[i], sources, count);
    }
    for (uint32_t i = 0; i < CONVOY_STATS_FIELDS; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s_total", convoy_stats_fields[i].name);
        const struct metric metric = {name, "counter", convoy_stats_fields[i].help, print_field, i};
        print_metric(&writer, &metric, sources, count);
    }
    print_events(&writer, sources, count);
    print_rewires(&writer, sources, count);
    return writer.length;
}
