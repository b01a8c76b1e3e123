/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/capture.h"

#include "core/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Calls to the host's functions, in order, and what they answer. */
struct host {
    char trail[64];
    uint32_t calls;
    int32_t advance_answer;
    int32_t states[4];
};

static int32_t host_advance(void *user, size_t list, size_t entry)
{
    struct host *host = user;
    host->trail[host->calls++] = (char)('A' + (int)(list * 8 + entry));
    return host->advance_answer;
}

static int32_t host_read(void *user, size_t list, size_t entry)
{
    struct host *host = user;
    host->trail[host->calls++] = (char)('a' + (int)(list * 8 + entry));
    return host->states[entry];
}

static int32_t capture(struct convoy_capture *captured, struct convoy_poll_list *lists, uint32_t count,
                       const struct convoy_poll_faults *faults, struct convoy_error *error)
{
    struct convoy_poll_call call = {.lists = lists, .list_count = count};
    struct convoy_payload_shape shape = {0};
    struct convoy_inject inject;
    for (uint32_t i = 0; i < count; i++) {
        convoy_payload_shape_add(&shape, (uint32_t)lists[i].count, lists[i].flags);
    }
    struct convoy_memory_plan plan = {0};
    convoy_capture_place(captured, 64, &plan);
    assert_true(convoy_memory_plan_make(&plan));
    convoy_capture_place(captured, 64, &plan);
    assert_int_equal(convoy_inject_init(&inject, faults, NULL), CONVOY_OK);
    int32_t status = convoy_capture_take(captured, &call, &shape, &inject, 5, error);
    convoy_inject_fini(&inject);
    return status;
}

/* All staging is advanced before any state is read, in list order; a done entry is not advanced. */
static void test_capture_advances_before_it_reads(void **state)
{
    (void)state;
    struct host host = {.advance_answer = 1, .states = {4, 4, 4, 4}};
    const uint8_t flags[] = {CONVOY_ENTRY_STAGED, 0, CONVOY_ENTRY_STAGED | CONVOY_ENTRY_DONE};
    struct convoy_poll_list lists[2] = {
        {.count = 3, .entry_flags = flags, .advance = host_advance, .read = host_read, .user = &host},
        {.count = 2, .entry_flags = flags, .advance = host_advance, .read = host_read, .user = &host}};
    struct convoy_capture captured;
    assert_int_equal(capture(&captured, lists, 2, NULL, NULL), CONVOY_OK);
    assert_string_equal(host.trail, "AIabcij");
    assert_memory_equal(captured.states, ((const uint8_t[]){4, 4, 4, 4, 4}), 5);
    convoy_memory_table_free(captured.states); /* the first of its tables: all of them */
}

static void test_capture_demotes_success_where_staging_is_not_done(void **state)
{
    (void)state;
    const uint8_t flags[] = {CONVOY_ENTRY_STAGED, CONVOY_ENTRY_STAGED, 0, CONVOY_ENTRY_STAGED | CONVOY_ENTRY_DONE};
    const uint8_t states[] = {4, 0, 4, 4};
    struct convoy_poll_list list = {.count = 4, .entry_flags = flags, .states = states};
    struct convoy_capture captured;
    assert_int_equal(capture(&captured, &list, 1, NULL, NULL), CONVOY_OK);
    assert_memory_equal(captured.states, ((const uint8_t[]){3, 0, 4, 4}), 4);
    assert_int_equal(captured.demoted[0], 1);
    convoy_memory_table_free(captured.states);
}

