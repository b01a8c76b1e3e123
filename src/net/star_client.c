/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every member of a star but the listener: connects until it is admitted or refused for good, then talks in frames.
 * Before "admitted" a broken connection means trying again; after it, that the listener is lost.
 */
#include "net/carrier.h"

#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"
#include "net/dial.h"
#include "net/frame.h"
#include "net/handshake.h"
#include "net/message.h"
#include "net/roster.h"

#define CLIENT_PAUSE_NS_MAX (20 * CONVOY_NS_PER_MS)
#define CLIENT_FRAME_BYTES_MAX 4096u

struct star_client {
    struct convoy_frame_stream stream;
    struct convoy_rendezvous where;
    struct convoy_hello listener; /* its hello */
    bool is_admitted;
    bool may_retry; /* of the last attempt that failed */
    struct convoy_error last;  /* of the last attempt that the deadline did not cut short; status OK = none */
    struct convoy_error stale; /* a refusal by a listener of an earlier life; status OK = none */
    uint8_t heard[CONVOY_ROSTER_SET_BYTES];
    char remark[CONVOY_REMARK_BYTES]; /* the listener's, on connections that did not get in */
    uint8_t *table; /* of the last exchange; blobs point into it */
};

static int32_t client_listener_id(const struct convoy_bootstrap *bootstrap)
{
    return bootstrap->options->member_ids[bootstrap->options->listener_index];
}

/* -- frames ------------------------------------------------------------------------------------------------------ */

static void client_note_heard(struct star_client *client, uint32_t member_count, const struct convoy_frame *frame)
{
    uint32_t bytes = (member_count + 7) / 8;
    bytes = frame->bytes < bytes ? frame->bytes : bytes;
    memcpy(client->heard, frame->body, bytes);
    convoy_message_text(frame->body + bytes, frame->bytes - bytes, client->remark, sizeof client->remark);
    client->is_admitted = true;
}

/* REFUSED or FAILED: takes its status and text. */
static int32_t client_take_notice(struct star_client *client, const struct convoy_frame *frame,
                                  struct convoy_error *error)
{
    struct convoy_notice notice;
    if (!convoy_notice_decode(frame->body, frame->bytes, &notice)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "the listener sent a malformed notice");
    }
    client->may_retry = frame->type == CONVOY_MESSAGE_REFUSED && (notice.flags & CONVOY_NOTICE_RETRY) != 0;
    return convoy_notice_to_error(&notice, error);
}

/* The stream ended or broke. */
static int32_t client_stream_error(struct convoy_bootstrap *bootstrap, int32_t status, struct convoy_error *error)
{
    struct star_client *client = bootstrap->state;
    int32_t id = client_listener_id(bootstrap);
    switch (status) {
    case CONVOY_CANCELED:
        return status;
    case CONVOY_TIMED_OUT:
        return convoy_roster_missing(&bootstrap->hello.group, client->heard, client->remark, error);
    case CONVOY_NO_MEMORY:
        return convoy_error_set(error, status, "no memory for a frame");
    case CONVOY_PEER_LOST:
    case CONVOY_TRUNCATED:
        client->may_retry = !client->is_admitted;
        return convoy_error_set_peer(error, CONVOY_PEER_LOST, id, 0,
                                     "the listener, member %d, went away while the group was opening", id);
    default:
        return convoy_error_set_peer(error, CONVOY_MALFORMED, id, 0, "the listener, member %d, sent a bad frame", id);
    }
}

/* Waits for a frame of one type; takes in what comes before. frame_out->body: the caller frees. */
static int32_t client_await(struct convoy_bootstrap *bootstrap, uint16_t type, struct convoy_frame *frame_out,
                            struct convoy_error *error)
{
    struct star_client *client = bootstrap->state;
    for (;;) {
        struct convoy_frame frame;
        int32_t status = convoy_frame_wait_recv(&client->stream, &bootstrap->wait, &frame);
        if (status != CONVOY_OK) {
            return client_stream_error(bootstrap, status, error);
        }
        if (frame.type == type) {
            *frame_out = frame;
            return CONVOY_OK;
        }
        if (frame.type == CONVOY_MESSAGE_HEARD) {
            client_note_heard(client, bootstrap->hello.group.member_count, &frame);
        } else if (frame.type == CONVOY_MESSAGE_REFUSED || frame.type == CONVOY_MESSAGE_FAILED) {
            status = client_take_notice(client, &frame, error);
        } else {
            status = client_stream_error(bootstrap, CONVOY_MALFORMED, error);
        }
        convoy_memory_free(frame.body);
        if (status != CONVOY_OK) {
            return status;
        }
    }
}

/* -- connect ----------------------------------------------------------------------------------------------------- */

