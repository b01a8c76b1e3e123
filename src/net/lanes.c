/* SPDX-License-Identifier: Apache-2.0 */
#include "net/lanes.h"

#include <arpa/inet.h>
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LANE_MAGIC "cvL1"
#define LANE_HEAD_BYTES 13u
#define LANE_ROW_BYTES (4u + 16u + CONVOY_INTERFACE_NAME_BYTES + 4u)

/* -- bytes --------------------------------------------------------------------------------------------------------- */

static uint8_t *put_number(uint8_t *out, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(number >> 8 * i);
    }
    return out + bytes;
}

static uint64_t get_number(const uint8_t *in, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++) {
        number |= (uint64_t)in[i] << 8 * i;
    }
    return number;
}

size_t convoy_lane_set_bytes(const struct convoy_lane_set *set)
{
    size_t bytes = LANE_HEAD_BYTES;
    for (uint32_t i = 0; i < set->count; i++) {
        bytes += LANE_ROW_BYTES + set->lanes[i].worker_address_bytes;
    }
    return bytes;
}

void convoy_lane_set_encode(const struct convoy_lane_set *set, uint8_t *out)
{
    assert(set->count <= CONVOY_LANES_MAX);
    memcpy(out, LANE_MAGIC, 4);
    out = put_number(out + 4, set->network, 8);
    *out++ = (uint8_t)set->count;
    for (uint32_t i = 0; i < set->count; i++) {
        const struct convoy_lane *lane = &set->lanes[i];
        *out++ = (uint8_t)lane->kind;
        *out++ = lane->has_fabric;
        *out++ = lane->address.family;
        *out++ = lane->address.prefix;
        memcpy(out, lane->address.bytes, 16);
        memcpy(out + 16, lane->name, CONVOY_INTERFACE_NAME_BYTES);
        out = put_number(out + 16 + CONVOY_INTERFACE_NAME_BYTES, lane->worker_address_bytes, 4);
        memcpy(out, lane->worker_address, lane->worker_address_bytes);
        out += lane->worker_address_bytes;
    }
}

/* One lane from the front; returns the bytes it took, 0 = malformed. */
static size_t lane_decode(const uint8_t *bytes, size_t length, struct convoy_lane *lane)
{
    if (length < LANE_ROW_BYTES || bytes[0] > CONVOY_INTERFACE_LOOPBACK || bytes[1] > 1) {
        return 0;
    }
    lane->kind = (enum convoy_interface_kind)bytes[0];
    lane->has_fabric = bytes[1] != 0;
    lane->address.family = bytes[2];
    lane->address.prefix = bytes[3];
    memcpy(lane->address.bytes, bytes + 4, 16);
    memcpy(lane->name, bytes + 20, CONVOY_INTERFACE_NAME_BYTES);
    size_t worker_bytes = (size_t)get_number(bytes + LANE_ROW_BYTES - 4, 4);
    bool is_family_known = bytes[2] == 0 || bytes[2] == 4 || bytes[2] == 6;
    if (!is_family_known || lane->name[CONVOY_INTERFACE_NAME_BYTES - 1] != '\0' || worker_bytes == 0 ||
        worker_bytes > CONVOY_LANE_WORKER_BYTES_MAX || worker_bytes > length - LANE_ROW_BYTES) {
        return 0;
    }
    lane->worker_address = bytes + LANE_ROW_BYTES;
    lane->worker_address_bytes = worker_bytes;
    return LANE_ROW_BYTES + worker_bytes;
}

bool convoy_lane_set_decode(const uint8_t *bytes, size_t length, struct convoy_lane_set *set_out)
{
    struct convoy_lane_set set = {0};
    if (length < LANE_HEAD_BYTES || memcmp(bytes, LANE_MAGIC, 4) != 0) {
        return false;
    }
    set.network = get_number(bytes + 4, 8);
    set.count = bytes[LANE_HEAD_BYTES - 1];
    if (set.count == 0 || set.count > CONVOY_LANES_MAX) {
        return false;
    }
    size_t at = LANE_HEAD_BYTES;
    for (uint32_t i = 0; i < set.count; i++) {
        size_t taken = lane_decode(bytes + at, length - at, &set.lanes[i]);
        if (taken == 0) {
            return false;
        }
        at += taken;
    }
    *set_out = set;
    return at == length;
}

