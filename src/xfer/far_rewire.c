/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines tell each other, over the connection that introduced them, where their bulks are now. */
#include "xfer/far.h"

#include "core/bytes.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <string.h>

#define FRAMES_MAX 16u /* of one peer before the next one's turn */

static uint32_t index_of(const struct convoy_xfer *engine, const struct convoy_xfer_peer *peer)
{
    return (uint32_t)(peer - engine->peers);
}

static struct convoy_far_wire *wire_of(const struct convoy_xfer *engine, const struct convoy_xfer_peer *peer)
{
    return &engine->far->peers[index_of(engine, peer)].wire;
}

static bool is_far(const struct convoy_xfer *engine, const struct convoy_xfer_peer *peer)
{
    return engine->far != NULL && peer->state == CONVOY_PEER_IS_CONNECTED && peer->lane == &convoy_lane_far;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

void convoy_far_wire_free(struct convoy_far_wire *wire)
{
    wire->stream.fd = -1; /* the peer's, which closes it */
    convoy_frame_close(&wire->stream);
    convoy_memory_free(wire->address);
    *wire = (struct convoy_far_wire){.stream = {.fd = -1}};
}

void convoy_far_wire_begin(struct convoy_xfer *engine, uint32_t peer, uint32_t flags)
{
    struct convoy_far_wire *wire = &engine->far->peers[peer].wire;
    convoy_far_wire_free(wire);
    wire->may_move = (flags & CONVOY_INTRODUCE_MOVES) != 0;
    wire->heard = engine->far->number;
}

int32_t convoy_far_wire_keep(struct convoy_xfer *engine, uint32_t peer, const void *address, size_t bytes)
{
    struct convoy_far_wire *wire = &engine->far->peers[peer].wire;
    uint8_t *copy = convoy_memory_zalloc(bytes);
    if (copy == NULL) {
        return CONVOY_NO_MEMORY;
    }
    memcpy(copy, address, bytes);
    convoy_memory_free(wire->address);
    wire->address = copy;
    wire->address_bytes = bytes;
    return CONVOY_OK;
}

/* -- what is said -------------------------------------------------------------------------------------------------- */

static void flush(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    struct convoy_far_wire *wire = wire_of(engine, peer);
    if (peer->tcp_fd >= 0 && convoy_frame_has_output(&wire->stream)) {
        wire->stream.fd = peer->tcp_fd;
        if (convoy_frame_flush(&wire->stream) == CONVOY_IN_PROGRESS) {
            convoy_xfer_kick(engine); /* it is to be polled for room; an end of it is seen there, too */
        }
    }
}

static void say(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    const struct convoy_far *far = engine->far;
    struct convoy_far_wire *wire = wire_of(engine, peer);
    size_t address_bytes = 0;
    const void *address = convoy_bulk_address(far->bulk, &address_bytes);
    uint8_t body[CONVOY_FAR_MOVED_BYTES + CONVOY_FAR_ADDRESS_BYTES];
    if (wire->heard == far->number || address_bytes > CONVOY_FAR_ADDRESS_BYTES) {
        address_bytes = 0;
    }
    convoy_bytes_put_u64(body, far->number);
    convoy_bytes_put_u64(body + 8, wire->number);
    memcpy(body + CONVOY_FAR_MOVED_BYTES, address, address_bytes);
    wire->must_say = convoy_frame_queue(&wire->stream, CONVOY_INTRODUCE_MOVED, body,
                                        (uint32_t)(CONVOY_FAR_MOVED_BYTES + address_bytes)) != CONVOY_OK;
    if (wire->must_say) {
        convoy_xfer_timer(engine, convoy_deadline_after(convoy_now_ns(), CONVOY_NS_PER_MS));
    }
    flush(engine, peer);
}

bool convoy_far_has_output(const struct convoy_xfer *engine, const struct convoy_xfer_peer *peer)
{
    return is_far(engine, peer) && convoy_frame_has_output(&wire_of(engine, peer)->stream);
}

/* -- up and down --------------------------------------------------------------------------------------------------- */

bool convoy_far_path_is_up(const struct convoy_xfer *engine, uint32_t peer)
{
    return engine->far->peers[peer].wire.since_ns == 0;
}

bool convoy_far_may_come_back(const struct convoy_xfer *engine, uint32_t peer)
{
    const struct convoy_xfer_peer *there = &engine->peers[peer];
    return is_far(engine, there) && there->tcp_fd >= 0 && engine->far->peers[peer].wire.may_move;
}

/* What the peer has ordered begins with its next word: it says it again. */
void convoy_far_path_down(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    struct convoy_far_wire *wire = wire_of(engine, peer);
    if (wire->since_ns == 0) {
        wire->since_ns = convoy_now_ns();
        convoy_far_raw_drop(engine, index_of(engine, peer), 0);
    }
}

static void check_up(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    struct convoy_far_wire *wire = wire_of(engine, peer);
    bool is_whole = wire->number == wire->wanted && wire->heard == engine->far->number && wire->grace_ns == 0;
    if (wire->since_ns == 0 || !is_whole) {
        return;
    }
    wire->down_ns = convoy_now_ns() - wire->since_ns;
    wire->since_ns = 0;
    wire->count++;
    convoy_log_line(&engine->runtime->log, CONVOY_LOG_INFO,
                    "engine %s: path to peer %s is up again after %llu us, bulk %llu here, %llu there", engine->session,
                    peer->session, (unsigned long long)(wire->down_ns / 1000), (unsigned long long)engine->far->number,
                    (unsigned long long)wire->number);
    convoy_far_say_again(engine, peer);
}

static void start_wiring(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    convoy_far_path_down(engine, peer);
    convoy_far_wire_again(engine, index_of(engine, peer));
}

bool convoy_far_wire_failed(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    struct convoy_far_wire *wire = wire_of(engine, peer);
    if (!convoy_far_may_come_back(engine, index_of(engine, peer))) {
        return false;
    }
    convoy_far_path_down(engine, peer);
    if (wire->grace_ns == 0 && wire->number == wire->wanted) { /* else the next endpoint is on its way already */
        wire->grace_ns = convoy_deadline_after(convoy_now_ns(), CONVOY_FAR_GRACE_NS);
        convoy_xfer_timer(engine, wire->grace_ns);
    }
    return true;
}

void convoy_far_wired(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t number, int32_t status)
{
    struct convoy_far_wire *wire = wire_of(engine, peer);
    if (!is_far(engine, peer) || number > wire->wanted) {
        return;
    }
    if (status != CONVOY_OK) {
        convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN, "engine %s: bulk %llu of peer %s cannot be connected: status %d",
                        engine->session, (unsigned long long)number, peer->session, status);
        convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, false);
        return;
    }
    wire->number = number;
    say(engine, peer);
    check_up(engine, peer);
}

