/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine wants of its bulk. Under the engine's lock it is only written down; whoever gives that lock up carries it
 * out, one thread at a time and in order, so that nothing is copied or handed to UCX under it. What comes of it is news, which
 * whoever works on the engine takes under the lock again. Nothing here can fail for want of memory but a frame, which then
 * stays where it waits.
 */
#include "xfer/far.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

#define ROUNDS_MAX 64u /* of progress before what came is looked at */

/* -- writing down -------------------------------------------------------------------------------------------------- */

/* Under the lock of the queue. */
static void append(struct convoy_far *far, struct convoy_far_command *command)
{
    if (!command->is_queued) {
        command->is_queued = true;
        command->next = NULL;
        *far->last_command = command;
        far->last_command = &command->next;
    }
}

static void queue(struct convoy_xfer *engine, struct convoy_far_command *command)
{
    struct convoy_far *far = engine->far;
    (void)pthread_mutex_lock(&far->lock);
    append(far, command);
    (void)pthread_mutex_unlock(&far->lock);
    engine->must_flush = true;
}

static struct convoy_far_frame *frame_take(struct convoy_far *far, uint32_t peer, size_t bytes)
{
    (void)pthread_mutex_lock(&far->lock);
    struct convoy_far_frame *frame = far->spare_frames;
    far->spare_frames = frame != NULL ? frame->spare : NULL;
    far->peers[peer].queued_bytes += bytes;
    (void)pthread_mutex_unlock(&far->lock);
    frame = frame != NULL ? frame : convoy_memory_zalloc(sizeof *frame);
    return frame;
}

static void frame_give_back(struct convoy_far *far, struct convoy_far_frame *frame, uint32_t peer, size_t bytes)
{
    (void)pthread_mutex_lock(&far->lock);
    far->peers[peer].queued_bytes -= bytes;
    if (frame != NULL) {
        frame->spare = far->spare_frames;
        far->spare_frames = frame;
    }
    (void)pthread_mutex_unlock(&far->lock);
}

/* Those on their way to bulk are counted until they are counted there, so what is refused here would be refused there. */
static bool has_room(struct convoy_far *far, uint32_t peer, size_t bytes)
{
    (void)pthread_mutex_lock(&far->lock);
    size_t waiting = far->peers[peer].queued_bytes + convoy_bulk_waiting(far->bulk, peer);
    (void)pthread_mutex_unlock(&far->lock);
    return waiting + bytes <= CONVOY_BULK_QUEUE_BYTES;
}

bool convoy_far_frame(struct convoy_xfer *engine, uint32_t peer, const uint8_t *data, size_t bytes)
{
    struct convoy_far *far = engine->far;
    struct convoy_far_frame *frame = has_room(far, peer, bytes) ? frame_take(far, peer, bytes) : NULL;
    if (frame == NULL) {
        return false;
    }
    frame->command = (struct convoy_far_command){.kind = CONVOY_FAR_FRAME, .peer = peer};
    frame->bytes = bytes;
    memcpy(frame->data, data, bytes);
    queue(engine, &frame->command);
    return true;
}

void convoy_far_part(struct convoy_xfer *engine, uint32_t peer)
{
    struct convoy_far_command *part = &engine->far->peers[peer].part;
    part->kind = CONVOY_FAR_PART;
    part->peer = peer;
    queue(engine, part);
}

void convoy_far_poke(struct convoy_xfer *engine)
{
    engine->far->poke.kind = CONVOY_FAR_POKE;
    queue(engine, &engine->far->poke);
}

void convoy_far_say_key(struct convoy_xfer *engine, uint32_t peer)
{
    struct convoy_far_command *say = &engine->far->peers[peer].say_key;
    say->kind = CONVOY_FAR_KEY;
    say->peer = peer;
    queue(engine, say);
}

void convoy_far_wire_again(struct convoy_xfer *engine, uint32_t peer)
{
    struct convoy_far_command *again = &engine->far->peers[peer].wire_again;
    again->kind = CONVOY_FAR_WIRE;
    again->peer = peer;
    queue(engine, again);
}

/* -- pushes -------------------------------------------------------------------------------------------------------- */

