/* SPDX-License-Identifier: Apache-2.0 */
/* Sends that wait for room and come to an end there, are refused, or go on after something has happened to their engine. */
#include "tests/integration/admission_scene.h"
#include "tests/lib/engine_moves.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#define WAITING 3u

/* One is under way to the first receiver, the others wait. */
static struct scene *scene_waiting(struct convoy_admission admission, convoy_transfer sent[1 + WAITING])
{
    struct scene *scene = scene_make();
    scene_limit(scene, admission);
    sent[0] = scene_send(scene, (struct scene_send){.request = "under way"});
    for (uint32_t i = 0; i < WAITING; i++) {
        sent[1 + i] = scene_send(scene, (struct scene_send){.request = "waits", .priority = 5});
    }
    EXPECT_EQUAL(scene_info(scene).admitted_count, 1);
    EXPECT_EQUAL(scene_info(scene).waiting_count, WAITING);
    return scene;
}

static const struct convoy_admission one_at_a_time = {.under_way_max = 1};

/* What was under way, and those of the others that still wait from `from` on, go. */
static void go_on(struct scene *scene, const convoy_transfer sent[1 + WAITING], uint32_t from)
{
    SCENE_TAKE(scene, 0, "under way");
    for (uint32_t i = from; i < 1 + WAITING; i++) {
        SCENE_TAKE(scene, 0, "waits");
    }
    scene_finish(scene, sent[0]);
    for (uint32_t i = from; i < 1 + WAITING; i++) {
        scene_finish(scene, sent[i]);
    }
    scene_end(scene);
}

static void expect_waiting(struct scene *scene, uint32_t count)
{
    const struct convoy_engine_info info = scene_info(scene);
    EXPECT_EQUAL(info.waiting_count, count);
    EXPECT_EQUAL(info.waiting_bytes, 1000 * (uint64_t)count);
    EXPECT_EQUAL(info.admitted_count, 1);
    EXPECT_EQUAL(info.admitted_bytes, 1000);
}

/* -- refused ------------------------------------------------------------------------------------------------------- */

static void test_admission_more_than_may_wait_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    convoy_transfer sent[1 + WAITING];
    convoy_transfer refused = 0;
    struct scene *scene = scene_waiting(
        (struct convoy_admission){.under_way_max = 1, .under_way_bytes = 64u << 20, .waiting_max = WAITING}, sent);
    struct engine *engine = scene->sender;
    const struct convoy_engine_info before = scene_info(scene);
    uint64_t taken = engine_figures(engine).taken;
    EXPECT_STATUS(scene_try(scene, (struct scene_send){.request = "fifth", .priority = 9}, &refused), CONVOY_OVERLOADED,
                  &engine->error);
    EXPECT_TEXT(engine->error.text, "3 sends are waiting, admission allows 3; 1 of 1 are under way with 1000 bytes of 64 MiB");
    EXPECT_EQUAL(refused, 0);
    EXPECT_EQUAL(engine_figures(engine).taken, taken);
    EXPECT_EQUAL(scene_info(scene).transfer_count, before.transfer_count);
    EXPECT_EQUAL(scene_info(scene).overloaded_count, 1);
    EXPECT_EQUAL(engine_counter(engine, "overloaded"), 1);
    convoy_transfer staged = stage_bytes(engine, "staged", scene->memory, 1000);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = scene->peers[1], .staged = staged};
    CALL_STATUS(engine, CONVOY_OVERLOADED, send_start, NULL, &send, &refused);
    CALL_STATUS(engine, CONVOY_OVERLOADED, send, NULL, &send, &refused);
    EXPECT_EQUAL(scene_info(scene).overloaded_count, 3);
    engine_release(engine, staged);
    /* What has come meanwhile is heard first: nobody is refused for want of a look. */
    SCENE_TAKE(scene, 0, "under way");
    convoy_transfer last = scene_send(scene, (struct scene_send){.request = "sixth", .priority = -1});
    for (uint32_t i = 0; i < WAITING; i++) {
        SCENE_TAKE(scene, 0, "waits");
    }
    SCENE_TAKE(scene, 0, "sixth");
    for (uint32_t i = 0; i < 1 + WAITING; i++) {
        scene_finish(scene, sent[i]);
    }
    scene_finish(scene, last);
    scene_end(scene);
}

