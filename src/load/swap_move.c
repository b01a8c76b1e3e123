/* SPDX-License-Identifier: Apache-2.0 */
/* A swap in its pause: the old build falls silent and says what it has, the new one makes the same. All of it can be undone. */
#include "load/swap.h"

#include "core/clock.h"
#include "core/memory.h"

#include <string.h>

#define STATE_FIRST_BYTES ((size_t)1 << 20)     /* one that is too short costs a second export in the pause */
#define STATE_TOUCHED_BYTES ((size_t)32 << 10) /* so that the pause has no page faults for it, which may cost 10 us each */
#define STATE_TRIES 3u

/* -- quiescing ----------------------------------------------------------------------------------------------------- */

static int32_t quiesce_one(struct convoy_swap *swap, struct convoy_swap_entry *entry, uint64_t deadline_ns)
{
    struct convoy_host_context *context = entry->context;
    uint64_t left_ns = convoy_deadline_left(convoy_now_ns(), deadline_ns);
    entry->is_quiescing = true; /* also when it fails: the context may be half way then */
    int32_t status = entry->old->tables->move.quiesce(entry->old->inner, left_ns != 0 ? left_ns : 1, &swap->error);
    if (status != CONVOY_OK) {
        return status;
    }
    /* The plugin knows of no open any more, but one may not have come back with its object yet. */
    if (!convoy_gate_drain(&swap->loader->gate, &context->opening, deadline_ns)) {
        return convoy_error_set(&swap->error, CONVOY_DRAIN_TIMEOUT, "an open of a group or an engine has not returned");
    }
    return CONVOY_OK;
}

