/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between leaders that nobody should have sent, and messages that cannot be sent. Members 0; 1, 2; 3 are on
 * three hosts, and member 0 hears them. */
#include "tests/lib/expect.h"
#include "tests/lib/fake_hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const uint32_t host_of[] = {0, 1, 1, 2};

enum counter { DROPPED_NONE, DROPPED_BAD, DROPPED_TOKEN, DROPPED_STALE, DROPPED_REPEAT };

static struct convoy_remote *wire_remote(struct fake_hosts *hosts)
{
    return hosts->members[0].engine->remote;
}

static void wire_expect(struct fake_hosts *hosts, enum counter counter, uint64_t count)
{
    const struct convoy_remote *remote = wire_remote(hosts);
    EXPECT_EQUAL(remote->dropped_bad, counter == DROPPED_BAD ? count : 0);
    EXPECT_EQUAL(remote->dropped_token, counter == DROPPED_TOKEN ? count : 0);
    EXPECT_EQUAL(remote->dropped_stale, counter == DROPPED_STALE ? count : 0);
    EXPECT_EQUAL(remote->dropped_repeat, counter == DROPPED_REPEAT ? count : 0);
}

static void wire_recv(struct fake_hosts *hosts, uint32_t kind, uint32_t member, uint64_t word, const void *data,
                      size_t bytes)
{
    const struct convoy_message message = {.kind = kind, .member = member, .word = word, .length = (uint32_t)bytes,
                                           .leads = 1};
    convoy_remote_recv(wire_remote(hosts), &message, sizeof message, data, bytes);
}

/* What is wrong with a message that is otherwise one of member 1's. */
struct bad_message {
    uint32_t kind;
    uint32_t member;
    size_t header_bytes;
    uint32_t length;
    size_t bytes;
    uint8_t token;
    enum counter counter;
};

#define REWIRE_BYTES ((uint32_t)sizeof(struct convoy_rewire_body))
#define HEADER_BYTES sizeof(struct convoy_message)
#define ROW_BYTES ((uint32_t)sizeof(struct convoy_partial_row))

static void test_remote_wire_bad_messages_are_dropped_and_counted(void **state)
{
    (void)state;
    static const struct bad_message messages[] = {
        {CONVOY_MESSAGE_ASK, 1, HEADER_BYTES - 1, 0, 0, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_ASK, 1, HEADER_BYTES + 1, 0, 0, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_ASK, 1, HEADER_BYTES, 0, 0, 1, DROPPED_TOKEN},
        {CONVOY_MESSAGE_ASK, 4, HEADER_BYTES, 0, 0, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_ASK, UINT32_MAX, HEADER_BYTES, 0, 0, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_PARTIAL, 1, HEADER_BYTES, 8, 16, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_PARTIAL, 1, HEADER_BYTES, 32768, 32768, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_PARTIAL, 1, HEADER_BYTES, 3, 3, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_ROWS, 1, HEADER_BYTES, ROW_BYTES - 1, ROW_BYTES - 1, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_ROWS, 1, HEADER_BYTES, 5 * ROW_BYTES, 5 * ROW_BYTES, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_ROWS, 1, HEADER_BYTES, ROW_BYTES, ROW_BYTES, 0, DROPPED_BAD}, /* of member 0: not its host's */
        {CONVOY_MESSAGE_STATUS, 1, HEADER_BYTES, ROW_BYTES, ROW_BYTES, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_PARTIAL, 0, HEADER_BYTES, 64, 64, 0, DROPPED_BAD}, /* of the own host */
        {CONVOY_MESSAGE_ROWS, 0, HEADER_BYTES, ROW_BYTES, ROW_BYTES, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_REWIRED, 1, HEADER_BYTES, REWIRE_BYTES, REWIRE_BYTES, 0, DROPPED_BAD}, /* without an address */
        {CONVOY_MESSAGE_REWIRED, 0, HEADER_BYTES, REWIRE_BYTES + 4, REWIRE_BYTES + 4, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_REWIRED, 1, HEADER_BYTES, 4097, 4097, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_REWIRED, 1, HEADER_BYTES, REWIRE_BYTES + 4, REWIRE_BYTES + 4, 0, DROPPED_NONE}, /* known */
        {CONVOY_MESSAGE_REWIRED_ACK, 1, HEADER_BYTES, REWIRE_BYTES - 1, REWIRE_BYTES - 1, 0, DROPPED_BAD},
        {CONVOY_MESSAGE_REWIRED_ACK, 1, HEADER_BYTES, REWIRE_BYTES, REWIRE_BYTES, 0, DROPPED_REPEAT}, /* not asked for */
        {0, 1, HEADER_BYTES, 0, 0, 0, DROPPED_BAD},
        {99, 1, HEADER_BYTES, 0, 0, 0, DROPPED_BAD},
    };
    static uint8_t data[32768];
    for (uint32_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        struct fake_hosts *hosts = fake_hosts_create(host_of, 4);
        const struct bad_message *bad = &messages[i];
        struct convoy_message message[2] = {{.kind = bad->kind, .member = bad->member, .length = bad->length}};
        message[0].token[CONVOY_TOKEN_BYTES - 1] = bad->token;
        convoy_remote_recv(wire_remote(hosts), message, bad->header_bytes, data, bad->bytes);
        wire_expect(hosts, bad->counter, 1);
        EXPECT_EQUAL(convoy_engine_counters(hosts->members[0].engine)->strange, bad->counter == DROPPED_TOKEN);
        fake_hosts_expect_round(hosts, 1); /* and do no harm */
        fake_hosts_destroy(hosts);
    }
}

