/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/exposition.h"

#include "tests/lib/expect.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 128u
#define LABELS_BYTES 512u
#define SAMPLES_MAX 20000u

enum type { TYPE_COUNTER, TYPE_GAUGE, TYPE_HISTOGRAM };

struct sample {
    char name[NAME_BYTES];
    char labels[LABELS_BYTES]; /* without engine and le */
    char end[NAME_BYTES];      /* of a bucket */
    double value;
    uint32_t metric;
};

struct metric {
    char name[NAME_BYTES];
    enum type type;
};

struct exposition {
    struct metric metrics[512];
    uint32_t metric_count;
    struct sample *samples;
    size_t count;
};

/* -- lines --------------------------------------------------------------------------------------------------------- */

/* [a-zA-Z_:][a-zA-Z0-9_:]*; returns what follows. */
static const char *read_name(const char *at, bool may_colon, char out[NAME_BYTES])
{
    size_t used = 0;
    EXPECT(isalpha((unsigned char)*at) || *at == '_');
    while (isalnum((unsigned char)*at) || *at == '_' || (may_colon && *at == ':')) {
        EXPECT(used + 1 < NAME_BYTES);
        out[used++] = *at++;
    }
    out[used] = '\0';
    return at;
}

static const char *read_quoted(const char *at, char *out, size_t room)
{
    size_t used = 0;
    EXPECT(*at == '"');
    for (at++; *at != '"'; at++) {
        EXPECT(*at != '\0' && *at != '\n' && used + 3 < room);
        if (*at == '\\') {
            out[used++] = *at++;
            EXPECT(*at == '\\' || *at == '"' || *at == 'n');
        }
        out[used++] = *at;
    }
    out[used] = '\0';
    return at + 1;
}

static const char *read_labels(const char *at, struct sample *sample)
{
    char seen[8][NAME_BYTES];
    uint32_t count = 0;
    size_t used = 0;
    for (; *at != '}'; at += *at == ',') {
        char value[LABELS_BYTES];
        EXPECT(count < 8);
        at = read_name(at, false, seen[count]);
        EXPECT(*at == '=');
        at = read_quoted(at + 1, value, sizeof value);
        EXPECT(*at == ',' || *at == '}');
        for (uint32_t i = 0; i < count; i++) {
            EXPECT(strcmp(seen[i], seen[count]) != 0);
        }
        if (strcmp(seen[count], "le") == 0) {
            (void)snprintf(sample->end, sizeof sample->end, "%.100s", value);
        } else if (strcmp(seen[count], "engine") != 0) {
            used += (size_t)snprintf(sample->labels + used, sizeof sample->labels - used, "%s%s=\"%.120s\"",
                                     used != 0 ? "," : "", seen[count], value);
            EXPECT(used < sizeof sample->labels);
        }
        count++;
    }
    return at + 1;
}

static double read_value(const char *at)
{
    char *end;
    EXPECT(*at == '-' || isdigit((unsigned char)*at));
    double value = strtod(at, &end);
    EXPECT(end != at && *end == '\0' && isfinite(value));
    return value;
}

/* A histogram's samples have three names. */
static bool is_of(const struct metric *metric, const char *name)
{
    size_t length = strlen(metric->name);
    const char *suffix = name + length;
    if (strncmp(metric->name, name, length) != 0) {
        return false;
    }
    return metric->type == TYPE_HISTOGRAM
               ? strcmp(suffix, "_bucket") == 0 || strcmp(suffix, "_sum") == 0 || strcmp(suffix, "_count") == 0
               : *suffix == '\0';
}

static void add_sample(struct exposition *exposition, const char *line)
{
    struct sample *sample = &exposition->samples[exposition->count];
    EXPECT(exposition->count < SAMPLES_MAX && exposition->metric_count != 0);
    memset(sample, 0, sizeof *sample);
    const char *at = read_name(line, true, sample->name);
    at = *at == '{' ? read_labels(at + 1, sample) : at;
    EXPECT(*at == ' ');
    sample->value = read_value(at + 1);
    sample->metric = exposition->metric_count - 1;
    const struct metric *metric = &exposition->metrics[sample->metric];
    EXPECT(is_of(metric, sample->name)); /* of the metric whose head was last, so all of one stand together */
    bool is_bucket = metric->type == TYPE_HISTOGRAM && strcmp(sample->name + strlen(metric->name), "_bucket") == 0;
    EXPECT((sample->end[0] != '\0') == is_bucket);
    EXPECT(metric->type != TYPE_COUNTER || (sample->value >= 0 && sample->value == floor(sample->value)));
    for (size_t i = 0; i < exposition->count; i++) {
        const struct sample *other = &exposition->samples[i];
        EXPECT(strcmp(other->name, sample->name) != 0 || strcmp(other->labels, sample->labels) != 0 ||
               strcmp(other->end, sample->end) != 0);
    }
    exposition->count++;
}