int32_t convoy_swap_quiesce(struct convoy_swap *swap)
{
    swap->pause_begun_ns = convoy_now_ns();
    swap->is_paused = true;
    uint64_t deadline_ns = convoy_deadline_after(swap->pause_begun_ns, swap->timeout_ns);
    convoy_gate_pause_begin(&swap->loader->gate, convoy_deadline_after(deadline_ns, CONVOY_SWAP_PAUSE_GRACE_NS));
    for (size_t i = 0; i < swap->entry_count; i++) {
        int32_t status = quiesce_one(swap, &swap->entries[i], deadline_ns);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* -- exporting ----------------------------------------------------------------------------------------------------- */

static int32_t make_room(struct convoy_swap *swap, struct convoy_swap_entry *entry, size_t capacity)
{
    convoy_memory_table_free(entry->state);
    entry->state_capacity = capacity;
    entry->state = convoy_memory_table(1, capacity);
    return entry->state != NULL
               ? CONVOY_OK
               : convoy_error_set(&swap->error, CONVOY_NO_MEMORY, "no memory for a state of %zu bytes", capacity);
}

int32_t convoy_swap_make_room(struct convoy_swap *swap, struct convoy_swap_entry *entry)
{
    int32_t status = make_room(swap, entry, STATE_FIRST_BYTES);
    if (status == CONVOY_OK) {
        memset(entry->state, 0, STATE_TOUCHED_BYTES);
    }
    return status;
}

static int32_t export_one(struct convoy_swap *swap, struct convoy_swap_entry *entry)
{
    const struct convoy_export_options options = {
        .struct_size = sizeof options, .format_max = swap->to->info.file.state_max}; /* it may be the older of the two */
    int32_t status = CONVOY_BUFFER_TOO_SMALL;
    for (uint32_t i = 0; status == CONVOY_BUFFER_TOO_SMALL && i < STATE_TRIES; i++) {
        struct convoy_text_buffer buffer = {
            .struct_size = sizeof buffer, .data = entry->state, .capacity = entry->state_capacity};
        status = entry->old->tables->move.export_state(entry->old->inner, &options, &buffer, &swap->error);
        entry->state_bytes = status == CONVOY_OK ? buffer.length : 0;
        if (status == CONVOY_BUFFER_TOO_SMALL) {
            int32_t made = make_room(swap, entry, buffer.length + 1); /* the zero behind it */
            status = made != CONVOY_OK ? made : status;
        }
    }
    return status;
}

int32_t convoy_swap_export(struct convoy_swap *swap)
{
    for (size_t i = 0; i < swap->entry_count; i++) {
        int32_t status = export_one(swap, &swap->entries[i]);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* -- importing ----------------------------------------------------------------------------------------------------- */

/* The host's handle of an object that was moved; one that has something coming already is not found twice. */
static struct convoy_handle *find_handle(const struct convoy_swap_entry *entry, const struct convoy_moved_object *object)
{
    struct convoy_handle *handle = atomic_load(&entry->context->objects);
    for (; handle != NULL; handle = handle->next) {
        const struct convoy_binding *bound = convoy_handle_binding(handle);
        if (handle->kind == object->kind && handle->coming == NULL && bound->tables == entry->old->tables &&
            (uint64_t)(uintptr_t)bound->inner == object->old_handle) {
            return handle;
        }
    }
    return NULL;
}

/* Bindings are made here, so that nothing can be missing after the commit. */
static int32_t take_object(struct convoy_swap *swap, struct convoy_swap_entry *entry,
                           const struct convoy_moved_object *object)
{
    struct convoy_handle *handle = find_handle(entry, object);
    if (handle == NULL || object->new_handle == 0) {
        return convoy_error_set(&swap->error, CONVOY_INVARIANT, "the new build names an object of kind %u, 0x%llx, that "
                                "no handle of the context is bound to, or names it twice", object->kind,
                                (unsigned long long)object->old_handle);
    }
    struct convoy_binding *coming = convoy_memory_zalloc(sizeof *coming);
    if (coming == NULL) {
        return convoy_error_set(&swap->error, CONVOY_NO_MEMORY, "no memory for a binding");
    }
    *coming = (struct convoy_binding){.tables = &swap->to->tables, .inner = (void *)(uintptr_t)object->new_handle};
    handle->coming = coming;
    entry->group_count += object->kind == CONVOY_MOVED_GROUP;
    entry->engine_count += object->kind == CONVOY_MOVED_ENGINE;
    return CONVOY_OK;
}

static int32_t take_objects(struct convoy_swap *swap, struct convoy_swap_entry *entry, const struct convoy_moved *moved)
{
    if (moved->object_count > moved->object_capacity) {
        return convoy_error_set(&swap->error, CONVOY_INVARIANT, "the new build has made %zu objects of at most %zu",
                                moved->object_count, moved->object_capacity);
    }
    for (size_t i = 0; i < moved->object_count; i++) {
        int32_t status = take_object(swap, entry, &moved->objects[i]);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

static int32_t import_one(struct convoy_swap *swap, struct convoy_swap_entry *entry)
{
    size_t room = 0;
    for (struct convoy_handle *handle = atomic_load(&entry->context->objects); handle != NULL; handle = handle->next) {
        room++;
    }
    struct convoy_moved_object *objects = convoy_memory_array(room, sizeof *objects);
    if (objects == NULL) {
        return convoy_error_set(&swap->error, CONVOY_NO_MEMORY, "no memory for a list of %zu objects", room);
    }
    struct convoy_moved moved = {.struct_size = sizeof moved,
                                 .objects = objects,
                                 .object_stride = sizeof *objects,
                                 .object_capacity = room};
    const struct convoy_exported_state state = {
        .struct_size = sizeof state, .data = entry->state, .bytes = entry->state_bytes};
    const struct convoy_binding *coming = entry->context->handle.coming;
    int32_t status = coming->tables->move.import_state(coming->inner, &state, &moved, &swap->error);
    if (status == CONVOY_OK) {
        status = take_objects(swap, entry, &moved);
    }
    convoy_memory_free(objects);
    return status;
}

int32_t convoy_swap_import(struct convoy_swap *swap)
{
    for (size_t i = 0; i < swap->entry_count; i++) {
        int32_t status = import_one(swap, &swap->entries[i]);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}