/* -- choice -------------------------------------------------------------------------------------------------------- */

static bool set_has_address(const struct convoy_lane_set *set, const struct convoy_interface_address *address)
{
    for (uint32_t i = 0; i < set->count; i++) {
        if (convoy_interface_address_equal(&set->lanes[i].address, address)) {
            return true;
        }
    }
    return false;
}

/* Cost of a pair in different network namespaces; INT_MAX = it does not reach. */
static int pair_cost_apart(const struct convoy_lane_set *my_set, const struct convoy_lane *mine,
                           const struct convoy_lane_set *their_set, const struct convoy_lane *theirs,
                           convoy_route_fn route)
{
    struct convoy_interface_address from;
    if (mine->kind == CONVOY_INTERFACE_LOOPBACK || theirs->kind == CONVOY_INTERFACE_LOOPBACK ||
        set_has_address(my_set, &theirs->address) || set_has_address(their_set, &mine->address)) {
        return INT_MAX;
    }
    if (!route(&theirs->address, &from) || !convoy_interface_address_equal(&from, &mine->address)) {
        return INT_MAX;
    }
    int kinds = (int)mine->kind + (int)theirs->kind;
    return 10 * kinds + (convoy_interface_address_near(&mine->address, &theirs->address) ? 0 : 2);
}

static int pair_cost(const struct convoy_lane_set *mine, uint32_t i, const struct convoy_lane_set *theirs, uint32_t j,
                     convoy_route_fn route)
{
    const struct convoy_lane *a = &mine->lanes[i];
    const struct convoy_lane *b = &theirs->lanes[j];
    int cost = INT_MAX;
    if (mine->network == theirs->network) {
        bool is_same = strcmp(a->name, b->name) == 0;
        cost = 10 * ((int)a->kind + (int)b->kind) + (is_same ? 0 : 5);
    } else if (a->address.family != 0 && b->address.family != 0) {
        cost = pair_cost_apart(mine, a, theirs, b, route);
    }
    if (a->has_fabric && b->has_fabric && cost > 50) {
        cost = 50; /* no IP between them, or none known: the fabric may still reach */
    }
    return cost;
}

bool convoy_lane_set_choose(const struct convoy_lane_set *mine, const struct convoy_lane_set *theirs,
                            convoy_route_fn route, struct convoy_lane_pair *pair_out)
{
    int best = INT_MAX;
    for (uint32_t i = 0; i < mine->count; i++) {
        for (uint32_t j = 0; j < theirs->count; j++) {
            int cost = pair_cost(mine, i, theirs, j, route);
            if (cost < best) {
                best = cost;
                *pair_out = (struct convoy_lane_pair){.mine = i, .theirs = j};
            }
        }
    }
    return best != INT_MAX;
}

void convoy_lane_set_text(const struct convoy_lane_set *set, char *text_out, size_t bytes)
{
    size_t used = 0;
    text_out[0] = '\0';
    for (uint32_t i = 0; i < set->count && used < bytes; i++) {
        const struct convoy_lane *lane = &set->lanes[i];
        char address[INET6_ADDRSTRLEN] = "no address";
        if (lane->address.family != 0) {
            (void)inet_ntop(lane->address.family == 4 ? AF_INET : AF_INET6, lane->address.bytes, address,
                            sizeof address);
        }
        int added = snprintf(text_out + used, bytes - used, "%s%s %s", i != 0 ? ", " : "",
                             lane->name[0] != '\0' ? lane->name : "any", address);
        used += added > 0 ? (size_t)added : 0;
    }
}
