/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory as a device: one thread that copies, behind a bounded queue. It sleeps while there is nothing to do and is
 * started with the first copy that needs it. Copies too short to be worth waking it are made by the caller in start; whoever
 * waits for a copy that the thread has not begun makes it himself. No order is promised among tickets.
 *
 * A copy proceeds in chunks and publishes after each how far it is (the order's mark), so that a reader can follow behind it.
 * Cancelling stops it at the next chunk.
 *
 * Events are words, see struct convoy_readiness: the order's own is set to 1 when the copy has ended well.
 */
#ifndef CONVOY_DEVICE_HOST_H
#define CONVOY_DEVICE_HOST_H

#include "device/device.h"

#define CONVOY_HOST_CHUNK_BYTES (256u * 1024u)
#define CONVOY_HOST_CHUNK_BYTES_MIN 4096u
#define CONVOY_HOST_INLINE_BYTES (64u * 1024u) /* about what waking a thread costs */

struct convoy_host_options {
    uint32_t tickets;     /* 0 = CONVOY_DEVICE_TICKETS */
    uint32_t reserved;
    uint64_t chunk_bytes; /* 0 = CONVOY_HOST_CHUNK_BYTES */
    uint64_t inline_bytes; /* copies up to this are made in start; 0 = CONVOY_HOST_INLINE_BYTES, UINT64_MAX = all */
    size_t stream_from;   /* pieces from this size on use streaming stores (core/copy.h); 0 = never */
    bool never_inline;    /* all go to the thread */
};

/* INVALID_ARGUMENT, NO_MEMORY. device_out: gives (convoy_device_close) */
int32_t convoy_host_open(const struct convoy_host_options *options, struct convoy_device **device_out,
                         struct convoy_error *error);

#endif
