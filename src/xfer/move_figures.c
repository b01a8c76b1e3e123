/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine has counted and measured, by name, so that builds that count other things agree on what they share. All of
 * it may be dropped. */
#include "core/bytes.h"
#include "core/error.h"
#include "xfer/move_parts.h"

#include <string.h>

#define ITEM_NAME 2u
#define ITEM_BUCKET 3u /* number 8, count 8 */

static const char *const counter_names[] = {
#define NAME(name, ...) #name,
    CONVOY_XFER_COUNTERS(NAME)};
static const char *const phase_names[] = {CONVOY_XFER_PHASES(NAME)};

struct phase_fields {
    uint32_t path;
    uint64_t sum_ns;
    uint64_t max_ns;
};

static const struct convoy_bundle_field phase_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct phase_fields, path),
    CONVOY_BUNDLE_FIELD(2, struct phase_fields, sum_ns),
    CONVOY_BUNDLE_FIELD(3, struct phase_fields, max_ns),
};

struct past_fields {
    uint32_t number; /* from 0, over all there were */
    struct convoy_xfer_past past;
};

#define PAST(tag, member) CONVOY_BUNDLE_FIELD(tag, struct past_fields, member)
static const struct convoy_bundle_field past_field_list[] = {
    PAST(1, number),      PAST(2, past.request), PAST(3, past.kind), PAST(4, past.attempt),  PAST(5, past.state),
    PAST(6, past.status), PAST(7, past.path),    PAST(8, past.bytes), PAST(9, past.times_ns),
};
CONVOY_XFER_SHAPE(phase);
CONVOY_XFER_SHAPE(past);

/* -- out ----------------------------------------------------------------------------------------------------------- */

static void save_phase(const struct convoy_xfer_saving *saving, uint32_t phase, uint32_t path)
{
    struct convoy_bundle_writer *writer = saving->writer;
    struct convoy_latency_view view;
    if (!convoy_latency_is_used(&saving->engine->phases[phase][path])) {
        return;
    }
    convoy_latency_read(&saving->engine->phases[phase][path], &view);
    const struct phase_fields fields = {.path = path, .sum_ns = view.sum_ns, .max_ns = view.max_ns};
    size_t opened = convoy_bundle_open(writer, CONVOY_XFER_ITEM_PHASE, 0);
    convoy_bundle_put_fields(writer, &phase_shape, &fields);
    convoy_bundle_put(writer, ITEM_NAME, 0, phase_names[phase], strlen(phase_names[phase]));
    for (uint32_t i = 0; i < CONVOY_LATENCY_BUCKETS; i++) {
        const uint64_t bucket[2] = {i, view.buckets[i]};
        if (bucket[1] != 0) {
            convoy_bundle_put(writer, ITEM_BUCKET, 0, bucket, sizeof bucket);
        }
    }
    convoy_bundle_shut(writer, opened);
}

/* The timeline. */
static void save_past(const struct convoy_xfer_saving *saving)
{
    const struct convoy_xfer *engine = saving->engine;
    uint32_t kept = engine->past_count < CONVOY_XFER_TIMELINE ? engine->past_count : CONVOY_XFER_TIMELINE;
    for (uint32_t i = engine->past_count - kept; i < engine->past_count; i++) {
        const struct past_fields fields = {.number = i, .past = engine->past[i % CONVOY_XFER_TIMELINE]};
        size_t opened = convoy_bundle_open(saving->writer, CONVOY_XFER_ITEM_PAST, 0);
        convoy_bundle_put_fields(saving->writer, &past_shape, &fields);
        convoy_bundle_shut(saving->writer, opened);
    }
}

void convoy_xfer_save_figures(const struct convoy_xfer_saving *saving)
{
    uint8_t item[64];
    for (uint32_t i = 0; i < CONVOY_XFER_COUNTER_COUNT; i++) {
        size_t length = strlen(counter_names[i]);
        if (saving->engine->counters[i] != 0 && length <= sizeof item - 8) {
            convoy_bytes_put_u64(item, saving->engine->counters[i]);
            memcpy(item + 8, counter_names[i], length);
            convoy_bundle_put(saving->writer, CONVOY_XFER_ITEM_COUNTER, 0, item, 8 + length);
        }
    }
    for (uint32_t phase = 0; phase < CONVOY_XFER_PHASE_COUNT; phase++) {
        for (uint32_t path = 0; path < CONVOY_XFER_PATHS; path++) {
            save_phase(saving, phase, path);
        }
    }
    save_past(saving);
}

/* -- in ------------------------------------------------------------------------------------------------------------ */

static uint32_t find(const char *const *names, uint32_t count, const uint8_t *name, size_t length)
{
    uint32_t at = 0;
    while (at < count && (strlen(names[at]) != length || memcmp(names[at], name, length) != 0)) {
        at++;
    }
    return at;
}

int32_t convoy_xfer_restore_counter(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                    struct convoy_error *error)
{
    (void)error;
    uint32_t at = item->bytes > 8 ? find(counter_names, CONVOY_XFER_COUNTER_COUNT, item->data + 8, item->bytes - 8)
                                  : CONVOY_XFER_COUNTER_COUNT;
    if (at < CONVOY_XFER_COUNTER_COUNT) {
        restoring->engine->counters[at] = convoy_bytes_u64(item->data);
    }
    return CONVOY_OK;
}

struct phase_in {
    struct phase_fields fields;
    uint32_t phase;
    uint64_t buckets[CONVOY_LATENCY_BUCKETS];
};

static int32_t phase_inner(void *user, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct phase_in *in = user;
    (void)error;
    if (item->tag == ITEM_NAME) {
        in->phase = find(phase_names, CONVOY_XFER_PHASE_COUNT, item->data, item->bytes);
    } else if (item->tag == ITEM_BUCKET && item->bytes == 16 && convoy_bytes_u64(item->data) < CONVOY_LATENCY_BUCKETS) {
        in->buckets[convoy_bytes_u64(item->data)] = convoy_bytes_u64(item->data + 8);
    }
    return CONVOY_OK;
}

int32_t convoy_xfer_restore_phase(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                  struct convoy_error *error)
{
    struct phase_in in = {.phase = CONVOY_XFER_PHASE_COUNT};
    const struct convoy_xfer_reading reading = {&phase_shape, &in.fields, phase_inner, &in};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    if (status != CONVOY_OK || in.phase >= CONVOY_XFER_PHASE_COUNT || in.fields.path >= CONVOY_XFER_PATHS) {
        return status; /* a phase or a path that is not measured here */
    }
    struct convoy_latency *histogram = &restoring->engine->phases[in.phase][in.fields.path];
    for (uint32_t i = 0; i < CONVOY_LATENCY_BUCKETS; i++) {
        histogram->buckets[i] = in.buckets[i];
    }
    histogram->sum_ns = in.fields.sum_ns;
    histogram->max_ns = in.fields.max_ns;
    return CONVOY_OK;
}

int32_t convoy_xfer_restore_past(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct past_fields fields = {.number = 0};
    const struct convoy_xfer_past *past = &fields.past;
    const struct convoy_xfer_reading reading = {&past_shape, &fields, NULL, NULL};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    if (status == CONVOY_OK && fields.number < engine->past_count && (uint32_t)past->kind < CONVOY_XFER_KINDS &&
        past->state < CONVOY_XFER_STATES && past->path < CONVOY_XFER_PATHS &&
        past->request[sizeof past->request - 1] == '\0') {
        engine->past[fields.number % CONVOY_XFER_TIMELINE] = *past;
    }
    return status;
}