/* A refused send that would have failed anyhow says why it can never go; one that fails to stage gives its place back. */
static void test_admission_place_of_what_cannot_be_sent_is_free_again(void **state)
{
    (void)state;
    convoy_transfer sent[1 + WAITING];
    convoy_transfer refused = 0;
    struct scene *scene = scene_waiting((struct convoy_admission){.under_way_max = 1, .waiting_max = WAITING + 1}, sent);
    struct engine *engine = scene->sender;
    const uint64_t much = 1ull << 40;
    const struct convoy_tensor_source tensor = engine_tensor(scene->memory, &much);
    const struct convoy_stage stage = engine_stage("too much", &tensor, 1);
    struct convoy_send send = {.struct_size = sizeof send, .peer = scene->peers[0], .timeout_ns = ENGINE_TIMEOUT_NS};
    for (uint32_t i = 0; i < 3; i++) {
        CALL_STATUS(engine, CONVOY_LIMIT, send_start, &stage, &send, &refused);
        EXPECT_EQUAL(engine_number(engine, "admission", "queued"), WAITING);
    }
    send.staged = 77;
    CALL_STATUS(engine, CONVOY_CLOSED, send_start, NULL, &send, &refused);
    send.peer = 77;
    CALL_STATUS(engine, CONVOY_CLOSED, send_start, NULL, &send, &refused);
    EXPECT_EQUAL(engine_number(engine, "admission", "queued"), WAITING);
    EXPECT_EQUAL(scene_info(scene).overloaded_count, 0);
    go_on(scene, sent, 1);
}

/* -- ends ---------------------------------------------------------------------------------------------------------- */

static void check_deadline(struct convoy_admission admission, const char *whose, const char *figures)
{
    convoy_transfer sent[1 + WAITING];
    struct scene *scene = scene_waiting(admission, sent);
    struct engine *engine = scene->sender;
    convoy_transfer late =
        scene_send(scene, (struct scene_send){.request = "late", .priority = 1, .timeout_ns = SHORT_NS});
    convoy_transfer behind = scene_send(scene, (struct scene_send){.request = "behind"});
    engine_wait(engine, late, CONVOY_TIMED_OUT, NULL);
    EXPECT_EQUAL(scene_state(scene, late), CONVOY_TRANSFER_FAILED);
    EXPECT_TEXT(engine->error.text, "request late attempt 1: its deadline has passed: it waited ");
    EXPECT_TEXT(engine->error.text, "ms behind 3 for room of its ");
    EXPECT_TEXT(engine->error.text, whose);
    EXPECT_TEXT(engine->error.text, figures);
    engine_release(engine, late);
    EXPECT_OK(CALL(engine, abort, behind, NULL, 0), &engine->error);
    engine_release(engine, behind);
    expect_waiting(scene, WAITING);
    go_on(scene, sent, 1);
}

static void test_admission_deadline_of_one_that_waits_says_for_whose_room(void **state)
{
    (void)state;
    check_deadline(one_at_a_time, "engine; ", "1 of 1 are under way with 1000 bytes");
    check_deadline((struct convoy_admission){.under_way_max = 5, .peer_under_way_bytes = 1024}, "peer; ",
                   "1 are under way with 1000 bytes of 1 KiB to ");
}

static void test_admission_aborted_ones_leave_their_place_wherever_it_is(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= WAITING; i++) {
        convoy_transfer sent[1 + WAITING];
        struct scene *scene = scene_waiting(one_at_a_time, sent);
        CALL_OK(scene->sender, abort, sent[i], "not any more", 12);
        engine_wait(scene->sender, sent[i], CONVOY_CANCELED, NULL);
        EXPECT_TEXT(scene->sender->error.text, "not any more");
        engine_release(scene->sender, sent[i]);
        expect_waiting(scene, WAITING - 1);
        sent[i] = sent[1];
        go_on(scene, sent, 2);
    }
}

/* What is aborted under way makes room. */
static void test_admission_abort_of_what_is_under_way_lets_the_next_go(void **state)
{
    (void)state;
    convoy_transfer sent[1 + WAITING];
    struct scene *scene = scene_waiting(one_at_a_time, sent);
    CALL_OK(scene->sender, abort, sent[0], NULL, 0);
    expect_waiting(scene, WAITING - 1);
    engine_wait(scene->sender, sent[0], CONVOY_CANCELED, NULL);
    engine_release(scene->sender, sent[0]);
    for (uint32_t i = 1; i < 1 + WAITING; i++) {
        SCENE_TAKE(scene, 0, "waits");
        scene_finish(scene, sent[i]);
    }
    scene_end(scene);
}

