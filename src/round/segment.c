/* SPDX-License-Identifier: Apache-2.0 */
#include "round/segment.h"

#include "core/error.h"
#include "core/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static_assert(sizeof(struct convoy_segment_head) == 192, "three lines");
static_assert(offsetof(struct convoy_segment_head, wake) == 64, "the futex word has a line of its own");
static_assert(offsetof(struct convoy_segment_head, generation) == 128, "so has the generation");
static_assert(sizeof(struct convoy_member_slot) == 576, "nine lines");
static_assert(sizeof(struct convoy_member_status) == 32, "two to a line");
static_assert(sizeof(struct convoy_segment_blob) == 64, "bytes start a line");

static size_t segment_round_up(size_t bytes)
{
    return (bytes + CONVOY_LINE_BYTES - 1) & ~(size_t)(CONVOY_LINE_BYTES - 1);
}

void convoy_segment_plan(struct convoy_segment_geometry *geometry, uint32_t local_count, uint32_t member_count,
                         size_t payload_bytes, size_t blob_room)
{
    bool has_remote = member_count > 1;
    geometry->local_count = local_count;
    geometry->member_count = member_count;
    geometry->cell_bytes = convoy_cell_bytes(payload_bytes);
    geometry->blob_bytes = has_remote ? segment_round_up(blob_room) : 0;
    size_t blob_stride = has_remote ? sizeof(struct convoy_segment_blob) + geometry->blob_bytes : 0;
    size_t offset = sizeof(struct convoy_segment_head);
    geometry->slots_offset = offset;
    offset += local_count * sizeof(struct convoy_member_slot);
    geometry->status_offset = offset;
    offset += has_remote ? segment_round_up(member_count * sizeof(struct convoy_member_status)) : 0;
    geometry->results_offset = offset;
    offset += 2 * blob_stride;
    geometry->partials_offset = offset;
    offset += 2 * blob_stride;
    geometry->cells_offset = offset;
    geometry->total_bytes = offset + (size_t)local_count * 2 * geometry->cell_bytes;
}

int32_t convoy_segment_open(struct convoy_segment *segment, int fd, struct convoy_error *error)
{
    size_t bytes = segment->geometry.total_bytes;
    segment->is_shared = fd >= 0;
    if (!segment->is_shared) {
        segment->base = convoy_memory_aligned(CONVOY_LINE_BYTES, bytes);
        return segment->base != NULL ? CONVOY_OK
                                     : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %zu bytes of cells", bytes);
    }
    /* Populated now, so that no round pays for page faults. */
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (base == MAP_FAILED) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "mapping %zu bytes of shared memory", bytes);
    }
    segment->base = base;
    return CONVOY_OK;
}

void convoy_segment_close(struct convoy_segment *segment)
{
    if (segment->base == NULL) {
        return;
    }
    if (segment->is_shared) {
        (void)munmap(segment->base, segment->geometry.total_bytes);
    } else {
        convoy_memory_free(segment->base);
    }
    segment->base = NULL;
}
