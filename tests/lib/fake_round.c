/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/fake_round.h"

#include <stdlib.h>

static int32_t round_merge_host(const struct fake_round *round, uint32_t host)
{
    void *state = round->states[host];
    round->ops->begin(state);
    for (uint32_t i = 0; i < round->member_count; i++) {
        const struct fake_round_member *member = &round->members[i];
        if (round->host_of[i] != host) {
            continue;
        }
        if (member->absence != 0) {
            round->ops->absent(state, i, member->absence, -1);
            continue;
        }
        int32_t status = round->ops->member(state, i, member->payload, member->bytes);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* What a state says, in a block of exactly that length, so that a sanitizer sees a read behind it. */
static uint8_t *round_encode(const struct fake_round *round, const void *state, size_t *length_out)
{
    uint8_t *room = malloc(round->partial_bytes_max);
    *length_out = round->ops->encode(state, room, round->partial_bytes_max);
    if (*length_out == 0) {
        abort();
    }
    return realloc(room, *length_out);
}

static int32_t round_exchange(const struct fake_round *round, uint8_t *const *blobs, const size_t *lengths)
{
    for (uint32_t host = 0; host < round->host_count; host++) {
        for (uint32_t step = 1; step < round->host_count; step++) {
            uint32_t other = (host + step) % round->host_count;
            int32_t status = round->ops->partial(round->states[host], blobs[other], lengths[other]);
            if (status != CONVOY_OK) {
                return status;
            }
        }
    }
    return CONVOY_OK;
}

static int32_t round_hand_down(const struct fake_round *round)
{
    size_t length;
    void *state = round->states[round->host_count];
    uint8_t *whole = round_encode(round, round->states[0], &length);
    round->ops->begin(state);
    int32_t status = round->ops->partial(state, whole, length);
    free(whole);
    return status;
}

int32_t fake_round_run(const struct fake_round *round)
{
    int32_t status = CONVOY_OK;
    uint8_t **blobs = calloc(round->host_count, sizeof *blobs);
    size_t *lengths = calloc(round->host_count, sizeof *lengths);
    for (uint32_t host = 0; host < round->host_count && status == CONVOY_OK; host++) {
        status = round_merge_host(round, host);
        if (status == CONVOY_OK) {
            blobs[host] = round_encode(round, round->states[host], &lengths[host]);
        }
    }
    if (status == CONVOY_OK) {
        status = round_exchange(round, blobs, lengths);
    }
    if (status == CONVOY_OK) {
        status = round_hand_down(round);
    }
    for (uint32_t host = 0; host < round->host_count; host++) {
        free(blobs[host]);
    }
    free(blobs);
    free(lengths);
    return status;
}
