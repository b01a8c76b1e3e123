/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ucx.h"

#include "core/error.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_TEXT_BYTES 32768

/* What convoy sets. `ours` is the value unless the host chose one. */
struct config_row {
    const char *name;
    const char *variable; /* the host's way to choose */
    const char *ours;     /* NULL = leave it to UCX */
    bool can_be_read;     /* part of what ucp_config_print shows; the others belong to transports */
    bool is_forced;       /* ours, whatever the host's variable says */
};

enum { CONFIG_TLS, CONFIG_NET_DEVICES };

static const struct config_row config_rows[CONVOY_UCX_SETTINGS] = {
    [CONFIG_TLS] = {"TLS", "UCX_TLS", "^sm", true, false},
    [CONFIG_NET_DEVICES] = {"NET_DEVICES", "UCX_NET_DEVICES", NULL, true, false},
    {"TX_SEG_SIZE", "UCX_TCP_TX_SEG_SIZE", "64k", false, false},
    {"CONN_NB", "UCX_TCP_CONN_NB", "y", false, false},
    {"WARN_INVALID_CONFIG", "UCX_WARN_INVALID_CONFIG", "n", true, false},
    {"PROTO_ENABLE", "UCX_PROTO_ENABLE", "n", true, true},
    {"RNDV_THRESH", "UCX_RNDV_THRESH", "inf", true, false},
};

/* The value convoy was given for a row, and how; NULL = none. */
static const char *config_given(const struct convoy_settings *settings, size_t row, const char **source_out)
{
    const char *value = "";
    enum convoy_setting_source source = CONVOY_SETTING_DEFAULT;
    if (row == CONFIG_TLS) {
        value = settings->ucx_tls;
        source = settings->ucx_tls_source;
    } else if (row == CONFIG_NET_DEVICES) {
        value = settings->ucx_net_devices;
        source = settings->ucx_net_devices_source;
    }
    *source_out = source == CONVOY_SETTING_OBJECT ? "object" : "CONVOY_*";
    return value[0] != '\0' ? value : NULL;
}

/* The value to set, or NULL when UCX's own (from UCX_* or its default) is to stay. */
static const char *config_choose(const struct convoy_settings *settings, size_t row, const char **source_out)
{
    const char *given = config_given(settings, row, source_out);
    if (given != NULL) {
        return given;
    }
    if (getenv(config_rows[row].variable) != NULL && !config_rows[row].is_forced) {
        *source_out = "UCX_*";
        return NULL;
    }
    *source_out = config_rows[row].ours != NULL ? "convoy default" : "UCX default";
    return config_rows[row].ours;
}

static void config_print(const void *object, const struct convoy_ucx_functions *functions, FILE *stream)
{
    functions->ucp_config_print(object, stream, NULL, UCS_CONFIG_PRINT_CONFIG);
}

/* UCX accepts any name and value here: what counts is what it says afterwards. */
static int32_t config_read_back(const ucp_config_t *config, struct convoy_ucx *ucx, struct convoy_error *error)
{
    char *text = convoy_memory_zalloc(CONFIG_TEXT_BYTES);
    if (text == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "reading UCX's configuration: out of memory");
    }
    convoy_ucx_print(config_print, config, &ucx->library.functions, text, CONFIG_TEXT_BYTES);
    int32_t status = CONVOY_OK;
    for (size_t i = 0; i < CONVOY_UCX_SETTINGS && status == CONVOY_OK; i++) {
        struct convoy_ucx_setting *setting = &ucx->settings[i];
        char given[CONVOY_UCX_VALUE_BYTES];
        memcpy(given, setting->value, sizeof given);
        if (!config_rows[i].can_be_read) {
            continue;
        }
        setting->is_read_back = convoy_ucx_config_find(text, setting->name, setting->value, sizeof setting->value);
        if (given[0] != '\0' && (!setting->is_read_back || strcmp(given, setting->value) != 0)) {
            status = convoy_error_set(error, CONVOY_INIT_FAILED, "UCX %s has %s=\"%.80s\" after being set to \"%.80s\"",
                                      ucx->library.version, setting->name,
                                      setting->is_read_back ? setting->value : "(nothing)", given);
        }
    }
    convoy_memory_free(text);
    return status;
}

static int32_t config_apply(const struct convoy_settings *settings, struct convoy_ucx *ucx, const char *devices,
                            ucp_config_t *config, struct convoy_error *error)
{
    for (size_t i = 0; i < CONVOY_UCX_SETTINGS; i++) {
        struct convoy_ucx_setting *setting = &ucx->settings[i];
        const char *value = config_choose(settings, i, &setting->source);
        if (i == CONFIG_NET_DEVICES && devices[0] != '\0') {
            value = devices;
        }
        setting->name = config_rows[i].name;
        setting->is_read_back = false;
        (void)snprintf(setting->value, sizeof setting->value, "%s", value != NULL ? value : "");
        if (value == NULL) {
            continue;
        }
        ucs_status_t result = ucx->library.functions.ucp_config_modify(config, setting->name, value);
        if (result != UCS_OK) {
            char what[CONVOY_UCX_VALUE_BYTES];
            (void)snprintf(what, sizeof what, "UCX refuses %s=\"%.100s\" (%s)", setting->name, value, setting->source);
            return convoy_ucx_error(&ucx->library.functions, error, CONVOY_INIT_FAILED, result, what);
        }
    }
    return config_read_back(config, ucx, error);
}

int32_t convoy_ucx_config_make(const struct convoy_settings *settings, struct convoy_ucx *ucx, const char *devices,
                               ucp_config_t **config_out, struct convoy_error *error)
{
    ucp_config_t *config = NULL;
    ucs_status_t result = ucx->library.functions.ucp_config_read(NULL, NULL, &config);
    if (result != UCS_OK) {
        return convoy_ucx_error(&ucx->library.functions, error, CONVOY_INIT_FAILED, result,
                                "UCX cannot read its configuration (UCX_* in the environment)");
    }
    int32_t status = config_apply(settings, ucx, devices, config, error);
    if (status != CONVOY_OK) {
        ucx->library.functions.ucp_config_release(config);
        return status;
    }
    *config_out = config;
    return CONVOY_OK;
}
