/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where bytes from other hosts may land, by a number and a generation that only the receiver gives out. A landing takes up
 * to two ranges from one peer, a descriptor and a payload, each in order and once; whatever is late, foreign, repeated or out
 * of range is refused before a byte lands, and counted. A lock of its own, under which nothing else is called: the chunks come
 * in a callback of net/bulk.h.
 *
 *   (free) --open--> open --all bytes are there--> whole --close--> (free)      open --close--> (free)
 *   open --close, while a chunk is on its way into it--> closing --the chunk is there--> quiet, told once --> (free)
 *
 * A chunk is on its way between resolve and landed. The memory of one that is closing is nobody else's before it is quiet.
 */
#ifndef CONVOY_XFER_LANDING_H
#define CONVOY_XFER_LANDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONVOY_LANDING_PAYLOAD (UINT64_C(1) << 48) /* offsets from here on are in the payload, others in the descriptor */
#define CONVOY_LANDING_NONE UINT64_C(0)

struct convoy_landings;

struct convoy_landing_place {
    uint32_t peer;
    uint64_t owner; /* who is told that it is whole */
    uint8_t *note;
    uint64_t note_bytes;
    uint8_t *payload;
    uint64_t payload_bytes;
};

/* A chunk on its way in. */
struct convoy_landing_chunk {
    uint32_t peer;
    uint64_t number;
    uint64_t generation;
    uint64_t offset;
    uint64_t bytes;
};

struct convoy_landing_figures {
    uint64_t landed_bytes;
    uint64_t refused; /* chunks */
    uint32_t open;
};

/* NULL: out of memory. gives */
struct convoy_landings *convoy_landings_create(uint32_t count);
void convoy_landings_destroy(struct convoy_landings *landings);

/* Number from 1, generation never used before; NONE: all are taken. One without any byte is whole at once. */
uint64_t convoy_landing_open(struct convoy_landings *landings, const struct convoy_landing_place *place,
                             uint64_t *generation_out);
/* Its bytes begin anew, under another generation. false: all of them are there, or a chunk is on its way into it. */
bool convoy_landing_renew(struct convoy_landings *landings, uint64_t number, uint64_t *generation_out);
/* Whether all bytes are there; says that they are, of one that was just opened. */
bool convoy_landing_is_whole(struct convoy_landings *landings, uint64_t number);
void convoy_landing_fill(struct convoy_landings *landings, uint64_t number);
/* The last generation that was given out; later ones are above. */
uint64_t convoy_landings_generation(struct convoy_landings *landings);
void convoy_landings_continue(struct convoy_landings *landings, uint64_t generation);
/* true: nothing lands any more. false: a chunk is still on its way into it; convoy_landing_quiet tells when it is there. */
bool convoy_landing_close(struct convoy_landings *landings, uint64_t number);

/* NULL: it must not land. */
void *convoy_landing_resolve(struct convoy_landings *landings, const struct convoy_landing_chunk *chunk);
void convoy_landing_landed(struct convoy_landings *landings, const struct convoy_landing_chunk *chunk);

/* All of the payload was put there by the peer, by itself. false: it is closed, of another, or these are not its bytes. */
bool convoy_landing_put(struct convoy_landings *landings, uint32_t peer, uint64_t number, uint64_t generation, uint64_t bytes);

/* The owner and number of one that has become whole, each once. false: there is none. */
bool convoy_landing_whole(struct convoy_landings *landings, uint64_t *owner_out, uint64_t *number_out);

/* The same of one that was closed while a chunk was on its way into it: from now on nothing lands. */
bool convoy_landing_quiet(struct convoy_landings *landings, uint64_t *owner_out, uint64_t *number_out);

void convoy_landing_figures(struct convoy_landings *landings, struct convoy_landing_figures *figures_out);

#endif
