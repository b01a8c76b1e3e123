/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool.h"

#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "pool/part.h"

#include <string.h>
#include <unistd.h>

/* -- life ---------------------------------------------------------------------------------------------------------- */

static int32_t options_check(const struct convoy_pool_options *options, uint64_t block_bytes,
                             struct convoy_error *error)
{
    if ((block_bytes & (block_bytes - 1)) != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "pool block of %llu bytes is no power of two",
                                (unsigned long long)block_bytes);
    }
    if (options->kind != CONVOY_POOL_SHARED && options->memory == NULL && options->bytes != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "pool memory is NULL with %llu bytes",
                                (unsigned long long)options->bytes);
    }
    if (options->lease_max == 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "pool leases: 0, allowed are 1 to 4294967293");
    }
    if (options->bytes / block_bytes >= UINT64_C(1) << 31) {
        return convoy_error_set(error, CONVOY_LIMIT, "pool of %llu bytes has more than 2147483647 blocks of %llu",
                                (unsigned long long)options->bytes, (unsigned long long)block_bytes);
    }
    return CONVOY_OK;
}

int32_t convoy_pool_open(const struct convoy_pool_options *options, struct convoy_pool **pool_out,
                         struct convoy_error *error)
{
    struct convoy_pool_options wanted = *options;
    wanted.block_bytes = options->block_bytes != 0 ? options->block_bytes : CONVOY_BUDDY_BLOCK_BYTES;
    int32_t status = options_check(&wanted, wanted.block_bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_pool *pool = convoy_memory_zalloc(sizeof *pool);
    if (pool == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a pool");
    }
    (void)pthread_mutex_init(&pool->lock, NULL);
    pool->kind = options->kind;
    pool->block_bytes = wanted.block_bytes;
    pool->ended = options->ended;
    pool->let_go = options->let_go;
    pool->user = options->user;
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS; i++) {
        pool->parts[i].file = -1;
    }
    pool->leases = convoy_leases_create(options->lease_max, options->reference_max);
    status = pool->leases != NULL ? convoy_pool_part_open(&pool->parts[0], &wanted, error)
                                  : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a pool's table of %u leases",
                                                     options->lease_max);
    if (status != CONVOY_OK) {
        convoy_pool_close(pool);
        return status;
    }
    pool->current = &pool->parts[0];
    pool->current->generation = pool->generations = 1;
    pool->line_end = pool->current->bytes;
    (void)convoy_pool_part_move(pool->current, CONVOY_PART_MADE);
    (void)convoy_pool_part_move(pool->current, CONVOY_PART_CURRENT);
    *pool_out = pool;
    return CONVOY_OK;
}

void convoy_pool_close(struct convoy_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS; i++) {
        convoy_pool_part_return(pool, &pool->parts[i]);
    }
    convoy_leases_destroy(pool->leases);
    (void)pthread_mutex_destroy(&pool->lock);
    convoy_memory_free(pool);
}

void convoy_pool_leave(struct convoy_pool *pool)
{
    for (uint32_t i = 0; pool != NULL && i < CONVOY_POOL_GENERATIONS; i++) {
        struct convoy_pool_part *part = &pool->parts[i];
        if (part->state != CONVOY_PART_FREE && part->file >= 0) { /* as if the memory were the host's */
            (void)close(part->file);
            part->file = -1;
        }
    }
    if (pool != NULL) {
        pool->let_go = NULL;
    }
    convoy_pool_close(pool);
}

int convoy_pool_file(const struct convoy_pool *pool)
{
    return pool->current->file;
}

void *convoy_pool_memory(const struct convoy_pool *pool)
{
    return pool->current->memory;
}

uint64_t convoy_pool_bytes(const struct convoy_pool *pool)
{
    return pool->current->bytes;
}

/* Of a lease that has become free: its block, which nobody reads or writes any more. */
static void lease_free(struct convoy_pool *pool, enum convoy_lease_status status, const struct convoy_buddy_block *block)
{
    if (status == CONVOY_LEASE_FREED && block->bytes != 0) {
        convoy_pool_part_give(pool, block);
    }
}

