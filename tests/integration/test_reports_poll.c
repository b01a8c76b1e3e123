/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users reported about collectives over lists that are lined up by position, replayed with real processes.
 * CONVOY_SCALE multiplies the number of rounds and sizes.
 */
#include "tests/lib/crowd.h"
#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/scale.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void expect_next_round(struct exchange *exchange, struct plugin_member *member)
{
    exchange_init(exchange, 8, CONVOY_STATE_TRANSFERRING);
    EXPECT_OK(exchange_reduce(exchange, member, CROWD_WAIT_NS), &member->error);
    EXPECT_EQUAL(exchange->states_out[7], CONVOY_STATE_TRANSFERRING);
}

/* -- queues of other lengths and other requests ------------------------------------------------------------------ */

static void lengths_run(const struct rank *rank, void *crowd)
{
    struct exchange exchange;
    struct plugin_member *member = crowd_open(rank, crowd, "lengths");
    exchange_init(&exchange, rank->index == 0 ? 8 : 1, CONVOY_STATE_SUCCESS);
    EXPECT_STATUS(exchange_reduce(&exchange, member, 2000000000ull), CONVOY_DIVERGED, &member->error);
    EXPECT_EQUAL(exchange.report.field, CONVOY_FIELD_COUNTS);
    EXPECT_EQUAL(exchange.report.member_count, 4);
    for (int32_t i = 0; i < 4; i++) {
        EXPECT_EQUAL(exchange_row(&exchange, i)->counts >> 8, i == 0 ? 8 : 1);
    }
    exchange_expect_untouched(&exchange);
    expect_next_round(&exchange, member);
    exchange_init(&exchange, 8, CONVOY_STATE_SUCCESS);
    exchange.list.digest = rank->index == 2 ? 1234 : 4321;
    EXPECT_STATUS(exchange_reduce(&exchange, member, CROWD_WAIT_NS), CONVOY_DIVERGED, &member->error);
    EXPECT_EQUAL(exchange.report.field, CONVOY_FIELD_DIGEST);
    EXPECT_EQUAL(exchange_row(&exchange, 2)->digest, 1234);
    expect_next_round(&exchange, member);
    crowd_close(rank, member);
}

/* sgl-project/sglang PR 37909: 8, 1, 1 and 1 entries: the same status on all, who brought what, nobody dies, and the
 * next call works. Then equal counts of other requests. */
static void test_reports_poll_other_lengths_diverge_and_the_next_call_works(void **state)
{
    (void)state;
    crowd_run(4, lengths_run, 0);
}

static void order_run(const struct rank *rank, void *crowd)
{
    struct exchange exchange;
    uint64_t keys[8];
    struct plugin_member *member = crowd_open(rank, crowd, "order");
    exchange_init(&exchange, 8, CONVOY_STATE_SUCCESS);
    for (uint32_t i = 0; i < 8; i++) {
        keys[i] = 100 + (i + 3 * rank->index) % 8;
        exchange.states[i] = keys[i] == 104 && rank->index == 3 ? CONVOY_STATE_BOOTSTRAPPING : CONVOY_STATE_SUCCESS;
    }
    exchange.list.flags = CONVOY_POLL_KEYED;
    exchange.list.keys = keys;
    EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
    for (uint32_t i = 0; i < 8; i++) {
        EXPECT_EQUAL(exchange.states_out[i], keys[i] == 104 ? CONVOY_STATE_BOOTSTRAPPING : CONVOY_STATE_SUCCESS);
    }
    crowd_close(rank, member);
}

/* sgl-project/sglang PR 37909: equal keys in another order are no mismatch when the list has keys. */
static void test_reports_poll_other_order_is_no_matter_with_keys(void **state)
{
    (void)state;
    crowd_run(4, order_run, 0);
}

/* -- states that are none --------------------------------------------------------------------------------------- */

