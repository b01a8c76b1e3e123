/* SPDX-License-Identifier: Apache-2.0 */
/* The forwarding functions: each must reach the slot of its own name, with the inner object, and what a plugin lacks
 * must be an answer and not a jump to NULL. */
#include "load/loader.h"

#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include "plugin_files.h"

#include <cmocka.h>

#define SLOTS(table) ((sizeof(struct table) - sizeof(struct convoy_table_header)) / sizeof(void (*)(void)))

/* What a slot that takes an inner object first was called with. */
static void *seen_inner;

/* Answers its own number. Slots differ in type; this reads only the first argument, which all of them pass alike. */
#define PROBE(n)                                                                                                       \
    static int32_t probe_##n(void *inner)                                                                              \
    {                                                                                                                  \
        seen_inner = inner;                                                                                            \
        return (n);                                                                                                    \
    }
#define TEN(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7) X(n##8) X(n##9)
#define ROW(n) probe_##n,

TEN(PROBE, 10)
TEN(PROBE, 11)
TEN(PROBE, 20)
TEN(PROBE, 30)

typedef int32_t (*probe_fn)(void *inner);

static const probe_fn core_probes[] = {TEN(ROW, 10) TEN(ROW, 11)};
static const probe_fn poll_probes[] = {TEN(ROW, 20)};
static const probe_fn sync_probes[] = {TEN(ROW, 30)};

static struct convoy_loader loader;
static struct convoy_build build;
static struct convoy_host_context context;
static struct convoy_host_group group;
static char inner_context;
static char inner_group;

static int probes_setup(void **state)
{
    (void)state;
    convoy_host_tables_init(&build.tables);
    memcpy((char *)&build.tables.core + 8, core_probes, SLOTS(convoy_core_table) * sizeof(probe_fn));
    memcpy((char *)&build.tables.poll + 8, poll_probes, SLOTS(convoy_poll_table) * sizeof(probe_fn));
    memcpy((char *)&build.tables.sync + 8, sync_probes, SLOTS(convoy_sync_table) * sizeof(probe_fn));
    atomic_store(&loader.current, &build);
    if (convoy_gate_init(&loader.gate, NULL) != CONVOY_OK) {
        return -1;
    }
    context.handle.loader = &loader;
    group.handle.loader = &loader;
    convoy_handle_bind_first(&context.handle, &build.tables, &inner_context);
    convoy_handle_bind_first(&group.handle, &build.tables, &inner_group);
    return 0;
}

#define EXPECT_GROUP_SLOT(number, call)                                                                                \
    do {                                                                                                               \
        seen_inner = NULL;                                                                                             \
        assert_int_equal((call), (number));                                                                            \
        assert_ptr_equal(seen_inner, &inner_group);                                                                    \
    } while (0)

static void test_host_core_functions_reach_their_slots(void **state)
{
    (void)state;
    convoy_host_context *context_out = NULL;
    convoy_host_group *group_out = NULL;
    assert_int_equal(convoy_host_context_open(&loader, NULL, &context_out, NULL), 100);
    assert_int_equal(convoy_host_context_close(&context, 0, NULL), 101);
    assert_ptr_equal(seen_inner, &inner_context);
    assert_int_equal(convoy_host_context_describe(&context, 0, NULL, NULL), 102);
    assert_int_equal(convoy_host_group_open(&context, NULL, &group_out, NULL), 103);
    assert_int_equal(convoy_host_group_open_start(&context, NULL, &group_out, NULL), 104);
    assert_ptr_equal(seen_inner, &inner_context);
    assert_null(context_out); /* the slots did not say OK */
    assert_null(group_out);
    EXPECT_GROUP_SLOT(105, convoy_host_group_open_test(&group, NULL));
    EXPECT_GROUP_SLOT(106, convoy_host_group_open_wait(&group, 0, NULL));
    EXPECT_GROUP_SLOT(107, convoy_host_group_close(&group, 0, NULL));
    EXPECT_GROUP_SLOT(108, convoy_host_group_cancel(&group, NULL, 0, NULL));
    EXPECT_GROUP_SLOT(109, convoy_host_group_reopen(&group, 0, NULL, NULL));
    EXPECT_GROUP_SLOT(110, convoy_host_operation_abandon(&group, 0, NULL));
    EXPECT_GROUP_SLOT(111, convoy_host_operation_report(&group, NULL, NULL));
    EXPECT_GROUP_SLOT(112, convoy_host_group_info(&group, NULL, NULL));
    EXPECT_GROUP_SLOT(113, convoy_host_group_describe(&group, 0, NULL, NULL));
    assert_int_equal(SLOTS(convoy_core_table), 14);
}

