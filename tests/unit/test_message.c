/* SPDX-License-Identifier: Apache-2.0 */
#include "net/message.h"

#include "core/bytes.h"
#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_message_notice_carries_the_whole_error(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_error back = CONVOY_ERROR_INIT;
    struct convoy_notice notice;
    uint8_t bytes[CONVOY_NOTICE_BYTES_MAX];
    (void)convoy_error_set_peer(&error, CONVOY_STALE_EPOCH, 13, 0, "member 13 is at epoch 6");
    error.sys_errno = 98;
    convoy_notice_from_error(&notice, &error, CONVOY_NOTICE_RETRY);
    size_t count = convoy_notice_encode(&notice, bytes);
    memset(&notice, 0, sizeof notice);
    assert_true(convoy_notice_decode(bytes, count, &notice));
    assert_int_equal(notice.flags, CONVOY_NOTICE_RETRY);
    assert_int_equal(convoy_notice_to_error(&notice, &back), CONVOY_STALE_EPOCH);
    assert_int_equal(back.rank, 13);
    assert_int_equal(back.sys_errno, 98);
    assert_string_equal(back.text, error.text);
}

static void test_message_notice_with_the_longest_text_fits(void **state)
{
    (void)state;
    struct convoy_notice notice = {.status = CONVOY_LIMIT};
    struct convoy_notice back;
    uint8_t bytes[CONVOY_NOTICE_BYTES_MAX];
    memset(notice.text, 'x', sizeof notice.text - 1);
    assert_int_equal(convoy_notice_encode(&notice, bytes), CONVOY_NOTICE_BYTES_MAX);
    assert_true(convoy_notice_decode(bytes, sizeof bytes, &back));
    assert_string_equal(back.text, notice.text);
}

static void test_message_text_of_another_process_is_cut_and_made_printable(void **state)
{
    (void)state;
    char text[8];
    memset(text, 'x', sizeof text);
    convoy_message_text("a\x1b\xc3\xa4~\x7f", 6, text, sizeof text);
    assert_string_equal(text, "a???~?");
    convoy_message_text("0123456789", 10, text, sizeof text);
    assert_string_equal(text, "0123456");
    convoy_message_text(NULL, 0, text, sizeof text);
    assert_string_equal(text, "");
}

/* Too short, too long, or no error at all; and its text cannot bring control bytes into a log. */
static void test_message_bad_notice_is_refused_and_its_text_cleaned(void **state)
{
    (void)state;
    struct convoy_notice notice = {.status = CONVOY_LIMIT, .text = "a\x1b[2Jb\nc\x7f"};
    struct convoy_notice back;
    uint8_t bytes[CONVOY_NOTICE_BYTES_MAX + 1];
    size_t count = convoy_notice_encode(&notice, bytes);
    assert_true(convoy_notice_decode(bytes, count, &back));
    assert_string_equal(back.text, "a?[2Jb?c?");
    for (size_t cut = 0; cut < CONVOY_NOTICE_HEAD_BYTES; cut++) {
        assert_false(convoy_notice_decode(bytes, cut, &back));
    }
    assert_false(convoy_notice_decode(bytes, sizeof bytes, &back));
    convoy_bytes_put_u32(bytes, CONVOY_OK);
    assert_false(convoy_notice_decode(bytes, count, &back));
    convoy_bytes_put_u32(bytes, CONVOY_IN_PROGRESS);
    assert_false(convoy_notice_decode(bytes, count, &back));
}

/* A caller compiled with a shorter error gets no byte past it. */
static void test_message_notice_respects_the_size_of_the_error(void **state)
{
    (void)state;
    const struct convoy_notice notice = {.status = CONVOY_LIMIT, .rank = 1, .sys_errno = 2, .text = "text"};
    struct convoy_error error;
    memset(&error, 0x5a, sizeof error);
    error.struct_size = 16;
    assert_int_equal(convoy_notice_to_error(&notice, &error), CONVOY_LIMIT);
    assert_int_equal(error.sys_errno, 0x5a5a5a5a);
    assert_int_equal(convoy_notice_to_error(&notice, NULL), CONVOY_LIMIT);
}

