/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users reported about networks between hosts: decoy interfaces, names that lead to loopback, packets lost in one
 * direction. Hosts are network namespaces; skipped where they cannot be made.
 */
#include "tests/lib/crowd.h"
#include "tests/lib/describe.h"
#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/hosts.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

#define BRIDGE_CHECKS 400 /* of 20 ms */

static bool host_ip(uint32_t host, const char *words)
{
    char command[200];
    (void)snprintf(command, sizeof command, "-n %s %s", hosts_name(host), words);
    return hosts_ip(command);
}

/* This rank's member of a group over all ranks; the first half of them is on host 0. settings: JSON or NULL. */
static struct plugin_member *net_create(const struct rank *rank, const struct crowd *crowd, const char *settings)
{
    hosts_enter(rank->index * 2 / rank->count);
    struct plugin_member *member = plugin_member_create(rank->index, rank->count, "net", crowd->ports[0]);
    (void)snprintf(member->rendezvous, sizeof member->rendezvous, "tcp://%s:%u", hosts_address(0), crowd->ports[0]);
    member->options.rendezvous_length = strlen(member->rendezvous);
    member->config.settings = settings;
    member->config.settings_length = settings == NULL ? 0 : strlen(settings);
    return member;
}

static void net_expect_round(struct plugin_member *member)
{
    struct exchange exchange;
    exchange_init(&exchange, 16, CONVOY_STATE_TRANSFERRING);
    EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
    EXPECT_EQUAL(exchange.states_out[15], CONVOY_STATE_TRANSFERRING);
}

static int make_hosts(void **state)
{
    (void)state;
    return hosts_create(2) ? 0 : 1;
}

static int remove_hosts(void **state)
{
    (void)state;
    hosts_destroy();
    return 0;
}

/* -- decoys ------------------------------------------------------------------------------------------------------- */

/* A bridge of one and the same address in both hosts, with a port that has a carrier, as containers leave it. */
static void add_decoy(uint32_t host)
{
    char command[160];
    bool is_made = host_ip(host, "link add decoy0 type bridge") &&
                   host_ip(host, "link add tail0 type veth peer name tail1") &&
                   host_ip(host, "link set tail0 master decoy0 up") && host_ip(host, "link set tail1 up") &&
                   host_ip(host, "addr add 172.17.0.1/16 dev decoy0") && host_ip(host, "link set decoy0 up");
    assert_true(is_made);
    (void)snprintf(command, sizeof command, "netns exec %s grep -qx up /sys/class/net/decoy0/operstate",
                   hosts_name(host));
    for (int i = 0; i < BRIDGE_CHECKS && !hosts_ip(command); i++) {
    }
    assert_true(hosts_ip(command));
}

static void decoy_run(const struct rank *rank, void *crowd)
{
    struct plugin_member *member = net_create(rank, crowd, NULL);
    plugin_member_open(member);
    net_expect_round(member);
    json_t *dump = describe_group(member, CONVOY_TOPIC_DUMP);
    char *text = json_dumps(dump, 0);
    EXPECT(text != NULL);
    EXPECT_TEXT(text, rank->index == 0 ? "\"cv0\"" : "\"cv1\""); /* the interface in use is in the dump */
    free(text);
    json_decref(dump);
    crowd_close(rank, member);
}

static void bridge_only_run(const struct rank *rank, void *crowd)
{
    struct plugin_member *member = net_create(rank, crowd, "{\"ucx_net_devices\": \"decoy0\"}");
    const struct convoy_core_table *core = member->plugin.core;
    EXPECT_OK(core->context_open(&member->config, &member->context, &member->error), &member->error);
    EXPECT_STATUS(core->group_open(member->context, &member->options, &member->group, &member->error),
                  CONVOY_UNREACHABLE, &member->error);
    EXPECT_TEXT(member->error.text, "decoy0");
    crowd_close(rank, member);
}

