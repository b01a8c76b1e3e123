/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the host that meet a swap: they wait for the end of its pause, and whichever build goes on answers them. */
#include "swap_scene.h"

/* A swap to b that stays in its pause, because a look at the group is held inside the old build. */
struct pause {
    struct scene_call look;
    struct scene_call swap;
};

static void pause_begin(struct pause *pause, struct scene *scene)
{
    atomic_store(&scene->a->is_look_held, 1);
    pause->look = (struct scene_call){.scene = scene, .run = scene_look};
    pause->swap = (struct scene_call){.scene = scene, .run = scene_swap_to_b};
    scene_start(&pause->look);
    AWAIT(atomic_load(&scene->a->waiting) == 1);
    scene_start(&pause->swap);
    AWAIT(scene_is_paused(scene));
}

static int32_t pause_end(struct pause *pause, struct scene *scene)
{
    atomic_store(&scene->a->is_look_held, 0);
    assert_int_equal(scene_end(&pause->look), CONVOY_OK);
    return scene_end(&pause->swap);
}

static int32_t call_reduce(struct scene_call *call)
{
    return convoy_host_reduce(call->scene->group, NULL, call->timeout_ns, NULL, &call->error);
}

static int32_t call_stage(struct scene_call *call)
{
    convoy_transfer staged = 0;
    return convoy_host_stage_start(call->scene->engine, NULL, &staged, &call->error);
}

static int32_t call_group_open(struct scene_call *call)
{
    return convoy_host_group_open(call->scene->context, NULL, &call->group, &call->error);
}

static int32_t call_context(struct scene_call *call)
{
    convoy_host_context *context = NULL;
    int32_t status = convoy_host_context_open(call->scene->loader, NULL, &context, &call->error);
    return status == CONVOY_OK ? convoy_host_context_close(context, 0, &call->error) : status;
}

static int32_t call_wait(struct scene_call *call)
{
    return convoy_host_transfer_wait(call->scene->engine, 1, call->timeout_ns, NULL, &call->error);
}

static int32_t call_send(struct scene_call *call)
{
    return convoy_host_transfer_send(call->scene->engine, NULL, NULL, &call->transfer, &call->error);
}

static int32_t call_accept(struct scene_call *call)
{
    return convoy_host_transfer_accept(call->scene->engine, NULL, &call->transfer, &call->error);
}

static int32_t call_reduce_wait(struct scene_call *call)
{
    return convoy_host_reduce_wait(call->scene->group, 1, call->timeout_ns, NULL, &call->error);
}

static int32_t call_group_close(struct scene_call *call)
{
    return convoy_host_group_close(call->group, 0, &call->error);
}

static int32_t (*const kinds[])(struct scene_call *call) = {call_reduce, call_stage, call_group_open, call_context};

#define KINDS (sizeof kinds / sizeof kinds[0])

static void start_all(struct scene *scene, struct scene_call calls[KINDS])
{
    for (size_t i = 0; i < KINDS; i++) {
        calls[i] = (struct scene_call){.scene = scene, .run = kinds[i]};
        scene_start(&calls[i]);
    }
}

static void end_all(struct scene_call calls[KINDS])
{
    for (size_t i = 0; i < KINDS; i++) {
        if (scene_end(&calls[i]) != CONVOY_OK) {
            fail_msg("call %zu: %d, \"%s\"", i, atomic_load(&calls[i].status), calls[i].error.text);
        }
    }
}

static void test_swap_calls_in_the_pause_are_answered_by_the_new_build(void **state)
{
    struct scene scene;
    struct pause pause;
    struct scene_call calls[KINDS];
    (void)state;
    scene_open(&scene);
    pause_begin(&pause, &scene);
    start_all(&scene, calls);
    for (size_t i = 0; i < KINDS; i++) {
        assert_int_equal(atomic_load(&calls[i].status), CONVOY_IN_PROGRESS);
    }
    assert_int_equal(pause_end(&pause, &scene), CONVOY_OK);
    end_all(calls);
    scene.reduces++;
    scene.stages++;
    scene_expect_calls(&scene);
    assert_int_equal(scene.result.group_count, 1); /* the group that was opened meanwhile was never the old one's */
    assert_ptr_equal(convoy_handle_binding(&calls[2].group->handle), &calls[2].group->handle.first);
    assert_ptr_equal(calls[2].group->handle.first.tables, convoy_loader_tables(scene.loader));
    assert_int_equal(atomic_load(&scene.b->contexts_opened), 2);
    scene_close(&scene);
}

