/* SPDX-License-Identifier: Apache-2.0 */
/* Golden images of shared memory: a whole segment with cells of every kind, and the ring between two engines. */
#include "golden.h"

#include "core/error.h"
#include "round/segment.h"
#include "xfer/ring.h"

#include <stdlib.h>
#include <string.h>

#define LOCAL 2u
#define MEMBERS 3u
#define PAYLOAD 64u
#define BLOB 100u
#define ROUND 19u
#define GENERATION 2u

static void plan(struct convoy_segment *segment, uint8_t *base)
{
    convoy_segment_plan(&segment->geometry, LOCAL, MEMBERS, PAYLOAD, BLOB);
    segment->base = base;
    segment->is_shared = false;
}

enum { CELL_PUBLISHED, CELL_SHORT, CELL_SEALED, CELL_ERROR, CELLS };

static void fill_cell(struct convoy_cell *cell, uint32_t kind)
{
    static const uint32_t info[CELLS] = {40, 16 | CONVOY_INFO_SHORT, 0, 4 | CONVOY_INFO_ERROR};
    uint64_t word = kind == CELL_SEALED ? convoy_word_sealed(GENERATION, ROUND - 1, CONVOY_SEAL_ABANDON, 1)
                                        : convoy_word(GENERATION, kind % 2 == 0 ? ROUND - 1 : ROUND);
    cell->cold = (struct convoy_round_header){
        .operation = CONVOY_OPERATION_POLL, .wire = 1, .epoch = 40, .counts = 2, .digest = 3, .schema = 4, .policy = 5};
    atomic_store_explicit(&cell->word, word, memory_order_relaxed);
    cell->fingerprint = 0xf1f2f3f4f5f6f7f8ull;
    cell->votes = 3;
    cell->info = info[kind];
    cell->tag = 11;
    for (uint32_t i = 0; i < (info[kind] & CONVOY_INFO_LENGTH_MASK); i++) {
        cell->payload[i] = (uint8_t)(i + kind);
    }
}

static void fill_slot(struct convoy_member_slot *slot, uint32_t at)
{
    atomic_store_explicit(&slot->closed, at, memory_order_relaxed);
    atomic_store_explicit(&slot->opened, 1, memory_order_relaxed);
    atomic_store_explicit(&slot->seat, 1 + at, memory_order_relaxed);
    atomic_store_explicit(&slot->cpus[0], 0xff, memory_order_relaxed);
    atomic_store_explicit(&slot->proposals[1].lost[0], 4, memory_order_relaxed);
    atomic_store_explicit(&slot->proposals[1].next_round, ROUND + 1, memory_order_relaxed);
}

static void fill_blob(struct convoy_segment_blob *blob, uint8_t byte)
{
    atomic_store_explicit(&blob->word, convoy_word(GENERATION, ROUND), memory_order_relaxed);
    blob->length = BLOB;
    atomic_store_explicit(&blob->writes, 2, memory_order_relaxed);
    memset(blob->bytes, byte, BLOB);
}

static size_t encode_segment(uint32_t which, uint8_t *out)
{
    (void)which;
    struct convoy_segment segment;
    plan(&segment, out);
    struct convoy_segment_head *head = convoy_segment_head(&segment);
    atomic_store_explicit(&head->wake, 6, memory_order_relaxed);
    atomic_store_explicit(&head->sleepers, 1, memory_order_relaxed);
    atomic_store_explicit(&head->generation, GENERATION | 1u << 12, memory_order_relaxed);
    atomic_store_explicit(&head->pending, 3, memory_order_relaxed);
    for (uint32_t i = 0; i < LOCAL; i++) {
        fill_slot(convoy_segment_slot(&segment, i), i);
        fill_cell(convoy_segment_cell(&segment, i, ROUND - 1), i == 0 ? CELL_PUBLISHED : CELL_SEALED);
        fill_cell(convoy_segment_cell(&segment, i, ROUND), i == 0 ? CELL_SHORT : CELL_ERROR);
    }
    struct convoy_member_status *status = convoy_segment_status(&segment, 2);
    atomic_store_explicit(&status->round, ROUND, memory_order_relaxed);
    atomic_store_explicit(&status->tag, 11, memory_order_relaxed);
    atomic_store_explicit(&status->seen_ns, 1000000007, memory_order_relaxed);
    atomic_store_explicit(&status->operation, CONVOY_OPERATION_POLL, memory_order_relaxed);
    atomic_store_explicit(&status->condition, CONVOY_MEMBER_HEARD, memory_order_relaxed);
    fill_blob(convoy_segment_result(&segment, ROUND), 0xaa);
    fill_blob(convoy_segment_partial(&segment, ROUND), 0xbb);
    return segment.geometry.total_bytes;
}

