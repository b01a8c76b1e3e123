/* SPDX-License-Identifier: Apache-2.0 */
/* The listening member of a star: admits the others, then relays one table per exchange. */
#include "net/star_server.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

/* -- connect ----------------------------------------------------------------------------------------------------- */

static int32_t server_join(struct star_server *server, struct convoy_error *error)
{
    struct convoy_bootstrap *bootstrap = server->bootstrap;
    const struct convoy_group_options *options = bootstrap->options;
    struct convoy_rendezvous where;
    int32_t status = convoy_rendezvous_parse(options->rendezvous, options->rendezvous_length, options->name,
                                             options->name_length, &where, error);
    if (status != CONVOY_OK) {
        return status;
    }
    return convoy_listener_join(bootstrap->runtime, &where, &bootstrap->hello.group, &bootstrap->wait, &server->seat,
                                error);
}

/* All are here: tells them, and gives the port back. */
static int32_t server_welcome(struct star_server *server, struct convoy_error *error)
{
    struct convoy_bootstrap *bootstrap = server->bootstrap;
    struct convoy_welcome welcome = {.wire = server->window.wire_max};
    uint8_t bytes[CONVOY_WELCOME_BYTES];
    int32_t status = convoy_carrier_offer(bootstrap, &welcome.epoch, welcome.salt, error);
    convoy_welcome_encode(&welcome, bytes);
    for (uint32_t i = 0; i < server->count && status == CONVOY_OK; i++) {
        struct convoy_frame_stream *stream = &server->members[i].stream;
        if (stream->fd < 0) {
            continue;
        }
        status = convoy_frame_queue(stream, CONVOY_MESSAGE_WELCOME, bytes, sizeof bytes);
        if (status != CONVOY_OK) {
            return convoy_error_set(error, status, "no memory for a frame");
        }
        (void)convoy_frame_flush(stream); /* whoever is gone by now is found in the first exchange */
    }
    convoy_listener_leave(server->seat);
    server->seat = NULL;
    server->news = (struct convoy_seat_news){.asker = -1}; /* all are here: nobody else is to blame for what follows */
    bootstrap->epoch = welcome.epoch;
    bootstrap->wire = welcome.wire;
    memcpy(bootstrap->salt, welcome.salt, sizeof bootstrap->salt);
    return status;
}

static void server_doom_status(struct star_server *server, int32_t status)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (status == CONVOY_TIMED_OUT) {
        convoy_server_doom_missing(server);
    } else if (status == CONVOY_CANCELED) {
        (void)convoy_carrier_say_canceled(server->bootstrap, &error);
        convoy_server_doom(server, &error);
    }
}

static bool server_all_told(const struct star_server *server)
{
    for (uint32_t i = 0; i < server->count; i++) {
        if (i != server->bootstrap->options->own_index && server->members[i].stream.fd < 0 &&
            !server->members[i].is_told) {
            return false;
        }
    }
    return true;
}

/* The group cannot form. Members that are still on their way get a moment to come and hear why, instead of looking
 * for a listener that has gone until their deadline. */
static void server_linger(struct star_server *server)
{
    const struct convoy_bootstrap *bootstrap = server->bootstrap;
    uint64_t patience_ns = bootstrap->runtime->settings.hello_timeout_ms * CONVOY_NS_PER_MS;
    uint64_t end_ns = convoy_deadline_after(convoy_now_ns(), patience_ns);
    end_ns = end_ns < bootstrap->wait.deadline_ns ? end_ns : bootstrap->wait.deadline_ns;
    while (!server_all_told(server) && convoy_server_step(server, end_ns) == CONVOY_OK) {
    }
}

static int32_t server_gather_members(struct star_server *server)
{
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && !server->is_doomed && server->heard_count < server->count) {
        status = convoy_server_step(server, server->bootstrap->wait.deadline_ns);
    }
    status = status == CONVOY_TIMED_OUT && server->heard_count == server->count ? CONVOY_OK : status;
    server_doom_status(server, status);
    if (status == CONVOY_OK && server->is_doomed) {
        server_linger(server);
    }
    return status;
}

