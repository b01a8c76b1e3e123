/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host.h"

#include "core/clock.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/memory.h"
#include "device/parts.h"

#include <pthread.h>
#include <signal.h>

/* Phases of a copy that begin has accepted. */
enum host_phase {
    HOST_QUEUED = 0,
    HOST_COPYING,
    HOST_ENDED,
    HOST_STOPPED, /* ended before its end */
};

struct host {
    pthread_mutex_t lock;
    pthread_cond_t filled; /* the thread sleeps on it */
    pthread_cond_t ended;  /* those who wait for a copy sleep on it */
    struct convoy_device_copy *first;
    struct convoy_device_copy *last;
    struct convoy_host_options options;
    pthread_t thread;
    bool has_thread;
    bool is_leaving;
};

/* -- copying ------------------------------------------------------------------------------------------------------- */

static void mark_publish(const struct convoy_copy_order *order, uint64_t bytes)
{
    if (order->mark != NULL) {
        __atomic_store_n(order->mark, bytes, __ATOMIC_RELEASE);
    }
}

static bool copy_is_stopped(const struct convoy_device_copy *copy)
{
    return __atomic_load_n(&copy->is_stopped, __ATOMIC_RELAXED) != 0;
}

/* The size of the piece, not of the chunk, says whether its bytes would only push others out of the caches. */
static bool piece_copy(const struct host *host, const struct convoy_device_copy *copy,
                       const struct convoy_copy_piece *piece, uint64_t before)
{
    size_t stream_from = host->options.stream_from;
    bool is_streaming = stream_from != 0 && piece->bytes >= stream_from;
    for (uint64_t done = 0; done < piece->bytes;) {
        uint64_t left = piece->bytes - done;
        uint64_t chunk = left < host->options.chunk_bytes ? left : host->options.chunk_bytes;
        if (copy_is_stopped(copy)) {
            return false;
        }
        convoy_copy((uint8_t *)piece->to + done, (const uint8_t *)piece->from + done, (size_t)chunk,
                    is_streaming ? CONVOY_COPY_STREAM : CONVOY_COPY_PLAIN);
        done += chunk;
        mark_publish(&copy->order, before + done);
    }
    return true;
}

static enum host_phase copy_make(const struct host *host, const struct convoy_device_copy *copy)
{
    const struct convoy_copy_order *order = &copy->order;
    uint64_t before = 0;
    for (size_t i = 0; i < order->count; i++) {
        if (!piece_copy(host, copy, &order->pieces[i], before)) {
            return HOST_STOPPED;
        }
        before += order->pieces[i].bytes;
    }
    if (order->event != NULL) {
        __atomic_store_n((uint32_t *)order->event, 1, __ATOMIC_RELEASE);
    }
    return HOST_ENDED;
}

/* -- queue --------------------------------------------------------------------------------------------------------- */

static void queue_put_locked(struct host *host, struct convoy_device_copy *copy)
{
    copy->next = NULL;
    if (host->first == NULL) {
        host->first = copy;
    } else {
        host->last->next = copy;
    }
    host->last = copy;
}

/* false: it is not in the queue (any more). */
static bool queue_remove_locked(struct host *host, struct convoy_device_copy *copy)
{
    struct convoy_device_copy *before = NULL;
    struct convoy_device_copy *at = host->first;
    while (at != NULL && at != copy) {
        before = at;
        at = at->next;
    }
    if (at == NULL) {
        return false;
    }
    if (before == NULL) {
        host->first = copy->next;
    } else {
        before->next = copy->next;
    }
    host->last = host->last == copy ? before : host->last;
    return true;
}

static void phase_set(struct convoy_device_copy *copy, enum host_phase phase)
{
    __atomic_store_n(&copy->phase, (uint32_t)phase, __ATOMIC_RELEASE);
}

/* Makes one that is out of the queue, with the lock released. The end is the last that is done with `copy`. */
static void copy_make_unlocked(struct host *host, struct convoy_device_copy *copy)
{
    phase_set(copy, HOST_COPYING);
    (void)pthread_mutex_unlock(&host->lock);
    enum host_phase phase = copy_make(host, copy);
    (void)pthread_mutex_lock(&host->lock);
    phase_set(copy, phase);
    (void)pthread_cond_broadcast(&host->ended);
}

static void *host_thread(void *argument)
{
    struct host *host = argument;
    (void)pthread_mutex_lock(&host->lock);
    while (!host->is_leaving) {
        struct convoy_device_copy *copy = host->first;
        if (copy == NULL) {
            (void)pthread_cond_wait(&host->filled, &host->lock);
            continue;
        }
        (void)queue_remove_locked(host, copy);
        copy_make_unlocked(host, copy);
    }
    (void)pthread_mutex_unlock(&host->lock);
    return NULL;
}

/* It takes no signal of the host's. */
static int32_t thread_start_locked(struct host *host, struct convoy_error *error)
{
    sigset_t all;
    sigset_t old;
    if (host->has_thread) {
        return CONVOY_OK;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&host->thread, NULL, host_thread, host);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, failed, "device host: no thread for copies");
    }
    host->has_thread = true;
    return CONVOY_OK;
}

/* -- operations ---------------------------------------------------------------------------------------------------- */

static int32_t host_query(void *self, const void *address, struct convoy_memory_info *info_out,
                          struct convoy_error *error)
{
    (void)self;
    (void)address;
    (void)error;
    info_out->kind = CONVOY_MEMORY_HOST;
    info_out->device = -1;
    return CONVOY_OK;
}

