/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy/base.h: statuses, errors, reports and text buffers that every family shares.
 *
 * Rules of the whole ABI (they are not repeated at each declaration):
 * - Every function returns an int32_t status: 0 is OK, positive is "not finished" or information, negative is an
 *   error whose band says who must act. A number that is not listed here is handled by its band.
 * - Beside what a call lists: INVALID_ARGUMENT for a NULL handle, struct or output; TOO_OLD and TOO_NEW for a struct_size
 *   or a stride; UNSUPPORTED for an unknown critical flag; CLOSED, FORKED and MOVED by the state of its object.
 * - Outputs are written only on CONVOY_OK unless the text says otherwise (errors and reports are the exception).
 * - struct_size is set by the caller to the size it was compiled with, on IN and OUT structs alike. A shorter IN
 *   struct means zero for the missing tail, and zero always means "as before"; a longer one is accepted when the
 *   tail is all zero. OUT structs receive min(both sizes), and written_bytes says how much that was. Less than the
 *   struct had in the release that brought it is TOO_OLD; only convoy_error may be shorter, and at 0 it is left alone.
 *   More than 65,536 bytes are refused: such a struct_size was never set.
 * - Arrays of structs carry a stride in bytes, which plays the part of struct_size for their elements. What an OUT
 *   element has beyond the bytes that the plugin knows is left as it was.
 * - Strings are pointer and length, UTF-8, and need no terminating zero.
 * - Times are nanoseconds. timeout_ns is relative; 0 means the configured default (5 s unless configured),
 *   UINT64_MAX never passes.
 * - Tags at the end of a comment: [threads; blocking; allocation; legal states; since].
 */
#ifndef CONVOY_BASE_H
#define CONVOY_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -- statuses (registered in abi/status.tsv; numbers are never reused) ------------------------------------------ */

#define CONVOY_OK 0
#define CONVOY_IN_PROGRESS 1 /* the operation is open; call test or wait again */

/* -1xx: the caller must act */
#define CONVOY_INVALID_ARGUMENT (-101) /* text: parameter, value, allowed range; nothing was sent or written */
#define CONVOY_BAD_STATE (-102)        /* the call is not allowed in the object's state */
#define CONVOY_CLOSED (-103)           /* the object was closed, or the operation value is stale */
#define CONVOY_FORKED (-104)           /* inherited through fork(); only a fresh context works here */
#define CONVOY_BUFFER_TOO_SMALL (-105) /* text and the length field say what is needed */
#define CONVOY_UNSUPPORTED (-106)      /* this build or this group does not offer it */
#define CONVOY_MOVED (-107)            /* another build takes over, or has taken over: nothing was done, call that one. Hosts
                                          that use the loader never see it (convoy/move.h) */

/* -2xx: a resource is missing */
#define CONVOY_NO_MEMORY (-201)
#define CONVOY_POOL_EXHAUSTED (-202)
#define CONVOY_LIMIT (-203)  /* a stated bound was passed; text: value, bound, and how to raise it */
#define CONVOY_BUSY (-204)   /* an operation is open; finish or abandon it first */
#define CONVOY_SYSTEM (-205) /* the operating system refused, sys_errno says why; or a device's driver, see the text */
#define CONVOY_OVERLOADED (-206) /* more is waiting already than the host allows; text has the figures. Ask again later, or
                                    elsewhere. Since transfer 1.1 */

/* -3xx: a peer or the link to it */
#define CONVOY_TIMED_OUT (-301)   /* no result yet; the operation stays open: test, wait or abandon */
#define CONVOY_CANCELED (-302)    /* group_cancel was called; the operation stays open, as after TIMED_OUT */
#define CONVOY_PEER_LOST (-303)   /* a member died, closed, or its link is gone; the report says which and how */
#define CONVOY_PEER_ERROR (-304)  /* a member contributed an error row; the report has its reason */
#define CONVOY_BROKEN (-305)      /* the round was abandoned by a member; reopen the group */
#define CONVOY_UNREACHABLE (-306) /* links are gone without a proven death and this side is no majority */
#define CONVOY_TRUNCATED (-307)   /* a stream ended in the middle of a frame (opens of a group, peer_connect) */

/* -4xx: the protocol */
#define CONVOY_DIVERGED (-401) /* members disagree on what this round is; the report names who and in which field */
#define CONVOY_MALFORMED (-402)
#define CONVOY_UNKNOWN_MESSAGE (-403)  /* what answers speaks of something else (peer_connect) */
#define CONVOY_VERSION_MISMATCH (-404) /* no common version; text names both ranges */
#define CONVOY_STALE_EPOCH (-405)      /* text names both epochs */
#define CONVOY_UNAUTHENTICATED (-406)  /* the peer does not hold the same secret */

/* -5xx: loading and versions */
#define CONVOY_NOT_FOUND (-501)
#define CONVOY_NO_ENTRY (-502) /* the file is no convoy plugin: entry or note is missing */
#define CONVOY_TOO_OLD (-503) /* what the text names, a plugin or a struct of the caller's, is older than what is needed */
#define CONVOY_TOO_NEW (-504) /* ... is newer; text names the offset of the unknown non-zero tail, or both ranges */
#define CONVOY_INIT_FAILED (-505)
#define CONVOY_DRAIN_TIMEOUT (-506) /* close could not finish; the object stays closing, call again */
#define CONVOY_BAD_FILE (-507)      /* not an ELF file of this machine, truncated or corrupt */

/* -9xx: our bug */
#define CONVOY_INVARIANT (-901)