static void test_admission_released_ones_go_without_the_host(void **state)
{
    (void)state;
    convoy_transfer sent[1 + WAITING];
    struct scene *scene = scene_waiting(one_at_a_time, sent);
    for (uint32_t i = 0; i < 1 + WAITING; i++) {
        engine_release(scene->sender, sent[i]);
    }
    expect_waiting(scene, WAITING);
    SCENE_TAKE(scene, 0, "under way");
    for (uint32_t i = 0; i < WAITING; i++) {
        SCENE_TAKE(scene, 0, "waits");
    }
    scene_end(scene);
}

/* The bytes of a stage that the host has let go of stay until the send of it that waits has gone. */
static void test_admission_stage_released_while_its_send_waits_keeps_its_bytes(void **state)
{
    (void)state;
    convoy_transfer sent[1 + WAITING];
    struct scene *scene = scene_waiting(one_at_a_time, sent);
    struct engine *engine = scene->sender;
    static const uint8_t other[30000] = {1, 2, 3};
    convoy_transfer staged = stage_bytes(engine, "let go", scene->memory, sizeof other);
    convoy_transfer first = send_staged(engine, scene->peers[1], staged);
    convoy_transfer aborted = send_staged(engine, scene->peers[1], staged);
    uint64_t taken = engine_figures(engine).taken;
    engine_release(engine, staged);
    CALL_OK(engine, abort, aborted, NULL, 0);
    engine_release(engine, aborted);
    EXPECT_EQUAL(engine_figures(engine).taken, taken);
    convoy_transfer reused = stage_bytes(engine, "reuses", other, sizeof other);
    engine_release(engine, reused);
    scene_limit(scene, (struct convoy_admission){.under_way_max = 0});
    SCENE_TAKE(scene, 1, "let go"); /* with the bytes it had */
    scene_finish(scene, first);
    go_on(scene, sent, 1);
}

static void test_admission_abort_of_a_stage_ends_its_sends_that_wait(void **state)
{
    (void)state;
    convoy_transfer sent[1 + WAITING];
    struct scene *scene = scene_waiting(one_at_a_time, sent);
    struct engine *engine = scene->sender;
    convoy_transfer staged = stage_bytes(engine, "aborted", scene->memory, 1000);
    convoy_transfer both[2] = {send_staged(engine, scene->peers[0], staged), send_staged(engine, scene->peers[1], staged)};
    CALL_OK(engine, abort, staged, NULL, 0);
    for (uint32_t i = 0; i < 2; i++) {
        engine_wait(engine, both[i], CONVOY_CANCELED, NULL);
        EXPECT_TEXT(engine->error.text, "was not staged");
        engine_release(engine, both[i]);
    }
    engine_release(engine, staged);
    expect_waiting(scene, WAITING);
    go_on(scene, sent, 1);
}

static void end_peer(struct scene *scene, bool is_by_itself)
{
    if (is_by_itself) {
        engine_destroy(scene->receivers[0]);
        scene->receivers[0] = NULL;
    } else {
        CALL_OK(scene->sender, peer_disconnect, scene->peers[0]);
    }
}

static void check_peer(bool is_by_itself)
{
    convoy_transfer sent[1 + WAITING];
    struct scene *scene = scene_waiting(one_at_a_time, sent);
    convoy_transfer other = scene_send(scene, (struct scene_send){.request = "to another", .to = 1});
    end_peer(scene, is_by_itself);
    for (uint32_t i = 0; i < 1 + WAITING; i++) {
        int32_t status = CALL(scene->sender, transfer_wait, sent[i], ENGINE_TIMEOUT_NS, NULL);
        EXPECT(status == CONVOY_PEER_LOST || (is_by_itself && status == CONVOY_CLOSED)); /* it refuses what it has not taken */
        engine_release(scene->sender, sent[i]);
    }
    SCENE_TAKE(scene, 1, "to another"); /* there is room now */
    scene_finish(scene, other);
    scene_end(scene);
}

static void test_admission_peer_that_goes_takes_what_waits_for_it_along_and_nothing_else(void **state)
{
    (void)state;
    check_peer(true);
    check_peer(false);
}

struct waiter {
    struct engine *engine;
    convoy_transfer sent;
    _Atomic int32_t thread; /* as the system counts them; 0 = not begun */
    _Atomic int32_t status;
};

static void *wait_for_one(void *argument)
{
    struct waiter *waiter = argument;
    struct convoy_error error = {.struct_size = sizeof error};
    atomic_store(&waiter->thread, gettid());
    atomic_store(&waiter->status, waiter->engine->table->transfer_wait(waiter->engine->handle, waiter->sent,
                                                                       ENGINE_TIMEOUT_NS, NULL, &error));
    return NULL;
}

