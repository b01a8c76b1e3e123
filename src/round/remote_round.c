/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round across hosts. The leader merges its host's cells into a partial, keeps it in the segment for a successor,
 * sends it to the other leaders, merges theirs, and publishes the result in the segment; every member of the host,
 * the leader too, finishes from there. A result that is there is complete; sealing it is how a host gives up.
 */
#include "round/remote_internal.h"

#define ROUND_UNSENT_LOOKS 64u /* of a leader at its host, in one round, to one at the others */
#define ROUND_SENDING_NS (200 * CONVOY_NS_PER_MS) /* twenty glances of the progress thread */

static uint64_t round_of(const struct convoy_engine *engine)
{
    return atomic_load_explicit(&engine->round, memory_order_relaxed);
}

static uint64_t round_word(const struct convoy_engine *engine)
{
    return convoy_word(engine->generation, round_of(engine));
}

void convoy_remote_write_blob(struct convoy_segment_blob *blob, const uint8_t *bytes, size_t length)
{
    (void)atomic_fetch_add(&blob->writes, 1);
    memcpy(blob->bytes, bytes, length);
    blob->length = length;
    (void)atomic_fetch_add(&blob->writes, 1);
}

/* A result slot that was frozen because this host has answered for its last complete round (remote_reopen.c): the round
 * can still fail here, but not complete any more. */
static bool round_is_frozen(const struct convoy_engine *engine, uint64_t word)
{
    return convoy_cell_view_of(word, engine->generation, round_of(engine)) == CONVOY_CELL_SEALED &&
           convoy_word_reason(word) == CONVOY_SEAL_LOST;
}

/* Publishes bytes in a slot of the segment, unless it is sealed or holds this word already. */
static bool round_store(struct convoy_engine *engine, struct convoy_segment_blob *blob, const uint8_t *bytes,
                        size_t length)
{
    uint64_t word = round_word(engine);
    uint64_t old = atomic_load(&blob->word);
    const struct convoy_partial_head *head = (const struct convoy_partial_head *)(const void *)bytes;
    bool is_failure = (head->flags & CONVOY_PARTIAL_FAILED) != 0;
    if (convoy_cell_view_of(old, engine->generation, round_of(engine)) != CONVOY_CELL_PENDING &&
        !(is_failure && round_is_frozen(engine, old))) {
        return false;
    }
    convoy_remote_write_blob(blob, bytes, length);
    return atomic_compare_exchange_strong(&blob->word, &old, word);
}

/* Merges this host's cells and sends the outcome to the other leaders. */
static void round_send_partial(struct convoy_remote *remote)
{
    struct convoy_engine *engine = remote->engine;
    const struct convoy_contribution *own = &engine->contribution;
    struct convoy_round_pass pass;
    struct convoy_partial_head head;
    convoy_engine_pass(engine, &pass);
    convoy_partial_from_pass(&head, engine, &pass);
    if (head.status == CONVOY_OK && head.flags == 0) {
        size_t room = remote->blob_bytes - sizeof head;
        size_t bytes = own->merge->encode(own->merge_state, remote->scratch + sizeof head, room);
        head.payload_bytes = (uint32_t)bytes;
        head.status = bytes == 0 && room == 0 ? CONVOY_LIMIT : CONVOY_OK;
    }
    memcpy(remote->scratch, &head, sizeof head);
    size_t length = sizeof head + head.payload_bytes;
    (void)round_store(engine, convoy_segment_partial(&engine->segment, round_of(engine)), remote->scratch, length);
    remote->sent_word = round_word(engine);
    engine->waiting.turn = 0;
    CONVOY_POINT(lead_before_send);
    convoy_remote_broadcast(remote, CONVOY_MESSAGE_PARTIAL, remote->sent_word, remote->scratch, length);
    CONVOY_POINT(lead_after_send);
}

void convoy_remote_resend(struct convoy_remote *remote, uint32_t member, uint64_t word)
{
    struct convoy_engine *engine = remote->engine;
    const struct convoy_segment_blob *blob = convoy_segment_partial(&engine->segment, word & 1);
    if (atomic_load(&blob->word) == word && blob->length <= remote->blob_bytes) {
        convoy_remote_send(remote, member, CONVOY_MESSAGE_PARTIAL, word, blob->bytes, blob->length);
    }
    if (remote->rows_word == word && remote->diverged_count != 0) {
        size_t count = convoy_remote_rows(remote, (struct convoy_partial_row *)(void *)remote->scratch);
        convoy_remote_send(remote, member, CONVOY_MESSAGE_ROWS, word, remote->scratch,
                           count * sizeof(struct convoy_partial_row));
    }
}

