/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of what every member was seen to do, for reports, dumps and error texts. Never on the path of a good round. */
#include "round/engine_internal.h"
#include "round/remote.h"

#include <stdio.h>

/* The later of a member's two cells that is published, or NULL. */
const struct convoy_cell *convoy_engine_last_cell(const struct convoy_engine *engine, uint32_t local)
{
    const struct convoy_cell *last = NULL;
    uint64_t last_word = 0;
    for (uint64_t parity = 0; parity < 2; parity++) {
        const struct convoy_cell *cell = convoy_segment_cell(&engine->segment, local, parity);
        uint64_t word = atomic_load_explicit(&cell->word, memory_order_acquire);
        if (convoy_word_reason(word) == CONVOY_SEAL_NONE && word != 0 && word > last_word) {
            last = cell;
            last_word = word; /* generation above round: larger is later */
        }
    }
    return last;
}

static void report_from_cell(struct convoy_member_report *row, const struct convoy_cell *cell)
{
    row->operation = cell->cold.operation;
    row->round = convoy_word_round(atomic_load_explicit(&cell->word, memory_order_relaxed));
    row->tag = cell->tag;
    row->epoch = cell->cold.epoch;
    row->counts = cell->cold.counts;
    row->digest = cell->cold.digest;
    row->schema = cell->cold.schema;
    row->policy = cell->cold.policy;
}

uint64_t convoy_engine_latest(const struct convoy_engine *engine, uint64_t ns)
{
    uint64_t ticks = atomic_load_explicit(&engine->quick_ticks, memory_order_relaxed);
    if (ticks == 0) {
        return ns;
    }
    struct convoy_ticks now = convoy_ticks_both();
    uint64_t quick_ns = convoy_ticks_ns(&engine->base, &now, ticks);
    return quick_ns > ns ? quick_ns : ns;
}

uint64_t convoy_engine_age(const struct convoy_engine *engine, uint64_t last_round, uint64_t now_ns)
{
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    if (last_round == 0) {
        return UINT64_MAX;
    }
    uint64_t seen = last_round >= round ? atomic_load_explicit(&engine->published_ns, memory_order_relaxed)
                                        : atomic_load_explicit(&engine->finished_ns, memory_order_relaxed);
    seen = convoy_engine_latest(engine, seen);
    /* Nothing was published or finished here yet: whatever lies there was not seen to arrive. */
    return seen != 0 ? convoy_deadline_left(seen, now_ns) : UINT64_MAX;
}

static uint32_t report_condition(struct convoy_engine *engine, uint32_t local, uint64_t round,
                                 struct convoy_member_report *row)
{
    uint32_t member = engine->local_members[local];
    const struct convoy_loss *loss = &engine->losses[member];
    uint64_t word = atomic_load_explicit(&convoy_segment_cell(&engine->segment, local, round)->word,
                                         memory_order_acquire);
    enum convoy_cell_view view = convoy_cell_view_of(word, engine->generation, round);
    row->noticed_by = loss->noticed_by;
    if (loss->is_closed != 0) {
        return CONVOY_MEMBER_CLOSED;
    }
    if (loss->is_dead != 0 || convoy_engine_is_lost(engine, member)) {
        return CONVOY_MEMBER_LOST;
    }
    if (view == CONVOY_CELL_SEALED) {
        row->reason = CONVOY_BROKEN;
        return CONVOY_MEMBER_MISSING; /* sealed by somebody who gave up waiting for it */
    }
    return view == CONVOY_CELL_PUBLISHED ? CONVOY_MEMBER_HEARD : CONVOY_MEMBER_MISSING;
}

/* One row for a member of this host. */
static void report_local(struct convoy_engine *engine, uint32_t local, uint64_t now, struct convoy_member_report *row)
{
    uint32_t member = engine->local_members[local];
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    *row = (struct convoy_member_report){
        .rank = convoy_engine_rank(engine, member),
        .index = member,
        .host = engine->local.hosts.host_of != NULL ? engine->local.hosts.host_of[member] : 0,
        .behind = -1,
        .epoch = convoy_engine_epoch(engine),
    };
    const struct convoy_cell *cell = convoy_segment_cell(&engine->segment, local, round);
    if (convoy_cell_view_of(atomic_load_explicit(&cell->word, memory_order_acquire), engine->generation, round) !=
        CONVOY_CELL_PUBLISHED) { /* the round in question if it came, else the last one: a quick member is ahead */
        cell = convoy_engine_last_cell(engine, local);
    }
    if (cell != NULL) {
        report_from_cell(row, cell);
    }
    row->condition = report_condition(engine, local, round, row);
    const struct convoy_cell *current = convoy_segment_cell(&engine->segment, local, round);
    if (row->condition == CONVOY_MEMBER_HEARD && (current->info & CONVOY_INFO_ERROR) != 0) {
        row->condition = CONVOY_MEMBER_ERROR;
        memcpy(&row->reason, current->payload, sizeof row->reason);
    } else if (row->condition == CONVOY_MEMBER_HEARD && current->tag != 0 && engine->contribution.tag != 0 &&
               current->tag != engine->contribution.tag) {
        row->condition = CONVOY_MEMBER_DIVERGED;
    } else if (row->condition == CONVOY_MEMBER_HEARD && engine->reference != 0 &&
               current->fingerprint != engine->reference) {
        row->condition = CONVOY_MEMBER_DIVERGED;
    }
    row->age_ns = convoy_engine_age(engine, row->round, now);
}

