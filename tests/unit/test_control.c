/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages of staged transfer: values, forms, and every refusal of reading and writing. */
#include "wire/control.h"

#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MAGIC {CONVOY_CONTROL_MAGIC, CONVOY_CONTROL_MAGIC_BYTES}
#define PUSHED "{\"msg_type\":\"transfer_pushed\",\"request_id\":\"r\""

static struct convoy_span span_of(const char *text)
{
    return (struct convoy_span){text, strlen(text)};
}

static int32_t decode(struct convoy_span text, struct convoy_control *message, struct convoy_error *error)
{
    const struct convoy_span frames[] = {MAGIC, text};
    return convoy_control_decode(frames, 2, message, error);
}

static struct convoy_control decoded(const char *text)
{
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_control message = {.type = CONVOY_CONTROL_NONE};
    if (decode(span_of(text), &message, &error) != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
    return message;
}

static void assert_span(struct convoy_span span, const char *wanted)
{
    assert_int_equal(span.bytes, strlen(wanted));
    assert_memory_equal(span.text, wanted, span.bytes);
}

static void assert_encodes(const struct convoy_control *message, const char *wanted)
{
    struct convoy_error error = {.struct_size = sizeof error};
    char *text = NULL;
    size_t bytes = 0;
    if (convoy_control_encode(message, &text, &bytes, &error) != CONVOY_OK) {
        fail_msg("%s", error.text);
        return;
    }
    assert_string_equal(text, wanted);
    assert_int_equal(bytes, strlen(wanted));
    convoy_memory_free(text);
}

static void test_control_values_are_read(void **state)
{
    (void)state;
    struct convoy_control message =
        decoded("{\"msg_type\":\"transfer_staged\",\"request_id\":\"\\u00e9\\ud83d\\ude80\",\"data_size\":9007199254740992,"
                "\"manifest\":{\"x\":[{\"offset\":0}]},\"session_id\":\"s\",\"pool_ptr\":139637976727552,"
                "\"slot_offset\":512,\"scalar_fields\":{\"seed\":18446744073709551615, \"f\":1e400},\"convoy_wire_version\":1,"
                "\"convoy_attempt\":4294967295,\"convoy_epoch\":\"18446744073709551615\",\"convoy_edge\":\"e\","
                "\"convoy_exact_bytes\":77}");
    assert_int_equal(message.type, CONVOY_CONTROL_STAGED);
    assert_string_equal(convoy_control_name(message.type), "transfer_staged");
    assert_span(message.request_id, "\xc3\xa9\xf0\x9f\x9a\x80");
    assert_int_equal(message.data_size, CONVOY_CONTROL_INTEGER_MAX);
    assert_span(message.manifest, "{\"x\":[{\"offset\":0}]}");
    assert_span(message.session_id, "s");
    assert_int_equal(message.pool_ptr, 139637976727552);
    assert_int_equal(message.slot_offset, 512);
    assert_span(message.scalar_fields, "{\"seed\":18446744073709551615, \"f\":1e400}");
    assert_int_equal(message.wire_version, 1);
    assert_int_equal(message.attempt, UINT32_MAX);
    assert_true(message.epoch == UINT64_MAX);
    assert_span(message.edge, "e");
    assert_int_equal(message.exact_bytes, 77);
    assert_span(message.role, ""); /* not of this type */
    assert_span(message.preallocated_slots, "[]");
    convoy_control_free(&message);
    convoy_control_free(&message);
    assert_int_equal(message.type, CONVOY_CONTROL_NONE);
    assert_string_equal(convoy_control_name(message.type), "");
}

/* What decode gives is its own: the frame may be overwritten. */
static void test_control_decoded_message_outlives_its_frame(void **state)
{
    (void)state;
    char text[] = PUSHED "}";
    struct convoy_control message = decoded(text);
    memset(text, 'x', sizeof text - 1);
    assert_span(message.request_id, "r");
    convoy_control_free(&message);
}

static void test_control_done_has_two_forms(void **state)
{
    (void)state;
    struct convoy_control done = {.type = CONVOY_CONTROL_DONE, .request_id = {"r", 1}};
    assert_encodes(&done, "{\"msg_type\":\"transfer_done\",\"request_id\":\"r\",\"error\":null}");
    done.error = (struct convoy_span){"", 0};
    assert_encodes(&done, "{\"msg_type\":\"transfer_done\",\"request_id\":\"r\",\"error\":\"\"}");
    done.error = (struct convoy_span){NULL, 0};
    done.data_size = 5; /* nothing that is set is lost */
    assert_encodes(&done, "{\"msg_type\":\"transfer_done\",\"request_id\":\"r\",\"error\":null,\"data_size\":5}");
    done.staged_for_decoder = true;
    static const char staged[] = "\"staged_for_decoder\":true,\"session_id\":\"\",\"pool_ptr\":0,\"slot_offset\":0,"
                                 "\"data_size\":5,\"manifest\":{},\"scalar_fields\":{}}";
    char wanted[512];
    (void)snprintf(wanted, sizeof wanted, "{\"msg_type\":\"transfer_done\",\"request_id\":\"r\",%s", staged);
    assert_encodes(&done, wanted);
    struct convoy_control message = decoded(wanted);
    assert_true(message.staged_for_decoder);
    assert_null(message.error.text);
    convoy_control_free(&message);
    done.error = (struct convoy_span){"e", 1};
    (void)snprintf(wanted, sizeof wanted, "{\"msg_type\":\"transfer_done\",\"request_id\":\"r\",\"error\":\"e\",%s", staged);
    assert_encodes(&done, wanted);
}

static void test_control_frames_are_refused(void **state)
{
    (void)state;
    static const char text[] = PUSHED "}";
    const struct convoy_span body = {text, sizeof text - 1};
    static const char magic[] = "message: frame 0 is not the 12 bytes __transfer__";
    const struct {
        struct convoy_span frames[2];
        size_t count;
        int32_t status;
        const char *says;
    } rows[] = {
        {{MAGIC, body}, 0, CONVOY_MALFORMED, "message: 0 frames, at least 2 are needed"},
        {{MAGIC, body}, 1, CONVOY_MALFORMED, "message: 1 frames, at least 2 are needed"},
        {{{"__transfer_", 11}, body}, 2, CONVOY_MALFORMED, magic},
        {{{"__transfer__x", 13}, body}, 2, CONVOY_MALFORMED, magic},
        {{{"__Transfer__", 12}, body}, 2, CONVOY_MALFORMED, magic},
        {{{NULL, 0}, body}, 2, CONVOY_MALFORMED, magic},
        {{MAGIC, {text, CONVOY_CONTROL_BYTES_MAX + 1}}, 2, CONVOY_LIMIT,
         "message: frame 1 has 16777217 bytes, allowed are 16777216"},
        {{MAGIC, {NULL, 0}}, 2, CONVOY_MALFORMED, "message: byte 0 of the JSON: an object is expected"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        struct convoy_control message = {.type = CONVOY_CONTROL_QUERY};
        assert_int_equal(convoy_control_decode(rows[i].frames, rows[i].count, &message, &error), rows[i].status);
        assert_string_equal(error.text, rows[i].says);
        assert_int_equal(message.type, CONVOY_CONTROL_QUERY);
    }
}

#define STAGED(fields) "{\"msg_type\":\"transfer_staged\",\"request_id\":\"r\"," fields "}"

static const struct {
    const char *text;
    int32_t status;
    const char *says;
} control_refused[] = {
    {"[1]", CONVOY_MALFORMED, "message: byte 0 of the JSON: an object is expected"},
    {"{}", CONVOY_MALFORMED, "message.msg_type is missing"},
    {"{\"msg_type\":1}", CONVOY_MALFORMED, "message.msg_type is no text"},
    {"{\"msg_type\":\"transfer_hello\",\"request_id\":1}", CONVOY_UNKNOWN_MESSAGE,
     "message.msg_type is \"transfer_hello\", unknown here"},
    {"{\"msg_type\":\"\"}", CONVOY_UNKNOWN_MESSAGE, "message.msg_type is \"\", unknown here"},
    {PUSHED "} {", CONVOY_MALFORMED, "transfer_pushed: byte 48 of the JSON: something follows the end"},
    {PUSHED ",\"x\":[1}", CONVOY_MALFORMED,
     "transfer_pushed.x: byte 53 of the JSON: a comma or the end of a list or object is missing"},
    {"{\"x\":nan}", CONVOY_MALFORMED, "message.x: byte 5 of the JSON: a value is expected"},
    {STAGED("\"scalar_fields\":{\"a\":\"\xff\"}"), CONVOY_MALFORMED,
     "transfer_staged.scalar_fields: byte 69 of the JSON: a string is not UTF-8"},
    {PUSHED ",\"request_id\":\"r\"}", CONVOY_MALFORMED, "transfer_pushed.request_id is there twice"},
    {PUSHED ",\"x\":1,\"\\u0078\":1}", CONVOY_MALFORMED, "transfer_pushed.\\u0078 is there twice"},
    {"{\"msg_type\":\"transfer_pushed\",\"msg_type\":\"transfer_pushed\"}", CONVOY_MALFORMED,
     "transfer_pushed.msg_type is there twice"},
    {"{\"msg_type\":\"transfer_pushed\"}", CONVOY_MALFORMED,
     "transfer_pushed.request_id is missing or empty, allowed are 1 to 255 bytes"},
    {"{\"msg_type\":\"transfer_query\",\"request_id\":\"\"}", CONVOY_MALFORMED,
     "transfer_query.request_id is missing or empty, allowed are 1 to 255 bytes"},
    {"{\"msg_type\":\"transfer_alloc\",\"request_id\":null}", CONVOY_MALFORMED,
     "transfer_alloc.request_id is null, allowed is a text"},
    {"{\"msg_type\":\"transfer_alloc\",\"request_id\":7}", CONVOY_MALFORMED,
     "transfer_alloc.request_id is 7, allowed is a text"},
    {"{\"msg_type\":\"transfer_alloc\",\"request_id\":\"\\ud800\"}", CONVOY_MALFORMED,
     "transfer_alloc.request_id has half of a surrogate pair"},
    {STAGED("\"data_size\":-1"), CONVOY_MALFORMED,
     "transfer_staged.data_size is -1, allowed are 0 to 9007199254740992"},
    {STAGED("\"data_size\":9007199254740993"), CONVOY_MALFORMED,
     "transfer_staged.data_size is 9007199254740993, allowed are 0 to 9007199254740992"},
    {STAGED("\"data_size\":18446744073709551616"), CONVOY_MALFORMED,
     "transfer_staged.data_size is 18446744073709551616, allowed is an integer up to 2^53"},
    {STAGED("\"pool_ptr\":1.0"), CONVOY_MALFORMED, "transfer_staged.pool_ptr is 1.0, allowed is an integer up to 2^53"},
    {STAGED("\"pool_ptr\":\"1\""), CONVOY_MALFORMED,
     "transfer_staged.pool_ptr is \"1\", allowed is an integer up to 2^53"},
    {STAGED("\"pool_ptr\":true"), CONVOY_MALFORMED, "transfer_staged.pool_ptr is true, allowed is an integer up to 2^53"},
    {STAGED("\"manifest\":[]"), CONVOY_MALFORMED, "transfer_staged.manifest is [], allowed is an object"},
    {STAGED("\"manifest\":null"), CONVOY_MALFORMED, "transfer_staged.manifest is null, allowed is an object"},
    {STAGED("\"scalar_fields\":\"{}\""), CONVOY_MALFORMED,
     "transfer_staged.scalar_fields is \"{}\", allowed is an object"},
    {"{\"msg_type\":\"transfer_register\",\"preallocated_slots\":{}}", CONVOY_MALFORMED,
     "transfer_register.preallocated_slots is {}, allowed is a list"},
    {"{\"msg_type\":\"transfer_done\",\"request_id\":\"r\",\"error\":false}", CONVOY_MALFORMED,
     "transfer_done.error is false, allowed is a text or null"},
    {"{\"msg_type\":\"transfer_done\",\"request_id\":\"r\",\"staged_for_decoder\":1}", CONVOY_MALFORMED,
     "transfer_done.staged_for_decoder is 1, allowed is true or false"},
    {"{\"msg_type\":\"transfer_failed\",\"request_id\":\"r\",\"status\":-2147483649}", CONVOY_MALFORMED,
     "transfer_failed.status is -2147483649, allowed are -2147483648 to 2147483647"},
    {PUSHED ",\"convoy_wire_version\":65536}", CONVOY_MALFORMED,
     "transfer_pushed.convoy_wire_version is 65536, allowed are 0 to 65535"},
    {PUSHED ",\"convoy_epoch\":1}", CONVOY_MALFORMED,
     "transfer_pushed.convoy_epoch is 1, allowed is a text of decimal digits, up to 2^64 - 1"},
    {PUSHED ",\"convoy_epoch\":\"\"}", CONVOY_MALFORMED,
     "transfer_pushed.convoy_epoch is \"\", allowed is a text of decimal digits, up to 2^64 - 1"},
    {PUSHED ",\"convoy_epoch\":\"01\"}", CONVOY_MALFORMED,
     "transfer_pushed.convoy_epoch is \"01\", allowed is a text of decimal digits, up to 2^64 - 1"},
    {PUSHED ",\"convoy_epoch\":\"-1\"}", CONVOY_MALFORMED,
     "transfer_pushed.convoy_epoch is \"-1\", allowed is a text of decimal digits, up to 2^64 - 1"},
    {PUSHED ",\"convoy_epoch\":\"18446744073709551616\"}", CONVOY_MALFORMED,
     "transfer_pushed.convoy_epoch is \"18446744073709551616\", allowed is a text of decimal digits, up to 2^64 - 1"},
};

static void test_control_texts_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(control_refused); i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        struct convoy_control message = {.type = CONVOY_CONTROL_QUERY};
        assert_int_equal(decode(span_of(control_refused[i].text), &message, &error), control_refused[i].status);
        assert_string_equal(error.text, control_refused[i].says);
        assert_int_equal(message.type, CONVOY_CONTROL_QUERY);
    }
}

