/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One host process with a transfer engine, through the loader's handles, so that its plugin can be replaced while it works.
 */
#ifndef CONVOY_CLI_TRANSFER_HOST_H
#define CONVOY_CLI_TRANSFER_HOST_H

#include "convoy/loader.h"

struct convoy_transfer_host {
    convoy_loader *loader;
    convoy_host_context *context;
    convoy_host_engine *engine;
};

struct convoy_transfer_host_options {
    const char *plugin;
    const char *settings; /* JSON; NULL = none */
    struct convoy_transfer_options engine; /* struct_size is filled in; address_length too */
};

/* Loads, opens a context and an engine. As convoy_loader_open, context_open, engine_open. On failure: close. */
int32_t convoy_transfer_host_open(struct convoy_transfer_host *host,
                                  const struct convoy_transfer_host_options *options, struct convoy_error *error);

/* Closes engine and context; the plugin stays mapped. Accepts a zeroed or half-open host. DRAIN_TIMEOUT: the first that
 * was not done by then. */
int32_t convoy_transfer_host_close(struct convoy_transfer_host *host, uint64_t timeout_ns, struct convoy_error *error);

/* The engine's session id into CONVOY_SESSION_BYTES. */
int32_t convoy_transfer_host_session(const struct convoy_transfer_host *host, char session_out[CONVOY_SESSION_BYTES],
                                     struct convoy_error *error);

/* A topic of engine_describe. gives (convoy_memory_free) */
int32_t convoy_transfer_host_describe(const struct convoy_transfer_host *host, uint32_t topic, char **text_out,
                                      struct convoy_error *error);

/* Looks at the pool until nothing in it is taken or referred to, or the time is up; then the figures say what is left. */
int32_t convoy_transfer_host_drain(const struct convoy_transfer_host *host, uint64_t timeout_ns,
                                   struct convoy_engine_figures *figures_out, struct convoy_error *error);

/* Leases and references that figures count; 0 = the pool is as it was when it was opened. */
uint64_t convoy_transfer_host_leaks(const struct convoy_engine_figures *figures);

#endif
