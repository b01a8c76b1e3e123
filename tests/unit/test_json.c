/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the values of a JSON text, with every refusal and its place; and writing texts as Python does. */
#include "wire/json.h"
#include "wire/writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static struct convoy_span span_of(const char *text)
{
    return (struct convoy_span){text, strlen(text)};
}

/* Walks a copy that lies in exactly its bytes, so that a sanitizer sees a read past it. */
static enum convoy_json_step walk(struct convoy_json *json, const char *text, size_t bytes, bool is_object,
                                  unsigned *count_out)
{
    char *exact = malloc(bytes != 0 ? bytes : 1);
    struct convoy_json_item item;
    enum convoy_json_step step = CONVOY_JSON_ITEM;
    assert_non_null(exact);
    memcpy(exact, text, bytes);
    convoy_json_open(json, (struct convoy_span){exact, bytes}, is_object);
    for (*count_out = 0; (step = convoy_json_next(json, &item)) == CONVOY_JSON_ITEM;) {
        assert_true(item.value.bytes != 0 && item.value.text >= exact);
        assert_true(item.value.text + item.value.bytes <= exact + bytes);
        (*count_out)++;
    }
    json->at = text + (json->at - exact);
    free(exact);
    return step;
}

static void test_json_gives_the_items_as_they_stand(void **state)
{
    (void)state;
    static const char text[] = " {\"a\" : [1,{\"b\":2}] ,\n\"c\":\"d\\\"\", \"\":-0.5e+10,\"t\":true,\"f\":false,\"n\":null,"
                               "\"o\":{\"x\":{},\"y\":[[],[ ]]} } ";
    static const struct {
        const char *key;
        const char *value;
        enum convoy_json_kind kind;
    } rows[] = {
        {"a", "[1,{\"b\":2}]", CONVOY_JSON_LIST},
        {"c", "\"d\\\"\"", CONVOY_JSON_STRING},
        {"", "-0.5e+10", CONVOY_JSON_NUMBER},
        {"t", "true", CONVOY_JSON_BOOL},
        {"f", "false", CONVOY_JSON_BOOL},
        {"n", "null", CONVOY_JSON_NULL},
        {"o", "{\"x\":{},\"y\":[[],[ ]]}", CONVOY_JSON_OBJECT},
    };
    struct convoy_json json;
    struct convoy_json_item item;
    convoy_json_open(&json, span_of(text), true);
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(convoy_json_next(&json, &item), CONVOY_JSON_ITEM);
        assert_int_equal(item.kind, rows[i].kind);
        assert_true(convoy_json_is_same(item.key, span_of(rows[i].key)));
        assert_int_equal(item.value.bytes, strlen(rows[i].value));
        assert_memory_equal(item.value.text, rows[i].value, item.value.bytes);
    }
    assert_int_equal(convoy_json_next(&json, &item), CONVOY_JSON_END);
}

static void test_json_accepts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned count;
    } rows[] = {
        {"[]", 0}, {" [ ] ", 0}, {"[0,-0,0.0,1e5,1E-5,123456789012345678901234567890,1e400]", 7},
        {"[\"\\u00e9\\uD83d\\uDE80\\ud800\\n\",\"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x9a\x80\xf4\x8f\xbf\xbf\"]", 2},
        {"[\"\x7f\",[[[]]],{\"a\":{\"a\":[{}]}}]", 3},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct convoy_json json;
        unsigned count;
        assert_int_equal(walk(&json, rows[i].text, strlen(rows[i].text), false, &count), CONVOY_JSON_END);
        assert_int_equal(count, rows[i].count);
    }
}

