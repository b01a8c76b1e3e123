/* SPDX-License-Identifier: Apache-2.0 */
/* What engines tell each other, as bytes: session ids, introductions, notices, and what is remembered of offers. */
#include "core/error.h"
#include "xfer/introduce.h"
#include "xfer/notice.h"
#include "xfer/session.h"
#include "xfer/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* -- session ids -- */

static void test_xfer_wire_session_ids_come_back_as_they_were(void **state)
{
    (void)state;
    static const char *const texts[] = {"127.0.0.1:1+0000000000000001", "[::1]:65535+ffffffffffffffff",
                                        "some-host.example:4000+00c0ffee00c0ffee"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct convoy_session session;
        char again[CONVOY_SESSION_BYTES];
        assert_int_equal(convoy_session_parse(texts[i], strlen(texts[i]), &session, NULL), CONVOY_OK);
        assert_true(convoy_session_format(&session, again));
        assert_string_equal(again, texts[i]);
    }
}

static void test_xfer_wire_what_is_no_session_id_is_refused_with_a_reason(void **state)
{
    (void)state;
    static const char *const texts[] = {"",  "host", "host:0+0000000000000001", "host:1+", "host:1+1",
                                        "host:1+0000000000000000", "host:1+000000000000000G", "host:99999+0000000000000001"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        struct convoy_session session;
        assert_int_equal(convoy_session_parse(texts[i], strlen(texts[i]), &session, &error), CONVOY_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "session"));
    }
    struct convoy_session plain;
    assert_int_equal(convoy_session_parse("host:7", 6, &plain, NULL), CONVOY_OK);
    assert_int_equal(plain.incarnation, 0);
    assert_int_equal(convoy_session_parse("a\0b:1", 5, &plain, NULL), CONVOY_INVALID_ARGUMENT);
}

/* -- introductions -- */

static void fill_introduction(struct convoy_introduction *introduction)
{
    memset(introduction, 0, sizeof *introduction);
    introduction->flags = CONVOY_INTRODUCE_PRIVATE;
    introduction->asked = 11;
    introduction->incarnation = 12;
    introduction->pool_bytes = 13;
    introduction->context = 14;
    introduction->pool_address = 22;
    introduction->token_address = 23;
    introduction->keys.flags = 15;
    memset(introduction->keys.boot, 16, sizeof introduction->keys.boot);
    introduction->keys.network[1] = 17;
    introduction->keys.directory[0] = 18;
    memset(introduction->token, 19, sizeof introduction->token);
    memset(introduction->socket, 20, sizeof introduction->socket);
    memset(introduction->nonce, 21, sizeof introduction->nonce);
    strcpy(introduction->session, "h:1+000000000000000c");
}

/* ai-dynamo/nixl issue 1159: cut anywhere it is malformed. kvcache-ai/Mooncake issue 2177: another version is not, and both
 * are named. */
static void test_xfer_wire_introduction_comes_back_and_truncated_is_refused(void **state)
{
    (void)state;
    struct convoy_introduction written;
    struct convoy_introduction read;
    uint8_t bytes[CONVOY_INTRODUCE_BYTES];
    fill_introduction(&written);
    convoy_introduction_encode(&written, bytes);
    memset(&read, 0, sizeof read);
    assert_int_equal(convoy_introduction_decode(bytes, sizeof bytes, &read, NULL), CONVOY_OK);
    assert_memory_equal(&read, &written, sizeof read);
    for (size_t length = 0; length < sizeof bytes; length++) {
        assert_int_equal(convoy_introduction_decode(bytes, length, &read, NULL), CONVOY_MALFORMED);
    }
    bytes[0] = 1;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_introduction_decode(bytes, sizeof bytes, &read, &error), CONVOY_VERSION_MISMATCH);
    assert_non_null(strstr(error.text, "1 there, 2 here"));
}

