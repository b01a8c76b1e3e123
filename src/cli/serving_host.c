/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serving_host.h"

#include "core/error.h"

#include <stdio.h>
#include <string.h>

/* `move` is asked for as well, and may be refused: such a plugin serves, and is not replaced while it does. */
static const struct convoy_family_request host_families[] = {
    {"core", 4, CONVOY_CORE_MAJOR, 0, CONVOY_CORE_MAJOR, CONVOY_CORE_MINOR},
    {"poll", 4, CONVOY_POLL_MAJOR, 0, CONVOY_POLL_MAJOR, CONVOY_POLL_MINOR},
    {"sync", 4, CONVOY_SYNC_MAJOR, 0, CONVOY_SYNC_MAJOR, CONVOY_SYNC_MINOR},
    {"move", 4, CONVOY_MOVE_MAJOR, 0, CONVOY_MOVE_MAJOR, CONVOY_MOVE_MINOR},
};

#define HOST_NEEDED 3u /* the first ones */

/* Log lines of the plugin go to stderr, prefixed, so that they are told from the command's own. */
static void host_log(void *user, uint32_t level, const char *text, size_t length)
{
    (void)user;
    (void)level;
    (void)fprintf(stderr, "plugin: %.*s\n", (int)length, text);
}

static int32_t host_check(const convoy_loader *loader, struct convoy_error *error)
{
    const struct convoy_loader_info *info = convoy_loader_info(loader);
    for (uint32_t i = 0; i < HOST_NEEDED; i++) {
        const struct convoy_family_answer *answer = &info->answers[i];
        if (answer->status != CONVOY_OK) {
            return convoy_error_set(error, answer->status, "the plugin refuses family %s: %.110s", host_families[i].name,
                                    answer->reason);
        }
    }
    return CONVOY_OK;
}

int32_t convoy_serving_host_open(struct convoy_serving_host *host, const char *plugin, struct convoy_error *error)
{
    const struct convoy_loader_options options = {
        .path = plugin,
        .log_level = CONVOY_LOG_WARN,
        .log = host_log,
        .host_name = "convoy command " CONVOY_RELEASE,
        .families = host_families,
        .family_count = sizeof host_families / sizeof host_families[0],
    };
    const struct convoy_context_config config = {.struct_size = sizeof config, .log = host_log};
    *host = (struct convoy_serving_host){0};
    int32_t status = convoy_loader_open(&options, &host->loader, error);
    if (status == CONVOY_OK) {
        status = host_check(host->loader, error);
    }
    return status == CONVOY_OK ? convoy_host_context_open(host->loader, &config, &host->context, error) : status;
}

void convoy_serving_host_close(struct convoy_serving_host *host, uint64_t timeout_ns)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (host->context != NULL && convoy_host_context_close(host->context, timeout_ns, &error) != CONVOY_OK) {
        return; /* still closing, and the process is about to end */
    }
    (void)convoy_loader_close(host->loader, &error);
    *host = (struct convoy_serving_host){0};
}

int32_t convoy_serving_host_group_open(struct convoy_serving_host *host, const struct convoy_plain_group *group,
                                       convoy_host_group **group_out, struct convoy_error *error)
{
    struct convoy_plain_group_text text;
    struct convoy_group_options options;
    convoy_plain_group_fill(group, &text, &options);
    return convoy_host_group_open(host->context, &options, group_out, error);
}