static void test_json_refuses_with_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *fault;
        ptrdiff_t at;
    } rows[] = {
        {"", "an object is expected", 0},
        {"[]", "an object is expected", 0},
        {"{} x", "something follows the end", 3},
        {"{\"a\":1}{", "something follows the end", 7},
        {"{", "a string is expected", 1},
        {"{,}", "a string is expected", 1},
        {"{a:1}", "a string is expected", 1},
        {"{\"a\":1,}", "a string is expected", 7},
        {"{\"a\"}", "a colon is missing", 4},
        {"{\"a\":}", "a value is expected", 5},
        {"{\"a\":", "a value is expected", 5},
        {"{\"a\":1", "a comma or the end of a list or object is missing", 6},
        {"{\"a\":1 \"b\":2}", "a comma or the end of a list or object is missing", 7},
        {"{\"a\":01}", "a comma or the end of a list or object is missing", 6},
        {"{\"a\":-}", "a value is expected", 6},
        {"{\"a\":+1}", "a value is expected", 5},
        {"{\"a\":.5}", "a value is expected", 5},
        {"{\"a\":1.}", "a value is expected", 7},
        {"{\"a\":1e}", "a value is expected", 7},
        {"{\"a\":1e+}", "a value is expected", 8},
        {"{\"a\":NaN}", "a value is expected", 5},
        {"{\"a\":Infinity}", "a value is expected", 5},
        {"{\"a\":-Infinity}", "a value is expected", 6},
        {"{\"a\":True}", "a value is expected", 5},
        {"{\"a\":tru", "a value is expected", 5},
        {"{\"a\":nul}", "a value is expected", 5},
        {"{\"a\":falsy}", "a value is expected", 5},
        {"{\"a\":[1,]}", "a value is expected", 8},
        {"{\"a\":[,1]}", "a value is expected", 6},
        {"{\"a\":[1}", "a comma or the end of a list or object is missing", 7},
        {"{\"a\":[1", "a comma or the end of a list or object is missing", 7},
        {"{\"a\":{\"b\":1]}", "a comma or the end of a list or object is missing", 11},
        {"{\"a\":{\"b\":1,}}", "a string is expected", 12},
        {"{\"a\":{\"b\" 1}}", "a colon is missing", 10},
        {"{\"a\":{1}}", "a string is expected", 6},
        {"{\"a\":\"", "a string does not end", 6},
        {"{\"a\":\"\n\"}", "a control character in a string", 6},
        {"{\"a\":\"\\x\"}", "an unknown escape in a string", 6},
        {"{\"a\":\"\\", "an unknown escape in a string", 6},
        {"{\"a\":\"\\u12", "an unknown escape in a string", 6},
        {"{\"a\":\"\\u12g4\"}", "an unknown escape in a string", 6},
        {"{\"a\":\"\x80\"}", "a string is not UTF-8", 6},
        {"{\"a\":\"\xc0\xaf\"}", "a string is not UTF-8", 6},
        {"{\"a\":\"\xc3\"}", "a string is not UTF-8", 6},
        {"{\"a\":\"\xc3", "a string is not UTF-8", 6},
        {"{\"a\":\"\xe0\x9f\xbf\"}", "a string is not UTF-8", 6},
        {"{\"a\":\"\xed\xa0\x80\"}", "a string is not UTF-8", 6},
        {"{\"a\":\"\xe4\xb8\"}", "a string is not UTF-8", 6},
        {"{\"a\":\"\xf0\x8f\xbf\xbf\"}", "a string is not UTF-8", 6},
        {"{\"a\":\"\xf4\x90\x80\x80\"}", "a string is not UTF-8", 6},
        {"{\"a\":\"\xf5\x80\x80\x80\"}", "a string is not UTF-8", 6},
        {"{\"\xff\":1}", "a string is not UTF-8", 2},
        {"\xef\xbb\xbf{}", "an object is expected", 0},
        {"{\"a\":1}/* */", "something follows the end", 7},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct convoy_json json;
        unsigned count;
        assert_int_equal(walk(&json, rows[i].text, strlen(rows[i].text), true, &count), CONVOY_JSON_FAULT);
        if (strcmp(json.fault, rows[i].fault) != 0 || json.at - rows[i].text != rows[i].at) {
            fail_msg("row %zu: %s at %td", i, json.fault, json.at - rows[i].text);
        }
        assert_false(json.is_too_deep);
    }
}

static void test_json_list_must_be_a_list(void **state)
{
    (void)state;
    struct convoy_json json;
    unsigned count;
    assert_int_equal(walk(&json, "{}", 2, false, &count), CONVOY_JSON_FAULT);
    assert_string_equal(json.fault, "a list is expected");
}

/* 64 levels, the outermost included, of lists and objects by turns. */
static void test_json_depth_is_bounded(void **state)
{
    (void)state;
    for (unsigned levels = 62; levels <= 66; levels++) {
        char text[1024] = "[";
        size_t bytes = 1;
        struct convoy_json json;
        unsigned count;
        for (unsigned i = 1; i < levels; i++) {
            bytes += (size_t)snprintf(text + bytes, 8, i % 2 != 0 ? "{\"k\":" : "[");
        }
        bytes += (size_t)snprintf(text + bytes, 8, "1");
        for (unsigned i = levels - 1; i > 0; i--) {
            text[bytes++] = i % 2 != 0 ? '}' : ']';
        }
        text[bytes++] = ']';
        enum convoy_json_step step = walk(&json, text, bytes, false, &count);
        assert_int_equal(step, levels <= 64 ? CONVOY_JSON_END : CONVOY_JSON_FAULT);
        assert_int_equal(json.is_too_deep, levels > 64);
    }
}

