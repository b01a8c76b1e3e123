/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushes that go by put, into memory that the receiver has registered: in pieces, a few at a time, each flushed, so that what is
 * said behind the last one finds all of them there. Everything here is done by the one thread that carries out (far_outbox.c).
 */
#include "xfer/far.h"

#include "core/fault.h"

#define PIECE_BYTES (1u << 20)
#define FLYING_MAX 4u

/* The key is opened when it is first needed: UCX has connected by then. */
static int32_t open_key(struct convoy_far *far, uint32_t peer)
{
    struct convoy_far_place *place = &far->peers[peer];
    uint8_t packed[CONVOY_BULK_KEY_BYTES_MAX];
    if (place->key != NULL) {
        return CONVOY_OK;
    }
    (void)pthread_mutex_lock(&far->lock);
    size_t bytes = place->packed_bytes;
    memcpy(packed, place->packed, bytes);
    (void)pthread_mutex_unlock(&far->lock);
    return convoy_bulk_key_open(far->bulk, peer, packed, bytes, &place->key, NULL);
}

static void list_remove(struct convoy_far *far, const struct convoy_far_push *push)
{
    struct convoy_far_push **at = &far->puts;
    while (*at != push) {
        at = &(*at)->next_put;
    }
    *at = push->next_put;
}

static void finish(struct convoy_far *far, struct convoy_far_push *push)
{
    struct convoy_bulk_event event = {.kind = CONVOY_BULK_ENDED, .status = push->put_status};
    event.lost_bytes = push->put_status == CONVOY_OK ? 0 : push->source.bytes;
    push->is_over = true;
    list_remove(far, push);
    convoy_far_push_tell(far, push, &event);
}

static uint64_t ready_bytes(const struct convoy_far_source *source)
{
    uint64_t ready = source->ready != NULL ? atomic_load_explicit(source->ready, memory_order_acquire) : source->bytes;
    return ready < source->bytes || ready == CONVOY_BULK_NEVER ? ready : source->bytes;
}

static bool start_piece(struct convoy_far *far, struct convoy_far_push *push, uint64_t bytes)
{
    const struct convoy_far_source *source = &push->source;
    (void)pthread_mutex_lock(&far->lock);
    push->flying++;
    (void)pthread_mutex_unlock(&far->lock);
    int32_t status = convoy_bulk_put(far->peers[source->peer].key, source->put + push->started,
                                     (const uint8_t *)source->data + push->started, bytes, convoy_far_push_id(far, push), NULL);
    if (status != CONVOY_OK) { /* then there is no event of it */
        (void)pthread_mutex_lock(&far->lock);
        push->flying--;
        push->put_status = push->put_status == CONVOY_OK ? status : push->put_status;
        (void)pthread_mutex_unlock(&far->lock);
        return false;
    }
    push->started += bytes;
    return true;
}

/* Starts what may go, and ends it when nothing of it is under way any more. */
void convoy_far_put_more(struct convoy_far *far, struct convoy_far_push *push)
{
    uint64_t ready = ready_bytes(&push->source);
    bool is_going = !push->is_over;
    while (is_going) {
        uint64_t left = ready - push->started;
        (void)pthread_mutex_lock(&far->lock);
        bool is_never = ready == CONVOY_BULK_NEVER && push->put_status == CONVOY_OK;
        push->put_status = is_never ? CONVOY_CANCELED : push->put_status;
        is_going = push->put_status == CONVOY_OK && push->flying < FLYING_MAX &&
                   (left >= PIECE_BYTES || (left != 0 && ready == push->source.bytes));
        (void)pthread_mutex_unlock(&far->lock);
        is_going = is_going && start_piece(far, push, left < PIECE_BYTES ? left : PIECE_BYTES);
    }
    (void)pthread_mutex_lock(&far->lock);
    bool is_done = push->flying == 0 && (push->started == push->source.bytes || push->put_status != CONVOY_OK);
    (void)pthread_mutex_unlock(&far->lock);
    if (is_done && !push->is_over) {
        finish(far, push);
    }
}

void convoy_far_put_start(struct convoy_far *far, struct convoy_far_push *push)
{
    int32_t status = open_key(far, push->source.peer);
    push->next_put = far->puts;
    far->puts = push;
    (void)pthread_mutex_lock(&far->lock);
    push->put_status = status;
    (void)pthread_mutex_unlock(&far->lock);
    convoy_far_put_more(far, push);
}

void convoy_far_put_stop(struct convoy_far *far, struct convoy_far_push *push)
{
    (void)pthread_mutex_lock(&far->lock);
    push->put_status = push->put_status == CONVOY_OK ? CONVOY_CANCELED : push->put_status;
    (void)pthread_mutex_unlock(&far->lock);
    convoy_far_put_more(far, push);
}

void convoy_far_put_poke(struct convoy_far *far)
{
    struct convoy_far_push *push = far->puts;
    while (push != NULL) {
        struct convoy_far_push *next = push->next_put;
        convoy_far_put_more(far, push);
        push = next;
    }
}

bool convoy_far_put_drop(struct convoy_far *far, uint32_t peer)
{
    struct convoy_far_push *push = far->puts;
    bool is_quiet = true;
    while (push != NULL) {
        struct convoy_far_push *next = push->next_put;
        if (push->source.peer == peer) {
            convoy_far_put_stop(far, push);
            is_quiet = is_quiet && push->is_over;
        }
        push = next;
    }
    if (is_quiet && convoy_bulk_key_close(far->peers[peer].key, NULL) == CONVOY_OK) {
        far->peers[peer].key = NULL;
        return true;
    }
    return false;
}
