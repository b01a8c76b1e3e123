/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/raw.h"
#include "xfer/stats.h"

#include "core/clock.h"
#include "xfer/device_jobs.h"
#include "xfer/far.h"

#include <stdio.h>
#include <string.h>

/* -- phases -------------------------------------------------------------------------------------------------------- */

/* Of which kind of transfer, in which state, between which two of its times. */
struct phase {
    const char *name;
    const char *help;
};

static const struct phase phases[CONVOY_XFER_PHASE_COUNT] = {
#define PHASE(name_, help_) {.name = #name_, .help = help_},
    CONVOY_XFER_PHASES(PHASE)
#undef PHASE
};

static bool is_pushed(uint32_t path)
{
    return path == CONVOY_PATH_PUSH || path == CONVOY_PATH_MESSAGES || path == CONVOY_PATH_RMA;
}

/* Nothing for one that has no such phase. */
static void add(struct convoy_xfer *engine, const struct convoy_xfer_entry *entry, enum convoy_xfer_phase phase,
                uint32_t from, uint32_t to)
{
    uint64_t start = entry->times_ns[from];
    uint64_t end = entry->times_ns[to];
    if (start != 0 && end >= start) {
        convoy_latency_record(&engine->phases[phase][entry->path < CONVOY_XFER_PATHS ? entry->path : 0], end - start);
    }
}

static void add_send(struct convoy_xfer *engine, const struct convoy_xfer_entry *entry)
{
    if (is_pushed(entry->path)) {
        add(engine, entry, CONVOY_XFER_PHASE_reserve, CONVOY_TIME_STAGED, CONVOY_TIME_OFFERED);
        add(engine, entry, CONVOY_XFER_PHASE_push, CONVOY_TIME_OFFERED, CONVOY_TIME_LOADED);
    } else {
        add(engine, entry, CONVOY_XFER_PHASE_offer, CONVOY_TIME_OFFERED, CONVOY_TIME_LOADED);
    }
}

void convoy_xfer_record(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    struct convoy_xfer_past *past = &engine->past[engine->past_count++ % CONVOY_XFER_TIMELINE];
    const size_t most = sizeof past->request - 1;
    entry->past = engine->past_count;
    *past = (struct convoy_xfer_past){
        .kind = entry->kind,
        .attempt = entry->attempt,
        .state = entry->state,
        .status = entry->status,
        .path = entry->path,
        .bytes = entry->payload_bytes,
    };
    memcpy(past->times_ns, entry->times_ns, sizeof past->times_ns);
    memcpy(past->request, entry->request, entry->request_length < most ? entry->request_length : most);
    if (entry->state == CONVOY_TRANSFER_STAGED) {
        add(engine, entry, CONVOY_XFER_PHASE_stage, CONVOY_TIME_READY, CONVOY_TIME_STAGED);
    } else if (entry->state == CONVOY_TRANSFER_SENT) {
        add_send(engine, entry);
    } else if (entry->state == CONVOY_TRANSFER_LOADED) {
        add(engine, entry, CONVOY_XFER_PHASE_ready, CONVOY_TIME_STARTED, CONVOY_TIME_OFFERED);
        add(engine, entry, CONVOY_XFER_PHASE_load, CONVOY_TIME_OFFERED, CONVOY_TIME_LOADED);
    }
}

void convoy_xfer_record_returned(struct convoy_xfer *engine, const struct convoy_xfer_entry *entry)
{
    add(engine, entry, CONVOY_XFER_PHASE_release, CONVOY_TIME_LOADED, CONVOY_TIME_RETURNED);
    if (entry->past != 0 && engine->past_count - entry->past < CONVOY_XFER_TIMELINE) { /* it is still told of */
        engine->past[(entry->past - 1) % CONVOY_XFER_TIMELINE].times_ns[CONVOY_TIME_RETURNED] =
            entry->times_ns[CONVOY_TIME_RETURNED];
    }
}

void convoy_xfer_record_raw(struct convoy_xfer *engine, int32_t status, bool is_far, uint64_t began_ns)
{
    uint32_t path = is_far ? CONVOY_PATH_MESSAGES : CONVOY_PATH_PUSH;
    if (status == CONVOY_OK) {
        convoy_latency_record(&engine->phases[CONVOY_XFER_PHASE_push][path], convoy_now_ns() - began_ns);
    }
}

