/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting to another engine, on the host's thread: hello, introduction, files, proof. */
#include "xfer/door.h"
#include "xfer/far.h"
#include "xfer/session.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "net/dial.h"
#include "net/frame.h"
#include "net/handshake.h"
#include "net/message.h"
#include "net/shared_file.h"

#include <string.h>
#include <unistd.h>

#define AGAIN_MS 2

struct dialing {
    struct convoy_xfer *engine;
    struct convoy_session session;
    struct convoy_wait wait;
    struct convoy_frame_stream stream;
    struct convoy_introduction theirs;
    struct convoy_local_socket_target target;
    int ring_fd;
    int channel;
    bool must_far; /* the two cannot read each other's memory, as a try has shown */
};

static int32_t say_hello(struct dialing *dialing, struct convoy_error *error)
{
    struct convoy_hello ours;
    struct convoy_hello theirs;
    struct convoy_hello_choice choice;
    int32_t status = convoy_dial(&dialing->session.where, &dialing->wait, &dialing->stream.fd, error);
    if (status == CONVOY_OK) {
        status = convoy_handshake_hello(dialing->engine->runtime, &ours, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_handshake_connect(dialing->engine->runtime, dialing->stream.fd, &dialing->wait, &ours, &theirs,
                                          error);
    }
    return status == CONVOY_OK ? convoy_hello_choose(&ours, &theirs, &choice, error) : status;
}

static int32_t read_refusal(const struct convoy_frame *frame, bool *is_again_out, struct convoy_error *error)
{
    struct convoy_notice notice;
    if (!convoy_notice_decode(frame->body, frame->bytes, &notice)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "a refusal that cannot be read");
    }
    *is_again_out = (notice.flags & CONVOY_NOTICE_RETRY) != 0;
    return convoy_notice_to_error(&notice, error);
}

static int32_t introduce(struct dialing *dialing, bool *is_again_out, struct convoy_error *error)
{
    struct convoy_introduction ours = convoy_xfer_introduction(dialing->engine);
    uint8_t bytes[CONVOY_INTRODUCE_BYTES];
    struct convoy_frame frame;
    ours.asked = dialing->session.incarnation;
    if (dialing->must_far || strcmp(dialing->engine->runtime->settings.net, "ucx") == 0) {
        ours.flags |= CONVOY_INTRODUCE_REMOTE;
    }
    convoy_introduction_encode(&ours, bytes);
    int32_t status = convoy_frame_queue(&dialing->stream, CONVOY_INTRODUCE_ASK, bytes, sizeof bytes);
    if (status == CONVOY_OK) {
        status = convoy_frame_wait_flush(&dialing->stream, &dialing->wait);
    }
    if (status == CONVOY_OK) {
        status = convoy_frame_wait_recv(&dialing->stream, &dialing->wait, &frame);
    }
    if (status != CONVOY_OK) {
        return convoy_error_set(error, status, "the connection ended during the introduction, status %d", status);
    }
    if (frame.type == CONVOY_INTRODUCE_ANSWER) {
        status = convoy_introduction_decode(frame.body, frame.bytes, &dialing->theirs, error);
    } else if (frame.type == CONVOY_INTRODUCE_REFUSED) {
        status = read_refusal(&frame, is_again_out, error);
    } else {
        status = convoy_error_set(error, CONVOY_UNKNOWN_MESSAGE, "an introduction is answered by type %u", frame.type);
    }
    convoy_memory_free(frame.body);
    return status;
}

static int32_t open_channel(struct dialing *dialing, struct convoy_error *error)
{
    struct convoy_local_socket there = dialing->engine->local;
    bool is_far = false;
    int32_t status = convoy_door_match(dialing->engine, &dialing->theirs, &dialing->target, &is_far, error);
    there.session = dialing->theirs.socket;
    if (status == CONVOY_OK) {
        status = convoy_shared_file_create(CONVOY_RING_BYTES, &dialing->ring_fd, error);
    }
    return status == CONVOY_OK ? convoy_local_socket_connect(&there, &dialing->target, dialing->wait.deadline_ns,
                                                             &dialing->channel, error)
                               : status;
}

