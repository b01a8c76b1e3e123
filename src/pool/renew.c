/* SPDX-License-Identifier: Apache-2.0 */
/* The next generation of a pool, and the end of those before it. Memory is made and returned without the lock. */
#include "core/error.h"
#include "pool/part.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define BLOCKS_MAX ((UINT64_C(1) << 31) - 1)

/* -- making -------------------------------------------------------------------------------------------------------- */

static int32_t check_size(const struct convoy_pool *pool, uint64_t bytes, struct convoy_error *error)
{
    if (pool->kind != CONVOY_POOL_SHARED) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "the pool's memory is the host's, which alone could give more");
    }
    if (bytes == 0 || bytes / pool->block_bytes >= BLOCKS_MAX || bytes > (uint64_t)INT64_MAX - pool->block_bytes) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%llu bytes, allowed are 1 to %llu blocks of %llu",
                                (unsigned long long)bytes, (unsigned long long)BLOCKS_MAX,
                                (unsigned long long)pool->block_bytes);
    }
    return CONVOY_OK;
}

static struct convoy_pool_part *find(struct convoy_pool *pool, enum convoy_pool_part_state state)
{
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS; i++) {
        if (pool->parts[i].state == state) {
            return &pool->parts[i];
        }
    }
    return NULL;
}

static int32_t refuse_another(struct convoy_pool *pool, struct convoy_error *error)
{
    struct convoy_pool_figures figures;
    convoy_pool_figures(pool, &figures);
    return convoy_error_set(error, CONVOY_LIMIT,
                            "%llu old generations are alive, allowed are %u: %llu of their %llu bytes are not given back",
                            (unsigned long long)figures.old_count, CONVOY_POOL_GENERATIONS - 1,
                            (unsigned long long)figures.old_taken, (unsigned long long)figures.old_bytes);
}

/* Memory that the system does not have is NO_MEMORY here: the pool goes on as it is. */
static int32_t make(const struct convoy_pool *pool, uint64_t bytes, struct convoy_pool_part *made_out,
                    struct convoy_error *error)
{
    const struct convoy_pool_options options = {.kind = pool->kind, .bytes = bytes, .block_bytes = pool->block_bytes};
    struct convoy_error reason = CONVOY_ERROR_INIT;
    int32_t status = convoy_pool_part_open(made_out, &options, &reason);
    int32_t sys_errno = reason.sys_errno;
    bool is_memory = sys_errno == ENOMEM || sys_errno == ENOSPC || sys_errno == EFBIG;
    if (status == CONVOY_SYSTEM && !is_memory) {
        return convoy_error_set_errno(error, status, sys_errno, "%s", reason.text);
    }
    return status == CONVOY_OK ? CONVOY_OK : convoy_error_set(error, CONVOY_NO_MEMORY, "%s", reason.text);
}

/* Under the lock. */
static int32_t take_slots(struct convoy_pool *pool, struct convoy_pool_part *part, const struct convoy_pool_request *each,
                          uint32_t count, struct convoy_slot *slots_out, struct convoy_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        struct convoy_buddy_block block = {0, 0};
        if (each->bytes != 0 && convoy_buddy_take(part->buddy, each->bytes, &block) != CONVOY_BUDDY_OK) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%llu bytes do not hold the %u preallocated slots of %llu",
                                    (unsigned long long)part->bytes, count, (unsigned long long)each->bytes);
        }
        if (convoy_pool_part_lease(pool, part, each, &block, each->bytes, &slots_out[i]) != CONVOY_LEASE_OK) {
            return convoy_error_set(error, CONVOY_LIMIT, "no leases are left for %u preallocated slots: what ended is still "
                                                         "in use",
                                    count);
        }
    }
    return CONVOY_OK;
}

int32_t convoy_pool_renew(struct convoy_pool *pool, uint64_t bytes, const struct convoy_pool_request *each, uint32_t count,
                          struct convoy_slot *slots_out, struct convoy_error *error)
{
    struct convoy_pool_part made;
    int32_t status = check_size(pool, bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&pool->lock);
    bool has_room = find(pool, CONVOY_PART_FREE) != NULL;
    (void)pthread_mutex_unlock(&pool->lock);
    if (!has_room) {
        return refuse_another(pool, error);
    }
    status = make(pool, bytes, &made, error);
    if (status != CONVOY_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&pool->lock);
    struct convoy_pool_part *part = find(pool, CONVOY_PART_FREE); /* still: only reap makes more of them */
    made.generation = pool->generations + 1;
    made.base = pool->line_end;
    *part = made;
    (void)convoy_pool_part_move(part, CONVOY_PART_MADE);
    status = made.bytes > (uint64_t)INT64_MAX - pool->line_end
                 ? convoy_error_set(error, CONVOY_LIMIT, "all generations of one pool together may have 2^63 bytes")
                 : take_slots(pool, part, each, count, slots_out, error);
    (void)pthread_mutex_unlock(&pool->lock);
    if (status != CONVOY_OK) {
        convoy_pool_undo(pool);
    }
    return status;
}

