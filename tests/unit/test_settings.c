/* SPDX-License-Identifier: Apache-2.0 */
#include "core/error.h"
#include "core/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int32_t load(struct convoy_settings *settings, const char *json, struct convoy_error *error)
{
    return convoy_settings_load(settings, json, json != NULL ? strlen(json) : 0, error);
}

static int clear_environment(void **state)
{
    (void)state;
    return unsetenv("CONVOY_TIMEOUT_MS") | unsetenv("CONVOY_NET") | unsetenv("CONVOY_UCX_TLS");
}

static void test_settings_without_sources_are_the_defaults(void **state)
{
    (void)state;
    struct convoy_settings settings;
    assert_int_equal(load(&settings, NULL, NULL), CONVOY_OK);
    assert_int_equal(settings.timeout_ms, 5000);
    assert_int_equal(settings.timeout_ms_source, CONVOY_SETTING_DEFAULT);
    assert_string_equal(settings.net, "auto");
    assert_string_equal(settings.ucx_tls, "");
}

static void test_settings_object_goes_before_the_environment(void **state)
{
    (void)state;
    struct convoy_settings settings;
    setenv("CONVOY_TIMEOUT_MS", "70", 1);
    setenv("CONVOY_NET", "shm", 1);
    assert_int_equal(load(&settings, "{\"timeout_ms\": 60}", NULL), CONVOY_OK);
    assert_int_equal(settings.timeout_ms, 60);
    assert_int_equal(settings.timeout_ms_source, CONVOY_SETTING_OBJECT);
    assert_string_equal(settings.net, "shm");
    assert_int_equal(settings.net_source, CONVOY_SETTING_ENVIRONMENT);
}

static void test_settings_bounds_themselves_are_allowed(void **state)
{
    (void)state;
    struct convoy_settings settings;
    assert_int_equal(load(&settings, "{\"timeout_ms\": 1, \"hello_timeout_ms\": 60000}", NULL), CONVOY_OK);
    assert_int_equal(settings.timeout_ms, 1);
    assert_int_equal(settings.hello_timeout_ms, 60000);
}

/* Each text must be refused, and the message must contain the three parts. */
static void test_settings_bad_object_is_refused_with_name_value_and_range(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *parts[3];
    } rows[] = {
        {"", {"settings", "line", ""}},
        {"{", {"settings", "line 1", ""}},
        {"[]", {"JSON object", "a list", ""}},
        {"{\"timeout\": 1}", {"timeout", "unknown", ""}},
        {"{\"timeout_ms\": 0}", {"timeout_ms", "= 0", "1 to 86400000"}},
        {"{\"timeout_ms\": 86400001}", {"timeout_ms", "86400001", "1 to 86400000"}},
        {"{\"timeout_ms\": -1}", {"timeout_ms", "-1", "1 to 86400000"}},
        {"{\"timeout_ms\": 99999999999999999999}", {"settings", "", ""}},
        {"{\"timeout_ms\": 1.5}", {"timeout_ms", "a fraction", "a whole number"}},
        {"{\"timeout_ms\": \"5\"}", {"timeout_ms", "a text", "a whole number"}},
        {"{\"timeout_ms\": true}", {"timeout_ms", "true", "a whole number"}},
        {"{\"net\": 5}", {"net", "a whole number", "a text"}},
        {"{\"net\": \"tcp\"}", {"net", "\"tcp\"", "auto|shm|ucx"}},
        {"{\"net\": \"\"}", {"net", "\"\"", "auto|shm|ucx"}},
        {"{\"net\": \"auto|shm\"}", {"net", "auto|shm", "auto|shm|ucx"}},
        {"{\"timeout_ms\": 5, \"timeout_ms\": 6}", {"settings", "duplicate", "timeout_ms"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_settings settings;
        struct convoy_error error = CONVOY_ERROR_INIT;
        assert_int_equal(load(&settings, rows[i].json, &error), CONVOY_INVALID_ARGUMENT);
        for (size_t part = 0; part < 3; part++) {
            if (strstr(error.text, rows[i].parts[part]) == NULL) {
                fail_msg("%s: no \"%s\" in \"%s\"", rows[i].json, rows[i].parts[part], error.text);
            }
        }
    }
}

static void test_settings_bad_environment_is_refused_with_the_variable(void **state)
{
    (void)state;
    static const char *const values[] = {"", "x", "-1", "5ms", " 5", "0", "86400001", "1000000000000000000000"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct convoy_settings settings;
        struct convoy_error error = CONVOY_ERROR_INIT;
        setenv("CONVOY_TIMEOUT_MS", values[i], 1);
        assert_int_equal(load(&settings, NULL, &error), CONVOY_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "CONVOY_TIMEOUT_MS"));
        assert_non_null(strstr(error.text, "1 to 86400000"));
    }
}

