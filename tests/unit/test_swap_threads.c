/* SPDX-License-Identifier: Apache-2.0 */
/* Four threads call on groups and engines while a fifth swaps back and forth: no call is lost, and none says MOVED. */
#include "swap_scene.h"

#define SWAPS 40u
#define END_NS (60 * CONVOY_NS_PER_S) /* it takes less than one second */
#define CALLERS 4u
#define CALLS_LEAST 1000u /* of each thread while it is swapped */

struct caller {
    convoy_host_context *context;
    convoy_host_group *group; /* one of these two */
    convoy_host_engine *engine;
    _Atomic uint32_t *is_over;
    _Atomic uint64_t calls;
    int32_t wrong; /* the first status that was not OK */
    uint64_t odd;  /* counts that were not one more than the last */
    pthread_t thread;
};

static int32_t count(struct caller *caller, uint64_t *count_out)
{
    if (caller->engine != NULL) {
        return convoy_host_stage_start(caller->engine, NULL, count_out, NULL);
    }
    struct convoy_group_info info = {.struct_size = sizeof info};
    int32_t status = convoy_host_reduce(caller->group, NULL, 0, NULL, NULL);
    if (status == CONVOY_OK) {
        status = convoy_host_group_info(caller->group, &info, NULL);
    }
    *count_out = info.round;
    return status;
}

static void *run_caller(void *user)
{
    struct caller *caller = user;
    uint64_t calls = 0;
    while (atomic_load(caller->is_over) == 0 && caller->wrong == CONVOY_OK) {
        uint64_t counted = 0;
        caller->wrong = count(caller, &counted);
        caller->odd += caller->wrong == CONVOY_OK && counted != ++calls;
        atomic_store(&caller->calls, calls);
    }
    return NULL;
}

/* Also opens and closes of groups, engines and a context, which have to find their way between the swaps. */
static void *run_opener(void *user)
{
    struct caller *caller = user;
    while (atomic_load(caller->is_over) == 0 && caller->wrong == CONVOY_OK) {
        convoy_host_group *group = NULL;
        convoy_host_context *context = NULL;
        convoy_host_engine *engine = NULL;
        int32_t status = convoy_host_group_open(caller->context, NULL, &group, NULL);
        status = status == CONVOY_OK ? convoy_host_reduce(group, NULL, 0, NULL, NULL) : status;
        status = status == CONVOY_OK ? convoy_host_group_close(group, 0, NULL) : status;
        status = status == CONVOY_OK ? convoy_host_context_open(caller->context->handle.loader, NULL, &context, NULL)
                                     : status;
        status = status == CONVOY_OK ? convoy_host_engine_open(context, NULL, &engine, NULL) : status;
        status = status == CONVOY_OK ? convoy_host_context_close(context, CONVOY_NS_PER_S, NULL) : status;
        caller->wrong = status;
        atomic_fetch_add(&caller->calls, 1);
    }
    return NULL;
}

static void start(struct caller *caller, const struct scene *scene, _Atomic uint32_t *is_over, void *(*run)(void *))
{
    caller->context = scene->context;
    caller->is_over = is_over;
    assert_int_equal(pthread_create(&caller->thread, NULL, run, caller), 0);
}

static bool have_all_called(struct caller callers[CALLERS])
{
    bool have = true;
    for (size_t i = 0; i < CALLERS; i++) {
        have = have && atomic_load(&callers[i].calls) >= CALLS_LEAST;
    }
    return have;
}

static void expect_nothing_lost(struct caller callers[CALLERS])
{
    for (size_t i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
        assert_int_equal(callers[i].wrong, CONVOY_OK);
        assert_int_equal(callers[i].odd, 0);
    }
}

static void test_swap_threads_lose_no_call_and_never_see_moved(void **state)
{
    struct scene scene;
    struct caller callers[CALLERS] = {0};
    struct caller opener = {0};
    _Atomic uint32_t is_over = 0;
    (void)state;
    scene_open(&scene);
    callers[0].group = scene.group;
    callers[1].engine = scene.engine;
    assert_int_equal(convoy_host_group_open(scene.context, NULL, &callers[2].group, NULL), CONVOY_OK);
    assert_int_equal(convoy_host_engine_open(scene.context, NULL, &callers[3].engine, NULL), CONVOY_OK);
    for (size_t i = 0; i < CALLERS; i++) {
        start(&callers[i], &scene, &is_over, run_caller);
    }
    start(&opener, &scene, &is_over, run_opener);
    unsigned swaps = 0;
    uint64_t end_ns = convoy_now_ns() + END_NS;
    while (swaps < SWAPS || !have_all_called(callers) || atomic_load(&opener.calls) == 0) {
        assert_int_equal(scene_swap(&scene, swaps++ % 2 == 0 ? "mover_b" : "mover_a"), CONVOY_OK);
        assert_int_equal(scene.result.late_count, 0);
        assert_true(await_again(end_ns));
    }
    atomic_store(&is_over, 1);
    expect_nothing_lost(callers);
    assert_int_equal(pthread_join(opener.thread, NULL), 0);
    assert_int_equal(opener.wrong, CONVOY_OK);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_threads_lose_no_call_and_never_see_moved),
    };
    return cmocka_run_group_tests_name("swap_threads", tests, NULL, NULL);
}
