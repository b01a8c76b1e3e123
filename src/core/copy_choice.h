/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which way large copies go on this machine: learnt from those that are made anyway. By classes of sizes each way is tried a
 * few times in turns; from then on the usual one is taken unless another one is clearly faster, and all are tried again now
 * and then, since machines change under their guests. The usual one depends on the size alone.
 *
 *   class   below 1 MiB    1 to 4 MiB    4 to 16 MiB    16 MiB and more
 *   usual   plain          plain         streaming      streaming
 *   learnt  -              yes           yes            yes
 *
 * [any thread; a guess that two threads make at once is as good as another]
 */
#ifndef CONVOY_CORE_COPY_CHOICE_H
#define CONVOY_CORE_COPY_CHOICE_H

#include "core/copy.h"

#include <stdatomic.h>
#include <stdint.h>

#define CONVOY_COPY_CLASSES 3u
#define CONVOY_COPY_LEARN_FROM ((size_t)1 << 20)

/* All zero: nothing was learnt. */
struct convoy_copy_choice {
    struct {
        _Atomic uint32_t turns;                  /* copies that were learnt from */
        _Atomic uint32_t cost[CONVOY_COPY_WAYS]; /* picoseconds a byte of late; 0 = never tried */
    } classes[CONVOY_COPY_CLASSES];
};

/* The usual way. */
enum convoy_copy_way convoy_copy_choice_usual(size_t bytes);

/* The way to go for a copy that is learnt from. */
enum convoy_copy_way convoy_copy_choice_next(struct convoy_copy_choice *choice, size_t bytes);

/* The way to go for one that is not. */
enum convoy_copy_way convoy_copy_choice_best(const struct convoy_copy_choice *choice, size_t bytes);

/* way: what next answered. */
void convoy_copy_choice_learn(struct convoy_copy_choice *choice, size_t bytes, enum convoy_copy_way way,
                              uint64_t took_ns);

#endif
