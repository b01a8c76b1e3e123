/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/abi/struct_cases.h"

#include "tests/lib/expect.h"

#include <string.h>

#define CLOSE_NS 5000000000ull

#define ENGINES (&host->engines)
#define TABLE (ENGINES->table)

static int32_t end(struct struct_host *host, convoy_transfer_engine *engine, convoy_transfer transfer, int32_t status)
{
    EXPECT((status == CONVOY_OK) == (transfer != 0));
    if (transfer != 0) {
        (void)TABLE->abort(engine, transfer, NULL, 0, NULL);
        EXPECT_OK(TABLE->release(engine, transfer, &host->error), &host->error);
    }
    return status;
}

int32_t run_engine_options(struct struct_host *host, void *given, size_t stride)
{
    convoy_transfer_engine *engine = NULL;
    (void)stride;
    int32_t status = TABLE->engine_open(host->member->context, given, &engine, &host->error);
    EXPECT((status == CONVOY_OK) == (engine != NULL));
    (void)TABLE->engine_close(engine, CLOSE_NS, NULL);
    return status;
}

int32_t run_engine_info(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return TABLE->engine_info(ENGINES->own, given, &host->error);
}

int32_t run_engine_figures(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return TABLE->pool_figures(ENGINES->own, given, &host->error);
}

int32_t run_peer_info(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return TABLE->peer_info(ENGINES->own, ENGINES->send.peer, given, &host->error);
}

int32_t run_stage(struct struct_host *host, void *given, size_t stride)
{
    convoy_transfer staged = 0;
    (void)stride;
    int32_t status = TABLE->stage_start(ENGINES->own, given, &staged, &host->error);
    return end(host, ENGINES->own, staged, status);
}

int32_t run_tensor(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_stage stage = ENGINES->stage;
    stage.tensors = given;
    stage.tensor_stride = stride;
    return run_stage(host, &stage, 0);
}

int32_t run_list(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_stage stage = ENGINES->stage;
    stage.lists = given;
    stage.list_stride = stride;
    stage.list_count = 1;
    return run_stage(host, &stage, 0);
}

int32_t run_send(struct struct_host *host, void *given, size_t stride)
{
    convoy_transfer sent = 0;
    (void)stride;
    int32_t status = TABLE->send_start(ENGINES->own, &ENGINES->stage, given, &sent, &host->error);
    return end(host, ENGINES->own, sent, status);
}

int32_t run_load(struct struct_host *host, void *given, size_t stride)
{
    convoy_transfer loaded = 0;
    (void)stride;
    int32_t status = TABLE->load_start(ENGINES->own, given, &loaded, &host->error);
    return end(host, ENGINES->own, loaded, status);
}

/* The same struct, but for what is not for it: an offer has no descriptor. */
int32_t run_accept(struct struct_host *host, void *given, size_t stride)
{
    convoy_transfer loaded = 0;
    const void *none = NULL;
    unsigned char *bytes = given;
    uint32_t size = 0;
    (void)stride;
    (void)memcpy(&size, given, sizeof size);
    bool is_whole = size >= sizeof(struct convoy_load) && size <= 65536;
    if (is_whole) {
        (void)memcpy(bytes + offsetof(struct convoy_load, descriptor), &none, sizeof none);
    }
    int32_t status = TABLE->accept_start(ENGINES->own, given, &loaded, &host->error);
    return end(host, ENGINES->own, loaded, status);
}

int32_t run_result(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return TABLE->transfer_test(ENGINES->other, ENGINES->staged, given, &host->error);
}

int32_t run_payload(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return TABLE->payload(ENGINES->other, ENGINES->staged, given, &host->error);
}

int32_t run_view(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_payload payload = ENGINES->payload;
    payload.tensors = given;
    payload.tensor_stride = stride;
    return run_payload(host, &payload, 0);
}

int32_t run_list_view(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_payload payload = ENGINES->payload;
    payload.lists = given;
    payload.list_stride = stride;
    return run_payload(host, &payload, 0);
}

/* -- slots -- */

static int32_t reserve(struct struct_host *host, const void *asked, void *answer, struct convoy_reserved_slot *slot)
{
    slot->transfer = 0;
    int32_t status = TABLE->reserve(ENGINES->own, asked, answer, &host->error);
    return end(host, ENGINES->own, slot->transfer, status);
}

int32_t run_reserve(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return reserve(host, given, &ENGINES->reservation, &ENGINES->slot);
}

int32_t run_reservation(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return reserve(host, &ENGINES->reserve, given, &ENGINES->slot);
}

int32_t run_slot(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_reservation reservation = ENGINES->reservation;
    struct convoy_reserved_slot slot = {.transfer = 0};
    reservation.slots = given;
    reservation.slot_stride = stride;
    int32_t status = TABLE->reserve(ENGINES->own, &ENGINES->reserve, &reservation, &host->error);
    if (status == CONVOY_OK) {
        (void)memcpy(&slot, given, sizeof slot);
    }
    return end(host, ENGINES->own, slot.transfer, status);
}

/* -- the rest -- */

int32_t run_query_request(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return TABLE->query(ENGINES->own, given, 0, &ENGINES->answer, &host->error);
}

int32_t run_answer_request(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return TABLE->query(ENGINES->own, &ENGINES->query, 0, given, &host->error);
}

int32_t run_completion(struct struct_host *host, void *given, size_t stride)
{
    size_t count = 0;
    return TABLE->completions(ENGINES->own, given, stride, 1, &count, &host->error);
}

int32_t run_raw(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return TABLE->transfer_sync(ENGINES->own, given, 0, &host->error);
}

