/* SPDX-License-Identifier: Apache-2.0 */
/* The slot id in scalar_fields: read, taken out, put in, with every other byte as it was. */
#include "core/memory.h"
#include "wire/control.h"
#include "wire/scalars.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define KEY "\"_prealloc_slot_id\""

static struct convoy_span span_of(const char *text)
{
    return (struct convoy_span){text, strlen(text)};
}

/* text; what is read; the text without; the text with 42. */
static const struct {
    const char *text;
    const char *without;
    const char *with;
    int64_t id; /* -1: none */
} scalars_rows[] = {
    {"", "{}", "{" KEY ":42}", -1},
    {"{}", "{}", "{" KEY ":42}", -1},
    {" { } ", " { } ", " { " KEY ":42} ", -1},
    {"{\"a\":1}", "{\"a\":1}", "{\"a\":1," KEY ":42}", -1},
    {"{ \"a\" : 1 } ", "{ \"a\" : 1 } ", "{ \"a\" : 1 ," KEY ":42} ", -1},
    {"{" KEY ":3}", "{}", "{" KEY ":42}", 3},
    {"{" KEY ":0,\"a\":1}", "{\"a\":1}", "{" KEY ":42,\"a\":1}", 0},
    {"{ " KEY " : 0 , \"a\":1, \"b\":2}", "{ \"a\":1, \"b\":2}", "{ " KEY " : 42 , \"a\":1, \"b\":2}", 0},
    {"{\"a\":1," KEY ":7,\"b\":2}", "{\"a\":1,\"b\":2}", "{\"a\":1," KEY ":42,\"b\":2}", 7},
    {"{\"a\":1," KEY ":9007199254740992}", "{\"a\":1}", "{\"a\":1," KEY ":42}", 9007199254740992},
    {"{\"a\":1," KEY ":null}", "{\"a\":1}", "{\"a\":1," KEY ":42}", -1},
    {"{\"\\u005fprealloc_slot_id\":5,\"a\":{}}", "{\"a\":{}}", "{\"\\u005fprealloc_slot_id\":42,\"a\":{}}", 5},
    {"{\"seed\":18446744073709551615,\"x\":1e400,\"s\":\"\\u00E9\\/\\ud800}\",\"d\":1,\"d\":{" KEY ":1}," KEY ":2}",
     "{\"seed\":18446744073709551615,\"x\":1e400,\"s\":\"\\u00E9\\/\\ud800}\",\"d\":1,\"d\":{" KEY ":1}}",
     "{\"seed\":18446744073709551615,\"x\":1e400,\"s\":\"\\u00E9\\/\\ud800}\",\"d\":1,\"d\":{" KEY ":1}," KEY ":42}", 2},
};

static void test_scalars_slot_is_read_taken_out_and_put_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(scalars_rows); i++) {
        struct convoy_span text = span_of(scalars_rows[i].text);
        struct convoy_scalars_slot slot = {true, 99};
        struct convoy_error error = {.struct_size = sizeof error};
        char *out = NULL;
        size_t bytes = 0;
        assert_int_equal(convoy_scalars_slot_read(text, &slot, &error), CONVOY_OK);
        assert_int_equal(slot.has_id, scalars_rows[i].id >= 0);
        assert_int_equal(slot.id, slot.has_id ? scalars_rows[i].id : 0);
        assert_int_equal(convoy_scalars_slot_remove(text, &out, &bytes, &error), CONVOY_OK);
        assert_string_equal(out, scalars_rows[i].without);
        assert_int_equal(bytes, strlen(out));
        convoy_memory_free(out);
        assert_int_equal(convoy_scalars_slot_insert(text, 42, &out, &bytes, &error), CONVOY_OK);
        assert_string_equal(out, scalars_rows[i].with);
        assert_int_equal(bytes, strlen(out));
        convoy_memory_free(out);
    }
}

