/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy/core.h: contexts, groups, operations, and looking at them. Family "core", version 1.0.
 *
 * Life of a group, and what may be called when (every other pair gives BAD_STATE, or what the table says):
 *
 *   state      how it gets there                  start      test, wait  abandon   reopen   cancel  close
 *   opening    group_open_start                   BAD_STATE  BAD_STATE   BAD_STATE BAD_STATE  ok      ok
 *   ready      open finished, operation finished  ok         CLOSED (+)  CLOSED    ok (*)     ok      ok
 *   active     start returned OK                  BUSY       ok          ok        BUSY       ok      ok
 *   stuck      TIMED_OUT or CANCELED              BUSY       ok          ok        BUSY       ok      ok
 *   broken     BROKEN, PEER_LOST                  BROKEN     CLOSED (+)  CLOSED    ok         ok      ok
 *   failed     open failed                        BAD_STATE  BAD_STATE   BAD_STATE BAD_STATE  ok      ok
 *   closing    group_close ran out of time        CLOSED     CLOSED      CLOSED    CLOSED     CLOSED  ok
 *   closed     group_close returned OK            CLOSED     CLOSED      CLOSED    CLOSED     CLOSED  ok
 *   forked     any call in a child of fork()      FORKED     FORKED      FORKED    FORKED     FORKED  ok, no effect
 *
 *   (*) in state ready, reopen is a no-op that reports the epoch unless a peer has already moved on.
 *   (+) the operation that ended last answers test and wait with the same status, and result if it has one, until the
 *   next start. "CLOSED" for test, wait and abandon in ready and broken means: any other operation value is stale.
 *   group_info, group_describe and operation_report are legal in every state but forked. group_open_test and
 *   group_open_wait give CLOSED in closing and closed, why it failed in failed, OK once the group has opened.
 *   While its context is handed over to another build, a group answers MOVED to what convoy/move.h says.
 *   A closed group stays valid as a tombstone until its context is closed; after context_close every handle of that
 *   context is dead.
 */
#ifndef CONVOY_CORE_H
#define CONVOY_CORE_H

#include "convoy/query.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_CORE_MAJOR 1
#define CONVOY_CORE_MINOR 0

#define CONVOY_LOG_ERROR 1 /* work was lost */
#define CONVOY_LOG_WARN 2  /* recovered */
#define CONVOY_LOG_INFO 3  /* load, peers up and down */
#define CONVOY_LOG_DEBUG 4
#define CONVOY_LOG_TRACE 5

/* Receives one finished line of text (no newline; text ends in a zero and borrows until it returns). Called on a thread
 * that called in, never under a lock, and on several of them at once when several are inside; lines of the plugin's own
 * threads come with the next call of any. It may call what is tagged [any thread] and nothing else. */
typedef void (*convoy_log_fn)(void *user, uint32_t level, const char *text, size_t length);

/* IN: how a context behaves. All zero is a valid configuration. */
struct convoy_context_config {
    uint32_t struct_size;
    uint32_t critical_flags; /* none defined */
    uint32_t hint_flags;     /* none defined */
    uint32_t log_level;      /* CONVOY_LOG_*; 0 = warn */
    convoy_log_fn log;       /* NULL = nowhere */
    void *log_user;
    const void *secret; /* shared by all members, for the HMAC of the hello; copies; NULL = the empty secret */
    size_t secret_bytes; /* at most 1,024 */
    const char *settings; /* JSON object, copies; NULL = none. Names: see README, "Configuration". Precedence: this
                             object, then CONVOY_<NAME> in the environment, then UCX_* for UCX's own settings */
    size_t settings_length;
};

/*
 * Host's own all-gather: every member calls it with the same number of bytes and receives count x bytes in member
 * order. Returns 0, or anything else for failure. Its time is the host's, outside the deadline.
 */
typedef int32_t (*convoy_allgather_fn)(void *user, const void *mine, size_t bytes, void *all_out);

/* critical: a lost member counts as presence "lost"; must agree on all members. Across hosts the survivors agree on that
 * inside the wait; when its time passes meanwhile it is TIMED_OUT, and the next wait goes on. Abandon is CLOSED then: reopen. */
