/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of other processes that a sync gather reads. The first byte picks the reader (0 member, 1 partial, 2 schema,
 * 3 agreement), the second the shape (members, columns, world gather). What is accepted must be right in itself: it
 * reads back the same after encoding, and can be placed and delivered.
 */
#include "sync/deliver.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static struct convoy_grid fuzz_grid(uint8_t choice)
{
    struct convoy_grid grid = {.inner = 1 + (choice >> 2 & 1u), .width = choice >> 3 & 15u};
    grid.member_count = grid.inner * (1 + 3 * (choice & 3u));
    grid.slots = grid.member_count / grid.inner + 1;
    grid.own.count = grid.width;
    for (uint8_t i = 0; i < grid.width; i++) {
        grid.common[i] = i;
    }
    return grid;
}

static void fuzz_deliver(const struct convoy_grid *grid, const struct convoy_gather *gather)
{
    static int64_t table[64 * CONVOY_SYNC_COLUMNS_MAX];
    static uint8_t presence[64];
    struct convoy_sync_reduced reduced[CONVOY_SYNC_COLUMNS_MAX];
    struct convoy_placement placement;
    struct convoy_conflict conflict;
    struct convoy_sync_result result = {.table = table, .reduced = reduced, .presence = presence};
    require(convoy_placement_init(&placement, grid, NULL) == CONVOY_OK);
    if (convoy_placement_compute(&placement, gather, &conflict)) {
        convoy_deliver_write(grid, gather, &placement, &result);
    } else {
        require(conflict.first < grid->member_count && conflict.second < grid->member_count);
        require(conflict.first < conflict.second);
    }
    convoy_placement_fini(&placement);
}

/* What was accepted encodes within the bound, and the bytes read back to the same bytes. */
static void fuzz_again(const struct convoy_grid *grid, struct convoy_gather *gather)
{
    size_t room = convoy_gather_partial_bytes_max(grid);
    uint8_t *bytes = calloc(2, room);
    size_t length = convoy_gather_ops.encode(gather, bytes, room);
    require(length != 0);
    convoy_gather_ops.begin(gather);
    require(convoy_gather_ops.partial(gather, bytes, length) == CONVOY_OK);
    require(convoy_gather_ops.encode(gather, bytes + room, room) == length);
    require(memcmp(bytes, bytes + room, length) == 0);
    free(bytes);
}

static void fuzz_merge(bool is_partial, uint8_t choice, const uint8_t *bytes, size_t length)
{
    struct convoy_grid grid = fuzz_grid(choice);
    struct convoy_gather gather;
    if (grid.width == 0) {
        return;
    }
    require(convoy_gather_init(&gather, &grid, NULL) == CONVOY_OK);
    convoy_gather_prepare(&gather, choice >> 7);
    convoy_gather_ops.begin(&gather);
    int32_t status = is_partial ? convoy_gather_ops.partial(&gather, bytes, length)
                                : convoy_gather_ops.member(&gather, grid.member_count - 1, bytes, length);
    require(status == CONVOY_OK || status == CONVOY_MALFORMED);
    if (status == CONVOY_OK) {
        fuzz_again(&grid, &gather);
        for (uint32_t i = 0; i < grid.member_count; i++) {
            convoy_gather_ops.absent(&gather, i, CONVOY_ABSENT_LOST, 0);
        }
        fuzz_deliver(&grid, &gather);
    }
    convoy_gather_fini(&gather);
}

static void fuzz_schema(const uint8_t *bytes, size_t length)
{
    struct convoy_schema schema;
    uint8_t again[CONVOY_SCHEMA_BYTES_MAX];
    if (convoy_schema_decode(&schema, bytes, length) == CONVOY_OK) {
        require(schema.count >= 1 && schema.count <= CONVOY_SYNC_COLUMNS_MAX);
        require(convoy_schema_encode(&schema, again, sizeof again) == length);
        require(convoy_schema_hash(&schema, 1, 1) != 0);
    }
}

/* A peer's description beside an own one of the same members. */
static void fuzz_agree(const uint8_t *bytes, size_t length)
{
    struct convoy_sync_schema given = {.builtin = "sglang-8", .builtin_length = 8};
    struct convoy_schema schema;
    struct convoy_grid grid;
    const int32_t ids[2] = {0, 1};
    uint8_t own_bytes[CONVOY_GRID_BYTES_MAX];
    require(convoy_schema_load(&schema, &given, NULL) == CONVOY_OK);
    struct convoy_grid_own own = {.member_count = 2, .inner = 1, .slots = 2, .schema = &schema};
    struct convoy_blob blobs[2] = {{own_bytes, convoy_grid_encode(&own, own_bytes, sizeof own_bytes)}, {bytes, length}};
    if (convoy_grid_agree(blobs, ids, &own, &grid, NULL) == CONVOY_OK) {
        require(grid.width <= grid.own.count && grid.own.count == 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    switch (data[0] % 4) {
    case 0:
    case 1:
        fuzz_merge(data[0] % 4 == 1, data[1], data + 2, size - 2);
        break;
    case 2:
        fuzz_schema(data + 2, size - 2);
        break;
    default:
        fuzz_agree(data + 2, size - 2);
        break;
    }
    return 0;
}
