/* SPDX-License-Identifier: Apache-2.0 */
/* One build, from a path to its tables. */
#include "load/build.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/negotiate.h"
#include "load/search.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The decision from the file alone, before any of its code runs. */
static int32_t decide_from_file(const struct convoy_requests *requests, const struct convoy_inspected *inspected,
                                struct convoy_error *error)
{
    const struct convoy_file_info *file = &inspected->file;
    for (size_t i = 0; i < requests->family_count; i++) {
        const struct convoy_family_request *request = &requests->families[i];
        const struct convoy_version_range wanted = {{request->major_min, request->minor_min},
                                                    {request->major_max, request->minor_max}};
        struct convoy_version_range offers[CONVOY_LOADER_FAMILIES_MAX];
        size_t count = 0;
        for (size_t k = 0; k < file->family_count; k++) {
            const struct convoy_file_family *family = &file->families[k];
            if (convoy_request_is_named(request, family->name)) {
                offers[count++] = (struct convoy_version_range){{family->major_min, family->minor_min},
                                                                {family->major_max, family->minor_max}};
            }
        }
        struct convoy_negotiation result;
        convoy_negotiate(request->name, request->name_length, &wanted, offers, count, &result);
        if (result.status != CONVOY_OK && convoy_requests_is_needed(requests, request)) {
            (void)convoy_error_set(error, result.status, "release %s: %s", file->release, result.reason);
            return convoy_inspect_blame(error, result.status, file->path);
        }
    }
    return CONVOY_OK;
}

/* The plugin's own answers, which must agree with what its file said. */
static int32_t take_answers(const struct convoy_requests *requests, struct convoy_build *build, struct convoy_error *error)
{
    struct convoy_loader_info *info = &build->info;
    for (size_t i = 0; i < requests->family_count; i++) {
        struct convoy_family_answer *answer = &info->answers[i];
        answer->reason[sizeof answer->reason - 1] = '\0';
        bool is_agreed = answer->status == CONVOY_OK && answer->table != NULL &&
                         answer->table->table_size >= sizeof *answer->table && answer->table->major == answer->major;
        if (!is_agreed && convoy_requests_is_needed(requests, &requests->families[i])) {
            int32_t status = answer->status < 0 ? answer->status : CONVOY_INIT_FAILED;
            const char *why = answer->status < 0 ? answer->reason : "it agreed to a family and gave no usable table";
            (void)convoy_error_set(error, status, "%s", why);
            return convoy_inspect_blame(error, status, info->file.path);
        }
        if (!is_agreed) {
            answer->table = NULL;
            answer->status = answer->status < 0 ? answer->status : CONVOY_INIT_FAILED;
        }
        convoy_host_tables_take(&build->tables, info->family_names[i], answer->table);
    }
    return CONVOY_OK;
}

static int32_t ask(const struct convoy_requests *requests, struct convoy_build *build, convoy_query_fn query,
                   struct convoy_error *error)
{
    struct convoy_loader_info *info = &build->info;
    const char *name = requests->host_name;
    const struct convoy_host_info host = {
        .struct_size = sizeof host,
        .name = name,
        .name_length = name != NULL ? strlen(name) : 0,
        .families = requests->families,
        .family_stride = sizeof requests->families[0],
        .family_count = requests->family_count,
    };
    struct convoy_plugin_info plugin = {
        .struct_size = sizeof plugin,
        .answers = info->answers,
        .answer_stride = sizeof info->answers[0],
        .answer_capacity = CONVOY_LOADER_FAMILIES_MAX,
    };
    struct convoy_error refusal = CONVOY_ERROR_INIT;
    int32_t status = query(&host, &plugin, &refusal);
    if (status != CONVOY_OK || plugin.answer_count != requests->family_count) {
        (void)convoy_error_set(error, CONVOY_INIT_FAILED, "its %s says %d and answers %zu of %zu families: %s",
                               CONVOY_QUERY_SYMBOL, status, plugin.answer_count, requests->family_count, refusal.text);
        return convoy_inspect_blame(error, CONVOY_INIT_FAILED, info->file.path);
    }
    for (size_t i = 0; i < requests->family_count; i++) {
        memcpy(info->family_names[i], requests->families[i].name, requests->families[i].name_length);
    }
    info->family_count = (uint32_t)requests->family_count;
    return take_answers(requests, build, error);
}

void convoy_build_log(const struct convoy_requests *requests, const struct convoy_build *build)
{
    const struct convoy_loader_info *info = &build->info;
    if (!convoy_requests_is_logged(requests, CONVOY_LOG_INFO)) {
        return;
    }
    char line[CONVOY_LOADER_PATH_BYTES + 512];
    int length = snprintf(line, sizeof line, "plugin loaded file %s build %s release %s", info->file.path,
                          info->file.build_id, info->file.release);
    for (size_t i = 0; i < info->family_count && length >= 0 && (size_t)length < sizeof line; i++) {
        const struct convoy_family_answer *answer = &info->answers[i];
        char agreed[16] = "none";
        if (answer->table != NULL) {
            (void)snprintf(agreed, sizeof agreed, "%u.%u", answer->major, answer->minor);
        }
        length += snprintf(line + length, sizeof line - (size_t)length, " %s %s", info->family_names[i], agreed);
    }
    requests->log(requests->log_user, CONVOY_LOG_INFO, line, strlen(line));
}

struct convoy_build_id convoy_build_inspected_id(const struct convoy_inspected *inspected)
{
    struct convoy_build_id id = {.count = inspected->build_id_bytes};
    memcpy(id.bytes, inspected->build_id, sizeof id.bytes);
    return id;
}

int32_t convoy_build_find(const struct convoy_requests *requests, const char *path,
                          struct convoy_inspected *inspected_out, struct convoy_error *error)
{
    char found[CONVOY_LOADER_PATH_BYTES];
    int32_t status = convoy_search_plugin(path, found, error);
    if (status == CONVOY_OK) {
        status = convoy_inspect_file(found, inspected_out, error);
    }
    return status == CONVOY_OK ? decide_from_file(requests, inspected_out, error) : status;
}

int32_t convoy_build_load(const struct convoy_requests *requests, const struct convoy_inspected *inspected,
                          struct convoy_build **build_out, struct convoy_error *error)
{
    struct convoy_build *build = convoy_memory_zalloc(sizeof *build);
    if (build == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a build of %zu bytes", sizeof *build);
    }
    build->info.file = inspected->file;
    build->id = convoy_build_inspected_id(inspected);
    convoy_host_tables_init(&build->tables);
    convoy_query_fn query = NULL;
    int32_t status = convoy_library_open(inspected, &build->library, &build->info.was_mapped, &query, error);
    if (status != CONVOY_OK) {
        (void)convoy_inspect_blame(error, status, build->info.file.path);
    } else {
        status = ask(requests, build, query, error);
    }
    if (status != CONVOY_OK) {
        convoy_build_free(build);
        return status;
    }
    *build_out = build;
    return CONVOY_OK;
}

void convoy_build_free(struct convoy_build *build)
{
    if (build->library != NULL) {
        (void)dlclose(build->library);
    }
    convoy_memory_free(build);
}

const struct convoy_table_header *convoy_build_table(const struct convoy_build *build, const char *family)
{
    for (size_t i = 0; i < build->info.family_count; i++) {
        if (strcmp(build->info.family_names[i], family) == 0) {
            return build->info.answers[i].table;
        }
    }
    return NULL;
}
