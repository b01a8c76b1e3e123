/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy/sync.h: DP sync gather, one int64 row per member and step. Family "sync", version 1.0.
 *
 * Members are laid out [dp][inner]: member index = dp rank x inner + position, inner = tp x cp members that share a
 * data-parallel rank. The row of a rank that is inactive, lost or absent is its schema's fallback, and presence says
 * so; nothing is guessed from zeros. Outputs never alias inputs or the fallback, at any size, dp 1 included: inputs
 * are captured when the call starts, so they may lie in outputs; outputs that overlap each other are refused.
 */
#ifndef CONVOY_SYNC_H
#define CONVOY_SYNC_H

#include "convoy/poll.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_SYNC_MAJOR 1
#define CONVOY_SYNC_MINOR 0

#define CONVOY_SYNC_COLUMNS_MAX 64

/* convoy_sync_column.reduction, over the first member of each data-parallel rank that is present. When none is:
 * {ignored or fallback, not agreed} */
#define CONVOY_REDUCE_NONE 0      /* value 0 */
#define CONVOY_REDUCE_MIN 1
#define CONVOY_REDUCE_MAX 2
#define CONVOY_REDUCE_SUM 3       /* saturates at the ends of int64 */
#define CONVOY_REDUCE_ALL_EQUAL 4 /* {value, agreed}; values equal to `ignored` do not count; when all are ignored:
                                     that value, not agreed; when they differ: the first, not agreed */

#define CONVOY_COLUMN_HAS_IGNORED 1u /* ALL_EQUAL: `ignored` is valid */
#define CONVOY_COLUMN_OPTIONAL 2u    /* an older peer may lack it: the group then goes on without, filled by fallback */

/* IN: one column. Element of an array; the stride is its struct_size. */
struct convoy_sync_column {
    const char *name; /* 1 to 31 bytes, all different; copies */
    size_t name_length;
    int64_t fallback;
    int64_t ignored;
    uint32_t reduction; /* CONVOY_REDUCE_* */
    uint32_t flags;     /* CONVOY_COLUMN_* */
};

/* IN: what a row means. Given at group_open; cut there to the columns that all members have. What is cut stays in the
 * outputs as its fallback. DIVERGED: a member lacks a column that another has and not as OPTIONAL, or one name has two
 * fallbacks, reductions or ignored values; only some members have a schema; sync_inner or sync_slots differ. */
struct convoy_sync_schema {
    uint32_t struct_size;
    uint32_t critical_flags; /* none defined */
    const char *builtin;     /* NULL for own columns; or "sglang-7": tokens, logprob_tokens, decode_graph, extend, two_batch,
                                mode, prefill_graph; or "sglang-8": the same and max_prefix, which is OPTIONAL. Fallbacks
                                are 0, but 1 of decode_graph and two_batch, and 4 of mode. MAX reduces tokens,
                                logprob_tokens, extend and max_prefix, ALL_EQUAL that ignores 4 mode, MIN the rest */
    size_t builtin_length;
    const struct convoy_sync_column *columns;
    size_t column_stride;
    size_t column_count; /* 1 to 64 */
};

/* Presence of a member's row, one byte each */
#define CONVOY_PRESENT 0
#define CONVOY_PRESENT_INACTIVE 1 /* fallback: the active mask excludes it */
#define CONVOY_PRESENT_LOST 2     /* fallback: the member is lost (CONVOY_GROUP_DEGRADE) */
#define CONVOY_PRESENT_ERROR 3    /* fallback: it contributed an error row (ERRORS_AS_PRESENCE) */
#define CONVOY_PRESENT_EMPTY 4    /* fallback: a spare slot of a world gather, nobody is behind it */

#define CONVOY_SYNC_ERRORS_AS_PRESENCE 1u /* policy, must agree: error rows become presence instead of PEER_ERROR */
#define CONVOY_SYNC_WORLD 2u              /* policy, must agree: rows go to slots, all-zero rows included */
#define CONVOY_SYNC_EXCHANGE 4u           /* policy, must agree: make a round also with one data-parallel rank (for votes
                                             and tags over its members). Without it such a gather is local: every row of
                                             the table is this member's, votes are its own, round is 0 */

