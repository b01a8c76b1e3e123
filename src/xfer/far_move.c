/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What there is for peers on other hosts moves to another build: all but UCX's. Bulk stays with the exporter, stands still from
 * freeze on, and is closed by retire; the importer opens one of its own, which peers hear of over the TCP connections that they
 * still hold (xfer/far_rewire.h).
 *
 *   exporter   running --is_still--> halting: no put is begun --freeze--> frozen --retire--> (none)
 *                 ^---------------------- thaw: goes on with its bulk ------'
 *   importer   (none) --restore--> without a bulk --thaw: opens one--> running, each path down until its peer has answered
 *                                        '--discard--> (none)
 */
#include "xfer/far.h"
#include "xfer/move.h"
#include "xfer/raw.h"

#include "core/clock.h"
#include "core/error.h"

/* -- standing still ------------------------------------------------------------------------------------------------ */

/* What has been written down, or is told of and not yet taken. */
static bool is_flushed(struct convoy_far *far)
{
    (void)pthread_mutex_lock(&far->lock);
    bool is = far->first_command == NULL && !far->is_flushing && far->news == NULL && far->part_count == 0;
    (void)pthread_mutex_unlock(&far->lock);
    return is;
}

static uint32_t count_puts(const struct convoy_far *far)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < far->push_count; i++) {
        const struct convoy_far_push *push = &far->pushes[i];
        count += push->is_used && push->source.is_put && !push->is_told;
    }
    return count;
}

static uint32_t count_closing(const struct convoy_far *far)
{
    uint32_t count = 0;
    for (const struct convoy_far_raw *raw = far->raws; raw != NULL; raw = raw->next) {
        count += raw->is_closing;
    }
    return count;
}

static const struct convoy_xfer_peer *find_parting(const struct convoy_xfer *engine)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        if (engine->peers[i].state != 0 && engine->peers[i].is_parting) {
            return &engine->peers[i];
        }
    }
    return NULL;
}

/* Streams of chunks are not waited for: they begin anew. */
bool convoy_far_is_still(struct convoy_xfer *engine, char *why_out)
{
    struct convoy_far *far = engine->far;
    const struct convoy_xfer_peer *parting = find_parting(engine);
    far->is_halting = true;
    uint32_t puts = count_puts(far);
    uint32_t closing = count_closing(far);
    if (puts != 0) {
        (void)snprintf(why_out, CONVOY_XFER_STILL_BYTES, "%u puts into memory on other hosts are under way", puts);
    } else if (parting != NULL) {
        (void)snprintf(why_out, CONVOY_XFER_STILL_BYTES, "the connection to peer %.96s is being ended", parting->session);
    } else if (closing != 0) {
        (void)snprintf(why_out, CONVOY_XFER_STILL_BYTES, "chunks of %u orders of peers are being copied", closing);
    } else if (!is_flushed(far)) {
        (void)snprintf(why_out, CONVOY_XFER_STILL_BYTES, "words to peers on other hosts are on their way to UCX");
    } else {
        return true;
    }
    return false;
}

/* Nobody makes bulk progress from here on: no chunk goes, none lands. */
int32_t convoy_far_freeze(struct convoy_xfer *engine, struct convoy_error *error)
{
    (void)error;
    convoy_far_opener_join(engine);
    return CONVOY_OK;
}

/* -- going on ------------------------------------------------------------------------------------------------------ */

static bool is_far(const struct convoy_xfer_peer *peer)
{
    return peer->state == CONVOY_PEER_IS_CONNECTED && peer->lane == &convoy_lane_far;
}

/* The new bulk is connected to none yet; the progress thread makes the endpoints and tells them. */
static void wire_all(struct convoy_xfer *engine)
{
    convoy_xfer_lock(engine);
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        if (!is_far(peer)) {
            continue;
        }
        convoy_far_path_down(engine, peer);
        engine->far->peers[i].wire.number = CONVOY_FAR_UNWIRED;
        if (peer->tcp_fd < 0) { /* it was cut off before: its last words had their time */
            engine->far->cut_count += peer->cut_ns == 0;
            peer->cut_ns = 1;
        } else {
            convoy_far_wire_again(engine, i);
        }
    }
    engine->must_flush = false; /* not by this thread */
    convoy_xfer_unlock(engine);
}

int32_t convoy_far_thaw(struct convoy_xfer *engine, struct convoy_error *error)
{
    struct convoy_far *far = engine->far;
    far->is_halting = false;
    if (far->bulk != NULL) {
        return CONVOY_OK;
    }
    int32_t status = convoy_far_open_bulk(engine, far, error);
    if (status == CONVOY_OK) {
        far->number++;
        wire_all(engine);
    }
    return status;
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

static void close_keys(struct convoy_far *far)
{
    for (uint32_t i = 0; i < far->peer_count; i++) {
        (void)convoy_bulk_key_close(far->peers[i].key, NULL); /* none is in use: no put is under way */
        far->peers[i].key = NULL;
    }
}

/* What has not gone stays unsaid: it is said again elsewhere. */
void convoy_far_retire(struct convoy_xfer *engine)
{
    struct convoy_far *far = engine->far;
    close_keys(far);
    convoy_bulk_memory_close(far->memory);
    convoy_bulk_close(far->bulk, 0);
    convoy_far_rma_forget(engine, CONVOY_XFER_NOBODY);
    convoy_far_raw_forget(engine);
    convoy_far_destroy(far);
    engine->far = NULL;
}

/* One that was thawed, and then given up, has a bulk. */
void convoy_far_discard(struct convoy_xfer *engine)
{
    convoy_far_retire(engine);
}
