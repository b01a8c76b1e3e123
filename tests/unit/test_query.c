/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/families.h"

#include "core/error.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Only addresses and headers matter here; the real tables win where they are linked in. */
__attribute__((weak)) const struct convoy_core_table convoy_core_table_1_0 = {
    .header = {sizeof(struct convoy_core_table), 1, 0}};
__attribute__((weak)) const struct convoy_poll_table convoy_poll_table_1_0 = {
    .header = {sizeof(struct convoy_poll_table), 1, 0}};
__attribute__((weak)) const struct convoy_sync_table convoy_sync_table_1_0 = {
    .header = {sizeof(struct convoy_sync_table), 1, 0}};

#define REQUEST(text, a, b, c, d)                                                                                      \
    {.name = (text), .name_length = sizeof(text) - 1, .major_min = (a), .minor_min = (b), .major_max = (c),            \
     .minor_max = (d)}

struct asked {
    struct convoy_family_request requests[4];
    struct convoy_family_answer answers[4];
    struct convoy_host_info host;
    struct convoy_plugin_info plugin;
    struct convoy_error error;
};

static void ask_setup(struct asked *asked)
{
    *asked = (struct asked){
        .requests = {REQUEST("core", 1, 0, 1, 7), REQUEST("poll", 2, 0, 2, 3), REQUEST("unheard", 1, 0, 1, 0),
                     REQUEST("sync", 1, 0, 1, 0)},
        .host = {.struct_size = sizeof(struct convoy_host_info), .family_stride = sizeof(struct convoy_family_request),
                 .family_count = 4},
        .plugin = {.struct_size = sizeof(struct convoy_plugin_info), .answer_capacity = 4,
                   .answer_stride = sizeof(struct convoy_family_answer)},
        .error = CONVOY_ERROR_INIT,
    };
    asked->host.families = asked->requests;
    asked->plugin.answers = asked->answers;
}

static void test_query_answers_each_family_on_its_own(void **state)
{
    (void)state;
    struct asked asked;
    ask_setup(&asked);
    assert_int_equal(convoy_query(&asked.host, &asked.plugin, &asked.error), CONVOY_OK);
    assert_int_equal(asked.plugin.answer_count, 4);
    assert_ptr_equal(asked.answers[0].table, &convoy_core_table_1_0);
    assert_int_equal(asked.answers[0].minor, CONVOY_CORE_MINOR);
    assert_int_equal(asked.answers[1].status, CONVOY_TOO_OLD);
    assert_null(asked.answers[1].table);
    assert_non_null(strstr(asked.answers[1].reason, "host wants 2.0 to 2.3, plugin has 1.0 to 1.0"));
    assert_int_equal(asked.answers[2].status, CONVOY_UNSUPPORTED);
    assert_non_null(strstr(asked.answers[2].reason, "family unheard"));
    assert_ptr_equal(asked.answers[3].table, &convoy_sync_table_1_0);
    assert_string_equal(asked.answers[3].reason, "");
}

