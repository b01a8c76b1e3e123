/* SPDX-License-Identifier: Apache-2.0 */
/* What a host thread asks of a peer and waits for: questions about requests, and raw orders. */
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "xfer/far.h"
#include "xfer/raw.h"

void convoy_xfer_order_add(struct convoy_xfer *engine, struct convoy_xfer_order *order)
{
    order->cookie = ++engine->order_count << 32; /* no transfer's handle has these low bits */
    order->since_ns = convoy_now_ns();
    order->generation = engine->peers[order->peer].generation;
    order->is_done = order->is_failed = false;
    order->next = engine->orders;
    engine->orders = order;
}

static void order_remove(struct convoy_xfer *engine, const struct convoy_xfer_order *order)
{
    struct convoy_xfer_order **at = &engine->orders;
    while (*at != order) {
        at = &(*at)->next;
    }
    *at = order->next;
}

uint64_t convoy_xfer_order_deadline(const struct convoy_xfer *engine, uint64_t timeout_ns)
{
    return convoy_deadline_after(convoy_now_ns(), timeout_ns != 0 ? timeout_ns : engine->options.timeout_ns);
}

int32_t convoy_xfer_order_wait(struct convoy_xfer *engine, struct convoy_xfer_order *order, uint64_t deadline_ns,
                               struct convoy_error *error)
{
    struct convoy_xfer_pausing pausing = {0};
    const struct convoy_xfer_peer *peer = &engine->peers[order->peer];
    int32_t status = CONVOY_IN_PROGRESS;
    while (status == CONVOY_IN_PROGRESS) {
        uint64_t now = convoy_now_ns();
        engine->attended_ns = now;
        convoy_xfer_pump(engine);
        if (order->is_done) {
            status = CONVOY_OK;
        } else if (order->is_failed) {
            status = convoy_error_set(error, CONVOY_PEER_ERROR, "peer %s did not take the bytes", peer->session);
        } else if (peer->state != CONVOY_PEER_IS_CONNECTED || peer->generation != order->generation) {
            status = convoy_error_set(error, CONVOY_PEER_LOST, "the peer went away before it answered");
        } else if (engine->state != CONVOY_ENGINE_OPEN) {
            status = convoy_error_set(error, CONVOY_CLOSED, "the engine was closed meanwhile");
        } else if (now >= deadline_ns) {
            status = convoy_error_set(error, CONVOY_TIMED_OUT, "peer %s did not answer in %llu ms", peer->session,
                                      (unsigned long long)((now - order->since_ns) / CONVOY_NS_PER_MS));
        } else {
            convoy_xfer_pause(engine, deadline_ns, false, &pausing);
        }
    }
    order_remove(engine, order);
    if (order->window != NULL && order->window->is_far) {
        convoy_far_order_ended(engine, order);
    }
    return status;
}

void convoy_xfer_order_again(struct convoy_xfer *engine, struct convoy_xfer_order *order)
{
    if (order->window != NULL) {
        convoy_raw_say_again(engine, order->window);
        return;
    }
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_QUERY};
    notice.body.ask = (struct convoy_ask){.cookie = order->cookie, .digest = order->digest, .attempt = order->attempt};
    convoy_xfer_say(engine, &engine->peers[order->peer], &notice);
}

static struct convoy_xfer_order *order_find(struct convoy_xfer *engine, const struct convoy_xfer_peer *peer, uint64_t cookie)
{
    struct convoy_xfer_order *order = engine->orders;
    while (order != NULL && ((order->cookie != cookie && !CONVOY_MUTATED(cookie_ignored)) ||
                             order->peer != (uint32_t)(peer - engine->peers))) {
        order = order->next;
    }
    return order;
}

void convoy_xfer_on_answer(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_reply *reply)
{
    struct convoy_xfer_order *order = order_find(engine, peer, reply->cookie);
    if (order != NULL) {
        order->reply = *reply;
        order->is_done = true;
        convoy_xfer_wake(engine);
    } else if (!convoy_raw_given_back(engine, (uint32_t)(peer - engine->peers), reply->cookie)) {
        convoy_xfer_on_reply(engine, peer, CONVOY_SAY_TAKEN, reply); /* a send to an address */
    }
}

/* Whoever is gone, or did not carry the order out, only gives back what it could read. */
bool convoy_xfer_order_back(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_reply *reply)
{
    struct convoy_xfer_order *order = order_find(engine, peer, reply->serial);
    if (order != NULL && order->window != NULL) {
        order->reply = *reply;
        order->reply.status = reply->status < 0 ? reply->status : CONVOY_PEER_LOST;
        order->is_done = true;
        convoy_xfer_wake(engine);
        return true;
    }
    return convoy_raw_given_back(engine, (uint32_t)(peer - engine->peers), reply->serial);
}
