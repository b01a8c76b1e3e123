/* SPDX-License-Identifier: Apache-2.0 */
/* openucx/ucx issue 10748, PR 7493: after fork the child hangs or faults when it uses the library, or even when it exits.
 * Here every inherited handle says FORKED, close does nothing, a fresh context works, and the parent notices nothing. */
#include "tests/abi/pair.h"

#include "tests/lib/expect.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_NS 5000000000ull
#define FORKS 16
#define OVER_UCX "{\"net\":\"ucx\"}"
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif
#define CHILD_SECONDS 20 /* a child that hangs ends by SIGALRM */

/* Read by the leak checker. While a link is up, UCX (1.13) holds two objects, 112 bytes, from memory that it has mapped
 * itself and that is not searched: children that exit with the inherited link would fail for that. After close nothing
 * is left (test_hygiene looks, without this). */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:ucs_calloc\n";
}

typedef void (*child_fn)(struct pair *pair);

/* In the child: no expectation may end it as a test of the parent. */
static void child_must(bool is_good, const char *what)
{
    if (!is_good) {
        (void)fprintf(stderr, "child: %s\n", what);
        _exit(1);
    }
}

/* Runs `run` in a child and expects that it ends with status 0. */
static void in_child(struct pair *pair, child_fn run)
{
    (void)fflush(NULL);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        (void)alarm(CHILD_SECONDS);
        run(pair);
        _exit(0);
    }
    int status = 0;
    EXPECT_EQUAL(waitpid(child, &status, 0), child);
    if (status != 0) {
        fail_msg("the child ended with wait status 0x%x", (unsigned)status);
    }
}

static void child_call_groups(struct pair *pair)
{
    char text[128];
    for (size_t i = 0; i < calls_count; i++) {
        const struct call *call = &calls_list[i];
        int32_t wanted = call->kind == CALL_CLOSE ? CONVOY_OK : CONVOY_FORKED;
        int32_t status = call->run(&pair->calls);
        (void)snprintf(text, sizeof text, "%s gives %d", call->name, status);
        child_must(status == wanted, text);
        child_must(status == CONVOY_OK || pair->calls.error.status == CONVOY_FORKED, "error has no status");
    }
}

static void child_call_context(struct pair *pair)
{
    const struct convoy_core_table *core = pair->own->plugin.core;
    struct convoy_error *error = &pair->own->error;
    convoy_group *group = NULL;
    for (uint32_t topic = CONVOY_TOPIC_DUMP; topic <= CONVOY_TOPIC_NET; topic++) {
        child_must(core->context_describe(pair->own->context, topic, &pair->calls.text, error) == CONVOY_FORKED,
                   "context_describe");
    }
    child_must(core->group_open(pair->own->context, &pair->own->options, &group, error) == CONVOY_FORKED, "group_open");
    child_must(core->group_open_start(pair->own->context, &pair->own->options, &group, error) == CONVOY_FORKED,
               "group_open_start");
    child_must(group == NULL, "group_out was written");
    child_must(core->context_close(pair->own->context, LONG_NS, error) == CONVOY_OK, "context_close");
    child_must(core->context_close(pair->peer->context, LONG_NS, error) == CONVOY_OK, "context_close of the peer");
    child_must(core->context_close(NULL, LONG_NS, error) == CONVOY_OK, "context_close of NULL");
}

/* Calls that take no handle work as ever. */
static void child_call_pure(struct pair *pair)
{
    const uint64_t ids[2] = {7, 9};
    const int64_t tokens[2] = {3, 5};
    uint8_t states[2] = {0};
    int64_t starts[2] = {0};
    const struct convoy_poll_consensus consensus = {.struct_size = sizeof consensus,
                                                    .success_state = CONVOY_STATE_SUCCESS,
                                                    .ids = ids,
                                                    .id_count = 2,
                                                    .good = ids,
                                                    .good_count = 1};
    const struct convoy_sync_padding padding = {
        .struct_size = sizeof padding, .layout = CONVOY_LAYOUT_SUM, .tokens = tokens, .token_count = 2};
    struct convoy_sync_padded padded = {.struct_size = sizeof padded};
    child_must(pair->own->plugin.poll->consensus(&consensus, states, NULL) == CONVOY_OK, "consensus");
    child_must(states[0] == CONVOY_STATE_SUCCESS && states[1] == CONVOY_CONSENSUS_NONE, "states of consensus");
    child_must(pair->own->plugin.sync->starts(&padding, 0, starts, NULL) == CONVOY_OK && starts[1] == 3, "starts");
    child_must(pair->own->plugin.sync->padded_size(&padding, &padded, NULL) == CONVOY_OK && padded.figure == 8,
               "padded_size");
}

/* A context and a group of one member of the child's own, by a query of its own. */
static void child_open_fresh(struct pair *pair)
{
    (void)pair;
    struct plugin_member *member = plugin_member_create(0, 1, "fresh", 0);
    const struct convoy_core_table *core = member->plugin.core;
    uint8_t states[2] = {3, 4};
    child_must(core->context_open(&member->config, &member->context, &member->error) == CONVOY_OK, "context_open");
    child_must(core->group_open(member->context, &member->options, &member->group, &member->error) == CONVOY_OK,
               "group_open of one member");
    plugin_member_reduce(member, states, 2, states);
    child_must(core->group_close(member->group, LONG_NS, &member->error) == CONVOY_OK, "group_close");
    child_must(core->context_close(member->context, LONG_NS, &member->error) == CONVOY_OK, "context_close");
}

