/* SPDX-License-Identifier: Apache-2.0 */
#include "core/copy_choice.h"

#define FIRST_TRIES 2u   /* of each way, in turns */
#define AGAIN_EVERY 256u /* copies, then another way is tried once */
#define CLEARLY 20u      /* by a twentieth */

static size_t class_of(size_t bytes)
{
    return bytes >= 16 * CONVOY_COPY_LEARN_FROM ? 2 : bytes >= 4 * CONVOY_COPY_LEARN_FROM ? 1 : 0;
}

static enum convoy_copy_way possible(uint32_t way)
{
    return convoy_copy_can((enum convoy_copy_way)way) ? (enum convoy_copy_way)way : CONVOY_COPY_PLAIN;
}

enum convoy_copy_way convoy_copy_choice_usual(size_t bytes)
{
    return possible(bytes < CONVOY_COPY_LEARN_FROM || class_of(bytes) == 0 ? CONVOY_COPY_PLAIN : CONVOY_COPY_STREAM);
}

/* The usual way, unless another one was clearly faster: no two copies take equally long. */
static enum convoy_copy_way best_of(const struct convoy_copy_choice *choice, size_t bytes)
{
    size_t class = class_of(bytes);
    enum convoy_copy_way best = convoy_copy_choice_usual(bytes);
    uint32_t least = atomic_load_explicit(&choice->classes[class].cost[best], memory_order_relaxed);
    least -= least / CLEARLY;
    for (uint32_t way = 0; way < CONVOY_COPY_WAYS && least != 0; way++) {
        uint32_t cost = atomic_load_explicit(&choice->classes[class].cost[way], memory_order_relaxed);
        if (cost != 0 && cost < least) {
            least = cost;
            best = (enum convoy_copy_way)way;
        }
    }
    return best;
}

enum convoy_copy_way convoy_copy_choice_best(const struct convoy_copy_choice *choice, size_t bytes)
{
    return bytes < CONVOY_COPY_LEARN_FROM ? CONVOY_COPY_PLAIN : best_of(choice, bytes);
}

enum convoy_copy_way convoy_copy_choice_next(struct convoy_copy_choice *choice, size_t bytes)
{
    if (bytes < CONVOY_COPY_LEARN_FROM) {
        return CONVOY_COPY_PLAIN;
    }
    size_t class = class_of(bytes);
    uint32_t turns = atomic_load_explicit(&choice->classes[class].turns, memory_order_relaxed);
    if (turns < FIRST_TRIES * CONVOY_COPY_WAYS) {
        return possible(turns % CONVOY_COPY_WAYS);
    }
    return turns % AGAIN_EVERY == 0 ? possible(turns / AGAIN_EVERY % CONVOY_COPY_WAYS) : best_of(choice, bytes);
}

void convoy_copy_choice_learn(struct convoy_copy_choice *choice, size_t bytes, enum convoy_copy_way way,
                              uint64_t took_ns)
{
    if (bytes < CONVOY_COPY_LEARN_FROM) {
        return;
    }
    size_t class = class_of(bytes);
    uint64_t now = took_ns * 1000 / bytes;
    now = now == 0 ? 1 : now < UINT32_MAX / 8 ? now : UINT32_MAX / 8;
    _Atomic uint32_t *cost = &choice->classes[class].cost[way];
    uint32_t before = atomic_load_explicit(cost, memory_order_relaxed);
    /* What disturbs a copy only makes it slower, so a faster one is believed at once and a slower one by and by. */
    uint32_t after = before == 0 || now < before ? (uint32_t)now : before + ((uint32_t)now - before + 3) / 4;
    atomic_store_explicit(cost, after, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&choice->classes[class].turns, 1, memory_order_relaxed);
}