void convoy_remote_repeat(struct convoy_remote *remote, uint32_t member)
{
    const struct convoy_engine *engine = remote->engine;
    if (engine->local.hosts.host_of[member] == remote->own_host) {
        return;
    }
    for (uint32_t parity = 0; parity < 2 && convoy_remote_is_leader(engine); parity++) {
        uint64_t word = atomic_load(&convoy_segment_partial(&engine->segment, parity)->word);
        if (word != 0 && convoy_word_generation(word) == engine->generation) {
            convoy_remote_resend(remote, member, word);
        }
    }
    if (remote->failed_word != 0 && convoy_word_generation(remote->failed_word) == engine->generation) {
        convoy_remote_send(remote, member, CONVOY_MESSAGE_PARTIAL, remote->failed_word, &remote->failed,
                           sizeof remote->failed);
    }
}

/* Whether a host's failure in an earlier round of this generation dooms the open one: it has given up for good. One in a
 * later round does not: what it sent for this one may be on its way over another link. */
static bool round_is_doomed(const struct convoy_remote *remote, const struct convoy_remote_box *box)
{
    struct convoy_partial_head head;
    return convoy_word_generation(box->word) == remote->engine->generation && box->word != 0 &&
           convoy_word_round(box->word) < (round_of(remote->engine) & CONVOY_WORD_ROUND_MASK) &&
           convoy_partial_read(&head, box->bytes, box->length, remote->engine->member_count) &&
           (head.flags & CONVOY_PARTIAL_FAILED) != 0;
}

/* The hosts that a round of this generation hears from. A host that was lost since still counts: it failed the round. */
static uint64_t round_peers(const struct convoy_remote *remote)
{
    struct convoy_schedule schedule = {.host_count = remote->host_count, .own_host = remote->own_host};
    for (uint32_t host = 0; host < remote->host_count; host++) {
        bool takes_part = !remote->hosts[host].is_lost || remote->hosts[host].member_count != 0;
        schedule.taking_part |= (uint64_t)takes_part << host;
    }
    return convoy_schedule_peers(&schedule, 0); /* all there is: convoy_schedule_hops is 1 */
}

/* Adds up the heads of all hosts; false while one is missing. A failure decides at once. */
static bool round_combine(struct convoy_remote *remote, struct convoy_partial_head *head)
{
    struct convoy_engine *engine = remote->engine;
    uint64_t word = round_word(engine);
    const struct convoy_segment_blob *own = convoy_segment_partial(&engine->segment, round_of(engine));
    bool is_complete = remote->sent_word == word && atomic_load(&own->word) == word;
    *head = (struct convoy_partial_head){
        .votes_and = UINT32_MAX,
        .culprit = UINT32_MAX,
        .error_member = UINT32_MAX,
    };
    if (is_complete) {
        (void)convoy_partial_read(head, own->bytes, own->length, engine->member_count);
    }
    for (uint64_t peers = round_peers(remote); peers != 0;) {
        const struct convoy_remote_host *from = &remote->hosts[convoy_schedule_take(&peers)];
        const struct convoy_remote_box *box = &from->partial[word & 1];
        bool is_doomed = round_is_doomed(remote, &from->partial[0]) || round_is_doomed(remote, &from->partial[1]);
        if (box->word != word && is_doomed) {
            box = &from->partial[(word & 1) ^ 1];
        }
        struct convoy_partial_head other;
        if ((box->word != word && !is_doomed) ||
            !convoy_partial_read(&other, box->bytes, box->length, engine->member_count)) {
            is_complete = false;
            continue;
        }
        convoy_partial_combine(head, &other);
    }
    return is_complete || (head->flags & CONVOY_PARTIAL_FAILED) != 0;
}

static int32_t round_merge_payloads(struct convoy_remote *remote, struct convoy_partial_head *head)
{
    struct convoy_engine *engine = remote->engine;
    const struct convoy_contribution *own = &engine->contribution;
    uint64_t word = round_word(engine);
    const struct convoy_segment_blob *mine = convoy_segment_partial(&engine->segment, round_of(engine));
    own->merge->begin(own->merge_state);
    int32_t status = own->merge->partial(own->merge_state, mine->bytes + sizeof *head, mine->length - sizeof *head);
    for (uint64_t peers = round_peers(remote); peers != 0 && status == CONVOY_OK;) {
        uint32_t host = convoy_schedule_take(&peers);
        const struct convoy_remote_box *box = &remote->hosts[host].partial[word & 1];
        if (box->word == word) {
            status = own->merge->partial(own->merge_state, box->bytes + sizeof *head, box->length - sizeof *head);
            head->culprit = status != CONVOY_OK ? remote->hosts[host].leader : head->culprit;
        }
    }
    for (uint32_t member = 0; member < engine->member_count; member++) { /* hosts this generation goes on without */
        if (convoy_engine_is_lost(engine, member) &&
            engine->local.hosts.host_of[member] != remote->own_host) {
            own->merge->absent(own->merge_state, member, CONVOY_ABSENT_LOST, 0);
        }
    }
    return status;
}

