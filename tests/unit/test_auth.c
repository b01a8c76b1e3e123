/* SPDX-License-Identifier: Apache-2.0 */
#include "net/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void mac_of(const char *key, enum convoy_auth_role role, const char *one, const char *other, uint8_t *mac)
{
    const struct convoy_auth_text texts[2] = {{.bytes = one, .count = strlen(one)},
                                              {.bytes = other, .count = strlen(other)}};
    convoy_auth_mac((struct convoy_auth_text){.bytes = key, .count = strlen(key)}, role, texts, 2, mac);
}

/* Key, role, either text and where one text ends and the next begins: each changes the MAC. */
static void test_auth_mac_depends_on_all_that_goes_in(void **state)
{
    (void)state;
    uint8_t macs[7][CONVOY_AUTH_BYTES];
    mac_of("key", CONVOY_AUTH_CONNECTOR, "ab", "cd", macs[0]);
    mac_of("Key", CONVOY_AUTH_CONNECTOR, "ab", "cd", macs[1]);
    mac_of("key", CONVOY_AUTH_LISTENER, "ab", "cd", macs[2]);
    mac_of("key", CONVOY_AUTH_CONNECTOR, "aB", "cd", macs[3]);
    mac_of("key", CONVOY_AUTH_CONNECTOR, "ab", "cD", macs[4]);
    mac_of("key", CONVOY_AUTH_CONNECTOR, "abc", "d", macs[5]);
    mac_of("key", CONVOY_AUTH_CONNECTOR, "cd", "ab", macs[6]);
    for (size_t i = 0; i < 7; i++) {
        for (size_t k = 0; k < 7; k++) {
            assert_int_equal(convoy_auth_equal(macs[i], macs[k]), i == k);
        }
    }
}

/* The wire depends on this value: it must never change. Made with Python's hmac module. */
static void test_auth_mac_is_hmac_sha256_of_the_written_layout(void **state)
{
    (void)state;
    static const uint8_t expected[CONVOY_AUTH_BYTES] = {
        0x88, 0x97, 0x79, 0x4c, 0xbb, 0x4a, 0xe2, 0x13, 0xf3, 0x96, 0x64, 0xd6, 0x47, 0x49, 0xcb, 0x44,
        0x04, 0xad, 0x22, 0xff, 0x5d, 0x7e, 0xfb, 0x97, 0xab, 0xc7, 0x69, 0x1f, 0x90, 0x11, 0x64, 0xfe,
    };
    uint8_t mac[CONVOY_AUTH_BYTES];
    mac_of("key", CONVOY_AUTH_CONNECTOR, "ab", "cd", mac);
    assert_memory_equal(mac, expected, sizeof mac);
}

static void test_auth_secret_may_be_empty_or_longer_than_a_block(void **state)
{
    (void)state;
    uint8_t macs[3][CONVOY_AUTH_BYTES];
    char key[1025] = "";
    mac_of(key, CONVOY_AUTH_SESSION, "a", "b", macs[0]);
    memset(key, 'k', 1024);
    mac_of(key, CONVOY_AUTH_SESSION, "a", "b", macs[1]);
    key[1023] = 'K';
    mac_of(key, CONVOY_AUTH_SESSION, "a", "b", macs[2]);
    assert_false(convoy_auth_equal(macs[0], macs[1]));
    assert_false(convoy_auth_equal(macs[1], macs[2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auth_mac_depends_on_all_that_goes_in),
        cmocka_unit_test(test_auth_mac_is_hmac_sha256_of_the_written_layout),
        cmocka_unit_test(test_auth_secret_may_be_empty_or_longer_than_a_block),
    };
    return cmocka_run_group_tests_name("auth", tests, NULL, NULL);
}
