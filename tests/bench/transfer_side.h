/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process of a measured hand-over through convoy: a host that loads the plugin, opens an engine and knows the other
 * one. Rank 0 sends, rank 1 receives.
 *
 * What the library refuses is no error of the benchmark: whoever is refused says so in the shared memory and ends, the
 * other one sees it and ends too, and the case counts as not measured, with the text of the refusal.
 */
#ifndef TESTS_BENCH_TRANSFER_SIDE_H
#define TESTS_BENCH_TRANSFER_SIDE_H

#include "convoy/transfer.h"
#include "tests/bench/handover.h"
#include "tests/lib/plugin.h"

#define SIDE_PIECES_MAX 1024u
#define SIDE_TIMEOUT_NS 30000000000ull
#define SIDE_DESCRIPTOR_BYTES (1u << 20)

/* Shared by both processes, all zero at first. */
struct side_shared {
    struct handover handover;
    char sessions[2][CONVOY_SESSION_BYTES];
    uint32_t has_refused; /* then refusal is whole */
    uint32_t refuser;     /* 1 + rank of the first, so that one text is written */
    char refusal[512];
    uint64_t target; /* raw: where the receiver's memory starts, in its own addresses */
    size_t descriptor_length;
    uint8_t descriptor[SIDE_DESCRIPTOR_BYTES];
    /* Of the sender, after the last round. */
    uint64_t payload_bytes; /* by the library */
    uint64_t moved_bytes;   /* copied by the sender for one payload */
    uint64_t sent_bytes;    /* to the peer, all rounds */
    uint32_t path;
    char stats[16384]; /* JSON; the sender's engine */
};

struct side {
    const struct handover_case *which;
    struct side_shared *shared;
    const struct convoy_core_table *core;
    const struct convoy_transfer_table *table;
    convoy_context *context;
    convoy_transfer_engine *engine;
    convoy_peer peer;
    struct convoy_error error;
    uint8_t *memory; /* source, or destination */
    uint64_t stride; /* between pieces in the payload: a multiple of 512 */
    uint64_t round;  /* from 1 */
    uint32_t rank;
};

struct side_options {
    uint32_t rank;
    const char *address;  /* of the engine, or NULL */
    const char *settings; /* of the context, or NULL */
    uint64_t pool_bytes;
};

/* Opens everything and meets the other side; leaves in `side` what the rounds need. */
void side_open(struct side *side, const struct side_options *options);

/* Says why, for both, and ends this process. `what` is the call. */
void side_refuse(struct side *side, const char *what, int32_t status) __attribute__((noreturn));
static inline void side_check(struct side *side, const char *what, int32_t status)
{
    if (status != CONVOY_OK) {
        side_refuse(side, what, status);
    }
}

/* Ends this process when the other one was refused. */
void side_leave_if_refused(const struct side *side);

/* As handover_await, but ends this process when the other one was refused. */
void side_await(struct side *side, const struct handover_word *word, uint64_t at_least);

/* Looks at a transfer until it has ended. is_polled: without ever sleeping. result_out may be NULL. */
void side_finish(struct side *side, convoy_transfer transfer, bool is_polled,
                 struct convoy_transfer_result *result_out);

/* Keeps what the last line of the case tells about its bytes. */
void side_keep_result(struct side *side, const struct convoy_transfer_result *result);

/* Bytes from the start of the payload to the last byte of the last piece. */
uint64_t side_payload_bytes(const struct side *side);

#endif
