/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer table: brings the caller's structs to full size and back, and passes the gate of the engines. */
#include "core/memory.h"
#include "sized.h"
#include "tables.h"
#include "text.h"
#include "transfer_engine.h"
#include "transfer_in.h"
#include "transfer_out.h"

#define FIRST_SEND_BYTES offsetof(struct convoy_send, priority)

static int32_t check_out(const void *out, const char *name, struct convoy_error *error)
{
    return out != NULL ? CONVOY_OK : convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%s is NULL", name);
}

/* -- pool ---------------------------------------------------------------------------------------------------------- */

static int32_t table_pool_figures(convoy_transfer_engine *engine, struct convoy_engine_figures *figures_out,
                                  struct convoy_error *error)
{
    struct convoy_engine_figures figures;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_LOOK_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_sized_out_begin(&figures, &CONVOY_SHAPE(engine_figures), figures_out, error);
    if (status == CONVOY_OK) {
        status = convoy_xfer_figures(engine->xfer, &figures, error);
    }
    if (status == CONVOY_OK) {
        convoy_sized_out_end(figures_out, &CONVOY_SHAPE(engine_figures), &figures);
    }
    return convoy_transfer_engine_leave(engine, status);
}

static int32_t table_pool_fits(convoy_transfer_engine *engine, const uint64_t *bytes, size_t count,
                               struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    return status == CONVOY_OK
               ? convoy_transfer_engine_leave(engine, convoy_xfer_fits(engine->xfer, bytes, count, error))
               : status;
}

static int32_t table_pool_resize(convoy_transfer_engine *engine, uint64_t bytes, struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    return convoy_transfer_engine_leave(engine, convoy_xfer_resize(engine->xfer, bytes, error));
}

/* -- peers --------------------------------------------------------------------------------------------------------- */

static int32_t table_peer_connect(convoy_transfer_engine *engine, const char *session, size_t session_length,
                                  uint64_t timeout_ns, convoy_peer *peer_out, struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = check_out(peer_out, "peer_out", error);
    if (status == CONVOY_OK) {
        status = convoy_xfer_connect(engine->xfer, session, session_length, timeout_ns, peer_out, error);
    }
    return convoy_transfer_engine_leave(engine, status);
}

static int32_t table_peer_disconnect(convoy_transfer_engine *engine, convoy_peer peer, struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    return status == CONVOY_OK ? convoy_transfer_engine_leave(engine, convoy_xfer_disconnect(engine->xfer, peer, error))
                               : status;
}

static int32_t table_peer_info(convoy_transfer_engine *engine, convoy_peer peer, struct convoy_peer_info *info_out,
                               struct convoy_error *error)
{
    struct convoy_peer_info info;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_sized_out_begin(&info, &CONVOY_SHAPE(peer_info), info_out, error);
    if (status == CONVOY_OK) {
        status = convoy_xfer_peer_info(engine->xfer, peer, &info, error);
    }
    if (status == CONVOY_OK) {
        convoy_sized_out_end(info_out, &CONVOY_SHAPE(peer_info), &info);
    }
    return convoy_transfer_engine_leave(engine, status);
}

/* -- moving -------------------------------------------------------------------------------------------------------- */

static int32_t table_stage_start(convoy_transfer_engine *engine, const struct convoy_stage *stage,
                                 convoy_transfer *staged_out, struct convoy_error *error)
{
    struct convoy_full_stage full;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_full_stage_begin(&full, stage, error);
    if (status == CONVOY_OK) {
        status = check_out(staged_out, "staged_out", error);
    }
    if (status == CONVOY_OK) {
        status = convoy_xfer_stage(engine->xfer, &full.stage, false, staged_out, error);
    }
    convoy_full_stage_end(&full);
    return convoy_transfer_engine_leave(engine, status);
}

static int32_t table_descriptor(convoy_transfer_engine *engine, convoy_transfer staged, uint32_t form,
                                struct convoy_text_buffer *text_out, struct convoy_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_xfer_descriptor(engine->xfer, staged, form, &text, &bytes, error);
    if (status == CONVOY_OK) {
        status = convoy_text_write(text_out, text, bytes, error);
        convoy_memory_free(text);
    }
    return convoy_transfer_engine_leave(engine, status);
}

