/* SPDX-License-Identifier: Apache-2.0 */
#include "net/lanes.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct convoy_interface_address address_of(const char *text, uint8_t prefix)
{
    struct convoy_interface_address address = {.family = strchr(text, ':') != NULL ? 6 : 4, .prefix = prefix};
    assert_int_equal(inet_pton(address.family == 4 ? AF_INET : AF_INET6, text, address.bytes), 1);
    return address;
}

static void add_lane(struct convoy_lane_set *set, const char *name, enum convoy_interface_kind kind, const char *text,
                     uint8_t prefix)
{
    struct convoy_lane *lane = &set->lanes[set->count++];
    (void)snprintf(lane->name, sizeof lane->name, "%s", name);
    lane->kind = kind;
    lane->address = address_of(text, prefix);
    lane->worker_address = "worker address";
    lane->worker_address_bytes = 14;
}

/* The kernel of a host whose interfaces are those of `here`: connected subnets, and a default route by its first. */
static const struct convoy_lane_set *here;

static bool fake_route(const struct convoy_interface_address *to, struct convoy_interface_address *from_out)
{
    for (uint32_t i = 0; i < here->count; i++) {
        if (convoy_interface_address_near(&here->lanes[i].address, to)) {
            *from_out = here->lanes[i].address;
            return true;
        }
    }
    *from_out = here->lanes[0].address;
    return here->lanes[0].kind == CONVOY_INTERFACE_PLAIN && to->family == here->lanes[0].address.family;
}

static bool choose(const struct convoy_lane_set *mine, const struct convoy_lane_set *theirs,
                   struct convoy_lane_pair *pair)
{
    here = mine;
    return convoy_lane_set_choose(mine, theirs, fake_route, pair);
}

/* -- bytes --------------------------------------------------------------------------------------------------------- */

static void test_lanes_decode_gives_back_what_was_encoded(void **state)
{
    (void)state;
    struct convoy_lane_set set = {.network = 0x1122334455667788u};
    struct convoy_lane_set back;
    uint8_t bytes[512];
    add_lane(&set, "eth0", CONVOY_INTERFACE_PLAIN, "192.0.2.2", 24);
    add_lane(&set, "br0", CONVOY_INTERFACE_INNER, "2001:db8::1", 64);
    set.lanes[1].has_fabric = true;
    size_t length = convoy_lane_set_bytes(&set);
    convoy_lane_set_encode(&set, bytes);
    assert_true(convoy_lane_set_decode(bytes, length, &back));
    assert_int_equal(back.count, 2);
    assert_true(back.network == set.network);
    assert_string_equal(back.lanes[1].name, "br0");
    assert_true(back.lanes[1].has_fabric && !back.lanes[0].has_fabric);
    assert_true(convoy_interface_address_equal(&back.lanes[1].address, &set.lanes[1].address));
    assert_memory_equal(back.lanes[1].worker_address, "worker address", 14);
}

/* Every cut, every longer one, and every single changed byte: refused or harmless, never read past the end (asan). */
static void test_lanes_decode_survives_cut_and_changed_bytes(void **state)
{
    (void)state;
    struct convoy_lane_set set = {0};
    struct convoy_lane_set back;
    add_lane(&set, "eth0", CONVOY_INTERFACE_PLAIN, "192.0.2.2", 24);
    add_lane(&set, "eth1", CONVOY_INTERFACE_PLAIN, "192.0.3.2", 24);
    size_t length = convoy_lane_set_bytes(&set);
    uint8_t *bytes = malloc(length);
    convoy_lane_set_encode(&set, bytes);
    for (size_t cut = 0; cut < length; cut++) {
        uint8_t *part = malloc(cut + 1);
        memcpy(part, bytes, cut);
        assert_false(convoy_lane_set_decode(part, cut, &back));
        free(part);
    }
    for (size_t at = 0; at < length; at++) {
        for (unsigned value = 0; value < 256; value++) {
            uint8_t old = bytes[at];
            bytes[at] = (uint8_t)value;
            if (convoy_lane_set_decode(bytes, length, &back)) {
                assert_true(back.count <= CONVOY_LANES_MAX && strlen(back.lanes[0].name) < CONVOY_INTERFACE_NAME_BYTES);
            }
            bytes[at] = old;
        }
    }
    free(bytes);
}

/* -- choice -------------------------------------------------------------------------------------------------------- */

/* openucx/ucx 7599, 6695, 9383 */
static void test_lanes_equal_bridge_addresses_on_two_hosts_are_passed_over(void **state)
{
    (void)state;
    struct convoy_lane_set mine = {.network = 1};
    struct convoy_lane_set theirs = {.network = 2};
    struct convoy_lane_pair pair;
    add_lane(&mine, "docker0", CONVOY_INTERFACE_PLAIN, "172.17.0.1", 16);
    add_lane(&mine, "eth0", CONVOY_INTERFACE_PLAIN, "10.0.0.1", 24);
    add_lane(&theirs, "docker0", CONVOY_INTERFACE_PLAIN, "172.17.0.1", 16);
    add_lane(&theirs, "eth1", CONVOY_INTERFACE_PLAIN, "10.0.0.2", 24);
    assert_true(choose(&mine, &theirs, &pair));
    assert_int_equal(pair.mine, 1);
    assert_int_equal(pair.theirs, 1);
}