/* -- names --------------------------------------------------------------------------------------------------------- */

static const struct phase counters[CONVOY_XFER_COUNTER_COUNT] = {
#define COUNTER(name_, help_) {.name = #name_, .help = help_},
    CONVOY_XFER_COUNTERS(COUNTER)
#undef COUNTER
};

const char *convoy_xfer_path_name(uint32_t path)
{
    static const char *const names[CONVOY_XFER_PATHS] = {"none",       "lend",     "push", "pull",
                                                         "process_vm", "messages", "rma"};
    return names[path < CONVOY_XFER_PATHS ? path : 0];
}

const char *convoy_xfer_peer_state_name(uint32_t state)
{
    static const char *const names[CONVOY_XFER_PEER_STATES] = {"free", "connected", "closed", "lost"};
    return names[state < CONVOY_XFER_PEER_STATES ? state : 0];
}

/* -- the snapshot -------------------------------------------------------------------------------------------------- */

static void take_table(const struct convoy_xfer *engine, struct convoy_xfer_snapshot *out)
{
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        const struct convoy_xfer_entry *entry = &engine->entries[at];
        out->transfers[entry->state]++;
        out->lent += entry->kind == CONVOY_XFER_SEND && entry->is_lent;
        out->copies += entry->is_queued || entry->is_copying;
    }
    for (const struct convoy_raw_copy *copy = engine->copies; copy != NULL; copy = copy->next) {
        out->copies++;
    }
    for (const struct convoy_xfer_order *order = engine->orders; order != NULL; order = order->next) {
        out->orders++;
    }
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        out->peers[engine->peers[i].state]++;
        out->backlog += engine->peers[i].state != 0 ? engine->peers[i].backlog_count : 0;
    }
}

static void take_device(const struct convoy_xfer *engine, struct convoy_xfer_snapshot *out)
{
    const struct convoy_xfer_device *device = engine->device;
    out->has_device = device != NULL;
    if (device == NULL) {
        return;
    }
    out->device_copies = device->count;
    out->device_lost = device->lost_count;
    out->device_bytes = device->copied_bytes;
    out->has_device_pool = device->pool != NULL;
    if (device->pool != NULL) {
        convoy_pool_figures(device->pool, &out->device_pool);
    }
}

static void take_rewires(const struct convoy_xfer *engine, struct convoy_xfer_snapshot *out)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        const struct convoy_far_wire *wire = &engine->far->peers[i].wire;
        out->rewires += wire->count;
        out->rewire_down_ns = wire->down_ns > out->rewire_down_ns ? wire->down_ns : out->rewire_down_ns;
    }
}

void convoy_xfer_snapshot_take(struct convoy_xfer *engine, struct convoy_xfer_snapshot *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->session, engine->session, sizeof out->session);
    memcpy(out->counters, engine->counters, sizeof out->counters);
    memcpy(out->phases, engine->phases, sizeof out->phases);
    convoy_pool_figures(engine->pool, &out->pool);
    convoy_pool_figures(engine->notes, &out->notes);
    out->offers_waiting = engine->waiting_count;
    out->admission = engine->admission;
    out->completions = engine->ended_count;
    take_table(engine, out);
    take_device(engine, out);
    out->has_far = engine->far != NULL;
    if (out->has_far) {
        convoy_landing_figures(engine->far->landings, &out->landings);
        take_rewires(engine, out);
    }
}

/* -- the walk ------------------------------------------------------------------------------------------------------ */

struct walk {
    convoy_xfer_sample_fn sample;
    void *user;
};

static void tell(const struct walk *walk, enum convoy_xfer_sample_type type, const char *section, const char *name,
                 const char *help, uint64_t number)
{
    const struct convoy_xfer_sample sample = {
        .section = section, .name = name, .help = help, .type = type, .number = number};
    walk->sample(walk->user, &sample);
}

static void tell_of(const struct walk *walk, const char *section, const char *name, const char *help,
                    const char *const label[2], uint64_t number)
{
    const struct convoy_xfer_sample sample = {.section = section,
                                              .name = name,
                                              .help = help,
                                              .type = CONVOY_XFER_GAUGE,
                                              .label = label[0],
                                              .value = label[1],
                                              .number = number};
    walk->sample(walk->user, &sample);
}

