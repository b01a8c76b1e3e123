/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fork while a build is swapped: before, between any two steps, while a call waits for the end of the pause, and at random
 * moments. The child is told on every handle, closes them all without a wait, and has a loader of its own that swaps; its
 * parent notices nothing.
 */
#include "tests/lib/swap_host.h"

#include "tests/lib/await.h"
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/moving.h"
#include "tests/lib/moving_options.h"
#include "tests/lib/ranks.h"
#include "tests/lib/scale.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CHILD_SECONDS 20u /* one that hangs ends by SIGALRM */

/* Two hosts of one process: a member each of one group, of different builds. */
struct couple {
    struct swap_host hosts[2];
    _Atomic uint32_t is_over;
    _Atomic int waiter; /* the thread that waits in a pause */
};

typedef void (*child_fn)(void *argument);

/* An expectation that fails in the child ends it, and the rank with it. */
static void in_child(child_fn run, void *argument)
{
    (void)fflush(NULL);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        (void)alarm(CHILD_SECONDS);
        run(argument);
        _exit(0);
    }
    int status = 0;
    EXPECT_EQUAL(waitpid(child, &status, 0), child);
    EXPECT_EQUAL(status, 0);
}

/* -- two hosts ----------------------------------------------------------------------------------------------------- */

static void couple_open(struct couple *couple, uint16_t port)
{
    swap_couple_open(couple->hosts, NULL, "couple", port);
    for (uint32_t i = 0; i < 2; i++) {
        swap_host_engine(&couple->hosts[i]);
    }
}

static void couple_round(struct couple *couple)
{
    swap_couple_round(couple->hosts);
}

static void couple_close(struct couple *couple)
{
    swap_couple_close(couple->hosts);
}

static void child_expect_forked(struct swap_host *host)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    struct convoy_engine_info engine_info = {.struct_size = sizeof engine_info};
    struct convoy_engine_figures figures = {.struct_size = sizeof figures};
    struct convoy_report report = {0};
    char text[64];
    struct convoy_text_buffer buffer = {.struct_size = sizeof buffer, .data = text, .capacity = sizeof text};
    convoy_operation operation = 0;
    convoy_host_group *group = NULL;
    const struct convoy_group_options options = swap_host_options(host, "child", 1, 0, 1);
    struct convoy_error *error = &host->error;
    EXPECT_STATUS(swap_host_start(host, &operation), CONVOY_FORKED, error);
    EXPECT_STATUS(swap_host_round(host, 0), CONVOY_FORKED, error);
    EXPECT_STATUS(swap_host_wait(host, 1, 0), CONVOY_FORKED, error);
    EXPECT_STATUS(convoy_host_group_info(host->group, &info, error), CONVOY_FORKED, error);
    EXPECT_STATUS(convoy_host_group_cancel(host->group, "", 0, error), CONVOY_FORKED, error);
    EXPECT_STATUS(convoy_host_group_reopen(host->group, 0, NULL, error), CONVOY_FORKED, error);
    EXPECT_STATUS(convoy_host_operation_report(host->group, &report, error), CONVOY_FORKED, error);
    EXPECT_STATUS(convoy_host_context_describe(host->context, CONVOY_TOPIC_STATS, &buffer, error), CONVOY_FORKED, error);
    EXPECT_STATUS(convoy_host_engine_info(host->engine, &engine_info, error), CONVOY_FORKED, error);
    EXPECT_STATUS(convoy_host_pool_figures(host->engine, &figures, error), CONVOY_FORKED, error);
    EXPECT_STATUS(convoy_host_transfer_wait(host->engine, 1, 0, NULL, error), CONVOY_FORKED, error);
    EXPECT_STATUS(convoy_host_group_open(host->context, &options, &group, error), CONVOY_FORKED, error);
    EXPECT_STATUS(swap_host_swap(host, 0, 0), CONVOY_FORKED, error);
    EXPECT_STATUS(swap_host_swap(host, 1, 0), CONVOY_FORKED, error);
}

static void child_fresh(void)
{
    struct swap_host host;
    swap_host_open(&host, 1, NULL);
    swap_host_join(&host, "own", 0, 0, 1);
    swap_host_engine(&host);
    EXPECT_OK(swap_host_round(&host, 0), &host.error);
    swap_host_must_swap(&host, 0);
    EXPECT_OK(swap_host_round(&host, 0), &host.error);
    swap_host_close(&host);
}

