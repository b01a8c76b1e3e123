/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA memory, through the driver that is on the machine (device/cuda_library.h). Streams and events are the driver's
 * handles (CUstream, CUevent; those of the CUDA runtime are the same). The thread's current context is put back after
 * every call. Neither a context nor a stream is ever synchronised: events are asked, and waits have deadlines.
 *
 * Which context: that of `ordinal`, which is the primary one, as frameworks use it; ordinal -1: the one that is current on
 * the calling thread, else the primary one of device 0. A context that is current and not primary stays the host's, and
 * must live until the device is closed.
 */
#ifndef CONVOY_DEVICE_CUDA_H
#define CONVOY_DEVICE_CUDA_H

#include "device/device.h"

#define CONVOY_CUDA_ANY (-1)

struct convoy_cuda_options {
    const char *library; /* file; NULL or "" = libcuda.so.1 */
    int32_t ordinal;     /* CONVOY_CUDA_ANY, or 0 and up */
    uint32_t tickets;    /* 0 = CONVOY_DEVICE_TICKETS */
};

/* INIT_FAILED: no driver, or not this one; INVALID_ARGUMENT: no such device; SYSTEM, NO_MEMORY: the driver refuses a
 * context. device_out: gives (convoy_device_close) */
int32_t convoy_cuda_open(const struct convoy_cuda_options *options, struct convoy_device **device_out,
                         struct convoy_error *error);

#endif
