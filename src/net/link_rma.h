/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Put and get over a link, where the transport has them. UCX 1.13 offers both over every transport, and emulates them
 * where there is nothing: over TCP that needs the target's progress, and a target that is late can be aborted by UCX
 * when the initiator is killed. So an endpoint is asked what it goes over, and refused otherwise.
 *
 *   rc, dc (InfiniBand, RoCE)      any memory
 *   posix, sysv, xpmem             only memory that UCX has allocated: plain memory is emulated there
 *   tcp, ud and all others         never
 */
#ifndef CONVOY_NET_LINK_RMA_H
#define CONVOY_NET_LINK_RMA_H

#include "net/link.h"
#include "net/ucx_resources.h"

enum convoy_link_rma {
    CONVOY_LINK_RMA_NEVER = 0,
    CONVOY_LINK_RMA_ALLOCATED, /* memory made by convoy_link_memory_open with address NULL */
    CONVOY_LINK_RMA_ANY,
};

/* A range of memory that peers may write and read by key. */
struct convoy_link_memory;

/* The right to do so, as unpacked here. */
struct convoy_link_key;

/* Called inside convoy_link_progress, or before put or get returns: the bytes are there, or the endpoint has failed. */
typedef void (*convoy_link_rma_fn)(void *user, int32_t status);

/* Pure: of an endpoint whose puts go over these. The least of them counts: UCX takes which it wants. */
enum convoy_link_rma convoy_link_rma_of(const struct convoy_ucx_resources *resources);

/* Pure: the most that any of them offers: whether it is worth asking for. */
enum convoy_link_rma convoy_link_rma_best(const struct convoy_ucx_resources *resources);

enum convoy_link_rma convoy_link_can_rma(const struct convoy_link *link, uint32_t peer);

/* address NULL: UCX makes the memory. NO_MEMORY: also when it may not be locked; text has UCX's words. UNSUPPORTED: the
 * link was opened without. Keeps the link. */
int32_t convoy_link_memory_open(struct convoy_link *link, void *address, size_t bytes,
                                struct convoy_link_memory **memory_out, struct convoy_error *error);
void *convoy_link_memory_address(const struct convoy_link_memory *memory);
bool convoy_link_memory_is_allocated(const struct convoy_link_memory *memory);
/* NULL is a no-op. */
void convoy_link_memory_close(struct convoy_link_memory *memory);

/* The key's bytes for this peer. BUFFER_TOO_SMALL: bytes_out has what it takes. */
int32_t convoy_link_memory_pack(const struct convoy_link_memory *memory, uint32_t peer, void *out, size_t capacity,
                                size_t *bytes_out, struct convoy_error *error);

/* UNSUPPORTED: the endpoint's transports never. BAD_STATE, PEER_LOST: no endpoint. MALFORMED: UCX refuses it. UCX does
 * not check the length of what it unpacks: the caller vouches for who packed it. */
int32_t convoy_link_key_open(struct convoy_link *link, uint32_t peer, const void *packed, struct convoy_link_key **key_out,
                             struct convoy_error *error);
/* Nothing is under way with it. NULL is a no-op. */
void convoy_link_key_close(struct convoy_link_key *key);

/* Starts; done is called once, when put: the bytes are in the target's memory; get: they are here. On failure it is not.
 * local: keeps until done. PEER_LOST: also when the endpoint is not the one that the key was opened for. */
int32_t convoy_link_put(struct convoy_link_key *key, uint64_t remote, const void *local, size_t bytes,
                        convoy_link_rma_fn done, void *user);
int32_t convoy_link_get(struct convoy_link_key *key, uint64_t remote, void *local, size_t bytes, convoy_link_rma_fn done,
                        void *user);

#endif
