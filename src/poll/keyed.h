/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merge of rounds with keyed lists (and positional ones beside them): MIN by (key, generation). The common case, all
 * members list the same, is a comparison of blocks and a MIN over bytes. Pure; memory comes from init.
 *
 * An outcome that would not fit bytes_max as a contribution is not an error of one merge call: the state turns to
 * "overflow" with the size needed, so that every member ends the round alike and knows the size.
 */
#ifndef CONVOY_POLL_KEYED_H
#define CONVOY_POLL_KEYED_H

#include "core/memory.h"
#include "poll/positional.h"
#include "poll/table.h"

#define CONVOY_KEYED_TABLES 3u /* what is merged so far, the next one, and what all members agree on */

/* What a convoy_payload_same refers to: the identities of the last keyed round that was OK, if all members listed all. */
struct convoy_keyed_agreed {
    bool is_there;
    uint32_t table; /* its identities are there; no merge writes them */
    uint64_t version;
    uint32_t digest;
    uint32_t slots;
    uint32_t list_of[CONVOY_POLL_LISTS_MAX];
};

/* The merge state of convoy_keyed_ops. */
struct convoy_keyed {
    struct convoy_positional positional; /* its shape is the round's */
    size_t bytes_max;                    /* largest outcome, measured as a contribution */
    uint32_t capacity;                   /* entries of a table */
    uint32_t current;                    /* the table that holds what was merged */
    uint64_t version;                    /* changes with every change of the identities in the current table */
    uint32_t slots;                      /* keyed lists that the current table is for */
    uint32_t list_of[CONVOY_POLL_LISTS_MAX];
    bool is_fresh;                       /* the current table still holds what the last round merged */
    bool has_overflow;
    uint64_t overflow_entries; /* identities that the outcome has at most */
    struct convoy_table tables[CONVOY_KEYED_TABLES];
    struct convoy_keyed_agreed agreed;
    uint8_t *unpacked; /* room for the states of a convoy_payload_same */
};

extern const struct convoy_merge_ops convoy_keyed_ops;

/* Makes it new; positional_states: borrows. Its tables are placed as in core/memory.h: twice, the second time for use. */
void convoy_keyed_place(struct convoy_keyed *keyed, size_t bytes_max, uint8_t *positional_states,
                        struct convoy_memory_plan *plan);

/* Tells the state what the next round looks like. shape stays until the round's result was read. */
void convoy_keyed_prepare(struct convoy_keyed *keyed, const struct convoy_payload_shape *shape);

static inline struct convoy_table *convoy_keyed_current(struct convoy_keyed *keyed)
{
    return &keyed->tables[keyed->current];
}

/* After a round that was OK, whatever its lists: on every member alike, so that each can send a convoy_payload_same, and
 * each can read it. */
void convoy_keyed_agree(struct convoy_keyed *keyed);

/* Whether the identities of the round that has just ended are agreed on, and all its lists are keyed. */
bool convoy_keyed_is_agreed(const struct convoy_keyed *keyed);

/* Whether all members list all identities of the current table. */
bool convoy_keyed_is_whole(const struct convoy_keyed *keyed);

/* Bytes of an outcome of so many identities, measured as a contribution. */
size_t convoy_keyed_outcome_bytes(const struct convoy_keyed *keyed, uint64_t entries, bool has_generations);

/* Largest blob that encode makes with an outcome of at most bytes_max. */
size_t convoy_keyed_partial_bytes_max(size_t bytes_max);

#endif
