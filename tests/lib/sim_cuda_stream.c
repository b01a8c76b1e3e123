/* SPDX-License-Identifier: Apache-2.0 */
/* The pretended driver: streams, events, copies, and who runs them. */
#include "tests/lib/sim_cuda_parts.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* -- running ------------------------------------------------------------------------------------------------------- */

static bool op_can_run(const struct op *op)
{
    return op->kind != OP_WAIT || op->event->fired >= op->number;
}

static void event_release(cuda_event event)
{
    event->users--;
    if (event->users == 0 && event->is_destroyed) {
        free(event);
    }
}

/* First the front half, and the rest is poison; then the rest. */
static void op_move(const struct op *op)
{
    size_t middle = op->bytes / 8 * 4;
    uint8_t *to = sim_seen_at(op->to);
    size_t from = op->half == 0 ? 0 : middle;
    size_t until = op->half == 0 ? middle : op->bytes;
    if (op->kind == OP_COPY) {
        memcpy(to + from, sim_seen_at(op->from) + from, until - from);
    } else {
        for (size_t at = from; at + 4 <= until; at += 4) {
            memcpy(to + at, &op->value, 4);
        }
    }
    if (op->half == 0) {
        memset(to + middle, SIM_CUDA_POISON, op->bytes - middle);
    }
}

/* false: there is another half. */
static bool op_run(struct op *op)
{
    bool is_broken = op->broken != CUDA_OK || sim.broken != CUDA_OK;
    sim.broken = sim.broken == CUDA_OK ? op->broken : sim.broken;
    if ((op->kind == OP_COPY || op->kind == OP_FILL) && !is_broken) {
        op_move(op);
        return op->half++ != 0;
    }
    if (op->kind == OP_RECORD && op->event->fired < op->number && !is_broken) {
        op->event->fired = op->number;
    }
    return true;
}

static void stream_unlink(cuda_stream stream)
{
    cuda_stream *at = &sim.streams;
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    if (!stream->is_default) {
        free(stream);
    }
}

static void stream_run(cuda_stream stream)
{
    struct op *op = stream->first;
    if (!op_run(op)) {
        return;
    }
    stream->first = op->next;
    if (op->event != NULL) {
        event_release(op->event);
    }
    free(op);
    if (stream->first == NULL && stream->is_destroyed) {
        stream_unlink(stream);
    }
}

bool sim_step(void)
{
    cuda_stream chosen = NULL;
    uint64_t seen = 0;
    for (cuda_stream stream = sim.streams; stream != NULL; stream = stream->next) {
        if (stream->first != NULL && op_can_run(stream->first) && sim_random() % ++seen == 0) {
            chosen = stream;
        }
    }
    if (chosen != NULL) {
        stream_run(chosen);
    }
    return chosen != NULL;
}

void *sim_runner(void *unused)
{
    (void)unused;
    (void)pthread_mutex_lock(&sim.lock);
    while (!sim.is_leaving) {
        if (sim.is_by_hand || !sim_step()) {
            (void)pthread_cond_wait(&sim.changed, &sim.lock);
            continue;
        }
        uint64_t turns = sim_random() % 4;
        (void)pthread_mutex_unlock(&sim.lock); /* the host's turn, for longer or shorter */
        for (; turns != 0; turns--) {
            (void)sched_yield();
        }
        (void)pthread_mutex_lock(&sim.lock);
    }
    (void)pthread_mutex_unlock(&sim.lock);
    return NULL;
}

/* -- streams and events -------------------------------------------------------------------------------------------- */

static cuda_stream stream_of(cuda_stream handle)
{
    cuda_stream wanted = handle != NULL ? handle : &sim_current()->stream;
    cuda_stream stream = sim.streams;
    while (stream != NULL && (stream != wanted || stream->is_destroyed)) {
        stream = stream->next;
    }
    return stream;
}

static bool event_is(cuda_event wanted)
{
    cuda_event event = sim.events;
    while (event != NULL && event != wanted) {
        event = event->next;
    }
    return event != NULL;
}

