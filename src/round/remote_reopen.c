/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement on the next generation across hosts. The leader of the lowest host that is alive coordinates:
 *
 *   QUERY -> STATE    every leader says its generation, what it has promised, its losses, its last complete round
 *   PROPOSE -> ACCEPT every leader writes the proposal into its segment first (a promise), then answers
 *   COMMIT            every leader switches its segment's generation word; members adopt it when they reopen
 *
 * A new coordinator starts with QUERY and completes a promise that anybody has made, unchanged; members of it that have
 * died since are lost in their first round. The proposal carries the highest complete round and its result, so that a
 * host that gave up on a round which others completed hands it out after all.
 */
#include "round/remote_internal.h"

#define REOPEN_RESEND_NS (100 * CONVOY_NS_PER_MS)

/* Data of STATE and PROPOSE; the result's bytes follow. */
struct reopen_body {
    uint32_t generation; /* STATE: the sender's; PROPOSE: of the decision */
    uint32_t has_promise;
    struct convoy_reopen_decision decision; /* STATE: what the sender has promised */
    uint64_t lost[CONVOY_LOST_WORDS];       /* STATE: members of its host that are gone */
    uint64_t complete_round;
    uint32_t result_length;
    uint32_t reserved;
};

static bool reopen_host_is_alive(const struct convoy_remote *remote, uint32_t host)
{
    return host == remote->own_host || (!remote->hosts[host].is_lost && remote->hosts[host].down_ns == 0);
}

static uint32_t reopen_coordinator(const struct convoy_remote *remote)
{
    for (uint32_t host = 0; host < remote->host_count; host++) {
        if (reopen_host_is_alive(remote, host)) {
            return host;
        }
    }
    return remote->own_host;
}

static uint64_t reopen_generation_word(const struct convoy_engine *engine)
{
    return atomic_load(&convoy_segment_head(&engine->segment)->generation);
}

/* The segment's generation: 1 until the first switch. */
static uint32_t reopen_generation(const struct convoy_engine *engine)
{
    uint32_t generation = (uint32_t)(reopen_generation_word(engine) & CONVOY_GENERATION_MAX);
    return generation != 0 ? generation : 1;
}

/* Adds the members that this host knows to be gone: its own, and those of hosts that are gone as a whole. What it was
 * told of another host's members is for that host to say. */
static void reopen_add_lost(const struct convoy_remote *remote, uint64_t lost[CONVOY_LOST_WORDS])
{
    const struct convoy_engine *engine = remote->engine;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        bool is_ours = engine->local.hosts.host_of[member] == remote->own_host;
        const struct convoy_loss *loss = &engine->losses[member];
        bool is_known =
            is_ours || loss->noticed_by == CONVOY_NOTICED_LINK || loss->noticed_by == CONVOY_NOTICED_CLOSE;
        if (convoy_engine_is_lost(engine, member) || (is_known && (loss->is_dead != 0 || loss->is_closed != 0))) {
            lost[member / 64] |= UINT64_C(1) << (member % 64);
        }
    }
}

/* The last round whose result lies in this host's segment. */
static uint64_t reopen_complete_round(const struct convoy_engine *engine)
{
    uint64_t newest = 0;
    for (uint64_t parity = 0; parity < 2; parity++) {
        const struct convoy_segment_blob *blob = convoy_segment_result(&engine->segment, parity);
        uint64_t word = atomic_load(&blob->word);
        bool is_usable = convoy_word_reason(word) == CONVOY_SEAL_NONE && blob->length >= sizeof(struct convoy_partial_head);
        struct convoy_partial_head head;
        if (is_usable && convoy_partial_read(&head, blob->bytes, blob->length, engine->member_count) &&
            (head.flags & CONVOY_PARTIAL_FAILED) == 0 && convoy_word_round(word) > newest) {
            newest = convoy_word_round(word);
        }
    }
    return newest;
}

static size_t reopen_append_result(const struct convoy_remote *remote, uint64_t round, struct reopen_body *body)
{
    const struct convoy_segment_blob *blob = convoy_segment_result(&remote->engine->segment, round);
    size_t room = remote->blob_bytes - sizeof *body;
    if (round == 0 || blob->length > room) {
        return 0;
    }
    memcpy(remote->scratch + sizeof *body, blob->bytes, blob->length);
    body->result_length = (uint32_t)blob->length;
    return blob->length;
}

