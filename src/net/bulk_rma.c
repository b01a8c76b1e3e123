/* SPDX-License-Identifier: Apache-2.0 */
#include "net/bulk_rma.h"

#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"
#include "net/bulk_parts.h"
#include "net/link_rma.h"

#include <string.h>

#define KEY_MAGIC "cvK1"
#define KEY_HEAD_BYTES 36u
#define KEY_FLAG_ALLOCATED 1u

struct convoy_bulk_memory {
    struct convoy_bulk *bulk;
    struct convoy_link_memory *memory;
    size_t bytes;
};

struct convoy_bulk_key {
    struct convoy_bulk *bulk;
    struct convoy_link_key *key;
    uint32_t peer;
    uint32_t under_way;
    uint64_t address; /* there */
    uint64_t bytes;
};

/* Its event, made at the start so that the end cannot fail. */
struct bulk_move {
    struct bulk_notice notice;
    struct convoy_bulk_key *key;
};

/* -- who can ------------------------------------------------------------------------------------------------------- */

static bool rma_can(struct convoy_bulk *bulk, uint32_t peer, bool is_allocated, char *why_out, size_t bytes)
{
    char transports[CONVOY_LINK_TRANSPORTS_BYTES];
    if (peer >= bulk->options.peer_count || !bulk->peers[peer].is_up) {
        (void)snprintf(why_out, bytes, "peer %u is not connected", peer);
        return false;
    }
    enum convoy_link_rma rma = convoy_link_can_rma(bulk->link, peer);
    convoy_bulk_transports(bulk, peer, transports, sizeof transports);
    if (!bulk->options.with_rma) {
        (void)snprintf(why_out, bytes, "bulk was opened without put and get");
    } else if (rma == CONVOY_LINK_RMA_NEVER) {
        (void)snprintf(why_out, bytes, "%.60s only emulates put and get", transports);
    } else if (rma == CONVOY_LINK_RMA_ALLOCATED && !is_allocated) {
        (void)snprintf(why_out, bytes, "%.60s has put and get only for memory that UCX has allocated", transports);
    } else {
        return true;
    }
    return false;
}

bool convoy_bulk_can_rma(struct convoy_bulk *bulk, uint32_t peer, bool is_allocated, char *why_out, size_t bytes)
{
    (void)pthread_mutex_lock(&bulk->lock);
    bool can = rma_can(bulk, peer, is_allocated, why_out, bytes);
    (void)pthread_mutex_unlock(&bulk->lock);
    return can;
}

/* -- memory -------------------------------------------------------------------------------------------------------- */

int32_t convoy_bulk_memory_open(struct convoy_bulk *bulk, void *address, size_t bytes,
                                struct convoy_bulk_memory **memory_out, struct convoy_error *error)
{
    if (bytes == 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "bytes is 0, at least 1 is allowed");
    }
    struct convoy_bulk_memory *memory = convoy_memory_zalloc(sizeof *memory);
    if (memory == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to register memory");
    }
    memory->bulk = bulk;
    memory->bytes = bytes;
    (void)pthread_mutex_lock(&bulk->lock);
    int32_t status = convoy_link_memory_open(bulk->link, address, bytes, &memory->memory, error);
    (void)pthread_mutex_unlock(&bulk->lock);
    if (status != CONVOY_OK) {
        convoy_memory_free(memory);
        return status;
    }
    *memory_out = memory;
    return CONVOY_OK;
}

void *convoy_bulk_memory_address(const struct convoy_bulk_memory *memory)
{
    return convoy_link_memory_address(memory->memory);
}

void convoy_bulk_memory_close(struct convoy_bulk_memory *memory)
{
    if (memory != NULL) {
        (void)pthread_mutex_lock(&memory->bulk->lock);
        convoy_link_memory_close(memory->memory);
        (void)pthread_mutex_unlock(&memory->bulk->lock);
        convoy_memory_free(memory);
    }
}

