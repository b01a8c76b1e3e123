/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swaps while groups and engines are in every state that a host can leave them in: what cannot be handed over yet is waited
 * for and named, what has ended stays ended, and everything else goes on in the new build as it would have in the old one.
 */
#include "tests/lib/swap_host.h"

#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/plugin.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SHORT_NS UINT64_C(100000000) /* meant to pass */
#define BYTES 3000u

static int32_t state_of(struct swap_host *host)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    EXPECT_OK(convoy_host_group_info(host->group, &info, &host->error), &host->error);
    return (int32_t)info.state;
}

static void must_be_late(struct swap_host *host, uint32_t build, const char *why)
{
    EXPECT_STATUS(swap_host_swap(host, build, SHORT_NS), CONVOY_DRAIN_TIMEOUT, &host->error);
    EXPECT_TEXT(host->error.text, why);
}

/* -- groups -------------------------------------------------------------------------------------------------------- */

static void test_swap_states_group_whose_peer_never_comes_is_waited_for_and_named(void **state)
{
    (void)state;
    struct swap_host host;
    swap_host_open(&host, 0, NULL);
    swap_host_join_start(&host, "lonely", plugin_port(), 0, 2);
    must_be_late(&host, 1, "group lonely: it is still opening");
    EXPECT_STATUS(convoy_host_group_open_test(host.group, &host.error), CONVOY_IN_PROGRESS, &host.error);
    EXPECT_OK(convoy_host_group_close(host.group, SWAP_HOST_NS, &host.error), &host.error);
    swap_host_must_swap(&host, 1);
    EXPECT_EQUAL(host.result.group_count, 0);
    EXPECT_EQUAL(state_of(&host), CONVOY_GROUP_CLOSED);
    EXPECT_STATUS(swap_host_round(&host, 0), CONVOY_CLOSED, &host.error);
    swap_host_join(&host, "again", 0, 0, 1); /* in the new build, beside the tombstone */
    EXPECT_OK(swap_host_round(&host, 0), &host.error);
    swap_host_close(&host);
}

static void test_swap_states_group_that_failed_stays_failed(void **state)
{
    (void)state;
    struct swap_host host;
    swap_host_open(&host, 0, NULL);
    struct convoy_group_options options = swap_host_options(&host, "failed", plugin_port(), 0, 2);
    options.open_timeout_ns = SHORT_NS;
    EXPECT_OK(convoy_host_group_open_start(host.context, &options, &host.group, &host.error), &host.error);
    EXPECT_STATUS(convoy_host_group_open_wait(host.group, SWAP_HOST_NS, &host.error), CONVOY_TIMED_OUT, &host.error);
    for (uint32_t build = 1; build < 5; build++) {
        swap_host_must_swap(&host, build % 2);
        EXPECT_EQUAL(host.result.group_count, 0);
        EXPECT_STATUS(convoy_host_group_open_test(host.group, &host.error), CONVOY_TIMED_OUT, &host.error);
        EXPECT_STATUS(swap_host_round(&host, 0), CONVOY_BAD_STATE, &host.error);
        EXPECT_EQUAL(state_of(&host), CONVOY_GROUP_FAILED);
    }
    swap_host_close(&host);
}

static void test_swap_states_group_that_is_open_and_not_asked_about_is_handed_over(void **state)
{
    (void)state;
    struct swap_host hosts[2];
    uint16_t port = plugin_port();
    for (uint32_t i = 0; i < 2; i++) {
        swap_host_open(&hosts[i], i, NULL);
        swap_host_join_start(&hosts[i], "unasked", port, i, 2);
    }
    swap_host_must_swap(&hosts[0], 1); /* waits until it has opened */
    EXPECT_EQUAL(hosts[0].result.group_count, 1);
    swap_host_join_wait(&hosts[0]);
    swap_host_join_wait(&hosts[1]);
    swap_couple_round(hosts);
    swap_couple_close(hosts);
}