#define CONVOY_SYNC_SLOT_NONE 0xffffffffu /* convoy_sync_call.slot: the row is dropped */

/* IN: what one member brings. Captured when the call starts. */
struct convoy_sync_call {
    uint32_t struct_size;
    uint32_t critical_flags; /* CONVOY_CALL_ERROR_ROW */
    uint32_t hint_flags;     /* CONVOY_CALL_POST_ERROR */
    uint32_t votes;
    const int64_t *row;      /* one value per column of the schema as this member declared it; any alignment; NULL = the
                                fallbacks (idle) */
    size_t row_stride;       /* bytes from one value to the next; 0 = 8 */
    const uint8_t *active;   /* one byte per member, 0 = inactive; NULL = all active. Must agree, see mask_version */
    size_t active_count;     /* shorter than the group: ignored as a whole (all active), as hosts do */
    uint64_t mask_version;   /* the highest version of all members wins and skew is reported; one version with
                                different bits is DIVERGED; an older version is not looked at. NULL is a mask too */
    uint64_t tag;            /* step number, compared over the members; 0 = none */
    uint32_t policy;         /* CONVOY_SYNC_* */
    int32_t error_reason;    /* with ERROR_ROW and POST_ERROR */
    uint32_t slot;           /* WORLD: data-parallel slot of this member's rank, below sync_slots, or SLOT_NONE. The row
                                goes to [slot][own index % inner]. A slot that two ranks name, or a rank that names two,
                                is DIVERGED. A lost member shows where another of its rank is, else nowhere */
    uint32_t reserved;
};

/* One reduced column. */
struct convoy_sync_reduced {
    int64_t value;
    uint32_t agreed; /* ALL_EQUAL: 1 when all counted values are equal; other reductions: 1 when a rank is present */
    uint32_t reserved;
};

/* OUT: the table and what follows from it. Arrays are the caller's; any may be NULL; any alignment; INVALID_ARGUMENT
 * when two of them overlap. slots = sync_slots; a plain gather puts rank r into slot r. */
struct convoy_sync_result {
    uint32_t struct_size;
    uint32_t written_bytes;
    int64_t *table; /* in: [slots][inner][width] */
    size_t table_capacity; /* in: values at table; too few: BUFFER_TOO_SMALL before anything is sent */
    int64_t *first;        /* in: [slots][width], the first member of each data-parallel rank */
    size_t first_capacity;
    struct convoy_sync_reduced *reduced; /* in: [width] */
    size_t reduced_capacity;
    size_t reduced_stride; /* in: bytes from one element to the next; 0 = 16, the size in release 1.0, in every release */
    uint8_t *presence; /* in: [slots][inner], CONVOY_PRESENT_* */
    size_t presence_capacity;
    struct convoy_report *report; /* in: may be NULL; filled when the round does not end OK */
    uint32_t votes_and;           /* out */
    uint32_t votes_or;            /* out */
    uint64_t round;               /* out */
    uint64_t epoch;               /* out */
    uint64_t mask_version;        /* out: the version that was applied */
    uint32_t mask_skew;           /* out: members that brought an older version */
    uint32_t width;               /* out: values per row, as this member declared them */
};

/* convoy_sync_padding.layout */
#define CONVOY_LAYOUT_MAX 0 /* every rank padded to one extent: starts are rank x extent */
#define CONVOY_LAYOUT_SUM 1 /* ranks follow each other unpadded: starts are prefix sums */

/* convoy_sync_padded.reason */
#define CONVOY_PADDED_OK 0
#define CONVOY_PADDED_NO_CAPTURE 1    /* no capture size is large enough */
#define CONVOY_PADDED_OVER_LIMIT 2    /* the rule's figure exceeds limit */
#define CONVOY_PADDED_ALL_IDLE 3      /* nobody has tokens: extent is 0 */

/* IN of padded_size. */
struct convoy_sync_padding {
    uint32_t struct_size;
    uint32_t layout;         /* CONVOY_LAYOUT_* */
    const int64_t *tokens;   /* per rank, each >= 0 */
    size_t token_count;
    const int64_t *captures; /* sizes a graph was captured for, each above the last, from 1; NULL = no rounding */
    size_t capture_count;
    int64_t limit;           /* largest figure (max per rank, or sum, by layout) that is eligible; 0 = none */
};