static int32_t send_any(convoy_transfer_engine *engine, const struct convoy_stage *stage, const struct convoy_send *send,
                        uint64_t *timeout_out, convoy_transfer *transfer_out, struct convoy_error *error)
{
    struct convoy_send full_send;
    struct convoy_full_stage full = {.stage = {.struct_size = 0}};
    int32_t status = convoy_sized_in(&full_send, &CONVOY_SHAPE_SINCE(send, FIRST_SEND_BYTES), send, error);
    if (status == CONVOY_OK) {
        status = convoy_full_flags("send", full_send.critical_flags, 0, error);
    }
    if (status == CONVOY_OK) {
        status = check_out(transfer_out, "transfer_out", error);
    }
    if (status == CONVOY_OK && stage != NULL) {
        status = convoy_full_stage_begin(&full, stage, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_xfer_send(engine->xfer, stage != NULL ? &full.stage : NULL, &full_send, timeout_out != NULL,
                                  transfer_out, error);
    }
    if (timeout_out != NULL) {
        *timeout_out = full_send.timeout_ns;
    }
    convoy_full_stage_end(&full);
    return status;
}

static int32_t accept_any(convoy_transfer_engine *engine, const struct convoy_load *load, uint64_t *timeout_out,
                          convoy_transfer *transfer_out, struct convoy_error *error)
{
    struct convoy_load full;
    int32_t status = convoy_sized_in(&full, &CONVOY_SHAPE(load), load, error);
    if (status == CONVOY_OK) {
        status = convoy_full_flags("load", full.critical_flags, 0, error);
    }
    if (status == CONVOY_OK) {
        status = check_out(transfer_out, "transfer_out", error);
    }
    if (status == CONVOY_OK) {
        status = convoy_xfer_accept(engine->xfer, &full, timeout_out != NULL, transfer_out, error);
    }
    if (timeout_out != NULL) {
        *timeout_out = full.timeout_ns;
    }
    return status;
}

static int32_t table_send_start(convoy_transfer_engine *engine, const struct convoy_stage *stage,
                                const struct convoy_send *send, convoy_transfer *transfer_out,
                                struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    return status == CONVOY_OK
               ? convoy_transfer_engine_leave(engine, send_any(engine, stage, send, NULL, transfer_out, error))
               : status;
}

static int32_t table_accept_start(convoy_transfer_engine *engine, const struct convoy_load *load,
                                  convoy_transfer *transfer_out, struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    return status == CONVOY_OK ? convoy_transfer_engine_leave(engine, accept_any(engine, load, NULL, transfer_out, error))
                               : status;
}

static int32_t table_load_start(convoy_transfer_engine *engine, const struct convoy_load *load,
                                convoy_transfer *transfer_out, struct convoy_error *error)
{
    struct convoy_load full;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_sized_in(&full, &CONVOY_SHAPE(load), load, error);
    if (status == CONVOY_OK) {
        status = convoy_full_flags("load", full.critical_flags, 0, error);
    }
    if (status == CONVOY_OK) {
        status = check_out(transfer_out, "transfer_out", error);
    }
    if (status == CONVOY_OK) {
        status = convoy_xfer_load(engine->xfer, &full, transfer_out, error);
    }
    return convoy_transfer_engine_leave(engine, status);
}

/* -- any transfer -------------------------------------------------------------------------------------------------- */

static int32_t look(convoy_transfer_engine *engine, convoy_transfer transfer, uint64_t deadline_ns,
                    struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    struct convoy_transfer_result result = {.struct_size = 0};
    int32_t status = CONVOY_OK;
    if (result_out != NULL) {
        status = convoy_sized_out_begin(&result, &CONVOY_SHAPE(transfer_result), result_out, error);
        result.state = 0;
    }
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_xfer_wait(engine->xfer, transfer, deadline_ns, &result, error);
    if (result_out != NULL && result.state != 0) { /* also when it failed: that is what the host wants to know */
        convoy_sized_out_end(result_out, &CONVOY_SHAPE(transfer_result), &result);
    }
    return status;
}

static uint64_t deadline_of(const convoy_transfer_engine *engine, uint64_t timeout_ns)
{
    uint64_t timeout = timeout_ns != 0 ? timeout_ns
                                       : engine->context->runtime->settings.timeout_ms * CONVOY_NS_PER_MS;
    return convoy_deadline_after(convoy_now_ns(), timeout);
}

static int32_t table_transfer_test(convoy_transfer_engine *engine, convoy_transfer transfer,
                                   struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_NOT_CLOSED, error);
    return status == CONVOY_OK ? convoy_transfer_engine_leave(engine, look(engine, transfer, 0, result_out, error)) : status;
}

static int32_t table_transfer_wait(convoy_transfer_engine *engine, convoy_transfer transfer, uint64_t timeout_ns,
                                   struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_NOT_CLOSED, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = look(engine, transfer, deadline_of(engine, timeout_ns), result_out, error);
    return convoy_transfer_engine_leave(engine, status);
}

