/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all groups of one context share: log, settings, secret, the rendezvous listeners, UCX (opened when first
 * needed) and the count of our threads. Created by context_open, outlives every group of the context.
 */
#ifndef CONVOY_NET_RUNTIME_H
#define CONVOY_NET_RUNTIME_H

#include "core/log.h"
#include "core/settings.h"

#include <pthread.h>
#include <stdbool.h>

struct convoy_listener; /* net/listener.h: one TCP port, shared by the groups that open there */
struct convoy_ucx;      /* net/ucx.h: the bound UCX library */

struct convoy_runtime {
    struct convoy_log log;
    struct convoy_settings settings;
    uint8_t *secret;
    size_t secret_bytes;
    uint64_t incarnation;             /* random, never 0 */
    uint8_t build_id[8];              /* first bytes of this build's id, zero where the file has none */
    uint16_t wire_min;                /* wire versions that this build offers; tests narrow or widen them */
    uint16_t wire_max;
    _Atomic uint32_t thread_count;    /* own threads alive */
    _Atomic uint64_t stranger_count;  /* connections that were no members: no hello, wrong secret, silent */
    _Atomic uint64_t refused_count;   /* members refused: other epoch, other list, index taken, ... */
    _Atomic uint64_t salt_count;      /* of convoy_runtime_salt */
    pthread_mutex_t lock;             /* protects the two pointers below */
    struct convoy_listener *listeners;
    struct convoy_ucx *ucx; /* NULL until first needed */
};

/* config: borrowed for the call. INVALID_ARGUMENT: see convoy_settings_load. SYSTEM: no random numbers. */
int32_t convoy_runtime_open(const struct convoy_context_config *config, struct convoy_runtime **runtime_out,
                            struct convoy_error *error);

/* All groups are closed and threads joined by now. */
void convoy_runtime_destroy(struct convoy_runtime *runtime);

/* Starts a thread that blocks every signal, is named "convoy-<name>" (15 bytes) and counted. Join with
 * convoy_runtime_thread_join. SYSTEM: errno says why. */
int32_t convoy_runtime_thread_start(struct convoy_runtime *runtime, const char *name, void *(*main_fn)(void *),
                                    void *argument, pthread_t *thread_out);
void convoy_runtime_thread_join(struct convoy_runtime *runtime, pthread_t thread);

/* [any thread] 24 bits that make the operation values of one group its own: the next one of this runtime, counted from
 * a place of its own. What a closed group gave is not given again before 16 million others were opened. */
uint32_t convoy_runtime_salt(struct convoy_runtime *runtime);

/* Fills bytes (at most 256) from the kernel's generator. */
int32_t convoy_runtime_random(void *bytes_out, size_t bytes, struct convoy_error *error);

#endif