/* Members of hosts that have no part in this generation: no host counts them among its own. */
static uint32_t round_lost_hosts(const struct convoy_remote *remote)
{
    const struct convoy_engine *engine = remote->engine;
    uint32_t count = 0;
    for (uint32_t member = 0; member < engine->member_count && engine->lost_count != 0; member++) {
        count += remote->hosts[engine->local.hosts.host_of[member]].member_count == 0;
    }
    return count;
}

/* Makes the result's bytes in scratch; 0 while the second hop is not complete. */
static size_t round_build_rows(struct convoy_remote *remote, struct convoy_partial_head *head)
{
    uint64_t word = round_word(remote->engine);
    struct convoy_partial_row *rows = (struct convoy_partial_row *)(void *)(remote->scratch + sizeof *head);
    size_t count = convoy_remote_rows(remote, rows);
    if (remote->rows_word != word) {
        remote->rows_word = word;
        remote->diverged_count = (uint32_t)count;
        convoy_remote_broadcast(remote, CONVOY_MESSAGE_ROWS, word, rows, count * sizeof *rows);
    }
    for (uint64_t peers = round_peers(remote); peers != 0;) {
        const struct convoy_remote_box *box = &remote->hosts[convoy_schedule_take(&peers)].rows[word & 1];
        if (box->word != word && CONVOY_MUTATED(second_hop_skipped)) {
            continue;
        }
        if (box->word != word) {
            return 0;
        }
        memcpy(&rows[count], box->bytes, box->length);
        count += box->length / sizeof *rows;
    }
    head->status = CONVOY_DIVERGED;
    head->row_count = (uint32_t)count;
    head->payload_bytes = 0;
    return sizeof *head + count * sizeof *rows;
}

/* All partials are there: the result as bytes in scratch, or 0 when the second hop is still out. */
static size_t round_build_result(struct convoy_remote *remote, struct convoy_partial_head *head)
{
    struct convoy_engine *engine = remote->engine;
    const struct convoy_contribution *own = &engine->contribution;
    size_t length = sizeof *head;
    head->payload_bytes = 0;
    head->lost_count += round_lost_hosts(remote);
    if ((head->flags & CONVOY_PARTIAL_FAILED) == 0) {
        if (convoy_partial_is_diverged(head)) {
            length = round_build_rows(remote, head);
        } else if (head->status == CONVOY_OK && head->error_member == UINT32_MAX) {
            head->status = round_merge_payloads(remote, head);
            if (head->status == CONVOY_OK) {
                size_t bytes = own->merge->encode(own->merge_state, remote->scratch + sizeof *head,
                                                  remote->blob_bytes - sizeof *head);
                head->payload_bytes = (uint32_t)bytes;
                length += bytes;
            }
        } else if (head->status == CONVOY_OK) {
            head->status = CONVOY_PEER_ERROR;
        }
    }
    memcpy(remote->scratch, head, sizeof *head);
    return length;
}

/* The leader's part of one step. */
static void round_lead(struct convoy_remote *remote, bool is_local_complete)
{
    struct convoy_engine *engine = remote->engine;
    uint64_t word = round_word(engine);
    if (!remote->was_leader) { /* succession: what the old leader knew, the others still have */
        remote->was_leader = true;
        bool is_succession = engine->local_index != 0;
        (void)atomic_fetch_add_explicit(&engine->counters.successions, is_succession, memory_order_relaxed);
        remote->sent_word = 0;
        if (!CONVOY_MUTATED(no_request_by_successor)) {
            convoy_remote_broadcast(remote, CONVOY_MESSAGE_REQUEST, word, NULL, 0);
        }
    }
    if (is_local_complete && remote->sent_word != word) {
        round_send_partial(remote);
    }
    struct convoy_partial_head head;
    if (!round_combine(remote, &head)) {
        return;
    }
    size_t length = round_build_result(remote, &head);
    if (length != 0) {
        CONVOY_POINT(lead_before_result);
        (void)round_store(engine, convoy_segment_result(&engine->segment, round_of(engine)), remote->scratch, length);
        CONVOY_POINT(lead_after_result);
        convoy_engine_wake(engine);
    }
}

