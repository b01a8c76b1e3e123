/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of large pieces of memory. A copy that is not read again by the processor that makes it is better written past
 * its caches (streaming stores): no line is read before it is overwritten, and nothing else is pushed out. Whether and
 * from which size that pays is a property of the machine (core/copy_choice.h).
 *
 * Streaming stores are weakly ordered: a release store after them does not cover them. convoy_copy_stream ends with the
 * fence that does, so that whoever publishes the bytes needs to know nothing of this.
 */
#ifndef CONVOY_CORE_COPY_H
#define CONVOY_CORE_COPY_H

#include <stdbool.h>
#include <stddef.h>

#define CONVOY_COPY_NEVER ((size_t)-1)

/* The plain copy for less than `stream_from` bytes, streaming stores from there on. No overlap. */
void convoy_copy(void *to, const void *from, size_t bytes, size_t stream_from);

/* With streaming stores at any size and alignment, fenced. Where the processor has none: memcpy. */
void convoy_copy_stream(void *to, const void *from, size_t bytes);

/* Whether this build has streaming stores. */
bool convoy_copy_can_stream(void);

#endif