static bool is_asleep(const struct waiter *waiter)
{
    char path[64];
    char state = 0;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&waiter->thread));
    FILE *file = fopen(path, "r");
    bool is_read = file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_read && state == 'S';
}

/* Whoever waits for one at that moment is told so, as of all others. */
static void test_admission_closing_engine_ends_what_waits(void **state)
{
    (void)state;
    convoy_transfer sent[1 + WAITING];
    struct scene *scene = scene_waiting(one_at_a_time, sent);
    const struct convoy_admission admission = {.struct_size = sizeof admission};
    struct waiter waiters[1 + WAITING];
    pthread_t threads[1 + WAITING];
    for (uint32_t i = 0; i < 1 + WAITING; i++) {
        waiters[i] = (struct waiter){.engine = scene->sender, .sent = sent[i], .status = CONVOY_IN_PROGRESS};
        EXPECT_EQUAL(pthread_create(&threads[i], NULL, wait_for_one, &waiters[i]), 0);
        AWAIT(atomic_load(&waiters[i].thread) != 0 && is_asleep(&waiters[i]));
    }
    CALL_OK(scene->sender, engine_close, ENGINE_TIMEOUT_NS);
    for (uint32_t i = 0; i < 1 + WAITING; i++) {
        EXPECT_EQUAL(pthread_join(threads[i], NULL), 0);
        EXPECT_EQUAL(atomic_load(&waiters[i].status), CONVOY_CANCELED);
    }
    CALL_STATUS(scene->sender, CONVOY_CLOSED, admission_set, &admission);
    const struct convoy_engine_info info = scene_info(scene);
    EXPECT_EQUAL(info.state, CONVOY_ENGINE_CLOSED);
    EXPECT_EQUAL(info.waiting_count + info.admitted_count + info.waiting_bytes + info.admitted_bytes, 0);
    for (uint32_t i = 0; i < RECEIVERS; i++) {
        engine_await_empty(scene->receivers[i]);
        engine_destroy(scene->receivers[i]);
    }
    engine_destroy(scene->sender);
    free(scene->memory);
    free(scene);
}

/* -- what goes on -------------------------------------------------------------------------------------------------- */

static void test_admission_waiting_ones_go_out_of_the_generation_they_were_staged_in(void **state)
{
    (void)state;
    convoy_transfer sent[1 + WAITING];
    struct scene *scene = scene_waiting(one_at_a_time, sent);
    CALL_OK(scene->sender, pool_resize, 16u << 20);
    EXPECT_EQUAL(engine_figures(scene->sender).old_generations, 1);
    convoy_transfer newer = scene_send(scene, (struct scene_send){.request = "newer", .to = 1});
    expect_waiting(scene, WAITING + 1);
    SCENE_TAKE(scene, 0, "under way");
    scene_finish(scene, sent[0]);
    for (uint32_t i = 1; i < 1 + WAITING; i++) {
        SCENE_TAKE(scene, 0, "waits");
        scene_finish(scene, sent[i]);
    }
    SCENE_TAKE(scene, 1, "newer");
    scene_finish(scene, newer);
    AWAIT(engine_figures(scene->sender).old_generations == 0);
    scene_end(scene);
}

