/* SPDX-License-Identifier: Apache-2.0 */
/* A pool as items, and back. Which blocks are taken is in their leases. */
#include "core/error.h"
#include "core/memory.h"
#include "pool/move.h"
#include "pool/part.h"

#include <errno.h>
#include <fcntl.h>

#define ITEM_PART 2u
#define ITEM_LEASES 3u

struct part_fields {
    uint32_t index;
    uint32_t state;
    struct convoy_pool_part part;
};

struct pool_fields {
    uint32_t kind;
    struct convoy_pool pool;
};

static const struct convoy_bundle_field pool_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct pool_fields, kind),
    CONVOY_BUNDLE_FIELD(2, struct pool_fields, pool.line_end),
    CONVOY_BUNDLE_FIELD(3, struct pool_fields, pool.generations),
    CONVOY_BUNDLE_FIELD(4, struct pool_fields, pool.block_bytes),
    CONVOY_BUNDLE_FIELD(5, struct pool_fields, pool.exhausted),
    CONVOY_BUNDLE_FIELD(6, struct pool_fields, pool.expired),
};

static const struct convoy_bundle_field part_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct part_fields, index),
    CONVOY_BUNDLE_FIELD(2, struct part_fields, state),
    CONVOY_BUNDLE_FIELD(3, struct part_fields, part.generation),
    CONVOY_BUNDLE_FIELD(4, struct part_fields, part.base),
    CONVOY_BUNDLE_FIELD(5, struct part_fields, part.bytes),
    CONVOY_BUNDLE_FIELD(6, struct part_fields, part.block_bytes),
    CONVOY_BUNDLE_FIELD(7, struct part_fields, part.memory),
    CONVOY_BUNDLE_FIELD(8, struct part_fields, part.file),
};

static const struct convoy_bundle_shape pool_shape = {
    .name = "pool", .fields = pool_field_list, .count = sizeof pool_field_list / sizeof pool_field_list[0]};
static const struct convoy_bundle_shape part_shape = {
    .name = "pool part", .fields = part_field_list, .count = sizeof part_field_list / sizeof part_field_list[0]};

/* -- out ----------------------------------------------------------------------------------------------------------- */

void convoy_pool_save(const struct convoy_pool *pool, struct convoy_bundle_writer *writer)
{
    const struct pool_fields fields = {.kind = (uint32_t)pool->kind,
                                       .pool = {.line_end = pool->line_end,
                                                .generations = pool->generations,
                                                .block_bytes = pool->block_bytes,
                                                .exhausted = pool->exhausted,
                                                .expired = pool->expired}};
    convoy_bundle_put_fields(writer, &pool_shape, &fields);
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS; i++) {
        const struct part_fields part = {
            .index = i, .state = (uint32_t)pool->parts[i].state, .part = pool->parts[i]};
        if (part.state != CONVOY_PART_FREE) {
            size_t opened = convoy_bundle_open(writer, ITEM_PART, CONVOY_BUNDLE_CRITICAL);
            convoy_bundle_put_fields(writer, &part_shape, &part);
            convoy_bundle_shut(writer, opened);
        }
    }
    size_t opened = convoy_bundle_open(writer, ITEM_LEASES, CONVOY_BUNDLE_CRITICAL);
    convoy_leases_save(pool->leases, writer);
    convoy_bundle_shut(writer, opened);
}

bool convoy_pool_each(const struct convoy_pool *pool, uint32_t *cursor, void **memory_out, uint64_t *bytes_out)
{
    while (pool != NULL && *cursor < CONVOY_POOL_GENERATIONS) {
        const struct convoy_pool_part *part = &pool->parts[(*cursor)++];
        if (part->state != CONVOY_PART_FREE && part->memory != NULL && part->bytes != 0) {
            *memory_out = part->memory;
            *bytes_out = part->bytes;
            return true;
        }
    }
    return false;
}

/* -- in ------------------------------------------------------------------------------------------------------------ */

static bool is_power(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

static bool part_can_be(const struct convoy_pool *pool, const struct part_fields *fields)
{
    const struct convoy_pool_part *part = &fields->part;
    return fields->index < CONVOY_POOL_GENERATIONS && pool->parts[fields->index].state == CONVOY_PART_FREE &&
           fields->state > CONVOY_PART_MADE && fields->state < CONVOY_PART_STATES && is_power(part->block_bytes) &&
           part->bytes % part->block_bytes == 0 && part->bytes / part->block_bytes < UINT64_C(1) << 31 &&
           part->base <= pool->line_end && part->bytes <= pool->line_end - part->base && part->generation != 0 &&
           part->generation <= pool->generations && (part->bytes == 0 || part->memory != NULL) &&
           (fields->state != CONVOY_PART_CURRENT || pool->current == NULL);
}

static int32_t part_tables(struct convoy_pool_part *part, struct convoy_error *error)
{
    if (part->bytes == 0) {
        return CONVOY_OK;
    }
    part->buddy = convoy_buddy_create(part->bytes, part->block_bytes);
    part->lease_at = convoy_memory_array((size_t)(part->bytes / part->block_bytes), sizeof *part->lease_at);
    return part->buddy != NULL && part->lease_at != NULL
               ? CONVOY_OK
               : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the tables of a pool of %llu bytes",
                                  (unsigned long long)part->bytes);
}

