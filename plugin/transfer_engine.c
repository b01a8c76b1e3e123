/* SPDX-License-Identifier: Apache-2.0 */
/* Engines as handles: opening, closing from any state, looking. A closed one stays as a tombstone of its context. */
#include "transfer_engine.h"

#include "core/clock.h"
#include "core/memory.h"
#include "sized.h"
#include "text.h"

#include <string.h>
#include <time.h>

#define FIRST_INFO_BYTES offsetof(struct convoy_engine_info, admitted_count)

int32_t convoy_transfer_engine_enter(struct convoy_transfer_engine *engine, enum convoy_engine_need need,
                                     struct convoy_error *error)
{
    if (engine == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "engine is NULL");
    }
    if (!convoy_handle_is_here(engine->alive)) {
        return convoy_error_set(error, CONVOY_FORKED,
                                "this engine was inherited through fork; open a fresh context in this process");
    }
    (void)atomic_fetch_add(&engine->inside, 1); /* first, so that a close sees this call or this call the close */
    uint32_t state = atomic_load(&engine->state);
    uint32_t moving = atomic_load(&engine->moving);
    bool is_here = moving == CONVOY_ENGINE_STAYS || (need >= CONVOY_NEED_LOOK && moving != CONVOY_ENGINE_RETIRED);
    bool may_close = need == CONVOY_NEED_NOT_CLOSED || need == CONVOY_NEED_LOOK;
    if (is_here && (state == CONVOY_ENGINE_OPEN || (state == CONVOY_ENGINE_CLOSING && may_close))) {
        return CONVOY_OK;
    }
    (void)atomic_fetch_sub(&engine->inside, 1);
    if (!is_here && state == CONVOY_ENGINE_OPEN) {
        return convoy_error_set(error, CONVOY_MOVED, "engine %s %s to another build", engine->session,
                                moving == CONVOY_ENGINE_RETIRED ? "has moved" : "moves");
    }
    return convoy_error_set(error, CONVOY_CLOSED, "engine %s is %s", engine->session,
                            state == CONVOY_ENGINE_CLOSING ? "closing" : "closed");
}

int32_t convoy_transfer_engine_leave(struct convoy_transfer_engine *engine, int32_t status)
{
    struct convoy_runtime *runtime = engine->context->runtime;
    convoy_log_flush(&runtime->log); /* one look, while no line waits */
    (void)atomic_fetch_sub(&engine->inside, 1);
    return status;
}

/* -- opening ------------------------------------------------------------------------------------------------------- */

void convoy_transfer_engine_begin(struct convoy_transfer_engine *engine, struct convoy_context *context)
{
    engine->alive = context->alive;
    engine->context = context;
    convoy_xfer_info(engine->xfer, &engine->last);
    memcpy(engine->session, engine->last.session, sizeof engine->session);
    atomic_store(&engine->state, CONVOY_ENGINE_OPEN);
}

static int32_t engine_create(struct convoy_context *context, const struct convoy_transfer_options *options,
                             convoy_transfer_engine **engine_out, struct convoy_error *error)
{
    struct convoy_transfer_options full = {.struct_size = (uint32_t)sizeof full};
    int32_t status = options != NULL ? convoy_sized_in(&full, &CONVOY_SHAPE(transfer_options), options, error) : CONVOY_OK;
    struct convoy_device_table table;
    if (status == CONVOY_OK && full.device_table != NULL) {
        status = convoy_sized_in(&table, &CONVOY_SHAPE(device_table), full.device_table, error);
        full.device_table = &table;
    }
    if (status == CONVOY_OK && engine_out == NULL) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "engine_out is NULL");
    }
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_transfer_engine *engine = convoy_memory_zalloc(sizeof *engine);
    if (engine == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for an engine");
    }
    status = convoy_xfer_open(context->runtime, &full, &engine->xfer, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(engine);
        return status;
    }
    convoy_transfer_engine_begin(engine, context);
    (void)pthread_mutex_lock(&context->lock);
    engine->next = context->engines;
    context->engines = engine;
    (void)pthread_mutex_unlock(&context->lock);
    *engine_out = engine;
    return CONVOY_OK;
}

int32_t convoy_transfer_engine_open(convoy_context *context, const struct convoy_transfer_options *options,
                                    convoy_transfer_engine **engine_out, struct convoy_error *error)
{
    if (context == NULL || convoy_handle_is_forked(context->alive)) {
        return convoy_context_check(context, error);
    }
    (void)atomic_fetch_add(&context->opening, 1);
    int32_t status = convoy_context_check(context, error);
    if (status == CONVOY_OK) {
        status = engine_create(context, options, engine_out, error);
        convoy_log_flush(&context->runtime->log);
    }
    (void)atomic_fetch_sub(&context->opening, 1);
    return status;
}

/* -- closing ------------------------------------------------------------------------------------------------------- */

