/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/share.h"

#define TO(state) (1u << CONVOY_SHARE_##state)

static const struct {
    const char *name;
    uint32_t next; /* bit per state that may follow */
    bool is_pending;
} states[CONVOY_SHARE_STATES] = {
    [CONVOY_SHARE_NONE] = {"NONE", TO(WANTED) | TO(TAKEN), false},
    [CONVOY_SHARE_WANTED] = {"WANTED", TO(SENT) | TO(NONE), true},
    [CONVOY_SHARE_SENT] = {"SENT", TO(TAKEN) | TO(REFUSED) | TO(WANTED) | TO(NONE), true},
    [CONVOY_SHARE_TAKEN] = {"TAKEN", TO(NONE), false},
    [CONVOY_SHARE_REFUSED] = {"REFUSED", TO(NONE), false},
};

bool convoy_share_may(enum convoy_share_state from, enum convoy_share_state to)
{
    return from < CONVOY_SHARE_STATES && to < CONVOY_SHARE_STATES && (states[from].next & 1u << to) != 0;
}

const char *convoy_share_name(enum convoy_share_state state)
{
    return state < CONVOY_SHARE_STATES ? states[state].name : "UNKNOWN";
}

bool convoy_share_move(struct convoy_shares *shares, struct convoy_share *share, enum convoy_share_state state)
{
    if (!convoy_share_may(share->state, state)) {
        return false;
    }
    shares->pending_count -= states[share->state].is_pending;
    shares->pending_count += states[state].is_pending;
    share->state = state;
    return true;
}

struct convoy_share *convoy_shares_add(struct convoy_shares *shares, const struct convoy_pool_share *generation,
                                       enum convoy_share_state state)
{
    for (uint32_t i = 0; i < CONVOY_SHARES; i++) {
        struct convoy_share *share = &shares->rows[i];
        if (share->state == CONVOY_SHARE_NONE && convoy_share_move(shares, share, state)) {
            share->generation = generation->generation;
            share->base = generation->base;
            share->bytes = generation->bytes;
            return share;
        }
    }
    return NULL;
}

struct convoy_share *convoy_shares_at(struct convoy_shares *shares, uint64_t offset)
{
    for (uint32_t i = 0; i < CONVOY_SHARES; i++) {
        struct convoy_share *share = &shares->rows[i];
        if (share->state != CONVOY_SHARE_NONE && offset >= share->base && offset - share->base < share->bytes) {
            return share;
        }
    }
    return NULL;
}

struct convoy_share *convoy_shares_of(struct convoy_shares *shares, uint64_t generation)
{
    for (uint32_t i = 0; i < CONVOY_SHARES; i++) {
        if (shares->rows[i].state != CONVOY_SHARE_NONE && shares->rows[i].generation == generation) {
            return &shares->rows[i];
        }
    }
    return NULL;
}

struct convoy_share *convoy_shares_newest(struct convoy_shares *shares, enum convoy_share_state state)
{
    struct convoy_share *newest = NULL;
    for (uint32_t i = 0; i < CONVOY_SHARES; i++) {
        struct convoy_share *share = &shares->rows[i];
        if (share->state == state && (newest == NULL || share->generation > newest->generation)) {
            newest = share;
        }
    }
    return newest;
}

uint64_t convoy_shares_oldest(const struct convoy_shares *shares)
{
    uint64_t oldest = 0;
    for (uint32_t i = 0; i < CONVOY_SHARES; i++) {
        const struct convoy_share *share = &shares->rows[i];
        bool may_have = share->state == CONVOY_SHARE_TAKEN || share->state == CONVOY_SHARE_SENT;
        oldest = may_have && (oldest == 0 || share->generation < oldest) ? share->generation : oldest;
    }
    return oldest;
}