static void walk_pool(const struct walk *walk, const char *section, const struct convoy_pool_figures *figures)
{
    const struct convoy_lease_figures *leases = &figures->leases;
    tell(walk, CONVOY_XFER_GAUGE, section, "capacity_bytes", "Bytes of the pool.", figures->blocks.capacity);
    tell(walk, CONVOY_XFER_GAUGE, section, "asked_bytes", "Bytes that were asked for and are held.", figures->blocks.asked);
    tell(walk, CONVOY_XFER_GAUGE, section, "taken_bytes", "Bytes of the blocks that hold them.", figures->blocks.taken);
    tell(walk, CONVOY_XFER_GAUGE, section, "free_bytes", "Bytes of free blocks.", figures->blocks.free);
    tell(walk, CONVOY_XFER_GAUGE, section, "largest_free_bytes", "Bytes of the largest free block.",
         figures->blocks.largest_free);
    tell(walk, CONVOY_XFER_GAUGE, section, "old_generations", "Generations before the current one that have memory.",
         figures->old_count);
    tell(walk, CONVOY_XFER_GAUGE, section, "old_bytes", "Bytes of the memory of old generations.", figures->old_bytes);
    tell(walk, CONVOY_XFER_GAUGE, section, "old_taken_bytes", "Bytes of old generations that are taken.",
         figures->old_taken);
    tell(walk, CONVOY_XFER_GAUGE, section, "quarantined_bytes", "Bytes given up that a peer or a copy may still touch.",
         leases->bytes[CONVOY_LEASE_RETIRED]);
    for (uint32_t i = CONVOY_LEASE_TAKEN; i < CONVOY_LEASE_STATES; i++) {
        const char *const label[2] = {"state", convoy_lease_state_name((enum convoy_lease_state)i)};
        tell_of(walk, section, "leases", "Leases by state; retired ones are quarantined.", label, leases->counts[i]);
    }
    tell(walk, CONVOY_XFER_GAUGE, section, "readers", "References of peers that may read.",
         leases->references[CONVOY_REFERENCE_READ]);
    tell(walk, CONVOY_XFER_COUNTER, section, "exhausted", "Requests refused since nothing large enough was free.",
         figures->exhausted);
    tell(walk, CONVOY_XFER_COUNTER, section, "stale", "Calls refused by the handle of an earlier lease.", leases->stale);
}

static void walk_engine(const struct walk *walk, const struct convoy_xfer_snapshot *snapshot)
{
    for (uint32_t i = 1; i < CONVOY_XFER_PEER_STATES; i++) {
        const char *const label[2] = {"state", convoy_xfer_peer_state_name(i)};
        tell_of(walk, "engine", "peers", "Known peers by state.", label, snapshot->peers[i]);
    }
    for (uint32_t i = 1; i < CONVOY_XFER_STATES; i++) {
        const char *const label[2] = {"state", convoy_xfer_state_name(i)};
        tell_of(walk, "engine", "transfers", "Transfers that are not released, by state.", label, snapshot->transfers[i]);
    }
    tell(walk, CONVOY_XFER_GAUGE, "engine", "lent", "Sends that their peer may read.", snapshot->lent);
    const struct {
        const char *name;
        uint64_t depth;
    } queues[] = {{"offers", snapshot->offers_waiting},
                  {"completions", snapshot->completions},
                  {"copies", snapshot->copies},
                  {"orders", snapshot->orders},
                  {"messages", snapshot->backlog}};
    for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++) {
        const char *const label[2] = {"queue", queues[i].name};
        tell_of(walk, "engine", "queued", "What waits: offers and completions for the host, copies, orders and messages for "
                                          "their turn.",
                label, queues[i].depth);
    }
}