/* What this host has promised and not switched to, if anything. */
static bool reopen_promise(const struct convoy_engine *engine, struct convoy_reopen_decision *decision)
{
    uint64_t pending = atomic_load(&convoy_segment_head(&engine->segment)->pending);
    uint32_t generation = (uint32_t)(pending & CONVOY_GENERATION_MAX);
    uint32_t local = (uint32_t)(pending >> 12);
    if (generation < reopen_generation(engine) || local >= engine->local_count || pending == 0) {
        return false;
    }
    const struct convoy_proposal *proposal =
        &convoy_segment_slot(&engine->segment, local)->proposals[generation & 1];
    decision->generation = generation;
    decision->next_round = atomic_load_explicit(&proposal->next_round, memory_order_relaxed);
    for (uint32_t word = 0; word < CONVOY_LOST_WORDS; word++) {
        decision->lost[word] = atomic_load_explicit(&proposal->lost[word], memory_order_relaxed);
    }
    return true;
}

static void reopen_write_promise(struct convoy_engine *engine, const struct convoy_reopen_decision *decision)
{
    struct convoy_proposal *proposal =
        &convoy_segment_slot(&engine->segment, engine->local_index)->proposals[decision->generation & 1];
    for (uint32_t word = 0; word < CONVOY_LOST_WORDS; word++) {
        atomic_store_explicit(&proposal->lost[word], decision->lost[word], memory_order_relaxed);
    }
    atomic_store_explicit(&proposal->next_round, decision->next_round, memory_order_relaxed);
    atomic_store(&convoy_segment_head(&engine->segment)->pending,
                 (uint64_t)engine->local_index << 12 | decision->generation);
}

static void reopen_fill_state(struct convoy_remote *remote, struct reopen_body *body)
{
    memset(body, 0, sizeof *body);
    body->generation = reopen_generation(remote->engine);
    body->has_promise = reopen_promise(remote->engine, &body->decision);
    body->complete_round = reopen_complete_round(remote->engine);
    reopen_add_lost(remote, body->lost);
}

/* From now on this host's last complete round stays what it says it is: the next one can no longer complete here, though
 * everything for it may be on its way. */
static void reopen_freeze(struct convoy_remote *remote)
{
    struct convoy_engine *engine = remote->engine;
    uint32_t generation = reopen_generation(engine);
    uint64_t round = reopen_complete_round(engine) + 1;
    struct convoy_segment_blob *blob = convoy_segment_result(&engine->segment, round);
    uint64_t frozen = convoy_word_sealed(generation, round, CONVOY_SEAL_LOST, engine->local_index);
    uint64_t word = atomic_load(&blob->word);
    while (convoy_cell_view_of(word, generation, round) == CONVOY_CELL_PENDING) {
        if (atomic_compare_exchange_strong(&blob->word, &word, frozen)) {
            return;
        }
    }
}

static void reopen_send_state(struct convoy_remote *remote, uint32_t member)
{
    struct reopen_body body;
    reopen_freeze(remote);
    reopen_fill_state(remote, &body);
    size_t more = reopen_append_result(remote, body.complete_round, &body);
    memcpy(remote->scratch, &body, sizeof body);
    convoy_remote_send(remote, member, CONVOY_MESSAGE_STATE, body.generation, remote->scratch, sizeof body + more);
}

/* Puts a result that others have where this host's members look for it, whatever they thought of that round. */
static void reopen_store_result(struct convoy_remote *remote, uint64_t round, const uint8_t *bytes, size_t length)
{
    struct convoy_engine *engine = remote->engine;
    struct convoy_segment_blob *blob = convoy_segment_result(&engine->segment, round);
    bool is_known = reopen_complete_round(engine) >= round;
    if (CONVOY_MUTATED(result_not_handed_over) || is_known || length == 0 || length > remote->blob_bytes) {
        return;
    }
    convoy_remote_write_blob(blob, bytes, length);
    atomic_store(&blob->word, convoy_word(reopen_generation(engine), round));
}

