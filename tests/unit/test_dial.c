/* SPDX-License-Identifier: Apache-2.0 */
#include "net/dial.h"

#include "tests/unit/bootstrap_cast.h"

static void test_dial_reaches_who_listens(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = -1;
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    const struct convoy_rendezvous where = {.host = "127.0.0.1", .port = ntohs(address.sin_port)};
    const struct convoy_wait wait = {.cancel_fd = -1, .deadline_ns = convoy_now_ns() + CAST_TIMEOUT_NS};
    assert_int_equal(convoy_dial(&where, &wait, &fd, NULL), CONVOY_OK);
    assert_true(fd >= 0);
    (void)close(fd);
    (void)close(listener);
}

/* Also never itself, however often: a socket that dials a free port of its own host may be given that port. */
static void test_dial_to_a_free_port_is_refused_with_address_and_reason(void **state)
{
    (void)state;
    const struct convoy_rendezvous where = {.host = "127.0.0.1", .port = cast_free_port()};
    const struct convoy_wait wait = {.cancel_fd = -1, .deadline_ns = convoy_now_ns() + CAST_TIMEOUT_NS};
    uint32_t before = cast_count_resources();
    for (uint32_t i = 0; i < 3000; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        int fd = -1;
        assert_int_equal(convoy_dial(&where, &wait, &fd, &error), CONVOY_UNREACHABLE);
        assert_int_equal(error.sys_errno, ECONNREFUSED);
        assert_non_null(strstr(error.text, "connect to 127.0.0.1:"));
    }
    assert_true(cast_resources_are(before));
}

static void test_dial_of_an_unknown_name_says_so(void **state)
{
    (void)state;
    const struct convoy_rendezvous where = {.host = "256.256.256.256", .port = 1};
    const struct convoy_wait wait = {.cancel_fd = -1, .deadline_ns = convoy_now_ns() + CAST_TIMEOUT_NS};
    struct convoy_error error = CONVOY_ERROR_INIT;
    int fd = -1;
    assert_int_equal(convoy_dial(&where, &wait, &fd, &error), CONVOY_UNREACHABLE);
    assert_non_null(strstr(error.text, "host 256.256.256.256"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dial_reaches_who_listens),
        cmocka_unit_test(test_dial_to_a_free_port_is_refused_with_address_and_reason),
        cmocka_unit_test(test_dial_of_an_unknown_name_says_so),
    };
    return cmocka_run_group_tests_name("dial", tests, cast_warm_up, NULL);
}
