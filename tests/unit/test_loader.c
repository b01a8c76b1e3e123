/* SPDX-License-Identifier: Apache-2.0 */
#include "load/loader.h"

#include "core/memory.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>

#include "plugin_files.h"

#include <cmocka.h>

/* What the host's log callback got. */
struct lines {
    unsigned count;
    uint32_t level;
    char last[2048];
};

static void keep_line(void *user, uint32_t level, const char *text, size_t length)
{
    struct lines *lines = user;
    lines->count++;
    lines->level = level;
    (void)snprintf(lines->last, sizeof lines->last, "%.*s", (int)length, text);
}

static int32_t open_file(const char *path, uint32_t flags, convoy_loader **loader_out, struct convoy_error *error)
{
    const struct convoy_loader_options options = {.path = path, .flags = flags};
    return convoy_loader_open(&options, loader_out, error);
}

static int32_t open_kind(const char *kind, convoy_loader **loader_out, struct convoy_error *error)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    plugin_file(kind, path);
    return open_file(path, 0, loader_out, error);
}

static void test_loader_good_plugin_opens_and_closes(void **state)
{
    (void)state;
    convoy_loader *loader = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(open_kind("good", &loader, &error), CONVOY_OK);
    const struct convoy_loader_info *info = convoy_loader_info(loader);
    assert_int_equal(info->family_count, 5);
    assert_int_equal(info->answers[0].status, CONVOY_OK);
    assert_int_equal(info->answers[2].status, CONVOY_UNSUPPORTED); /* it has no sync, and opens all the same */
    assert_non_null(convoy_loader_table(loader, "poll"));
    assert_null(convoy_loader_table(loader, "sync"));
    assert_null(convoy_loader_table(loader, "else"));
    assert_int_equal(convoy_loader_close(loader, &error), CONVOY_OK);
    assert_int_equal(convoy_loader_close(NULL, NULL), CONVOY_OK);
}

struct kind_row {
    const char *kind;
    int32_t status;
    const char *words;
};

static void test_loader_bad_plugin_is_refused_with_a_reason(void **state)
{
    (void)state;
    static const struct kind_row rows[] = {
        {"no_entry", CONVOY_NO_ENTRY, "no function convoy_query"},
        {"no_note", CONVOY_NO_ENTRY, "no note"},
        {"bad_json", CONVOY_BAD_FILE, "manifest"},
        {"too_new", CONVOY_TOO_NEW, "host wants 1.0 to 1.0, plugin has 2.0 to 2.0"},
        {"init_fails", CONVOY_INIT_FAILED, "convoy_query says -505"},
        {"refuses", CONVOY_TOO_OLD, "changed its mind"},
        {"no_table", CONVOY_INIT_FAILED, "no usable table"},
        {"needs_gone", CONVOY_INIT_FAILED, "libtiny_gone.so: cannot open shared object"},
        {"not_there", CONVOY_NOT_FOUND, "does not exist"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        convoy_loader *loader = NULL;
        struct convoy_error error = CONVOY_ERROR_INIT;
        int32_t status = open_kind(rows[i].kind, &loader, &error);
        if (status != rows[i].status || strstr(error.text, rows[i].words) == NULL) {
            fail_msg("%s: status %d, text \"%s\"", rows[i].kind, status, error.text);
        }
        assert_null(loader);
    }
}

/* The decision falls before any of its code runs: what is refused for its version is not mapped afterwards. */
static void test_loader_of_a_too_new_file_does_not_load_it(void **state)
{
    (void)state;
    char path[PLUGIN_FILE_PATH_BYTES];
    convoy_loader *loader = NULL;
    plugin_file("too_new", path);
    assert_int_equal(open_file(path, 0, &loader, NULL), CONVOY_TOO_NEW);
    assert_null(dlopen(path, RTLD_NOW | RTLD_NOLOAD));
}

static void test_loader_require_all_makes_a_refused_family_fail_the_open(void **state)
{
    (void)state;
    char path[PLUGIN_FILE_PATH_BYTES];
    convoy_loader *loader = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    plugin_file("good", path);
    assert_int_equal(open_file(path, CONVOY_LOADER_REQUIRE_ALL, &loader, &error), CONVOY_UNSUPPORTED);
    assert_non_null(strstr(error.text, "family sync: host wants 1.0 to 1.0, plugin has none"));
}

/* NVIDIA/nccl issues 1292 and 513: users took the lines of a version probe for the error. A probe that fails writes
 * no line; the load that works writes one, with what was agreed. */
static void test_loader_probe_is_silent_and_the_agreement_is_one_line(void **state)
{
    (void)state;
    char path[PLUGIN_FILE_PATH_BYTES];
    struct lines lines = {0};
    convoy_loader *loader = NULL;
    struct convoy_loader_options options = {.path = path, .log = keep_line, .log_user = &lines};
    static const char *const refused[] = {"too_new", "no_entry", "needs_gone", "init_fails", "not_there"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        plugin_file(refused[i], path);
        assert_int_not_equal(convoy_loader_open(&options, &loader, NULL), CONVOY_OK);
    }
    assert_int_equal(lines.count, 0);
    plugin_file("good", path);
    assert_int_equal(convoy_loader_open(&options, &loader, NULL), CONVOY_OK);
    assert_int_equal(lines.count, 1);
    assert_int_equal(lines.level, CONVOY_LOG_INFO);
    assert_non_null(strstr(lines.last, "release 1.0.0 core 1.0 poll 1.0 sync none transfer none move none"));
    assert_null(strstr(lines.last, "fail"));
    assert_int_equal(convoy_loader_close(loader, NULL), CONVOY_OK);
}

static void test_loader_of_a_copy_uses_the_mapped_build_again(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    char copy[PLUGIN_FILE_PATH_BYTES];
    convoy_loader *first = NULL;
    convoy_loader *second = NULL;
    plugin_file("good", path);
    folder_path(state, "copy.so", copy);
    file_install(path, copy);
    assert_int_equal(open_file(path, 0, &first, NULL), CONVOY_OK);
    assert_int_equal(open_file(copy, 0, &second, NULL), CONVOY_OK);
    assert_int_equal(convoy_loader_info(second)->was_mapped, 1);
    assert_ptr_equal(convoy_loader_table(first, "core"), convoy_loader_table(second, "core"));
    assert_null(dlopen(copy, RTLD_NOW | RTLD_NOLOAD));
    assert_int_equal(convoy_loader_close(first, NULL), CONVOY_OK);
    assert_int_equal(convoy_loader_close(second, NULL), CONVOY_OK);
}

static unsigned count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned lines = 0;
    assert_non_null(maps);
    for (int c = fgetc(maps); c != EOF; c = fgetc(maps)) {
        lines += c == '\n';
    }
    (void)fclose(maps);
    return lines;
}

