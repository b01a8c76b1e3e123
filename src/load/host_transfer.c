/* SPDX-License-Identifier: Apache-2.0 */
/* One forwarding function per slot of the transfer table. */
#include "load/forward.h"

static int32_t open_engine(const struct convoy_binding *binding, const void *options, void **inner_out,
                           struct convoy_error *error)
{
    convoy_transfer_engine *engine = NULL;
    int32_t status = binding->tables->transfer.engine_open(binding->inner, options, &engine, error);
    *inner_out = engine;
    return status;
}

int32_t convoy_host_engine_open(convoy_host_context *context, const struct convoy_transfer_options *options,
                                convoy_host_engine **engine_out, struct convoy_error *error)
{
    if (context == NULL || engine_out == NULL) {
        return convoy_host_no_handle(error, context == NULL ? "context" : "engine_out");
    }
    struct convoy_handle *handle = NULL;
    int32_t status = convoy_handle_open(context, CONVOY_MOVED_ENGINE, open_engine, options, &handle, error);
    if (status == CONVOY_OK) {
        *engine_out = (struct convoy_host_engine *)(void *)handle;
    }
    return status;
}

int32_t convoy_host_engine_close(convoy_host_engine *engine, uint64_t timeout_ns, struct convoy_error *error)
{
    CONVOY_FORWARD_WAIT(engine, transfer.engine_close, timeout_ns, error);
}

int32_t convoy_host_engine_info(convoy_host_engine *engine, struct convoy_engine_info *info_out,
                                struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.engine_info, info_out, error);
}

int32_t convoy_host_engine_describe(convoy_host_engine *engine, uint32_t topic, struct convoy_text_buffer *text_out,
                                    struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.engine_describe, topic, text_out, error);
}

int32_t convoy_host_pool_figures(convoy_host_engine *engine, struct convoy_engine_figures *figures_out,
                                 struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.pool_figures, figures_out, error);
}

int32_t convoy_host_pool_fits(convoy_host_engine *engine, const uint64_t *bytes, size_t count,
                              struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.pool_fits, bytes, count, error);
}

int32_t convoy_host_pool_resize(convoy_host_engine *engine, uint64_t bytes, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.pool_resize, bytes, error);
}

int32_t convoy_host_peer_connect(convoy_host_engine *engine, const char *session, size_t session_length,
                                 uint64_t timeout_ns, convoy_peer *peer_out, struct convoy_error *error)
{
    CONVOY_FORWARD_WAIT(engine, transfer.peer_connect, session, session_length, timeout_ns, peer_out, error);
}

int32_t convoy_host_peer_disconnect(convoy_host_engine *engine, convoy_peer peer, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.peer_disconnect, peer, error);
}

int32_t convoy_host_peer_info(convoy_host_engine *engine, convoy_peer peer, struct convoy_peer_info *info_out,
                              struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.peer_info, peer, info_out, error);
}

int32_t convoy_host_stage_start(convoy_host_engine *engine, const struct convoy_stage *stage,
                                convoy_transfer *staged_out, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.stage_start, stage, staged_out, error);
}

int32_t convoy_host_transfer_descriptor(convoy_host_engine *engine, convoy_transfer staged, uint32_t form,
                                        struct convoy_text_buffer *text_out, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.descriptor, staged, form, text_out, error);
}

int32_t convoy_host_send_start(convoy_host_engine *engine, const struct convoy_stage *stage,
                               const struct convoy_send *send, convoy_transfer *transfer_out,
                               struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.send_start, stage, send, transfer_out, error);
}

int32_t convoy_host_accept_start(convoy_host_engine *engine, const struct convoy_load *load,
                                 convoy_transfer *transfer_out, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.accept_start, load, transfer_out, error);
}

int32_t convoy_host_load_start(convoy_host_engine *engine, const struct convoy_load *load,
                               convoy_transfer *transfer_out, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.load_start, load, transfer_out, error);
}

int32_t convoy_host_transfer_test(convoy_host_engine *engine, convoy_transfer transfer,
                                  struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.transfer_test, transfer, result_out, error);
}

int32_t convoy_host_transfer_wait(convoy_host_engine *engine, convoy_transfer transfer, uint64_t timeout_ns,
                                  struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD_WAIT(engine, transfer.transfer_wait, transfer, timeout_ns, result_out, error);
}

int32_t convoy_host_transfer_send(convoy_host_engine *engine, const struct convoy_stage *stage,
                                  const struct convoy_send *send, convoy_transfer *transfer_out,
                                  struct convoy_error *error)
{
    CONVOY_FORWARD_START(engine, transfer.send, transfer_out, stage, send);
}

int32_t convoy_host_transfer_accept(convoy_host_engine *engine, const struct convoy_load *load,
                                    convoy_transfer *transfer_out, struct convoy_error *error)
{
    CONVOY_FORWARD_START(engine, transfer.accept, transfer_out, load);
}

int32_t convoy_host_transfer_payload(convoy_host_engine *engine, convoy_transfer transfer,
                                     struct convoy_payload *payload_out, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.payload, transfer, payload_out, error);
}

int32_t convoy_host_transfer_release(convoy_host_engine *engine, convoy_transfer transfer, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.release, transfer, error);
}

int32_t convoy_host_transfer_abort(convoy_host_engine *engine, convoy_transfer transfer, const char *reason,
                                   size_t reason_length, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.abort, transfer, reason, reason_length, error);
}

int32_t convoy_host_transfer_reserve(convoy_host_engine *engine, const struct convoy_reserve *reserve,
                                     struct convoy_reservation *reservation_out, struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.reserve, reserve, reservation_out, error);
}

int32_t convoy_host_transfer_query(convoy_host_engine *engine, const struct convoy_transfer_query *query,
                                   uint64_t timeout_ns, struct convoy_transfer_answer *answer_out,
                                   struct convoy_error *error)
{
    CONVOY_FORWARD_WAIT(engine, transfer.query, query, timeout_ns, answer_out, error);
}

int32_t convoy_host_transfer_completions(convoy_host_engine *engine, struct convoy_completion *completions_out,
                                         size_t stride, size_t capacity, size_t *count_out,
                                         struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.completions, completions_out, stride, capacity, count_out, error);
}

int32_t convoy_host_memory_register(convoy_host_engine *engine, void *memory, uint64_t bytes,
                                    struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.memory_register, memory, bytes, error);
}

int32_t convoy_host_memory_deregister(convoy_host_engine *engine, void *memory, uint64_t bytes,
                                      struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.memory_deregister, memory, bytes, error);
}

int32_t convoy_host_transfer_sync(convoy_host_engine *engine, const struct convoy_raw *raw, uint64_t timeout_ns,
                                  struct convoy_error *error)
{
    CONVOY_FORWARD_WAIT(engine, transfer.transfer_sync, raw, timeout_ns, error);
}

int32_t convoy_host_transfer_admission_set(convoy_host_engine *engine, const struct convoy_admission *admission,
                                           struct convoy_error *error)
{
    CONVOY_FORWARD(engine, transfer.admission_set, admission, error);
}