static void reopen_switch(struct convoy_remote *remote, uint32_t generation)
{
    struct convoy_engine *engine = remote->engine;
    struct convoy_segment_head *head = convoy_segment_head(&engine->segment);
    struct convoy_reopen_decision promise;
    uint64_t word = atomic_load(&head->generation);
    if (reopen_promise(engine, &promise) && promise.generation == generation && reopen_generation(engine) < generation) {
        (void)atomic_compare_exchange_strong(&head->generation, &word, atomic_load(&head->pending));
        convoy_engine_wake(engine);
    }
    remote->reopen.is_wanted = false;
    remote->reopen.phase = CONVOY_REOPEN_NONE;
}

/* A leader's state, heard by the coordinator. */
static void reopen_take_state(struct convoy_remote *remote, uint32_t host, const struct reopen_body *body,
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

static void reopen_take_proposal(struct convoy_remote *remote, uint32_t member, const struct reopen_body *body,
                                 const uint8_t *result)
{
    struct convoy_engine *engine = remote->engine;
    if (body->decision.generation < reopen_generation(engine)) {
        convoy_remote_drop_stale(remote);
        return;
    }
    if (body->decision.generation > reopen_generation(engine)) {
        reopen_store_result(remote, body->complete_round, result, body->result_length);
        reopen_write_promise(engine, &body->decision);
        CONVOY_POINT(reopen_promised);
    }
    convoy_remote_send(remote, member, CONVOY_MESSAGE_ACCEPT, body->decision.generation, NULL, 0);
}

/* To a host that missed a switch: the decision that is in force, which it may never have been asked about since its
 * leader was just being replaced, and that it holds. */
static void reopen_tell_current(struct convoy_remote *remote, uint32_t member)
{
    struct convoy_engine *engine = remote->engine;
    uint64_t word = reopen_generation_word(engine);
    uint32_t local = (uint32_t)(word >> 12) % engine->local_count;
    struct reopen_body body = {.generation = reopen_generation(engine)};
    const struct convoy_proposal *proposal =
        &convoy_segment_slot(&engine->segment, local)->proposals[body.generation & 1];
    body.decision.generation = body.generation;
    body.decision.next_round = atomic_load_explicit(&proposal->next_round, memory_order_relaxed);
    for (uint32_t i = 0; i < CONVOY_LOST_WORDS; i++) {
        body.decision.lost[i] = atomic_load_explicit(&proposal->lost[i], memory_order_relaxed);
    }
    body.complete_round = reopen_complete_round(engine);
    size_t more = reopen_append_result(remote, body.complete_round, &body);
    memcpy(remote->scratch, &body, sizeof body);
    convoy_remote_send(remote, member, CONVOY_MESSAGE_PROPOSE, body.generation, remote->scratch, sizeof body + more);
    convoy_remote_send(remote, member, CONVOY_MESSAGE_COMMIT, body.generation, NULL, 0);
}

void convoy_remote_reopen_message(struct convoy_remote *remote, const struct convoy_message *message,
                                  const uint8_t *data)
{
    uint32_t host = remote->engine->local.hosts.host_of[message->member];
    struct reopen_body body;
    bool has_body = message->kind == CONVOY_MESSAGE_STATE || message->kind == CONVOY_MESSAGE_PROPOSE;
    if (has_body) {
        if (message->length < sizeof body) {
            remote->dropped_bad++;
            return;
        }
        memcpy(&body, data, sizeof body);
        if (body.result_length != message->length - sizeof body) {
            remote->dropped_bad++;
            return;
        }
    }
    if (message->kind == CONVOY_MESSAGE_WANT) {
        bool is_old = message->word < reopen_generation(remote->engine); /* it missed a switch: tell it again */
        if (is_old) {
            reopen_tell_current(remote, message->member);
        } else {
            remote->reopen.is_wanted = true;
            remote->reopen.wanted_from = (uint32_t)message->word;
        }
    } else if (message->kind == CONVOY_MESSAGE_QUERY) {
        reopen_send_state(remote, message->member);
    } else if (message->kind == CONVOY_MESSAGE_STATE) {
        reopen_take_state(remote, host, &body, data + sizeof body);
    } else if (message->kind == CONVOY_MESSAGE_PROPOSE) {
        reopen_take_proposal(remote, message->member, &body, data + sizeof body);
    } else if (message->kind == CONVOY_MESSAGE_ACCEPT) {
        remote->reopen.answered[host] = remote->reopen.answered[host] ||
                                        (remote->reopen.phase == CONVOY_REOPEN_PROPOSE &&
                                         message->word == remote->reopen.decision.generation);
    } else {
        reopen_switch(remote, (uint32_t)message->word);
    }
}

static bool reopen_all_answered(const struct convoy_remote *remote)
{
    for (uint32_t host = 0; host < remote->host_count; host++) {
        if (host != remote->own_host && reopen_host_is_alive(remote, host) && !remote->reopen.answered[host]) {
            return false;
        }
    }
    return true;
}

static void reopen_send_proposal(struct convoy_remote *remote)
{
    struct convoy_remote_reopen *reopen = &remote->reopen;
    struct reopen_body body = {
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
    struct reopen_body own;
    reopen_freeze(remote);
    reopen_fill_state(remote, &own);
    memset(reopen->answered, 0, sizeof reopen->answered);
    reopen->phase = CONVOY_REOPEN_QUERY;
    reopen->oldest = reopen->newest = reopen_generation(engine);
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
    if (reopen->decision.generation > reopen_generation(remote->engine)) {
        reopen_store_result(remote, reopen->complete_round, reopen->result, reopen->result_length);
        reopen_write_promise(remote->engine, &reopen->decision);
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
        reopen_switch(remote, reopen->decision.generation);
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
    if (reopen_generation(engine) > generation) { /* granted, perhaps by another process of this host */
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

/* Adopts what the segment's generation word points at; hands over a result that this member missed. */
static void reopen_adopt(struct convoy_engine *engine)
{
    struct convoy_remote *remote = engine->remote;
    uint64_t word = reopen_generation_word(engine);
    uint32_t local = (uint32_t)(word >> 12) % engine->local_count;
    uint32_t generation = (uint32_t)(word & CONVOY_GENERATION_MAX);
    const struct convoy_proposal *proposal =
        &convoy_segment_slot(&engine->segment, local)->proposals[generation & 1];
    uint64_t lost[CONVOY_LOST_WORDS];
    for (uint32_t i = 0; i < CONVOY_LOST_WORDS; i++) {
        lost[i] = atomic_load_explicit(&proposal->lost[i], memory_order_relaxed);
    }
    uint64_t next_round = atomic_load_explicit(&proposal->next_round, memory_order_relaxed);
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    uint64_t result = atomic_load(&convoy_segment_result(&engine->segment, round)->word);
    bool is_there = convoy_word_round(result) == round && convoy_word_reason(result) == CONVOY_SEAL_NONE;
    if (engine->next_round == round && next_round == round + 1 && is_there) {
        engine->recovered = convoy_remote_consume(engine) == CONVOY_OK;
    }
    engine->next_round = next_round;
    convoy_engine_adopt(engine, generation, lost);
    remote->reopen.is_wanted = false;
    remote->sent_word = remote->rows_word = 0;
    for (uint32_t host = 0; host < remote->host_count; host++) {
        struct convoy_remote_host *from = &remote->hosts[host];
        from->member_count = 0;
        for (uint32_t member = 0; member < engine->member_count; member++) {
            from->member_count += engine->local.hosts.host_of[member] == host && !convoy_engine_is_lost(engine, member);
        }
        from->is_lost = from->is_lost || from->member_count == 0;
        if (from->is_lost && from->member_count != 0) { /* agreed before it was lost: the first round says so */
            convoy_remote_lose_host(remote, host);
        }
    }
}

int32_t convoy_remote_reopen(struct convoy_engine *engine, uint64_t deadline_ns, struct convoy_error *error)
{
    struct convoy_remote *remote = engine->remote;
    bool is_broken = atomic_load_explicit(&engine->state, memory_order_relaxed) == CONVOY_ENGINE_BROKEN;
    if (engine->generation == CONVOY_GENERATION_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "group %.*s was reopened %u times; close it and open it afresh",
                                (int)engine->group->name_length, engine->group->name, engine->generation);
    }
    if (!is_broken && reopen_generation(engine) == engine->generation) {
        return CONVOY_OK;
    }
    uint64_t now = convoy_now_ns();
    while (reopen_generation(engine) == engine->generation) {
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
    reopen_adopt(engine);
    return CONVOY_OK;
}
