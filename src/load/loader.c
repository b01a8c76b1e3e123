/* SPDX-License-Identifier: Apache-2.0 */
#include "load/loader.h"

#include "core/error.h"
#include "core/memory.h"

#include <unistd.h>

int32_t convoy_loader_open(const struct convoy_loader_options *options, convoy_loader **loader_out,
                           struct convoy_error *error)
{
    static const struct convoy_loader_options defaults;
    if (loader_out == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "loader_out is NULL; it must be given");
    }
    options = options != NULL ? options : &defaults;
    struct convoy_inspected *inspected = convoy_memory_zalloc(sizeof *inspected);
    struct convoy_loader *loader = convoy_memory_zalloc(sizeof *loader);
    int32_t status = CONVOY_OK;
    if (inspected == NULL || loader == NULL) {
        status = convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a loader of %zu bytes", sizeof *loader);
        goto undo_memory;
    }
    status = convoy_requests_take(options, &loader->requests, error);
    if (status == CONVOY_OK) {
        status = convoy_build_find(&loader->requests, options->path, inspected, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_gate_init(&loader->gate, error);
    }
    if (status != CONVOY_OK) {
        goto undo_requests;
    }
    status = convoy_build_load(&loader->requests, inspected, &loader->builds, error);
    if (status != CONVOY_OK) {
        goto undo_gate;
    }
    atomic_store(&loader->current, loader->builds);
    loader->first = loader->builds;
    convoy_build_log(&loader->requests, loader->builds);
    convoy_memory_free(inspected);
    *loader_out = loader;
    return CONVOY_OK;

undo_gate:
    convoy_gate_fini(&loader->gate);
undo_requests:
    convoy_requests_free(&loader->requests);
undo_memory:
    convoy_memory_free(loader);
    convoy_memory_free(inspected);
    return status;
}

int32_t convoy_loader_close(convoy_loader *loader, struct convoy_error *error)
{
    if (loader == NULL) {
        return CONVOY_OK;
    }
    convoy_gate_lock(&loader->gate);
    uint32_t open = loader->context_count;
    bool is_swapping = loader->gate.is_swapping && loader->gate.process == getpid();
    convoy_gate_unlock(&loader->gate);
    if (open != 0) {
        return convoy_error_set(error, CONVOY_BUSY, "%u contexts of this loader are open; close them first", open);
    }
    if (is_swapping) {
        return convoy_error_set(error, CONVOY_BUSY, "a swap of this loader is under way");
    }
    for (struct convoy_build *build = loader->builds; build != NULL;) {
        struct convoy_build *next = build->next;
        convoy_build_free(build);
        build = next;
    }
    convoy_gate_fini(&loader->gate);
    convoy_requests_free(&loader->requests);
    convoy_memory_free(loader);
    return CONVOY_OK;
}

const struct convoy_loader_info *convoy_loader_info(const convoy_loader *loader)
{
    return &atomic_load_explicit(&loader->current, memory_order_acquire)->info;
}

const struct convoy_table_header *convoy_loader_table(const convoy_loader *loader, const char *family)
{
    return convoy_build_table(atomic_load_explicit(&loader->current, memory_order_acquire), family);
}
