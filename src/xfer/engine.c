/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing an engine. */
#include "core/clock.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "net/liveness.h"
#include "xfer/door.h"
#include "xfer/device_jobs.h"
#include "xfer/far.h"
#include "xfer/raw.h"
#include "xfer/session.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NOTE_BLOCK 1024u
#define RAW_LISTS_MAX 256u /* of raw parts, at a time */
#define NOTE_BYTES_EACH 4096u
#define NOTE_BYTES_MIN (UINT64_C(4) << 20)
#define CLOSE_STEP_NS (5 * CONVOY_NS_PER_MS)
#define LAST_WORDS_NS CONVOY_NS_PER_S

/* -- opening ------------------------------------------------------------------------------------------------------- */

/* The progress thread returns the memory of a generation that has ended. */
static void wake_reaper(void *user)
{
    const struct convoy_xfer *engine = user;
    const uint64_t one = 1;
    (void)!write(engine->kick_fd, &one, sizeof one);
}

struct convoy_pool_options convoy_xfer_pool_calls(struct convoy_xfer *engine)
{
    return (struct convoy_pool_options){
        .ended = wake_reaper,
        .let_go = engine->device != NULL ? convoy_xfer_device_unpin_pool : NULL,
        .user = engine,
    };
}

static int32_t open_pools(struct convoy_xfer *engine, struct convoy_error *error)
{
    const struct convoy_xfer_options *options = &engine->options;
    uint64_t notes = NOTE_BYTES_MIN;
    while (notes < (uint64_t)options->transfer_max * NOTE_BYTES_EACH) { /* a power of two: its first block is at offset 0 */
        notes *= 2;
    }
    bool is_device = options->pool_kind == CONVOY_MEMORY_DEVICE; /* that pool comes beside this one */
    struct convoy_pool_options pool = {
        .kind = options->pool_kind == CONVOY_MEMORY_HOST ? CONVOY_POOL_HOST : CONVOY_POOL_SHARED,
        .memory = is_device ? NULL : options->pool_memory,
        .bytes = is_device ? options->bounce_bytes : options->pool_bytes,
        .block_bytes = options->block_bytes,
        .lease_max = 2 * (options->transfer_max + options->prealloc_count), /* a resize makes those anew */
        .reference_max = 4 * options->transfer_max,
    };
    const struct convoy_pool_options calls = convoy_xfer_pool_calls(engine);
    const struct convoy_pool_options note = {
        .kind = CONVOY_POOL_SHARED,
        .bytes = notes,
        .block_bytes = NOTE_BLOCK,
        .lease_max = options->transfer_max + 1 + RAW_LISTS_MAX,
        .reference_max = 1,
    };
    const struct convoy_pool_request token = {
        .owner = {"token", 5, 1}, .bytes = CONVOY_INTRODUCE_TOKEN_BYTES, .deadline_ns = CONVOY_LEASE_NEVER};
    struct convoy_slot slot;
    pool.ended = calls.ended;
    pool.let_go = calls.let_go;
    pool.user = calls.user;
    void *made = convoy_far_rma_pool(engine);
    if (made != NULL) {
        pool.kind = CONVOY_POOL_HOST;
        pool.memory = made;
        engine->introduction.flags |= CONVOY_INTRODUCE_PRIVATE;
    }
    int32_t status = convoy_pool_open(&pool, &engine->pool, error);
    if (status == CONVOY_OK) {
        status = convoy_pool_open(&note, &engine->notes, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_pool_take(engine->notes, &token, &slot, error); /* the first block, at offset 0 */
    }
    if (status == CONVOY_OK) {
        memcpy(slot.address, engine->introduction.token, CONVOY_INTRODUCE_TOKEN_BYTES);
        engine->introduction.token_address = (uint64_t)(uintptr_t)slot.address;
        engine->introduction.pool_address = (uint64_t)(uintptr_t)convoy_pool_memory(engine->pool);
        engine->introduction.pool_bytes = convoy_pool_bytes(engine->pool);
        status = convoy_xfer_prealloc_open(engine, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_xfer_device_pools(engine, error);
    }
    return status;
}

int32_t convoy_xfer_tables(struct convoy_xfer *engine, struct convoy_error *error)
{
    uint32_t count = engine->options.transfer_max;
    engine->entries = convoy_memory_table(count, sizeof *engine->entries);
    engine->waiting = convoy_memory_table(count, sizeof *engine->waiting);
    engine->peers = convoy_memory_table(engine->options.peer_max, sizeof *engine->peers);
    if (engine->entries == NULL || engine->waiting == NULL || engine->peers == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u transfers and %u peers", count,
                                engine->options.peer_max);
    }
    engine->entry_count = count;
    engine->free_first = CONVOY_XFER_NOBODY;
    return CONVOY_OK;
}

static int32_t open_files(struct convoy_xfer *engine, struct convoy_error *error)
{
    engine->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->notify_fd = engine->options.must_notify ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (engine->wake_fd < 0 || engine->kick_fd < 0 || (engine->options.must_notify && engine->notify_fd < 0)) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "eventfd");
    }
    return convoy_liveness_self(&engine->self_pid_fd, error);
}

