/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of a replay are laid out: [dp][cp][tp]. The dp x cp x tp processes of one data-parallel rank are its
 * shard; their positions in it are cp x T + tp.
 */
#ifndef CONVOY_CLI_SHAPE_H
#define CONVOY_CLI_SHAPE_H

#include <stdint.h>

#define CONVOY_SHAPE_RANKS_MAX 64u

struct convoy_shape {
    uint32_t dp;
    uint32_t tp;
    uint32_t cp;
};

static inline uint32_t convoy_shape_shard(const struct convoy_shape *shape)
{
    return shape->tp * shape->cp;
}

static inline uint32_t convoy_shape_ranks(const struct convoy_shape *shape)
{
    return shape->dp * shape->tp * shape->cp;
}

static inline uint32_t convoy_shape_dp_of(const struct convoy_shape *shape, uint32_t rank)
{
    return rank / convoy_shape_shard(shape);
}

static inline uint32_t convoy_shape_position_of(const struct convoy_shape *shape, uint32_t rank)
{
    return rank % convoy_shape_shard(shape);
}

static inline uint32_t convoy_shape_tp_of(const struct convoy_shape *shape, uint32_t rank)
{
    return rank % shape->tp;
}

static inline uint32_t convoy_shape_cp_of(const struct convoy_shape *shape, uint32_t rank)
{
    return convoy_shape_position_of(shape, rank) / shape->tp;
}

#endif
