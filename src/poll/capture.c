/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/capture.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "poll/check.h"
#include "poll/gate.h"
#include "poll/positional.h"

#include <stdio.h>
#include <string.h>

#define ENTRY_FLAGS_KNOWN (CONVOY_ENTRY_STAGED | CONVOY_ENTRY_DONE | CONVOY_ENTRY_GATE_SKIP)

void convoy_capture_place(struct convoy_capture *capture, uint32_t capacity, struct convoy_memory_plan *plan)
{
    memset(capture, 0, sizeof *capture);
    capture->capacity = capacity;
    capture->states = convoy_memory_place(plan, capture->capacity, sizeof *capture->states);
    capture->pending = convoy_memory_place(plan, capture->capacity, sizeof *capture->pending);
}

/* One list on its way in. */
struct intake {
    struct convoy_capture *capture;
    const struct convoy_poll_list *list;
    uint32_t index;
    uint32_t count;
    uint8_t *states;
    uint8_t *pending;
    struct convoy_error *error;
};

static int32_t refuse_entry(const struct intake *intake, size_t entry, const char *what, int64_t value,
                            const char *allowed)
{
    char name[CONVOY_CHECK_NAME_BYTES];
    char key[64] = "";
    if (intake->list->keys != NULL) {
        uint32_t generation = intake->list->generations != NULL ? intake->list->generations[entry] : 0;
        (void)snprintf(key, sizeof key, " (key %llu, generation %u)", (unsigned long long)intake->list->keys[entry],
                       generation);
    }
    return convoy_error_set(intake->error, CONVOY_INVALID_ARGUMENT, "%s: entry %zu%s: %s is %lld, allowed: %s",
                            convoy_check_list_name(intake->list, intake->index, name), entry, key, what,
                            (long long)value, allowed);
}

static int32_t flags_check(const struct intake *intake)
{
    const uint8_t *flags = intake->list->entry_flags;
    for (uint32_t i = 0; flags != NULL && i < intake->count; i++) {
        if ((flags[i] & ~ENTRY_FLAGS_KNOWN) != 0) {
            return refuse_entry(intake, i, "entry_flags", flags[i], "STAGED (1), DONE (2), GATE_SKIP (4) and sums");
        }
    }
    return CONVOY_OK;
}

static int32_t staging_advance(const struct intake *intake)
{
    const struct convoy_poll_list *list = intake->list;
    for (uint32_t i = 0; list->entry_flags != NULL && i < intake->count; i++) {
        uint8_t flags = list->entry_flags[i] & (CONVOY_ENTRY_STAGED | CONVOY_ENTRY_DONE);
        intake->pending[i] = flags == CONVOY_ENTRY_STAGED;
        if (flags != CONVOY_ENTRY_STAGED || list->advance == NULL) {
            continue;
        }
        int32_t answer = list->advance(list->user, intake->index, i);
        if (answer != 0 && answer != 1) {
            return refuse_entry(intake, i, "what the advance callback returned", answer, "0 (not done), 1 (done)");
        }
        intake->pending[i] = answer == 0;
    }
    return CONVOY_OK;
}

static int64_t state_load(const uint8_t *at, uint32_t width)
{
    int64_t wide;
    int32_t word;
    if (width == sizeof wide) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    if (width == sizeof word) {
        memcpy(&word, at, sizeof word);
        return word;
    }
    return *at;
}

/* The common form, one byte per entry without gaps: copied as a block. */
static int32_t states_read_block(const struct intake *intake)
{
    memcpy(intake->states, intake->list->states, intake->count);
    if (__builtin_expect(convoy_positional_unknown(intake->states, intake->count) == 0, 1)) {
        return CONVOY_OK;
    }
    uint32_t i = 0;
    while (intake->states[i] <= CONVOY_STATE_SUCCESS) {
        i++;
    }
    return refuse_entry(intake, i, "state", intake->states[i], "0 to 4");
}

static int32_t states_read(const struct intake *intake)
{
    const struct convoy_poll_list *list = intake->list;
    uint32_t width = list->state_bytes != 0 ? list->state_bytes : 1;
    size_t stride = list->state_stride != 0 ? list->state_stride : width;
    if (list->read == NULL && stride == 1) {
        return intake->count != 0 ? states_read_block(intake) : CONVOY_OK;
    }
    for (uint32_t i = 0; i < intake->count; i++) {
        int64_t state = list->read != NULL ? list->read(list->user, intake->index, i)
                                           : state_load((const uint8_t *)list->states + stride * i, width);
        if (state < CONVOY_STATE_FAILED || state > CONVOY_STATE_SUCCESS) {
            return refuse_entry(intake, i, "state", state, "0 to 4");
        }
        intake->states[i] = (uint8_t)state;
    }
    return CONVOY_OK;
}

static void faults_inject(const struct intake *intake, const struct convoy_inject *inject, uint64_t round)
{
    for (uint32_t i = 0; i < intake->count; i++) {
        if (intake->states[i] != CONVOY_STATE_FAILED && convoy_inject_hits(inject, round, intake->index, i)) {
            intake->states[i] = CONVOY_STATE_FAILED;
            intake->capture->injected[intake->index]++;
        }
    }
}

