/* SPDX-License-Identifier: Apache-2.0 */
/* An engine as JSON: what it holds now, what it has counted, when what happened. */
#include "core/clock.h"
#include "core/status.h"
#include "xfer/device_jobs.h"
#include "xfer/far.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const counter_names[] = {
#define COUNTER_NAME(name) #name,
    CONVOY_XFER_COUNTERS(COUNTER_NAME)};

static const char *const phase_names[] = {
#define PHASE_NAME(name) #name,
    CONVOY_XFER_PHASES(PHASE_NAME)};

static const char *const time_names[CONVOY_TIMES] = {"started", "ready", "staged", "offered", "loaded", "returned"};

static void set_number(json_t *object, const char *name, uint64_t value)
{
    (void)json_object_set_new(object, name, json_integer((json_int_t)value));
}

static void set_text(json_t *object, const char *name, const char *text)
{
    (void)json_object_set_new(object, name, json_string(text));
}

/* -- stats --------------------------------------------------------------------------------------------------------- */

static json_t *describe_pool(struct convoy_pool *pool)
{
    struct convoy_pool_figures figures;
    json_t *out = json_object();
    convoy_pool_figures(pool, &figures);
    set_number(out, "capacity", figures.blocks.capacity);
    set_number(out, "asked", figures.blocks.asked);
    set_number(out, "taken", figures.blocks.taken);
    set_number(out, "free", figures.blocks.free);
    set_number(out, "largest_free", figures.blocks.largest_free);
    set_number(out, "quarantined", figures.leases.bytes[CONVOY_LEASE_RETIRED]);
    set_number(out, "readers", figures.leases.references[CONVOY_REFERENCE_READ]);
    set_number(out, "exhausted", figures.exhausted);
    set_number(out, "stale", figures.leases.stale);
    for (uint32_t i = CONVOY_LEASE_TAKEN; i < CONVOY_LEASE_STATES; i++) {
        char name[40];
        (void)snprintf(name, sizeof name, "leases_%s", convoy_lease_state_name((enum convoy_lease_state)i));
        set_number(out, name, figures.leases.counts[i]);
    }
    return out;
}

static json_t *describe_phase(const struct convoy_latency *phase)
{
    struct convoy_latency_view view;
    json_t *out = json_object();
    convoy_latency_read(phase, &view);
    set_number(out, "count", view.count);
    set_number(out, "sum_ns", view.sum_ns);
    set_number(out, "p50_ns", convoy_latency_percentile(&view, 500000));
    set_number(out, "p99_ns", convoy_latency_percentile(&view, 990000));
    set_number(out, "max_ns", view.max_ns);
    return out;
}

static json_t *describe_far(const struct convoy_far *far)
{
    struct convoy_landing_figures figures;
    json_t *out = json_object();
    convoy_landing_figures(far->landings, &figures);
    set_number(out, "landings_open", figures.open);
    set_number(out, "landed_bytes", figures.landed_bytes);
    set_number(out, "chunks_refused", figures.refused);
    (void)json_object_set_new(out, "bulk", convoy_bulk_describe(far->bulk));
    return out;
}

static json_t *describe_device(const struct convoy_xfer_device *device)
{
    json_t *out = json_object();
    set_text(out, "name", convoy_device_name(device->device));
    set_number(out, "copies", device->count);
    set_number(out, "copies_lost", device->lost_count);
    set_number(out, "copied_bytes", device->copied_bytes);
    (void)json_object_set_new(out, "pinned", json_boolean(device->is_pool_pinned));
    if (device->pool != NULL) {
        (void)json_object_set_new(out, "pool", describe_pool(device->pool));
    }
    return out;
}

static json_t *describe_stats(struct convoy_xfer *engine)
{
    json_t *out = json_object();
    json_t *counters = json_object();
    json_t *phases = json_object();
    set_text(out, "session", engine->session);
    for (uint32_t i = 0; i < CONVOY_XFER_COUNTER_COUNT; i++) {
        set_number(counters, counter_names[i], engine->counters[i]);
    }
    for (uint32_t i = 0; i < CONVOY_XFER_PHASE_COUNT; i++) {
        (void)json_object_set_new(phases, phase_names[i], describe_phase(&engine->phases[i]));
    }
    (void)json_object_set_new(out, "counters", counters);
    (void)json_object_set_new(out, "phases", phases);
    (void)json_object_set_new(out, "pool", describe_pool(engine->pool));
    (void)json_object_set_new(out, "notes", describe_pool(engine->notes));
    if (engine->device != NULL) {
        (void)json_object_set_new(out, "device", describe_device(engine->device));
    }
    if (engine->far != NULL) {
        (void)json_object_set_new(out, "far", describe_far(engine->far));
    }
    return out;
}

/* -- dump ---------------------------------------------------------------------------------------------------------- */

static json_t *dump_entry(const struct convoy_xfer *engine, const struct convoy_xfer_entry *entry, uint64_t now_ns)
{
    json_t *out = json_object();
    char handle[20];
    (void)snprintf(handle, sizeof handle, "%016" PRIx64, convoy_xfer_entry_handle(entry));
    set_text(out, "transfer", handle);
    set_text(out, "kind", convoy_xfer_kind_name(entry->kind));
    set_text(out, "state", convoy_xfer_state_name(entry->state));
    set_text(out, "request", entry->request);
    set_number(out, "attempt", entry->attempt);
    set_text(out, "status", convoy_status_name(entry->status));
    set_number(out, "bytes", entry->payload_bytes);
    set_number(out, "age_ns", now_ns - entry->times_ns[CONVOY_TIME_STARTED]);
    set_number(out, "users", entry->users);
    (void)json_object_set_new(out, "lent", json_boolean(entry->is_lent));
    (void)json_object_set_new(out, "copying", json_boolean(entry->is_copying));
    (void)json_object_set_new(out, "hidden", json_boolean(entry->is_hidden));
    (void)json_object_set_new(out, "released", json_boolean(entry->is_released));
    if (entry->peer != CONVOY_XFER_NOBODY) {
        set_text(out, "peer", engine->peers[entry->peer].session);
    }
    return out;
}

