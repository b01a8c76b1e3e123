/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine takes from a peer only with a proof: an answer, memory that came as a file, memory read out of a process. */
#include "xfer/raw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define TOKEN CONVOY_INTRODUCE_TOKEN_BYTES

static void test_xfer_peers_answer_needs_the_cookie_and_the_peer_of_its_order(void **state)
{
    (void)state;
    struct convoy_xfer *engine = calloc(1, sizeof *engine);
    struct convoy_xfer_peer *peers = calloc(2, sizeof *peers);
    assert_true(engine != NULL && peers != NULL);
    engine->peers = peers;
    struct convoy_xfer_order order = {.peer = 1};
    convoy_xfer_order_add(engine, &order);
    struct convoy_reply reply = {.cookie = order.cookie + (UINT64_C(1) << 32), .status = CONVOY_NOT_FOUND};
    convoy_xfer_on_answer(engine, &peers[1], &reply); /* of an order that was given up, or never was */
    assert_false(order.is_done);
    reply.cookie = order.cookie;
    convoy_xfer_on_answer(engine, &peers[0], &reply);
    assert_false(order.is_done);
    assert_int_equal(engine->counters[CONVOY_XFER_COUNT_replies_late], 2);
    convoy_xfer_on_answer(engine, &peers[1], &reply);
    assert_true(order.is_done);
    assert_int_equal(order.reply.status, CONVOY_NOT_FOUND);
    free(peers);
    free(engine);
}

/* The file's first bytes are what was said over the connection, or else it is another's. */
static void test_xfer_peers_memory_needs_the_token_in_it(void **state)
{
    (void)state;
    const struct convoy_pool_options options = {
        .kind = CONVOY_POOL_SHARED, .bytes = 4096, .block_bytes = 4096, .lease_max = 1, .reference_max = 1};
    struct convoy_pool *pool = NULL;
    struct convoy_view *view = NULL;
    uint8_t token[TOKEN];
    memset(token, 0x5a, TOKEN);
    assert_int_equal(convoy_pool_open(&options, &pool, NULL), CONVOY_OK);
    memcpy(convoy_pool_memory(pool), token, TOKEN);
    assert_int_equal(convoy_view_open(-1, convoy_pool_file(pool), &view, NULL), CONVOY_OK);
    assert_true(convoy_view_has_token(view, token));
    for (size_t i = 0; i < TOKEN; i++) {
        token[i] ^= 1;
        assert_false(convoy_view_has_token(view, token));
        token[i] ^= 1;
    }
    convoy_view_put(view);
    convoy_pool_close(pool);
}

/* The same address in another process, or in another network's process of the same number, holds something else. */
static void test_xfer_peers_process_needs_the_token_where_it_said(void **state)
{
    (void)state;
    static uint8_t token[TOKEN] = {1, 2, 3};
    static uint8_t pool[4096];
    int process = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (process < 0) {
        print_message("this system has no pidfd_open\n");
        skip();
    }
    for (uint32_t is_other = 0; is_other < 2; is_other++) {
        struct convoy_introduction introduction = {.pool_address = (uint64_t)(uintptr_t)pool,
                                                   .pool_bytes = sizeof pool,
                                                   .token_address = (uint64_t)(uintptr_t)token};
        struct convoy_view view = {.pid_fd = -1};
        memcpy(introduction.token, token, TOKEN);
        introduction.token[TOKEN - 1] ^= (uint8_t)is_other;
        bool is_allowed = convoy_view_try_process(&view, &introduction, getpid(), process);
        assert_true(is_allowed == (is_other == 0));
        assert_int_equal(view.address, is_allowed ? introduction.pool_address : 0);
        (void)close(view.pid_fd);
    }
    (void)close(process);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xfer_peers_answer_needs_the_cookie_and_the_peer_of_its_order),
        cmocka_unit_test(test_xfer_peers_memory_needs_the_token_in_it),
        cmocka_unit_test(test_xfer_peers_process_needs_the_token_where_it_said),
    };
    return cmocka_run_group_tests_name("xfer_peers", tests, NULL, NULL);
}