/* What the loader decides from must be what the code answers: every family of the manifest, with its range. */
static void test_query_manifest_is_json_and_says_what_is_answered(void **state)
{
    (void)state;
    struct asked asked;
    ask_setup(&asked);
    assert_int_equal(convoy_query(&asked.host, &asked.plugin, &asked.error), CONVOY_OK);
    assert_int_equal(asked.plugin.manifest[asked.plugin.manifest_length], '\0');
    json_t *manifest = json_loadb(asked.plugin.manifest, asked.plugin.manifest_length, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(manifest);
    assert_string_equal(json_string_value(json_object_get(manifest, "release")), CONVOY_RELEASE);
    json_t *families = json_object_get(manifest, "families");
    static const char *const names[] = {"core", "poll", "sync", "transfer", "move"};
    assert_int_equal(json_array_size(families), 5);
    for (size_t i = 0; i < 5; i++) {
        const json_t *family = json_array_get(families, i);
        assert_string_equal(json_string_value(json_object_get(family, "name")), names[i]);
        assert_string_equal(json_string_value(json_object_get(family, "min")), "1.0");
    }
    assert_string_equal(json_string_value(json_object_get(manifest, "unload")), "nodelete");
    json_decref(manifest);
}

static void test_query_build_id_is_the_same_text_each_time(void **state)
{
    (void)state;
    size_t length = 0;
    const char *first = convoy_build_id_text(&length);
    assert_int_equal(length, strlen(first));
    assert_int_equal(strspn(first, "0123456789abcdef"), length);
    char copy[80];
    (void)snprintf(copy, sizeof copy, "%s", first);
    assert_string_equal(convoy_build_id_text(&length), copy);
}

struct bad_row {
    const char *what;
    int32_t status;
};

/* Applies one mistake to a good question. */
static void spoil(struct asked *asked, size_t row)
{
    switch (row) {
    case 0: asked->host.struct_size = 8; break;
    case 1: asked->plugin.struct_size = 8; break;
    case 2: asked->plugin.answer_capacity = 3; break;
    case 3: asked->host.family_count = 65; break;
    case 4: asked->host.critical_flags = 1; break;
    case 5: asked->host.family_stride = 8; break;
    case 6: asked->plugin.answer_stride = 8; break;
    case 7: asked->requests[1].name = NULL; break;
    case 8: asked->requests[1].major_min = 3; break;
    case 9: asked->host.families = NULL; break;
    default: asked->plugin.answers = NULL; break;
    }
}

static void test_query_of_bad_arguments_says_why_and_writes_nothing(void **state)
{
    (void)state;
    static const struct bad_row rows[] = {
        {"host_info: struct_size is 8", CONVOY_TOO_OLD}, {"plugin_info: struct_size is 8", CONVOY_TOO_OLD},
        {"asks for 4 families", CONVOY_INVALID_ARGUMENT}, {"family_count is 65", CONVOY_INVALID_ARGUMENT},
        {"critical_flags is 0x1", CONVOY_UNSUPPORTED},   {"array of family_request: stride is 8", CONVOY_TOO_OLD},
        {"family_answer: stride is 8", CONVOY_TOO_OLD},  {"families[1].name is empty", CONVOY_INVALID_ARGUMENT},
        {"3.0 lies above its highest 2.3", CONVOY_INVALID_ARGUMENT},
        {"array of family_request is NULL", CONVOY_INVALID_ARGUMENT},
        {"array of family_answer is NULL", CONVOY_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct asked asked;
        ask_setup(&asked);
        spoil(&asked, i);
        struct asked before = asked;
        assert_int_equal(convoy_query(&asked.host, &asked.plugin, &asked.error), rows[i].status);
        assert_non_null(strstr(asked.error.text, rows[i].what));
        assert_memory_equal(asked.answers, before.answers, sizeof asked.answers);
        assert_memory_equal(&asked.plugin, &before.plugin, sizeof asked.plugin);
    }
    struct asked asked;
    ask_setup(&asked);
    assert_int_equal(convoy_query(NULL, &asked.plugin, NULL), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_query(&asked.host, NULL, NULL), CONVOY_INVALID_ARGUMENT);
}

/* A host of a later release: longer structs, longer elements, unknown hint flags. */
static void test_query_of_a_newer_host_with_zero_tails_is_answered(void **state)
{
    (void)state;
    struct {
        struct convoy_host_info info;
        char tail[64];
    } host = {0};
    struct {
        struct convoy_family_request request;
        char tail[24];
    } request = {.request = REQUEST("core", 1, 0, 1, 0)};
    struct asked asked;
    ask_setup(&asked);
    host.info = asked.host;
    host.info.struct_size = sizeof host;
    host.info.hint_flags = 0xffffffff;
    host.info.families = &request.request;
    host.info.family_stride = sizeof request;
    host.info.family_count = 1;
    assert_int_equal(convoy_query(&host.info, &asked.plugin, &asked.error), CONVOY_OK);
    assert_int_equal(asked.answers[0].status, CONVOY_OK);
    host.tail[63] = 1;
    assert_int_equal(convoy_query(&host.info, &asked.plugin, &asked.error), CONVOY_TOO_NEW);
    host.tail[63] = 0;
    request.tail[0] = 1;
    assert_int_equal(convoy_query(&host.info, &asked.plugin, &asked.error), CONVOY_TOO_NEW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query_answers_each_family_on_its_own),
        cmocka_unit_test(test_query_manifest_is_json_and_says_what_is_answered),
        cmocka_unit_test(test_query_build_id_is_the_same_text_each_time),
        cmocka_unit_test(test_query_of_bad_arguments_says_why_and_writes_nothing),
        cmocka_unit_test(test_query_of_a_newer_host_with_zero_tails_is_answered),
    };
    return cmocka_run_group_tests_name("query", tests, NULL, NULL);
}
