/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of a context: one list gives name, type, default, bounds and explanation. A value comes from the context's
 * JSON object, else from CONVOY_<NAME> in the environment, else from the default; its source is kept for `doctor`.
 */
#ifndef CONVOY_CORE_SETTINGS_H
#define CONVOY_CORE_SETTINGS_H

#include "convoy/core.h"

#include <jansson.h>

#define CONVOY_SETTING_TEXT_BYTES 256

/* NUMBER(name, default, min, max, text)  TEXT(name, default, allowed words separated by | or "" for any, text) */
#define CONVOY_SETTINGS_LIST(NUMBER, TEXT)                                                                             \
    NUMBER(timeout_ms, 5000, 1, 86400000, "default deadline of every operation")                                       \
    NUMBER(close_timeout_ms, 5000, 1, 86400000, "default deadline of close")                                           \
    NUMBER(hello_timeout_ms, 2000, 10, 60000, "a connection silent for this long during open is dropped")              \
    NUMBER(spin_pauses, 100, 0, 100000, "pauses before yielding when members do not outnumber cores")                  \
    NUMBER(yield_us, 5000, 0, 1000000, "yielding before sleeping on a futex; shrinks when peers are usually later")    \
    NUMBER(liveness_ms, 20, 1, 1000, "how often a sleeping member looks for dead peers")                               \
    NUMBER(succession_ms, 2000, 10, 60000, "how long a host may be without a leader before it counts as lost")         \
    TEXT(net, "auto", "auto|shm|ucx", "auto: shared memory on one host, UCX between hosts; or force one")              \
    TEXT(net_rma, "auto", "auto|never", "auto: payloads go by UCX put where its lanes truly have that; or never")        \
    TEXT(shared_directory, "", "", "directory for the Unix socket where abstract sockets do not reach")                \
    TEXT(ucx_library, "", "", "file to open instead of the system's libucp.so.0")                                      \
    TEXT(ucx_tls, "", "", "UCX transports, as UCX_TLS")                                                                \
    TEXT(ucx_net_devices, "", "", "UCX network devices, as UCX_NET_DEVICES")                                           \
    NUMBER(ucx_probe, 0, 0, 1, "1: describing topic NET opens UCX to look at it")                                      \
    TEXT(cuda_library, "", "", "file to open instead of the system's libcuda.so.1")

enum convoy_setting_source {
    CONVOY_SETTING_DEFAULT = 0,
    CONVOY_SETTING_OBJECT,
    CONVOY_SETTING_ENVIRONMENT,
};

#define CONVOY_SETTING_NUMBER_FIELD(name, value, low, high, text)                                                      \
    uint64_t name;                                                                                                     \
    enum convoy_setting_source name##_source;
#define CONVOY_SETTING_TEXT_FIELD(name, value, words, text)                                                            \
    char name[CONVOY_SETTING_TEXT_BYTES];                                                                              \
    enum convoy_setting_source name##_source;

struct convoy_settings {
    CONVOY_SETTINGS_LIST(CONVOY_SETTING_NUMBER_FIELD, CONVOY_SETTING_TEXT_FIELD)
};

/* Reads the object (may be NULL), then the environment. INVALID_ARGUMENT: not an object, unknown key, wrong type or
 * range; the text has name, value and what is allowed, and the source. */
int32_t convoy_settings_load(struct convoy_settings *settings, const char *json, size_t length,
                             struct convoy_error *error);

/* Calls tell(user, name) for each CONVOY_* variable of the environment that is no setting, at most 8 times: a misspelt
 * one would be ignored in silence. Variables that others read (CONVOY_LIBRARY, CONVOY_TEST_*, and of the plugin for SGLang
 * CONVOY_FALLBACK, CONVOY_SECRET, CONVOY_HOOKS, CONVOY_HOOK_*, CONVOY_DRY_RUN) are not told. */
void convoy_settings_unknown(void (*tell)(void *user, const char *name), void *user);

/* New JSON object {name: {value, source, text}}; NULL = out of memory. gives */
json_t *convoy_settings_describe(const struct convoy_settings *settings);

#endif
