/* SPDX-License-Identifier: Apache-2.0 */
/* The next generation of an engine's pool, and the end of those before it. */
#include "xfer/resize.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "xfer/device_jobs.h"

#include <string.h>

/* -- the host's call ----------------------------------------------------------------------------------------------- */

static int32_t begin(struct convoy_xfer *engine, struct convoy_error *error)
{
    int32_t status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK && engine->options.pool_kind == CONVOY_MEMORY_HOST) {
        status = convoy_error_set(error, CONVOY_UNSUPPORTED, "option pool_kind is HOST: that memory is the host's, which alone "
                                                             "could give more; open another engine");
    }
    if (status == CONVOY_OK && engine->is_resizing) {
        status = convoy_error_set(error, CONVOY_BAD_STATE, "another thread makes generation %llu of this pool",
                                  (unsigned long long)engine->generation + 1);
    }
    engine->is_resizing = engine->is_resizing || status == CONVOY_OK;
    return status;
}

/* Those that a request has stay its own, and return with it; the others end here. */
static void renew_preallocs(struct convoy_xfer *engine, const struct convoy_slot *slots)
{
    for (uint32_t i = 0; i < engine->options.prealloc_count; i++) {
        struct convoy_xfer_prealloc before = engine->preallocs[i];
        engine->preallocs[i] = (struct convoy_xfer_prealloc){
            .slot = slots[i], .written = {.all = before.written.all, .room = before.written.room}};
        if (!before.is_taken) {
            (void)convoy_pool_retire(engine->pool, before.slot.lease, CONVOY_LEASE_END_CLOSED, NULL);
        }
    }
}

static bool is_near(const struct convoy_xfer_peer *peer)
{
    return peer->state == CONVOY_PEER_IS_CONNECTED && peer->lane == &convoy_lane_near;
}

static void want(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_pool_share *share)
{
    if (!engine->options.is_private && convoy_shares_of(&peer->shares, share->generation) == NULL &&
        convoy_shares_add(&peer->shares, share, CONVOY_SHARE_WANTED) != NULL) {
        peer->share_retry_ns = 0;
        convoy_xfer_kick(engine);
    }
}

static void want_current(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    const struct convoy_pool_share share = convoy_pool_current(engine->pool);
    want(engine, peer, &share);
}

static void go_on(struct convoy_xfer *engine, const struct convoy_slot *slots)
{
    uint64_t before = engine->generation;
    engine->generation = convoy_pool_switch(engine->pool);
    engine->introduction.pool_bytes = convoy_pool_bytes(engine->pool);
    convoy_xfer_device_pool_switched(engine);
    renew_preallocs(engine, slots);
    CONVOY_XFER_NOTE(engine, resizes);
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        if (is_near(&engine->peers[i])) {
            want_current(engine, &engine->peers[i]);
        }
    }
    convoy_log_line(&engine->runtime->log, CONVOY_LOG_INFO, "engine %s: pool of %llu bytes, generation %llu after %llu",
                    engine->session, (unsigned long long)convoy_pool_bytes(engine->pool),
                    (unsigned long long)engine->generation, (unsigned long long)before);
}

/* Pinned before anything is taken there, and let go again if the engine closes meanwhile; the device is called without the
 * lock. */
static int32_t make_next(struct convoy_xfer *engine, uint64_t bytes, const struct convoy_pool_request *each,
                         struct convoy_slot *slots, struct convoy_error *error)
{
    int32_t status = convoy_pool_renew(engine->pool, bytes, each, engine->options.prealloc_count, slots, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_xfer_device_pin_next(engine);
    convoy_xfer_lock(engine);
    status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        go_on(engine, slots);
    }
    convoy_xfer_unlock(engine);
    if (status != CONVOY_OK) {
        convoy_pool_undo(engine->pool);
    }
    return status;
}

int32_t convoy_xfer_resize(struct convoy_xfer *engine, uint64_t bytes, struct convoy_error *error)
{
    uint32_t count = engine->options.prealloc_count;
    const struct convoy_pool_request each = {.owner = {"preallocated", 12, 1},
                                             .bytes = engine->options.prealloc_bytes,
                                             .now_ns = convoy_now_ns(),
                                             .deadline_ns = CONVOY_LEASE_NEVER};
    struct convoy_slot *slots = count != 0 ? convoy_memory_array(count, sizeof *slots) : NULL;
    if (count != 0 && slots == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u preallocated slots", count);
    }
    convoy_xfer_lock(engine);
    int32_t status = begin(engine, error);
    convoy_xfer_unlock(engine);
    if (status == CONVOY_OK) {
        convoy_xfer_reap(engine);
        status = make_next(engine, bytes, &each, slots, error);
        convoy_xfer_lock(engine);
        engine->is_resizing = false;
        convoy_xfer_unlock(engine);
    }
    convoy_memory_free(slots);
    return status == CONVOY_OK ? CONVOY_OK : convoy_error_prefix(error, status, "pool_resize");
}

