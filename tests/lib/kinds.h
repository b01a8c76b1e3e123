/* SPDX-License-Identifier: Apache-2.0 */
/* One request with a tensor of every kind: each class of dtype, lists with holes, no elements, no dimensions, strides. */
#ifndef TESTS_LIB_KINDS_H
#define TESTS_LIB_KINDS_H

#include "tests/lib/engines.h"

/* Static storage. */
struct convoy_stage kinds_stage(void);

/* That the engine has looked at (engine_look) exactly that. */
void kinds_check(const struct engine *engine);

#endif