static void child_all(void *argument)
{
    struct couple *couple = argument;
    for (uint32_t i = 0; i < 2; i++) {
        child_expect_forked(&couple->hosts[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        swap_host_close(&couple->hosts[i]);
    }
    child_fresh();
}

static void run_stable(const struct rank *rank, void *argument)
{
    static struct couple couple;
    (void)rank;
    couple_open(&couple, *(const uint16_t *)argument);
    couple_round(&couple);
    in_child(child_all, &couple);
    couple_round(&couple);
    for (uint32_t i = 0; i < 4; i++) {
        swap_host_must_swap(&couple.hosts[i % 2], i < 2 ? 1 - i : i % 2);
        in_child(child_all, &couple);
        couple_round(&couple);
    }
    couple_close(&couple);
}

/* -- in the pause -------------------------------------------------------------------------------------------------- */

static void *swapping(void *argument)
{
    struct couple *couple = argument;
    struct swap_host host = couple->hosts[0]; /* an error of its own */
    swap_host_must_swap(&host, 1);
    return NULL;
}

/* A call that finds the pause, and waits for its end. */
static void *waiting(void *argument)
{
    struct couple *couple = argument;
    struct swap_host host = couple->hosts[0];
    const struct convoy_stage stage = engine_stage("staged", NULL, 0);
    convoy_transfer transfer = 0;
    atomic_store(&couple->waiter, (int)syscall(SYS_gettid));
    while (atomic_load(&couple->is_over) == 0) {
        EXPECT_OK(convoy_host_stage_start(host.engine, &stage, &transfer, &host.error), &host.error);
        EXPECT_OK(swap_host_end(&host, transfer, SWAP_HOST_NS), &host.error);
    }
    return NULL;
}

/* Whether a thread has slept without a break between two looks that are far apart. */
static bool is_asleep(int thread)
{
    char path[64];
    char line[512] = "";
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/wchan", thread);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    (void)fgets(line, sizeof line, file);
    (void)fclose(file);
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    file = fopen(path, "r");
    if (file != NULL) {
        (void)fgets(line, sizeof line, file);
        (void)fclose(file);
    }
    return atoi(line) == SYS_futex;
}

static bool is_waiting(int thread)
{
    uint32_t looks = 0;
    while (looks < 50 && is_asleep(thread)) {
        (void)usleep(200);
        looks++;
    }
    return looks == 50;
}

static void run_paused(const struct rank *rank, void *argument)
{
    static struct couple couple;
    pthread_t threads[2];
    convoy_operation operations[2] = {0, 0};
    (void)rank;
    couple_open(&couple, *(const uint16_t *)argument);
    couple_round(&couple);
    EXPECT_OK(swap_host_start(&couple.hosts[0], &operations[0]), &couple.hosts[0].error);
    EXPECT_EQUAL(pthread_create(&threads[0], NULL, swapping, &couple), 0); /* waits for that round */
    EXPECT_EQUAL(pthread_create(&threads[1], NULL, waiting, &couple), 0);
    AWAIT(atomic_load(&couple.waiter) != 0);
    AWAIT(is_waiting(atomic_load(&couple.waiter)));
    for (uint32_t i = 0; i < 5; i++) {
        in_child(child_all, &couple);
    }
    EXPECT_OK(swap_host_start(&couple.hosts[1], &operations[1]), &couple.hosts[1].error);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_OK(swap_host_wait(&couple.hosts[i], operations[i], SWAP_HOST_NS), &couple.hosts[i].error);
    }
    EXPECT_EQUAL(pthread_join(threads[0], NULL), 0);
    atomic_store(&couple.is_over, 1);
    EXPECT_EQUAL(pthread_join(threads[1], NULL), 0);
    couple_round(&couple);
    couple_close(&couple);
}

/* -- at random ----------------------------------------------------------------------------------------------------- */

static void *swapping_on(void *argument)
{
    struct couple *couple = argument;
    struct swap_host host = couple->hosts[0];
    for (uint32_t i = 1; atomic_load(&couple->is_over) == 0; i++) {
        swap_host_must_swap(&host, i % 2);
    }
    return NULL;
}

static void run_random(const struct rank *rank, void *argument)
{
    static struct couple couple;
    pthread_t threads[2];
    (void)rank;
    couple_open(&couple, *(const uint16_t *)argument);
    EXPECT_EQUAL(pthread_create(&threads[0], NULL, swapping_on, &couple), 0);
    EXPECT_EQUAL(pthread_create(&threads[1], NULL, waiting, &couple), 0);
    for (uint32_t i = 0; i < test_scaled(25, 3000); i++) {
        in_child(child_all, &couple);
        couple_round(&couple);
    }
    atomic_store(&couple.is_over, 1);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_EQUAL(pthread_join(threads[i], NULL), 0);
    }
    couple_close(&couple);
}

/* -- between two steps --------------------------------------------------------------------------------------------- */

struct stepping {
    struct moving moving;
    struct plugin_member *member;
};

