/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers of the matrix's host: both roles in one process, and one of two processes that meet in a folder. */
#include "tests/abi/matrix.h"

#include <time.h>
#include <unistd.h>

#define TEXT_BYTES 16384u
#define SCALARS "{\"seed\":18446744073709551615}"

static const uint64_t tensor_shape[1] = {MATRIX_BYTES};

void matrix_engine_open(convoy_host_context *context, bool is_private, struct matrix_engine *engine_out)
{
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options,
        .critical_flags = is_private ? CONVOY_ENGINE_PRIVATE : 0,
        .pool_bytes = 8u << 20,
    };
    MATRIX_GUARDED(engine_info) info;
    matrix_need(convoy_host_engine_open(context, &options, &engine_out->engine, &matrix_error), "engine_open");
    MATRIX_OUT(info);
    matrix_need(convoy_host_engine_info(engine_out->engine, &info.value, &matrix_error), "engine_info");
    MATRIX_WRITTEN("written.engine_info", info);
    engine_out->info = info.value;
    for (uint32_t i = 0; i < MATRIX_BYTES; i++) {
        engine_out->memory[i] = (uint8_t)(i * 31 + i / 251);
    }
}

static struct convoy_stage stage_of(const struct convoy_tensor_source *tensor, const char *request)
{
    struct convoy_stage stage = {
        .struct_size = sizeof(struct convoy_stage),
        .critical_flags = CONVOY_STAGE_CHECKSUM,
        .request = request,
        .request_length = strlen(request),
        .tensors = tensor,
        .tensor_stride = sizeof *tensor,
        .tensor_count = 1,
        .scalars = SCALARS,
        .scalars_length = sizeof SCALARS - 1,
        .timeout_ns = MATRIX_WAIT_NS,
    };
    matrix_priority_put(&stage);
    return stage;
}

static struct convoy_tensor_source tensor_of(const struct matrix_engine *engine)
{
    return (struct convoy_tensor_source){.name = "latents",
                                         .name_length = 7,
                                         .dtype = "uint8",
                                         .dtype_length = 5,
                                         .data = engine->memory,
                                         .shape = tensor_shape,
                                         .rank = 1};
}

/* To its end, which must be OK. */
static void finish(struct matrix_engine *engine, convoy_transfer transfer, const char *what)
{
    MATRIX_GUARDED(transfer_result) result;
    int32_t status;
    do {
        MATRIX_OUT(result);
        status = convoy_host_transfer_wait(engine->engine, transfer, MATRIX_WAIT_NS, &result.value, &matrix_error);
    } while (status == CONVOY_IN_PROGRESS);
    matrix_need(status, what);
    MATRIX_WRITTEN("written.transfer_result", result);
}

convoy_transfer matrix_stage(struct matrix_engine *engine, const char *request)
{
    const struct convoy_tensor_source tensor = tensor_of(engine);
    const struct convoy_stage stage = stage_of(&tensor, request);
    convoy_transfer staged = 0;
    matrix_need(convoy_host_stage_start(engine->engine, &stage, &staged, &matrix_error), "stage_start");
    finish(engine, staged, "stage");
    return staged;
}

static convoy_transfer send_start(struct matrix_engine *engine, convoy_peer peer, const char *request)
{
    const struct convoy_tensor_source tensor = tensor_of(engine);
    const struct convoy_stage stage = stage_of(&tensor, request);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = MATRIX_WAIT_NS};
    convoy_transfer transfer = 0;
    matrix_need(convoy_host_send_start(engine->engine, &stage, &send, &transfer, &matrix_error), "send_start");
    return transfer;
}

static void send_finish(struct matrix_engine *engine, convoy_transfer transfer)
{
    finish(engine, transfer, "send");
    matrix_need(convoy_host_transfer_release(engine->engine, transfer, &matrix_error), "release");
}

void matrix_send(struct matrix_engine *engine, convoy_peer peer, const char *request)
{
    send_finish(engine, send_start(engine, peer, request));
}

