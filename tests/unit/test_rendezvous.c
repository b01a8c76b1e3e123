/* SPDX-License-Identifier: Apache-2.0 */
#include "net/rendezvous.h"

#include "core/error.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int32_t parse(const char *text, struct convoy_rendezvous *out, struct convoy_error *error)
{
    return convoy_rendezvous_parse(text, strlen(text), "tp", 2, out, error);
}

static void test_rendezvous_host_and_port_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *host;
        uint16_t port;
    } rows[] = {
        {"tcp://node7:4711", "node7", 4711},
        {"tcp://10.0.0.1:1", "10.0.0.1", 1},
        {"tcp://[::1]:65535", "::1", 65535},
        {"tcp://[fe80::1%eth0]:80", "fe80::1%eth0", 80},
        {"tcp://node7:4711/", "node7", 4711},
        {"tcp://node7:4711/tp", "node7", 4711},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_rendezvous out;
        struct convoy_error error = CONVOY_ERROR_INIT;
        if (parse(rows[i].text, &out, &error) != CONVOY_OK) {
            fail_msg("%s: %s", rows[i].text, error.text);
        }
        assert_string_equal(out.host, rows[i].host);
        assert_int_equal(out.port, rows[i].port);
    }
}

/* What is refused, and a word of the reason. */
static void test_rendezvous_bad_text_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"", "tcp://"},           {"node7:4711", "tcp://"},         {"udp://node7:4711", "tcp://"},
        {"tcp://", "port"},       {"tcp://node7", "port"},          {"tcp://:4711", "host is empty"},
        {"tcp://node7:", "1 to 65535"}, {"tcp://node7:0", "1 to 65535"}, {"tcp://node7:65536", "1 to 65535"},
        {"tcp://node7:123456", "1 to 65535"}, {"tcp://node7:+1", "1 to 65535"}, {"tcp://node7:1x", "1 to 65535"},
        {"tcp://[::1]", "port"},  {"tcp://[::1:80", "bracket"},     {"tcp://::1:80", "brackets"},
        {"tcp://[::1]x:80", "port"}, {"tcp://node7:4711/dp", "name of the group"},
        {"tcp://node7:4711/tp/", "name of the group"}, {"tcp:///tp", "port"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_rendezvous out;
        struct convoy_error error = CONVOY_ERROR_INIT;
        if (parse(rows[i][0], &out, &error) != CONVOY_INVALID_ARGUMENT || strstr(error.text, rows[i][1]) == NULL) {
            fail_msg("\"%s\": status %d, no \"%s\" in \"%s\"", rows[i][0], error.status, rows[i][1], error.text);
        }
    }
}

static void test_rendezvous_long_host_is_refused(void **state)
{
    (void)state;
    char text[400] = "tcp://";
    struct convoy_rendezvous out;
    memset(text + 6, 'h', 255);
    memcpy(text + 6 + 255, ":80", 4);
    assert_int_equal(parse(text, &out, NULL), CONVOY_OK);
    memset(text + 6, 'h', 256);
    memcpy(text + 6 + 256, ":80", 4);
    assert_int_equal(parse(text, &out, NULL), CONVOY_INVALID_ARGUMENT);
}

static void test_rendezvous_literal_address_is_first_then_the_wildcard(void **state)
{
    (void)state;
    struct convoy_rendezvous where;
    struct convoy_address_list list;
    char text[CONVOY_ADDRESS_TEXT_BYTES];
    assert_int_equal(parse("tcp://127.0.0.1:4711", &where, NULL), CONVOY_OK);
    convoy_rendezvous_candidates(&where, &list);
    assert_int_equal(list.count, 2);
    convoy_address_text(&list.addresses[0], text);
    assert_string_equal(text, "127.0.0.1:4711");
    assert_true(convoy_address_is_wildcard(&list.addresses[1]));
    assert_int_equal(parse("tcp://[::1]:4711", &where, NULL), CONVOY_OK);
    convoy_rendezvous_candidates(&where, &list);
    convoy_address_text(&list.addresses[0], text);
    assert_string_equal(text, "[::1]:4711");
}

/* pytorch/pytorch issues 8664, 8672: a host name that nobody resolves still gives a place to listen. */
static void test_rendezvous_unknown_name_listens_at_the_wildcard(void **state)
{
    (void)state;
    struct convoy_rendezvous where;
    struct convoy_address_list list;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(parse("tcp://256.256.256.256:4711", &where, NULL), CONVOY_OK); /* no address, and no name either */
    assert_int_equal(convoy_rendezvous_resolve(&where, &list, &error), CONVOY_UNREACHABLE);
    assert_non_null(strstr(error.text, "256.256.256.256"));
    convoy_rendezvous_candidates(&where, &list);
    assert_in_range(list.count, 1, 2);
    assert_true(convoy_address_is_wildcard(&list.addresses[0]));
}

static void test_rendezvous_addresses_compare_by_family_address_and_port(void **state)
{
    (void)state;
    union convoy_address one = {.v4 = {.sin_family = AF_INET, .sin_port = htons(1)}};
    union convoy_address other = one;
    assert_true(convoy_address_is_equal(&one, &other));
    other.v4.sin_port = htons(2);
    assert_false(convoy_address_is_equal(&one, &other));
    other = one;
    other.v4.sin_addr.s_addr = 1;
    assert_false(convoy_address_is_equal(&one, &other));
    other = (union convoy_address){.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(1)}};
    assert_false(convoy_address_is_equal(&one, &other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rendezvous_host_and_port_are_read),
        cmocka_unit_test(test_rendezvous_bad_text_is_refused_with_the_reason),
        cmocka_unit_test(test_rendezvous_long_host_is_refused),
        cmocka_unit_test(test_rendezvous_literal_address_is_first_then_the_wildcard),
        cmocka_unit_test(test_rendezvous_unknown_name_listens_at_the_wildcard),
        cmocka_unit_test(test_rendezvous_addresses_compare_by_family_address_and_port),
    };
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