static struct op *op_put(cuda_stream stream, struct op model)
{
    struct op *op = malloc(sizeof *op);
    *op = model;
    op->broken = sim.break_next;
    sim.break_next = CUDA_OK;
    if (op->event != NULL) {
        op->event->users++;
    }
    if (stream->first == NULL) {
        stream->first = op;
    } else {
        stream->last->next = op;
    }
    stream->last = op;
    (void)pthread_cond_signal(&sim.changed);
    return op;
}

cuda_result cuStreamCreate(cuda_stream *stream_out, unsigned flags)
{
    cuda_result result = BEGIN_INSIDE();
    (void)flags;
    if (result == CUDA_OK) {
        cuda_stream stream = calloc(1, sizeof *stream);
        stream->context = sim_current();
        stream->next = sim.streams;
        sim.streams = stream;
        *stream_out = stream;
    }
    return sim_call_end(result);
}

cuda_result cuStreamDestroy_v2(cuda_stream handle)
{
    cuda_result result = BEGIN();
    cuda_stream stream = stream_of(handle);
    if (stream == NULL) {
        return sim_call_end(INVALID_HANDLE);
    }
    stream->is_destroyed = true;
    if (stream->first == NULL) {
        stream_unlink(stream);
    }
    return sim_call_end(result);
}

cuda_result cuStreamQuery(cuda_stream handle)
{
    cuda_result result = BEGIN_INSIDE();
    if (result == CUDA_OK) {
        cuda_stream stream = stream_of(handle);
        result = stream == NULL ? INVALID_HANDLE : stream->first != NULL ? CUDA_NOT_READY : CUDA_OK;
    }
    return sim_call_end(result);
}

cuda_result cuStreamWaitEvent(cuda_stream handle, cuda_event event, unsigned flags)
{
    cuda_result result = BEGIN_INSIDE();
    (void)flags;
    cuda_stream stream = result == CUDA_OK ? stream_of(handle) : NULL;
    if (result == CUDA_OK && (stream == NULL || !event_is(event))) {
        result = INVALID_HANDLE;
    }
    if (result == CUDA_OK) {
        (void)op_put(stream, (struct op){.kind = OP_WAIT, .event = event, .number = event->recorded});
    }
    return sim_call_end(result);
}

cuda_result cuEventCreate(cuda_event *event_out, unsigned flags)
{
    cuda_result result = BEGIN_INSIDE();
    (void)flags;
    if (result == CUDA_OK) {
        cuda_event event = calloc(1, sizeof *event);
        event->context = sim_current();
        event->next = sim.events;
        sim.events = event;
        *event_out = event;
    }
    return sim_call_end(result);
}

cuda_result cuEventDestroy_v2(cuda_event event)
{
    cuda_result result = BEGIN();
    if (!event_is(event)) {
        return sim_call_end(INVALID_HANDLE);
    }
    cuda_event *at = &sim.events;
    while (*at != event) {
        at = &(*at)->next;
    }
    *at = event->next;
    event->is_destroyed = true;
    event->users++;
    event_release(event);
    return sim_call_end(result);
}

cuda_result cuEventRecord(cuda_event event, cuda_stream handle)
{
    cuda_result result = BEGIN_INSIDE();
    cuda_stream stream = result == CUDA_OK ? stream_of(handle) : NULL;
    if (result == CUDA_OK && (stream == NULL || !event_is(event) || event->context != stream->context)) {
        result = INVALID_HANDLE;
    }
    if (result == CUDA_OK) {
        event->recorded = ++sim.records;
        (void)op_put(stream, (struct op){.kind = OP_RECORD, .event = event, .number = event->recorded});
    }
    return sim_call_end(result);
}

cuda_result cuEventQuery(cuda_event event)
{
    cuda_result result = BEGIN_INSIDE();
    if (result == CUDA_OK) {
        result = !event_is(event) ? INVALID_HANDLE : event->fired < event->recorded ? CUDA_NOT_READY : CUDA_OK;
    }
    return sim_call_end(result);
}

/* -- copies -------------------------------------------------------------------------------------------------------- */