static int32_t open_address(struct convoy_xfer *engine, struct convoy_error *error)
{
    struct convoy_introduction *own = &engine->introduction;
    const struct convoy_local_socket_options local = {
        .session = own->socket, .index = 0, .shared_directory = engine->runtime->settings.shared_directory};
    int32_t status = convoy_xfer_door_open(engine, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_session session = {.incarnation = engine->incarnation, .where = {.port = engine->options.port}};
    memcpy(session.where.host, engine->options.host, sizeof session.where.host);
    if (!convoy_session_format(&session, engine->session)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "option address: the session id would have more than %u "
                                                                "bytes",
                                CONVOY_SESSION_BYTES);
    }
    memcpy(own->session, engine->session, sizeof own->session);
    return convoy_local_socket_open(&local, &engine->local, &own->keys, error);
}

static int32_t open_identity(struct convoy_xfer *engine, struct convoy_error *error)
{
    struct convoy_introduction *own = &engine->introduction;
    int32_t status = convoy_runtime_random(&engine->incarnation, sizeof engine->incarnation, error);
    engine->incarnation += engine->incarnation == 0;
    if (status == CONVOY_OK) {
        status = convoy_runtime_random(own->token, sizeof own->token, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_runtime_random(own->socket, sizeof own->socket, error);
    }
    own->incarnation = engine->incarnation;
    own->context = engine->runtime->incarnation;
    own->pool_bytes = engine->options.pool_bytes;
    own->flags = CONVOY_INTRODUCE_MOVES;
    if (engine->options.is_private) {
        own->flags |= CONVOY_INTRODUCE_PRIVATE;
    } else if (engine->options.pool_kind == CONVOY_MEMORY_HOST) {
        own->flags |= CONVOY_INTRODUCE_PRIVATE | CONVOY_INTRODUCE_BY_PROCESS;
    }
    return status;
}

/* Under the lock, so that the first does nothing before the second is there. */
static int32_t start_both(struct convoy_xfer *engine, struct convoy_error *error)
{
    int32_t status = convoy_runtime_thread_start(engine->runtime, "xfer", convoy_xfer_progress_main, engine,
                                                 &engine->progress);
    if (status != CONVOY_OK) {
        return convoy_error_set_errno(error, status, errno, "start a thread");
    }
    status = convoy_runtime_thread_start(engine->runtime, "copy", convoy_xfer_copier_main, engine, &engine->copier);
    engine->has_threads = true;
    engine->has_copier = status == CONVOY_OK;
    engine->must_stop = status != CONVOY_OK;
    return status == CONVOY_OK ? CONVOY_OK : convoy_error_set_errno(error, status, errno, "start a thread");
}

void convoy_xfer_threads_stop(struct convoy_xfer *engine)
{
    const uint64_t one = 1;
    convoy_xfer_lock(engine);
    engine->must_stop = true;
    (void)pthread_cond_broadcast(&engine->work);
    (void)pthread_cond_broadcast(&engine->changed);
    (void)!write(engine->kick_fd, &one, sizeof one);
    convoy_xfer_unlock(engine);
    if (engine->has_threads) {
        convoy_runtime_thread_join(engine->runtime, engine->progress);
    }
    if (engine->has_copier) {
        convoy_runtime_thread_join(engine->runtime, engine->copier);
    }
    engine->has_threads = engine->has_copier = false;
    convoy_far_opener_join(engine);
}

int32_t convoy_xfer_threads_start(struct convoy_xfer *engine, struct convoy_error *error)
{
    convoy_xfer_lock(engine);
    engine->must_stop = false;
    int32_t status = start_both(engine, error);
    convoy_xfer_unlock(engine);
    if (status != CONVOY_OK) {
        convoy_xfer_threads_stop(engine);
    }
    return status;
}

void convoy_xfer_free(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; engine->peers != NULL && i < engine->peer_top; i++) {
        convoy_xfer_peer_close(&engine->peers[i]);
    }
    for (uint32_t i = 0; engine->entries != NULL && i < engine->entry_top; i++) {
        convoy_memory_free(engine->entries[i].room);
        convoy_manifest_room_free(&engine->entries[i].manifest_room);
        convoy_memory_free(engine->entries[i].pieces);
        convoy_extents_free(&engine->entries[i].written);
        convoy_memory_free(engine->entries[i].device_pieces);
    }
    for (uint32_t i = 0; engine->preallocs != NULL && i < engine->options.prealloc_count; i++) {
        convoy_extents_free(&engine->preallocs[i].written);
    }
    convoy_raw_destroy(engine);
    convoy_xfer_door_close(engine);
    convoy_local_socket_fini(&engine->local);
    const int files[] = {engine->wake_fd, engine->kick_fd, engine->notify_fd, engine->self_pid_fd};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i] >= 0) {
            (void)close(files[i]);
        }
    }
    convoy_xfer_device_close(engine);
    convoy_pool_close(engine->pool);
    convoy_pool_close(engine->notes);
    convoy_memory_table_free(engine->entries);
    convoy_memory_table_free(engine->waiting);
    convoy_memory_table_free(engine->peers);
    convoy_memory_free(engine->preallocs);
    convoy_memory_free(engine->ranges);
    (void)pthread_mutex_destroy(&engine->far_opening);
    (void)pthread_cond_destroy(&engine->work);
    (void)pthread_cond_destroy(&engine->changed);
    (void)pthread_mutex_destroy(&engine->lock);
    convoy_memory_free(engine);
}

