/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host's own part in the agreement on the next generation (remote_reopen.h): what it says of itself, what it promises,
 * and how it switches. All of it lies in the segment, so that whoever leads the host next goes on with it.
 */
#include "round/remote_reopen.h"

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

uint64_t convoy_reopen_complete_round(const struct convoy_engine *engine)
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

static size_t reopen_append_result(const struct convoy_remote *remote, uint64_t round, struct convoy_reopen_body *body)
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
    if (generation < convoy_reopen_generation(engine) || local >= engine->local_count || pending == 0) {
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

void convoy_reopen_write_promise(struct convoy_engine *engine, const struct convoy_reopen_decision *decision)
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

void convoy_reopen_fill_state(struct convoy_remote *remote, struct convoy_reopen_body *body)
{
    memset(body, 0, sizeof *body);
    body->generation = convoy_reopen_generation(remote->engine);
    body->has_promise = reopen_promise(remote->engine, &body->decision);
    body->complete_round = convoy_reopen_complete_round(remote->engine);
    reopen_add_lost(remote, body->lost);
}

void convoy_reopen_freeze(struct convoy_remote *remote)
{
    struct convoy_engine *engine = remote->engine;
    if (CONVOY_MUTATED(reopen_not_frozen)) {
        return;
    }
    uint32_t generation = convoy_reopen_generation(engine);
    uint64_t round = convoy_reopen_complete_round(engine) + 1;
    struct convoy_segment_blob *blob = convoy_segment_result(&engine->segment, round);
    uint64_t frozen = convoy_word_sealed(generation, round, CONVOY_SEAL_LOST, engine->local_index);
    uint64_t word = atomic_load(&blob->word);
    while (convoy_cell_view_of(word, generation, round) == CONVOY_CELL_PENDING) {
        if (atomic_compare_exchange_strong(&blob->word, &word, frozen)) {
            return;
        }
    }
}

void convoy_reopen_send_state(struct convoy_remote *remote, uint32_t member)
{
    struct convoy_reopen_body body;
    convoy_reopen_freeze(remote);
    convoy_reopen_fill_state(remote, &body);
    size_t more = reopen_append_result(remote, body.complete_round, &body);
    memcpy(remote->scratch, &body, sizeof body);
    convoy_remote_send(remote, member, CONVOY_MESSAGE_STATE, body.generation, remote->scratch, sizeof body + more);
}

void convoy_reopen_store_result(struct convoy_remote *remote, uint64_t round, const uint8_t *bytes, size_t length)
{
    struct convoy_engine *engine = remote->engine;
    struct convoy_segment_blob *blob = convoy_segment_result(&engine->segment, round);
    bool is_known = convoy_reopen_complete_round(engine) >= round;
    if (CONVOY_MUTATED(result_not_handed_over) || is_known || length == 0 || length > remote->blob_bytes) {
        return;
    }
    convoy_remote_write_blob(blob, bytes, length);
    atomic_store(&blob->word, convoy_word(convoy_reopen_generation(engine), round));
}

void convoy_reopen_switch(struct convoy_remote *remote, uint32_t generation)
{
    struct convoy_engine *engine = remote->engine;
    struct convoy_segment_head *head = convoy_segment_head(&engine->segment);
    struct convoy_reopen_decision promise;
    uint64_t word = atomic_load(&head->generation);
    if (reopen_promise(engine, &promise) && promise.generation == generation && convoy_reopen_generation(engine) < generation) {
        (void)atomic_compare_exchange_strong(&head->generation, &word, atomic_load(&head->pending));
        convoy_engine_wake(engine);
    }
    remote->reopen.is_wanted = false;
    remote->reopen.phase = CONVOY_REOPEN_NONE;
}

void convoy_reopen_take_proposal(struct convoy_remote *remote, uint32_t member, const struct convoy_reopen_body *body,
                                 const uint8_t *result)
{
    struct convoy_engine *engine = remote->engine;
    if (body->decision.generation < convoy_reopen_generation(engine)) {
        convoy_remote_drop_stale(remote);
        return;
    }
    if (body->decision.generation > convoy_reopen_generation(engine)) {
        convoy_reopen_store_result(remote, body->complete_round, result, body->result_length);
        convoy_reopen_write_promise(engine, &body->decision);
        CONVOY_POINT(reopen_promised);
    }
    convoy_remote_send(remote, member, CONVOY_MESSAGE_ACCEPT, body->decision.generation, NULL, 0);
}

void convoy_reopen_tell_current(struct convoy_remote *remote, uint32_t member)
{
    struct convoy_engine *engine = remote->engine;
    uint64_t word = convoy_reopen_generation_word(engine);
    uint32_t local = (uint32_t)(word >> 12) % engine->local_count;
    struct convoy_reopen_body body = {.generation = convoy_reopen_generation(engine)};
    const struct convoy_proposal *proposal =
        &convoy_segment_slot(&engine->segment, local)->proposals[body.generation & 1];
    body.decision.generation = body.generation;
    body.decision.next_round = atomic_load_explicit(&proposal->next_round, memory_order_relaxed);
    for (uint32_t i = 0; i < CONVOY_LOST_WORDS; i++) {
        body.decision.lost[i] = atomic_load_explicit(&proposal->lost[i], memory_order_relaxed);
    }
    body.complete_round = convoy_reopen_complete_round(engine);
    size_t more = reopen_append_result(remote, body.complete_round, &body);
    memcpy(remote->scratch, &body, sizeof body);
    convoy_remote_send(remote, member, CONVOY_MESSAGE_PROPOSE, body.generation, remote->scratch, sizeof body + more);
    convoy_remote_send(remote, member, CONVOY_MESSAGE_COMMIT, body.generation, NULL, 0);
}

/* What this generation makes of a host. A leader that it goes on without is no longer waited for: the next one leads,
 * though it may not have been heard yet, and nothing is known against its link. */
static void reopen_adopt_host(struct convoy_remote *remote, uint32_t host)
{
    const struct convoy_engine *engine = remote->engine;
    struct convoy_remote_host *from = &remote->hosts[host];
    uint32_t first = CONVOY_REMOTE_NOBODY;
    from->member_count = 0;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        if (engine->local.hosts.host_of[member] == host && !convoy_engine_is_lost(engine, member)) {
            first = from->member_count++ == 0 ? member : first;
        }
    }
    if (first != CONVOY_REMOTE_NOBODY && convoy_engine_is_lost(engine, from->leader)) {
        from->leader = first;
        from->down_ns = 0;
    }
    from->is_lost = from->is_lost || from->member_count == 0;
    if (from->is_lost && from->member_count != 0) { /* agreed before it was lost: the first round says so */
        convoy_remote_lose_host(remote, host);
    }
}

void convoy_reopen_adopt(struct convoy_engine *engine)
{
    struct convoy_remote *remote = engine->remote;
    uint64_t word = convoy_reopen_generation_word(engine);
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
        reopen_adopt_host(remote, host);
    }
}
