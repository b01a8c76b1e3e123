/* SPDX-License-Identifier: Apache-2.0 */
/* Generations of pools on their way between engines of one host, over local sockets. All of it on the progress thread. */
#include "xfer/resize.h"

#include "core/bytes.h"
#include "core/clock.h"
#include "core/error.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#define MAGIC "CVXG"
#define MAGIC_ANSWER "CVXA"
#define RETRY_MS 10u
#define RETRY_DOUBLINGS 7u /* up to 1.28 s */

enum {
    NONCE_AT = 8,
    GENERATION_AT = NONCE_AT + CONVOY_INTRODUCE_NONCE_BYTES,
    BASE_AT = GENERATION_AT + 8,
    MESSAGE_BYTES = BASE_AT + 8,
    ANSWER_BYTES = 16,
};

/* -- out ----------------------------------------------------------------------------------------------------------- */

static void try_later(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    uint32_t doublings = peer->share_tries < RETRY_DOUBLINGS ? peer->share_tries : RETRY_DOUBLINGS;
    peer->share_tries++;
    peer->share_retry_ns = convoy_deadline_after(convoy_now_ns(), (uint64_t)(RETRY_MS << doublings) * CONVOY_NS_PER_MS);
    convoy_xfer_timer(engine, peer->share_retry_ns);
}

/* A connection with the files in it, or -1. Never waits: a queue that is full has room later. */
static int send_files(const struct convoy_xfer *engine, const struct convoy_local_socket_target *target,
                      const uint8_t *socket_name, const uint8_t *nonce, const struct convoy_pool_share *share)
{
    struct convoy_local_socket there = engine->local;
    struct convoy_fd_message message = {.bytes = MESSAGE_BYTES, .fd_count = 1};
    int channel = -1;
    there.session = socket_name;
    memset(message.data, 0, MESSAGE_BYTES);
    memcpy(message.data, MAGIC, 4);
    memcpy(message.data + NONCE_AT, nonce, CONVOY_INTRODUCE_NONCE_BYTES);
    convoy_bytes_put_u64(message.data + GENERATION_AT, share->generation);
    convoy_bytes_put_u64(message.data + BASE_AT, share->base);
    message.fds[0] = share->file;
    if (convoy_local_socket_connect(&there, target, 0, &channel, NULL) != CONVOY_OK) {
        return -1;
    }
    if (convoy_fd_channel_send(channel, &message, convoy_now_ns(), NULL) != CONVOY_OK) {
        (void)close(channel);
        return -1;
    }
    return channel;
}

static void hand_over(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t wanted)
{
    const struct convoy_local_socket_target target = peer->target;
    const uint32_t life = peer->generation;
    uint8_t socket_name[sizeof peer->socket];
    uint8_t nonce[sizeof peer->nonce];
    struct convoy_pool_share share;
    int channel = -1;
    memcpy(socket_name, peer->socket, sizeof socket_name);
    memcpy(nonce, peer->nonce, sizeof nonce);
    convoy_xfer_unlock(engine);
    if (convoy_pool_share(engine->pool, wanted, &share)) {
        channel = share.file >= 0 ? send_files(engine, &target, socket_name, nonce, &share) : -1;
        if (share.file >= 0) {
            (void)close(share.file);
        }
    }
    convoy_xfer_lock(engine);
    struct convoy_share *row = convoy_shares_of(&peer->shares, wanted);
    bool is_same = peer->generation == life && peer->state == CONVOY_PEER_IS_CONNECTED && peer->share_fd < 0;
    if (channel >= 0 && is_same) { /* heard even if it has ended meanwhile: the peer is then told to forget it */
        peer->share_fd = channel;
        CONVOY_XFER_NOTE(engine, generations_handed);
        if (row != NULL) {
            (void)convoy_share_move(&peer->shares, row, CONVOY_SHARE_SENT);
        }
    } else if (channel >= 0) {
        (void)close(channel);
    } else if (is_same) {
        try_later(engine, peer);
    }
}

static void answered(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const uint8_t *data)
{
    uint64_t generation = convoy_bytes_u64(data + 8);
    int32_t status = (int32_t)convoy_bytes_u32(data + 4);
    struct convoy_share *row = convoy_shares_of(&peer->shares, generation);
    peer->share_tries = 0;
    if (row == NULL || row->state != CONVOY_SHARE_SENT) { /* it has ended meanwhile */
        convoy_xfer_share_late(engine, peer, generation);
        return;
    }
    (void)convoy_share_move(&peer->shares, row, status == CONVOY_OK ? CONVOY_SHARE_TAKEN : CONVOY_SHARE_REFUSED);
    if (status != CONVOY_OK) {
        convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN,
                        "engine %s: peer %s cannot map generation %llu of the pool: status %d; it gets nothing that lies there",
                        engine->session, peer->session, (unsigned long long)generation, status);
    }
}

