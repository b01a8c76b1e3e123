/* SPDX-License-Identifier: Apache-2.0 */
#include "core/copy_choice.h"

#include "core/copy.h"

#define FIRST_TRIES 8u   /* in turns: four of each way */
#define AGAIN_EVERY 256u /* copies, then the slower way is tried once */

static size_t class_of(size_t bytes)
{
    return bytes >= 16 * CONVOY_COPY_LEARN_FROM ? 2 : bytes >= 4 * CONVOY_COPY_LEARN_FROM ? 1 : 0;
}

static bool is_streaming_best(const struct convoy_copy_choice *choice, size_t class)
{
    uint32_t plain = atomic_load_explicit(&choice->classes[class].cost[0], memory_order_relaxed);
    uint32_t streaming = atomic_load_explicit(&choice->classes[class].cost[1], memory_order_relaxed);
    return plain == 0 || streaming == 0 ? class != 0 : streaming < plain;
}

static size_t way(bool is_streaming)
{
    return is_streaming && convoy_copy_can_stream() ? 0 : CONVOY_COPY_NEVER;
}

size_t convoy_copy_choice_best(const struct convoy_copy_choice *choice, size_t bytes)
{
    return way(bytes >= CONVOY_COPY_LEARN_FROM && is_streaming_best(choice, class_of(bytes)));
}

size_t convoy_copy_choice_next(struct convoy_copy_choice *choice, size_t bytes)
{
    if (bytes < CONVOY_COPY_LEARN_FROM) {
        return CONVOY_COPY_NEVER;
    }
    size_t class = class_of(bytes);
    uint32_t turns = atomic_load_explicit(&choice->classes[class].turns, memory_order_relaxed);
    bool is_trial = turns < FIRST_TRIES ? turns % 2 != 0 : turns % AGAIN_EVERY == 0;
    bool best = turns < FIRST_TRIES ? class != 0 : is_streaming_best(choice, class);
    return way(is_trial ? !best : best);
}

void convoy_copy_choice_learn(struct convoy_copy_choice *choice, size_t bytes, size_t stream_from, uint64_t took_ns)
{
    if (bytes < CONVOY_COPY_LEARN_FROM) {
        return;
    }
    size_t class = class_of(bytes);
    uint64_t now = took_ns * 1000 / bytes;
    now = now == 0 ? 1 : now < UINT32_MAX / 8 ? now : UINT32_MAX / 8;
    _Atomic uint32_t *cost = &choice->classes[class].cost[stream_from == 0];
    uint32_t before = atomic_load_explicit(cost, memory_order_relaxed);
    /* What disturbs a copy only makes it slower, so a faster one is believed at once and a slower one by and by. */
    uint32_t after = before == 0 || now < before ? (uint32_t)now : before + ((uint32_t)now - before + 3) / 4;
    atomic_store_explicit(cost, after, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&choice->classes[class].turns, 1, memory_order_relaxed);
}
