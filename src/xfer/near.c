/* SPDX-License-Identifier: Apache-2.0 */
/* Peers on this host: notices through the shared ring, payloads read where they lie. */
#include "xfer/resize.h"

#include <unistd.h>

static bool put(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ring_entry *entry)
{
    const uint64_t one = 1;
    bool must_wake = false;
    if (!convoy_xfer_share_sees(engine, peer, entry)) {
        return false;
    }
    enum convoy_ring_status status = convoy_ring_put(&peer->ring, entry, &must_wake);
    if (status == CONVOY_RING_OK && must_wake) {
        (void)!write(peer->wake_fd, &one, sizeof one);
    }
    return status != CONVOY_RING_FULL; /* MALFORMED: whoever takes next finds out */
}

/* What was lent comes back with the reader's word. */
static void send_ended(struct convoy_xfer *engine, struct convoy_xfer_entry *send)
{
    (void)engine;
    (void)send;
}

static bool part(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    (void)engine;
    (void)peer;
    return false;
}

const struct convoy_lane convoy_lane_near = {
    .name = "near",
    .may_be_early = true,
    .put = put,
    .load = convoy_xfer_load_near,
    .send_ended = send_ended,
    .part = part,
};