/* A message of PUSHED, something in front of `count` times a piece, and something behind it. */
static char *long_text(const char *front, const char *piece, size_t count, const char *behind)
{
    size_t piece_bytes = strlen(piece);
    char *text = malloc(strlen(PUSHED) + strlen(front) + count * piece_bytes + strlen(behind) + 1);
    assert_non_null(text);
    size_t at = (size_t)sprintf(text, PUSHED "%s", front);
    for (size_t i = 0; i < count; i++, at += piece_bytes) {
        memcpy(text + at, piece, piece_bytes);
    }
    (void)strcpy(text + at, behind);
    return text;
}

static void test_control_bounds_of_length_and_depth(void **state)
{
    (void)state;
    static const struct {
        const char *front;
        const char *piece;
        size_t allowed;
        const char *behind;
        const char *says; /* with one piece more */
    } rows[] = {
        {",\"x\":", "[", 63, "", "transfer_pushed.x: byte 114 of the JSON: lists and objects lie too deep in each other, "
                                 "allowed are 64"},
        {",\"convoy_edge\":\"", "e", 255, "\"}", "transfer_pushed.convoy_edge has 256 bytes, allowed are 255"},
        {",\"convoy_edge\":\"", "\\u00e9", 127, "\"}", "transfer_pushed.convoy_edge has 256 bytes, allowed are 255"},
        {",\"", "k", 255, "\":1}",
         "transfer_pushed.kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk...: a key of 256 bytes, "
         "allowed are 255"},
        {",\"", "\xc3\xa9", 127, "\":1}",
         "transfer_pushed.\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
         "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
         "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9...: a key of 256 bytes, allowed are 255"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (size_t more = 0; more < 2; more++) {
            struct convoy_error error = {.struct_size = sizeof error};
            struct convoy_control message = {.storage = NULL};
            char *text = long_text(rows[i].front, rows[i].piece, rows[i].allowed + more, rows[i].behind);
            int32_t status = decode(span_of(text), &message, &error);
            if (more != 0) {
                assert_int_equal(status, CONVOY_LIMIT);
                assert_string_equal(error.text, rows[i].says);
            } else {
                assert_int_not_equal(status, CONVOY_LIMIT);
            }
            convoy_control_free(&message);
            free(text);
        }
    }
}

static void test_control_number_of_keys_is_bounded(void **state)
{
    (void)state;
    char text[2048] = PUSHED;
    for (unsigned i = 2; i < CONVOY_CONTROL_KEYS_MAX; i++) {
        (void)snprintf(text + strlen(text), 16, ",\"k%u\":%u", i, i);
    }
    size_t bytes = strlen(text);
    (void)strcpy(text + bytes, "}");
    struct convoy_control message = decoded(text);
    convoy_control_free(&message);
    (void)strcpy(text + bytes, ",\"more\":1}");
    struct convoy_error error = {.struct_size = sizeof error};
    assert_int_equal(decode(span_of(text), &message, &error), CONVOY_LIMIT);
    assert_string_equal(error.text, "transfer_pushed has more than 64 keys");
}

/* A value of 1 MiB goes through, one byte more does not; both ways. */
static void test_control_size_of_a_value_is_bounded(void **state)
{
    (void)state;
    static const char front[] = "{\"msg_type\":\"transfer_ready\",\"request_id\":\"r\",\"scalar_fields\":{\"x\":\"";
    size_t room = CONVOY_CONTROL_VALUE_BYTES_MAX - strlen("{\"x\":\"\"}");
    char *text = malloc(sizeof front + room + 8);
    assert_non_null(text);
    for (size_t more = 0; more < 2; more++) {
        struct convoy_error error = {.struct_size = sizeof error};
        struct convoy_control message = {.type = CONVOY_CONTROL_READY, .request_id = {"r", 1}};
        memcpy(text, front, sizeof front - 1);
        memset(text + sizeof front - 1, 'v', room + more);
        (void)strcpy(text + sizeof front - 1 + room + more, "\"}}");
        char *out = NULL;
        size_t bytes = 0;
        message.scalar_fields = span_of(strchr(text + 10, '{'));
        message.scalar_fields.bytes--;
        assert_int_equal(convoy_control_encode(&message, &out, &bytes, &error), more == 0 ? CONVOY_OK : CONVOY_LIMIT);
        convoy_memory_free(out);
        assert_int_equal(decode(span_of(text), &message, &error), more == 0 ? CONVOY_OK : CONVOY_LIMIT);
        if (more != 0) {
            assert_string_equal(error.text, "transfer_ready.scalar_fields has 1048577 bytes, allowed are 1048576");
        } else {
            assert_int_equal(message.scalar_fields.bytes, CONVOY_CONTROL_VALUE_BYTES_MAX);
            convoy_control_free(&message);
        }
    }
    free(text);
}

static void test_control_encode_refuses(void **state)
{
    (void)state;
    char id[256];
    char deep[130];
    memset(id, 'i', sizeof id);
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    const struct {
        struct convoy_control message;
        int32_t status;
        const char *says;
    } rows[] = {
        {{.type = CONVOY_CONTROL_NONE}, CONVOY_INVALID_ARGUMENT, "message.type is 0, allowed are 1 to 14"},
        {{.type = CONVOY_CONTROL_TYPES}, CONVOY_INVALID_ARGUMENT, "message.type is 15, allowed are 1 to 14"},
        {{.type = CONVOY_CONTROL_QUERY}, CONVOY_INVALID_ARGUMENT,
         "transfer_query.request_id is missing or empty, allowed are 1 to 255 bytes"},
        {{.type = CONVOY_CONTROL_QUERY, .request_id = {id, sizeof id}}, CONVOY_LIMIT,
         "transfer_query.request_id has 256 bytes, allowed are 255"},
        {{.type = CONVOY_CONTROL_QUERY, .request_id = {"a\xff", 2}}, CONVOY_INVALID_ARGUMENT,
         "transfer_query.request_id: byte 1 is not UTF-8"},
        {{.type = CONVOY_CONTROL_DONE, .request_id = {"r", 1}, .error = {"\xc3", 1}}, CONVOY_INVALID_ARGUMENT,
         "transfer_done.error: byte 0 is not UTF-8"},
        {{.type = CONVOY_CONTROL_STAGED, .request_id = {"r", 1}, .data_size = -1}, CONVOY_INVALID_ARGUMENT,
         "transfer_staged.data_size is -1, allowed are 0 to 9007199254740992"},
        {{.type = CONVOY_CONTROL_FAILED, .request_id = {"r", 1}, .status = INT64_C(1) << 31}, CONVOY_INVALID_ARGUMENT,
         "transfer_failed.status is 2147483648, allowed are -2147483648 to 2147483647"},
        {{.type = CONVOY_CONTROL_READY, .request_id = {"r", 1}, .scalar_fields = {"{\"a\":1", 6}}, CONVOY_INVALID_ARGUMENT,
         "transfer_ready.scalar_fields: byte 6: a comma or the end of a list or object is missing"},
        {{.type = CONVOY_CONTROL_READY, .request_id = {"r", 1}, .manifest = {"[]", 2}}, CONVOY_INVALID_ARGUMENT,
         "transfer_ready.manifest: byte 0: an object is expected"},
        {{.type = CONVOY_CONTROL_READY, .request_id = {"r", 1}, .manifest = {deep, sizeof deep}}, CONVOY_LIMIT,
         "transfer_ready.manifest: byte 67: lists and objects lie too deep in each other, allowed are 64"},
        {{.type = CONVOY_CONTROL_REGISTER, .preallocated_slots = {"{}", 2}}, CONVOY_INVALID_ARGUMENT,
         "transfer_register.preallocated_slots: byte 0: a list is expected"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        char *text = NULL;
        size_t bytes = 0;
        assert_int_equal(convoy_control_encode(&rows[i].message, &text, &bytes, &error), rows[i].status);
        assert_string_equal(error.text, rows[i].says);
        assert_null(text);
    }
}

/* Each text within its bound, all of them above that of the message: each byte is escaped with six. */
static void test_control_encode_refuses_a_message_that_is_too_long(void **state)
{
    (void)state;
    struct convoy_error error = {.struct_size = sizeof error};
    char *out = NULL;
    size_t bytes = 0;
    char *text = calloc(1, CONVOY_CONTROL_VALUE_BYTES_MAX);
    assert_non_null(text);
    const struct convoy_span zeros = {text, CONVOY_CONTROL_VALUE_BYTES_MAX};
    struct convoy_control message = {
        .type = CONVOY_CONTROL_REGISTER, .role = zeros, .session_id = zeros, .work_endpoint = zeros};
    assert_int_equal(convoy_control_encode(&message, &out, &bytes, &error), CONVOY_LIMIT);
    assert_string_equal(error.text, "transfer_register: 18874496 bytes of JSON, allowed are 16777216");
    message.role.bytes = 0;
    assert_int_equal(convoy_control_encode(&message, &out, &bytes, &error), CONVOY_OK);
    convoy_memory_free(out);
    free(text);
}

#ifdef CONVOY_FAULTS
static void test_control_without_memory(void **state)
{
    (void)state;
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_control message = {.type = CONVOY_CONTROL_PUSHED, .request_id = {"r", 1}};
    char *text = NULL;
    size_t bytes = 0;
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_control_encode(&message, &text, &bytes, &error), CONVOY_NO_MEMORY);
    assert_string_equal(error.text, "transfer_pushed: no memory for 47 bytes");
    (void)convoy_memory_fail_after(0);
    assert_int_equal(decode(span_of(PUSHED "}"), &message, &error), CONVOY_NO_MEMORY);
    (void)convoy_memory_fail_after(-1);
    assert_string_equal(error.text, "message: no memory for 47 bytes");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_values_are_read),
        cmocka_unit_test(test_control_decoded_message_outlives_its_frame),
        cmocka_unit_test(test_control_done_has_two_forms),
        cmocka_unit_test(test_control_frames_are_refused),
        cmocka_unit_test(test_control_texts_are_refused),
        cmocka_unit_test(test_control_bounds_of_length_and_depth),
        cmocka_unit_test(test_control_number_of_keys_is_bounded),
        cmocka_unit_test(test_control_size_of_a_value_is_bounded),
        cmocka_unit_test(test_control_encode_refuses),
        cmocka_unit_test(test_control_encode_refuses_a_message_that_is_too_long),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_control_without_memory),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
