/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a group remembers of its rounds: counters and histograms (round/stats.h), the call log (round/call_log.h) and
 * the stall notice. Written by the thread inside the group's calls, read from any. Latency is taken from every 16th
 * round: two clock reads would cost a tenth of the fastest round.
 */
#ifndef CONVOY_PLUGIN_RECORD_H
#define CONVOY_PLUGIN_RECORD_H

#include "core/clock.h"
#include "poll/poll.h"
#include "convoy/sync.h"
#include "round/call_log.h"
#include "round/stall.h"
#include "round/stats.h"
#include "sync/quick.h"

#define CONVOY_RECORD_SAMPLE_MASK 15u
#define CONVOY_RECORD_ENTRY_BYTES 1024u /* input and output kept of one round */
#define CONVOY_RECORD_STALL_ROUNDS 1000u

/* What a sync call brought, copied when it starts: the row may lie where the result goes. */
struct convoy_record_input {
    uint64_t tag;
    uint32_t votes;
    uint32_t count; /* values of row; 0 = the fallbacks, or an error row */
    int64_t row[CONVOY_SYNC_COLUMNS_MAX];
};

/* The last round, when it went the short way: written into log and counters only while the next one waits for its
 * peers, or before they are read. Its summary, and how it was waited for, the engine keeps that long. */
enum convoy_record_late {
    CONVOY_RECORD_WRITTEN = 0,
    CONVOY_RECORD_LATE_POLL,
    CONVOY_RECORD_LATE_SYNC,
};

/* Such a round put aside, since the next call had no time either: the peers were all there. */
#define CONVOY_RECORD_KEPT 8u
#define CONVOY_RECORD_KEPT_BYTES 640u /* of input and output; larger rounds are not put aside */
struct convoy_record_kept {
    struct convoy_call_values values;
    enum convoy_record_late kind;
    uint64_t call_ns;
    struct convoy_stats_wait waited;
    uint8_t bytes[CONVOY_RECORD_KEPT_BYTES];
};

struct convoy_record {
    /* What a short round touches, in few cache lines. */
    const struct convoy_stats_wait *waited;       /* the engine's, as the next; set when the group has one */
    const struct convoy_round_summary *summary;
    struct convoy_group_stats *stats;
    struct convoy_call_log *log;
    uint64_t calls;
    uint64_t started_ns; /* of the call that runs now, when it is timed; else 0 */
    uint64_t stalls;     /* notices not logged yet */
    struct convoy_stall stall;
    _Atomic uint32_t late; /* enum convoy_record_late; with that: */
    _Atomic uint32_t kept_count; /* rounds put aside, all older than the late one */
    uint32_t late_votes;
    uint64_t late_tag;
    uint64_t late_ns; /* how long the call took */
    const void *late_input;
    const void *late_output;
    bool is_broken;    /* the last round ended BROKEN or PEER_LOST: starts are refused with that and are no rounds */
    bool has_form;     /* of the last poll round that may be repeated */
    bool is_gathering; /* a sync round is open and its end not recorded */
    bool has_sync_forms[2]; /* of sync rounds that were OK: without and with the row */
    uint32_t form_operation;
    uint32_t form_entries;
    uint32_t width; /* of sync_forms[1] */
    struct convoy_call_form form;
    struct convoy_call_form sync_forms[2];

    uint64_t form_shape;
    /* The last poll round, to see whether anything moves: its outcome, or a digest of one that exceeds the room. */
    uint32_t list_count;
    uint32_t output_bytes;
    uint64_t digest;
    uint8_t output[CONVOY_RECORD_ENTRY_BYTES];
    uint32_t poll_operation; /* CONVOY_OPERATION_* of the last poll round */
    convoy_operation timed_out; /* the last one of which a time-out was counted */
    uint32_t input; /* which of inputs is the open or last sync round's; the other is for the call that starts */
    struct convoy_record_input inputs[2];
    struct convoy_record_kept kept[CONVOY_RECORD_KEPT];
};

