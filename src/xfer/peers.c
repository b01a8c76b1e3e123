/* SPDX-License-Identifier: Apache-2.0 */
/* Connected engines: handles, what is said to them, and what their end means for the transfers that name them. */
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "xfer/raw.h"
#include "xfer/resize.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BACKLOG_FIRST 64u
#define BACKLOG_MAX 65536u

convoy_peer convoy_xfer_peer_handle(const struct convoy_xfer *engine, const struct convoy_xfer_peer *peer)
{
    return (uint64_t)peer->generation << 32 | (uint64_t)(peer - engine->peers + 1);
}

struct convoy_xfer_peer *convoy_xfer_peer_find(struct convoy_xfer *engine, convoy_peer handle,
                                               struct convoy_error *error)
{
    uint32_t number = (uint32_t)handle;
    struct convoy_xfer_peer *peer = number - 1 < engine->peer_top ? &engine->peers[number - 1] : NULL;
    if (peer == NULL || peer->state == 0 || peer->generation != handle >> 32) {
        (void)convoy_error_set(error, CONVOY_CLOSED, "peer 0x%" PRIx64 " is not connected (any more)", handle);
        return NULL;
    }
    return peer;
}

struct convoy_xfer_peer *convoy_xfer_peer_by_incarnation(struct convoy_xfer *engine, uint64_t incarnation)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        if (engine->peers[i].state == CONVOY_PEER_IS_CONNECTED && engine->peers[i].incarnation == incarnation) {
            return &engine->peers[i];
        }
    }
    return NULL;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

void convoy_xfer_peer_close(struct convoy_xfer_peer *peer)
{
    if (peer->state == 0) {
        return;
    }
    const int files[] = {peer->tcp_fd, peer->wake_fd, peer->pid_fd, peer->share_fd};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i] >= 0) {
            (void)close(files[i]);
        }
    }
    peer->tcp_fd = peer->wake_fd = peer->pid_fd = peer->share_fd = -1;
    if (peer->ring_memory != NULL) {
        (void)munmap(peer->ring_memory, CONVOY_RING_BYTES);
        peer->ring_memory = NULL;
    }
    convoy_memory_free(peer->backlog);
    peer->lane = NULL;
    peer->backlog = NULL;
    peer->backlog_count = peer->backlog_room = 0;
    convoy_view_put_all(peer->view);
    peer->view = NULL;
}

/* Nothing here names it any more: nothing of its memory is read or copied, nor will be, for what it says from now on is not
 * heard. So it has back what it has offered meanwhile, too. */
static void say_last(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    const struct convoy_xfer_notice closed = {.type = CONVOY_SAY_CLOSED};
    if (!CONVOY_MUTATED(parting_not_said)) {
        convoy_xfer_say(engine, peer, &closed);
    }
}

/* One that is gone gives up all it has once nobody refers to it and it touches nothing of ours any more; a tombstone of it
 * stays while the host has its handle. */
void convoy_xfer_peer_free(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    convoy_xfer_peer_check(engine, peer);
    if (peer->state > CONVOY_PEER_IS_CONNECTED && peer->entries == 0 && peer->is_drained) {
        say_last(engine, peer);
        convoy_xfer_peer_close(peer);
        peer->state = peer->is_held ? peer->state : 0;
    }
}

static struct convoy_xfer_peer *find_place(struct convoy_xfer *engine)
{
    struct convoy_xfer_peer *gone = NULL;
    for (uint32_t i = 0; i < engine->options.peer_max; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        if (peer->state == 0) {
            engine->peer_top = i < engine->peer_top ? engine->peer_top : i + 1;
            return peer;
        }
        if (peer->state > CONVOY_PEER_IS_CONNECTED && peer->entries == 0 && peer->is_drained && gone == NULL) {
            gone = peer;
        }
    }
    if (gone != NULL) { /* the host never said that it knows */
        gone->is_held = false;
        convoy_xfer_peer_free(engine, gone);
    }
    return gone;
}

static uint32_t locality_of(const struct convoy_xfer *engine, const struct convoy_xfer_joined *joined)
{
    bool is_own_context = joined->introduction->context == engine->introduction.context;
    return joined->lane->is_far ? CONVOY_LOCALITY_REMOTE : is_own_context ? CONVOY_LOCALITY_PROCESS : CONVOY_LOCALITY_HOST;
}

