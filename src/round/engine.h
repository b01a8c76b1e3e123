/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The round engine: one exchange among the members of a group at a time (design: sections 3 and 4). Callers are poll
 * and sync. Serialized per engine, except where [any thread] is said.
 *
 *   idle --begin, publish--> open --test/wait--> idle (OK, DIVERGED, PEER_ERROR, MALFORMED, LIMIT)
 *                             |  \--test/wait--> broken (PEER_LOST, BROKEN)  --reopen--> idle
 *                             \---abandon------> broken, or open when nothing could be sealed (complete)
 *   TIMED_OUT and CANCELED leave it open.
 */
#ifndef CONVOY_ROUND_ENGINE_H
#define CONVOY_ROUND_ENGINE_H

#include "net/link.h"
#include "net/local.h"
#include "round/merge.h"
#include "round/stats.h"

#include <stdbool.h>

struct convoy_engine;

/* All that must agree in a round beside the payload. The fingerprint is over this; in a segment it is the cold line. */
struct convoy_round_header {
    uint32_t operation; /* CONVOY_OPERATION_* */
    uint32_t wire;      /* filled by the engine */
    uint64_t epoch;     /* filled by the engine */
    uint64_t counts;
    uint64_t digest;
    uint64_t schema;
    uint64_t policy;
    uint64_t reserved[2];
};

/* What one member brings to one round, beside the payload that begin gave room for. */
struct convoy_contribution {
    struct convoy_round_header header;
    uint32_t votes;
    uint32_t payload_bytes;
    uint64_t tag;
    bool is_error;            /* error row: payload is ignored, error_reason counts */
    bool errors_as_presence;  /* policy (must be in header.policy too): error rows reach merge->absent */
    int32_t error_reason;
    const struct convoy_merge_ops *merge;
    void *merge_state;
};

/* What the finished round says beside the merged state. */
struct convoy_round_summary {
    uint64_t round;
    uint64_t epoch;
    uint32_t votes_and;
    uint32_t votes_or;
};

/* Everything the engine is opened with. Takes local and link (NULL with one host) on OK. */
struct convoy_engine_options {
    struct convoy_runtime *runtime;
    const struct convoy_group_options *group; /* normalised; borrowed until the engine is closed */
    struct convoy_agreement agreement;
    size_t partial_bytes_max; /* largest merged blob (merge->encode) of any operation of this group */
};

/* Finds the members of this host, maps the segment, opens a link when there are several hosts; two or three
 * exchanges on the bootstrap. With member_count 1 bootstrap is NULL and nothing is opened. */
int32_t convoy_engine_open(const struct convoy_engine_options *options, struct convoy_bootstrap *bootstrap,
                           uint64_t deadline_ns, struct convoy_engine **engine_out, struct convoy_error *error);

/* No thread of the engine's own looks at a round any more, so that what an open one is merged into may go. Before close. NULL:
 * nothing. */
void convoy_engine_stop(struct convoy_engine *engine);

/* Says goodbye (peers see CLOSED in their next unfinished round), joins the progress thread, unmaps. */
void convoy_engine_close(struct convoy_engine *engine, uint64_t deadline_ns);

/* Room for this member's payload of the next round: blob_bytes_max bytes, 32-byte aligned. Valid until publish.
 * BUSY, BROKEN, PEER_LOST: no round can start. */
int32_t convoy_engine_begin(struct convoy_engine *engine, uint8_t **payload_out, struct convoy_error *error);

/* Contributes. The merge state must stay until the operation is over. operation_out is never 0. */
int32_t convoy_engine_publish(struct convoy_engine *engine, const struct convoy_contribution *contribution,
                              convoy_operation *operation_out, struct convoy_error *error);

/* IN_PROGRESS or the end of the operation. After OK the merge state is complete and summary_out filled. An operation
 * that ended stays readable (same status, same summary) until the next begin; a stale one is CLOSED. */
int32_t convoy_engine_test(struct convoy_engine *engine, convoy_operation operation,
                           struct convoy_round_summary *summary_out, struct convoy_error *error);
int32_t convoy_engine_wait(struct convoy_engine *engine, convoy_operation operation, uint64_t timeout_ns,
                           struct convoy_round_summary *summary_out, struct convoy_error *error);

/* See operation_abandon in convoy/core.h. */
int32_t convoy_engine_abandon(struct convoy_engine *engine, convoy_operation operation, struct convoy_error *error);

/* [any thread] Makes the wait that runs, or the next one, return CANCELED. */
void convoy_engine_cancel(struct convoy_engine *engine, const char *reason, size_t length);

/* See group_reopen in convoy/core.h. */
int32_t convoy_engine_reopen(struct convoy_engine *engine, uint64_t timeout_ns,
                             struct convoy_reopen_result *result_out, struct convoy_error *error);

/* [any thread] Report of the last failure, or of the open operation as it stands. report_out is full-size. */
void convoy_engine_report(struct convoy_engine *engine, struct convoy_report *report_out);

/* [any thread] Fills state (READY, ACTIVE, STUCK, BROKEN), counts, epoch, round, segment bytes, operation. */
void convoy_engine_info(struct convoy_engine *engine, struct convoy_group_info *info_out);

/* [any thread] Per member: link state, rounds sent and received, age, transport; safe while a round hangs. gives */
json_t *convoy_engine_dump(struct convoy_engine *engine);

/* How the last operation was waited for: the most expensive thing that was done. wait_ns is 0 when it was over before the
 * clock was worth reading. */
const struct convoy_stats_wait *convoy_engine_waited(const struct convoy_engine *engine);

/* Of the last round that ended OK. */
const struct convoy_round_summary *convoy_engine_summary(const struct convoy_engine *engine);

/* Events since open. */
struct convoy_engine_counters {
    _Atomic uint64_t members_lost;
    _Atomic uint64_t successions; /* this member took over as leader of its host */
    _Atomic uint64_t stale;       /* messages of an earlier epoch */
    _Atomic uint64_t strange;     /* messages without the group's token */
    _Atomic uint64_t rewires;     /* ways to a member of several hosts that were made anew: either end has moved */
    _Atomic uint64_t rewire_down_ns_max; /* the longest that one was down for that */
};
/* [any thread] */
const struct convoy_engine_counters *convoy_engine_counters(const struct convoy_engine *engine);

/* Whether this operation is open, or over and its end not yet read by test or wait: no other may start. */
bool convoy_engine_holds(const struct convoy_engine *engine, convoy_operation operation);

/* The operation that was started last, whether it is open or over. */
convoy_operation convoy_engine_last(const struct convoy_engine *engine);

/* From now on a cancel of `beside` ends waits of this engine too; NULL = no more. By the thread that waits, for a call on
 * two groups. */
void convoy_engine_heed(struct convoy_engine *engine, struct convoy_engine *beside);

/* Number of the last operation's round, whether it is open or over, and however it ended. */
uint64_t convoy_engine_round(const struct convoy_engine *engine);

/* Number of the next round, for fault injection and logs. */
uint64_t convoy_engine_next_round(const struct convoy_engine *engine);

#endif
