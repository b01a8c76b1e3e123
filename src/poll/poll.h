/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poll reduce of one group, on top of the round engine. Everything is allocated at open; start, test and wait allocate
 * nothing. Structs of the ABI are full-size here (arrays of lists and list results without gaps); strides of the
 * caller's data (states, stamps, outcomes) are honoured. Serialized per group, except where [any thread] is said; a
 * two-level call (two_level.h) counts as a call on both groups.
 */
#ifndef CONVOY_POLL_POLL_H
#define CONVOY_POLL_POLL_H

#include "poll/capture.h"
#include "poll/outcome.h"
#include "poll/quick.h"
#include "round/call_log.h"
#include "round/engine.h"

#include <stdatomic.h>

/* One list of a finished round; borrowed for the call. */
struct convoy_poll_record_list {
    const char *name;
    size_t name_length;
    uint32_t count;
    uint32_t flags;
    const uint8_t *input;  /* what this member contributed, own order; one byte per entry */
    const uint8_t *output; /* NULL unless the round ended OK */
};

/* One finished round, for the call log. */
struct convoy_poll_record {
    int32_t status;
    uint32_t level; /* 0, or 1 and 2 of a two-level call */
    convoy_operation operation;
    uint64_t round; /* however it ended */
    uint64_t epoch;
    uint64_t tag;
    uint32_t votes;     /* of this member */
    uint32_t votes_and; /* 0 unless the round ended OK */
    uint32_t votes_or;
    uint32_t list_count;
    bool may_repeat; /* rounds with the same lists, apart from their states, may follow as convoy_poll_repeat_fn */
    struct convoy_poll_record_list lists[CONVOY_POLL_LISTS_MAX];
};

/* Called once when a round ends, on the thread that sees it. Must not block or call back. A round that was lost and
 * then handed over by reopen is recorded again, with its result. */
typedef void (*convoy_poll_record_fn)(void *user, const struct convoy_poll_record *record);

/* As convoy_poll_record_fn, in short: the round was OK, and its lists are, apart from their states, those of the last
 * record that was OK. All of them lie one after the other in values->input and ->output; values and what they refer to
 * are borrowed for the call. false: it was not recorded, the whole record is wanted. */
typedef bool (*convoy_poll_repeat_fn)(void *user, const struct convoy_call_values *values);

struct convoy_poll_options {
    struct convoy_engine *engine;            /* borrows until close */
    const struct convoy_group_options *group; /* normalised (blob_bytes_max is not 0); borrows for the call */
    uint64_t timeout_ns;                     /* default of a wait; 0 = 5 s */
    convoy_poll_record_fn record;            /* may be NULL */
    convoy_poll_repeat_fn repeat;            /* may be NULL */
    void (*keep)(void *user);                /* may be NULL; as convoy_quick_call's */
    void (*settle)(void *user);              /* may be NULL; called before what quick.h says of a short round is overwritten */
    void *record_user;
};

enum convoy_poll_level {
    CONVOY_POLL_LEVEL_ONLY = 0,
    CONVOY_POLL_LEVEL_FIRST,
    CONVOY_POLL_LEVEL_SECOND,
};

enum convoy_two_level_phase {
    CONVOY_TWO_LEVEL_NONE = 0,
    CONVOY_TWO_LEVEL_FIRST,        /* the round of the first group is open */
    CONVOY_TWO_LEVEL_SECOND,       /* the round of the second group is open or over */
    CONVOY_TWO_LEVEL_FIRST_FAILED, /* an error row is posted in the second group */
};

struct convoy_poll {
    /* What a short round touches, in few cache lines. */
    struct convoy_engine *engine;
    uint64_t timeout_ns;
    void (*keep)(void *user);
    void (*settle)(void *user);
    void *record_user;
    uint8_t *tables; /* owns; all others lie in it */
    uint8_t *positional_states;
    convoy_operation operation; /* the last one, open or over; 0 = none */
    bool is_unseen;    /* its end was not seen, or can still turn into a result (reopen) */
    bool has_wide;     /* long lists go by states_wide.h */
    bool has_counts;   /* of the last result: foreign, injected, demoted or unknown states may be counted in it */
    struct convoy_poll_short quick; /* with is_plain; its end is not touched */
    struct {
        struct convoy_poll *second;
        convoy_operation operation; /* in the second group */
        enum convoy_two_level_phase phase;
        bool is_open;
    } two; /* the two-level call that this group is the first of */

    size_t bytes_max;
    convoy_poll_record_fn record;
    convoy_poll_repeat_fn repeat;
    struct convoy_payload_shape shape; /* of the current contribution */
    struct convoy_round_header header;
    bool has_header; /* it is that of the last call; false when that was refused before its lists were known */
    bool may_repeat; /* with is_plain: a record of such a call was given, and `repeat` may follow */
    bool is_plain;   /* shape, header and the layout of capture are those of a call of plain lists (contribute.c) */
    uint64_t digests[CONVOY_POLL_LISTS_MAX]; /* with is_plain: of that call's lists */
    struct convoy_contribution plain;        /* with is_plain: what was contributed for it */
    struct convoy_capture capture;
    struct convoy_order order;
    struct convoy_inject inject;
    struct convoy_keyed keyed; /* its positional part is the merge state of rounds without keyed lists */
    struct convoy_decided decided;
    struct convoy_outcome outcome;

