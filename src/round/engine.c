/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing an engine. The life of an operation is in operation.c. */
#include "round/remote.h"

#include <errno.h>
#include <unistd.h>

#define ENGINE_ROW_BYTES 128u /* room for one member's row in a result that reports divergence */

struct engine_sizes {
    const struct convoy_engine_options *options;
};

static size_t engine_blob_room(const struct convoy_engine_options *options)
{
    size_t rows = options->group->member_count * (size_t)ENGINE_ROW_BYTES;
    size_t partial = options->partial_bytes_max + options->group->member_count * 8;
    return CONVOY_REMOTE_EXTRA_BYTES + (partial > rows ? partial : rows);
}

static size_t engine_segment_bytes(const void *user, uint32_t count)
{
    const struct engine_sizes *sizes = user;
    struct convoy_segment_geometry geometry;
    convoy_segment_plan(&geometry, count, (uint32_t)sizes->options->group->member_count,
                        sizes->options->group->blob_bytes_max, engine_blob_room(sizes->options));
    return geometry.total_bytes;
}

int32_t convoy_engine_allocate(struct convoy_engine *engine, struct convoy_error *error)
{
    uint32_t count = engine->member_count;
    engine->local_members = convoy_memory_array(count, sizeof *engine->local_members);
    engine->losses = convoy_memory_array(count, sizeof *engine->losses);
    engine->pollfds = convoy_memory_array(count, sizeof *engine->pollfds);
    engine->poll_members = convoy_memory_array(count, sizeof *engine->poll_members);
    engine->report.rows = convoy_memory_array(count, sizeof *engine->report.rows);
    if (engine->local_members == NULL || engine->losses == NULL || engine->pollfds == NULL ||
        engine->poll_members == NULL || engine->report.rows == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a group of %u members", count);
    }
    return CONVOY_OK;
}

void convoy_engine_free(struct convoy_engine *engine)
{
    convoy_segment_close(&engine->segment);
    convoy_local_fini(&engine->local);
    convoy_memory_free(engine->report.rows);
    convoy_memory_free(engine->poll_members);
    convoy_memory_free(engine->pollfds);
    convoy_memory_free(engine->losses);
    convoy_memory_free(engine->local_members);
    (void)pthread_mutex_destroy(&engine->report_lock);
    convoy_memory_free(engine);
}

void convoy_engine_place(struct convoy_engine *engine)
{
    const uint32_t *host_of = engine->local.hosts.host_of;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        if (engine->member_count > 1 && host_of[member] != host_of[engine->own_index]) {
            continue;
        }
        if (member == engine->own_index) {
            engine->local_index = engine->local_count;
        }
        engine->local_members[engine->local_count++] = member;
    }
}

int32_t convoy_engine_map(struct convoy_engine *engine, struct convoy_error *error)
{
    int32_t status = convoy_segment_open(&engine->segment, engine->local.segment_fd, error);
    if (status != CONVOY_OK) {
        return status;
    }
    engine->cells = engine->segment.base + engine->segment.geometry.cells_offset;
    engine->cell_bytes = engine->segment.geometry.cell_bytes;
    for (uint32_t parity = 0; parity < 2; parity++) {
        engine->own_cells[parity] = convoy_segment_cell(&engine->segment, engine->local_index, parity);
    }
    return CONVOY_OK;
}

