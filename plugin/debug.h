/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the debug build checks: that calls of "one thread" are made by one, that a call of a group does not come from
 * a callback of another one of it, and that nothing is called on a closed context. Handles of closed contexts are not
 * freed there, so that they can still say so. In other builds all of this is nothing.
 */
#ifndef CONVOY_PLUGIN_DEBUG_H
#define CONVOY_PLUGIN_DEBUG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Who is inside; 0 = nobody. */
typedef _Atomic uintptr_t convoy_debug_owner;

#ifdef CONVOY_DEBUG
static inline bool convoy_debug_take(convoy_debug_owner *owner)
{
    uintptr_t nobody = 0;
    return atomic_compare_exchange_strong(owner, &nobody, (uintptr_t)pthread_self());
}

static inline void convoy_debug_give(convoy_debug_owner *owner)
{
    atomic_store(owner, 0);
}

static inline bool convoy_debug_is_own(const convoy_debug_owner *owner)
{
    return atomic_load(owner) == (uintptr_t)pthread_self();
}
#else
static inline bool convoy_debug_take(convoy_debug_owner *owner)
{
    (void)owner;
    return true;
}

static inline void convoy_debug_give(convoy_debug_owner *owner)
{
    (void)owner;
}

static inline bool convoy_debug_is_own(const convoy_debug_owner *owner)
{
    (void)owner;
    return false;
}
#endif

#endif
