/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between leaders: sending, and taking apart what arrives. Nothing is trusted: token, sender, length, bounds. */
#include "round/remote_internal.h"

#include <sodium.h>

#define WIRE_SEND_TRIES 64

/* The endpoint to a member, made when first needed or after it failed. */
static bool wire_connect(struct convoy_remote *remote, uint32_t member)
{
    if (convoy_link_peer_state(remote->link, member) == CONVOY_LINK_UP) {
        return true;
    }
    if (remote->addresses[member] == NULL) {
        return false;
    }
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_link_connect(remote->link, member, remote->addresses[member], remote->address_bytes[member], &error) ==
        CONVOY_OK) {
        return true;
    }
    const struct convoy_engine *engine = remote->engine;
    if (!remote->has_warned) { /* once: what follows is a member that is not heard */
        remote->has_warned = true;
        convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN, "group %.*s rank %d cannot reach rank %d: %s",
                        (int)engine->group->name_length, engine->group->name,
                        convoy_engine_rank(engine, engine->own_index), convoy_engine_rank(engine, member), error.text);
    }
    return false;
}

void convoy_remote_send(struct convoy_remote *remote, uint32_t member, enum convoy_message_kind kind, uint64_t word,
                        const void *data, size_t bytes)
{
    struct convoy_message message = {
        .kind = kind,
        .member = remote->engine->own_index,
        .word = word,
        .length = (uint32_t)bytes,
        .leads = convoy_remote_is_leader(remote->engine),
    };
    memcpy(message.token, remote->token, sizeof message.token);
    if (!wire_connect(remote, member)) {
        return; /* its loss is noticed by the link's own news, or by silence */
    }
    for (int i = 0; i < WIRE_SEND_TRIES; i++) {
        if (convoy_link_send(remote->link, member, &message, sizeof message, data, bytes) != CONVOY_LIMIT) {
            return;
        }
        (void)convoy_link_progress(remote->link); /* all buffers in use: let some finish */
    }
}

void convoy_remote_broadcast(struct convoy_remote *remote, enum convoy_message_kind kind, uint64_t word,
                             const void *data, size_t bytes)
{
    for (uint32_t host = 0; host < remote->host_count; host++) {
        if (host != remote->own_host && !remote->hosts[host].is_lost) {
            convoy_remote_send(remote, remote->hosts[host].leader, kind, word, data, bytes);
            if (kind == CONVOY_MESSAGE_PARTIAL) {
                CONVOY_POINT(lead_sent_one);
            }
        }
    }
}

void convoy_remote_drop_stale(struct convoy_remote *remote)
{
    convoy_remote_count(&remote->dropped_stale);
    (void)atomic_fetch_add_explicit(&remote->engine->counters.stale, 1, memory_order_relaxed);
}

/* Keeps the first message for a word; a failure takes back what was said before it. What an earlier worker of the sender
 * has said may come after what its next one says: a later round of the parity stays. */
static void wire_keep(struct convoy_remote *remote, struct convoy_remote_box *boxes, const struct convoy_message *message,
                      const uint8_t *data, bool is_failure)
{
    struct convoy_remote_box *box = &boxes[message->word & 1];
    if (box->word >= message->word && !is_failure) {
        convoy_remote_count(&remote->dropped_repeat);
        return;
    }
    memcpy(box->bytes, data, message->length);
    box->length = message->length;
    box->word = message->word;
}

static void wire_partial(struct convoy_remote *remote, uint32_t host, const struct convoy_message *message,
                         const uint8_t *data)
{
    struct convoy_partial_head head;
    bool is_ours = host == remote->own_host; /* has a segment for that, and no box */
    if (is_ours || !convoy_partial_read(&head, data, message->length, remote->engine->member_count)) {
        convoy_remote_count(&remote->dropped_bad);
        return;
    }
    if (convoy_word_generation(message->word) < remote->engine->generation) {
        convoy_remote_drop_stale(remote);
        return;
    }
    bool is_loss = (head.flags & CONVOY_PARTIAL_FAILED) != 0 && head.status == CONVOY_PEER_LOST;
    if (is_loss && head.culprit == message->member) { /* it says so itself: a goodbye */
        convoy_engine_note_loss(remote->engine, head.culprit, true, CONVOY_NOTICED_CLOSE);
    }
    wire_keep(remote, remote->hosts[host].partial, message, data, (head.flags & CONVOY_PARTIAL_FAILED) != 0);
    convoy_remote_saw_host(remote, host, message->word, head.tag_max);
}