static void test_host_poll_functions_reach_their_slots(void **state)
{
    (void)state;
    EXPECT_GROUP_SLOT(200, convoy_host_reduce_start(&group, NULL, NULL, NULL));
    EXPECT_GROUP_SLOT(201, convoy_host_reduce_test(&group, 0, NULL, NULL));
    EXPECT_GROUP_SLOT(202, convoy_host_reduce_wait(&group, 0, 0, NULL, NULL));
    EXPECT_GROUP_SLOT(203, convoy_host_reduce(&group, NULL, 0, NULL, NULL));
    EXPECT_GROUP_SLOT(204, convoy_host_reduce2_start(&group, &group, NULL, NULL, NULL));
    EXPECT_GROUP_SLOT(205, convoy_host_reduce2_test(&group, 0, NULL, NULL));
    EXPECT_GROUP_SLOT(206, convoy_host_reduce2_wait(&group, 0, 0, NULL, NULL));
    EXPECT_GROUP_SLOT(207, convoy_host_reduce2_abandon(&group, 0, NULL));
    assert_int_equal(convoy_host_consensus(&loader, NULL, NULL, NULL), 208);
    assert_int_equal(SLOTS(convoy_poll_table), 9);
}

static void test_host_sync_functions_reach_their_slots(void **state)
{
    (void)state;
    EXPECT_GROUP_SLOT(300, convoy_host_gather_start(&group, NULL, NULL, NULL));
    EXPECT_GROUP_SLOT(301, convoy_host_gather_test(&group, 0, NULL, NULL));
    EXPECT_GROUP_SLOT(302, convoy_host_gather_wait(&group, 0, 0, NULL, NULL));
    EXPECT_GROUP_SLOT(303, convoy_host_gather(&group, NULL, 0, NULL, NULL));
    assert_int_equal(convoy_host_padded_size(&loader, NULL, NULL, NULL), 304);
    assert_int_equal(convoy_host_starts(&loader, NULL, 0, NULL, NULL), 305);
    assert_int_equal(SLOTS(convoy_sync_table), 6);
}

