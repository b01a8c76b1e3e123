/* SPDX-License-Identifier: Apache-2.0 */
/* Lock: runtime->lock is held over every change of runtime->ucx and its list; nothing else is locked under it but the
 * library's own lock. */
#include "net/ucx.h"

#include "core/error.h"
#include "core/memory.h"
#include "net/ucx_guard.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT_TEXT_BYTES 16384

int32_t convoy_ucx_error(const struct convoy_ucx_functions *functions, struct convoy_error *error, int32_t status,
                         ucs_status_t ucx_status, const char *what)
{
    (void)convoy_error_set(error, status, "%s: %s", what, functions->ucs_status_string(ucx_status));
    if (error != NULL && error->struct_size >= sizeof *error) {
        error->ucx_status = ucx_status;
    }
    return status;
}

void convoy_ucx_print(convoy_ucx_print_fn print, const void *object, const struct convoy_ucx_functions *functions,
                      char *text_out, size_t bytes)
{
    text_out[0] = '\0';
    FILE *stream = fmemopen(text_out, bytes, "w");
    if (stream != NULL) {
        print(object, functions, stream);
        (void)fclose(stream);
    }
    text_out[bytes - 1] = '\0';
}

void convoy_ucx_signals_block(sigset_t *old_out)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, old_out);
}

void convoy_ucx_signals_unblock(const sigset_t *old)
{
    (void)pthread_sigmask(SIG_SETMASK, old, NULL);
}

/* -- contexts ------------------------------------------------------------------------------------------------------ */

static void context_print(const void *object, const struct convoy_ucx_functions *functions, FILE *stream)
{
    const struct convoy_ucx_context *context = object;
    functions->ucp_context_print_info(context->handle, stream);
}

static void context_read_resources(const struct convoy_ucx *ucx, struct convoy_ucx_context *context)
{
    char *text = convoy_memory_zalloc(CONTEXT_TEXT_BYTES);
    if (text == NULL) {
        context->resources.count = 0; /* unknown */
        return;
    }
    convoy_ucx_print(context_print, context, &ucx->library.functions, text, CONTEXT_TEXT_BYTES);
    convoy_ucx_resources_parse_context(text, &context->resources);
    convoy_memory_free(text);
}

static ucs_status_t context_init(const struct convoy_ucx *ucx, const ucp_config_t *config, bool with_rma,
                                 ucp_context_h *handle_out)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | (with_rma ? UCP_FEATURE_RMA : 0),
        .mt_workers_shared = 1, /* links of one context work in different threads */
        .name = "convoy",
    };
    sigset_t old;
    convoy_ucx_signals_block(&old);
    ucs_status_t result =
        ucx->library.functions.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, handle_out);
    convoy_ucx_signals_unblock(&old);
    return result;
}

static uint64_t context_memory_types(const struct convoy_ucx *ucx, ucp_context_h handle)
{
    ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    ucs_status_t result = ucx->library.functions.ucp_context_query(handle, &attributes);
    return result == UCS_OK ? attributes.memory_types : 0;
}

/* "tcp/eth0, tcp/lo" of the network transports; false when there are none though the list is known. */
static bool resources_list(const struct convoy_ucx_resources *resources, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < resources->count; i++) {
        if (convoy_ucx_transport_is_network(resources->rows[i].transport) && used < bytes) {
            int added = snprintf(text + used, bytes - used, "%s%s/%s", used != 0 ? ", " : "",
                                 resources->rows[i].transport, resources->rows[i].device);
            used += added > 0 ? (size_t)added : 0;
        }
    }
    return used != 0 || resources->count == 0;
}

/* What there would be without anybody's TLS and NET_DEVICES, for the text of an error. */
static void ucx_list_available(const struct convoy_ucx *ucx, char *text, size_t bytes)
{
    ucp_config_t *config = NULL;
    struct convoy_ucx_context *context = convoy_memory_zalloc(sizeof *context);
    (void)snprintf(text, bytes, "nothing");
    if (context == NULL || ucx->library.functions.ucp_config_read(NULL, NULL, &config) != UCS_OK) {
        convoy_memory_free(context);
        return;
    }
    (void)ucx->library.functions.ucp_config_modify(config, "TLS", "all");
    (void)ucx->library.functions.ucp_config_modify(config, "NET_DEVICES", "all");
    if (context_init(ucx, config, false, &context->handle) == UCS_OK) {
        context_read_resources(ucx, context);
        if (!resources_list(&context->resources, text, bytes)) {
            (void)snprintf(text, bytes, "no network transport");
        }
        ucx->library.functions.ucp_cleanup(context->handle);
    }
    ucx->library.functions.ucp_config_release(config);
    convoy_memory_free(context);
}

static int32_t ucx_refuse_transports(const struct convoy_ucx *ucx, struct convoy_error *error)
{
    char available[96];
    ucx_list_available(ucx, available, sizeof available);
    return convoy_error_set(error, CONVOY_INIT_FAILED, "UCX %s finds no usable network transport with TLS=\"%.40s\" "
                            "(%s) and NET_DEVICES=\"%.40s\" (%s); available here: %s", ucx->library.version,
                            ucx->settings[0].value, ucx->settings[0].source, ucx->settings[1].value,
                            ucx->settings[1].source, available);
}

