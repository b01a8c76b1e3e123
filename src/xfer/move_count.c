/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine holds, in numbers. */
#include "core/memory.h"
#include "pool/move.h"
#include "pool/part.h"
#include "xfer/device_jobs.h"
#include "xfer/move.h"
#include "xfer/move_parts.h"

static void count_pool(const struct convoy_pool *pool, struct convoy_xfer_holdings *holdings)
{
    for (uint32_t i = 0; pool != NULL && i < CONVOY_POOL_GENERATIONS; i++) {
        bool has_file = pool->parts[i].state != CONVOY_PART_FREE && pool->parts[i].file >= 0;
        holdings->descriptors += has_file;
        holdings->mappings += has_file;
    }
}

static void count_files(const struct convoy_xfer *engine, struct convoy_xfer_holdings *holdings)
{
    const int files[] = {engine->wake_fd,           engine->kick_fd,       engine->notify_fd,         engine->self_pid_fd,
                         engine->tcp_fd,            engine->local.path_fd, engine->local.abstract_fd, engine->local.directory_fd};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        holdings->descriptors += files[i] >= 0;
    }
}

static void count_peer(const struct convoy_xfer_peer *peer, struct convoy_xfer_holdings *holdings)
{
    const int files[] = {peer->tcp_fd, peer->wake_fd, peer->pid_fd, peer->share_fd};
    for (size_t i = 0; peer->state != 0 && i < sizeof files / sizeof files[0]; i++) {
        holdings->descriptors += files[i] >= 0;
    }
    holdings->mappings += peer->state != 0 && peer->ring_memory != NULL;
}

/* Notes once, with the first view that has them. */
static void count_view(const struct convoy_xfer_views *views, uint32_t number, struct convoy_xfer_holdings *holdings)
{
    const struct convoy_view *view = views->all[number];
    uint32_t first = 0;
    while (views->all[first]->notes != view->notes) {
        first++;
    }
    holdings->mappings += first == number && view->notes != NULL;
    holdings->mappings += view->pool != NULL;
    holdings->descriptors += view->pid_fd >= 0;
    holdings->registrations += view->device != NULL;
}

void convoy_xfer_count(struct convoy_xfer *engine, struct convoy_xfer_holdings *holdings_out)
{
    struct convoy_xfer_views views;
    *holdings_out = (struct convoy_xfer_holdings){.threads = (uint32_t)engine->has_threads + engine->has_copier};
    convoy_xfer_lock(engine);
    for (uint32_t i = 0; i < engine->entry_count; i++) {
        const struct convoy_xfer_entry *entry = &engine->entries[i];
        holdings_out->transfers += entry->kind != CONVOY_XFER_NONE && !entry->is_hidden && !entry->is_released;
    }
    holdings_out->copies = engine->copying_count + engine->copy_count;
    count_files(engine, holdings_out);
    count_pool(engine->pool, holdings_out);
    count_pool(engine->notes, holdings_out);
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        count_peer(&engine->peers[i], holdings_out);
    }
    if (convoy_xfer_views_gather(engine, &views, NULL) == CONVOY_OK) {
        for (uint32_t i = 0; i < views.count; i++) {
            count_view(&views, i, holdings_out);
        }
    }
    convoy_memory_free(views.all);
    if (engine->device != NULL && engine->device->device != NULL) {
        struct convoy_device_figures figures;
        convoy_device_figures(engine->device->device, &figures);
        holdings_out->registrations = figures.ranges;
    }
    convoy_xfer_unlock(engine);
}
