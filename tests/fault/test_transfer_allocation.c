/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of two engines that open, connect, stage, offer, load, copy, push and write raw, with shared memory and
 * without, fails once, in a process of its own: whatever failed says so, what did not works, and after close nothing is left.
 * Needs a build with fault hooks. */
#include "tests/abi/hygiene.h"

#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"
#include "tests/lib/scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 400000u /* more than is copied at once */
#define SHORT_NS 400000000ull
#define CLOSE_NS 10000000000ull
#define ALLOCATIONS_MAX 400u
#define TURNS 3
#define CLEAN_IN_A_ROW 8u
#define FAR_STEP 7u /* at small scale; opening UCX takes its time */

#ifdef CONVOY_FAULTS
struct scarce {
    struct plugin plugin;
    const struct convoy_transfer_table *table;
    convoy_context *context;
    convoy_transfer_engine *engines[2];
    convoy_peer peer;
    bool is_far;
    struct convoy_error error;
};

/* What is run, with which allocation failing. */
struct sweep {
    uint32_t number;
    const char *settings;
};

static uint8_t data[BYTES];
static const uint64_t data_bytes = BYTES;

static int32_t open_all(struct scarce *scarce, const char *settings)
{
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .pool_bytes = 4u << 20,
                                                    .pool_block_bytes = 4096,
                                                    .transfer_max = 16,
                                                    .peer_max = 4,
                                                    .prealloc_count = 1,
                                                    .prealloc_bytes = 4096};
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .settings = settings,
                                                 .settings_length = settings != NULL ? strlen(settings) : 0};
    struct convoy_engine_info info = {.struct_size = sizeof info};
    int32_t status = scarce->plugin.core->context_open(&config, &scarce->context, &scarce->error);
    for (int i = 0; i < 2 && status == CONVOY_OK; i++) {
        status = scarce->table->engine_open(scarce->context, &options, &scarce->engines[i], &scarce->error);
        EXPECT((status == CONVOY_OK) == (scarce->engines[i] != NULL));
    }
    if (status == CONVOY_OK) {
        EXPECT_OK(scarce->table->engine_info(scarce->engines[1], &info, &scarce->error), &scarce->error);
        status = scarce->table->peer_connect(scarce->engines[0], info.session, strlen(info.session), SHORT_NS, &scarce->peer,
                                             &scarce->error);
    }
    return status;
}

static int32_t move(struct scarce *scarce, uint32_t mode)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, &data_bytes);
    const struct convoy_stage stage = engine_stage("scarce", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = scarce->peer, .timeout_ns = SHORT_NS};
    const struct convoy_load load = {.struct_size = sizeof load, .mode = mode, .timeout_ns = SHORT_NS};
    const struct convoy_transfer_table *table = scarce->table;
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    int32_t status = table->send_start(scarce->engines[0], &stage, &send, &sent, &scarce->error);
    if (status == CONVOY_OK) {
        status = table->accept(scarce->engines[1], &load, &loaded, &scarce->error);
        int32_t other = table->transfer_wait(scarce->engines[0], sent, CLOSE_NS, NULL, &scarce->error);
        /* Both sides come to the same end; between hosts the connection may break with the word that all has come. */
        EXPECT((status == CONVOY_OK) == (other == CONVOY_OK) || (scarce->is_far && other < CONVOY_OK));
        status = status == CONVOY_OK ? other : status;
        EXPECT_OK(table->release(scarce->engines[0], sent, &scarce->error), &scarce->error);
    }
    if (loaded != 0) {
        EXPECT_OK(table->release(scarce->engines[1], loaded, &scarce->error), &scarce->error);
    }
    return status;
}

static int32_t reserve(struct scarce *scarce, struct convoy_reserved_slot *slot_out)
{
    const struct convoy_reserve reserve = {
        .struct_size = sizeof reserve, .request = "scarce", .request_length = 6, .bytes = &data_bytes, .count = 1};
    struct convoy_reservation reservation = {
        .struct_size = sizeof reservation, .slots = slot_out, .slot_stride = sizeof *slot_out, .slot_capacity = 1};
    return scarce->table->reserve(scarce->engines[1], &reserve, &reservation, &scarce->error);
}