uint64_t convoy_far_push_id(const struct convoy_far *far, const struct convoy_far_push *push)
{
    return (uint64_t)push->generation << 32 | (uint32_t)(push - far->pushes + 1);
}

static struct convoy_far_push *push_find(struct convoy_far *far, uint64_t id)
{
    uint32_t number = (uint32_t)id;
    struct convoy_far_push *push = number - 1 < far->push_count ? &far->pushes[number - 1] : NULL;
    return push != NULL && push->is_used && push->generation == id >> 32 ? push : NULL;
}

int32_t convoy_far_push_start(struct convoy_xfer *engine, const struct convoy_far_source *source, uint64_t *id_out,
                              struct convoy_error *error)
{
    struct convoy_far *far = engine->far;
    struct convoy_far_push *push = far->free_pushes;
    if (push == NULL) {
        return convoy_error_set(error, CONVOY_LIMIT, "%u pushes are under way, as many as transfer_max allows", far->push_count);
    }
    far->free_pushes = push->next_free;
    uint32_t generation = push->generation + 1;
    *push = (struct convoy_far_push){.generation = generation != 0 ? generation : 1,
                                     .is_used = true,
                                     .is_reading = true,
                                     .source = *source,
                                     .start = {.kind = CONVOY_FAR_START, .peer = source->peer},
                                     .stop = {.kind = CONVOY_FAR_STOP, .peer = source->peer},
                                     .more = {.kind = CONVOY_FAR_MORE, .peer = source->peer}};
    *id_out = convoy_far_push_id(far, push);
    queue(engine, &push->start);
    return CONVOY_OK;
}

void convoy_far_push_stop(struct convoy_xfer *engine, uint64_t id)
{
    struct convoy_far_push *push = push_find(engine->far, id);
    if (push != NULL) {
        queue(engine, &push->stop);
    }
}

bool convoy_far_push_reads(const struct convoy_xfer *engine, uint64_t id)
{
    const struct convoy_far_push *push = engine->far != NULL ? push_find(engine->far, id) : NULL;
    return push != NULL && push->is_reading;
}

/* -- news ---------------------------------------------------------------------------------------------------------- */

/* Under the lock of the queue. */
static void push_list(struct convoy_far *far, struct convoy_far_push *push)
{
    if (!push->is_listed) {
        push->is_listed = true;
        push->next_news = far->news;
        far->news = push;
    }
}

static void piece_moved(struct convoy_far *far, struct convoy_far_push *push, int32_t status)
{
    (void)pthread_mutex_lock(&far->lock);
    push->flying--;
    push->put_status = push->put_status == CONVOY_OK ? status : push->put_status;
    append(far, &push->more);
    (void)pthread_mutex_unlock(&far->lock);
}

void convoy_far_push_event(struct convoy_far *far, const struct convoy_bulk_event *event)
{
    struct convoy_far_push *push = &far->pushes[(uint32_t)event->cookie - 1];
    if (event->kind == CONVOY_BULK_MOVED) {
        piece_moved(far, push, event->status);
    } else {
        convoy_far_push_tell(far, push, event);
    }
}

void convoy_far_push_tell(struct convoy_far *far, struct convoy_far_push *push, const struct convoy_bulk_event *event)
{
    (void)pthread_mutex_lock(&far->lock);
    push->is_released = true;
    if (event->kind == CONVOY_BULK_ENDED) {
        push->has_ended = true;
        push->status = event->status;
        push->lost_bytes = event->lost_bytes;
    }
    push_list(far, push);
    (void)pthread_mutex_unlock(&far->lock);
}

static struct convoy_far_push *news_take(struct convoy_far *far, struct convoy_far_end *end_out, bool *must_free_out)
{
    (void)pthread_mutex_lock(&far->lock);
    struct convoy_far_push *push = far->news;
    if (push != NULL) {
        far->news = push->next_news;
        push->is_listed = false;
        /* What is still to be carried out of it makes it news once more. */
        *must_free_out = push->has_ended && !push->stop.is_queued && !push->more.is_queued;
        *end_out = (struct convoy_far_end){.peer = push->source.peer,
                                           .owner = push->source.owner,
                                           .push = convoy_far_push_id(far, push),
                                           .bytes = push->source.bytes,
                                           .lost_bytes = push->lost_bytes,
                                           .status = push->status,
                                           .has_ended = push->has_ended,
                                           .is_put = push->source.is_put,
                                           .landing = push->source.landing,
                                           .generation = push->source.generation,
                                           .is_released = push->is_released};
    }
    (void)pthread_mutex_unlock(&far->lock);
    return push;
}