static void staging_demote(const struct intake *intake)
{
    for (uint32_t i = 0; intake->list->entry_flags != NULL && i < intake->count; i++) {
        if (intake->pending[i] != 0 && intake->states[i] == CONVOY_STATE_SUCCESS &&
            !CONVOY_MUTATED(staging_not_demoted)) {
            intake->states[i] = CONVOY_STATE_TRANSFERRING;
            intake->capture->demoted[intake->index]++;
        }
    }
}

static void gate_entry(const struct intake *intake, uint32_t i)
{
    const struct convoy_poll_list *list = intake->list;
    struct convoy_poll_stamp stamp;
    size_t stride = list->stamp_stride != 0 ? list->stamp_stride : sizeof stamp;
    memcpy(&stamp, (const char *)list->stamps + stride * i, sizeof stamp);
    uint64_t key = list->keys != NULL ? list->keys[i] : 0;
    uint32_t generation = list->generations != NULL ? list->generations[i] : 0;
    enum convoy_gate_answer answer = convoy_gate_check(list->gate, key, generation, &stamp);
    uint64_t deadline_ns = list->gate_deadlines_ns != NULL ? list->gate_deadlines_ns[i] : 0;
    bool needs_time = answer == CONVOY_GATE_FOREIGN && deadline_ns != 0; /* the clock is read only then */
    uint8_t state = convoy_gate_state(answer, needs_time ? convoy_now_ns() : 0, deadline_ns);
    intake->states[i] = state;
    intake->capture->foreign[intake->index] += answer == CONVOY_GATE_FOREIGN;
    intake->capture->demoted[intake->index] += state == CONVOY_STATE_TRANSFERRING;
}

static void gate_apply(const struct intake *intake)
{
    const uint8_t *flags = intake->list->entry_flags;
    for (uint32_t i = 0; intake->list->gate != CONVOY_GATE_NONE && i < intake->count; i++) {
        bool is_exempt = flags != NULL && (flags[i] & CONVOY_ENTRY_GATE_SKIP) != 0;
        if (intake->states[i] == CONVOY_STATE_SUCCESS && !is_exempt) {
            gate_entry(intake, i);
        }
    }
}

static struct intake intake_of(struct convoy_capture *capture, const struct convoy_poll_call *call, uint32_t index,
                               struct convoy_error *error)
{
    return (struct intake){
        .capture = capture,
        .list = &call->lists[index],
        .index = index,
        .count = (uint32_t)call->lists[index].count,
        .states = capture->states + capture->starts[index],
        .pending = capture->pending + capture->starts[index],
        .error = error,
    };
}

static void capture_reset(struct convoy_capture *capture, const struct convoy_poll_call *call,
                          const struct convoy_payload_shape *shape)
{
    uint32_t start = 0;
    for (uint32_t i = 0; i < shape->list_count; i++) {
        const struct convoy_poll_list *list = &call->lists[i];
        size_t length = list->name_length < CONVOY_CAPTURE_NAME_BYTES ? list->name_length
                                                                      : CONVOY_CAPTURE_NAME_BYTES - 1;
        capture->name_lengths[i] = (uint32_t)length;
        if (length != 0) {
            memcpy(capture->names[i], list->name, length);
        }
        capture->names[i][length] = '\0';
        capture->starts[i] = start;
        capture->foreign[i] = capture->injected[i] = capture->demoted[i] = 0;
        start += shape->counts[i];
    }
}

/* Runs one step over all lists; the first refusal ends it. */
static int32_t each_list(struct convoy_capture *capture, const struct convoy_poll_call *call,
                         const struct convoy_payload_shape *shape, int32_t (*step)(const struct intake *),
                         struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < shape->list_count && status == CONVOY_OK; i++) {
        struct intake intake = intake_of(capture, call, i, error);
        status = step(&intake);
    }
    return status;
}

int32_t convoy_capture_take(struct convoy_capture *capture, const struct convoy_poll_call *call,
                            const struct convoy_payload_shape *shape, const struct convoy_inject *inject,
                            uint64_t round, struct convoy_error *error)
{
    capture_reset(capture, call, shape);
    int32_t status = each_list(capture, call, shape, flags_check, error);
    if (status == CONVOY_OK) {
        status = each_list(capture, call, shape, staging_advance, error);
    }
    if (status == CONVOY_OK) {
        status = each_list(capture, call, shape, states_read, error);
    }
    bool is_injecting = status == CONVOY_OK && convoy_inject_is_active(inject, round);
    for (uint32_t i = 0; i < shape->list_count && status == CONVOY_OK; i++) {
        struct intake intake = intake_of(capture, call, i, error);
        if (is_injecting) {
            faults_inject(&intake, inject, round);
        }
        staging_demote(&intake);
        gate_apply(&intake);
    }
    return status;
}
