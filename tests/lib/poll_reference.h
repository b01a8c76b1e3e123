/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random poll rounds and a plain reference for their results, written from the text of convoy/poll.h and sharing no
 * code with src/poll: tables over a small universe of identities, looped over member by member.
 */
#ifndef CONVOY_TESTS_POLL_REFERENCE_H
#define CONVOY_TESTS_POLL_REFERENCE_H

#include "tests/lib/poll_ranks.h"

#define SCENE_KEYS 12u
#define SCENE_GENERATIONS 2u
#define SCENE_LISTS 4u
#define SCENE_ENTRIES 40u

/* One member's list of one round. */
struct scene_list {
    uint32_t count;
    uint8_t states[SCENE_ENTRIES];
    int32_t wide_states[SCENE_ENTRIES];
    uint64_t keys[SCENE_ENTRIES];
    uint32_t generations[SCENE_ENTRIES];
    uint32_t key_index[SCENE_ENTRIES];
    uint32_t generation_index[SCENE_ENTRIES];
};

/* What all members bring to one round. */
struct scene {
    uint32_t list_count;
    uint32_t flags[SCENE_LISTS];
    uint32_t votes[POLL_RANKS_MAX];
    struct scene_list lists[POLL_RANKS_MAX][SCENE_LISTS];
};

/* Result of one identity. */
struct scene_identity {
    uint32_t listed;
    uint8_t state;
    bool is_decided;
};

struct scene_outcome {
    uint32_t votes_and;
    uint32_t votes_or;
    uint8_t positional[SCENE_LISTS][SCENE_ENTRIES];
    struct scene_identity keyed[SCENE_LISTS][SCENE_KEYS][SCENE_GENERATIONS];
};

/* What earlier rounds decided: CONVOY_STATE_FAILED or _SUCCESS, or 255. */
struct scene_memory {
    uint8_t decided[SCENE_LISTS][SCENE_KEYS][SCENE_GENERATIONS];
};

/* Small generator of its own (xorshift), so that a seed means the same everywhere. */
uint32_t scene_random(uint64_t *seed, uint32_t below);

void scene_memory_reset(struct scene_memory *memory);

/* Draws a round of `members` members. */
void scene_draw(struct scene *scene, uint32_t members, uint64_t *seed);

/* Draws new states for the lists as they are. */
void scene_redraw(struct scene *scene, uint32_t members, uint64_t *seed);

/* Puts one member's part into its call. The scene must stay until the call has started. */
void scene_call(const struct scene *scene, uint32_t member, struct poll_rank *rank, uint64_t *seed);

/* The plain computation. */
void scene_reduce(const struct scene *scene, uint32_t members, struct scene_memory *memory,
                  struct scene_outcome *outcome);

/* Asserts that the result of one member is the outcome. has_listed: listed_by is compared too. */
void scene_assert(const struct scene *scene, uint32_t member, const struct scene_outcome *outcome,
                  const struct poll_rank *rank, bool has_listed);

#endif