/* Deadlines are of the monotonic clock. */
static void init_changed(struct convoy_xfer *engine)
{
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&engine->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

struct convoy_xfer *convoy_xfer_new(struct convoy_runtime *runtime)
{
    struct convoy_xfer *engine = convoy_memory_zalloc(sizeof *engine);
    if (engine == NULL) {
        return NULL;
    }
    engine->runtime = runtime;
    engine->state = CONVOY_ENGINE_OPEN;
    engine->generation = 1;
    engine->tcp_fd = engine->wake_fd = engine->kick_fd = engine->notify_fd = engine->self_pid_fd = -1;
    engine->local = (struct convoy_local_socket){.abstract_fd = -1, .path_fd = -1, .directory_fd = -1};
    engine->active_first = engine->active_last = engine->ended_first = engine->ended_last = CONVOY_XFER_NOBODY;
    engine->job_first = engine->job_last = engine->free_first = CONVOY_XFER_NOBODY;
    engine->timer_ns = CONVOY_DEADLINE_NEVER;
    (void)pthread_mutex_init(&engine->lock, NULL);
    (void)pthread_mutex_init(&engine->far_opening, NULL);
    (void)pthread_cond_init(&engine->work, NULL);
    init_changed(engine);
    return engine;
}

/* What the host's table says is kept: its name is only borrowed. */
static void keep_table(struct convoy_xfer *engine)
{
    const struct convoy_device_table *table = engine->options.device_table;
    if (table == NULL || table->name == NULL || table->name_length >= sizeof engine->device_name) {
        return; /* which opening it refuses */
    }
    engine->device_table = *table;
    memcpy(engine->device_name, table->name, table->name_length);
    engine->device_table.name = engine->device_name;
}

int32_t convoy_xfer_open(struct convoy_runtime *runtime, const struct convoy_transfer_options *options,
                         struct convoy_xfer **engine_out, struct convoy_error *error)
{
    struct convoy_xfer *engine = convoy_xfer_new(runtime);
    if (engine == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for an engine");
    }
    int32_t (*const steps[])(struct convoy_xfer *, struct convoy_error *) = {
        open_identity, convoy_xfer_device_open, convoy_xfer_tables, open_pools, open_files, open_address,
        convoy_xfer_threads_start};
    int32_t status = convoy_xfer_options_load(runtime, options, &engine->options, error);
    keep_table(engine);
    for (size_t i = 0; status == CONVOY_OK && i < sizeof steps / sizeof steps[0]; i++) {
        status = steps[i](engine, error);
    }
    if (status != CONVOY_OK) {
        convoy_xfer_threads_stop(engine);
        convoy_far_close(engine); /* a peer may have come already */
        convoy_xfer_free(engine);
        return status;
    }
    *engine_out = engine;
    return CONVOY_OK;
}

/* -- closing ------------------------------------------------------------------------------------------------------- */

int32_t convoy_xfer_check_open(const struct convoy_xfer *engine, struct convoy_error *error)
{
    return engine->state == CONVOY_ENGINE_OPEN ? CONVOY_OK
                                               : convoy_error_set(error, CONVOY_CLOSED, "the engine is closing");
}

/* Ends whatever has no end; what is loaded stays the host's until it releases it. */
static void end_all(struct convoy_xfer *engine)
{
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY;) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        bool must_end = !convoy_xfer_state_is_end(entry->state);
        bool is_out = entry->kind == CONVOY_XFER_SEND && entry->is_lent;
        bool must_release = entry->kind != CONVOY_XFER_LOAD && !entry->is_released && entry->users == 0;
        at = entry->next;
        if (!must_end && !must_release) {
            continue;
        }
        entry->users++;
        if (must_end) {
            convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_ABORTED, CONVOY_CANCELED, "the engine is closing");
        }
        if (must_end && is_out) {
            convoy_xfer_send_withdraw(engine, entry);
        }
        entry->is_released = entry->is_released || entry->kind != CONVOY_XFER_LOAD;
        entry->users--;
        convoy_xfer_entry_settle(engine, entry);
        at = engine->active_first; /* others may have gone with it */
    }
}

