/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a group: meet the members, agree on the row, build the engine, then the families on top of it. The same steps
 * run on the caller's thread (blocking form, callback rendezvous) or on one of ours (split form over TCP). */
#include "group.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"

#include <errno.h>

/* Makes the bootstrap known to a close on another thread, unless that came first. */
static int32_t group_publish_bootstrap(struct convoy_group *group, struct convoy_bootstrap *bootstrap,
                                       struct convoy_error *error)
{
    (void)pthread_mutex_lock(&group->lock);
    group->bootstrap = bootstrap;
    bool is_closing = atomic_load(&group->phase) == CONVOY_PHASE_CLOSING;
    (void)pthread_mutex_unlock(&group->lock);
    return is_closing ? convoy_error_set(error, CONVOY_CANCELED, "the group was closed while it opened") : CONVOY_OK;
}

/* One exchange in which all members say what rows they gather. The options' numbers were checked when they were loaded,
 * before anybody was met. */
static int32_t group_agree_rows(struct convoy_group *group, struct convoy_grid *grid, struct convoy_error *error)
{
    const struct convoy_grid_own own = {
        .member_count = (uint32_t)group->options.member_count,
        .inner = group->options.sync_inner,
        .slots = group->options.sync_slots,
        .schema = group->has_schema ? &group->schema : NULL,
    };
    int32_t status = CONVOY_OK;
    struct convoy_blob *blobs = convoy_memory_array(own.member_count, sizeof *blobs);
    uint8_t *mine = convoy_memory_zalloc(CONVOY_GRID_BYTES_MAX);
    if (blobs == NULL || mine == NULL) {
        status = convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to agree on a schema");
        goto done;
    }
    size_t bytes = convoy_grid_encode(&own, mine, CONVOY_GRID_BYTES_MAX);
    blobs[0] = (struct convoy_blob){.data = mine, .bytes = bytes};
    if (own.member_count > 1) {
        status = convoy_bootstrap_exchange(group->bootstrap, mine, bytes, blobs, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_grid_agree(blobs, group->options.member_ids, &own, grid, error);
    }
done:
    convoy_memory_free(mine);
    convoy_memory_free(blobs);
    return status;
}

int32_t convoy_group_open_families(struct convoy_group *group, const struct convoy_grid *grid,
                                   struct convoy_error *error)
{
    const struct convoy_poll_options poll_options = {
        .engine = group->engine,
        .group = &group->options,
        .timeout_ns = group->options.timeout_ns,
        .record = convoy_record_poll,
        .repeat = convoy_record_poll_repeat,
        .settle = convoy_record_settle,
        .keep = convoy_record_keep,
        .record_user = &group->record,
    };
    int32_t status = convoy_poll_open(&poll_options, &group->poll, error);
    if (status != CONVOY_OK || grid->own.count == 0) {
        return status;
    }
    const struct convoy_sync_options options = {
        .engine = group->engine,
        .grid = grid,
        .member_ids = group->options.member_ids,
        .own_index = group->options.own_index,
        .blob_bytes_max = group->options.blob_bytes_max,
        .salt = convoy_runtime_salt(group->context->runtime),
    };
    group->sync_cells = grid->slots * grid->inner;
    return convoy_sync_open(&options, &group->sync, error);
}

size_t convoy_group_partial_bytes_max(const struct convoy_group *group, const struct convoy_grid *grid)
{
    size_t poll_bytes = convoy_poll_partial_bytes_max(group->options.blob_bytes_max);
    size_t sync_bytes = grid->own.count != 0 ? convoy_gather_partial_bytes_max(grid) : 0;
    return poll_bytes > sync_bytes ? poll_bytes : sync_bytes;
}

static int32_t group_open_engine(struct convoy_group *group, const struct convoy_agreement *agreement,
                                 struct convoy_error *error)
{
    struct convoy_grid *grid = convoy_memory_zalloc(sizeof *grid);
    if (grid == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to agree on a schema");
    }
    int32_t status = group_agree_rows(group, grid, error);
    if (status == CONVOY_OK) {
        const struct convoy_engine_options options = {
            .runtime = group->context->runtime,
            .group = &group->options,
            .agreement = *agreement,
            .partial_bytes_max = convoy_group_partial_bytes_max(group, grid),
        };
        status = convoy_engine_open(&options, group->bootstrap, group->open_deadline_ns, &group->engine, error);
        group->record.waited = group->engine != NULL ? convoy_engine_waited(group->engine) : NULL;
        group->record.summary = group->engine != NULL ? convoy_engine_summary(group->engine) : NULL;
    }
    if (status == CONVOY_OK) {
        status = convoy_group_open_families(group, grid, error);
    }
    convoy_memory_free(grid);
    return status;
}

/* The last exchange: nobody's open is finished before everybody's is, and whoever failed is heard here. */
static int32_t group_all_ready(struct convoy_group *group, struct convoy_error *error)
{
    if (group->options.member_count == 1) {
        return CONVOY_OK;
    }
    struct convoy_blob *blobs = convoy_memory_array(group->options.member_count, sizeof *blobs);
    if (blobs == NULL) {
        int32_t status = convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to finish opening");
        convoy_bootstrap_fail(group->bootstrap, error);
        return status;
    }
    const uint8_t ready = 1;
    int32_t status = convoy_bootstrap_exchange(group->bootstrap, &ready, sizeof ready, blobs, error);
    convoy_memory_free(blobs);
    return status;
}

/* Known from here on, also when no engine comes of it. */
static void group_note_agreement(struct convoy_group *group, const struct convoy_agreement *agreement)
{
    (void)pthread_mutex_lock(&group->lock);
    group->last.epoch = agreement->epoch;
    group->last.wire = agreement->wire;
    (void)pthread_mutex_unlock(&group->lock);
}

static int32_t group_open_steps(struct convoy_group *group, struct convoy_error *error)
{
    struct convoy_agreement agreement;
    struct convoy_bootstrap *bootstrap = NULL;
    CONVOY_POINT(open_started);
    int32_t status = convoy_bootstrap_create(group->context->runtime, &group->options, group->open_deadline_ns,
                                             &bootstrap, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = group_publish_bootstrap(group, bootstrap, error);
    if (status == CONVOY_OK) {
        status = convoy_bootstrap_connect(bootstrap, &agreement, error);
    }
    if (status == CONVOY_OK) {
        CONVOY_POINT(open_met);
        group_note_agreement(group, &agreement);
        status = group_open_engine(group, &agreement, error);
        if (status == CONVOY_OK) {
            status = group_all_ready(group, error);
        } else {
            convoy_bootstrap_fail(bootstrap, error);
        }
    }
    return status;
}

/* Takes down what a failed open has built. */
static void group_open_undo(struct convoy_group *group)
{
    convoy_sync_close(group->sync);
    group->sync = NULL;
    convoy_poll_close(group->poll);
    group->poll = NULL;
    if (group->engine != NULL) {
        (void)pthread_mutex_lock(&group->lock);
        convoy_group_keep_info(group);
        (void)pthread_mutex_unlock(&group->lock);
    }
    convoy_engine_close(group->engine, group->open_deadline_ns);
    group->engine = NULL;
}

int32_t convoy_group_open_run(struct convoy_group *group)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = group_open_steps(group, &error);
    if (status != CONVOY_OK) {
        group_open_undo(group);
    }
    (void)pthread_mutex_lock(&group->lock);
    struct convoy_bootstrap *bootstrap = group->bootstrap;
    group->bootstrap = NULL;
    (void)pthread_mutex_unlock(&group->lock);
    convoy_bootstrap_close(bootstrap);
    CONVOY_POINT(open_finished);

    (void)pthread_mutex_lock(&group->lock);
    group->open_status = status;
    group->open_error = error;
    group->is_open_done = true;
    uint32_t opening = CONVOY_PHASE_OPENING; /* a close that came first keeps its phase */
    (void)atomic_compare_exchange_strong(&group->phase, &opening,
                                         status == CONVOY_OK ? CONVOY_PHASE_OPEN : CONVOY_PHASE_FAILED);
    (void)pthread_cond_broadcast(&group->opened);
    (void)pthread_mutex_unlock(&group->lock);
    return status;
}

static void *group_open_main(void *argument)
{
    (void)convoy_group_open_run(argument);
    return NULL;
}

struct convoy_group *convoy_group_new(struct convoy_context *context)
{
    struct convoy_group *group = convoy_memory_aligned(CONVOY_LINE_BYTES, sizeof *group);
    if (group == NULL) {
        return NULL;
    }
    group->context = context;
    group->alive = context->alive;
    (void)pthread_mutex_init(&group->lock, NULL);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&group->opened, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    return group;
}

static int32_t group_create(struct convoy_context *context, const struct convoy_group_options *options,
                            struct convoy_group **group_out, struct convoy_error *error)
{
    int32_t status = convoy_context_check(context, error);
    if (status == CONVOY_OK && group_out == NULL) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "group_out is NULL");
    }
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_group *group = convoy_group_new(context);
    if (group == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a group");
    }
    status = convoy_group_options_load(group, options, error);
    if (status == CONVOY_OK) { /* before the open starts, so that describe finds it in every state */
        status = convoy_record_open(&group->record, group->options.call_log_entries, error);
    }
    if (status != CONVOY_OK) {
        convoy_group_free(group);
        return status;
    }
    group->last.member_count = (uint32_t)group->options.member_count;
    group->last.own_index = group->options.own_index;
    group->last.epoch = group->options.epoch;
    group->open_started_ns = convoy_now_ns();
    group->open_deadline_ns = convoy_deadline_after(group->open_started_ns, group->options.open_timeout_ns);
    *group_out = group;
    return CONVOY_OK;
}