int32_t convoy_bulk_memory_pack(const struct convoy_bulk_memory *memory, uint32_t peer, void *out, size_t capacity,
                                size_t *bytes_out, struct convoy_error *error)
{
    struct convoy_bulk *bulk = memory->bulk;
    uint8_t *at = out;
    size_t bytes = 0;
    if (peer >= bulk->options.peer_count || capacity < KEY_HEAD_BYTES) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "peer is %u, allowed are 0 to %u; capacity is %zu, at "
                                "least %u is allowed", peer, bulk->options.peer_count - 1, capacity, KEY_HEAD_BYTES);
    }
    (void)pthread_mutex_lock(&bulk->lock);
    int32_t status = convoy_link_memory_pack(memory->memory, peer, at + KEY_HEAD_BYTES, capacity - KEY_HEAD_BYTES,
                                             &bytes, error);
    (void)pthread_mutex_unlock(&bulk->lock);
    if (status != CONVOY_OK) {
        return status;
    }
    memcpy(at, KEY_MAGIC, 4);
    convoy_bytes_put_u64(at + 4, bulk->incarnation);
    convoy_bytes_put_u64(at + 12, memory->bytes);
    convoy_bytes_put_u64(at + 20, (uint64_t)(uintptr_t)convoy_link_memory_address(memory->memory));
    convoy_bytes_put_u32(at + 28, convoy_link_memory_is_allocated(memory->memory) ? KEY_FLAG_ALLOCATED : 0);
    convoy_bytes_put_u32(at + 32, (uint32_t)bytes);
    *bytes_out = KEY_HEAD_BYTES + bytes;
    return CONVOY_OK;
}

/* -- keys ---------------------------------------------------------------------------------------------------------- */

static int32_t key_decode(struct convoy_bulk *bulk, const uint8_t *at, size_t bytes, struct convoy_bulk_key *key,
                          struct convoy_error *error)
{
    if (bytes <= KEY_HEAD_BYTES || bytes > CONVOY_BULK_KEY_BYTES_MAX || memcmp(at, KEY_MAGIC, 4) != 0 ||
        convoy_bytes_u32(at + 32) != bytes - KEY_HEAD_BYTES || convoy_bytes_u32(at + 28) > KEY_FLAG_ALLOCATED ||
        convoy_bytes_u64(at + 20) > UINT64_MAX - convoy_bytes_u64(at + 12)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "the key of peer %u (%zu bytes) is malformed", key->peer, bytes);
    }
    if (convoy_bytes_u64(at + 4) != bulk->peers[key->peer].incarnation) {
        return convoy_error_set(error, CONVOY_STALE_EPOCH, "a key of incarnation %016llx, peer %u is %016llx",
                                (unsigned long long)convoy_bytes_u64(at + 4), key->peer,
                                (unsigned long long)bulk->peers[key->peer].incarnation);
    }
    key->bytes = convoy_bytes_u64(at + 12);
    key->address = convoy_bytes_u64(at + 20);
    return CONVOY_OK;
}

static int32_t key_open_locked(struct convoy_bulk_key *key, const uint8_t *packed, size_t bytes,
                               struct convoy_error *error)
{
    char why[160];
    struct convoy_bulk *bulk = key->bulk;
    if (key->peer >= bulk->options.peer_count) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "peer is %u, allowed are 0 to %u", key->peer,
                                bulk->options.peer_count - 1);
    }
    int32_t status = key_decode(bulk, packed, bytes, key, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (!rma_can(bulk, key->peer, convoy_bytes_u32(packed + 28) == KEY_FLAG_ALLOCATED, why, sizeof why)) {
        bool is_up = bulk->peers[key->peer].is_up;
        return convoy_error_set(error, is_up ? CONVOY_UNSUPPORTED : CONVOY_PEER_LOST, "no put and get to peer %u: %s",
                                key->peer, why);
    }
    return convoy_link_key_open(bulk->link, key->peer, packed + KEY_HEAD_BYTES, &key->key, error);
}

int32_t convoy_bulk_key_open(struct convoy_bulk *bulk, uint32_t peer, const void *packed, size_t bytes,
                             struct convoy_bulk_key **key_out, struct convoy_error *error)
{
    struct convoy_bulk_key *key = convoy_memory_zalloc(sizeof *key);
    if (key == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a key");
    }
    key->bulk = bulk;
    key->peer = peer;
    (void)pthread_mutex_lock(&bulk->lock);
    int32_t status = key_open_locked(key, packed, bytes, error);
    (void)pthread_mutex_unlock(&bulk->lock);
    if (status != CONVOY_OK) {
        convoy_memory_free(key);
        return status;
    }
    *key_out = key;
    return CONVOY_OK;
}