/* A second longer than the transfer's own deadline, which is what ends it. */
static int32_t finish(convoy_transfer_engine *engine, convoy_transfer transfer, uint64_t timeout_ns,
                      struct convoy_error *error)
{
    uint64_t deadline = convoy_deadline_after(deadline_of(engine, timeout_ns), CONVOY_NS_PER_S);
    return look(engine, transfer, deadline, NULL, error);
}

static int32_t table_send(convoy_transfer_engine *engine, const struct convoy_stage *stage,
                          const struct convoy_send *send, convoy_transfer *transfer_out, struct convoy_error *error)
{
    uint64_t timeout = 0;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = send_any(engine, stage, send, &timeout, transfer_out, error);
    if (status == CONVOY_OK) {
        status = finish(engine, *transfer_out, timeout, error);
    }
    return convoy_transfer_engine_leave(engine, status);
}

static int32_t table_accept(convoy_transfer_engine *engine, const struct convoy_load *load, convoy_transfer *transfer_out,
                            struct convoy_error *error)
{
    uint64_t timeout = 0;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = accept_any(engine, load, &timeout, transfer_out, error);
    if (status == CONVOY_OK) {
        status = finish(engine, *transfer_out, timeout, error);
    }
    return convoy_transfer_engine_leave(engine, status);
}

static int32_t table_payload(convoy_transfer_engine *engine, convoy_transfer transfer, struct convoy_payload *payload_out,
                             struct convoy_error *error)
{
    struct convoy_xfer_contents contents;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_NOT_CLOSED, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_xfer_contents(engine->xfer, transfer, &contents, error);
    if (status == CONVOY_OK) {
        status = convoy_transfer_out(&contents, payload_out, error);
    }
    return convoy_transfer_engine_leave(engine, status);
}

static int32_t table_release(convoy_transfer_engine *engine, convoy_transfer transfer, struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_NOT_CLOSED, error);
    return status == CONVOY_OK ? convoy_transfer_engine_leave(engine, convoy_xfer_release(engine->xfer, transfer, error))
                               : status;
}

static int32_t table_abort(convoy_transfer_engine *engine, convoy_transfer transfer, const char *reason,
                           size_t reason_length, struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_NOT_CLOSED, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = reason == NULL && reason_length != 0
                 ? convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "reason is NULL with reason_length %zu", reason_length)
                 : convoy_xfer_abort(engine->xfer, transfer, reason, reason_length, error);
    return convoy_transfer_engine_leave(engine, status);
}

/* -- slots, requests, completions ---------------------------------------------------------------------------------- */