/* -- taking -------------------------------------------------------------------------------------------------------- */

static struct convoy_buddy_figures figures_of(const struct convoy_pool *pool)
{
    struct convoy_buddy_figures figures = {.block = pool->block_bytes};
    if (pool->current->buddy != NULL) {
        convoy_buddy_figures(pool->current->buddy, &figures);
    }
    return figures;
}

/* Under the lock. what: "request r-1" or "3 pieces". */
static int32_t refuse_blocks(struct convoy_pool *pool, enum convoy_buddy_status status, const char *what,
                             uint64_t bytes, struct convoy_error *error)
{
    struct convoy_buddy_figures figures = figures_of(pool);
    if (status == CONVOY_BUDDY_ZERO) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%s: a piece of 0 bytes, allowed are 1 or more", what);
    }
    if (status == CONVOY_BUDDY_TOO_LARGE || CONVOY_MUTATED(exhausted_is_never)) {
        return convoy_error_set(error, CONVOY_LIMIT, "%s: %llu bytes, the pool has %llu in blocks of up to %llu", what,
                                (unsigned long long)bytes, (unsigned long long)figures.capacity,
                                (unsigned long long)(figures.capacity == 0 ? 0 : figures.block
                                                     << (63 - __builtin_clzll(figures.capacity / figures.block))));
    }
    pool->exhausted++;
    return convoy_error_set(error, CONVOY_POOL_EXHAUSTED,
                            "%s: %llu bytes asked, the largest free block has %llu, %llu of %llu are free, %llu slots live",
                            what, (unsigned long long)bytes, (unsigned long long)figures.largest_free,
                            (unsigned long long)figures.free, (unsigned long long)figures.capacity,
                            (unsigned long long)figures.live_count);
}

static int32_t refuse_lease(struct convoy_pool *pool, enum convoy_lease_status status, struct convoy_error *error)
{
    switch (status) {
    case CONVOY_LEASE_STALE:
        return convoy_error_set(error, CONVOY_CLOSED, "the slot's handle is stale: it was freed, and may be another's now");
    case CONVOY_LEASE_BAD_STATE:
        return convoy_error_set(error, CONVOY_BAD_STATE, "the slot is not in a state that allows this");
    case CONVOY_LEASE_FULL:
        pool->exhausted++;
        return convoy_error_set(error, CONVOY_POOL_EXHAUSTED, "all leases, or all references, of the pool are in use");
    case CONVOY_LEASE_UNKNOWN:
        return convoy_error_set(error, CONVOY_NOT_FOUND, "the peer has no such reference to the slot");
    case CONVOY_LEASE_TOO_LARGE:
        return convoy_error_set(error, CONVOY_LIMIT, "a request id of more than %u bytes, or more bytes than the slot has",
                                CONVOY_REQUEST_BYTES);
    case CONVOY_LEASE_OK:
    case CONVOY_LEASE_FREED:
        break;
    }
    return CONVOY_OK;
}

static enum convoy_buddy_status block_take(struct convoy_pool *pool, uint64_t bytes, struct convoy_buddy_block *block_out)
{
    return pool->current->buddy != NULL ? convoy_buddy_take(pool->current->buddy, bytes, block_out) : CONVOY_BUDDY_TOO_LARGE;
}

int32_t convoy_pool_take(struct convoy_pool *pool, const struct convoy_pool_request *request,
                         struct convoy_slot *slot_out, struct convoy_error *error)
{
    struct convoy_buddy_block block = {0, 0};
    struct convoy_slot slot;
    int32_t status = CONVOY_OK;
    (void)pthread_mutex_lock(&pool->lock);
    enum convoy_buddy_status found = request->bytes != 0 ? block_take(pool, request->bytes, &block) : CONVOY_BUDDY_OK;
    if (found != CONVOY_BUDDY_OK) {
        status = refuse_blocks(pool, found, "slot", request->bytes, error);
    } else {
        enum convoy_lease_status leased = convoy_pool_part_lease(pool, pool->current, request, &block, request->bytes, &slot);
        status = refuse_lease(pool, leased, error);
        if (leased != CONVOY_LEASE_OK && block.bytes != 0) {
            (void)convoy_buddy_give(pool->current->buddy, block.offset);
        }
    }
    (void)pthread_mutex_unlock(&pool->lock);
    if (status == CONVOY_OK) {
        *slot_out = slot;
    }
    return status;
}