    struct convoy_poll *own;    /* whose capture and order are this round's own lists: itself, or the first group */
    enum convoy_poll_level level;
    uint64_t tag;
    uint32_t votes;
    bool is_recorded;  /* the end was recorded */
    bool is_finished;  /* the engine said OK and the outcome was made */
    bool has_own;      /* the outcome in own order is there */
    int32_t status;    /* with is_finished: OK or LIMIT */
    struct convoy_round_summary summary;
    convoy_operation error_row; /* posted, and nobody reads its end; 0 = none */

    struct convoy_poll *two_first; /* the first group of the last two-level call that this group is the second of */
    _Atomic(struct convoy_engine *) waits_in; /* where a wait of this group's operation waits */
};

/* Largest merged blob of poll rounds, for convoy_engine_options.partial_bytes_max. */
size_t convoy_poll_partial_bytes_max(size_t blob_bytes_max);

/* INVALID_ARGUMENT: poll_faults. NO_MEMORY. poll_out: gives (convoy_poll_close). */
int32_t convoy_poll_open(const struct convoy_poll_options *options, struct convoy_poll **poll_out,
                         struct convoy_error *error);

/* NULL is a no-op. Call it before the engine is closed or after; it does not touch the engine. */
void convoy_poll_close(struct convoy_poll *poll);

/* See reduce_start, reduce_test, reduce_wait, reduce in convoy/poll.h. result: required; its report is filled when the
 * round does not end OK. */
int32_t convoy_poll_start(struct convoy_poll *poll, const struct convoy_poll_call *call,
                          convoy_operation *operation_out, struct convoy_error *error);
int32_t convoy_poll_test(struct convoy_poll *poll, convoy_operation operation, struct convoy_poll_result *result,
                         struct convoy_error *error);
int32_t convoy_poll_wait(struct convoy_poll *poll, convoy_operation operation, uint64_t timeout_ns,
                         struct convoy_poll_result *result, struct convoy_error *error);
int32_t convoy_poll_reduce(struct convoy_poll *poll, const struct convoy_poll_call *call, uint64_t timeout_ns,
                           struct convoy_poll_result *result, struct convoy_error *error);

/* operation_abandon for a poll operation, also for a two-level one. */
int32_t convoy_poll_abandon(struct convoy_poll *poll, convoy_operation operation, struct convoy_error *error);

/* Whether this is the group's last poll operation, so that the plugin knows whose it is. */
bool convoy_poll_owns(const struct convoy_poll *poll, convoy_operation operation);

/* group_cancel: in a two-level call it reaches the group whose round is open. [any thread] */
void convoy_poll_cancel(struct convoy_poll *poll, const char *reason, size_t length);

/* The part of settle for when there is something to read. */
int32_t convoy_poll_settle_slow(struct convoy_poll *poll, uint64_t timeout_ns, struct convoy_error *error);

/* Reads the ends of rounds that nobody has read (an error row after a refused call; a result that reopen handed over),
 * so that the next round of this group, of whichever family, can start. BUSY: one still waits for its peers. timeout_ns
 * 0 = do not wait. */
static inline int32_t convoy_poll_settle(struct convoy_poll *poll, uint64_t timeout_ns, struct convoy_error *error)
{
    bool is_settled = poll->error_row == 0 && (poll->operation == 0 || !poll->is_unseen);
    return is_settled ? CONVOY_OK : convoy_poll_settle_slow(poll, timeout_ns, error);
}

/* -- for quick.c: reduce where the short way is closed, and where a round ended the whole way (status: the engine's) -- */

int32_t convoy_poll_reduce_whole(struct convoy_poll *poll, const struct convoy_poll_call *call, uint64_t timeout_ns,
                                 struct convoy_poll_result *result, struct convoy_error *error);
int32_t convoy_poll_reduce_end(struct convoy_poll *poll, int32_t status, struct convoy_poll_result *result,
                               struct convoy_error *error);

/* -- for two_level.c and contribute.c ------------------------------------------------------------------------------ */

/* Looks at the round's end: deadline_ns 0 = test, else wait until then (CONVOY_DEADLINE_NEVER = `timeout_ns` of the
 * group). Makes the outcome and the record when it is over. */
int32_t convoy_poll_look(struct convoy_poll *poll, uint64_t deadline_ns, struct convoy_error *error);

/* After look said OK: checks the caller's room, then writes the result. */
int32_t convoy_poll_deliver(struct convoy_poll *poll, struct convoy_poll_result *result, struct convoy_error *error);

/* Fills the caller's report when status is the failed end of a round, or its absence. Returns status. */
int32_t convoy_poll_report(struct convoy_poll *poll, int32_t status, struct convoy_poll_result *result);

/* Forgets the two-level call that `first` was the first group of; its second group's last result is nobody's then. */
void convoy_poll_unlink(struct convoy_poll *first);

/* Absolute deadline of a relative timeout, with this group's default. */
uint64_t convoy_poll_deadline(const struct convoy_poll *poll, uint64_t timeout_ns);

#endif
