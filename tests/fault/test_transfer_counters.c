/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of what went wrong are true: one message of one side is lost, said twice or late, and the counters of both sides
 * that tell of it, and only these, grow by exactly that. Needs a build with fault hooks. */
#include "tests/integration/reports_transfer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define APART 200u   /* the two sides' messages have numbers that never meet */
#define OFFERS 1100u /* more than are remembered */
#define FOREVER_NS 3600000000000ull /* not said again meanwhile */
#define COUNTED 8u
#define LOOKS 200u
#define RETRY_NS 900000000ull /* a third of it is the first wait */

#ifdef CONVOY_FAULTS
static const char *const counted[COUNTED] = {"retries",       "offers_late",    "offers_repeated",  "replies_late",
                                             "asks_repeated", "rooms_repeated", "messages_dropped", "malformed"};

struct counts {
    uint64_t sender[COUNTED];
    uint64_t receiver[COUNTED];
};

static void count(struct two *two, struct counts *out)
{
    for (uint32_t i = 0; i < COUNTED; i++) {
        out->sender[i] = engine_counter(two->sender, counted[i]);
        out->receiver[i] = engine_counter(two->receiver, counted[i]);
    }
}

/* Lets the receiver say so many messages more than the sender. */
static void set_apart(struct two *two)
{
    struct engine *third = engine_create(NULL);
    convoy_peer peer = engine_connect(two->receiver, third->info.session);
    const struct convoy_transfer_query query = {
        .struct_size = sizeof query, .request = "x", .request_length = 1, .peer = peer};
    for (uint32_t i = 0; i < APART; i++) {
        struct convoy_transfer_answer answer = {.struct_size = sizeof answer};
        CALL_OK(two->receiver, query, &query, 0, &answer);
    }
    CALL_OK(two->receiver, peer_disconnect, peer);
    engine_destroy(third);
}

/* What happens to the engine's message after so many more of its own. */
static void plan(struct engine *engine, const char *fate, uint32_t after)
{
    char text[48];
    (void)snprintf(text, sizeof text, "%s:%llu", fate,
                   (unsigned long long)engine_counter(engine, "control_messages") + 1 + after);
    EXPECT_EQUAL(setenv("CONVOY_TEST_MESSAGE", text, 1), 0);
}

/* One offer that is copied: OFFER, TAKEN with BACK. All that is offered has come before it is accepted. */
static void move_offered(struct two *two, uint32_t offers)
{
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    const struct convoy_stage stage = engine_stage("move", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .timeout_ns = RETRY_NS};
    const struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_COPY, .timeout_ns = 3 * RETRY_NS};
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    uint64_t wanted = engine_counter(two->receiver, "offers") + offers;
    CALL_OK(two->sender, send_start, &stage, &send, &sent);
    while (engine_counter(two->receiver, "offers") < wanted) {
        (void)engine_figures(two->receiver);
        (void)engine_figures(two->sender);
    }
    CALL_OK(two->receiver, accept, &load, &loaded);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    release(two->receiver, loaded);
    engine_await_empty(two->receiver);
    (void)engine_figures(two->sender); /* takes what was said once more */
    release(two->sender, sent);
    engine_await_empty(two->sender);
}

static void move(struct two *two)
{
    move_offered(two, 1);
}

static void move_twice(struct two *two)
{
    move_offered(two, 2);
}

static void by_descriptor(struct two *two)
{
    convoy_transfer staged = stage_one(two, "broker");
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY);
    convoy_transfer loaded = load_start(two, CONVOY_LOAD_COPY, 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    release(two->receiver, loaded);
    release(two->sender, staged);
    engine_await_empty(two->sender);
    engine_await_empty(two->receiver);
    const struct convoy_transfer_query query = {
        .struct_size = sizeof query, .request = "broker", .request_length = 6, .peer = two->peer};
    struct convoy_transfer_answer answer = {.struct_size = sizeof answer};
    CALL_OK(two->sender, query, &query, 0, &answer); /* behind all that the receiver has said */
}

