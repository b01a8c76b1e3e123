/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/exchange.h"

#include "tests/lib/expect.h"

#include <string.h>

void exchange_init(struct exchange *exchange, size_t count, uint8_t state)
{
    EXPECT(count <= EXCHANGE_STATES_MAX);
    (void)memset(exchange, 0, sizeof *exchange);
    (void)memset(exchange->states, state, sizeof exchange->states);
    (void)memset(exchange->states_out, 0xa5, sizeof exchange->states_out);
    exchange->list = (struct convoy_poll_list){.count = count, .states = exchange->states};
    exchange->list_result =
        (struct convoy_poll_list_result){.states = exchange->states_out, .states_capacity = EXCHANGE_STATES_MAX};
    exchange->call = (struct convoy_poll_call){.struct_size = sizeof exchange->call,
                                               .lists = &exchange->list,
                                               .list_stride = sizeof exchange->list,
                                               .list_count = 1};
    exchange->report = (struct convoy_report){.struct_size = sizeof exchange->report,
                                              .members = exchange->rows,
                                              .member_stride = sizeof exchange->rows[0],
                                              .member_capacity = PLUGIN_MEMBERS_MAX};
    exchange->result = (struct convoy_poll_result){.struct_size = sizeof exchange->result,
                                                   .lists = &exchange->list_result,
                                                   .list_stride = sizeof exchange->list_result,
                                                   .list_capacity = 1,
                                                   .report = &exchange->report};
}

int32_t exchange_reduce(struct exchange *exchange, struct plugin_member *member, uint64_t timeout_ns)
{
    return member->plugin.poll->reduce(member->group, &exchange->call, timeout_ns, &exchange->result, &member->error);
}

void exchange_expect_untouched(const struct exchange *exchange)
{
    for (size_t i = 0; i < sizeof exchange->states_out; i++) {
        EXPECT_EQUAL(exchange->states_out[i], 0xa5);
    }
}

const struct convoy_member_report *exchange_row(const struct exchange *exchange, int32_t rank)
{
    for (size_t i = 0; i < exchange->report.member_count && i < PLUGIN_MEMBERS_MAX; i++) {
        if (exchange->rows[i].rank == rank) {
            return &exchange->rows[i];
        }
    }
    return NULL;
}