void convoy_far_take_news(struct convoy_xfer *engine)
{
    struct convoy_far *far = engine->far;
    struct convoy_far_push *push;
    struct convoy_far_end end;
    bool must_free = false;
    while ((push = news_take(far, &end, &must_free)) != NULL) {
        bool is_first = end.has_ended && !push->is_told;
        bool was_reading = push->is_reading;
        push->is_told = push->is_told || end.has_ended;
        push->is_reading = push->is_reading && !end.is_released;
        if (must_free) {
            push->is_used = false;
            push->next_free = far->free_pushes;
            far->free_pushes = push;
        }
        if (was_reading && end.is_released) {
            convoy_far_push_released(engine, &end);
        }
        if (is_first) {
            convoy_far_push_ended(engine, &end);
        }
    }
}

/* -- carrying out -------------------------------------------------------------------------------------------------- */

/* What does not start ends at once. */
static void run_start(struct convoy_far *far, struct convoy_far_push *push)
{
    const struct convoy_far_source *source = &push->source;
    const struct convoy_bulk_piece piece = {.data = source->data, .bytes = source->bytes};
    const struct convoy_bulk_send send = {.peer = source->peer,
                                          .transfer = source->landing,
                                          .generation = source->generation,
                                          .offset = source->offset,
                                          .pieces = source->pieces != NULL ? source->pieces : &piece,
                                          .piece_count = source->pieces != NULL ? source->piece_count : 1,
                                          .ready = source->ready,
                                          .cookie = convoy_far_push_id(far, push)};
    struct convoy_bulk_event event = {.kind = CONVOY_BULK_ENDED, .cookie = send.cookie, .lost_bytes = source->bytes};
    if (source->is_put) {
        convoy_far_put_start(far, push);
        return;
    }
    event.status = convoy_bulk_send(far->bulk, &send, &push->stream, NULL);
    event.status = event.status == CONVOY_BAD_STATE ? CONVOY_PEER_LOST : event.status; /* its endpoint is being replaced */
    if (event.status != CONVOY_OK) {
        convoy_far_push_event(far, &event);
    }
}

static void run_stop(struct convoy_far *far, struct convoy_far_push *push)
{
    if (push->source.is_put) {
        convoy_far_put_stop(far, push);
    } else {
        (void)convoy_bulk_abort(far->bulk, push->stream, NULL);
    }
    (void)pthread_mutex_lock(&far->lock);
    push->stop.is_queued = false;
    push_list(far, push); /* it may have waited for this to be free */
    (void)pthread_mutex_unlock(&far->lock);
}

static void run_more(struct convoy_far *far, struct convoy_far_push *push)
{
    convoy_far_put_more(far, push);
    (void)pthread_mutex_lock(&far->lock);
    if (push->has_ended) {
        push_list(far, push); /* as above */
    }
    (void)pthread_mutex_unlock(&far->lock);
}

/* It is gone when its endpoint is closed, and no put to it is under way. */
static void run_part(struct convoy_far *far, uint32_t peer)
{
    struct convoy_far_place *place = &far->peers[peer];
    convoy_bulk_disconnect(far->bulk, peer);
    bool is_quiet = convoy_far_put_drop(far, peer);
    is_quiet = is_quiet && (far->memory == NULL || convoy_bulk_is_closed(far->bulk, peer));
    far->part_count += !is_quiet && !place->must_part;
    far->part_count -= is_quiet && place->must_part;
    place->must_part = !is_quiet;
    (void)pthread_mutex_lock(&far->lock);
    place->has_ours = false;
    if (is_quiet) {
        place->packed_bytes = 0;
        place->is_gone = true;
        far->has_words = true;
    }
    (void)pthread_mutex_unlock(&far->lock);
}

