/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy/poll.h: poll reduce, MIN of request states over the members of a group. Family "poll", version 1.0.
 *
 * States are ordered, the order is ABI: MIN means "least advanced", so no rank commits ahead of its peers, and a
 * failure on any member reaches all (SGLang, disaggregation/utils.py). Two ways to line entries up:
 *   positional  all members bring equal counts and, if given, equal digests; anything else is DIVERGED
 *   keyed       entries are matched by (key, generation); lists may differ in order and length. A member that does
 *               not list an identity counts as Bootstrapping for it, or is skipped under ABSENT_SKIP
 *
 * Order inside one call: advance staging, read states, inject faults, demote Success to Transferring where staging is
 * not done, apply the metadata gate, then MIN over the members. One round carries up to eight lists.
 */
#ifndef CONVOY_POLL_H
#define CONVOY_POLL_H

#include "convoy/core.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_POLL_MAJOR 1
#define CONVOY_POLL_MINOR 0

#define CONVOY_STATE_FAILED 0
#define CONVOY_STATE_BOOTSTRAPPING 1
#define CONVOY_STATE_WAITING_FOR_INPUT 2
#define CONVOY_STATE_TRANSFERRING 3
#define CONVOY_STATE_SUCCESS 4

#define CONVOY_POLL_LISTS_MAX 8

/* convoy_poll_list.flags; they must agree on all members */
#define CONVOY_POLL_KEYED 1u       /* match by (key, generation) instead of by position */
#define CONVOY_POLL_ABSENT_SKIP 2u /* keyed: members that do not list an identity are skipped. This waives "no rank
                                      commits ahead": an identity can succeed before every member has it */

/* convoy_poll_list.gate: what a local Success needs beside the state (see convoy_poll_stamp) */
#define CONVOY_GATE_NONE 0
#define CONVOY_GATE_IDENTITY 1 /* unwritten or foreign stamp: Transferring; the entry's own stamp passes */
#define CONVOY_GATE_HOST 2     /* as hosts do today: any non-zero stamp passes */

/* Bits of convoy_poll_list.entry_flags[i] */
#define CONVOY_ENTRY_STAGED 1u    /* needs staging */
#define CONVOY_ENTRY_DONE 2u      /* staging is done; advance is not called for it */
#define CONVOY_ENTRY_GATE_SKIP 4u /* the gate does not apply (fake transfers) */

/*
 * Advances the staging of one entry. Returns 1 when it is done, 0 when not, negative when the host failed: the whole
 * call is then INVALID_ARGUMENT with that number and nothing is sent. Called for STAGED entries without DONE, in
 * list order, before any state is read, once per call. [caller's thread, inside start; no lock held]
 */
typedef int32_t (*convoy_poll_advance_fn)(void *user, size_t list_index, size_t entry_index);

/* Returns the state 0..4 of one entry; anything else makes the call INVALID_ARGUMENT. Called once per entry in list
 * order, after all of the list's entries were advanced. [caller's thread, inside start; no lock held] */
typedef int32_t (*convoy_poll_read_fn)(void *user, size_t list_index, size_t entry_index);

/* What a writer left beside the payload, so that a reused slot is not taken for another request's. */
struct convoy_poll_stamp {
    uint64_t key;        /* 0 = not written yet */
    uint32_t generation; /* compared only with has_generation */
    uint32_t has_generation;
};

/* IN: one list of requests. Element of an array; the stride is its struct_size. Everything borrows until start ends. */
struct convoy_poll_list {
    const char *name; /* for reports and the call log, at most 31 bytes are kept; may be NULL */
    size_t name_length;
    size_t count;         /* entries; 0 is legal and takes part; pointers may then be NULL */
    const void *states;   /* one integer of state_bytes per entry, any alignment; NULL with `read` */
    size_t state_stride;  /* bytes from one state to the next; 0 = state_bytes */
    uint32_t state_bytes; /* 1, 4 or 8 (int8/uint8, int32, int64); 0 = 1 */
    uint32_t flags;       /* CONVOY_POLL_* */
    const uint64_t *keys; /* keyed: required, (key, generation) all different; positional: used by gate only */
    const uint32_t *generations; /* NULL = all 0 */
    uint64_t digest;             /* positional: digest of the request ids, 0 = none; must agree */
    const uint8_t *entry_flags;  /* CONVOY_ENTRY_* per entry; NULL = all 0 */
    uint32_t gate;               /* CONVOY_GATE_*; IDENTITY needs keys */
    uint32_t reserved;
    const struct convoy_poll_stamp *stamps; /* one per entry when there is a gate */
    size_t stamp_stride;                    /* 0 = 16, in every release */
    const uint64_t *gate_deadlines_ns; /* CLOCK_MONOTONIC; a stamp still foreign then is Failed; NULL, 0 = never */
    convoy_poll_advance_fn advance;    /* NULL = staging only moves by entry_flags */
    convoy_poll_read_fn read;          /* NULL = use states */
    void *user;
};

