/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one member brings, read from the caller in the documented order: advance staging, read states, inject faults,
 * demote Success where staging is not done, apply the gate. Ends as one byte per entry, in the caller's own order.
 */
#ifndef CONVOY_POLL_CAPTURE_H
#define CONVOY_POLL_CAPTURE_H

#include "core/memory.h"
#include "poll/inject.h"
#include "poll/payload.h"

#define CONVOY_CAPTURE_NAME_BYTES 32u

struct convoy_capture {
    uint32_t capacity; /* entries of all lists */
    uint8_t *states;   /* all lists, in call order */
    uint8_t *pending;  /* as states: staging is not done */
    uint32_t starts[CONVOY_POLL_LISTS_MAX]; /* of a list in both */
    uint32_t foreign[CONVOY_POLL_LISTS_MAX];
    uint32_t injected[CONVOY_POLL_LISTS_MAX];
    uint32_t demoted[CONVOY_POLL_LISTS_MAX];
    uint32_t name_lengths[CONVOY_POLL_LISTS_MAX];
    char names[CONVOY_POLL_LISTS_MAX][CONVOY_CAPTURE_NAME_BYTES];
};

/* Makes it new. Its tables are placed as in core/memory.h: twice, the second time for use. */
void convoy_capture_place(struct convoy_capture *capture, uint32_t capacity, struct convoy_memory_plan *plan);

/* Captures a call that was checked (shape). round: number for fault injection. INVALID_ARGUMENT: an entry flag, a
 * state, or what a callback returned; the text names list, entry, key and value. Calls the host's callbacks. */
int32_t convoy_capture_take(struct convoy_capture *capture, const struct convoy_poll_call *call,
                            const struct convoy_payload_shape *shape, const struct convoy_inject *inject,
                            uint64_t round, struct convoy_error *error);

#endif
