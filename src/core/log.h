/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines to the host. Host callbacks run only on a thread that called in (abi.md R18): a line from one of our own
 * threads is kept in a bounded ring and delivered by the next call of a host thread (convoy_log_flush). Lowercase,
 * "name value" pairs. Never on the path of a round that works.
 */
#ifndef CONVOY_CORE_LOG_H
#define CONVOY_CORE_LOG_H

#include "convoy/core.h"

#include <pthread.h>

#define CONVOY_LOG_RING_LINES 64
#define CONVOY_LOG_LINE_BYTES 240

struct convoy_log {
    convoy_log_fn write; /* NULL = nowhere */
    void *user;
    uint32_t level;
    uint32_t pending; /* lines in the ring; read without the lock to skip flushing */
    uint64_t dropped; /* lines lost because the ring was full, since that was said last */
    pthread_mutex_t lock;
    uint32_t head;
    uint32_t levels[CONVOY_LOG_RING_LINES];
    char lines[CONVOY_LOG_RING_LINES][CONVOY_LOG_LINE_BYTES];
};

void convoy_log_init(struct convoy_log *log, convoy_log_fn write, void *user, uint32_t level);
void convoy_log_fini(struct convoy_log *log);

/* Queues one line; never calls the host. [any thread, own threads included] */
void convoy_log_line(struct convoy_log *log, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Hands queued lines to the host, with no lock held. [host threads only] */
void convoy_log_flush(struct convoy_log *log);

#endif