static int32_t ucx_context_make(const struct convoy_settings *settings, struct convoy_ucx *ucx, const char *devices,
                                bool with_rma, struct convoy_error *error)
{
    char unused[8];
    ucp_config_t *config;
    struct convoy_ucx_context *context = convoy_memory_zalloc(sizeof *context);
    if (context == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "opening UCX: out of memory");
    }
    struct convoy_ucx_setting configured[CONVOY_UCX_SETTINGS];
    memcpy(configured, ucx->settings, sizeof configured);
    int32_t status = convoy_ucx_config_make(settings, ucx, devices, &config, error);
    if (devices[0] != '\0') { /* the description shows what is configured, not one link's choice */
        memcpy(ucx->settings, configured, sizeof configured);
    }
    if (status != CONVOY_OK) {
        convoy_memory_free(context);
        return status;
    }
    ucs_status_t result = context_init(ucx, config, with_rma, &context->handle);
    ucx->library.functions.ucp_config_release(config);
    if (result == UCS_OK) {
        (void)snprintf(context->devices, sizeof context->devices, "%s", devices);
        context->with_rma = with_rma;
        context_read_resources(ucx, context);
        if (resources_list(&context->resources, unused, sizeof unused)) {
            context->next = ucx->contexts;
            ucx->contexts = context;
            return CONVOY_OK;
        }
        ucx->library.functions.ucp_cleanup(context->handle);
    }
    convoy_memory_free(context);
    return ucx_refuse_transports(ucx, error);
}

/* -- opening ------------------------------------------------------------------------------------------------------- */

static void ucx_log_changes(struct convoy_runtime *runtime, const struct convoy_ucx_library *library)
{
    convoy_log_line(&runtime->log, CONVOY_LOG_INFO, "ucx open file %s version %s loaded_by %s", library->file,
                    library->version, library->loaded_by_host ? "host" : "convoy");
    if (library->signals_changed != 0) {
        convoy_log_line(&runtime->log, CONVOY_LOG_WARN, "ucx replaced %u signal handlers; put back",
                        library->signals_changed);
    }
    for (uint32_t i = 0; i < CONVOY_UCX_GUARD_HOOKS; i++) {
        if ((library->hooks_changed & 1u << i) != 0) {
            convoy_log_line(&runtime->log, CONVOY_LOG_WARN, "ucx patched %s in libc; cannot be undone",
                            convoy_ucx_hook_name(i));
        }
    }
}

static int32_t ucx_open_locked(struct convoy_runtime *runtime, struct convoy_error *error)
{
    if (runtime->ucx == NULL) {
        runtime->ucx = convoy_memory_zalloc(sizeof *runtime->ucx);
    }
    struct convoy_ucx *ucx = runtime->ucx;
    if (ucx == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "opening UCX: out of memory");
    }
    if (ucx->is_open) {
        return CONVOY_OK;
    }
    ucx->failure = (struct convoy_error)CONVOY_ERROR_INIT;
    int32_t status = convoy_ucx_library_open(runtime->settings.ucx_library, &ucx->library, &ucx->failure);
    if (status == CONVOY_OK) {
        ucx_log_changes(runtime, &ucx->library);
        status = ucx_context_make(&runtime->settings, ucx, "", false, &ucx->failure);
    }
    if (status != CONVOY_OK) {
        convoy_log_line(&runtime->log, CONVOY_LOG_ERROR, "ucx %s", ucx->failure.text);
        (void)convoy_error_set(error, status, "%s", ucx->failure.text);
        return status;
    }
    ucx->resources = ucx->contexts->resources;
    ucx->memory_types = context_memory_types(ucx, ucx->contexts->handle);
    ucx->is_open = true;
    return CONVOY_OK;
}

int32_t convoy_ucx_open(struct convoy_runtime *runtime, const struct convoy_ucx **ucx_out, struct convoy_error *error)
{
    (void)pthread_mutex_lock(&runtime->lock);
    int32_t status = ucx_open_locked(runtime, error);
    if (status == CONVOY_OK) {
        *ucx_out = runtime->ucx;
    }
    (void)pthread_mutex_unlock(&runtime->lock);
    return status;
}

int32_t convoy_ucx_probe(struct convoy_runtime *runtime, struct convoy_error *error)
{
    const struct convoy_ucx *ucx;
    return convoy_ucx_open(runtime, &ucx, error);
}

static const struct convoy_ucx_context *ucx_context_find(const struct convoy_ucx *ucx, const char *devices,
                                                         bool with_rma)
{
    const struct convoy_ucx_context *context = ucx->contexts;
    while (context != NULL && (strcmp(context->devices, devices) != 0 || context->with_rma != with_rma)) {
        context = context->next;
    }
    return context;
}

int32_t convoy_ucx_context_get(struct convoy_runtime *runtime, const char *devices, bool with_rma,
                               const struct convoy_ucx_context **context_out, struct convoy_error *error)
{
    (void)pthread_mutex_lock(&runtime->lock);
    int32_t status = ucx_open_locked(runtime, error);
    if (status == CONVOY_OK && ucx_context_find(runtime->ucx, devices, with_rma) == NULL) {
        status = ucx_context_make(&runtime->settings, runtime->ucx, devices, with_rma, error);
    }
    if (status == CONVOY_OK) {
        *context_out = ucx_context_find(runtime->ucx, devices, with_rma);
    }
    (void)pthread_mutex_unlock(&runtime->lock);
    return status;
}

void convoy_ucx_destroy(struct convoy_ucx *ucx)
{
    if (ucx == NULL) {
        return;
    }
    while (ucx->contexts != NULL) {
        struct convoy_ucx_context *context = ucx->contexts;
        ucx->contexts = context->next;
        ucx->library.functions.ucp_cleanup(context->handle);
        convoy_memory_free(context);
    }
    convoy_memory_free(ucx);
}