/* OUT of padded_size. */
struct convoy_sync_padded {
    uint32_t struct_size;
    uint32_t written_bytes;
    int64_t *starts;  /* in: one per rank; may be NULL. MAX without a graph: rank x figure */
    int64_t *lengths; /* in: one per rank: its own tokens, unpadded, so that idle stays idle; may be NULL */
    size_t capacity;  /* in: elements at both */
    int64_t extent;   /* out: padded size per rank (MAX) or of all (SUM); 0 when not eligible */
    int64_t figure;   /* out: what was compared: max or sum of tokens */
    uint32_t eligible; /* out: 1 = a captured graph fits */
    uint32_t reason;   /* out: CONVOY_PADDED_* */
};

struct convoy_sync_table {
    struct convoy_table_header header;

    /* Captures the row and contributes it to the group's next round. INVALID_ARGUMENT: text names parameter, value,
     * range. BUSY: an operation is open. BROKEN, PEER_LOST: reopen first.
     * UNSUPPORTED: the group was opened without a schema. INVALID_ARGUMENT with POST_ERROR: *operation_out is the
     * error row's operation, to be finished like any other; 0 when it could not be posted.
     * [serialized per group; never blocks; never allocates; ready; since 1.0] */
    int32_t (*gather_start)(convoy_group *group, const struct convoy_sync_call *call, convoy_operation *operation_out,
                            struct convoy_error *error);

    /* IN_PROGRESS, or the round's end: OK with result_out filled; DIVERGED (also: masks or slots that contradict each
     * other), PEER_ERROR (operation is over, group goes on); PEER_LOST, BROKEN (operation is over, reopen the group);
     * CLOSED: stale operation. BUFFER_TOO_SMALL, INVALID_ARGUMENT (arrays overlap): the operation stays, call again.
     * [serialized per group; never blocks; never allocates; active, stuck; since 1.0] */
    int32_t (*gather_test)(convoy_group *group, convoy_operation operation, struct convoy_sync_result *result_out,
                           struct convoy_error *error);

    /* As gather_test, but waits. TIMED_OUT, CANCELED: no result, the operation stays open. timeout_ns 0 = the group's.
     * [serialized per group; blocks up to timeout_ns; never allocates; active, stuck; since 1.0] */
    int32_t (*gather_wait)(convoy_group *group, convoy_operation operation, uint64_t timeout_ns,
                           struct convoy_sync_result *result_out, struct convoy_error *error);

    /* gather_start and gather_wait in one. A group of one member, and one data-parallel rank (see
     * CONVOY_SYNC_EXCHANGE), is local: no network, no shared memory. After a refused
     * call with POST_ERROR it waits until the error row's round has ended. Statuses of both.
     * [serialized per group; blocks up to timeout_ns; never allocates; ready; since 1.0] */
    int32_t (*gather)(convoy_group *group, const struct convoy_sync_call *call, uint64_t timeout_ns,
                      struct convoy_sync_result *result_out, struct convoy_error *error);

    /* The padded size that all ranks compute alike from gathered tokens, with starts and lengths. Pure.
     * INVALID_ARGUMENT: negative tokens, captures not ascending, negative limit, unknown layout, starts or lengths too
     * small, arrays that overlap, a sum or an end beyond int64.
     * [any thread; never blocks; never allocates; any state; since 1.0] */
    int32_t (*padded_size)(const struct convoy_sync_padding *input, struct convoy_sync_padded *padded_out,
                           struct convoy_error *error);

    /* Starts of each rank for a layout and a given extent (SUM ignores it). starts_out: token_count values, written on OK
     * only. INVALID_ARGUMENT: as padded_size; MAX with an extent of 0, or below the tokens of a rank: it has no starts.
     * Pure.
     * [any thread; never blocks; never allocates; any state; since 1.0] */
    int32_t (*starts)(const struct convoy_sync_padding *input, int64_t extent, int64_t *starts_out,
                      struct convoy_error *error);
};

#ifdef __cplusplus
}
#endif

#endif
