/* SPDX-License-Identifier: Apache-2.0 */
/* The listening member's loop: arrivals, frames of members, what to send, and how an opening that failed ends. */
#include "net/star_server.h"

#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define HEARD_PAUSE_NS (100 * CONVOY_NS_PER_MS)
#define PART_GRACE_NS (100 * CONVOY_NS_PER_MS)

/* -- telling ----------------------------------------------------------------------------------------------------- */

static void member_send_notice(struct server_member *member, uint16_t type, const struct convoy_error *error,
                               uint32_t flags)
{
    struct convoy_notice notice;
    uint8_t bytes[CONVOY_NOTICE_BYTES_MAX];
    convoy_notice_from_error(&notice, error, flags);
    uint32_t count = (uint32_t)convoy_notice_encode(&notice, bytes);
    if (convoy_frame_queue(&member->stream, type, bytes, count) == CONVOY_OK) {
        (void)convoy_frame_flush(&member->stream);
    }
}

void convoy_server_doom(struct star_server *server, const struct convoy_error *cause)
{
    if (server->is_doomed) {
        return;
    }
    server->is_doomed = true;
    server->doom = *cause;
    for (uint32_t i = 0; i < server->count; i++) {
        struct server_member *member = &server->members[i];
        if (member->stream.fd >= 0) {
            member_send_notice(member, CONVOY_MESSAGE_FAILED, cause, 0);
            member->is_told = true;
        }
    }
}

/* Index of the id in this member's list; count when it is not there. */
static uint32_t server_index_of(const struct star_server *server, int32_t id)
{
    uint32_t index = 0;
    while (index < server->count && server->bootstrap->options->member_ids[index] != id) {
        index++;
    }
    return index;
}

/* What to say of those who did not get in: a member that is missing here asks for another group, and the last that was
 * refused. "" = nothing. */
static void server_remark(const struct star_server *server, char remark_out[CONVOY_REMARK_BYTES])
{
    const struct convoy_seat_news *news = &server->news;
    uint32_t index = server_index_of(server, news->asker);
    bool has_asker = index < server->count && !convoy_roster_has(server->heard, index);
    int used = snprintf(remark_out, CONVOY_REMARK_BYTES, "%s", has_asker ? news->asked : "");
    if (news->refused_count != 0) {
        (void)snprintf(remark_out + used, CONVOY_REMARK_BYTES - (size_t)used,
                       "%sother connections refused: %llu, the last: %s", has_asker ? "; " : "",
                       (unsigned long long)news->refused_count, news->reason);
    }
}

void convoy_server_doom_missing(struct star_server *server)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    char remark[CONVOY_REMARK_BYTES];
    if (server->seat != NULL) {
        (void)convoy_seat_take_news(server->seat, &server->news);
    }
    server_remark(server, remark);
    (void)convoy_roster_missing(&server->bootstrap->hello.group, server->heard, remark, &error);
    convoy_server_doom(server, &error);
}

/* The members hear what is new soon, and of several things at once. */
static void server_note_new(struct star_server *server)
{
    if (server->heard_due_ns == 0) {
        server->heard_due_ns = convoy_now_ns() + HEARD_PAUSE_NS;
    }
}

void convoy_server_note_heard(struct star_server *server, uint32_t index)
{
    convoy_roster_add(server->heard, index);
    server->heard_count++;
    server_note_new(server);
}

static void member_send_heard(struct star_server *server, struct server_member *member)
{
    uint8_t body[CONVOY_ROSTER_SET_BYTES + CONVOY_REMARK_BYTES];
    char remark[CONVOY_REMARK_BYTES];
    uint32_t bytes = (server->count + 7) / 8;
    server_remark(server, remark);
    uint32_t length = (uint32_t)strlen(remark);
    memcpy(body, server->heard, bytes);
    memcpy(body + bytes, remark, length);
    if (convoy_frame_queue(&member->stream, CONVOY_MESSAGE_HEARD, body, bytes + length) == CONVOY_OK) {
        (void)convoy_frame_flush(&member->stream);
    }
}

/* Members know whom the listener has heard and refused, so that each can name the missing and the reason at its own
 * deadline. One that does not read hears the newest when it does: strangers must not fill its queue. */
static void server_send_heard(struct star_server *server)
{
    server->heard_due_ns = 0;
    for (uint32_t i = 0; i < server->count && !server->is_doomed; i++) {
        struct server_member *member = &server->members[i];
        if (member->stream.fd >= 0 && convoy_frame_has_output(&member->stream)) {
            server_note_new(server);
        } else if (member->stream.fd >= 0) {
            member_send_heard(server, member);
        }
    }
}

/* -- arrivals ---------------------------------------------------------------------------------------------------- */

