/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/state.h"

struct state_row {
    const char *name;
    uint32_t next; /* bit per state that may follow */
    bool is_end;
};

#define TO(state) (1u << CONVOY_TRANSFER_##state)
#define EARLY (TO(FAILED) | TO(ABORTED))
#define ROW(state, end, following)                                                                                     \
    [CONVOY_TRANSFER_##state] = {.name = #state, .next = (following), .is_end = (end)}

static const struct state_row states[CONVOY_XFER_STATES] = {
    [0] = {.name = "NONE"},
    ROW(STAGING, false, TO(STAGED) | EARLY),
    ROW(STAGED, true, EARLY),
    ROW(QUEUED, false, TO(OFFERED) | EARLY),
    ROW(OFFERED, false, TO(SENT) | EARLY),
    ROW(SENT, true, 0),
    ROW(WAITING, false, TO(LOADING) | EARLY),
    ROW(LOADING, false, TO(LOADED) | EARLY),
    ROW(LOADED, true, 0),
    ROW(RESERVED, false, TO(FILLING) | EARLY),
    ROW(FILLING, false, TO(FILLED) | EARLY),
    ROW(FILLED, true, 0),
    ROW(FAILED, true, 0),
    ROW(ABORTED, true, 0),
};

static const uint32_t firsts[CONVOY_XFER_KINDS] = {
    [CONVOY_XFER_STAGE] = CONVOY_TRANSFER_STAGING,
    [CONVOY_XFER_SEND] = CONVOY_TRANSFER_QUEUED,
    [CONVOY_XFER_LOAD] = CONVOY_TRANSFER_WAITING,
    [CONVOY_XFER_SLOT] = CONVOY_TRANSFER_RESERVED,
};

static const char *const kinds[CONVOY_XFER_KINDS] = {"none", "stage", "send", "load", "slot"};

uint32_t convoy_xfer_state_first(enum convoy_xfer_kind kind)
{
    return kind < CONVOY_XFER_KINDS ? firsts[kind] : 0;
}

bool convoy_xfer_state_may(uint32_t from, uint32_t to)
{
    return from < CONVOY_XFER_STATES && to < CONVOY_XFER_STATES && (states[from].next & 1u << to) != 0;
}

bool convoy_xfer_state_is_end(uint32_t state)
{
    return state < CONVOY_XFER_STATES && states[state].is_end;
}

const char *convoy_xfer_state_name(uint32_t state)
{
    return state < CONVOY_XFER_STATES ? states[state].name : "UNKNOWN";
}

const char *convoy_xfer_kind_name(enum convoy_xfer_kind kind)
{
    return kind < CONVOY_XFER_KINDS ? kinds[kind] : "unknown";
}
