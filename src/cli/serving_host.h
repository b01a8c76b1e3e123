/* SPDX-License-Identifier: Apache-2.0 */
/* One host process as a server that replaces its plugin while it runs: everything goes through the loader's handles. */
#ifndef CONVOY_CLI_SERVING_HOST_H
#define CONVOY_CLI_SERVING_HOST_H

#include "cli/plain_host.h"
#include "convoy/loader.h"

struct convoy_serving_host {
    convoy_loader *loader;
    convoy_host_context *context;
};

/* Loads the plugin, which must have core, poll and sync, and opens a context. As convoy_loader_open, context_open. On
 * failure: close. */
int32_t convoy_serving_host_open(struct convoy_serving_host *host, const char *plugin, struct convoy_error *error);

/* Closes the context with its groups; the plugin stays mapped. Accepts a zeroed or half-open host. */
void convoy_serving_host_close(struct convoy_serving_host *host, uint64_t timeout_ns);

int32_t convoy_serving_host_group_open(struct convoy_serving_host *host, const struct convoy_plain_group *group,
                                       convoy_host_group **group_out, struct convoy_error *error);

#endif
