/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of public reports about transfers do with an engine, in one call each. */
#ifndef CONVOY_TESTS_INTEGRATION_REPORTS_TRANSFER_H
#define CONVOY_TESTS_INTEGRATION_REPORTS_TRANSFER_H

#include "tests/integration/two_engines.h"
#include "tests/lib/await.h"

#define CALL(engine, name, ...) ((engine)->table->name((engine)->handle, __VA_ARGS__, &(engine)->error))
#define CALL_OK(engine, name, ...) EXPECT_OK(CALL(engine, name, __VA_ARGS__), &(engine)->error)
#define CALL_STATUS(engine, wanted, name, ...) EXPECT_STATUS(CALL(engine, name, __VA_ARGS__), wanted, &(engine)->error)

/* A pool that holds `bytes` and nothing more. */
static inline struct convoy_transfer_options pool_of(uint64_t bytes)
{
    return (struct convoy_transfer_options){
        .struct_size = sizeof(struct convoy_transfer_options), .pool_bytes = bytes, .pool_block_bytes = 4096};
}

static inline convoy_transfer stage_bytes(struct engine *engine, const char *request, const void *data, uint64_t bytes)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, &bytes);
    const struct convoy_stage stage = engine_stage(request, &tensor, 1);
    convoy_transfer staged = 0;
    CALL_OK(engine, stage_start, &stage, &staged);
    engine_wait(engine, staged, CONVOY_OK, NULL);
    return staged;
}

static inline convoy_transfer send_staged(struct engine *engine, convoy_peer peer, convoy_transfer staged)
{
    const struct convoy_send send = {
        .struct_size = sizeof send, .peer = peer, .staged = staged, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer sent = 0;
    CALL_OK(engine, send_start, NULL, &send, &sent);
    return sent;
}

/* attempt 0 = 1 */
static inline convoy_transfer send_bytes(struct engine *engine, convoy_peer peer, const char *request, uint32_t attempt,
                                         const void *data, uint64_t bytes)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, &bytes);
    struct convoy_stage stage = engine_stage(request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer sent = 0;
    stage.attempt = attempt;
    CALL_OK(engine, send_start, &stage, &send, &sent);
    return sent;
}

/* request NULL, peer 0: any. */
static inline convoy_transfer accept_by(struct engine *engine, const char *request, convoy_peer peer, uint32_t mode,
                                        uint64_t timeout_ns)
{
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = mode,
                                     .request = request,
                                     .request_length = request != NULL ? strlen(request) : 0,
                                     .peer = peer,
                                     .timeout_ns = timeout_ns};
    convoy_transfer loaded = 0;
    CALL_OK(engine, accept_start, &load, &loaded);
    return loaded;
}

static inline struct convoy_reserved_slot reserve_slot(struct engine *engine, const char *request, uint64_t bytes,
                                                       uint64_t lease_ns, int32_t *status_out)
{
    struct convoy_reserved_slot slot = {.transfer = 0};
    const struct convoy_reserve reserve = {.struct_size = sizeof reserve,
                                           .request = request,
                                           .request_length = strlen(request),
                                           .bytes = &bytes,
                                           .count = 1,
                                           .lease_ns = lease_ns};
    struct convoy_reservation reservation = {
        .struct_size = sizeof reservation, .slots = &slot, .slot_stride = sizeof slot, .slot_capacity = 1};
    int32_t status = CALL(engine, reserve, &reserve, &reservation);
    if (status_out != NULL) {
        *status_out = status;
    } else {
        EXPECT_OK(status, &engine->error);
    }
    return slot;
}

static inline int32_t push_piece(struct engine *engine, convoy_peer peer, const void *source, void *target, uint64_t bytes)
{
    const struct convoy_raw_piece piece = {.source = source, .target = (uint64_t)(uintptr_t)target, .bytes = bytes};
    const struct convoy_raw raw = {
        .struct_size = sizeof raw, .peer = peer, .pieces = &piece, .piece_stride = sizeof piece, .piece_count = 1};
    return CALL(engine, transfer_sync, &raw, 0);
}

/* Where the bytes of what is staged lie in the own pool. */
static inline const uint8_t *staged_address(struct engine *engine, convoy_transfer staged)
{
    engine_look(engine, staged);
    return engine->views[0].data;
}

/* Waits until all is as it was before: leases, references, transfers. */
static inline void await_idle(struct engine *engine, uint64_t taken)
{
    struct convoy_engine_info info = {.struct_size = sizeof info, .transfer_count = 1};
    struct convoy_engine_figures figures = engine_figures(engine);
    const uint64_t end = await_end();
    while ((figures.taken != taken || info.transfer_count != 0) && await_again(end)) {
        figures = engine_figures(engine);
        CALL_OK(engine, engine_info, &info);
    }
    EXPECT_EQUAL(figures.taken, taken);
    EXPECT_EQUAL(figures.quarantined_count, 0);
    EXPECT_EQUAL(figures.reader_count, 0);
    EXPECT_EQUAL(info.transfer_count, 0);
}

#endif
