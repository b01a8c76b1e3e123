/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of context_open, group_open, the first round and group_reopen fails once, in a process of its own:
 * NO_MEMORY, nothing is left behind, and the other member gets an error in time instead of waiting for ever. Over shared
 * memory and over UCX. Needs a build with fault hooks. */
#include "tests/abi/hygiene.h"

#include "tests/lib/expect.h"
#include "tests/lib/plugin.h"
#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OPEN_NS 300000000ull
#define ROUND_NS 2000000000ull
#define ALLOCATIONS_MAX 1000
#define CLEAN_IN_A_ROW 16 /* opens without failure: the n-th allocation lies behind the open. A few in a row also come
                             from a connection that is dropped for want of memory, and tried again. */

#ifdef CONVOY_FAULTS
/* Of the leak sanitizer, in programs that have it. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

struct attempt {
    const char *settings;
    uint32_t members;
    uint32_t victim;
    uint32_t allocation; /* that fails, from 1 */
    uint16_t port;
};

/* Shared among the ranks of one attempt. */
struct outcome {
    int32_t status[2];   /* of the open */
    int32_t reopened[2]; /* of the reopen */
};

static int32_t open_member(struct plugin_member *member)
{
    const struct convoy_core_table *core = member->plugin.core;
    int32_t status = core->context_open(&member->config, &member->context, &member->error);
    if (status == CONVOY_OK) {
        status = core->group_open(member->context, &member->options, &member->group, &member->error);
    }
    EXPECT((status == CONVOY_OK) == (member->group != NULL));
    if (status != CONVOY_OK) {
        EXPECT_EQUAL(member->error.status, status);
        EXPECT(member->error.text[0] != '\0');
    }
    return status;
}

/* Whoever has opened also finishes a round, or learns that the other has not. */
static void use_member(const struct rank *rank, struct plugin_member *member)
{
    const struct outcome *outcome = rank->shared;
    const struct convoy_poll_call call = {.struct_size = sizeof call};
    struct convoy_poll_result result = {.struct_size = sizeof result};
    int32_t status = member->plugin.poll->reduce(member->group, &call, ROUND_NS, &result, &member->error);
    int32_t other = rank->count == 2 ? __atomic_load_n(&outcome->status[1 - rank->index], __ATOMIC_ACQUIRE) : CONVOY_OK;
    EXPECT_STATUS(status, other == CONVOY_OK ? CONVOY_OK : CONVOY_PEER_LOST, &member->error);
}

/* Both have opened and had a round. What fails in here is for the victim alone to tell. */
static void reopen_member(const struct rank *rank, const struct attempt *attempt, struct plugin_member *member)
{
    struct outcome *outcome = rank->shared;
    struct convoy_reopen_result result = {.struct_size = sizeof result};
    int32_t status = member->plugin.core->group_reopen(member->group, ROUND_NS, &result, &member->error);
    __atomic_store_n(&outcome->reopened[rank->index], status, __ATOMIC_RELEASE);
    rank_barrier(rank);
    int32_t victim = __atomic_load_n(&outcome->reopened[attempt->victim], __ATOMIC_ACQUIRE);
    EXPECT(victim == CONVOY_OK || victim == CONVOY_NO_MEMORY);
    if (victim == CONVOY_OK) {
        EXPECT_OK(status, &member->error);
        use_member(rank, member);
    }
}