static void test_swap_calls_in_a_pause_that_fails_are_answered_by_the_old_build(void **state)
{
    struct scene scene;
    struct pause pause;
    struct scene_call calls[KINDS];
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.b->import_state.status, CONVOY_MALFORMED);
    pause_begin(&pause, &scene);
    start_all(&scene, calls);
    assert_int_equal(pause_end(&pause, &scene), CONVOY_MALFORMED);
    end_all(calls);
    scene.reduces++;
    scene.stages++;
    scene_expect_calls(&scene);
    assert_true(scene.result.pause_ns > 0);
    assert_int_equal(atomic_load(&scene.a->contexts_opened), 2);
    scene_close(&scene);
}

static void test_swap_calls_that_do_not_return_are_a_drain_timeout(void **state)
{
    struct scene scene;
    struct pause pause;
    struct convoy_group_info info = {.struct_size = sizeof info};
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.a->is_look_held, 1);
    pause.look = (struct scene_call){.scene = &scene, .run = scene_look};
    pause.swap = (struct scene_call){.scene = &scene, .run = scene_swap_to_b, .timeout_ns = 30000000};
    scene_start(&pause.look);
    AWAIT(atomic_load(&scene.a->waiting) == 1);
    scene_start(&pause.swap);
    assert_int_equal(scene_end(&pause.swap), CONVOY_DRAIN_TIMEOUT);
    assert_int_equal(strncmp(pause.swap.error.text, "quiescing: ", 11), 0);
    atomic_store(&scene.a->is_look_held, 0);
    assert_int_equal(scene_end(&pause.look), CONVOY_OK);
    assert_int_equal(convoy_host_group_info(scene.group, &info, NULL), CONVOY_OK);
    scene_expect_calls(&scene);
    scene_close(&scene);
}

static void test_swap_calls_of_a_second_swap_are_busy(void **state)
{
    struct scene scene;
    struct pause pause;
    (void)state;
    scene_open(&scene);
    pause_begin(&pause, &scene);
    assert_int_equal(convoy_loader_swap(scene.loader, "x", 0, NULL, &scene.error), CONVOY_BUSY);
    assert_non_null(strstr(scene.error.text, "another swap"));
    assert_int_equal(convoy_loader_close(scene.loader, &scene.error), CONVOY_BUSY);
    assert_int_equal(pause_end(&pause, &scene), CONVOY_OK);
    scene_close(&scene);
}

/* A group that is just being opened when the pause begins is handed over like the others. */
static void test_swap_calls_of_an_open_under_way_are_in_the_walk(void **state)
{
    struct scene scene;
    struct scene_call open;
    struct scene_call swap;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.a->is_open_held, 1);
    open = (struct scene_call){.scene = &scene, .run = call_group_open};
    swap = (struct scene_call){.scene = &scene, .run = scene_swap_to_b};
    scene_start(&open);
    AWAIT(atomic_load(&scene.a->waiting) == 1);
    scene_start(&swap);
    AWAIT(scene_is_paused(&scene));
    atomic_store(&scene.a->is_open_held, 0);
    assert_int_equal(scene_end(&open), CONVOY_OK);
    assert_int_equal(scene_end(&swap), CONVOY_OK);
    assert_int_equal(scene.result.group_count, 2);
    assert_ptr_equal(convoy_handle_binding(&open.group->handle)->tables, convoy_loader_tables(scene.loader));
    assert_int_equal(convoy_host_reduce(open.group, NULL, 0, NULL, NULL), CONVOY_OK);
    scene_close(&scene);
}

/* -- waits --------------------------------------------------------------------------------------------------------- */

#define WAIT_NS 10000000000ull
#define WAITED_NS 15000000ull /* the tiny one waits 20 ms before it is MOVED; clocks here are coarse */

