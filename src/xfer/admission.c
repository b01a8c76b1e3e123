/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/admission.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "xfer/parts.h"

/* -- the rule ------------------------------------------------------------------------------------------------------ */

bool convoy_admission_fits(const struct convoy_admission_load *load, struct convoy_admission_limit limit, uint64_t bytes)
{
    bool has_place = limit.count == 0 || load->under_way < limit.count;
    bool has_room = limit.bytes == 0 || load->under_way == 0 ||
                    (load->under_way_bytes <= limit.bytes && bytes <= limit.bytes - load->under_way_bytes);
    return has_place && has_room;
}

/* The best of those whose peer has room. One that waits for the engine's own room is not overtaken by smaller ones. */
static struct convoy_xfer_entry *next_one(struct convoy_xfer *engine)
{
    const struct convoy_xfer_admission *own = &engine->admission;
    const struct convoy_waiting_node *best = NULL;
    for (uint32_t i = 0; own->load.waiting != 0 && i < engine->peer_top; i++) {
        const struct convoy_xfer_peer *peer = &engine->peers[i];
        const struct convoy_waiting_node *head = peer->admission.queue.head;
        if (head == NULL || peer->state != CONVOY_PEER_IS_CONNECTED ||
            (best != NULL && convoy_waiting_is_before(best, head, own->limits.age_ns))) {
            continue;
        }
        bool has_room = convoy_admission_fits(&peer->admission.load, convoy_admission_of_peer(own),
                                              engine->entries[head->index].payload_bytes);
        best = has_room || CONVOY_MUTATED(peer_room_ignored) ? head : best;
    }
    struct convoy_xfer_entry *send = best != NULL ? &engine->entries[best->index] : NULL;
    bool has_room = send != NULL &&
                    convoy_admission_fits(&own->load, convoy_admission_of_engine(own), send->payload_bytes);
    return has_room ? send : NULL;
}

/* -- places -------------------------------------------------------------------------------------------------------- */

static void begin_wait(struct convoy_xfer *engine, struct convoy_xfer_entry *send, uint64_t bytes)
{
    struct convoy_xfer_admission_peer *peer = &engine->peers[send->peer].admission;
    send->place = CONVOY_XFER_PLACE_WAITING;
    send->payload_bytes = bytes;
    send->wait.index = send->index;
    engine->entries[send->source].waits++;
    engine->admission.load.waiting++;
    engine->admission.load.waiting_bytes += bytes;
    peer->load.waiting++;
    peer->load.waiting_bytes += bytes;
    convoy_waiting_insert(&peer->queue, &send->wait, engine->admission.limits.age_ns);
}

static void end_wait(struct convoy_xfer *engine, struct convoy_xfer_entry *send)
{
    struct convoy_xfer_admission *own = &engine->admission;
    struct convoy_xfer_admission_peer *peer = &engine->peers[send->peer].admission;
    convoy_waiting_remove(&peer->queue, &send->wait, own->limits.age_ns);
    own->load.waiting--;
    own->load.waiting_bytes -= send->payload_bytes;
    peer->load.waiting--;
    peer->load.waiting_bytes -= send->payload_bytes;
    engine->entries[send->source].waits--;
    send->place = CONVOY_XFER_PLACE_STAGING;
}

static void go_under_way(struct convoy_xfer *engine, struct convoy_xfer_entry *send)
{
    struct convoy_admission_load *peer = &engine->peers[send->peer].admission.load;
    send->place = CONVOY_XFER_PLACE_UNDER_WAY;
    engine->admission.load.under_way++;
    engine->admission.load.under_way_bytes += send->payload_bytes;
    peer->under_way++;
    peer->under_way_bytes += send->payload_bytes;
}

static void leave_way(struct convoy_xfer *engine, struct convoy_xfer_entry *send)
{
    struct convoy_admission_load *peer = &engine->peers[send->peer].admission.load;
    engine->admission.load.under_way--;
    engine->admission.load.under_way_bytes -= send->payload_bytes;
    peer->under_way--;
    peer->under_way_bytes -= send->payload_bytes;
}

static void stop_waiting(struct convoy_xfer *engine, struct convoy_xfer_entry *send)
{
    uint64_t waited = convoy_now_ns() - send->wait.since_ns;
    engine->admission.longest_ns = waited > engine->admission.longest_ns ? waited : engine->admission.longest_ns;
    end_wait(engine, send);
    convoy_xfer_stage_let_go(engine, &engine->entries[send->source]);
}

void convoy_xfer_admission_moved(struct convoy_xfer *engine, struct convoy_xfer_entry *send)
{
    switch (send->place) {
    case CONVOY_XFER_PLACE_NONE:
        return;
    case CONVOY_XFER_PLACE_WAITING:
        stop_waiting(engine, send);
        engine->admission.queued--;
        break;
    case CONVOY_XFER_PLACE_STAGING:
        engine->admission.queued--;
        break;
    case CONVOY_XFER_PLACE_UNDER_WAY:
        leave_way(engine, send);
        break;
    }
    send->place = CONVOY_XFER_PLACE_NONE;
    if (send->state == CONVOY_TRANSFER_OFFERED) {
        go_under_way(engine, send);
    }
    engine->admission.is_due = engine->admission.load.waiting != 0;
}