void convoy_group_free(struct convoy_group *group)
{
    convoy_group_options_fini(&group->options);
#ifdef CONVOY_DEBUG
    uint32_t phase = atomic_load(&group->phase);
    if (phase == CONVOY_PHASE_CLOSED || phase == CONVOY_PHASE_RETIRED) { /* its handle stays, to say so; with the counters */
        group->options.name = "of a closed context";
        group->options.name_length = strlen(group->options.name);
        return;
    }
#endif
    convoy_record_close(&group->record);
    (void)pthread_cond_destroy(&group->opened);
    (void)pthread_mutex_destroy(&group->lock);
    convoy_memory_free(group);
}

static void group_link(struct convoy_context *context, struct convoy_group *group)
{
    (void)pthread_mutex_lock(&context->lock);
    group->next = context->groups;
    context->groups = group;
    (void)pthread_mutex_unlock(&context->lock);
}

/* Lets an open into the context, or not when that is closing: the count first, so that a close sees one or the other. */
static int32_t group_open_enter(struct convoy_context *context, struct convoy_error *error)
{
    if (context == NULL || convoy_handle_is_forked(context->alive)) {
        return convoy_context_check(context, error);
    }
    (void)atomic_fetch_add(&context->opening, 1);
    int32_t status = convoy_context_check(context, error);
    if (status != CONVOY_OK) {
        (void)atomic_fetch_sub(&context->opening, 1);
    }
    return status;
}

