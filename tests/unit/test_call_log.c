/* SPDX-License-Identifier: Apache-2.0 */
#include "core/memory.h"
#include "round/call_log.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RACE_CALLS 200000u
#define RACE_BYTES 64u

static struct convoy_call_log *call_log;

static int setup(void **state)
{
    (void)state;
    return convoy_call_log_create(4, RACE_BYTES, &call_log);
}

/* Every call is written over the one before. */
static int setup_one(void **state)
{
    (void)state;
    return convoy_call_log_create(1, RACE_BYTES, &call_log);
}

static int teardown(void **state)
{
    (void)state;
    convoy_call_log_destroy(call_log);
    return 0;
}

/* A poll of two lists: a = {1, 4}, b = {3}; result {1, 2} and {0}. */
static void poll_once(uint64_t round)
{
    struct convoy_call_header header = {.round = round, .epoch = 1ull << 60, .tag = 9, .votes = 5, .list_count = 2,
                                        .operation = CONVOY_OPERATION_POLL, .input_bytes = 3};
    header.lists[0] = (struct convoy_call_list){.name = "prealloc", .input_count = 2, .value_bytes = 1};
    header.lists[1] = (struct convoy_call_list){.name = "transfer", .input_count = 1, .value_bytes = 1};
    convoy_call_log_start(call_log, &header, "\1\4\3");
    const struct convoy_call_end end = {.status = CONVOY_OK, .duration_ns = 77, .votes_and = 1, .votes_or = 7,
                                        .output_counts = {2, 1}, .output = "\1\2\0", .output_bytes = 3};
    convoy_call_log_end(call_log, &end);
}

static void assert_dump(const char *expected)
{
    json_t *json = convoy_call_log_json(call_log);
    assert_non_null(json);
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, expected);
    free(text);
    json_decref(json);
}

static void test_call_log_poll_is_written_with_its_lists(void **state)
{
    (void)state;
    poll_once(12);
    assert_dump("[{\"cut\":false,\"duration_ns\":77,\"epoch\":\"1152921504606846976\",\"input_bytes\":3,\"lists\":["
                "{\"count\":2,\"input\":[1,4],\"name\":\"prealloc\",\"output\":[1,2]},"
                "{\"count\":1,\"input\":[3],\"name\":\"transfer\",\"output\":[0]}],"
                "\"operation\":\"poll\",\"output_bytes\":3,\"round\":12,\"status\":\"OK\",\"tag\":\"9\",\"votes\":5,"
                "\"votes_and\":1,\"votes_or\":7}]");
}

/* Both ways, one after the other, over a ring that still holds something else. */
static void test_call_log_put_by_form_equals_put(void **state)
{
    (void)state;
    uint8_t bytes[2][RACE_BYTES];
    struct convoy_call_header read[2];
    for (uint32_t length = 0; length <= RACE_BYTES; length++) {
        struct convoy_call_header header = {.round = 3, .epoch = 4, .tag = 5, .votes = 6, .list_count = 2,
                                            .operation = CONVOY_OPERATION_POLL, .input_bytes = length};
        header.lists[0] = (struct convoy_call_list){.name = "prealloc", .input_count = length, .value_bytes = 1};
        header.lists[1] = (struct convoy_call_list){.width = 7};
        uint8_t data[RACE_BYTES];
        memset(data, (int)length, sizeof data);
        const struct convoy_call_end end = {.status = CONVOY_OK, .duration_ns = 77, .votes_and = 1, .votes_or = 7,
                                            .output_counts = {length, 9}, .output = data, .output_bytes = length};
        const struct convoy_call_values values = {3, 4, 5, 6, 1, 7, data, data};
        struct convoy_call_form form;
        convoy_call_form_make(&form, call_log, &header, &end);
        convoy_call_log_put(call_log, &header, data, &end);
        convoy_call_log_put_form(call_log, &form, &values, 77);
        for (uint32_t i = 0; i < 2; i++) {
            memset(bytes[i], 0, RACE_BYTES);
            assert_true(convoy_call_log_read(call_log, 2 * length + 1 + i, &read[i], bytes[i]));
        }
        read[0].number = read[1].number;
        assert_memory_equal(&read[0], &read[1], offsetof(struct convoy_call_header, lists));
        assert_memory_equal(read[0].lists, read[1].lists, 2 * sizeof read[0].lists[0]);
        assert_memory_equal(bytes[0], bytes[1], length);
        assert_int_equal(read[0].lists[1].output_count, 9);
        assert_int_equal(read[0].votes_or, 7);
    }
}

