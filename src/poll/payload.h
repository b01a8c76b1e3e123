/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of what a member, or a host, brings to a poll round. Pure; part of the wire version; little-endian.
 *
 *   positional only:  the states of all lists, one byte each, nothing else; in short rounds (poll/quick.h), where
 *                     that pays: by the half byte (poll/states_packed.h)
 *   with keyed lists: states of the positional lists, padded to 8
 *                     u32 flags, u32 count of each keyed list, padded to 8
 *                     u64 keys of all keyed lists, each list ascending by (key, generation)
 *                     u32 generations, only with CONVOY_PAYLOAD_GENERATIONS
 *                     u16 listed_by, only from a host
 *                     u8  states
 *   second level:     u32 "or" of the first level's votes may follow, when it is not 0 (the round's own votes carry
 *                     the "and")
 *   keyed, short:     a convoy_payload_same, then the states in ascending order of identity, packed as above
 *   from a host:      a convoy_payload_head first, then as above, without that tail
 */
#ifndef CONVOY_POLL_PAYLOAD_H
#define CONVOY_POLL_PAYLOAD_H

#include "convoy/poll.h"
#include "poll/states_packed.h"

#include <stdbool.h>
#include <string.h>

#define CONVOY_PAYLOAD_GENERATIONS 1u /* generations are there; without it all are 0 */
#define CONVOY_PAYLOAD_SAME 2u        /* a convoy_payload_same */

/* In place of identities: those of the last keyed round, which all members listed alike. Only where all lists are keyed;
 * it lies where the flags word does. */
struct convoy_payload_same {
    uint32_t flags;  /* CONVOY_PAYLOAD_SAME alone */
    uint32_t digest; /* of the identities */
};

/* What the lists of one call look like. All but keyed_entries and the counts of keyed lists agrees on all members. */
struct convoy_payload_shape {
    uint32_t list_count;
    uint32_t keyed_count;      /* lists that are keyed */
    uint32_t positional_bytes; /* entries of all positional lists */
    uint32_t keyed_entries;    /* own entries of all keyed lists */
    uint32_t counts[CONVOY_POLL_LISTS_MAX];
    uint32_t starts[CONVOY_POLL_LISTS_MAX]; /* of the list within the positional bytes, or within the keyed entries */
    uint32_t slots[CONVOY_POLL_LISTS_MAX];  /* keyed: number of the list among the keyed ones */
    uint32_t flags[CONVOY_POLL_LISTS_MAX];  /* CONVOY_POLL_* */
    uint32_t list_of[CONVOY_POLL_LISTS_MAX]; /* by slot: the list */
    bool has_votes;                          /* a tail of votes is allowed */
};

#define CONVOY_PAYLOAD_OVERFLOW 1u

/* In front of what a host sends. */
struct convoy_payload_head {
    uint32_t members; /* merged into it */
    uint32_t flags;   /* CONVOY_PAYLOAD_OVERFLOW: no tables follow, `needed` entries would */
    uint64_t needed;
    uint32_t votes_or;
    uint32_t reserved; /* 0 */
    uint32_t unknown[CONVOY_POLL_LISTS_MAX]; /* states of newer peers, by list */
};

/* Byte offsets of the keyed form. */
struct convoy_payload_layout {
    size_t counts; /* of the flags word; the counts follow it */
    size_t keys;
    size_t generations;
    size_t listed;
    size_t states;
    size_t bytes; /* whole */
};

/* Parts of one payload, borrowed from it; any alignment. */
struct convoy_payload_view {
    const uint8_t *positional;
    uint32_t entries; /* keyed */
    uint32_t counts[CONVOY_POLL_LISTS_MAX]; /* by slot */
    const uint8_t *keys;
    const uint8_t *generations; /* NULL = all 0 */
    const uint8_t *listed;      /* NULL = 1 each */
    const uint8_t *states;
    uint32_t votes_or; /* of the tail, or 0 */
};

/* Appends a list; the shape starts zeroed. */
void convoy_payload_shape_add(struct convoy_payload_shape *shape, uint32_t count, uint32_t flags);

/* entries: of all keyed lists together, at most 2^32. */
struct convoy_payload_layout convoy_payload_layout(const struct convoy_payload_shape *shape, size_t entries,
                                                   bool has_generations, bool has_listed);

/* Checks bytes against the shape and finds the parts. MALFORMED: lengths or counts do not fit together. */
int32_t convoy_payload_read(const struct convoy_payload_shape *shape, const uint8_t *bytes, size_t length,
                            bool has_listed, struct convoy_payload_view *view_out);

/* Bytes of so many states in a short round. */
static inline size_t convoy_payload_short_bytes(size_t states)
{
    return convoy_packed_pays(states) ? convoy_packed_bytes(states) : states;
}

/* Whether `bytes` are the states of positional lists by the half byte. */
static inline bool convoy_payload_is_packed(const struct convoy_payload_shape *shape, size_t bytes)
{
    return convoy_packed_pays(shape->positional_bytes) && !shape->has_votes && shape->keyed_count == 0 &&
           bytes == convoy_packed_bytes(shape->positional_bytes);
}

#define CONVOY_PAYLOAD_VOTES_BYTES 4u

/* Takes the tail of votes, if the payload has `bytes` and that tail, into votes_or. Returns the bytes of the tail. */
static inline size_t convoy_payload_votes(const struct convoy_payload_shape *shape, size_t bytes,
                                          const uint8_t *payload, size_t length, uint32_t *votes_or)
{
    uint32_t votes;
    if (!shape->has_votes || length != bytes + sizeof votes) {
        return 0;
    }
    memcpy(&votes, payload + bytes, sizeof votes);
    *votes_or |= votes;
    return sizeof votes;
}

#endif
