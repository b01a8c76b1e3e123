/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a gather over an engine that this file plays itself: the sync layer is compiled in here under other
 * names, so that it reaches the functions below instead of the round engine.
 */
#define convoy_engine_begin played_engine_begin
#define convoy_engine_publish played_engine_publish
#define convoy_engine_test played_engine_test
#define convoy_engine_wait played_engine_wait
#define convoy_engine_report played_engine_report
#define convoy_sync_open tested_sync_open
#define convoy_sync_close tested_sync_close
#define convoy_sync_start tested_sync_start
#define convoy_sync_test tested_sync_test
#define convoy_sync_wait tested_sync_wait
#define convoy_sync_gather tested_sync_gather
#include "sync/sync.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MEMBERS 4u
#define OPERATION 77u
#define PAGE 4096u

/* What the other members bring, and how the next round ends. */
struct convoy_engine {
    uint8_t payload[CONVOY_ROW_BYTES_MAX];
    uint8_t others[MEMBERS][CONVOY_ROW_BYTES_MAX];
    size_t other_bytes[MEMBERS];
    struct convoy_contribution contribution;
    uint32_t published;
    uint32_t waited;
    int32_t begin_status;
    int32_t end_status;
};

int32_t played_engine_begin(struct convoy_engine *engine, uint8_t **payload_out, struct convoy_error *error)
{
    *payload_out = engine->payload;
    return engine->begin_status == CONVOY_OK ? CONVOY_OK
                                             : convoy_error_set(error, engine->begin_status, "cannot begin");
}

int32_t played_engine_publish(struct convoy_engine *engine, const struct convoy_contribution *contribution,
                              convoy_operation *operation_out, struct convoy_error *error)
{
    (void)error;
    engine->contribution = *contribution;
    engine->published++;
    *operation_out = OPERATION;
    return CONVOY_OK;
}

int32_t played_engine_test(struct convoy_engine *engine, convoy_operation operation,
                           struct convoy_round_summary *summary_out, struct convoy_error *error)
{
    const struct convoy_merge_ops *ops = engine->contribution.merge;
    if (operation != OPERATION || engine->end_status != CONVOY_OK) {
        return convoy_error_set(error, operation != OPERATION ? CONVOY_CLOSED : engine->end_status, "ended");
    }
    ops->begin(engine->contribution.merge_state);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const uint8_t *payload = i == 1 ? engine->payload : engine->others[i];
        size_t bytes = i == 1 ? engine->contribution.payload_bytes : engine->other_bytes[i];
        if (i == 1 && engine->contribution.is_error) {
            ops->absent(engine->contribution.merge_state, i, CONVOY_ABSENT_ERROR, -1);
        } else if (ops->member(engine->contribution.merge_state, i, payload, bytes) != CONVOY_OK) {
            return convoy_error_set(error, CONVOY_MALFORMED, "member %u", i);
        }
    }
    *summary_out = (struct convoy_round_summary){.round = 5, .epoch = 6, .votes_and = 1, .votes_or = 3};
    return CONVOY_OK;
}

int32_t played_engine_wait(struct convoy_engine *engine, convoy_operation operation, uint64_t timeout_ns,
                           struct convoy_round_summary *summary_out, struct convoy_error *error)
{
    (void)timeout_ns;
    engine->waited++;
    return played_engine_test(engine, operation, summary_out, error);
}

void played_engine_report(struct convoy_engine *engine, struct convoy_report *report_out)
{
    (void)engine;
    report_out->own_rank = 1234;
}

static const int32_t ids[MEMBERS] = {20, 21, 22, 23};

/* This member is index 1 of 4; table [4][1][8]. All outputs lie in one block filled with 0xA5. */
struct outputs {
    int64_t table[MEMBERS * 8];
    int64_t first[MEMBERS * 8];
    struct convoy_sync_reduced reduced[8];
    uint8_t presence[MEMBERS];
};

struct fixture {
    struct convoy_engine engine;
    struct convoy_grid grid;
    struct convoy_sync *sync;
    struct outputs outputs;
    struct convoy_sync_result result;
    struct convoy_member_report members[MEMBERS];
    struct convoy_report report;
    struct convoy_error error;
};

