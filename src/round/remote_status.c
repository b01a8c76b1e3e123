/* SPDX-License-Identifier: Apache-2.0 */
/* What is known about members of other hosts: a table in the segment that the leader keeps and every local member reads
 * for reports and dumps. A leader that has waited for a quarter of its deadline asks the silent ones, and again each time
 * the round has taken twice as long: what a report says of them is half as old as the round at most. */
#include "round/remote_internal.h"

#define STATUS_AGAIN_NS (100 * CONVOY_NS_PER_MS) /* the soonest */

void convoy_remote_saw_host(struct convoy_remote *remote, uint32_t host, uint64_t word, uint64_t tag)
{
    const struct convoy_engine *engine = remote->engine;
    uint64_t now = convoy_engine_coarse_ns();
    for (uint32_t member = 0; member < engine->member_count; member++) {
        if (engine->local.hosts.host_of[member] != host) {
            continue;
        }
        struct convoy_member_status *status = convoy_segment_status(&engine->segment, member);
        atomic_store_explicit(&status->round, convoy_word_round(word), memory_order_relaxed);
        atomic_store_explicit(&status->tag, tag, memory_order_relaxed);
        atomic_store_explicit(&status->seen_ns, now, memory_order_relaxed);
        atomic_store_explicit(&status->operation, engine->contribution.header.operation, memory_order_relaxed);
        atomic_store_explicit(&status->condition, CONVOY_MEMBER_HEARD, memory_order_relaxed);
    }
}

/* The last published cell of each member of this host. */
size_t convoy_remote_rows(struct convoy_remote *remote, struct convoy_partial_row *rows)
{
    struct convoy_engine *engine = remote->engine;
    size_t count = 0;
    for (uint32_t local = 0; local < engine->local_count; local++) {
        const struct convoy_cell *cell = convoy_engine_last_cell(engine, local);
        if (cell == NULL || convoy_engine_is_lost(engine, engine->local_members[local])) {
            continue;
        }
        rows[count++] = (struct convoy_partial_row){
            .member = engine->local_members[local],
            .operation = cell->cold.operation,
            .fingerprint = cell->fingerprint,
            .round = convoy_word_round(atomic_load(&cell->word)),
            .tag = cell->tag,
            .epoch = cell->cold.epoch,
            .counts = cell->cold.counts,
            .digest = cell->cold.digest,
            .schema = cell->cold.schema,
            .policy = cell->cold.policy,
        };
    }
    return count;
}

void convoy_remote_send_status(struct convoy_remote *remote, uint32_t member)
{
    struct convoy_partial_row *rows = (struct convoy_partial_row *)(void *)remote->scratch;
    size_t count = convoy_remote_rows(remote, rows);
    convoy_remote_send(remote, member, CONVOY_MESSAGE_STATUS, 0, rows, count * sizeof *rows);
}

void convoy_remote_read_status(struct convoy_remote *remote, uint32_t host, const uint8_t *data, size_t bytes)
{
    const struct convoy_engine *engine = remote->engine;
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    for (uint32_t member = 0; member < engine->member_count; member++) { /* who is not listed has never contributed */
        if (engine->local.hosts.host_of[member] == host) {
            struct convoy_member_status *status = convoy_segment_status(&engine->segment, member);
            atomic_store_explicit(&status->condition, CONVOY_MEMBER_MISSING, memory_order_relaxed);
        }
    }
    for (size_t at = 0; at + sizeof(struct convoy_partial_row) <= bytes; at += sizeof(struct convoy_partial_row)) {
        struct convoy_partial_row row;
        memcpy(&row, data + at, sizeof row);
        if (row.member >= engine->member_count || engine->local.hosts.host_of[row.member] != host) {
            convoy_remote_count(&remote->dropped_bad);
            return;
        }
        struct convoy_member_status *status = convoy_segment_status(&engine->segment, row.member);
        bool is_heard = row.round >= (round & CONVOY_WORD_ROUND_MASK);
        atomic_store_explicit(&status->round, row.round, memory_order_relaxed);
        atomic_store_explicit(&status->tag, row.tag, memory_order_relaxed);
        atomic_store_explicit(&status->operation, row.operation, memory_order_relaxed);
        atomic_store_explicit(&status->seen_ns, convoy_engine_coarse_ns(), memory_order_relaxed);
        atomic_store_explicit(&status->condition, is_heard ? CONVOY_MEMBER_HEARD : CONVOY_MEMBER_MISSING,
                              memory_order_relaxed);
    }
}

