/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/fake_engine.h"

#include "core/error.h"
#include "round/fingerprint.h"
#include "round/quick.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX 16u

struct convoy_engine {
    struct convoy_quick_front front; /* first, as in the real one */
    struct fake_group *group;
    uint32_t index;
    uint32_t host;
    convoy_operation operation;
    bool has_published; /* in the group's current round */
    bool is_over;
    int32_t status;
    bool is_canceled;
    uint32_t field;
    struct convoy_round_summary summary;
    struct convoy_contribution contribution;
    uint8_t *payload;
};

struct fake_group {
    uint32_t member_count;
    size_t blob_bytes;
    uint64_t round;
    uint64_t epoch;
    int32_t broken; /* status, or OK */
    size_t partial_bytes;
    uint8_t *blobs[MEMBERS_MAX]; /* by host */
    size_t blob_lengths[MEMBERS_MAX];
    struct convoy_engine engines[MEMBERS_MAX];
};

struct fake_group *fake_group_create(uint32_t member_count, size_t blob_bytes)
{
    assert(member_count <= MEMBERS_MAX);
    struct fake_group *group = calloc(1, sizeof *group);
    group->member_count = member_count;
    group->blob_bytes = blob_bytes;
    group->round = 1;
    group->epoch = 7;
    for (uint32_t i = 0; i < member_count; i++) {
        group->engines[i].front.generation = CONVOY_QUICK_NOBODY;
        group->engines[i].group = group;
        group->engines[i].index = i;
        group->engines[i].payload = aligned_alloc(32, (blob_bytes + 31) / 32 * 32);
        group->blobs[i] = malloc(3 * blob_bytes + 256);
    }
    return group;
}

void fake_group_destroy(struct fake_group *group)
{
    for (uint32_t i = 0; i < group->member_count; i++) {
        free(group->engines[i].payload);
        free(group->blobs[i]);
    }
    free(group);
}

struct convoy_engine *fake_group_engine(struct fake_group *group, uint32_t index)
{
    return &group->engines[index];
}

void fake_group_place(struct fake_group *group, uint32_t index, uint32_t host)
{
    group->engines[index].host = host;
}

size_t fake_group_partial_bytes(const struct fake_group *group)
{
    return group->partial_bytes;
}

const struct convoy_contribution *fake_group_contribution(const struct fake_group *group, uint32_t index)
{
    return &group->engines[index].contribution;
}

/* -- the end of a round ------------------------------------------------------------------------------------------ */

static void round_end(struct fake_group *group, int32_t status)
{
    for (uint32_t i = 0; i < group->member_count; i++) {
        struct convoy_engine *engine = &group->engines[i];
        if (engine->has_published) {
            engine->is_over = true;
            engine->status = status;
            engine->has_published = false;
        }
    }
    group->round++;
}

/* DIVERGED, PEER_ERROR (an error row has no header to compare) or OK. */
static int32_t round_compare(struct fake_group *group)
{
    const struct convoy_contribution *first = NULL;
    uint32_t field = CONVOY_FIELD_NONE;
    uint64_t tag = 0;
    bool has_error = false;
    for (uint32_t i = 0; i < group->member_count; i++) {
        const struct convoy_contribution *own = &group->engines[i].contribution;
        bool tag_differs = own->tag != 0 && tag != 0 && own->tag != tag;
        tag = own->tag != 0 ? own->tag : tag;
        field = tag_differs && field == CONVOY_FIELD_NONE ? CONVOY_FIELD_TAG : field;
        has_error |= own->is_error;
        if (!own->is_error && first != NULL && field == CONVOY_FIELD_NONE) {
            field = convoy_fingerprint_field(&first->header, &own->header);
        }
        first = first == NULL && !own->is_error ? own : first;
    }
    for (uint32_t i = 0; i < group->member_count; i++) {
        group->engines[i].field = field;
    }
    return field != CONVOY_FIELD_NONE ? CONVOY_DIVERGED : has_error ? CONVOY_PEER_ERROR : CONVOY_OK;
}

