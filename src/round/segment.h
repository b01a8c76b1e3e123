/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that the members of one host share for one group, or private memory of the same layout when this member
 * is alone on its host.
 *
 *   head | per local member: slot | status table, result x 2, partial x 2 (for groups that span hosts; always there when
 *   the group has more than one member, since the segment is made before it is known who reaches it) | per local member:
 *   cell x 2
 *
 * Part of the wire version, like the cells. Untrusted as far as bounds go: geometry is computed from what the group
 * agreed on, never read from the segment.
 */
#ifndef CONVOY_ROUND_SEGMENT_H
#define CONVOY_ROUND_SEGMENT_H

#include "round/cell.h"

#define CONVOY_LOST_WORDS 16u /* bit set of up to 1,024 members */

#define CONVOY_CPU_WORDS 16u

/* Which members a generation goes on without, as its proposer wrote it. Two, by parity of the generation. */
struct convoy_proposal {
    _Atomic uint64_t lost[CONVOY_LOST_WORDS];
    _Atomic uint64_t next_round; /* agreed across hosts; 0 on one host: the failed round's number is used again */
    uint64_t reserved[7];
};

/* One local member's own corner. */
struct convoy_member_slot {
    _Atomic uint32_t closed; /* 1 once its owner said goodbye */
    _Atomic uint32_t opened; /* 1 once its owner has filled the rest of the slot */
    _Atomic uint32_t seat;   /* 1 + the processor that its owner waited on last; 0 = not told */
    uint32_t reserved[13];
    _Atomic uint64_t cpus[CONVOY_CPU_WORDS]; /* processors its owner may run on */
    struct convoy_proposal proposals[2];
};

struct convoy_segment_head {
    uint64_t magic;
    uint64_t reserved0[7];
    _Atomic uint32_t wake;     /* futex word, bumped by whoever publishes while somebody sleeps */
    _Atomic uint32_t sleepers; /* members in futex_wait */
    uint32_t reserved1[14];
    _Atomic uint64_t generation; /* low 12 bits: generation; above: local position of its proposer */
    _Atomic uint64_t pending;    /* the same, promised to another host and not switched to yet */
    uint64_t reserved2[6];
};

/* A host's merged blob, or the result of a round: a word as in a cell, and bytes. */
struct convoy_segment_blob {
    _Atomic uint64_t word;
    uint64_t length;
    _Atomic uint64_t writes; /* odd while the bytes change: a reader looks before and after */
    uint64_t reserved[5];
    uint8_t bytes[];
};

/* What a leader knows of a member of another host. */
struct convoy_member_status {
    _Atomic uint64_t round;
    _Atomic uint64_t tag;
    _Atomic uint64_t seen_ns; /* CLOCK_MONOTONIC of this host; 0 = never heard of */
    _Atomic uint32_t operation;
    _Atomic uint32_t condition; /* CONVOY_MEMBER_* */
};

struct convoy_segment_geometry {
    uint32_t local_count;
    uint32_t member_count;
    size_t cell_bytes;
    size_t blob_bytes; /* room in a result or partial, 0 in a group of one member */
    size_t slots_offset;
    size_t status_offset;
    size_t results_offset;
    size_t partials_offset;
    size_t cells_offset;
    size_t total_bytes;
};

struct convoy_segment {
    uint8_t *base;
    struct convoy_segment_geometry geometry;
    bool is_shared; /* mapped; else private heap memory */
};

/* Pure. blob_room is ignored in a group of one member. */
void convoy_segment_plan(struct convoy_segment_geometry *geometry, uint32_t local_count, uint32_t member_count,
                         size_t payload_bytes, size_t blob_room);

/* Maps fd (of at least total_bytes), or makes private memory when fd is -1. */
int32_t convoy_segment_open(struct convoy_segment *segment, int fd, struct convoy_error *error);
void convoy_segment_close(struct convoy_segment *segment);

static inline struct convoy_segment_head *convoy_segment_head(const struct convoy_segment *segment)
{
    return (struct convoy_segment_head *)(void *)segment->base;
}

static inline struct convoy_cell *convoy_segment_cell(const struct convoy_segment *segment, uint32_t local,
                                                      uint64_t round)
{
    size_t index = (size_t)local * 2 + (size_t)(round & 1);
    return (struct convoy_cell *)(void *)(segment->base + segment->geometry.cells_offset +
                                          index * segment->geometry.cell_bytes);
}

static inline struct convoy_member_slot *convoy_segment_slot(const struct convoy_segment *segment, uint32_t local)
{
    return (struct convoy_member_slot *)(void *)(segment->base + segment->geometry.slots_offset) + local;
}

static inline struct convoy_member_status *convoy_segment_status(const struct convoy_segment *segment, uint32_t member)
{
    return (struct convoy_member_status *)(void *)(segment->base + segment->geometry.status_offset) + member;
}

static inline struct convoy_segment_blob *convoy_segment_result(const struct convoy_segment *segment, uint64_t round)
{
    size_t stride = sizeof(struct convoy_segment_blob) + segment->geometry.blob_bytes;
    return (struct convoy_segment_blob *)(void *)(segment->base + segment->geometry.results_offset +
                                                  (size_t)(round & 1) * stride);
}

static inline struct convoy_segment_blob *convoy_segment_partial(const struct convoy_segment *segment, uint64_t round)
{
    size_t stride = sizeof(struct convoy_segment_blob) + segment->geometry.blob_bytes;
    return (struct convoy_segment_blob *)(void *)(segment->base + segment->geometry.partials_offset +
                                                  (size_t)(round & 1) * stride);
}

#endif