#define CONVOY_GROUP_DEGRADE 1u

/* IN: a group as this member sees it. */
struct convoy_group_options {
    uint32_t struct_size;
    uint32_t critical_flags; /* CONVOY_GROUP_* */
    uint32_t hint_flags;     /* none defined */
    uint32_t own_index;      /* this member's position in member_ids */
    const char *name; /* 1 to 127 bytes of UTF-8 without control characters; names the group in reports and at the
                         rendezvous, so it must agree; copies */
    size_t name_length;
    const int32_t *member_ids; /* the host's own rank numbers, in member order, all different, none negative; copies */
    size_t member_count;       /* 1 to 1,024 */
    int32_t own_id;            /* must equal member_ids[own_index] */
    uint32_t listener_index;   /* which member listens at the rendezvous */
    const char *rendezvous;    /* "tcp://host:port"; host: name, IPv4, [IPv6]. "/name" may follow and must then be the
                                  group's name. NULL with `allgather` or size 1 */
    size_t rendezvous_length;
    convoy_allgather_fn allgather; /* NULL with `rendezvous` */
    void *allgather_user;
    uint64_t epoch;           /* 0 = the listener picks; must be the same on all members */
    uint64_t open_timeout_ns; /* for group_open and the whole of the split form; 0 = default */
    uint64_t timeout_ns;      /* default of every operation of this group; 0 = the context's default */
    uint32_t blob_bytes_max;  /* largest contribution; 0 = 16 KiB; at most 1 MiB; must agree */
    uint32_t call_log_entries; /* ring size; 0 = 64; rounded up to a power of two, at most 65,536 */
    const struct convoy_sync_schema *schema; /* row of sync gathers in this group, see sync.h; NULL = none; copies */
    uint32_t sync_inner; /* members per data-parallel rank (tp x cp); 0 = 1; must divide member_count */
    uint32_t sync_slots; /* world gather: data-parallel slots in the table; 0 = member_count / sync_inner */
    const struct convoy_poll_faults *poll_faults; /* injected failures, see poll.h; NULL = none; copies */
};

/* convoy_group_info.state */
#define CONVOY_GROUP_OPENING 1
#define CONVOY_GROUP_READY 2
#define CONVOY_GROUP_ACTIVE 3
#define CONVOY_GROUP_STUCK 4
#define CONVOY_GROUP_BROKEN 5
#define CONVOY_GROUP_FAILED 6
#define CONVOY_GROUP_CLOSING 7
#define CONVOY_GROUP_CLOSED 8

/* OUT: one look at a group. Of a group that failed, closes or is closed: what it was last, as far as it came
 * (epoch and wire are 0 before the members have met, host_count until they know who shares a host), with no segment
 * and no operation. */
struct convoy_group_info {
    uint32_t struct_size;
    uint32_t written_bytes;
    uint32_t state;
    uint32_t member_count;
    uint32_t own_index;
    uint32_t host_count;
    uint32_t lost_count; /* members this epoch goes on without, with DEGRADE also those that its last round went
                            without */
    uint32_t wire;       /* wire version of this epoch */
    uint64_t epoch;
    uint64_t round;         /* last finished round */
    uint64_t segment_bytes; /* shared memory of this group on this host */
    convoy_operation operation; /* the open one, or 0 */
};

/* OUT: what reopen agreed on. */
struct convoy_reopen_result {
    uint32_t struct_size;
    uint32_t written_bytes;
    uint64_t epoch;      /* old + 1 */
    uint64_t next_round; /* number of the first round of the new epoch */
    convoy_operation recovered; /* an operation of this member whose round was completed by others: its result can be
                                   read with its family's test until the next start; 0 = none */
    uint32_t lost_count;
    uint32_t reserved;
};

