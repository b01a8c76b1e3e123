/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory for a transport that cannot take it: it passes through pinned chunks of host memory, two for each transfer,
 * so that the transport has one of them while the device copies the other.
 *
 *   OUT   device --copy--> chunk --next: to be sent-----> transport --give: sent----> chunk is used again
 *   IN    transport <--next: to be filled-- chunk;  give: filled --copy--> device
 *
 * A lane is one transfer. It moves only when it is called. A failure ends it, but not before what is copied is quiet and the
 * caller has given back what it holds: end says when. [a lane: serialized by the caller]
 */
#ifndef CONVOY_DEVICE_BOUNCE_H
#define CONVOY_DEVICE_BOUNCE_H

#include "core/log.h"
#include "device/device.h"

#define CONVOY_BOUNCE_CHUNK_BYTES (UINT64_C(4) << 20)
#define CONVOY_BOUNCE_CHUNK_BYTES_MIN UINT64_C(4096)
#define CONVOY_BOUNCE_CHUNK_BYTES_MAX (UINT64_C(1) << 30)
#define CONVOY_BOUNCE_LANES 4u
#define CONVOY_BOUNCE_LANES_MAX 1024u

struct convoy_bounce;
struct convoy_bounce_lane;

struct convoy_bounce_options {
    uint64_t chunk_bytes;   /* 0 = CONVOY_BOUNCE_CHUNK_BYTES; a multiple of CONVOY_BOUNCE_CHUNK_BYTES_MIN */
    uint32_t lanes;         /* at a time; 0 = CONVOY_BOUNCE_LANES */
    uint32_t reserved;
    struct convoy_log *log; /* takes the one warning; may be NULL */
    const char *reason;     /* why, for the warning */
};

struct convoy_bounce_order {
    bool is_in;   /* to the device */
    void *memory; /* the device's */
    uint64_t bytes; /* not 0 */
    void *stream;
    struct convoy_readiness ready; /* OUT: of the bytes; IN: of the room for them */
    void *event;                   /* the host's, recorded behind the last copy; NULL = none */
};

/* bytes 0: there are no more, all is done. */
struct convoy_bounce_chunk {
    void *address;
    uint64_t offset; /* in the device memory */
    uint64_t bytes;
    uint32_t index; /* for give */
};

/* Warns once, here. INVALID_ARGUMENT, NO_MEMORY, UNSUPPORTED (a device without streams), and as convoy_device_register. The
 * device outlives it. bounce_out: gives */
int32_t convoy_bounce_open(struct convoy_device *device, const struct convoy_bounce_options *options,
                           struct convoy_bounce **bounce_out, struct convoy_error *error);

/* BUSY: a lane is open, or the memory of one may still be touched; nothing is freed. NULL: OK. */
int32_t convoy_bounce_close(struct convoy_bounce *bounce, struct convoy_error *error);

/* BUSY: all lanes are open. lane_out: to be given to convoy_bounce_end. */
int32_t convoy_bounce_begin(struct convoy_bounce *bounce, const struct convoy_bounce_order *order,
                            struct convoy_bounce_lane **lane_out, struct convoy_error *error);

/* OK: the next chunk in order of offsets, or one of no bytes at the end of all. IN_PROGRESS: none is ready. Else: failed,
 * and the same answer from now on. */
int32_t convoy_bounce_next(struct convoy_bounce_lane *lane, struct convoy_bounce_chunk *chunk_out,
                           struct convoy_error *error);

/* OUT: the chunk has been sent. IN: it has been filled. BAD_STATE: that chunk was not handed out. */
int32_t convoy_bounce_give(struct convoy_bounce_lane *lane, uint32_t index, struct convoy_error *error);

/* Nothing more is copied; the lane fails with CANCELED unless it has ended. */
void convoy_bounce_abort(struct convoy_bounce_lane *lane);

/* Frees the lane. IN_PROGRESS: a chunk is with the caller or being copied, call again; a lane that is neither done nor failed
 * is aborted by this. quiet_out, may be NULL: the device memory is touched no more. */
int32_t convoy_bounce_end(struct convoy_bounce_lane *lane, bool *quiet_out);

#endif