/* Into a slot as a send does it, then as raw pieces go from registered memory. */
static int32_t push(struct scarce *scarce, convoy_transfer slot, uint64_t address)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, &data_bytes);
    const struct convoy_stage stage = engine_stage("scarce", &tensor, 1);
    const struct convoy_send send = {
        .struct_size = sizeof send, .peer = scarce->peer, .address = address, .timeout_ns = SHORT_NS};
    const struct convoy_transfer_table *table = scarce->table;
    convoy_transfer sent = 0;
    int32_t status = table->send_start(scarce->engines[0], &stage, &send, &sent, &scarce->error);
    if (status == CONVOY_OK) {
        status = table->transfer_wait(scarce->engines[0], sent, CLOSE_NS, NULL, &scarce->error);
        EXPECT_OK(table->release(scarce->engines[0], sent, &scarce->error), &scarce->error);
    }
    if (status == CONVOY_OK) {
        status = table->transfer_wait(scarce->engines[1], slot, CLOSE_NS, NULL, &scarce->error);
    }
    return status;
}

static int32_t push_raw(struct scarce *scarce, uint64_t address)
{
    const struct convoy_raw_piece piece = {.source = data, .target = address, .bytes = BYTES};
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = scarce->peer,
                                   .pieces = &piece,
                                   .piece_stride = sizeof piece,
                                   .piece_count = 1};
    int32_t status = scarce->table->memory_register(scarce->engines[0], data, BYTES, &scarce->error);
    return status == CONVOY_OK ? scarce->table->transfer_sync(scarce->engines[0], &raw, SHORT_NS, &scarce->error) : status;
}

static int32_t write_slots(struct scarce *scarce)
{
    struct convoy_reserved_slot slots[2] = {{.transfer = 0}, {.transfer = 0}};
    int32_t status = reserve(scarce, &slots[0]);
    status = status == CONVOY_OK ? reserve(scarce, &slots[1]) : status;
    if (status == CONVOY_OK) {
        status = push(scarce, slots[0].transfer, (uint64_t)(uintptr_t)slots[0].address);
    }
    if (status == CONVOY_OK) {
        status = push_raw(scarce, (uint64_t)(uintptr_t)slots[1].address);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (slots[i].transfer != 0) {
            EXPECT_OK(scarce->table->release(scarce->engines[1], slots[i].transfer, &scarce->error), &scarce->error);
        }
    }
    return status;
}

/* Several that may go one at a time: whichever of them fails makes room for the next. */
static int32_t take_turns(struct scarce *scarce)
{
    const struct convoy_transfer_table *table = scarce->table;
    const struct convoy_tensor_source tensor = engine_tensor(data, &data_bytes);
    const struct convoy_stage stage = engine_stage("scarce", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = scarce->peer, .timeout_ns = SHORT_NS};
    const struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_COPY, .timeout_ns = SHORT_NS};
    const struct convoy_admission one = {.struct_size = sizeof one, .under_way_max = 1, .waiting_max = TURNS};
    struct convoy_engine_info info = {.struct_size = sizeof info};
    convoy_transfer sent[TURNS] = {0};
    int32_t status = table->admission_set(scarce->engines[0], &one, &scarce->error);
    for (int i = 0; i < TURNS && status == CONVOY_OK; i++) {
        status = table->send_start(scarce->engines[0], &stage, &send, &sent[i], &scarce->error);
    }
    for (int i = 0; i < TURNS && sent[i] != 0; i++) {
        convoy_transfer loaded = 0;
        int32_t there = table->accept(scarce->engines[1], &load, &loaded, &scarce->error);
        status = status == CONVOY_OK ? there : status;
        if (loaded != 0) {
            EXPECT_OK(table->release(scarce->engines[1], loaded, &scarce->error), &scarce->error);
        }
    }
    for (int i = 0; i < TURNS && sent[i] != 0; i++) {
        int32_t here = table->transfer_wait(scarce->engines[0], sent[i], CLOSE_NS, NULL, &scarce->error);
        status = status == CONVOY_OK ? here : status;
        EXPECT_OK(table->release(scarce->engines[0], sent[i], &scarce->error), &scarce->error);
    }
    EXPECT_OK(table->engine_info(scarce->engines[0], &info, &scarce->error), &scarce->error);
    EXPECT_EQUAL(info.admitted_count + info.waiting_count + info.overloaded_count, 0);
    EXPECT_EQUAL(info.admitted_bytes + info.waiting_bytes, 0);
    return status;
}