static void test_scalars_slot_refusals(void **state)
{
    (void)state;
    static const char bounds[] = "scalar_fields._prealloc_slot_id is no integer of 0 to 9007199254740992 and not null";
    static const struct {
        const char *text;
        int32_t status;
        const char *says;
    } rows[] = {
        {"[]", CONVOY_MALFORMED, "scalar_fields: byte 0: an object is expected"},
        {"{\"a\":1", CONVOY_MALFORMED, "scalar_fields: byte 6: a comma or the end of a list or object is missing"},
        {"{" KEY ":1," KEY ":1}", CONVOY_MALFORMED, "scalar_fields._prealloc_slot_id is there twice"},
        {"{" KEY ":\"1\"}", CONVOY_MALFORMED, bounds},
        {"{" KEY ":1.0}", CONVOY_MALFORMED, bounds},
        {"{" KEY ":-1}", CONVOY_MALFORMED, bounds},
        {"{" KEY ":9007199254740993}", CONVOY_MALFORMED, bounds},
        {"{" KEY ":true}", CONVOY_MALFORMED, bounds},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct convoy_scalars_slot slot = {true, 99};
        struct convoy_error error = {.struct_size = sizeof error};
        char *out = NULL;
        size_t bytes = 0;
        assert_int_equal(convoy_scalars_slot_read(span_of(rows[i].text), &slot, &error), rows[i].status);
        assert_string_equal(error.text, rows[i].says);
        assert_int_equal(slot.id, 99);
        assert_int_equal(convoy_scalars_slot_remove(span_of(rows[i].text), &out, &bytes, NULL), rows[i].status);
        assert_int_equal(convoy_scalars_slot_insert(span_of(rows[i].text), 1, &out, &bytes, NULL), rows[i].status);
        assert_null(out);
    }
}

static void test_scalars_bounds(void **state)
{
    (void)state;
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_scalars_slot slot;
    char *out = NULL;
    size_t bytes = CONVOY_CONTROL_VALUE_BYTES_MAX + 1;
    char *large = malloc(bytes);
    assert_non_null(large);
    memset(large, ' ', bytes);
    large[0] = '{';
    large[bytes - 2] = '}';
    assert_int_equal(convoy_scalars_slot_read((struct convoy_span){large, bytes}, &slot, &error), CONVOY_LIMIT);
    assert_string_equal(error.text, "scalar_fields has 1048577 bytes, allowed are 1048576");
    assert_int_equal(convoy_scalars_slot_read((struct convoy_span){large, bytes - 1}, &slot, &error), CONVOY_OK);
    memset(large, '[', bytes);
    memcpy(large, "{\"a\":", 5);
    assert_int_equal(convoy_scalars_slot_read((struct convoy_span){large, 200}, &slot, &error), CONVOY_LIMIT);
    free(large);
    for (int i = 0; i < 2; i++) {
        int64_t id = i == 0 ? -1 : CONVOY_CONTROL_INTEGER_MAX + 1;
        assert_int_equal(convoy_scalars_slot_insert(span_of("{}"), id, &out, &bytes, &error), CONVOY_INVALID_ARGUMENT);
    }
    assert_string_equal(error.text,
                        "scalar_fields._prealloc_slot_id is 9007199254740993, allowed are 0 to 9007199254740992");
}

#ifdef CONVOY_FAULTS
static void test_scalars_without_memory(void **state)
{
    (void)state;
    struct convoy_error error = {.struct_size = sizeof error};
    char *out = NULL;
    size_t bytes = 0;
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_scalars_slot_remove(span_of("{}"), &out, &bytes, &error), CONVOY_NO_MEMORY);
    assert_string_equal(error.text, "scalar_fields: no memory for 2 bytes");
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_scalars_slot_insert(span_of("{}"), 1, &out, &bytes, &error), CONVOY_NO_MEMORY);
    (void)convoy_memory_fail_after(-1);
    assert_null(out);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars_slot_is_read_taken_out_and_put_in),
        cmocka_unit_test(test_scalars_slot_refusals),
        cmocka_unit_test(test_scalars_bounds),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_scalars_without_memory),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
