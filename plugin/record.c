/* SPDX-License-Identifier: Apache-2.0 */
#include "record_parts.h"

#include "core/error.h"
#include "core/fault.h"
#include "core/hot.h"
#include "core/memory.h"

#include <string.h>

int32_t convoy_record_open(struct convoy_record *record, uint32_t log_entries, struct convoy_error *error)
{
    record->stats = convoy_memory_zalloc(sizeof *record->stats);
    record->poll_operation = CONVOY_OPERATION_POLL;
    convoy_stall_init(&record->stall, CONVOY_RECORD_STALL_ROUNDS);
    if (record->stats == NULL ||
        convoy_call_log_create(log_entries, CONVOY_RECORD_ENTRY_BYTES, &record->log) != CONVOY_OK) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a call log of %u rounds", log_entries);
    }
    return CONVOY_OK;
}

void convoy_record_shrink(struct convoy_record *record)
{
    convoy_call_log_destroy(record->log);
    record->log = NULL;
    record->waited = NULL;
}

void convoy_record_close(struct convoy_record *record)
{
    convoy_call_log_destroy(record->log);
    convoy_memory_free(record->stats);
    record->log = NULL;
    record->stats = NULL;
}

/* -- poll ---------------------------------------------------------------------------------------------------------- */

/* The lists' bytes as one range: where they are when they lie one after the other, else copied together, as far as the
 * room goes. */
struct record_bytes {
    const uint8_t *bytes;
    uint32_t length;
    bool is_cut;
};

struct record_room {
    uint8_t input[CONVOY_RECORD_ENTRY_BYTES];
    uint8_t output[CONVOY_RECORD_ENTRY_BYTES];
};

static inline struct record_bytes record_range(const uint8_t *bytes, uint64_t length)
{
    bool is_cut = length > CONVOY_RECORD_ENTRY_BYTES;
    return (struct record_bytes){bytes, is_cut ? CONVOY_RECORD_ENTRY_BYTES : (uint32_t)length, is_cut};
}

__attribute__((noinline)) static struct record_bytes record_collect(const struct convoy_poll_record *round,
                                                                    bool is_output, uint8_t *to)
{
    struct record_bytes out = {.bytes = to};
    for (uint32_t i = 0; i < round->list_count; i++) {
        const struct convoy_poll_record_list *list = &round->lists[i];
        const uint8_t *from = is_output ? list->output : list->input;
        uint32_t room = CONVOY_RECORD_ENTRY_BYTES - out.length;
        uint32_t length = from == NULL ? 0 : list->count < room ? list->count : room;
        out.is_cut |= from != NULL && length < list->count;
        if (length != 0) {
            memcpy(to + out.length, from, length);
        }
        out.length += length;
    }
    return out;
}