/* openucx/ucx issues 7599, 6695 and 9383: both hosts have loopback and a bridge 172.17.0.1/16. With no settings the
 * group forms over the link that joins them; with the bridge alone it is a clear error that names it. */
static void test_reports_net_decoy_bridge_does_not_keep_two_hosts_apart(void **state)
{
    (void)state;
    add_decoy(0);
    add_decoy(1);
    crowd_run(2, decoy_run, 0);
    crowd_run(2, bridge_only_run, 0);
}

/* -- names -------------------------------------------------------------------------------------------------------- */

/* In the rank's own mount namespace, which hosts_enter has made. */
static void replace_hosts_file(const char *text)
{
    char path[] = "/tmp/convoy-hosts-XXXXXX";
    int fd = mkstemp(path);
    EXPECT(fd >= 0);
    EXPECT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    EXPECT_EQUAL(mount(path, "/etc/hosts", NULL, MS_BIND, NULL), 0);
    EXPECT_EQUAL(unlink(path), 0);
}

static void named_run(const struct rank *rank, const struct crowd *crowd, const char *hosts_file)
{
    char name[] = "convoy-node-0";
    name[sizeof name - 2] = (char)('0' + rank->index);
    struct plugin_member *member = net_create(rank, crowd, NULL);
    EXPECT_EQUAL(unshare(CLONE_NEWUTS), 0);
    EXPECT_EQUAL(sethostname(name, strlen(name)), 0);
    replace_hosts_file(hosts_file);
    plugin_member_open(member);
    net_expect_round(member);
    crowd_close(rank, member);
}

static void loopback_name_run(const struct rank *rank, void *crowd)
{
    named_run(rank, crowd, "127.0.0.1 localhost\n127.0.1.1 convoy-node-0 convoy-node-1\n");
}

static void no_name_run(const struct rank *rank, void *crowd)
{
    named_run(rank, crowd, "# nobody\n");
}

/* pytorch/pytorch issues 8664 and 8672, aws-samples/aws-do-eks PR 69: the own host name maps to 127.0.1.1 on both
 * hosts, or to nothing at all: the address comes from the route to the peer, and the group forms. */
static void test_reports_net_host_name_that_leads_to_loopback_is_not_used(void **state)
{
    (void)state;
    crowd_run(2, loopback_name_run, 0);
    crowd_run(2, no_name_run, 0);
}

/* -- packets lost in one direction -------------------------------------------------------------------------------- */

#define ONE_WAY_RANKS 16u

enum one_way_mark { MARK_OPEN = 1, MARK_CUT, MARK_LATE };

struct one_way {
    uint32_t go; /* futex word: 1 = the link is cut, 2 = it is whole again */
};

static void one_way_await(struct one_way *shared, uint32_t seen)
{
    while (__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE) == seen) {
        EXPECT(ranks_futex_wait(&shared->go, seen, RANKS_TIMEOUT_MS));
    }
}

/* What a rank of host 0 sees of host 1, from which nothing arrives: sent 2, received 1. */
static void one_way_expect_dump(struct plugin_member *member)
{
    json_t *dump = describe_group(member, CONVOY_TOPIC_DUMP);
    const json_t *members = json_object_get(dump, "members");
    EXPECT_EQUAL(json_array_size(members), ONE_WAY_RANKS);
    for (uint32_t i = 0; i < ONE_WAY_RANKS; i++) {
        const json_t *row = json_array_get(members, i);
        EXPECT_EQUAL(describe_number(row, "round_sent"), 2);
        EXPECT_EQUAL(describe_number(row, "round_received"), i < ONE_WAY_RANKS / 2 ? 2 : 1);
        EXPECT_TEXT(json_string_value(json_object_get(row, "transport")),
                    i >= ONE_WAY_RANKS / 2 ? "ucx" : "");
        EXPECT(describe_number(row, "age_ns") > 0);
        if (i >= ONE_WAY_RANKS / 2) { /* TCP does not give it up so soon; all but the leader hear through it */
            EXPECT_TEXT(json_string_value(json_object_get(row, "link")),
                        member->options.own_index == 0 ? "up" : "none");
        }
    }
    json_decref(dump);
}