/* What the member's own host brings. */
static int32_t merge_host(struct fake_group *group, struct convoy_engine *engine)
{
    const struct convoy_contribution *own = &engine->contribution;
    own->merge->begin(own->merge_state);
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < group->member_count && status == CONVOY_OK; i++) {
        const struct convoy_engine *other = &group->engines[i];
        if (other->host == engine->host) {
            status = own->merge->member(own->merge_state, i, other->payload, other->contribution.payload_bytes);
        }
    }
    return status;
}

static void hosts_encode(struct fake_group *group)
{
    memset(group->blob_lengths, 0, sizeof group->blob_lengths);
    for (uint32_t i = 0; i < group->member_count; i++) {
        struct convoy_engine *engine = &group->engines[i];
        const struct convoy_contribution *own = &engine->contribution;
        if (group->blob_lengths[engine->host] == 0 && merge_host(group, engine) == CONVOY_OK) {
            size_t length = own->merge->encode(own->merge_state, group->blobs[engine->host], 3 * group->blob_bytes + 256);
            group->blob_lengths[engine->host] = length;
            group->partial_bytes = length > group->partial_bytes ? length : group->partial_bytes;
        }
    }
}

static int32_t merge_all(struct fake_group *group, struct convoy_engine *engine)
{
    const struct convoy_contribution *own = &engine->contribution;
    int32_t status = merge_host(group, engine);
    for (uint32_t host = 0; host < group->member_count && status == CONVOY_OK; host++) {
        if (host != engine->host && group->blob_lengths[host] != 0) {
            status = own->merge->partial(own->merge_state, group->blobs[host], group->blob_lengths[host]);
        }
    }
    return status;
}

static void round_complete(struct fake_group *group)
{
    int32_t status = round_compare(group);
    uint32_t votes_and = UINT32_MAX;
    uint32_t votes_or = 0;
    if (status == CONVOY_OK) {
        hosts_encode(group);
    }
    for (uint32_t i = 0; i < group->member_count; i++) {
        struct convoy_engine *engine = &group->engines[i];
        votes_and &= engine->contribution.votes;
        votes_or |= engine->contribution.votes;
        if (status == CONVOY_OK) {
            status = merge_all(group, engine);
        }
    }
    for (uint32_t i = 0; i < group->member_count; i++) {
        group->engines[i].summary = (struct convoy_round_summary){
            .round = group->round, .epoch = group->epoch, .votes_and = votes_and, .votes_or = votes_or};
    }
    round_end(group, status);
}

void fake_group_lose(struct fake_group *group, uint32_t index)
{
    (void)index;
    round_end(group, CONVOY_PEER_LOST);
    group->broken = CONVOY_PEER_LOST;
}

void fake_group_reopen(struct fake_group *group)
{
    group->broken = CONVOY_OK;
    group->epoch++;
}

void fake_group_hide(struct fake_group *group, uint32_t index)
{
    group->engines[index].status = CONVOY_PEER_LOST;
}

void fake_group_hand_over(struct fake_group *group, uint32_t index)
{
    group->engines[index].status = CONVOY_OK;
}

/* -- the engine's interface -------------------------------------------------------------------------------------- */

int32_t convoy_engine_begin(struct convoy_engine *engine, uint8_t **payload_out, struct convoy_error *error)
{
    if (engine->group->broken != CONVOY_OK) {
        return convoy_error_set(error, CONVOY_BROKEN, "broken; reopen it first");
    }
    if (engine->has_published) {
        return convoy_error_set(error, CONVOY_BUSY, "an operation is open");
    }
    *payload_out = engine->payload;
    return CONVOY_OK;
}

int32_t convoy_engine_publish(struct convoy_engine *engine, const struct convoy_contribution *contribution,
                              convoy_operation *operation_out, struct convoy_error *error)
{
    struct fake_group *group = engine->group;
    uint8_t *payload;
    int32_t status = convoy_engine_begin(engine, &payload, error);
    if (status != CONVOY_OK) {
        return status;
    }
    assert(contribution->payload_bytes <= group->blob_bytes);
    engine->contribution = *contribution;
    engine->has_published = true;
    engine->is_over = false;
    engine->operation = group->round << 8 | (engine->index + 1);
    *operation_out = engine->operation;
    for (uint32_t i = 0; i < group->member_count; i++) {
        if (!group->engines[i].has_published) {
            return CONVOY_OK;
        }
    }
    round_complete(group);
    return CONVOY_OK;
}