/* rust-lang/rust issue 59629, fungos/cr issue 35: a file that was replaced under its own name gave the old code. Here
 * the loaded build is the one in the file, back and forth, and mappings grow by one build, not by one load. */
static void test_loader_of_a_replaced_file_gives_the_new_build(void **state)
{
    static const char *const kinds[] = {"extra_slots", "good_b"}; /* no other test here has them mapped */
    static const char *const releases[] = {"1.0.0", "1.0.1"};
    char from[PLUGIN_FILE_PATH_BYTES];
    char path[PLUGIN_FILE_PATH_BYTES];
    unsigned mappings = 0;
    folder_path(state, "replaced.so", path);
    for (unsigned i = 0; i < 100; i++) {
        convoy_loader *loader = NULL;
        struct convoy_error error = CONVOY_ERROR_INIT;
        plugin_file(kinds[i % 2], from);
        file_install(from, path);
        assert_int_equal(open_file(path, 0, &loader, &error), CONVOY_OK);
        assert_string_equal(convoy_loader_info(loader)->file.release, releases[i % 2]);
        assert_int_equal(convoy_loader_info(loader)->was_mapped, i >= 2);
        assert_int_equal(convoy_loader_close(loader, NULL), CONVOY_OK);
        if (i == 1) {
            mappings = count_mappings();
        }
    }
    assert_int_equal(count_mappings(), mappings);
}

