/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement on the next generation across hosts. The leader of the lowest host that is not lost coordinates:
 *
 *   QUERY -> STATE    every leader says its generation, what it has promised, its losses, its last complete round
 *   PROPOSE -> ACCEPT every leader writes the proposal into its segment first (a promise), then answers
 *   COMMIT            every leader switches its segment's generation word; members adopt it when they reopen
 *
 * A new coordinator starts with QUERY and completes a promise that anybody has made, unchanged; members of it that have
 * died since are lost in their first round. The proposal carries the highest complete round and its result, so that a
 * host that gave up on a round which others completed hands it out after all.
 */
#include "round/remote_reopen.h"

#define REOPEN_RESEND_NS (100 * CONVOY_NS_PER_MS)

/* A host whose leader is gone and that is not lost takes part all the same: its next leader may have a result that the
 * others lack, and would coordinate an agreement of its own beside theirs. */
static bool reopen_takes_part(const struct convoy_remote *remote, uint32_t host)
{
    return host == remote->own_host || !remote->hosts[host].is_lost;
}

static uint32_t reopen_coordinator(const struct convoy_remote *remote)
{
    for (uint32_t host = 0; host < remote->host_count; host++) {
        if (reopen_takes_part(remote, host)) {
            return host;
        }
    }
    return remote->own_host;
}

/* A leader's state, heard by the coordinator. */
static void reopen_take_state(struct convoy_remote *remote, uint32_t host, const struct convoy_reopen_body *body,
                              const uint8_t *result)
{
    struct convoy_remote_reopen *reopen = &remote->reopen;
    if (reopen->phase != CONVOY_REOPEN_QUERY) {
        return;
    }
    reopen->answered[host] = true;
    if (body->has_promise != 0 && !CONVOY_MUTATED(promise_not_completed) &&
        (!reopen->has_promise || body->decision.generation > reopen->decision.generation)) {
        reopen->has_promise = true;
        reopen->decision = body->decision;
    }
    for (uint32_t word = 0; word < CONVOY_LOST_WORDS; word++) {
        reopen->lost[word] |= body->lost[word];
    }
    reopen->newest = body->generation > reopen->newest ? body->generation : reopen->newest;
    reopen->oldest = body->generation < reopen->oldest ? body->generation : reopen->oldest;
    if (body->complete_round > reopen->complete_round && body->result_length <= remote->blob_bytes) {
        reopen->complete_round = body->complete_round;
        reopen->result_length = body->result_length;
        memcpy(reopen->result, result, body->result_length);
    }
}

void convoy_remote_reopen_message(struct convoy_remote *remote, const struct convoy_message *message,
                                  const uint8_t *data)
{
    uint32_t host = remote->engine->local.hosts.host_of[message->member];
    struct convoy_reopen_body body;
    bool has_body = message->kind == CONVOY_MESSAGE_STATE || message->kind == CONVOY_MESSAGE_PROPOSE;
    if (has_body) {
        if (message->length < sizeof body) {
            convoy_remote_count(&remote->dropped_bad);
            return;
        }
        memcpy(&body, data, sizeof body);
        if (body.result_length != message->length - sizeof body) {
            convoy_remote_count(&remote->dropped_bad);
            return;
        }
    }
    if (message->kind == CONVOY_MESSAGE_WANT) {
        bool is_old = message->word < convoy_reopen_generation(remote->engine); /* it missed a switch: tell it again */
        if (is_old) {
            convoy_reopen_tell_current(remote, message->member);
        } else {
            remote->reopen.is_wanted = true;
            remote->reopen.wanted_from = (uint32_t)message->word;
        }
    } else if (message->kind == CONVOY_MESSAGE_QUERY) {
        convoy_reopen_send_state(remote, message->member);
    } else if (message->kind == CONVOY_MESSAGE_STATE) {
        reopen_take_state(remote, host, &body, data + sizeof body);
    } else if (message->kind == CONVOY_MESSAGE_PROPOSE) {
        convoy_reopen_take_proposal(remote, message->member, &body, data + sizeof body);
    } else if (message->kind == CONVOY_MESSAGE_ACCEPT) {
        remote->reopen.answered[host] = remote->reopen.answered[host] ||
                                        (remote->reopen.phase == CONVOY_REOPEN_PROPOSE &&
                                         message->word == remote->reopen.decision.generation);
    } else {
        convoy_reopen_switch(remote, (uint32_t)message->word);
    }
}

uint32_t convoy_remote_generation(const struct convoy_remote *remote)
{
    return convoy_reopen_generation(remote->engine);
}