/* Of convoy_poll_call and convoy_sync_call; each bit belongs in the word that it names. */
#define CONVOY_CALL_POST_ERROR 1u /* hint: when the arguments are refused, tell the peers by an error row at once. It is an
                                     operation, to be finished like any other; reduce and gather wait for its end */
#define CONVOY_CALL_ERROR_ROW 2u  /* critical: contribute "no row, reason r"; everything but tag and votes is ignored */

/* IN: what one member brings to one round. Captured when the call starts. */
struct convoy_poll_call {
    uint32_t struct_size;
    uint32_t critical_flags; /* CONVOY_CALL_ERROR_ROW */
    uint32_t hint_flags;     /* CONVOY_CALL_POST_ERROR */
    uint32_t votes;          /* bits; returned as AND and OR over the members */
    const struct convoy_poll_list *lists;
    size_t list_stride;
    size_t list_count; /* 0 to 8; 0 = votes only */
    uint64_t tag;      /* step number, compared over the members; 0 = none */
    int32_t error_reason; /* with ERROR_ROW and POST_ERROR */
    uint32_t reserved;
};

/* Said before: this identity has ended; listings of it no longer count. A group remembers the last 4,096 identities that
 * ended, or twice what one outcome can hold if that is more; use a new generation before the same key comes again. */
#define CONVOY_OUTCOME_DECIDED 1u

/* One identity of a keyed list. The sorted list is the same on all members. */
struct convoy_poll_outcome {
    uint64_t key;
    uint32_t generation;
    uint16_t listed_by; /* members that list it in this round */
    uint8_t state;
    uint8_t flags; /* CONVOY_OUTCOME_* */
};

/* OUT: one list's result. Element of the caller's array; the stride is its struct_size. */
struct convoy_poll_list_result {
    uint8_t *states;        /* in: room for `count` states, in this member's own order; may be NULL */
    size_t states_capacity; /* in: at least count, else BUFFER_TOO_SMALL before anything is sent */
    struct convoy_poll_outcome *outcomes; /* in: keyed only; may be NULL */
    size_t outcome_stride;                /* in */
    size_t outcome_capacity;              /* in */
    size_t states_count;                  /* out */
    size_t outcome_count;                 /* out: may exceed the capacity, the rest is cut */
    uint32_t foreign_count;               /* out: stamps of other requests seen by this member's gate */
    uint32_t injected_count;              /* out: states this member's fault injection turned into Failed */
    uint32_t unknown_count;               /* out: states of newer peers taken as Bootstrapping */
    uint32_t demoted_count;               /* out: Success turned into Transferring by staging or gate */
};

/* OUT: a round's result. Written on OK; error and report also otherwise. */
struct convoy_poll_result {
    uint32_t struct_size;
    uint32_t written_bytes;
    struct convoy_poll_list_result *lists; /* in */
    size_t list_stride;                    /* in */
    size_t list_capacity;                  /* in: at least list_count */
    struct convoy_report *report;          /* in: may be NULL; filled when the round does not end OK */
    uint32_t votes_and;                    /* out */
    uint32_t votes_or;                     /* out */
    uint64_t round;                        /* out */
    uint64_t epoch;                        /* out */
};

/* IN: one scripted fault. */
struct convoy_poll_fault {
    uint64_t round; /* of the group */
    uint32_t list;
    uint32_t entry; /* position in this member's list */
};

/* IN: injected failures, for tests of hosts: a state becomes Failed before demotion and gate. */
struct convoy_poll_faults {
    uint32_t struct_size;
    uint32_t probability_ppm; /* 0 to 1,000,000, drawn per entry from (seed, round, list, entry) */
    uint64_t seed;            /* equal seeds on all members draw equal faults */
    const struct convoy_poll_fault *script;
    size_t script_stride;
    size_t script_count; /* at most 4,096 */
};

#define CONVOY_CONSENSUS_NONE 255u

/* IN of consensus. good: intersection over the stages, bad: union, both already agreed by the host. */
struct convoy_poll_consensus {
    uint32_t struct_size;
    uint32_t success_state; /* 0..4, the state that "good" means */
    const uint64_t *ids;
    size_t id_count;
    const uint64_t *good;
    size_t good_count;
    const uint64_t *bad;
    size_t bad_count;
};

struct convoy_poll_table {
    struct convoy_table_header header;

    /* Captures the call and contributes it to the group's next round. operation_out: for test, wait, abandon.
     * INVALID_ARGUMENT: text names parameter, value, range. BUSY: an operation is open. LIMIT: the lists exceed
     * blob_bytes_max. BROKEN, PEER_LOST: reopen first; report as in the result. A refused call with POST_ERROR:
     * *operation_out is the error row's operation, to be finished like any other (PEER_ERROR); 0: none could be posted.
     * [serialized per group; never blocks; never allocates; ready; since 1.0] */
    int32_t (*reduce_start)(convoy_group *group, const struct convoy_poll_call *call,
                            convoy_operation *operation_out, struct convoy_error *error);