static int32_t exchange_files(struct dialing *dialing, struct convoy_xfer_joined *joined_out, struct convoy_error *error)
{
    struct convoy_fd_message *message = convoy_memory_zalloc(sizeof *message);
    struct convoy_pool_share shared;
    if (message == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a message");
    }
    int32_t status = convoy_door_files(dialing->engine, dialing->theirs.nonce, dialing->ring_fd, message, &shared, error);
    if (status == CONVOY_OK) {
        status = convoy_fd_channel_send(dialing->channel, message, dialing->wait.deadline_ns, error);
        convoy_door_files_fini(message, &shared);
        CONVOY_POINT(dial_files);
    }
    if (status == CONVOY_OK) {
        status = convoy_fd_channel_recv(dialing->channel, message, dialing->wait.deadline_ns, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_door_take(message, &dialing->theirs, dialing->ring_fd, dialing->channel,
                                  convoy_door_may_be_far(dialing->engine), joined_out, error);
        convoy_fd_message_fini(message);
        joined_out->shared = shared;
        joined_out->target = dialing->target;
    } else if (status == CONVOY_TRUNCATED) {
        status = CONVOY_PEER_LOST;
    }
    convoy_memory_free(message);
    return status;
}

static int32_t join(struct dialing *dialing, convoy_peer *peer_out, struct convoy_error *error)
{
    struct convoy_xfer *engine = dialing->engine;
    struct convoy_xfer_joined joined;
    struct convoy_xfer_peer *peer = NULL;
    int32_t status = exchange_files(dialing, &joined, error);
    if (status != CONVOY_OK) {
        return status;
    }
    joined.introduction = &dialing->theirs;
    joined.nonce = dialing->theirs.nonce;
    joined.lane = &convoy_lane_near;
    joined.side = 0;
    joined.tcp_fd = dialing->stream.fd;
    convoy_xfer_lock(engine);
    status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        status = convoy_xfer_peer_add(engine, &joined, &peer, error);
    }
    if (status == CONVOY_OK) {
        CONVOY_POINT(dial_joined);
        dialing->stream.fd = -1; /* the peer's now */
        peer->is_held = true;
        *peer_out = convoy_xfer_peer_handle(engine, peer);
        convoy_xfer_pump(engine);
    }
    convoy_xfer_unlock(engine);
    if (status != CONVOY_OK) {
        convoy_door_drop(&joined);
    }
    return status;
}

/* Why the other side has closed the local socket: it says so here, if it says anything. */
static int32_t read_farewell(struct dialing *dialing, bool *is_again_out, struct convoy_error *error)
{
    struct convoy_frame frame = {.body = NULL};
    int32_t status = CONVOY_PEER_LOST;
    if (convoy_frame_wait_recv(&dialing->stream, &dialing->wait, &frame) == CONVOY_OK &&
        frame.type == CONVOY_INTRODUCE_REFUSED) {
        status = read_refusal(&frame, is_again_out, error);
    }
    convoy_memory_free(frame.body);
    return status;
}

/* Where meeting on this host fails though it looked possible (a cloned machine, a namespace of its own) the two try again
 * without shared memory. */
static int32_t join_near(struct dialing *dialing, bool *is_again_out, convoy_peer *peer_out, struct convoy_error *error)
{
    int32_t status = open_channel(dialing, error);
    CONVOY_POINT(dial_channel);
    if (status == CONVOY_OK) {
        status = join(dialing, peer_out, error);
    }
    if (status == CONVOY_PEER_LOST) {
        status = read_farewell(dialing, is_again_out, error);
    }
    if (status == CONVOY_UNREACHABLE && convoy_door_may_be_far(dialing->engine)) {
        dialing->must_far = *is_again_out = true;
    }
    return status;
}

static int32_t join_far(struct dialing *dialing, bool *is_again_out, convoy_peer *peer_out, struct convoy_error *error)
{
    struct convoy_local_socket_target target;
    bool is_far = false;
    int32_t status = convoy_door_match(dialing->engine, &dialing->theirs, &target, &is_far, error);
    if (status == CONVOY_OK) {
        status = convoy_far_join(dialing->engine, &dialing->stream, &dialing->wait, &dialing->theirs, peer_out, error);
        *is_again_out = status == CONVOY_BUSY;
    }
    return status;
}

