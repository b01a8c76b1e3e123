/* SPDX-License-Identifier: Apache-2.0 */
/* Losing a leader, and losing a host. A host without a leader has settings.succession_ms to bring a new one; a host of
 * one member has nobody to bring, but may have moved to another build while this member stood still: that news and the end
 * of the old link come in any order. */
#include "round/remote_internal.h"

#define PEERS_RETRY_NS (100 * CONVOY_NS_PER_MS)
#define PEERS_ALONE_NS (100 * CONVOY_NS_PER_MS) /* many times what a new link takes to say who it is */

uint32_t convoy_remote_leader(const struct convoy_engine *engine)
{
    for (uint32_t local = 0; local < engine->local_count; local++) {
        uint32_t member = engine->local_members[local];
        const struct convoy_loss *loss = &engine->losses[member];
        if (!convoy_engine_is_lost(engine, member) && loss->is_dead == 0 && loss->is_closed == 0) {
            return local;
        }
    }
    return engine->local_index;
}

bool convoy_remote_is_leader(const struct convoy_engine *engine)
{
    return convoy_remote_leader(engine) == engine->local_index &&
           !(CONVOY_MUTATED(successor_never_leads) && engine->local_index != 0);
}

/* Whether the leader of this host is still there; a member that is not the leader watches it. */
static void peers_watch_leader(struct convoy_engine *engine)
{
    for (uint32_t tries = 0; tries < engine->local_count; tries++) {
        uint32_t local = convoy_remote_leader(engine);
        uint32_t member = engine->local_members[local];
        if (local == engine->local_index) {
            return;
        }
        struct pollfd look = {.fd = engine->local.pidfds[member], .events = POLLIN};
        if (atomic_load(&convoy_segment_slot(&engine->segment, local)->closed) != 0) {
            convoy_engine_note_loss(engine, member, true, CONVOY_NOTICED_CLOSE);
        } else if (poll(&look, 1, 0) == 1 && (look.revents & POLLIN) != 0) {
            convoy_engine_note_loss(engine, member, false, CONVOY_NOTICED_PROCESS);
        } else {
            return;
        }
    }
}

void convoy_remote_lose_host(struct convoy_remote *remote, uint32_t host)
{
    struct convoy_engine *engine = remote->engine;
    remote->hosts[host].is_lost = true;
    uint32_t first = CONVOY_REMOTE_NOBODY;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        if (engine->local.hosts.host_of[member] == host && !convoy_engine_is_lost(engine, member)) {
            convoy_engine_note_loss(engine, member, false, CONVOY_NOTICED_LINK);
            first = first == CONVOY_REMOTE_NOBODY ? member : first;
        }
    }
    if (first == CONVOY_REMOTE_NOBODY) {
        return;
    }
    convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN, "group %.*s host of rank %d is lost",
                    (int)engine->group->name_length, engine->group->name, convoy_engine_rank(engine, first));
    /* As if that host had said so itself: the round that waits for it fails on this host and, told by us, on others. */
    const struct convoy_partial_head head = {
        .fingerprint = engine->fingerprint,
        .votes_and = UINT32_MAX,
        .flags = CONVOY_PARTIAL_FAILED,
        .status = CONVOY_PEER_LOST,
        .culprit = first,
        .error_member = UINT32_MAX,
    };
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    uint64_t word = convoy_word(engine->generation, convoy_engine_is_open(engine) ? round : engine->next_round);
    struct convoy_remote_box *box = &remote->hosts[host].partial[word & 1];
    if (box->word != word) {
        memcpy(box->bytes, &head, sizeof head);
        box->length = sizeof head;
        box->word = word;
    }
}

/* A host whose leader is gone: asks its members by turns, since a new leader that has lost sight of this host's leader,
 * too, cannot find us either. The old one has its turn: a reset of the link alone heals here. */
static void peers_seek_leader(struct convoy_remote *remote, uint32_t host)
{
    struct convoy_engine *engine = remote->engine;
    struct convoy_remote_host *from = &remote->hosts[host];
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    for (uint32_t i = 1; i <= engine->member_count; i++) {
        uint32_t member = (from->retry_member + i) % engine->member_count;
        if (engine->local.hosts.host_of[member] == host && !convoy_engine_is_lost(engine, member)) {
            from->retry_member = member; /* ASK is always answered */
            convoy_remote_send(remote, member, CONVOY_MESSAGE_ASK, convoy_word(engine->generation, round), NULL, 0);
            return;
        }
    }
}

static void peers_watch_hosts(struct convoy_remote *remote, uint64_t now_ns)
{
    struct convoy_engine *engine = remote->engine;
    uint64_t patience = engine->runtime->settings.succession_ms * CONVOY_NS_PER_MS;
    for (uint32_t host = 0; host < remote->host_count; host++) {
        struct convoy_remote_host *from = &remote->hosts[host];
        if (from->down_ns == 0 || from->is_lost || host == remote->own_host) {
            continue;
        }
        uint64_t down_for = convoy_deadline_left(from->down_ns, now_ns); /* the news may be younger than `now` */
        if (down_for > (from->member_count <= 1 && patience > PEERS_ALONE_NS ? PEERS_ALONE_NS : patience)) {
            convoy_remote_lose_host(remote, host);
        } else if (now_ns >= from->retry_ns) {
            from->retry_ns = now_ns + PEERS_RETRY_NS;
            peers_seek_leader(remote, host);
        }
    }
}

void convoy_remote_check(struct convoy_engine *engine, uint64_t now_ns)
{
    struct convoy_remote *remote = engine->remote;
    (void)convoy_link_progress(remote->link);
    if (remote->unanswered != 0) {
        convoy_remote_rewire_step(remote, now_ns);
    }
    peers_watch_leader(engine);
    peers_watch_hosts(remote, now_ns);
    convoy_remote_ask_silent(remote, now_ns);
    convoy_remote_reopen_step(remote, now_ns);
}