int32_t run_piece(struct struct_host *host, void *given, size_t stride)
{
    struct convoy_raw raw = ENGINES->raw;
    raw.pieces = given;
    raw.piece_stride = stride;
    return run_raw(host, &raw, 0);
}

int32_t run_admission(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return TABLE->admission_set(ENGINES->own, given, &host->error);
}

int32_t run_descriptor(struct struct_host *host, void *given, size_t stride)
{
    (void)stride;
    return TABLE->descriptor(ENGINES->other, ENGINES->staged, CONVOY_DESCRIPTOR_BINARY, given, &host->error);
}

/* -- a good one of each -- */

static void fill_staged(struct struct_engines *engines)
{
    engines->bytes = sizeof engines->data;
    engines->tensor = (struct convoy_tensor_source){.name = "t",
                                                    .name_length = 1,
                                                    .dtype = "uint8",
                                                    .dtype_length = 5,
                                                    .data = engines->data,
                                                    .shape = &engines->bytes,
                                                    .rank = 1};
    engines->list = (struct convoy_tensor_list_entry){.name = "l", .name_length = 1, .length = 2};
    engines->stage = (struct convoy_stage){.struct_size = sizeof engines->stage,
                                           .request = "r",
                                           .request_length = 1,
                                           .tensors = &engines->tensor,
                                           .tensor_stride = sizeof engines->tensor,
                                           .tensor_count = 1,
                                           .lists = &engines->list,
                                           .list_stride = sizeof engines->list,
                                           .list_count = 1};
    engines->send = (struct convoy_send){.struct_size = sizeof engines->send};
    engines->payload = (struct convoy_payload){.struct_size = sizeof engines->payload,
                                               .tensors = &engines->view,
                                               .tensor_stride = sizeof engines->view,
                                               .tensor_capacity = 1,
                                               .lists = &engines->list_view,
                                               .list_stride = sizeof engines->list_view,
                                               .list_capacity = 1};
    engines->text = (struct convoy_text_buffer){
        .struct_size = sizeof engines->text, .data = engines->descriptor, .capacity = sizeof engines->descriptor};
}

static void fill_others(struct struct_engines *engines)
{
    engines->info = (struct convoy_engine_info){.struct_size = sizeof engines->info};
    engines->figures = (struct convoy_engine_figures){.struct_size = sizeof engines->figures};
    engines->peer_info = (struct convoy_peer_info){.struct_size = sizeof engines->peer_info};
    engines->result = (struct convoy_transfer_result){.struct_size = sizeof engines->result};
    engines->reserve = (struct convoy_reserve){.struct_size = sizeof engines->reserve,
                                               .request = "s",
                                               .request_length = 1,
                                               .bytes = &engines->bytes,
                                               .count = 1};
    engines->reservation = (struct convoy_reservation){.struct_size = sizeof engines->reservation,
                                                       .slots = &engines->slot,
                                                       .slot_stride = sizeof engines->slot,
                                                       .slot_capacity = 1};
    engines->query = (struct convoy_transfer_query){
        .struct_size = sizeof engines->query, .request = "q", .request_length = 1};
    engines->answer = (struct convoy_transfer_answer){.struct_size = sizeof engines->answer};
    engines->piece = (struct convoy_raw_piece){.source = engines->data,
                                               .target = (uint64_t)(uintptr_t)engines->target,
                                               .bytes = sizeof engines->target};
    engines->raw = (struct convoy_raw){.struct_size = sizeof engines->raw,
                                       .pieces = &engines->piece,
                                       .piece_stride = sizeof engines->piece,
                                       .piece_count = 1};
    engines->admission = (struct convoy_admission){.struct_size = sizeof engines->admission};
}

void struct_engines_open(struct struct_host *host)
{
    struct struct_engines *engines = &host->engines;
    struct convoy_error *error = &host->error;
    engines->table = host->member->plugin.transfer;
    engines->options = (struct convoy_transfer_options){
        .struct_size = sizeof engines->options, .pool_bytes = 1u << 20, .pool_block_bytes = 4096};
    fill_staged(engines);
    fill_others(engines);
    EXPECT_OK(TABLE->engine_open(host->member->context, &engines->options, &engines->own, error), error);
    EXPECT_OK(TABLE->engine_open(host->member->context, &engines->options, &engines->other, error), error);
    EXPECT_OK(TABLE->engine_info(engines->other, &engines->info, error), error);
    EXPECT_OK(TABLE->peer_connect(engines->own, engines->info.session, strlen(engines->info.session), 0,
                                  &engines->send.peer, error),
              error);
    engines->raw.peer = engines->send.peer;
    EXPECT_OK(TABLE->stage_start(engines->other, &engines->stage, &engines->staged, error), error);
    EXPECT_OK(TABLE->transfer_wait(engines->other, engines->staged, 0, NULL, error), error);
    EXPECT_OK(TABLE->descriptor(engines->other, engines->staged, CONVOY_DESCRIPTOR_BINARY, &engines->text, error), error);
    engines->load = (struct convoy_load){.struct_size = sizeof engines->load,
                                         .descriptor = engines->descriptor,
                                         .descriptor_length = engines->text.length};
    EXPECT_OK(TABLE->memory_register(engines->own, engines->data, sizeof engines->data, error), error);
    EXPECT_OK(TABLE->memory_register(engines->other, engines->target, sizeof engines->target, error), error);
}

void struct_engines_close(struct struct_host *host)
{
    EXPECT_OK(TABLE->engine_close(ENGINES->own, CLOSE_NS, &host->error), &host->error);
    EXPECT_OK(TABLE->engine_close(ENGINES->other, CLOSE_NS, &host->error), &host->error);
}
