/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who owns what was exported. Exporter and importers, which are of different builds of one process, share a word in an
 * anonymous file: whoever takes it first has all that the state names, and nobody else may go on with it.
 *
 *             begin (export)              take (resume)              end
 *   (nothing) --------------> [held] ---------------------> [taken] -----> (nothing)
 *             join (import)      |  ^                          |
 *                                |  +------- give_back --------+   resume failed
 *                                +--- end (close, retire) ---> (nothing)
 *
 * In [held], take fails once another side has taken it. The file is named in the state by its number, which importers
 * duplicate, and by when it was made: a number that has since become another file's is found out.
 */
#ifndef CONVOY_PLUGIN_HANDOVER_H
#define CONVOY_PLUGIN_HANDOVER_H

#include "convoy/base.h"

#include <stdbool.h>

struct convoy_handover_page;

/* All zero: nothing. */
struct convoy_handover {
    struct convoy_handover_page *page; /* owns the mapping; NULL = nothing */
    int fd;                            /* owns, with a page */
};

/* What a state says of it. All zero: the exporter knows of no such thing. */
struct convoy_handover_name {
    uint32_t file; /* number of the file + 1 */
    uint32_t reserved;
    uint64_t made_ns;
};

/* Makes the word; one that is there stays. SYSTEM. */
int32_t convoy_handover_begin(struct convoy_handover *handover, struct convoy_error *error);
struct convoy_handover_name convoy_handover_name(const struct convoy_handover *handover);
/* Joins another side's. BAD_STATE: it is gone, or taken. SYSTEM. */
int32_t convoy_handover_join(struct convoy_handover *handover, const struct convoy_handover_name *name,
                             struct convoy_error *error);
/* Whether what was exported is this side's from here on. With nothing: always. */
bool convoy_handover_take(struct convoy_handover *handover);
void convoy_handover_give_back(struct convoy_handover *handover);
/* From any state. Once per side; more does nothing. */
void convoy_handover_end(struct convoy_handover *handover);

#endif