/* What needs no memory: the sanitizer's allocator is not made for a fork beside a running thread. */
static void child_call_handles(struct pair *pair)
{
    child_call_groups(pair);
    child_call_context(pair);
}

static void child_all(struct pair *pair)
{
    child_call_groups(pair);
    child_call_context(pair);
    child_call_pure(pair);
    child_open_fresh(pair);
}

/* A group of two members with its rendezvous, both in the child. */
static void child_open_pair(struct pair *pair)
{
    (void)pair;
    struct pair *fresh = pair_create();
    pair_open(fresh);
    pair_round(fresh);
    pair_destroy(fresh);
}

static void child_exec(struct pair *pair)
{
    (void)pair;
    (void)execl("/bin/true", "true", (char *)NULL);
    _exit(127);
}

static void child_exit(struct pair *pair)
{
    (void)pair;
    exit(0);
}

static void child_close_and_exit(struct pair *pair)
{
    (void)pair->own->plugin.core->context_close(pair->own->context, 0, NULL);
    exit(0);
}

/* The child's child is a stranger as well. */
static void child_forks_again(struct pair *pair)
{
    in_child(pair, child_all);
}

static child_fn const children[] = {child_all,  child_open_pair, child_exec,
                                    child_exit, child_close_and_exit, child_forks_again};

static void wait_ok(struct calls *calls, enum call_family family)
{
    int32_t status = family == CALL_SYNC
                         ? calls->plugin.sync->gather_wait(calls->group, calls->operation, LONG_NS,
                                                           &calls->sync_result, &calls->error)
                         : calls->plugin.poll->reduce_wait(calls->group, calls->operation, LONG_NS,
                                                           &calls->poll_result, &calls->error);
    EXPECT_OK(status, &calls->error);
}

/* Forks while the round is open: before the peer has contributed, and after, and with a result unread. */
static void fork_in_round(struct pair *pair, enum call_family family, child_fn run)
{
    calls_start(&pair->calls, family);
    in_child(pair, run);
    pair->peer_calls.state = CONVOY_STATE_WAITING_FOR_INPUT;
    calls_start(&pair->peer_calls, family);
    in_child(pair, run);
    wait_ok(&pair->peer_calls, family);
    in_child(pair, run);
    wait_ok(&pair->calls, family);
    if (family == CALL_POLL) {
        EXPECT_EQUAL(pair->calls.state_out, CONVOY_STATE_WAITING_FOR_INPUT);
    }
}

static void fork_in_rounds(const char *settings)
{
    struct pair *pair = pair_create_with(settings);
    pair_open(pair);
    for (size_t i = 0; i < sizeof children / sizeof children[0]; i++) {
        fork_in_round(pair, CALL_POLL, children[i]);
        fork_in_round(pair, CALL_SYNC, children[i]);
    }
    EXPECT_OK(pair->calls.plugin.core->group_info(pair->calls.group, &pair->calls.info, &pair->calls.error),
              &pair->calls.error);
    EXPECT_EQUAL(pair->calls.info.round, 2 * sizeof children / sizeof children[0]);
    pair_destroy(pair);
}

static void test_fork_in_open_rounds_child_is_told_and_parent_undisturbed(void **state)
{
    (void)state;
    fork_in_rounds(NULL);
}

/* With messages of UCX under way and the progress thread of either member running. */
static void test_fork_in_open_rounds_over_ucx_child_is_told_and_parent_undisturbed(void **state)
{
    (void)state;
    fork_in_rounds(OVER_UCX);
}

/* A child that lives on holds descriptors of the parent; the parent closes and its peer still learns of it. */
static void test_fork_child_that_lives_on_does_not_hide_the_close_of_its_parent(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    pair_open(pair);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(CHILD_SECONDS);
        (void)pause();
        _exit(0);
    }
    EXPECT_OK(pair->calls.plugin.core->group_close(pair->calls.group, LONG_NS, NULL), NULL);
    calls_start(&pair->peer_calls, CALL_POLL);
    pair->peer_calls.timeout_ns = LONG_NS;
    EXPECT_STATUS(pair->peer_calls.plugin.poll->reduce_wait(pair->peer_calls.group, pair->peer_calls.operation, LONG_NS,
                                                            &pair->peer_calls.poll_result, &pair->peer_calls.error),
                  CONVOY_PEER_LOST, &pair->peer_calls.error);
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    pair_destroy(pair);
}

/* While the own group opens, its thread runs; the child has none of it. */
static void test_fork_while_opening_child_is_told_and_the_open_goes_on(void **state)
{
    (void)state;
    for (int i = 0; i < FORKS; i++) {
        struct pair *pair = pair_create();
        pair_start_own(pair);
        in_child(pair, IS_SANITIZED ? child_call_handles : child_all);
        convoy_group *own = pair->own->group;
        EXPECT_OK(pair->peer->plugin.core->group_open(pair->peer->context, &pair->peer->options, &pair->peer->group,
                                                      &pair->peer->error),
                  &pair->peer->error);
        EXPECT_OK(pair->own->plugin.core->group_open_wait(own, LONG_NS, &pair->own->error), &pair->own->error);
        pair_destroy(pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork_in_open_rounds_child_is_told_and_parent_undisturbed),
        cmocka_unit_test(test_fork_in_open_rounds_over_ucx_child_is_told_and_parent_undisturbed),
        cmocka_unit_test(test_fork_child_that_lives_on_does_not_hide_the_close_of_its_parent),
        cmocka_unit_test(test_fork_while_opening_child_is_told_and_the_open_goes_on),
    };
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
