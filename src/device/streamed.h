/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What devices with streams and events have in common: an order's pieces go on the host's stream, behind its producer's
 * event, and an event of our own behind them says when they have ended. It is never concluded from anything else: where
 * that event cannot be recorded or asked, the stream itself is asked, and where that fails too the copy is lost.
 *
 * Built on a driver: few functions, each of which answers with the driver's own number, 0 for success.
 */
#ifndef CONVOY_DEVICE_STREAMED_H
#define CONVOY_DEVICE_STREAMED_H

#include "device/parts.h"

#define CONVOY_DRIVER_NOT_YET INT32_MIN /* answer of the two queries */
#define CONVOY_DRIVER_TEXT_BYTES 160u

struct convoy_driver {
    /* Around every group of calls below: the device's context on this thread, and back to what was there. A failed enter
     * needs no leave. */
    int32_t (*enter)(void *self);
    void (*leave)(void *self);

    int32_t (*query)(void *self, const void *address, struct convoy_memory_info *info_out);
    int32_t (*copy)(void *self, const struct convoy_copy_piece *piece, uint32_t direction, void *stream);
    int32_t (*event_create)(void *self, void **event_out);
    void (*event_destroy)(void *self, void *event);
    int32_t (*event_record)(void *self, void *event, void *stream);
    int32_t (*event_query)(void *self, void *event);
    int32_t (*stream_wait)(void *self, void *stream, void *event);
    int32_t (*stream_query)(void *self, void *stream);
    int32_t (*pin)(void *self, void *address, uint64_t bytes, uint32_t flags, bool *foreign_out);
    int32_t (*unpin)(void *self, void *address);
    bool (*is_unsupported)(int32_t number);   /* not an error, but nothing this device does */
    bool (*is_out_of_memory)(int32_t number);
    void (*explain)(void *self, int32_t number, char text_out[CONVOY_DRIVER_TEXT_BYTES]);
    void (*destroy)(void *self);
};

struct convoy_streamed_options {
    const struct convoy_driver *driver;
    void *self;
    const char *name; /* for texts; lives as long as the device */
    uint32_t tickets; /* 0 = CONVOY_DEVICE_TICKETS */
    bool calls_host;
    bool needs_pinned;
    bool can_pin;
};

/* Takes self on OK only. */
int32_t convoy_streamed_make(const struct convoy_streamed_options *options, struct convoy_device **device_out,
                             struct convoy_error *error);

#endif
