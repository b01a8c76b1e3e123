/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames {length 4, type 2, zero 2, body} over a nonblocking stream socket. A stream is fed by its owner's poll loop:
 * recv and flush go as far as the socket lets them. One thread at a time. The convoy_frame_wait_ functions are the same
 * for a caller that has only one socket to wait for.
 */
#ifndef CONVOY_NET_FRAME_H
#define CONVOY_NET_FRAME_H

#include "net/wait.h"

#include <stdbool.h>
#include <stddef.h>

#define CONVOY_FRAME_HEAD_BYTES 8u

struct convoy_frame {
    uint16_t type;
    uint32_t bytes;
    uint8_t *body; /* never NULL in a received frame */
};

/* All zero but fd and limit is a valid start. */
struct convoy_frame_stream {
    int fd;         /* owned; -1 = closed */
    uint32_t limit; /* longest body accepted */
    uint8_t head[CONVOY_FRAME_HEAD_BYTES];
    uint32_t head_bytes;
    struct convoy_frame frame; /* being received */
    uint32_t body_bytes;
    uint8_t *queue; /* own copies of frames to send */
    size_t queue_bytes;
    size_t queue_done;
    const uint8_t *shared; /* borrowed bytes to send after the queue */
    size_t shared_bytes;
    size_t shared_done;
};

void convoy_frame_head_encode(uint8_t head_out[CONVOY_FRAME_HEAD_BYTES], uint16_t type, uint32_t bytes);

/* OK, MALFORMED, or LIMIT: the body would be longer than `limit`. Pure. */
int32_t convoy_frame_head_decode(const uint8_t head[CONVOY_FRAME_HEAD_BYTES], uint32_t limit, uint16_t *type_out,
                                 uint32_t *bytes_out);

/* OK: a whole frame; the caller takes frame_out->body (convoy_memory_free). IN_PROGRESS: nothing more to read now.
 * PEER_LOST: the other side ended the stream between frames. TRUNCATED: inside one. MALFORMED, LIMIT, NO_MEMORY. */
int32_t convoy_frame_recv(struct convoy_frame_stream *stream, struct convoy_frame *frame_out);

/* Adds a copy of one frame to what flush sends. NO_MEMORY. BUSY: shared bytes are half sent. */
int32_t convoy_frame_queue(struct convoy_frame_stream *stream, uint16_t type, const void *body, uint32_t bytes);

/* Sends `bytes` whole frames from the caller's memory, which stays until flush returns OK or the stream is closed. */
void convoy_frame_share(struct convoy_frame_stream *stream, const uint8_t *frames, size_t bytes);

bool convoy_frame_has_output(const struct convoy_frame_stream *stream);

/* OK: all sent. IN_PROGRESS: the socket is full. PEER_LOST. */
int32_t convoy_frame_flush(struct convoy_frame_stream *stream);

/* Closes and frees; safe on a closed stream. */
void convoy_frame_close(struct convoy_frame_stream *stream);

/* recv and flush with waiting: also TIMED_OUT, CANCELED. */
int32_t convoy_frame_wait_recv(struct convoy_frame_stream *stream, const struct convoy_wait *wait,
                               struct convoy_frame *frame_out);
int32_t convoy_frame_wait_flush(struct convoy_frame_stream *stream, const struct convoy_wait *wait);

/* Whole plain bytes (the hellos), before frames. Same statuses; PEER_LOST also inside. */
int32_t convoy_frame_wait_read(int fd, const struct convoy_wait *wait, void *bytes_out, size_t bytes);
int32_t convoy_frame_wait_write(int fd, const struct convoy_wait *wait, const void *data, size_t bytes);

#endif