/* Rows about members that are not there, or on another host. */
static void test_remote_wire_rows_are_of_the_senders_host(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 4);
    struct convoy_partial_row rows[2] = {{.member = 1}, {.member = 3}};
    uint64_t word = convoy_word(1, 1);
    wire_recv(hosts, CONVOY_MESSAGE_ROWS, 1, word, rows, sizeof rows);
    wire_expect(hosts, DROPPED_BAD, 1);
    rows[1].member = 4;
    wire_recv(hosts, CONVOY_MESSAGE_ROWS, 1, word, rows, sizeof rows);
    wire_expect(hosts, DROPPED_BAD, 2);
    EXPECT(wire_remote(hosts)->hosts[1].rows[1].word != word);
    rows[1].member = 2;
    wire_recv(hosts, CONVOY_MESSAGE_ROWS, 1, word, rows, sizeof rows);
    wire_expect(hosts, DROPPED_BAD, 2);
    EXPECT(wire_remote(hosts)->hosts[1].rows[1].word == word);
    EXPECT_EQUAL(wire_remote(hosts)->hosts[1].rows[1].length, sizeof rows);
    fake_hosts_destroy(hosts);
}

static const struct convoy_partial_head plain_head = {
    .votes_and = UINT32_MAX, .culprit = UINT32_MAX, .error_member = UINT32_MAX, .tag_min = 0};

/* The first one counts, but a failure takes it back. */
static void test_remote_wire_first_partial_stays_until_it_fails(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 4);
    const struct convoy_remote_box *box = &wire_remote(hosts)->hosts[1].partial[0];
    struct convoy_partial_head head = plain_head;
    uint64_t word = convoy_word(1, 2);
    head.fingerprint = 1;
    wire_recv(hosts, CONVOY_MESSAGE_PARTIAL, 1, word, &head, sizeof head);
    wire_expect(hosts, DROPPED_NONE, 0);
    EXPECT_BYTES(box->bytes, &head, sizeof head);
    head.fingerprint = 2;
    wire_recv(hosts, CONVOY_MESSAGE_PARTIAL, 2, word, &head, sizeof head);
    wire_expect(hosts, DROPPED_REPEAT, 1);
    EXPECT_EQUAL(((const struct convoy_partial_head *)(const void *)box->bytes)->fingerprint, 1);
    head.flags = CONVOY_PARTIAL_FAILED;
    head.status = CONVOY_BROKEN;
    wire_recv(hosts, CONVOY_MESSAGE_PARTIAL, 2, word, &head, sizeof head);
    wire_expect(hosts, DROPPED_REPEAT, 1);
    EXPECT_BYTES(box->bytes, &head, sizeof head);
    EXPECT_EQUAL(hosts->members[0].engine->losses[2].is_closed, 0);
    EXPECT_EQUAL(wire_remote(hosts)->hosts[1].leader, 2); /* it said that it leads */
    fake_hosts_destroy(hosts);
}

static void test_remote_wire_goodbye_is_a_failure_of_oneself(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 4);
    struct convoy_partial_head head = plain_head;
    head.flags = CONVOY_PARTIAL_FAILED;
    head.status = CONVOY_PEER_LOST;
    head.culprit = 3;
    wire_recv(hosts, CONVOY_MESSAGE_PARTIAL, 1, convoy_word(1, 1), &head, sizeof head); /* says so of another */
    EXPECT_EQUAL(hosts->members[0].engine->losses[3].is_closed, 0);
    wire_recv(hosts, CONVOY_MESSAGE_PARTIAL, 3, convoy_word(1, 1), &head, sizeof head);
    EXPECT_EQUAL(hosts->members[0].engine->losses[3].is_closed, 1);
    EXPECT_EQUAL(hosts->members[0].engine->losses[3].noticed_by, CONVOY_NOTICED_CLOSE);
    fake_hosts_destroy(hosts);
}

