/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing the members of a group together: hello, authentication and membership checks first, then a few all-gathers
 * of small blobs while the group opens. Two carriers behind one interface: TCP (one member listens and relays; star),
 * or the host's own all-gather callback. Used only while a group opens, on one thread; every wait has the deadline.
 *
 * Checked before bootstrap_open returns OK, on every member, each refusal naming the member (id) and both values:
 * secret, wire version window, group name, member list and count, own index and id (no two members with one index),
 * epoch, blob bound, policy flags, listener index.
 */
#ifndef CONVOY_NET_BOOTSTRAP_H
#define CONVOY_NET_BOOTSTRAP_H

#include "net/runtime.h"

#define CONVOY_BOOTSTRAP_BLOB_MAX (64u * 1024u)

struct convoy_bootstrap;

struct convoy_blob {
    const uint8_t *data;
    size_t bytes;
};

/* What opening agreed on. */
struct convoy_agreement {
    uint64_t epoch;          /* the caller's, or the listener's pick (CLOCK_REALTIME ns: later lives are larger) */
    uint32_t wire;           /* lowest of the members' highest */
    uint8_t session[32];     /* random token of this group and epoch, the same on all members, unguessable */
};

/* Makes a bootstrap that has not talked to anyone yet, so that another thread can cancel it while connect runs.
 * options are normalised and valid (plugin checks them); borrows options and runtime for the bootstrap's life. */
int32_t convoy_bootstrap_create(struct convoy_runtime *runtime, const struct convoy_group_options *options,
                                uint64_t deadline_ns, struct convoy_bootstrap **bootstrap_out,
                                struct convoy_error *error);

/*
 * Meets the other members. Once per bootstrap; after a failure only close is left. With the callback carrier the
 * callback runs inside, and its time is outside the deadline; so is the time of looking up a host name, which the
 * system's resolver bounds. One member alone (member_count 1) meets nobody and needs no rendezvous.
 * TIMED_OUT: names the members not heard. PEER_LOST: a member's connection ended meanwhile. STALE_EPOCH,
 * UNAUTHENTICATED, VERSION_MISMATCH, DIVERGED: who and both values. CANCELED. SYSTEM: the port could not be had.
 * BUSY: this context already opens a group of that name there.
 */
int32_t convoy_bootstrap_connect(struct convoy_bootstrap *bootstrap, struct convoy_agreement *agreement_out,
                                 struct convoy_error *error);

/* create and connect in one, closed again on failure: for callers that never cancel. */
int32_t convoy_bootstrap_open(struct convoy_runtime *runtime, const struct convoy_group_options *options,
                              uint64_t deadline_ns, struct convoy_bootstrap **bootstrap_out,
                              struct convoy_agreement *agreement_out, struct convoy_error *error);

/* All-gather of one blob per member, up to CONVOY_BOOTSTRAP_BLOB_MAX, sizes may differ. blobs_out: member_count
 * elements, in member order, valid until the next exchange or close. A member that reports failure instead
 * (bootstrap_fail) makes every other member fail with its status, id and text. */
int32_t convoy_bootstrap_exchange(struct convoy_bootstrap *bootstrap, const void *mine, size_t bytes,
                                  struct convoy_blob *blobs_out, struct convoy_error *error);

/* Tells the others that this member cannot go on; they fail in the exchange that they are in or enter next. With the
 * callback carrier this is itself an all-gather: call it only where the others enter one more exchange. Nothing to do
 * after an exchange that failed. */
void convoy_bootstrap_fail(struct convoy_bootstrap *bootstrap, const struct convoy_error *cause);

/* Makes a connect or exchange that runs on another thread, and every later one, return CANCELED soon (group_close of
 * an opening group); the others learn that this member left. A host's callback is not interrupted. [any thread] */
void convoy_bootstrap_cancel(struct convoy_bootstrap *bootstrap);

/* NULL is a no-op. Ends connections; the listener goes when no group needs it. */
void convoy_bootstrap_close(struct convoy_bootstrap *bootstrap);

#endif
