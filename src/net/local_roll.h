/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all members say about where they are, collected by the exchanges of local_open, and what follows from it: whom
 * to join, who comes, which hosts there are, and why two members do not share one.
 */
#ifndef CONVOY_NET_LOCAL_ROLL_H
#define CONVOY_NET_LOCAL_ROLL_H

#include "net/local.h"

#define CONVOY_LOCAL_REASON_BYTES 120u

/* How a member will come to its leader. */
#define CONVOY_LOCAL_NOT_JOINING 0u
#define CONVOY_LOCAL_CONNECTED 1u /* connected, and its JOIN is sent */
#define CONVOY_LOCAL_LATER 2u     /* the leader's queue was full: connects after the exchange */

/* What a member says; the blob of an exchange. */
struct convoy_local_statement {
    struct convoy_host_keys keys;
    uint32_t coming; /* CONVOY_LOCAL_*; from the second exchange on */
    uint32_t joined; /* whom it has joined; in the third */
    char reason[CONVOY_LOCAL_REASON_BYTES]; /* why it cannot share memory; empty = it knows of no reason */
};

struct convoy_local_roll {
    const struct convoy_local_request *request;
    uint32_t count;
    uint32_t own;
    struct convoy_local_statement mine;
    struct convoy_local_statement *members; /* [count], as last exchanged */
    struct convoy_host_keys *keys;          /* [count] */
    uint32_t *leader_of;                    /* [count], after the first exchange */
    uint32_t *joined;                       /* [count] */
    uint8_t *coming;                        /* [count], after the second: how it comes to this member */
    struct convoy_blob *blobs;              /* [count] */
};

/* NO_MEMORY. request: borrowed until fini. */
int32_t convoy_local_roll_init(struct convoy_local_roll *roll, const struct convoy_local_request *request);
void convoy_local_roll_fini(struct convoy_local_roll *roll);

/* Notes why this member cannot share memory; the first reason stays. */
void convoy_local_roll_reason(struct convoy_local_roll *roll, const struct convoy_error *cause);

/* First exchange: fills keys and leader_of. any_out: whether any two members have a reason to meet (same on all). */
int32_t convoy_local_roll_keys(struct convoy_local_roll *roll, bool *any_out, struct convoy_error *error);

/* Second exchange: says how this member comes to its leader, fills `coming`. */
int32_t convoy_local_roll_coming(struct convoy_local_roll *roll, uint32_t coming, struct convoy_error *error);

/* Third exchange: says whom this member joined (itself: nobody). */
int32_t convoy_local_roll_joined(struct convoy_local_roll *roll, uint32_t joined, struct convoy_error *error);

/* The hosts that follow. UNREACHABLE: a member insists on shared memory, and there is more than one host. */
int32_t convoy_local_roll_map(const struct convoy_local_roll *roll, struct convoy_host_map *map_out,
                              struct convoy_error *error);

/* Warns once when this member ought to share memory with another and does not. */
void convoy_local_roll_warn(const struct convoy_local_roll *roll, const struct convoy_host_map *map);

#endif
