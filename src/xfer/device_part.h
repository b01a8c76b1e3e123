/* SPDX-License-Identifier: Apache-2.0 */
/* What an entry has for the device: the part of it that xfer/device_jobs.h is about. */
#ifndef CONVOY_XFER_DEVICE_PART_H
#define CONVOY_XFER_DEVICE_PART_H

#include "pool/pool.h"

#include <stdbool.h>

enum convoy_xfer_device_state {
    CONVOY_XFER_DEVICE_NONE = 0,
    CONVOY_XFER_DEVICE_PENDING, /* waits for a thread that may begin it */
    CONVOY_XFER_DEVICE_RUNNING, /* until convoy's own event has fired */
};

/* What a device copies for an entry. */
struct convoy_xfer_device_part {
    enum convoy_xfer_device_state state;
    bool is_busy;   /* a thread is in a call of the device for it */
    bool is_done;   /* its bytes are where they go */
    bool is_lost;   /* nobody knows whether the device has stopped: nothing of it is ever given to anyone */
    bool is_target; /* load: into memory that the device writes */
    uint32_t next;  /* in the device's list */
    void *stream;
    void *event;
    uint8_t *target; /* load: the host's; NULL = `slot` */
    uint64_t target_bytes;
    struct convoy_slot slot; /* in the pool of device memory */
    uint64_t ticket;
    size_t count; /* of the pieces */
};

#endif