static int32_t admit_check(struct star_server *server, const struct convoy_arrival *arrival, bool *dooms_out,
                           struct convoy_error *error)
{
    int32_t status = convoy_roster_check(&server->window, &arrival->hello, dooms_out, error);
    int32_t id = arrival->hello.group.own_id;
    uint32_t index = server_index_of(server, id);
    if ((status != CONVOY_OK && !*dooms_out) || index == server->count) {
        return status;
    }
    bool is_own = index == server->bootstrap->options->own_index;
    if (is_own || server->members[index].stream.fd >= 0) {
        *dooms_out = false; /* whatever the second one says, the first is here */
        return convoy_error_set_peer(error, CONVOY_DIVERGED, id, 0,
                                     "member %d (index %u) is here already, from %s; a second one came from %s", id,
                                     index, is_own ? "this process" : server->members[index].from, arrival->from);
    }
    return status;
}

static void admit_refuse(struct star_server *server, struct convoy_arrival *arrival, bool dooms,
                         const struct convoy_error *error)
{
    const struct convoy_hello *own = &server->bootstrap->hello;
    bool is_later_life = error->status == CONVOY_STALE_EPOCH && own->epoch != 0 && arrival->hello.epoch > own->epoch;
    struct server_member passing = {.stream = {.fd = arrival->fd}};
    arrival->fd = -1;
    member_send_notice(&passing, CONVOY_MESSAGE_REFUSED, error, is_later_life ? CONVOY_NOTICE_RETRY : 0);
    convoy_frame_close(&passing.stream);
    convoy_log_line(&server->bootstrap->runtime->log, CONVOY_LOG_INFO, "rendezvous refuses %s: %s", arrival->from,
                    error->text);
    server->bootstrap->runtime->refused_count++;
    convoy_seat_note_refused(server->seat, error->text);
    if (dooms) {
        server->members[server_index_of(server, arrival->hello.group.own_id)].is_told = true;
        convoy_server_doom(server, error);
    }
}

/* Only wire versions that all members so far have stay in the window. */
static void server_narrow_window(struct star_server *server, const struct convoy_hello *hello)
{
    struct convoy_hello *window = &server->window;
    window->wire_min = hello->wire_min > window->wire_min ? hello->wire_min : window->wire_min;
    window->wire_max = hello->wire_max < window->wire_max ? hello->wire_max : window->wire_max;
}

void convoy_server_admit(struct star_server *server, struct convoy_arrival *arrival)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    bool dooms = false;
    int32_t status = admit_check(server, arrival, &dooms, &error);
    if (status != CONVOY_OK) {
        admit_refuse(server, arrival, dooms, &error);
        convoy_arrival_destroy(arrival);
        return;
    }
    uint32_t index = arrival->hello.group.own_index;
    struct server_member *member = &server->members[index];
    member->stream = (struct convoy_frame_stream){.fd = arrival->fd, .limit = CONVOY_NOTICE_BYTES_MAX};
    memcpy(member->from, arrival->from, sizeof member->from);
    arrival->fd = -1;
    if (server->is_doomed) {
        member_send_notice(member, CONVOY_MESSAGE_FAILED, &server->doom, 0);
        member->is_told = true;
    } else {
        server_narrow_window(server, &arrival->hello);
        convoy_server_note_heard(server, index);
        member_send_heard(server, member); /* this one says: admitted */
    }
    convoy_arrival_destroy(arrival);
}

/* -- frames of members ------------------------------------------------------------------------------------------- */

static void member_doom(struct star_server *server, uint32_t index, int32_t status)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t id = server->bootstrap->options->member_ids[index];
    if (status == CONVOY_PEER_LOST || status == CONVOY_TRUNCATED) {
        (void)convoy_error_set_peer(&error, CONVOY_PEER_LOST, id, 0,
                                    "member %d, at %s, went away while the group was opening", id,
                                    server->members[index].from);
    } else if (status == CONVOY_NO_MEMORY) {
        (void)convoy_error_set_peer(&error, status, id, 0, "the listener has no memory for a frame of member %d", id);
    } else {
        (void)convoy_error_set_peer(&error, CONVOY_MALFORMED, id, 0, "member %d sent a bad frame", id);
    }
    convoy_frame_close(&server->members[index].stream);
    server->members[index].is_told = true;
    convoy_server_doom(server, &error);
}

/* A member gave up. If it only ran out of time, the missing are to blame, and the listener knows them best. */
static void member_take_failed(struct star_server *server, uint32_t index, const struct convoy_frame *frame)
{
    struct convoy_notice notice;
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t id = server->bootstrap->options->member_ids[index];
    if (!convoy_notice_decode(frame->body, frame->bytes, &notice)) {
        member_doom(server, index, CONVOY_MALFORMED);
        return;
    }
    server->members[index].is_told = true;
    if (notice.status == CONVOY_TIMED_OUT) {
        convoy_server_doom_missing(server);
        return;
    }
    bool names_itself = notice.rank == id;
    notice.rank = id;
    (void)convoy_notice_to_error(&notice, &error);
    if (!names_itself) {
        (void)convoy_error_prefix(&error, notice.status, "member %d", id);
    }
    convoy_server_doom(server, &error);
}

