/* SPDX-License-Identifier: Apache-2.0 */
/* A swap from its commit on, and the way back before it. Nothing here allocates. */
#include "load/swap.h"

#include "core/clock.h"
#include "core/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define RETIRE_TRIES 4u
#define RETIRE_REST_NS 10000000 /* nobody waits for the old one's memory, but other ranks may be in their pauses just now */

/* -- undoing ------------------------------------------------------------------------------------------------------- */

/* A new context that does not close now hangs behind the old one, and is closed with it. */
static void close_coming(struct convoy_swap_entry *entry)
{
    struct convoy_binding *coming = entry->context->handle.coming;
    entry->context->handle.coming = NULL;
    if (coming == NULL) {
        return;
    }
    if (coming->tables->core.context_close(coming->inner, 0, NULL) == CONVOY_OK) {
        convoy_memory_free(coming);
        return;
    }
    coming->is_retired = true; /* nothing was handed over by it */
    coming->older = entry->old->older;
    entry->old->older = coming;
}

static void undo_one(struct convoy_swap *swap, struct convoy_swap_entry *entry)
{
    for (struct convoy_handle *handle = atomic_load(&entry->context->objects); handle != NULL; handle = handle->next) {
        convoy_memory_free(handle->coming);
        handle->coming = NULL;
    }
    close_coming(entry);
    if (!entry->is_quiescing) {
        return;
    }
    struct convoy_error why = CONVOY_ERROR_INIT;
    int32_t status = entry->old->tables->move.resume(entry->old->inner, &why);
    if (status != CONVOY_OK && swap->lost_status == CONVOY_OK) {
        char *text = swap->error.text;
        size_t used = strlen(text);
        swap->lost_status = status;
        (void)snprintf(text + used, sizeof swap->error.text - used, "; and the old build does not resume (%d): %s", status,
                       why.text);
    }
}

static void end_pause(struct convoy_swap *swap)
{
    if (swap->is_paused) {
        swap->is_paused = false;
        convoy_gate_pause_end(&swap->loader->gate);
        swap->result.pause_ns = convoy_now_ns() - swap->pause_begun_ns;
    }
}

void convoy_swap_undo(struct convoy_swap *swap)
{
    for (size_t i = 0; i < swap->entry_count; i++) {
        undo_one(swap, &swap->entries[i]);
    }
    end_pause(swap);
}

/* -- resuming ------------------------------------------------------------------------------------------------------ */

/* The first decides. Of a later one that fails the old context is still whole, as are those after it. */
int32_t convoy_swap_resume(struct convoy_swap *swap)
{
    size_t resumed = 0;
    for (; resumed < swap->entry_count; resumed++) {
        struct convoy_swap_entry *entry = &swap->entries[resumed];
        const struct convoy_binding *coming = entry->context->handle.coming;
        int32_t status = coming->tables->move.resume(coming->inner, &swap->error);
        if (status != CONVOY_OK && resumed == 0) {
            return status;
        }
        if (status != CONVOY_OK) {
            swap->half_status = convoy_error_prefix(&swap->error, status, "resuming: %zu of %zu contexts are handed over",
                                                    resumed, swap->entry_count);
            break;
        }
        entry->is_resumed = true;
    }
    for (size_t i = resumed; i < swap->entry_count; i++) {
        undo_one(swap, &swap->entries[i]);
    }
    return CONVOY_OK;
}

/* -- switching ----------------------------------------------------------------------------------------------------- */

static void switch_one(struct convoy_swap_entry *entry)
{
    for (struct convoy_handle *handle = atomic_load(&entry->context->objects); handle != NULL; handle = handle->next) {
        if (handle->coming != NULL) {
            convoy_handle_bind_coming(handle);
        }
    }
    convoy_handle_bind_coming(&entry->context->handle);
}

int32_t convoy_swap_switch(struct convoy_swap *swap)
{
    for (size_t i = 0; i < swap->entry_count; i++) {
        if (swap->entries[i].is_resumed) {
            switch_one(&swap->entries[i]);
        }
    }
    if (swap->half_status == CONVOY_OK) {
        atomic_store_explicit(&swap->loader->current, swap->to, memory_order_release);
    }
    end_pause(swap);
    return CONVOY_OK;
}

/* -- retiring ------------------------------------------------------------------------------------------------------ */

/* A thread that was in a call when the handles were bound anew leaves it by itself; how soon is the host's business. */
static bool retire_one(const struct convoy_swap *swap, struct convoy_binding *old, uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < RETIRE_TRIES && !old->is_retired; i++) {
        uint64_t left_ns = convoy_deadline_left(convoy_now_ns(), deadline_ns);
        uint64_t slice_ns = swap->timeout_ns / RETIRE_TRIES;
        slice_ns = slice_ns < left_ns ? slice_ns : left_ns;
        int32_t status = old->tables->move.retire(old->inner, slice_ns != 0 ? slice_ns : 1, NULL);
        old->is_retired = status == CONVOY_OK;
        if (status != CONVOY_OK && status != CONVOY_DRAIN_TIMEOUT) {
            break;
        }
    }
    return old->is_retired;
}

int32_t convoy_swap_retire(struct convoy_swap *swap)
{
    if (swap->entry_count != 0) {
        (void)nanosleep(&(struct timespec){.tv_nsec = RETIRE_REST_NS}, NULL);
    }
    uint64_t deadline_ns = convoy_deadline_after(convoy_now_ns(), swap->timeout_ns);
    for (size_t i = 0; i < swap->entry_count; i++) {
        const struct convoy_swap_entry *entry = &swap->entries[i];
        if (entry->is_resumed) {
            swap->result.late_count += !retire_one(swap, entry->old, deadline_ns);
        }
    }
    return CONVOY_OK;
}
