/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Put and get, where the lane to a peer truly has them (net/link_rma.h says which do). Over TCP they are refused, with
 * the reason: streams go there. Registered memory gives keys, a key travels over the caller's control connection and is
 * opened by the peer; every put and get is checked against what the key covers.
 *
 *   key   "cvK1" | incarnation u64 | bytes u64 | address u64 | flags u32 | length u32 | UCX's key
 *
 * A key opens the memory to whoever holds it until the memory is closed: there is no check of generations on the other
 * side, so what a put may still touch is quarantined by its owner.
 */
#ifndef CONVOY_NET_BULK_RMA_H
#define CONVOY_NET_BULK_RMA_H

#include "net/bulk.h"

#define CONVOY_BULK_KEY_BYTES_MAX 1024u

struct convoy_bulk_memory;
struct convoy_bulk_key;

/* Whether memory of this kind can be put to and got from over the lane to the peer. False: why_out says why not. */
bool convoy_bulk_can_rma(struct convoy_bulk *bulk, uint32_t peer, bool is_allocated, char *why_out, size_t bytes);

/* address NULL: UCX makes the memory. INVALID_ARGUMENT: no bytes; NO_MEMORY; UNSUPPORTED: bulk was opened without.
 * [any thread] */
int32_t convoy_bulk_memory_open(struct convoy_bulk *bulk, void *address, size_t bytes,
                                struct convoy_bulk_memory **memory_out, struct convoy_error *error);
void *convoy_bulk_memory_address(const struct convoy_bulk_memory *memory);
/* Before bulk is closed. NULL is a no-op. [any thread] */
void convoy_bulk_memory_close(struct convoy_bulk_memory *memory);

/* The key for one peer; at most CONVOY_BULK_KEY_BYTES_MAX. BUFFER_TOO_SMALL; INVALID_ARGUMENT. [any thread] */
int32_t convoy_bulk_memory_pack(const struct convoy_bulk_memory *memory, uint32_t peer, void *out, size_t capacity,
                                size_t *bytes_out, struct convoy_error *error);

/* MALFORMED; STALE_EPOCH: the key of another incarnation of the peer; UNSUPPORTED: with the reason; BAD_STATE, PEER_LOST.
 * [any thread] */
int32_t convoy_bulk_key_open(struct convoy_bulk *bulk, uint32_t peer, const void *packed, size_t bytes,
                             struct convoy_bulk_key **key_out, struct convoy_error *error);
/* BUSY: something is under way with it. Before bulk is closed. NULL is OK. [any thread] */
int32_t convoy_bulk_key_close(struct convoy_bulk_key *key, struct convoy_error *error);

/* Starts; event MOVED with the cookie when it is done. local: keeps until then. INVALID_ARGUMENT: beyond the key's
 * memory; PEER_LOST; NO_MEMORY. [any thread] */
int32_t convoy_bulk_put(struct convoy_bulk_key *key, uint64_t offset, const void *local, size_t bytes, uint64_t cookie,
                        struct convoy_error *error);
int32_t convoy_bulk_get(struct convoy_bulk_key *key, uint64_t offset, void *local, size_t bytes, uint64_t cookie,
                        struct convoy_error *error);

#endif