static void test_swap_calls_that_wait_go_on_with_the_time_that_is_left(void **state)
{
    struct scene scene;
    struct scene_call wait;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.b->wait_ns, 1);
    wait = (struct scene_call){.scene = &scene, .run = call_wait, .timeout_ns = WAIT_NS};
    scene_start(&wait);
    AWAIT(atomic_load(&scene.a->waiting) == 1);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_int_equal(scene_end(&wait), CONVOY_OK);
    assert_int_equal(atomic_load(&scene.a->seen_timeout_ns), WAIT_NS);
    assert_true(atomic_load(&scene.b->seen_timeout_ns) <= WAIT_NS - WAITED_NS);
    assert_true(atomic_load(&scene.b->seen_timeout_ns) > 0);
    scene_close(&scene);
}

/* A send or accept that was MOVED in its wait has started: the new build is asked to wait for it, and starts nothing. */
static void test_swap_calls_that_start_and_wait_are_started_once(void **state)
{
    int32_t (*const both[])(struct scene_call *call) = {call_send, call_accept};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct scene scene;
        scene_open(&scene);
        atomic_store(&scene.b->wait_ns, 1);
        struct scene_call call = {.scene = &scene, .run = both[i]};
        scene_start(&call);
        AWAIT(atomic_load(&scene.a->waiting) == 1);
        assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
        assert_int_equal(scene_end(&call), CONVOY_OK);
        assert_int_equal(call.transfer, ++scene.stages);
        assert_true(atomic_load(&scene.b->seen_timeout_ns) > UINT64_MAX / 2); /* its own deadline ends it */
        scene_expect_calls(&scene); /* the next number is the next one */
        scene_close(&scene);
    }
}

/* One that comes in the pause has started nothing. */
static void test_swap_calls_that_start_and_wait_in_the_pause_are_made_by_the_new_build(void **state)
{
    struct scene scene;
    struct pause pause;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.b->wait_ns, 1);
    pause_begin(&pause, &scene);
    struct scene_call call = {.scene = &scene, .run = call_accept};
    scene_start(&call);
    assert_int_equal(pause_end(&pause, &scene), CONVOY_OK);
    assert_int_equal(scene_end(&call), CONVOY_OK);
    assert_int_equal(call.transfer, ++scene.stages);
    scene_expect_calls(&scene);
    scene_close(&scene);
}

/* A wait that comes in the pause has not waited yet: it has all of its time, however long the pause is. */
static void test_swap_calls_of_a_wait_in_the_pause_have_all_their_time(void **state)
{
    struct scene scene;
    struct pause pause;
    struct scene_call wait;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.b->wait_ns, 1);
    pause_begin(&pause, &scene);
    wait = (struct scene_call){.scene = &scene, .run = call_reduce_wait, .timeout_ns = WAIT_NS};
    scene_start(&wait);
    assert_int_equal(pause_end(&pause, &scene), CONVOY_OK);
    assert_int_equal(scene_end(&wait), CONVOY_OK);
    assert_int_equal(atomic_load(&scene.b->seen_timeout_ns), WAIT_NS);
    scene_close(&scene);
}

static void test_swap_calls_that_wait_by_default_keep_the_default(void **state)
{
    struct scene scene;
    struct scene_call wait;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.b->wait_ns, 1);
    atomic_store(&scene.b->seen_timeout_ns, 1);
    wait = (struct scene_call){.scene = &scene, .run = call_wait};
    scene_start(&wait);
    AWAIT(atomic_load(&scene.a->waiting) == 1);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_int_equal(scene_end(&wait), CONVOY_OK);
    assert_int_equal(atomic_load(&scene.b->seen_timeout_ns), 0);
    scene_close(&scene);
}

/* -- what stays behind --------------------------------------------------------------------------------------------- */