/* group_describe and context_describe: topics */
#define CONVOY_TOPIC_DUMP 1       /* JSON: state of every member; safe while a round hangs */
#define CONVOY_TOPIC_STATS 2      /* JSON: counters and latency histograms */
#define CONVOY_TOPIC_PROMETHEUS 3 /* the same as Prometheus text */
#define CONVOY_TOPIC_CALL_LOG 4   /* JSON: the last rounds with their inputs and outputs */
#define CONVOY_TOPIC_CONFIG 5     /* JSON, context only: each setting, its value and its source */
#define CONVOY_TOPIC_NET 6        /* JSON, context only: UCX file, version, who loaded it, transports, devices */

struct convoy_core_table {
    struct convoy_table_header header;

    /* Opens an instance. Opens neither UCX nor sockets. config: NULL = all zero. context_out: gives (context_close).
     * INVALID_ARGUMENT: settings are no JSON object, or name an unknown key or a value out of range; secret or level out
     * of range. UNSUPPORTED: an unknown critical flag. TOO_OLD, TOO_NEW: the struct's size. NO_MEMORY. SYSTEM: the
     * kernel gives no random numbers or no memory for the fork guard.
     * [any thread; never blocks; allocates; any state, forked child too; since 1.0] */
    int32_t (*context_open)(const struct convoy_context_config *config, convoy_context **context_out,
                            struct convoy_error *error);

    /* Closes all groups, joins all threads, frees the context and its tombstones. NULL is a no-op.
     * DRAIN_TIMEOUT: something is still open in another thread; the context stays closing, call again. In a forked
     * child it does nothing and is OK. timeout_ns 0 = close_timeout_ms.
     * [one thread; blocks up to timeout_ns; any state; since 1.0] */
    int32_t (*context_close)(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error);

    /* Writes text about the context. Topics CONFIG, NET, STATS, PROMETHEUS. BUFFER_TOO_SMALL: see text_out->length.
     * INVALID_ARGUMENT: another topic, or no buffer. NO_MEMORY. CLOSED, FORKED.
     * [any thread; never blocks, except NET with setting ucx_probe, which opens UCX; allocates; open; since 1.0] */
    int32_t (*context_describe)(convoy_context *context, uint32_t topic, struct convoy_text_buffer *text_out,
                                struct convoy_error *error);

    /* Opens a group and waits for all members. group_out: gives (group_close, then context_close).
     * INVALID_ARGUMENT: bad list, index, id, name, rendezvous, table, faults; LIMIT: a row that does not fit
     * blob_bytes_max; both at once, before any member is met. TIMED_OUT: text names the members not heard, and the last
     * connection that was turned away. DIVERGED, STALE_EPOCH, VERSION_MISMATCH, UNAUTHENTICATED: a member disagrees,
     * text says who and in what. UNREACHABLE: no interface leads to a member's host, or UCX is needed and not there.
     * LIMIT also: more than 16 hosts. UNSUPPORTED: an unknown critical flag. PEER_LOST: a member went away meanwhile.
     * TRUNCATED, MALFORMED: so did its connection, or it speaks of something else.
     * NO_MEMORY, SYSTEM: text has the call and its errno. CLOSED, FORKED.
     * [any thread; blocks up to open_timeout_ns; allocates; open context; since 1.0] */
    int32_t (*group_open)(convoy_context *context, const struct convoy_group_options *options,
                          convoy_group **group_out, struct convoy_error *error);

    /* Starts to open a group; what group_open says of the caller's own arguments (INVALID_ARGUMENT, LIMIT) it says at
     * once, the rest comes from test and wait. With `rendezvous` groups may be started in any order on different
     * members; with `allgather` the callback runs inside this call, so the order must agree.
     * [any thread; never blocks with rendezvous; allocates; open context; since 1.0] */
    int32_t (*group_open_start)(convoy_context *context, const struct convoy_group_options *options,
                                convoy_group **group_out, struct convoy_error *error);

    /* IN_PROGRESS, OK, or why the open failed (as group_open; the group is then in state failed: close it).
     * [one thread per group; never blocks; opening, ready, failed; since 1.0] */
    int32_t (*group_open_test)(convoy_group *group, struct convoy_error *error);

