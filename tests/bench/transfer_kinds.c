/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-overs one by one: direct, and through a broker; and the table of all kinds. */
#include "tests/bench/transfer_kinds.h"

#include <stdio.h>
#include <string.h>

#define WAITED_BYTES (256u << 10) /* from there on a load by copy is waited for: the library copies on the waiting thread */

/* Who polls spins on the processor that a copier of the library would need. */
static bool is_polled(const struct side *side, const struct transfer_kind *kind)
{
    return kind->mode == CONVOY_LOAD_VIEW || side->which->bytes <= WAITED_BYTES;
}

/* -- sending ------------------------------------------------------------------------------------------------------- */

void transfer_prepare(struct side *side, struct transfer_request *request, const struct transfer_kind *kind)
{
    uint32_t count = side->which->bytes == 0 ? 0 : side->which->pieces;
    request->shape = side->which->bytes / side->which->pieces;
    for (uint32_t i = 0; i < count; i++) {
        int length = snprintf(request->names[i], sizeof request->names[i], "tensor_%u", i);
        request->tensors[i] = (struct convoy_tensor_source){.name = request->names[i],
                                                            .name_length = (size_t)length,
                                                            .dtype = "uint8",
                                                            .dtype_length = 5,
                                                            .data = side->memory + i * side->stride,
                                                            .shape = &request->shape,
                                                            .rank = 1};
    }
    request->stage = (struct convoy_stage){.struct_size = sizeof request->stage,
                                           .hint_flags = kind->is_inline ? CONVOY_STAGE_INLINE : 0,
                                           .request = request->id,
                                           .tensors = request->tensors,
                                           .tensor_stride = sizeof request->tensors[0],
                                           .tensor_count = count,
                                           .timeout_ns = SIDE_TIMEOUT_NS};
}

/* Everything that a host has at hand before it hands over. */
static void begin(struct side *side, struct transfer_request *request)
{
    side->round++;
    request->stage.request_length =
        (size_t)snprintf(request->id, sizeof request->id, "bench-%llu", (unsigned long long)side->round);
    for (uint32_t i = 0; i < request->stage.tensor_count; i++) {
        handover_stamp(side->memory + i * side->stride, request->shape, side->round);
    }
}

static void send_direct(struct side *side, const struct transfer_kind *kind, uint32_t rounds)
{
    static struct transfer_request request;
    struct handover *handover = &side->shared->handover;
    const struct convoy_send send = {
        .struct_size = sizeof send, .path = kind->path, .peer = side->peer, .timeout_ns = SIDE_TIMEOUT_NS};
    transfer_prepare(side, &request, kind);
    for (uint32_t round = 0; round < rounds; round++) {
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        convoy_transfer transfer = 0;
        begin(side, &request);
        side_await(side, &handover->checked, side->round); /* the receiver waits for this one */
        uint64_t start_ns = bench_now_ns();
        side_check(side, "send_start", side->table->send_start(side->engine, &request.stage, &send, &transfer,
                                                               &side->error));
        side_finish(side, transfer, is_polled(side, kind), &result);
        handover->samples_ns[round] = bench_now_ns() - start_ns;
        side_keep_result(side, &result);
        side_check(side, "release", side->table->release(side->engine, transfer, &side->error));
    }
    side_await(side, &handover->checked, side->round + 1);
}

/* The host looks at its transfers meanwhile, so that the library answers the receiver on this thread. */
static void await_broker(struct side *side, convoy_transfer staged)
{
    const struct handover_word *taken = &side->shared->handover.taken;
    while (__atomic_load_n(&taken->value, __ATOMIC_ACQUIRE) < side->round) {
        side_check(side, "looking at the stage",
                   side->table->transfer_test(side->engine, staged, NULL, &side->error));
        side_leave_if_refused(side);
    }
}

static void send_broker(struct side *side, const struct transfer_kind *kind, uint32_t rounds)
{
    static struct transfer_request request;
    struct handover *handover = &side->shared->handover;
    transfer_prepare(side, &request, kind);
    for (uint32_t round = 0; round < rounds; round++) {
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        struct convoy_text_buffer text = {.struct_size = sizeof text,
                                          .data = (char *)side->shared->descriptor,
                                          .capacity = sizeof side->shared->descriptor};
        convoy_transfer staged = 0;
        begin(side, &request);
        side_await(side, &handover->checked, side->round);
        uint64_t start_ns = bench_now_ns();
        side_check(side, "stage_start", side->table->stage_start(side->engine, &request.stage, &staged, &side->error));
        side_finish(side, staged, is_polled(side, kind), &result);
        side_check(side, "descriptor", side->table->descriptor(side->engine, staged, CONVOY_DESCRIPTOR_BINARY, &text,
                                                               &side->error));
        side->shared->descriptor_length = text.length;
        handover_set(&handover->published, side->round);
        await_broker(side, staged);
        handover->samples_ns[round] = bench_now_ns() - start_ns;
        side_keep_result(side, &result);
        side_check(side, "release", side->table->release(side->engine, staged, &side->error));
    }
    side_await(side, &handover->checked, side->round + 1);
}

