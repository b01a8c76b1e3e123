/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of a transfer and which may follow which, as one table. Pure.
 *
 *   stage   STAGING -> STAGED                          what ends early:  any state that is no end -> FAILED | ABORTED
 *   send    QUEUED  -> OFFERED -> SENT                                   STAGED too: its lease ends, or it is aborted
 *   load    WAITING -> LOADING -> LOADED
 *   slot    RESERVED -> FILLING -> FILLED
 */
#ifndef CONVOY_XFER_STATE_H
#define CONVOY_XFER_STATE_H

#include "convoy/payload.h"

#include <stdbool.h>

#define CONVOY_XFER_STATES 14u /* 0 = none, then CONVOY_TRANSFER_* */

/* The four kinds of transfer, each with a first state of its own. */
enum convoy_xfer_kind {
    CONVOY_XFER_NONE = 0,
    CONVOY_XFER_STAGE,
    CONVOY_XFER_SEND,
    CONVOY_XFER_LOAD,
    CONVOY_XFER_SLOT,
    CONVOY_XFER_KINDS,
};

uint32_t convoy_xfer_state_first(enum convoy_xfer_kind kind);

/* Whether `to` may follow `from`. */
bool convoy_xfer_state_may(uint32_t from, uint32_t to);

/* STAGED, SENT, LOADED, FILLED, FAILED, ABORTED: whoever waits is answered. */
bool convoy_xfer_state_is_end(uint32_t state);

const char *convoy_xfer_state_name(uint32_t state);
const char *convoy_xfer_kind_name(enum convoy_xfer_kind kind);

#endif
