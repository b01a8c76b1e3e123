/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an operation with one member, where every round is complete at once. Groups of several members are in
 * tests/conformance and tests/fault. */
#include "round/engine.h"

#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Merges by adding up bytes. */
struct engine_sum {
    uint32_t sum;
    uint32_t members;
    int32_t refuse;
};

static void sum_begin(void *state)
{
    struct engine_sum *sum = state;
    sum->sum = 0;
    sum->members = 0;
}

static int32_t sum_member(void *state, uint32_t index, const uint8_t *payload, size_t bytes)
{
    struct engine_sum *sum = state;
    assert_int_equal(index, 0);
    for (size_t i = 0; i < bytes; i++) {
        sum->sum += payload[i];
    }
    sum->members++;
    return sum->refuse;
}

static void sum_absent(void *state, uint32_t index, enum convoy_absence absence, int32_t reason)
{
    struct engine_sum *sum = state;
    assert_int_equal(index, 0);
    assert_int_equal(absence, CONVOY_ABSENT_ERROR);
    sum->sum = (uint32_t)reason;
}

static size_t sum_encode(const void *state, uint8_t *out, size_t capacity)
{
    (void)state;
    (void)out;
    (void)capacity;
    return 0;
}

static int32_t sum_partial(void *state, const uint8_t *bytes, size_t length)
{
    (void)state;
    (void)bytes;
    (void)length;
    return CONVOY_MALFORMED;
}

static const struct convoy_merge_ops sum_ops = {sum_begin, sum_member, sum_absent, sum_encode, sum_partial};

struct engine_fixture {
    struct convoy_runtime *runtime;
    struct convoy_group_options group;
    int32_t ids[1];
    struct convoy_engine *engine;
    struct convoy_error error;
    struct engine_sum sum;
    struct convoy_contribution contribution;
    struct convoy_round_summary summary;
};

static int engine_set_up(void **state)
{
    static struct engine_fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    const struct convoy_context_config config = {.struct_size = sizeof config};
    fixture.error.struct_size = sizeof fixture.error;
    fixture.ids[0] = 7;
    fixture.group = (struct convoy_group_options){.struct_size = sizeof fixture.group,
                                                  .name = "one",
                                                  .name_length = 3,
                                                  .member_ids = fixture.ids,
                                                  .member_count = 1,
                                                  .own_id = 7,
                                                  .timeout_ns = 1000000000,
                                                  .blob_bytes_max = 256};
    const struct convoy_engine_options options = {
        .group = &fixture.group, .agreement = {.epoch = 40, .wire = 1}, .partial_bytes_max = 256};
    struct convoy_engine_options full = options;
    if (convoy_runtime_open(&config, &fixture.runtime, &fixture.error) != CONVOY_OK) {
        return -1;
    }
    full.runtime = fixture.runtime;
    fixture.contribution.merge = &sum_ops;
    fixture.contribution.merge_state = &fixture.sum;
    fixture.contribution.payload_bytes = 2;
    fixture.contribution.votes = 5;
    *state = &fixture;
    return convoy_engine_open(&full, NULL, UINT64_MAX, &fixture.engine, &fixture.error);
}

static int engine_tear_down(void **state)
{
    struct engine_fixture *fixture = *state;
    convoy_engine_close(fixture->engine, UINT64_MAX);
    convoy_runtime_destroy(fixture->runtime);
    return 0;
}

static convoy_operation engine_start(struct engine_fixture *fixture, uint8_t a, uint8_t b)
{
    uint8_t *payload = NULL;
    convoy_operation operation = 0;
    assert_int_equal(convoy_engine_begin(fixture->engine, &payload, &fixture->error), CONVOY_OK);
    payload[0] = a;
    payload[1] = b;
    assert_int_equal(convoy_engine_publish(fixture->engine, &fixture->contribution, &operation, &fixture->error),
                     CONVOY_OK);
    assert_true(operation != 0);
    return operation;
}

static void test_engine_round_merges_and_counts(void **state)
{
    struct engine_fixture *fixture = *state;
    for (uint64_t round = 1; round <= 100; round++) {
        convoy_operation operation = engine_start(fixture, (uint8_t)round, 1);
        assert_int_equal(convoy_engine_wait(fixture->engine, operation, 0, &fixture->summary, &fixture->error),
                         CONVOY_OK);
        assert_int_equal(fixture->sum.sum, round + 1);
        assert_int_equal(fixture->summary.round, round);
        assert_int_equal(fixture->summary.epoch, 40);
        assert_int_equal(fixture->summary.votes_and, 5);
        assert_int_equal(fixture->summary.votes_or, 5);
    }
}