/* A variable that the object overrides is not even looked at. */
static void test_settings_bad_environment_behind_the_object_is_harmless(void **state)
{
    (void)state;
    struct convoy_settings settings;
    setenv("CONVOY_TIMEOUT_MS", "nonsense", 1);
    assert_int_equal(load(&settings, "{\"timeout_ms\": 9}", NULL), CONVOY_OK);
    assert_int_equal(settings.timeout_ms, 9);
}

static void test_settings_text_longer_than_its_room_is_refused(void **state)
{
    (void)state;
    char value[CONVOY_SETTING_TEXT_BYTES + 1];
    memset(value, 'a', sizeof value);
    value[CONVOY_SETTING_TEXT_BYTES] = '\0';
    struct convoy_settings settings;
    struct convoy_error error = CONVOY_ERROR_INIT;
    setenv("CONVOY_UCX_TLS", value, 1);
    assert_int_equal(load(&settings, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "ucx_tls"));
    value[CONVOY_SETTING_TEXT_BYTES - 1] = '\0';
    setenv("CONVOY_UCX_TLS", value, 1);
    assert_int_equal(load(&settings, NULL, &error), CONVOY_OK);
    assert_string_equal(settings.ucx_tls, value);
}

static void test_settings_zero_inside_a_text_is_refused(void **state)
{
    (void)state;
    struct convoy_settings settings;
    assert_int_equal(load(&settings, "{\"ucx_tls\": \"a\\u0000b\"}", NULL), CONVOY_INVALID_ARGUMENT);
}

static void test_settings_description_names_value_and_source(void **state)
{
    (void)state;
    struct convoy_settings settings;
    setenv("CONVOY_NET", "ucx", 1);
    assert_int_equal(load(&settings, "{\"spin_pauses\": 7}", NULL), CONVOY_OK);
    json_t *all = convoy_settings_describe(&settings);
    assert_non_null(all);
    json_t *row = json_object_get(all, "spin_pauses");
    assert_int_equal(json_integer_value(json_object_get(row, "value")), 7);
    assert_string_equal(json_string_value(json_object_get(row, "source")), "object");
    row = json_object_get(all, "net");
    assert_string_equal(json_string_value(json_object_get(row, "value")), "ucx");
    assert_string_equal(json_string_value(json_object_get(row, "source")), "environment");
    row = json_object_get(all, "liveness_ms");
    assert_string_equal(json_string_value(json_object_get(row, "source")), "default");
    assert_int_equal(json_object_size(all), 15);
    json_decref(all);
}

struct told {
    unsigned count;
    char last[64];
};

static void told_take(void *user, const char *name)
{
    struct told *told = user;
    told->count++;
    (void)snprintf(told->last, sizeof told->last, "%s", name);
}

static void test_settings_variables_that_are_none_are_told(void **state)
{
    (void)state;
    struct told told = {0};
    convoy_settings_unknown(told_take, &told);
    unsigned before = told.count; /* whatever this process was started with */
    setenv("CONVOY_NET", "shm", 1);
    setenv("CONVOY_LIBRARY", "/nowhere", 1);
    setenv("CONVOY_TEST_ANYTHING", "1", 1);
    setenv("CONVOY_SECRET", "ours", 1);
    setenv("CONVOY_HOOK_POLL", "0", 1);
    told.count = 0;
    convoy_settings_unknown(told_take, &told);
    assert_int_equal(told.count, before);
    setenv("CONVOY_TIMEOUT", "1", 1); /* of whoever means CONVOY_TIMEOUT_MS */
    told.count = 0;
    convoy_settings_unknown(told_take, &told);
    assert_int_equal(told.count, before + 1);
    assert_string_equal(told.last, "CONVOY_TIMEOUT");
    unsetenv("CONVOY_TIMEOUT");
    unsetenv("CONVOY_LIBRARY");
    unsetenv("CONVOY_TEST_ANYTHING");
    unsetenv("CONVOY_SECRET");
    unsetenv("CONVOY_HOOK_POLL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_settings_without_sources_are_the_defaults, clear_environment),
        cmocka_unit_test_setup(test_settings_object_goes_before_the_environment, clear_environment),
        cmocka_unit_test_setup(test_settings_bounds_themselves_are_allowed, clear_environment),
        cmocka_unit_test_setup(test_settings_bad_object_is_refused_with_name_value_and_range, clear_environment),
        cmocka_unit_test_setup(test_settings_bad_environment_is_refused_with_the_variable, clear_environment),
        cmocka_unit_test_setup(test_settings_bad_environment_behind_the_object_is_harmless, clear_environment),
        cmocka_unit_test_setup(test_settings_text_longer_than_its_room_is_refused, clear_environment),
        cmocka_unit_test_setup(test_settings_zero_inside_a_text_is_refused, clear_environment),
        cmocka_unit_test_setup(test_settings_description_names_value_and_source, clear_environment),
        cmocka_unit_test_setup(test_settings_variables_that_are_none_are_told, clear_environment),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
