/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences about rounds that went wrong. Ranks are named by their member ids; both values are given. */
#include "round/engine_internal.h"

#include <stdio.h>

static const char *text_operation(uint32_t operation)
{
    switch (operation) {
    case CONVOY_OPERATION_POLL:
        return "poll";
    case CONVOY_OPERATION_POLL_KEYED:
        return "keyed poll";
    case CONVOY_OPERATION_SYNC:
        return "sync";
    default:
        return "unknown operation";
    }
}

/* Value of a field as a number; the operation is told apart by name. */
static uint64_t text_field_value(const struct convoy_member_report *row, uint32_t field)
{
    switch (field) {
    case CONVOY_FIELD_EPOCH:
        return row->epoch;
    case CONVOY_FIELD_COUNTS:
        return row->counts >> 8;
    case CONVOY_FIELD_DIGEST:
        return row->digest;
    case CONVOY_FIELD_SCHEMA:
        return row->schema;
    case CONVOY_FIELD_TAG:
        return row->tag;
    default:
        return row->policy;
    }
}

static const char *text_field_name(uint32_t field)
{
    static const char *const names[] = {"nothing", "operation", "wire version", "epoch", "entries",
                                        "digest",  "schema",    "policy",       "step tag"};
    return field < sizeof names / sizeof names[0] ? names[field] : "an unknown field";
}

/* The first row that differs from own in the report's field, or NULL. */
static const struct convoy_member_report *text_find_other(const struct convoy_engine *engine,
                                                          const struct convoy_member_report *own)
{
    const struct convoy_engine_report *report = &engine->report;
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct convoy_member_report *row = &report->rows[i];
        if (row->index == own->index) {
            continue;
        }
        if (report->field == CONVOY_FIELD_TAG ? row->tag != own->tag && row->tag != 0
                                              : row->condition == CONVOY_MEMBER_DIVERGED) {
            return row;
        }
    }
    return NULL;
}

void convoy_engine_report_diverged_text(struct convoy_engine *engine, uint64_t round, struct convoy_error *error)
{
    const struct convoy_engine_report *report = &engine->report; /* this thread has just filled it */
    const struct convoy_member_report *own = &report->rows[engine->own_index];
    const struct convoy_member_report *other = text_find_other(engine, own);
    int name_length = (int)engine->group->name_length;
    const char *name = engine->group->name;
    unsigned long long number = (unsigned long long)round;
    if (other == NULL) {
        (void)convoy_error_set_peer(error, CONVOY_DIVERGED, -1, round, "group %.*s: members diverged in round %llu in %s",
                                    name_length, name, number, text_field_name(report->field));
        return;
    }
    if (report->field == CONVOY_FIELD_OPERATION) {
        (void)convoy_error_set_peer(error, CONVOY_DIVERGED, other->rank, round,
                                    "group %.*s: in round %llu rank %d calls %s, this rank %d calls %s", name_length,
                                    name, number, other->rank, text_operation(other->operation), own->rank,
                                    text_operation(own->operation));
        return;
    }
    (void)convoy_error_set_peer(error, CONVOY_DIVERGED, other->rank, round,
                                "group %.*s: in round %llu %s differs: %llu is at rank %d, %llu at this rank %d",
                                name_length, name, number, text_field_name(report->field),
                                (unsigned long long)text_field_value(other, report->field), other->rank,
                                (unsigned long long)text_field_value(own, report->field), own->rank);
}

/* Conditions, as masks. Who brought something else was heard, too. */
#define TEXT_OTHERS (1u << CONVOY_MEMBER_DIVERGED)
#define TEXT_UNHEARD (~(1u << CONVOY_MEMBER_HEARD | 1u << CONVOY_MEMBER_ERROR | TEXT_OTHERS))

/* How many members of the report are in one of these conditions; the first one's rank, or -1. */
static uint32_t text_count(const struct convoy_engine_report *report, uint32_t conditions, int32_t *rank_out)
{
    uint32_t count = 0;
    *rank_out = -1;
    for (uint32_t i = 0; i < report->row_count; i++) {
        if ((conditions >> report->rows[i].condition & 1) != 0) {
            *rank_out = count == 0 ? report->rows[i].rank : *rank_out;
            count++;
        }
    }
    return count;
}

void convoy_engine_report_open_text(struct convoy_engine *engine, int32_t status, struct convoy_error *error)
{
    char names[96];
    uint64_t round = engine->report.round;
    int name_length = (int)engine->group->name_length;
    if (status == CONVOY_CANCELED) {
        char reason[CONVOY_CANCEL_TEXT_BYTES];
        (void)pthread_mutex_lock(&engine->report_lock);
        memcpy(reason, engine->cancel_text, sizeof reason);
        (void)pthread_mutex_unlock(&engine->report_lock);
        (void)convoy_error_set_peer(error, status, -1, round, "group %.*s: round %llu was canceled: %s", name_length,
                                    engine->group->name, (unsigned long long)round, reason);
        return;
    }
    int32_t rank;
    int32_t other;
    uint32_t count = text_count(&engine->report, TEXT_UNHEARD, &rank);
    char others[64] = "";
    if (text_count(&engine->report, TEXT_OTHERS, &other) != 0) {
        (void)snprintf(others, sizeof others, "; rank %d calls otherwise than this one", other);
    }
    convoy_engine_report_names(engine, TEXT_UNHEARD, names, sizeof names);
    (void)convoy_error_set_peer(error, status, rank, round,
                                "group %.*s: rank %d waited %llu ms in round %llu (%s) and did not hear from rank%s %s%s",
                                name_length, engine->group->name, convoy_engine_rank(engine, engine->own_index),
                                (unsigned long long)(engine->report.elapsed_ns / CONVOY_NS_PER_MS),
                                (unsigned long long)round, text_operation(engine->contribution.header.operation),
                                count == 1 ? "" : "s", names, others);
}