static json_t *dump_peers(const struct convoy_xfer *engine)
{
    static const char *const states[] = {"free", "connected", "closed", "lost"};
    json_t *out = json_array();
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        const struct convoy_xfer_peer *peer = &engine->peers[i];
        if (peer->state == 0) {
            continue;
        }
        json_t *one = json_object();
        set_text(one, "session", peer->session);
        set_text(one, "state", states[peer->state]);
        set_text(one, "lane", peer->lane != NULL ? peer->lane->name : "closed");
        (void)json_object_set_new(one, "drained", json_boolean(peer->is_drained));
        set_number(one, "transfers", peer->entries);
        set_number(one, "backlog", peer->backlog_count);
        set_number(one, "sent_bytes", peer->sent_bytes);
        set_number(one, "received_bytes", peer->received_bytes);
        (void)json_array_append_new(out, one);
    }
    return out;
}

static json_t *describe_dump(struct convoy_xfer *engine)
{
    uint64_t now = convoy_now_ns();
    json_t *out = json_object();
    json_t *transfers = json_array();
    set_text(out, "session", engine->session);
    set_text(out, "state", engine->state == CONVOY_ENGINE_OPEN ? "open" : "closing");
    set_number(out, "offers_waiting", engine->waiting_count);
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        (void)json_array_append_new(transfers, dump_entry(engine, &engine->entries[at], now));
    }
    (void)json_object_set_new(out, "transfers", transfers);
    (void)json_object_set_new(out, "peers", dump_peers(engine));
    (void)json_object_set_new(out, "pool", describe_pool(engine->pool));
    return out;
}

/* -- timeline ------------------------------------------------------------------------------------------------------ */

static uint32_t past_first(const struct convoy_xfer *engine)
{
    return engine->past_count > CONVOY_XFER_TIMELINE ? engine->past_count - CONVOY_XFER_TIMELINE : 0;
}

static json_t *describe_timeline(const struct convoy_xfer *engine)
{
    json_t *out = json_array();
    for (uint32_t i = past_first(engine); i < engine->past_count; i++) {
        const struct convoy_xfer_past *past = &engine->past[i % CONVOY_XFER_TIMELINE];
        json_t *one = json_object();
        set_text(one, "request", past->request);
        set_text(one, "kind", convoy_xfer_kind_name(past->kind));
        set_number(one, "attempt", past->attempt);
        set_text(one, "state", convoy_xfer_state_name(past->state));
        set_text(one, "status", convoy_status_name(past->status));
        set_number(one, "bytes", past->bytes);
        set_number(one, "path", past->path);
        for (uint32_t t = 0; t < CONVOY_TIMES; t++) {
            if (past->times_ns[t] != 0) {
                char name[24];
                (void)snprintf(name, sizeof name, "%s_ns", time_names[t]);
                set_number(one, name, past->times_ns[t]);
            }
        }
        (void)json_array_append_new(out, one);
    }
    return out;
}

/* One complete event per phase, from the last moment that was reached to the next. */
static void trace_one(json_t *events, const struct convoy_xfer_past *past)
{
    uint64_t from = past->times_ns[CONVOY_TIME_STARTED];
    for (uint32_t t = 1; t < CONVOY_TIMES; t++) {
        uint64_t to = past->times_ns[t];
        if (to < from || to == 0) {
            continue;
        }
        json_t *event = json_object();
        char name[96];
        (void)snprintf(name, sizeof name, "%.63s %s", past->request, time_names[t]);
        set_text(event, "name", name);
        set_text(event, "cat", convoy_xfer_kind_name(past->kind));
        set_text(event, "ph", "X");
        (void)json_object_set_new(event, "ts", json_real((double)from / 1000.0));
        (void)json_object_set_new(event, "dur", json_real((double)(to - from) / 1000.0));
        set_number(event, "pid", 1);
        set_number(event, "tid", (uint64_t)past->kind);
        (void)json_array_append_new(events, event);
        from = to;
    }
}

static json_t *describe_trace(const struct convoy_xfer *engine)
{
    json_t *out = json_object();
    json_t *events = json_array();
    for (uint32_t i = past_first(engine); i < engine->past_count; i++) {
        trace_one(events, &engine->past[i % CONVOY_XFER_TIMELINE]);
    }
    (void)json_object_set_new(out, "traceEvents", events);
    set_text(out, "displayTimeUnit", "ns");
    return out;
}

json_t *convoy_xfer_describe(struct convoy_xfer *engine, uint32_t topic)
{
    convoy_xfer_lock(engine);
    json_t *out = topic == CONVOY_TOPIC_STATS      ? describe_stats(engine)
                  : topic == CONVOY_TOPIC_DUMP     ? describe_dump(engine)
                  : topic == CONVOY_TOPIC_TIMELINE ? describe_timeline(engine)
                                                   : describe_trace(engine);
    convoy_xfer_unlock(engine);
    return out;
}
