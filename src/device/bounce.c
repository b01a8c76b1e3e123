/* SPDX-License-Identifier: Apache-2.0 */
#include "device/bounce.h"

#include "core/error.h"
#include "core/memory.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#define CHUNKS 2u

enum chunk_state {
    CHUNK_IDLE = 0,
    CHUNK_COPYING,
    CHUNK_FULL,   /* OUT: copied, to be handed out */
    CHUNK_FILLED, /* IN: given back, to be copied */
    CHUNK_WITH_CALLER,
    CHUNK_LOST, /* nobody knows whether it is still being copied; never used again */
};

struct bounce_chunk {
    enum chunk_state state;
    uint8_t *memory;
    uint64_t offset; /* in the device memory */
    uint64_t bytes;
    convoy_ticket ticket;
    struct convoy_copy_piece piece;
};

struct convoy_bounce_lane {
    struct convoy_bounce *bounce;
    bool is_open;
    bool is_ready; /* the producer was: one copy has ended well */
    bool is_lost;
    struct convoy_bounce_order order;
    struct bounce_chunk chunks[CHUNKS];
    uint64_t assigned; /* bytes from the start that a chunk has had */
    uint64_t issued;   /* bytes whose copy was started */
    uint64_t handed;   /* OUT: offset of the next chunk to hand out */
    struct convoy_error failure;
};

struct convoy_bounce {
    struct convoy_device *device;
    pthread_mutex_t lock; /* which lanes are open */
    uint8_t *memory;
    uint64_t memory_bytes;
    uint64_t chunk_bytes;
    uint32_t lane_count;
    struct convoy_bounce_lane *lanes;
};

/* -- life ---------------------------------------------------------------------------------------------------------- */

static int32_t options_check(const struct convoy_bounce *bounce, struct convoy_error *error)
{
    uint64_t chunk = bounce->chunk_bytes;
    if (!convoy_device_has_streams(bounce->device)) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "bounce pool: device %s has no streams",
                                convoy_device_name(bounce->device));
    }
    if (chunk % CONVOY_BOUNCE_CHUNK_BYTES_MIN != 0 || chunk > CONVOY_BOUNCE_CHUNK_BYTES_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "bounce pool: chunk_bytes %llu, allowed are multiples of "
                                "%llu up to %llu", (unsigned long long)chunk,
                                (unsigned long long)CONVOY_BOUNCE_CHUNK_BYTES_MIN,
                                (unsigned long long)CONVOY_BOUNCE_CHUNK_BYTES_MAX);
    }
    if (bounce->lane_count > CONVOY_BOUNCE_LANES_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "bounce pool: %u lanes, allowed are 1 to %u",
                                bounce->lane_count, CONVOY_BOUNCE_LANES_MAX);
    }
    return CONVOY_OK;
}

static void bounce_free(struct convoy_bounce *bounce)
{
    if (bounce->memory != NULL) {
        (void)munmap(bounce->memory, (size_t)bounce->memory_bytes);
    }
    (void)pthread_mutex_destroy(&bounce->lock);
    convoy_memory_free(bounce->lanes);
    convoy_memory_free(bounce);
}

static int32_t bounce_map(struct convoy_bounce *bounce, struct convoy_error *error)
{
    void *memory = mmap(NULL, (size_t)bounce->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return convoy_error_set_errno(error, CONVOY_NO_MEMORY, errno, "bounce pool: no memory for %u lanes of %u chunks of "
                                      "%llu bytes", bounce->lane_count, CHUNKS, (unsigned long long)bounce->chunk_bytes);
    }
    /* After a fork the first write would move a page of the parent away from where the device has it. */
    (void)madvise(memory, (size_t)bounce->memory_bytes, MADV_DONTFORK);
    bounce->memory = memory;
    bounce->lanes = convoy_memory_array(bounce->lane_count, sizeof *bounce->lanes);
    if (bounce->lanes == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "bounce pool: no memory for %u lanes", bounce->lane_count);
    }
    for (uint32_t i = 0; i < bounce->lane_count * CHUNKS; i++) {
        bounce->lanes[i / CHUNKS].bounce = bounce;
        bounce->lanes[i / CHUNKS].chunks[i % CHUNKS].memory = bounce->memory + i * bounce->chunk_bytes;
    }
    return convoy_device_register(bounce->device, bounce->memory, bounce->memory_bytes, 0, error);
}

