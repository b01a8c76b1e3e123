/* SPDX-License-Identifier: Apache-2.0 */
/* Limits and priorities of sends to another host: who goes next, and what is left when the receiver dies. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/engine_moves.h"
#include "tests/lib/far_hosts.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>

#include <cmocka.h>

#define SMALL_BYTES 100000u
#define LARGE_BYTES (8u << 20) /* pushed while it is staged, where there is room */
#define COUNT 5u
#define LONG_MS 60000u

struct wanted {
    const char *request;
    int32_t priority;
    uint64_t bytes;
};

static convoy_transfer begin(struct engine *engine, convoy_peer peer, const uint8_t *data, const struct wanted *wanted)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, &wanted->bytes);
    struct convoy_stage stage = engine_stage(wanted->request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer sent = 0;
    stage.priority = wanted->priority;
    CALL_OK(engine, send_start, &stage, &send, &sent);
    return sent;
}

static uint8_t *make_data(void)
{
    uint8_t *data = malloc(LARGE_BYTES);
    EXPECT(data != NULL);
    engine_fill(data, LARGE_BYTES, 3);
    return data;
}

static void limit(struct engine *engine, struct convoy_admission admission)
{
    admission.struct_size = sizeof admission;
    CALL_OK(engine, admission_set, &admission);
}

static void await_counts(struct engine *engine, uint32_t admitted, uint32_t waiting)
{
    struct convoy_engine_info info = {.struct_size = sizeof info};
    AWAIT(CALL(engine, engine_info, &info) == CONVOY_OK && info.admitted_count == admitted && info.waiting_count == waiting);
}

/* -- in turn ------------------------------------------------------------------------------------------------------- */

static void send_all(const struct rank *rank, struct engine *engine, convoy_peer peer, bool must_move)
{
    static const struct wanted all[COUNT] = {{"first", 0, LARGE_BYTES},
                                             {"low", -3, SMALL_BYTES},
                                             {"usual", 0, LARGE_BYTES},
                                             {"high", 3, SMALL_BYTES},
                                             {"higher", 4, LARGE_BYTES}};
    convoy_transfer sent[COUNT];
    uint8_t *data = make_data();
    limit(engine, (struct convoy_admission){.peer_under_way_max = 1});
    for (uint32_t i = 0; i < COUNT; i++) {
        sent[i] = begin(engine, peer, data, &all[i]);
    }
    await_counts(engine, 1, COUNT - 1); /* all are staged */
    if (must_move) {
        engine_move(engine);
        await_counts(engine, 1, COUNT - 1);
    }
    rank_mark(rank, 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        engine_wait(engine, sent[i], CONVOY_OK, NULL);
        engine_release(engine, sent[i]);
    }
    await_counts(engine, 0, 0);
    free(data);
}

static void take_all(const struct rank *rank, struct engine *engine)
{
    static const char *const order[COUNT] = {"first", "higher", "high", "usual", "low"};
    static const int32_t priorities[COUNT] = {0, 4, 3, 0, -3};
    rank_await_mark(rank, 0, 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        convoy_transfer loaded = far_accept(engine, CONVOY_LOAD_VIEW);
        engine_wait(engine, loaded, CONVOY_OK, NULL);
        engine_look(engine, loaded);
        EXPECT_EQUAL(engine->payload.request_length, strlen(order[i]));
        EXPECT_BYTES(engine->payload.request, order[i], strlen(order[i]));
        EXPECT_EQUAL(engine->payload.priority, priorities[i]);
        EXPECT(engine_is_filled(engine->views[0].data, engine->views[0].bytes, 3));
        engine_release(engine, loaded);
    }
}

static void run_turns(const struct rank *rank, void *argument)
{
    struct engine *engine = far_open(rank, 0, 0);
    convoy_peer peer = far_connect(rank, engine);
    const bool *must_move = argument;
    rank_barrier(rank);
    if (rank->index == 0) {
        send_all(rank, engine, peer, *must_move);
    } else {
        take_all(rank, engine);
    }
    rank_barrier(rank);
    far_finish(rank, engine);
}

static void test_far_admission_sends_to_another_host_go_by_priority(void **state)
{
    bool must_move = false;
    (void)state;
    far_run(run_turns, &must_move);
}

static void test_far_admission_moved_engine_goes_on_with_what_waits(void **state)
{
    bool must_move = true;
    (void)state;
    far_run(run_turns, &must_move);
}

/* -- ends ---------------------------------------------------------------------------------------------------------- */

