/* SPDX-License-Identifier: Apache-2.0 */
/* What only a build with CONVOY_DEBUG can tell, such as the sanitizer variants: uses that the thread and state tags of the
 * headers forbid. In other builds they are undefined, so there the tests are skipped. */
#include "tests/abi/pair.h"

#include "tests/lib/expect.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef CONVOY_DEBUG
#define IS_DEBUG 1
#else
#define IS_DEBUG 0
#endif

static void skip_unless_debug(void)
{
    if (!IS_DEBUG) {
        print_message("skipped: this build does not check tags; run with VARIANT=debug or asan\n");
        skip();
    }
}

/* Every call on handles of a closed context says so. */
static void test_debug_tags_closed_context_answers_closed(void **state)
{
    (void)state;
    skip_unless_debug();
    struct pair *pair = pair_create();
    pair_open(pair);
    pair_round(pair);
    struct plugin_member *member = pair->own;
    struct plugin plugin = member->plugin;
    convoy_context *context = member->context;
    convoy_group *group = member->group;
    EXPECT_OK(plugin.core->context_close(context, 0, &member->error), &member->error);
    struct calls *calls = calloc(1, sizeof *calls);
    assert_non_null(calls);
    calls_init(calls, &plugin, group, NULL);
    convoy_group *other = NULL;
    EXPECT_STATUS(plugin.core->context_close(context, 0, &member->error), CONVOY_CLOSED, &member->error);
    EXPECT_STATUS(plugin.core->group_open(context, &member->options, &other, &member->error), CONVOY_CLOSED,
                  &member->error);
    EXPECT_STATUS(plugin.poll->reduce(group, &calls->poll, 0, &calls->poll_result, &member->error), CONVOY_CLOSED,
                  &member->error);
    EXPECT_OK(plugin.core->group_info(group, &calls->info, &member->error), &member->error);
    EXPECT_EQUAL(calls->info.state, CONVOY_GROUP_CLOSED);
    free(calls);
    member->context = NULL;
    member->group = NULL;
    pair->own_alone = NULL;
    pair_destroy(pair);
}

struct inside {
    struct pair *pair;
    struct calls *calls;
    int32_t status;
    char text[256];
};

/* A read callback that calls on its own group. */
static int32_t read_reenters(void *user, size_t list_index, size_t entry_index)
{
    struct inside *inside = user;
    (void)list_index;
    (void)entry_index;
    struct convoy_error error = {.struct_size = sizeof error};
    const struct plugin *plugin = &inside->pair->own->plugin;
    inside->status = plugin->poll->reduce(inside->pair->own->group, &inside->calls->poll, 0,
                                          &inside->calls->poll_result, &error);
    memcpy(inside->text, error.text, sizeof inside->text);
    return CONVOY_STATE_SUCCESS;
}

static void test_debug_tags_call_from_a_callback_is_told_apart(void **state)
{
    (void)state;
    skip_unless_debug();
    struct pair *pair = pair_create();
    struct inside inside = {.pair = pair, .calls = calloc(1, sizeof *inside.calls)};
    assert_non_null(inside.calls);
    pair_open(pair);
    calls_init(inside.calls, &pair->own->plugin, pair->own->group, NULL);
    pair->calls.list.read = read_reenters;
    pair->calls.list.user = &inside;
    calls_start(&pair->calls, CALL_POLL);
    EXPECT_EQUAL(inside.status, CONVOY_BUSY);
    EXPECT_TEXT(inside.text, "from a callback");
    calls_start(&pair->peer_calls, CALL_POLL);
    free(inside.calls);
    pair_destroy(pair);
}

struct opener {
    struct pair *pair;
    pthread_t thread;
    int32_t status;
    _Atomic bool is_over;
};

static void *opener_main(void *user)
{
    struct opener *opener = user;
    struct convoy_error error = {.struct_size = sizeof error};
    opener->status = opener->pair->own->plugin.core->group_open_wait(opener->pair->own->group, 0, &error);
    atomic_store(&opener->is_over, true);
    return NULL;
}

/* The open waits for its peer in one thread, another one tests it all the time: one of them is one too many. */
static void test_debug_tags_two_threads_in_calls_of_one_are_told(void **state)
{
    (void)state;
    skip_unless_debug();
    struct pair *pair = pair_create();
    struct opener opener = {.pair = pair};
    struct convoy_error error = {.struct_size = sizeof error};
    pair_start_own(pair);
    assert_int_equal(pthread_create(&opener.thread, NULL, opener_main, &opener), 0);
    int32_t status = CONVOY_IN_PROGRESS;
    while (status == CONVOY_IN_PROGRESS && !atomic_load(&opener.is_over)) {
        status = pair->own->plugin.core->group_open_test(pair->own->group, &error);
    }
    EXPECT(status == CONVOY_BUSY || (status == CONVOY_IN_PROGRESS && opener.status == CONVOY_BUSY));
    EXPECT_OK(pair->own->plugin.core->group_cancel(pair->own->group, "enough", 6, &error), &error);
    assert_int_equal(pthread_join(opener.thread, NULL), 0);
    EXPECT(opener.status != CONVOY_OK);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_debug_tags_closed_context_answers_closed),
        cmocka_unit_test(test_debug_tags_call_from_a_callback_is_told_apart),
        cmocka_unit_test(test_debug_tags_two_threads_in_calls_of_one_are_told),
    };
    return cmocka_run_group_tests_name("debug_tags", tests, NULL, NULL);
}
