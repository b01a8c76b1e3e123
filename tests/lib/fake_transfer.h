/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pretended transfer table, behind a handle of the loader, for tests of what stands on it: every start gives a fresh
 * handle, every handle ends as the test says, and what was called is written down. One at a time, as everything is in
 * one static table.
 */
#ifndef TESTS_LIB_FAKE_TRANSFER_H
#define TESTS_LIB_FAKE_TRANSFER_H

#include "cli/transfer_host.h"

#include <stdbool.h>

#define FAKE_TRANSFERS_MAX 64u

enum fake_transfer_kind {
    FAKE_STAGE = 1,
    FAKE_SEND,
    FAKE_ACCEPT,
};

/* One that was started. Its handle is its position, from 1. */
struct fake_transfer_entry {
    enum fake_transfer_kind kind;
    int32_t status; /* what a look answers; IN_PROGRESS until the test changes it */
    const char *text;
    struct convoy_transfer_result result;
    const struct convoy_payload *payload; /* what `payload` answers: counts and arrays are copied up to the capacity */
    char request[64]; /* stage */
    convoy_transfer staged; /* send */
    convoy_peer peer;       /* send */
    bool is_released;
    bool is_aborted;
};

struct fake_transfer {
    struct convoy_transfer_host host; /* to give to what is tested */
    uint32_t count;
    struct fake_transfer_entry entries[FAKE_TRANSFERS_MAX + 1];
    int32_t next_status[FAKE_ACCEPT + 1]; /* of the next start of a kind, once; OK = it starts */
    int32_t every_status[FAKE_ACCEPT + 1]; /* of every start of a kind; OK = as next_status says */
    int32_t connect_status;               /* OK: a peer is the number of its connect, from 1 */
    uint32_t connect_count;
    char sessions[FAKE_TRANSFERS_MAX][32];
    uint32_t wait_count;
    /* Set: what starts ends well at once, and the n-th accept brings this payload (NULL = nothing comes). */
    const struct convoy_payload *(*instant)(uint32_t accept);
    uint32_t accept_count;
    uint32_t figures_looks; /* pool_figures has something taken for so many calls */
    struct convoy_engine_figures figures;
};

/* Forgets everything. */
struct fake_transfer *fake_transfer_reset(void);

/* Handles that were started and not released. */
uint32_t fake_transfer_live(void);

#endif