    /* IN_PROGRESS, or the round's end: OK with result_out filled; DIVERGED, PEER_ERROR (operation is over, group goes
     * on); PEER_LOST, BROKEN (operation is over, reopen the group); CLOSED: stale operation. LIMIT: a keyed outcome
     * exceeds blob_bytes_max, on all members. BUFFER_TOO_SMALL: the operation stays, call again with more room.
     * [serialized per group; never blocks; never allocates; active, stuck; since 1.0] */
    int32_t (*reduce_test)(convoy_group *group, convoy_operation operation, struct convoy_poll_result *result_out,
                           struct convoy_error *error);

    /* As reduce_test, but waits. TIMED_OUT, CANCELED: no result, the operation stays open. Waiting in slices (reduce or
     * reduce_start, then this again and again) is as good as one long wait: text and report give the time since the
     * operation started, the counters have one time-out per operation, and who sleeps goes on to sleep. Slices of 10 ms
     * or more cost little beside.
     * [serialized per group; blocks up to timeout_ns; never allocates; active, stuck; since 1.0] */
    int32_t (*reduce_wait)(convoy_group *group, convoy_operation operation, uint64_t timeout_ns,
                           struct convoy_poll_result *result_out, struct convoy_error *error);

    /* reduce_start and reduce_wait in one, with the statuses of both. On TIMED_OUT and CANCELED group_info has the
     * operation. BUFFER_TOO_SMALL is found before anything is sent. After a refused call with POST_ERROR it waits until
     * the error row's round has ended; if that takes longer, group_info has its operation.
     * [serialized per group; blocks up to timeout_ns; never allocates; ready; since 1.0] */
    int32_t (*reduce)(convoy_group *group, const struct convoy_poll_call *call, uint64_t timeout_ns,
                      struct convoy_poll_result *result_out, struct convoy_error *error);

    /*
     * Two-level reduce: MIN over `first`, then MIN of that result over `second`; exactly one round each, in that
     * order (attention-TP, then attention-CP). The operation belongs to `first`; test, wait and abandon take it.
     * When level 1 ends other than OK or TIMED_OUT, an error row is posted at level 2, so that nobody hangs there.
     * Statuses as reduce_start; INVALID_ARGUMENT also when both groups are one. With POST_ERROR a refused call posts a
     * row in each group, and nobody has an operation: the next start finishes them, and is BUSY until the peers came.
     * [serialized per group; never blocks; never allocates; both ready; since 1.0]
     */
    int32_t (*reduce2_start)(convoy_group *first, convoy_group *second, const struct convoy_poll_call *call,
                             convoy_operation *operation_out, struct convoy_error *error);

    /* As reduce_test, over both levels: goes on to level 2 when level 1 is over. A failure at level 1 is the call's; the
     * error text names the group.
     * [serialized per group, both; never blocks; never allocates; first active or stuck; since 1.0] */
    int32_t (*reduce2_test)(convoy_group *first, convoy_operation operation, struct convoy_poll_result *result_out,
                            struct convoy_error *error);

    /* As reduce_wait, over both levels inside one timeout_ns. TIMED_OUT, CANCELED: the whole call stays open. CLOSED: one
     * of the two was closed meanwhile; when it was the second, the round of `first` may be open still: abandon it.
     * [serialized per group, both; blocks up to timeout_ns; never allocates; first active or stuck; since 1.0] */
    int32_t (*reduce2_wait)(convoy_group *first, convoy_operation operation, uint64_t timeout_ns,
                            struct convoy_poll_result *result_out, struct convoy_error *error);

    /* As operation_abandon, at the level whose round is open; at level 1 an error row is posted at level 2 first.
     * [serialized per group, both; never blocks; first active or stuck; since 1.0] */
    int32_t (*reduce2_abandon)(convoy_group *first, convoy_operation operation, struct convoy_error *error);

    /*
     * Pipeline-parallel consensus: states_out[i] = Failed when ids[i] is among bad, else success_state when it is
     * among good, else CONVOY_CONSENSUS_NONE. Pure: it never communicates. Arrays hold 64-bit request ids; states_out:
     * id_count bytes, written on OK only. INVALID_ARGUMENT: an array that is NULL with a count, states_out NULL,
     * success_state above 4. TOO_OLD, TOO_NEW: the struct's size.
     * [any thread; never blocks; never allocates; any state; since 1.0]
     */
    int32_t (*consensus)(const struct convoy_poll_consensus *input, uint8_t *states_out, struct convoy_error *error);
};

#ifdef __cplusplus
}
#endif

#endif