static void test_message_welcome_is_exact_and_needs_an_epoch(void **state)
{
    (void)state;
    struct convoy_welcome welcome = {.epoch = 7, .wire = 2, .salt = {1, [31] = 9}};
    struct convoy_welcome back;
    uint8_t bytes[CONVOY_WELCOME_BYTES + 1] = {0};
    convoy_welcome_encode(&welcome, bytes);
    assert_true(convoy_welcome_decode(bytes, CONVOY_WELCOME_BYTES, &back));
    assert_memory_equal(&back.salt, &welcome.salt, 32);
    assert_int_equal(back.epoch, 7);
    assert_int_equal(back.wire, 2);
    assert_false(convoy_welcome_decode(bytes, CONVOY_WELCOME_BYTES - 1, &back));
    assert_false(convoy_welcome_decode(bytes, CONVOY_WELCOME_BYTES + 1, &back));
    memset(bytes, 0, 8);
    assert_false(convoy_welcome_decode(bytes, CONVOY_WELCOME_BYTES, &back));
}

static void test_message_table_gives_the_blobs_back(void **state)
{
    (void)state;
    const struct convoy_blob blobs[3] = {
        {.data = (const uint8_t *)"abc", .bytes = 3},
        {.data = NULL, .bytes = 0},
        {.data = (const uint8_t *)"d", .bytes = 1},
    };
    struct convoy_blob back[3];
    uint8_t bytes[64];
    size_t count = convoy_table_bytes(blobs, 3);
    assert_int_equal(count, 4 + 3 * 4 + 4);
    convoy_table_encode(blobs, 3, 8, bytes);
    assert_true(convoy_table_decode(bytes, count, 8, back, 3));
    assert_memory_equal(back[0].data, "abc", 3);
    assert_int_equal(back[1].bytes, 0);
    assert_memory_equal(back[2].data, "d", 1);
    assert_false(convoy_table_decode(bytes, count, 9, back, 3));
    assert_false(convoy_table_decode(bytes, count, 8, back, 2));
    assert_false(convoy_table_decode(bytes, count, 8, back, 4));
    assert_false(convoy_table_decode(bytes, count + 1, 8, back, 3));
}

static void test_message_table_cut_or_lying_is_refused(void **state)
{
    (void)state;
    const struct convoy_blob blobs[2] = {{.data = (const uint8_t *)"abc", .bytes = 3},
                                         {.data = (const uint8_t *)"de", .bytes = 2}};
    struct convoy_blob back[2];
    uint8_t bytes[64];
    size_t count = convoy_table_bytes(blobs, 2);
    convoy_table_encode(blobs, 2, 1, bytes);
    for (size_t cut = 0; cut < count; cut++) {
        uint8_t *exact = malloc(cut != 0 ? cut : 1);
        assert_non_null(exact);
        memcpy(exact, bytes, cut);
        assert_false(convoy_table_decode(exact, cut, 1, back, 2));
        free(exact);
    }
    static const uint32_t lies[] = {4, 6, CONVOY_BOOTSTRAP_BLOB_MAX + 1, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        convoy_bytes_put_u32(bytes + 4, lies[i]);
        assert_false(convoy_table_decode(bytes, count, 1, back, 2));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_notice_carries_the_whole_error),
        cmocka_unit_test(test_message_notice_with_the_longest_text_fits),
        cmocka_unit_test(test_message_text_of_another_process_is_cut_and_made_printable),
        cmocka_unit_test(test_message_bad_notice_is_refused_and_its_text_cleaned),
        cmocka_unit_test(test_message_notice_respects_the_size_of_the_error),
        cmocka_unit_test(test_message_welcome_is_exact_and_needs_an_epoch),
        cmocka_unit_test(test_message_table_gives_the_blobs_back),
        cmocka_unit_test(test_message_table_cut_or_lying_is_refused),
    };
    return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