/* sgl-project/sglang issues 17259 and 22716, PR 17430: a foreign stamp is never Success, and Failed at its deadline. */
static void test_capture_gate_turns_foreign_stamps_into_transferring_then_failed(void **state)
{
    (void)state;
    const uint64_t keys[] = {7, 7, 7, 7, 7, 7};
    const uint32_t generations[] = {3, 3, 3, 3, 3, 3};
    const uint8_t flags[] = {0, 0, 0, 0, CONVOY_ENTRY_GATE_SKIP, 0};
    const uint8_t states[] = {4, 4, 4, 4, 4, 2};
    const uint64_t deadlines[] = {1, 1, 1, convoy_now_ns() + 3600 * CONVOY_NS_PER_S, 1, 1};
    const struct convoy_poll_stamp stamps[] = {{7, 3, 1}, {0, 0, 0}, {7, 2, 1}, {8, 3, 1}, {8, 3, 1}, {8, 3, 1}};
    struct convoy_poll_list list = {.count = 6, .keys = keys, .generations = generations, .entry_flags = flags,
                                    .states = states, .gate = CONVOY_GATE_IDENTITY, .stamps = stamps,
                                    .gate_deadlines_ns = deadlines};
    struct convoy_capture captured;
    assert_int_equal(capture(&captured, &list, 1, NULL, NULL), CONVOY_OK);
    assert_memory_equal(captured.states, ((const uint8_t[]){4, 3, 0, 3, 4, 2}), 6);
    assert_int_equal(captured.foreign[0], 2);
    assert_int_equal(captured.demoted[0], 2);
    convoy_memory_table_free(captured.states);
}

/* Faults come before demotion and gate: an injected failure is not gated, and an own failure is not counted. */
static void test_capture_injected_faults_are_counted(void **state)
{
    (void)state;
    const struct convoy_poll_fault script[] = {{5, 0, 0}, {5, 0, 1}, {4, 0, 2}};
    const struct convoy_poll_faults faults = {.struct_size = sizeof faults, .script = script, .script_count = 3};
    const struct convoy_poll_stamp stamps[3] = {{0, 0, 0}, {0, 0, 0}, {1, 0, 0}};
    const uint8_t states[] = {4, 0, 4};
    struct convoy_poll_list list = {.count = 3, .states = states, .gate = CONVOY_GATE_HOST, .stamps = stamps};
    struct convoy_capture captured;
    assert_int_equal(capture(&captured, &list, 1, &faults, NULL), CONVOY_OK);
    assert_memory_equal(captured.states, ((const uint8_t[]){0, 0, 4}), 3);
    assert_int_equal(captured.injected[0], 1);
    assert_int_equal(captured.demoted[0], 0);
    convoy_memory_table_free(captured.states);
}

static void test_capture_refuses_what_the_host_may_not_say(void **state)
{
    (void)state;
    struct host host = {.advance_answer = -3, .states = {4, 9, 4, 4}};
    const uint8_t staged[] = {0, CONVOY_ENTRY_STAGED, 0};
    const uint8_t unknown[] = {0, 0, 8};
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_capture captured;
    struct convoy_poll_list list = {.count = 3, .entry_flags = staged, .advance = host_advance, .read = host_read,
                                    .user = &host};
    assert_int_equal(capture(&captured, &list, 1, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "entry 1: what the advance callback returned is -3"));
    assert_string_equal(host.trail, "B"); /* no state was read */
    convoy_memory_table_free(captured.states);
    list.entry_flags = NULL;
    assert_int_equal(capture(&captured, &list, 1, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "entry 1: state is 9, allowed: 0 to 4"));
    convoy_memory_table_free(captured.states);
    list.entry_flags = unknown;
    assert_int_equal(capture(&captured, &list, 1, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "entry 2: entry_flags is 8"));
    convoy_memory_table_free(captured.states);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capture_advances_before_it_reads),
        cmocka_unit_test(test_capture_demotes_success_where_staging_is_not_done),
        cmocka_unit_test(test_capture_gate_turns_foreign_stamps_into_transferring_then_failed),
        cmocka_unit_test(test_capture_injected_faults_are_counted),
        cmocka_unit_test(test_capture_refuses_what_the_host_may_not_say),
    };
    return cmocka_run_group_tests_name("capture", tests, NULL, NULL);
}