/* Who sealed cells of this round by abandoning it. */
static void report_mark_abandoners(struct convoy_engine *engine, struct convoy_member_report *rows)
{
    uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    for (uint32_t local = 0; local < engine->local_count; local++) {
        uint64_t word = atomic_load(&convoy_segment_cell(&engine->segment, local, round)->word);
        uint32_t sealer = convoy_word_sealer(word);
        if (convoy_cell_view_of(word, engine->generation, round) == CONVOY_CELL_SEALED &&
            convoy_word_reason(word) == CONVOY_SEAL_ABANDON && sealer < engine->local_count) {
            rows[engine->local_members[sealer]].condition = CONVOY_MEMBER_ABANDONED;
            rows[engine->local_members[sealer]].reason = CONVOY_BROKEN;
        }
    }
}

uint32_t convoy_engine_report_field(const struct convoy_engine *engine, const struct convoy_member_report *row)
{
    const struct convoy_round_header *own = &engine->contribution.header;
    struct convoy_round_header other = *own;
    other.operation = row->operation;
    other.epoch = row->epoch;
    other.counts = row->counts;
    other.digest = row->digest;
    other.schema = row->schema;
    other.policy = row->policy;
    return convoy_fingerprint_field(own, &other);
}

/* The first field in which any member differs from this one. */
static uint32_t report_first_field(const struct convoy_engine *engine, const struct convoy_member_report *rows)
{
    uint32_t field = CONVOY_FIELD_NONE;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        if (rows[member].condition != CONVOY_MEMBER_DIVERGED) {
            continue;
        }
        uint32_t found = convoy_engine_report_field(engine, &rows[member]);
        found = found == CONVOY_FIELD_NONE ? CONVOY_FIELD_POLICY : found; /* a field that rows do not carry */
        field = field == CONVOY_FIELD_NONE || found < field ? found : field;
    }
    return field;
}

void convoy_engine_report_rows(struct convoy_engine *engine, struct convoy_member_report *rows)
{
    uint64_t now = convoy_now_ns();
    for (uint32_t local = 0; local < engine->local_count; local++) {
        report_local(engine, local, now, &rows[engine->local_members[local]]);
    }
    if (engine->remote != NULL) {
        convoy_remote_report_rows(engine, now, rows);
    }
    report_mark_abandoners(engine, rows);
    if (engine->error_member < engine->member_count) { /* its cell may lie on another host */
        rows[engine->error_member].condition = CONVOY_MEMBER_ERROR;
        rows[engine->error_member].reason = engine->error_reason;
    }
}

void convoy_engine_report_fill(struct convoy_engine *engine, int32_t status, uint32_t field)
{
    struct convoy_engine_report *report = &engine->report;
    (void)pthread_mutex_lock(&engine->report_lock);
    convoy_engine_report_rows(engine, report->rows);
    report->field = field;
    if (status == CONVOY_DIVERGED && field == CONVOY_FIELD_NONE) {
        report->field = report_first_field(engine, report->rows);
    }
    report->row_count = 0;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        if (status == CONVOY_DIVERGED || report->rows[member].condition != CONVOY_MEMBER_HEARD) {
            report->rows[report->row_count++] = report->rows[member];
        }
    }
    report->round = atomic_load_explicit(&engine->round, memory_order_relaxed);
    report->operation = atomic_load_explicit(&engine->operation, memory_order_relaxed);
    report->elapsed_ns = convoy_deadline_left(atomic_load_explicit(&engine->published_ns, memory_order_relaxed),
                                              convoy_now_ns());
    (void)pthread_mutex_unlock(&engine->report_lock);
}

void convoy_engine_report(struct convoy_engine *engine, struct convoy_report *report_out)
{
    (void)pthread_mutex_lock(&engine->report_lock);
    const struct convoy_engine_report *report = &engine->report;
    for (size_t i = 0; i < report->row_count && i < report_out->member_capacity && report_out->members != NULL; i++) {
        memcpy((char *)report_out->members + i * report_out->member_stride, &report->rows[i],
               report_out->member_stride < sizeof report->rows[i] ? report_out->member_stride : sizeof report->rows[i]);
    }
    report_out->member_count = report->row_count;
    report_out->own_rank = convoy_engine_rank(engine, engine->own_index);
    report_out->field = report->field;
    report_out->round = report->round;
    report_out->elapsed_ns = report->elapsed_ns;
    report_out->operation = report->operation;
    (void)pthread_mutex_unlock(&engine->report_lock);
}

void convoy_engine_report_names(const struct convoy_engine *engine, uint32_t condition_mask, char *text, size_t bytes)
{
    const struct convoy_engine_report *report = &engine->report;
    size_t used = 0;
    uint32_t named = 0;
    uint32_t more = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < report->row_count; i++) {
        if ((condition_mask >> report->rows[i].condition & 1) == 0) {
            continue;
        }
        if (named == 8) {
            more++;
            continue;
        }
        int length = snprintf(text + used, bytes - used, "%s%d", named == 0 ? "" : ", ", report->rows[i].rank);
        used += length > 0 && (size_t)length < bytes - used ? (size_t)length : 0;
        named++;
    }
    if (more != 0) {
        (void)snprintf(text + used, bytes - used, " and %u more", more);
    }
}
