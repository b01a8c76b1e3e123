/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/abi/calls.h"

#include "tests/lib/expect.h"

#include <string.h>

static void init_poll(struct calls *calls)
{
    calls->list = (struct convoy_poll_list){.count = 1, .states = &calls->state};
    calls->list_result = (struct convoy_poll_list_result){.states = &calls->state_out, .states_capacity = 1};
    calls->poll = (struct convoy_poll_call){.struct_size = sizeof calls->poll,
                                            .lists = &calls->list,
                                            .list_stride = sizeof calls->list,
                                            .list_count = 1};
    calls->poll_result = (struct convoy_poll_result){.struct_size = sizeof calls->poll_result,
                                                     .lists = &calls->list_result,
                                                     .list_stride = sizeof calls->list_result,
                                                     .list_capacity = 1};
}

static void init_sync(struct calls *calls)
{
    calls->sync = (struct convoy_sync_call){.struct_size = sizeof calls->sync, .row = calls->row};
    calls->sync_result = (struct convoy_sync_result){.struct_size = sizeof calls->sync_result,
                                                     .table = calls->table,
                                                     .table_capacity = sizeof calls->table / sizeof calls->table[0]};
}

void calls_init(struct calls *calls, const struct plugin *plugin, convoy_group *group, convoy_group *second)
{
    (void)memset(calls, 0, sizeof *calls);
    calls->plugin = *plugin;
    calls->group = group;
    calls->second = second;
    calls->timeout_ns = 1000000;
    calls->error.struct_size = sizeof calls->error;
    calls->state = CONVOY_STATE_TRANSFERRING;
    init_poll(calls);
    init_sync(calls);
    calls->reopened.struct_size = sizeof calls->reopened;
    calls->info.struct_size = sizeof calls->info;
    calls->report = (struct convoy_report){.struct_size = sizeof calls->report,
                                           .members = calls->rows,
                                           .member_stride = sizeof calls->rows[0],
                                           .member_capacity = CALLS_MEMBERS_MAX};
    calls->text = (struct convoy_text_buffer){
        .struct_size = sizeof calls->text, .data = calls->bytes, .capacity = sizeof calls->bytes};
}

/* -- poll -- */

static int32_t run_reduce_start(struct calls *calls)
{
    return calls->plugin.poll->reduce_start(calls->group, &calls->poll, &calls->operation, &calls->error);
}

static int32_t run_reduce_test(struct calls *calls)
{
    return calls->plugin.poll->reduce_test(calls->group, calls->operation, &calls->poll_result, &calls->error);
}

static int32_t run_reduce_wait(struct calls *calls)
{
    return calls->plugin.poll->reduce_wait(calls->group, calls->operation, calls->timeout_ns, &calls->poll_result,
                                           &calls->error);
}

static int32_t run_reduce(struct calls *calls)
{
    return calls->plugin.poll->reduce(calls->group, &calls->poll, calls->timeout_ns, &calls->poll_result,
                                      &calls->error);
}

static int32_t run_reduce2_start(struct calls *calls)
{
    return calls->plugin.poll->reduce2_start(calls->group, calls->second, &calls->poll, &calls->operation,
                                             &calls->error);
}

static int32_t run_reduce2_test(struct calls *calls)
{
    return calls->plugin.poll->reduce2_test(calls->group, calls->operation, &calls->poll_result, &calls->error);
}

static int32_t run_reduce2_wait(struct calls *calls)
{
    return calls->plugin.poll->reduce2_wait(calls->group, calls->operation, calls->timeout_ns, &calls->poll_result,
                                            &calls->error);
}

static int32_t run_reduce2_abandon(struct calls *calls)
{
    return calls->plugin.poll->reduce2_abandon(calls->group, calls->operation, &calls->error);
}

/* -- sync -- */

static int32_t run_gather_start(struct calls *calls)
{
    return calls->plugin.sync->gather_start(calls->group, &calls->sync, &calls->operation, &calls->error);
}

static int32_t run_gather_test(struct calls *calls)
{
    return calls->plugin.sync->gather_test(calls->group, calls->operation, &calls->sync_result, &calls->error);
}

static int32_t run_gather_wait(struct calls *calls)
{
    return calls->plugin.sync->gather_wait(calls->group, calls->operation, calls->timeout_ns, &calls->sync_result,
                                           &calls->error);
}

static int32_t run_gather(struct calls *calls)
{
    return calls->plugin.sync->gather(calls->group, &calls->sync, calls->timeout_ns, &calls->sync_result,
                                      &calls->error);
}