/* Limits, priorities and turns go along; so do the figures. */
static void test_admission_moved_engine_goes_on_with_what_waits_in_the_same_order(void **state)
{
    (void)state;
    convoy_transfer sent[1 + WAITING];
    convoy_transfer refused = 0;
    struct scene *scene = scene_waiting((struct convoy_admission){.under_way_max = 1, .waiting_max = WAITING + 3}, sent);
    struct engine *engine = scene->sender;
    convoy_transfer staged = stage_bytes(engine, "let go", scene->memory, 1000);
    const struct convoy_send own = {.struct_size = sizeof own, .peer = scene->peers[0], .staged = staged, .priority = 4,
                                    .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer others[3];
    others[0] = scene_send(scene, (struct scene_send){.request = "low", .priority = -1});
    CALL_OK(engine, send_start, NULL, &own, &others[1]);
    others[2] = scene_send(scene, (struct scene_send){.request = "high", .priority = 6, .to = 1});
    engine_release(engine, staged);
    EXPECT_STATUS(scene_try(scene, (struct scene_send){.request = "refused"}, &refused), CONVOY_OVERLOADED, &engine->error);
    for (uint32_t i = 0; i < 2; i++) {
        engine_move(engine);
        expect_waiting(scene, WAITING + 3);
        EXPECT_EQUAL(engine_number(engine, "admission", "queued"), WAITING + 3);
        EXPECT_STATUS(scene_try(scene, (struct scene_send){.request = "refused"}, &refused), CONVOY_OVERLOADED,
                      &engine->error);
        EXPECT_EQUAL(scene_info(scene).overloaded_count, 2 + i);
    }
    SCENE_TAKE(scene, 0, "under way");
    SCENE_TAKE(scene, 1, "high");
    for (uint32_t i = 0; i < WAITING; i++) {
        SCENE_TAKE(scene, 0, "waits");
        engine_move(engine);
    }
    SCENE_TAKE(scene, 0, "let go");
    SCENE_TAKE(scene, 0, "low");
    for (uint32_t i = 0; i < 1 + WAITING; i++) {
        scene_finish(scene, sent[i]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        scene_finish(scene, others[i]);
    }
    scene_end(scene);
}

/* A host of transfer 1.0: shorter structs, and nothing behind them is read or written. */
static void test_admission_structs_of_1_0_have_the_usual_priority(void **state)
{
    (void)state;
    convoy_transfer sent[1 + WAITING];
    struct scene *scene = scene_waiting(one_at_a_time, sent);
    struct engine *engine = scene->sender;
    const uint64_t bytes = 1000;
    const struct convoy_tensor_source tensor = engine_tensor(scene->memory, &bytes);
    struct convoy_stage stage = engine_stage("of 1.0", &tensor, 1);
    struct convoy_send send = {.struct_size = offsetof(struct convoy_send, priority),
                               .peer = scene->peers[0],
                               .timeout_ns = ENGINE_TIMEOUT_NS,
                               .priority = 100};
    struct convoy_engine_info info = {.struct_size = offsetof(struct convoy_engine_info, admitted_count),
                                      .admitted_count = 77};
    struct convoy_payload payload = {.struct_size = offsetof(struct convoy_payload, priority), .priority = 77};
    convoy_transfer old = 0;
    stage.struct_size = offsetof(struct convoy_stage, priority);
    stage.priority = 100;
    CALL_OK(engine, send_start, &stage, &send, &old);
    CALL_OK(engine, engine_info, &info);
    EXPECT_EQUAL(info.admitted_count, 77);
    EXPECT_EQUAL(info.written_bytes, info.struct_size);
    SCENE_TAKE(scene, 0, "under way");
    for (uint32_t i = 0; i < WAITING; i++) {
        SCENE_TAKE(scene, 0, "waits");
    }
    convoy_transfer loaded = accept_by(scene->receivers[0], "of 1.0", 0, CONVOY_LOAD_VIEW, ENGINE_TIMEOUT_NS);
    engine_wait(scene->receivers[0], loaded, CONVOY_OK, NULL);
    CALL_OK(scene->receivers[0], payload, loaded, &payload);
    EXPECT_EQUAL(payload.priority, 77);
    engine_look(scene->receivers[0], loaded);
    EXPECT_EQUAL(scene->receivers[0]->payload.priority, 0);
    engine_release(scene->receivers[0], loaded);
    for (uint32_t i = 0; i < 1 + WAITING; i++) {
        scene_finish(scene, sent[i]);
    }
    scene_finish(scene, old);
    scene_end(scene);
}

int main(void)
{
    engine_filter_tests();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_admission_more_than_may_wait_is_refused_and_leaves_nothing),
        cmocka_unit_test(test_admission_place_of_what_cannot_be_sent_is_free_again),
        cmocka_unit_test(test_admission_deadline_of_one_that_waits_says_for_whose_room),
        cmocka_unit_test(test_admission_aborted_ones_leave_their_place_wherever_it_is),
        cmocka_unit_test(test_admission_abort_of_what_is_under_way_lets_the_next_go),
        cmocka_unit_test(test_admission_released_ones_go_without_the_host),
        cmocka_unit_test(test_admission_stage_released_while_its_send_waits_keeps_its_bytes),
        cmocka_unit_test(test_admission_abort_of_a_stage_ends_its_sends_that_wait),
        cmocka_unit_test(test_admission_peer_that_goes_takes_what_waits_for_it_along_and_nothing_else),
        cmocka_unit_test(test_admission_closing_engine_ends_what_waits),
        cmocka_unit_test(test_admission_waiting_ones_go_out_of_the_generation_they_were_staged_in),
        cmocka_unit_test(test_admission_moved_engine_goes_on_with_what_waits_in_the_same_order),
        cmocka_unit_test(test_admission_structs_of_1_0_have_the_usual_priority),
    };
    return cmocka_run_group_tests_name("transfer_admission_ends", tests, NULL, NULL);
}