/* -- errors ------------------------------------------------------------------------------------------------------ */

#define CONVOY_ERROR_TEXT_BYTES 256

/*
 * Detail of one failure. OUT, owned by the caller, may be NULL everywhere. The first cause wins: a failing call
 * overwrites it whole, a successful call leaves it alone. Plain data: it outlives the plugin.
 */
struct convoy_error {
    uint32_t struct_size;
    uint32_t written_bytes;
    int32_t status;
    int32_t rank;       /* member id the failure is about, or -1 */
    uint64_t round;     /* round the failure is about, or 0 */
    int32_t sys_errno;  /* errno of the system call that failed, or 0 */
    int32_t ucx_status; /* ucs_status_t that failed, or 0 */
    char text[CONVOY_ERROR_TEXT_BYTES]; /* always terminated by a zero */
};

/* Text that a call writes. OUT, owned by the caller. On BUFFER_TOO_SMALL `length` is what is needed. */
struct convoy_text_buffer {
    uint32_t struct_size;
    uint32_t written_bytes;
    char *data;      /* in: where to write; terminated by a zero when there is room */
    size_t capacity; /* in: bytes at data */
    size_t length;   /* out: bytes of text, without the zero */
};

/* -- reports: what each member was seen to do --------------------------------------------------------------------- */

/* convoy_member_report.condition */
#define CONVOY_MEMBER_HEARD 0    /* contributed to this round */
#define CONVOY_MEMBER_MISSING 1  /* not heard in this round */
#define CONVOY_MEMBER_LOST 2     /* dead, or its link is gone */
#define CONVOY_MEMBER_CLOSED 3   /* closed the group in an orderly way */
#define CONVOY_MEMBER_DIVERGED 4 /* contributed to a different round than this member */
#define CONVOY_MEMBER_ERROR 5    /* contributed an error row */
#define CONVOY_MEMBER_UNKNOWN 6  /* behind a silent leader; `behind` names that leader */
#define CONVOY_MEMBER_ABANDONED 7 /* sealed the round */

/* convoy_member_report.noticed_by: how a loss was noticed */
#define CONVOY_NOTICED_NONE 0
#define CONVOY_NOTICED_PROCESS 1 /* its process ended (pidfd) */
#define CONVOY_NOTICED_LINK 2    /* its network link failed */
#define CONVOY_NOTICED_PEER 3    /* another member sealed the round and said so */
#define CONVOY_NOTICED_CLOSE 4   /* it said goodbye */

/* convoy_report.field: the first header field that differs, in this order */
#define CONVOY_FIELD_NONE 0
#define CONVOY_FIELD_OPERATION 1
#define CONVOY_FIELD_WIRE 2
#define CONVOY_FIELD_EPOCH 3
#define CONVOY_FIELD_COUNTS 4
#define CONVOY_FIELD_DIGEST 5
#define CONVOY_FIELD_SCHEMA 6
#define CONVOY_FIELD_POLICY 7
#define CONVOY_FIELD_TAG 8

/* One member as this member saw it. Element of the caller's array; the stride is its struct_size. */
struct convoy_member_report {
    int32_t rank;  /* member id, as given in the group's member list */
    uint32_t index; /* position in the member list */
    uint32_t host; /* hosts of the group are numbered from 0 in member order */
    uint32_t condition;
    uint32_t noticed_by;
    int32_t behind;         /* member id of the silent leader, or -1 */
    int32_t reason;         /* reason of an error row, or the status a member sealed with */
    uint32_t operation;     /* CONVOY_OPERATION_* of its last contribution */
    uint64_t round;         /* last round it contributed to */
    uint64_t tag;           /* step tag of that round, 0 = none */
    uint64_t age_ns;        /* since that contribution was seen to arrive here; UINT64_MAX = never */
    uint64_t epoch;
    uint64_t counts;        /* number of lists (low 8 bits) and of all entries (the rest), or of columns */
    uint64_t digest;        /* of the request ids, 0 = none given */
    uint64_t schema;        /* schema hash, 0 = none */
    uint64_t policy;        /* policy bits that must agree */
};

#define CONVOY_OPERATION_NONE 0
#define CONVOY_OPERATION_POLL 1 /* positional poll reduce */
#define CONVOY_OPERATION_POLL_KEYED 2
#define CONVOY_OPERATION_SYNC 3

/* What all members did. OUT, owned by the caller; filled on DIVERGED, TIMED_OUT, PEER_LOST, PEER_ERROR, BROKEN,
 * CANCELED. One row per member that did not simply contribute; all members on DIVERGED. */
struct convoy_report {
    uint32_t struct_size;
    uint32_t written_bytes;
    struct convoy_member_report *members; /* in: caller's array, may be NULL */
    size_t member_stride;                 /* in: bytes from one element to the next */
    size_t member_capacity;               /* in: elements at members */
    size_t member_count;                  /* out: rows that exist; may exceed the capacity, the rest is cut */
    int32_t own_rank;                     /* out */
    uint32_t field;                       /* out: CONVOY_FIELD_* */
    uint64_t round;                       /* out */
    uint64_t elapsed_ns;                  /* out: since the operation was started */
    uint64_t operation;                   /* out: the operation value */
};

/* -- opaque handles ----------------------------------------------------------------------------------------------- */

typedef struct convoy_context convoy_context; /* one opened plugin instance */
typedef struct convoy_group convoy_group;     /* an ordered list of members and this one's place in it */
typedef uint64_t convoy_operation;            /* (slot, generation); 0 is never a live operation */

#ifdef __cplusplus
}
#endif

#endif