static void bad_state_round(struct exchange *exchange, struct plugin_member *member, const struct rank *rank,
                            int32_t value)
{
    const int32_t states[3] = {CONVOY_STATE_SUCCESS, value, CONVOY_STATE_SUCCESS};
    char text[16];
    exchange_init(exchange, 3, CONVOY_STATE_SUCCESS);
    if (rank->index == 0) {
        EXPECT_STATUS(exchange_reduce(exchange, member, CROWD_WAIT_NS), CONVOY_PEER_ERROR, &member->error);
        EXPECT_EQUAL(exchange_row(exchange, 1)->condition, CONVOY_MEMBER_ERROR);
        EXPECT_EQUAL(exchange_row(exchange, 1)->reason, 66);
    } else {
        exchange->list.states = states;
        exchange->list.state_bytes = 4;
        exchange->call.hint_flags = CONVOY_CALL_POST_ERROR;
        exchange->call.error_reason = 66;
        EXPECT_STATUS(exchange_reduce(exchange, member, CROWD_WAIT_NS), CONVOY_INVALID_ARGUMENT, &member->error);
        (void)snprintf(text, sizeof text, "%d", value);
        EXPECT_TEXT(member->error.text, text);
        EXPECT_TEXT(member->error.text, "entry 1");
    }
    exchange_expect_untouched(exchange);
}

static void bad_states_run(const struct rank *rank, void *crowd)
{
    static const int32_t values[] = {5, 255, -1, INT_MAX};
    struct exchange exchange;
    struct plugin_member *member = crowd_open(rank, crowd, "states");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        bad_state_round(&exchange, member, rank, values[i]);
    }
    for (uint8_t step = 0; step < 2; step++) { /* a step back is taken as it is: MIN has no memory */
        const uint8_t state = step == 0 ? CONVOY_STATE_TRANSFERRING : CONVOY_STATE_BOOTSTRAPPING;
        exchange_init(&exchange, 1, rank->index == 0 ? CONVOY_STATE_SUCCESS : state);
        EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
        EXPECT_EQUAL(exchange.states_out[0], state);
    }
    crowd_close(rank, member);
}

/* sgl-project/sglang PR 31075, PR 14494: a state that is none is refused with value and place, the peer gets a
 * status in that round, and nobody is queued for ever. */
static void test_reports_poll_unknown_states_are_refused_and_told(void **state)
{
    (void)state;
    crowd_run(2, bad_states_run, 0);
}

/* -- groups from lists -------------------------------------------------------------------------------------------- */

static struct plugin_member *pair_create(const struct rank *rank, const struct crowd *crowd)
{
    const uint32_t low = rank->index % 2;
    struct plugin_member *member = plugin_member_create(rank->index / 2, 2, "pair", crowd->ports[low]);
    member->ids[0] = (int32_t)low;
    member->ids[1] = (int32_t)(low + 2);
    member->options.own_id = (int32_t)rank->index;
    return member;
}

static void pairs_run(const struct rank *rank, void *crowd)
{
    struct exchange exchange;
    struct convoy_group_info info = {.struct_size = sizeof info};
    struct plugin_member *member = pair_create(rank, crowd);
    const struct convoy_core_table *core = member->plugin.core;
    EXPECT_OK(core->context_open(&member->config, &member->context, &member->error), &member->error);
    member->options.own_id = (int32_t)(rank->index ^ 1u); /* of the other pair: the list lacks it */
    EXPECT_STATUS(core->group_open(member->context, &member->options, &member->group, &member->error),
                  CONVOY_INVALID_ARGUMENT, &member->error);
    member->options.own_id = (int32_t)rank->index;
    EXPECT_OK(core->group_open(member->context, &member->options, &member->group, &member->error), &member->error);
    EXPECT_OK(core->group_info(member->group, &info, &member->error), &member->error);
    EXPECT_EQUAL(info.own_index, rank->index / 2);
    exchange_init(&exchange, 4, rank->index == 3 ? CONVOY_STATE_BOOTSTRAPPING : CONVOY_STATE_SUCCESS);
    EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
    EXPECT_EQUAL(exchange.states_out[0], rank->index % 2 == 1 ? CONVOY_STATE_BOOTSTRAPPING : CONVOY_STATE_SUCCESS);
    crowd_close(rank, member);
}

