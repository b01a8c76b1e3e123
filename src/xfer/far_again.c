/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path to a peer is up again, over new endpoints: what was under way over the old ones may have come or not, and is said
 * again at once. Who has it already answers from what it remembers.
 *
 *   OFFER     by its sender: ROOM, TAKEN or nothing comes of it          TAKEN   answer to the OFFER
 *   ASK       by the loader                                              GRANT   answer to the ASK, and by the lender
 *   ROOM      by the receiver, for a landing that begins anew            PUT     answer to the ROOM
 *   RAW       by its sender, and begins anew                             RAW_DONE, BACK   answer to the RAW
 *   QUERY     by who asks                                                ANSWER  answer to the QUERY
 *   WITHDRAW  answer to the ROOM of what was given up; else by time      GOODBYE, CLOSED  wait until the path is up
 */
#include "xfer/far.h"
#include "xfer/raw.h"

static void load_again(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->state == CONVOY_TRANSFER_WAITING && !entry->is_accepting) {
        convoy_xfer_load_again(engine, entry);
    } else if (entry->state == CONVOY_TRANSFER_LOADING && entry->landing != CONVOY_LANDING_NONE &&
               convoy_landing_renew(engine->far->landings, entry->landing, &entry->landing_generation)) {
        convoy_far_load_room(engine, entry);
    }
}

static void entry_again(struct convoy_xfer *engine, struct convoy_xfer_entry *entry)
{
    if (entry->kind == CONVOY_XFER_LOAD) {
        load_again(engine, entry);
    } else if (entry->kind == CONVOY_XFER_SEND && entry->state == CONVOY_TRANSFER_OFFERED) {
        convoy_xfer_send_repeat(engine, entry);
    }
}

/* ROOM that was to be said on an earlier path is of a landing that has ended, or is said again. */
static void drop_rooms(struct convoy_xfer_peer *peer)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < peer->backlog_count; i++) {
        const struct convoy_ring_entry entry = peer->backlog[(peer->backlog_first + i) % peer->backlog_room];
        if (entry.type != CONVOY_SAY_ROOM) {
            peer->backlog[(peer->backlog_first + kept++) % peer->backlog_room] = entry;
        }
    }
    peer->backlog_count = kept;
}

void convoy_far_say_again(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    peer->is_shy = false;
    convoy_far_rma_settle(engine, index);
    convoy_far_hello(engine, peer);
    drop_rooms(peer);
    convoy_xfer_peer_flush(engine, peer);
    convoy_far_raw_rooms(engine, index);
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        if (engine->entries[at].peer == index) {
            entry_again(engine, &engine->entries[at]);
        }
    }
    for (struct convoy_xfer_order *order = engine->orders; order != NULL; order = order->next) {
        if (order->peer == index && order->generation == peer->generation && !order->is_done) {
            convoy_xfer_order_again(engine, order);
        }
    }
    convoy_xfer_kick(engine);
}
