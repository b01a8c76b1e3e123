/* SPDX-License-Identifier: Apache-2.0 */
/* Groups, engines and contexts that are closed while another thread waits in them: the wait ends with CLOSED (transfers:
 * CANCELED) at once, and the close is OK. And slices of the waits that are not a round's. */
#include "tests/integration/two_engines.h"
#include "tests/lib/await.h"
#include "tests/lib/crowd.h"
#include "tests/lib/exchange.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define STATES 8u
#define LONG_NS 60000000000ull /* of the waits: no test lasts as long */
#define CLOSE_NS 10000000000ull
#define SLICE_NS (20 * CONVOY_NS_PER_MS)
#define SLICES 40u
#define MARK_CLOSED 1u

static uint64_t cpu_ns_of_thread(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * CONVOY_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* A thread that waits, and what it got. */
struct waiter {
    int32_t (*wait)(struct waiter *waiter);
    struct plugin_member *member;
    struct plugin_member *second; /* of a call on two groups */
    struct two *two;
    convoy_transfer transfer;
    convoy_operation operation;
    struct exchange exchange;
    struct convoy_error error;
    pthread_t thread;
    uint32_t task; /* its number, once it runs */
    int32_t status;
};

static void *waiter_main(void *argument)
{
    struct waiter *waiter = argument;
    __atomic_store_n(&waiter->task, (uint32_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    waiter->status = waiter->wait(waiter);
    return NULL;
}

/* Whether the thread sleeps, which it does nowhere but in its wait. */
static bool waiter_sleeps(const struct waiter *waiter)
{
    char path[64];
    char state = 0;
    uint32_t task = __atomic_load_n(&waiter->task, __ATOMIC_ACQUIRE);
    (void)snprintf(path, sizeof path, "/proc/self/task/%u/stat", task);
    FILE *file = task != 0 ? fopen(path, "re") : NULL;
    if (file != NULL) {
        (void)!fscanf(file, "%*u (%*[^)]) %c", &state);
        (void)fclose(file);
    }
    return state == 'S';
}

/* Returns when it is inside its wait: a context may not be closed before that. */
static void waiter_start(struct waiter *waiter)
{
    waiter->error = (struct convoy_error){.struct_size = sizeof waiter->error};
    waiter->task = 0;
    EXPECT_EQUAL(pthread_create(&waiter->thread, NULL, waiter_main, waiter), 0);
    AWAIT(waiter_sleeps(waiter));
}

static void waiter_expect(struct waiter *waiter, int32_t wanted)
{
    EXPECT_EQUAL(pthread_join(waiter->thread, NULL), 0);
    EXPECT_STATUS(waiter->status, wanted, &waiter->error);
}

/* -- rounds -- */

static int32_t wait_reduce(struct waiter *waiter)
{
    const struct plugin_member *member = waiter->member;
    return member->plugin.poll->reduce(member->group, &waiter->exchange.call, LONG_NS, &waiter->exchange.result,
                                       &waiter->error);
}

static int32_t wait_levels(struct waiter *waiter)
{
    const struct plugin_member *member = waiter->member;
    return member->plugin.poll->reduce2_wait(member->group, waiter->operation, LONG_NS, &waiter->exchange.result,
                                             &waiter->error);
}

static void run_round(const struct rank *rank, void *crowd, bool is_context)
{
    static struct waiter waiter = {.wait = wait_reduce};
    exchange_init(&waiter.exchange, STATES, CONVOY_STATE_TRANSFERRING);
    struct plugin_member *member = waiter.member = crowd_open(rank, crowd, "closed");
    const struct convoy_core_table *core = member->plugin.core;
    if (rank->index == 0) {
        waiter_start(&waiter);
        if (is_context) {
            EXPECT_OK(core->context_close(member->context, CLOSE_NS, &member->error), &member->error);
            member->context = NULL;
            member->group = NULL;
        } else {
            EXPECT_OK(core->group_close(member->group, CLOSE_NS, &member->error), &member->error);
        }
        waiter_expect(&waiter, CONVOY_CLOSED);
    }
    crowd_close(rank, member);
}

static void run_group(const struct rank *rank, void *crowd)
{
    run_round(rank, crowd, false);
}

static void run_context(const struct rank *rank, void *crowd)
{
    run_round(rank, crowd, true);
}

static void test_closed_group_ends_the_wait_for_a_round(void **state)
{
    (void)state;
    crowd_run(2, run_group, 0);
}

static void test_closed_context_ends_the_wait_for_a_round(void **state)
{
    (void)state;
    crowd_run(2, run_context, 0);
}

/* Rank 2 does not come, so rank 0 waits at level 1. Closed is the group of level 2. */
static void run_second(const struct rank *rank, void *crowd)
{
    static struct waiter waiter = {.wait = wait_levels};
    struct crowd_levels levels;
    exchange_init(&waiter.exchange, STATES, CONVOY_STATE_TRANSFERRING);
    crowd_levels_open(rank, crowd, &levels);
    struct plugin_member *first = waiter.member = levels.first;
    struct plugin_member *second = levels.second;
    if (rank->index == 0) {
        EXPECT_OK(first->plugin.poll->reduce2_start(first->group, second->group, &waiter.exchange.call, &waiter.operation,
                                                    &first->error),
                  &first->error);
        waiter_start(&waiter);
        EXPECT_OK(second->plugin.core->group_close(second->group, CLOSE_NS, &second->error), &second->error);
        waiter_expect(&waiter, CONVOY_CLOSED);
        EXPECT_TEXT(waiter.error.text, "attention-cp");
    }
    crowd_levels_close(rank, &levels);
}

static void test_closed_second_group_ends_the_wait_at_level_one(void **state)
{
    (void)state;
    crowd_run(4, run_second, 0);
}

/* The same with a cancel: whose words come out, and the call goes on. */
static void run_second_canceled(const struct rank *rank, void *crowd)
{
    static struct waiter waiter = {.wait = wait_levels};
    struct crowd_levels levels;
    exchange_init(&waiter.exchange, STATES, CONVOY_STATE_TRANSFERRING);
    crowd_levels_open(rank, crowd, &levels);
    struct plugin_member *first = waiter.member = levels.first;
    struct plugin_member *second = levels.second;
    if (rank->index == 2) {
        rank_await_mark(rank, 0, MARK_CLOSED);
    }
    EXPECT_OK(first->plugin.poll->reduce2_start(first->group, second->group, &waiter.exchange.call, &waiter.operation,
                                                &first->error),
              &first->error);
    if (rank->index == 0) {
        waiter_start(&waiter);
        EXPECT_OK(second->plugin.core->group_cancel(second->group, "over there", 10, &second->error), &second->error);
        waiter_expect(&waiter, CONVOY_CANCELED);
        EXPECT_TEXT(waiter.error.text, "over there");
        rank_mark(rank, MARK_CLOSED);
    }
    EXPECT_OK(wait_levels(&waiter), &waiter.error);
    crowd_levels_close(rank, &levels);
}

static void test_canceled_second_group_ends_the_wait_at_level_one(void **state)
{
    (void)state;
    crowd_run(4, run_second_canceled, 0);
}

/* -- opening -- */

static int32_t wait_open(struct waiter *waiter)
{
    const struct plugin_member *member = waiter->member;
    return member->plugin.core->group_open_wait(member->group, LONG_NS, &waiter->error);
}

/* A member of a group whose other one never comes; slices of the wait for it say how long it is opening. */
static struct plugin_member *open_alone(void)
{
    struct plugin_member *member = plugin_member_create(0, 2, "alone", plugin_port());
    const struct convoy_core_table *core = member->plugin.core;
    member->options.open_timeout_ns = LONG_NS;
    EXPECT_OK(core->context_open(&member->config, &member->context, &member->error), &member->error);
    uint64_t started_ns = convoy_now_ns();
    EXPECT_OK(core->group_open_start(member->context, &member->options, &member->group, &member->error), &member->error);
    for (uint32_t i = 1; i <= 10; i++) {
        EXPECT_STATUS(core->group_open_wait(member->group, SLICE_NS, &member->error), CONVOY_TIMED_OUT, &member->error);
        const char *at = strstr(member->error.text, "after ");
        uint64_t said_ns = at != NULL ? strtoull(at + strlen("after "), NULL, 10) * CONVOY_NS_PER_MS : 0;
        EXPECT(said_ns + CONVOY_NS_PER_MS >= i * SLICE_NS);
        EXPECT(said_ns <= convoy_now_ns() - started_ns);
    }
    return member;
}

static void test_closed_group_ends_the_wait_for_its_opening(void **state)
{
    (void)state;
    struct waiter waiter = {.wait = wait_open, .member = open_alone()};
    struct plugin_member *member = waiter.member;
    waiter_start(&waiter);
    EXPECT_OK(member->plugin.core->group_close(member->group, CLOSE_NS, &member->error), &member->error);
    waiter_expect(&waiter, CONVOY_CLOSED);
    plugin_member_destroy(member);
}

static void test_closed_context_ends_the_wait_for_an_opening(void **state)
{
    (void)state;
    struct waiter waiter = {.wait = wait_open, .member = open_alone()};
    struct plugin_member *member = waiter.member;
    waiter_start(&waiter);
    EXPECT_OK(member->plugin.core->context_close(member->context, CLOSE_NS, &member->error), &member->error);
    member->context = NULL;
    member->group = NULL;
    waiter_expect(&waiter, CONVOY_CLOSED);
    plugin_member_destroy(member);
}

/* -- transfers -- */

static int32_t wait_transfer(struct waiter *waiter)
{
    const struct engine *engine = waiter->two->receiver;
    return engine->table->transfer_wait(engine->handle, waiter->transfer, LONG_NS, NULL, &waiter->error);
}

/* A load that nobody sends to; the engine yields as long as a slice, so who would begin anew in each never sleeps. */
static void start_waiting(struct waiter *waiter)
{
    engine_settings = "{\"yield_us\":20000}";
    waiter->two = two_open();
    engine_settings = NULL;
    struct engine *engine = waiter->two->receiver;
    const struct convoy_load load = {.struct_size = sizeof load, .request = "never", .request_length = 5,
                                     .mode = CONVOY_LOAD_COPY, .timeout_ns = LONG_NS};
    EXPECT_OK(engine->table->accept_start(engine->handle, &load, &waiter->transfer, &engine->error), &engine->error);
}

static void test_slices_of_a_transfer_sleep(void **state)
{
    (void)state;
    struct waiter waiter = {.wait = wait_transfer};
    start_waiting(&waiter);
    struct engine *engine = waiter.two->receiver;
    uint64_t cpu_ns = cpu_ns_of_thread();
    for (uint32_t i = 0; i < SLICES; i++) {
        EXPECT_STATUS(engine->table->transfer_wait(engine->handle, waiter.transfer, SLICE_NS, NULL, &engine->error),
                      CONVOY_IN_PROGRESS, &engine->error);
    }
    EXPECT(cpu_ns_of_thread() - cpu_ns < SLICES * SLICE_NS / 2);
    EXPECT_OK(engine->table->abort(engine->handle, waiter.transfer, NULL, 0, &engine->error), &engine->error);
    engine_wait(engine, waiter.transfer, CONVOY_CANCELED, NULL);
    engine_release(engine, waiter.transfer);
    two_close(waiter.two);
}

static void test_closed_engine_ends_the_wait_for_a_transfer(void **state)
{
    (void)state;
    struct waiter waiter = {.wait = wait_transfer};
    start_waiting(&waiter);
    struct engine *engine = waiter.two->receiver;
    waiter_start(&waiter);
    EXPECT_OK(engine->table->engine_close(engine->handle, CLOSE_NS, &engine->error), &engine->error);
    waiter_expect(&waiter, CONVOY_CANCELED);
    EXPECT_STATUS(wait_transfer(&waiter), CONVOY_CLOSED, &waiter.error);
    engine_destroy(engine);
    engine_destroy(waiter.two->sender);
    free(waiter.two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_group_ends_the_wait_for_a_round),
        cmocka_unit_test(test_closed_context_ends_the_wait_for_a_round),
        cmocka_unit_test(test_closed_second_group_ends_the_wait_at_level_one),
        cmocka_unit_test(test_canceled_second_group_ends_the_wait_at_level_one),
        cmocka_unit_test(test_closed_group_ends_the_wait_for_its_opening),
        cmocka_unit_test(test_closed_context_ends_the_wait_for_an_opening),
        cmocka_unit_test(test_slices_of_a_transfer_sleep),
        cmocka_unit_test(test_closed_engine_ends_the_wait_for_a_transfer),
    };
    return cmocka_run_group_tests_name("waits_closed", tests, NULL, NULL);
}