static void add_head(struct exposition *exposition, const char *help, const char *type)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    struct metric *metric = &exposition->metrics[exposition->metric_count];
    char name[NAME_BYTES];
    EXPECT(exposition->metric_count < 512);
    EXPECT(strncmp(help, "# HELP ", 7) == 0 && type != NULL && strncmp(type, "# TYPE ", 7) == 0);
    help = read_name(help + 7, true, metric->name);
    type = read_name(type + 7, true, name);
    EXPECT(strcmp(name, metric->name) == 0 && *type == ' ' && *help == ' ' && help[1] != '\0');
    uint32_t kind = 0;
    while (kind < 3 && strcmp(type + 1, types[kind]) != 0) {
        kind++;
    }
    EXPECT(kind < 3);
    metric->type = (enum type)kind;
    size_t length = strlen(metric->name);
    bool is_total = length > 6 && strcmp(metric->name + length - 6, "_total") == 0;
    EXPECT(is_total == (metric->type == TYPE_COUNTER));
    for (uint32_t i = 0; i < exposition->metric_count; i++) {
        EXPECT(strcmp(exposition->metrics[i].name, metric->name) != 0);
    }
    exposition->metric_count++;
}

/* -- histograms ---------------------------------------------------------------------------------------------------- */

static double value_of(const struct exposition *exposition, const struct metric *metric, const char *suffix,
                       const char *labels)
{
    char name[2 * NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s%s", metric->name, suffix);
    return exposition_value(exposition, name, labels);
}

/* From its first bucket on: the ends grow, the counts do not shrink, the last is all there are. */
static void check_buckets(const struct exposition *exposition, size_t first)
{
    const struct sample *start = &exposition->samples[first];
    const struct metric *metric = &exposition->metrics[start->metric];
    double end = 0;
    double count = 0;
    bool is_last = false;
    for (size_t i = first; i < exposition->count; i++) {
        const struct sample *bucket = &exposition->samples[i];
        if (strcmp(bucket->name, start->name) != 0 || strcmp(bucket->labels, start->labels) != 0) {
            continue;
        }
        EXPECT(!is_last && bucket->value >= count);
        is_last = strcmp(bucket->end, "+Inf") == 0;
        EXPECT(is_last || read_value(bucket->end) > end);
        end = is_last ? end : read_value(bucket->end);
        count = bucket->value;
    }
    EXPECT(is_last && count == value_of(exposition, metric, "_count", start->labels));
    double sum = value_of(exposition, metric, "_sum", start->labels);
    EXPECT(sum >= 0 && (count != 0 || sum == 0));
}

static void check_histograms(const struct exposition *exposition)
{
    for (size_t i = 0; i < exposition->count; i++) {
        const struct sample *sample = &exposition->samples[i];
        const struct sample *before = i != 0 ? &exposition->samples[i - 1] : NULL;
        bool is_first = before == NULL || strcmp(before->name, sample->name) != 0 || strcmp(before->labels, sample->labels) != 0;
        if (exposition->metrics[sample->metric].type == TYPE_HISTOGRAM && sample->end[0] != '\0' && is_first) {
            check_buckets(exposition, i);
        } else if (exposition->metrics[sample->metric].type == TYPE_HISTOGRAM && sample->end[0] == '\0') {
            (void)value_of(exposition, &exposition->metrics[sample->metric], "_sum", sample->labels);
        }
    }
}

/* -- the whole ----------------------------------------------------------------------------------------------------- */

struct exposition *exposition_read(const char *text, size_t length)
{
    struct exposition *exposition = calloc(1, sizeof *exposition);
    char *copy = strndup(text, length);
    char *next = NULL;
    EXPECT(exposition != NULL && copy != NULL && length != 0 && strlen(copy) == length && text[length - 1] == '\n');
    EXPECT(strstr(copy, "\n\n") == NULL && strchr(copy, '\r') == NULL);
    exposition->samples = malloc(SAMPLES_MAX * sizeof *exposition->samples);
    EXPECT(exposition->samples != NULL);
    for (char *line = strtok_r(copy, "\n", &next); line != NULL; line = strtok_r(NULL, "\n", &next)) {
        if (*line == '#') {
            add_head(exposition, line, strtok_r(NULL, "\n", &next));
        } else {
            add_sample(exposition, line);
        }
    }
    check_histograms(exposition);
    free(copy);
    return exposition;
}

void exposition_free(struct exposition *exposition)
{
    free(exposition->samples);
    free(exposition);
}

double exposition_value(const struct exposition *exposition, const char *name, const char *labels)
{
    for (size_t i = 0; i < exposition->count; i++) {
        const struct sample *sample = &exposition->samples[i];
        if (sample->end[0] == '\0' && strcmp(sample->name, name) == 0 && strcmp(sample->labels, labels) == 0) {
            return sample->value;
        }
    }
    expect_fail(EXPECT_SITE("exposition_value"), "there is no sample %s{%s}", name, labels);
    return 0;
}

size_t exposition_count(const struct exposition *exposition)
{
    return exposition->count;
}