/* Ends a phase: everybody hears the doom, the caller gets it. canceled: its own status stays. */
static int32_t server_end(struct star_server *server, int32_t status, struct convoy_error *error)
{
    if (!server->is_doomed) {
        return CONVOY_OK;
    }
    convoy_server_part(server);
    *error = server->doom;
    return status == CONVOY_CANCELED ? status : server->doom.status;
}

static struct star_server *server_create(struct convoy_bootstrap *bootstrap)
{
    struct star_server *server = convoy_memory_zalloc(sizeof *server);
    if (server == NULL) {
        return NULL;
    }
    bootstrap->state = server; /* close frees what there is */
    server->bootstrap = bootstrap;
    server->count = (uint32_t)bootstrap->options->member_count;
    server->window = bootstrap->hello;
    server->news.asker = -1;
    server->members = convoy_memory_array(server->count, sizeof *server->members);
    server->polls = convoy_memory_array(server->count + 2, sizeof *server->polls);
    server->poll_members = convoy_memory_array(server->count + 2, sizeof *server->poll_members);
    for (uint32_t i = 0; server->members != NULL && i < server->count; i++) {
        server->members[i].stream.fd = -1;
    }
    return server->members != NULL && server->polls != NULL && server->poll_members != NULL ? server : NULL;
}