void convoy_far_wire_timers(struct convoy_xfer *engine, uint64_t now_ns)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        if (!is_far(engine, peer)) {
            continue;
        }
        struct convoy_far_wire *wire = wire_of(engine, peer);
        if (wire->must_say) {
            say(engine, peer);
        }
        if (wire->grace_ns != 0 && wire->grace_ns <= now_ns) {
            wire->grace_ns = 0;
            convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, false);
        } else if (wire->grace_ns != 0) {
            convoy_xfer_timer(engine, wire->grace_ns);
        }
    }
}

/* -- what is heard ------------------------------------------------------------------------------------------------- */

/* false: the peer does not keep to what is agreed. */
static bool take(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_frame *frame)
{
    struct convoy_far_wire *wire = wire_of(engine, peer);
    if (frame->type != CONVOY_INTRODUCE_MOVED || frame->bytes < CONVOY_FAR_MOVED_BYTES || !wire->may_move) {
        return false;
    }
    uint64_t number = convoy_bytes_u64(frame->body);
    uint64_t heard = convoy_bytes_u64(frame->body + 8);
    size_t address_bytes = frame->bytes - CONVOY_FAR_MOVED_BYTES;
    if (number < wire->wanted || heard < wire->heard || heard > engine->far->number ||
        (number > wire->wanted && address_bytes == 0)) {
        return false;
    }
    wire->heard = heard;
    if (number > wire->wanted) {
        if (convoy_far_wire_keep(engine, index_of(engine, peer), frame->body + CONVOY_FAR_MOVED_BYTES, address_bytes) !=
            CONVOY_OK) {
            return false;
        }
        wire->wanted = number;
        wire->grace_ns = 0;
        start_wiring(engine, peer);
    }
    check_up(engine, peer);
    return true;
}