int32_t convoy_bulk_key_close(struct convoy_bulk_key *key, struct convoy_error *error)
{
    if (key == NULL) {
        return CONVOY_OK;
    }
    struct convoy_bulk *bulk = key->bulk;
    (void)pthread_mutex_lock(&bulk->lock);
    uint32_t under_way = key->under_way;
    if (under_way == 0) {
        convoy_link_key_close(key->key);
    }
    (void)pthread_mutex_unlock(&bulk->lock);
    if (under_way != 0) {
        return convoy_error_set(error, CONVOY_BUSY, "%u puts and gets are under way with this key", under_way);
    }
    convoy_memory_free(key);
    return CONVOY_OK;
}

/* -- put and get --------------------------------------------------------------------------------------------------- */

/* Under the lock: inside of progress, or of the call that started it. */
static void move_done(void *user, int32_t status)
{
    struct bulk_move *move = user;
    struct convoy_bulk *bulk = move->key->bulk;
    move->key->under_way--;
    move->notice.event.status = status;
    move->notice.event.lost_bytes = status == CONVOY_OK ? 0 : move->notice.event.bytes;
    bulk->notice_bytes += sizeof move->notice;
    convoy_bulk_notice_push(bulk, &move->notice);
}

static int32_t move_check(const struct convoy_bulk_key *key, uint64_t offset, const void *local, size_t bytes,
                          struct convoy_error *error)
{
    if (bytes == 0 || local == NULL || offset > key->bytes || bytes > key->bytes - offset) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "offset is %llu and bytes %zu, the key covers %llu; at "
                                "least 1 is allowed, and local memory %s", (unsigned long long)offset, bytes,
                                (unsigned long long)key->bytes, local == NULL ? "is NULL" : "is given");
    }
    return key->bulk->peers[key->peer].is_up
               ? CONVOY_OK
               : convoy_error_set(error, CONVOY_PEER_LOST, "peer %u is not connected any more", key->peer);
}

static int32_t move_start_locked(struct convoy_bulk_key *key, const struct convoy_bulk_event *event, uint64_t offset,
                                 const void *from, void *to, struct convoy_error *error)
{
    int32_t status = move_check(key, offset, from != NULL ? from : to, (size_t)event->bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct bulk_move *move = convoy_memory_zalloc(sizeof *move);
    if (move == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a put or get");
    }
    move->key = key;
    move->notice.is_made = true;
    move->notice.event = *event;
    key->under_way++;
    uint64_t remote = key->address + offset;
    status = from != NULL ? convoy_link_put(key->key, remote, from, (size_t)event->bytes, move_done, move)
                          : convoy_link_get(key->key, remote, to, (size_t)event->bytes, move_done, move);
    if (status != CONVOY_OK) {
        key->under_way--;
        convoy_memory_free(move);
        return convoy_error_set(error, status, "put or get to peer %u cannot start", key->peer);
    }
    return CONVOY_OK;
}

static int32_t move_start(struct convoy_bulk_key *key, const struct convoy_bulk_event *event, uint64_t offset,
                          const void *from, void *to, struct convoy_error *error)
{
    struct convoy_bulk *bulk = key->bulk;
    (void)pthread_mutex_lock(&bulk->lock);
    int32_t status = move_start_locked(key, event, offset, from, to, error);
    if (bulk->is_armed) {
        convoy_bulk_wake(bulk);
    }
    (void)pthread_mutex_unlock(&bulk->lock);
    return status;
}

int32_t convoy_bulk_put(struct convoy_bulk_key *key, uint64_t offset, const void *local, size_t bytes, uint64_t cookie,
                        struct convoy_error *error)
{
    const struct convoy_bulk_event event = {
        .kind = CONVOY_BULK_MOVED, .peer = key->peer, .cookie = cookie, .bytes = bytes};
    return move_start(key, &event, offset, local, NULL, error);
}

int32_t convoy_bulk_get(struct convoy_bulk_key *key, uint64_t offset, void *local, size_t bytes, uint64_t cookie,
                        struct convoy_error *error)
{
    const struct convoy_bulk_event event = {
        .kind = CONVOY_BULK_MOVED, .peer = key->peer, .cookie = cookie, .bytes = bytes};
    return move_start(key, &event, offset, NULL, local, error);
}