/* sgl-project/sglang issue 29725: groups {0, 2} and {1, 3} come from lists; nobody's place is derived by division,
 * and a list without the caller is refused. */
static void test_reports_poll_groups_are_explicit_lists(void **state)
{
    (void)state;
    crowd_run(4, pairs_run, 0);
}

static void wrong_id_run(const struct rank *rank, void *argument)
{
    const struct crowd *crowd = argument;
    struct plugin_member *member = plugin_member_create(rank->index, 2, "ids", crowd->ports[0]);
    const struct convoy_core_table *core = member->plugin.core;
    if (rank->index == 1) {
        member->ids[1] = 5;
        member->options.own_id = 5;
    }
    member->options.open_timeout_ns = 2000000000ull;
    EXPECT_OK(core->context_open(&member->config, &member->context, &member->error), &member->error);
    EXPECT_STATUS(core->group_open(member->context, &member->options, &member->group, &member->error),
                  rank->index == 1 ? CONVOY_DIVERGED : CONVOY_TIMED_OUT, &member->error);
    EXPECT_TEXT(member->error.text, "member 5 is not in the list of member 0");
    plugin_member_destroy(member);
}

/* sgl-project/sglang issue 29725: an id that the others do not have is caught when connecting. */
static void test_reports_poll_wrong_own_id_is_caught_at_connect(void **state)
{
    (void)state;
    crowd_run(2, wrong_id_run, 0);
}

/* -- an entry that never gets ready ------------------------------------------------------------------------------ */

static void stuck_run(const struct rank *rank, void *crowd)
{
    struct exchange exchange;
    uint32_t successes = 0;
    struct plugin_member *member = crowd_open(rank, crowd, "stuck");
    for (uint32_t round = 0; round < test_scaled(200, 20000); round++) {
        exchange_init(&exchange, 5, CONVOY_STATE_TRANSFERRING);
        for (uint32_t key = 0; key < 4; key++) {
            exchange.states[key] = round >= 10 * (key + rank->index) ? CONVOY_STATE_SUCCESS : CONVOY_STATE_TRANSFERRING;
        }
        exchange.states[4] = rank->index == 1 ? CONVOY_STATE_TRANSFERRING : CONVOY_STATE_SUCCESS;
        EXPECT_OK(exchange_reduce(&exchange, member, 2000000000ull), &member->error);
        EXPECT_EQUAL(exchange.states_out[4], CONVOY_STATE_TRANSFERRING);
        for (uint32_t key = 0; key < 4; key++) {
            EXPECT_EQUAL(exchange.states_out[key] == CONVOY_STATE_SUCCESS, round >= 10 * (key + 2));
            successes += exchange.states_out[key] == CONVOY_STATE_SUCCESS;
        }
    }
    EXPECT(successes > 0);
    crowd_close(rank, member);
}

/* NVIDIA/TensorRT-LLM PR 15363: a transfer that never gets ready on one rank holds up nothing but itself: each round
 * ends inside its budget and the other keys succeed everywhere. */
static void test_reports_poll_unready_entry_blocks_no_round(void **state)
{
    (void)state;
    crowd_run(3, stuck_run, 0);
}

/* -- every count ------------------------------------------------------------------------------------------------- */

#define COUNT_MAX 4096u

struct buffers {
    uint8_t in[2 * COUNT_MAX];
    uint8_t out[2 * COUNT_MAX];
};

static void counts_round(struct plugin_member *member, struct buffers *buffers, size_t count)
{
    const struct convoy_poll_list list = {.count = count, .states = buffers->in};
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    struct convoy_poll_list_result list_result = {.states = buffers->out, .states_capacity = sizeof buffers->out};
    struct convoy_poll_result result = {.struct_size = sizeof result,
                                        .lists = &list_result,
                                        .list_stride = sizeof list_result,
                                        .list_capacity = 1};
    EXPECT_STATUS(member->plugin.poll->reduce(member->group, &call, CROWD_WAIT_NS, &result, &member->error),
                  CONVOY_DIVERGED, &member->error);
    for (size_t i = 0; i < sizeof buffers->out; i += 64) {
        EXPECT_EQUAL(buffers->out[i], 0xa5);
    }
}