void convoy_remote_tell_failed(struct convoy_remote *remote, int32_t status, uint32_t culprit)
{
    uint64_t word = round_word(remote->engine);
    if (remote->failed_word == word) {
        return;
    }
    remote->failed_word = word;
    remote->failed = (struct convoy_partial_head){
        .fingerprint = remote->engine->fingerprint,
        .votes_and = UINT32_MAX,
        .flags = CONVOY_PARTIAL_FAILED,
        .status = status,
        .culprit = culprit,
        .error_member = UINT32_MAX,
    };
    convoy_remote_broadcast(remote, CONVOY_MESSAGE_PARTIAL, word, &remote->failed, sizeof remote->failed);
}

int32_t convoy_remote_fail_local(struct convoy_engine *engine)
{
    int32_t status = convoy_engine_fail_sealed(engine);
    convoy_remote_tell_failed(engine->remote, status, engine->failed_member);
    return status;
}

static int32_t round_end_failed(struct convoy_engine *engine, int32_t status, uint32_t culprit, const char *what)
{
    uint64_t round = round_of(engine);
    bool is_known = culprit < engine->member_count;
    int32_t rank = is_known ? convoy_engine_rank(engine, culprit) : -1;
    if (is_known && status == CONVOY_PEER_LOST) {
        convoy_engine_note_loss(engine, culprit, false,
                                engine->losses[culprit].noticed_by != 0 ? engine->losses[culprit].noticed_by
                                                                        : (uint8_t)CONVOY_NOTICED_PEER);
    }
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_engine_report_fill(engine, status, CONVOY_FIELD_NONE);
    if (is_known) {
        (void)convoy_error_set_peer(&error, status, rank, round, "group %.*s: rank %d %s in round %llu",
                                    (int)engine->group->name_length, engine->group->name, rank, what,
                                    (unsigned long long)round);
    } else {
        (void)convoy_error_set_peer(&error, status, -1, round, "group %.*s: another host %s round %llu",
                                    (int)engine->group->name_length, engine->group->name, "gave up on",
                                    (unsigned long long)round);
    }
    return convoy_engine_end(engine, status, &error);
}

/* A result that does not fit together is being replaced (reopen hands over another host's), or the segment is damaged. */
static int32_t round_unreadable(struct convoy_engine *engine, const struct convoy_segment_blob *blob, uint64_t writes)
{
    if ((writes & 1) != 0 || atomic_load(&blob->writes) != writes) {
        return CONVOY_IN_PROGRESS;
    }
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)convoy_error_set(&error, CONVOY_INVARIANT, "group %.*s: the result of round %llu in the segment is damaged",
                           (int)engine->group->name_length, engine->group->name,
                           (unsigned long long)round_of(engine));
    return convoy_engine_end(engine, CONVOY_INVARIANT, &error);
}

/* Finishes from the result that lies in the segment. */
int32_t convoy_remote_consume(struct convoy_engine *engine)
{
    struct convoy_remote *remote = engine->remote;
    const struct convoy_contribution *own = &engine->contribution;
    const struct convoy_segment_blob *blob = convoy_segment_result(&engine->segment, round_of(engine));
    struct convoy_partial_head head;
    uint64_t writes = atomic_load(&blob->writes);
    size_t length = blob->length;
    if ((writes & 1) != 0 || length > remote->blob_bytes ||
        !convoy_partial_read(&head, blob->bytes, length, engine->member_count)) {
        return round_unreadable(engine, blob, writes);
    }
    if ((head.flags & CONVOY_PARTIAL_FAILED) != 0) {
        return round_end_failed(engine, head.status, head.culprit,
                                head.status == CONVOY_PEER_LOST ? "was lost" : "abandoned the group");
    }
    struct convoy_round_pass pass = {
        .votes_and = head.votes_and,
        .votes_or = head.votes_or,
        .error_member = head.error_member < engine->member_count ? head.error_member : engine->member_count,
        .error_reason = head.error_reason,
        .diverged_member = engine->member_count,
        .bad_member = head.culprit < engine->member_count ? head.culprit : engine->own_index,
        .merge_status = head.status == CONVOY_PEER_ERROR || head.status == CONVOY_DIVERGED ? CONVOY_OK : head.status,
        .tag_min = head.tag_min,
        .tag_max = head.tag_max,
        .lost_count = head.lost_count < engine->member_count ? head.lost_count : engine->member_count,
    };
    remote->has_diverged_rows = head.row_count != 0;
    if (remote->has_diverged_rows) {
        memcpy(remote->diverged_rows, blob->bytes + sizeof head, head.row_count * sizeof *remote->diverged_rows);
        remote->diverged_count = head.row_count;
        pass.diverged_member = (head.flags & CONVOY_PARTIAL_MIXED) != 0 ? 0 : engine->member_count;
    } else if (head.status == CONVOY_OK) {
        own->merge->begin(own->merge_state);
        pass.merge_status = own->merge->partial(own->merge_state, blob->bytes + sizeof head, head.payload_bytes);
    }
    if (atomic_load(&blob->writes) != writes) {
        return CONVOY_IN_PROGRESS;
    }
    return convoy_engine_conclude(engine, &pass);
}