/* What is aborted, or not taken in time, makes room for the next, whatever the network still does with its bytes. */
static void send_and_give_up(const struct rank *rank, struct engine *engine, convoy_peer peer)
{
    static const struct wanted all[3] = {{"given up", 0, LARGE_BYTES}, {"next", 0, SMALL_BYTES}, {"last", 0, SMALL_BYTES}};
    convoy_transfer sent[3];
    uint8_t *data = make_data();
    limit(engine, (struct convoy_admission){.under_way_bytes = LARGE_BYTES});
    for (uint32_t i = 0; i < 3; i++) {
        sent[i] = begin(engine, peer, data, &all[i]);
    }
    await_counts(engine, 1, 2);
    CALL_OK(engine, abort, sent[0], NULL, 0);
    await_counts(engine, 2, 0);
    rank_mark(rank, 2);
    engine_wait(engine, sent[0], CONVOY_CANCELED, NULL);
    engine_wait(engine, sent[1], CONVOY_OK, NULL);
    engine_wait(engine, sent[2], CONVOY_OK, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        engine_release(engine, sent[i]);
    }
    free(data);
}

static void run_abort(const struct rank *rank, void *argument)
{
    struct engine *engine = far_open(rank, 0, 0);
    convoy_peer peer = far_connect(rank, engine);
    (void)argument;
    rank_barrier(rank);
    if (rank->index == 0) {
        send_and_give_up(rank, engine, peer);
    } else {
        rank_await_mark(rank, 0, 2);
        for (uint32_t i = 0; i < 2; i++) {
            convoy_transfer loaded = accept_by(engine, i == 0 ? "next" : "last", 0, CONVOY_LOAD_VIEW, ENGINE_TIMEOUT_NS);
            engine_wait(engine, loaded, CONVOY_OK, NULL);
            engine_release(engine, loaded);
        }
    }
    rank_barrier(rank);
    far_finish(rank, engine);
}

static void test_far_admission_abort_of_what_is_under_way_lets_others_go(void **state)
{
    (void)state;
    far_run(run_abort, NULL);
}

static void outlive(const struct rank *rank, struct engine *engine, convoy_peer peer)
{
    static const struct wanted same = {"lost", 0, LARGE_BYTES};
    convoy_transfer sent[COUNT];
    uint8_t *data = make_data();
    limit(engine, (struct convoy_admission){.under_way_max = 2});
    for (uint32_t i = 0; i < COUNT; i++) {
        sent[i] = begin(engine, peer, data, &same);
    }
    await_counts(engine, 2, COUNT - 2);
    rank_mark(rank, 2); /* the parent kills the receiver now */
    for (uint32_t i = 0; i < COUNT; i++) {
        engine_wait(engine, sent[i], CONVOY_PEER_LOST, NULL);
        engine_release(engine, sent[i]);
    }
    await_counts(engine, 0, 0);
    engine_await_empty(engine);
    EXPECT_EQUAL(engine_figures(engine).quarantined, 0);
    free(data);
}

static void run_death(const struct rank *rank, void *argument)
{
    struct engine *engine = far_open(rank, 0, 0);
    convoy_peer peer = far_connect(rank, engine);
    (void)argument;
    if (rank->index == 0) {
        outlive(rank, engine, peer);
        engine_destroy(engine);
        return;
    }
    rank_mark(rank, 2);
    rank_await_mark(rank, 0, 9); /* never comes: it is killed meanwhile */
}

static void test_far_admission_death_of_the_receiver_ends_what_waits_for_it(void **state)
{
    (void)state;
    struct ranks *ranks = ranks_create(2, sizeof(struct far_shared));
    ranks_start(ranks, run_death, NULL, LONG_MS);
    ranks_await_mark(ranks, 0, 2);
    ranks_await_mark(ranks, 1, 2);
    ranks_signal(ranks, 1, SIGKILL);
    ranks_finish(ranks);
}

int main(void)
{
    engine_filter_tests();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_admission_sends_to_another_host_go_by_priority),
        cmocka_unit_test(test_far_admission_moved_engine_goes_on_with_what_waits),
        cmocka_unit_test(test_far_admission_abort_of_what_is_under_way_lets_others_go),
        cmocka_unit_test(test_far_admission_death_of_the_receiver_ends_what_waits_for_it),
    };
    return cmocka_run_group_tests_name("transfer_admission_far", tests, far_make_hosts, far_remove_hosts);
}
