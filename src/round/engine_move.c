/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a move but for reading (engine_restore.c). */
#include "round/engine_move.h"

#include "round/engine_state.h"

#include <stdio.h>

#define NAMED_MAX 8u /* ranks in a text */

bool convoy_engine_is_still(const struct convoy_engine *engine)
{
    return !convoy_engine_is_open(engine) && !convoy_engine_is_unread(engine);
}

int32_t convoy_engine_ended(const struct convoy_engine *engine)
{
    return engine->ended_status;
}

/* -- words --------------------------------------------------------------------------------------------------------- */

/* Whether the open round waits for that member. local: its place among the members of this host, or local_count. */
static bool still_waits_for(const struct convoy_engine *engine, uint32_t member, uint32_t local, uint64_t round)
{
    if (member == engine->own_index || convoy_engine_is_lost(engine, member)) {
        return false;
    }
    if (local == engine->local_count) {
        return atomic_load_explicit(&convoy_segment_status(&engine->segment, member)->round, memory_order_relaxed) < round;
    }
    uint64_t word = atomic_load_explicit(&convoy_segment_cell(&engine->segment, local, round)->word, memory_order_acquire);
    return convoy_cell_view_of(word, engine->generation, round) != CONVOY_CELL_PUBLISHED;
}

/* "ranks 2, 5 are missing", or "". */
static void still_missing(const struct convoy_engine *engine, uint64_t round, char *text_out, size_t bytes)
{
    char names[64] = "";
    size_t used = 0;
    uint32_t missing = 0;
    uint32_t local = 0;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        bool is_local = local < engine->local_count && engine->local_members[local] == member;
        if (still_waits_for(engine, member, is_local ? local : engine->local_count, round) && ++missing <= NAMED_MAX) {
            int length = snprintf(names + used, sizeof names - used, "%s%d", missing == 1 ? "" : ", ",
                                  convoy_engine_rank(engine, member));
            used += length > 0 && (size_t)length < sizeof names - used ? (size_t)length : 0;
        }
        local += is_local;
    }
    char more[24] = "";
    if (missing > NAMED_MAX) {
        (void)snprintf(more, sizeof more, " and %u more", missing - NAMED_MAX);
    }
    text_out[0] = '\0';
    if (missing != 0) {
        (void)snprintf(text_out, bytes, missing == 1 ? ", rank %s%s is missing" : ", ranks %s%s are missing", names, more);
    }
}

static const char *still_operation(const struct convoy_engine *engine, uint64_t round)
{
    switch (engine->own_cells[round & 1]->cold.operation) { /* as the other members read it */
    case CONVOY_OPERATION_POLL:
        return "poll ";
    case CONVOY_OPERATION_POLL_KEYED:
        return "keyed poll ";
    case CONVOY_OPERATION_SYNC:
        return "sync ";
    default:
        return "";
    }
}

void convoy_engine_still_text(const struct convoy_engine *engine, char *text_out, size_t bytes)
{
    char missing[128];
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_acquire);
    text_out[0] = '\0';
    if (convoy_engine_is_open(engine)) {
        still_missing(engine, round, missing, sizeof missing);
        (void)snprintf(text_out, bytes, "%sround %llu is open%s", still_operation(engine, round),
                       (unsigned long long)round, missing);
    } else if (convoy_engine_is_unread(engine)) {
        (void)snprintf(text_out, bytes, "%sround %llu is over, and nobody has read its end",
                       still_operation(engine, round), (unsigned long long)round);
    }
}

/* -- the steps ----------------------------------------------------------------------------------------------------- */

int32_t convoy_engine_freeze(struct convoy_engine *engine, struct convoy_error *error)
{
    return engine->remote != NULL ? convoy_remote_freeze(engine, error) : CONVOY_OK;
}

int32_t convoy_engine_thaw(struct convoy_engine *engine, struct convoy_error *error)
{
    return engine->remote != NULL ? convoy_remote_thaw(engine, error) : CONVOY_OK;
}

void convoy_engine_drop(struct convoy_engine *engine, bool was_restored)
{
    if (engine == NULL) {
        return;
    }
    if (engine->remote != NULL && was_restored) {
        convoy_remote_discard(engine);
    } else if (engine->remote != NULL) {
        convoy_remote_retire(engine);
    }
    convoy_engine_free(engine);
}

void convoy_engine_merge_into(struct convoy_engine *engine, const struct convoy_merge_ops *merge, void *merge_state)
{
    engine->contribution.merge = merge;
    engine->contribution.merge_state = merge_state;
}