static int32_t client_welcome(struct convoy_bootstrap *bootstrap, struct convoy_error *error)
{
    struct convoy_frame frame;
    struct convoy_welcome welcome;
    int32_t status = client_await(bootstrap, CONVOY_MESSAGE_WELCOME, &frame, error);
    if (status != CONVOY_OK) {
        return status;
    }
    bool is_good = convoy_welcome_decode(frame.body, frame.bytes, &welcome);
    convoy_memory_free(frame.body);
    struct convoy_hello_choice choice;
    const struct star_client *client = bootstrap->state;
    if (!is_good || convoy_hello_choose(&bootstrap->hello, &client->listener, &choice, NULL) != CONVOY_OK ||
        welcome.wire < bootstrap->hello.wire_min || welcome.wire > choice.wire) {
        return client_stream_error(bootstrap, CONVOY_MALFORMED, error);
    }
    bootstrap->epoch = welcome.epoch;
    bootstrap->wire = welcome.wire;
    memcpy(bootstrap->salt, welcome.salt, sizeof bootstrap->salt);
    return CONVOY_OK;
}

/* Connects once and goes on to the welcome. The hello has its own short patience; once it is done only the group's
 * deadline counts, since leaving an admitted place would fail the group. */
static int32_t client_attempt(struct convoy_bootstrap *bootstrap, struct convoy_error *error)
{
    struct star_client *client = bootstrap->state;
    struct convoy_wait patience = bootstrap->wait;
    uint64_t short_ns =
        convoy_deadline_after(convoy_now_ns(), bootstrap->runtime->settings.hello_timeout_ms * CONVOY_NS_PER_MS);
    patience.deadline_ns = short_ns < patience.deadline_ns ? short_ns : patience.deadline_ns;
    client->stream = (struct convoy_frame_stream){.fd = -1, .limit = CLIENT_FRAME_BYTES_MAX};
    client->may_retry = true;
    int32_t status = convoy_dial(&client->where, &patience, &client->stream.fd, error);
    if (status == CONVOY_OK) {
        status = convoy_handshake_connect(bootstrap->runtime, client->stream.fd, &patience, &bootstrap->hello,
                                          &client->listener, error);
        client->may_retry = status == CONVOY_MALFORMED || status == CONVOY_PEER_LOST || status == CONVOY_TIMED_OUT;
    }
    if (status == CONVOY_OK) {
        status = client_welcome(bootstrap, error);
    }
    if (status != CONVOY_OK && !client->is_admitted) {
        convoy_frame_close(&client->stream);
    }
    return status;
}

/* At the deadline: why the listener was not reached. A refusal that might have changed keeps its status. */
static int32_t client_give_up(struct convoy_bootstrap *bootstrap, struct convoy_error *error)
{
    const struct star_client *client = bootstrap->state;
    if (client->stale.status != CONVOY_OK) {
        *error = client->stale;
        return error->status;
    }
    char reason[CONVOY_ERROR_TEXT_BYTES];
    memcpy(reason, client->last.status != CONVOY_OK ? client->last.text : error->text, sizeof reason);
    int32_t id = client_listener_id(bootstrap);
    return convoy_error_set_peer(error, CONVOY_TIMED_OUT, id, 0,
                                 "the listener, member %d, was not reached at %.60s port %u in time: %.120s", id,
                                 client->where.host, client->where.port, reason);
}

static int32_t client_connect_until(struct convoy_bootstrap *bootstrap, struct convoy_error *error)
{
    struct star_client *client = bootstrap->state;
    uint64_t pause_ns = CONVOY_NS_PER_MS;
    for (;;) {
        int32_t status = client_attempt(bootstrap, error);
        uint64_t now_ns = convoy_now_ns();
        bool is_late = status == CONVOY_TIMED_OUT && now_ns >= bootstrap->wait.deadline_ns;
        if (status == CONVOY_OK || status == CONVOY_CANCELED || client->is_admitted ||
            (!client->may_retry && !is_late)) {
            return status;
        }
        if (status == CONVOY_STALE_EPOCH) { /* its port may soon be that of this life's listener */
            client->stale = *error;
        }
        if (!is_late) {
            client->last = *error;
        }
        if (now_ns >= bootstrap->wait.deadline_ns) {
            return client_give_up(bootstrap, error);
        }
        struct convoy_wait pause = bootstrap->wait;
        pause.deadline_ns = now_ns + pause_ns < pause.deadline_ns ? now_ns + pause_ns : pause.deadline_ns;
        pause_ns = 2 * pause_ns < CLIENT_PAUSE_NS_MAX ? 2 * pause_ns : CLIENT_PAUSE_NS_MAX;
        if (convoy_wait_one(&pause, -1, 0) == CONVOY_CANCELED) {
            return CONVOY_CANCELED;
        }
    }
}