/* What has come is what every engine stages; then it is given back. */
static void check_payload(struct matrix_engine *engine, convoy_transfer transfer, const char *request)
{
    char name[64];
    struct convoy_tensor_view view = {.data = NULL};
    struct convoy_payload payload = {
        .struct_size = sizeof payload, .tensors = &view, .tensor_stride = sizeof view, .tensor_capacity = 1};
    matrix_need(convoy_host_transfer_payload(engine->engine, transfer, &payload, &matrix_error), "payload");
    bool is_whole = view.bytes == MATRIX_BYTES && memcmp(view.data, engine->memory, MATRIX_BYTES) == 0;
    (void)snprintf(name, sizeof name, "loaded.%s", request);
    matrix_priority_say(&payload);
    matrix_same(name, "%s %zu %.*s %.*s %s", is_whole ? "whole" : "damaged", payload.tensor_count, (int)view.name_length,
                view.name, (int)view.dtype_length, view.dtype,
                payload.scalars_length == sizeof SCALARS - 1 && memcmp(payload.scalars, SCALARS, sizeof SCALARS - 1) == 0
                    ? "scalars"
                    : "other scalars");
    matrix_need(convoy_host_transfer_release(engine->engine, transfer, &matrix_error), "release");
}

void matrix_accept(struct matrix_engine *engine, const char *request)
{
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = MATRIX_WAIT_NS};
    convoy_transfer transfer = 0;
    matrix_need(convoy_host_accept_start(engine->engine, &load, &transfer, &matrix_error), "accept_start");
    finish(engine, transfer, "accept");
    check_payload(engine, transfer, request);
}

void matrix_load(struct matrix_engine *engine, const char *descriptor, size_t bytes, const char *request)
{
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = CONVOY_LOAD_COPY,
                                     .descriptor = descriptor,
                                     .descriptor_length = bytes,
                                     .timeout_ns = MATRIX_WAIT_NS};
    convoy_transfer transfer = 0;
    matrix_need(convoy_host_load_start(engine->engine, &load, &transfer, &matrix_error), "load_start");
    finish(engine, transfer, "load");
    check_payload(engine, transfer, request);
}

void matrix_held_begin(struct matrix_engine *engine, convoy_peer peer, convoy_transfer transfers_out[MATRIX_HELD])
{
    matrix_limit(engine);
    for (uint32_t i = 0; i < MATRIX_HELD; i++) {
        transfers_out[i] = send_start(engine, peer, "held");
    }
}

void matrix_held_end(struct matrix_engine *from, struct matrix_engine *to, const convoy_transfer transfers[MATRIX_HELD])
{
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = MATRIX_WAIT_NS};
    uint32_t whole = 0;
    for (uint32_t i = 0; i < MATRIX_HELD; i++) {
        struct convoy_tensor_view view = {.data = NULL};
        struct convoy_payload payload = {
            .struct_size = sizeof payload, .tensors = &view, .tensor_stride = sizeof view, .tensor_capacity = 1};
        convoy_transfer transfer = 0;
        matrix_need(convoy_host_accept_start(to->engine, &load, &transfer, &matrix_error), "accept_start");
        finish(to, transfer, "accept");
        matrix_need(convoy_host_transfer_payload(to->engine, transfer, &payload, &matrix_error), "payload");
        whole += view.bytes == MATRIX_BYTES && memcmp(view.data, from->memory, MATRIX_BYTES) == 0;
        matrix_need(convoy_host_transfer_release(to->engine, transfer, &matrix_error), "release");
        send_finish(from, transfers[i]);
    }
    matrix_seen("held", "%u of %u", whole, MATRIX_HELD);
}

static convoy_peer connect_to(struct matrix_engine *engine, const char *session)
{
    convoy_peer peer = 0;
    MATRIX_GUARDED(peer_info) info;
    matrix_need(convoy_host_peer_connect(engine->engine, session, strlen(session), MATRIX_WAIT_NS, &peer, &matrix_error),
                "peer_connect");
    MATRIX_OUT(info);
    matrix_need(convoy_host_peer_info(engine->engine, peer, &info.value, &matrix_error), "peer_info");
    MATRIX_WRITTEN("written.peer_info", info);
    matrix_seen("locality", "%u", info.value.locality);
    return peer;
}

static size_t descriptor_of(struct matrix_engine *engine, convoy_transfer staged, uint32_t form, char *text)
{
    struct convoy_text_buffer buffer = {.struct_size = sizeof buffer, .data = text, .capacity = TEXT_BYTES};
    matrix_need(convoy_host_transfer_descriptor(engine->engine, staged, form, &buffer, &matrix_error), "descriptor");
    return buffer.length;
}

