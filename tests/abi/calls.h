/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every slot of the tables that takes a group, as one list, each called with good arguments. Tests walk the list, so that
 * a rule is checked on all calls, those added later included (test_state_table counts them against the tables).
 */
#ifndef TESTS_ABI_CALLS_H
#define TESTS_ABI_CALLS_H

#include "tests/lib/plugin.h"

#define CALLS_MEMBERS_MAX 4
#define CALLS_WIDTH 7 /* of the schema "sglang-7" */
#define CALLS_TEXT_BYTES 65536

/* Which rows of the state table a call belongs to. */
enum call_kind {
    CALL_START = 0,
    CALL_TEST,
    CALL_WAIT,
    CALL_ABANDON,
    CALL_REOPEN,
    CALL_CANCEL,
    CALL_CLOSE,
    CALL_LOOK, /* info, describe, report */
    CALL_OPEN, /* test and wait of the split open */
    CALL_KINDS
};

enum call_family { CALL_POLL = 0, CALL_POLL2, CALL_SYNC, CALL_FAMILIES, CALL_CORE };

/* Arguments of all calls: good ones after calls_init, a test changes what it wants otherwise. */
struct calls {
    struct plugin plugin;
    convoy_group *group;
    convoy_group *second; /* second level of reduce2 */
    convoy_operation operation;
    uint64_t timeout_ns;
    struct convoy_error error;
    uint8_t state;
    uint8_t state_out;
    int64_t row[CALLS_WIDTH];
    int64_t table[CALLS_MEMBERS_MAX * CALLS_WIDTH];
    struct convoy_poll_list list;
    struct convoy_poll_call poll;
    struct convoy_poll_list_result list_result;
    struct convoy_poll_result poll_result;
    struct convoy_sync_call sync;
    struct convoy_sync_result sync_result;
    struct convoy_reopen_result reopened;
    struct convoy_group_info info;
    struct convoy_member_report rows[CALLS_MEMBERS_MAX];
    struct convoy_report report;
    struct convoy_text_buffer text;
    char bytes[CALLS_TEXT_BYTES];
};

struct call {
    const char *name;
    enum call_kind kind;
    enum call_family family;
    int32_t (*run)(struct calls *calls);
};

extern const struct call calls_list[];
extern const size_t calls_count;

/* calls: points into itself afterwards, so it may not be copied. */
void calls_init(struct calls *calls, const struct plugin *plugin, convoy_group *group, convoy_group *second);

/* Starts an operation of a family; expects OK and keeps it in calls->operation. */
void calls_start(struct calls *calls, enum call_family family);

#endif
