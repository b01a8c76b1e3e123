/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement on the next generation across hosts: the coordinator's side is in remote_reopen.c, each host's own part in
 * remote_promise.c. Nothing else includes this.
 */
#ifndef CONVOY_ROUND_REMOTE_REOPEN_H
#define CONVOY_ROUND_REMOTE_REOPEN_H

#include "round/remote_internal.h"

/* Data of STATE and PROPOSE; the result's bytes follow. */
struct convoy_reopen_body {
    uint32_t generation; /* STATE: the sender's; PROPOSE: of the decision */
    uint32_t has_promise;
    struct convoy_reopen_decision decision; /* STATE: what the sender has promised */
    uint64_t lost[CONVOY_LOST_WORDS];       /* STATE: members of its host that are gone */
    uint64_t complete_round;
    uint32_t result_length;
    uint32_t reserved;
};

/* Else a result would be too long to be handed over, and the round lost to those who lack it. */
static_assert(sizeof(struct convoy_reopen_body) + sizeof(struct convoy_partial_head) <= CONVOY_REMOTE_EXTRA_BYTES,
              "the longest result fits behind the body");

static inline uint64_t convoy_reopen_generation_word(const struct convoy_engine *engine)
{
    return atomic_load(&convoy_segment_head(&engine->segment)->generation);
}

/* The segment's generation: 1 until the first switch. */
static inline uint32_t convoy_reopen_generation(const struct convoy_engine *engine)
{
    uint32_t generation = (uint32_t)(convoy_reopen_generation_word(engine) & CONVOY_GENERATION_MAX);
    return generation != 0 ? generation : 1;
}

/* The last round whose result lies in this host's segment; 0 = none. */
uint64_t convoy_reopen_complete_round(const struct convoy_engine *engine);

/* Writes a decision down as this host's promise. */
void convoy_reopen_write_promise(struct convoy_engine *engine, const struct convoy_reopen_decision *decision);

/* What this host has to say: generation, promise, last complete round, losses. */
void convoy_reopen_fill_state(struct convoy_remote *remote, struct convoy_reopen_body *body);

/* From now on this host's last complete round stays what it says it is: the next one can no longer complete here, though
 * everything for it may be on its way. */
void convoy_reopen_freeze(struct convoy_remote *remote);

/* Answers a QUERY. */
void convoy_reopen_send_state(struct convoy_remote *remote, uint32_t member);

/* Puts a result that others have where this host's members look for it, whatever they thought of that round. */
void convoy_reopen_store_result(struct convoy_remote *remote, uint64_t round, const uint8_t *bytes, size_t length);

/* Makes a promise the generation in force: COMMIT. */
void convoy_reopen_switch(struct convoy_remote *remote, uint32_t generation);

/* Promises what a coordinator proposes, and answers. */
void convoy_reopen_take_proposal(struct convoy_remote *remote, uint32_t member, const struct convoy_reopen_body *body,
                                 const uint8_t *result);

/* To a host that missed a switch: the decision that is in force, which it may never have been asked about since its
 * leader was just being replaced, and that it holds. */
void convoy_reopen_tell_current(struct convoy_remote *remote, uint32_t member);

/* Adopts what the segment's generation word points at; hands over a result that this member missed. */
void convoy_reopen_adopt(struct convoy_engine *engine);

#endif