static void bring(struct fixture *f, uint32_t member, const struct convoy_sync_call *call)
{
    f->engine.other_bytes[member] = convoy_intake_encode(&f->grid, call, member, f->engine.others[member]);
}

static void agree_alone(struct fixture *f)
{
    static uint8_t bytes[CONVOY_GRID_BYTES_MAX];
    struct convoy_schema schema;
    struct convoy_sync_schema given = {.builtin = "sglang-8", .builtin_length = 8};
    struct convoy_grid_own own = {.member_count = MEMBERS, .schema = &schema};
    struct convoy_blob blobs[MEMBERS];
    assert_int_equal(convoy_schema_load(&schema, &given, NULL), CONVOY_OK);
    assert_int_equal(convoy_grid_check(&own, NULL), CONVOY_OK);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        blobs[i] = (struct convoy_blob){bytes, convoy_grid_encode(&own, bytes, sizeof bytes)};
    }
    assert_int_equal(convoy_grid_agree(blobs, ids, &own, &f->grid, NULL), CONVOY_OK);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    agree_alone(f);
    struct convoy_sync_options options = {&f->engine, &f->grid, ids, 1, 16384, 0};
    if (tested_sync_open(&options, &f->sync, NULL) != CONVOY_OK) {
        return -1;
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        int64_t row[8] = {i, 0, 1, i == 2, 1, 2, 0, 0};
        bring(f, i, &(struct convoy_sync_call){.row = row});
    }
    memset(&f->outputs, 0xa5, sizeof f->outputs);
    f->result = (struct convoy_sync_result){
        .table = f->outputs.table, .table_capacity = MEMBERS * 8, .first = f->outputs.first,
        .first_capacity = MEMBERS * 8, .reduced = f->outputs.reduced, .reduced_capacity = 8,
        .presence = f->outputs.presence, .presence_capacity = MEMBERS, .report = &f->report};
    f->report = (struct convoy_report){
        .members = f->members, .member_stride = sizeof f->members[0], .member_capacity = MEMBERS};
    f->error.struct_size = sizeof f->error;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    tested_sync_close(f->sync);
    free(f);
    return 0;
}

static void assert_untouched(const struct fixture *f)
{
    const uint8_t *bytes = (const uint8_t *)&f->outputs;
    for (size_t i = 0; i < sizeof f->outputs; i++) {
        assert_int_equal(bytes[i], 0xa5);
    }
    assert_int_equal(f->result.width, 0);
}

/* sgl-project/sglang PR 20853 and issue 26454: only one rank extends, all learn it from the reduced columns. */
static void test_sync_gather_gives_table_facts_and_summary(void **state)
{
    struct fixture *f = *state;
    const int64_t row[8] = {8192, 0, 0, 0, 1, 4, 0, INT64_MAX};
    struct convoy_sync_call call = {.row = row, .votes = 9, .tag = 3, .mask_version = 0};
    assert_int_equal(tested_sync_gather(f->sync, &call, 0, &f->result, &f->error), CONVOY_OK);
    assert_memory_equal(f->outputs.table + 8, row, sizeof row);
    assert_memory_equal(f->outputs.first, f->outputs.table, sizeof f->outputs.first);
    assert_int_equal(f->outputs.reduced[0].value, 8192);
    assert_int_equal(f->outputs.reduced[2].value, 0);
    assert_int_equal(f->outputs.reduced[3].value, 1);
    assert_int_equal(f->outputs.reduced[5].value, 2);
    assert_int_equal(f->outputs.reduced[5].agreed, 1);
    assert_int_equal(f->result.round, 5);
    assert_int_equal(f->result.epoch, 6);
    assert_int_equal(f->result.votes_and, 1);
    assert_int_equal(f->result.votes_or, 3);
    assert_int_equal(f->engine.contribution.votes, 9);
    assert_int_equal(f->engine.contribution.tag, 3);
    assert_int_equal(f->engine.contribution.header.counts, 8);
    assert_true(f->engine.contribution.header.schema == f->grid.hash);
}

