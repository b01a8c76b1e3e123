/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of a move of groups fails once: in quiesce, export, import and resume. NO_MEMORY, nothing is left of the
 * attempt, and the old context goes on; or it was one that is not needed, and the move works. */
#include "plugin/tables.h"

#include "convoy/convoy.h"
#include "convoy/move.h"
#include "core/memory.h"
#include "tests/lib/expect.h"
#include "tests/lib/moving_options.h"
#include "tests/lib/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef CONVOY_FAULTS

#define LONG_NS 5000000000ull
#define CLEAN_IN_A_ROW 4
#define ALLOCATIONS_MAX 2000

static const struct convoy_core_table *const core = &convoy_core_table_1_0;
static const struct convoy_poll_table *const poll = &convoy_poll_table_1_0;
static const struct convoy_move_table *const move = &convoy_move_table_1_0;
static const struct convoy_sync_schema schema = {
    .struct_size = sizeof schema, .builtin = "sglang-7", .builtin_length = 8};
static const struct convoy_poll_fault fault = {.round = 1000};
static const struct convoy_poll_faults faults = {
    .struct_size = sizeof faults, .seed = 7, .script = &fault, .script_stride = sizeof fault, .script_count = 1};

/* Two members of one group, in contexts of their own. */
struct two {
    convoy_context *contexts[2];
    convoy_group *groups[2];
};

static void open_two(struct two *two)
{
    static const int32_t ids[2] = {0, 1};
    char rendezvous[64];
    (void)snprintf(rendezvous, sizeof rendezvous, "tcp://127.0.0.1:%u", plugin_port());
    for (uint32_t i = 0; i < 2; i++) {
        const struct convoy_group_options options = {.struct_size = sizeof options,
                                                     .own_index = i,
                                                     .own_id = (int32_t)i,
                                                     .name = "scarce",
                                                     .name_length = 6,
                                                     .member_ids = ids,
                                                     .member_count = 2,
                                                     .rendezvous = rendezvous,
                                                     .rendezvous_length = strlen(rendezvous),
                                                     .schema = &schema,
                                                     .poll_faults = i == 0 ? &faults : NULL,
                                                     .open_timeout_ns = LONG_NS};
        struct convoy_error error = {.struct_size = sizeof error};
        EXPECT_OK(core->context_open(NULL, &two->contexts[i], &error), &error);
        EXPECT_OK(core->group_open_start(two->contexts[i], &options, &two->groups[i], &error), &error);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        EXPECT_OK(core->group_open_wait(two->groups[i], LONG_NS, &error), &error);
    }
}

static void round_of(struct two *two)
{
    static const uint8_t states[2] = {4, 2};
    static const uint64_t keys[2] = {10, 20};
    const struct convoy_poll_list list = {.count = 2, .states = states, .keys = keys, .flags = CONVOY_POLL_KEYED};
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    uint8_t out[2];
    struct convoy_poll_list_result list_result = {.states = out, .states_capacity = 2};
    struct convoy_poll_result result = {
        .struct_size = sizeof result, .lists = &list_result, .list_stride = sizeof list_result, .list_capacity = 1};
    convoy_operation operations[2];
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(poll->reduce_start(two->groups[i], &call, &operations[i], NULL), CONVOY_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(poll->reduce_wait(two->groups[i], operations[i], LONG_NS, &result, NULL), CONVOY_OK);
        assert_int_equal(out[0], 4);
        assert_int_equal(out[1], 2);
    }
}

/* One attempt; to: open, with nothing in it. Statuses of the step that failed, or OK: the member is in `to` now. */
static int32_t attempt(struct two *two, convoy_context *to)
{
    static _Alignas(8) char bytes[1u << 20];
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = bytes, .capacity = sizeof bytes};
    struct convoy_moved_object object;
    struct convoy_moved moved = {
        .struct_size = sizeof moved, .objects = &object, .object_stride = sizeof object, .object_capacity = 1};
    int32_t status = move->quiesce(two->contexts[0], LONG_NS, NULL);
    status = status == CONVOY_OK ? move->export_state(two->contexts[0], &moving_options, &text, NULL) : status;
    const struct convoy_exported_state state = {.struct_size = sizeof state, .data = bytes, .bytes = text.length};
    status = status == CONVOY_OK ? move->import_state(to, &state, &moved, NULL) : status;
    status = status == CONVOY_OK ? move->resume(to, NULL) : status;
    if (status == CONVOY_OK) {
        two->groups[0] = (convoy_group *)(uintptr_t)object.new_handle;
    }
    return status;
}

/* Whether the allocation that was to fail lay behind the move. */
static bool sweep_one(struct two *two, int64_t skip)
{
    convoy_context *to = NULL;
    assert_int_equal(core->context_open(NULL, &to, NULL), CONVOY_OK);
    (void)convoy_memory_fail_after(skip);
    int32_t status = attempt(two, to);
    bool is_behind = convoy_memory_fail_after(-1) <= (uint64_t)skip;
    if (status == CONVOY_OK) {
        assert_int_equal(move->retire(two->contexts[0], LONG_NS, NULL), CONVOY_OK);
        assert_int_equal(core->context_close(two->contexts[0], LONG_NS, NULL), CONVOY_OK);
        two->contexts[0] = to;
    } else {
        assert_int_equal(status, CONVOY_NO_MEMORY);
        assert_int_equal(core->context_close(to, LONG_NS, NULL), CONVOY_OK);
        assert_int_equal(move->resume(two->contexts[0], NULL), CONVOY_OK);
    }
    round_of(two);
    return is_behind;
}

#endif

static void test_group_move_each_allocation_fails_once_and_rounds_go_on(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    struct two two;
    int clean = 0;
    int64_t skip = 0;
    open_two(&two);
    round_of(&two);
    for (; clean < CLEAN_IN_A_ROW && skip < ALLOCATIONS_MAX; skip++) {
        clean = sweep_one(&two, skip) ? clean + 1 : 0;
    }
    assert_in_range(skip, 20, ALLOCATIONS_MAX - 1);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(core->context_close(two.contexts[i], LONG_NS, NULL), CONVOY_OK);
    }
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_move_each_allocation_fails_once_and_rounds_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