/* Whether each side has counted the one thing, and nothing else. must: what is not so fails the test. */
static bool is_counted(struct two *two, const struct counts *before, const char *const names[2], bool must)
{
    struct counts after;
    bool is_right = true;
    count(two, &after);
    for (uint32_t i = 0; i < COUNTED; i++) {
        const uint64_t grown[2] = {after.sender[i] - before->sender[i], after.receiver[i] - before->receiver[i]};
        for (uint32_t side = 0; side < 2; side++) {
            uint64_t wanted = names[side] != NULL && strcmp(names[side], counted[i]) == 0;
            if (must && grown[side] != wanted) {
                print_message("%s of the %s grew by %llu\n", counted[i], side == 0 ? "sender" : "receiver",
                              (unsigned long long)grown[side]);
            }
            is_right = is_right && grown[side] == wanted;
        }
    }
    return is_right;
}

static void expect_counts(struct two *two, const struct counts *before, const char *sender, const char *receiver)
{
    const char *const names[2] = {sender, receiver};
    EXPECT_EQUAL(unsetenv("CONVOY_TEST_MESSAGE"), 0);
    for (uint32_t i = 0; i < LOOKS && !is_counted(two, before, names, false); i++) { /* the last word may be on its way */
        (void)engine_figures(two->sender);
        (void)engine_figures(two->receiver);
    }
    EXPECT(is_counted(two, before, names, true));
}

static void check(struct two *two, const char *side, const char *fate, void (*act)(struct two *), const char *sender,
                  const char *receiver)
{
    struct counts before;
    count(two, &before);
    plan(strcmp(side, "sender") == 0 ? two->sender : two->receiver, fate, 0);
    act(two);
    expect_counts(two, &before, sender, receiver);
}

static void check_all(bool is_far)
{
    struct two *two = two_open();
    set_apart(two);
    check(two, "sender", "twice", move_twice, NULL, "offers_repeated");
    check(two, "sender", "drop", move, "retries", NULL);
    check(two, "receiver", "drop", move, "retries", "offers_repeated");
    check(two, "receiver", "twice", move, is_far ? "rooms_repeated" : "replies_late", NULL);
    check(two, "receiver", "twice", by_descriptor, "asks_repeated", "replies_late");
    check(two, "receiver", "drop", by_descriptor, NULL, "retries");
    check(two, "receiver", "usual", by_descriptor, NULL, NULL); /* far: the loan has ended with its last byte */
    two_close(two);
}
#endif

static void test_transfer_counters_of_lost_and_repeated_messages_are_true(void **state)
{
    (void)state;
#ifndef CONVOY_FAULTS
    print_message("faults are compiled into VARIANT=debug only\n");
    skip();
#else
    check_all(false);
#endif
}

static void test_transfer_counters_without_shared_memory_are_true(void **state)
{
    (void)state;
#ifndef CONVOY_FAULTS
    print_message("faults are compiled into VARIANT=debug only\n");
    skip();
#else
    engine_settings = "{\"net\": \"ucx\"}";
    check_all(true);
    engine_settings = NULL;
#endif
}

/* An offer that comes when a thousand later ones have come is dropped: what became of its like is not remembered. */
static void test_transfer_counters_of_an_offer_from_long_ago_are_true(void **state)
{
    (void)state;
#ifndef CONVOY_FAULTS
    print_message("faults are compiled into VARIANT=debug only\n");
    skip();
#else
    struct two *two = two_open();
    struct counts before;
    char text[48];
    set_apart(two);
    count(two, &before);
    (void)snprintf(text, sizeof text, "late:1:%u", OFFERS);
    EXPECT_EQUAL(setenv("CONVOY_TEST_MESSAGE", text, 1), 0);
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    const struct convoy_stage stage = engine_stage("first", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .timeout_ns = FOREVER_NS};
    convoy_transfer first = 0;
    CALL_OK(two->sender, send_start, &stage, &send, &first);
    for (uint32_t i = 0; i <= OFFERS; i++) {
        convoy_transfer sent = send_bytes(two->sender, two->peer, "next", 1, two->memory, 64);
        convoy_transfer loaded = accept_by(two->receiver, "next", 0, CONVOY_LOAD_COPY, ENGINE_TIMEOUT_NS);
        engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
        release(two->receiver, loaded);
        engine_wait(two->sender, sent, CONVOY_OK, NULL);
        release(two->sender, sent);
    }
    expect_counts(two, &before, NULL, "offers_late");
    CALL_OK(two->sender, abort, first, "long ago", 8);
    release(two->sender, first);
    two_close(two);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_counters_of_lost_and_repeated_messages_are_true),
        cmocka_unit_test(test_transfer_counters_without_shared_memory_are_true),
        cmocka_unit_test(test_transfer_counters_of_an_offer_from_long_ago_are_true),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_counters", tests, NULL, NULL);
}
