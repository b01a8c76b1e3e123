/* SPDX-License-Identifier: Apache-2.0 */
/* Every pair of states against a list of legal edges written a second time, by hand. */
#include "xfer/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t edges[][2] = {
    {CONVOY_TRANSFER_STAGING, CONVOY_TRANSFER_STAGED},   {CONVOY_TRANSFER_STAGING, CONVOY_TRANSFER_FAILED},
    {CONVOY_TRANSFER_STAGING, CONVOY_TRANSFER_ABORTED},  {CONVOY_TRANSFER_STAGED, CONVOY_TRANSFER_FAILED},
    {CONVOY_TRANSFER_STAGED, CONVOY_TRANSFER_ABORTED},   {CONVOY_TRANSFER_QUEUED, CONVOY_TRANSFER_OFFERED},
    {CONVOY_TRANSFER_QUEUED, CONVOY_TRANSFER_FAILED},    {CONVOY_TRANSFER_QUEUED, CONVOY_TRANSFER_ABORTED},
    {CONVOY_TRANSFER_OFFERED, CONVOY_TRANSFER_SENT},     {CONVOY_TRANSFER_OFFERED, CONVOY_TRANSFER_FAILED},
    {CONVOY_TRANSFER_OFFERED, CONVOY_TRANSFER_ABORTED},  {CONVOY_TRANSFER_WAITING, CONVOY_TRANSFER_LOADING},
    {CONVOY_TRANSFER_WAITING, CONVOY_TRANSFER_FAILED},   {CONVOY_TRANSFER_WAITING, CONVOY_TRANSFER_ABORTED},
    {CONVOY_TRANSFER_LOADING, CONVOY_TRANSFER_LOADED},   {CONVOY_TRANSFER_LOADING, CONVOY_TRANSFER_FAILED},
    {CONVOY_TRANSFER_LOADING, CONVOY_TRANSFER_ABORTED},  {CONVOY_TRANSFER_RESERVED, CONVOY_TRANSFER_FILLING},
    {CONVOY_TRANSFER_RESERVED, CONVOY_TRANSFER_FAILED},  {CONVOY_TRANSFER_RESERVED, CONVOY_TRANSFER_ABORTED},
    {CONVOY_TRANSFER_FILLING, CONVOY_TRANSFER_FILLED},   {CONVOY_TRANSFER_FILLING, CONVOY_TRANSFER_FAILED},
    {CONVOY_TRANSFER_FILLING, CONVOY_TRANSFER_ABORTED},
};

static bool is_listed(uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        if (edges[i][0] == from && edges[i][1] == to) {
            return true;
        }
    }
    return false;
}

static void test_xfer_state_every_pair_is_as_listed(void **state)
{
    (void)state;
    for (uint32_t from = 0; from < CONVOY_XFER_STATES + 2; from++) {
        for (uint32_t to = 0; to < CONVOY_XFER_STATES + 2; to++) {
            assert_int_equal(convoy_xfer_state_may(from, to), is_listed(from, to));
        }
    }
}

/* Whoever waits for any state is answered: from each that is no end some end can be reached, and early ends always. */
static void test_xfer_state_every_state_leads_to_an_end(void **state)
{
    (void)state;
    uint32_t ends = 0;
    for (uint32_t at = 1; at < CONVOY_XFER_STATES; at++) {
        ends += convoy_xfer_state_is_end(at);
        if (!convoy_xfer_state_is_end(at)) {
            assert_true(convoy_xfer_state_may(at, CONVOY_TRANSFER_FAILED));
            assert_true(convoy_xfer_state_may(at, CONVOY_TRANSFER_ABORTED));
        }
        assert_string_not_equal(convoy_xfer_state_name(at), "UNKNOWN");
    }
    assert_int_equal(ends, 6);
    assert_false(convoy_xfer_state_is_end(0));
    assert_string_equal(convoy_xfer_state_name(CONVOY_XFER_STATES), "UNKNOWN");
}

static void test_xfer_state_each_kind_starts_where_nothing_leads(void **state)
{
    (void)state;
    for (uint32_t kind = CONVOY_XFER_STAGE; kind < CONVOY_XFER_KINDS; kind++) {
        uint32_t first = convoy_xfer_state_first((enum convoy_xfer_kind)kind);
        assert_false(convoy_xfer_state_is_end(first));
        for (uint32_t from = 0; from < CONVOY_XFER_STATES; from++) {
            assert_false(convoy_xfer_state_may(from, first));
        }
        assert_string_not_equal(convoy_xfer_kind_name((enum convoy_xfer_kind)kind), "unknown");
    }
    assert_int_equal(convoy_xfer_state_first(CONVOY_XFER_NONE), 0);
    assert_int_equal(convoy_xfer_state_first(CONVOY_XFER_KINDS), 0);
    assert_string_equal(convoy_xfer_kind_name(CONVOY_XFER_KINDS), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xfer_state_every_pair_is_as_listed),
        cmocka_unit_test(test_xfer_state_every_state_leads_to_an_end),
        cmocka_unit_test(test_xfer_state_each_kind_starts_where_nothing_leads),
    };
    return cmocka_run_group_tests_name("xfer_state", tests, NULL, NULL);
}
