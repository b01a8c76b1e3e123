/* SPDX-License-Identifier: Apache-2.0 */
#include "net/frame.h"

#include "core/bytes.h"
#include "core/memory.h"

#include <sys/socket.h>
#include <unistd.h>

void convoy_frame_head_encode(uint8_t head_out[CONVOY_FRAME_HEAD_BYTES], uint16_t type, uint32_t bytes)
{
    convoy_bytes_put_u32(head_out, bytes);
    convoy_bytes_put_u16(head_out + 4, type);
    convoy_bytes_put_u16(head_out + 6, 0);
}

int32_t convoy_frame_head_decode(const uint8_t head[CONVOY_FRAME_HEAD_BYTES], uint32_t limit, uint16_t *type_out,
                                 uint32_t *bytes_out)
{
    uint32_t bytes = convoy_bytes_u32(head);
    if (convoy_bytes_u16(head + 6) != 0) {
        return CONVOY_MALFORMED;
    }
    if (bytes > limit) {
        return CONVOY_LIMIT;
    }
    *type_out = convoy_bytes_u16(head + 4);
    *bytes_out = bytes;
    return CONVOY_OK;
}

/* One read into at[*done..bytes). OK: full. */
static int32_t read_some(int fd, uint8_t *at, uint32_t bytes, uint32_t *done)
{
    while (*done < bytes) {
        ssize_t got = recv(fd, at + *done, bytes - *done, 0);
        if (got > 0) {
            *done += (uint32_t)got;
        } else if (got == 0) {
            return CONVOY_PEER_LOST;
        } else if (errno == EAGAIN) {
            return CONVOY_IN_PROGRESS;
        } else if (errno != EINTR) {
            return CONVOY_PEER_LOST;
        }
    }
    return CONVOY_OK;
}

static int32_t recv_head(struct convoy_frame_stream *stream)
{
    int32_t status = read_some(stream->fd, stream->head, sizeof stream->head, &stream->head_bytes);
    if (status != CONVOY_OK) {
        return status == CONVOY_PEER_LOST && stream->head_bytes != 0 ? CONVOY_TRUNCATED : status;
    }
    status = convoy_frame_head_decode(stream->head, stream->limit, &stream->frame.type, &stream->frame.bytes);
    if (status != CONVOY_OK) {
        return status;
    }
    stream->frame.body = convoy_memory_zalloc(stream->frame.bytes);
    stream->body_bytes = 0;
    return stream->frame.body != NULL ? CONVOY_OK : CONVOY_NO_MEMORY;
}

int32_t convoy_frame_recv(struct convoy_frame_stream *stream, struct convoy_frame *frame_out)
{
    if (stream->frame.body == NULL) {
        int32_t status = recv_head(stream);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    int32_t status = read_some(stream->fd, stream->frame.body, stream->frame.bytes, &stream->body_bytes);
    if (status != CONVOY_OK) {
        return status == CONVOY_PEER_LOST ? CONVOY_TRUNCATED : status;
    }
    *frame_out = stream->frame;
    stream->frame.body = NULL;
    stream->head_bytes = 0;
    return CONVOY_OK;
}

int32_t convoy_frame_queue(struct convoy_frame_stream *stream, uint16_t type, const void *body, uint32_t bytes)
{
    if (stream->shared_done != 0 && stream->shared_done < stream->shared_bytes) {
        return CONVOY_BUSY;
    }
    size_t kept = stream->queue_bytes - stream->queue_done;
    uint8_t *queue = convoy_memory_zalloc(kept + CONVOY_FRAME_HEAD_BYTES + bytes);
    if (queue == NULL) {
        return CONVOY_NO_MEMORY;
    }
    if (kept != 0) {
        memcpy(queue, stream->queue + stream->queue_done, kept);
    }
    convoy_frame_head_encode(queue + kept, type, bytes);
    if (bytes != 0) {
        memcpy(queue + kept + CONVOY_FRAME_HEAD_BYTES, body, bytes);
    }
    convoy_memory_free(stream->queue);
    stream->queue = queue;
    stream->queue_bytes = kept + CONVOY_FRAME_HEAD_BYTES + bytes;
    stream->queue_done = 0;
    return CONVOY_OK;
}

void convoy_frame_share(struct convoy_frame_stream *stream, const uint8_t *frames, size_t bytes)
{
    stream->shared = frames;
    stream->shared_bytes = bytes;
    stream->shared_done = 0;
}

bool convoy_frame_has_output(const struct convoy_frame_stream *stream)
{
    return stream->queue_done < stream->queue_bytes || stream->shared_done < stream->shared_bytes;
}

static int32_t send_some(int fd, const uint8_t *data, size_t bytes, size_t *done)
{
    while (*done < bytes) {
        ssize_t sent = send(fd, data + *done, bytes - *done, MSG_NOSIGNAL);
        if (sent >= 0) {
            *done += (size_t)sent;
        } else if (errno == EAGAIN) {
            return CONVOY_IN_PROGRESS;
        } else if (errno != EINTR) {
            return CONVOY_PEER_LOST;
        }
    }
    return CONVOY_OK;
}

int32_t convoy_frame_flush(struct convoy_frame_stream *stream)
{
    int32_t status = send_some(stream->fd, stream->queue, stream->queue_bytes, &stream->queue_done);
    if (status == CONVOY_OK) {
        status = send_some(stream->fd, stream->shared, stream->shared_bytes, &stream->shared_done);
    }
    return status;
}

void convoy_frame_close(struct convoy_frame_stream *stream)
{
    if (stream->fd >= 0) {
        (void)close(stream->fd);
    }
    convoy_memory_free(stream->queue);
    convoy_memory_free(stream->frame.body);
    *stream = (struct convoy_frame_stream){.fd = -1};
}

int32_t convoy_frame_wait_recv(struct convoy_frame_stream *stream, const struct convoy_wait *wait,
                               struct convoy_frame *frame_out)
{
    for (;;) {
        int32_t status = convoy_frame_recv(stream, frame_out);
        if (status == CONVOY_IN_PROGRESS) {
            status = convoy_wait_one(wait, stream->fd, POLLIN);
            if (status == CONVOY_OK) {
                continue;
            }
        }
        return status;
    }
}

int32_t convoy_frame_wait_flush(struct convoy_frame_stream *stream, const struct convoy_wait *wait)
{
    for (;;) {
        int32_t status = convoy_frame_flush(stream);
        if (status == CONVOY_IN_PROGRESS) {
            status = convoy_wait_one(wait, stream->fd, POLLOUT);
            if (status == CONVOY_OK) {
                continue;
            }
        }
        return status;
    }
}

int32_t convoy_frame_wait_read(int fd, const struct convoy_wait *wait, void *bytes_out, size_t bytes)
{
    uint32_t done = 0;
    int32_t status = read_some(fd, bytes_out, (uint32_t)bytes, &done);
    while (status == CONVOY_IN_PROGRESS) {
        status = convoy_wait_one(wait, fd, POLLIN);
        if (status == CONVOY_OK) {
            status = read_some(fd, bytes_out, (uint32_t)bytes, &done);
        }
    }
    return status;
}

int32_t convoy_frame_wait_write(int fd, const struct convoy_wait *wait, const void *data, size_t bytes)
{
    size_t done = 0;
    int32_t status = send_some(fd, data, bytes, &done);
    while (status == CONVOY_IN_PROGRESS) {
        status = convoy_wait_one(wait, fd, POLLOUT);
        if (status == CONVOY_OK) {
            status = send_some(fd, data, bytes, &done);
        }
    }
    return status;
}
