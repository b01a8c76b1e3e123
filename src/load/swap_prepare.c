/* SPDX-License-Identifier: Apache-2.0 */
/* A swap up to its pause: the new build is loaded and has its own contexts, and the old one has not been told anything. */
#include "load/swap.h"

#include "core/memory.h"

#include <stdio.h>

/* -- loading ------------------------------------------------------------------------------------------------------- */

static void name_build(const struct convoy_file_info *file, struct convoy_swap_build *build_out)
{
    (void)snprintf(build_out->release, sizeof build_out->release, "%s", file->release);
    (void)snprintf(build_out->build_id, sizeof build_out->build_id, "%s", file->build_id);
}

/* One that this loader had before is taken as it is: its tables and its library are there. */
static int32_t find_or_load(struct convoy_swap *swap, const struct convoy_inspected *inspected)
{
    const struct convoy_build_id wanted = convoy_build_inspected_id(inspected);
    struct convoy_loader *loader = swap->loader;
    name_build(&inspected->file, &swap->result.to);
    for (struct convoy_build *build = loader->builds; build != NULL; build = build->next) {
        if (convoy_build_id_is_equal(&build->id, &wanted)) {
            swap->to = build;
            swap->result.was_mapped = 1;
            return CONVOY_OK;
        }
    }
    int32_t status = convoy_build_load(&loader->requests, inspected, &swap->to, &swap->error);
    if (status == CONVOY_OK) {
        swap->to->next = loader->builds;
        loader->builds = swap->to;
        swap->result.was_mapped = swap->to->info.was_mapped;
    }
    return status;
}

/* The host counts on what was agreed when it opened the loader. What a later build has agreed to beside that keeps nobody
 * from going back: if it has objects, their import is refused. */
static int32_t check_families(struct convoy_swap *swap)
{
    const struct convoy_loader_info *from = &swap->from->info;
    const struct convoy_loader_info *first = &swap->loader->first->info;
    const struct convoy_loader_info *to = &swap->to->info;
    if (convoy_build_table(swap->from, "move") == NULL) {
        return convoy_error_set(&swap->error, CONVOY_UNSUPPORTED,
                                "the build that runs, release %s, has no family move, or it was not asked for",
                                from->file.release);
    }
    for (size_t i = 0; i < first->family_count; i++) {
        const struct convoy_family_answer *answer = &to->answers[i];
        if (first->answers[i].table != NULL && answer->table == NULL) {
            int32_t status = answer->status < 0 ? answer->status : CONVOY_UNSUPPORTED;
            return convoy_error_set(&swap->error, status, "release %s refuses family %s, which runs: %s",
                                    to->file.release, first->family_names[i], answer->reason);
        }
    }
    return CONVOY_OK;
}

/* Contexts that are not behind the new build yet, and that nobody closes: a close that has begun is the old build's. */
static int32_t list_contexts(struct convoy_swap *swap)
{
    struct convoy_loader *loader = swap->loader;
    convoy_gate_lock(&loader->gate);
    uint32_t room = loader->context_count;
    convoy_gate_unlock(&loader->gate);
    swap->entries = convoy_memory_array(room, sizeof swap->entries[0]);
    if (swap->entries == NULL) {
        return convoy_error_set(&swap->error, CONVOY_NO_MEMORY, "no memory for a list of %u contexts", room);
    }
    convoy_gate_lock(&loader->gate);
    for (struct convoy_host_context *context = loader->contexts; context != NULL; context = context->next_context) {
        struct convoy_binding *old = convoy_handle_binding(&context->handle);
        if (context->closing == 0 && old->tables != &swap->to->tables) {
            swap->entries[swap->entry_count++] = (struct convoy_swap_entry){.context = context, .old = old};
        }
    }
    convoy_gate_unlock(&loader->gate);
    return CONVOY_OK;
}

int32_t convoy_swap_load(struct convoy_swap *swap)
{
    swap->from = atomic_load(&swap->loader->current);
    name_build(&swap->from->info.file, &swap->result.from);
    struct convoy_inspected *inspected = convoy_memory_zalloc(sizeof *inspected);
    if (inspected == NULL) {
        return convoy_error_set(&swap->error, CONVOY_NO_MEMORY, "no memory to look at a file");
    }
    int32_t status = convoy_build_find(&swap->loader->requests, swap->path, inspected, &swap->error);
    if (status == CONVOY_OK) {
        status = find_or_load(swap, inspected);
    }
    convoy_memory_free(inspected);
    if (status == CONVOY_OK) {
        status = list_contexts(swap);
    }
    if (status == CONVOY_OK && swap->to == swap->from && swap->entry_count == 0) {
        return convoy_error_set(&swap->error, CONVOY_INVALID_ARGUMENT, "path is this very build, %s, which runs already",
                                swap->result.to.build_id);
    }
    return status == CONVOY_OK ? check_families(swap) : status;
}

/* -- preparing ----------------------------------------------------------------------------------------------------- */

static int32_t prepare_one(struct convoy_swap *swap, struct convoy_swap_entry *entry)
{
    struct convoy_handle *handle = &entry->context->handle;
    struct convoy_binding *coming = convoy_memory_zalloc(sizeof *coming);
    if (coming == NULL) {
        return convoy_error_set(&swap->error, CONVOY_NO_MEMORY, "no memory for a context's binding");
    }
    convoy_context *inner = NULL;
    int32_t status = swap->to->tables.core.context_open(&entry->context->config, &inner, &swap->error);
    if (status != CONVOY_OK) {
        convoy_memory_free(coming);
        return status;
    }
    *coming = (struct convoy_binding){.tables = &swap->to->tables, .inner = inner};
    handle->coming = coming;
    return convoy_swap_make_room(swap, entry);
}

int32_t convoy_swap_prepare(struct convoy_swap *swap)
{
    for (size_t i = 0; i < swap->entry_count; i++) {
        int32_t status = prepare_one(swap, &swap->entries[i]);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}
