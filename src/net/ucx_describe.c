/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ucx.h"

#include "core/error.h"
#include "net/ucx_guard.h"

#include <string.h>

static bool list_has(const json_t *list, const char *text)
{
    size_t index;
    const json_t *value;
    json_array_foreach((json_t *)(uintptr_t)list, index, value)
    {
        if (strcmp(json_string_value(value), text) == 0) {
            return true;
        }
    }
    return false;
}

/* Each name once: transports, or "transport/device". */
static json_t *describe_resources(const struct convoy_ucx *ucx, bool with_device)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list != NULL && ucx != NULL && i < ucx->resources.count; i++) {
        char name[2 * CONVOY_UCX_NAME_BYTES + 2];
        const struct convoy_ucx_resource *row = &ucx->resources.rows[i];
        (void)snprintf(name, sizeof name, "%s%s%s", row->transport, with_device ? "/" : "",
                       with_device ? row->device : "");
        if (!list_has(list, name)) {
            (void)json_array_append_new(list, json_string(name));
        }
    }
    return list;
}

static json_t *describe_memory(const struct convoy_ucx *ucx)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list != NULL && ucx != NULL && i < CONVOY_UCX_MEMORY_TYPES; i++) {
        if ((ucx->memory_types >> i & 1) != 0) {
            (void)json_array_append_new(list, json_string(convoy_ucx_memory_name(i)));
        }
    }
    return list;
}

static json_t *describe_settings(const struct convoy_ucx *ucx)
{
    json_t *object = json_object();
    for (size_t i = 0; ucx != NULL && i < CONVOY_UCX_SETTINGS && ucx->settings[i].name != NULL; i++) {
        const struct convoy_ucx_setting *setting = &ucx->settings[i];
        (void)json_object_set_new(object, setting->name,
                                  json_pack("{s:s, s:s, s:b}", "value", setting->value, "source", setting->source,
                                            "read_back", (int)setting->is_read_back));
    }
    return object;
}

static json_t *describe_hooks(const struct convoy_ucx *ucx)
{
    json_t *list = json_array();
    for (uint32_t i = 0; ucx != NULL && i < CONVOY_UCX_GUARD_HOOKS; i++) {
        if ((ucx->library.hooks_changed & 1u << i) != 0) {
            (void)json_array_append_new(list, json_string(convoy_ucx_hook_name(i)));
        }
    }
    return list;
}

static json_t *describe_locked(const struct convoy_ucx *ucx)
{
    bool is_loaded = ucx != NULL && ucx->library.handle != NULL;
    const struct convoy_ucx_library *library = is_loaded ? &ucx->library : NULL;
    const char *loader = is_loaded && library->loaded_by_host ? "host" : "convoy";
    bool has_failed = ucx != NULL && ucx->failure.status != CONVOY_OK;
    return json_pack("{s:b, s:s?, s:s?, s:s?, s:s, s:o, s:o, s:o, s:o, s:i, s:o, s:s?}", "opened",
                     (int)(ucx != NULL && ucx->is_open), "file", is_loaded ? library->file : NULL, "version",
                     is_loaded ? library->version : NULL, "loaded_by", is_loaded ? loader : NULL, "supported",
                     CONVOY_UCX_SUPPORTED, "transports", describe_resources(ucx, false), "devices",
                     describe_resources(ucx, true), "memory_types", describe_memory(ucx), "settings",
                     describe_settings(ucx), "signals_changed",
                     is_loaded ? (int)library->signals_changed : 0, "hooks_changed", describe_hooks(ucx), "error",
                     has_failed ? ucx->failure.text : NULL);
}

json_t *convoy_ucx_describe(struct convoy_runtime *runtime)
{
    if (runtime->settings.ucx_probe != 0) {
        struct convoy_error ignored = CONVOY_ERROR_INIT; /* the description has it */
        (void)convoy_ucx_probe(runtime, &ignored);
    }
    (void)pthread_mutex_lock(&runtime->lock);
    json_t *object = describe_locked(runtime->ucx);
    (void)pthread_mutex_unlock(&runtime->lock);
    return object;
}