static int32_t get_part(const struct convoy_bundle_item *item, struct part_fields *fields, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item inner;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &inner)) {
        status = inner.tag == CONVOY_BUNDLE_FIELDS ? convoy_bundle_get_fields(&inner, &part_shape, fields, error)
                                                   : convoy_bundle_unknown(&inner, part_shape.name, error);
    }
    return status == CONVOY_OK ? convoy_bundle_done(&reader, part_shape.name, error) : status;
}

/* Its file is duplicated, its memory stays where it is. */
static int32_t restore_part(struct convoy_pool *pool, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct part_fields fields = {.part = {.file = 0}};
    int32_t status = get_part(item, &fields, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (!part_can_be(pool, &fields)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "generation %llu of a pool, in state %u, cannot be",
                                (unsigned long long)fields.part.generation, fields.state);
    }
    int given = fields.part.file;
    fields.part.file = given >= 0 ? fcntl(given, F_DUPFD_CLOEXEC, 0) : -1;
    if (given >= 0 && fields.part.file < 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "the file of a pool, descriptor %d", given);
    }
    struct convoy_pool_part *part = &pool->parts[fields.index];
    *part = fields.part;
    part->state = (enum convoy_pool_part_state)fields.state;
    pool->current = fields.state == CONVOY_PART_CURRENT ? part : pool->current;
    pool->has_ended = pool->has_ended || fields.state == CONVOY_PART_ENDED;
    return part_tables(part, error);
}

/* The block of every lease that has one. */
static int32_t take_blocks(struct convoy_pool *pool, struct convoy_error *error)
{
    uint32_t cursor = 0;
    struct convoy_lease_view view;
    for (convoy_lease lease; (lease = convoy_lease_next(pool->leases, &cursor)) != CONVOY_LEASE_NONE;) {
        if (!convoy_lease_look(pool->leases, lease, &view) || view.block.bytes == 0) {
            continue;
        }
        struct convoy_pool_part *part = convoy_pool_part_at(pool, view.block.offset);
        const struct convoy_buddy_block block = {part != NULL ? view.block.offset - part->base : 0, view.block.bytes};
        if (part == NULL || convoy_buddy_take_at(part->buddy, &block, view.asked) != CONVOY_BUDDY_OK) {
            return convoy_error_set(error, CONVOY_MALFORMED, "the block of a lease, %llu bytes at %llu, cannot be",
                                    (unsigned long long)view.block.bytes, (unsigned long long)view.block.offset);
        }
        part->lease_at[block.offset / part->block_bytes] = lease;
    }
    return CONVOY_OK;
}

static int32_t get_pool(struct convoy_pool *pool, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct pool_fields fields = {.kind = 0};
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item inner;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &inner)) {
        if (inner.tag == CONVOY_BUNDLE_FIELDS) {
            status = convoy_bundle_get_fields(&inner, &pool_shape, &fields, error);
        }
    }
    pool->kind = (enum convoy_pool_kind)fields.kind;
    pool->line_end = fields.pool.line_end;
    pool->generations = fields.pool.generations;
    pool->block_bytes = fields.pool.block_bytes;
    pool->exhausted = fields.pool.exhausted;
    pool->expired = fields.pool.expired;
    bool can_be = fields.kind <= CONVOY_POOL_DEVICE && is_power(pool->block_bytes) && pool->line_end <= (uint64_t)INT64_MAX;
    return status != CONVOY_OK || can_be
               ? status
               : convoy_error_set(error, CONVOY_MALFORMED, "a pool of kind %u cannot be", fields.kind);
}

static int32_t restore_items(struct convoy_pool *pool, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item inner;
    int32_t status = get_pool(pool, item, error);
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &inner)) {
        if (inner.tag == ITEM_PART) {
            status = restore_part(pool, &inner, error);
        } else if (inner.tag == ITEM_LEASES && pool->leases == NULL) {
            status = convoy_leases_restore(&inner, &pool->leases, error);
        } else if (inner.tag != CONVOY_BUNDLE_FIELDS) {
            status = convoy_bundle_unknown(&inner, pool_shape.name, error);
        }
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, pool_shape.name, error) : status;
    if (status == CONVOY_OK && (pool->current == NULL || pool->leases == NULL)) {
        status = convoy_error_set(error, CONVOY_TOO_OLD, "a pool without a present generation, or without leases");
    }
    return status == CONVOY_OK ? take_blocks(pool, error) : status;
}

int32_t convoy_pool_restore(const struct convoy_pool_options *options, const struct convoy_bundle_item *item,
                            struct convoy_pool **pool_out, struct convoy_error *error)
{
    struct convoy_pool *pool = convoy_memory_zalloc(sizeof *pool);
    if (pool == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a pool");
    }
    (void)pthread_mutex_init(&pool->lock, NULL);
    pool->ended = options->ended;
    pool->let_go = options->let_go;
    pool->user = options->user;
    for (uint32_t i = 0; i < CONVOY_POOL_GENERATIONS; i++) {
        pool->parts[i].file = -1;
    }
    int32_t status = restore_items(pool, item, error);
    if (status != CONVOY_OK) {
        convoy_pool_leave(pool);
        return status;
    }
    *pool_out = pool;
    return CONVOY_OK;
}
