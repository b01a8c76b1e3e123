/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/bulknode.h"

#include "core/clock.h"
#include "core/error.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const char *bulknode_settings;

static bool node_resolve(void *user, uint32_t peer, const struct convoy_bulk_chunk *chunk, void **to_out)
{
    struct bulknode *node = user;
    (void)peer;
    node->resolves++;
    if (chunk->transfer >= BULKNODE_TRANSFERS || chunk->generation != node->generations[chunk->transfer] ||
        chunk->bytes > node->region_bytes || chunk->offset > node->region_bytes - chunk->bytes) {
        return false;
    }
    *to_out = node->memory + chunk->transfer * node->region_bytes + chunk->offset;
    return true;
}

static void node_landed(void *user, uint32_t peer, const struct convoy_bulk_chunk *chunk, void *to)
{
    struct bulknode *node = user;
    (void)peer;
    (void)to;
    node->landed[chunk->transfer] += chunk->bytes;
    node->landed_chunks++;
}

static void node_frame(void *user, uint32_t peer, const void *data, size_t bytes)
{
    struct bulknode *node = user;
    uint64_t number = 0;
    (void)peer;
    bool is_right = bytes >= sizeof number;
    if (is_right) {
        memcpy(&number, data, sizeof number);
    }
    if (is_right && number == BULKNODE_GOODBYE) {
        node->goodbyes++;
        return;
    }
    is_right = is_right && number == node->next_frame;
    for (size_t i = sizeof number; is_right && i < bytes; i++) {
        is_right = ((const uint8_t *)data)[i] == (uint8_t)(number + i);
    }
    node->wrong_frames += !is_right;
    node->next_frame = number + 1;
    node->frames++;
}

static void node_event(void *user, const struct convoy_bulk_event *event)
{
    struct bulknode *node = user;
    switch (event->kind) {
    case CONVOY_BULK_RELEASED:
        EXPECT(!node->is_released[event->cookie]);
        node->is_released[event->cookie] = true;
        node->released++;
        break;
    case CONVOY_BULK_ENDED:
        EXPECT(node->is_released[event->cookie] && node->statuses[event->cookie] == 1);
        node->statuses[event->cookie] = event->status;
        node->lost[event->cookie] = event->lost_bytes;
        node->ended++;
        break;
    case CONVOY_BULK_ABORTED:
        node->aborted++;
        break;
    case CONVOY_BULK_MOVED:
        node->statuses[event->cookie] = event->status;
        node->lost[event->cookie] = event->lost_bytes;
        node->moved++;
        break;
    case CONVOY_BULK_DOWN:
        node->downs++;
        break;
    }
}

void bulknode_make(struct bulknode *node, size_t region_bytes, const struct convoy_bulk_options *options)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .settings = bulknode_settings,
                                                 .settings_length =
                                                     bulknode_settings != NULL ? strlen(bulknode_settings) : 0};
    memset(node, 0, sizeof *node);
    EXPECT_OK(convoy_runtime_open(&config, &node->runtime, &error), &error);
    node->region_bytes = region_bytes;
    /* Not from the heap: a sanitizer would write down every page of it, of which few are used. */
    node->memory = mmap(NULL, BULKNODE_TRANSFERS * region_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(node->memory != MAP_FAILED);
    for (uint32_t i = 0; i < BULKNODE_TRANSFERS; i++) {
        node->generations[i] = 1;
    }
    for (uint32_t i = 0; i < BULKNODE_COOKIES; i++) {
        node->statuses[i] = 1;
    }
    const struct convoy_bulk_options all = {
        .runtime = node->runtime,
        .peer_count = BULKNODE_RANKS,
        .stream_count = options != NULL ? options->stream_count : 0,
        .window = options != NULL ? options->window : 0,
        .with_rma = options != NULL && options->with_rma,
        .without_peer_errors = options != NULL && options->without_peer_errors,
        .ops = {.resolve = node_resolve, .landed = node_landed, .frame = node_frame, .event = node_event},
        .user = node};
    EXPECT_OK(convoy_bulk_open(&all, &node->bulk, &error), &error);
}

