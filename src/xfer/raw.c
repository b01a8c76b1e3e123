/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_sync: pieces of the host's, window by window, each as one order that the peer answers once. */
#include "xfer/far.h"
#include "xfer/raw.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"

#include <string.h>

#define LOOKS_MAX 16384u                       /* pieces of the host's that are looked at under the lock at a time */
#define DIRECT_BYTES (UINT64_C(256) << 10)     /* far: a piece from here on lands where it belongs, without a list */

struct call {
    const struct convoy_raw *raw;
    struct convoy_raw_window *window;
    uint32_t peer;
    bool is_far;
    size_t index;  /* of the next piece, */
    uint64_t done; /* and how much of it has gone */
    uint64_t deadline_ns;
};

/* Where a piece comes from. */
struct source {
    const uint8_t *data;
    uint64_t bytes;
    uint64_t target;
    struct convoy_slot slot;             /* of the own pool; lease NONE = registered */
    const struct convoy_xfer_range *range;
};

/* -- filling a window ---------------------------------------------------------------------------------------------- */

/* A peer reads what lies in the pool; everything else goes through it, or is sent. */
static int32_t find_source(struct convoy_xfer *engine, const struct call *call, struct source *out, struct convoy_error *error)
{
    const struct convoy_raw_piece *piece = &call->raw->pieces[call->index];
    uint64_t address = (uint64_t)(uintptr_t)piece->source;
    *out = (struct source){.data = (const uint8_t *)piece->source + call->done,
                           .bytes = piece->bytes - call->done,
                           .target = piece->target + call->done,
                           .slot = {.lease = CONVOY_LEASE_NONE}};
    if (piece->target > UINT64_MAX - piece->bytes) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "pieces[%zu]: %llu bytes at 0x%llx pass the end of memory",
                                call->index, (unsigned long long)piece->bytes, (unsigned long long)piece->target);
    }
    if (convoy_pool_find(engine->pool, piece->source, piece->bytes, &out->slot, NULL) == CONVOY_OK) {
        return CONVOY_OK;
    }
    out->slot.lease = CONVOY_LEASE_NONE;
    out->range = convoy_xfer_range_find(engine, address, piece->bytes);
    return out->range != NULL ? CONVOY_OK
                              : convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                                 "pieces[%zu]: source %p of %llu bytes lies in no live slot of the pool and is "
                                                 "not registered",
                                                 call->index, piece->source, (unsigned long long)piece->bytes);
}

/* Registered bytes that are still to go, as far as one block has room for them. */
static uint64_t block_bytes(const struct call *call, const struct source *source)
{
    uint64_t bytes = source->bytes;
    for (size_t i = call->index + 1; i < call->raw->piece_count && i < call->index + LOOKS_MAX; i++) {
        uint64_t more = call->raw->pieces[i].bytes;
        bytes = more < CONVOY_RAW_WINDOW_BYTES && bytes < CONVOY_RAW_WINDOW_BYTES ? bytes + more : CONVOY_RAW_WINDOW_BYTES;
    }
    return bytes < CONVOY_RAW_WINDOW_BYTES ? bytes : CONVOY_RAW_WINDOW_BYTES;
}