static void run(const struct rank *rank, void *argument)
{
    const struct sweep *sweep = argument;
    struct hygiene before;
    struct hygiene after;
    struct scarce scarce = {.error = {.struct_size = sizeof scarce.error}, .is_far = sweep->settings != NULL};
    char number[16];
    int32_t *outcome = rank->shared;
    (void)snprintf(number, sizeof number, "%u", sweep->number);
    EXPECT_EQUAL(setenv("CONVOY_FAIL_ALLOCATION", number, 1), 0);
    plugin_load(&scarce.plugin);
    scarce.table = scarce.plugin.transfer;
    hygiene_take(&before);
    int32_t status = open_all(&scarce, sweep->settings);
    for (uint32_t mode = CONVOY_LOAD_VIEW; mode <= CONVOY_LOAD_COPY && status == CONVOY_OK; mode++) {
        status = move(&scarce, mode);
    }
    if (status == CONVOY_OK) {
        status = write_slots(&scarce);
    }
    if (status == CONVOY_OK) {
        status = take_turns(&scarce);
    }
    EXPECT(status == CONVOY_OK || scarce.error.status < 0);
    *outcome = status;
    EXPECT_OK(scarce.plugin.core->context_close(scarce.context, CLOSE_NS, &scarce.error), &scarce.error);
    hygiene_take(&after);
    hygiene_compare(&before, &after, 0);
}

/* All allocations that there are, in such steps; the last ones are not reached any more. */
static void sweep_all(const char *settings, uint32_t step)
{
    struct sweep sweep = {.settings = settings};
    uint32_t failed = 0;
    uint32_t clean = 0;
    for (sweep.number = 1; clean < (step == 1 ? CLEAN_IN_A_ROW : 2); sweep.number += step) {
        assert_true(sweep.number < ALLOCATIONS_MAX);
        struct ranks *ranks = ranks_create(1, sizeof(int32_t));
        const int32_t *outcome = ranks_shared(ranks);
        ranks_start(ranks, run, &sweep, 0);
        ranks_await_exit(ranks, 0);
        int32_t status = *outcome;
        ranks_finish(ranks);
        clean = status == CONVOY_OK ? clean + 1 : 0;
        failed += status != CONVOY_OK;
    }
    assert_in_range(failed, 10 / step + 1, ALLOCATIONS_MAX);
}
#endif

static void test_transfer_allocation_that_fails_once_is_told_and_leaves_nothing(void **state)
{
    (void)state;
#ifndef CONVOY_FAULTS
    print_message("faults are compiled into VARIANT=debug only\n");
    skip();
#else
    sweep_all(NULL, 1);
#endif
}

static void test_transfer_allocation_without_shared_memory_that_fails_once_leaves_nothing(void **state)
{
    (void)state;
#ifndef CONVOY_FAULTS
    print_message("faults are compiled into VARIANT=debug only\n");
    skip();
#else
    sweep_all("{\"net\": \"ucx\"}", test_scale() > 1 ? 1 : FAR_STEP);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_allocation_that_fails_once_is_told_and_leaves_nothing),
        cmocka_unit_test(test_transfer_allocation_without_shared_memory_that_fails_once_leaves_nothing),
    };
    return cmocka_run_group_tests_name("transfer_allocation", tests, NULL, NULL);
}
