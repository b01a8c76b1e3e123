/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/abi/pair.h"

#include "tests/lib/expect.h"

#include <stdlib.h>
#include <string.h>

#define LONG_NS 5000000000ull

static void open_context(struct plugin_member *member, const char *settings)
{
    member->config.settings = settings;
    member->config.settings_length = settings == NULL ? 0 : strlen(settings);
    EXPECT_OK(member->plugin.core->context_open(&member->config, &member->context, &member->error), &member->error);
}

static convoy_group *open_alone(struct plugin_member *member)
{
    convoy_group *group = NULL;
    struct plugin_member *alone = plugin_member_create(0, 1, "alone", 0);
    EXPECT_OK(member->plugin.core->group_open(member->context, &alone->options, &group, &alone->error), &alone->error);
    plugin_member_destroy(alone);
    return group;
}

struct pair *pair_create(void)
{
    return pair_create_with(NULL);
}

struct pair *pair_create_with(const char *settings)
{
    return pair_create_at(plugin_port(), settings);
}

struct pair *pair_create_at(uint16_t port, const char *settings)
{
    struct pair *pair = calloc(1, sizeof *pair);
    EXPECT(pair != NULL);
    pair->schema = (struct convoy_sync_schema){
        .struct_size = sizeof pair->schema, .builtin = "sglang-7", .builtin_length = 8};
    pair->own = plugin_member_create(0, 2, "pair", port);
    pair->peer = plugin_member_create(1, 2, "pair", port);
    pair->own->options.schema = &pair->schema;
    pair->peer->options.schema = &pair->schema;
    open_context(pair->own, settings);
    open_context(pair->peer, settings);
    pair->own_alone = open_alone(pair->own);
    pair->peer_alone = open_alone(pair->peer);
    return pair;
}

static void start_member(struct plugin_member *member)
{
    EXPECT_OK(member->plugin.core->group_open_start(member->context, &member->options, &member->group, &member->error),
              &member->error);
}

void pair_start_own(struct pair *pair)
{
    start_member(pair->own);
    calls_init(&pair->calls, &pair->own->plugin, pair->own->group, pair->own_alone);
}

void pair_open(struct pair *pair)
{
    const struct convoy_core_table *core = pair->own->plugin.core;
    pair_start_own(pair);
    start_member(pair->peer);
    calls_init(&pair->peer_calls, &pair->peer->plugin, pair->peer->group, pair->peer_alone);
    EXPECT_OK(core->group_open_wait(pair->own->group, LONG_NS, &pair->own->error), &pair->own->error);
    EXPECT_OK(core->group_open_wait(pair->peer->group, LONG_NS, &pair->peer->error), &pair->peer->error);
}

void pair_round(struct pair *pair)
{
    const struct convoy_poll_table *poll = pair->own->plugin.poll;
    struct calls *peer = &pair->peer_calls;
    struct calls *own = &pair->calls;
    calls_start(peer, CALL_POLL);
    calls_start(own, CALL_POLL);
    EXPECT_OK(poll->reduce_wait(own->group, own->operation, LONG_NS, &own->poll_result, &own->error), &own->error);
    EXPECT_OK(poll->reduce_wait(peer->group, peer->operation, LONG_NS, &peer->poll_result, &peer->error), &peer->error);
}

void pair_destroy(struct pair *pair)
{
    plugin_member_destroy(pair->own);
    plugin_member_destroy(pair->peer);
    free(pair);
}
