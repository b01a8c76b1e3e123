/* SPDX-License-Identifier: Apache-2.0 */
/* Making, binding and freeing the handles that hosts hold. */
#include "load/loader.h"

#include "core/memory.h"

void convoy_handle_bind_first(struct convoy_handle *handle, const struct convoy_host_tables *tables, void *inner)
{
    handle->first = (struct convoy_binding){.tables = tables, .inner = inner};
    atomic_store_explicit(&handle->binding, &handle->first, memory_order_release);
}

void convoy_handle_bind_coming(struct convoy_handle *handle)
{
    handle->coming->older = convoy_handle_binding(handle);
    atomic_store_explicit(&handle->binding, handle->coming, memory_order_release);
    handle->coming = NULL;
}

void convoy_handle_free(struct convoy_handle *handle)
{
    for (struct convoy_binding *binding = convoy_handle_binding(handle); binding != NULL;) {
        struct convoy_binding *older = binding->older;
        if (binding != &handle->first) {
            convoy_memory_free(binding);
        }
        binding = older;
    }
    convoy_memory_free(handle);
}

/* One try, counted from before the plugin is called until the handle is on its list: a swap lists the handles once none
 * is counted. */
static int32_t open_once(struct convoy_host_context *context, convoy_open_fn open, const void *options,
                         struct convoy_handle *handle, struct convoy_error *error)
{
    struct convoy_gate *gate = &handle->loader->gate;
    int32_t status = convoy_gate_enter(gate, &context->opening, error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_binding *binding = convoy_handle_binding(&context->handle);
    void *inner = NULL;
    status = open(binding, options, &inner, error);
    if (status == CONVOY_OK) {
        convoy_handle_bind_first(handle, binding->tables, inner);
        struct convoy_handle *head = atomic_load(&context->objects);
        do {
            handle->next = head;
        } while (!atomic_compare_exchange_weak(&context->objects, &head, handle));
    }
    convoy_gate_leave(gate, &context->opening);
    return status;
}

int32_t convoy_handle_open(struct convoy_host_context *context, uint32_t kind, convoy_open_fn open, const void *options,
                           struct convoy_handle **handle_out, struct convoy_error *error)
{
    struct convoy_handle *handle = convoy_memory_zalloc(sizeof *handle);
    if (handle == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a handle");
    }
    handle->loader = context->handle.loader;
    handle->kind = kind;
    struct convoy_again again = {0};
    int32_t status;
    do {
        status = open_once(context, open, options, handle, error);
    } while (status == CONVOY_MOVED && convoy_gate_again(&handle->loader->gate, &again, &status, error));
    if (status != CONVOY_OK) {
        convoy_memory_free(handle);
        return status;
    }
    *handle_out = handle;
    return CONVOY_OK;
}