static void test_swap_states_stuck_and_canceled_group_ends_its_round_first(void **state)
{
    (void)state;
    struct swap_host hosts[2];
    convoy_operation operations[2] = {0, 0};
    swap_couple_open(hosts, NULL, "stuck", plugin_port());
    EXPECT_OK(swap_host_start(&hosts[0], &operations[0]), &hosts[0].error);
    EXPECT_STATUS(swap_host_wait(&hosts[0], operations[0], SHORT_NS), CONVOY_TIMED_OUT, &hosts[0].error);
    must_be_late(&hosts[0], 1, "rank 1");
    EXPECT_EQUAL(state_of(&hosts[0]), CONVOY_GROUP_STUCK);
    EXPECT_OK(convoy_host_group_cancel(hosts[0].group, "enough", 6, &hosts[0].error), &hosts[0].error);
    must_be_late(&hosts[0], 1, "rank 1");
    EXPECT_STATUS(swap_host_wait(&hosts[0], operations[0], SWAP_HOST_NS), CONVOY_CANCELED, &hosts[0].error);
    EXPECT_TEXT(hosts[0].error.text, "enough");
    EXPECT_OK(swap_host_start(&hosts[1], &operations[1]), &hosts[1].error);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_OK(swap_host_wait(&hosts[i], operations[i], SWAP_HOST_NS), &hosts[i].error);
    }
    EXPECT_OK(convoy_host_group_cancel(hosts[0].group, "early", 5, &hosts[0].error), &hosts[0].error); /* for the next wait */
    swap_host_must_swap(&hosts[0], 1);
    EXPECT_OK(swap_host_start(&hosts[0], &operations[0]), &hosts[0].error);
    EXPECT_STATUS(swap_host_wait(&hosts[0], operations[0], SWAP_HOST_NS), CONVOY_CANCELED, &hosts[0].error);
    EXPECT_TEXT(hosts[0].error.text, "early");
    EXPECT_OK(swap_host_start(&hosts[1], &operations[1]), &hosts[1].error);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_OK(swap_host_wait(&hosts[i], operations[i], SWAP_HOST_NS), &hosts[i].error);
    }
    swap_couple_close(hosts);
}

static void *reopen(void *argument)
{
    swap_host_reopen(argument, 0);
    return NULL;
}

/* One has abandoned a round, the other finds that out; both are swapped before they reopen. */
static void test_swap_states_broken_group_is_reopened_afterwards(void **state)
{
    (void)state;
    struct swap_host hosts[2];
    convoy_operation operation = 0;
    pthread_t other;
    swap_couple_open(hosts, NULL, "broken", plugin_port());
    EXPECT_OK(swap_host_start(&hosts[0], &operation), &hosts[0].error);
    EXPECT_STATUS(convoy_host_operation_abandon(hosts[0].group, operation, &hosts[0].error), CONVOY_BROKEN, &hosts[0].error);
    EXPECT_EQUAL(state_of(&hosts[0]), CONVOY_GROUP_BROKEN);
    int32_t stale = swap_host_wait(&hosts[0], operation, 0);
    swap_host_must_swap(&hosts[0], 1);
    EXPECT_EQUAL(state_of(&hosts[0]), CONVOY_GROUP_BROKEN);
    EXPECT_STATUS(swap_host_wait(&hosts[0], operation, 0), stale, &hosts[0].error);
    EXPECT_STATUS(swap_host_start(&hosts[0], &operation), CONVOY_BROKEN, &hosts[0].error);
    EXPECT_STATUS(swap_host_round(&hosts[1], SWAP_HOST_NS), CONVOY_BROKEN, &hosts[1].error);
    swap_host_must_swap(&hosts[1], 0);
    EXPECT_STATUS(swap_host_start(&hosts[1], &operation), CONVOY_BROKEN, &hosts[1].error);
    EXPECT_EQUAL(pthread_create(&other, NULL, reopen, &hosts[0]), 0);
    swap_host_reopen(&hosts[1], 0);
    EXPECT_EQUAL(pthread_join(other, NULL), 0);
    swap_couple_round(hosts);
    swap_host_must_swap(&hosts[0], 0);
    swap_couple_round(hosts);
    swap_couple_close(hosts);
}