/* -- core -- */

static int32_t run_abandon(struct calls *calls)
{
    return calls->plugin.core->operation_abandon(calls->group, calls->operation, &calls->error);
}

static int32_t run_reopen(struct calls *calls)
{
    return calls->plugin.core->group_reopen(calls->group, calls->timeout_ns, &calls->reopened, &calls->error);
}

static int32_t run_cancel(struct calls *calls)
{
    return calls->plugin.core->group_cancel(calls->group, "enough", 6, &calls->error);
}

static int32_t run_close(struct calls *calls)
{
    return calls->plugin.core->group_close(calls->group, calls->timeout_ns, &calls->error);
}

static int32_t run_info(struct calls *calls)
{
    return calls->plugin.core->group_info(calls->group, &calls->info, &calls->error);
}

static int32_t run_dump(struct calls *calls)
{
    return calls->plugin.core->group_describe(calls->group, CONVOY_TOPIC_DUMP, &calls->text, &calls->error);
}

static int32_t run_stats(struct calls *calls)
{
    return calls->plugin.core->group_describe(calls->group, CONVOY_TOPIC_STATS, &calls->text, &calls->error);
}

static int32_t run_call_log(struct calls *calls)
{
    return calls->plugin.core->group_describe(calls->group, CONVOY_TOPIC_CALL_LOG, &calls->text, &calls->error);
}

static int32_t run_prometheus(struct calls *calls)
{
    return calls->plugin.core->group_describe(calls->group, CONVOY_TOPIC_PROMETHEUS, &calls->text, &calls->error);
}

static int32_t run_report(struct calls *calls)
{
    return calls->plugin.core->operation_report(calls->group, &calls->report, &calls->error);
}

static int32_t run_open_test(struct calls *calls)
{
    return calls->plugin.core->group_open_test(calls->group, &calls->error);
}

static int32_t run_open_wait(struct calls *calls)
{
    return calls->plugin.core->group_open_wait(calls->group, calls->timeout_ns, &calls->error);
}

const struct call calls_list[] = {
    {"reduce_start", CALL_START, CALL_POLL, run_reduce_start},
    {"reduce_test", CALL_TEST, CALL_POLL, run_reduce_test},
    {"reduce_wait", CALL_WAIT, CALL_POLL, run_reduce_wait},
    {"reduce", CALL_START, CALL_POLL, run_reduce},
    {"reduce2_start", CALL_START, CALL_POLL2, run_reduce2_start},
    {"reduce2_test", CALL_TEST, CALL_POLL2, run_reduce2_test},
    {"reduce2_wait", CALL_WAIT, CALL_POLL2, run_reduce2_wait},
    {"reduce2_abandon", CALL_ABANDON, CALL_POLL2, run_reduce2_abandon},
    {"gather_start", CALL_START, CALL_SYNC, run_gather_start},
    {"gather_test", CALL_TEST, CALL_SYNC, run_gather_test},
    {"gather_wait", CALL_WAIT, CALL_SYNC, run_gather_wait},
    {"gather", CALL_START, CALL_SYNC, run_gather},
    {"operation_abandon", CALL_ABANDON, CALL_CORE, run_abandon},
    {"group_reopen", CALL_REOPEN, CALL_CORE, run_reopen},
    {"group_cancel", CALL_CANCEL, CALL_CORE, run_cancel},
    {"group_close", CALL_CLOSE, CALL_CORE, run_close},
    {"group_info", CALL_LOOK, CALL_CORE, run_info},
    {"group_describe dump", CALL_LOOK, CALL_CORE, run_dump},
    {"group_describe stats", CALL_LOOK, CALL_CORE, run_stats},
    {"group_describe prometheus", CALL_LOOK, CALL_CORE, run_prometheus},
    {"group_describe call log", CALL_LOOK, CALL_CORE, run_call_log},
    {"operation_report", CALL_LOOK, CALL_CORE, run_report},
    {"group_open_test", CALL_OPEN, CALL_CORE, run_open_test},
    {"group_open_wait", CALL_OPEN, CALL_CORE, run_open_wait},
};

const size_t calls_count = sizeof calls_list / sizeof calls_list[0];

void calls_start(struct calls *calls, enum call_family family)
{
    int32_t (*const starts[CALL_FAMILIES])(struct calls *) = {run_reduce_start, run_reduce2_start, run_gather_start};
    calls->operation = 0;
    EXPECT_OK(starts[family](calls), &calls->error);
    EXPECT(calls->operation != 0);
}
