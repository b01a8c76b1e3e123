/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the round engine reads from peers: heads of merged blobs with their lengths, and cells of the shared segment. The
 * first byte chooses. A cell is read the way a real round does: a member of two publishes and collects, the other's
 * cell is the input.
 */
#include "round/partial.h"
#include "round/remote.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_PAYLOAD 256u

static void fuzz_begin(void *state)
{
    *(uint64_t *)state = 0;
}

static int32_t fuzz_member(void *state, uint32_t index, const uint8_t *payload, size_t bytes)
{
    uint64_t *sum = state;
    for (size_t i = 0; i < bytes; i++) { /* every byte that the engine says is there is read */
        *sum += payload[i] + index;
    }
    return CONVOY_OK;
}

static void fuzz_absent(void *state, uint32_t index, enum convoy_absence absence, int32_t reason)
{
    *(uint64_t *)state += index + (uint64_t)absence + (uint64_t)(int64_t)reason;
}

static size_t fuzz_encode(const void *state, uint8_t *out, size_t capacity)
{
    (void)state;
    (void)out;
    (void)capacity;
    return 0;
}

static int32_t fuzz_partial_in(void *state, const uint8_t *bytes, size_t length)
{
    return fuzz_member(state, 0, bytes, length);
}

static const struct convoy_merge_ops fuzz_ops = {fuzz_begin, fuzz_member, fuzz_absent, fuzz_encode, fuzz_partial_in};

static void fuzz_heads(const uint8_t *data, size_t size)
{
    struct convoy_partial_head sum;
    struct convoy_partial_head head;
    size_t half = size / 2;
    if (convoy_partial_read(&sum, data, half, 8) && convoy_partial_read(&head, data + half, size - half, 8)) {
        convoy_partial_combine(&sum, &head);
        (void)convoy_partial_is_diverged(&sum);
    }
}

/* A group of two on one host without anybody else: private memory instead of a segment. */
static void fuzz_cell(const uint8_t *data, size_t size)
{
    static int32_t ids[2] = {0, 1};
    static const struct convoy_group_options group = {
        .name = "fuzz", .name_length = 4, .member_ids = ids, .member_count = 2, .blob_bytes_max = FUZZ_PAYLOAD};
    struct convoy_member_report rows[2];
    struct convoy_loss losses[2] = {{0}};
    uint32_t members[2] = {0, 1};
    uint64_t sum = 0;
    uint8_t *payload = NULL;
    convoy_operation operation = 0;
    struct convoy_engine *engine = aligned_alloc(CONVOY_LINE_BYTES, (sizeof *engine + 63) / 64 * 64);
    memset(engine, 0, sizeof *engine);
    engine->group = &group;
    engine->member_count = engine->local_count = 2;
    engine->local_members = members;
    engine->losses = losses;
    engine->report.rows = rows;
    engine->blob_bytes_max = FUZZ_PAYLOAD;
    engine->generation = 1;
    engine->next_round = 2;
    (void)pthread_mutex_init(&engine->report_lock, NULL);
    convoy_segment_plan(&engine->segment.geometry, 2, 2, FUZZ_PAYLOAD, 64);
    (void)convoy_segment_open(&engine->segment, -1, NULL);
    struct convoy_cell *cell = convoy_segment_cell(&engine->segment, 1, 2);
    memcpy(cell, data, size < engine->segment.geometry.cell_bytes ? size : engine->segment.geometry.cell_bytes);
    const struct convoy_contribution contribution = {.merge = &fuzz_ops, .merge_state = &sum};
    (void)convoy_engine_begin(engine, &payload, NULL);
    if (convoy_engine_publish(engine, &contribution, &operation, NULL) == CONVOY_OK) {
        (void)convoy_engine_collect(engine);
    }
    convoy_segment_close(&engine->segment);
    (void)pthread_mutex_destroy(&engine->report_lock);
    free(engine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    if ((data[0] & 1) == 0) {
        fuzz_heads(data + 1, size - 1);
    } else {
        fuzz_cell(data + 1, size - 1);
    }
    return 0;
}