void matrix_transfers(convoy_loader *loader)
{
    static struct matrix_engine both[2];
    static char text[TEXT_BYTES];
    convoy_host_context *context = matrix_context(loader);
    matrix_priority_begin(loader);
    for (uint32_t i = 0; i < 2; i++) {
        matrix_engine_open(context, false, &both[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        convoy_peer peer = connect_to(&both[i], both[1 - i].info.session);
        convoy_transfer sent = send_start(&both[i], peer, "alone");
        matrix_accept(&both[1 - i], i == 0 ? "first" : "second");
        send_finish(&both[i], sent);
        convoy_transfer staged = matrix_stage(&both[i], "broker");
        size_t bytes = descriptor_of(&both[i], staged, CONVOY_DESCRIPTOR_BINARY + i, text);
        matrix_load(&both[1 - i], text, bytes, i == 0 ? "binary" : "json");
        matrix_need(convoy_host_transfer_release(both[i].engine, staged, &matrix_error), "release");
    }
    matrix_need(convoy_host_context_close(context, MATRIX_WAIT_NS, &matrix_error), "context_close");
}

/* -- two processes ------------------------------------------------------------------------------------------------- */

static void put_file(const char *folder, const char *name, const char *data, size_t bytes)
{
    char part[512];
    char path[512];
    (void)snprintf(part, sizeof part, "%s/part-%s", folder, name);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(part, "we");
    bool is_written = file != NULL && fwrite(data, 1, bytes, file) == bytes;
    is_written = (file == NULL || fclose(file) == 0) && is_written && rename(part, path) == 0;
    matrix_need(is_written ? CONVOY_OK : CONVOY_SYSTEM, path);
}

/* Looks for what the other one writes until it is there. */
static size_t get_file(const char *folder, const char *name, char *data)
{
    const struct timespec moment = {.tv_nsec = 2000000};
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    for (uint64_t waited = 0; waited < MATRIX_WAIT_NS; waited += 2000000) {
        FILE *file = fopen(path, "re");
        if (file != NULL) {
            size_t bytes = fread(data, 1, TEXT_BYTES - 1, file);
            (void)fclose(file);
            data[bytes] = '\0';
            return bytes;
        }
        (void)nanosleep(&moment, NULL);
    }
    matrix_need(CONVOY_TIMED_OUT, path);
    return 0;
}

/* First one sends and the other accepts, then one says what it has and the other loads that. */
static void side_sends(struct matrix_engine *engine, convoy_peer peer, const char *side, const char *folder)
{
    static char text[TEXT_BYTES];
    char name[32];
    matrix_send(engine, peer, side);
    convoy_transfer staged = matrix_stage(engine, "broker");
    (void)snprintf(name, sizeof name, "descriptor-%s", side);
    put_file(folder, name, text, descriptor_of(engine, staged, CONVOY_DESCRIPTOR_JSON, text));
    (void)snprintf(name, sizeof name, "loaded-%s", side);
    (void)get_file(folder, name, text);
    matrix_need(convoy_host_transfer_release(engine->engine, staged, &matrix_error), "release");
}

static void side_loads(struct matrix_engine *engine, const char *from, const char *folder)
{
    static char text[TEXT_BYTES];
    char name[32];
    matrix_accept(engine, "accepted");
    (void)snprintf(name, sizeof name, "descriptor-%s", from);
    size_t bytes = get_file(folder, name, text);
    matrix_load(engine, text, bytes, "described");
    (void)snprintf(name, sizeof name, "loaded-%s", from);
    put_file(folder, name, "1", 1);
}

void matrix_side(convoy_loader *loader, const char *side, const char *folder, bool is_private)
{
    static struct matrix_engine engine;
    static char text[TEXT_BYTES];
    const char *other = side[0] == 'a' ? "b" : "a";
    convoy_host_context *context = matrix_context(loader);
    matrix_priority_begin(loader);
    matrix_engine_open(context, is_private, &engine);
    put_file(folder, side, engine.info.session, strlen(engine.info.session));
    (void)get_file(folder, other, text);
    convoy_peer peer = connect_to(&engine, text);
    for (uint32_t turn = 0; turn < 2; turn++) {
        if ((side[0] == 'a') == (turn == 0)) {
            side_sends(&engine, peer, side, folder);
        } else {
            side_loads(&engine, other, folder);
        }
    }
    put_file(folder, side[0] == 'a' ? "end-a" : "end-b", "1", 1);
    (void)get_file(folder, side[0] == 'a' ? "end-b" : "end-a", text); /* what it has staged is read until then */
    matrix_need(convoy_host_context_close(context, MATRIX_WAIT_NS, &matrix_error), "context_close");
}
