/* SPDX-License-Identifier: Apache-2.0 */
#include "net/link_parts.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

int32_t convoy_link_buffers_make(struct convoy_link *link, struct convoy_error *error)
{
    size_t each = CONVOY_LINK_HEADER_MAX + link->options.message_bytes_max;
    link->buffer_memory = convoy_memory_array(LINK_BUFFERS, each);
    if (link->buffer_memory == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %d send buffers of %zu bytes", LINK_BUFFERS,
                                each);
    }
    for (size_t i = 0; i < LINK_BUFFERS; i++) {
        link->buffers[i].bytes = link->buffer_memory + i * each;
        link->buffers[i].next = link->free_buffers;
        link->free_buffers = &link->buffers[i];
    }
    return CONVOY_OK;
}

static void buffer_give_back(struct link_buffer *buffer)
{
    struct convoy_link *link = buffer->endpoint->link;
    buffer->endpoint->pending--;
    buffer->next = link->free_buffers;
    link->free_buffers = buffer;
    link->pending--;
}

/* Also called with an error when the endpoint fails: the error handler has the word then. */
static void buffer_sent(void *request, ucs_status_t ucx_status, void *argument)
{
    struct link_buffer *buffer = argument;
    struct convoy_link *link = buffer->endpoint->link;
    (void)ucx_status;
    buffer_give_back(buffer);
    link->ucx->ucp_request_free(request);
}

/* Other transports than TCP: UCX keeps our copy until it is through. */
static ucs_status_t send_buffered(struct convoy_link *link, struct link_endpoint *endpoint, struct link_buffer *buffer)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = buffer_sent,
        .user_data = buffer,
    };
    link->free_buffers = buffer->next;
    buffer->endpoint = endpoint;
    endpoint->pending++;
    link->pending++;
    ucs_status_ptr_t request =
        link->ucx->ucp_am_send_nbx(endpoint->ep, LINK_AM_ID, buffer->bytes, buffer->header_bytes,
                                   buffer->bytes + buffer->header_bytes, buffer->data_bytes, &param);
    if (UCS_PTR_IS_PTR(request)) {
        return UCS_OK; /* buffer_sent has run already, or will */
    }
    buffer_give_back(buffer);
    return UCS_PTR_STATUS(request);
}

void convoy_link_send_queued(struct convoy_link *link, struct link_endpoint *endpoint)
{
    while (endpoint->queue != NULL) {
        struct link_buffer *buffer = endpoint->queue;
        endpoint->queue = buffer->next;
        buffer->next = link->free_buffers; /* as if it was filled just now */
        link->free_buffers = buffer;
        endpoint->pending--;
        link->pending--;
        link->queued--;
        ucs_status_t result = send_buffered(link, endpoint, buffer);
        if (result != UCS_OK) {
            convoy_link_endpoint_fail(endpoint, result);
        }
    }
}

static void send_count(struct link_endpoint *endpoint, size_t bytes, bool is_inline)
{
    endpoint->is_dirty = true;
    link_count(&endpoint->sent_messages, 1);
    link_count(&endpoint->sent_bytes, bytes);
    link_count(&endpoint->inline_messages, is_inline);
}

/* The connection does not stand yet, is busy, or the message is long: our copy follows when it can. */
static ucs_status_t send_later(struct convoy_link *link, struct link_endpoint *endpoint,
                               const struct link_message *message)
{
    struct link_buffer *buffer = link->free_buffers;
    memcpy(buffer->bytes, message->header, message->header_bytes);
    if (message->bytes != 0) {
        memcpy(buffer->bytes + message->header_bytes, message->data, message->bytes);
    }
    buffer->header_bytes = message->header_bytes;
    buffer->data_bytes = message->bytes;
    if (!endpoint->is_tcp && endpoint->later_address == NULL) {
        return send_buffered(link, endpoint, buffer);
    }
    convoy_link_queue_push(link, endpoint, buffer);
    return UCS_OK;
}

static int32_t send_to(struct convoy_link *link, struct link_endpoint *endpoint, const struct link_message *message)
{
    ucs_status_t result = UCS_ERR_NO_RESOURCE;
    size_t total = message->header_bytes + message->bytes;
    /* Else it would overtake those in buffers; or UCX, in the middle of reading a connection, would find while writing
     * that it is broken, take it down and go on reading (1.13). */
    bool is_inline = endpoint->pending == 0 && !link->is_progressing;
    if (is_inline && total <= endpoint->segment_bytes) {
        result = convoy_link_send_now(link, endpoint, message, LINK_AM_ID);
    }
    if (result == UCS_ERR_NO_RESOURCE) {
        if (link->free_buffers == NULL) {
            return CONVOY_LIMIT;
        }
        is_inline = false;
        result = send_later(link, endpoint, message);
    }
    if (result != UCS_OK) {
        convoy_link_endpoint_fail(endpoint, result);
        return CONVOY_PEER_LOST;
    }
    send_count(endpoint, total, is_inline);
    return CONVOY_OK;
}

int32_t convoy_link_send(struct convoy_link *link, uint32_t peer, const void *header, size_t header_bytes,
                         const void *data, size_t bytes)
{
    assert(peer < link->options.peer_count && header_bytes <= CONVOY_LINK_HEADER_MAX &&
           bytes <= link->options.message_bytes_max);
    struct link_endpoint *endpoint = &link->endpoints[peer];
    enum convoy_link_state state = link_state(endpoint);
    if (state != CONVOY_LINK_UP) {
        return state == CONVOY_LINK_NONE ? CONVOY_BAD_STATE : CONVOY_PEER_LOST;
    }
    link_enter(link);
    const struct link_message message = {header, header_bytes, data, bytes};
    int32_t status = send_to(link, endpoint, &message);
    link_leave(link);
    return status;
}

/* TCP: UCX copies the message into the connection's buffer, or refuses it. */
static int32_t offer_to(struct convoy_link *link, struct link_endpoint *endpoint, const struct link_message *message)
{
    if (endpoint->pending != 0 || link->is_progressing) {
        return CONVOY_LIMIT; /* else it would overtake what waits in buffers; and see send_to */
    }
    ucs_status_t result = convoy_link_send_now(link, endpoint, message, LINK_AM_ID);
    if (result == UCS_ERR_NO_RESOURCE) {
        return CONVOY_LIMIT;
    }
    if (result != UCS_OK) {
        convoy_link_endpoint_fail(endpoint, result);
        return CONVOY_PEER_LOST;
    }
    send_count(endpoint, message->header_bytes + message->bytes, true);
    return CONVOY_OK;
}

int32_t convoy_link_offer(struct convoy_link *link, uint32_t peer, const void *header, size_t header_bytes,
                          const void *data, size_t bytes)
{
    struct link_endpoint *endpoint = &link->endpoints[peer];
    assert(peer < link->options.peer_count);
    if (link_state(endpoint) != CONVOY_LINK_UP || !endpoint->is_tcp) {
        return link->is_progressing ? CONVOY_LIMIT
                                    : convoy_link_send(link, peer, header, header_bytes, data, bytes);
    }
    assert(header_bytes <= CONVOY_LINK_HEADER_MAX && bytes <= link->options.message_bytes_max);
    link_enter(link);
    const struct link_message message = {header, header_bytes, data, bytes};
    int32_t status = offer_to(link, endpoint, &message);
    link_leave(link);
    return status;
}

uint32_t convoy_link_pending(const struct convoy_link *link)
{
    return link->pending;
}
