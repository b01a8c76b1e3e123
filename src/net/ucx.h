/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UCX as one convoy context uses it: the bound library, what was configured, and the UCX contexts that links make their
 * workers in. Opened when the first link needs it, kept in runtime->ucx under runtime->lock, ended by
 * convoy_runtime_destroy. The library itself stays mapped.
 *
 * Where a setting of UCX comes from: the context's settings object, then CONVOY_UCX_*, then UCX_*, then convoy's
 * default. Convoy's defaults: TLS ^sm (UCX 1.13's shared memory cannot tell when a peer dies, so that a link could not
 * use it anyway), TX_SEG_SIZE 64k (the TCP segment; a round goes out in one piece), CONN_NB y (without it a connect to
 * a silent host was measured to block for 133 s), WARN_INVALID_CONFIG n (no words on the host's terminal), RNDV_THRESH
 * inf (every message is checked before a byte of it lands). PROTO_ENABLE n is forced: with the new protocols a message
 * that must go at once or not at all is not one any more.
 * UCX_MEM_EVENTS, UCX_ERROR_SIGNALS, UCX_HANDLE_ERRORS and UCX_DEBUG_SIGNO of the host are overruled when convoy loads
 * UCX (net/ucx_guard.h). A UCX that the host has loaded keeps its own.
 *
 *   UCX_TLS=rc_x (no such transport), UCX_TLS= (empty), UCX_NET_DEVICES=nosuch0: INIT_FAILED, and the text lists what
 *   there is. Nothing is printed.
 */
#ifndef CONVOY_NET_UCX_H
#define CONVOY_NET_UCX_H

#include "net/runtime.h"
#include "net/ucx_library.h"
#include "net/ucx_resources.h"

#include <signal.h>
#include <stdio.h>

#define CONVOY_UCX_SETTINGS 7
#define CONVOY_UCX_VALUE_BYTES 256

/* One setting of UCX as it is in force. */
struct convoy_ucx_setting {
    const char *name;                   /* without UCX_ */
    const char *source;                 /* "object", "CONVOY_*", "UCX_*", "convoy default", "UCX default" */
    char value[CONVOY_UCX_VALUE_BYTES]; /* read back from UCX where UCX can be asked, else as it was given */
    bool is_read_back;
};

/* A UCX context limited to some devices. */
struct convoy_ucx_context {
    struct convoy_ucx_context *next;
    ucp_context_h handle;
    char devices[CONVOY_UCX_VALUE_BYTES]; /* value of NET_DEVICES; "" = as configured */
    bool with_rma;                        /* put and get are asked for, which changes the choice of lanes */
    struct convoy_ucx_resources resources;
};

struct convoy_ucx {
    bool is_open;
    struct convoy_error failure; /* why the last attempt to open failed; status OK = none */
    struct convoy_ucx_library library;
    struct convoy_ucx_setting settings[CONVOY_UCX_SETTINGS];
    struct convoy_ucx_context *contexts; /* the last one is the one as configured */
    struct convoy_ucx_resources resources;
    uint64_t memory_types; /* that it takes as configured, 1 << its number in UCX; 0 = it does not say */
};

/* UCX, opened now if this context has not yet. INIT_FAILED as in net/link.h. The result lives as long as runtime. */
int32_t convoy_ucx_open(struct convoy_runtime *runtime, const struct convoy_ucx **ucx_out, struct convoy_error *error);

/* The UCX context limited to `devices` ("" = as configured), made when it is first asked for. [any thread] */
int32_t convoy_ucx_context_get(struct convoy_runtime *runtime, const char *devices, bool with_rma,
                               const struct convoy_ucx_context **context_out, struct convoy_error *error);

/* Opens UCX only to see whether it works, for `convoy doctor`. */
int32_t convoy_ucx_probe(struct convoy_runtime *runtime, struct convoy_error *error);

/* JSON object: opened, file, version, loaded_by ("host" or "convoy"; null before), supported, transports, devices, memory_types,
 * settings {name: {value, source, read_back}}, signals_changed, hooks_changed, error (null = none). With the setting
 * ucx_probe it opens UCX first. NULL = out of memory. gives */
json_t *convoy_ucx_describe(struct convoy_runtime *runtime);

/* Ends the UCX contexts; all workers are gone. NULL is a no-op. */
void convoy_ucx_destroy(struct convoy_ucx *ucx);

/* -- between net/ucx.c and net/ucx_config.c ------------------------------------------------------------------------ */

/* UCX's configuration with our settings in it, read back into ucx->settings. devices: NET_DEVICES to use instead ("" =
 * as configured). INIT_FAILED: UCX refuses a value or has another one than given. gives (ucp_config_release) */
int32_t convoy_ucx_config_make(const struct convoy_settings *settings, struct convoy_ucx *ucx, const char *devices,
                               ucp_config_t **config_out, struct convoy_error *error);

/* Fills error with a UCX status and its words, and returns `status`. */
int32_t convoy_ucx_error(const struct convoy_ucx_functions *functions, struct convoy_error *error, int32_t status,
                         ucs_status_t ucx_status, const char *what);

/* What UCX prints into a stream, as text of at most `bytes` (cut). */
typedef void (*convoy_ucx_print_fn)(const void *object, const struct convoy_ucx_functions *functions, FILE *stream);
void convoy_ucx_print(convoy_ucx_print_fn print, const void *object, const struct convoy_ucx_functions *functions,
                      char *text_out, size_t bytes);

/* Threads that UCX starts inherit the signal mask: they must take no signal of the host's. */
void convoy_ucx_signals_block(sigset_t *old_out);
void convoy_ucx_signals_unblock(const sigset_t *old);

#endif