/* What lies in the caller's row after start does not matter, not even when it is an output. */
static void test_sync_row_inside_the_table_is_captured_at_start(void **state)
{
    struct fixture *f = *state;
    const int64_t row[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    convoy_operation operation;
    memcpy(f->outputs.table, row, sizeof row);
    f->outputs.presence[0] = 1;
    f->outputs.presence[1] = 1;
    f->outputs.presence[2] = 1;
    f->outputs.presence[3] = 0;
    struct convoy_sync_call call = {.row = f->outputs.table, .active = f->outputs.presence, .active_count = MEMBERS};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const uint8_t active[MEMBERS] = {1, 1, 1, 0};
        bring(f, i, &(struct convoy_sync_call){.active = active, .active_count = MEMBERS});
    }
    assert_int_equal(tested_sync_start(f->sync, &call, &operation, NULL), CONVOY_OK);
    memset(f->outputs.table, 0, sizeof row);
    assert_int_equal(tested_sync_test(f->sync, operation, &f->result, &f->error), CONVOY_OK);
    assert_memory_equal(f->outputs.table + 8, row, sizeof row);
    assert_int_equal(f->outputs.presence[2], CONVOY_PRESENT);
    assert_int_equal(f->outputs.presence[3], CONVOY_PRESENT_INACTIVE);
}

/* pytorch/pytorch issue 21480: inputs in read-only memory; outputs keep their bytes when the round does not end OK. */
static void test_sync_failure_leaves_outputs_and_inputs_alone(void **state)
{
    struct fixture *f = *state;
    static const int32_t ends[] = {CONVOY_IN_PROGRESS, CONVOY_TIMED_OUT, CONVOY_PEER_LOST, CONVOY_DIVERGED,
                                   CONVOY_BROKEN,      CONVOY_CANCELED,  CONVOY_PEER_ERROR, CONVOY_MALFORMED};
    int64_t *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    struct convoy_sync_call call = {.row = page};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        bool has_report = ends[i] != CONVOY_IN_PROGRESS && ends[i] != CONVOY_MALFORMED;
        f->engine.end_status = ends[i];
        f->report.own_rank = 0;
        assert_int_equal(tested_sync_gather(f->sync, &call, 1, &f->result, &f->error), ends[i]);
        assert_untouched(f);
        assert_int_equal(f->report.own_rank, has_report ? 1234 : 0);
    }
    f->engine.end_status = CONVOY_OK;
    assert_int_equal(tested_sync_gather(f->sync, &call, 1, &f->result, &f->error), CONVOY_OK);
    assert_int_equal(munmap(page, PAGE), 0);
}

static void test_sync_too_little_room_is_found_before_anything_is_sent(void **state)
{
    struct fixture *f = *state;
    struct convoy_sync_call call = {0};
    f->result.first_capacity--;
    assert_int_equal(tested_sync_gather(f->sync, &call, 0, &f->result, &f->error), CONVOY_BUFFER_TOO_SMALL);
    assert_int_equal(f->engine.published, 0);
    assert_untouched(f);
    f->result.first_capacity++;
    convoy_operation operation;
    assert_int_equal(tested_sync_start(f->sync, &call, &operation, NULL), CONVOY_OK);
    f->result.table_capacity--;
    assert_int_equal(tested_sync_wait(f->sync, operation, 0, &f->result, &f->error), CONVOY_BUFFER_TOO_SMALL);
    assert_untouched(f);
    f->result.table_capacity++; /* the operation stayed */
    assert_int_equal(tested_sync_wait(f->sync, operation, 0, &f->result, &f->error), CONVOY_OK);
}

/* The members disagree although every header was equal: DIVERGED with names, nothing written, a report of its own. */
static void test_sync_masks_that_differ_are_diverged_with_a_report(void **state)
{
    struct fixture *f = *state;
    const uint8_t active[MEMBERS] = {1, 1, 0, 1};
    struct convoy_sync_call call = {.mask_version = 3};
    bring(f, 2, &(struct convoy_sync_call){.active = active, .active_count = MEMBERS, .mask_version = 3});
    assert_int_equal(tested_sync_gather(f->sync, &call, 0, &f->result, &f->error), CONVOY_DIVERGED);
    assert_string_equal(f->error.text,
                        "round 5: members 21 and 22 bring active masks of version 3 with different bits");
    assert_untouched(f);
    assert_int_equal(f->report.own_rank, 21);
    assert_int_equal(f->report.round, 5);
    assert_int_equal(f->report.operation, OPERATION);
    assert_int_equal(f->members[0].condition, CONVOY_MEMBER_HEARD);
    assert_int_equal(f->members[2].condition, CONVOY_MEMBER_DIVERGED);
}