/* -- what a peer may be told --------------------------------------------------------------------------------------- */

void convoy_xfer_shares_begin(struct convoy_xfer *engine, struct convoy_xfer_peer *peer,
                              const struct convoy_xfer_joined *joined)
{
    memcpy(peer->nonce, joined->nonce, sizeof peer->nonce);
    memcpy(peer->socket, joined->introduction->socket, sizeof peer->socket);
    peer->target = joined->target;
    (void)convoy_shares_add(&peer->shares, &joined->shared, CONVOY_SHARE_TAKEN);
    if (joined->shared.generation != engine->generation) { /* it was resized while the two connected */
        want_current(engine, peer);
    }
}

/* Where in the own pool the peer would look for what this says. false: nowhere. */
static bool names(struct convoy_xfer *engine, const struct convoy_ring_entry *entry, uint64_t *offset_out)
{
    struct convoy_xfer_notice notice;
    const struct convoy_xfer_entry *loan;
    if (!convoy_xfer_notice_unpack(entry, &notice)) {
        return false;
    }
    if (notice.type == CONVOY_SAY_OFFER) {
        *offset_out = notice.body.offer.offset;
        return notice.body.offer.bytes != 0;
    }
    if (notice.type == CONVOY_SAY_RAW) {
        *offset_out = notice.body.raw.offset;
        return notice.body.raw.bytes != 0;
    }
    loan = notice.type == CONVOY_SAY_GRANT ? convoy_xfer_entry_find(engine, notice.body.reply.serial, NULL) : NULL;
    *offset_out = loan != NULL ? loan->slot.offset : 0;
    return loan != NULL && loan->payload_bytes != 0;
}

bool convoy_xfer_share_sees(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ring_entry *entry)
{
    struct convoy_pool_share generation;
    uint64_t offset;
    if (engine->generation == 1 || engine->options.is_private || CONVOY_MUTATED(share_not_awaited) || !is_near(peer) ||
        !names(engine, entry, &offset)) {
        return true;
    }
    const struct convoy_share *share = convoy_shares_at(&peer->shares, offset);
    if (share == NULL && convoy_pool_generation_at(engine->pool, offset, &generation)) { /* older than the connection */
        want(engine, peer, &generation);
        return false;
    }
    return share == NULL || share->state == CONVOY_SHARE_TAKEN || share->state == CONVOY_SHARE_REFUSED;
}

/* -- the end of one ------------------------------------------------------------------------------------------------ */

static void say_forget(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t generation)
{
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_FORGET};
    notice.body.forget =
        (struct convoy_forget){.generation = generation, .oldest = convoy_shares_oldest(&peer->shares)};
    if (!CONVOY_MUTATED(forget_not_said)) {
        convoy_xfer_say(engine, peer, &notice);
    }
}

void convoy_xfer_share_end(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t generation)
{
    struct convoy_share *share = convoy_shares_of(&peer->shares, generation);
    bool has_it = share != NULL && share->state == CONVOY_SHARE_TAKEN;
    if (share != NULL) {
        (void)convoy_share_move(&peer->shares, share, CONVOY_SHARE_NONE);
    }
    if (has_it) {
        say_forget(engine, peer, generation);
    }
}

void convoy_xfer_share_late(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t generation)
{
    CONVOY_XFER_NOTE(engine, generations_late);
    say_forget(engine, peer, generation);
}

void convoy_xfer_reap(struct convoy_xfer *engine)
{
    uint64_t ended[CONVOY_POOL_GENERATIONS];
    if (engine->device != NULL && !convoy_xfer_device_may_call(engine)) { /* which unpins them: a host thread comes */
        return;
    }
    uint32_t count = convoy_pool_reap(engine->pool, ended);
    convoy_xfer_lock(engine);
    for (uint32_t i = 0; count != 0 && i < engine->peer_top; i++) {
        for (uint32_t k = 0; is_near(&engine->peers[i]) && k < count; k++) {
            convoy_xfer_share_end(engine, &engine->peers[i], ended[k]);
        }
    }
    convoy_xfer_unlock(engine);
}

void convoy_xfer_on_forget(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_forget *forget)
{
    if (peer->lane->is_far || peer->view == NULL) {
        CONVOY_XFER_NOTE(engine, malformed);
        return;
    }
    if (convoy_view_forget(peer->view, forget->generation, forget->oldest) == 0) {
        CONVOY_XFER_NOTE(engine, generations_late);
    }
}
