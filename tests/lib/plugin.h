/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin as a host sees it: loaded with dlopen, asked for its families, and one member of a group on top. Failures
 * are expectations (expect.h), so these work in the parent, in ranks and in rank threads.
 *
 *     struct plugin_member *member = plugin_member_create(rank->index, rank->count, "tp", port);
 *     member->options.blob_bytes_max = ...;          whatever the test wants otherwise
 *     plugin_member_open(member);                    context_open and group_open, both OK
 *     ... member->plugin.poll->reduce(member->group, ..., &member->error)
 *     plugin_member_destroy(member);                 group_close, context_close, both OK
 */
#ifndef TESTS_LIB_PLUGIN_H
#define TESTS_LIB_PLUGIN_H

#include "convoy/convoy.h"

#define PLUGIN_MEMBERS_MAX 64
#define PLUGIN_OPEN_TIMEOUT_NS 20000000000ull

/* A loaded plugin: its entry and the tables of version 1.0. */
struct plugin {
    void *library;
    convoy_query_fn query;
    const struct convoy_core_table *core;
    const struct convoy_poll_table *poll;
    const struct convoy_sync_table *sync;
    const struct convoy_transfer_table *transfer;
};

/* Path of the library: $CONVOY_LIBRARY, else the one that was built with this test program. Static storage. */
const char *plugin_path(void);
void plugin_load(struct plugin *plugin_out);
void plugin_load_from(struct plugin *plugin_out, const char *path);

/* A loopback port that nothing else gets while this process lives; call it in the parent, before the ranks start. */
uint16_t plugin_port(void);

/* One member of one group, and all that its options point to. */
struct plugin_member {
    struct plugin plugin;
    struct convoy_context_config config;
    struct convoy_group_options options;
    struct convoy_error error; /* sized, for the test's calls */
    convoy_context *context;
    convoy_group *group;
    char name[64];
    char rendezvous[64];
    int32_t ids[PLUGIN_MEMBERS_MAX];
};

/* Loads the plugin and fills config and options (ids 0..count-1, member 0 listens); opens nothing. With one member
 * port is ignored. gives (plugin_member_destroy). */
struct plugin_member *plugin_member_create(uint32_t index, uint32_t count, const char *name, uint16_t port);
void plugin_member_open(struct plugin_member *member);
/* Closes what is open, in order. */
void plugin_member_destroy(struct plugin_member *member);

/* Positional reduce of `count` states with 5 s at most; expects OK. states_out: `count` states. */
void plugin_member_reduce(struct plugin_member *member, const uint8_t *states, size_t count, uint8_t *states_out);

#endif
