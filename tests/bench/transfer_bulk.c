/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces by their addresses, and one staged payload over and over. */
#include "tests/bench/transfer_kinds.h"

#include <stdio.h>
#include <time.h>

/* -- by addresses -------------------------------------------------------------------------------------------------- */

/* Memory in the own pool, twice as much, so that no piece has a neighbour and each has to be looked at. */
static uint8_t *reserve_source(struct side *side)
{
    uint64_t bytes = 2 * side->which->bytes;
    const struct convoy_reserve reserve = {
        .struct_size = sizeof reserve, .request = "bench-raw", .request_length = 9, .bytes = &bytes, .count = 1};
    struct convoy_reserved_slot slot = {0};
    struct convoy_reservation reservation = {
        .struct_size = sizeof reservation, .slots = &slot, .slot_stride = sizeof slot, .slot_capacity = 1};
    side_check(side, "reserve", side->table->reserve(side->engine, &reserve, &reservation, &side->error));
    return slot.address;
}

void transfer_send_raw(struct side *side, const struct transfer_kind *kind, uint32_t rounds)
{
    static struct convoy_raw_piece pieces[SIDE_PIECES_MAX];
    struct handover *handover = &side->shared->handover;
    size_t bytes = side->which->bytes / side->which->pieces;
    uint8_t *source = reserve_source(side);
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = side->peer,
                                   .pieces = pieces,
                                   .piece_stride = sizeof pieces[0],
                                   .piece_count = side->which->pieces};
    (void)kind;
    side_await(side, &handover->checked, 1); /* the target is known */
    for (uint32_t i = 0; i < side->which->pieces; i++) {
        pieces[i] = (struct convoy_raw_piece){
            .source = source + 2 * i * bytes, .target = side->shared->target + i * side->stride, .bytes = bytes};
    }
    for (uint32_t round = 0; round < rounds; round++) {
        side->round++;
        for (uint32_t i = 0; i < side->which->pieces; i++) {
            handover_stamp(source + 2 * i * bytes, bytes, side->round);
        }
        uint64_t start_ns = bench_now_ns();
        side_check(side, "transfer_sync",
                   side->table->transfer_sync(side->engine, &raw, SIDE_TIMEOUT_NS, &side->error));
        handover->samples_ns[round] = bench_now_ns() - start_ns;
        handover_set(&handover->published, side->round);
        side_await(side, &handover->checked, side->round + 1);
    }
    side->shared->payload_bytes = side->which->bytes;
}

/* The host does something else meanwhile: the library's own threads write. */
void transfer_receive_raw(struct side *side, const struct transfer_kind *kind, uint32_t rounds)
{
    struct handover *handover = &side->shared->handover;
    const struct timespec pause = {.tv_nsec = 20000};
    (void)kind;
    side_check(side, "memory_register",
               side->table->memory_register(side->engine, side->memory, side->stride * side->which->pieces, &side->error));
    side->shared->target = (uint64_t)(uintptr_t)side->memory;
    for (uint32_t round = 0; round < rounds; round++) {
        handover_set(&handover->checked, ++side->round);
        while (__atomic_load_n(&handover->published.value, __ATOMIC_ACQUIRE) < side->round) {
            side_leave_if_refused(side);
            (void)nanosleep(&pause, NULL);
        }
        for (uint32_t i = 0; i < side->which->pieces; i++) {
            handover_check(side->memory + i * side->stride, side->which->bytes / side->which->pieces, side->round,
                           side->which->text);
        }
    }
    handover_set(&handover->checked, side->round + 1);
}

/* -- one after the other without a pause --------------------------------------------------------------------------- */

/* PIECES of the case is how many are under way; the payload is one tensor. */
uint32_t transfer_queued(const struct side *side)
{
    return side->which->pieces < TRANSFER_QUEUE_MAX ? side->which->pieces : TRANSFER_QUEUE_MAX;
}

static convoy_transfer stage_once(struct side *side, const struct transfer_kind *kind)
{
    static struct transfer_request request;
    convoy_transfer staged = 0;
    request.shape = side->which->bytes;
    transfer_prepare(side, &request, kind);
    request.tensors[0].bytes = request.shape = side->which->bytes;
    request.stage.tensor_count = 1;
    request.stage.request_length = (size_t)snprintf(request.id, sizeof request.id, "bench-stream");
    side_check(side, "stage_start", side->table->stage_start(side->engine, &request.stage, &staged, &side->error));
    side_finish(side, staged, false, NULL);
    return staged;
}

/* A sample is the time from one end to the next. */
void transfer_send_stream(struct side *side, const struct transfer_kind *kind, uint32_t rounds)
{
    convoy_transfer transfers[TRANSFER_QUEUE_MAX];
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    struct handover *handover = &side->shared->handover;
    uint32_t window = transfer_queued(side);
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .path = kind->path,
                                     .peer = side->peer,
                                     .staged = stage_once(side, kind),
                                     .timeout_ns = SIDE_TIMEOUT_NS};
    side_await(side, &handover->checked, 1);
    uint64_t last_ns = bench_now_ns();
    for (uint32_t round = 0; round < rounds + window; round++) {
        convoy_transfer *transfer = &transfers[round % window];
        if (round >= window) {
            side_finish(side, *transfer, false, &result);
            side_check(side, "release", side->table->release(side->engine, *transfer, &side->error));
            uint64_t now_ns = bench_now_ns();
            handover->samples_ns[round - window] = now_ns - last_ns;
            last_ns = now_ns;
        }
        if (round < rounds) {
            side_check(side, "send_start", side->table->send_start(side->engine, NULL, &send, transfer, &side->error));
        }
    }
    side_keep_result(side, &result);
    side_await(side, &handover->checked, 2);
}

void transfer_receive_stream(struct side *side, const struct transfer_kind *kind, uint32_t rounds)
{
    convoy_transfer transfers[TRANSFER_QUEUE_MAX];
    uint32_t window = transfer_queued(side);
    struct convoy_load load = transfer_load_of(side, kind);
    load.destination = NULL; /* several at once: each into a slot of the own pool */
    load.destination_bytes = 0;
    for (uint32_t round = 0; round < rounds + window; round++) {
        convoy_transfer *transfer = &transfers[round % window];
        if (round >= window) {
            side_finish(side, *transfer, false, NULL);
            side_check(side, "release", side->table->release(side->engine, *transfer, &side->error));
        }
        if (round < rounds) {
            side_check(side, "accept_start", side->table->accept_start(side->engine, &load, transfer, &side->error));
        }
        if (round + 1 == window) {
            handover_set(&side->shared->handover.checked, 1);
        }
    }
    handover_set(&side->shared->handover.checked, 2);
}
