/* SPDX-License-Identifier: Apache-2.0 */
/* What waits to be delivered: frames and events in the order in which they came about, one thread at a time, no lock. */
#include "net/bulk_parts.h"

#include "core/memory.h"

#include <string.h>
#include <unistd.h>

void convoy_bulk_notice_push(struct convoy_bulk *bulk, struct bulk_notice *notice)
{
    if (notice->is_queued) {
        return;
    }
    notice->is_queued = true;
    notice->next = NULL;
    if (bulk->last_notice != NULL) {
        bulk->last_notice->next = notice;
    } else {
        bulk->first_notice = notice;
    }
    bulk->last_notice = notice;
}

bool convoy_bulk_notice_make(struct convoy_bulk *bulk, const struct convoy_bulk_event *event, const void *frame,
                             size_t bytes)
{
    struct bulk_notice *notice = convoy_memory_zalloc(sizeof *notice + bytes);
    if (notice == NULL) {
        return false;
    }
    notice->event = *event;
    notice->is_made = true;
    notice->is_frame = bytes != 0;
    notice->bytes = bytes;
    if (bytes != 0) {
        uint8_t *data = (uint8_t *)(notice + 1);
        memcpy(data, frame, bytes);
        notice->data = data;
    }
    bulk->notice_bytes += sizeof *notice + bytes;
    convoy_bulk_notice_push(bulk, notice);
    return true;
}

static struct bulk_notice *notice_pop(struct convoy_bulk *bulk)
{
    struct bulk_notice *notice = bulk->first_notice;
    if (notice != NULL) {
        bulk->first_notice = notice->next;
        bulk->last_notice = notice->next != NULL ? bulk->last_notice : NULL;
        notice->is_queued = false;
        bulk->notice_bytes -= notice->is_made ? sizeof *notice + notice->bytes : 0;
    }
    return notice;
}

/* The stream's slot may be another stream's as soon as the lock is given up. */
static void notice_retire(struct convoy_bulk *bulk, struct bulk_notice *notice)
{
    if (notice->stream != NULL && notice == &notice->stream->ended) {
        convoy_bulk_stream_free(bulk, notice->stream);
    }
}

static void notice_call(struct convoy_bulk *bulk, const struct bulk_notice *notice)
{
    if (notice->is_frame) { /* its bytes lie behind the notice itself */
        bulk->options.ops.frame(bulk->options.user, notice->event.peer, notice->data, notice->bytes);
    } else {
        bulk->options.ops.event(bulk->options.user, &notice->event);
    }
}

uint32_t convoy_bulk_notice_deliver(struct convoy_bulk *bulk)
{
    uint32_t count = 0;
    struct bulk_notice *notice;
    (void)pthread_mutex_lock(&bulk->lock);
    if (bulk->is_delivering || bulk->first_notice == NULL) {
        (void)pthread_mutex_unlock(&bulk->lock);
        return 0;
    }
    bulk->is_delivering = true;
    while ((notice = notice_pop(bulk)) != NULL) {
        const struct bulk_notice copy = *notice;
        notice_retire(bulk, notice);
        (void)pthread_mutex_unlock(&bulk->lock);
        notice_call(bulk, &copy);
        if (copy.is_made) {
            convoy_memory_free(notice);
        }
        count++;
        (void)pthread_mutex_lock(&bulk->lock);
    }
    bulk->is_delivering = false;
    bulk->deliveries += count;
    (void)pthread_mutex_unlock(&bulk->lock);
    return count;
}

void convoy_bulk_notice_drop_all(struct convoy_bulk *bulk)
{
    struct bulk_notice *notice;
    while ((notice = notice_pop(bulk)) != NULL) {
        if (notice->is_made) {
            convoy_memory_free(notice);
        }
    }
}

void convoy_bulk_wake(struct convoy_bulk *bulk)
{
    const uint64_t one = 1;
    bulk->is_armed = false;
    bulk->is_rung = true;
    (void)!write(bulk->event_fd, &one, sizeof one); /* full means that it is readable already */
}