static int32_t table_reserve(convoy_transfer_engine *engine, const struct convoy_reserve *reserve,
                             struct convoy_reservation *reservation_out, struct convoy_error *error)
{
    struct convoy_reserve full;
    struct convoy_reservation reservation;
    struct convoy_reserved_slot slots[256];
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_sized_in(&full, &CONVOY_SHAPE(reserve), reserve, error);
    if (status == CONVOY_OK) {
        status = convoy_full_flags("reserve", full.critical_flags, 0, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_sized_out_begin(&reservation, &CONVOY_SHAPE(reservation), reservation_out, error);
    }
    const struct convoy_sized_array out = {reservation.slots, reservation.slot_stride, full.count};
    if (status == CONVOY_OK && reservation.slot_capacity >= full.count && full.count != 0) {
        status = convoy_sized_array_check_out(&out, &CONVOY_SHAPE(reserved_slot), error);
    }
    if (status != CONVOY_OK) {
        return convoy_transfer_engine_leave(engine, status);
    }
    status = convoy_xfer_reserve(engine->xfer, &full, slots, &reservation, error);
    for (size_t i = 0; status == CONVOY_OK && i < full.count; i++) {
        convoy_sized_array_write(&out, &CONVOY_SHAPE(reserved_slot), i, &slots[i]);
    }
    if (status == CONVOY_OK || status == CONVOY_POOL_EXHAUSTED || status == CONVOY_LIMIT || status == CONVOY_NOT_FOUND) {
        convoy_sized_out_end(reservation_out, &CONVOY_SHAPE(reservation), &reservation);
    }
    return convoy_transfer_engine_leave(engine, status);
}

static int32_t table_query(convoy_transfer_engine *engine, const struct convoy_transfer_query *query, uint64_t timeout_ns,
                           struct convoy_transfer_answer *answer_out, struct convoy_error *error)
{
    struct convoy_transfer_query full;
    struct convoy_transfer_answer answer;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_sized_in(&full, &CONVOY_SHAPE(transfer_query), query, error);
    if (status == CONVOY_OK) {
        status = convoy_sized_out_begin(&answer, &CONVOY_SHAPE(transfer_answer), answer_out, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_xfer_query(engine->xfer, &full, timeout_ns, &answer, error);
    }
    if (status == CONVOY_OK) {
        convoy_sized_out_end(answer_out, &CONVOY_SHAPE(transfer_answer), &answer);
    }
    return convoy_transfer_engine_leave(engine, status);
}

static int32_t table_completions(convoy_transfer_engine *engine, struct convoy_completion *completions_out, size_t stride,
                                 size_t capacity, size_t *count_out, struct convoy_error *error)
{
    const struct convoy_sized_array out = {completions_out, stride, capacity};
    struct convoy_completion completion;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_NOT_CLOSED, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = check_out(count_out, "count_out", error);
    if (status == CONVOY_OK && capacity != 0) {
        status = convoy_sized_array_check_out(&out, &CONVOY_SHAPE(completion), error);
    }
    if (status == CONVOY_OK) {
        size_t count = 0;
        while (count < capacity && convoy_xfer_completion(engine->xfer, &completion)) {
            convoy_sized_array_write(&out, &CONVOY_SHAPE(completion), count++, &completion);
        }
        *count_out = count;
    }
    return convoy_transfer_engine_leave(engine, status);
}

/* -- admission ----------------------------------------------------------------------------------------------------- */

static int32_t table_admission_set(convoy_transfer_engine *engine, const struct convoy_admission *admission,
                                   struct convoy_error *error)
{
    struct convoy_admission full;
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_sized_in(&full, &CONVOY_SHAPE(admission), admission, error);
    if (status == CONVOY_OK) {
        status = convoy_full_flags("admission", full.critical_flags, 0, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_xfer_admission_set(engine->xfer, &full, error);
    }
    return convoy_transfer_engine_leave(engine, status);
}

/* -- raw ----------------------------------------------------------------------------------------------------------- */

static int32_t table_memory_register(convoy_transfer_engine *engine, void *memory, uint64_t bytes,
                                     struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    return status == CONVOY_OK
               ? convoy_transfer_engine_leave(engine, convoy_xfer_register(engine->xfer, memory, bytes, error))
               : status;
}

static int32_t table_memory_deregister(convoy_transfer_engine *engine, void *memory, uint64_t bytes,
                                       struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    return status == CONVOY_OK
               ? convoy_transfer_engine_leave(engine, convoy_xfer_deregister(engine->xfer, memory, bytes, error))
               : status;
}

static int32_t table_transfer_sync(convoy_transfer_engine *engine, const struct convoy_raw *raw, uint64_t timeout_ns,
                                   struct convoy_error *error)
{
    struct convoy_raw full;
    struct convoy_full_array pieces = {.copy = NULL};
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_OPEN, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_sized_in(&full, &CONVOY_SHAPE(raw), raw, error);
    if (status == CONVOY_OK) {
        status = convoy_full_flags("raw", full.critical_flags, 0, error);
    }
    if (status == CONVOY_OK) {
        const struct convoy_sized_array given = {full.pieces, full.piece_stride, full.piece_count};
        status = convoy_full_array_begin(&pieces, &given, &CONVOY_SHAPE(raw_piece), error);
        full.pieces = pieces.elements;
    }
    if (status == CONVOY_OK) {
        status = convoy_xfer_raw(engine->xfer, &full, timeout_ns, error);
    }
    if (pieces.copy != NULL) {
        convoy_memory_free(pieces.copy);
    }
    return convoy_transfer_engine_leave(engine, status);
}

const struct convoy_transfer_table convoy_transfer_table_1_0 = {
    .header = {.table_size = (uint32_t)sizeof(struct convoy_transfer_table),
               .major = CONVOY_TRANSFER_MAJOR,
               .minor = CONVOY_TRANSFER_MINOR},
    .engine_open = convoy_transfer_engine_open,
    .engine_close = convoy_transfer_engine_close,
    .engine_info = convoy_transfer_engine_info,
    .engine_describe = convoy_transfer_engine_describe,
    .pool_figures = table_pool_figures,
    .pool_fits = table_pool_fits,
    .pool_resize = table_pool_resize,
    .peer_connect = table_peer_connect,
    .peer_disconnect = table_peer_disconnect,
    .peer_info = table_peer_info,
    .stage_start = table_stage_start,
    .descriptor = table_descriptor,
    .send_start = table_send_start,
    .accept_start = table_accept_start,
    .load_start = table_load_start,
    .transfer_test = table_transfer_test,
    .transfer_wait = table_transfer_wait,
    .send = table_send,
    .accept = table_accept,
    .payload = table_payload,
    .release = table_release,
    .abort = table_abort,
    .reserve = table_reserve,
    .query = table_query,
    .completions = table_completions,
    .memory_register = table_memory_register,
    .memory_deregister = table_memory_deregister,
    .transfer_sync = table_transfer_sync,
    .admission_set = table_admission_set,
};
