/* SPDX-License-Identifier: Apache-2.0 */
/* One forwarding function per slot of the core table, and the making of the handles. */
#include "load/forward.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

/* Counted by the gate. */
static int32_t open_context(struct convoy_loader *loader, const struct convoy_context_config *config,
                            struct convoy_host_context *context, struct convoy_error *error)
{
    const struct convoy_host_tables *tables = convoy_loader_tables(loader);
    convoy_context *inner = NULL;
    int32_t status = tables->core.context_open(config, &inner, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_handle_bind_first(&context->handle, tables, inner);
    convoy_gate_lock(&loader->gate);
    context->next_context = loader->contexts;
    loader->contexts = context;
    loader->context_count++;
    convoy_gate_unlock(&loader->gate);
    return CONVOY_OK;
}

int32_t convoy_host_context_open(convoy_loader *loader, const struct convoy_context_config *config,
                                 convoy_host_context **context_out, struct convoy_error *error)
{
    if (loader == NULL || context_out == NULL) {
        return convoy_host_no_handle(error, loader == NULL ? "loader" : "context_out");
    }
    struct convoy_host_context *context = convoy_memory_zalloc(sizeof *context);
    if (context == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a context handle");
    }
    context->handle.loader = loader;
    int32_t status = convoy_config_copy(config, &context->config, error);
    if (status != CONVOY_OK) {
        goto undo_memory;
    }
    status = convoy_gate_enter(&loader->gate, &loader->gate.inside, error);
    if (status == CONVOY_OK) {
        status = open_context(loader, config, context, error);
        convoy_gate_leave(&loader->gate, &loader->gate.inside);
    }
    if (status != CONVOY_OK) {
        goto undo_config;
    }
    *context_out = context;
    return CONVOY_OK;

undo_config:
    convoy_config_wipe(&context->config);
undo_memory:
    convoy_memory_free(context);
    return status;
}

/* One build's context. One that was handed over and could not be retired is retired first: closed as it is, it would say
 * goodbye to the peers of what another build goes on with. */
static int32_t close_bound(struct convoy_binding *binding, bool is_current, uint64_t timeout_ns,
                           struct convoy_error *error)
{
    if (!is_current && !binding->is_retired) {
        int32_t status = binding->tables->move.retire(binding->inner, timeout_ns, error);
        if (status == CONVOY_DRAIN_TIMEOUT) {
            return status;
        }
        binding->is_retired = true;
    }
    int32_t status = binding->tables->core.context_close(binding->inner, timeout_ns, error);
    binding->is_closed = status == CONVOY_OK;
    return status;
}

/* The current one, then those of earlier builds, which have only tombstones. What is closed is not closed again. */
static int32_t close_all(struct convoy_host_context *context, uint64_t timeout_ns, struct convoy_error *error)
{
    struct convoy_binding *current = convoy_handle_binding(&context->handle);
    uint64_t deadline_ns = convoy_deadline_after(convoy_now_ns(), timeout_ns);
    uint64_t left_ns = timeout_ns; /* the first has all of it */
    for (struct convoy_binding *binding = current; binding != NULL; binding = binding->older) {
        if (binding->is_closed) {
            continue;
        }
        int32_t status = close_bound(binding, binding == current, left_ns, error);
        if (status != CONVOY_OK) {
            return status;
        }
        if (timeout_ns != 0) {
            left_ns = convoy_deadline_left(convoy_now_ns(), deadline_ns);
            left_ns += left_ns == 0; /* 0 would be the default */
        }
    }
    return CONVOY_OK;
}

static void forget(struct convoy_host_context *context)
{
    struct convoy_loader *loader = context->handle.loader;
    convoy_gate_lock(&loader->gate);
    struct convoy_host_context **link = &loader->contexts;
    while (*link != NULL && *link != context) {
        link = &(*link)->next_context;
    }
    if (*link != NULL) {
        *link = context->next_context;
        loader->context_count--;
    }
    convoy_gate_unlock(&loader->gate);
}

int32_t convoy_host_context_close(convoy_host_context *context, uint64_t timeout_ns, struct convoy_error *error)
{
    if (context == NULL) {
        return CONVOY_OK;
    }
    int32_t status = convoy_gate_enter(&context->handle.loader->gate, &context->closing, error);
    if (status == CONVOY_OK) {
        status = close_all(context, timeout_ns, error);
    }
    if (status != CONVOY_OK) {
        return status; /* still closing: the handles stay for the next try */
    }
    forget(context);
    for (struct convoy_handle *object = atomic_load(&context->objects); object != NULL;) {
        struct convoy_handle *next = object->next;
        convoy_handle_free(object);
        object = next;
    }
    convoy_config_wipe(&context->config);
    convoy_handle_free(&context->handle);
    return CONVOY_OK;
}

/* -- groups -------------------------------------------------------------------------------------------------------- */

static int32_t open_group(const struct convoy_binding *binding, const void *options, void **inner_out,
                          struct convoy_error *error)
{
    convoy_group *group = NULL;
    int32_t status = binding->tables->core.group_open(binding->inner, options, &group, error);
    *inner_out = group;
    return status;
}

static int32_t open_group_start(const struct convoy_binding *binding, const void *options, void **inner_out,
                                struct convoy_error *error)
{
    convoy_group *group = NULL;
    int32_t status = binding->tables->core.group_open_start(binding->inner, options, &group, error);
    *inner_out = group;
    return status;
}

static int32_t make_group(convoy_host_context *context, convoy_open_fn open, const struct convoy_group_options *options,
                          convoy_host_group **group_out, struct convoy_error *error)
{
    if (context == NULL || group_out == NULL) {
        return convoy_host_no_handle(error, context == NULL ? "context" : "group_out");
    }
    struct convoy_handle *handle = NULL;
    int32_t status = convoy_handle_open(context, CONVOY_MOVED_GROUP, open, options, &handle, error);
    if (status == CONVOY_OK) {
        *group_out = (struct convoy_host_group *)(void *)handle;
    }
    return status;
}

int32_t convoy_host_group_open(convoy_host_context *context, const struct convoy_group_options *options,
                               convoy_host_group **group_out, struct convoy_error *error)
{
    return make_group(context, open_group, options, group_out, error);
}

int32_t convoy_host_group_open_start(convoy_host_context *context, const struct convoy_group_options *options,
                                     convoy_host_group **group_out, struct convoy_error *error)
{
    return make_group(context, open_group_start, options, group_out, error);
}

int32_t convoy_host_context_describe(convoy_host_context *context, uint32_t topic,
                                     struct convoy_text_buffer *text_out, struct convoy_error *error)
{
    CONVOY_FORWARD(context, core.context_describe, topic, text_out, error);
}

int32_t convoy_host_group_open_test(convoy_host_group *group, struct convoy_error *error)
{
    CONVOY_FORWARD(group, core.group_open_test, error);
}

int32_t convoy_host_group_open_wait(convoy_host_group *group, uint64_t timeout_ns, struct convoy_error *error)
{
    CONVOY_FORWARD(group, core.group_open_wait, timeout_ns, error);
}

int32_t convoy_host_group_close(convoy_host_group *group, uint64_t timeout_ns, struct convoy_error *error)
{
    CONVOY_FORWARD(group, core.group_close, timeout_ns, error);
}

int32_t convoy_host_group_cancel(convoy_host_group *group, const char *reason, size_t reason_length,
                                 struct convoy_error *error)
{
    CONVOY_FORWARD(group, core.group_cancel, reason, reason_length, error);
}

int32_t convoy_host_group_reopen(convoy_host_group *group, uint64_t timeout_ns,
                                 struct convoy_reopen_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD(group, core.group_reopen, timeout_ns, result_out, error);
}

int32_t convoy_host_operation_abandon(convoy_host_group *group, convoy_operation operation,
                                      struct convoy_error *error)
{
    CONVOY_FORWARD(group, core.operation_abandon, operation, error);
}

int32_t convoy_host_operation_report(convoy_host_group *group, struct convoy_report *report_out,
                                     struct convoy_error *error)
{
    CONVOY_FORWARD(group, core.operation_report, report_out, error);
}

int32_t convoy_host_group_info(convoy_host_group *group, struct convoy_group_info *info_out,
                               struct convoy_error *error)
{
    CONVOY_FORWARD(group, core.group_info, info_out, error);
}

int32_t convoy_host_group_describe(convoy_host_group *group, uint32_t topic, struct convoy_text_buffer *text_out,
                                   struct convoy_error *error)
{
    CONVOY_FORWARD(group, core.group_describe, topic, text_out, error);
}
