/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy/payload.h: what a staged transfer carries and how it is asked for: tensors in, offers, loads, results, tensors
 * out. Part of family "transfer"; what the states mean and the calls that take these structs are in transfer.h.
 */
#ifndef CONVOY_PAYLOAD_H
#define CONVOY_PAYLOAD_H

#include "convoy/core.h"
#include "convoy/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct convoy_transfer_engine convoy_transfer_engine;
typedef uint64_t convoy_transfer; /* (slot, generation); 0 is never a live one. A stale one is CLOSED */
typedef uint64_t convoy_peer;     /* (slot, generation) of a connected engine; 0 = none */

/* -- what is moved ------------------------------------------------------------------------------------------------- */

#define CONVOY_TENSOR_LISTED 1u /* list_index is valid: one of a list of tensors */

/* IN: one tensor. Element of an array; the stride is its struct_size. data is read until the stage has ended, all else
 * until start returns. */
struct convoy_tensor_source {
    const char *name; /* of the field; tensors of one list share it */
    size_t name_length; /* 1 to 255 */
    const char *dtype;  /* the host's or safetensors' name; of another type bytes are carried as they are */
    size_t dtype_length;
    const void *data;       /* any alignment; NULL when there is no byte; device memory where the engine has a device */
    const uint64_t *shape;  /* [rank]; 0 dimensions are one element */
    const int64_t *strides; /* [rank], in bytes, copied densely; NULL = dense already */
    uint64_t bytes;         /* of a type that convoy does not know; else 0, or what shape and type give */
    uint32_t rank;          /* 0 to 16 */
    uint32_t flags;         /* CONVOY_TENSOR_LISTED */
    uint32_t list_index;    /* 0 to 65,535; positions that nobody brings are holes */
    uint32_t reserved;
};

/* IN and OUT: length of a list, for holes at its end. Element of an array with a stride. */
struct convoy_tensor_list_entry {
    const char *name;
    size_t name_length;
    uint32_t length; /* holes included */
    uint32_t reserved;
};

#define CONVOY_STAGE_CHECKSUM 1u /* critical: XXH3 over the payload, checked by every receiver */
#define CONVOY_STAGE_INLINE 2u   /* hint: copy on this thread, before start returns; else large ones on a copy thread */

/* IN: a request's tensors and scalars. */
struct convoy_stage {
    uint32_t struct_size;
    uint32_t critical_flags; /* CONVOY_STAGE_CHECKSUM */
    uint32_t hint_flags;     /* CONVOY_STAGE_INLINE */
    uint32_t attempt;        /* of the request, from 1; 0 = 1 */
    const char *request;     /* 1 to 255 bytes; copies */
    size_t request_length;
    const struct convoy_tensor_source *tensors;
    size_t tensor_stride;
    size_t tensor_count; /* 0 is legal: scalars only */
    const struct convoy_tensor_list_entry *lists;
    size_t list_stride;
    size_t list_count;
    const char *scalars; /* a JSON object up to 1 MiB, carried as this very text; NULL = none; copies */
    size_t scalars_length;
    convoy_ready_fn ready; /* NULL = the bytes are there, or will be when the stream comes to the copies */
    void *user;
    void *stream;        /* of the engine's device (CUstream): copies run behind what is on it when they begin, which is in this
                            call or, with `ready`, in the test or wait that gets its yes. NULL = the device's default stream */
    void *event;         /* recorded on it behind the copies (CUevent); NULL = none */
    uint64_t timeout_ns; /* until STAGED */
    uint64_t lease_ns;   /* from then on, for readers to come; 0 = the engine's */
    int32_t priority;    /* since 1.1: of the request, for its sends and for who receives it; higher goes first, 0 = usual */
    uint32_t reserved_2; /* 0 */
};

/* convoy_send.path, convoy_load.path: 0 = the best there is */
#define CONVOY_PATH_AUTO 0
#define CONVOY_PATH_LEND 1       /* read in place, from a mapping */
#define CONVOY_PATH_PUSH 2       /* into a slot of the receiver's pool */
#define CONVOY_PATH_PULL 3       /* by the receiver, into its destination */
#define CONVOY_PATH_PROCESS_VM 4 /* results only: process_vm_readv */
#define CONVOY_PATH_MESSAGES 5   /* results only: UCX active messages */
#define CONVOY_PATH_RMA 6        /* results only: UCX put or get */

/* convoy_send.retries, convoy_load.retries: nothing is sent twice */
#define CONVOY_RETRIES_NONE 0xffffffffu

/* IN: whom to send what is staged. */
struct convoy_send {
    uint32_t struct_size;
    uint32_t critical_flags; /* none defined */
    uint32_t hint_flags;     /* none defined */
    uint32_t path;           /* CONVOY_PATH_* */
    convoy_peer peer;
    convoy_transfer staged; /* with stage NULL: one that was staged before, maybe for several readers */
    uint64_t address;       /* PUSH: where in the receiver's memory, from its broker; 0 = a slot that it reserves */
    uint64_t timeout_ns;    /* until the receiver has it */
    uint32_t retries;       /* of a message that is not answered; 0 = 2; CONVOY_RETRIES_NONE */
    uint32_t reserved;
    int32_t priority; /* since 1.1: of this send; 0 = that of the stage. See admission_set */
    uint32_t reserved_2; /* 0 */
};

#define CONVOY_LOAD_VIEW 0 /* host memory: the sender's, read-only, or a slot of the own pool; valid until release */
#define CONVOY_LOAD_COPY 1 /* into destination, or a slot of the own pool; the sender has its memory back at once */