int32_t convoy_bounce_open(struct convoy_device *device, const struct convoy_bounce_options *options,
                           struct convoy_bounce **bounce_out, struct convoy_error *error)
{
    struct convoy_bounce *bounce = convoy_memory_zalloc(sizeof *bounce);
    if (bounce == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "bounce pool: no memory for %zu bytes", sizeof *bounce);
    }
    bounce->device = device;
    bounce->chunk_bytes = options->chunk_bytes != 0 ? options->chunk_bytes : CONVOY_BOUNCE_CHUNK_BYTES;
    bounce->lane_count = options->lanes != 0 ? options->lanes : CONVOY_BOUNCE_LANES;
    bounce->memory_bytes = bounce->chunk_bytes * CHUNKS * bounce->lane_count;
    (void)pthread_mutex_init(&bounce->lock, NULL);
    int32_t status = options_check(bounce, error);
    if (status == CONVOY_OK) {
        status = bounce_map(bounce, error);
    }
    if (status != CONVOY_OK) {
        bounce_free(bounce);
        return status;
    }
    if (options->log != NULL) {
        convoy_log_line(options->log, CONVOY_LOG_WARN, "device %s memory goes through %u pinned chunks of %llu bytes: %s",
                        convoy_device_name(device), bounce->lane_count * CHUNKS, (unsigned long long)bounce->chunk_bytes,
                        options->reason != NULL ? options->reason : "the transport cannot take it");
    }
    *bounce_out = bounce;
    return CONVOY_OK;
}

int32_t convoy_bounce_close(struct convoy_bounce *bounce, struct convoy_error *error)
{
    if (bounce == NULL) {
        return CONVOY_OK;
    }
    uint32_t open = 0;
    for (uint32_t i = 0; i < bounce->lane_count; i++) {
        open += bounce->lanes[i].is_open || bounce->lanes[i].is_lost ? 1 : 0;
    }
    if (open != 0) {
        return convoy_error_set(error, CONVOY_BUSY, "bounce pool: %u lanes are open, or their copies were lost", open);
    }
    int32_t status = convoy_device_unregister(bounce->device, bounce->memory, bounce->memory_bytes, error);
    if (status == CONVOY_OK) {
        bounce_free(bounce);
    }
    return status;
}

/* -- a lane -------------------------------------------------------------------------------------------------------- */

int32_t convoy_bounce_begin(struct convoy_bounce *bounce, const struct convoy_bounce_order *order,
                            struct convoy_bounce_lane **lane_out, struct convoy_error *error)
{
    if (order->memory == NULL || order->bytes == 0 || order->bytes > UINTPTR_MAX - (uintptr_t)order->memory) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "bounce pool: %llu bytes at %p, allowed are 1 byte and more "
                                "that end within the address space", (unsigned long long)order->bytes, order->memory);
    }
    struct convoy_bounce_lane *lane = NULL;
    (void)pthread_mutex_lock(&bounce->lock);
    for (uint32_t i = 0; i < bounce->lane_count && lane == NULL; i++) {
        lane = bounce->lanes[i].is_open || bounce->lanes[i].is_lost ? NULL : &bounce->lanes[i];
    }
    if (lane != NULL) {
        lane->is_open = true;
    }
    (void)pthread_mutex_unlock(&bounce->lock);
    if (lane == NULL) {
        return convoy_error_set(error, CONVOY_BUSY, "bounce pool: all %u lanes are in use", bounce->lane_count);
    }
    lane->order = *order;
    lane->is_ready = false;
    lane->assigned = 0;
    lane->issued = 0;
    lane->handed = 0;
    lane->failure = (struct convoy_error)CONVOY_ERROR_INIT;
    *lane_out = lane;
    return CONVOY_OK;
}

