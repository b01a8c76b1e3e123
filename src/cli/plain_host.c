/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plain_host.h"

#include "core/error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define HOST_FAMILIES 3u
#define HOST_SCHEMA "sglang-8"

static const struct convoy_family_request host_families[HOST_FAMILIES] = {
    {"core", 4, CONVOY_CORE_MAJOR, 0, CONVOY_CORE_MAJOR, CONVOY_CORE_MINOR},
    {"poll", 4, CONVOY_POLL_MAJOR, 0, CONVOY_POLL_MAJOR, CONVOY_POLL_MINOR},
    {"sync", 4, CONVOY_SYNC_MAJOR, 0, CONVOY_SYNC_MAJOR, CONVOY_SYNC_MINOR},
};

static int32_t host_check_answer(const struct convoy_family_answer *answer, size_t index, size_t table_bytes,
                                 struct convoy_error *error)
{
    const char *name = host_families[index].name;
    if (answer->table == NULL) {
        return convoy_error_set(error, answer->status != CONVOY_OK ? answer->status : CONVOY_UNSUPPORTED,
                                "the plugin refuses family %s: %.110s", name, answer->reason);
    }
    /* Every function this host calls is in 1.0; a shorter table cannot be one. */
    if (answer->table->table_size < table_bytes) {
        return convoy_error_set(error, CONVOY_TOO_OLD, "the table of family %s has %u bytes: must be at least %zu",
                                name, answer->table->table_size, table_bytes);
    }
    return CONVOY_OK;
}

static void host_copy_text(char out[CONVOY_PLAIN_HOST_TEXT_BYTES], const char *text, size_t length)
{
    (void)snprintf(out, CONVOY_PLAIN_HOST_TEXT_BYTES, "%.*s", (int)(length < 63 ? length : 63),
                   text != NULL ? text : "");
}

static int32_t host_query(struct convoy_plain_host *host, convoy_query_fn query, struct convoy_error *error)
{
    static const size_t table_bytes[HOST_FAMILIES] = {
        sizeof(struct convoy_core_table), sizeof(struct convoy_poll_table), sizeof(struct convoy_sync_table)};
    struct convoy_family_answer answers[HOST_FAMILIES] = {0};
    struct convoy_host_info info = {
        .struct_size = sizeof info,
        .name = "convoy command " CONVOY_RELEASE,
        .name_length = sizeof "convoy command " CONVOY_RELEASE - 1,
        .families = host_families,
        .family_stride = sizeof host_families[0],
        .family_count = HOST_FAMILIES,
    };
    struct convoy_plugin_info plugin = {
        .struct_size = sizeof plugin,
        .answers = answers,
        .answer_stride = sizeof answers[0],
        .answer_capacity = HOST_FAMILIES,
    };
    int32_t status = query(&info, &plugin, error);
    for (size_t i = 0; i < HOST_FAMILIES && status == CONVOY_OK; i++) {
        status = host_check_answer(&answers[i], i, table_bytes[i], error);
    }
    if (status == CONVOY_OK) {
        host->core = (const struct convoy_core_table *)answers[0].table;
        host->poll = (const struct convoy_poll_table *)answers[1].table;
        host->sync = (const struct convoy_sync_table *)answers[2].table;
        host_copy_text(host->release, plugin.release, plugin.release_length);
        host_copy_text(host->build_id, plugin.build_id, plugin.build_id_length);
    }
    return status;
}

/* Log lines of the plugin go to stderr, prefixed, so that they are told from the command's own. */
static void host_log(void *user, uint32_t level, const char *text, size_t length)
{
    (void)user;
    (void)level;
    (void)fprintf(stderr, "plugin: %.*s\n", (int)length, text);
}

int32_t convoy_plain_host_open(struct convoy_plain_host *host, const char *plugin, struct convoy_error *error)
{
    *host = (struct convoy_plain_host){0};
    host->library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    if (host->library == NULL) {
        return convoy_error_set(error, CONVOY_BAD_FILE, "cannot load the plugin: %.200s", dlerror());
    }
    void *symbol = dlsym(host->library, CONVOY_QUERY_SYMBOL);
    if (symbol == NULL) {
        return convoy_error_set(error, CONVOY_NO_ENTRY, "%.150s is no convoy plugin: it has no %s", plugin,
                                CONVOY_QUERY_SYMBOL);
    }
    convoy_query_fn query = NULL;
    memcpy(&query, &symbol, sizeof query); /* ISO C has no cast from an object to a function pointer */
    int32_t status = host_query(host, query, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_context_config config = {.struct_size = sizeof config, .log = host_log};
    return host->core->context_open(&config, &host->context, error);
}

void convoy_plain_host_close(struct convoy_plain_host *host, uint64_t timeout_ns)
{
    if (host->context != NULL) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        (void)host->core->context_close(host->context, timeout_ns, &error);
        host->context = NULL;
    }
}

void convoy_plain_group_fill(const struct convoy_plain_group *group, struct convoy_plain_group_text *text,
                             struct convoy_group_options *options_out)
{
    int length = snprintf(text->rendezvous, sizeof text->rendezvous, "tcp://%s:%u",
                          group->address != NULL ? group->address : "", group->port);
    text->schema = (struct convoy_sync_schema){
        .struct_size = sizeof text->schema, .builtin = HOST_SCHEMA, .builtin_length = sizeof HOST_SCHEMA - 1};
    *options_out = (struct convoy_group_options){
        .struct_size = sizeof *options_out,
        .own_index = group->own_index,
        .name = group->name,
        .name_length = strlen(group->name),
        .member_ids = group->member_ids,
        .member_count = group->member_count,
        .own_id = group->member_ids[group->own_index],
        .rendezvous = group->member_count > 1 ? text->rendezvous : NULL,
        .rendezvous_length = group->member_count > 1 ? (size_t)length : 0,
        .open_timeout_ns = group->open_timeout_ns,
        .timeout_ns = group->timeout_ns,
        .blob_bytes_max = group->blob_bytes_max,
        .schema = group->sync_inner != 0 ? &text->schema : NULL,
        .sync_inner = group->sync_inner,
    };
}

int32_t convoy_plain_host_group_open(struct convoy_plain_host *host, const struct convoy_plain_group *group,
                                     convoy_group **group_out, struct convoy_error *error)
{
    struct convoy_plain_group_text text;
    struct convoy_group_options options;
    convoy_plain_group_fill(group, &text, &options);
    return host->core->group_open(host->context, &options, group_out, error);
}
