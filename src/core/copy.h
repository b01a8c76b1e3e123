/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of large pieces of memory, in several ways. A copy that is not read again by the processor that makes it is
 * mostly better written past its caches (streaming stores): no line is read before it is overwritten, and nothing else is
 * pushed out. One that fits into them is often made fastest by the processor's own instruction for it. Which way is the
 * fastest for which size is a property of the machine (core/copy_choice.h).
 *
 * Streaming stores are weakly ordered: a release store after them does not cover them. The copy ends with the fence that
 * does, so that whoever publishes the bytes needs to know nothing of this.
 */
#ifndef CONVOY_CORE_COPY_H
#define CONVOY_CORE_COPY_H

#include <stdbool.h>
#include <stddef.h>

enum convoy_copy_way {
    CONVOY_COPY_PLAIN,  /* the C library's */
    CONVOY_COPY_STRING, /* one instruction of the processor */
    CONVOY_COPY_STREAM, /* streaming stores, at any size and alignment */
};

#define CONVOY_COPY_WAYS 3u

/* No overlap. Where the processor does not have the way: the plain one. NULL is allowed with 0 bytes. */
void convoy_copy(void *to, const void *from, size_t bytes, enum convoy_copy_way way);

/* Whether this build has that way on this processor, and it is worth trying. */
bool convoy_copy_can(enum convoy_copy_way way);

#endif