/* A smaller one where the pool has no other: then there are more windows. */
static int32_t take_block(struct convoy_xfer *engine, const struct call *call, const struct source *source,
                          struct convoy_error *error)
{
    struct convoy_raw_window *window = call->window;
    struct convoy_pool_request request = {.owner = {"raw", 3, 1},
                                          .bytes = block_bytes(call, source),
                                          .now_ns = convoy_now_ns(),
                                          .deadline_ns = CONVOY_LEASE_NEVER};
    int32_t status = convoy_pool_take(window->pool, &request, &window->block, error);
    while (status != CONVOY_OK && request.bytes > engine->options.block_bytes) {
        request.bytes /= 2;
        status = convoy_pool_take(window->pool, &request, &window->block, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_pool_refer(window->pool, window->block.lease, call->peer, CONVOY_REFERENCE_DEVICE, error);
        if (status != CONVOY_OK) {
            (void)convoy_pool_retire(window->pool, window->block.lease, CONVOY_LEASE_END_RELEASED, NULL);
            window->block.lease = CONVOY_LEASE_NONE;
        }
    } else {
        window->block.lease = CONVOY_LEASE_NONE;
    }
    return status == CONVOY_OK ? status : convoy_error_prefix(error, status, "room to send registered memory");
}

/* IN_PROGRESS: the window is full of others. */
static int32_t hold_slot(struct convoy_raw_window *window, uint32_t peer, convoy_lease lease, struct convoy_error *error)
{
    for (uint32_t i = window->lease_count; i-- > 0;) {
        if (window->leases[i] == lease) {
            return CONVOY_OK;
        }
    }
    if (window->lease_count == CONVOY_RAW_LEASES_MAX) {
        return CONVOY_IN_PROGRESS;
    }
    int32_t status = convoy_pool_refer(window->pool, lease, peer, CONVOY_REFERENCE_DEVICE, error);
    if (status == CONVOY_OK) {
        window->leases[window->lease_count++] = lease;
    }
    return status;
}

/* How much of it this window takes; 0 = it is full. */
static uint64_t room_for(const struct call *call, const struct source *source)
{
    const struct convoy_raw_window *window = call->window;
    uint64_t room = source->range != NULL ? window->block.bytes - window->block_used : UINT64_MAX;
    if (call->is_far && window->is_direct) {
        return 0;
    }
    if (call->is_far && source->bytes >= DIRECT_BYTES) { /* alone, whatever its length */
        return window->count == 0 ? source->bytes : 0;
    }
    room = call->is_far ? CONVOY_RAW_WINDOW_BYTES - window->bytes : room;
    return source->bytes < room ? source->bytes : room;
}

/* Goes on where the last one ended, in the same slot or range. */
static bool is_next(const struct convoy_raw_window *window, const struct source *source, uint64_t offset)
{
    const struct convoy_raw_part *last = &window->parts[window->count - 1];
    const uint8_t *data = window->pieces[window->count - 1].data;
    if (last->target + last->bytes != source->target || last->offset + last->bytes != offset) {
        return false;
    }
    bool is_beside = data == NULL || data + last->bytes == source->data;
    return is_beside && (data == NULL) == (source->range == NULL && !window->is_far) &&
           window->last_from == (source->range != NULL ? (uint64_t)(uintptr_t)source->range->memory : source->slot.offset);
}

static void add(struct convoy_xfer *engine, struct convoy_raw_window *window, const struct source *source, uint64_t offset,
                uint64_t bytes)
{
    bool is_pool = source->range == NULL;
    if (window->count != 0 && is_next(window, source, offset)) {
        window->parts[window->count - 1].bytes += bytes;
        window->pieces[window->count - 1].bytes += bytes;
    } else {
        uint32_t at = window->count++;
        window->parts[at] = (struct convoy_raw_part){.offset = offset, .target = source->target, .bytes = bytes};
        window->pieces[at] =
            (struct convoy_bulk_piece){.data = is_pool && !window->is_far ? NULL : source->data, .bytes = bytes};
        window->is_range[at] = !is_pool;
        window->last_from = is_pool ? source->slot.offset : (uint64_t)(uintptr_t)source->range->memory;
        if (!is_pool) {
            convoy_xfer_range_use(engine, (uint64_t)(uintptr_t)source->data, true);
        }
    }
    window->bytes += bytes;
    window->is_direct = window->is_far && bytes >= DIRECT_BYTES;
}

/* A peer looks for all parts of a list in the same generation of the pool. */
static bool is_of_one_generation(struct convoy_raw_window *window, uint64_t offset)
{
    const struct convoy_pool_share *share = &window->share;
    if (window->count == 0) {
        return convoy_pool_generation_at(window->pool, offset, &window->share);
    }
    return offset >= share->base && offset - share->base < share->bytes;
}

/* One piece, or as much of it as there is room for. IN_PROGRESS: there is none. */
static int32_t take_piece(struct convoy_xfer *engine, struct call *call, struct convoy_error *error)
{
    struct convoy_raw_window *window = call->window;
    struct source source;
    int32_t status = find_source(engine, call, &source, error);
    if (status == CONVOY_OK && source.range == NULL) {
        status = hold_slot(window, call->peer, source.slot.lease, error);
    } else if (status == CONVOY_OK && !call->is_far && window->block.lease == CONVOY_LEASE_NONE) {
        status = take_block(engine, call, &source, error);
    }
    uint64_t bytes = status == CONVOY_OK ? room_for(call, &source) : 0;
    if (bytes == 0) {
        return status == CONVOY_OK ? CONVOY_IN_PROGRESS : status;
    }
    uint64_t offset = window->bytes; /* far: in the stream */
    if (!call->is_far && source.range != NULL) {
        offset = window->block.offset + window->block_used;
    } else if (!call->is_far) {
        offset = source.slot.offset + (uint64_t)(source.data - (const uint8_t *)source.slot.address);
    }
    if (!call->is_far && !is_of_one_generation(window, offset)) {
        return CONVOY_IN_PROGRESS;
    }
    window->block_used += !call->is_far && source.range != NULL ? bytes : 0;
    add(engine, window, &source, offset, bytes);
    call->done += bytes;
    bool is_whole = bytes == source.bytes;
    call->index += is_whole;
    call->done = is_whole ? 0 : call->done;
    return CONVOY_OK;
}

static int32_t fill(struct convoy_xfer *engine, struct call *call, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    call->window->is_far = call->is_far;
    call->window->order.peer = call->peer;
    for (uint32_t looks = 0; status == CONVOY_OK && looks < LOOKS_MAX && call->index < call->raw->piece_count &&
                             call->window->count < CONVOY_RAW_PARTS_MAX;
         looks++) {
        if (call->raw->pieces[call->index].bytes == 0) {
            call->index++;
        } else {
            status = take_piece(engine, call, error);
        }
    }
    return status == CONVOY_IN_PROGRESS && call->window->count != 0 ? CONVOY_OK : status;
}

/* -- what the peer reads ------------------------------------------------------------------------------------------- */

/* Outside of the lock: the block, the ranges and the peer's place are held meanwhile. */
static void gather(struct convoy_xfer *engine, const struct convoy_raw_window *window)
{
    convoy_xfer_unlock(engine);
    for (uint32_t i = 0; i < window->count; i++) {
        if (window->pieces[i].data != NULL) {
            uint8_t *to = (uint8_t *)window->block.address + (window->parts[i].offset - window->block.offset);
            memcpy(to, window->pieces[i].data, window->pieces[i].bytes);
        }
    }
    convoy_xfer_lock(engine);
}

static int32_t write_list(struct convoy_xfer *engine, struct convoy_raw_window *window, struct convoy_error *error)
{
    uint64_t bytes = window->count * sizeof window->parts[0];
    const struct convoy_pool_request request = {
        .owner = {"raw", 3, 1}, .bytes = bytes, .now_ns = convoy_now_ns(), .deadline_ns = CONVOY_LEASE_NEVER};
    int32_t status = convoy_pool_take(engine->notes, &request, &window->note, error);
    if (status != CONVOY_OK) {
        window->note.lease = CONVOY_LEASE_NONE;
        return convoy_error_prefix(error, status, "room for the list of pieces");
    }
    memcpy(window->note.address, window->parts, bytes);
    return CONVOY_OK;
}

/* -- one order ----------------------------------------------------------------------------------------------------- */

void convoy_raw_say_again(struct convoy_xfer *engine, const struct convoy_raw_window *window)
{
    struct convoy_xfer_notice notice = {.type = window->count == 1 ? CONVOY_SAY_RAW : CONVOY_SAY_RAW_LIST};
    if (window->count == 1) {
        notice.body.raw = (struct convoy_raw_order){.cookie = window->order.cookie,
                                                    .offset = window->parts[0].offset,
                                                    .target = window->parts[0].target,
                                                    .bytes = window->parts[0].bytes};
    } else {
        notice.body.list = (struct convoy_raw_list){.cookie = window->order.cookie,
                                                    .note_offset = window->is_far ? 0 : window->note.offset,
                                                    .bytes = window->bytes,
                                                    .count = window->count};
    }
    convoy_xfer_say(engine, &engine->peers[window->order.peer], &notice);
}

static void say(struct convoy_xfer *engine, struct convoy_raw_window *window)
{
    window->is_said = true;
    window->is_given_room = false;
    convoy_raw_say_again(engine, window);
}

static int32_t refused(const struct convoy_raw_window *window, struct convoy_error *error)
{
    const struct convoy_reply *reply = &window->order.reply;
    uint32_t at = reply->figures[0] < window->count ? (uint32_t)reply->figures[0] : 0;
    return convoy_error_set(error, reply->status < 0 ? reply->status : CONVOY_MALFORMED,
                            "the peer does not write %llu bytes in %u parts: status %d at %llu bytes for 0x%llx; each must lie "
                            "in one slot that waits for bytes, or be registered",
                            (unsigned long long)window->bytes, window->count, reply->status,
                            (unsigned long long)window->parts[at].bytes, (unsigned long long)window->parts[at].target);
}

/* A peer that has no room now is asked again when it says, until the deadline, and not before the bytes of the last try have
 * stopped. false: not any more. */
static bool wait_again(struct convoy_xfer *engine, const struct call *call)
{
    const struct convoy_reply *reply = &call->window->order.reply;
    struct convoy_xfer_pausing pausing = {0};
    if (reply->status != CONVOY_BUSY || reply->retry_after_ms == 0) {
        return false;
    }
    uint64_t until = convoy_deadline_after(convoy_now_ns(), reply->retry_after_ms * CONVOY_NS_PER_MS);
    while (until < call->deadline_ns && convoy_now_ns() < until) {
        convoy_xfer_pump(engine);
        convoy_xfer_pause(engine, until, false, &pausing);
    }
    while (until < call->deadline_ns && convoy_far_order_reads(engine, call->window) && convoy_now_ns() < call->deadline_ns) {
        convoy_xfer_pump(engine);
        convoy_xfer_pause(engine, call->deadline_ns, false, &pausing);
    }
    return until < call->deadline_ns && !convoy_far_order_reads(engine, call->window);
}

static int32_t check_there(const struct convoy_xfer *engine, const struct call *call, struct convoy_error *error)
{
    int32_t status = convoy_xfer_check_open(engine, error);
    return status != CONVOY_OK || engine->peers[call->peer].state == CONVOY_PEER_IS_CONNECTED
               ? status
               : convoy_error_set(error, CONVOY_PEER_LOST, "peer %s is gone", engine->peers[call->peer].session);
}

static int32_t order(struct convoy_xfer *engine, const struct call *call, struct convoy_error *error)
{
    struct convoy_raw_window *window = call->window;
    int32_t status;
    do {
        status = check_there(engine, call, error);
        if (status != CONVOY_OK) {
            return status;
        }
        uint64_t began = convoy_now_ns();
        convoy_xfer_order_add(engine, &window->order);
        say(engine, window);
        CONVOY_POINT(raw_after_put);
        status = convoy_xfer_order_wait(engine, &window->order, call->deadline_ns, error);
        convoy_xfer_record_raw(engine, status == CONVOY_OK ? window->order.reply.status : status, call->is_far, began);
    } while (status == CONVOY_OK && wait_again(engine, call));
    return status == CONVOY_OK && window->order.reply.status != CONVOY_OK ? refused(window, error) : status;
}

static int32_t send_window(struct convoy_xfer *engine, struct call *call, struct convoy_error *error)
{
    struct convoy_raw_window *window = call->window;
    int32_t status = fill(engine, call, error);
    if (status == CONVOY_OK && window->block.lease != CONVOY_LEASE_NONE) {
        gather(engine, window);
    }
    if (status == CONVOY_OK && !call->is_far && window->count > 1) {
        status = write_list(engine, window, error);
    }
    if (status == CONVOY_OK && window->count != 0) {
        status = order(engine, call, error);
    }
    return status;
}

/* The peer may read until it has answered; one that has not in time, until it is proven dead. Between hosts nobody but this
 * side reads. */
static bool is_over(const struct convoy_xfer *engine, const struct convoy_raw_window *window)
{
    if (window->is_far) {
        return !convoy_far_order_reads(engine, window);
    }
    return !window->is_said || window->order.is_done || engine->peers[window->order.peer].is_dead ||
           CONVOY_MUTATED(unanswered_is_freed);
}

/* Empty for what comes next, or held, and the next one is another. */
static int32_t end_window(struct convoy_xfer *engine, struct call *call, int32_t status, struct convoy_error *error)
{
    if (is_over(engine, call->window)) {
        convoy_raw_window_clear(engine, call->window);
        return status;
    }
    convoy_raw_window_hold(engine, call->window);
    bool has_more = status == CONVOY_OK && call->index < call->raw->piece_count;
    call->window = has_more ? convoy_raw_window_take(engine) : NULL;
    return !has_more || call->window != NULL ? status
                                             : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a window of pieces");
}

/* -- the host's call ----------------------------------------------------------------------------------------------- */

static int32_t begin(struct convoy_xfer *engine, struct call *call, struct convoy_error *error)
{
    int32_t status = convoy_xfer_check_open(engine, error);
    if (status != CONVOY_OK || convoy_xfer_peer_find(engine, call->raw->peer, error) == NULL) {
        return status != CONVOY_OK ? status : CONVOY_CLOSED;
    }
    call->peer = (uint32_t)call->raw->peer - 1;
    call->is_far = engine->peers[call->peer].locality == CONVOY_LOCALITY_REMOTE;
    if (engine->options.is_private && !call->is_far) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "no peer can read this engine's pool, which is private");
    }
    status = check_there(engine, call, error);
    call->window = status == CONVOY_OK ? convoy_raw_window_take(engine) : NULL;
    if (status == CONVOY_OK && call->window == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a window of pieces");
    }
    return status;
}

int32_t convoy_xfer_raw(struct convoy_xfer *engine, const struct convoy_raw *raw, uint64_t timeout_ns,
                        struct convoy_error *error)
{
    struct call call = {.raw = raw};
    convoy_xfer_lock(engine);
    call.deadline_ns = convoy_xfer_order_deadline(engine, timeout_ns);
    int32_t status = begin(engine, &call, error);
    if (status != CONVOY_OK) {
        convoy_xfer_unlock(engine);
        return status;
    }
    struct convoy_xfer_peer *peer = &engine->peers[call.peer];
    peer->entries++; /* its place stays while the lock is given up */
    while (status == CONVOY_OK && call.index < raw->piece_count) {
        status = send_window(engine, &call, error);
        status = end_window(engine, &call, status, error);
    }
    if (call.window != NULL) {
        convoy_raw_window_put(engine, call.window);
    }
    peer->entries--;
    convoy_xfer_peer_free(engine, peer);
    convoy_xfer_unlock(engine);
    return status;
}