int32_t convoy_record_open(struct convoy_record *record, uint32_t log_entries, struct convoy_error *error);
void convoy_record_close(struct convoy_record *record);

/* The group is closed: keeps the counters, gives up the call log. Under the group's lock. */
void convoy_record_shrink(struct convoy_record *record);

/* Whether a round is not written yet. */
static inline bool convoy_record_is_late(const struct convoy_record *record)
{
    return atomic_load_explicit(&record->late, memory_order_acquire) != CONVOY_RECORD_WRITTEN ||
           atomic_load_explicit(&record->kept_count, memory_order_acquire) != 0;
}

/* Writes all of them; user is a struct convoy_record. By the thread that is inside the group, before it records anything
 * else or changes what the late round refers to. */
void convoy_record_settle(void *user);

/* Puts the late round aside, or writes it where that is not possible. By the same thread, before the same. */
void convoy_record_keep(void *user);

/* A blocking call starts, which may go the short way: reads the clock on every 16th. */
static inline void convoy_record_start_short(struct convoy_record *record)
{
    record->started_ns = (record->calls++ & CONVOY_RECORD_SAMPLE_MASK) == 0 ? convoy_now_ns() : 0;
}

/* Any call starts. */
static inline void convoy_record_start(struct convoy_record *record)
{
    convoy_record_settle(record);
    convoy_record_start_short(record);
}

/* The end of a poll round; user is a struct convoy_record. */
void convoy_record_poll(void *user, const struct convoy_poll_record *round);

/* The same for a round like the last one; false when that one left nothing to build on. */
bool convoy_record_poll_repeat(void *user, const struct convoy_call_values *values);

/* The same for a short round; poll has what it was. */
void convoy_record_poll_short(struct convoy_record *record, struct convoy_poll *poll);

void convoy_record_poll_counts_any(struct convoy_record *record, const struct convoy_poll_result *result);

/* What a finished poll call says beside that: usually nothing. */
static inline void convoy_record_poll_counts(struct convoy_record *record, const struct convoy_poll_result *result)
{
    uint32_t any = 0;
    for (size_t i = 0; i < result->list_capacity && i < record->list_count; i++) {
        const struct convoy_poll_list_result *list = &result->lists[i];
        any |= list->unknown_count | list->foreign_count | list->demoted_count | list->injected_count;
    }
    if (any != 0) {
        convoy_record_poll_counts_any(record, result);
    }
}

/* A wait for `which` gave up (TIMED_OUT, CANCELED): counted, but the round is not over. Time-outs count once per operation:
 * a host may wait in slices. Other statuses: nothing. */
void convoy_record_gave_up(struct convoy_record *record, uint32_t operation, convoy_operation which, int32_t status);

/* Copies what a sync call of `width` columns brings, before the call. */
void convoy_record_sync_prepare(struct convoy_record *record, const struct convoy_sync_call *call, uint32_t width);

/* The same from what a short call has kept of it. */
void convoy_record_sync_prepare_row(struct convoy_record *record, const struct convoy_sync_short *round,
                                    uint32_t width);

/* The call went out, or was refused by status: what was prepared is the open round's, or nobody's. */
void convoy_record_sync_started(struct convoy_record *record, int32_t status);

/* What a sync call or an abandon has ended with. result: filled on OK. cells: rows of its table. A status that says
 * nothing of the round, or a round that is recorded already, is no end. */
struct convoy_record_sync {
    const struct convoy_sync_result *result;
    int32_t status;
    uint32_t width;
    uint32_t cells;
    uint64_t round; /* however it ended */
    convoy_operation operation; /* the engine's last */
};
void convoy_record_sync(struct convoy_record *record, const struct convoy_record_sync *round);

/* Whether the form of sync rounds with row and table is known, so that rounds may be recorded in short. */
static inline bool convoy_record_has_sync_form(const struct convoy_record *record)
{
    return record->has_sync_forms[1] && !record->is_gathering;
}
void convoy_record_sync_short(struct convoy_record *record, const struct convoy_sync_short *round);

#endif