struct convoy_engine_count convoy_engine_count(const struct convoy_engine *engine)
{
    struct convoy_engine_count count = {
        .operations = convoy_engine_is_open(engine) || convoy_engine_is_unread(engine),
        .descriptors = engine->local.segment_fd >= 0,
        .mappings = engine->segment.is_shared,
    };
    for (uint32_t member = 0; engine->local.pidfds != NULL && member < engine->member_count; member++) {
        count.descriptors += engine->local.pidfds[member] >= 0;
    }
    return count;
}

/* -- saving -------------------------------------------------------------------------------------------------------- */

static void save_place(const struct convoy_engine *engine, struct convoy_bundle_writer *writer)
{
    const struct convoy_local *local = &engine->local;
    const struct convoy_engine_place place = {
        .local_count = engine->local_count,
        .host_count = engine->member_count > 1 ? local->hosts.host_count : 1,
        .segment_fd = local->segment_fd + 1,
        .segment_bytes = local->segment_bytes,
        .cell_bytes = engine->segment.geometry.cell_bytes,
        .blob_bytes = engine->segment.geometry.blob_bytes,
        .total_bytes = engine->segment.geometry.total_bytes,
    };
    convoy_bundle_put_fields(writer, &convoy_engine_place_shape, &place);
    if (engine->member_count > 1) {
        convoy_bundle_put(writer, CONVOY_ENGINE_ITEM_HOSTS, CONVOY_BUNDLE_CRITICAL, local->hosts.host_of,
                          engine->member_count * sizeof *local->hosts.host_of);
    }
    if (local->pidfds != NULL) {
        convoy_bundle_put(writer, CONVOY_ENGINE_ITEM_PIDFDS, CONVOY_BUNDLE_CRITICAL, local->pidfds,
                          engine->member_count * sizeof *local->pidfds);
    }
    if (!engine->segment.is_shared) {
        convoy_bundle_put(writer, CONVOY_ENGINE_ITEM_CELLS, CONVOY_BUNDLE_CRITICAL, engine->segment.base,
                          engine->segment.geometry.total_bytes);
    }
}

static void save_losses(const struct convoy_engine *engine, struct convoy_bundle_writer *writer)
{
    if (engine->loss_count == 0) {
        return;
    }
    size_t opened = convoy_bundle_open(writer, CONVOY_ENGINE_ITEM_LOSSES, CONVOY_BUNDLE_CRITICAL);
    for (uint32_t member = 0; member < engine->member_count; member++) {
        const struct convoy_loss *loss = &engine->losses[member];
        const struct convoy_engine_lost one = {
            .member = member,
            .is_dead = loss->is_dead != 0,
            .is_closed = loss->is_closed != 0,
            .noticed_by = loss->noticed_by,
        };
        if (one.is_dead != 0 || one.is_closed != 0) {
            convoy_bundle_put_fields(writer, &convoy_engine_lost_shape, &one);
        }
    }
    convoy_bundle_shut(writer, opened);
}

/* Rows are structs of the public interface, which only grow. */
static void save_report(const struct convoy_engine *engine, struct convoy_bundle_writer *writer)
{
    size_t opened = convoy_bundle_open(writer, CONVOY_ENGINE_ITEM_REPORT, 0);
    for (uint32_t i = 0; i < engine->report.row_count; i++) {
        convoy_bundle_put(writer, CONVOY_ENGINE_ITEM_ROW, 0, &engine->report.rows[i], sizeof engine->report.rows[i]);
    }
    convoy_bundle_shut(writer, opened);
}

int32_t convoy_engine_save(struct convoy_engine *engine, struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    convoy_bundle_put_fields(writer, &convoy_engine_shape, engine);
    size_t opened = convoy_bundle_open(writer, CONVOY_ENGINE_ITEM_PLACE, CONVOY_BUNDLE_CRITICAL);
    save_place(engine, writer);
    convoy_bundle_shut(writer, opened);
    save_losses(engine, writer);
    save_report(engine, writer);
    if (engine->remote == NULL) {
        return CONVOY_OK;
    }
    opened = convoy_bundle_open(writer, CONVOY_ENGINE_ITEM_REMOTE, CONVOY_BUNDLE_CRITICAL);
    int32_t status = convoy_remote_save(engine, writer, error);
    convoy_bundle_shut(writer, opened);
    return status;
}