static int32_t server_connect(struct convoy_bootstrap *bootstrap, struct convoy_error *error)
{
    struct star_server *server = server_create(bootstrap);
    if (server == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %zu members", bootstrap->options->member_count);
    }
    convoy_server_note_heard(server, bootstrap->options->own_index);
    int32_t status = server_join(server, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = server_gather_members(server);
    if (!server->is_doomed) {
        status = server_welcome(server, error);
        if (status == CONVOY_OK) {
            return CONVOY_OK;
        }
        convoy_server_doom(server, error);
    }
    return server_end(server, status, error);
}

/* -- exchange ---------------------------------------------------------------------------------------------------- */

static void server_begin_exchange(struct star_server *server)
{
    memset(server->heard, 0, sizeof server->heard);
    server->heard_count = 0;
    server->is_exchanging = true;
    convoy_server_note_heard(server, server->bootstrap->options->own_index);
    for (uint32_t i = 0; i < server->count; i++) {
        struct server_member *member = &server->members[i];
        member->stream.limit = 4 + CONVOY_BOOTSTRAP_BLOB_MAX;
        if (i != server->bootstrap->options->own_index && member->stream.fd < 0) {
            struct convoy_error error = CONVOY_ERROR_INIT;
            int32_t id = server->bootstrap->options->member_ids[i];
            (void)convoy_error_set_peer(&error, CONVOY_PEER_LOST, id, 0,
                                        "member %d went away while the group was opening", id);
            convoy_server_doom(server, &error);
        }
    }
}

/* The frame that everybody gets; blobs_out points into it. */
static int32_t server_make_table(struct star_server *server, const struct convoy_blob *mine,
                                 struct convoy_blob *blobs_out, size_t *bytes_out, struct convoy_error *error)
{
    struct convoy_bootstrap *bootstrap = server->bootstrap;
    for (uint32_t i = 0; i < server->count; i++) {
        const struct server_member *member = &server->members[i];
        blobs_out[i] = i == bootstrap->options->own_index
                           ? *mine
                           : (struct convoy_blob){.data = member->body + 4, .bytes = member->body_bytes - 4};
    }
    size_t body_bytes = convoy_table_bytes(blobs_out, server->count);
    uint8_t *table = convoy_memory_zalloc(CONVOY_FRAME_HEAD_BYTES + body_bytes);
    if (table == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a table of %zu bytes", body_bytes);
    }
    convoy_frame_head_encode(table, CONVOY_MESSAGE_TABLE, (uint32_t)body_bytes);
    convoy_table_encode(blobs_out, server->count, bootstrap->sequence, table + CONVOY_FRAME_HEAD_BYTES);
    (void)convoy_table_decode(table + CONVOY_FRAME_HEAD_BYTES, body_bytes, bootstrap->sequence, blobs_out,
                              server->count);
    convoy_memory_free(server->table);
    server->table = table;
    *bytes_out = CONVOY_FRAME_HEAD_BYTES + body_bytes;
    return CONVOY_OK;
}

static void server_free_bodies(struct star_server *server)
{
    for (uint32_t i = 0; server->members != NULL && i < server->count; i++) {
        convoy_memory_free(server->members[i].body);
        server->members[i].body = NULL;
    }
}

static bool server_has_output(const struct star_server *server)
{
    for (uint32_t i = 0; i < server->count; i++) {
        if (server->members[i].stream.fd >= 0 && convoy_frame_has_output(&server->members[i].stream)) {
            return true;
        }
    }
    return false;
}

/* Members that do not take their table count as not heard. */
static void server_note_unread(struct star_server *server)
{
    for (uint32_t i = 0; i < server->count; i++) {
        if (server->members[i].stream.fd >= 0 && convoy_frame_has_output(&server->members[i].stream)) {
            convoy_roster_remove(server->heard, i);
        }
    }
}

static int32_t server_send_table(struct star_server *server, size_t bytes)
{
    int32_t status = CONVOY_OK;
    server->is_exchanging = false; /* what comes now belongs to the next exchange and stays in the sockets */
    for (uint32_t i = 0; i < server->count; i++) {
        if (server->members[i].stream.fd >= 0) {
            convoy_frame_share(&server->members[i].stream, server->table, bytes);
            (void)convoy_frame_flush(&server->members[i].stream);
        }
    }
    while (status == CONVOY_OK && !server->is_doomed && server_has_output(server)) {
        status = convoy_server_step(server, server->bootstrap->wait.deadline_ns);
    }
    if (status == CONVOY_TIMED_OUT) {
        server_note_unread(server);
    }
    return status;
}

static int32_t server_exchange(struct convoy_bootstrap *bootstrap, const struct convoy_blob *mine,
                               struct convoy_blob *blobs_out, struct convoy_error *error)
{
    struct star_server *server = bootstrap->state;
    int32_t status = CONVOY_OK;
    server_begin_exchange(server);
    while (status == CONVOY_OK && !server->is_doomed && server->heard_count < server->count) {
        status = convoy_server_step(server, bootstrap->wait.deadline_ns);
    }
    status = status == CONVOY_TIMED_OUT && server->heard_count == server->count ? CONVOY_OK : status;
    size_t bytes = 0;
    if (status == CONVOY_OK && !server->is_doomed) {
        if (server_make_table(server, mine, blobs_out, &bytes, error) != CONVOY_OK) {
            convoy_server_doom(server, error);
        } else {
            status = server_send_table(server, bytes);
        }
    }
    server_doom_status(server, status);
    server_free_bodies(server);
    return server_end(server, status, error);
}

static void server_fail(struct convoy_bootstrap *bootstrap, const struct convoy_error *cause)
{
    struct star_server *server = bootstrap->state;
    int32_t id = bootstrap->options->own_id;
    struct convoy_error error = *cause;
    error.rank = id;
    (void)convoy_error_prefix(&error, cause->status, "member %d", id);
    convoy_server_doom(server, &error);
    convoy_server_part(server);
}

static void server_close(struct convoy_bootstrap *bootstrap)
{
    struct star_server *server = bootstrap->state;
    convoy_listener_leave(server->seat);
    server_free_bodies(server);
    for (uint32_t i = 0; server->members != NULL && i < server->count; i++) {
        convoy_frame_close(&server->members[i].stream);
    }
    convoy_memory_free(server->members);
    convoy_memory_free(server->polls);
    convoy_memory_free(server->poll_members);
    convoy_memory_free(server->table);
    convoy_memory_free(server);
}

const struct convoy_carrier convoy_carrier_server = {
    .connect = server_connect, .exchange = server_exchange, .fail = server_fail, .close = server_close};
