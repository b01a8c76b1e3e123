/* SPDX-License-Identifier: Apache-2.0 */
/* What a group remembers of its sync rounds: what was prepared for a call, which ends of calls are ends of rounds, and
 * short rounds that are written late. */
#include "record_scene.h"

#include <cmocka.h>

#define WIDTH 2u
#define CELLS 2u
static const int64_t table[CELLS * WIDTH] = {7, -1, INT64_MIN, 8};
static const int64_t own_row[WIDTH] = {7, -1};

/* A call of this row, up to where it went out or was refused. */
static void start(struct scene *scene, const int64_t *row, int32_t status)
{
    const struct convoy_sync_call call = {.row = row, .votes = 5, .tag = 9};
    convoy_record_start(&scene->record);
    convoy_record_sync_prepare(&scene->record, &call, WIDTH);
    convoy_record_sync_started(&scene->record, status);
}

static void end(struct scene *scene, int32_t status, int64_t *table_out)
{
    const struct convoy_sync_result result = {.table = table_out, .round = scene->summary.round, .epoch = 7,
                                              .votes_and = 1, .votes_or = 3};
    const struct convoy_record_sync round = {.result = &result, .status = status, .width = WIDTH, .cells = CELLS,
                                              .round = scene->summary.round};
    convoy_record_sync(&scene->record, &round);
}

static void check(const struct scene *scene, uint64_t number, uint32_t input_count, uint32_t output_count)
{
    struct scene_entry entry;
    scene_read(scene, number, &entry);
    assert_int_equal(entry.header.operation, CONVOY_OPERATION_SYNC);
    assert_int_equal(entry.header.status, CONVOY_OK);
    assert_int_equal(entry.header.tag, 9);
    assert_int_equal(entry.header.votes, 5);
    assert_int_equal(entry.header.votes_or, 3);
    assert_int_equal(entry.header.round, number);
    assert_int_equal(entry.header.epoch, 7);
    assert_int_equal(entry.header.lists[0].width, WIDTH);
    assert_int_equal(entry.header.lists[0].value_bytes, 8);
    assert_int_equal(entry.header.lists[0].input_count, input_count);
    assert_int_equal(entry.header.lists[0].output_count, output_count);
    assert_memory_equal(entry.bytes, own_row, input_count * 8);
    assert_memory_equal(entry.output, table, output_count * 8);
}

/* The first round of each form is recorded whole, the next ones by the form: both read the same. */
static void test_record_sync_rounds_are_logged_with_row_and_table(void **state)
{
    struct scene *scene = *state;
    for (uint64_t number = 1; number <= 4; number++) {
        bool has_row = number % 2 == 1;
        scene_round(scene, number);
        start(scene, has_row ? own_row : NULL, CONVOY_OK);
        assert_true(scene->record.is_gathering);
        end(scene, CONVOY_OK, (int64_t *)(uintptr_t)table);
        assert_false(scene->record.is_gathering);
        check(scene, number, has_row ? WIDTH : 0, CELLS * WIDTH);
    }
    assert_true(convoy_record_has_sync_form(&scene->record));
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_SYNC), 4);
    assert_int_equal(scene_stats(scene, CONVOY_OPERATION_SYNC)->bytes_sent, 4 * WIDTH * 8);
}

static void test_record_sync_without_a_table_has_no_output_and_no_form(void **state)
{
    struct scene *scene = *state;
    for (uint64_t number = 1; number <= 2; number++) {
        scene_round(scene, number);
        start(scene, own_row, CONVOY_OK);
        end(scene, CONVOY_OK, NULL);
        check(scene, number, WIDTH, 0);
    }
    assert_false(convoy_record_has_sync_form(&scene->record));
}

struct prepared_row {
    size_t stride;
    uint32_t flags;
    bool has_row;
    uint32_t count;
};

/* The row is copied before the call, from any stride; where the call will be refused or sends an error row, it brings
 * none. */
