/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads so large that they are followed while they are staged. */
#include "tests/integration/two_engines.h"
#include "tests/lib/await.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Two engines that send each other more than they copy at once, by calls that never block: each copier has to stage what the
 * other one follows. */
static void test_transfer_large_payloads_cross_each_other_while_they_are_staged(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint64_t bytes = 6u << 20;
    uint8_t *memory = malloc(bytes);
    EXPECT(memory != NULL);
    engine_fill(memory, bytes, 9);
    struct engine *ends[2] = {two->sender, two->receiver};
    const convoy_peer peers[2] = {two->peer, engine_connect(two->receiver, two->sender->info.session)};
    const struct convoy_tensor_source tensor = engine_tensor(memory, &bytes);
    const struct convoy_stage stage = engine_stage("crossing", &tensor, 1);
    for (uint32_t round = 0; round < 20; round++) {
        convoy_transfer sent[2];
        convoy_transfer loaded[2];
        const struct convoy_load load = {.struct_size = sizeof load, .mode = round % 2};
        for (int i = 0; i < 2; i++) {
            const struct convoy_send send = {.struct_size = sizeof send, .peer = peers[i]};
            EXPECT_OK(ends[i]->table->accept_start(ends[i]->handle, &load, &loaded[i], &ends[i]->error), &ends[i]->error);
            EXPECT_OK(ends[i]->table->send_start(ends[i]->handle, &stage, &send, &sent[i], &ends[i]->error),
                      &ends[i]->error);
        }
        for (int i = 0; i < 2; i++) {
            AWAIT(ends[i]->table->transfer_test(ends[i]->handle, loaded[i], NULL, NULL) != CONVOY_IN_PROGRESS);
            engine_look(ends[i], loaded[i]);
            EXPECT(engine_is_filled(ends[i]->views[0].data, bytes, 9));
            release(ends[i], loaded[i]);
        }
        for (int i = 0; i < 2; i++) {
            engine_wait(ends[i], sent[i], CONVOY_OK, NULL);
            release(ends[i], sent[i]);
        }
    }
    free(memory);
    two_close(two);
}

/* Given up in the middle of being staged: the receiver, who follows it already, learns so at once. */
static int32_t abort_soon(struct two *two, const uint8_t *memory, const uint64_t *bytes)
{
    const struct convoy_tensor_source tensor = engine_tensor(memory, bytes);
    const struct convoy_stage stage = engine_stage("given up", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
    convoy_transfer loaded = accept_start(two, "given up", 0);
    convoy_transfer sent = 0;
    EXPECT_OK(two->sender->table->send_start(two->sender->handle, &stage, &send, &sent, &two->sender->error),
              &two->sender->error);
    EXPECT_OK(two->sender->table->abort(two->sender->handle, sent, NULL, 0, &two->sender->error), &two->sender->error);
    int32_t status = two->receiver->table->transfer_wait(two->receiver->handle, loaded, ENGINE_TIMEOUT_NS, NULL, NULL);
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    while (result.is_source_free == 0) {
        (void)two->sender->table->transfer_test(two->sender->handle, sent, &result, NULL);
    }
    release(two->sender, sent);
    release(two->receiver, loaded);
    return status;
}

static void test_transfer_abort_while_it_is_staged_ends_the_load_that_follows_it(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint64_t bytes = 16u << 20;
    uint8_t *memory = calloc(1, bytes);
    EXPECT(memory != NULL);
    for (uint32_t i = 0; i < 10; i++) {
        int32_t status = abort_soon(two, memory, &bytes);
        EXPECT(status == CONVOY_PEER_ERROR || status == CONVOY_OK || status == CONVOY_TIMED_OUT);
        engine_await_empty(two->sender);
    }
    free(memory);
    two_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_large_payloads_cross_each_other_while_they_are_staged),
        cmocka_unit_test(test_transfer_abort_while_it_is_staged_ends_the_load_that_follows_it),
    };
    return cmocka_run_group_tests_name("transfer_large", tests, NULL, NULL);
}