static void run(const struct rank *rank, void *argument)
{
    const struct attempt *attempt = argument;
    struct outcome *outcome = rank->shared;
    struct hygiene before;
    struct hygiene after;
    char number[16];
    if (rank->index == attempt->victim) {
        (void)snprintf(number, sizeof number, "%u", attempt->allocation);
        EXPECT_EQUAL(setenv("CONVOY_FAIL_ALLOCATION", number, 1), 0);
    }
    struct plugin_member *member = plugin_member_create(rank->index, attempt->members, "scarce", attempt->port);
    static const struct convoy_sync_schema schema = {
        .struct_size = sizeof schema, .builtin = "sglang-7", .builtin_length = 8};
    member->options.schema = &schema;
    member->options.open_timeout_ns = OPEN_NS;
    member->config.settings = attempt->settings;
    member->config.settings_length = strlen(attempt->settings);
    hygiene_take(&before);
    int32_t status = open_member(member);
    __atomic_store_n(&outcome->status[rank->index], status, __ATOMIC_RELEASE);
    if (rank->index == attempt->victim) {
        EXPECT(status == CONVOY_OK || status == CONVOY_NO_MEMORY);
    }
    rank_barrier(rank);
    if (status == CONVOY_OK) {
        use_member(rank, member);
    }
    if (outcome->status[0] == CONVOY_OK && outcome->status[1] == CONVOY_OK) {
        reopen_member(rank, attempt, member);
    }
    plugin_member_destroy(member);
    hygiene_take(&after);
    hygiene_compare(&before, &after, 0);
    if (__lsan_do_recoverable_leak_check != NULL) {
        EXPECT_EQUAL(__lsan_do_recoverable_leak_check(), 0);
    }
}

/* Number of allocations that were made to fail. */
static uint32_t sweep(const char *settings, uint32_t members, uint32_t victim)
{
    uint32_t clean = 0;
    uint32_t failed = 0;
    for (uint32_t n = 1; clean < CLEAN_IN_A_ROW; n++) {
        assert_true(n < ALLOCATIONS_MAX);
        struct attempt attempt = {
            .settings = settings, .members = members, .victim = victim, .allocation = n, .port = plugin_port()};
        struct ranks *ranks = ranks_create(members, sizeof(struct outcome));
        const struct outcome *outcome = ranks_shared(ranks);
        ranks_start(ranks, run, &attempt, 0);
        for (uint32_t i = 0; i < members; i++) {
            ranks_await_exit(ranks, i);
        }
        bool is_clean = outcome->status[victim] == CONVOY_OK && outcome->reopened[victim] == CONVOY_OK;
        ranks_finish(ranks);
        clean = is_clean ? clean + 1 : 0;
        failed += is_clean ? 0 : 1;
    }
    return failed;
}
#endif

static void test_open_allocation_each_failure_of_one_member_is_no_memory(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    assert_true(sweep("{}", 1, 0) > 10);
#else
    print_message("SKIPPED: this build has no fault hooks (VARIANT=debug has)\n");
    skip();
#endif
}

static void test_open_allocation_each_failure_of_the_listener_reaches_the_peer(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    assert_true(sweep("{}", 2, 0) > 20);
#else
    print_message("SKIPPED: this build has no fault hooks (VARIANT=debug has)\n");
    skip();
#endif
}

static void test_open_allocation_each_failure_of_a_client_reaches_the_listener(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    assert_true(sweep("{}", 2, 1) > 20);
#else
    print_message("SKIPPED: this build has no fault hooks (VARIANT=debug has)\n");
    skip();
#endif
}

static void test_open_allocation_each_failure_of_the_listener_over_ucx_reaches_the_peer(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    assert_true(sweep("{\"net\":\"ucx\"}", 2, 0) > 20);
#else
    print_message("SKIPPED: this build has no fault hooks (VARIANT=debug has)\n");
    skip();
#endif
}

static void test_open_allocation_each_failure_of_a_client_over_ucx_reaches_the_listener(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    assert_true(sweep("{\"net\":\"ucx\"}", 2, 1) > 20);
#else
    print_message("SKIPPED: this build has no fault hooks (VARIANT=debug has)\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_allocation_each_failure_of_one_member_is_no_memory),
        cmocka_unit_test(test_open_allocation_each_failure_of_the_listener_reaches_the_peer),
        cmocka_unit_test(test_open_allocation_each_failure_of_a_client_reaches_the_listener),
        cmocka_unit_test(test_open_allocation_each_failure_of_the_listener_over_ucx_reaches_the_peer),
        cmocka_unit_test(test_open_allocation_each_failure_of_a_client_over_ucx_reaches_the_listener),
    };
    return cmocka_run_group_tests_name("open_allocation", tests, NULL, NULL);
}