/* The first cause stays. */
static void lane_fail(struct convoy_bounce_lane *lane, const struct convoy_error *why)
{
    if (lane->failure.status == CONVOY_OK) {
        lane->failure = *why;
    }
}

static void chunk_assign(struct convoy_bounce_lane *lane, struct bounce_chunk *chunk)
{
    uint64_t left = lane->order.bytes - lane->assigned;
    chunk->offset = lane->assigned;
    chunk->bytes = left < lane->bounce->chunk_bytes ? left : lane->bounce->chunk_bytes;
    lane->assigned += chunk->bytes;
}

/* Starts the copy of an assigned chunk. false: not now (all tickets of the device are in use), or the lane has failed. */
static bool chunk_copy(struct convoy_bounce_lane *lane, struct bounce_chunk *chunk)
{
    const struct convoy_bounce_order *order = &lane->order;
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint8_t *memory = (uint8_t *)order->memory + chunk->offset;
    bool is_last = lane->issued + chunk->bytes == order->bytes;
    chunk->piece = (struct convoy_copy_piece){.to = order->is_in ? memory : chunk->memory,
                                              .from = order->is_in ? chunk->memory : memory,
                                              .bytes = chunk->bytes};
    const struct convoy_copy_order copy = {
        .pieces = &chunk->piece,
        .count = 1,
        .direction = order->is_in ? CONVOY_COPY_TO_DEVICE : CONVOY_COPY_FROM_DEVICE,
        .stream = order->stream,
        .ready = lane->is_ready ? (struct convoy_readiness){.kind = CONVOY_READY_NOW} : order->ready,
        .event = is_last ? order->event : NULL,
    };
    int32_t status = convoy_device_start(lane->bounce->device, &copy, &chunk->ticket, &error);
    if (status == CONVOY_OK) {
        chunk->state = CHUNK_COPYING;
        lane->issued += chunk->bytes;
    } else if (status != CONVOY_LIMIT) {
        lane_fail(lane, &error);
    }
    return status == CONVOY_OK;
}

static void chunk_look(struct convoy_bounce_lane *lane, struct bounce_chunk *chunk)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    bool is_quiet = false;
    if (chunk->state != CHUNK_COPYING) {
        return;
    }
    int32_t status = convoy_device_test(lane->bounce->device, chunk->ticket, &is_quiet, &error);
    if (status == CONVOY_IN_PROGRESS) {
        return;
    }
    chunk->state = lane->order.is_in || status != CONVOY_OK ? CHUNK_IDLE : CHUNK_FULL;
    if (status == CONVOY_OK) {
        lane->is_ready = true;
    } else {
        lane_fail(lane, &error);
    }
    if (!is_quiet) {
        chunk->state = CHUNK_LOST;
        lane->is_lost = true;
    }
}

/* Until the producer is known to be ready there is one copy only, which waits for it: what a second one finds says nothing
 * about the first, and the host's event is recorded behind the last. */
static bool lane_may_copy(const struct convoy_bounce_lane *lane)
{
    return lane->failure.status == CONVOY_OK && (lane->is_ready || lane->issued == 0);
}

static void lane_copy_out(struct convoy_bounce_lane *lane, struct bounce_chunk *chunk)
{
    if (chunk->state != CHUNK_IDLE || lane->assigned == lane->order.bytes) {
        return;
    }
    chunk_assign(lane, chunk);
    if (!chunk_copy(lane, chunk)) {
        lane->assigned = chunk->offset;
    }
}

static void lane_move(struct convoy_bounce_lane *lane)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        chunk_look(lane, &lane->chunks[i]);
    }
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct bounce_chunk *chunk = &lane->chunks[i];
        if (lane_may_copy(lane) && !lane->order.is_in) {
            lane_copy_out(lane, chunk);
        } else if (lane_may_copy(lane) && chunk->state == CHUNK_FILLED) {
            (void)chunk_copy(lane, chunk);
        } else if (lane->failure.status != CONVOY_OK && chunk->state == CHUNK_FILLED) {
            chunk->state = CHUNK_IDLE;
        }
    }
}

