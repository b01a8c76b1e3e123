/* SPDX-License-Identifier: Apache-2.0 */
/* Texts on their way out and reports on their way in: room, sizes of older and newer callers, and what is refused. */
#include "plugin/report_in.h"
#include "plugin/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* One byte too few, exactly enough, and one for the zero. */
static void test_text_is_written_where_it_fits(void **state)
{
    (void)state;
    for (size_t capacity = 0; capacity <= 5; capacity++) {
        char bytes[6] = "######";
        struct convoy_error error = CONVOY_ERROR_INIT;
        struct convoy_text_buffer out = {.struct_size = sizeof out, .data = bytes, .capacity = capacity};
        bool fits = capacity >= 4;
        assert_int_equal(convoy_text_write(&out, "abcd", 4, &error), fits ? CONVOY_OK : CONVOY_BUFFER_TOO_SMALL);
        assert_int_equal(out.length, 4);
        assert_int_equal(out.written_bytes, sizeof out);
        assert_memory_equal(bytes, fits ? "abcd" : "####", 4);
        assert_int_equal(bytes[4], capacity == 5 ? '\0' : '#');
        if (!fits) {
            char words[64];
            (void)snprintf(words, sizeof words, "the text has 4 bytes, the buffer %zu", capacity);
            assert_string_equal(error.text, words);
        }
    }
}

static void test_text_without_a_buffer_says_how_long_it_is(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_text_buffer out = {.struct_size = sizeof out, .capacity = 100};
    assert_int_equal(convoy_text_write(&out, "abcd", 4, &error), CONVOY_BUFFER_TOO_SMALL);
    assert_int_equal(out.length, 4);
    assert_string_equal(error.text, "the text has 4 bytes, the buffer 0");
    assert_int_equal(convoy_text_write(NULL, "abcd", 4, &error), CONVOY_INVALID_ARGUMENT);
    out.struct_size = 8;
    assert_int_equal(convoy_text_write(&out, "abcd", 4, &error), CONVOY_TOO_OLD);
    assert_non_null(strstr(error.text, "text_buffer"));
}

static void test_text_json_is_compact_and_taken(void **state)
{
    (void)state;
    char bytes[32];
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_text_buffer out = {.struct_size = sizeof out, .data = bytes, .capacity = sizeof bytes};
    json_t *json = json_pack("{s:[i, s]}", "a", 1, "b");
    json_incref(json);
    assert_int_equal(convoy_text_write_json(&out, json, &error), CONVOY_OK);
    assert_string_equal(bytes, "{\"a\":[1,\"b\"]}");
    assert_int_equal(out.length, 13);
    assert_int_equal(json->refcount, 1);
    out.capacity = 12;
    assert_int_equal(convoy_text_write_json(&out, json, &error), CONVOY_BUFFER_TOO_SMALL);
    assert_int_equal(convoy_text_write_json(&out, NULL, &error), CONVOY_NO_MEMORY);
    assert_string_equal(error.text, "no memory for the text");
}

/* -- reports ------------------------------------------------------------------------------------------------------- */

static void test_report_in_copies_what_can_be_written(void **state)
{
    (void)state;
    struct convoy_member_report rows[2];
    struct convoy_report full;
    struct convoy_report given = {.struct_size = sizeof given, .members = rows, .member_stride = sizeof rows[0],
                                  .member_capacity = 2};
    assert_int_equal(convoy_report_in(&full, &given, NULL), CONVOY_OK);
    assert_ptr_equal(full.members, rows);
    assert_int_equal(full.member_stride, sizeof rows[0]);
    assert_int_equal(full.member_capacity, 2);
    given = (struct convoy_report){.struct_size = sizeof given}; /* rows are not wanted */
    assert_int_equal(convoy_report_in(&full, &given, NULL), CONVOY_OK);
    assert_int_equal(full.member_capacity, 0);
}

static void test_report_in_without_room_for_what_it_claims_is_refused(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_member_report rows[2];
    struct convoy_report full;
    struct convoy_report given = {.struct_size = sizeof given, .members = rows, .member_stride = 16,
                                  .member_capacity = 2};
    assert_int_equal(convoy_report_in(&full, NULL, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "report"));
    assert_int_equal(convoy_report_in(&full, &given, &error), CONVOY_TOO_OLD);
    assert_non_null(strstr(error.text, "member_report"));
    given.member_stride = sizeof rows[0];
    given.members = NULL;
    assert_int_equal(convoy_report_in(&full, &given, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "member_report"));
    given.struct_size = 8;
    assert_int_equal(convoy_report_in(&full, &given, &error), CONVOY_TOO_OLD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_written_where_it_fits),
        cmocka_unit_test(test_text_without_a_buffer_says_how_long_it_is),
        cmocka_unit_test(test_text_json_is_compact_and_taken),
        cmocka_unit_test(test_report_in_copies_what_can_be_written),
        cmocka_unit_test(test_report_in_without_room_for_what_it_claims_is_refused),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