static void test_record_sync_prepare_copies_what_the_call_brings(void **state)
{
    struct scene *scene = *state;
    const struct prepared_row rows[] = {
        {0, 0, true, WIDTH}, {8, 0, true, WIDTH}, {24, 0, true, WIDTH}, {9, 0, true, WIDTH},
        {4, 0, true, 0},     {0, 0, false, 0},    {0, CONVOY_CALL_ERROR_ROW, true, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t given[64] = {0};
        size_t stride = rows[i].stride != 0 ? rows[i].stride : 8;
        memcpy(given, &own_row[0], 8);
        memcpy(given + stride, &own_row[1], 8);
        const struct convoy_sync_call call = {.row = rows[i].has_row ? (const int64_t *)(const void *)given : NULL,
                                              .row_stride = rows[i].stride, .critical_flags = rows[i].flags,
                                              .votes = 5, .tag = 9 + i};
        convoy_record_sync_prepare(&scene->record, &call, WIDTH);
        memset(given, 0xff, sizeof given);
        convoy_record_sync_started(&scene->record, CONVOY_OK);
        const struct convoy_record_input *input = &scene->record.inputs[scene->record.input];
        assert_int_equal(input->tag, 9 + i);
        assert_int_equal(input->votes, 5);
        assert_int_equal(input->count, rows[i].count);
        assert_memory_equal(input->row, own_row, rows[i].count * 8);
    }
}

/* What refuses a call is no round, and leaves what the open round has brought. */
static void test_record_sync_refusals_are_no_rounds(void **state)
{
    struct scene *scene = *state;
    const int32_t refusals[] = {CONVOY_INVALID_ARGUMENT, CONVOY_BUFFER_TOO_SMALL, CONVOY_UNSUPPORTED, CONVOY_BUSY};
    const int64_t other[WIDTH] = {100, 200};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        start(scene, other, refusals[i]);
        assert_false(scene->record.is_gathering);
        end(scene, refusals[i], NULL);
    }
    assert_int_equal(scene_all(scene, CONVOY_OPERATION_SYNC), 0);
    scene_round(scene, 1);
    start(scene, own_row, CONVOY_OK);
    start(scene, other, CONVOY_BUSY);
    end(scene, CONVOY_BUFFER_TOO_SMALL, NULL); /* of a test with too little room: the round stays */
    assert_true(scene->record.is_gathering);
    end(scene, CONVOY_OK, (int64_t *)(uintptr_t)table);
    check(scene, 1, WIDTH, CELLS * WIDTH);
    end(scene, CONVOY_OK, (int64_t *)(uintptr_t)table); /* recorded already */
    assert_int_equal(convoy_call_log_count(scene->record.log), 1);
    assert_int_equal(scene_all(scene, CONVOY_OPERATION_SYNC), 1);
}

/* A wait that gave up is counted, and so is the round when it ends after that. */
static void test_record_sync_wait_given_up_leaves_the_round_open(void **state)
{
    struct scene *scene = *state;
    scene_round(scene, 1);
    start(scene, own_row, CONVOY_OK);
    end(scene, CONVOY_IN_PROGRESS, NULL);
    end(scene, CONVOY_TIMED_OUT, NULL);
    end(scene, CONVOY_CANCELED, NULL);
    assert_true(scene->record.is_gathering);
    assert_int_equal(scene_all(scene, CONVOY_OPERATION_SYNC), 2);
    assert_int_equal(convoy_call_log_count(scene->record.log), 0);
    end(scene, CONVOY_OK, (int64_t *)(uintptr_t)table);
    check(scene, 1, WIDTH, CELLS * WIDTH);
    assert_int_equal(scene_all(scene, CONVOY_OPERATION_SYNC), 3);
}

/* After a loss every start is refused with it until the group is reopened: only the first is a round. */
static void test_record_sync_start_after_a_loss_is_no_round(void **state)
{
    struct scene *scene = *state;
    struct scene_entry entry;
    scene_round(scene, 1);
    start(scene, own_row, CONVOY_OK);
    end(scene, CONVOY_PEER_LOST, NULL);
    scene_read(scene, 1, &entry);
    assert_int_equal(entry.header.status, CONVOY_PEER_LOST);
    assert_int_equal(entry.header.lists[0].input_count, WIDTH);
    assert_int_equal(entry.header.output_bytes, 0);
    assert_true(scene->record.is_broken);
    start(scene, own_row, CONVOY_PEER_LOST);
    end(scene, CONVOY_PEER_LOST, NULL);
    start(scene, own_row, CONVOY_BROKEN);
    end(scene, CONVOY_BROKEN, NULL);
    assert_int_equal(convoy_call_log_count(scene->record.log), 1);
    scene->record.is_broken = false; /* as reopen does */
    start(scene, own_row, CONVOY_BROKEN); /* sealed by another before this member's row */
    end(scene, CONVOY_BROKEN, NULL);
    assert_int_equal(convoy_call_log_count(scene->record.log), 2);
    assert_int_equal(scene_all(scene, CONVOY_OPERATION_SYNC), 2);
}