void *convoy_pool_made(struct convoy_pool *pool, uint64_t *bytes_out)
{
    (void)pthread_mutex_lock(&pool->lock);
    const struct convoy_pool_part *part = find(pool, CONVOY_PART_MADE);
    *bytes_out = part->bytes;
    void *memory = part->memory;
    (void)pthread_mutex_unlock(&pool->lock);
    return memory;
}

uint64_t convoy_pool_switch(struct convoy_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    struct convoy_pool_part *before = pool->current;
    struct convoy_pool_part *next = find(pool, CONVOY_PART_MADE);
    pool->generations = next->generation;
    pool->line_end = next->base + next->bytes;
    pool->current = next;
    (void)convoy_pool_part_move(next, CONVOY_PART_CURRENT);
    (void)convoy_pool_part_move(before, CONVOY_PART_OLD);
    convoy_pool_part_settle(pool, before);
    uint64_t generation = next->generation;
    (void)pthread_mutex_unlock(&pool->lock);
    return generation;
}

/* The leases of what was taken there go with it. */
void convoy_pool_undo(struct convoy_pool *pool)
{
    struct convoy_buddy_block block;
    (void)pthread_mutex_lock(&pool->lock);
    struct convoy_pool_part *part = find(pool, CONVOY_PART_MADE);
    for (uint64_t i = 0; i < part->bytes / part->block_bytes; i++) {
        if (part->lease_at[i] != CONVOY_LEASE_NONE) {
            (void)convoy_lease_retire(pool->leases, part->lease_at[i], CONVOY_LEASE_END_ABORTED, &block);
        }
    }
    struct convoy_pool_part ended = *part;
    (void)convoy_pool_part_move(part, CONVOY_PART_ENDED);
    (void)convoy_pool_part_move(part, CONVOY_PART_FREE);
    *part = (struct convoy_pool_part){.file = -1};
    (void)pthread_mutex_unlock(&pool->lock);
    convoy_pool_part_return(pool, &ended);
}

/* -- ending -------------------------------------------------------------------------------------------------------- */

bool convoy_pool_has_ended(const struct convoy_pool *pool)
{
    return pool->has_ended;
}

uint32_t convoy_pool_reap(struct convoy_pool *pool, uint64_t generations_out[CONVOY_POOL_GENERATIONS])
{
    struct convoy_pool_part ended[CONVOY_POOL_GENERATIONS];
    struct convoy_pool_part *part;
    uint32_t count = 0;
    (void)pthread_mutex_lock(&pool->lock);
    pool->has_ended = false;
    while ((part = find(pool, CONVOY_PART_ENDED)) != NULL) {
        generations_out[count] = part->generation;
        ended[count++] = *part;
        (void)convoy_pool_part_move(part, CONVOY_PART_FREE);
        *part = (struct convoy_pool_part){.file = -1};
    }
    (void)pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < count; i++) {
        convoy_pool_part_return(pool, &ended[i]);
    }
    return count;
}

/* -- showing ------------------------------------------------------------------------------------------------------- */

static struct convoy_pool_share share_of(const struct convoy_pool_part *part)
{
    return (struct convoy_pool_share){
        .generation = part->generation, .base = part->base, .bytes = part->bytes, .file = -1};
}

struct convoy_pool_share convoy_pool_current(struct convoy_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    struct convoy_pool_share share = share_of(pool->current);
    (void)pthread_mutex_unlock(&pool->lock);
    return share;
}

bool convoy_pool_share(struct convoy_pool *pool, uint64_t generation, struct convoy_pool_share *share_out)
{
    bool is_there = false;
    (void)pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS && !is_there; i++) {
        const struct convoy_pool_part *part = &pool->parts[i];
        is_there = part->state == CONVOY_PART_CURRENT ? generation == 0 || part->generation == generation
                                                      : part->state == CONVOY_PART_OLD && part->generation == generation;
        if (is_there) {
            *share_out = share_of(part);
            share_out->file = part->file >= 0 ? fcntl(part->file, F_DUPFD_CLOEXEC, 0) : -1;
            is_there = part->file < 0 || share_out->file >= 0;
            break;
        }
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return is_there;
}

bool convoy_pool_generation_at(struct convoy_pool *pool, uint64_t offset, struct convoy_pool_share *share_out)
{
    (void)pthread_mutex_lock(&pool->lock);
    const struct convoy_pool_part *part = convoy_pool_part_at(pool, offset);
    if (part != NULL) {
        *share_out = share_of(part);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return part != NULL;
}
