/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor can do beyond what every one of its kind can. Asked of it once: in a virtual machine the question
 * takes as long as a message. [any thread] */
#ifndef CONVOY_CORE_CPU_H
#define CONVOY_CORE_CPU_H

#include <stdbool.h>

/* Vectors of 32 bytes, which the kernel saves. */
bool convoy_cpu_has_avx2(void);

/* One instruction copies as fast as vectors do. */
bool convoy_cpu_has_fast_strings(void);

#endif