/* What still keeps the engine from closing: loads that the host has not released, copies, host threads. */
static uint32_t count_held(const struct convoy_xfer *engine)
{
    uint32_t count = 0;
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        const struct convoy_xfer_entry *entry = &engine->entries[at];
        count += entry->kind == CONVOY_XFER_LOAD && !entry->is_released && entry->state == CONVOY_TRANSFER_LOADED;
    }
    return count;
}

/* All but those of which nobody will ever know. */
static bool copies_have_stopped(const struct convoy_xfer *engine)
{
    return engine->copying_count == convoy_xfer_device_lost(engine) && engine->copies == NULL;
}

/* Nothing is copied or viewed any more, and whatever comes from now on is refused unread: so this gives back all that peers
 * have lent, also what still lies in a ring. */
static void say_closed(struct convoy_xfer *engine)
{
    bool is_certain = convoy_xfer_device_lost(engine) == 0; /* else a device may still read what a peer has lent */
    const struct convoy_xfer_notice closed = {.type = is_certain ? CONVOY_SAY_CLOSED : CONVOY_SAY_GOODBYE};
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        bool is_up = engine->peers[i].state == CONVOY_PEER_IS_CONNECTED;
        if (is_up || (engine->peers[i].state != 0 && is_certain)) { /* one that is gone may wait for its memory */
            convoy_xfer_say(engine, &engine->peers[i], &closed);
        }
    }
}

static bool has_more_to_say(const struct convoy_xfer *engine)
{
    bool has_more = false;
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        const struct convoy_xfer_peer *peer = &engine->peers[i];
        has_more = has_more || (peer->state == CONVOY_PEER_IS_CONNECTED && peer->backlog_count != 0);
    }
    return has_more;
}

/* Until the last words have left, but not for long: a peer that takes none has its memory back when this process has ended. */
static void flush_words(struct convoy_xfer *engine, uint64_t deadline_ns)
{
    struct convoy_xfer_pausing pausing = {0};
    uint64_t end = convoy_deadline_after(convoy_now_ns(), LAST_WORDS_NS);
    end = end < deadline_ns ? end : deadline_ns;
    while (has_more_to_say(engine) && convoy_now_ns() < end) {
        convoy_xfer_pump(engine);
        convoy_xfer_pause(engine, convoy_deadline_after(convoy_now_ns(), CLOSE_STEP_NS), false, &pausing);
    }
}

int32_t convoy_xfer_close(struct convoy_xfer *engine, uint64_t deadline_ns, struct convoy_error *error)
{
    struct convoy_xfer_pausing pausing = {0};
    uint32_t held = 0;
    convoy_xfer_lock(engine);
    engine->state = CONVOY_ENGINE_CLOSING;
    engine->is_halted = engine->is_parked = false; /* it does not move any more; this thread does what is left to do */
    for (;;) {
        end_all(engine);
        convoy_xfer_waiting_refuse_all(engine, CONVOY_CLOSED);
        convoy_xfer_wake(engine);
        convoy_xfer_pump(engine);
        held = count_held(engine);
        if ((held == 0 && copies_have_stopped(engine)) || convoy_now_ns() >= deadline_ns) {
            break;
        }
        uint64_t step = convoy_deadline_after(convoy_now_ns(), CLOSE_STEP_NS);
        convoy_xfer_pause(engine, step < deadline_ns ? step : deadline_ns, false, &pausing);
    }
    bool is_done = held == 0 && copies_have_stopped(engine);
    uint32_t copying = engine->copying_count - convoy_xfer_device_lost(engine);
    if (is_done) {
        CONVOY_POINT(goodbye_before_put);
        say_closed(engine);
        CONVOY_POINT(goodbye_after_put);
        flush_words(engine, deadline_ns);
    }
    convoy_xfer_unlock(engine);
    if (!is_done) {
        return convoy_error_set(error, CONVOY_DRAIN_TIMEOUT, "engine %s: %u loaded transfers are not released, %u copies "
                                                             "run; close it again",
                                engine->session, held, copying);
    }
    return CONVOY_OK;
}

void convoy_xfer_destroy(struct convoy_xfer *engine)
{
    convoy_xfer_threads_stop(engine);
    convoy_far_close(engine);
    for (uint32_t i = 0; i < engine->entry_top; i++) { /* views of released loads, manifests of lent stages */
        convoy_xfer_entry_drop(engine, &engine->entries[i]);
    }
    convoy_xfer_free(engine);
}