/* Sum over all that came out, eight bytes at a time: good enough to see whether anything moves. */
__attribute__((noinline)) static uint64_t record_digest(const struct convoy_poll_record *round)
{
    uint64_t digest = 0;
    for (uint32_t i = 0; i < round->list_count; i++) {
        const uint8_t *bytes = round->lists[i].output;
        uint32_t count = bytes != NULL ? round->lists[i].count : 0;
        uint64_t word = 0;
        for (; count >= sizeof word; count -= (uint32_t)sizeof word, bytes += sizeof word) {
            memcpy(&word, bytes, sizeof word);
            digest = (digest ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        }
        word = count;
        for (; count != 0; count--, bytes++) {
            word = word << 8 | *bytes;
        }
        digest = (digest ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return digest;
}

/* Whether the outcome differs from that of the last poll round. digest: of what `bytes` does not show. */
static inline bool record_has_moved(struct convoy_record *record, uint64_t digest, const uint8_t *bytes,
                                    uint32_t length)
{
    bool has_moved = digest != record->digest || length != record->output_bytes ||
                     (length != 0 && memcmp(bytes, record->output, length) != 0);
    if (__builtin_expect(has_moved, 0)) {
        record->digest = digest;
        record->output_bytes = length;
        if (length != 0) {
            memcpy(record->output, bytes, length);
        }
    }
    return has_moved;
}

static inline void record_list(struct convoy_call_list *to, const struct convoy_poll_record_list *list)
{
    to->input_count = list->count;
    to->value_bytes = 1;
    to->width = 0;
    if (list->name_length == 0) {
        to->name[0] = '\0';
        return;
    }
    size_t length = list->name_length < CONVOY_CALL_NAME_BYTES - 1 ? list->name_length : CONVOY_CALL_NAME_BYTES - 1;
    memcpy(to->name, list->name, length);
    memset(to->name + length, 0, CONVOY_CALL_NAME_BYTES - length);
}

static void record_stall(struct convoy_record *record, bool has_moved)
{
    if (convoy_stall_round(&record->stall, has_moved)) {
        convoy_stats_event(record->stats, CONVOY_EVENT_STALL);
        record->stalls++;
    }
}

/* The usual round: lists that lie one after the other, and an outcome. false: they do not. */
static inline bool record_is_joined(const struct convoy_poll_record *round)
{
    bool is_joined = round->list_count != 0 && round->lists[0].output != NULL;
    for (uint32_t i = 1; i < round->list_count && is_joined; i++) {
        const struct convoy_poll_record_list *last = &round->lists[i - 1];
        is_joined = round->lists[i].input == last->input + last->count &&
                    round->lists[i].output == last->output + last->count;
    }
    return is_joined;
}

void convoy_record_poll(void *user, const struct convoy_poll_record *round)
{
    struct convoy_record *record = user;
    convoy_record_settle(record); /* what a short round, which has not ended as such, put aside */
    struct convoy_call_header header; /* what put takes from elsewhere, and unused lists, are not set */
    struct convoy_call_end end;
    struct record_room room;
    uint64_t shape = round->list_count;
    uint32_t entries = 0;
    uint32_t flags = 0;
    for (uint32_t i = 0; i < round->list_count; i++) {
        const struct convoy_poll_record_list *list = &round->lists[i];
        record_list(&header.lists[i], list);
        end.output_counts[i] = list->output != NULL ? list->count : 0;
        shape = shape * UINT64_C(0x9e3779b97f4a7c15) + end.output_counts[i];
        entries += list->count;
        flags |= list->flags;
    }
    bool is_joined = record_is_joined(round);
    struct record_bytes input = is_joined ? record_range(round->lists[0].input, entries)
                                          : record_collect(round, false, room.input);
    struct record_bytes output = is_joined ? record_range(round->lists[0].output, entries)
                                           : record_collect(round, true, room.output);
    uint64_t call_ns = record_take_time(record);
    header.operation = (flags & CONVOY_POLL_KEYED) != 0 ? CONVOY_OPERATION_POLL_KEYED : CONVOY_OPERATION_POLL;
    header.round = round->round;
    header.epoch = round->epoch;
    header.tag = round->tag;
    header.votes = round->votes;
    header.list_count = round->list_count;
    header.input_bytes = entries;
    end.status = round->status;
    end.votes_and = round->votes_and;
    end.votes_or = round->votes_or;
    end.duration_ns = call_ns;
    end.output = output.bytes;
    end.output_bytes = output.length;
    convoy_call_log_put(record->log, &header, input.bytes, &end);
    if (round->status == CONVOY_OK) {
        record->has_form = round->may_repeat && is_joined && !output.is_cut;
        record->form_operation = header.operation;
        record->form_shape = shape;
        record->form_entries = entries;
        convoy_call_form_make(&record->form, record->log, &header, &end);
    }
    record_count(record, header.operation, round->status, entries, entries, call_ns);
    record->list_count = round->list_count;
    record->poll_operation = header.operation;
    record->is_broken = round->status < CONVOY_OK && record_is_loss(round->status);
    uint64_t digest = output.is_cut ? shape ^ record_digest(round) : shape;
    record_stall(record, entries == 0 || record_has_moved(record, digest, output.bytes, output.length));
}

static inline struct convoy_call_values record_values(const struct convoy_record *record)
{
    const struct convoy_round_summary *summary = record->summary;
    return (struct convoy_call_values){
        .round = summary->round,
        .epoch = summary->epoch,
        .tag = record->late_tag,
        .votes = record->late_votes,
        .votes_and = summary->votes_and,
        .votes_or = summary->votes_or,
        .input = record->late_input,
        .output = record->late_output,
    };
}

/* A round into log and counters. */
static inline void record_write(struct convoy_record *record, enum convoy_record_late kind,
                                const struct convoy_call_values *values, const struct convoy_stats_wait *waited,
                                uint64_t call_ns)
{
    if (kind == CONVOY_RECORD_LATE_POLL) {
        convoy_call_log_put_form(record->log, &record->form, values, call_ns);
        convoy_stats_round_ok(record->stats, record->form_operation, record->form_entries, record->form_entries, waited,
                              call_ns);
    } else {
        convoy_call_log_put_form(record->log, &record->sync_forms[1], values, call_ns);
        convoy_stats_round_ok(record->stats, CONVOY_OPERATION_SYNC, 1, record->width * 8u, waited, call_ns);
    }
}

__attribute__((noinline)) static void record_write_kept(struct convoy_record *record, uint32_t count)
{
    for (uint32_t i = CONVOY_MUTATED(kept_record_lost) ? 1 : 0; i < count; i++) {
        const struct convoy_record_kept *kept = &record->kept[i];
        record_write(record, kept->kind, &kept->values, &kept->waited, kept->call_ns);
    }
    atomic_store_explicit(&record->kept_count, 0, memory_order_release);
}

CONVOY_HOT
void convoy_record_settle(void *user)
{
    struct convoy_record *record = user;
    uint32_t late = atomic_load_explicit(&record->late, memory_order_acquire);
    uint32_t kept_count = atomic_load_explicit(&record->kept_count, memory_order_relaxed);
    if (__builtin_expect(kept_count != 0, 0)) {
        record_write_kept(record, kept_count);
    }
    if (late == CONVOY_RECORD_WRITTEN) {
        return;
    }
    if (!CONVOY_MUTATED(late_record_lost)) {
        struct convoy_call_values values = record_values(record);
        record_write(record, late, &values, record->waited, record->late_ns);
    }
    atomic_store_explicit(&record->late, CONVOY_RECORD_WRITTEN, memory_order_release);
}

CONVOY_HOT
void convoy_record_keep(void *user)
{
    struct convoy_record *record = user;
    uint32_t late = atomic_load_explicit(&record->late, memory_order_acquire);
    uint32_t count = atomic_load_explicit(&record->kept_count, memory_order_relaxed);
    if (late == CONVOY_RECORD_WRITTEN) {
        return;
    }
    const struct convoy_call_form *form = late == CONVOY_RECORD_LATE_POLL ? &record->form : &record->sync_forms[1];
    struct convoy_record_kept *kept = &record->kept[count % CONVOY_RECORD_KEPT];
    if (count == CONVOY_RECORD_KEPT || form->input_bytes + form->output_bytes > sizeof kept->bytes) {
        convoy_record_settle(record);
        return;
    }
    kept->values = record_values(record);
    kept->kind = late;
    kept->call_ns = record->late_ns;
    kept->waited = *record->waited;
    memcpy(kept->bytes, kept->values.input, form->input_bytes);
    memcpy(kept->bytes + form->input_bytes, kept->values.output, form->output_bytes);
    kept->values.input = kept->bytes;
    kept->values.output = kept->bytes + form->input_bytes;
    atomic_store_explicit(&record->kept_count, count + 1, memory_order_release);
    atomic_store_explicit(&record->late, CONVOY_RECORD_WRITTEN, memory_order_release);
}

/* Went the whole way, which is not of those that are written late. */
bool convoy_record_poll_repeat(void *user, const struct convoy_call_values *values)
{
    struct convoy_record *record = user;
    if (!record->has_form) {
        return false;
    }
    uint32_t entries = record->form_entries;
    convoy_record_settle(record); /* as convoy_record_poll */
    uint64_t call_ns = record_take_time(record);
    record_stall(record, entries == 0 || record_has_moved(record, record->form_shape, values->output, entries));
    record->is_broken = false;
    convoy_call_log_put_form(record->log, &record->form, values, call_ns);
    record_count_ok(record, record->form_operation, entries, entries, call_ns);
    return true;
}

static inline void record_short(struct convoy_record *record, const struct convoy_poll *poll, bool has_moved)
{
    record_stall(record, has_moved);
    record->late_input = poll->quick.round.input;
    record->late_output = poll->quick.round.output;
    record->late_tag = poll->quick.engine.tag;
    record->late_votes = poll->quick.engine.votes;
    record_late(record, CONVOY_RECORD_LATE_POLL);
}

__attribute__((noinline)) static void record_short_any(struct convoy_record *record, struct convoy_poll *poll)
{
    uint32_t entries = record->form_entries;
    if (!record->has_form) {
        convoy_poll_quick_record(poll);
        return;
    }
    record_short(record, poll,
                 entries == 0 || poll->quick.round.moved == CONVOY_POLL_MOVED_YES ||
                     (poll->quick.round.moved == CONVOY_POLL_MOVED_UNKNOWN &&
                      record_has_moved(record, record->form_shape, poll->quick.round.output, entries)));
}

CONVOY_HOT
void convoy_record_poll_short(struct convoy_record *record, struct convoy_poll *poll)
{
    if (__builtin_expect(record->has_form && poll->quick.round.moved == CONVOY_POLL_MOVED_YES, 1)) {
        record_short(record, poll, true);
        return;
    }
    record_short_any(record, poll);
}

CONVOY_HOT
void convoy_record_poll_counts_any(struct convoy_record *record, const struct convoy_poll_result *result)
{
    struct convoy_operation_stats *stats = &record->stats->operations[record->poll_operation - CONVOY_OPERATION_POLL];
    for (size_t i = 0; i < result->list_capacity && i < record->list_count; i++) {
        const struct convoy_poll_list_result *list = &result->lists[i];
        (void)atomic_fetch_add_explicit(&stats->unknown_states, list->unknown_count, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&stats->foreign_stamps, list->foreign_count, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&stats->demoted, list->demoted_count, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&stats->injected, list->injected_count, memory_order_relaxed);
    }
}
