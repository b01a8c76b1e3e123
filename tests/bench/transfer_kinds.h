/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of cases of transfer_bench: what the sender and the receiver do in their rounds. */
#ifndef TESTS_BENCH_TRANSFER_KINDS_H
#define TESTS_BENCH_TRANSFER_KINDS_H

#include "tests/bench/transfer_side.h"

#define TRANSFER_QUEUE_MAX 64u

/* What a kind of case means. */
struct transfer_kind {
    const char *name;
    uint32_t path; /* of the sender; the receiver takes whatever comes, or pulls */
    uint32_t mode;
    bool is_inline; /* one copy, so the caller may as well make it; else copy and load overlap */
    void (*send)(struct side *side, const struct transfer_kind *kind, uint32_t rounds);
    void (*receive)(struct side *side, const struct transfer_kind *kind, uint32_t rounds);
};

/* A request's texts and tensors. */
struct transfer_request {
    struct convoy_tensor_source tensors[SIDE_PIECES_MAX];
    uint64_t shape;
    char names[SIDE_PIECES_MAX][16];
    char id[32];
    struct convoy_stage stage;
};

/* The kind of this case. Ends the program when there is none. */
const struct transfer_kind *transfer_kind_of(const struct handover_case *which);

/* Fills in everything but the id and its length. */
void transfer_prepare(struct side *side, struct transfer_request *request, const struct transfer_kind *kind);
struct convoy_load transfer_load_of(const struct side *side, const struct transfer_kind *kind);

/* transfer_bulk.c: by addresses, and one after the other without a pause. */
uint32_t transfer_queued(const struct side *side);
void transfer_send_raw(struct side *side, const struct transfer_kind *kind, uint32_t rounds);
void transfer_receive_raw(struct side *side, const struct transfer_kind *kind, uint32_t rounds);
void transfer_send_stream(struct side *side, const struct transfer_kind *kind, uint32_t rounds);
void transfer_receive_stream(struct side *side, const struct transfer_kind *kind, uint32_t rounds);

#endif