/* Host 0 hears nothing, names the other host's ranks, and finishes the same round once packets arrive again. */
static void one_way_deaf(const struct rank *rank, struct plugin_member *member, struct exchange *exchange)
{
    const struct convoy_poll_table *poll = member->plugin.poll;
    convoy_operation operation = 0;
    EXPECT_OK(poll->reduce_start(member->group, &exchange->call, &operation, &member->error), &member->error);
    EXPECT_STATUS(poll->reduce_wait(member->group, operation, 1000000000ull, &exchange->result, &member->error),
                  CONVOY_TIMED_OUT, &member->error);
    EXPECT_EQUAL(exchange->report.member_count, ONE_WAY_RANKS / 2);
    for (int32_t i = ONE_WAY_RANKS / 2; i < (int32_t)ONE_WAY_RANKS; i++) {
        EXPECT(exchange_row(exchange, i) != NULL);
    }
    one_way_expect_dump(member);
    rank_mark(rank, MARK_LATE);
    one_way_await(rank->shared, 1);
    EXPECT_OK(poll->reduce_wait(member->group, operation, CROWD_WAIT_NS, &exchange->result, &member->error),
              &member->error);
}

static void one_way_run(const struct rank *rank, void *crowd)
{
    struct exchange exchange;
    struct plugin_member *member = net_create(rank, crowd, NULL);
    plugin_member_open(member);
    net_expect_round(member);
    rank_mark(rank, MARK_OPEN);
    one_way_await(rank->shared, 0);
    exchange_init(&exchange, 16, CONVOY_STATE_SUCCESS);
    if (rank->index < ONE_WAY_RANKS / 2) {
        one_way_deaf(rank, member, &exchange);
    } else { /* hears host 0, so it may be done at once; its own packets are what is lost */
        EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
    }
    EXPECT_EQUAL(exchange.states_out[15], CONVOY_STATE_SUCCESS);
    crowd_close(rank, member);
}

static void one_way_say(struct one_way *shared, uint32_t what)
{
    __atomic_store_n(&shared->go, what, __ATOMIC_RELEASE);
    ranks_futex_wake(&shared->go);
}

/* sgl-project/sglang issue 34582, PRs 34657, 34664 and 34665: nobody is missing, yet nobody moves, and nobody can
 * tell which direction is dead. Packets from host 1 to host 0 go to an address that nobody has. */
static void test_reports_net_direction_that_loses_packets_is_seen_and_recovers(void **state)
{
    (void)state;
    struct ranks *ranks = crowd_start(ONE_WAY_RANKS, one_way_run, sizeof(struct one_way));
    for (uint32_t i = 0; i < ONE_WAY_RANKS; i++) {
        ranks_await_mark(ranks, i, MARK_OPEN);
    }
    assert_true(host_ip(1, "neigh replace 10.231.78.1 lladdr 02:00:00:00:00:99 nud permanent dev cv1"));
    one_way_say(ranks_shared(ranks), 1);
    for (uint32_t i = 0; i < ONE_WAY_RANKS / 2; i++) {
        ranks_await_mark(ranks, i, MARK_LATE);
    }
    assert_true(host_ip(1, "neigh del 10.231.78.1 dev cv1"));
    one_way_say(ranks_shared(ranks), 2);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reports_net_decoy_bridge_does_not_keep_two_hosts_apart, make_hosts,
                                        remove_hosts),
        cmocka_unit_test_setup_teardown(test_reports_net_host_name_that_leads_to_loopback_is_not_used, make_hosts,
                                        remove_hosts),
        cmocka_unit_test_setup_teardown(test_reports_net_direction_that_loses_packets_is_seen_and_recovers, make_hosts,
                                        remove_hosts),
    };
    if (!hosts_create(1)) {
        return 77;
    }
    hosts_destroy();
    return cmocka_run_group_tests_name("reports_net", tests, NULL, NULL);
}
