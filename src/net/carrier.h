/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of net/bootstrap.c: what the ways of meeting have in common. Each carrier is one table:
 *
 *   solo    one member, nobody to meet         gather  the host's all-gather callback
 *   server  the listening member of a star     client  every other member of it
 *
 * Carriers get a full-size error that is never NULL.
 */
#ifndef CONVOY_NET_CARRIER_H
#define CONVOY_NET_CARRIER_H

#include "net/bootstrap.h"
#include "net/hello.h"
#include "net/wait.h"

#include <stdatomic.h>

struct convoy_carrier {
    /* Meets the others; fills epoch, wire and salt of the welcome. */
    int32_t (*connect)(struct convoy_bootstrap *bootstrap, struct convoy_error *error);
    int32_t (*exchange)(struct convoy_bootstrap *bootstrap, const struct convoy_blob *mine,
                        struct convoy_blob *blobs_out, struct convoy_error *error);
    void (*fail)(struct convoy_bootstrap *bootstrap, const struct convoy_error *cause);
    void (*close)(struct convoy_bootstrap *bootstrap);
};

struct convoy_bootstrap {
    const struct convoy_carrier *carrier;
    void *state; /* the carrier's, NULL before connect */
    struct convoy_runtime *runtime;
    const struct convoy_group_options *options;
    struct convoy_wait wait;
    _Atomic bool is_canceled;
    bool is_over; /* failed: the others know or cannot be told */
    uint32_t sequence; /* of the exchange, from 1 */
    struct convoy_hello hello; /* this member's; its group borrows from options */
    uint64_t epoch;            /* agreed on by connect */
    uint32_t wire;
    uint8_t salt[CONVOY_HELLO_SALT_BYTES];
};

extern const struct convoy_carrier convoy_carrier_server;
extern const struct convoy_carrier convoy_carrier_client;
extern const struct convoy_carrier convoy_carrier_gather;

/* What this member picks if it is the listener: the caller's epoch, else the clock's, and a fresh salt. */
int32_t convoy_carrier_offer(const struct convoy_bootstrap *bootstrap, uint64_t *epoch_out,
                             uint8_t salt_out[CONVOY_HELLO_SALT_BYTES], struct convoy_error *error);

/* What the others are told when this member was canceled. */
int32_t convoy_carrier_say_canceled(const struct convoy_bootstrap *bootstrap, struct convoy_error *error);

#endif