static void counts_run(const struct rank *rank, void *crowd)
{
    struct buffers *buffers = malloc(sizeof *buffers);
    EXPECT(buffers != NULL);
    memset(buffers->in, CONVOY_STATE_SUCCESS, sizeof buffers->in);
    memset(buffers->out, 0xa5, sizeof buffers->out);
    struct plugin_member *member = crowd_open(rank, crowd, "counts");
    const size_t scale = test_scaled(1, 31);
    for (size_t count = 1; count <= COUNT_MAX; count += 31 / scale) {
        const size_t others[4] = {count - 2, count - 1, count + 1, 2 * count};
        for (size_t i = count < 2 ? 1 : 0; i < 4; i++) {
            counts_round(member, buffers, rank->index == 0 ? count : others[i]);
        }
    }
    free(buffers);
    crowd_close(rank, member);
}

/* NVIDIA/nccl issues 1394 and 1417: some pairs of sizes hung, others gave wrong tails. Here every pair is found, at
 * every size, and nothing is written. */
static void test_reports_poll_count_mismatch_is_found_at_every_size(void **state)
{
    (void)state;
    crowd_run(2, counts_run, 0);
}

/* -- zero entries ---------------------------------------------------------------------------------------------- */

static void zero_run(const struct rank *rank, void *crowd)
{
    struct exchange exchange;
    const struct convoy_sync_call row = {.struct_size = sizeof row};
    struct convoy_sync_result result = {.struct_size = sizeof result};
    static const struct convoy_sync_schema schema = {
        .struct_size = sizeof schema, .builtin = "sglang-7", .builtin_length = 8};
    struct plugin_member *member =
        plugin_member_create(rank->index, rank->count, "zero", ((const struct crowd *)crowd)->ports[0]);
    member->options.schema = &schema;
    plugin_member_open(member);
    for (uint32_t i = 0; i < test_scaled(250, 10000); i++) {
        exchange_init(&exchange, 0, 0);
        exchange.list.states = NULL;
        EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
        EXPECT_EQUAL(exchange.list_result.states_count, 0);
        exchange_expect_untouched(&exchange);
        EXPECT_OK(member->plugin.sync->gather(member->group, &row, CROWD_WAIT_NS, &result, &member->error),
                  &member->error);
        expect_next_round(&exchange, member);
    }
    crowd_close(rank, member);
}

/* pytorch/gloo issue 179, PR 356, pytorch/pytorch issue 85234: zero elements between normal rounds are a success
 * with no data written, NULL included, for the gather as well. */
static void test_reports_poll_zero_elements_are_a_round_like_any_other(void **state)
{
    (void)state;
    crowd_run(4, zero_run, 0);
}

/* -- strides, widths, alignment -------------------------------------------------------------------------------- */

#define COLUMN_ROWS 9u

static void column_round(struct exchange *exchange, struct plugin_member *member, uint32_t rank, uint32_t width,
                         size_t offset)
{
    uint8_t matrix[COLUMN_ROWS * 24 + 16];
    exchange_init(exchange, COLUMN_ROWS, 0);
    memset(matrix, 0xee, sizeof matrix);
    for (uint32_t i = 0; i < COLUMN_ROWS; i++) {
        const int64_t value = (i + rank) % 5;
        const int32_t narrow = (int32_t)value;
        uint8_t *at = matrix + offset + i * 24;
        memcpy(at, width == 4 ? (const void *)&narrow : (const void *)&value, width); /* little-endian */
    }
    exchange->list.states = matrix + offset;
    exchange->list.state_stride = 24;
    exchange->list.state_bytes = width;
    EXPECT_OK(exchange_reduce(exchange, member, CROWD_WAIT_NS), &member->error);
    for (uint32_t i = 0; i < COLUMN_ROWS; i++) {
        EXPECT_EQUAL(exchange->states_out[i], i % 5 < (i + 1) % 5 ? i % 5 : (i + 1) % 5);
    }
}