/* Waits until no call is inside; true when so. */
static bool drain_calls(const struct convoy_transfer_engine *engine, uint64_t deadline_ns)
{
    const struct timespec pause = {.tv_nsec = 200000};
    while (atomic_load(&engine->inside) != 0) {
        if (convoy_now_ns() >= deadline_ns) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

int32_t convoy_transfer_engine_shut(struct convoy_transfer_engine *engine, uint64_t timeout_ns,
                                    struct convoy_error *error)
{
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), timeout_ns);
    if (engine->xfer == NULL) {
        return CONVOY_OK;
    }
    uint32_t open = CONVOY_ENGINE_OPEN;
    (void)atomic_compare_exchange_strong(&engine->state, &open, CONVOY_ENGINE_CLOSING);
    int32_t status = convoy_xfer_close(engine->xfer, deadline, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_xfer_info(engine->xfer, &engine->last);
    atomic_store(&engine->state, CONVOY_ENGINE_CLOSED);
    if (!drain_calls(engine, deadline)) {
        return convoy_error_set(error, CONVOY_DRAIN_TIMEOUT, "engine %s: a call is still inside; close it again",
                                engine->session);
    }
    convoy_xfer_destroy(engine->xfer);
    engine->xfer = NULL;
    engine->last = (struct convoy_engine_info){.struct_size = engine->last.struct_size,
                                               .completion_fd = -1,
                                               .incarnation = engine->last.incarnation,
                                               .pool_generation = engine->last.pool_generation,
                                               .overloaded_count = engine->last.overloaded_count};
    return CONVOY_OK;
}

int32_t convoy_transfer_engine_close(convoy_transfer_engine *engine, uint64_t timeout_ns, struct convoy_error *error)
{
    if (engine == NULL || !convoy_handle_is_here(engine->alive)) {
        return CONVOY_OK; /* in a forked child nothing here is ours */
    }
    struct convoy_runtime *runtime = engine->context->runtime;
    if (runtime == NULL) {
        return CONVOY_OK; /* debug build: with its context */
    }
    uint32_t moving = atomic_load(&engine->moving);
    if (moving != CONVOY_ENGINE_STAYS && moving != CONVOY_ENGINE_RETIRED) { /* of a retired one nothing is left */
        return convoy_error_set(error, CONVOY_MOVED, "engine %s moves to another build, which closes it", engine->session);
    }
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : runtime->settings.close_timeout_ms * CONVOY_NS_PER_MS;
    int32_t status = convoy_transfer_engine_shut(engine, timeout, error);
    convoy_log_flush(&runtime->log);
    return status;
}

void convoy_transfer_engine_free(struct convoy_transfer_engine *engine)
{
#ifdef CONVOY_DEBUG
    (void)engine; /* its handle stays, to say that it is closed */
#else
    convoy_memory_free(engine);
#endif
}

/* -- looking ------------------------------------------------------------------------------------------------------- */

int32_t convoy_transfer_engine_info(convoy_transfer_engine *engine, struct convoy_engine_info *info_out,
                                    struct convoy_error *error)
{
    struct convoy_engine_info info;
    struct convoy_error ignored = CONVOY_ERROR_INIT;
    int32_t entered = convoy_transfer_engine_enter(engine, CONVOY_NEED_LOOK, &ignored);
    if (entered != CONVOY_OK && entered != CONVOY_CLOSED) {
        return convoy_error_copy(error, &ignored);
    }
    int32_t status = convoy_sized_out_begin(&info, &CONVOY_SHAPE_SINCE(engine_info, FIRST_INFO_BYTES), info_out, error);
    if (status == CONVOY_OK && entered == CONVOY_OK) {
        convoy_xfer_info(engine->xfer, &info);
    } else if (status == CONVOY_OK) {
        info = engine->last;
        info.state = CONVOY_ENGINE_CLOSED;
    }
    if (status == CONVOY_OK) {
        convoy_sized_out_end(info_out, &CONVOY_SHAPE_SINCE(engine_info, FIRST_INFO_BYTES), &info);
    }
    return entered == CONVOY_OK ? convoy_transfer_engine_leave(engine, status) : status;
}

static int32_t describe_prometheus(convoy_transfer_engine *engine, struct convoy_text_buffer *text_out,
                                   struct convoy_error *error)
{
    size_t length = 0;
    char *text = convoy_xfer_prometheus(engine->xfer, &length);
    if (text == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a text");
    }
    int32_t status = convoy_text_write(text_out, text, length, error);
    convoy_memory_free(text);
    return status;
}

int32_t convoy_transfer_engine_describe(convoy_transfer_engine *engine, uint32_t topic,
                                        struct convoy_text_buffer *text_out, struct convoy_error *error)
{
    int32_t status = convoy_transfer_engine_enter(engine, CONVOY_NEED_LOOK, error);
    if (status != CONVOY_OK) {
        return status;
    }
    switch (topic) {
    case CONVOY_TOPIC_PROMETHEUS:
        status = describe_prometheus(engine, text_out, error);
        break;
    case CONVOY_TOPIC_DUMP:
    case CONVOY_TOPIC_STATS:
    case CONVOY_TOPIC_TIMELINE:
    case CONVOY_TOPIC_TRACE:
        status = convoy_text_write_json(text_out, convoy_xfer_describe(engine->xfer, topic), error);
        break;
    default:
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                  "topic is %u, an engine has %u (dump), %u (stats), %u (Prometheus), %u (timeline), "
                                  "%u (trace)",
                                  topic, CONVOY_TOPIC_DUMP, CONVOY_TOPIC_STATS, CONVOY_TOPIC_PROMETHEUS,
                                  CONVOY_TOPIC_TIMELINE, CONVOY_TOPIC_TRACE);
        break;
    }
    return convoy_transfer_engine_leave(engine, status);
}
