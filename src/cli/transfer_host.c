/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/transfer_host.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define HOST_LOOK_NS 200000 /* between two looks at the pool */

static const struct convoy_family_request host_families[] = {
    {"core", 4, CONVOY_CORE_MAJOR, 0, CONVOY_CORE_MAJOR, CONVOY_CORE_MINOR},
    {"transfer", 8, CONVOY_TRANSFER_MAJOR, 0, CONVOY_TRANSFER_MAJOR, CONVOY_TRANSFER_MINOR},
    {"move", 4, CONVOY_MOVE_MAJOR, 0, CONVOY_MOVE_MAJOR, CONVOY_MOVE_MINOR},
};

#define HOST_TRANSFER 1u /* its place there; move may be refused: such a plugin works, and is not replaced meanwhile */

/* Log lines of the plugin go to stderr, prefixed, so that they are told from the command's own. */
static void host_log(void *user, uint32_t level, const char *text, size_t length)
{
    (void)user;
    (void)level;
    (void)fprintf(stderr, "plugin: %.*s\n", (int)length, text);
}

static int32_t host_load(struct convoy_transfer_host *host, const char *plugin, struct convoy_error *error)
{
    const struct convoy_loader_options options = {
        .path = plugin,
        .log_level = CONVOY_LOG_WARN,
        .log = host_log,
        .host_name = "convoy command " CONVOY_RELEASE,
        .families = host_families,
        .family_count = sizeof host_families / sizeof host_families[0],
    };
    int32_t status = convoy_loader_open(&options, &host->loader, error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_family_answer *answer = &convoy_loader_info(host->loader)->answers[HOST_TRANSFER];
    return answer->status == CONVOY_OK ? CONVOY_OK
                                       : convoy_error_set(error, answer->status, "the plugin refuses family transfer: %.110s",
                                                          answer->reason);
}

int32_t convoy_transfer_host_open(struct convoy_transfer_host *host,
                                  const struct convoy_transfer_host_options *options, struct convoy_error *error)
{
    *host = (struct convoy_transfer_host){0};
    int32_t status = host_load(host, options->plugin, error);
    if (status == CONVOY_OK) {
        struct convoy_context_config config = {
            .struct_size = sizeof config,
            .log = host_log,
            .settings = options->settings,
            .settings_length = options->settings != NULL ? strlen(options->settings) : 0,
        };
        status = convoy_host_context_open(host->loader, &config, &host->context, error);
    }
    if (status == CONVOY_OK) {
        struct convoy_transfer_options engine = options->engine;
        engine.struct_size = sizeof engine;
        engine.address_length = engine.address != NULL ? strlen(engine.address) : 0;
        status = convoy_host_engine_open(host->context, &engine, &host->engine, error);
    }
    return status;
}

int32_t convoy_transfer_host_close(struct convoy_transfer_host *host, uint64_t timeout_ns, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    if (host->engine != NULL) {
        status = convoy_host_engine_close(host->engine, timeout_ns, error);
        host->engine = NULL; /* also when it drains for longer: closing the context is the second try */
    }
    if (host->context != NULL) {
        struct convoy_error other = CONVOY_ERROR_INIT;
        int32_t closed = convoy_host_context_close(host->context, timeout_ns, &other);
        host->context = NULL;
        if (status == CONVOY_OK && closed != CONVOY_OK) {
            status = convoy_error_copy(error, &other);
        }
    }
    if (status == CONVOY_OK && host->loader != NULL) {
        status = convoy_loader_close(host->loader, error);
        host->loader = NULL;
    }
    return status;
}

int32_t convoy_transfer_host_session(const struct convoy_transfer_host *host, char session_out[CONVOY_SESSION_BYTES],
                                     struct convoy_error *error)
{
    struct convoy_engine_info info = {.struct_size = sizeof info};
    int32_t status = convoy_host_engine_info(host->engine, &info, error);
    if (status == CONVOY_OK) {
        memcpy(session_out, info.session, sizeof info.session);
    }
    return status;
}

int32_t convoy_transfer_host_describe(const struct convoy_transfer_host *host, uint32_t topic, char **text_out,
                                      struct convoy_error *error)
{
    struct convoy_text_buffer buffer = {.struct_size = sizeof buffer, .capacity = 65536};
    int32_t status = CONVOY_BUFFER_TOO_SMALL;
    while (status == CONVOY_BUFFER_TOO_SMALL) { /* it grows between two calls only while requests are under way */
        convoy_memory_free(buffer.data);
        buffer.data = convoy_memory_zalloc(buffer.capacity + 1);
        if (buffer.data == NULL) {
            return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a text of %zu bytes", buffer.capacity);
        }
        status = convoy_host_engine_describe(host->engine, topic, &buffer, error);
        buffer.capacity = buffer.length + 4096 > buffer.capacity ? buffer.length + 4096 : buffer.capacity;
    }
    if (status != CONVOY_OK) {
        convoy_memory_free(buffer.data);
        return status;
    }
    *text_out = buffer.data;
    return CONVOY_OK;
}

uint64_t convoy_transfer_host_leaks(const struct convoy_engine_figures *figures)
{
    return figures->taken_count + figures->ready_count + figures->quarantined_count + figures->reader_count +
           (figures->taken != 0 && figures->taken_count + figures->ready_count + figures->quarantined_count == 0);
}

int32_t convoy_transfer_host_drain(const struct convoy_transfer_host *host, uint64_t timeout_ns,
                                   struct convoy_engine_figures *figures_out, struct convoy_error *error)
{
    const struct timespec pause = {.tv_nsec = HOST_LOOK_NS};
    uint64_t deadline_ns = convoy_deadline_after(convoy_now_ns(), timeout_ns);
    for (;;) {
        struct convoy_engine_figures figures = {.struct_size = sizeof figures};
        int32_t status = convoy_host_pool_figures(host->engine, &figures, error);
        if (status != CONVOY_OK) {
            return status;
        }
        if (convoy_transfer_host_leaks(&figures) == 0 || convoy_now_ns() >= deadline_ns) {
            *figures_out = figures;
            return CONVOY_OK;
        }
        (void)nanosleep(&pause, NULL); /* peers give back in their own time */
    }
}