/* Tells the listener, as far as the socket takes it now, that this member cannot go on. */
static void client_fail(struct convoy_bootstrap *bootstrap, const struct convoy_error *cause)
{
    struct star_client *client = bootstrap->state;
    struct convoy_notice notice;
    uint8_t bytes[CONVOY_NOTICE_BYTES_MAX];
    if (client->stream.fd < 0) {
        return;
    }
    convoy_notice_from_error(&notice, cause, 0);
    uint32_t count = (uint32_t)convoy_notice_encode(&notice, bytes);
    if (convoy_frame_queue(&client->stream, CONVOY_MESSAGE_FAILED, bytes, count) == CONVOY_OK) {
        (void)convoy_frame_flush(&client->stream);
    }
}

/* A failure that the listener cannot know about yet is told to it. */
static int32_t client_finish(struct convoy_bootstrap *bootstrap, int32_t status, const struct convoy_error *error)
{
    struct convoy_error said = CONVOY_ERROR_INIT;
    if (status == CONVOY_CANCELED) {
        (void)convoy_carrier_say_canceled(bootstrap, &said);
        client_fail(bootstrap, &said);
    } else if (status == CONVOY_TIMED_OUT || status == CONVOY_NO_MEMORY) {
        client_fail(bootstrap, error);
    }
    return status;
}

static int32_t client_connect(struct convoy_bootstrap *bootstrap, struct convoy_error *error)
{
    const struct convoy_group_options *options = bootstrap->options;
    struct star_client *client = convoy_memory_zalloc(sizeof *client);
    if (client == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to connect");
    }
    client->stream.fd = -1;
    convoy_roster_add(client->heard, options->own_index);
    bootstrap->state = client;
    int32_t status = convoy_rendezvous_parse(options->rendezvous, options->rendezvous_length, options->name,
                                             options->name_length, &client->where, error);
    if (status == CONVOY_OK) {
        status = client_connect_until(bootstrap, error);
    }
    return client_finish(bootstrap, status, error);
}

/* -- afterwards -------------------------------------------------------------------------------------------------- */

static int32_t client_send_blob(struct convoy_bootstrap *bootstrap, const struct convoy_blob *mine)
{
    struct star_client *client = bootstrap->state;
    uint8_t *body = convoy_memory_zalloc(4 + mine->bytes);
    if (body == NULL) {
        return CONVOY_NO_MEMORY;
    }
    convoy_bytes_put_u32(body, bootstrap->sequence);
    if (mine->bytes != 0) {
        memcpy(body + 4, mine->data, mine->bytes);
    }
    int32_t status =
        convoy_frame_queue(&client->stream, CONVOY_MESSAGE_BLOB, body, (uint32_t)(4 + mine->bytes));
    convoy_memory_free(body);
    return status == CONVOY_OK ? convoy_frame_wait_flush(&client->stream, &bootstrap->wait) : status;
}

static int32_t client_exchange_steps(struct convoy_bootstrap *bootstrap, const struct convoy_blob *mine,
                                     struct convoy_blob *blobs_out, struct convoy_error *error)
{
    struct star_client *client = bootstrap->state;
    uint32_t count = (uint32_t)bootstrap->options->member_count;
    struct convoy_frame frame;
    client->stream.limit = 4 + count * (4 + CONVOY_BOOTSTRAP_BLOB_MAX);
    memset(client->heard, 0, sizeof client->heard);
    client->remark[0] = '\0';
    convoy_roster_add(client->heard, bootstrap->options->own_index);
    int32_t status = client_send_blob(bootstrap, mine);
    if (status != CONVOY_OK && status != CONVOY_PEER_LOST) { /* lost: what it said before may still be there to read */
        return client_stream_error(bootstrap, status, error);
    }
    status = client_await(bootstrap, CONVOY_MESSAGE_TABLE, &frame, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_memory_free(client->table);
    client->table = frame.body;
    if (!convoy_table_decode(frame.body, frame.bytes, bootstrap->sequence, blobs_out, count)) {
        return client_stream_error(bootstrap, CONVOY_MALFORMED, error);
    }
    return CONVOY_OK;
}

static int32_t client_exchange(struct convoy_bootstrap *bootstrap, const struct convoy_blob *mine,
                               struct convoy_blob *blobs_out, struct convoy_error *error)
{
    return client_finish(bootstrap, client_exchange_steps(bootstrap, mine, blobs_out, error), error);
}

static void client_close(struct convoy_bootstrap *bootstrap)
{
    struct star_client *client = bootstrap->state;
    convoy_frame_close(&client->stream);
    convoy_memory_free(client->table);
    convoy_memory_free(client);
}

const struct convoy_carrier convoy_carrier_client = {
    .connect = client_connect, .exchange = client_exchange, .fail = client_fail, .close = client_close};