/* A COMMIT is said once; one that got lost with a worker is made good here, and by WANT. */
void convoy_remote_reopen_compare(struct convoy_remote *remote, uint32_t member, uint64_t generation)
{
    uint32_t own = convoy_reopen_generation(remote->engine);
    if (!convoy_remote_is_leader(remote->engine)) {
        return;
    }
    if (generation < own) {
        convoy_reopen_tell_current(remote, member);
    } else if (generation > own) {
        remote->reopen.is_wanted = true;
        remote->reopen.wanted_from = own;
    }
}

static bool reopen_all_answered(const struct convoy_remote *remote)
{
    for (uint32_t host = 0; host < remote->host_count; host++) {
        if (host != remote->own_host && reopen_takes_part(remote, host) && !remote->reopen.answered[host]) {
            return false;
        }
    }
    return true;
}

static void reopen_send_proposal(struct convoy_remote *remote)
{
    struct convoy_remote_reopen *reopen = &remote->reopen;
    struct convoy_reopen_body body = {
        .generation = reopen->decision.generation,
        .decision = reopen->decision,
        .complete_round = reopen->complete_round,
    };
    if (sizeof body + reopen->result_length <= remote->blob_bytes) {
        body.result_length = reopen->result_length;
        memcpy(remote->scratch + sizeof body, reopen->result, reopen->result_length);
    }
    memcpy(remote->scratch, &body, sizeof body);
    convoy_remote_broadcast(remote, CONVOY_MESSAGE_PROPOSE, body.generation, remote->scratch,
                            sizeof body + body.result_length);
    CONVOY_POINT(reopen_proposed);
}

static void reopen_begin_query(struct convoy_remote *remote)
{
    struct convoy_remote_reopen *reopen = &remote->reopen;
    struct convoy_engine *engine = remote->engine;
    struct convoy_reopen_body own;
    convoy_reopen_freeze(remote);
    convoy_reopen_fill_state(remote, &own);
    memset(reopen->answered, 0, sizeof reopen->answered);
    reopen->phase = CONVOY_REOPEN_QUERY;
    reopen->oldest = reopen->newest = convoy_reopen_generation(engine);
    reopen->has_promise = own.has_promise != 0 && !CONVOY_MUTATED(promise_not_completed);
    reopen->decision = own.decision;
    memcpy(reopen->lost, own.lost, sizeof reopen->lost);
    const struct convoy_segment_blob *blob = convoy_segment_result(&engine->segment, own.complete_round);
    reopen->complete_round = own.complete_round;
    reopen->result_length = own.complete_round != 0 ? (uint32_t)blob->length : 0;
    memcpy(reopen->result, blob->bytes, reopen->result_length);
    convoy_remote_broadcast(remote, CONVOY_MESSAGE_QUERY, reopen->newest, NULL, 0);
    CONVOY_POINT(reopen_query);
}

static void reopen_begin_propose(struct convoy_remote *remote)
{
    struct convoy_remote_reopen *reopen = &remote->reopen;
    /* A promise beyond the newest generation is completed unchanged; so is the newest itself when a host missed it. */
    bool is_ahead = reopen->has_promise && reopen->decision.generation > reopen->newest;
    bool is_behind = reopen->has_promise && reopen->decision.generation == reopen->newest &&
                     reopen->oldest < reopen->newest;
    if (!is_ahead && !is_behind) {
        reopen->decision.generation = reopen->newest + 1;
        reopen->decision.next_round = reopen->complete_round + 1;
        memcpy(reopen->decision.lost, reopen->lost, sizeof reopen->lost);
    }
    memset(reopen->answered, 0, sizeof reopen->answered);
    reopen->phase = CONVOY_REOPEN_PROPOSE;
    if (reopen->decision.generation > convoy_reopen_generation(remote->engine)) {
        convoy_reopen_store_result(remote, reopen->complete_round, reopen->result, reopen->result_length);
        convoy_reopen_write_promise(remote->engine, &reopen->decision);
    }
    reopen_send_proposal(remote);
}

/* The coordinator's next step. */
static void reopen_coordinate(struct convoy_remote *remote, uint64_t now_ns)
{
    struct convoy_remote_reopen *reopen = &remote->reopen;
    bool is_late = now_ns - reopen->sent_ns > REOPEN_RESEND_NS;
    if (reopen->phase == CONVOY_REOPEN_NONE || (reopen->phase == CONVOY_REOPEN_QUERY && is_late)) {
        reopen->sent_ns = now_ns;
        reopen_begin_query(remote);
    } else if (reopen->phase == CONVOY_REOPEN_PROPOSE && is_late) {
        reopen->sent_ns = now_ns;
        reopen_send_proposal(remote);
    }
    if (reopen->phase == CONVOY_REOPEN_QUERY && reopen_all_answered(remote)) {
        reopen->sent_ns = now_ns;
        reopen_begin_propose(remote);
    }
    if (reopen->phase == CONVOY_REOPEN_PROPOSE && reopen_all_answered(remote)) {
        CONVOY_POINT(reopen_before_commit);
        convoy_remote_broadcast(remote, CONVOY_MESSAGE_COMMIT, reopen->decision.generation, NULL, 0);
        convoy_reopen_switch(remote, reopen->decision.generation);
    }
}