static int32_t dial_once(struct dialing *dialing, bool *is_again_out, convoy_peer *peer_out, struct convoy_error *error)
{
    dialing->stream = (struct convoy_frame_stream){.fd = -1, .limit = CONVOY_INTRODUCE_BYTES + CONVOY_NOTICE_BYTES_MAX};
    dialing->ring_fd = dialing->channel = -1;
    int32_t status = say_hello(dialing, error);
    CONVOY_POINT(dial_hello);
    if (status == CONVOY_OK) {
        status = introduce(dialing, is_again_out, error);
    }
    CONVOY_POINT(dial_introduced);
    if (status == CONVOY_OK) {
        status = (dialing->theirs.flags & CONVOY_INTRODUCE_REMOTE) != 0 ? join_far(dialing, is_again_out, peer_out, error)
                                                                       : join_near(dialing, is_again_out, peer_out, error);
    }
    const int files[] = {dialing->ring_fd, dialing->channel};
    for (size_t i = 0; i < 2; i++) {
        if (files[i] >= 0) {
            (void)close(files[i]);
        }
    }
    convoy_frame_close(&dialing->stream);
    return status;
}

/* One that is connected already. */
static bool take_known(struct convoy_xfer *engine, const struct convoy_session *session, convoy_peer *peer_out)
{
    convoy_xfer_lock(engine);
    struct convoy_xfer_peer *peer = convoy_xfer_peer_by_incarnation(engine, session->incarnation);
    if (peer != NULL) {
        peer->is_held = true;
        *peer_out = convoy_xfer_peer_handle(engine, peer);
    }
    convoy_xfer_unlock(engine);
    return peer != NULL;
}

/* Tells the door which crossing connection goes first. place_out: CONVOY_XFER_DIALS = none was free. false: another thread
 * of this engine dials there already, and one connection is to come of it. */
static bool note_dial(struct convoy_xfer *engine, uint64_t incarnation, uint32_t *place_out)
{
    bool is_first = true;
    *place_out = CONVOY_XFER_DIALS;
    convoy_xfer_lock(engine);
    for (uint32_t i = CONVOY_XFER_DIALS; i-- > 0;) {
        *place_out = engine->dials[i] == 0 ? i : *place_out;
        is_first = is_first && (incarnation == 0 || engine->dials[i] != incarnation);
    }
    if (is_first && *place_out < CONVOY_XFER_DIALS) {
        engine->dials[*place_out] = incarnation;
    }
    convoy_xfer_unlock(engine);
    return is_first;
}

static void forget_dial(struct convoy_xfer *engine, uint32_t place)
{
    if (place < CONVOY_XFER_DIALS) {
        convoy_xfer_lock(engine);
        engine->dials[place] = 0;
        convoy_xfer_unlock(engine);
    }
}

int32_t convoy_xfer_connect(struct convoy_xfer *engine, const char *session, size_t length, uint64_t timeout_ns,
                            convoy_peer *peer_out, struct convoy_error *error)
{
    struct dialing dialing = {.engine = engine};
    int32_t status = convoy_session_parse(session, length, &dialing.session, error);
    if (status == CONVOY_OK && dialing.session.incarnation == engine->incarnation) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "session %.*s is this very engine's", (int)length,
                                  session);
    }
    if (status == CONVOY_OK) {
        convoy_xfer_lock(engine);
        status = convoy_xfer_check_open(engine, error);
        convoy_xfer_unlock(engine);
    }
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : engine->options.timeout_ns;
    dialing.wait = (struct convoy_wait){.cancel_fd = -1, .deadline_ns = convoy_deadline_after(convoy_now_ns(), timeout)};
    while (status == CONVOY_OK && !take_known(engine, &dialing.session, peer_out)) {
        bool is_again = false;
        uint32_t place;
        if (note_dial(engine, dialing.session.incarnation, &place)) {
            status = dial_once(&dialing, &is_again, peer_out, error);
            forget_dial(engine, place);
        } else {
            is_again = true;
            status = convoy_error_set(error, CONVOY_TIMED_OUT, "another thread connects to it and has not come to an end");
        }
        if (status == CONVOY_OK) {
            return CONVOY_OK;
        }
        /* Cut off in the middle: it may have begun to connect here meanwhile. If it is dead, the next try says so. */
        if ((is_again || status == CONVOY_PEER_LOST) && convoy_now_ns() < dialing.wait.deadline_ns) {
            status = CONVOY_OK;
            (void)poll(NULL, 0, AGAIN_MS); /* the other's own connection is on its way */
        }
    }
    return status == CONVOY_OK ? CONVOY_OK : convoy_error_prefix(error, status, "connect to %.*s", (int)length, session);
}
