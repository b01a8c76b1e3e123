/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random steps of several ranks, drawn from (seed, step) alone, so that every rank can compute what every other brings
 * and, by a plain computation of its own that shares no code with src/, what must come out.
 */
#ifndef TESTS_LIB_RANDOM_SCENE_H
#define TESTS_LIB_RANDOM_SCENE_H

#include "convoy/sync.h"

#include <stdbool.h>

#define SCENE_MEMBERS_MAX 8u
#define SCENE_LISTS_MAX 4u
#define SCENE_ENTRIES_MAX 16u
#define SCENE_IDENTITIES 16u
#define SCENE_WIDTH 8u

enum scene_kind {
    SCENE_LISTS = 0,       /* lists, possibly none, and votes */
    SCENE_ROW,             /* a row of "sglang-8" */
    SCENE_LISTS_ERROR_ROW, /* the odd member brings "no row" */
    SCENE_ROW_ERROR_ROW,   /* the same, and errors are presence */
    SCENE_OTHER_COUNT,     /* the odd member has one list more */
    SCENE_OTHER_TAG,       /* the odd member is a step ahead */
    SCENE_OTHER_OPERATION, /* the odd member gathers while the others reduce */
    SCENE_KINDS,
};

/* One list as all members bring it. identities: keyed only, positions in a universe that is the step's own. */
struct scene_list {
    uint32_t flags; /* 0, KEYED, or KEYED and ABSENT_SKIP */
    uint32_t count[SCENE_MEMBERS_MAX];
    uint8_t states[SCENE_MEMBERS_MAX][SCENE_ENTRIES_MAX];
    uint8_t identities[SCENE_MEMBERS_MAX][SCENE_ENTRIES_MAX];
};

struct scene {
    uint64_t random;
    enum scene_kind kind;
    uint32_t group;   /* 0 or 1 */
    uint32_t members; /* of that group */
    uint32_t odd;     /* who does what the kind says */
    int32_t reason;
    uint64_t tag; /* 0 = none */
    uint32_t votes[SCENE_MEMBERS_MAX];
    uint64_t era; /* identities of other eras are other requests */
    uint32_t list_count;
    struct scene_list lists[SCENE_LISTS_MAX];
    bool has_row[SCENE_MEMBERS_MAX];
    int64_t rows[SCENE_MEMBERS_MAX][SCENE_WIDTH];
    uint64_t mask_version[SCENE_MEMBERS_MAX];
    uint8_t active[SCENE_MEMBERS_MAX][SCENE_MEMBERS_MAX]; /* [who says it][member] */
};

/* What must come out where the kind ends OK. */
struct scene_identity {
    uint32_t listed_by;
    uint8_t state;
    bool is_decided; /* said before */
};

struct scene_expected {
    int32_t status;
    uint32_t votes_and;
    uint32_t votes_or;
    uint8_t positional[SCENE_LISTS_MAX][SCENE_ENTRIES_MAX];
    struct scene_identity keyed[SCENE_LISTS_MAX][SCENE_IDENTITIES];
    int64_t table[SCENE_MEMBERS_MAX][SCENE_WIDTH];
    uint8_t presence[SCENE_MEMBERS_MAX];
    struct convoy_sync_reduced reduced[SCENE_WIDTH];
    uint64_t mask_version;
    uint32_t mask_skew;
};

#define SCENE_UNDECIDED 255u

/* What earlier rounds of one group have decided, of the current era. */
struct scene_memory {
    uint64_t era;
    uint8_t decided[SCENE_LISTS_MAX][SCENE_IDENTITIES];
};

/* Key and generation of an identity; ascending. */
uint64_t random_scene_key(const struct scene *scene, uint32_t identity);
uint32_t random_scene_generation(const struct scene *scene, uint32_t identity);

/* Members of both groups, and the members that share a data-parallel rank in each. */
void random_scene_draw(struct scene *scene, uint64_t seed, uint64_t step, const uint32_t *members);

/* inner: members that share a data-parallel rank. Updates the memory as the round does. */
void random_scene_expect(const struct scene *scene, uint32_t inner, struct scene_memory *memory,
                  struct scene_expected *expected_out);

/* Below `below`. */
uint32_t random_scene_pick(struct scene *scene, uint32_t below);

#endif