static void test_json_keys_are_compared_as_texts(void **state)
{
    (void)state;
    static const struct {
        const char *one;
        const char *other;
        bool is_same;
    } rows[] = {
        {"", "", true},           {"a", "a", true},           {"a", "b", false},        {"a", "ab", false},
        {"a", "\\u0061", true},   {"\\u0061b", "a", false},   {"a", "\\u0061b", false}, {"\\/", "/", true},
        {"\\u00e9", "\xc3\xa9", true}, {"\\ud83d\\ude80", "\xf0\x9f\x9a\x80", true}, {"\\ud83d", "\\uD83D", true},
        {"\\ud83d\\u0061", "\\ud83da", true}, {"\\n", "\\u000a", true}, {"\\ud800\\ud800", "\\ud800", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(convoy_json_is_same(span_of(rows[i].one), span_of(rows[i].other)), rows[i].is_same);
    }
}

static void test_json_unescape(void **state)
{
    (void)state;
    static const char wanted[] = "\"\\/\b\f\n\r\t\0a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x9a\x80z";
    char room[] = "\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u0061\\u00E9\\u4e2d\\ud83d\\ude80z";
    size_t bytes;
    assert_true(convoy_json_unescape((struct convoy_span){room, sizeof room - 1}, room, &bytes));
    assert_int_equal(bytes, sizeof wanted - 1);
    assert_memory_equal(room, wanted, bytes);
    static const char *const halves[] = {"\\ud83d", "\\ude80", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\u0041", "\\udfff\\ud800"};
    for (size_t i = 0; i < COUNT(halves); i++) {
        assert_false(convoy_json_unescape(span_of(halves[i]), room, &bytes));
    }
}

static void test_json_integer(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_right;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"-17", true, -17},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"18446744073709551616", false, 0},
        {"99999999999999999999999", false, 0},
        {"1.0", false, 0},
        {"1e3", false, 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t value = 0;
        assert_int_equal(convoy_json_integer(span_of(rows[i].text), &value), rows[i].is_right);
        assert_int_equal(value, rows[i].value);
    }
}

/* What json.dumps gives; and back. */
static void test_json_texts_are_written_as_python_does(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *wanted;
    } rows[] = {
        {"", "\"\""},
        {"a/b \"q\" \\", "\"a/b \\\"q\\\" \\\\\""},
        {"\b\f\n\r\t\x01\x1f~\x7f", "\"\\b\\f\\n\\r\\t\\u0001\\u001f~\\u007f\""},
        {"\xc2\x80\xc3\xa9\xe2\x80\xa8\xef\xbf\xbf", "\"\\u0080\\u00e9\\u2028\\uffff\""},
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf!", "\"\\ud800\\udc00\\udbff\\udfff!\""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char room[128];
        size_t bytes;
        struct convoy_writer counted = {.out = NULL};
        struct convoy_writer writer = {.out = room};
        convoy_writer_string(&counted, span_of(rows[i].text));
        convoy_writer_string(&writer, span_of(rows[i].text));
        assert_int_equal(counted.bytes, strlen(rows[i].wanted));
        assert_int_equal(writer.bytes, counted.bytes);
        assert_memory_equal(room, rows[i].wanted, writer.bytes);
        assert_true(convoy_json_unescape((struct convoy_span){room + 1, writer.bytes - 2}, room, &bytes));
        assert_int_equal(bytes, strlen(rows[i].text));
        assert_memory_equal(room, rows[i].text, bytes);
    }
}

static void test_json_numbers_are_written(void **state)
{
    (void)state;
    char room[128];
    struct convoy_writer writer = {.out = room};
    convoy_writer_number(&writer, INT64_MIN);
    convoy_writer_text(&writer, ",");
    convoy_writer_number(&writer, 0);
    convoy_writer_text(&writer, ",");
    convoy_writer_large(&writer, UINT64_MAX);
    convoy_writer_put(&writer, "", 1);
    assert_string_equal(room, "-9223372036854775808,0,18446744073709551615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_gives_the_items_as_they_stand),
        cmocka_unit_test(test_json_accepts),
        cmocka_unit_test(test_json_refuses_with_the_place),
        cmocka_unit_test(test_json_list_must_be_a_list),
        cmocka_unit_test(test_json_depth_is_bounded),
        cmocka_unit_test(test_json_keys_are_compared_as_texts),
        cmocka_unit_test(test_json_unescape),
        cmocka_unit_test(test_json_integer),
        cmocka_unit_test(test_json_texts_are_written_as_python_does),
        cmocka_unit_test(test_json_numbers_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