/* -- the queue ----------------------------------------------------------------------------------------------------- */

bool convoy_xfer_admission_is_full(const struct convoy_xfer *engine)
{
    const struct convoy_xfer_admission *own = &engine->admission;
    return own->limits.waiting_max != 0 && own->queued >= own->limits.waiting_max;
}

int32_t convoy_xfer_admission_enter(struct convoy_xfer *engine, struct convoy_error *error)
{
    char figures[CONVOY_ADMISSION_TEXT_BYTES];
    if (convoy_xfer_admission_is_full(engine) && !CONVOY_MUTATED(overload_ignored)) {
        CONVOY_XFER_NOTE(engine, overloaded);
        convoy_admission_text(&engine->admission.load, convoy_admission_of_engine(&engine->admission), figures);
        return convoy_error_set(error, CONVOY_OVERLOADED, "%u sends are waiting, admission allows %u; %s",
                                engine->admission.queued, engine->admission.limits.waiting_max, figures);
    }
    engine->admission.queued++;
    return CONVOY_OK;
}

void convoy_xfer_admission_leave(struct convoy_xfer *engine)
{
    engine->admission.queued--;
}

bool convoy_xfer_admission_ask(struct convoy_xfer *engine, struct convoy_xfer_entry *send, uint64_t bytes, bool is_early)
{
    struct convoy_xfer_admission *own = &engine->admission;
    if (!own->is_limited && own->load.waiting == 0) {
        return true;
    }
    if (send->place != CONVOY_XFER_PLACE_STAGING) { /* it waits already */
        return false;
    }
    send->wait.since_ns = convoy_now_ns();
    send->wait.order = ++own->order;
    begin_wait(engine, send, bytes);
    bool may_go = next_one(engine) == send;
    if (may_go || is_early) { /* offering it takes it out of its place */
        end_wait(engine, send);
    }
    own->is_due = own->is_due || !may_go;
    return may_go;
}

void convoy_xfer_admission_run(struct convoy_xfer *engine)
{
    struct convoy_xfer_entry *send;
    if (engine->is_parked || !engine->admission.is_due) {
        return;
    }
    while ((send = next_one(engine)) != NULL) {
        convoy_xfer_send_offer(engine, send);
    }
    engine->admission.is_due = false;
}

/* -- the host's limits --------------------------------------------------------------------------------------------- */

static void sort_again(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        engine->peers[i].admission.queue = (struct convoy_waiting_queue){.head = NULL};
    }
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        struct convoy_xfer_entry *send = &engine->entries[at];
        if (send->place == CONVOY_XFER_PLACE_WAITING) {
            convoy_waiting_insert(&engine->peers[send->peer].admission.queue, &send->wait, engine->admission.limits.age_ns);
        }
    }
}

static void set_limits(struct convoy_xfer *engine, const struct convoy_admission *limits)
{
    struct convoy_xfer_admission *own = &engine->admission;
    bool is_other_order = limits->age_ns != own->limits.age_ns;
    own->limits = *limits;
    own->is_limited = limits->under_way_max != 0 || limits->under_way_bytes != 0 || limits->peer_under_way_max != 0 ||
                      limits->peer_under_way_bytes != 0;
    own->is_due = own->load.waiting != 0;
    if (is_other_order && own->is_due) {
        sort_again(engine);
    }
}

int32_t convoy_xfer_admission_set(struct convoy_xfer *engine, const struct convoy_admission *limits,
                                  struct convoy_error *error)
{
    convoy_xfer_lock(engine);
    int32_t status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        set_limits(engine, limits);
    }
    convoy_xfer_unlock(engine); /* which lets those go that now have room */
    return status;
}

/* -- after a move -------------------------------------------------------------------------------------------------- */

static void restore_queued(struct convoy_xfer *engine, struct convoy_xfer_entry *send)
{
    struct convoy_xfer_admission *own = &engine->admission;
    const struct convoy_xfer_entry *stage = &engine->entries[send->source];
    send->place = CONVOY_XFER_PLACE_STAGING;
    own->queued++;
    bool has_waited = send->wait.since_ns != 0; /* else it asks for its turn when the engine goes */
    if (!has_waited || stage->kind != CONVOY_XFER_STAGE || stage->state != CONVOY_TRANSFER_STAGED) {
        return;
    }
    own->order = send->wait.order > own->order ? send->wait.order : own->order;
    begin_wait(engine, send, stage->payload_bytes);
}

void convoy_xfer_admission_restore(struct convoy_xfer *engine)
{
    const struct convoy_admission limits = engine->admission.limits;
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        bool is_send = entry->kind == CONVOY_XFER_SEND && !entry->is_hidden;
        if (is_send && entry->state == CONVOY_TRANSFER_QUEUED) {
            restore_queued(engine, entry);
        } else if (is_send && entry->state == CONVOY_TRANSFER_OFFERED) {
            go_under_way(engine, entry);
        }
    }
    set_limits(engine, &limits);
}