static int32_t host_begin(void *self, struct convoy_device_copy *copy, struct convoy_error *error)
{
    struct host *host = self;
    copy->is_stopped = 0;
    if (!host->options.never_inline && copy->bytes <= host->options.inline_bytes) {
        phase_set(copy, copy_make(host, copy));
        return CONVOY_OK;
    }
    (void)pthread_mutex_lock(&host->lock);
    int32_t status = thread_start_locked(host, error);
    if (status == CONVOY_OK) {
        phase_set(copy, HOST_QUEUED);
        queue_put_locked(host, copy);
        (void)pthread_cond_signal(&host->filled);
    }
    (void)pthread_mutex_unlock(&host->lock);
    return status;
}

static int32_t host_test(void *self, struct convoy_device_copy *copy, bool *quiet_out, struct convoy_error *error)
{
    (void)self;
    (void)quiet_out; /* nothing is left behind by memcpy */
    uint32_t phase = __atomic_load_n(&copy->phase, __ATOMIC_ACQUIRE);
    if (phase == HOST_STOPPED) {
        return convoy_error_set(error, CONVOY_CANCELED, "device host: the copy was canceled");
    }
    return phase == HOST_ENDED ? CONVOY_OK : CONVOY_IN_PROGRESS;
}

/* At a byte in a nanosecond, which is slow, it ends before the deadline. */
static bool copy_is_soon_made(const struct convoy_device_copy *copy, uint64_t deadline_ns)
{
    return convoy_deadline_left(convoy_now_ns(), deadline_ns) >= copy->bytes;
}

/* The one who waits has nothing better to do than to copy, and is awake already. */
static void host_sleep(void *self, struct convoy_device_copy *copy, uint64_t deadline_ns)
{
    struct host *host = self;
    (void)pthread_mutex_lock(&host->lock);
    if (copy_is_soon_made(copy, deadline_ns) && queue_remove_locked(host, copy)) {
        copy_make_unlocked(host, copy);
    }
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / CONVOY_NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % CONVOY_NS_PER_S)};
    uint32_t phase = __atomic_load_n(&copy->phase, __ATOMIC_ACQUIRE);
    if (phase != HOST_ENDED && phase != HOST_STOPPED) {
        (void)pthread_cond_timedwait(&host->ended, &host->lock, &until);
    }
    (void)pthread_mutex_unlock(&host->lock);
}

static bool host_withdraw(void *self, struct convoy_device_copy *copy)
{
    struct host *host = self;
    (void)pthread_mutex_lock(&host->lock);
    bool is_removed = queue_remove_locked(host, copy);
    (void)pthread_mutex_unlock(&host->lock);
    __atomic_store_n(&copy->is_stopped, 1, __ATOMIC_RELAXED);
    return is_removed;
}

static int32_t host_event_query(void *self, void *event, struct convoy_error *error)
{
    (void)self;
    (void)error;
    return __atomic_load_n((const uint32_t *)event, __ATOMIC_ACQUIRE) != 0 ? CONVOY_OK : CONVOY_IN_PROGRESS;
}

static void host_destroy(void *self)
{
    struct host *host = self;
    (void)pthread_mutex_lock(&host->lock);
    host->is_leaving = true;
    (void)pthread_cond_signal(&host->filled);
    (void)pthread_mutex_unlock(&host->lock);
    if (host->has_thread) {
        (void)pthread_join(host->thread, NULL);
    }
    (void)pthread_cond_destroy(&host->filled);
    (void)pthread_cond_destroy(&host->ended);
    (void)pthread_mutex_destroy(&host->lock);
    convoy_memory_free(host);
}

static const struct convoy_device_ops host_ops = {
    .name = "host",
    .query = host_query,
    .begin = host_begin,
    .test = host_test,
    .sleep = host_sleep,
    .withdraw = host_withdraw,
    .event_query = host_event_query,
    .destroy = host_destroy,
};

/* -- opening ------------------------------------------------------------------------------------------------------- */

static void conditions_init(struct host *host)
{
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&host->filled, &attributes);
    (void)pthread_cond_init(&host->ended, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&host->lock, NULL);
}

int32_t convoy_host_open(const struct convoy_host_options *options, struct convoy_device **device_out,
                         struct convoy_error *error)
{
    if (options->chunk_bytes != 0 && options->chunk_bytes < CONVOY_HOST_CHUNK_BYTES_MIN) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device host: chunk_bytes %llu, allowed are %u and more",
                                (unsigned long long)options->chunk_bytes, CONVOY_HOST_CHUNK_BYTES_MIN);
    }
    struct host *host = convoy_memory_zalloc(sizeof *host);
    if (host == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "device host: no memory for %zu bytes", sizeof *host);
    }
    host->options = *options;
    host->options.chunk_bytes = options->chunk_bytes != 0 ? options->chunk_bytes : CONVOY_HOST_CHUNK_BYTES;
    host->options.inline_bytes = options->inline_bytes != 0 ? options->inline_bytes : CONVOY_HOST_INLINE_BYTES;
    conditions_init(host);
    int32_t status = convoy_device_make(&host_ops, host, options->tickets, device_out, error);
    if (status != CONVOY_OK) {
        host_destroy(host);
    }
    return status;
}
