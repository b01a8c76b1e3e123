/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending over TCP. UCX 1.13 lets a message that it cannot write at once wait behind a connection handshake of its own
 * (wireup), and aborts the process when an endpoint is closed, or fails, while a message of that handshake still waits
 * in the transport. A message that must go at once or not at all never starts the handshake, so over TCP every message
 * is sent that way, and those that UCX refuses wait here, for the next progress. UCX refuses what is longer than a
 * segment for ever: that goes in pieces.
 */
#include "net/link_parts.h"

#include <string.h>

#define QUEUE_PIECE_BYTES_MIN 1024u /* goes through unless the connection is busy */

/* Whole or not at all, and never twice: UCS_ERR_NO_RESOURCE means that nothing was sent. */
ucs_status_t convoy_link_send_now(struct convoy_link *link, const struct link_endpoint *endpoint,
                                  const struct link_message *message, unsigned id)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
                                       .flags = UCP_AM_SEND_FLAG_EAGER};
    ucs_status_ptr_t request = link->ucx->ucp_am_send_nbx(endpoint->ep, id, message->header, message->header_bytes,
                                                          message->data, message->bytes, &param);
    return UCS_PTR_STATUS(request); /* a macro that evaluates its argument twice */
}

static void queue_pop(struct convoy_link *link, struct link_endpoint *endpoint)
{
    struct link_buffer *buffer = endpoint->queue;
    endpoint->queue = buffer->next;
    buffer->next = link->free_buffers;
    link->free_buffers = buffer;
    endpoint->pending--;
    link->pending--;
    link->queued--;
}

void convoy_link_queue_drop(struct convoy_link *link, struct link_endpoint *endpoint)
{
    while (endpoint->queue != NULL) {
        queue_pop(link, endpoint);
    }
}

void convoy_link_queue_push(struct convoy_link *link, struct link_endpoint *endpoint, struct link_buffer *buffer)
{
    link->free_buffers = buffer->next;
    buffer->next = NULL;
    buffer->endpoint = endpoint;
    buffer->sent = 0;
    buffer->sequence = ++link->sequence;
    struct link_buffer **end = &endpoint->queue;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = buffer;
    endpoint->pending++;
    link->pending++;
    link->queued++;
}

static ucs_status_t queue_send_piece(struct convoy_link *link, struct link_endpoint *endpoint,
                                     struct link_buffer *buffer, size_t bytes)
{
    size_t left = buffer->header_bytes + buffer->data_bytes - buffer->sent;
    const struct link_piece piece = {.sender = link->id,
                                     .sequence = buffer->sequence,
                                     .total = (uint32_t)(buffer->header_bytes + buffer->data_bytes),
                                     .offset = (uint32_t)buffer->sent,
                                     .header_bytes = (uint32_t)buffer->header_bytes};
    const struct link_message message = {.header = &piece,
                                         .header_bytes = sizeof piece,
                                         .data = buffer->bytes + buffer->sent,
                                         .bytes = bytes < left ? bytes : left};
    ucs_status_t result = convoy_link_send_now(link, endpoint, &message, LINK_AM_PIECE_ID);
    buffer->sent += result == UCS_OK ? message.bytes : 0;
    return result;
}

/* A connection that takes a small piece after it has refused a large one has a smaller segment than we set: the host
 * may choose it. */
static ucs_status_t queue_send_pieces(struct convoy_link *link, struct link_endpoint *endpoint,
                                      struct link_buffer *buffer)
{
    ucs_status_t result = UCS_OK;
    while (result == UCS_OK && buffer->sent != buffer->header_bytes + buffer->data_bytes) {
        result = queue_send_piece(link, endpoint, buffer, endpoint->segment_bytes);
        if (result == UCS_ERR_NO_RESOURCE && endpoint->segment_bytes > QUEUE_PIECE_BYTES_MIN) {
            result = queue_send_piece(link, endpoint, buffer, QUEUE_PIECE_BYTES_MIN);
            endpoint->segment_bytes = result == UCS_OK ? QUEUE_PIECE_BYTES_MIN : endpoint->segment_bytes;
        }
    }
    return result;
}

static ucs_status_t queue_send_first(struct convoy_link *link, struct link_endpoint *endpoint)
{
    struct link_buffer *buffer = endpoint->queue;
    const struct link_message message = {.header = buffer->bytes,
                                         .header_bytes = buffer->header_bytes,
                                         .data = buffer->bytes + buffer->header_bytes,
                                         .bytes = buffer->data_bytes};
    size_t total = buffer->header_bytes + buffer->data_bytes;
    ucs_status_t result = UCS_ERR_NO_RESOURCE;
    if (buffer->sent == 0 && total <= endpoint->segment_bytes) {
        result = convoy_link_send_now(link, endpoint, &message, LINK_AM_ID);
    }
    if (result == UCS_ERR_NO_RESOURCE && total > QUEUE_PIECE_BYTES_MIN) {
        result = queue_send_pieces(link, endpoint, buffer);
    }
    return result;
}

/* Sends what one endpoint's connection takes. */
static uint32_t queue_move(struct convoy_link *link, struct link_endpoint *endpoint)
{
    uint32_t moved = 0;
    while (endpoint->queue != NULL && link_state(endpoint) == CONVOY_LINK_UP) {
        size_t sent = endpoint->queue->sent;
        ucs_status_t result = queue_send_first(link, endpoint);
        if (result == UCS_ERR_NO_RESOURCE) {
            return moved + (endpoint->queue->sent != sent);
        }
        if (result != UCS_OK) {
            convoy_link_endpoint_fail(endpoint, result);
            return moved + 1;
        }
        queue_pop(link, endpoint);
        moved++;
    }
    return moved;
}

uint32_t convoy_link_queue_progress(struct convoy_link *link)
{
    uint32_t moved = 0;
    for (uint32_t i = 0; i < link->options.peer_count && link->queued != 0; i++) {
        if (link->endpoints[i].queue != NULL) {
            moved += queue_move(link, &link->endpoints[i]);
        }
    }
    return moved;
}