static int32_t read_cell(const struct convoy_cell *cell, uint32_t kind)
{
    static const enum convoy_cell_view views[CELLS] = {CONVOY_CELL_PUBLISHED, CONVOY_CELL_PUBLISHED, CONVOY_CELL_SEALED,
                                                       CONVOY_CELL_PUBLISHED};
    uint64_t word = atomic_load_explicit(&cell->word, memory_order_relaxed);
    uint32_t length = cell->info & CONVOY_INFO_LENGTH_MASK;
    if (length > PAYLOAD) {
        return CONVOY_MALFORMED;
    }
    enum convoy_cell_view view = convoy_cell_view_of(word, GENERATION, kind % 2 == 0 ? ROUND - 1 : ROUND);
    if (view == CONVOY_CELL_PENDING) {
        return CONVOY_IN_PROGRESS;
    }
    bool is_same = view == views[kind] && cell->fingerprint == 0xf1f2f3f4f5f6f7f8ull && cell->votes == 3 &&
                   cell->tag == 11 && cell->cold.epoch == 40 && cell->cold.policy == 5 &&
                   ((cell->info & CONVOY_INFO_SHORT) != 0) == (kind == CELL_SHORT) &&
                   ((cell->info & CONVOY_INFO_ERROR) != 0) == (kind == CELL_ERROR) &&
                   (kind != CELL_SEALED || (convoy_word_reason(word) == CONVOY_SEAL_ABANDON && convoy_word_sealer(word) == 1));
    for (uint32_t i = 0; is_same && i < length; i++) {
        is_same = cell->payload[i] == (uint8_t)(i + kind);
    }
    return is_same ? CONVOY_OK : GOLDEN_OTHER;
}

static bool is_blob(const struct convoy_segment_blob *blob, uint8_t byte)
{
    return atomic_load_explicit(&blob->word, memory_order_relaxed) == convoy_word(GENERATION, ROUND) &&
           blob->length == BLOB && atomic_load_explicit(&blob->writes, memory_order_relaxed) == 2 &&
           blob->bytes[0] == byte && blob->bytes[BLOB - 1] == byte;
}

static bool is_rest(const struct convoy_segment *segment)
{
    const struct convoy_segment_head *head = convoy_segment_head(segment);
    const struct convoy_member_slot *slot = convoy_segment_slot(segment, 1);
    const struct convoy_member_status *status = convoy_segment_status(segment, 2);
    return atomic_load(&head->wake) == 6 && atomic_load(&head->sleepers) == 1 &&
           atomic_load(&head->generation) == (GENERATION | 1u << 12) && atomic_load(&head->pending) == 3 &&
           atomic_load(&slot->closed) == 1 && atomic_load(&slot->opened) == 1 && atomic_load(&slot->seat) == 2 &&
           atomic_load(&slot->cpus[0]) == 0xff && atomic_load(&slot->proposals[1].lost[0]) == 4 &&
           atomic_load(&slot->proposals[1].next_round) == ROUND + 1 && atomic_load(&status->round) == ROUND &&
           atomic_load(&status->tag) == 11 && atomic_load(&status->seen_ns) == 1000000007 &&
           atomic_load(&status->operation) == CONVOY_OPERATION_POLL &&
           atomic_load(&status->condition) == CONVOY_MEMBER_HEARD && is_blob(convoy_segment_result(segment, ROUND), 0xaa) &&
           is_blob(convoy_segment_partial(segment, ROUND), 0xbb);
}