void convoy_remote_reopen_step(struct convoy_remote *remote, uint64_t now_ns)
{
    struct convoy_remote_reopen *reopen = &remote->reopen;
    if (!reopen->is_wanted) {
        return;
    }
    struct convoy_engine *engine = remote->engine;
    uint64_t generation = reopen->wanted_from;
    if (convoy_reopen_generation(engine) > generation) { /* granted, perhaps by another process of this host */
        reopen->is_wanted = false;
        return;
    }
    if (!convoy_remote_is_leader(engine)) {
        if (now_ns - reopen->sent_ns > REOPEN_RESEND_NS) { /* the leader may not be in a call: its thread hears this */
            reopen->sent_ns = now_ns;
            convoy_remote_send(remote, engine->local_members[convoy_remote_leader(engine)], CONVOY_MESSAGE_WANT,
                               generation, NULL, 0);
        }
        return;
    }
    uint32_t coordinator = reopen_coordinator(remote);
    if (coordinator == remote->own_host) {
        reopen_coordinate(remote, now_ns);
    } else if (now_ns - reopen->sent_ns > REOPEN_RESEND_NS) {
        reopen->sent_ns = now_ns;
        convoy_remote_send(remote, remote->hosts[coordinator].leader, CONVOY_MESSAGE_WANT, generation, NULL, 0);
    }
}

/* Links lost without a proven death may be a partition: only a majority goes on. */
static int32_t reopen_check_majority(const struct convoy_remote *remote, struct convoy_error *error)
{
    const struct convoy_engine *engine = remote->engine;
    uint32_t old_count = engine->member_count - engine->lost_count;
    uint32_t unproven = 0;
    uint32_t first = 0;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        if (!convoy_engine_is_lost(engine, member) && engine->losses[member].is_dead != 0 &&
            engine->losses[member].noticed_by == CONVOY_NOTICED_LINK) {
            first = unproven == 0 ? member : first;
            unproven++;
        }
    }
    uint32_t left = old_count - unproven;
    if (unproven == 0 || left * 2 > old_count || CONVOY_MUTATED(majority_ignored)) {
        return CONVOY_OK;
    }
    return convoy_error_set_peer(error, CONVOY_UNREACHABLE, convoy_engine_rank(engine, first), 0,
                                 "group %.*s: links to %u of %u members (rank %d first) are gone without proof that they "
                                 "died, and the %u on this side are not more than half",
                                 (int)engine->group->name_length, engine->group->name, unproven, old_count,
                                 convoy_engine_rank(engine, first), left);
}

int32_t convoy_remote_reopen(struct convoy_engine *engine, uint64_t deadline_ns, struct convoy_error *error)
{
    struct convoy_remote *remote = engine->remote;
    bool is_broken = atomic_load_explicit(&engine->state, memory_order_relaxed) == CONVOY_ENGINE_BROKEN;
    if (engine->generation == CONVOY_GENERATION_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "group %.*s was reopened %u times; close it and open it afresh",
                                (int)engine->group->name_length, engine->group->name, engine->generation);
    }
    if (!is_broken && convoy_reopen_generation(engine) == engine->generation) {
        return CONVOY_OK;
    }
    uint64_t now = convoy_now_ns();
    while (convoy_reopen_generation(engine) == engine->generation) {
        remote->reopen.is_wanted = true;
        remote->reopen.wanted_from = engine->generation;
        convoy_remote_check(engine, now);
        int32_t status = reopen_check_majority(remote, error);
        if (status != CONVOY_OK) {
            remote->reopen.is_wanted = false;
            return status;
        }
        if (now >= deadline_ns) {
            return convoy_error_set(error, CONVOY_TIMED_OUT, "group %.*s: not all hosts agreed on epoch %llu in time",
                                    (int)engine->group->name_length, engine->group->name,
                                    (unsigned long long)convoy_engine_epoch(engine) + 1);
        }
        convoy_remote_wait(engine, false, CONVOY_NS_PER_MS);
        now = convoy_now_ns();
    }
    convoy_reopen_adopt(engine);
    return CONVOY_OK;
}
