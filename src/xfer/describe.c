/* SPDX-License-Identifier: Apache-2.0 */
/* An engine as JSON: what it holds now, what it has counted, when what happened. */
#include "core/clock.h"
#include "core/memory.h"
#include "core/status.h"
#include "net/ucx_resources.h"
#include "xfer/device_jobs.h"
#include "xfer/far.h"
#include "xfer/stats.h"

#include <inttypes.h>
#include <stdio.h>

/* Of spare ones: NULL. */
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

/* The object of that name in it, made at the first call. */
static json_t *part_of(json_t *object, const char *name)
{
    json_t *part = json_object_get(object, name);
    if (part == NULL) {
        (void)json_object_set_new(object, name, json_object());
        part = json_object_get(object, name);
    }
    return part;
}

static json_t *describe_device(const struct convoy_xfer_device *device)
{
    char text[CONVOY_UCX_MEMORY_TEXT_BYTES];
    json_t *out = json_object();
    set_text(out, "name", convoy_device_name(device->device));
    (void)json_object_set_new(out, "pinned", json_boolean(device->is_pool_pinned));
    convoy_ucx_memory_text(device->ucx_memory, text);
    set_text(out, "ucx_takes", text);
    return out;
}

/* Samples that have a label lie one level deeper, by its value. A path that was not taken has no phases. */
static void describe_sample(void *user, const struct convoy_xfer_sample *sample)
{
    json_t *section = part_of(user, sample->section);
    json_t *object = sample->label != NULL ? part_of(section, sample->name) : section;
    const char *name = sample->label != NULL ? sample->value : sample->name;
    if (sample->histogram == NULL) {
        set_number(object, name, sample->number);
    } else if (convoy_latency_is_used(sample->histogram)) {
        (void)json_object_set_new(object, name, describe_phase(sample->histogram));
    }
}

/* What bulk says of itself: its lock is never waited for under the engine's. NULL: there is none. */
static json_t *ask_bulk(struct convoy_xfer *engine)
{
    convoy_xfer_lock(engine);
    const struct convoy_far *far = engine->far;
    convoy_xfer_unlock(engine);
    return far != NULL ? convoy_bulk_describe(far->bulk) : NULL;
}

/* Of those to whom something is under way, or for whom something waits. */
static json_t *describe_admitted(const struct convoy_xfer *engine)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        const struct convoy_admission_load *load = &engine->peers[i].admission.load;
        if (load->under_way == 0 && load->waiting == 0) {
            continue;
        }
        json_t *one = json_object();
        set_text(one, "session", engine->peers[i].session);
        set_number(one, "under_way", load->under_way);
        set_number(one, "under_way_bytes", load->under_way_bytes);
        set_number(one, "waiting", load->waiting);
        set_number(one, "waiting_bytes", load->waiting_bytes);
        (void)json_array_append_new(out, one);
    }
    return out;
}

/* bulk: taken. */
static json_t *describe_stats(struct convoy_xfer *engine, json_t *bulk)
{
    struct convoy_xfer_snapshot *snapshot = convoy_memory_zalloc(sizeof *snapshot);
    if (snapshot == NULL) {
        return NULL;
    }
    json_t *out = json_object();
    convoy_xfer_lock(engine);
    convoy_xfer_snapshot_take(engine, snapshot);
    if (engine->device != NULL) { /* figures follow from the snapshot */
        (void)json_object_set_new(out, "device", describe_device(engine->device));
    }
    if (bulk != NULL) {
        (void)json_object_set_new(part_of(out, "far"), "bulk", bulk);
    }
    (void)json_object_set_new(part_of(out, "admission"), "peers", describe_admitted(engine));
    set_number(part_of(out, "admission"), "overloaded", engine->counters[CONVOY_XFER_COUNT_overloaded]);
    convoy_xfer_unlock(engine);
    set_text(out, "session", snapshot->session);
    convoy_xfer_snapshot_walk(snapshot, describe_sample, out);
    convoy_memory_free(snapshot);
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
    if (entry->place != CONVOY_XFER_PLACE_NONE) {
        (void)json_object_set_new(out, "priority", json_integer(entry->wait.priority));
    }
    if (entry->place == CONVOY_XFER_PLACE_WAITING) {
        set_number(out, "waiting_ns", now_ns - entry->wait.since_ns);
    }
    (void)json_object_set_new(out, "lent", json_boolean(entry->is_lent));
    (void)json_object_set_new(out, "copying", json_boolean(entry->is_copying));
    (void)json_object_set_new(out, "hidden", json_boolean(entry->is_hidden));
    (void)json_object_set_new(out, "released", json_boolean(entry->is_released));
    if (entry->peer != CONVOY_XFER_NOBODY) {
        set_text(out, "peer", engine->peers[entry->peer].session);
    }
    return out;
}

/* How often its path has come up again, and for how long it was down: the last time, or by now. */
static json_t *dump_rewire(const struct convoy_far_wire *wire, uint64_t now_ns)
{
    json_t *out = json_object();
    set_number(out, "count", wire->count);
    set_number(out, "down_ns", wire->since_ns != 0 ? now_ns - wire->since_ns : wire->down_ns);
    (void)json_object_set_new(out, "is_up", json_boolean(wire->since_ns == 0));
    return out;
}

static json_t *dump_peers(const struct convoy_xfer *engine)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        const struct convoy_xfer_peer *peer = &engine->peers[i];
        if (peer->state == 0) {
            continue;
        }
        json_t *one = json_object();
        set_text(one, "session", peer->session);
        set_text(one, "state", convoy_xfer_peer_state_name(peer->state));
        set_text(one, "lane", peer->lane != NULL ? peer->lane->name : "closed");
        (void)json_object_set_new(one, "drained", json_boolean(peer->is_drained));
        set_number(one, "transfers", peer->entries);
        set_number(one, "backlog", peer->backlog_count);
        set_number(one, "sent_bytes", peer->sent_bytes);
        set_number(one, "received_bytes", peer->received_bytes);
        if (engine->far != NULL && peer->lane == &convoy_lane_far) {
            (void)json_object_set_new(one, "rewire", dump_rewire(&engine->far->peers[i].wire, convoy_now_ns()));
        }
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
        set_text(one, "path", convoy_xfer_path_name(past->path));
        for (uint32_t t = 0; t < CONVOY_TIMES; t++) {
            if (past->times_ns[t] != 0 && time_names[t] != NULL) {
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
        if (to < from || to == 0 || time_names[t] == NULL) {
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
    if (topic == CONVOY_TOPIC_STATS) {
        return describe_stats(engine, ask_bulk(engine));
    }
    convoy_xfer_lock(engine);
    json_t *out = topic == CONVOY_TOPIC_DUMP       ? describe_dump(engine)
                  : topic == CONVOY_TOPIC_TIMELINE ? describe_timeline(engine)
                                                   : describe_trace(engine);
    convoy_xfer_unlock(engine);
    if (topic == CONVOY_TOPIC_DUMP) {
        json_t *stats = describe_stats(engine, NULL);
        (void)json_object_set(out, "pool", json_object_get(stats, "pool"));
        (void)json_object_set(out, "admission", json_object_get(stats, "admission"));
        json_decref(stats);
    }
    return out;
}