int32_t convoy_xfer_peer_add(struct convoy_xfer *engine, const struct convoy_xfer_joined *joined,
                             struct convoy_xfer_peer **peer_out, struct convoy_error *error)
{
    struct convoy_xfer_peer *peer = find_place(engine);
    if (peer == NULL) {
        return convoy_error_set(error, CONVOY_LIMIT, "%u peers are connected, allowed are %u: option peer_max",
                                engine->options.peer_max, engine->options.peer_max);
    }
    uint32_t generation = peer->generation + 1;
    *peer = (struct convoy_xfer_peer){
        .generation = generation != 0 ? generation : 1,
        .state = CONVOY_PEER_IS_CONNECTED,
        .locality = locality_of(engine, joined),
        .lane = joined->lane,
        .tcp_fd = joined->tcp_fd,
        .wake_fd = joined->wake_fd,
        .pid_fd = joined->pid_fd,
        .share_fd = -1,
        .incarnation = joined->introduction->incarnation,
        .view = joined->view,
        .ring_memory = joined->ring_memory,
    };
    memcpy(peer->session, joined->introduction->session, sizeof peer->session);
    if (joined->ring_memory != NULL) {
        convoy_ring_init(&peer->ring, joined->ring_memory, joined->side);
        convoy_xfer_shares_begin(engine, peer, joined);
    }
    /* Whoever sleeps knows nothing of this ring yet. */
    if (joined->ring_memory != NULL && engine->is_dozing && !convoy_ring_doze(&peer->ring)) {
        convoy_xfer_kick(engine);
    }
    CONVOY_XFER_NOTE(engine, peers_connected);
    convoy_log_line(&engine->runtime->log, CONVOY_LOG_INFO, "engine %s: peer %s is connected", engine->session,
                    peer->session);
    *peer_out = peer;
    return CONVOY_OK;
}

static void end_entry(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, const char *how)
{
    if (!convoy_xfer_state_is_end(entry->state)) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, CONVOY_PEER_LOST, "peer %s %s",
                               engine->peers[entry->peer].session, how);
    }
}

/* One that is gone, but not proven dead, gives back what it still reads in its own time. */
void convoy_xfer_peer_check(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    if (peer->state <= CONVOY_PEER_IS_CONNECTED || peer->is_drained || peer->is_parting) {
        return;
    }
    if (!peer->is_dead && convoy_raw_is_out(engine, index)) {
        return;
    }
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        if (engine->entries[at].peer == index && engine->entries[at].is_lent) {
            return;
        }
    }
    peer->is_drained = true;
}

/* Memory that a proven dead peer may have read or written is free again. */
static void drain(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    peer->is_dead = true;
    (void)convoy_pool_drop_peer(engine->pool, index);
    convoy_raw_drop_peer(engine, index);
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY;) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        at = entry->next;
        if (entry->peer == index && entry->is_lent) {
            entry->is_lent = false;
            entry->retry_ns = CONVOY_DEADLINE_NEVER;
            convoy_xfer_entry_settle(engine, entry);
            at = engine->active_first; /* its stage may have gone with it */
        }
    }
}

void convoy_xfer_peer_end(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint32_t state, bool is_dead)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    /* Two that close at once: the later one owes no goodbye to one that said it first. */
    bool is_expected = state == CONVOY_PEER_IS_CLOSED || engine->state != CONVOY_ENGINE_OPEN;
    if (peer->state == CONVOY_PEER_IS_CONNECTED && peer->lane->part(engine, peer)) {
        is_dead = true;
    }
    bool has_died = is_dead && peer->pid_fd >= 0;
    const char *how = state == CONVOY_PEER_IS_CLOSED ? "has closed" : has_died ? "has died" : "is cut off";
    if (peer->state == CONVOY_PEER_IS_CONNECTED) {
        peer->state = state;
        engine->counters[state == CONVOY_PEER_IS_CLOSED ? CONVOY_XFER_COUNT_peers_closed
                                                        : CONVOY_XFER_COUNT_peers_lost]++;
        convoy_log_line(&engine->runtime->log, is_expected ? CONVOY_LOG_INFO : CONVOY_LOG_WARN,
                        "engine %s: peer %s %s", engine->session, peer->session, how);
        convoy_xfer_waiting_drop_peer(engine, index);
        peer->entries++; /* stays while its transfers are ended one by one */
        for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY;) {
            struct convoy_xfer_entry *entry = &engine->entries[at];
            at = entry->next;
            if (entry->peer == index && !convoy_xfer_state_is_end(entry->state)) {
                end_entry(engine, entry, how);
                at = engine->active_first;
            }
        }
        peer->entries--;
        convoy_xfer_wake(engine);
    }
    if (is_dead && !peer->is_dead) {
        drain(engine, peer);
    }
    convoy_xfer_peer_check(engine, peer);
    convoy_xfer_peer_free(engine, peer);
}

/* -- talking ------------------------------------------------------------------------------------------------------- */