/* true: the frame's body was kept. */
static bool member_take_frame(struct star_server *server, uint32_t index, const struct convoy_frame *frame)
{
    struct server_member *member = &server->members[index];
    if (server->is_doomed) {
        return false;
    }
    if (frame->type == CONVOY_MESSAGE_FAILED) {
        member_take_failed(server, index, frame);
        return false;
    }
    bool is_blob = frame->type == CONVOY_MESSAGE_BLOB && server->is_exchanging && member->body == NULL;
    if (!is_blob || frame->bytes < 4 || convoy_bytes_u32(frame->body) != server->bootstrap->sequence) {
        member_doom(server, index, CONVOY_MALFORMED);
        return false;
    }
    member->body = frame->body;
    member->body_bytes = frame->bytes;
    convoy_server_note_heard(server, index);
    return true;
}

static void member_read(struct star_server *server, uint32_t index)
{
    struct server_member *member = &server->members[index];
    while (member->stream.fd >= 0) {
        struct convoy_frame frame;
        int32_t status = convoy_frame_recv(&member->stream, &frame);
        if (status == CONVOY_IN_PROGRESS) {
            return;
        }
        if (status != CONVOY_OK) {
            member_doom(server, index, status);
        } else if (!member_take_frame(server, index, &frame)) {
            convoy_memory_free(frame.body);
        }
    }
}

/* -- the loop ---------------------------------------------------------------------------------------------------- */

/* polls[0] is for the cancel descriptor, polls[1] for arrivals. Returns how many. */
static nfds_t server_fill_polls(struct star_server *server)
{
    bool is_reading = server->seat != NULL || server->is_exchanging;
    nfds_t count = 2;
    server->polls[1] = (struct pollfd){.fd = server->seat != NULL ? convoy_seat_fd(server->seat) : -1,
                                       .events = POLLIN};
    for (uint32_t i = 0; i < server->count; i++) {
        const struct convoy_frame_stream *stream = &server->members[i].stream;
        short events = (short)((is_reading ? POLLIN : 0) | (convoy_frame_has_output(stream) ? POLLOUT : 0));
        if (stream->fd >= 0 && events != 0) { /* a member that has all it wants may be gone without harm */
            server->polls[count] = (struct pollfd){.fd = stream->fd, .events = events};
            server->poll_members[count++] = i;
        }
    }
    return count;
}

static void server_serve(struct star_server *server, nfds_t count)
{
    for (nfds_t i = 2; i < count; i++) {
        uint32_t index = server->poll_members[i];
        struct server_member *member = &server->members[index];
        if ((server->polls[i].events & POLLIN) != 0 && server->polls[i].revents != 0) {
            member_read(server, index);
        }
        if (server->polls[i].revents != 0 && member->stream.fd >= 0 && convoy_frame_has_output(&member->stream) &&
            convoy_frame_flush(&member->stream) == CONVOY_PEER_LOST) {
            member_doom(server, index, CONVOY_PEER_LOST);
        }
    }
    for (struct convoy_arrival *arrival; server->seat != NULL && (arrival = convoy_seat_take(server->seat)) != NULL;) {
        convoy_server_admit(server, arrival);
    }
    if (server->seat != NULL && convoy_seat_take_news(server->seat, &server->news)) {
        server_note_new(server);
    }
}

int32_t convoy_server_step(struct star_server *server, uint64_t deadline_ns)
{
    struct convoy_wait wait = {.cancel_fd = server->bootstrap->wait.cancel_fd, .deadline_ns = deadline_ns};
    if (server->heard_due_ns != 0 && server->heard_due_ns < deadline_ns) {
        wait.deadline_ns = server->heard_due_ns;
    }
    nfds_t count = server_fill_polls(server);
    int32_t status = convoy_wait_many(&wait, server->polls, count);
    if (status == CONVOY_OK) {
        server_serve(server, count);
    }
    uint64_t now_ns = convoy_now_ns();
    if (server->heard_due_ns != 0 && now_ns >= server->heard_due_ns) {
        server_send_heard(server);
    }
    if (status == CONVOY_TIMED_OUT || status == CONVOY_OK) {
        return now_ns >= deadline_ns ? CONVOY_TIMED_OUT : CONVOY_OK;
    }
    return status;
}

/* Reads and drops until the other side has ended the stream: closing with unread bytes would make the kernel throw
 * away what we sent last. */
static bool member_is_parting(struct server_member *member)
{
    uint8_t dropped[512];
    (void)convoy_frame_flush(&member->stream);
    for (;;) {
        ssize_t got = recv(member->stream.fd, dropped, sizeof dropped, 0);
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return got < 0 && errno == EAGAIN;
        }
    }
}

void convoy_server_part(struct star_server *server)
{
    const struct convoy_wait wait = {.cancel_fd = -1, .deadline_ns = convoy_now_ns() + PART_GRACE_NS};
    nfds_t left = 0;
    do {
        left = 0;
        for (uint32_t i = 0; i < server->count; i++) {
            struct server_member *member = &server->members[i];
            if (member->stream.fd >= 0 && member_is_parting(member)) {
                server->polls[1 + left++] = (struct pollfd){.fd = member->stream.fd, .events = POLLIN};
            } else {
                convoy_frame_close(&member->stream);
            }
        }
    } while (left != 0 && convoy_wait_many(&wait, server->polls, 1 + left) == CONVOY_OK);
}