void bulknode_open(struct bulknode *node, const struct rank *rank, size_t region_bytes,
                   const struct convoy_bulk_options *options)
{
    size_t bytes;
    bulknode_make(node, region_bytes, options);
    node->rank = rank;
    node->shared = rank->shared;
    const void *address = convoy_bulk_address(node->bulk, &bytes);
    EXPECT(bytes <= sizeof node->shared->ports[0].address);
    memcpy(node->shared->ports[rank->index].address, address, bytes);
    node->shared->ports[rank->index].bytes = bytes;
    rank_barrier(rank);
}

void bulknode_connect(struct bulknode *node, uint32_t peer)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    EXPECT_OK(convoy_bulk_connect(node->bulk, peer, node->shared->ports[peer].address,
                                  (size_t)node->shared->ports[peer].bytes, &error),
              &error);
}

static uint8_t pattern(uint64_t transfer, size_t at)
{
    return (uint8_t)((at * 131 + (at >> 9)) ^ (transfer * 29 + 7));
}

void bulknode_fill(uint8_t *to, uint64_t transfer, size_t offset, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = pattern(transfer, offset + i);
    }
}

bool bulknode_is_right(const struct bulknode *node, uint64_t transfer, size_t bytes)
{
    const uint8_t *at = node->memory + transfer * node->region_bytes;
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != pattern(transfer, i)) {
            return false;
        }
    }
    for (size_t i = bytes; i < bytes + 64 && i < node->region_bytes; i++) {
        if (at[i] != 0) {
            return false;
        }
    }
    return true;
}

int32_t bulknode_frame(struct bulknode *node, uint32_t peer, uint64_t number, size_t bytes)
{
    uint8_t data[CONVOY_BULK_FRAME_BYTES];
    memcpy(data, &number, sizeof number);
    for (size_t i = sizeof number; i < bytes; i++) {
        data[i] = (uint8_t)(number + i);
    }
    return convoy_bulk_frame(node->bulk, peer, data, bytes, NULL);
}

uint64_t bulknode_send(struct bulknode *node, uint32_t peer, uint64_t transfer, const void *data, size_t bytes,
                       uint32_t flags)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint64_t stream = 0;
    const struct convoy_bulk_piece piece = {data, bytes};
    const struct convoy_bulk_send send = {.peer = peer,
                                          .flags = flags,
                                          .transfer = transfer,
                                          .generation = 1,
                                          .pieces = &piece,
                                          .piece_count = 1,
                                          .cookie = transfer};
    EXPECT_OK(convoy_bulk_send(node->bulk, &send, &stream, &error), &error);
    return stream;
}

bool bulknode_await(struct bulknode *node, const uint64_t *counter, uint64_t value, uint32_t timeout_ms)
{
    uint64_t deadline_ns = convoy_now_ns() + timeout_ms * CONVOY_NS_PER_MS;
    while (*counter < value) {
        if (convoy_now_ns() > deadline_ns) {
            return false;
        }
        convoy_bulk_sleep(node->bulk, deadline_ns);
    }
    return true;
}

void bulknode_work(struct bulknode *node, uint32_t ms)
{
    const uint64_t never = 0;
    (void)bulknode_await(node, &never, 1, ms);
}

uint64_t bulknode_count(struct bulknode *node, int peer, const char *name)
{
    json_t *all = convoy_bulk_describe(node->bulk);
    const json_t *value = json_object_get(all, name);
    size_t index;
    json_t *row;
    json_array_foreach(json_object_get(all, "peers"), index, row)
    {
        if (json_integer_value(json_object_get(row, "peer")) == peer) {
            value = json_object_get(row, name);
            value = value != NULL ? value : json_object_get(json_object_get(row, "counts"), name);
        }
    }
    EXPECT(json_is_integer(value));
    uint64_t number = (uint64_t)json_integer_value(value);
    json_decref(all);
    return number;
}

uint64_t bulknode_close(struct bulknode *node, uint64_t timeout_ns)
{
    uint64_t start_ns = convoy_now_ns();
    convoy_bulk_close(node->bulk, convoy_deadline_after(start_ns, timeout_ns));
    uint64_t took_ms = (convoy_now_ns() - start_ns) / CONVOY_NS_PER_MS;
    convoy_runtime_destroy(node->runtime);
    EXPECT(node->memory == NULL || munmap(node->memory, BULKNODE_TRANSFERS * node->region_bytes) == 0);
    return took_ms;
}