static void test_host_null_handle_is_an_invalid_argument(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_host_reduce(NULL, NULL, 0, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "group is NULL"));
    assert_int_equal(convoy_host_reduce2_start(&group, NULL, NULL, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_host_padded_size(NULL, NULL, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_host_context_open(NULL, NULL, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_host_group_open(NULL, NULL, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_host_context_close(NULL, 0, &error), CONVOY_OK);
}

/* The groups of a two-level reduce reach the plugin as its own objects, so they must be of one plugin. */
static void test_host_reduce2_over_two_loaders_is_refused(void **state)
{
    (void)state;
    static struct convoy_loader others;
    struct convoy_host_group other = {.handle = {.loader = &others}};
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_handle_bind_first(&other.handle, &build.tables, &inner_group);
    assert_int_equal(convoy_host_reduce2_start(&group, &other, NULL, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "different loaders"));
}

static convoy_loader *open_kind(const char *kind)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    convoy_loader *opened = NULL;
    plugin_file(kind, path);
    const struct convoy_loader_options options = {.path = path};
    assert_int_equal(convoy_loader_open(&options, &opened, NULL), CONVOY_OK);
    return opened;
}

/* Older plugin: its table ends after the first slot. The rest answers, and names what is missing. */
static void test_host_slots_past_a_short_table_are_unsupported(void **state)
{
    (void)state;
    convoy_loader *opened = open_kind("short_table");
    convoy_host_context *handle = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_host_context_open(opened, NULL, &handle, NULL), CONVOY_OK);
    assert_int_equal(convoy_host_context_describe(handle, 1, NULL, &error), CONVOY_UNSUPPORTED);
    assert_non_null(strstr(error.text, "core context_describe"));
    assert_int_equal(convoy_host_context_close(handle, 0, &error), CONVOY_UNSUPPORTED);
    assert_int_equal(convoy_host_starts(opened, NULL, 0, NULL, &error), CONVOY_UNSUPPORTED);
    assert_non_null(strstr(error.text, "sync starts"));
    convoy_handle_binding(&handle->handle)->is_closed = true; /* nothing real hangs on it */
    assert_int_equal(convoy_host_context_close(handle, 0, &error), CONVOY_OK);
    assert_int_equal(convoy_loader_close(opened, NULL), CONVOY_OK);
}

/* Newer plugin with more slots, some of them NULL: a whole life of a group works, NULL is never called. */
static void test_host_group_lives_on_a_table_with_extra_slots(void **state)
{
    (void)state;
    convoy_loader *opened = open_kind("extra_slots");
    const struct convoy_group_options options = {.struct_size = sizeof options};
    convoy_host_context *handle = NULL;
    convoy_host_group *groups[3] = {0};
    assert_int_equal(convoy_host_context_open(opened, NULL, &handle, NULL), CONVOY_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(convoy_host_group_open(handle, &options, &groups[i], NULL), CONVOY_OK);
        assert_int_equal(convoy_host_reduce(groups[i], NULL, 0, NULL, NULL), CONVOY_OK);
        assert_int_equal(convoy_host_group_info(groups[i], NULL, NULL), CONVOY_UNSUPPORTED);
        assert_int_equal(convoy_host_group_close(groups[i], 0, NULL), CONVOY_OK);
    }
    assert_int_equal(convoy_host_group_open(handle, NULL, &groups[0], NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_host_group_close(groups[0], 0, NULL), CONVOY_OK); /* a tombstone until the context goes */
    assert_int_equal(convoy_host_context_close(handle, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_loader_close(opened, NULL), CONVOY_OK);
}

#ifdef CONVOY_FAULTS
/* The handle is made before the plugin is called, so that nothing has to be undone there. */
static void test_host_handle_without_memory_is_no_memory(void **state)
{
    (void)state;
    convoy_loader *opened = open_kind("good");
    const struct convoy_group_options options = {.struct_size = sizeof options};
    convoy_host_context *handle = NULL;
    convoy_host_group *member = NULL;
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_host_context_open(opened, NULL, &handle, NULL), CONVOY_NO_MEMORY);
    assert_null(handle);
    assert_int_equal(convoy_host_context_open(opened, NULL, &handle, NULL), CONVOY_OK);
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_host_group_open(handle, &options, &member, NULL), CONVOY_NO_MEMORY);
    assert_null(member);
    assert_int_equal(convoy_host_context_close(handle, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_loader_close(opened, NULL), CONVOY_OK);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_core_functions_reach_their_slots),
        cmocka_unit_test(test_host_poll_functions_reach_their_slots),
        cmocka_unit_test(test_host_sync_functions_reach_their_slots),
        cmocka_unit_test(test_host_null_handle_is_an_invalid_argument),
        cmocka_unit_test(test_host_reduce2_over_two_loaders_is_refused),
        cmocka_unit_test(test_host_slots_past_a_short_table_are_unsupported),
        cmocka_unit_test(test_host_group_lives_on_a_table_with_extra_slots),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_host_handle_without_memory_is_no_memory),
#endif
    };
    return cmocka_run_group_tests_name("host", tests, probes_setup, NULL);
}
