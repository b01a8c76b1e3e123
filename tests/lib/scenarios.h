/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thirty scenarios in which a host's own poll reduce and ours must not be told apart (SGLang,
 * disaggregation/utils.py): five poll vectors, each with the plain, the two-level and the staging form, the last in
 * four states of the staging handler. Four ranks 2t + c: first groups are {0, 2} and {1, 3}, second groups {0, 1} and
 * {2, 3}. Compared is what goes into each reduction and comes out, since reducing twice, or in the other order, is
 * invisible in results.
 */
#ifndef TESTS_LIB_SCENARIOS_H
#define TESTS_LIB_SCENARIOS_H

#include "convoy/poll.h"

#include <stdbool.h>

#define SCENARIO_VECTORS 5u
#define SCENARIO_ENTRIES 5u
#define SCENARIO_RANKS 4u

enum scenario_form {
    SCENARIO_PLAIN = 0,
    SCENARIO_TWO_LEVEL,
    SCENARIO_STAGING_UNUSED,   /* no request needs staging */
    SCENARIO_STAGING_PENDING,  /* the handler advances and does not finish */
    SCENARIO_STAGING_FINISHES, /* the handler finishes while it is advanced */
    SCENARIO_STAGING_DONE,     /* was done before */
    SCENARIO_FORMS,
};

/* What one rank's requests look like to its host; ranks differ by rotation. */
struct scenario_host {
    enum scenario_form form;
    uint8_t polls[SCENARIO_ENTRIES];
    uint8_t entry_flags[SCENARIO_ENTRIES];
    struct convoy_poll_stamp stamps[SCENARIO_ENTRIES];
    uint32_t calls;                        /* to the handler and to the pollers */
    char trail[4 * SCENARIO_ENTRIES + 1]; /* those calls in order: A to E advances, a to e reads */
};

void scenario_host_fill(struct scenario_host *host, enum scenario_form form, uint32_t vector, uint32_t rank);

/* The list that the host brings; it points into the host. */
struct convoy_poll_list scenario_host_list(struct scenario_host *host);

/* What the host's own code does, step by step. */
struct scenario_expected {
    char trails[SCENARIO_RANKS][4 * SCENARIO_ENTRIES + 1];
    uint8_t inputs[SCENARIO_RANKS][SCENARIO_ENTRIES]; /* into the first reduction */
    uint8_t firsts[SCENARIO_RANKS][SCENARIO_ENTRIES]; /* out of it, and into the second */
    uint8_t all[SCENARIO_ENTRIES];                    /* out of the second */
};

void scenario_expect(const struct scenario_host *hosts, struct scenario_expected *expected_out);

#endif