bool convoy_xfer_backlog_grow(struct convoy_xfer_peer *peer)
{
    uint32_t room = peer->backlog_room != 0 ? 2 * peer->backlog_room : BACKLOG_FIRST;
    struct convoy_ring_entry *grown = room <= BACKLOG_MAX ? convoy_memory_array(room, sizeof *grown) : NULL;
    if (grown == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < peer->backlog_count; i++) {
        grown[i] = peer->backlog[(peer->backlog_first + i) % peer->backlog_room];
    }
    convoy_memory_free(peer->backlog);
    peer->backlog = grown;
    peer->backlog_room = room;
    peer->backlog_first = 0;
    return true;
}

/* On its way, or behind what waits for room there. */
static void put_or_keep(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_ring_entry *entry)
{
    if (peer->backlog_count == 0 && peer->lane->put(engine, peer, entry)) {
        return;
    }
    if (peer->backlog_count == peer->backlog_room && !convoy_xfer_backlog_grow(peer)) {
        CONVOY_XFER_NOTE(engine, messages_dropped); /* deadlines and retries are for this */
        return;
    }
    peer->backlog[(peer->backlog_first + peer->backlog_count++) % peer->backlog_room] = *entry;
}

void convoy_xfer_say(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_xfer_notice *notice)
{
    struct convoy_ring_entry entry;
    bool gives_back = notice->type == CONVOY_SAY_BACK || notice->type == CONVOY_SAY_CLOSED;
    bool may = peer->state == CONVOY_PEER_IS_CONNECTED || (peer->state != 0 && gives_back);
    if (!may || peer->is_dead || peer->lane == NULL) {
        return;
    }
    CONVOY_XFER_NOTE(engine, control_messages);
    engine->counters[CONVOY_XFER_COUNT_control_bytes] +=
        sizeof entry + (notice->type == CONVOY_SAY_OFFER ? notice->body.offer.note & CONVOY_OFFER_NOTE_BYTES : 0);
    convoy_xfer_notice_pack(notice, &entry);
    enum convoy_fault_fate fate = convoy_fault_message(engine->counters[CONVOY_XFER_COUNT_control_messages],
                                                       convoy_xfer_notice_name(notice->type));
    if (fate == CONVOY_FATE_LATE) { /* behind the next one */
        peer->late = entry;
        return;
    }
    if (fate != CONVOY_FATE_DROP) {
        put_or_keep(engine, peer, &entry);
    }
    if (fate == CONVOY_FATE_TWICE) {
        put_or_keep(engine, peer, &entry);
    }
    if (peer->late.type != CONVOY_SAY_NONE && convoy_fault_is_due(engine->counters[CONVOY_XFER_COUNT_control_messages])) {
        put_or_keep(engine, peer, &peer->late);
        peer->late.type = CONVOY_SAY_NONE;
    }
}

void convoy_xfer_peer_flush(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    while (peer->backlog_count != 0 && peer->lane->put(engine, peer, &peer->backlog[peer->backlog_first])) {
        peer->backlog_first = (peer->backlog_first + 1) % peer->backlog_room;
        peer->backlog_count--;
    }
}

/* -- the host's calls ---------------------------------------------------------------------------------------------- */

int32_t convoy_xfer_disconnect(struct convoy_xfer *engine, convoy_peer handle, struct convoy_error *error)
{
    const struct convoy_xfer_notice goodbye = {.type = CONVOY_SAY_GOODBYE};
    convoy_xfer_lock(engine);
    struct convoy_xfer_peer *peer = convoy_xfer_peer_find(engine, handle, error);
    if (peer != NULL) {
        peer->is_held = false;
        if (peer->state == CONVOY_PEER_IS_CONNECTED) {
            convoy_xfer_say(engine, peer, &goodbye);
            convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, false);
        } else {
            convoy_xfer_peer_free(engine, peer);
        }
    }
    convoy_xfer_unlock(engine);
    return peer != NULL ? CONVOY_OK : CONVOY_CLOSED;
}

int32_t convoy_xfer_peer_info(struct convoy_xfer *engine, convoy_peer handle, struct convoy_peer_info *info_out,
                              struct convoy_error *error)
{
    convoy_xfer_lock(engine);
    convoy_xfer_pump(engine);
    const struct convoy_xfer_peer *peer = convoy_xfer_peer_find(engine, handle, error);
    if (peer != NULL) {
        info_out->state = peer->state;
        info_out->locality = peer->locality;
        info_out->incarnation = peer->incarnation;
        info_out->pool_bytes = peer->view != NULL ? peer->view->pool_bytes : 0;
        info_out->sent_bytes = peer->sent_bytes;
        info_out->received_bytes = peer->received_bytes;
        memcpy(info_out->session, peer->session, sizeof info_out->session);
    }
    convoy_xfer_unlock(engine);
    return peer != NULL ? CONVOY_OK : CONVOY_CLOSED;
}
