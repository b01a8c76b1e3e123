/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/part.h"

#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "net/shared_file.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* -- states -------------------------------------------------------------------------------------------------------- */

#define TO(state) (1u << CONVOY_PART_##state)

static const struct {
    const char *name;
    uint32_t next; /* bit per state that may follow */
} states[CONVOY_PART_STATES] = {
    [CONVOY_PART_FREE] = {"FREE", TO(MADE)},      [CONVOY_PART_MADE] = {"MADE", TO(CURRENT) | TO(ENDED)},
    [CONVOY_PART_CURRENT] = {"CURRENT", TO(OLD)}, [CONVOY_PART_OLD] = {"OLD", TO(ENDED)},
    [CONVOY_PART_ENDED] = {"ENDED", TO(FREE)},
};

bool convoy_pool_part_may(enum convoy_pool_part_state from, enum convoy_pool_part_state to)
{
    return from < CONVOY_PART_STATES && to < CONVOY_PART_STATES && (states[from].next & 1u << to) != 0;
}

bool convoy_pool_part_move(struct convoy_pool_part *part, enum convoy_pool_part_state state)
{
    bool may = convoy_pool_part_may(part->state, state);
    part->state = may ? state : part->state;
    return may;
}

const char *convoy_pool_part_name(enum convoy_pool_part_state state)
{
    return state < CONVOY_PART_STATES ? states[state].name : "UNKNOWN";
}

/* -- memory -------------------------------------------------------------------------------------------------------- */

static int32_t part_memory(struct convoy_pool_part *part, const struct convoy_pool_options *options,
                           struct convoy_error *error)
{
    if (options->kind != CONVOY_POOL_SHARED || part->bytes == 0) {
        part->memory = options->memory;
        return CONVOY_OK;
    }
    void *memory;
    int32_t status = convoy_shared_file_create_owned((size_t)part->bytes, &part->file, &memory, error);
    if (status == CONVOY_OK) {
        part->memory = memory;
    }
    return status;
}

int32_t convoy_pool_part_open(struct convoy_pool_part *part, const struct convoy_pool_options *options,
                              struct convoy_error *error)
{
    bool is_up = options->kind == CONVOY_POOL_SHARED && options->bytes % options->block_bytes != 0;
    *part = (struct convoy_pool_part){.bytes = (options->bytes / options->block_bytes + is_up) * options->block_bytes,
                                      .block_bytes = options->block_bytes,
                                      .file = -1};
    int32_t status = part_memory(part, options, error); /* first: tables of what cannot be had may be larger than memory */
    if (status == CONVOY_OK && part->bytes != 0) {
        part->buddy = convoy_buddy_create(part->bytes, part->block_bytes);
        part->lease_at = convoy_memory_array((size_t)(part->bytes / part->block_bytes), sizeof *part->lease_at);
        if (part->buddy == NULL || part->lease_at == NULL) {
            status = convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the tables of a pool of %llu blocks",
                                      (unsigned long long)(options->bytes / options->block_bytes));
        }
    }
    if (status != CONVOY_OK) {
        convoy_pool_part_close(part);
    }
    return status;
}

void convoy_pool_part_close(struct convoy_pool_part *part)
{
    if (part->file >= 0) {
        (void)munmap(part->memory, (size_t)part->bytes);
        (void)close(part->file);
    }
    convoy_memory_free(part->lease_at);
    convoy_buddy_destroy(part->buddy);
    *part = (struct convoy_pool_part){.file = -1};
}

void convoy_pool_part_return(const struct convoy_pool *pool, struct convoy_pool_part *part)
{
    bool is_asked = pool->let_go != NULL && part->memory != NULL && part->bytes != 0;
    if (is_asked && !pool->let_go(pool->user, part->memory, part->bytes) && part->file >= 0) {
        (void)close(part->file); /* as if the memory were the host's */
        part->file = -1;
    }
    convoy_pool_part_close(part);
}

/* -- blocks -------------------------------------------------------------------------------------------------------- */

static bool is_alive(const struct convoy_pool_part *part)
{
    return part->state != CONVOY_PART_FREE && part->state != CONVOY_PART_ENDED;
}

struct convoy_pool_part *convoy_pool_part_at(struct convoy_pool *pool, uint64_t offset)
{
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS; i++) {
        struct convoy_pool_part *part = &pool->parts[i];
        if (is_alive(part) && offset >= part->base && offset - part->base < part->bytes) {
            return part;
        }
    }
    return NULL;
}

struct convoy_pool_part *convoy_pool_part_of(struct convoy_pool *pool, const void *address)
{
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS; i++) {
        struct convoy_pool_part *part = &pool->parts[i];
        if (is_alive(part) && (uintptr_t)address >= (uintptr_t)part->memory &&
            (uintptr_t)address - (uintptr_t)part->memory < part->bytes) {
            return part;
        }
    }
    return NULL;
}

void convoy_pool_part_give(struct convoy_pool *pool, const struct convoy_buddy_block *block)
{
    struct convoy_pool_part *part = convoy_pool_part_at(pool, block->offset);
    if (part == NULL) {
        return;
    }
    uint64_t offset = block->offset - part->base;
#ifdef CONVOY_DEBUG
    if (pool->kind != CONVOY_POOL_DEVICE) {
        memset(part->memory + offset, CONVOY_POOL_POISON, (size_t)block->bytes);
    }
#endif
    part->lease_at[offset / part->block_bytes] = CONVOY_LEASE_NONE;
    (void)convoy_buddy_give(part->buddy, offset);
    convoy_pool_part_settle(pool, part);
}

void convoy_pool_part_settle(struct convoy_pool *pool, struct convoy_pool_part *part)
{
    struct convoy_buddy_figures figures = {.live_count = 0};
    if (part->state != CONVOY_PART_OLD) {
        return;
    }
    if (part->buddy != NULL) {
        convoy_buddy_figures(part->buddy, &figures);
    }
    if ((figures.live_count == 0 || CONVOY_MUTATED(old_ends_at_once)) && convoy_pool_part_move(part, CONVOY_PART_ENDED)) {
        pool->has_ended = true;
        if (pool->ended != NULL) {
            pool->ended(pool->user);
        }
    }
}

enum convoy_lease_status convoy_pool_part_lease(struct convoy_pool *pool, struct convoy_pool_part *part,
                                                const struct convoy_pool_request *request,
                                                const struct convoy_buddy_block *block, uint64_t bytes,
                                                struct convoy_slot *slot_out)
{
    const struct convoy_lease_take take = {
        .owner = request->owner,
        .block = {block->bytes != 0 ? part->base + block->offset : 0, block->bytes},
        .asked = bytes,
        .now_ns = request->now_ns,
        .deadline_ns = request->deadline_ns,
    };
    enum convoy_lease_status status = convoy_lease_take(pool->leases, &take, &slot_out->lease);
    if (status == CONVOY_LEASE_OK) {
        slot_out->offset = take.block.offset;
        slot_out->bytes = block->bytes;
        slot_out->address = block->bytes != 0 ? part->memory + block->offset : NULL;
        if (block->bytes != 0) {
            part->lease_at[block->offset / part->block_bytes] = slot_out->lease;
        }
    }
    return status;
}
