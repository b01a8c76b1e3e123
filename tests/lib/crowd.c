/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/crowd.h"

#include "tests/lib/expect.h"
#include "tests/lib/scale.h"

#include <stdlib.h>
#include <string.h>

struct ranks *crowd_start(uint32_t count, rank_fn run, size_t shared_bytes)
{
    struct crowd crowd;
    for (uint32_t i = 0; i < CROWD_PORTS; i++) {
        crowd.ports[i] = plugin_port();
    }
    struct ranks *ranks = ranks_create(count, shared_bytes);
    /* the ranks are forks: they have the crowd as it is now */
    ranks_start(ranks, run, &crowd, test_scale() > 1 ? CROWD_SOAK_TIMEOUT_MS : CROWD_TIMEOUT_MS);
    return ranks;
}

void crowd_run(uint32_t count, rank_fn run, size_t shared_bytes)
{
    ranks_finish(crowd_start(count, run, shared_bytes));
}

struct plugin_member *crowd_open(const struct rank *rank, const struct crowd *crowd, const char *name)
{
    struct plugin_member *member = plugin_member_create(rank->index, rank->count, name, crowd->ports[0]);
    plugin_member_open(member);
    return member;
}

void crowd_close(const struct rank *rank, struct plugin_member *member)
{
    rank_barrier(rank);
    plugin_member_destroy(member);
}

static struct plugin_member *level_open(const char *name, const int32_t *ids, uint32_t own_index, uint16_t port)
{
    struct plugin_member *member = plugin_member_create(own_index, 2, name, port);
    memcpy(member->ids, ids, 2 * sizeof *ids);
    member->options.own_id = ids[own_index];
    plugin_member_open(member);
    return member;
}

void crowd_levels_open(const struct rank *rank, const struct crowd *crowd, struct crowd_levels *levels_out)
{
    EXPECT_EQUAL(rank->count, 4);
    const uint32_t t = rank->index / 2;
    const uint32_t c = rank->index % 2;
    const int32_t first[2] = {(int32_t)c, (int32_t)(2 + c)};
    const int32_t second[2] = {(int32_t)(2 * t), (int32_t)(2 * t + 1)};
    levels_out->first = level_open("attention-tp", first, t, crowd->ports[c]);
    levels_out->second = level_open("attention-cp", second, c, crowd->ports[2 + t]);
}

void crowd_levels_close(const struct rank *rank, struct crowd_levels *levels)
{
    rank_barrier(rank);
    plugin_member_destroy(levels->second);
    plugin_member_destroy(levels->first);
}
