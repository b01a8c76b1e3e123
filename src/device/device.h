/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device: a kind of memory and what can copy it. One interface over host memory (device/host.h), CUDA (device/cuda.h) and
 * devices of the host's (device/table.h); those three are told apart by their table of operations and by nothing else.
 *
 * A copy is a ticket. It begins no earlier than its source is ready, and it has ended only when the device has said so:
 *
 *             start              the source is ready             the device says so
 *     (none) ------> [waiting] -----------------------> [running] -----------------> (none)
 *                        |                                  |
 *                        | cancel                           | cancel: where the device can stop it, else it runs on
 *                        v                                  v
 *                     (none)                             (none)
 *
 * test and wait tell the end exactly once; the ticket is then stale (CLOSED). With it comes whether the memory is quiet:
 * false after a failure of which nobody knows whether the device has stopped (a driver whose context is gone). Such memory is
 * not given to anybody else while the process lives.
 *
 * Calls for one ticket are serialized by the caller; everything else may be called from any thread. With a device that
 * calls the host (convoy_device_calls_host) and for orders with a readiness callback, start, test and wait are for threads
 * of the host only.
 */
#ifndef CONVOY_DEVICE_DEVICE_H
#define CONVOY_DEVICE_DEVICE_H

#include "convoy/device.h"

#include <stdbool.h>

#define CONVOY_TICKET_NONE UINT64_C(0)
#define CONVOY_DEVICE_TICKETS 256u /* default of copies that are open at a time */
#define CONVOY_DEVICE_TICKETS_MAX 65536u

typedef uint64_t convoy_ticket; /* generation << 32 | slot + 1 */

struct convoy_device;

/* bytes 0 is dropped. No two ranges of one order overlap. */
struct convoy_copy_piece {
    void *to;
    const void *from;
    uint64_t bytes;
};

/* convoy_readiness.kind: when the producer of the bytes has written them */
#define CONVOY_READY_NOW 0      /* they are there */
#define CONVOY_READY_EVENT 1    /* when the event `handle` has fired; it was recorded before the call */
#define CONVOY_READY_STREAM 2   /* when the stream `handle` has run what is in it now */
#define CONVOY_READY_CALLBACK 3 /* when is_ready answers 1 */

/* When a copy may begin to read. */
struct convoy_readiness {
    uint32_t kind; /* CONVOY_READY_* */
    void *handle;  /* event or stream of the device. Of host memory an event is the address of an aligned uint32_t, which
                      is fired when it is not 0; it is written with release order */
    convoy_ready_fn is_ready;
    void *user;
};

/* One copy of many pieces. `pieces` is kept until the ticket has ended, and so are stream, events and the mark. */
struct convoy_copy_order {
    const struct convoy_copy_piece *pieces;
    size_t count;
    uint32_t direction; /* CONVOY_COPY_*, of all pieces */
    bool may_block;     /* also host memory that is not pinned: start may then wait for the stream */
    void *stream;       /* NULL: the device's default stream; host memory has no other */
    struct convoy_readiness ready;
    void *event;    /* the host's: recorded behind the copy, and fired when the ticket has ended well; NULL = none */
    uint64_t *mark; /* bytes, in the order of the pieces, that are there (release order); NULL = nobody asks. Devices with
                       streams write it once, at the end, when test or wait finds that */
};

struct convoy_device_figures {
    uint64_t started;
    uint64_t finished;
    uint64_t failed;   /* lost ones too */
    uint64_t canceled;
    uint64_t lost;     /* failed without being quiet */
    uint64_t bytes;    /* of the finished ones */
    uint64_t registered_bytes;
    uint32_t open;     /* waiting or running */
    uint32_t ranges;   /* registered */
};

const char *convoy_device_name(const struct convoy_device *device);

/* Whether copies, events and queries run functions of the host. */
bool convoy_device_calls_host(const struct convoy_device *device);

/* Whether it has streams; else readiness by STREAM is refused and `stream` is NULL. */
bool convoy_device_has_streams(const struct convoy_device *device);

/* What an address is. SYSTEM: the driver failed. */
int32_t convoy_device_query(struct convoy_device *device, const void *address, struct convoy_memory_info *info_out,
                            struct convoy_error *error);

/*
 * INVALID_ARGUMENT: a field is wrong; UNSUPPORTED: host memory that is not pinned, without may_block; LIMIT: too many
 * tickets are open; SYSTEM: the driver refused. Nothing touches the memory then. CLOSED: after close.
 */
int32_t convoy_device_start(struct convoy_device *device, const struct convoy_copy_order *order,
                            convoy_ticket *ticket_out, struct convoy_error *error);

/* OK: the bytes are there. IN_PROGRESS. CANCELED. SYSTEM: failed, the text has the driver's name for it. CLOSED: no such
 * ticket. quiet_out, written always, may be NULL: nothing touches the memory of this order any more. */
int32_t convoy_device_test(struct convoy_device *device, convoy_ticket ticket, bool *quiet_out,
                           struct convoy_error *error);

/* As test, but TIMED_OUT in place of IN_PROGRESS, at the deadline. The ticket is open then. */
int32_t convoy_device_wait(struct convoy_device *device, convoy_ticket ticket, uint64_t deadline_ns, bool *quiet_out,
                           struct convoy_error *error);

/* OK: ended, nothing touches the memory, and the ticket is stale. IN_PROGRESS: it is running; it is tested as before, and
 * may end as CANCELED. CLOSED: no such ticket. */
int32_t convoy_device_cancel(struct convoy_device *device, convoy_ticket ticket, struct convoy_error *error);

/*
 * Pins a range of host memory, so that copies of it do not block. The same range again is counted, and ends with as many
 * unregisters. INVALID_ARGUMENT: overlaps another one; LIMIT: more than 64; SYSTEM, UNSUPPORTED: the driver refused.
 * flags: CONVOY_REGISTER_*
 */
int32_t convoy_device_register(struct convoy_device *device, void *address, uint64_t bytes, uint32_t flags,
                               struct convoy_error *error);

/* NOT_FOUND: no such range; BUSY: a copy of it is open, or was lost. */
int32_t convoy_device_unregister(struct convoy_device *device, void *address, uint64_t bytes,
                                 struct convoy_error *error);

/* Events and streams of the host. event_query, stream_query: OK = fired, or has run everything; IN_PROGRESS; SYSTEM.
 * event_record, event_wait: UNSUPPORTED where there are no streams. */
int32_t convoy_device_event_record(struct convoy_device *device, void *event, void *stream, struct convoy_error *error);
int32_t convoy_device_event_wait(struct convoy_device *device, void *stream, void *event, struct convoy_error *error);
int32_t convoy_device_event_query(struct convoy_device *device, void *event, struct convoy_error *error);
int32_t convoy_device_stream_query(struct convoy_device *device, void *stream, struct convoy_error *error);

void convoy_device_figures(struct convoy_device *device, struct convoy_device_figures *figures_out);

/* Takes no more copies, cancels those that have not begun, waits for the others, unregisters what is registered and frees
 * the device. Nobody else uses it. DRAIN_TIMEOUT: some run on; the device stays, and close is called again. NULL: OK. */
int32_t convoy_device_close(struct convoy_device *device, uint64_t deadline_ns, struct convoy_error *error);

#endif