static void test_call_log_sync_is_written_in_rows(void **state)
{
    (void)state;
    const int64_t row[] = {7, -1};
    const int64_t table[] = {7, -1, INT64_MIN, 8};
    struct convoy_call_header header = {.round = 1, .operation = CONVOY_OPERATION_SYNC, .list_count = 1,
                                        .input_bytes = sizeof row};
    header.lists[0] = (struct convoy_call_list){.name = "rows", .input_count = 2, .value_bytes = 8, .width = 2};
    convoy_call_log_start(call_log, &header, row);
    const struct convoy_call_end end = {.output_counts = {4}, .output = table, .output_bytes = sizeof table};
    convoy_call_log_end(call_log, &end);
    assert_dump("[{\"cut\":false,\"duration_ns\":0,\"epoch\":\"0\",\"input_bytes\":16,\"lists\":[{\"count\":2,"
                "\"input\":[[7,-1]],\"name\":\"rows\",\"output\":[[7,-1],[-9223372036854775808,8]]}],"
                "\"operation\":\"sync\",\"output_bytes\":32,\"round\":1,\"status\":\"OK\",\"tag\":\"0\",\"votes\":0,"
                "\"votes_and\":0,\"votes_or\":0}]");
}

/* What hangs shows its input. */
static void test_call_log_open_call_has_its_input_and_no_output(void **state)
{
    (void)state;
    struct convoy_call_header header = {.round = 1, .operation = CONVOY_OPERATION_POLL, .list_count = 1,
                                        .input_bytes = 2, .output_bytes = 9};
    header.lists[0] = (struct convoy_call_list){.input_count = 2, .output_count = 2, .value_bytes = 1};
    convoy_call_log_start(call_log, &header, "\1\4");
    assert_dump("[{\"cut\":false,\"duration_ns\":0,\"epoch\":\"0\",\"input_bytes\":2,\"lists\":[{\"count\":2,"
                "\"input\":[1,4],\"name\":\"\",\"output\":[]}],\"operation\":\"poll\",\"output_bytes\":0,\"round\":1,"
                "\"status\":\"IN_PROGRESS\",\"tag\":\"0\",\"votes\":0,\"votes_and\":0,\"votes_or\":0}]");
}

static void test_call_log_keeps_the_last_calls(void **state)
{
    (void)state;
    for (uint64_t round = 1; round <= 11; round++) {
        poll_once(round);
    }
    struct convoy_call_header header;
    uint8_t bytes[RACE_BYTES];
    assert_int_equal(convoy_call_log_count(call_log), 11);
    assert_false(convoy_call_log_read(call_log, 0, &header, bytes));
    assert_false(convoy_call_log_read(call_log, 7, &header, bytes));
    assert_false(convoy_call_log_read(call_log, 12, &header, bytes));
    json_t *json = convoy_call_log_json(call_log);
    assert_int_equal(json_array_size(json), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(json_integer_value(json_object_get(json_array_get(json, i), "round")), 8 + i);
    }
    json_decref(json);
}

/* Only what fits is kept, the header says how much there was, and nothing is read beyond. */
static void test_call_log_larger_calls_are_cut(void **state)
{
    (void)state;
    uint8_t input[RACE_BYTES + 8];
    memset(input, 3, sizeof input);
    struct convoy_call_header header = {.round = 1, .operation = CONVOY_OPERATION_POLL, .list_count = 1,
                                        .input_bytes = sizeof input};
    header.lists[0] = (struct convoy_call_list){.input_count = sizeof input, .value_bytes = 1};
    convoy_call_log_start(call_log, &header, input);
    const struct convoy_call_end end = {.output_counts = {sizeof input}, .output = input, .output_bytes = sizeof input};
    convoy_call_log_end(call_log, &end);
    json_t *json = convoy_call_log_json(call_log);
    json_t *call = json_array_get(json, 0);
    json_t *list = json_array_get(json_object_get(call, "lists"), 0);
    assert_true(json_is_true(json_object_get(call, "cut")));
    assert_int_equal(json_array_size(json_object_get(list, "input")), RACE_BYTES);
    assert_int_equal(json_array_size(json_object_get(list, "output")), 0);
    assert_int_equal(json_integer_value(json_object_get(list, "count")), sizeof input);
    json_decref(json);
}

