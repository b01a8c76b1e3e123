/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the host's that it has registered, so that raw transfers may read and write there. */
#include "core/error.h"
#include "core/memory.h"
#include "xfer/device_jobs.h"
#include "xfer/raw.h"

#include <string.h>

static struct convoy_xfer_range *find_same(const struct convoy_xfer *engine, const void *memory, uint64_t bytes)
{
    for (uint32_t i = 0; i < engine->range_count; i++) {
        if (engine->ranges[i].memory == memory && engine->ranges[i].bytes == bytes) {
            return &engine->ranges[i];
        }
    }
    return NULL;
}

static const struct convoy_xfer_range *find_touching(const struct convoy_xfer *engine, uint64_t address, uint64_t bytes)
{
    for (uint32_t i = 0; i < engine->range_count; i++) {
        uint64_t start = (uint64_t)(uintptr_t)engine->ranges[i].memory;
        if (address < start + engine->ranges[i].bytes && start < address + bytes) {
            return &engine->ranges[i];
        }
    }
    return NULL;
}

struct convoy_xfer_range *convoy_xfer_range_find(const struct convoy_xfer *engine, uint64_t address, uint64_t bytes)
{
    for (uint32_t i = 0; i < engine->range_count; i++) {
        uint64_t start = (uint64_t)(uintptr_t)engine->ranges[i].memory;
        if (address >= start && bytes <= engine->ranges[i].bytes && address - start <= engine->ranges[i].bytes - bytes) {
            return &engine->ranges[i];
        }
    }
    return NULL;
}

bool convoy_xfer_range_touches(const struct convoy_xfer *engine, uint64_t address, uint64_t bytes)
{
    return find_touching(engine, address, bytes) != NULL;
}

void convoy_xfer_range_use(const struct convoy_xfer *engine, uint64_t address, bool is_begun)
{
    struct convoy_xfer_range *range = convoy_xfer_range_find(engine, address, 1);
    if (range != NULL) {
        range->users += is_begun ? 1 : UINT32_MAX;
    }
}

int32_t convoy_xfer_range_room(struct convoy_xfer *engine, struct convoy_error *error)
{
    uint32_t room = engine->range_room != 0 ? 2 * engine->range_room : 16;
    struct convoy_xfer_range *grown = convoy_memory_array(room, sizeof *grown);
    if (grown == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u registered ranges", room);
    }
    if (engine->range_count != 0) {
        memcpy(grown, engine->ranges, engine->range_count * sizeof *grown);
    }
    convoy_memory_free(engine->ranges);
    engine->ranges = grown;
    engine->range_room = room;
    return CONVOY_OK;
}

static int32_t add(struct convoy_xfer *engine, void *memory, uint64_t bytes, struct convoy_error *error)
{
    struct convoy_xfer_range *known = find_same(engine, memory, bytes);
    if (known != NULL) {
        known->references++;
        return CONVOY_OK;
    }
    const struct convoy_xfer_range *other = find_touching(engine, (uint64_t)(uintptr_t)memory, bytes);
    if (other != NULL) {
        return convoy_error_set(error, CONVOY_BUSY, "memory %p of %llu bytes overlaps %p of %llu, registered before", memory,
                                (unsigned long long)bytes, (void *)other->memory, (unsigned long long)other->bytes);
    }
    if (engine->range_count == engine->range_room && convoy_xfer_range_room(engine, error) != CONVOY_OK) {
        return CONVOY_NO_MEMORY;
    }
    engine->ranges[engine->range_count++] = (struct convoy_xfer_range){.memory = memory, .bytes = bytes, .references = 1};
    return CONVOY_OK;
}

int32_t convoy_xfer_register(struct convoy_xfer *engine, void *memory, uint64_t bytes, struct convoy_error *error)
{
    if (memory == NULL || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)memory) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "memory %p of %llu bytes is no range", memory,
                                (unsigned long long)bytes);
    }
    int32_t status = convoy_xfer_device_check_range(engine, memory, bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_xfer_lock(engine);
    status = convoy_xfer_check_open(engine, error);
    if (status == CONVOY_OK) {
        status = add(engine, memory, bytes, error);
    }
    convoy_xfer_unlock(engine);
    return status;
}

int32_t convoy_xfer_deregister(struct convoy_xfer *engine, void *memory, uint64_t bytes, struct convoy_error *error)
{
    convoy_xfer_lock(engine);
    struct convoy_xfer_range *range = find_same(engine, memory, bytes);
    int32_t status = CONVOY_OK;
    if (range != NULL && range->users != 0) { /* what has stopped is known when somebody looks */
        convoy_xfer_pump(engine);
        range = find_same(engine, memory, bytes);
    }
    if (range == NULL) {
        status = convoy_error_set(error, CONVOY_NOT_FOUND, "memory %p of %llu bytes is not registered", memory,
                                  (unsigned long long)bytes);
    } else if (range->references == 1 && range->users != 0) {
        status = convoy_error_set(error, CONVOY_BUSY, "memory %p is read or written right now, by %u parts of raw transfers",
                                  memory, range->users);
    } else if (--range->references == 0) {
        *range = engine->ranges[--engine->range_count];
    }
    convoy_xfer_unlock(engine);
    return status;
}