static void wire_rows(struct convoy_remote *remote, uint32_t host, const struct convoy_message *message,
                      const uint8_t *data)
{
    const struct convoy_engine *engine = remote->engine;
    size_t count = message->length / sizeof(struct convoy_partial_row);
    if (host == remote->own_host || message->length % sizeof(struct convoy_partial_row) != 0 ||
        count > engine->member_count) {
        convoy_remote_count(&remote->dropped_bad);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        struct convoy_partial_row row;
        memcpy(&row, data + i * sizeof row, sizeof row);
        if (row.member >= engine->member_count || engine->local.hosts.host_of[row.member] != host) {
            convoy_remote_count(&remote->dropped_bad);
            return;
        }
    }
    wire_keep(remote, remote->hosts[host].rows, message, data, false);
}

static void wire_dispatch(struct convoy_remote *remote, uint32_t host, const struct convoy_message *message,
                          const uint8_t *data)
{
    switch ((enum convoy_message_kind)message->kind) {
    case CONVOY_MESSAGE_PARTIAL:
        wire_partial(remote, host, message, data);
        return;
    case CONVOY_MESSAGE_ROWS:
        wire_rows(remote, host, message, data);
        return;
    case CONVOY_MESSAGE_REQUEST:
        convoy_remote_resend(remote, message->member, message->word);
        return;
    case CONVOY_MESSAGE_ASK:
        convoy_remote_resend(remote, message->member, message->word);
        convoy_remote_send_status(remote, message->member);
        return;
    case CONVOY_MESSAGE_STATUS:
        convoy_remote_read_status(remote, host, data, message->length);
        return;
    case CONVOY_MESSAGE_WANT:
    case CONVOY_MESSAGE_QUERY:
    case CONVOY_MESSAGE_STATE:
    case CONVOY_MESSAGE_PROPOSE:
    case CONVOY_MESSAGE_ACCEPT:
    case CONVOY_MESSAGE_COMMIT:
        convoy_remote_reopen_message(remote, message, data);
        return;
    case CONVOY_MESSAGE_REWIRED:
        convoy_remote_take_rewired(remote, message, data);
        return;
    case CONVOY_MESSAGE_REWIRED_ACK:
        convoy_remote_take_answer(remote, message, data);
        return;
    }
    convoy_remote_count(&remote->dropped_bad); /* a kind of a newer release: nothing that this wire version relies on */
}

void convoy_remote_recv(void *user, const void *header, size_t header_bytes, const void *data, size_t bytes)
{
    struct convoy_remote *remote = user;
    struct convoy_engine *engine = remote->engine;
    struct convoy_message message;
    if (remote->stage == CONVOY_REMOTE_FROZEN) {
        convoy_remote_hand_on(remote, header, header_bytes, data, bytes);
        return;
    }
    if (header_bytes != sizeof message) {
        convoy_remote_count(&remote->dropped_bad);
        return;
    }
    memcpy(&message, header, sizeof message);
    if (sodium_memcmp(message.token, remote->token, sizeof message.token) != 0) {
        convoy_remote_count(&remote->dropped_token);
        (void)atomic_fetch_add_explicit(&engine->counters.strange, 1, memory_order_relaxed);
        return;
    }
    bool is_rewired = message.kind == CONVOY_MESSAGE_REWIRED;
    size_t bytes_max = is_rewired ? CONVOY_REWIRE_BYTES_MAX : remote->blob_bytes;
    if (message.member >= engine->member_count || message.length != bytes || bytes > bytes_max) {
        convoy_remote_count(&remote->dropped_bad);
        return;
    }
    uint32_t host = engine->local.hosts.host_of[message.member];
    struct convoy_remote_host *from = &remote->hosts[host];
    if (convoy_engine_is_lost(engine, message.member) || from->is_lost) {
        convoy_remote_drop_stale(remote);
        return;
    }
    if (host != remote->own_host && message.leads != 0) {
        atomic_store_explicit(&from->leader, message.member, memory_order_relaxed);
        from->down_ns = 0;
    }
    wire_dispatch(remote, host, &message, data);
}

void convoy_remote_down(void *user, uint32_t peer, int32_t ucx_status)
{
    struct convoy_remote *remote = user;
    struct convoy_engine *engine = remote->engine;
    uint32_t host = engine->local.hosts.host_of[peer];
    if (remote->stage == CONVOY_REMOTE_FROZEN) {
        return; /* peers let go of it for the importer's */
    }
    convoy_log_line(&engine->runtime->log, CONVOY_LOG_INFO, "group %.*s link to rank %d is down, ucx status %d",
                    (int)engine->group->name_length, engine->group->name, convoy_engine_rank(engine, peer), ucx_status);
    if (convoy_remote_is_rewiring(remote, peer, convoy_now_ns())) {
        return;
    }
    if (host != remote->own_host && remote->hosts[host].leader == peer && remote->hosts[host].down_ns == 0) {
        remote->hosts[host].down_ns = convoy_now_ns();
        remote->hosts[host].retry_member = peer;
    }
}
