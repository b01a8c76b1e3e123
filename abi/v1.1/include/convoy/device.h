/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy/device.h: memory that the processor cannot simply read, and who copies it.
 *
 * convoy copies host memory itself and CUDA memory through the driver. For every other device the host fills a table of
 * functions, convoy_device_table. A device has streams (queues of work; work of one stream runs in order) and events
 * (marks in a stream that can be asked whether the stream has passed them). convoy puts its copies on the stream that the
 * host names, behind whatever the host has put there, and records an event of its own behind them: a copy has ended when
 * that event has fired, never earlier, and its memory is held until then.
 */
#ifndef CONVOY_DEVICE_H
#define CONVOY_DEVICE_H

#include "convoy/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* convoy_memory_info.kind, convoy_transfer_options.pool_kind */
#define CONVOY_MEMORY_SHARED 0  /* shared memory that convoy makes; of an address: the device does not know it, as HOST */
#define CONVOY_MEMORY_HOST 1    /* ordinary memory of the process */
#define CONVOY_MEMORY_DEVICE 2  /* the processor must not touch it */
#define CONVOY_MEMORY_PINNED 3  /* host memory that the device reads and writes by itself */
#define CONVOY_MEMORY_MANAGED 4 /* moves between the two */

/* Where a copy goes */
#define CONVOY_COPY_ANY 0 /* the device finds out from the addresses */
#define CONVOY_COPY_TO_DEVICE 1
#define CONVOY_COPY_FROM_DEVICE 2
#define CONVOY_COPY_ON_DEVICE 3

/* register_range flags */
#define CONVOY_REGISTER_READ_ONLY 1u /* the device only reads the range */

/* Whether a producer has written its bytes. 1: yes; 0: not yet; negative: never, what waits for it fails with this number in
 * its text (a stage with PEER_ERROR). Asked again while it answers 0, and perhaps once more after it has answered 1. [the
 * thread that starts, tests or waits; no lock held; must not block] */
typedef int32_t (*convoy_ready_fn)(void *user);

/* OUT of the host's query: what an address is. struct_size is convoy's, and all else is zero when query is called. The host
 * writes single fields, and only those that lie wholly within struct_size, which it leaves as it is: never the struct as a
 * whole, since a host that knows a later release's longer one would write beyond the end of an older plugin's. */
struct convoy_memory_info {
    uint32_t struct_size;
    uint32_t kind;  /* CONVOY_MEMORY_* */
    int32_t device; /* number of the device, -1 = none */
    uint32_t reserved;
};

/*
 * IN: a device of the host's. All functions return 0, or a negative number of the host's choice that error_text explains,
 * unless said otherwise. convoy calls them only on threads of the host that have called into convoy, with no lock of
 * convoy's held that another call of the host needs. They must not call convoy. They may be called from several threads.
 * The table is copied; `user` and `name` live until the device is closed.
 */
struct convoy_device_table {
    uint32_t struct_size;
    uint32_t name_length;
    const char *name; /* for texts, 1 to 31 bytes */
    void *user;

    /* Writes kind and device of any address whatsoever, also of host memory, field by field: see convoy_memory_info. An
     * answer with another struct_size counts as a failure. */
    int32_t (*query)(void *user, const void *address, struct convoy_memory_info *info_out);

    /* Puts a copy behind what is on the stream, and returns without waiting for it. bytes is never 0. */
    int32_t (*copy)(void *user, void *to, const void *from, uint64_t bytes, uint32_t direction, void *stream);

    /* Events of convoy's own; as many as copies are open at a time. */
    int32_t (*event_create)(void *user, void **event_out);
    void (*event_destroy)(void *user, void *event); /* also one that has not fired */

    /* Makes the event fire when the stream has run what is on it now; a second record replaces the first. */
    int32_t (*event_record)(void *user, void *event, void *stream);

    /* 1: fired; 0: not yet; negative: failed. Never waits. */
    int32_t (*event_query)(void *user, void *event);

    /* What is put on the stream from now on waits until the event, as it is recorded now, has fired. */
    int32_t (*stream_wait)(void *user, void *stream, void *event);

    /* 1: the stream has run everything; 0: not yet; negative: failed. Never waits. */
    int32_t (*stream_query)(void *user, void *stream);

    /* Makes host memory known to the device, so that copies of it do not wait. Both or neither may be NULL: then any host
     * memory can be copied without waiting. flags: CONVOY_REGISTER_* */
    int32_t (*register_range)(void *user, void *address, uint64_t bytes, uint32_t flags);
    int32_t (*unregister_range)(void *user, void *address);

    /* Writes up to `capacity` bytes of text with its terminating zero. May be NULL: texts have the number only. */
    void (*error_text)(void *user, int32_t number, char *text_out, size_t capacity);
};

#ifdef __cplusplus
}
#endif

#endif
