/* SPDX-License-Identifier: Apache-2.0 */
/* What peers say, taken and handed to whom it concerns. */
#include "core/fault.h"
#include "xfer/far.h"
#include "xfer/raw.h"
#include "xfer/resize.h"

#define TAKE_MAX 256u /* messages of one peer before the next one's turn */

static void dispatch(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_xfer_notice *notice)
{
    switch (notice->type) {
    case CONVOY_SAY_OFFER:
        convoy_xfer_on_offer(engine, peer, &notice->body.offer);
        break;
    case CONVOY_SAY_TAKEN:
    case CONVOY_SAY_BACK:
        convoy_xfer_on_reply(engine, peer, notice->type, &notice->body.reply);
        break;
    case CONVOY_SAY_WITHDRAW:
        convoy_xfer_on_withdraw(engine, peer, &notice->body.reply);
        break;
    case CONVOY_SAY_ASK:
        convoy_xfer_on_ask(engine, peer, &notice->body.ask);
        break;
    case CONVOY_SAY_GRANT:
        convoy_xfer_on_grant(engine, peer, &notice->body.reply);
        break;
    case CONVOY_SAY_RAW:
        convoy_raw_on_order(engine, peer, &notice->body.raw);
        break;
    case CONVOY_SAY_RAW_LIST:
        convoy_raw_on_list(engine, peer, &notice->body.list);
        break;
    case CONVOY_SAY_RAW_DONE:
    case CONVOY_SAY_ANSWER:
        convoy_xfer_on_answer(engine, peer, &notice->body.reply);
        break;
    case CONVOY_SAY_QUERY:
        convoy_xfer_on_query(engine, peer, &notice->body.ask);
        break;
    case CONVOY_SAY_GOODBYE:
        convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_CLOSED, false);
        break;
    case CONVOY_SAY_CLOSED: /* far: what goes out is read here, whatever the peer says; it ends with the connection */
        convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_CLOSED, !peer->lane->is_far && !CONVOY_MUTATED(closed_not_believed));
        break;
    case CONVOY_SAY_ROOM:
        convoy_far_on_room(engine, peer, &notice->body.room);
        break;
    case CONVOY_SAY_HELLO:
        peer->is_shy = false;
        convoy_far_hello(engine, peer);
        break;
    case CONVOY_SAY_PUT:
        convoy_far_on_put(engine, peer, &notice->body.put);
        break;
    case CONVOY_SAY_STAGED:
        convoy_xfer_on_staged(engine, peer, notice->body.reply.serial);
        break;
    case CONVOY_SAY_FORGET:
        convoy_xfer_on_forget(engine, peer, &notice->body.forget);
        break;
    case CONVOY_SAY_NONE:
    case CONVOY_SAY_TYPES:
        break;
    }
}

/* What one has said that is gone by now: nothing of it is read. */
static void give_back_unread(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_xfer_notice *notice)
{
    struct convoy_xfer_notice back = {.type = CONVOY_SAY_BACK};
    uint64_t serial = notice->type == CONVOY_SAY_OFFER      ? notice->body.offer.serial
                      : notice->type == CONVOY_SAY_RAW      ? notice->body.raw.cookie
                      : notice->type == CONVOY_SAY_RAW_LIST ? notice->body.list.cookie
                      : notice->type == CONVOY_SAY_GRANT    ? notice->body.reply.serial
                                                            : 0;
    back.body.reply = (struct convoy_reply){.serial = serial, .status = CONVOY_PEER_LOST};
    if (serial != 0) {
        convoy_xfer_say(engine, peer, &back);
    }
}

bool convoy_xfer_take(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ring_entry *entry)
{
    struct convoy_xfer_notice notice;
    bool is_gone = peer->state != CONVOY_PEER_IS_CONNECTED;
    if (entry == NULL || !convoy_xfer_notice_unpack(entry, &notice)) {
        if (!is_gone) {
            CONVOY_XFER_NOTE(engine, malformed);
            convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, false);
        }
        return false;
    }
    /* What comes from one that is gone only gives back. */
    bool gives_back = notice.type == CONVOY_SAY_BACK || notice.type == CONVOY_SAY_TAKEN ||
                      notice.type == CONVOY_SAY_RAW_DONE || notice.type == CONVOY_SAY_CLOSED;
    if (!is_gone || gives_back) {
        dispatch(engine, peer, &notice);
        convoy_xfer_peer_free(engine, peer);
    } else {
        give_back_unread(engine, peer, &notice);
    }
    return true;
}

void convoy_xfer_hear_peer(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    struct convoy_ring_entry entry;
    convoy_xfer_peer_flush(engine, peer);
    for (uint32_t i = 0; i < TAKE_MAX && peer->ring_memory != NULL; i++) {
        enum convoy_ring_status status = convoy_ring_take(&peer->ring, &entry);
        if (status == CONVOY_RING_EMPTY) {
            return;
        }
        if (!convoy_xfer_take(engine, peer, status == CONVOY_RING_OK ? &entry : NULL)) {
            return;
        }
    }
}

void convoy_xfer_hear(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        if (engine->peers[i].ring_memory != NULL) {
            convoy_xfer_hear_peer(engine, &engine->peers[i]);
        }
    }
}