static int32_t group_open_leave(struct convoy_context *context, int32_t status)
{
    (void)atomic_fetch_sub(&context->opening, 1);
    return status;
}

static int32_t group_open_blocking(struct convoy_context *context, const struct convoy_group_options *options,
                                   struct convoy_group **group_out, struct convoy_error *error)
{
    struct convoy_group *group = NULL;
    int32_t status = group_create(context, options, group_out != NULL ? &group : NULL, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_group_open_run(group);
    convoy_log_flush(&context->runtime->log);
    if (status != CONVOY_OK) {
        (void)convoy_error_copy(error, &group->open_error);
        convoy_group_free(group); /* nobody else has seen it */
        return status;
    }
    group_link(context, group);
    *group_out = group;
    return CONVOY_OK;
}

static int32_t group_open_split(struct convoy_context *context, const struct convoy_group_options *options,
                                struct convoy_group **group_out, struct convoy_error *error)
{
    struct convoy_group *group = NULL;
    int32_t status = group_create(context, options, group_out != NULL ? &group : NULL, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (group->options.allgather != NULL || group->options.member_count == 1) {
        (void)convoy_group_open_run(group); /* the host's callback only runs on the host's thread */
    } else {
        status = convoy_runtime_thread_start(context->runtime, "open", group_open_main, group, &group->open_thread);
        if (status != CONVOY_OK) {
            (void)convoy_error_set_errno(error, status, errno, "starting the thread that opens a group");
            convoy_group_free(group);
            return status;
        }
        group->has_open_thread = true;
    }
    group_link(context, group);
    *group_out = group;
    return CONVOY_OK;
}

int32_t convoy_group_open(convoy_context *context, const struct convoy_group_options *options,
                          convoy_group **group_out, struct convoy_error *error)
{
    int32_t status = group_open_enter(context, error);
    return status != CONVOY_OK ? status
                               : group_open_leave(context, group_open_blocking(context, options, group_out, error));
}

int32_t convoy_group_open_start(convoy_context *context, const struct convoy_group_options *options,
                                convoy_group **group_out, struct convoy_error *error)
{
    int32_t status = group_open_enter(context, error);
    return status != CONVOY_OK ? status
                               : group_open_leave(context, group_open_split(context, options, group_out, error));
}

/* The result of a finished open, and the end of its thread. Called with the lock held. */
static int32_t group_open_result_locked(struct convoy_group *group, struct convoy_error *error)
{
    if (group->has_open_thread) {
        group->has_open_thread = false;
        (void)pthread_mutex_unlock(&group->lock); /* the thread's last act is to let go of this lock */
        convoy_runtime_thread_join(group->context->runtime, group->open_thread);
        (void)pthread_mutex_lock(&group->lock);
    }
    return group->open_status == CONVOY_OK ? CONVOY_OK : convoy_error_copy(error, &group->open_error);
}

/* There is nothing to wait for in this group any more. */
static bool group_open_is_over(const struct convoy_group *group)
{
    uint32_t phase = atomic_load(&group->phase);
    return phase == CONVOY_PHASE_CLOSING || phase == CONVOY_PHASE_CLOSED || phase == CONVOY_PHASE_FROZEN ||
           phase == CONVOY_PHASE_RETIRED;
}

/* Enters group_open_test or _wait. The count first, so that a close sees this call or this call the close. */
static int32_t group_open_look_enter(struct convoy_group *group, struct convoy_error *error)
{
    if (group == NULL || convoy_handle_is_forked(group->alive)) {
        return convoy_group_refuse(group, error);
    }
    (void)atomic_fetch_add(&group->opening, 1);
    int32_t status = CONVOY_OK;
    if (group_open_is_over(group)) {
        status = convoy_group_refuse(group, error);
    } else if (!convoy_debug_take(&group->opener)) {
        status = convoy_error_set(error, CONVOY_BUSY, "group %.*s: two calls of group_open_test or _wait at once",
                                  (int)group->options.name_length, group->options.name);
    }
    if (status != CONVOY_OK) {
        (void)atomic_fetch_sub(&group->opening, 1);
    }
    return status;
}

/* A close that came meanwhile is what there is to say. */
static int32_t group_open_look_leave(struct convoy_group *group, int32_t status, struct convoy_error *error)
{
    if (group_open_is_over(group)) {
        status = convoy_group_refuse(group, error);
    }
    convoy_log_flush(&group->context->runtime->log);
    convoy_debug_give(&group->opener);
    (void)atomic_fetch_sub(&group->opening, 1);
    return status;
}

int32_t convoy_group_open_test(convoy_group *group, struct convoy_error *error)
{
    int32_t status = group_open_look_enter(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&group->lock);
    status = group->is_open_done ? group_open_result_locked(group, error) : CONVOY_IN_PROGRESS;
    (void)pthread_mutex_unlock(&group->lock);
    return group_open_look_leave(group, status, error);
}

int32_t convoy_group_open_wait(convoy_group *group, uint64_t timeout_ns, struct convoy_error *error)
{
    int32_t status = group_open_look_enter(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : group->options.timeout_ns;
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), timeout);
    const struct timespec until = {.tv_sec = (time_t)(deadline / CONVOY_NS_PER_S),
                                   .tv_nsec = (long)(deadline % CONVOY_NS_PER_S)};
    (void)pthread_mutex_lock(&group->lock);
    while (!group->is_open_done && convoy_now_ns() < deadline) {
        (void)pthread_cond_timedwait(&group->opened, &group->lock, &until);
    }
    status = group->is_open_done
                 ? group_open_result_locked(group, error)
                 : convoy_error_set(error, CONVOY_TIMED_OUT, "group %.*s is not open after %llu ms and goes on opening",
                                    (int)group->options.name_length, group->options.name,
                                    (unsigned long long)((convoy_now_ns() - group->open_started_ns) / CONVOY_NS_PER_MS));
    (void)pthread_mutex_unlock(&group->lock);
    return group_open_look_leave(group, status, error);
}
