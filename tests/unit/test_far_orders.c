/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders to an address at another host whose bytes do not stop when the order ends: a thread that carries out what bulk is to do
 * stands still meanwhile. The caller has its answer by its deadline all the same; what is read is held until it is read no more.
 */
#include "core/clock.h"
#include "core/error.h"
#include "xfer/far.h"
#include "xfer/raw.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 300000u
#define SHORT_NS (2 * CONVOY_NS_PER_S)
#define LONG_NS (20 * CONVOY_NS_PER_S)

static struct convoy_runtime *runtime;
static struct convoy_xfer *sender;
static struct convoy_xfer *receiver;
static convoy_peer peer;
static uint8_t source[BYTES];
static uint8_t target[BYTES];

static void check(int32_t status, const struct convoy_error *error)
{
    if (status != CONVOY_OK) {
        fail_msg("status %d: %s", (int)status, error->text);
    }
}

static uint64_t soon(void)
{
    return convoy_deadline_after(convoy_now_ns(), LONG_NS);
}

static struct convoy_xfer *open_engine(void)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_xfer *engine = NULL;
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = 4u << 20, .pool_block_bytes = 4096, .transfer_max = 64, .peer_max = 4};
    check(convoy_xfer_open(runtime, &options, &engine, &error), &error);
    return engine;
}

static int set_up(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    static const char settings[] = "{\"net\": \"ucx\"}";
    const struct convoy_context_config config = {
        .struct_size = sizeof config, .settings = settings, .settings_length = sizeof settings - 1};
    (void)state;
    check(convoy_runtime_open(&config, &runtime, &error), &error);
    sender = open_engine();
    receiver = open_engine();
    check(convoy_xfer_connect(sender, receiver->session, strlen(receiver->session), LONG_NS, &peer, &error), &error);
    return 0;
}

static int tear_down(void **state)
{
    struct convoy_xfer *const engines[] = {sender, receiver};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        check(convoy_xfer_close(engines[i], soon(), &error), &error);
        convoy_xfer_destroy(engines[i]);
    }
    convoy_runtime_destroy(runtime);
    return 0;
}

/* -- a thread that has what bulk is to do in its hands, and stands still ------------------------------------------------ */

static void stand_still(bool does)
{
    uint64_t end_ns = soon();
    bool is_set = false;
    while (!is_set && convoy_now_ns() < end_ns) {
        (void)pthread_mutex_lock(&sender->far->lock);
        is_set = !does || !sender->far->is_flushing;
        sender->far->is_flushing = is_set ? does : sender->far->is_flushing;
        (void)pthread_mutex_unlock(&sender->far->lock);
        (void)sched_yield();
    }
    assert_true(is_set);
    if (!does) {
        convoy_far_flush(sender);
    }
}

enum lie { SILENT = 0, HAS_ALL, CLOSES };

static void tell(struct convoy_xfer_peer *there, enum lie lie, uint64_t cookie)
{
    const struct convoy_room room = {.serial = cookie, .landing = 9, .generation = 1, .put = CONVOY_ROOM_NO_PUT};
    const struct convoy_reply done = {.cookie = cookie, .serial = cookie};
    const struct convoy_xfer_notice closed = {.type = CONVOY_SAY_CLOSED};
    struct convoy_ring_entry entry;
    convoy_far_on_room(sender, there, &room);
    if (lie == HAS_ALL) {
        convoy_xfer_on_answer(sender, there, &done);
    } else if (lie == CLOSES) {
        convoy_xfer_notice_pack(&closed, &entry);
        (void)convoy_xfer_take(sender, there, &entry);
    }
}

/* What the peer says to the order, once it is there: room, and then, if it lies, that it has all, or reads nothing more. */
static void *answer(void *argument)
{
    const enum lie *lie = argument;
    uint64_t end_ns = soon();
    bool is_said = false;
    while (!is_said && convoy_now_ns() < end_ns) {
        convoy_xfer_lock(sender);
        if (sender->orders != NULL) {
            tell(&sender->peers[sender->orders->peer], *lie, sender->orders->cookie);
            is_said = true;
        }
        convoy_xfer_unlock(sender);
        (void)sched_yield();
    }
    return NULL;
}

static bool is_held(void)
{
    convoy_xfer_lock(sender);
    convoy_xfer_pump(sender);
    bool is = sender->held != NULL;
    convoy_xfer_unlock(sender);
    return is;
}

static void run(enum lie lie, int32_t wanted)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_raw_piece piece = {.source = source, .target = (uint64_t)(uintptr_t)target, .bytes = BYTES};
    const struct convoy_raw raw = {
        .struct_size = sizeof raw, .peer = peer, .pieces = &piece, .piece_stride = sizeof piece, .piece_count = 1};
    pthread_t thread;
    check(convoy_xfer_register(sender, source, BYTES, &error), &error);
    stand_still(true);
    assert_int_equal(pthread_create(&thread, NULL, answer, &lie), 0);
    assert_int_equal(convoy_xfer_raw(sender, &raw, SHORT_NS, &error), wanted);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(is_held());
    assert_int_equal(convoy_xfer_deregister(sender, source, BYTES, &error), CONVOY_BUSY);
    const struct convoy_reply back = {.serial = sender->held->order.cookie, .cookie = sender->held->order.cookie};
    convoy_xfer_lock(sender); /* it is not the peer's to give back */
    convoy_xfer_on_reply(sender, &sender->peers[(uint32_t)peer - 1], CONVOY_SAY_BACK, &back);
    convoy_xfer_unlock(sender);
    assert_true(is_held());
    stand_still(false);
    uint64_t end_ns = soon();
    while (is_held() && convoy_now_ns() < end_ns) {
        (void)sched_yield();
    }
    assert_false(is_held());
    check(convoy_xfer_deregister(sender, source, BYTES, &error), &error);
}

static void test_far_orders_source_is_held_while_it_is_read_and_the_caller_has_its_answer(void **state)
{
    (void)state;
    run(SILENT, CONVOY_TIMED_OUT);
}

static void test_far_orders_peer_that_says_it_has_all_too_early_gets_no_memory_freed(void **state)
{
    (void)state;
    run(HAS_ALL, CONVOY_OK);
}

static void test_far_orders_peer_that_says_it_is_gone_gets_no_memory_freed_either(void **state)
{
    (void)state;
    run(CLOSES, CONVOY_PEER_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_orders_source_is_held_while_it_is_read_and_the_caller_has_its_answer),
        cmocka_unit_test(test_far_orders_peer_that_says_it_has_all_too_early_gets_no_memory_freed),
        cmocka_unit_test(test_far_orders_peer_that_says_it_is_gone_gets_no_memory_freed_either),
    };
    return cmocka_run_group_tests_name("far_orders", tests, set_up, tear_down);
}