static void test_swap_states_round_of_two_levels_ends_first(void **state)
{
    (void)state;
    struct swap_host hosts[2];
    convoy_host_group *alone = NULL;
    convoy_operation operation = 0;
    convoy_operation other = 0;
    uint8_t own = 3;
    uint8_t out = 9;
    swap_couple_open(hosts, NULL, "second", plugin_port());
    struct swap_host *host = &hosts[0];
    struct swap_host first = *host;
    const struct convoy_group_options options = swap_host_options(&first, "first", 0, 0, 1);
    EXPECT_OK(convoy_host_group_open(host->context, &options, &alone, &host->error), &host->error);
    const struct convoy_poll_list list = {.count = 1, .states = &own};
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    struct convoy_poll_list_result list_result = {.states = &out, .states_capacity = 1};
    struct convoy_poll_result result = {
        .struct_size = sizeof result, .lists = &list_result, .list_stride = sizeof list_result, .list_capacity = 1};
    EXPECT_OK(convoy_host_reduce2_start(alone, host->group, &call, &operation, &host->error), &host->error);
    must_be_late(host, 1, "group ");
    EXPECT_OK(convoy_host_reduce_start(hosts[1].group, &call, &other, &hosts[1].error), &hosts[1].error);
    EXPECT_OK(convoy_host_reduce2_wait(alone, operation, SWAP_HOST_NS, &result, &host->error), &host->error);
    EXPECT_EQUAL(out, own);
    EXPECT_OK(convoy_host_reduce_wait(hosts[1].group, other, SWAP_HOST_NS, &result, &hosts[1].error), &hosts[1].error);
    swap_host_must_swap(host, 1);
    EXPECT_EQUAL(host->result.group_count, 2);
    EXPECT_OK(convoy_host_reduce2_start(alone, host->group, &call, &operation, &host->error), &host->error);
    EXPECT_OK(convoy_host_reduce_start(hosts[1].group, &call, &other, &hosts[1].error), &hosts[1].error);
    EXPECT_OK(convoy_host_reduce2_wait(alone, operation, SWAP_HOST_NS, &result, &host->error), &host->error);
    EXPECT_OK(convoy_host_reduce_wait(hosts[1].group, other, SWAP_HOST_NS, &result, &hosts[1].error), &hosts[1].error);
    swap_couple_close(hosts);
}

/* -- engines ------------------------------------------------------------------------------------------------------- */

/* Transfers of every kind that need no peer, of an engine that has none. */
static void test_swap_states_engine_without_peers_keeps_its_transfers(void **state)
{
    (void)state;
    struct swap_host host;
    uint8_t data[BYTES];
    uint64_t bytes = BYTES;
    convoy_transfer staged = 0;
    convoy_transfer aborted = 0;
    convoy_transfer waiting = 0;
    convoy_transfer late = 0;
    engine_fill(data, BYTES, 1);
    swap_host_open(&host, 0, NULL);
    swap_host_engine(&host);
    const struct convoy_tensor_source tensor = engine_tensor(data, &bytes);
    struct convoy_stage stage = engine_stage("staged", &tensor, 1);
    const struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_VIEW, .timeout_ns = SWAP_HOST_NS};
    struct convoy_load short_load = load;
    short_load.timeout_ns = 1000000;
    struct convoy_error *error = &host.error;
    EXPECT_OK(convoy_host_stage_start(host.engine, &stage, &staged, error), error);
    stage.request = "gone";
    stage.request_length = 4;
    EXPECT_OK(convoy_host_stage_start(host.engine, &stage, &aborted, error), error);
    EXPECT_OK(convoy_host_transfer_abort(host.engine, aborted, "no", 2, error), error);
    EXPECT_OK(convoy_host_accept_start(host.engine, &load, &waiting, error), error);
    EXPECT_OK(convoy_host_accept_start(host.engine, &short_load, &late, error), error);
    for (uint32_t i = 1; i < 5; i++) {
        swap_host_must_swap(&host, i % 2);
        EXPECT_EQUAL(host.result.engine_count, 1);
        EXPECT_OK(convoy_host_transfer_wait(host.engine, staged, SWAP_HOST_NS, NULL, error), error);
        EXPECT_STATUS(convoy_host_transfer_test(host.engine, aborted, NULL, error), CONVOY_CANCELED, error);
        EXPECT_STATUS(convoy_host_transfer_test(host.engine, waiting, NULL, error), CONVOY_IN_PROGRESS, error);
        EXPECT_STATUS(convoy_host_transfer_wait(host.engine, late, SWAP_HOST_NS, NULL, error), CONVOY_TIMED_OUT, error);
    }
    EXPECT_OK(convoy_host_transfer_abort(host.engine, waiting, "no", 2, error), error);
    EXPECT_OK(convoy_host_transfer_release(host.engine, staged, error), error);
    swap_host_close(&host);
}