/* Nonblocking. A connection that ended without a word is as if nothing had been sent. */
static void hear(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    struct convoy_fd_message message;
    int32_t status = convoy_fd_channel_recv(peer->share_fd, &message, convoy_now_ns(), NULL);
    if (status == CONVOY_TIMED_OUT) {
        return;
    }
    (void)close(peer->share_fd);
    peer->share_fd = -1;
    bool is_answer = status == CONVOY_OK && message.bytes == ANSWER_BYTES && memcmp(message.data, MAGIC_ANSWER, 4) == 0;
    if (is_answer) {
        answered(engine, peer, message.data);
    }
    struct convoy_share *row = convoy_shares_newest(&peer->shares, CONVOY_SHARE_SENT);
    if (row != NULL) {
        (void)convoy_share_move(&peer->shares, row, CONVOY_SHARE_WANTED);
        try_later(engine, peer);
    }
    if (status == CONVOY_OK) {
        convoy_fd_message_fini(&message);
    }
    convoy_xfer_peer_flush(engine, peer);
}

static void step_peer(struct convoy_xfer *engine, struct convoy_xfer_peer *peer)
{
    if (peer->share_fd >= 0) {
        hear(engine, peer);
    }
    const struct convoy_share *next = convoy_shares_newest(&peer->shares, CONVOY_SHARE_WANTED);
    if (next == NULL || peer->share_fd >= 0) {
        return;
    }
    if (convoy_now_ns() >= peer->share_retry_ns) {
        hand_over(engine, peer, next->generation);
    } else {
        convoy_xfer_timer(engine, peer->share_retry_ns);
    }
}

void convoy_xfer_shares_step(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        if (peer->state == CONVOY_PEER_IS_CONNECTED && (peer->share_fd >= 0 || peer->shares.pending_count != 0)) {
            step_peer(engine, peer);
        }
    }
}

uint32_t convoy_xfer_shares_polls(const struct convoy_xfer *engine, struct pollfd *polls)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        if (engine->peers[i].state == CONVOY_PEER_IS_CONNECTED && engine->peers[i].share_fd >= 0) {
            polls[count++] = (struct pollfd){.fd = engine->peers[i].share_fd, .events = POLLIN};
        }
    }
    return count;
}

/* -- in ------------------------------------------------------------------------------------------------------------ */

static struct convoy_xfer_peer *find_peer(struct convoy_xfer *engine, const uint8_t *nonce)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        if (peer->state == CONVOY_PEER_IS_CONNECTED && peer->view != NULL &&
            memcmp(peer->nonce, nonce, sizeof peer->nonce) == 0) {
            return peer;
        }
    }
    return NULL;
}

static void say_answer(int channel, int32_t status, uint64_t generation)
{
    struct convoy_fd_message answer = {.bytes = ANSWER_BYTES};
    memcpy(answer.data, MAGIC_ANSWER, 4);
    convoy_bytes_put_u32(answer.data + 4, (uint32_t)status);
    convoy_bytes_put_u64(answer.data + 8, generation);
    (void)convoy_fd_channel_send(channel, &answer, convoy_now_ns(), NULL); /* else it is asked again */
}

/* Into the list of the peer whose nonce is in the message. view: NULL with the status why there is none. false: there is no
 * such peer (yet). */
static bool attach(struct convoy_xfer *engine, const uint8_t *nonce, struct convoy_view *view, int32_t *status)
{
    convoy_xfer_lock(engine);
    struct convoy_xfer_peer *peer = find_peer(engine, nonce);
    if (peer != NULL && *status == CONVOY_OK) {
        *status = convoy_view_attach(&peer->view, view);
    }
    if (peer != NULL) {
        bool is_good = *status == CONVOY_OK || *status == CONVOY_BUSY;
        engine->counters[is_good ? CONVOY_XFER_COUNT_generations_taken : CONVOY_XFER_COUNT_generations_refused]++;
    }
    convoy_xfer_unlock(engine);
    return peer != NULL;
}

bool convoy_xfer_shares_take(struct convoy_xfer *engine, int channel, struct convoy_fd_message *message)
{
    struct convoy_view *view = NULL;
    if (message->bytes != MESSAGE_BYTES || memcmp(message->data, MAGIC, 4) != 0) {
        return false;
    }
    uint64_t generation = convoy_bytes_u64(message->data + GENERATION_AT);
    int32_t status = message->fd_count == 1 ? convoy_view_open(message->fds[0], -1, &view, NULL) : CONVOY_MALFORMED;
    convoy_fd_message_fini(message);
    if (status == CONVOY_OK && !convoy_view_place(view, generation, convoy_bytes_u64(message->data + BASE_AT))) {
        status = CONVOY_MALFORMED;
    }
    bool is_known = attach(engine, message->data + NONCE_AT, view, &status);
    if (status != CONVOY_OK || !is_known) {
        convoy_view_put(view);
    }
    if (is_known) {
        say_answer(channel, status == CONVOY_BUSY ? CONVOY_OK : status, generation);
    }
    return true;
}