static void short_round(struct scene *scene, uint64_t number, int64_t value)
{
    int64_t *row = (int64_t *)(void *)scene->input;
    int64_t *cells = (int64_t *)(void *)scene->output;
    scene_round(scene, number);
    row[0] = value;
    cells[CELLS * WIDTH - 1] = value;
    const struct convoy_sync_short round = {.row = row, .table = cells, .tag = 100 + number, .votes = 4};
    convoy_record_sync_short(&scene->record, &round);
}

/* Late as a short poll round is, and put aside with its own bytes. */
static void test_record_short_sync_rounds_are_written_late_and_in_order(void **state)
{
    struct scene *scene = *state;
    struct scene_entry entry;
    scene_round(scene, 1);
    start(scene, own_row, CONVOY_OK);
    end(scene, CONVOY_OK, (int64_t *)(uintptr_t)table);
    for (uint64_t number = 2; number <= 4; number++) {
        short_round(scene, number, (int64_t)number * 1000);
        convoy_record_keep(&scene->record);
    }
    short_round(scene, 5, 5000);
    assert_int_equal(convoy_call_log_count(scene->record.log), 1);
    convoy_record_settle(&scene->record);
    for (uint64_t number = 2; number <= 5; number++) {
        int64_t value = (int64_t)number * 1000;
        scene_read(scene, number, &entry);
        assert_int_equal(entry.header.operation, CONVOY_OPERATION_SYNC);
        assert_int_equal(entry.header.round, number);
        assert_int_equal(entry.header.tag, 100 + number);
        assert_int_equal(entry.header.votes, 4);
        assert_memory_equal(entry.bytes, &value, 8);
        assert_memory_equal(entry.output + (CELLS * WIDTH - 1) * 8, &value, 8);
    }
    assert_int_equal(scene_ok(scene, CONVOY_OPERATION_SYNC), 5);
    assert_int_equal(scene_stats(scene, CONVOY_OPERATION_SYNC)->bytes_sent, 5 * WIDTH * 8);
}

/* A short call whose round did not end short has its row, tag and votes from what was kept of it. */
static void test_record_short_sync_round_that_ended_whole_has_its_row(void **state)
{
    struct scene *scene = *state;
    const struct convoy_sync_short kept = {.row = own_row, .tag = 9, .votes = 5};
    scene_round(scene, 1);
    convoy_record_sync_prepare_row(&scene->record, &kept, WIDTH);
    convoy_record_sync_started(&scene->record, CONVOY_OK);
    end(scene, CONVOY_OK, (int64_t *)(uintptr_t)table);
    check(scene, 1, WIDTH, CELLS * WIDTH);
}

#define SCENE_TEST(test) cmocka_unit_test_setup_teardown(test, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(test_record_sync_rounds_are_logged_with_row_and_table),
        SCENE_TEST(test_record_sync_without_a_table_has_no_output_and_no_form),
        SCENE_TEST(test_record_sync_prepare_copies_what_the_call_brings),
        SCENE_TEST(test_record_sync_refusals_are_no_rounds),
        SCENE_TEST(test_record_sync_wait_given_up_leaves_the_round_open),
        SCENE_TEST(test_record_sync_start_after_a_loss_is_no_round),
        SCENE_TEST(test_record_short_sync_rounds_are_written_late_and_in_order),
        SCENE_TEST(test_record_short_sync_round_that_ended_whole_has_its_row),
    };
    return cmocka_run_group_tests_name("record_sync", tests, NULL, NULL);
}