static struct bounce_chunk *lane_pick(struct convoy_bounce_lane *lane)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct bounce_chunk *chunk = &lane->chunks[i];
        if (lane->order.is_in && chunk->state == CHUNK_IDLE && lane->assigned < lane->order.bytes) {
            chunk_assign(lane, chunk);
            return chunk;
        }
        if (!lane->order.is_in && chunk->state == CHUNK_FULL && chunk->offset == lane->handed) {
            lane->handed += chunk->bytes;
            return chunk;
        }
    }
    return NULL;
}

static bool lane_is_still(const struct convoy_bounce_lane *lane)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        enum chunk_state state = lane->chunks[i].state;
        if (state == CHUNK_COPYING || state == CHUNK_FILLED || state == CHUNK_WITH_CALLER) {
            return false;
        }
    }
    return true;
}

int32_t convoy_bounce_next(struct convoy_bounce_lane *lane, struct convoy_bounce_chunk *chunk_out,
                           struct convoy_error *error)
{
    lane_move(lane);
    if (lane->failure.status != CONVOY_OK) {
        return convoy_error_copy(error, &lane->failure);
    }
    struct bounce_chunk *chunk = lane_pick(lane);
    if (chunk != NULL) {
        chunk->state = CHUNK_WITH_CALLER;
        *chunk_out = (struct convoy_bounce_chunk){.address = chunk->memory, .offset = chunk->offset,
                                                  .bytes = chunk->bytes, .index = (uint32_t)(chunk - lane->chunks)};
        return CONVOY_OK;
    }
    bool has_all = lane->order.is_in ? lane->issued == lane->order.bytes : lane->handed == lane->order.bytes;
    if (!has_all || !lane_is_still(lane)) {
        return CONVOY_IN_PROGRESS;
    }
    *chunk_out = (struct convoy_bounce_chunk){.offset = lane->order.bytes};
    return CONVOY_OK;
}

int32_t convoy_bounce_give(struct convoy_bounce_lane *lane, uint32_t index, struct convoy_error *error)
{
    if (index >= CHUNKS || lane->chunks[index].state != CHUNK_WITH_CALLER) {
        return convoy_error_set(error, CONVOY_BAD_STATE, "bounce pool: chunk %u was not handed out", index);
    }
    lane->chunks[index].state = lane->order.is_in ? CHUNK_FILLED : CHUNK_IDLE;
    lane_move(lane);
    return CONVOY_OK;
}

void convoy_bounce_abort(struct convoy_bounce_lane *lane)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)convoy_error_set(&error, CONVOY_CANCELED, "bounce pool: the transfer was aborted");
    lane_fail(lane, &error);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct bounce_chunk *chunk = &lane->chunks[i];
        if (chunk->state == CHUNK_COPYING && convoy_device_cancel(lane->bounce->device, chunk->ticket, NULL) == CONVOY_OK) {
            chunk->state = CHUNK_IDLE;
        }
    }
}

int32_t convoy_bounce_end(struct convoy_bounce_lane *lane, bool *quiet_out)
{
    bool is_done = lane->order.is_in ? lane->issued == lane->order.bytes : lane->handed == lane->order.bytes;
    if (!is_done && lane->failure.status == CONVOY_OK) {
        convoy_bounce_abort(lane);
    }
    lane_move(lane);
    if (!lane_is_still(lane)) {
        return CONVOY_IN_PROGRESS;
    }
    if (quiet_out != NULL) {
        *quiet_out = !lane->is_lost;
    }
    for (uint32_t i = 0; i < CHUNKS; i++) {
        lane->chunks[i].state = lane->chunks[i].state == CHUNK_LOST ? CHUNK_LOST : CHUNK_IDLE;
    }
    (void)pthread_mutex_lock(&lane->bounce->lock);
    lane->is_open = false;
    (void)pthread_mutex_unlock(&lane->bounce->lock);
    return CONVOY_OK;
}
