/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside the loader's handles. Only src/load includes this; the public side is convoy/loader.h. */
#ifndef CONVOY_LOAD_LOADER_H
#define CONVOY_LOAD_LOADER_H

#include "convoy/loader.h"
#include "core/error.h"
#include "load/inspect.h"
#include "load/mapped.h"
#include "load/tables.h"

#include <stdatomic.h>

/* Owned by the host from open to close; the counter is the only field that changes after open. */
struct convoy_loader {
    struct convoy_host_tables tables; /* copies; a slot that the plugin lacks answers UNSUPPORTED */
    struct convoy_loader_info info;
    void *library; /* of dlopen */
    _Atomic uint32_t context_count;
};

/*
 * The handles that hosts hold: {table, inner}. Every host_* function is one load of each and a jump. Groups and
 * engines hang on their context's lists and are freed with it, so that a closed one stays valid as a tombstone.
 */
struct convoy_host_group {
    const struct convoy_host_tables *tables;
    convoy_group *inner;
    struct convoy_host_group *next;
};

struct convoy_host_engine {
    const struct convoy_host_tables *tables;
    convoy_transfer_engine *inner;
    struct convoy_host_engine *next;
};

struct convoy_host_context {
    const struct convoy_host_tables *tables;
    convoy_context *inner;
    struct convoy_loader *loader;
    _Atomic(struct convoy_host_group *) groups; /* pushed from any thread, taken down in context_close only */
    _Atomic(struct convoy_host_engine *) engines; /* the same */
};

static inline int32_t convoy_host_no_handle(struct convoy_error *error, const char *name)
{
    return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%s is NULL; an open handle is needed", name);
}

/* Loads the inspected file, or finds it mapped already, and verifies that it is what was inspected.
 * library_out: gives (dlclose). Statuses: as convoy_loader_open. */
int32_t convoy_library_open(const struct convoy_inspected *inspected, void **library_out, uint32_t *was_mapped_out,
                            convoy_query_fn *query_out, struct convoy_error *error);

#endif