/* IN: what to receive and how. */
struct convoy_load {
    uint32_t struct_size;
    uint32_t critical_flags; /* none defined */
    uint32_t hint_flags;     /* none defined */
    uint32_t mode;           /* CONVOY_LOAD_* */
    const void *descriptor;  /* load_start: what `descriptor` wrote, binary or JSON; accept: NULL */
    size_t descriptor_length;
    const char *request; /* accept: only this one; NULL = any */
    size_t request_length;
    convoy_peer peer;          /* accept: only from this one; 0 = any */
    convoy_transfer slot;      /* load_start: the own slot that a peer has filled, which the descriptor, needed here too,
                                  describes; 0 = from the sender */
    void *destination;         /* COPY: laid out as in the sender's slot; NULL = a slot of the own pool */
    uint64_t destination_bytes;
    void *stream; /* COPY to device memory: the copy goes on it once the bytes have come; NULL = the device's default one */
    void *event;  /* recorded on it behind the copy */
    uint64_t timeout_ns; /* until LOADED */
    uint32_t path;       /* CONVOY_PATH_* */
    uint32_t retries;    /* 0 = 2; CONVOY_RETRIES_NONE */
};

/* convoy_transfer_result.state */
#define CONVOY_TRANSFER_STAGING 1
#define CONVOY_TRANSFER_STAGED 2
#define CONVOY_TRANSFER_QUEUED 3
#define CONVOY_TRANSFER_OFFERED 4
#define CONVOY_TRANSFER_SENT 5
#define CONVOY_TRANSFER_WAITING 6
#define CONVOY_TRANSFER_LOADING 7
#define CONVOY_TRANSFER_LOADED 8
#define CONVOY_TRANSFER_RESERVED 9
#define CONVOY_TRANSFER_FILLING 10
#define CONVOY_TRANSFER_FILLED 11
#define CONVOY_TRANSFER_FAILED 12
#define CONVOY_TRANSFER_ABORTED 13

/* Positions in convoy_transfer_result.times_ns (CLOCK_MONOTONIC; 0 = not reached) */
#define CONVOY_TIME_STARTED 0
#define CONVOY_TIME_READY 1   /* producer had written */
#define CONVOY_TIME_STAGED 2  /* copied: the source may be used again */
#define CONVOY_TIME_OFFERED 3 /* sender: offer left; receiver: offer or grant came */
#define CONVOY_TIME_LOADED 4  /* receiver has it; the sender knows it then */
#define CONVOY_TIME_RETURNED 5 /* last reader gave it back */
#define CONVOY_TIMES 8 /* the last two are spare, 0 */

/* OUT: one look at a transfer; the same call for every kind. */
struct convoy_transfer_result {
    uint32_t struct_size;
    uint32_t written_bytes;
    uint32_t state;  /* CONVOY_TRANSFER_* */
    uint32_t path;   /* that was taken; 0 = none yet */
    int32_t status;  /* how it ended; IN_PROGRESS before */
    uint32_t attempt;
    uint32_t retries;        /* messages sent again */
    uint32_t retry_after_ms; /* the peer refused and says when to ask again; 0 = at will */
    uint32_t is_source_free; /* local completion: the tensors' own memory is read no more, a load's destination written no
                                more. After an abort it may still be, for as long as it takes to copy a piece of it, or
                                until a device has run what is on its stream: wait for this before that memory goes */
    uint32_t slot_id;        /* of a preallocated slot, from 1; 0 = none */
    convoy_peer peer;
    uint64_t payload_bytes; /* exact */
    uint64_t moved_bytes;   /* copied by this side */
    void *address;          /* of the own slot; NULL = none */
    uint64_t slot_offset;
    uint64_t slot_bytes;
    uint64_t times_ns[CONVOY_TIMES];
};

/* One tensor as it lies here. Element of the caller's array; the stride is its struct_size. Pointers live until release;
 * data of a STAGED transfer only as long as it is STAGED: see its lease. */
struct convoy_tensor_view {
    const char *name; /* not terminated, as all texts here */
    size_t name_length;
    const char *dtype;
    size_t dtype_length;
    const void *data;
    const uint64_t *shape; /* [rank] */
    uint64_t bytes;
    uint64_t offset; /* from the start of the payload, a multiple of 512 */
    uint32_t rank;
    uint32_t flags; /* CONVOY_TENSOR_LISTED */
    uint32_t list_index;
    uint32_t reserved;
};

/* OUT: what a LOADED or STAGED transfer holds. */
struct convoy_payload {
    uint32_t struct_size;
    uint32_t written_bytes;
    struct convoy_tensor_view *tensors; /* in: may be NULL */
    size_t tensor_stride;               /* in */
    size_t tensor_capacity;             /* in */
    size_t tensor_count;                /* out: may exceed the capacity, the rest is cut */
    struct convoy_tensor_list_entry *lists; /* in: as tensors */
    size_t list_stride;
    size_t list_capacity;
    size_t list_count;
    const char *request; /* out */
    size_t request_length;
    const char *scalars; /* out: the sender's own text; NULL = none */
    size_t scalars_length;
    const char *session; /* out: the sender's */
    size_t session_length;
    uint64_t payload_bytes;
    uint32_t attempt;
    uint32_t reserved;
    int32_t priority;    /* since 1.1, out: convoy_stage.priority as the sender gave it; 0 from a sender before 1.1 */
    uint32_t reserved_2; /* out: 0 */
};

#ifdef __cplusplus
}
#endif

#endif