void convoy_far_heard(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    struct convoy_far_wire *wire = wire_of(engine, peer);
    struct convoy_frame frame = {.body = NULL};
    int32_t status = CONVOY_OK;
    wire->stream.limit = CONVOY_FAR_MOVED_BYTES + CONVOY_FAR_ADDRESS_BYTES;
    flush(engine, peer);
    for (uint32_t i = 0; status == CONVOY_OK && i < FRAMES_MAX && is_far(engine, peer); i++) {
        wire->stream.fd = peer->tcp_fd;
        status = convoy_frame_recv(&wire->stream, &frame);
        if (status == CONVOY_OK) {
            status = take(engine, peer, &frame) ? CONVOY_OK : CONVOY_MALFORMED;
            convoy_memory_free(frame.body);
        }
    }
    if (status != CONVOY_OK && status != CONVOY_IN_PROGRESS && is_far(engine, peer)) {
        if (status != CONVOY_PEER_LOST) {
            CONVOY_XFER_NOTE(engine, malformed);
        }
        convoy_far_cut(engine, peer);
    }
}

/* -- carrying out -------------------------------------------------------------------------------------------------- */

/* What it is to be connected to by now. false: it is gone. */
static bool wire_look(struct convoy_xfer *engine, uint32_t peer, uint8_t *address_out, size_t *bytes_out, uint64_t *number_out)
{
    convoy_xfer_lock(engine);
    const struct convoy_far_wire *wire = &engine->far->peers[peer].wire;
    bool is_there = is_far(engine, &engine->peers[peer]) && wire->address_bytes <= CONVOY_FAR_ADDRESS_BYTES;
    if (is_there) {
        memcpy(address_out, wire->address, wire->address_bytes);
        *bytes_out = wire->address_bytes;
        *number_out = wire->wanted;
    }
    convoy_xfer_unlock(engine);
    return is_there;
}

void convoy_far_run_wire(struct convoy_xfer *engine, uint32_t peer)
{
    struct convoy_far *far = engine->far;
    struct convoy_far_place *place = &far->peers[peer];
    uint8_t address[CONVOY_FAR_ADDRESS_BYTES];
    size_t bytes = 0;
    uint64_t number = 0;
    convoy_bulk_disconnect(far->bulk, peer);
    bool is_quiet = convoy_far_put_drop(far, peer);
    is_quiet = is_quiet && (far->memory == NULL || convoy_bulk_is_closed(far->bulk, peer));
    far->part_count += !is_quiet && !place->must_wire;
    far->part_count -= is_quiet && place->must_wire;
    place->must_wire = !is_quiet;
    if (!is_quiet || !wire_look(engine, peer, address, &bytes, &number)) {
        return;
    }
    (void)pthread_mutex_lock(&far->lock);
    place->packed_bytes = 0;
    place->has_ours = false;
    (void)pthread_mutex_unlock(&far->lock);
    int32_t status = convoy_bulk_connect(far->bulk, peer, address, bytes, NULL);
    bool is_up = convoy_bulk_is_up(far->bulk, peer);
    (void)pthread_mutex_lock(&far->lock);
    place->is_down = place->is_down && !is_up; /* the old one was meant */
    place->is_wired = true;
    place->wired_status = status;
    place->wired_number = number;
    far->has_words = true;
    (void)pthread_mutex_unlock(&far->lock);
}