static void walk_admission(const struct walk *walk, const struct convoy_xfer_admission *admission)
{
    const struct convoy_admission *limits = &admission->limits;
    const struct {
        const char *name;
        const char *help;
        uint64_t number;
    } gauges[] = {
        {"under_way", "Sends that are offered and have no end yet.", admission->load.under_way},
        {"under_way_bytes", "Bytes of their payloads.", admission->load.under_way_bytes},
        {"waiting", "Sends that could go and wait for room.", admission->load.waiting},
        {"waiting_bytes", "Bytes of their payloads.", admission->load.waiting_bytes},
        {"queued", "Sends that are not offered yet, for whatever they wait.", admission->queued},
        {"under_way_limit", "Sends that may be under way; 0: no limit.", limits->under_way_max},
        {"under_way_limit_bytes", "Bytes that may be under way; 0: no limit.", limits->under_way_bytes},
        {"peer_under_way_limit", "Sends that may be under way to each peer; 0: no limit.", limits->peer_under_way_max},
        {"peer_under_way_limit_bytes", "Bytes that may be under way to each peer; 0: no limit.",
         limits->peer_under_way_bytes},
        {"queued_limit", "Sends that may be queued; 0: no limit.", limits->waiting_max},
        {"age_ns", "After which a waiting send gains a step of priority; 0: never.", limits->age_ns},
        {"longest_wait_ns", "The longest that a send has waited for room.", admission->longest_ns},
    };
    for (size_t i = 0; i < sizeof gauges / sizeof gauges[0]; i++) {
        tell(walk, CONVOY_XFER_GAUGE, "admission", gauges[i].name, gauges[i].help, gauges[i].number);
    }
}

static void walk_phases(const struct walk *walk, const struct convoy_xfer_snapshot *snapshot)
{
    for (uint32_t i = 0; i < CONVOY_XFER_PHASE_COUNT; i++) {
        for (uint32_t path = 0; path < CONVOY_XFER_PATHS; path++) {
            const struct convoy_xfer_sample sample = {.section = "phases",
                                                      .name = phases[i].name,
                                                      .help = phases[i].help,
                                                      .type = CONVOY_XFER_HISTOGRAM,
                                                      .label = "path",
                                                      .value = convoy_xfer_path_name(path),
                                                      .histogram = &snapshot->phases[i][path]};
            walk->sample(walk->user, &sample);
        }
    }
}

void convoy_xfer_snapshot_walk(const struct convoy_xfer_snapshot *snapshot, convoy_xfer_sample_fn sample, void *user)
{
    const struct walk walk = {sample, user};
    for (uint32_t i = 0; i < CONVOY_XFER_COUNTER_COUNT; i++) {
        tell(&walk, CONVOY_XFER_COUNTER, "counters", counters[i].name, counters[i].help, snapshot->counters[i]);
    }
    walk_engine(&walk, snapshot);
    walk_admission(&walk, &snapshot->admission);
    walk_pool(&walk, "pool", &snapshot->pool);
    walk_pool(&walk, "notes", &snapshot->notes);
    if (snapshot->has_device) {
        tell(&walk, CONVOY_XFER_GAUGE, "device", "copies", "Copies that the device makes now.", snapshot->device_copies);
        tell(&walk, CONVOY_XFER_GAUGE, "device", "copies_lost", "Copies of which nobody knows whether they have stopped.",
             snapshot->device_lost);
        tell(&walk, CONVOY_XFER_COUNTER, "device", "copied_bytes", "Bytes copied by the device.", snapshot->device_bytes);
    }
    if (snapshot->has_device_pool) {
        walk_pool(&walk, "device_pool", &snapshot->device_pool);
    }
    if (snapshot->has_far) {
        tell(&walk, CONVOY_XFER_GAUGE, "far", "landings", "Payloads on their way in from other hosts.",
             snapshot->landings.open);
        tell(&walk, CONVOY_XFER_COUNTER, "far", "landed_bytes", "Bytes that came from other hosts.",
             snapshot->landings.landed_bytes);
        tell(&walk, CONVOY_XFER_COUNTER, "far", "chunks_refused", "Chunks that came late or for nothing that waits for them.",
             snapshot->landings.refused);
        tell(&walk, CONVOY_XFER_COUNTER, "far", "rewires", "Paths to other hosts that came up again after a move.",
             snapshot->rewires);
        tell(&walk, CONVOY_XFER_GAUGE, "far", "rewire_down_ns", "The longest that a path was down in its last move.",
             snapshot->rewire_down_ns);
    }
    walk_phases(&walk, snapshot);
}