/* sgl-project/sglang PR 22872: the result says which version it used, and how many were behind. */
static void test_sync_older_mask_is_counted_as_skew(void **state)
{
    struct fixture *f = *state;
    const uint8_t active[MEMBERS] = {1, 1, 0, 1};
    struct convoy_sync_call call = {.active = active, .active_count = MEMBERS, .mask_version = 8};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        bring(f, i, &(struct convoy_sync_call){.active = i < 3 ? active : NULL, .active_count = i < 3 ? MEMBERS : 0,
                                               .mask_version = i < 3 ? 8 : 7});
    }
    assert_int_equal(tested_sync_gather(f->sync, &call, 0, &f->result, &f->error), CONVOY_OK);
    assert_int_equal(f->result.mask_version, 8);
    assert_int_equal(f->result.mask_skew, 1);
    assert_int_equal(f->outputs.presence[2], CONVOY_PRESENT_INACTIVE);
}

/* sgl-project/sglang PR 25404: a rank that cannot build its row says so, and the others get a status. */
static void test_sync_error_row_carries_reason_and_policy(void **state)
{
    struct fixture *f = *state;
    struct convoy_sync_call call = {.critical_flags = CONVOY_CALL_ERROR_ROW, .error_reason = -42, .tag = 9, .votes = 5,
                                    .policy = CONVOY_SYNC_ERRORS_AS_PRESENCE};
    assert_int_equal(tested_sync_gather(f->sync, &call, 0, &f->result, &f->error), CONVOY_OK);
    assert_true(f->engine.contribution.is_error);
    assert_true(f->engine.contribution.errors_as_presence);
    assert_int_equal(f->engine.contribution.header.policy, CONVOY_SYNC_ERRORS_AS_PRESENCE);
    assert_int_equal(f->engine.contribution.error_reason, -42);
    assert_int_equal(f->engine.contribution.tag, 9);
    assert_int_equal(f->engine.contribution.payload_bytes, 0);
    assert_int_equal(f->outputs.presence[1], CONVOY_PRESENT_ERROR);
}

