/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One host process as a real server would be: it opens the plugin file with plain dlopen, asks convoy_query for the
 * three families, opens a context and then groups at ports of this machine. The plugin is not linked.
 */
#ifndef CONVOY_CLI_PLAIN_HOST_H
#define CONVOY_CLI_PLAIN_HOST_H

#include "convoy/convoy.h"

#include <stdbool.h>

#define CONVOY_PLAIN_HOST_TEXT_BYTES 64u

struct convoy_plain_host {
    void *library;
    const struct convoy_core_table *core;
    const struct convoy_poll_table *poll;
    const struct convoy_sync_table *sync;
    convoy_context *context;
    char release[CONVOY_PLAIN_HOST_TEXT_BYTES];
    char build_id[CONVOY_PLAIN_HOST_TEXT_BYTES];
};

/* One group as a host opens it. Everything borrows until the open returned. */
struct convoy_plain_group {
    const char *name;
    const int32_t *member_ids;
    uint32_t member_count;
    uint32_t own_index;
    const char *address; /* of the listener, member 0; not used with one member */
    uint16_t port;
    uint32_t sync_inner;      /* 0 = no row in this group */
    uint32_t blob_bytes_max;  /* 0 = the plugin's */
    uint64_t timeout_ns;      /* default of operations; 0 = the plugin's */
    uint64_t open_timeout_ns; /* 0 = the plugin's */
};

/* What the options of a group point to. */
struct convoy_plain_group_text {
    char rendezvous[96];
    struct convoy_sync_schema schema;
};

/* options_out: borrows from group and text. */
void convoy_plain_group_fill(const struct convoy_plain_group *group, struct convoy_plain_group_text *text,
                             struct convoy_group_options *options_out);

/* Opens the plugin and a context. NO_ENTRY, UNSUPPORTED, TOO_OLD, TOO_NEW: text says what does not fit. */
int32_t convoy_plain_host_open(struct convoy_plain_host *host, const char *plugin, struct convoy_error *error);

/* Closes the context with its groups; the plugin stays mapped. Accepts a zeroed or half-open host. */
void convoy_plain_host_close(struct convoy_plain_host *host, uint64_t timeout_ns);

int32_t convoy_plain_host_group_open(struct convoy_plain_host *host, const struct convoy_plain_group *group,
                                     convoy_group **group_out, struct convoy_error *error);

#endif