/* What is said of a peer that has gone stays with what was to come from it. */
static void test_swap_states_engine_whose_peer_has_gone_keeps_what_failed_with_it(void **state)
{
    (void)state;
    struct swap_host hosts[2];
    uint8_t data[BYTES];
    convoy_transfer sent[2] = {0, 0};
    convoy_transfer wanted = 0;
    engine_fill(data, BYTES, 2);
    for (uint32_t i = 0; i < 2; i++) {
        swap_host_open(&hosts[i], i, NULL);
        swap_host_engine(&hosts[i]);
    }
    struct convoy_error *error = &hosts[0].error;
    convoy_peer peer = swap_host_connect(&hosts[0], hosts[1].session);
    struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_VIEW, .timeout_ns = SWAP_HOST_NS};
    load.peer = peer;
    EXPECT_OK(convoy_host_accept_start(hosts[0].engine, &load, &wanted, error), error);
    sent[0] = swap_host_send(&hosts[0], peer, "first", data, BYTES);
    swap_host_must_swap(&hosts[0], 1);
    sent[1] = swap_host_send(&hosts[0], peer, "second", data, BYTES);
    swap_host_close(&hosts[1]);
    for (uint32_t i = 0; i < 2; i++) {
        int32_t status = convoy_host_transfer_wait(hosts[0].engine, sent[i], SWAP_HOST_NS, NULL, error);
        EXPECT(status != CONVOY_OK && status != CONVOY_TIMED_OUT);
        swap_host_must_swap(&hosts[0], i % 2);
        EXPECT_STATUS(convoy_host_transfer_test(hosts[0].engine, sent[i], NULL, error), status, error);
    }
    (void)convoy_host_peer_disconnect(hosts[0].engine, peer, error);
    for (uint32_t i = 0; i < 4; i++) {
        swap_host_must_swap(&hosts[0], i % 2 == 0 ? 0 : 1);
        EXPECT_EQUAL(hosts[0].result.engine_count, 1);
    }
    swap_host_close(&hosts[0]);
}

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_states_group_whose_peer_never_comes_is_waited_for_and_named),
        cmocka_unit_test(test_swap_states_group_that_failed_stays_failed),
        cmocka_unit_test(test_swap_states_group_that_is_open_and_not_asked_about_is_handed_over),
        cmocka_unit_test(test_swap_states_stuck_and_canceled_group_ends_its_round_first),
        cmocka_unit_test(test_swap_states_broken_group_is_reopened_afterwards),
        cmocka_unit_test(test_swap_states_round_of_two_levels_ends_first),
        cmocka_unit_test(test_swap_states_engine_without_peers_keeps_its_transfers),
        cmocka_unit_test(test_swap_states_engine_whose_peer_has_gone_keeps_what_failed_with_it),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("swap_states", tests, NULL, NULL);
}