static void column_run(const struct rank *rank, void *crowd)
{
    static const uint32_t widths[3] = {1, 4, 8};
    struct exchange exchange;
    struct plugin_member *member = crowd_open(rank, crowd, "column");
    for (uint32_t w = 0; w < 3; w++) {
        for (size_t offset = 0; offset < 3; offset++) {
            column_round(&exchange, member, rank->index, widths[(w + rank->index) % 3], offset);
        }
    }
    crowd_close(rank, member);
}

/* pytorch/pytorch issue 192920: a column of a matrix, in three widths that may differ between ranks, unaligned. */
static void test_reports_poll_columns_of_any_width_and_alignment_are_read(void **state)
{
    (void)state;
    crowd_run(2, column_run, 0);
}

/* -- nothing is written without a result -------------------------------------------------------------------------- */

static void untouched_early(const struct rank *rank, struct plugin_member *member, struct exchange *exchange)
{
    convoy_operation operation = 0;
    const struct convoy_poll_table *poll = member->plugin.poll;
    EXPECT_OK(poll->reduce_start(member->group, &exchange->call, &operation, &member->error), &member->error);
    EXPECT_STATUS(poll->reduce_wait(member->group, operation, CROWD_LATE_NS, &exchange->result, &member->error),
                  CONVOY_TIMED_OUT, &member->error);
    exchange_expect_untouched(exchange);
    rank_barrier_of(rank, 1, 2);
    int32_t status = member->plugin.core->operation_abandon(member->group, operation, &member->error);
    EXPECT_STATUS(status, CONVOY_BROKEN, &member->error);
    rank_mark(rank, 1);
}

static void untouched_run(const struct rank *rank, void *crowd)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct exchange exchange;
    struct plugin_member *member = crowd_open(rank, crowd, "untouched");
    uint8_t *input = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(input != MAP_FAILED);
    memset(input, CONVOY_STATE_SUCCESS, page);
    EXPECT_EQUAL(mprotect(input, page, PROT_READ), 0);
    exchange_init(&exchange, 64, 0);
    exchange.list.states = input;
    EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error); /* the mapping is fit as an input */
    memset(exchange.states_out, 0xa5, sizeof exchange.states_out);
    if (rank->index < 2) {
        untouched_early(rank, member, &exchange);
    } else {
        rank_await_mark(rank, 0, 1);
        rank_await_mark(rank, 1, 1);
        EXPECT_STATUS(exchange_reduce(&exchange, member, CROWD_WAIT_NS), CONVOY_BROKEN, &member->error);
    }
    exchange_expect_untouched(&exchange);
    crowd_close(rank, member);
}

/* pytorch/pytorch issue 21480: inputs in read-only memory are only read; after a timeout, an abandon and a broken round
 * the outputs are on every rank what they were. */
static void test_reports_poll_outputs_stay_untouched_without_a_result(void **state)
{
    (void)state;
    crowd_run(3, untouched_run, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_poll_other_lengths_diverge_and_the_next_call_works),
        cmocka_unit_test(test_reports_poll_other_order_is_no_matter_with_keys),
        cmocka_unit_test(test_reports_poll_unknown_states_are_refused_and_told),
        cmocka_unit_test(test_reports_poll_groups_are_explicit_lists),
        cmocka_unit_test(test_reports_poll_wrong_own_id_is_caught_at_connect),
        cmocka_unit_test(test_reports_poll_unready_entry_blocks_no_round),
        cmocka_unit_test(test_reports_poll_count_mismatch_is_found_at_every_size),
        cmocka_unit_test(test_reports_poll_zero_elements_are_a_round_like_any_other),
        cmocka_unit_test(test_reports_poll_columns_of_any_width_and_alignment_are_read),
        cmocka_unit_test(test_reports_poll_outputs_stay_untouched_without_a_result),
    };
    return cmocka_run_group_tests_name("reports_poll", tests, NULL, NULL);
}
