/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a group that call through the tables, without the library being loaded: the objects of the plugin are
 * linked into the test. One or two members; two meet over TCP and share the test's process. */
#ifndef TESTS_UNIT_TABLE_MEMBER_H
#define TESTS_UNIT_TABLE_MEMBER_H

#include "plugin/tables.h"

#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/plugin.h" /* plugin_port only */

#include <jansson.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONG_NS (20 * CONVOY_NS_PER_S)
#define SHORT_NS CONVOY_NS_PER_MS
#define WIDTH 7u /* of the schema "sglang-7" */

static const struct convoy_core_table *const core = &convoy_core_table_1_0;
static const struct convoy_poll_table *const polls = &convoy_poll_table_1_0;
static const struct convoy_sync_table *const syncs = &convoy_sync_table_1_0;

struct table_member {
    convoy_context *context;
    convoy_group *group;
    struct convoy_group_options options;
    struct convoy_sync_schema schema;
    struct convoy_error error;
    int32_t ids[2];
    char rendezvous[64];
    uint8_t states[2];
    uint8_t states_out[2];
    struct convoy_poll_list list;
    struct convoy_poll_call poll;
    struct convoy_poll_list_result list_result;
    struct convoy_poll_result poll_result;
    int64_t row[WIDTH];
    int64_t table[2 * WIDTH];
    struct convoy_sync_call sync;
    struct convoy_sync_result sync_result;
    convoy_operation operation;
    struct convoy_report report;
    char bytes[65536];
    struct convoy_text_buffer text;
};

static inline void member_calls(struct table_member *member)
{
    member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    member->list = (struct convoy_poll_list){.count = 2, .states = member->states};
    member->poll = (struct convoy_poll_call){.struct_size = sizeof member->poll, .lists = &member->list,
        .list_stride = sizeof member->list, .list_count = 1, .votes = 1u << member->options.own_index};
    member->list_result = (struct convoy_poll_list_result){.states = member->states_out, .states_capacity = 2};
    member->poll_result = (struct convoy_poll_result){.struct_size = sizeof member->poll_result,
        .lists = &member->list_result, .list_stride = sizeof member->list_result, .list_capacity = 1};
    member->sync = (struct convoy_sync_call){.struct_size = sizeof member->sync, .row = member->row};
    member->sync_result = (struct convoy_sync_result){.struct_size = sizeof member->sync_result,
        .table = member->table, .table_capacity = 2 * WIDTH};
    member->text = (struct convoy_text_buffer){
        .struct_size = sizeof member->text, .data = member->bytes, .capacity = sizeof member->bytes};
}

/* Options and calls of member `index` of `count`, and a context; no group yet. */
static inline void member_init(struct table_member *member, uint32_t index, uint32_t count, uint16_t port)
{
    *member = (struct table_member){.ids = {10, 11}, .states = {CONVOY_STATE_SUCCESS, (uint8_t)(2 + index)}};
    (void)snprintf(member->rendezvous, sizeof member->rendezvous, "tcp://127.0.0.1:%u", port);
    member->schema = (struct convoy_sync_schema){
        .struct_size = sizeof member->schema, .builtin = "sglang-7", .builtin_length = 8};
    member->options = (struct convoy_group_options){.struct_size = sizeof member->options, .name = "tp",
        .name_length = 2, .member_ids = member->ids, .member_count = count, .own_index = index,
        .own_id = member->ids[index], .rendezvous = member->rendezvous,
        .rendezvous_length = strlen(member->rendezvous), .schema = &member->schema};
    for (uint32_t i = 0; i < WIDTH; i++) {
        member->row[i] = 100 * (index + 1) + i;
    }
    member_calls(member);
    assert_int_equal(core->context_open(NULL, &member->context, &member->error), CONVOY_OK);
}

/* A member alone, its group open. gives (alone_close) */
static inline struct table_member *alone_open(void)
{
    struct table_member *member = calloc(1, sizeof *member);
    assert_non_null(member);
    member_init(member, 0, 1, 1);
    assert_int_equal(core->group_open(member->context, &member->options, &member->group, &member->error), CONVOY_OK);
    return member;
}

static inline void alone_close(struct table_member *member)
{
    assert_int_equal(core->context_close(member->context, LONG_NS, &member->error), CONVOY_OK);
    free(member);
}

/* Two members, their group open. gives (pair_close) */
static inline struct table_member *pair_open(void)
{
    struct table_member *pair = calloc(2, sizeof *pair);
    uint16_t port = plugin_port();
    assert_non_null(pair);
    for (uint32_t i = 0; i < 2; i++) {
        member_init(&pair[i], i, 2, port);
        assert_int_equal(core->group_open_start(pair[i].context, &pair[i].options, &pair[i].group, NULL), CONVOY_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(core->group_open_wait(pair[i].group, LONG_NS, &pair[i].error), CONVOY_OK);
    }
    return pair;
}

static inline void pair_close(struct table_member *pair)
{
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(core->context_close(pair[i].context, LONG_NS, &pair[i].error), CONVOY_OK);
    }
    free(pair);
}

static inline uint32_t group_state(struct table_member *member)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    assert_int_equal(core->group_info(member->group, &info, &member->error), CONVOY_OK);
    return info.state;
}

/* The text of a topic of the group; it stays until the next call. */
static inline const char *group_text(struct table_member *member, uint32_t topic)
{
    assert_int_equal(core->group_describe(member->group, topic, &member->text, &member->error), CONVOY_OK);
    return member->bytes;
}

#endif