/* Host memory that is not pinned is copied before the call returns. */
static void op_finish(cuda_stream stream)
{
    sim.blocking++;
    while (stream->first != NULL && sim_step()) {
    }
}

static cuda_result op_move_put(cuda_stream handle, struct op op)
{
    cuda_stream stream = stream_of(handle);
    const struct memory *to = sim_memory_of(op.to);
    if (stream == NULL) {
        return INVALID_HANDLE;
    }
    if (op.bytes == 0 || (to != NULL && (to->is_read_only || op.to + op.bytes > to->address + to->bytes))) {
        return INVALID_VALUE;
    }
    if (!sim_is_touched(op.to, op.bytes)) {
        memset(sim_seen_at(op.to), SIM_CUDA_POISON, op.bytes);
    }
    (void)op_put(stream, op);
    if (to == NULL || (op.from != NULL && sim_memory_of(op.from) == NULL)) {
        op_finish(stream);
    }
    return CUDA_OK;
}

static bool is_on_device(cuda_address address)
{
    const struct memory *memory = sim_memory_of((void *)(uintptr_t)address);
    return memory != NULL && memory->kind <= KIND_MANAGED;
}

static cuda_result copy_put(cuda_result result, cuda_address to, cuda_address from, size_t bytes, cuda_stream stream)
{
    if (result == CUDA_OK) {
        result = op_move_put(stream, (struct op){.kind = OP_COPY, .to = (uint8_t *)(uintptr_t)to,
                                                 .from = (const uint8_t *)(uintptr_t)from, .bytes = bytes});
    }
    return sim_call_end(result);
}

cuda_result cuMemcpyAsync(cuda_address to, cuda_address from, size_t bytes, cuda_stream stream)
{
    return copy_put(BEGIN_INSIDE(), to, from, bytes, stream);
}

cuda_result cuMemcpyHtoDAsync_v2(cuda_address to, const void *from, size_t bytes, cuda_stream stream)
{
    cuda_result result = BEGIN_INSIDE();
    return copy_put(result == CUDA_OK && !is_on_device(to) ? INVALID_VALUE : result, to, (cuda_address)(uintptr_t)from, bytes,
                    stream);
}

#ifndef SIM_CUDA_SHORT
cuda_result cuMemcpyDtoHAsync_v2(void *to, cuda_address from, size_t bytes, cuda_stream stream)
{
    cuda_result result = BEGIN_INSIDE();
    return copy_put(result == CUDA_OK && !is_on_device(from) ? INVALID_VALUE : result, (cuda_address)(uintptr_t)to, from, bytes,
                    stream);
}
#endif

cuda_result cuMemcpyDtoDAsync_v2(cuda_address to, cuda_address from, size_t bytes, cuda_stream stream)
{
    cuda_result result = BEGIN_INSIDE();
    bool is_wrong = result == CUDA_OK && (!is_on_device(to) || !is_on_device(from));
    return copy_put(is_wrong ? INVALID_VALUE : result, to, from, bytes, stream);
}

/* Those that wait: nothing that is on its way touches either end, or the host has made a mistake that shows. */
static cuda_result copy_now(void *to, const void *from, size_t bytes)
{
    cuda_result result = BEGIN_INSIDE();
    if (result == CUDA_OK) {
        memcpy(sim_seen_at(to), sim_seen_at(from), bytes);
    }
    return sim_call_end(result);
}

cuda_result cuMemcpyHtoD_v2(cuda_address to, const void *from, size_t bytes)
{
    return copy_now((void *)(uintptr_t)to, from, bytes);
}

cuda_result cuMemcpyDtoH_v2(void *to, cuda_address from, size_t bytes)
{
    return copy_now(to, (const void *)(uintptr_t)from, bytes);
}

cuda_result cuMemsetD32Async(cuda_address to, unsigned value, size_t count, cuda_stream stream)
{
    cuda_result result = BEGIN_INSIDE();
    if (result == CUDA_OK) {
        result = op_move_put(stream, (struct op){.kind = OP_FILL, .to = (uint8_t *)(uintptr_t)to, .bytes = count * 4,
                                                 .value = value});
    }
    return sim_call_end(result);
}