static uint64_t sum_of(const uint64_t *bytes, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum = bytes[i] > UINT64_MAX - sum ? UINT64_MAX : sum + bytes[i];
    }
    return sum;
}

static enum convoy_buddy_status blocks_fit(const struct convoy_pool *pool, const uint64_t *bytes, size_t count)
{
    if (pool->current->buddy == NULL) {
        return count == 0 ? CONVOY_BUDDY_OK : CONVOY_BUDDY_TOO_LARGE;
    }
    return convoy_buddy_fits(pool->current->buddy, bytes, count);
}

int32_t convoy_pool_fits(struct convoy_pool *pool, const uint64_t *bytes, size_t count, struct convoy_error *error)
{
    (void)pthread_mutex_lock(&pool->lock);
    enum convoy_buddy_status fits = blocks_fit(pool, bytes, count);
    int32_t status = CONVOY_OK;
    if (fits != CONVOY_BUDDY_OK) {
        status = refuse_blocks(pool, fits, "slots together", sum_of(bytes, count), error);
        pool->exhausted -= fits == CONVOY_BUDDY_FULL; /* a question is no request */
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

/* Blocks are there for all. Undone when leases run out on the way. */
static int32_t take_leases(struct convoy_pool *pool, const struct convoy_pool_request *request, const uint64_t *bytes,
                           size_t count, struct convoy_slot *slots_out, struct convoy_error *error)
{
    enum convoy_lease_status leased = CONVOY_LEASE_OK;
    size_t done = 0;
    while (done < count && leased == CONVOY_LEASE_OK) {
        struct convoy_buddy_block block = {slots_out[done].offset, slots_out[done].bytes};
        leased = convoy_pool_part_lease(pool, pool->current, request, &block, bytes[done], &slots_out[done]);
        done += leased == CONVOY_LEASE_OK;
    }
    if (leased == CONVOY_LEASE_OK) {
        return CONVOY_OK;
    }
    for (size_t i = CONVOY_MUTATED(part_kept) ? done : 0; i < count; i++) {
        struct convoy_buddy_block block = {slots_out[i].offset, slots_out[i].bytes};
        if (i < done) {
            lease_free(pool, convoy_lease_retire(pool->leases, slots_out[i].lease, CONVOY_LEASE_END_ABORTED, &block), &block);
        } else {
            (void)convoy_buddy_give(pool->current->buddy, block.offset);
        }
    }
    return refuse_lease(pool, leased, error);
}

int32_t convoy_pool_take_all(struct convoy_pool *pool, const struct convoy_pool_request *request, const uint64_t *bytes,
                             size_t count, struct convoy_slot *slots_out, struct convoy_error *error)
{
    struct convoy_buddy_block blocks[CONVOY_POOL_TOGETHER_MAX];
    if (count > CONVOY_POOL_TOGETHER_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "%zu slots together, allowed are up to %u", count,
                                CONVOY_POOL_TOGETHER_MAX);
    }
    (void)pthread_mutex_lock(&pool->lock);
    enum convoy_buddy_status taken = count != 0 && pool->current->buddy != NULL
                                         ? convoy_buddy_take_all(pool->current->buddy, bytes, count, blocks)
                                         : blocks_fit(pool, bytes, count);
    int32_t status;
    if (taken != CONVOY_BUDDY_OK) {
        status = refuse_blocks(pool, taken, "slots together", sum_of(bytes, count), error);
    } else {
        for (size_t i = 0; i < count; i++) {
            slots_out[i] = (struct convoy_slot){.offset = blocks[i].offset, .bytes = blocks[i].bytes};
        }
        status = take_leases(pool, request, bytes, count, slots_out, error);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

/* -- ending -------------------------------------------------------------------------------------------------------- */

int32_t convoy_pool_filled(struct convoy_pool *pool, convoy_lease lease, uint64_t bytes, struct convoy_error *error)
{
    (void)pthread_mutex_lock(&pool->lock);
    int32_t status = refuse_lease(pool, convoy_lease_filled(pool->leases, lease, bytes), error);
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

int32_t convoy_pool_retire(struct convoy_pool *pool, convoy_lease lease, enum convoy_lease_end end,
                           struct convoy_error *error)
{
    struct convoy_buddy_block block;
    (void)pthread_mutex_lock(&pool->lock);
    enum convoy_lease_status retired = convoy_lease_retire(pool->leases, lease, end, &block);
    lease_free(pool, retired, &block);
    int32_t status = refuse_lease(pool, retired, error);
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

int32_t convoy_pool_adopt(struct convoy_pool *pool, convoy_lease lease, const struct convoy_lease_owner *owner,
                          uint64_t deadline_ns, struct convoy_error *error)
{
    (void)pthread_mutex_lock(&pool->lock);
    int32_t status = refuse_lease(pool, convoy_lease_adopt(pool->leases, lease, owner, deadline_ns), error);
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

int32_t convoy_pool_refer(struct convoy_pool *pool, convoy_lease lease, uint32_t peer, enum convoy_reference kind,
                          struct convoy_error *error)
{
    (void)pthread_mutex_lock(&pool->lock);
    int32_t status = refuse_lease(pool, convoy_lease_refer(pool->leases, lease, peer, kind), error);
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

int32_t convoy_pool_unrefer(struct convoy_pool *pool, convoy_lease lease, uint32_t peer, enum convoy_reference kind,
                            struct convoy_error *error)
{
    struct convoy_buddy_block block;
    (void)pthread_mutex_lock(&pool->lock);
    enum convoy_lease_status ended = convoy_lease_unrefer(pool->leases, lease, peer, kind, &block);
    lease_free(pool, ended, &block);
    int32_t status = refuse_lease(pool, ended, error);
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

uint32_t convoy_pool_drop_peer(struct convoy_pool *pool, uint32_t peer)
{
    struct convoy_buddy_block block;
    convoy_lease lease;
    uint32_t cursor = 0;
    uint32_t count = 0;
    (void)pthread_mutex_lock(&pool->lock);
    for (;;) {
        enum convoy_lease_status dropped = convoy_lease_drop_peer(pool->leases, peer, &cursor, &lease, &block);
        if (dropped == CONVOY_LEASE_UNKNOWN) {
            break;
        }
        lease_free(pool, dropped, &block);
        count++;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return count;
}

uint32_t convoy_pool_sweep(struct convoy_pool *pool, uint64_t now_ns, convoy_pool_expired_fn expired, void *user)
{
    struct convoy_buddy_block block;
    struct convoy_lease_view view;
    uint32_t cursor = 0;
    uint32_t count = 0;
    (void)pthread_mutex_lock(&pool->lock);
    for (;;) {
        convoy_lease lease = convoy_lease_expired(pool->leases, now_ns, &cursor);
        if (lease == CONVOY_LEASE_NONE) {
            break;
        }
        if (expired != NULL && convoy_lease_look(pool->leases, lease, &view)) {
            expired(user, &view);
        }
        lease_free(pool, convoy_lease_retire(pool->leases, lease, CONVOY_LEASE_END_EXPIRED, &block), &block);
        count++;
    }
    pool->expired += count;
    (void)pthread_mutex_unlock(&pool->lock);
    return count;
}

/* -- looking ------------------------------------------------------------------------------------------------------- */

int32_t convoy_pool_find(struct convoy_pool *pool, const void *address, uint64_t bytes, struct convoy_slot *slot_out,
                         struct convoy_error *error)
{
    struct convoy_buddy_block block;
    (void)pthread_mutex_lock(&pool->lock);
    struct convoy_pool_part *part = convoy_pool_part_of(pool, address);
    bool is_found = part != NULL && convoy_buddy_find(part->buddy, (uint64_t)((const uint8_t *)address - part->memory), bytes,
                                                      &block);
    if (is_found) {
        *slot_out = (struct convoy_slot){part->lease_at[block.offset / part->block_bytes], part->base + block.offset,
                                         block.bytes, part->memory + block.offset};
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return is_found ? CONVOY_OK
                    : convoy_error_set(error, CONVOY_NOT_FOUND, "%llu bytes at %p are not all in one live slot of the pool",
                                       (unsigned long long)bytes, address);
}

bool convoy_pool_touches(struct convoy_pool *pool, const void *memory, uint64_t bytes)
{
    uint64_t from = (uint64_t)(uintptr_t)memory;
    bool is_touched = false;
    (void)pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS; i++) {
        const struct convoy_pool_part *part = &pool->parts[i];
        uint64_t start = (uint64_t)(uintptr_t)part->memory;
        bool is_alive = part->state != CONVOY_PART_FREE && part->bytes != 0;
        is_touched = is_touched || (is_alive && from < start + part->bytes && start < from + bytes);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return is_touched;
}

bool convoy_pool_look(struct convoy_pool *pool, convoy_lease lease, struct convoy_lease_view *view_out,
                      char *request_out)
{
    (void)pthread_mutex_lock(&pool->lock);
    bool is_there = convoy_lease_look(pool->leases, lease, view_out);
    if (is_there && request_out != NULL) {
        memcpy(request_out, view_out->owner.request, view_out->owner.request_length + 1);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    if (is_there) {
        view_out->owner.request = request_out;
    }
    return is_there;
}

static void count_old(const struct convoy_pool_part *part, struct convoy_pool_figures *figures)
{
    struct convoy_buddy_figures blocks = {.taken = 0};
    if (part->state == CONVOY_PART_OLD || part->state == CONVOY_PART_ENDED) {
        if (part->buddy != NULL) {
            convoy_buddy_figures(part->buddy, &blocks);
        }
        figures->old_count++;
        figures->old_bytes += part->bytes;
        figures->old_taken += blocks.taken;
    }
}

void convoy_pool_figures(struct convoy_pool *pool, struct convoy_pool_figures *figures_out)
{
    (void)pthread_mutex_lock(&pool->lock);
    figures_out->blocks = figures_of(pool);
    convoy_lease_figures(pool->leases, &figures_out->leases);
    figures_out->exhausted = pool->exhausted;
    figures_out->expired = pool->expired;
    figures_out->old_count = figures_out->old_bytes = figures_out->old_taken = 0;
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS; i++) {
        count_old(&pool->parts[i], figures_out);
    }
    (void)pthread_mutex_unlock(&pool->lock);
}

/* Each lease that has memory is that of the block where it starts, and there are as many as live blocks. */
static const char *check_leases(struct convoy_pool *pool, uint64_t live_count)
{
    uint64_t with_memory = 0;
    uint32_t cursor = 0;
    struct convoy_lease_view view;
    for (convoy_lease lease; (lease = convoy_lease_next(pool->leases, &cursor)) != CONVOY_LEASE_NONE;) {
        if (!convoy_lease_look(pool->leases, lease, &view) || view.block.bytes == 0) {
            continue;
        }
        const struct convoy_pool_part *part = convoy_pool_part_at(pool, view.block.offset);
        if (part == NULL || part->lease_at[(view.block.offset - part->base) / part->block_bytes] != lease) {
            return "a lease's block does not know it";
        }
        with_memory++;
    }
    return with_memory == live_count ? NULL : "there is a block without a lease, or the other way round";
}

const char *convoy_pool_check(struct convoy_pool *pool)
{
    const char *wrong = NULL;
    uint64_t live_count = 0;
    (void)pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS && wrong == NULL; i++) {
        struct convoy_buddy_figures figures;
        if (pool->parts[i].buddy != NULL && pool->parts[i].state != CONVOY_PART_FREE) {
            wrong = convoy_buddy_check(pool->parts[i].buddy);
            convoy_buddy_figures(pool->parts[i].buddy, &figures);
            live_count += figures.live_count;
        }
    }
    wrong = wrong != NULL ? wrong : check_leases(pool, live_count);
    (void)pthread_mutex_unlock(&pool->lock);
    return wrong;
}