static void part_again(struct convoy_xfer *engine)
{
    struct convoy_far *far = engine->far;
    for (uint32_t i = 0; far->part_count != 0 && i < engine->options.peer_max; i++) {
        if (far->peers[i].must_wire) {
            convoy_far_run_wire(engine, i);
        }
        if (far->peers[i].must_part) {
            run_part(far, i);
        }
    }
}

static void run_frame(struct convoy_far *far, struct convoy_far_frame *frame)
{
    uint32_t peer = frame->command.peer;
    (void)convoy_bulk_frame(far->bulk, peer, frame->data, frame->bytes, NULL); /* lost with its connection, or retried */
    frame_give_back(far, frame, peer, frame->bytes);
}

static void run(struct convoy_xfer *engine, struct convoy_far_command *command)
{
    struct convoy_far *far = engine->far;
    switch (command->kind) {
    case CONVOY_FAR_FRAME:
        run_frame(far, CONVOY_FAR_OF(command, struct convoy_far_frame, command));
        break;
    case CONVOY_FAR_START:
        run_start(far, CONVOY_FAR_OF(command, struct convoy_far_push, start));
        break;
    case CONVOY_FAR_STOP:
        run_stop(far, CONVOY_FAR_OF(command, struct convoy_far_push, stop));
        break;
    case CONVOY_FAR_MORE:
        run_more(far, CONVOY_FAR_OF(command, struct convoy_far_push, more));
        break;
    case CONVOY_FAR_PART:
        run_part(far, command->peer);
        break;
    case CONVOY_FAR_POKE:
        convoy_bulk_poke(far->bulk);
        convoy_far_put_poke(far);
        break;
    case CONVOY_FAR_KEY:
        convoy_far_run_key(engine, command->peer);
        break;
    case CONVOY_FAR_WIRE:
        convoy_far_run_wire(engine, command->peer);
        break;
    }
}

static struct convoy_far_command *command_take(struct convoy_far *far)
{
    struct convoy_far_command *command = far->first_command;
    if (command != NULL) {
        far->first_command = command->next;
        far->last_command = command->next != NULL ? far->last_command : &far->first_command;
        command->is_queued = command->kind == CONVOY_FAR_STOP; /* a push is nobody else's while it is being stopped */
    }
    return command;
}

/* Another thread that is at it takes what came since, too. */
void convoy_far_flush(struct convoy_xfer *engine)
{
    struct convoy_far *far = engine->far;
    struct convoy_far_command *command;
    (void)pthread_mutex_lock(&far->lock);
    if (far->is_flushing) {
        (void)pthread_mutex_unlock(&far->lock);
        return;
    }
    far->is_flushing = true;
    (void)pthread_mutex_unlock(&far->lock);
    part_again(engine);
    (void)pthread_mutex_lock(&far->lock);
    while ((command = command_take(far)) != NULL) {
        (void)pthread_mutex_unlock(&far->lock);
        run(engine, command);
        (void)pthread_mutex_lock(&far->lock);
    }
    far->is_flushing = false;
    far->has_parts = far->part_count != 0;
    bool has_news = far->news != NULL || far->has_words;
    (void)pthread_mutex_unlock(&far->lock);
    if (has_news) { /* whoever sleeps is not woken by the network for that */
        convoy_xfer_lock(engine);
        convoy_xfer_kick(engine);
        convoy_xfer_unlock(engine);
    }
}

void convoy_far_work(struct convoy_xfer *engine)
{
    struct convoy_far *far = engine->far;
    for (uint32_t i = 0; i < ROUNDS_MAX && convoy_bulk_progress(far->bulk) != 0; i++) {
    }
    (void)pthread_mutex_lock(&far->lock);
    bool must_flush = far->first_command != NULL || far->has_parts;
    (void)pthread_mutex_unlock(&far->lock);
    if (must_flush) {
        convoy_far_flush(engine);
    }
}

void convoy_far_staged(struct convoy_xfer *engine)
{
    struct convoy_far *far = engine->far;
    (void)pthread_mutex_lock(&far->lock);
    far->poke.kind = CONVOY_FAR_POKE;
    append(far, &far->poke);
    (void)pthread_mutex_unlock(&far->lock);
    convoy_far_flush(engine);
    (void)convoy_bulk_progress(far->bulk); /* unless another thread is at it */
}