static int32_t decode_segment(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    struct convoy_segment segment;
    plan(&segment, (uint8_t *)(uintptr_t)data);
    if (length < segment.geometry.total_bytes) {
        return CONVOY_TRUNCATED;
    }
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < LOCAL && status == CONVOY_OK; i++) {
        status = read_cell(convoy_segment_cell(&segment, i, ROUND - 1), i == 0 ? CELL_PUBLISHED : CELL_SEALED);
        status = status != CONVOY_OK ? status
                                     : read_cell(convoy_segment_cell(&segment, i, ROUND), i == 0 ? CELL_SHORT : CELL_ERROR);
    }
    return status != CONVOY_OK ? status : length == segment.geometry.total_bytes && is_rest(&segment) ? CONVOY_OK : GOLDEN_OTHER;
}

static size_t encode_cell(uint32_t which, uint8_t *out)
{
    fill_cell((struct convoy_cell *)(void *)out, which);
    return convoy_cell_bytes(PAYLOAD);
}

static int32_t decode_cell(uint32_t which, const uint8_t *data, size_t length)
{
    return length != convoy_cell_bytes(PAYLOAD) ? CONVOY_TRUNCATED
                                                : read_cell((const struct convoy_cell *)(const void *)data, which);
}

/* Two entries are under way from side 0 to side 1. */
static size_t encode_ring(uint32_t which, uint8_t *out)
{
    (void)which;
    struct convoy_ring ring;
    struct convoy_ring_entry entry = {.type = 3, .length = 8, .data = {1, 2, 3, 4, 5, 6, 7, 8}};
    bool must_wake = false;
    convoy_ring_init(&ring, out, 0);
    for (uint16_t i = 0; i < 2; i++) {
        entry.type = (uint16_t)(3 + i);
        if (convoy_ring_put(&ring, &entry, &must_wake) != CONVOY_RING_OK) {
            abort();
        }
    }
    return CONVOY_RING_BYTES;
}

static int32_t decode_ring(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    static const int32_t answers[] = {CONVOY_OK, CONVOY_BUSY, CONVOY_IN_PROGRESS, CONVOY_MALFORMED};
    struct convoy_ring ring;
    struct convoy_ring_entry entry;
    if (length != CONVOY_RING_BYTES) {
        return CONVOY_TRUNCATED;
    }
    convoy_ring_init(&ring, (void *)(uintptr_t)data, 1);
    for (uint16_t i = 0; i < 2; i++) {
        enum convoy_ring_status status = convoy_ring_take(&ring, &entry);
        if (status != CONVOY_RING_OK) {
            return answers[status];
        }
        if (entry.type != 3 + i || entry.length != 8 || entry.data[7] != 8) {
            return GOLDEN_OTHER;
        }
    }
    return convoy_ring_take(&ring, &entry) == CONVOY_RING_EMPTY ? CONVOY_OK : GOLDEN_OTHER;
}

static const struct golden_frame frames[] = {
    {"segment.whole", 0, encode_segment, decode_segment},
    {"segment.cell-published", CELL_PUBLISHED, encode_cell, decode_cell},
    {"segment.cell-short", CELL_SHORT, encode_cell, decode_cell},
    {"segment.cell-sealed", CELL_SEALED, encode_cell, decode_cell},
    {"segment.cell-error", CELL_ERROR, encode_cell, decode_cell},
    {"segment.ring", 0, encode_ring, decode_ring},
};

static const struct golden_bad bads[] = {
    {"segment.bad-cut", "segment.whole", GOLDEN_CUT, 192, 0, CONVOY_TRUNCATED},
    {"segment.bad-cell-round", "segment.cell-published", GOLDEN_POKE, 64, ROUND - 3, CONVOY_IN_PROGRESS},
    {"segment.bad-cell-length", "segment.cell-published", GOLDEN_POKE, 85, 0xff, CONVOY_MALFORMED},
    {"segment.bad-cell-reason", "segment.cell-sealed", GOLDEN_POKE, 71, 0, GOLDEN_OTHER},
    {"segment.bad-ring-number", "segment.ring", GOLDEN_POKE, 192, 9, CONVOY_MALFORMED},
    {"segment.bad-ring-length", "segment.ring", GOLDEN_POKE, 198, 57, CONVOY_MALFORMED},
};

const struct golden_set golden_segment = GOLDEN_SET(frames, bads);