static void test_loader_close_with_an_open_context_is_busy(void **state)
{
    (void)state;
    convoy_loader *loader = NULL;
    convoy_host_context *context = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(open_kind("good", &loader, NULL), CONVOY_OK);
    assert_int_equal(convoy_host_context_open(loader, NULL, &context, NULL), CONVOY_OK);
    assert_int_equal(convoy_loader_close(loader, &error), CONVOY_BUSY);
    assert_non_null(strstr(error.text, "1 contexts"));
    assert_int_equal(convoy_host_context_close(context, 1, NULL), CONVOY_DRAIN_TIMEOUT); /* stays, may be repeated */
    assert_int_equal(convoy_loader_close(loader, &error), CONVOY_BUSY);
    assert_int_equal(convoy_host_context_close(context, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_loader_close(loader, &error), CONVOY_OK);
}

static void test_loader_search_takes_the_variable_and_lists_where_it_looked(void **state)
{
    (void)state;
    char path[PLUGIN_FILE_PATH_BYTES];
    convoy_loader *loader = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    plugin_file("good", path);
    assert_int_equal(setenv("CONVOY_LIBRARY", path, 1), 0);
    assert_int_equal(convoy_loader_open(NULL, &loader, NULL), CONVOY_OK);
    assert_int_equal(convoy_loader_close(loader, NULL), CONVOY_OK);
    loader = NULL;
    assert_int_equal(setenv("CONVOY_LIBRARY", "/nowhere/else.so", 1), 0);
    assert_int_equal(convoy_loader_open(NULL, &loader, &error), CONVOY_NOT_FOUND);
    assert_non_null(strstr(error.text, "CONVOY_LIBRARY names /nowhere/else.so"));
    assert_int_equal(unsetenv("CONVOY_LIBRARY"), 0);
    if (convoy_loader_open(NULL, &loader, &error) == CONVOY_OK) { /* a machine that has convoy installed */
        assert_int_equal(convoy_loader_close(loader, NULL), CONVOY_OK);
    } else {
        assert_non_null(strstr(error.text, "libconvoy.so.1 is in none of: /"));
    }
}

#define REQUEST(text, a, b, c, d)                                                                                      \
    {.name = (text), .name_length = sizeof(text) - 1, .major_min = (a), .minor_min = (b), .major_max = (c),            \
     .minor_max = (d)}

static void test_loader_odd_options_are_refused_before_a_file_is_touched(void **state)
{
    (void)state;
    static const struct convoy_family_request rows[][1] = {
        {REQUEST("core", 1, 0, 2, 0)}, {REQUEST("core", 1, 1, 1, 0)}, {REQUEST("poll", 1, 0, 1, 0)},
        {REQUEST("", 1, 0, 1, 0)},     {REQUEST("a-name-that-is-much-too-long-for-it", 1, 0, 1, 0)},
    };
    static const char *const words[] = {"knows up to 1.0", "lies above", "lacks core", "0 bytes", "35 bytes"};
    convoy_loader *loader = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct convoy_loader_options options = {.path = "/nowhere", .families = rows[i], .family_count = 1};
        assert_int_equal(convoy_loader_open(&options, &loader, &error), CONVOY_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, words[i]));
    }
    assert_int_equal(open_file("/nowhere", 8, &loader, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_loader_open(NULL, NULL, &error), CONVOY_INVALID_ARGUMENT);
}

#ifdef CONVOY_FAULTS
/* Every allocation of open, context and group fails once; nothing is left behind (the address sanitizer looks). */
static void test_loader_open_with_any_allocation_failing_is_no_memory(void **state)
{
    (void)state;
    for (int64_t skip = 0; skip < 12; skip++) {
        convoy_loader *loader = NULL;
        (void)convoy_memory_fail_after(skip);
        int32_t status = open_kind("good", &loader, NULL);
        (void)convoy_memory_fail_after(-1);
        if (status == CONVOY_OK) {
            assert_true(skip >= 3);
            assert_int_equal(convoy_loader_close(loader, NULL), CONVOY_OK);
            return;
        }
        assert_int_equal(status, CONVOY_NO_MEMORY);
    }
    fail();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loader_of_a_copy_uses_the_mapped_build_again),
        cmocka_unit_test(test_loader_good_plugin_opens_and_closes),
        cmocka_unit_test(test_loader_bad_plugin_is_refused_with_a_reason),
        cmocka_unit_test(test_loader_of_a_too_new_file_does_not_load_it),
        cmocka_unit_test(test_loader_require_all_makes_a_refused_family_fail_the_open),
        cmocka_unit_test(test_loader_probe_is_silent_and_the_agreement_is_one_line),
        cmocka_unit_test(test_loader_of_a_replaced_file_gives_the_new_build),
        cmocka_unit_test(test_loader_close_with_an_open_context_is_busy),
        cmocka_unit_test(test_loader_search_takes_the_variable_and_lists_where_it_looked),
        cmocka_unit_test(test_loader_odd_options_are_refused_before_a_file_is_touched),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_loader_open_with_any_allocation_failing_is_no_memory),
#endif
    };
    return cmocka_run_group_tests_name("loader", tests, folder_setup, folder_teardown);
}
