/* SPDX-License-Identifier: Apache-2.0 */
/* What orders of host threads hold, and until when. */
#include "xfer/far.h"
#include "xfer/raw.h"

#include "core/clock.h"
#include "core/fault.h"
#include "core/memory.h"

#define WINDOWS_KEPT 16u
#define ASK_BACK_NS CONVOY_NS_PER_S /* how often a peer is asked for what it has not given back */

static void reset(struct convoy_xfer *engine, struct convoy_raw_window *window)
{
    window->next = NULL;
    window->order = (struct convoy_xfer_order){.window = window};
    window->pool = engine->pool;
    window->is_far = window->is_direct = window->is_said = window->is_given_room = false;
    window->bytes = window->block_used = 0;
    window->count = window->lease_count = 0;
    window->block = window->note = (struct convoy_slot){.lease = CONVOY_LEASE_NONE};
    window->streams[0] = window->streams[1] = 0;
}

struct convoy_raw_window *convoy_raw_window_take(struct convoy_xfer *engine)
{
    struct convoy_raw_window *window = engine->windows;
    if (window != NULL) {
        engine->windows = window->next;
        engine->window_count--;
    } else {
        window = convoy_memory_zalloc(sizeof *window);
    }
    if (window != NULL) {
        reset(engine, window);
    }
    return window;
}

void convoy_raw_window_put(struct convoy_xfer *engine, struct convoy_raw_window *window)
{
    if (engine->window_count >= WINDOWS_KEPT) {
        convoy_memory_free(window);
        return;
    }
    window->next = engine->windows;
    engine->windows = window;
    engine->window_count++;
}

void convoy_raw_window_clear(struct convoy_xfer *engine, struct convoy_raw_window *window)
{
    uint32_t peer = window->order.peer;
    for (uint32_t i = 0; i < window->lease_count; i++) {
        (void)convoy_pool_unrefer(window->pool, window->leases[i], peer, CONVOY_REFERENCE_DEVICE, NULL);
    }
    for (uint32_t i = 0; i < window->count; i++) {
        if (window->is_range[i]) {
            convoy_xfer_range_use(engine, (uint64_t)(uintptr_t)window->pieces[i].data, false);
        }
    }
    if (window->block.lease != CONVOY_LEASE_NONE) {
        (void)convoy_pool_unrefer(window->pool, window->block.lease, peer, CONVOY_REFERENCE_DEVICE, NULL);
        (void)convoy_pool_retire(window->pool, window->block.lease, CONVOY_LEASE_END_RELEASED, NULL);
    }
    if (window->note.lease != CONVOY_LEASE_NONE) {
        (void)convoy_pool_retire(engine->notes, window->note.lease, CONVOY_LEASE_END_RELEASED, NULL);
    }
    reset(engine, window);
    window->order.peer = peer;
}

/* -- held ---------------------------------------------------------------------------------------------------------- */

static void ask_back(struct convoy_xfer *engine, const struct convoy_raw_window *window)
{
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_WITHDRAW};
    notice.body.reply = (struct convoy_reply){.serial = window->order.cookie, .status = CONVOY_TIMED_OUT};
    convoy_xfer_say(engine, &engine->peers[window->order.peer], &notice);
}

static void set_timer(struct convoy_xfer *engine)
{
    engine->held_ns = convoy_deadline_after(convoy_now_ns(), ASK_BACK_NS);
    convoy_xfer_timer(engine, engine->held_ns);
}

void convoy_raw_window_hold(struct convoy_xfer *engine, struct convoy_raw_window *window)
{
    if (window->block.lease != CONVOY_LEASE_NONE) { /* quarantined from here on: the peer's reference is what keeps it */
        (void)convoy_pool_retire(window->pool, window->block.lease, CONVOY_LEASE_END_EXPIRED, NULL);
    }
    engine->peers[window->order.peer].entries++;
    window->next = engine->held;
    engine->held = window;
    if (!window->is_far) {
        ask_back(engine, window);
        set_timer(engine);
    }
}

/* The next one of a peer; cookie 0: whichever. One between hosts is not the peer's to give back. */
static struct convoy_raw_window *unlink_held(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie, bool is_far)
{
    for (struct convoy_raw_window **at = &engine->held; *at != NULL; at = &(*at)->next) {
        struct convoy_raw_window *window = *at;
        if (window->order.peer == peer && (cookie == 0 || (window->order.cookie == cookie && window->is_far == is_far &&
                                                           !convoy_far_order_reads(engine, window)))) {
            *at = window->next;
            return window;
        }
    }
    return NULL;
}

static void end_held(struct convoy_xfer *engine, struct convoy_raw_window *window)
{
    engine->peers[window->order.peer].entries--;
    convoy_raw_window_clear(engine, window);
    convoy_raw_window_put(engine, window);
}

bool convoy_raw_given_back(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie)
{
    struct convoy_raw_window *window = cookie != 0 ? unlink_held(engine, peer, cookie, false) : NULL;
    if (window != NULL) {
        end_held(engine, window);
    }
    return window != NULL;
}

void convoy_raw_window_released(struct convoy_xfer *engine, uint32_t peer, uint64_t cookie)
{
    struct convoy_raw_window *window = unlink_held(engine, peer, cookie, true);
    if (window != NULL) {
        end_held(engine, window);
        convoy_xfer_peer_free(engine, &engine->peers[peer]);
    }
}

bool convoy_raw_is_out(const struct convoy_xfer *engine, uint32_t peer)
{
    for (const struct convoy_raw_window *window = engine->held; window != NULL; window = window->next) {
        if (window->order.peer == peer) {
            return true;
        }
    }
    for (const struct convoy_xfer_order *order = engine->orders; order != NULL; order = order->next) {
        if (order->window != NULL && order->peer == peer && !order->is_done) {
            return true;
        }
    }
    return false;
}

void convoy_raw_drop_peer(struct convoy_xfer *engine, uint32_t peer)
{
    struct convoy_raw_window *window;
    while ((window = unlink_held(engine, peer, 0, false)) != NULL) {
        end_held(engine, window);
    }
}

void convoy_raw_timers(struct convoy_xfer *engine, uint64_t now_ns)
{
    if (engine->held == NULL) {
        return;
    }
    if (engine->held_ns > now_ns) {
        convoy_xfer_timer(engine, engine->held_ns);
        return;
    }
    for (const struct convoy_raw_window *window = engine->held; window != NULL; window = window->next) {
        if (!window->is_far) {
            ask_back(engine, window);
        }
    }
    set_timer(engine);
}

static void free_windows(struct convoy_raw_window *window)
{
    while (window != NULL) {
        struct convoy_raw_window *next = window->next;
        convoy_memory_free(window);
        window = next;
    }
}

void convoy_raw_destroy(struct convoy_xfer *engine)
{
    free_windows(engine->windows);
    free_windows(engine->held);
    engine->windows = engine->held = NULL;
    while (engine->copies_free != NULL) {
        struct convoy_raw_copy *copy = engine->copies_free;
        engine->copies_free = copy->next;
        convoy_memory_free(copy->pieces);
        convoy_memory_free(copy->targets);
        convoy_memory_free(copy->extents);
        convoy_memory_free(copy->room);
        convoy_memory_free(copy);
    }
}
