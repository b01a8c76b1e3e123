/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of two engines that open, connect, stage, offer, load and copy fails once, in a process of its own:
 * whatever failed says so, what did not works, and after close nothing is left. Needs a build with fault hooks. */
#include "tests/abi/hygiene.h"

#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

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
#define CLEAN_IN_A_ROW 8u

#ifdef CONVOY_FAULTS
struct scarce {
    struct plugin plugin;
    const struct convoy_transfer_table *table;
    convoy_context *context;
    convoy_transfer_engine *engines[2];
    convoy_peer peer;
    struct convoy_error error;
};

static uint8_t data[BYTES];
static const uint64_t data_bytes = BYTES;

static int32_t open_all(struct scarce *scarce)
{
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .pool_bytes = 4u << 20,
                                                    .pool_block_bytes = 4096,
                                                    .transfer_max = 16,
                                                    .peer_max = 4,
                                                    .prealloc_count = 1,
                                                    .prealloc_bytes = 4096};
    const struct convoy_context_config config = {.struct_size = sizeof config};
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
        EXPECT((status == CONVOY_OK) == (other == CONVOY_OK)); /* both sides come to the same end */
        EXPECT_OK(table->release(scarce->engines[0], sent, &scarce->error), &scarce->error);
    }
    if (loaded != 0) {
        EXPECT_OK(table->release(scarce->engines[1], loaded, &scarce->error), &scarce->error);
    }
    return status;
}

static void run(const struct rank *rank, void *argument)
{
    struct hygiene before;
    struct hygiene after;
    struct scarce scarce = {.error = {.struct_size = sizeof scarce.error}};
    char number[16];
    int32_t *outcome = rank->shared;
    (void)snprintf(number, sizeof number, "%u", *(const uint32_t *)argument);
    EXPECT_EQUAL(setenv("CONVOY_FAIL_ALLOCATION", number, 1), 0);
    plugin_load(&scarce.plugin);
    scarce.table = scarce.plugin.transfer;
    hygiene_take(&before);
    int32_t status = open_all(&scarce);
    for (uint32_t mode = CONVOY_LOAD_VIEW; mode <= CONVOY_LOAD_COPY && status == CONVOY_OK; mode++) {
        status = move(&scarce, mode);
    }
    EXPECT(status == CONVOY_OK || scarce.error.status < 0);
    *outcome = status;
    EXPECT_OK(scarce.plugin.core->context_close(scarce.context, CLOSE_NS, &scarce.error), &scarce.error);
    hygiene_take(&after);
    hygiene_compare(&before, &after, 0);
}
#endif

static void test_transfer_allocation_that_fails_once_is_told_and_leaves_nothing(void **state)
{
    (void)state;
#ifndef CONVOY_FAULTS
    print_message("faults are compiled into VARIANT=debug only\n");
    skip();
#else
    uint32_t failed = 0;
    uint32_t clean = 0;
    for (uint32_t n = 1; clean < CLEAN_IN_A_ROW; n++) {
        assert_true(n < ALLOCATIONS_MAX);
        struct ranks *ranks = ranks_create(1, sizeof(int32_t));
        const int32_t *outcome = ranks_shared(ranks);
        ranks_start(ranks, run, &n, 0);
        ranks_await_exit(ranks, 0);
        int32_t status = *outcome;
        ranks_finish(ranks);
        clean = status == CONVOY_OK ? clean + 1 : 0;
        failed += status != CONVOY_OK;
    }
    assert_in_range(failed, 10, ALLOCATIONS_MAX);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_allocation_that_fails_once_is_told_and_leaves_nothing),
    };
    return cmocka_run_group_tests_name("transfer_allocation", tests, NULL, NULL);
}
