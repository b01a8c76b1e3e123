/* SPDX-License-Identifier: Apache-2.0 */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void convoy_log_init(struct convoy_log *log, convoy_log_fn write, void *user, uint32_t level)
{
    log->write = write;
    log->user = user;
    log->level = level != 0 ? level : CONVOY_LOG_WARN;
    log->pending = 0;
    log->dropped = 0;
    log->head = 0;
    (void)pthread_mutex_init(&log->lock, NULL);
}

void convoy_log_fini(struct convoy_log *log)
{
    (void)pthread_mutex_destroy(&log->lock);
}

void convoy_log_line(struct convoy_log *log, uint32_t level, const char *format, ...)
{
    if (log->write == NULL || level > log->level) {
        return;
    }
    (void)pthread_mutex_lock(&log->lock);
    if (log->pending == CONVOY_LOG_RING_LINES) {
        log->dropped++;
    } else {
        uint32_t slot = (log->head + log->pending) % CONVOY_LOG_RING_LINES;
        va_list args;
        va_start(args, format);
        (void)vsnprintf(log->lines[slot], CONVOY_LOG_LINE_BYTES, format, args);
        va_end(args);
        log->levels[slot] = level;
        __atomic_store_n(&log->pending, log->pending + 1, __ATOMIC_RELAXED);
    }
    (void)pthread_mutex_unlock(&log->lock);
}

/* Takes the oldest line out, or what is to be said of lines that found no room; 0 when there is none. */
static uint32_t log_take(struct convoy_log *log, char line[CONVOY_LOG_LINE_BYTES])
{
    uint32_t level = 0;
    (void)pthread_mutex_lock(&log->lock);
    if (log->pending == 0 && log->dropped != 0) { /* behind the lines that were there before them */
        level = CONVOY_LOG_WARN;
        (void)snprintf(line, CONVOY_LOG_LINE_BYTES, "%llu log lines found no room before a call came to take them",
                       (unsigned long long)log->dropped);
        log->dropped = 0;
    } else if (log->pending != 0) {
        level = log->levels[log->head];
        memcpy(line, log->lines[log->head], CONVOY_LOG_LINE_BYTES);
        log->head = (log->head + 1) % CONVOY_LOG_RING_LINES;
        __atomic_store_n(&log->pending, log->pending - 1, __ATOMIC_RELAXED);
    }
    (void)pthread_mutex_unlock(&log->lock);
    return level;
}

void convoy_log_flush(struct convoy_log *log)
{
    if (__atomic_load_n(&log->pending, __ATOMIC_RELAXED) == 0) {
        return;
    }
    char line[CONVOY_LOG_LINE_BYTES];
    for (uint32_t i = 0; i <= CONVOY_LOG_RING_LINES; i++) { /* bounded: a busy writer cannot keep us here */
        uint32_t level = log_take(log, line);
        if (level == 0) {
            return;
        }
        log->write(log->user, level, line, strlen(line));
    }
}
