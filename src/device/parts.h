/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of src/device/ share: a copy under way, the operations that a kind of device has, and its making. */
#ifndef CONVOY_DEVICE_PARTS_H
#define CONVOY_DEVICE_PARTS_H

#include "device/device.h"
#include "device/ranges.h"

#include <pthread.h>

enum convoy_device_copy_state {
    CONVOY_DEVICE_COPY_FREE = 0,
    CONVOY_DEVICE_COPY_WAITING, /* its source is not ready */
    CONVOY_DEVICE_COPY_RUNNING, /* given to the device */
};

/* One copy. The first part belongs to device.c, the rest to the kind of device from begin to its end. */
struct convoy_device_copy {
    enum convoy_device_copy_state state;
    uint32_t generation;
    uint64_t ranges; /* bits of registered ranges that it touches */
    uint64_t bytes;
    struct convoy_copy_order order;

    struct convoy_device_copy *next;    /* host: in the queue */
    uint32_t phase;              /* host: atomic */
    uint32_t is_stopped;         /* host: atomic */
    void *event;                 /* streams: own event, made once and used again */
    bool is_asked_by_stream;     /* streams: the event says nothing */
    struct convoy_error failure; /* streams: status OK = none; the copy fails when it is quiet */
};

/* Operations of one kind; all statuses and errors as in device/device.h. No lock is held. */
struct convoy_device_ops {
    const char *name;
    bool has_streams;
    bool calls_host;
    bool needs_pinned; /* a copy of host memory that it does not know blocks */

    int32_t (*query)(void *self, const void *address, struct convoy_memory_info *info_out, struct convoy_error *error);

    /* Its source is ready, or is made so on the stream. Not OK: nothing touches the memory. */
    int32_t (*begin)(void *self, struct convoy_device_copy *copy, struct convoy_error *error);

    /* IN_PROGRESS, or the end. quiet_out is true before the call. */
    int32_t (*test)(void *self, struct convoy_device_copy *copy, bool *quiet_out, struct convoy_error *error);

    /* Returns when the copy has ended, or at the deadline, or before. NULL: there is nothing to sleep on. */
    void (*sleep)(void *self, struct convoy_device_copy *copy, uint64_t deadline_ns);

    /* true: it had not begun and never will. false: it runs on, perhaps to an early end. NULL: never. */
    bool (*withdraw)(void *self, struct convoy_device_copy *copy);

    int32_t (*event_record)(void *self, void *event, void *stream, struct convoy_error *error); /* NULL: no streams */
    int32_t (*event_wait)(void *self, void *stream, void *event, struct convoy_error *error);   /* NULL: no streams */
    int32_t (*event_query)(void *self, void *event, struct convoy_error *error);
    int32_t (*stream_query)(void *self, void *stream, struct convoy_error *error); /* NULL: no streams */

    /* Both NULL: nothing has to be pinned. foreign_out: somebody else had pinned it. */
    int32_t (*pin)(void *self, void *address, uint64_t bytes, uint32_t flags, bool *foreign_out,
                   struct convoy_error *error);
    int32_t (*unpin)(void *self, void *address, struct convoy_error *error);

    /* Ends what a copy has kept for reuse. NULL: nothing. */
    void (*forget)(void *self, struct convoy_device_copy *copy);
    void (*destroy)(void *self);
};

struct convoy_device {
    const struct convoy_device_ops *ops;
    void *self;
    pthread_mutex_t register_lock; /* one pin or unpin at a time; taken before lock */
    pthread_mutex_t lock;          /* the rest; never held while the device is asked anything */
    struct convoy_ranges ranges;
    uint64_t lost_ranges; /* bits: a copy of them was lost; they stay pinned for ever */
    struct convoy_device_copy *copies;
    uint32_t *free; /* stack of slots */
    uint32_t free_count;
    uint32_t ticket_count;
    bool is_closing;
    struct convoy_device_figures figures;
};

/* Whether [address, address + bytes) is registered. What is of it is noted in `copy` and cannot be unregistered. */
bool convoy_device_note_range(struct convoy_device *device, struct convoy_device_copy *copy, const void *address,
                              uint64_t bytes);

/* Ends a copy with the status that its owner gets, and frees its slot. */
void convoy_device_copy_end(struct convoy_device *device, struct convoy_device_copy *copy, int32_t status,
                            bool is_quiet);

/* Drives one copy; OK or negative: it has ended. */
int32_t convoy_device_copy_test(struct convoy_device *device, struct convoy_device_copy *copy, bool *quiet_out,
                                struct convoy_error *error);

/* Lets others run for a while that grows with what has been waited so far, not past the deadline. */
void convoy_device_pause(uint64_t begun_ns, uint64_t deadline_ns);

/* Takes self on OK only. tickets: 0 = CONVOY_DEVICE_TICKETS; at most CONVOY_DEVICE_TICKETS_MAX. */
int32_t convoy_device_make(const struct convoy_device_ops *ops, void *self, uint32_t tickets,
                           struct convoy_device **device_out, struct convoy_error *error);

#endif