/* A round that is over but not read yet blocks the next one; read again it says the same; a new one makes it stale. */
static void test_engine_operation_is_read_before_the_next(void **state)
{
    struct engine_fixture *fixture = *state;
    uint8_t *payload = NULL;
    convoy_operation first = engine_start(fixture, 1, 2);
    assert_true(convoy_engine_holds(fixture->engine, first));
    assert_int_equal(convoy_engine_begin(fixture->engine, &payload, &fixture->error), CONVOY_BUSY);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(convoy_engine_test(fixture->engine, first, &fixture->summary, &fixture->error), CONVOY_OK);
        assert_int_equal(fixture->summary.round, 1);
    }
    assert_false(convoy_engine_holds(fixture->engine, first));
    convoy_operation second = engine_start(fixture, 1, 2);
    assert_int_equal(convoy_engine_test(fixture->engine, first, &fixture->summary, &fixture->error), CONVOY_CLOSED);
    assert_int_equal(convoy_engine_test(fixture->engine, 0, &fixture->summary, &fixture->error), CONVOY_CLOSED);
    assert_int_equal(convoy_engine_test(fixture->engine, second, &fixture->summary, &fixture->error), CONVOY_OK);
}

/* Nothing is left to seal: the round is complete, and its result is still there. */
static void test_engine_abandon_of_a_complete_round_is_ok(void **state)
{
    struct engine_fixture *fixture = *state;
    convoy_operation operation = engine_start(fixture, 3, 4);
    assert_int_equal(convoy_engine_abandon(fixture->engine, operation, &fixture->error), CONVOY_OK);
    assert_int_equal(convoy_engine_test(fixture->engine, operation, &fixture->summary, &fixture->error), CONVOY_OK);
    assert_int_equal(fixture->sum.sum, 7);
    assert_int_equal(convoy_engine_abandon(fixture->engine, operation, &fixture->error), CONVOY_CLOSED);
}

static void test_engine_error_row_is_peer_error_or_absence(void **state)
{
    struct engine_fixture *fixture = *state;
    fixture->contribution.is_error = true;
    fixture->contribution.error_reason = 77;
    convoy_operation operation = engine_start(fixture, 0, 0);
    assert_int_equal(convoy_engine_test(fixture->engine, operation, &fixture->summary, &fixture->error),
                     CONVOY_PEER_ERROR);
    assert_int_equal(fixture->error.rank, 7);
    fixture->contribution.errors_as_presence = true;
    operation = engine_start(fixture, 0, 0);
    assert_int_equal(convoy_engine_test(fixture->engine, operation, &fixture->summary, &fixture->error), CONVOY_OK);
    assert_int_equal(fixture->sum.sum, 77);
}

/* What merge refuses ends the round with that status, and the group goes on. */
static void test_engine_refused_payload_ends_the_round(void **state)
{
    struct engine_fixture *fixture = *state;
    fixture->sum.refuse = CONVOY_LIMIT;
    convoy_operation operation = engine_start(fixture, 1, 1);
    assert_int_equal(convoy_engine_test(fixture->engine, operation, &fixture->summary, &fixture->error), CONVOY_LIMIT);
    assert_int_equal(fixture->error.round, 1);
    fixture->sum.refuse = CONVOY_OK;
    operation = engine_start(fixture, 1, 1);
    assert_int_equal(convoy_engine_test(fixture->engine, operation, &fixture->summary, &fixture->error), CONVOY_OK);
    assert_int_equal(fixture->summary.round, 2);
}

static void test_engine_reopen_when_ready_changes_nothing(void **state)
{
    struct engine_fixture *fixture = *state;
    struct convoy_reopen_result result = {.struct_size = sizeof result};
    assert_int_equal(convoy_engine_reopen(fixture->engine, 0, &result, &fixture->error), CONVOY_OK);
    assert_int_equal(result.epoch, 40);
    assert_int_equal(result.next_round, 1);
    assert_int_equal(result.recovered, 0);
    convoy_operation operation = engine_start(fixture, 1, 1);
    (void)operation;
    struct convoy_group_info info = {.struct_size = sizeof info};
    convoy_engine_info(fixture->engine, &info);
    assert_int_equal(info.state, CONVOY_GROUP_ACTIVE);
    assert_int_equal(info.segment_bytes, 0); /* one member shares nothing */
}

#define ENGINE_TEST(name) cmocka_unit_test_setup_teardown(name, engine_set_up, engine_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENGINE_TEST(test_engine_round_merges_and_counts),
        ENGINE_TEST(test_engine_operation_is_read_before_the_next),
        ENGINE_TEST(test_engine_abandon_of_a_complete_round_is_ok),
        ENGINE_TEST(test_engine_error_row_is_peer_error_or_absence),
        ENGINE_TEST(test_engine_refused_payload_ends_the_round),
        ENGINE_TEST(test_engine_reopen_when_ready_changes_nothing),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
