/* SPDX-License-Identifier: Apache-2.0 */
/* One positional poll round as a test makes it: call, result and report with room for everything. */
#ifndef TESTS_LIB_EXCHANGE_H
#define TESTS_LIB_EXCHANGE_H

#include "tests/lib/plugin.h"

#define EXCHANGE_STATES_MAX 256

struct exchange {
    uint8_t states[EXCHANGE_STATES_MAX];
    uint8_t states_out[EXCHANGE_STATES_MAX];
    struct convoy_poll_list list;
    struct convoy_poll_list_result list_result;
    struct convoy_poll_call call;
    struct convoy_poll_result result;
    struct convoy_report report;
    struct convoy_member_report rows[PLUGIN_MEMBERS_MAX];
};

/* `count` states, all `state`; outputs are filled with 0xa5, so that a write where none may be is seen. */
void exchange_init(struct exchange *exchange, size_t count, uint8_t state);

/* The whole call; returns its status. timeout_ns 0 = the default. */
int32_t exchange_reduce(struct exchange *exchange, struct plugin_member *member, uint64_t timeout_ns);

/* The outputs are as exchange_init left them. */
void exchange_expect_untouched(const struct exchange *exchange);

/* The report's row of a rank, or NULL. */
const struct convoy_member_report *exchange_row(const struct exchange *exchange, int32_t rank);

#endif