    /* As group_open_test, but waits. TIMED_OUT: timeout_ns passed and the open goes on; text has the time since it
     * started, so it may be waited for in slices. CLOSED: the group was closed meanwhile. timeout_ns 0 = the group's
     * timeout_ns.
     * [one thread per group; blocks up to timeout_ns; opening, ready, failed; since 1.0] */
    int32_t (*group_open_wait)(convoy_group *group, uint64_t timeout_ns, struct convoy_error *error);

    /* Ends the group for this member; an open operation ends as CLOSED here, the others see PEER_LOST (closed) in
     * their next unfinished round. Does not wait for peers; in a group of several hosts what was sent last is given up
     * to a second of the timeout to leave, and what UCX still holds then up to a second after it, which happens only
     * with a peer that is stopped or cut off.
     * DRAIN_TIMEOUT: another thread is still inside a call; the group stays closing, call again.
     * timeout_ns 0 = close_timeout_ms.
     * [one thread; blocks up to timeout_ns, and a second more as above; any state; since 1.0] */
    int32_t (*group_close)(convoy_group *group, uint64_t timeout_ns, struct convoy_error *error);

    /* Makes a wait of this member return CANCELED with `reason` in its error text. Local. The operation stays open.
     * A call on two groups is a wait of both. With no operation open, or between two slices of a wait, the next wait that
     * has to wait is canceled. reason: copies, at most 120 bytes are kept.
     * INVALID_ARGUMENT: reason is NULL with a length. CLOSED, FORKED.
     * [any thread; never blocks; any state but closed; since 1.0] */
    int32_t (*group_cancel)(convoy_group *group, const char *reason, size_t reason_length, struct convoy_error *error);

    /* Agrees with the survivors on the next epoch and on the set of lost members; see the state table. Needs no
     * listener. Every member that returns OK has the same epoch and set. It is this epoch + 1, or a later one for a
     * member that was late while the others agreed more than once.
     * LIMIT: after 4,095 reopens of one group; close it and open it afresh.
     * UNREACHABLE: links are gone without a proven death and this side is not more than half of the old members.
     * [serialized per group; blocks up to timeout_ns; ready, broken; since 1.0] */
    int32_t (*group_reopen)(convoy_group *group, uint64_t timeout_ns, struct convoy_reopen_result *result_out,
                            struct convoy_error *error);

    /* Gives up on the open operation: seals the round so that it ends BROKEN on every member (group state broken).
     * OK: there was nothing to seal, the round is complete, and test returns its result; start is BUSY until it has.
     * BROKEN, PEER_LOST: the round is sealed and the operation is gone. CLOSED: stale operation.
     * [serialized per group; never blocks; active, stuck; since 1.0] */
    int32_t (*operation_abandon)(convoy_group *group, convoy_operation operation, struct convoy_error *error);

    /* Copies the report of the last failed operation, or of the open one as it stands. report_out: members is the
     * caller's array; member_count may exceed member_capacity, the rest is cut. OK without rows when nothing has failed
     * and nothing is open. INVALID_ARGUMENT: NULL. TOO_OLD: the struct's size or the stride. FORKED.
     * [any thread; never blocks; any state; since 1.0] */
    int32_t (*operation_report)(convoy_group *group, struct convoy_report *report_out, struct convoy_error *error);

    /* Looks at a group: its state (CONVOY_GROUP_*), sizes, epoch and last round. INVALID_ARGUMENT: NULL. TOO_OLD: the
     * struct's size. FORKED.
     * [any thread; never blocks; any state; since 1.0] */
    int32_t (*group_info)(convoy_group *group, struct convoy_group_info *info_out, struct convoy_error *error);

    /* Writes text about the group. Topics DUMP, STATS, PROMETHEUS, CALL_LOG. Safe while another thread waits.
     * BUFFER_TOO_SMALL: see text_out->length. INVALID_ARGUMENT: another topic, or no buffer. NO_MEMORY. FORKED.
     * [any thread; never blocks; allocates; any state; since 1.0] */
    int32_t (*group_describe)(convoy_group *group, uint32_t topic, struct convoy_text_buffer *text_out,
                              struct convoy_error *error);
};

#ifdef __cplusplus
}
#endif

#endif
