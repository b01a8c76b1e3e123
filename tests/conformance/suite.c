/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/suite.h"

#include "tests/lib/describe.h"
#include "tests/lib/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SUITE_CASES_MAX 64
#define SUITE_TIMEOUT_MS 60000u

/* One case over one transport: what a cmocka test gets, and what its ranks inherit. */
struct suite_run {
    const struct suite_case *the_case;
    enum suite_transport transport;
    uint16_t ports[3];
};

static const char *suite_settings(enum suite_transport transport)
{
    return transport == SUITE_UCX ? "{\"net\":\"ucx\"}" : "{\"net\":\"auto\"}";
}

static void suite_rank(const struct rank *rank, void *argument)
{
    const struct suite_run *run = argument;
    struct suite *suite = calloc(1, sizeof *suite);
    EXPECT(suite != NULL);
    suite->rank = rank;
    suite->transport = run->transport;
    suite->host = "127.0.0.1";
    memcpy(suite->ports, run->ports + 1, sizeof suite->ports);
    if (run->transport == SUITE_NAMESPACES) {
        hosts_enter(rank->index * 2 / rank->count);
        suite->host = hosts_address(0);
    }
    suite->member = plugin_member_create(rank->index, rank->count, "suite", run->ports[0]);
    (void)snprintf(suite->member->rendezvous, sizeof suite->member->rendezvous, "tcp://%s:%u", suite->host,
                   run->ports[0]);
    suite->member->options.rendezvous_length = strlen(suite->member->rendezvous);
    suite->member->config.settings = suite_settings(run->transport);
    suite->member->config.settings_length = strlen(suite->member->config.settings);
    run->the_case->run(suite);
    plugin_member_destroy(suite->member);
    free(suite);
}

static void suite_test(void **state)
{
    struct suite_run *run = *state;
    if (run->the_case->needs_processes && run->transport == SUITE_THREADS) {
        print_message("skipped: a thread cannot be stopped or killed alone\n");
        skip();
    }
    for (size_t i = 0; i < sizeof run->ports / sizeof run->ports[0]; i++) {
        run->ports[i] = plugin_port();
    }
    struct ranks *ranks = ranks_create(SUITE_MEMBERS, 4096);
    if (run->transport == SUITE_THREADS) {
        ranks_start_threads(ranks, suite_rank, run, SUITE_TIMEOUT_MS);
    } else {
        ranks_start(ranks, suite_rank, run, SUITE_TIMEOUT_MS);
    }
    if (run->the_case->parent != NULL) {
        run->the_case->parent(ranks);
    }
    ranks_finish(ranks);
}

static size_t suite_add(struct CMUnitTest *tests, size_t at, const struct suite_case *cases, size_t count,
                        enum suite_transport transport)
{
    const char *only = getenv("CONVOY_TEST_ONLY"); /* part of a name */
    for (size_t i = 0; i < count; i++) {
        if (only != NULL && strstr(cases[i].name, only) == NULL) {
            continue;
        }
        struct suite_run *run = calloc(1, sizeof *run);
        if (run == NULL || at == SUITE_CASES_MAX) {
            abort();
        }
        run->the_case = &cases[i];
        run->transport = transport;
        tests[at++] =
            (struct CMUnitTest){.name = cases[i].name, .test_func = suite_test, .initial_state = run};
    }
    return at;
}

int suite_main(const char *name, enum suite_transport transport)
{
    struct CMUnitTest tests[SUITE_CASES_MAX];
    size_t count = 0;
    (void)plugin_path(); /* its static storage is written once, before ranks may be threads */
    count = suite_add(tests, count, suite_round_cases, suite_round_count, transport);
    count = suite_add(tests, count, suite_alike_cases, suite_alike_count, transport);
    count = suite_add(tests, count, suite_keyed_cases, suite_keyed_count, transport);
    count = suite_add(tests, count, suite_between_cases, suite_between_count, transport);
    count = suite_add(tests, count, suite_failure_cases, suite_failure_count, transport);
    count = suite_add(tests, count, suite_loss_cases, suite_loss_count, transport);
    count = suite_add(tests, count, suite_mixed_cases, suite_mixed_count, transport);
    int failed = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        free(tests[i].initial_state);
    }
    return failed;
}

void suite_open(struct suite *suite)
{
    plugin_member_open(suite->member);
}

struct plugin_member *suite_member(struct suite *suite, const char *name, const int32_t *ids, uint32_t count,
                                   uint32_t own_index, uint32_t port_index)
{
    struct plugin_member *member = plugin_member_create(own_index, count, name, suite->ports[port_index]);
    memcpy(member->ids, ids, count * sizeof *ids);
    member->options.own_id = ids[own_index];
    const char *host = suite->host; /* the first member listens, wherever it is */
    if (suite->transport == SUITE_NAMESPACES) {
        host = hosts_address((uint32_t)ids[0] * 2 / suite->rank->count);
    }
    (void)snprintf(member->rendezvous, sizeof member->rendezvous, "tcp://%s:%u", host, suite->ports[port_index]);
    member->options.rendezvous_length = count > 1 ? strlen(member->rendezvous) : 0;
    member->config.settings = suite->member->config.settings;
    member->config.settings_length = suite->member->config.settings_length;
    return member;
}

void suite_expect_round(struct suite *suite, size_t count, uint8_t state)
{
    struct exchange *exchange = &suite->exchange;
    exchange_init(exchange, count, state);
    EXPECT_OK(exchange_reduce(exchange, suite->member, SUITE_LONG_NS), &suite->member->error);
    for (size_t i = 0; i < count; i++) {
        EXPECT_EQUAL(exchange->states_out[i], state);
    }
}

struct convoy_reopen_result suite_reopen(struct suite *suite)
{
    struct convoy_reopen_result result = {.struct_size = sizeof result};
    EXPECT_OK(suite->member->plugin.core->group_reopen(suite->member->group, SUITE_LONG_NS, &result,
                                                       &suite->member->error),
              &suite->member->error);
    return result;
}

struct convoy_group_info suite_info(struct suite *suite)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    EXPECT_OK(suite->member->plugin.core->group_info(suite->member->group, &info, &suite->member->error),
              &suite->member->error);
    return info;
}

bool suite_is_neighbour(const struct suite *suite, uint32_t other)
{
    uint32_t per_host = SUITE_MEMBERS / 2;
    return suite->transport == SUITE_NAMESPACES ? suite->rank->index / per_host == other / per_host
                                                : suite->transport != SUITE_UCX || suite->rank->index == other;
}

bool suite_link_is(struct suite *suite, uint32_t member, const char *link)
{
    json_t *dump = describe_group(suite->member, CONVOY_TOPIC_DUMP);
    const json_t *row = json_array_get(json_object_get(dump, "members"), member);
    const char *said = json_string_value(json_object_get(row, "link"));
    EXPECT(said != NULL);
    bool is_so = strcmp(said, link) == 0;
    json_decref(dump);
    return is_so;
}
