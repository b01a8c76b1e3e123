/* SPDX-License-Identifier: Apache-2.0 */
#include "net/host_map.h"

#include "core/memory.h"

#include <string.h>

static bool both_have(const struct convoy_host_keys *a, const struct convoy_host_keys *b, uint32_t flag)
{
    return (a->flags & b->flags & flag) != 0;
}

bool convoy_host_keys_same_boot(const struct convoy_host_keys *a, const struct convoy_host_keys *b)
{
    return both_have(a, b, CONVOY_HOST_HAS_BOOT) && memcmp(a->boot, b->boot, sizeof a->boot) == 0;
}

/* Namespace and inode numbers mean something only on one kernel. */
bool convoy_host_keys_share_network(const struct convoy_host_keys *a, const struct convoy_host_keys *b)
{
    return both_have(a, b, CONVOY_HOST_HAS_NETWORK) && convoy_host_keys_same_boot(a, b) &&
           memcmp(a->network, b->network, sizeof a->network) == 0;
}

bool convoy_host_keys_share_directory(const struct convoy_host_keys *a, const struct convoy_host_keys *b)
{
    return both_have(a, b, CONVOY_HOST_HAS_DIRECTORY) && convoy_host_keys_same_boot(a, b) &&
           memcmp(a->directory, b->directory, sizeof a->directory) == 0;
}

static bool can_meet(const struct convoy_host_keys *a, const struct convoy_host_keys *b)
{
    return ((a->flags | b->flags) & CONVOY_HOST_ONLY_UCX) == 0 &&
           (convoy_host_keys_share_network(a, b) || convoy_host_keys_share_directory(a, b));
}

void convoy_host_map_candidates(const struct convoy_host_keys *keys, uint32_t count, uint32_t *leader_of_out)
{
    for (uint32_t i = 0; i < count; i++) {
        leader_of_out[i] = i;
        for (uint32_t leader = 0; leader < i; leader++) { /* the lowest that is itself nobody's follower */
            if (leader_of_out[leader] == leader && can_meet(&keys[leader], &keys[i])) {
                leader_of_out[i] = leader;
                break;
            }
        }
    }
}

uint32_t convoy_host_map_followers(const uint32_t *leader_of, uint32_t count, uint32_t leader)
{
    uint32_t followers = 0;
    for (uint32_t i = 0; i < count; i++) {
        followers += i != leader && leader_of[i] == leader;
    }
    return followers;
}

static bool is_plausible(const uint32_t *joined, const uint32_t *leader_of, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (joined[i] != i && (joined[i] != leader_of[i] || joined[joined[i]] != joined[i])) {
            return false;
        }
    }
    return true;
}

int32_t convoy_host_map_init(const uint32_t *joined, const uint32_t *leader_of, uint32_t count,
                             struct convoy_host_map *map_out)
{
    if (!is_plausible(joined, leader_of, count)) {
        return CONVOY_MALFORMED;
    }
    uint32_t *host_of = convoy_memory_array(count, sizeof *host_of);
    if (host_of == NULL) {
        return CONVOY_NO_MEMORY;
    }
    uint32_t host_count = 0;
    for (uint32_t i = 0; i < count; i++) { /* a leader has the lowest index of its host, so it comes first */
        host_of[i] = joined[i] == i ? host_count++ : host_of[joined[i]];
    }
    *map_out = (struct convoy_host_map){.member_count = count, .host_count = host_count, .host_of = host_of};
    return CONVOY_OK;
}

uint32_t convoy_host_map_size(const struct convoy_host_map *map, uint32_t index)
{
    uint32_t size = 0;
    for (uint32_t i = 0; i < map->member_count; i++) {
        size += map->host_of[i] == map->host_of[index];
    }
    return size;
}

void convoy_host_map_fini(struct convoy_host_map *map)
{
    convoy_memory_free(map->host_of);
    *map = (struct convoy_host_map){0};
}