static void test_xfer_wire_introduction_without_name_or_number_is_refused(void **state)
{
    (void)state;
    struct convoy_introduction written;
    struct convoy_introduction read;
    uint8_t bytes[CONVOY_INTRODUCE_BYTES];
    fill_introduction(&written);
    written.incarnation = 0;
    convoy_introduction_encode(&written, bytes);
    assert_int_equal(convoy_introduction_decode(bytes, sizeof bytes, &read, NULL), CONVOY_MALFORMED);
    fill_introduction(&written);
    memset(written.session, 'x', sizeof written.session);
    convoy_introduction_encode(&written, bytes);
    assert_int_equal(convoy_introduction_decode(bytes, sizeof bytes, &read, NULL), CONVOY_MALFORMED);
    strcpy(written.session, "line\nbreak");
    convoy_introduction_encode(&written, bytes);
    assert_int_equal(convoy_introduction_decode(bytes, sizeof bytes, &read, NULL), CONVOY_MALFORMED);
}

/* -- notices -- */

static void test_xfer_wire_notices_of_each_type_come_back_and_no_others(void **state)
{
    (void)state;
    for (uint32_t type = CONVOY_SAY_OFFER; type < CONVOY_SAY_TYPES; type++) {
        struct convoy_xfer_notice written = {.type = (enum convoy_say)type};
        struct convoy_xfer_notice read;
        struct convoy_ring_entry entry;
        memset(&written.body, (int)type, sizeof written.body);
        convoy_xfer_notice_pack(&written, &entry);
        assert_true(convoy_xfer_notice_unpack(&entry, &read));
        assert_int_equal(read.type, type);
        assert_memory_equal(&read.body, &written.body, entry.length);
        entry.length++;
        assert_false(convoy_xfer_notice_unpack(&entry, &read));
        assert_string_not_equal(convoy_xfer_notice_name((enum convoy_say)type), "UNKNOWN");
    }
    struct convoy_ring_entry none = {.type = CONVOY_SAY_TYPES};
    struct convoy_xfer_notice read;
    assert_false(convoy_xfer_notice_unpack(&none, &read));
    none.type = CONVOY_SAY_NONE;
    assert_false(convoy_xfer_notice_unpack(&none, &read));
    assert_string_equal(convoy_xfer_notice_name(CONVOY_SAY_TYPES), "UNKNOWN");
}

/* -- the window -- */

static void test_xfer_wire_window_knows_what_came_before_and_how_it_ended(void **state)
{
    (void)state;
    static struct convoy_window window;
    int32_t status = 0;
    assert_int_equal(convoy_window_see(&window, 0, &status), CONVOY_WINDOW_OLD);
    assert_int_equal(convoy_window_see(&window, 1, &status), CONVOY_WINDOW_NEW);
    assert_int_equal(convoy_window_see(&window, 1, &status), CONVOY_WINDOW_LIVE);
    convoy_window_end(&window, 1, CONVOY_TIMED_OUT);
    assert_int_equal(convoy_window_see(&window, 1, &status), CONVOY_WINDOW_ENDED);
    assert_int_equal(status, CONVOY_TIMED_OUT);
    assert_int_equal(convoy_window_see(&window, 3, &status), CONVOY_WINDOW_NEW); /* 2 is late, and new when it comes */
    assert_int_equal(convoy_window_see(&window, 2, &status), CONVOY_WINDOW_NEW);
    convoy_window_end(&window, 4, CONVOY_OK); /* never seen: nothing */
    assert_int_equal(convoy_window_see(&window, 4, &status), CONVOY_WINDOW_NEW);
    assert_int_equal(convoy_window_see(&window, 1 + CONVOY_WINDOW_OFFERS, &status), CONVOY_WINDOW_NEW);
    assert_int_equal(convoy_window_see(&window, 1, &status), CONVOY_WINDOW_OLD);
    assert_int_equal(window.highest, 1 + CONVOY_WINDOW_OFFERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xfer_wire_session_ids_come_back_as_they_were),
        cmocka_unit_test(test_xfer_wire_what_is_no_session_id_is_refused_with_a_reason),
        cmocka_unit_test(test_xfer_wire_introduction_comes_back_and_truncated_is_refused),
        cmocka_unit_test(test_xfer_wire_introduction_without_name_or_number_is_refused),
        cmocka_unit_test(test_xfer_wire_notices_of_each_type_come_back_and_no_others),
        cmocka_unit_test(test_xfer_wire_window_knows_what_came_before_and_how_it_ended),
    };
    return cmocka_run_group_tests_name("xfer_wire", tests, NULL, NULL);
}
