/* SPDX-License-Identifier: Apache-2.0 */
#include "net/runtime.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/version.h"
#include "net/ucx.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

int32_t convoy_runtime_random(void *bytes_out, size_t bytes, struct convoy_error *error)
{
    assert(bytes <= 256); /* up to here the kernel promises whole answers */
    ssize_t got;
    do {
        got = getrandom(bytes_out, bytes, 0);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)bytes) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "random numbers");
    }
    return CONVOY_OK;
}

uint32_t convoy_runtime_salt(struct convoy_runtime *runtime)
{
    uint64_t ordinal = atomic_fetch_add_explicit(&runtime->salt_count, 1, memory_order_relaxed);
    return (uint32_t)(runtime->incarnation + ordinal) & 0xffffffu;
}

static int32_t runtime_copy_secret(struct convoy_runtime *runtime, const struct convoy_context_config *config,
                                   struct convoy_error *error)
{
    size_t bytes = config->secret != NULL ? config->secret_bytes : 0;
    runtime->secret = convoy_memory_zalloc(bytes);
    if (runtime->secret == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the secret of %zu bytes", bytes);
    }
    if (bytes != 0) {
        memcpy(runtime->secret, config->secret, bytes);
    }
    runtime->secret_bytes = bytes;
    return CONVOY_OK;
}

static int32_t runtime_fill(struct convoy_runtime *runtime, const struct convoy_context_config *config,
                            struct convoy_error *error)
{
    int32_t status = convoy_settings_load(&runtime->settings, config->settings, config->settings_length, error);
    if (status == CONVOY_OK) {
        status = convoy_runtime_random(&runtime->incarnation, sizeof runtime->incarnation, error);
    }
    if (status == CONVOY_OK) {
        status = runtime_copy_secret(runtime, config, error);
    }
    runtime->incarnation |= runtime->incarnation == 0;
    return status;
}

static void runtime_tell_unknown(void *user, const char *name)
{
    struct convoy_runtime *runtime = user;
    convoy_log_line(&runtime->log, CONVOY_LOG_WARN, "environment variable %s is no setting and has no effect", name);
}

int32_t convoy_runtime_open(const struct convoy_context_config *config, struct convoy_runtime **runtime_out,
                            struct convoy_error *error)
{
    struct convoy_runtime *runtime = convoy_memory_zalloc(sizeof *runtime);
    if (runtime == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a context of %zu bytes", sizeof *runtime);
    }
    runtime->wire_min = CONVOY_WIRE_MIN;
    runtime->wire_max = CONVOY_WIRE_MAX;
    convoy_log_init(&runtime->log, config->log, config->log_user, config->log_level);
    (void)pthread_mutex_init(&runtime->lock, NULL);
    int32_t status = runtime_fill(runtime, config, error);
    if (status != CONVOY_OK) {
        convoy_runtime_destroy(runtime);
        return status;
    }
    convoy_settings_unknown(runtime_tell_unknown, runtime);
    convoy_log_flush(&runtime->log);
    *runtime_out = runtime;
    return CONVOY_OK;
}

void convoy_runtime_destroy(struct convoy_runtime *runtime)
{
    if (runtime == NULL) {
        return;
    }
    assert(runtime->thread_count == 0 && runtime->listeners == NULL);
    convoy_ucx_destroy(runtime->ucx);
    if (runtime->secret != NULL) {
        sodium_memzero(runtime->secret, runtime->secret_bytes);
        convoy_memory_free(runtime->secret);
    }
    (void)pthread_mutex_destroy(&runtime->lock);
    convoy_log_fini(&runtime->log);
    convoy_memory_free(runtime);
}

int32_t convoy_runtime_thread_start(struct convoy_runtime *runtime, const char *name, void *(*main_fn)(void *),
                                    void *argument, pthread_t *thread_out)
{
    sigset_t all;
    sigset_t old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old); /* the new thread inherits it: no signal of the host lands there */
    int failed = pthread_create(thread_out, NULL, main_fn, argument);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed != 0) {
        errno = failed;
        return CONVOY_SYSTEM;
    }
    runtime->thread_count++;
    char full[16];
    (void)snprintf(full, sizeof full, "convoy-%s", name);
    (void)pthread_setname_np(*thread_out, full);
    return CONVOY_OK;
}

void convoy_runtime_thread_join(struct convoy_runtime *runtime, pthread_t thread)
{
    (void)pthread_join(thread, NULL);
    runtime->thread_count--;
}