/* The others have agreed on a later generation already: who is missing from it says why. */
static int32_t round_moved_on(struct convoy_engine *engine)
{
    uint32_t culprit = convoy_engine_newly_lost(engine);
    return culprit < engine->member_count ? round_end_failed(engine, CONVOY_PEER_LOST, culprit, "was lost")
                                          : round_end_failed(engine, CONVOY_BROKEN, UINT32_MAX, "");
}

/* A round ends here only when its messages have left, or when there was time enough for the progress thread to take the
 * worker over: a member that stops right after its round must not keep the others from theirs. */
static bool round_still_sends(const struct convoy_engine *engine)
{
    if (convoy_link_pending(engine->remote->link) == 0) {
        return false;
    }
    uint64_t published = atomic_load_explicit(&engine->published_ns, memory_order_relaxed);
    return convoy_deadline_left(convoy_now_ns(), published + ROUND_SENDING_NS) != 0;
}

/* A result slot that is sealed, or a generation that has moved on, ends the round here. */
static int32_t round_look(struct convoy_engine *engine)
{
    const struct convoy_segment_blob *blob = convoy_segment_result(&engine->segment, round_of(engine));
    uint64_t word = atomic_load_explicit(&blob->word, memory_order_acquire);
    switch (convoy_cell_view_of(word, engine->generation, round_of(engine))) {
    case CONVOY_CELL_PUBLISHED:
        return round_still_sends(engine) ? CONVOY_IN_PROGRESS : convoy_remote_consume(engine);
    case CONVOY_CELL_SEALED: {
        if (round_is_frozen(engine, word)) {
            break; /* until the failure that caused it is heard of here, or the next generation is there */
        }
        uint32_t sealer = convoy_word_sealer(word);
        uint32_t member = sealer < engine->local_count ? engine->local_members[sealer] : UINT32_MAX;
        convoy_remote_tell_failed(engine->remote, CONVOY_BROKEN, member);
        return round_end_failed(engine, CONVOY_BROKEN, member, "abandoned the round");
    }
    case CONVOY_CELL_MOVED_ON:
        return round_moved_on(engine);
    case CONVOY_CELL_PENDING:
        break;
    }
    uint64_t generation = atomic_load(&convoy_segment_head(&engine->segment)->generation) & CONVOY_GENERATION_MAX;
    return generation > engine->generation ? round_moved_on(engine) : CONVOY_IN_PROGRESS;
}

int32_t convoy_remote_collect(struct convoy_engine *engine, bool is_local_complete)
{
    struct convoy_remote *remote = engine->remote;
    if (convoy_remote_is_leader(engine)) {
        bool has_sent = remote->sent_word == round_word(engine);
        bool must_listen = has_sent || (!is_local_complete && ++remote->unsent_turns % ROUND_UNSENT_LOOKS == 0);
        if (has_sent) {
            remote->unsent_turns = 0;
        }
        if (must_listen) { /* else the others wait for this host: first send, then listen */
            (void)convoy_link_progress(remote->link);
        }
        if (!convoy_engine_is_open(engine)) {
            return engine->ended_status;
        }
        round_lead(remote, is_local_complete);
    } else {
        remote->was_leader = false;
    }
    return round_look(engine);
}

bool convoy_remote_abandon(struct convoy_engine *engine)
{
    struct convoy_segment_blob *blob = convoy_segment_result(&engine->segment, round_of(engine));
    uint64_t sealed =
        convoy_word_sealed(engine->generation, round_of(engine), CONVOY_SEAL_ABANDON, engine->local_index);
    uint64_t word = atomic_load(&blob->word);
    while (convoy_cell_view_of(word, engine->generation, round_of(engine)) == CONVOY_CELL_PENDING ||
           round_is_frozen(engine, word)) {
        if (atomic_compare_exchange_strong(&blob->word, &word, sealed)) {
            break;
        }
    }
    convoy_engine_wake(engine);
    int32_t status = convoy_engine_collect(engine);
    return status == CONVOY_BROKEN || status == CONVOY_PEER_LOST;
}
