/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside the loader's handles. Only src/load includes this; the public side is convoy/loader.h. */
#ifndef CONVOY_LOAD_LOADER_H
#define CONVOY_LOAD_LOADER_H

#include "convoy/loader.h"
#include "core/error.h"
#include "load/build.h"
#include "load/gate.h"

#include <stdatomic.h>

/* Owned by the host from open to close. */
struct convoy_loader {
    _Atomic(struct convoy_build *) current; /* stored by open and by swap only */
    struct convoy_build *builds;            /* every one it ever had, by `next`; changed by swap only */
    const struct convoy_build *first;       /* what open has loaded: the host knows what that one agreed to */
    struct convoy_requests requests;
    struct convoy_gate gate;
    struct convoy_host_context *contexts; /* under the gate's lock, by `next_context` */
    uint32_t context_count;               /* the same */
};

/* Behind which build a handle is now. Never changed once a handle has it; kept until the handle's context is closed,
 * because a thread may have loaded it just before another took its place. */
struct convoy_binding {
    const struct convoy_host_tables *tables;
    void *inner; /* convoy_context, convoy_group or convoy_transfer_engine of that build */
    struct convoy_binding *older;
    bool is_retired; /* of a context: retire returned OK */
    bool is_closed;  /* of a context: context_close returned OK */
};

/* What all handles that hosts hold have. */
struct convoy_handle {
    _Atomic(struct convoy_binding *) binding;
    struct convoy_loader *loader;
    struct convoy_handle *next;    /* of its context */
    struct convoy_binding *coming; /* of the swap under way: takes the place of binding when that commits */
    uint32_t kind;                 /* CONVOY_MOVED_*, 0 = a context */
    struct convoy_binding first;
};

struct convoy_host_group {
    struct convoy_handle handle;
};

struct convoy_host_engine {
    struct convoy_handle handle;
};

struct convoy_host_context {
    struct convoy_handle handle;
    _Atomic(struct convoy_handle *) objects; /* pushed from any thread, taken down in context_close only */
    struct convoy_host_context *next_context;
    struct convoy_context_config config; /* a copy of its own, to open the same in another build */
    uint32_t opening;                    /* opens of groups and engines under way; under the gate's lock */
    uint32_t closing;                    /* closes that were called; no swap takes it on then; the same */
};

static inline int32_t convoy_host_no_handle(struct convoy_error *error, const char *name)
{
    return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%s is NULL; an open handle is needed", name);
}

static inline struct convoy_binding *convoy_handle_binding(struct convoy_handle *handle)
{
    return atomic_load_explicit(&handle->binding, memory_order_acquire);
}

static inline const struct convoy_host_tables *convoy_loader_tables(convoy_loader *loader)
{
    return &atomic_load_explicit(&loader->current, memory_order_acquire)->tables;
}

/* -- handles.c ----------------------------------------------------------------------------------------------------- */

/* Binds a handle for the first time; it is not on any list yet. */
void convoy_handle_bind_first(struct convoy_handle *handle, const struct convoy_host_tables *tables, void *inner);

/* Puts what is coming in the place of what is bound. */
void convoy_handle_bind_coming(struct convoy_handle *handle);

/* Frees its bindings and itself. */
void convoy_handle_free(struct convoy_handle *handle);

/* One open of a group or an engine behind one binding of its context. inner_out: gives. */
typedef int32_t (*convoy_open_fn)(const struct convoy_binding *binding, const void *options, void **inner_out,
                                  struct convoy_error *error);

/* Makes a handle of a kind, opens what is behind it, and hangs it on its context; waits for a swap that is under way. */
int32_t convoy_handle_open(struct convoy_host_context *context, uint32_t kind, convoy_open_fn open, const void *options,
                           struct convoy_handle **handle_out, struct convoy_error *error);

/* -- config.c ------------------------------------------------------------------------------------------------------ */

/* A deep copy, at the size that the header has now. config: NULL = all zero. NO_MEMORY. copy_out: gives (wipe). */
int32_t convoy_config_copy(const struct convoy_context_config *config, struct convoy_context_config *copy_out,
                           struct convoy_error *error);

/* Frees what the copy owns; of the secret nothing stays in memory. */
void convoy_config_wipe(struct convoy_context_config *copy);

#endif