static void child_steps(void *argument)
{
    struct stepping *stepping = argument;
    struct moving *moving = &stepping->moving;
    struct convoy_error *error = &moving->error;
    struct convoy_holdings holdings = {.struct_size = sizeof holdings};
    struct convoy_text_buffer buffer = {.struct_size = sizeof buffer};
    const struct convoy_exported_state state = {.struct_size = sizeof state, .data = moving->state, .bytes = moving->bytes};
    struct convoy_moved moved = {.struct_size = sizeof moved};
    convoy_context *contexts[2] = {moving->old_context, moving->new_context};
    const struct moving_build *builds[2] = {moving->from, moving->to};
    for (uint32_t i = 0; i < 2; i++) {
        const struct convoy_move_table *move = builds[i]->move;
        EXPECT_STATUS(move->holdings(contexts[i], &holdings, error), CONVOY_FORKED, error);
        EXPECT_STATUS(move->quiesce(contexts[i], 0, error), CONVOY_FORKED, error);
        EXPECT_STATUS(move->export_state(contexts[i], &moving_options, &buffer, error), CONVOY_FORKED, error);
        EXPECT_STATUS(move->import_state(contexts[i], &state, &moved, error), CONVOY_FORKED, error);
        EXPECT_STATUS(move->resume(contexts[i], error), CONVOY_FORKED, error);
        EXPECT_STATUS(move->retire(contexts[i], 0, error), CONVOY_FORKED, error);
    }
    struct convoy_group_info info = {.struct_size = sizeof info};
    EXPECT_STATUS(moving->from->plugin.core->group_info(stepping->member->group, &info, error), CONVOY_FORKED, error);
    for (uint32_t i = 0; i < moving->object_count; i++) {
        convoy_group *group = (convoy_group *)(uintptr_t)moving->objects[i].new_handle;
        EXPECT_STATUS(moving->to->plugin.core->group_info(group, &info, error), CONVOY_FORKED, error);
    }
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_OK(builds[i]->plugin.core->context_close(contexts[i], 0, error), error);
    }
    child_fresh();
}

static void run_steps(const struct rank *rank, void *argument)
{
    struct stepping stepping;
    const uint8_t state = 3;
    uint8_t out = 9;
    (void)rank;
    (void)argument;
    struct plugin_member *member = plugin_member_create(0, 1, "steps", 0);
    plugin_member_open(member);
    stepping.member = member;
    struct moving *moving = &stepping.moving;
    moving_begin(moving, member->context, &member->config, moving_first_build(), moving_second_build());
    in_child(child_steps, &stepping);
    EXPECT_OK(moving_quiesce(moving, MOVING_NS), &moving->error);
    in_child(child_steps, &stepping);
    moving_export(moving);
    in_child(child_steps, &stepping);
    EXPECT_OK(moving_import(moving), &moving->error);
    in_child(child_steps, &stepping);
    EXPECT_OK(moving->to->move->resume(moving->new_context, &moving->error), &moving->error);
    in_child(child_steps, &stepping);
    EXPECT_OK(moving->from->move->retire(moving->old_context, MOVING_NS, &moving->error), &moving->error);
    in_child(child_steps, &stepping);
    EXPECT_OK(moving->from->plugin.core->context_close(moving->old_context, MOVING_NS, &moving->error), &moving->error);
    member->group = moving_handle(moving, member->group);
    member->context = moving->new_context;
    member->plugin = moving->to->plugin;
    free(moving->state);
    plugin_member_reduce(member, &state, 1, &out);
    plugin_member_destroy(member);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

static void in_a_process(rank_fn run)
{
    if (IS_SANITIZED) {
        skip(); /* their allocator is not made for a fork beside a running thread */
    }
    uint16_t port = plugin_port();
    struct ranks *ranks = ranks_create(1, 0);
    ranks_start(ranks, run, &port, 60000);
    ranks_finish(ranks);
}

static void test_swap_fork_before_and_after_child_is_told_and_swaps_its_own(void **state)
{
    (void)state;
    in_a_process(run_stable);
}

static void test_swap_fork_between_any_two_steps_child_is_told(void **state)
{
    (void)state;
    in_a_process(run_steps);
}

static void test_swap_fork_while_a_call_waits_for_the_pause_child_closes_all_at_once(void **state)
{
    (void)state;
    in_a_process(run_paused);
}

static void test_swap_fork_at_random_moments_disturbs_nobody(void **state)
{
    (void)state;
    in_a_process(run_random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_fork_before_and_after_child_is_told_and_swaps_its_own),
        cmocka_unit_test(test_swap_fork_between_any_two_steps_child_is_told),
        cmocka_unit_test(test_swap_fork_while_a_call_waits_for_the_pause_child_closes_all_at_once),
        cmocka_unit_test(test_swap_fork_at_random_moments_disturbs_nobody),
    };
    return cmocka_run_group_tests_name("swap_fork", tests, NULL, NULL);
}
