/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that move to another context, as to another build, in whatever state their transfers are. */
#include "tests/integration/two_engines.h"
#include "tests/lib/await.h"
#include "tests/lib/engine_moves.h"
#include "tests/lib/mappings.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum who { NOBODY = 0, SENDER = 1, RECEIVER = 2, BOTH = 3 };

static void move(struct two *two, enum who who)
{
    if ((who & SENDER) != 0) {
        engine_move(two->sender);
    }
    if ((who & RECEIVER) != 0) {
        engine_move(two->receiver);
    }
}

static convoy_transfer send_staged(struct two *two, convoy_transfer staged)
{
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .staged = staged};
    convoy_transfer sent = 0;
    EXPECT_OK(two->sender->table->send_start(two->sender->handle, NULL, &send, &sent, &two->sender->error),
              &two->sender->error);
    return sent;
}

/* A staged request is sent and loaded; whoever is to moves between any two steps, once. */
static void check_steps(enum who who, uint32_t when, uint32_t mode)
{
    struct two *two = two_open();
    uint32_t step = 0;
    char session[CONVOY_SESSION_BYTES];
    memcpy(session, two->sender->info.session, sizeof session);
#define STEP() (step++ == when ? move(two, who) : (void)0)
    STEP();
    convoy_transfer staged = stage_one(two, "moved");
    STEP();
    convoy_transfer sent = send_staged(two, staged);
    STEP();
    const struct convoy_load load = {.struct_size = sizeof load, .mode = mode};
    convoy_transfer loaded = 0;
    EXPECT_OK(two->receiver->table->accept_start(two->receiver->handle, &load, &loaded, &two->receiver->error),
              &two->receiver->error);
    STEP();
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    STEP();
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    STEP();
    expect_data(two, loaded);
    STEP();
    expect_data(two, loaded);
    release(two->sender, sent);
    release(two->sender, staged);
    STEP();
    expect_data(two, loaded);
    release(two->receiver, loaded);
    STEP();
    EXPECT_BYTES(two->sender->info.session, session, sizeof session);
    EXPECT_EQUAL(two->receiver->table->release(two->receiver->handle, loaded, &two->receiver->error), CONVOY_CLOSED);
    EXPECT_EQUAL(two->sender->table->release(two->sender->handle, sent, &two->sender->error), CONVOY_CLOSED);
    two_close(two);
}

#define STEPS 9u

static void test_move_between_any_two_steps_of_a_request_loses_nothing(void **state)
{
    (void)state;
    for (uint32_t when = 0; when < STEPS; when++) {
        for (uint32_t who = SENDER; who <= BOTH; who++) {
            check_steps((enum who)who, when, CONVOY_LOAD_VIEW);
            check_steps((enum who)who, when, CONVOY_LOAD_COPY);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_between_any_two_steps_of_a_request_loses_nothing),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_move", tests, NULL, NULL);
}
