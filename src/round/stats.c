/* SPDX-License-Identifier: Apache-2.0 */
#include "round/stats.h"

#include "core/status.h"
#include "round/stats_names.h"

#include <stdatomic.h>

/* The last place counts every other status. */
static const int32_t outcome_statuses[CONVOY_STATS_OUTCOMES - 1] = { /* OK in place CONVOY_STATS_OUTCOME_OK */
    CONVOY_OK,          CONVOY_TIMED_OUT, CONVOY_CANCELED,         CONVOY_PEER_LOST,
    CONVOY_PEER_ERROR,  CONVOY_BROKEN,    CONVOY_UNREACHABLE,      CONVOY_DIVERGED,
    CONVOY_STALE_EPOCH, CONVOY_MALFORMED, CONVOY_INVALID_ARGUMENT, CONVOY_LIMIT,
};

static uint32_t outcome_of(int32_t status)
{
    uint32_t outcome = 0;
    while (outcome < CONVOY_STATS_OUTCOMES - 1 && outcome_statuses[outcome] != status) {
        outcome++;
    }
    return outcome;
}

const char *convoy_stats_outcome_name(uint32_t outcome)
{
    return outcome < CONVOY_STATS_OUTCOMES - 1 ? convoy_status_name(outcome_statuses[outcome]) : "OTHER";
}

const char *convoy_stats_operation_name(uint32_t operation)
{
    static const char *const names[CONVOY_STATS_OPERATIONS] = {"poll", "poll_keyed", "sync"};
    return operation >= CONVOY_OPERATION_POLL && operation <= CONVOY_OPERATION_SYNC
               ? names[operation - CONVOY_OPERATION_POLL]
               : "none";
}

const char *convoy_stats_wait_name(uint32_t kind)
{
    static const char *const names[CONVOY_WAIT_KINDS] = {"none", "spin", "yield", "sleep", "network"};
    return names[kind];
}

const char *convoy_stats_event_name(uint32_t event)
{
    static const char *const names[CONVOY_STATS_EVENTS] = {
        [CONVOY_EVENT_STALL] = "stall",           [CONVOY_EVENT_ABANDON] = "abandon",
        [CONVOY_EVENT_CANCEL] = "cancel",         [CONVOY_EVENT_REOPEN] = "reopen",
        [CONVOY_EVENT_MEMBER_LOST] = "member_lost", [CONVOY_EVENT_SUCCESSION] = "succession",
        [CONVOY_EVENT_STALE_EPOCH] = "stale_epoch", [CONVOY_EVENT_STRANGER] = "stranger",
    };
    return names[event];
}

uint64_t convoy_stats_load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Nothing at all for what did not happen. */
static void add(_Atomic uint64_t *counter, uint64_t amount)
{
    if (amount != 0) {
        convoy_stats_add(counter, amount);
    }
}

void convoy_stats_round(struct convoy_group_stats *stats, const struct convoy_stats_sample *sample)
{
    if (sample->operation < CONVOY_OPERATION_POLL || sample->operation > CONVOY_OPERATION_SYNC) {
        return;
    }
    struct convoy_operation_stats *operation = &stats->operations[sample->operation - CONVOY_OPERATION_POLL];
    add(&operation->outcomes[outcome_of(sample->status)], 1);
    add(&operation->waits[sample->wait_kind], 1);
    add(&operation->yields, sample->yields);
    add(&operation->sleeps, sample->sleeps);
    add(&operation->wakes, sample->wakes);
    add(&operation->bytes_sent, sample->bytes_sent);
    add(&operation->bytes_received, sample->bytes_received);
    add(&operation->entries, sample->entries);
    add(&operation->unknown_states, sample->unknown_states);
    add(&operation->foreign_stamps, sample->foreign_stamps);
    add(&operation->demoted, sample->demoted);
    add(&operation->injected, sample->injected);
    if (sample->call_ns != 0) { /* not every round is timed: see plugin/record.h */
        convoy_latency_record(&operation->call_ns, sample->call_ns);
    }
    if (sample->wait_ns != 0) {
        convoy_latency_record(&operation->wait_ns, sample->wait_ns);
    }
}

void convoy_stats_waited(struct convoy_group_stats *stats, uint32_t operation, const struct convoy_stats_wait *wait)
{
    struct convoy_operation_stats *counters = &stats->operations[operation - CONVOY_OPERATION_POLL];
    if (wait->kind != CONVOY_WAIT_NONE) {
        add(&counters->waits[CONVOY_WAIT_NONE], UINT64_MAX); /* minus one */
        add(&counters->waits[wait->kind], 1);
    }
    add(&counters->yields, wait->yields);
    add(&counters->sleeps, wait->sleeps);
    add(&counters->wakes, wait->wakes);
    add(&counters->bytes_received, wait->bytes_received);
    if (wait->wait_ns != 0) {
        convoy_latency_record(&counters->wait_ns, wait->wait_ns);
    }
}