static void test_swap_calls_on_what_was_closed_before_are_closed(void **state)
{
    struct scene scene;
    struct scene_call call = {.scene = &scene};
    convoy_operation operation = 0;
    convoy_host_group *other = NULL;
    (void)state;
    scene_open(&scene);
    assert_int_equal(convoy_host_group_open(scene.context, NULL, &call.group, NULL), CONVOY_OK);
    assert_int_equal(convoy_host_group_open(scene.context, NULL, &other, NULL), CONVOY_OK);
    assert_int_equal(call_group_close(&call), CONVOY_OK);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_int_equal(scene.result.group_count, 2);
    assert_int_equal(convoy_host_reduce(call.group, NULL, 0, NULL, NULL), CONVOY_CLOSED);
    assert_int_equal(convoy_host_reduce2_start(call.group, other, NULL, &operation, NULL), CONVOY_CLOSED);
    assert_int_equal(convoy_host_reduce2_start(other, call.group, NULL, &operation, NULL), CONVOY_CLOSED);
    assert_int_equal(convoy_host_reduce2_start(other, scene.group, NULL, &operation, NULL), CONVOY_OK);
    assert_int_equal(scene_swap(&scene, "mover_a"), CONVOY_OK);
    assert_int_equal(convoy_host_reduce(call.group, NULL, 0, NULL, NULL), CONVOY_CLOSED);
    scene_close(&scene);
}

static void test_swap_calls_answered_moved_for_no_reason_stay_moved(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.a->reduce.status, CONVOY_MOVED);
    assert_int_equal(convoy_host_reduce(scene.group, NULL, 0, NULL, NULL), CONVOY_MOVED);
    assert_int_equal(atomic_load(&scene.a->reduce.skip), -2); /* one more try */
    scene_close(&scene);
}

/* -- from inside --------------------------------------------------------------------------------------------------- */

static void log_calls(void *user, uint32_t level, const char *text, size_t length)
{
    struct scene *scene = user;
    convoy_host_context *context = NULL;
    struct convoy_group_info info = {.struct_size = sizeof info};
    (void)level;
    assert_int_equal(length, strlen(text));
    scene->line_count++;
    assert_int_equal(convoy_host_reduce(scene->group, NULL, 0, NULL, &scene->error), CONVOY_BUSY);
    assert_non_null(strstr(scene->error.text, "would wait for itself"));
    assert_int_equal(convoy_host_context_open(scene->loader, NULL, &context, NULL), CONVOY_BUSY);
    assert_int_equal(convoy_host_context_close(scene->context, 0, NULL), CONVOY_BUSY);
    assert_int_equal(convoy_host_group_info(scene->group, &info, NULL), CONVOY_OK); /* a look is always answered */
}

static void test_swap_calls_from_a_log_callback_inside_it_are_busy(void **state)
{
    struct scene scene;
    (void)state;
    scene_load(&scene, "mover_a");
    const struct convoy_context_config config = {.struct_size = sizeof config, .log = log_calls, .log_user = &scene};
    assert_int_equal(convoy_host_context_open(scene.loader, &config, &scene.context, NULL), CONVOY_OK);
    assert_int_equal(convoy_host_group_open(scene.context, NULL, &scene.group, NULL), CONVOY_OK);
    assert_int_equal(convoy_host_engine_open(scene.context, NULL, &scene.engine, NULL), CONVOY_OK);
    unsigned lines = scene.line_count;
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_int_equal(scene.line_count, lines + 2); /* the tiny one's, and the swap's own */
    scene_expect_calls(&scene);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_calls_in_the_pause_are_answered_by_the_new_build),
        cmocka_unit_test(test_swap_calls_in_a_pause_that_fails_are_answered_by_the_old_build),
        cmocka_unit_test(test_swap_calls_that_do_not_return_are_a_drain_timeout),
        cmocka_unit_test(test_swap_calls_of_a_second_swap_are_busy),
        cmocka_unit_test(test_swap_calls_of_an_open_under_way_are_in_the_walk),
        cmocka_unit_test(test_swap_calls_that_wait_go_on_with_the_time_that_is_left),
        cmocka_unit_test(test_swap_calls_that_start_and_wait_are_started_once),
        cmocka_unit_test(test_swap_calls_that_start_and_wait_in_the_pause_are_made_by_the_new_build),
        cmocka_unit_test(test_swap_calls_of_a_wait_in_the_pause_have_all_their_time),
        cmocka_unit_test(test_swap_calls_that_wait_by_default_keep_the_default),
        cmocka_unit_test(test_swap_calls_on_what_was_closed_before_are_closed),
        cmocka_unit_test(test_swap_calls_answered_moved_for_no_reason_stay_moved),
        cmocka_unit_test(test_swap_calls_from_a_log_callback_inside_it_are_busy),
    };
    return cmocka_run_group_tests_name("swap_calls", tests, NULL, NULL);
}