int32_t convoy_engine_test(struct convoy_engine *engine, convoy_operation operation,
                           struct convoy_round_summary *summary_out, struct convoy_error *error)
{
    if (operation == 0 || operation != engine->operation) {
        return convoy_error_set(error, CONVOY_CLOSED, "operation %#llx is stale", (unsigned long long)operation);
    }
    if (!engine->is_over) {
        return CONVOY_IN_PROGRESS;
    }
    if (engine->status == CONVOY_OK) {
        *summary_out = engine->summary;
        return CONVOY_OK;
    }
    return convoy_error_set(error, engine->status, "the round ended otherwise");
}

int32_t convoy_engine_wait(struct convoy_engine *engine, convoy_operation operation, uint64_t timeout_ns,
                           struct convoy_round_summary *summary_out, struct convoy_error *error)
{
    (void)timeout_ns;
    int32_t status = convoy_engine_test(engine, operation, summary_out, error);
    if (status == CONVOY_IN_PROGRESS && engine->is_canceled) {
        engine->is_canceled = false;
        return convoy_error_set(error, CONVOY_CANCELED, "canceled");
    }
    return status == CONVOY_IN_PROGRESS ? convoy_error_set(error, CONVOY_TIMED_OUT, "nobody else came") : status;
}

int32_t convoy_engine_abandon(struct convoy_engine *engine, convoy_operation operation, struct convoy_error *error)
{
    if (operation == 0 || operation != engine->operation) {
        return convoy_error_set(error, CONVOY_CLOSED, "operation %#llx is stale", (unsigned long long)operation);
    }
    if (engine->is_over) {
        return CONVOY_OK;
    }
    round_end(engine->group, CONVOY_BROKEN);
    engine->group->broken = CONVOY_BROKEN;
    return convoy_error_set(error, CONVOY_BROKEN, "abandoned");
}

void convoy_engine_cancel(struct convoy_engine *engine, const char *reason, size_t length)
{
    (void)reason;
    (void)length;
    engine->is_canceled = true;
}

void convoy_engine_report(struct convoy_engine *engine, struct convoy_report *report_out)
{
    report_out->own_rank = (int32_t)engine->index;
    report_out->field = engine->field;
    report_out->operation = engine->operation;
}

uint64_t convoy_engine_round(const struct convoy_engine *engine)
{
    return engine->group->round;
}

uint64_t convoy_engine_next_round(const struct convoy_engine *engine)
{
    return engine->group->round;
}

/* Nobody cancels here while another thread waits. */
void convoy_engine_heed(struct convoy_engine *engine, struct convoy_engine *beside)
{
    (void)engine, (void)beside;
}

bool convoy_engine_holds(const struct convoy_engine *engine, convoy_operation operation)
{
    return engine->has_published && !engine->is_over && operation == engine->operation;
}

/* -- the short way: closed ----------------------------------------------------------------------------------------- */

void convoy_engine_quick_note(const struct convoy_engine *engine, struct convoy_quick *quick_out)
{
    (void)engine;
    quick_out->generation = 0;
}

void convoy_engine_quick_shorten(struct convoy_quick *quick, uint32_t payload_bytes)
{
    quick->payload_bytes = payload_bytes;
}

bool convoy_engine_quick_wait(struct convoy_engine *engine, const struct convoy_cell *cell, uint64_t word,
                              const struct convoy_quick_call *call)
{
    (void)engine;
    (void)cell;
    (void)word;
    (void)call;
    return false;
}

enum convoy_quick_end convoy_engine_quick_wait_long(struct convoy_engine *engine, const struct convoy_quick *quick,
                                                    const struct convoy_quick_call *call,
                                                    struct convoy_quick_seen *seen_out, int32_t *status_out)
{
    (void)engine;
    (void)quick;
    (void)call;
    (void)seen_out;
    *status_out = CONVOY_INVARIANT;
    return CONVOY_QUICK_ENDED;
}

uint32_t convoy_engine_quick_wake(struct convoy_engine *engine)
{
    (void)engine;
    return 0;
}

const struct convoy_round_summary *convoy_engine_summary(const struct convoy_engine *engine)
{
    return &engine->summary;
}