static void test_sync_refused_call_sends_nothing_unless_asked_to(void **state)
{
    struct fixture *f = *state;
    convoy_operation operation = 5;
    struct convoy_sync_call call = {.row_stride = 1, .error_reason = -3};
    assert_int_equal(tested_sync_start(f->sync, &call, &operation, &f->error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(f->engine.published, 0);
    assert_int_equal(operation, 5);
    call.hint_flags = CONVOY_CALL_POST_ERROR;
    assert_int_equal(tested_sync_start(f->sync, &call, &operation, &f->error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(f->error.text, "call.row_stride is 1"));
    assert_int_equal(f->engine.published, 1);
    assert_true(f->engine.contribution.is_error);
    assert_int_equal(f->engine.contribution.error_reason, -3);
    assert_int_equal(operation, OPERATION);
    f->engine.begin_status = CONVOY_BUSY;
    assert_int_equal(tested_sync_start(f->sync, &call, &operation, &f->error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(operation, 0);
}

/* The blocking form does not leave the error row's round open behind it. */
static void test_sync_refused_blocking_call_waits_for_its_error_row(void **state)
{
    struct fixture *f = *state;
    struct convoy_sync_call call = {.row_stride = 1, .hint_flags = CONVOY_CALL_POST_ERROR};
    f->engine.end_status = CONVOY_PEER_ERROR;
    assert_int_equal(tested_sync_gather(f->sync, &call, 0, &f->result, &f->error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(f->engine.waited, 1);
    call.row_stride = 0;
    f->result.table_capacity = 0;
    assert_int_equal(tested_sync_gather(f->sync, &call, 0, &f->result, &f->error), CONVOY_BUFFER_TOO_SMALL);
    assert_int_equal(f->engine.published, 2);
    assert_int_equal(f->engine.waited, 2);
    assert_untouched(f);
}

static void test_sync_engine_that_cannot_begin_is_passed_on(void **state)
{
    struct fixture *f = *state;
    struct convoy_sync_call call = {0};
    f->engine.begin_status = CONVOY_BUSY;
    assert_int_equal(tested_sync_gather(f->sync, &call, 0, &f->result, &f->error), CONVOY_BUSY);
    assert_string_equal(f->error.text, "cannot begin");
    assert_untouched(f);
    f->engine.begin_status = CONVOY_OK;
    assert_int_equal(tested_sync_test(f->sync, 1, &f->result, &f->error), CONVOY_CLOSED);
}

/* A group runs operations of other families too; their values are no gathers. */
static void test_sync_operation_of_another_family_is_closed(void **state)
{
    struct fixture *f = *state;
    struct convoy_sync_call call = {0};
    convoy_operation operation;
    assert_int_equal(tested_sync_test(f->sync, OPERATION, &f->result, &f->error), CONVOY_CLOSED);
    assert_int_equal(tested_sync_test(f->sync, 0, &f->result, &f->error), CONVOY_CLOSED);
    assert_int_equal(tested_sync_start(f->sync, &call, &operation, NULL), CONVOY_OK);
    assert_int_equal(tested_sync_wait(f->sync, OPERATION + 1, 0, &f->result, &f->error), CONVOY_CLOSED);
    assert_int_equal(f->engine.waited, 0);
    assert_untouched(f);
    assert_int_equal(tested_sync_wait(f->sync, operation, 0, &f->result, &f->error), CONVOY_OK);
}

static void test_sync_row_that_may_not_fit_the_blob_is_limit(void **state)
{
    struct fixture *f = *state;
    struct convoy_sync *sync = NULL;
    struct convoy_sync_options options = {&f->engine, &f->grid, ids, 1, 80, 0};
    assert_int_equal(tested_sync_open(&options, &sync, &f->error), CONVOY_LIMIT);
    assert_string_equal(f->error.text, "a row of 8 columns and a mask of 4 members takes up to 81 bytes, "
                                       "blob_bytes_max is 80; raise it");
    options.blob_bytes_max = 81;
    assert_int_equal(tested_sync_open(&options, &sync, &f->error), CONVOY_OK);
    tested_sync_close(sync);
}

#ifdef CONVOY_FAULTS
static void test_sync_open_without_memory_gives_everything_back(void **state)
{
    struct fixture *f = *state;
    struct convoy_sync_options options = {&f->engine, &f->grid, ids, 1, 16384, 0};
    for (int64_t skip_count = 0; skip_count < 6; skip_count++) {
        struct convoy_sync *sync = NULL;
        (void)convoy_memory_fail_after(skip_count);
        assert_int_equal(tested_sync_open(&options, &sync, &f->error), CONVOY_NO_MEMORY);
        assert_null(sync);
    }
    (void)convoy_memory_fail_after(-1);
}

/* sgl-project/sglang PRs 34338 and 24768: nothing is allocated per step. */
static void test_sync_steps_allocate_nothing(void **state)
{
    struct fixture *f = *state;
    struct convoy_sync_call call = {0};
    (void)convoy_memory_fail_after(-1);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(tested_sync_gather(f->sync, &call, 0, &f->result, &f->error), CONVOY_OK);
    }
    assert_int_equal(convoy_memory_fail_after(-1), 0);
}
#endif

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_sync_gather_gives_table_facts_and_summary),
        CASE(test_sync_row_inside_the_table_is_captured_at_start),
        CASE(test_sync_failure_leaves_outputs_and_inputs_alone),
        CASE(test_sync_too_little_room_is_found_before_anything_is_sent),
        CASE(test_sync_masks_that_differ_are_diverged_with_a_report),
        CASE(test_sync_older_mask_is_counted_as_skew),
        CASE(test_sync_error_row_carries_reason_and_policy),
        CASE(test_sync_refused_call_sends_nothing_unless_asked_to),
        CASE(test_sync_refused_blocking_call_waits_for_its_error_row),
        CASE(test_sync_engine_that_cannot_begin_is_passed_on),
        CASE(test_sync_operation_of_another_family_is_closed),
        CASE(test_sync_row_that_may_not_fit_the_blob_is_limit),
#ifdef CONVOY_FAULTS
        CASE(test_sync_open_without_memory_gives_everything_back),
        CASE(test_sync_steps_allocate_nothing),
#endif
    };
    return cmocka_run_group_tests_name("sync", tests, NULL, NULL);
}
