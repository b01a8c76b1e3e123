/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: opening, closing with everything in them, and the word that a fork wipes. */
#include "context.h"

#include "core/clock.h"
#include "core/memory.h"
#include "families.h"
#include "move.h"
#include "sized.h"

#include <errno.h>
#include <time.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A page of its own that reads as zero in a forked child: no atfork handler, no system call per check. A kernel that
 * does not know how to wipe (before 4.14, gVisor) costs a system call per check instead. */
static int32_t context_guard_open(struct convoy_context *context, struct convoy_error *error)
{
    long bytes = sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "mapping the fork guard");
    }
    bool is_wiped = madvise(page, (size_t)bytes, MADV_WIPEONFORK) == 0;
    if (!is_wiped && errno != EINVAL) {
        int reason = errno;
        (void)munmap(page, (size_t)bytes);
        return convoy_error_set_errno(error, CONVOY_SYSTEM, reason, "MADV_WIPEONFORK, needed to notice fork");
    }
    atomic_store((_Atomic uint32_t *)page, is_wiped ? CONVOY_ALIVE_HERE : CONVOY_ALIVE_ASK | (uint32_t)getpid());
    context->alive = page;
    return CONVOY_OK;
}

static void context_guard_close(struct convoy_context *context)
{
    (void)munmap((void *)(uintptr_t)context->alive, (size_t)sysconf(_SC_PAGESIZE));
}

static int32_t context_config_check(const struct convoy_context_config *config, struct convoy_error *error)
{
    if (config->critical_flags != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "config.critical_flags: 0x%x is unknown, none is defined",
                                config->critical_flags);
    }
    if (config->log_level > CONVOY_LOG_TRACE) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "config.log_level: %u is not in 0..%u",
                                config->log_level, (unsigned)CONVOY_LOG_TRACE);
    }
    if (config->secret_bytes > 1024 || (config->secret == NULL && config->secret_bytes != 0)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "config.secret_bytes: %zu is not in 0..1024, or secret is NULL", config->secret_bytes);
    }
    if (config->settings == NULL && config->settings_length != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "config.settings is NULL with settings_length %zu",
                                config->settings_length);
    }
    return CONVOY_OK;
}

/* The first bytes of the build id, for the hello. */
static void context_note_build(struct convoy_runtime *runtime)
{
    size_t length = 0;
    const char *text = convoy_build_id_text(&length);
    for (size_t i = 0; i < sizeof runtime->build_id && 2 * i + 1 < length; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        runtime->build_id[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
}

int32_t convoy_context_open(const struct convoy_context_config *config, convoy_context **context_out,
                            struct convoy_error *error)
{
    struct convoy_context_config full = {.struct_size = (uint32_t)sizeof full};
    int32_t status = config != NULL ? convoy_sized_in(&full, &CONVOY_SHAPE(context_config), config, error) : CONVOY_OK;
    if (status == CONVOY_OK && context_out == NULL) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "context_out is NULL");
    }
    if (status == CONVOY_OK) {
        status = context_config_check(&full, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_context *context = convoy_memory_zalloc(sizeof *context);
    if (context == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a context");
    }
    status = context_guard_open(context, error);
    if (status != CONVOY_OK) {
        goto undo_allocate;
    }
    status = convoy_runtime_open(&full, &context->runtime, error);
    if (status != CONVOY_OK) {
        goto undo_guard;
    }
    context_note_build(context->runtime);
    (void)pthread_mutex_init(&context->lock, NULL);
    atomic_store(&context->move, CONVOY_CONTEXT_RUNNING);
    *context_out = context;
    return CONVOY_OK;

undo_guard:
    context_guard_close(context);
undo_allocate:
    convoy_memory_free(context);
    return status;
}

/* Closes groups and engines one by one inside one deadline; the first that does not finish stops it. */
static int32_t context_shut_groups(struct convoy_context *context, uint64_t timeout_ns, struct convoy_error *error)
{
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), timeout_ns);
    const struct timespec pause = {.tv_nsec = 200000};
    while (atomic_load(&context->opening) != 0) { /* a blocking open is on another thread, or further up this one */
        if (convoy_now_ns() >= deadline) {
            return convoy_error_set(error, CONVOY_DRAIN_TIMEOUT, "a group is still opening; close the context again");
        }
        (void)nanosleep(&pause, NULL);
    }
    (void)pthread_mutex_lock(&context->lock);
    struct convoy_group *groups = context->groups;
    (void)pthread_mutex_unlock(&context->lock);
    for (struct convoy_group *group = groups; group != NULL; group = group->next) {
        uint64_t left = convoy_deadline_left(convoy_now_ns(), deadline);
        int32_t status = convoy_group_shut(group, left != 0 ? left : 1, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    (void)pthread_mutex_lock(&context->lock);
    struct convoy_transfer_engine *engines = context->engines;
    (void)pthread_mutex_unlock(&context->lock);
    for (struct convoy_transfer_engine *engine = engines; engine != NULL; engine = engine->next) {
        uint64_t left = convoy_deadline_left(convoy_now_ns(), deadline);
        int32_t status = convoy_transfer_engine_shut(engine, left != 0 ? left : 1, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

#ifdef CONVOY_DEBUG
/* Closed contexts and their groups, of which the handles alone are kept: whoever calls on one is told so, where it would be
 * undefined elsewhere. */
static _Atomic(struct convoy_context *) context_graveyard;

static bool context_is_buried(const struct convoy_context *context)
{
    const struct convoy_context *buried = atomic_load(&context_graveyard);
    while (buried != NULL && buried != context) {
        buried = buried->buried;
    }
    return buried != NULL;
}

static void context_bury(struct convoy_context *context)
{
    struct convoy_context *before = atomic_load(&context_graveyard);
    context->runtime = NULL;
    do {
        context->buried = before;
    } while (!atomic_compare_exchange_weak(&context_graveyard, &before, context));
}
#else
static bool context_is_buried(const struct convoy_context *context)
{
    (void)context;
    return false;
}

static void context_bury(struct convoy_context *context)
{
    context_guard_close(context);
    (void)pthread_mutex_destroy(&context->lock);
    convoy_memory_free(context);
}
#endif

int32_t convoy_context_close(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error)
{
    if (context == NULL || convoy_handle_is_forked(context->alive)) {
        return CONVOY_OK; /* in a forked child nothing here is ours: the parent must not be disturbed */
    }
    if (context_is_buried(context)) {
        return convoy_error_set(error, CONVOY_CLOSED, "the context was closed before");
    }
    atomic_store(&context->is_closing, 1);
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : context->runtime->settings.close_timeout_ms * CONVOY_NS_PER_MS;
    convoy_context_discard(context);
    int32_t status = context_shut_groups(context, timeout, error);
    convoy_log_flush(&context->runtime->log);
    if (status != CONVOY_OK) {
        return status;
    }
    for (struct convoy_group *group = context->groups; group != NULL;) {
        struct convoy_group *next = group->next;
        convoy_group_free(group);
        group = next;
    }
    for (struct convoy_transfer_engine *engine = context->engines; engine != NULL;) {
        struct convoy_transfer_engine *next = engine->next;
        convoy_transfer_engine_free(engine);
        engine = next;
    }
    convoy_handover_end(&context->handover);
    convoy_runtime_destroy(context->runtime);
    context_bury(context);
    return CONVOY_OK;
}