void convoy_remote_ask_silent(struct convoy_remote *remote, uint64_t now_ns)
{
    struct convoy_engine *engine = remote->engine;
    if (now_ns < engine->waiting.ask_ns || !convoy_engine_is_open(engine) || !convoy_remote_is_leader(engine)) {
        return;
    }
    uint64_t word = convoy_word(engine->generation, atomic_load_explicit(&engine->round, memory_order_relaxed));
    uint64_t taken = convoy_deadline_left(atomic_load_explicit(&engine->published_ns, memory_order_relaxed), now_ns);
    for (uint32_t host = 0; host < remote->host_count; host++) {
        struct convoy_remote_host *from = &remote->hosts[host];
        bool is_again = from->asked_word == word;
        if (host == remote->own_host || from->is_lost || from->partial[word & 1].word == word ||
            (is_again && now_ns < from->ask_again_ns)) {
            continue;
        }
        from->asked_word = word;
        from->ask_again_ns = now_ns + (taken > STATUS_AGAIN_NS ? taken : STATUS_AGAIN_NS);
        for (uint32_t member = 0; member < engine->member_count && !is_again; member++) { /* until the answer comes */
            if (engine->local.hosts.host_of[member] == host) {
                atomic_store_explicit(&convoy_segment_status(&engine->segment, member)->condition,
                                      CONVOY_MEMBER_UNKNOWN, memory_order_relaxed);
            }
        }
        convoy_remote_send(remote, from->leader, CONVOY_MESSAGE_ASK, word, NULL, 0);
    }
}

/* The row of one member of another host, from the table. */
static void status_row(struct convoy_engine *engine, uint32_t member, uint64_t now_ns, struct convoy_member_report *row)
{
    const struct convoy_remote *remote = engine->remote;
    const struct convoy_remote_host *host = &remote->hosts[engine->local.hosts.host_of[member]];
    const struct convoy_member_status *status = convoy_segment_status(&engine->segment, member);
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed) & CONVOY_WORD_ROUND_MASK;
    uint64_t seen = atomic_load_explicit(&status->seen_ns, memory_order_relaxed);
    uint32_t condition = atomic_load_explicit(&status->condition, memory_order_relaxed);
    *row = (struct convoy_member_report){
        .rank = convoy_engine_rank(engine, member),
        .index = member,
        .host = engine->local.hosts.host_of[member],
        .behind = -1,
        .operation = atomic_load_explicit(&status->operation, memory_order_relaxed),
        .round = atomic_load_explicit(&status->round, memory_order_relaxed),
        .tag = atomic_load_explicit(&status->tag, memory_order_relaxed),
        .age_ns = seen != 0 ? convoy_deadline_left(seen, now_ns) : UINT64_MAX,
        .epoch = convoy_engine_epoch(engine),
        .noticed_by = engine->losses[member].noticed_by,
    };
    if (engine->losses[member].is_dead != 0 || convoy_engine_is_lost(engine, member)) {
        row->condition = engine->losses[member].is_closed != 0 ? CONVOY_MEMBER_CLOSED : CONVOY_MEMBER_LOST;
    } else if (row->round >= round && round != 0) {
        row->condition = CONVOY_MEMBER_HEARD;
    } else if (condition == CONVOY_MEMBER_UNKNOWN && member != host->leader) {
        row->condition = CONVOY_MEMBER_UNKNOWN;
        row->behind = convoy_engine_rank(engine, host->leader);
    } else {
        row->condition = CONVOY_MEMBER_MISSING;
    }
}

/* What a divergence said about one member. */
static void status_diverged_row(struct convoy_engine *engine, const struct convoy_partial_row *from,
                                struct convoy_member_report *row)
{
    row->operation = from->operation;
    row->round = from->round;
    row->tag = from->tag;
    row->epoch = from->epoch;
    row->counts = from->counts;
    row->digest = from->digest;
    row->schema = from->schema;
    row->policy = from->policy;
    bool is_other_step = from->tag != 0 && engine->contribution.tag != 0 && from->tag != engine->contribution.tag;
    bool is_diverged = from->fingerprint != engine->reference || is_other_step;
    row->condition = is_diverged ? CONVOY_MEMBER_DIVERGED : CONVOY_MEMBER_HEARD;
}

void convoy_remote_report_rows(struct convoy_engine *engine, uint64_t now_ns, struct convoy_member_report *rows)
{
    const struct convoy_remote *remote = engine->remote;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        if (engine->local.hosts.host_of[member] != remote->own_host) {
            status_row(engine, member, now_ns, &rows[member]);
        }
    }
    for (uint32_t i = 0; remote->has_diverged_rows && i < remote->diverged_count; i++) {
        if (remote->diverged_rows[i].member < engine->member_count) {
            status_diverged_row(engine, &remote->diverged_rows[i], &rows[remote->diverged_rows[i].member]);
        }
    }
}

/* A member that no endpoint leads to is heard and told through the leader of its host. */
void convoy_remote_look(const struct convoy_engine *engine, uint32_t member, struct convoy_remote_look *look_out)
{
    const struct convoy_remote *remote = engine->remote;
    const struct convoy_loss *loss = &engine->losses[member];
    const struct convoy_link *link = convoy_remote_link(remote);
    uint32_t peer = member;
    *look_out = (struct convoy_remote_look){.link = "none"};
    if (link != NULL && convoy_link_peer_state(link, member) == CONVOY_LINK_NONE) {
        peer = atomic_load_explicit(&remote->hosts[engine->local.hosts.host_of[member]].leader, memory_order_relaxed);
    }
    if (link != NULL) {
        look_out->link = convoy_link_state_text(convoy_link_peer_state(link, peer));
        convoy_link_peer_transports(link, peer, look_out->transports);
    }
    if (loss->is_closed != 0) {
        look_out->link = "closed";
    } else if (loss->is_dead != 0 || convoy_engine_is_lost(engine, member)) {
        look_out->link = "lost";
    }
}