static void test_call_log_end_without_start_does_nothing(void **state)
{
    (void)state;
    convoy_call_log_end(call_log, &(struct convoy_call_end){.status = CONVOY_BROKEN});
    assert_int_equal(convoy_call_log_count(call_log), 0);
    assert_dump("[]");
}

static void *write_main(void *argument)
{
    _Atomic int *is_over = argument;
    uint8_t bytes[RACE_BYTES];
    for (uint64_t i = 1; i <= RACE_CALLS; i++) {
        memset(bytes, (int)(i & 0xff), sizeof bytes);
        struct convoy_call_header header = {.round = i, .tag = i, .operation = CONVOY_OPERATION_POLL,
                                            .input_bytes = RACE_BYTES / 2};
        convoy_call_log_start(call_log, &header, bytes);
        convoy_call_log_end(call_log, &(struct convoy_call_end){.duration_ns = i, .output = bytes,
                                                                .output_bytes = RACE_BYTES / 2});
    }
    atomic_store(is_over, 1);
    return NULL;
}

/* Every byte and field of an entry that was read belongs to the same call. */
static void test_call_log_reader_beside_the_writer_never_sees_half_an_entry(void **state)
{
    (void)state;
    pthread_t writer;
    _Atomic int is_over = 0;
    uint64_t good = 0;
    assert_int_equal(pthread_create(&writer, NULL, write_main, &is_over), 0);
    while (atomic_load(&is_over) == 0 || good == 0) {
        struct convoy_call_header header;
        uint8_t bytes[RACE_BYTES];
        uint64_t number = convoy_call_log_count(call_log);
        if (!convoy_call_log_read(call_log, number, &header, bytes)) {
            continue;
        }
        good++;
        bool is_ended = header.status != CONVOY_IN_PROGRESS;
        assert_int_equal(header.round, number);
        assert_int_equal(header.tag, number);
        assert_int_equal(header.duration_ns, is_ended ? number : 0);
        for (size_t i = 0; i < (is_ended ? RACE_BYTES : RACE_BYTES / 2); i++) {
            assert_int_equal(bytes[i], number & 0xff);
        }
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
}

static void test_call_log_sizes_are_rounded_and_bounded(void **state)
{
    (void)state;
    struct convoy_call_log *log = NULL;
    assert_int_equal(convoy_call_log_create(5, 9, &log), CONVOY_OK);
    assert_int_equal(convoy_call_log_entries(log), 8);
    assert_int_equal(convoy_call_log_entry_bytes(log), 16);
    convoy_call_log_destroy(log);
    assert_int_equal(convoy_call_log_create(UINT32_MAX, 8, &log), CONVOY_OK);
    assert_int_equal(convoy_call_log_entries(log), 65536);
    convoy_call_log_destroy(log);
    convoy_call_log_destroy(NULL);
#ifdef CONVOY_FAULTS
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_call_log_create(4, 8, &log), CONVOY_NO_MEMORY);
    (void)convoy_memory_fail_after(-1);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_call_log_poll_is_written_with_its_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call_log_put_by_form_equals_put, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call_log_sync_is_written_in_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call_log_open_call_has_its_input_and_no_output, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call_log_keeps_the_last_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call_log_larger_calls_are_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call_log_end_without_start_does_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call_log_reader_beside_the_writer_never_sees_half_an_entry, setup_one,
                                        teardown),
        cmocka_unit_test(test_call_log_sizes_are_rounded_and_bounded),
    };
    return cmocka_run_group_tests_name("call_log", tests, NULL, NULL);
}