static void test_lanes_only_equal_addresses_on_two_hosts_reach_nothing(void **state)
{
    (void)state;
    struct convoy_lane_set mine = {.network = 1};
    struct convoy_lane_set theirs = {.network = 2};
    struct convoy_lane_pair pair;
    add_lane(&mine, "docker0", CONVOY_INTERFACE_INNER, "172.17.0.1", 16);
    add_lane(&theirs, "docker0", CONVOY_INTERFACE_INNER, "172.17.0.1", 16);
    assert_false(choose(&mine, &theirs, &pair));
    theirs.network = 1; /* one namespace: the same interface */
    assert_true(choose(&mine, &theirs, &pair));
}

static void test_lanes_loopback_reaches_only_inside_one_namespace(void **state)
{
    (void)state;
    struct convoy_lane_set mine = {.network = 1};
    struct convoy_lane_set theirs = {.network = 2};
    struct convoy_lane_pair pair;
    add_lane(&mine, "lo", CONVOY_INTERFACE_LOOPBACK, "127.0.0.1", 8);
    add_lane(&theirs, "lo", CONVOY_INTERFACE_LOOPBACK, "127.0.0.2", 8);
    assert_false(choose(&mine, &theirs, &pair));
    theirs.network = 1;
    assert_true(choose(&mine, &theirs, &pair));
}

static void test_lanes_plain_interface_goes_before_a_bridge_in_one_subnet(void **state)
{
    (void)state;
    struct convoy_lane_set mine = {.network = 1};
    struct convoy_lane_set theirs = {.network = 2};
    struct convoy_lane_pair pair;
    add_lane(&mine, "eth0", CONVOY_INTERFACE_PLAIN, "10.0.0.1", 24);
    add_lane(&mine, "br0", CONVOY_INTERFACE_INNER, "172.18.0.1", 16);
    add_lane(&theirs, "br0", CONVOY_INTERFACE_INNER, "172.18.0.2", 16);
    add_lane(&theirs, "eth0", CONVOY_INTERFACE_PLAIN, "10.9.0.1", 24); /* routed */
    assert_true(choose(&mine, &theirs, &pair));
    assert_int_equal(pair.mine, 0);
    assert_int_equal(pair.theirs, 1);
}

static void test_lanes_other_family_does_not_reach(void **state)
{
    (void)state;
    struct convoy_lane_set mine = {.network = 1};
    struct convoy_lane_set theirs = {.network = 2};
    struct convoy_lane_pair pair;
    add_lane(&mine, "eth0", CONVOY_INTERFACE_PLAIN, "10.0.0.1", 24);
    add_lane(&theirs, "eth0", CONVOY_INTERFACE_PLAIN, "2001:db8::1", 64);
    assert_false(choose(&mine, &theirs, &pair));
    mine.lanes[0].has_fabric = true;
    theirs.lanes[0].has_fabric = true; /* whether those reach, UCX knows */
    assert_true(choose(&mine, &theirs, &pair));
}

static void test_lanes_subnet_is_by_the_longer_prefix(void **state)
{
    (void)state;
    struct convoy_interface_address a = address_of("10.0.1.1", 8);
    struct convoy_interface_address b = address_of("10.0.2.1", 24);
    struct convoy_interface_address c = address_of("10.0.1.200", 24);
    assert_false(convoy_interface_address_near(&a, &b));
    assert_true(convoy_interface_address_near(&a, &c));
    c.prefix = 200; /* nonsense from the wire */
    assert_false(convoy_interface_address_near(&a, &c));
}

static void test_lanes_text_is_cut_not_overrun(void **state)
{
    (void)state;
    struct convoy_lane_set set = {0};
    char text[24];
    char tiny[4];
    add_lane(&set, "eth0", CONVOY_INTERFACE_PLAIN, "10.0.0.1", 24);
    add_lane(&set, "lo", CONVOY_INTERFACE_LOOPBACK, "127.0.0.1", 8);
    convoy_lane_set_text(&set, text, sizeof text);
    assert_string_equal(text, "eth0 10.0.0.1, lo 127.0");
    convoy_lane_set_text(&set, tiny, sizeof tiny);
    assert_string_equal(tiny, "eth");
}

/* The interfaces of this machine: loopback is known as such, and the kernel's route to it starts there. */
static void test_interfaces_loopback_is_known_and_routed(void **state)
{
    (void)state;
    struct convoy_interface all[32];
    struct convoy_interface_address from;
    struct convoy_interface_address loopback = address_of("127.0.0.1", 8);
    uint32_t count = convoy_interfaces_list(all, 32);
    bool is_found = false;
    for (uint32_t i = 0; i < count; i++) {
        is_found |= strcmp(all[i].name, "lo") == 0 && all[i].kind == CONVOY_INTERFACE_LOOPBACK &&
                    all[i].address.prefix == 8;
    }
    assert_true(is_found);
    assert_true(convoy_interfaces_route(&loopback, &from));
    assert_true(convoy_interface_address_equal(&from, &loopback));
    assert_true(convoy_interfaces_network() == convoy_interfaces_network());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lanes_decode_gives_back_what_was_encoded),
        cmocka_unit_test(test_lanes_decode_survives_cut_and_changed_bytes),
        cmocka_unit_test(test_lanes_equal_bridge_addresses_on_two_hosts_are_passed_over),
        cmocka_unit_test(test_lanes_only_equal_addresses_on_two_hosts_reach_nothing),
        cmocka_unit_test(test_lanes_loopback_reaches_only_inside_one_namespace),
        cmocka_unit_test(test_lanes_plain_interface_goes_before_a_bridge_in_one_subnet),
        cmocka_unit_test(test_lanes_other_family_does_not_reach),
        cmocka_unit_test(test_lanes_subnet_is_by_the_longer_prefix),
        cmocka_unit_test(test_lanes_text_is_cut_not_overrun),
        cmocka_unit_test(test_interfaces_loopback_is_known_and_routed),
    };
    return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}