void convoy_stats_event(struct convoy_group_stats *stats, enum convoy_stats_event event)
{
    atomic_fetch_add_explicit(&stats->events[event], 1, memory_order_relaxed);
}

/* -- JSON ---------------------------------------------------------------------------------------------------------- */

const struct convoy_stats_field convoy_stats_fields[CONVOY_STATS_FIELDS] = {
#define FIELD(member, words) {#member, words, offsetof(struct convoy_operation_stats, member)}
    FIELD(yields, "sched_yield calls while waiting"),
    FIELD(sleeps, "times a waiting member slept"),
    FIELD(wakes, "sleeping members that this member woke"),
    FIELD(bytes_sent, "payload bytes contributed"),
    FIELD(bytes_received, "payload bytes collected from the other members"),
    FIELD(entries, "states or rows contributed"),
    FIELD(unknown_states, "states of newer peers taken as Bootstrapping"),
    FIELD(foreign_stamps, "metadata stamps of other requests seen by the gate"),
    FIELD(demoted, "Success states demoted by staging or gate"),
    FIELD(injected, "states made Failed by fault injection"),
#undef FIELD
};

const _Atomic uint64_t *convoy_stats_field_of(const struct convoy_operation_stats *operation, uint32_t field)
{
    return (const _Atomic uint64_t *)((const char *)operation + convoy_stats_fields[field].offset);
}

/* jansson's integers are signed; a counter gets there after centuries. */
static int set_count(json_t *object, const char *name, uint64_t value)
{
    return json_object_set_new(object, name, json_integer((json_int_t)(value > INT64_MAX ? INT64_MAX : value)));
}

static json_t *histogram_json(const struct convoy_latency *histogram)
{
    struct convoy_latency_view view;
    convoy_latency_read(histogram, &view);
    json_t *object = json_object();
    if (set_count(object, "count", view.count) != 0 || set_count(object, "sum", view.sum_ns) != 0 ||
        set_count(object, "p50", convoy_latency_percentile(&view, 500000)) != 0 ||
        set_count(object, "p90", convoy_latency_percentile(&view, 900000)) != 0 ||
        set_count(object, "p99", convoy_latency_percentile(&view, 990000)) != 0 ||
        set_count(object, "p999", convoy_latency_percentile(&view, 999000)) != 0 ||
        set_count(object, "max", view.max_ns) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *counts_json(const _Atomic uint64_t *counters, uint32_t count, const char *(*name_of)(uint32_t))
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < count; i++) {
        if (set_count(object, name_of(i), convoy_stats_load(&counters[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *operation_json(const struct convoy_operation_stats *operation)
{
    json_t *object = json_object();
    int failed = json_object_set_new(object, "rounds", counts_json(operation->outcomes, CONVOY_STATS_OUTCOMES,
                                                                   convoy_stats_outcome_name));
    failed |= json_object_set_new(object, "waits", counts_json(operation->waits, CONVOY_WAIT_KINDS,
                                                               convoy_stats_wait_name));
    for (uint32_t i = 0; i < CONVOY_STATS_FIELDS; i++) {
        failed |= set_count(object, convoy_stats_fields[i].name,
                            convoy_stats_load(convoy_stats_field_of(operation, i)));
    }
    failed |= json_object_set_new(object, "call_ns", histogram_json(&operation->call_ns));
    failed |= json_object_set_new(object, "wait_ns", histogram_json(&operation->wait_ns));
    if (failed != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *convoy_stats_json(const struct convoy_stats_source *source)
{
    json_t *object = json_object();
    json_t *operations = json_object();
    int failed = 0;
    for (uint32_t i = 0; i < CONVOY_STATS_OPERATIONS; i++) {
        failed |= json_object_set_new(operations, convoy_stats_operation_name(i + CONVOY_OPERATION_POLL),
                                      operation_json(&source->stats->operations[i]));
    }
    json_t *group = json_stringn(source->group, source->group_length);
    failed |= json_object_set_new(object, "group", group != NULL ? group : json_string("(not UTF-8)"));
    failed |= json_object_set_new(object, "rank", json_integer(source->rank));
    failed |= json_object_set_new(object, "operations", operations);
    failed |= json_object_set_new(object, "events", counts_json(source->stats->events, CONVOY_STATS_EVENTS,
                                                                convoy_stats_event_name));
    failed |= set_count(object, "rewires", convoy_stats_load(&source->stats->rewires));
    failed |= set_count(object, "rewire_down_ns_max", convoy_stats_load(&source->stats->rewire_down_ns_max));
    if (failed != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}
