/* SPDX-License-Identifier: Apache-2.0 */
/* One forwarding function per slot of the core table, and the making of the handles. */
#include "load/loader.h"

#include "core/error.h"
#include "core/memory.h"

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
    context->tables = &loader->tables;
    context->loader = loader;
    int32_t status = loader->tables.core.context_open(config, &context->inner, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(context);
        return status;
    }
    atomic_fetch_add(&loader->context_count, 1);
    *context_out = context;
    return CONVOY_OK;
}

int32_t convoy_host_context_close(convoy_host_context *context, uint64_t timeout_ns, struct convoy_error *error)
{
    if (context == NULL) {
        return CONVOY_OK;
    }
    int32_t status = context->tables->core.context_close(context->inner, timeout_ns, error);
    if (status != CONVOY_OK) {
        return status; /* still closing: the handles stay for the next try */
    }
    struct convoy_host_group *group = atomic_load(&context->groups);
    while (group != NULL) {
        struct convoy_host_group *next = group->next;
        convoy_memory_free(group);
        group = next;
    }
    struct convoy_host_engine *engine = atomic_load(&context->engines);
    while (engine != NULL) {
        struct convoy_host_engine *next = engine->next;
        convoy_memory_free(engine);
        engine = next;
    }
    atomic_fetch_sub(&context->loader->context_count, 1);
    convoy_memory_free(context);
    return CONVOY_OK;
}

typedef int32_t (*group_open_fn)(convoy_context *context, const struct convoy_group_options *options,
                                 convoy_group **group_out, struct convoy_error *error);

static int32_t open_group(convoy_host_context *context, group_open_fn open,
                          const struct convoy_group_options *options, convoy_host_group **group_out,
                          struct convoy_error *error)
{
    struct convoy_host_group *group = convoy_memory_zalloc(sizeof *group);
    if (group == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a group handle");
    }
    group->tables = context->tables;
    int32_t status = open(context->inner, options, &group->inner, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(group);
        return status;
    }
    struct convoy_host_group *head = atomic_load(&context->groups);
    do {
        group->next = head;
    } while (!atomic_compare_exchange_weak(&context->groups, &head, group));
    *group_out = group;
    return CONVOY_OK;
}

int32_t convoy_host_group_open(convoy_host_context *context, const struct convoy_group_options *options,
                               convoy_host_group **group_out, struct convoy_error *error)
{
    if (context == NULL || group_out == NULL) {
        return convoy_host_no_handle(error, context == NULL ? "context" : "group_out");
    }
    return open_group(context, context->tables->core.group_open, options, group_out, error);
}

int32_t convoy_host_group_open_start(convoy_host_context *context, const struct convoy_group_options *options,
                                     convoy_host_group **group_out, struct convoy_error *error)
{
    if (context == NULL || group_out == NULL) {
        return convoy_host_no_handle(error, context == NULL ? "context" : "group_out");
    }
    return open_group(context, context->tables->core.group_open_start, options, group_out, error);
}

int32_t convoy_host_context_describe(convoy_host_context *context, uint32_t topic,
                                     struct convoy_text_buffer *text_out, struct convoy_error *error)
{
    return context != NULL ? context->tables->core.context_describe(context->inner, topic, text_out, error)
                          : convoy_host_no_handle(error, "context");
}

int32_t convoy_host_group_open_test(convoy_host_group *group, struct convoy_error *error)
{
    return group != NULL ? group->tables->core.group_open_test(group->inner, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_group_open_wait(convoy_host_group *group, uint64_t timeout_ns, struct convoy_error *error)
{
    return group != NULL ? group->tables->core.group_open_wait(group->inner, timeout_ns, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_group_close(convoy_host_group *group, uint64_t timeout_ns, struct convoy_error *error)
{
    return group != NULL ? group->tables->core.group_close(group->inner, timeout_ns, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_group_cancel(convoy_host_group *group, const char *reason, size_t reason_length,
                                 struct convoy_error *error)
{
    return group != NULL ? group->tables->core.group_cancel(group->inner, reason, reason_length, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_group_reopen(convoy_host_group *group, uint64_t timeout_ns,
                                 struct convoy_reopen_result *result_out, struct convoy_error *error)
{
    return group != NULL ? group->tables->core.group_reopen(group->inner, timeout_ns, result_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_operation_abandon(convoy_host_group *group, convoy_operation operation,
                                      struct convoy_error *error)
{
    return group != NULL ? group->tables->core.operation_abandon(group->inner, operation, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_operation_report(convoy_host_group *group, struct convoy_report *report_out,
                                     struct convoy_error *error)
{
    return group != NULL ? group->tables->core.operation_report(group->inner, report_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_group_info(convoy_host_group *group, struct convoy_group_info *info_out,
                               struct convoy_error *error)
{
    return group != NULL ? group->tables->core.group_info(group->inner, info_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_group_describe(convoy_host_group *group, uint32_t topic, struct convoy_text_buffer *text_out,
                                   struct convoy_error *error)
{
    return group != NULL ? group->tables->core.group_describe(group->inner, topic, text_out, error)
                        : convoy_host_no_handle(error, "group");
}