static void test_remote_wire_stale_messages(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 4);
    struct convoy_engine *engine = hosts->members[0].engine;
    engine->generation = 2;
    wire_recv(hosts, CONVOY_MESSAGE_PARTIAL, 1, convoy_word(1, 1), &plain_head, sizeof plain_head);
    wire_expect(hosts, DROPPED_STALE, 1);
    engine->generation = 1;
    wire_remote(hosts)->hosts[2].is_lost = true;
    wire_recv(hosts, CONVOY_MESSAGE_ASK, 3, 0, NULL, 0);
    wire_expect(hosts, DROPPED_STALE, 2);
    engine->lost[0] = 1u << 2;
    engine->lost_count = 1;
    wire_recv(hosts, CONVOY_MESSAGE_ASK, 2, 0, NULL, 0);
    wire_expect(hosts, DROPPED_STALE, 3);
    EXPECT_EQUAL(convoy_engine_counters(engine)->stale, 3);
    engine->lost_count = 0;
    fake_hosts_destroy(hosts);
}

/* A link that went down counts from then on, and only that of a leader of another host. */
static void test_remote_wire_down_is_of_leaders(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 4);
    struct convoy_remote *remote = wire_remote(hosts);
    convoy_remote_down(remote, 2, -25);
    EXPECT_EQUAL(remote->hosts[1].down_ns, 0);
    convoy_remote_down(remote, 1, -25);
    uint64_t since = remote->hosts[1].down_ns;
    EXPECT(since != 0);
    EXPECT_EQUAL(remote->hosts[1].retry_member, 1);
    remote->hosts[1].down_ns = 5;
    convoy_remote_down(remote, 1, -25);
    EXPECT_EQUAL(remote->hosts[1].down_ns, 5);
    wire_recv(hosts, CONVOY_MESSAGE_STATUS, 2, 0, NULL, 0); /* who leads now is heard */
    EXPECT_EQUAL(remote->hosts[1].down_ns, 0);
    EXPECT_EQUAL(remote->hosts[1].leader, 2);
    fake_hosts_destroy(hosts);
}

static void test_remote_wire_send_to_whom_nobody_reaches(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 4);
    struct convoy_remote *remote = wire_remote(hosts);
    fake_links_hold(0, 1, true);
    fake_links_hold(0, 3, true);
    fake_links_refuse(1, true);
    convoy_remote_broadcast(remote, CONVOY_MESSAGE_WANT, 0, NULL, 0);
    EXPECT_EQUAL(fake_links_waiting(0, 1), 0);
    EXPECT_EQUAL(fake_links_waiting(0, 3), 1);
    EXPECT(remote->has_warned);
    fake_links_refuse(1, false);
    uint8_t *address = remote->addresses[1];
    remote->addresses[1] = NULL;
    convoy_remote_send(remote, 1, CONVOY_MESSAGE_WANT, 0, NULL, 0);
    EXPECT_EQUAL(fake_links_waiting(0, 1), 0);
    remote->addresses[1] = address;
    remote->hosts[2].is_lost = true;
    convoy_remote_broadcast(remote, CONVOY_MESSAGE_WANT, 0, NULL, 0);
    EXPECT_EQUAL(fake_links_waiting(0, 1), 1);
    EXPECT_EQUAL(fake_links_waiting(0, 3), 1);
    fake_hosts_destroy(hosts);
}

/* Full buffers are waited for, but not for ever. */
static void test_remote_wire_send_with_full_buffers(void **state)
{
    (void)state;
    struct fake_hosts *hosts = fake_hosts_create(host_of, 4);
    fake_links_hold(0, 1, true);
    fake_links_fill(0, 5);
    convoy_remote_send(wire_remote(hosts), 1, CONVOY_MESSAGE_WANT, 0, NULL, 0);
    EXPECT_EQUAL(fake_links_waiting(0, 1), 1);
    fake_links_fill(0, 1000);
    convoy_remote_send(wire_remote(hosts), 1, CONVOY_MESSAGE_WANT, 0, NULL, 0);
    EXPECT_EQUAL(fake_links_waiting(0, 1), 1);
    fake_links_fill(0, 0);
    fake_hosts_destroy(hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remote_wire_bad_messages_are_dropped_and_counted),
        cmocka_unit_test(test_remote_wire_rows_are_of_the_senders_host),
        cmocka_unit_test(test_remote_wire_first_partial_stays_until_it_fails),
        cmocka_unit_test(test_remote_wire_goodbye_is_a_failure_of_oneself),
        cmocka_unit_test(test_remote_wire_stale_messages),
        cmocka_unit_test(test_remote_wire_down_is_of_leaders),
        cmocka_unit_test(test_remote_wire_send_to_whom_nobody_reaches),
        cmocka_unit_test(test_remote_wire_send_with_full_buffers),
    };
    return cmocka_run_group_tests_name("remote_wire", tests, NULL, NULL);
}