static int32_t engine_open_local(struct convoy_engine *engine, const struct convoy_engine_options *options,
                                 struct convoy_bootstrap *bootstrap, uint64_t deadline_ns, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    if (engine->member_count > 1) {
        const struct engine_sizes sizes = {.options = options};
        const struct convoy_local_request request = {
            .runtime = options->runtime,
            .options = options->group,
            .agreement = &engine->agreement,
            .bootstrap = bootstrap,
            .deadline_ns = deadline_ns,
            .segment_bytes = engine_segment_bytes,
            .user = &sizes,
        };
        status = convoy_local_open(&request, &engine->local, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    convoy_engine_place(engine);
    convoy_segment_plan(&engine->segment.geometry, engine->local_count, engine->member_count,
                        options->group->blob_bytes_max, engine_blob_room(options));
    if (engine->local.segment_fd >= 0 && engine->local.segment_bytes < engine->segment.geometry.total_bytes) {
        return convoy_error_set(error, CONVOY_INVARIANT, "shared segment has %zu bytes, %zu are needed",
                                engine->local.segment_bytes, engine->segment.geometry.total_bytes);
    }
    return convoy_engine_map(engine, error);
}

struct convoy_engine *convoy_engine_create(struct convoy_runtime *runtime, const struct convoy_group_options *group)
{
    struct convoy_engine *engine = convoy_memory_aligned(CONVOY_LINE_BYTES, sizeof *engine);
    if (engine == NULL) {
        return NULL;
    }
    engine->runtime = runtime;
    engine->operation_salt = convoy_runtime_salt(runtime);
    engine->group = group;
    engine->member_count = (uint32_t)group->member_count;
    engine->own_index = group->own_index;
    engine->local.segment_fd = -1;
    engine->blob_bytes_max = group->blob_bytes_max;
    engine->timeout_ns = group->timeout_ns;
    engine->degrade = (group->critical_flags & CONVOY_GROUP_DEGRADE) != 0;
    convoy_engine_quick_gate(engine, CONVOY_QUICK_NOBODY);
    engine->generation = 1;
    engine->next_round = 1;
    engine->ended_status = CONVOY_CLOSED;
    engine->base = convoy_ticks_both();
    (void)pthread_mutex_init(&engine->report_lock, NULL);
    return engine;
}

int32_t convoy_engine_open(const struct convoy_engine_options *options, struct convoy_bootstrap *bootstrap,
                           uint64_t deadline_ns, struct convoy_engine **engine_out, struct convoy_error *error)
{
    struct convoy_engine *engine = convoy_engine_create(options->runtime, options->group);
    if (engine == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a round engine");
    }
    engine->agreement = options->agreement;
    int32_t status = convoy_engine_allocate(engine, error);
    if (status != CONVOY_OK) {
        goto undo_create;
    }
    status = engine_open_local(engine, options, bootstrap, deadline_ns, error);
    if (status != CONVOY_OK) {
        goto undo_create;
    }
    CONVOY_POINT(open_joined);
    convoy_engine_waiting_init(engine);
    if (engine->local_count < engine->member_count) {
        status = convoy_remote_open(engine, bootstrap, options->partial_bytes_max, error);
        if (status != CONVOY_OK) {
            goto undo_create;
        }
        status = convoy_remote_start(engine, error);
        if (status != CONVOY_OK) {
            goto undo_remote;
        }
    }
    *engine_out = engine;
    return CONVOY_OK;

undo_remote:
    convoy_remote_close(engine, deadline_ns);
undo_create:
    convoy_engine_free(engine);
    return status;
}

/* Says goodbye: peers see a sealed cell in the first round that this member has not contributed to. */
static void engine_say_goodbye(struct convoy_engine *engine)
{
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    uint64_t next = convoy_engine_is_open(engine) ? round + 1 : engine->next_round;
    CONVOY_POINT(close_before_goodbye);
    if (CONVOY_MUTATED(goodbye_not_said)) {
        return;
    }
    atomic_store(&convoy_segment_slot(&engine->segment, engine->local_index)->closed, 1);
    (void)convoy_engine_seal(engine, engine->local_index, next, CONVOY_SEAL_CLOSED);
    convoy_engine_wake(engine);
    CONVOY_POINT(close_after_goodbye);
}

void convoy_engine_stop(struct convoy_engine *engine)
{
    if (engine != NULL && engine->remote != NULL) {
        convoy_remote_stop(engine->remote);
    }
}

void convoy_engine_close(struct convoy_engine *engine, uint64_t deadline_ns)
{
    if (engine == NULL) {
        return;
    }
    engine_say_goodbye(engine);
    if (engine->remote != NULL) {
        convoy_remote_close(engine, deadline_ns);
    }
    convoy_engine_free(engine);
}

const struct convoy_stats_wait *convoy_engine_waited(const struct convoy_engine *engine)
{
    return &engine->waited;
}

const struct convoy_round_summary *convoy_engine_summary(const struct convoy_engine *engine)
{
    return &engine->summary;
}

const struct convoy_engine_counters *convoy_engine_counters(const struct convoy_engine *engine)
{
    return &engine->counters;
}

uint64_t convoy_engine_round(const struct convoy_engine *engine)
{
    return atomic_load_explicit(&engine->round, memory_order_relaxed);
}

uint64_t convoy_engine_next_round(const struct convoy_engine *engine)
{
    return engine->next_round;
}

static uint32_t engine_public_state(const struct convoy_engine *engine)
{
    switch (atomic_load_explicit(&engine->state, memory_order_relaxed)) {
    case CONVOY_ENGINE_OPEN:
        return CONVOY_GROUP_ACTIVE;
    case CONVOY_ENGINE_STUCK:
        return CONVOY_GROUP_STUCK;
    case CONVOY_ENGINE_BROKEN:
        return CONVOY_GROUP_BROKEN;
    default: /* over, perhaps by the progress thread, and nobody has been told yet */
        return !convoy_engine_is_unread(engine)          ? CONVOY_GROUP_READY
               : atomic_load(&engine->was_stuck) != 0 ? CONVOY_GROUP_STUCK
                                                         : CONVOY_GROUP_ACTIVE;
    }
}

void convoy_engine_info(struct convoy_engine *engine, struct convoy_group_info *info_out)
{
    uint32_t host_count = engine->member_count > 1 ? engine->local.hosts.host_count : 1;
    bool is_open = convoy_engine_is_open(engine);
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    bool is_broken = atomic_load_explicit(&engine->state, memory_order_relaxed) == CONVOY_ENGINE_BROKEN;
    info_out->state = engine_public_state(engine);
    info_out->member_count = engine->member_count;
    info_out->own_index = engine->own_index;
    info_out->host_count = host_count;
    /* Under policy degrade rounds go on without members that no reopen has taken out of the epoch. */
    uint32_t absent = atomic_load_explicit(&engine->absent_count, memory_order_relaxed);
    uint32_t lost = engine->lost_count;
    info_out->lost_count = absent > lost ? absent : lost;
    info_out->wire = engine->agreement.wire;
    info_out->epoch = convoy_engine_epoch(engine);
    info_out->round = round != 0 && (is_open || is_broken) ? round - 1 : round;
    info_out->segment_bytes = engine->segment.is_shared ? engine->segment.geometry.total_bytes : 0;
    bool has_operation = is_open || convoy_engine_is_unread(engine);
    info_out->operation = has_operation ? atomic_load_explicit(&engine->operation, memory_order_relaxed) : 0;
}
