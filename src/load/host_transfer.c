/* SPDX-License-Identifier: Apache-2.0 */
/* One forwarding function per slot of the transfer table. */
#include "load/loader.h"

#include "core/memory.h"

int32_t convoy_host_engine_open(convoy_host_context *context, const struct convoy_transfer_options *options,
                                convoy_host_engine **engine_out, struct convoy_error *error)
{
    if (context == NULL || engine_out == NULL) {
        return convoy_host_no_handle(error, context == NULL ? "context" : "engine_out");
    }
    struct convoy_host_engine *engine = convoy_memory_zalloc(sizeof *engine);
    if (engine == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for an engine handle");
    }
    engine->tables = context->tables;
    int32_t status = context->tables->transfer.engine_open(context->inner, options, &engine->inner, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(engine);
        return status;
    }
    struct convoy_host_engine *head = atomic_load(&context->engines);
    do {
        engine->next = head;
    } while (!atomic_compare_exchange_weak(&context->engines, &head, engine));
    *engine_out = engine;
    return CONVOY_OK;
}

int32_t convoy_host_engine_close(convoy_host_engine *engine, uint64_t timeout_ns, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.engine_close(engine->inner, timeout_ns, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_engine_info(convoy_host_engine *engine, struct convoy_engine_info *info_out,
                                struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.engine_info(engine->inner, info_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_engine_describe(convoy_host_engine *engine, uint32_t topic, struct convoy_text_buffer *text_out,
                                    struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.engine_describe(engine->inner, topic, text_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_pool_figures(convoy_host_engine *engine, struct convoy_engine_figures *figures_out,
                                 struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.pool_figures(engine->inner, figures_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_pool_fits(convoy_host_engine *engine, const uint64_t *bytes, size_t count,
                              struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.pool_fits(engine->inner, bytes, count, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_pool_resize(convoy_host_engine *engine, uint64_t bytes, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.pool_resize(engine->inner, bytes, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_peer_connect(convoy_host_engine *engine, const char *session, size_t session_length,
                                 uint64_t timeout_ns, convoy_peer *peer_out, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.peer_connect(engine->inner, session, session_length,
                                      timeout_ns, peer_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_peer_disconnect(convoy_host_engine *engine, convoy_peer peer, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.peer_disconnect(engine->inner, peer, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_peer_info(convoy_host_engine *engine, convoy_peer peer, struct convoy_peer_info *info_out,
                              struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.peer_info(engine->inner, peer, info_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_stage_start(convoy_host_engine *engine, const struct convoy_stage *stage,
                                convoy_transfer *staged_out, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.stage_start(engine->inner, stage, staged_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_descriptor(convoy_host_engine *engine, convoy_transfer staged, uint32_t form,
                                        struct convoy_text_buffer *text_out, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.descriptor(engine->inner, staged, form, text_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_send_start(convoy_host_engine *engine, const struct convoy_stage *stage,
                               const struct convoy_send *send, convoy_transfer *transfer_out,
                               struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.send_start(engine->inner, stage, send, transfer_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_accept_start(convoy_host_engine *engine, const struct convoy_load *load,
                                 convoy_transfer *transfer_out, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.accept_start(engine->inner, load, transfer_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_load_start(convoy_host_engine *engine, const struct convoy_load *load,
                               convoy_transfer *transfer_out, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.load_start(engine->inner, load, transfer_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_test(convoy_host_engine *engine, convoy_transfer transfer,
                                  struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.transfer_test(engine->inner, transfer, result_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_wait(convoy_host_engine *engine, convoy_transfer transfer, uint64_t timeout_ns,
                                  struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.transfer_wait(engine->inner, transfer, timeout_ns, result_out,
                                      error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_send(convoy_host_engine *engine, const struct convoy_stage *stage,
                                  const struct convoy_send *send, convoy_transfer *transfer_out,
                                  struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.send(engine->inner, stage, send, transfer_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_accept(convoy_host_engine *engine, const struct convoy_load *load,
                                    convoy_transfer *transfer_out, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.accept(engine->inner, load, transfer_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_payload(convoy_host_engine *engine, convoy_transfer transfer,
                                     struct convoy_payload *payload_out, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.payload(engine->inner, transfer, payload_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_release(convoy_host_engine *engine, convoy_transfer transfer, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.release(engine->inner, transfer, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_abort(convoy_host_engine *engine, convoy_transfer transfer, const char *reason,
                                   size_t reason_length, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.abort(engine->inner, transfer, reason, reason_length, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_reserve(convoy_host_engine *engine, const struct convoy_reserve *reserve,
                                     struct convoy_reservation *reservation_out, struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.reserve(engine->inner, reserve, reservation_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_query(convoy_host_engine *engine, const struct convoy_transfer_query *query,
                                   uint64_t timeout_ns, struct convoy_transfer_answer *answer_out,
                                   struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.query(engine->inner, query, timeout_ns, answer_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_completions(convoy_host_engine *engine, struct convoy_completion *completions_out,
                                         size_t stride, size_t capacity, size_t *count_out,
                                         struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.completions(engine->inner, completions_out, stride, capacity,
                                      count_out, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_memory_register(convoy_host_engine *engine, void *memory, uint64_t bytes,
                                    struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.memory_register(engine->inner, memory, bytes, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_memory_deregister(convoy_host_engine *engine, void *memory, uint64_t bytes,
                                      struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.memory_deregister(engine->inner, memory, bytes, error)
                          : convoy_host_no_handle(error, "engine");
}

int32_t convoy_host_transfer_sync(convoy_host_engine *engine, const struct convoy_raw *raw, uint64_t timeout_ns,
                                  struct convoy_error *error)
{
    return engine != NULL ? engine->tables->transfer.transfer_sync(engine->inner, raw, timeout_ns, error)
                          : convoy_host_no_handle(error, "engine");
}