/* -- receiving ----------------------------------------------------------------------------------------------------- */

struct convoy_load transfer_load_of(const struct side *side, const struct transfer_kind *kind)
{
    struct convoy_load load = {.struct_size = sizeof load,
                               .mode = kind->mode,
                               .path = kind->path == CONVOY_PATH_PULL ? CONVOY_PATH_PULL : CONVOY_PATH_AUTO,
                               .timeout_ns = SIDE_TIMEOUT_NS};
    if (kind->mode == CONVOY_LOAD_COPY && side->memory != NULL) {
        load.destination = side->memory;
        load.destination_bytes = side->stride * side->which->pieces;
    }
    return load;
}

/* Every tensor is there, whole, and this round's. */
static void check_payload(struct side *side, convoy_transfer transfer)
{
    static struct convoy_tensor_view views[SIDE_PIECES_MAX];
    struct convoy_payload payload = {.struct_size = sizeof payload,
                                     .tensors = views,
                                     .tensor_stride = sizeof views[0],
                                     .tensor_capacity = SIDE_PIECES_MAX};
    size_t count = side->which->bytes == 0 ? 0 : side->which->pieces;
    side_check(side, "payload", side->table->payload(side->engine, transfer, &payload, &side->error));
    if (payload.tensor_count != count) {
        bench_die("%s: %zu tensors came, not %zu", side->which->text, payload.tensor_count, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (views[i].bytes != side->which->bytes / side->which->pieces) {
            bench_die("%s: tensor %zu has %llu bytes", side->which->text, i, (unsigned long long)views[i].bytes);
        }
        handover_check(views[i].data, views[i].bytes, side->round, side->which->text);
    }
}

static void receive_direct(struct side *side, const struct transfer_kind *kind, uint32_t rounds)
{
    struct handover *handover = &side->shared->handover;
    const struct convoy_load load = transfer_load_of(side, kind);
    convoy_transfer transfer = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        side_check(side, "accept_start", side->table->accept_start(side->engine, &load, &transfer, &side->error));
        handover_set(&handover->checked, ++side->round);
        side_finish(side, transfer, is_polled(side, kind), NULL);
        check_payload(side, transfer);
        side_check(side, "release", side->table->release(side->engine, transfer, &side->error));
    }
    handover_set(&handover->checked, side->round + 1);
}

static void receive_broker(struct side *side, const struct transfer_kind *kind, uint32_t rounds)
{
    struct handover *handover = &side->shared->handover;
    struct convoy_load load = transfer_load_of(side, kind);
    convoy_transfer transfer = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        handover_set(&handover->checked, ++side->round);
        side_await(side, &handover->published, side->round);
        load.descriptor = side->shared->descriptor;
        load.descriptor_length = side->shared->descriptor_length;
        side_check(side, "load_start", side->table->load_start(side->engine, &load, &transfer, &side->error));
        side_finish(side, transfer, is_polled(side, kind), NULL);
        handover_set(&handover->taken, side->round);
        check_payload(side, transfer);
        side_check(side, "release", side->table->release(side->engine, transfer, &side->error));
    }
    handover_set(&handover->checked, side->round + 1);
}

/* -- kinds --------------------------------------------------------------------------------------------------------- */

static const struct transfer_kind kinds[] = {
    {"view", CONVOY_PATH_AUTO, CONVOY_LOAD_VIEW, true, send_direct, receive_direct},
    {"copy", CONVOY_PATH_AUTO, CONVOY_LOAD_COPY, false, send_direct, receive_direct},
    {"push", CONVOY_PATH_PUSH, CONVOY_LOAD_COPY, false, send_direct, receive_direct},
    {"pull", CONVOY_PATH_PULL, CONVOY_LOAD_COPY, false, send_direct, receive_direct},
    {"empty", CONVOY_PATH_PUSH, CONVOY_LOAD_COPY, true, send_direct, receive_direct},
    {"notice", CONVOY_PATH_AUTO, CONVOY_LOAD_VIEW, true, send_direct, receive_direct},
    {"broker", CONVOY_PATH_AUTO, CONVOY_LOAD_COPY, true, send_broker, receive_broker},
    {"raw", CONVOY_PATH_AUTO, CONVOY_LOAD_COPY, true, transfer_send_raw, transfer_receive_raw},
    {"stream", CONVOY_PATH_AUTO, CONVOY_LOAD_COPY, true, transfer_send_stream, transfer_receive_stream},
};

const struct transfer_kind *transfer_kind_of(const struct handover_case *which)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, which->kind) == 0 && which->pieces <= SIDE_PIECES_MAX) {
            return &kinds[i];
        }
    }
    bench_die("\"%s\": unknown kind, or more than %u pieces", which->text, SIDE_PIECES_MAX);
}
