/* SPDX-License-Identifier: Apache-2.0 */
#include "load/loader.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/negotiate.h"
#include "load/search.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define KNOWN(text, major, minor)                                                                                      \
    {.name = (text), .name_length = sizeof(text) - 1, .major_min = (major), .minor_min = 0, .major_max = (major),      \
     .minor_max = (minor)}

/* What these headers have, and what a host asks for when it names nothing. */
static const struct convoy_family_request known_families[] = {
    KNOWN("core", CONVOY_CORE_MAJOR, CONVOY_CORE_MINOR),
    KNOWN("poll", CONVOY_POLL_MAJOR, CONVOY_POLL_MINOR),
    KNOWN("sync", CONVOY_SYNC_MAJOR, CONVOY_SYNC_MINOR),
    KNOWN("transfer", CONVOY_TRANSFER_MAJOR, CONVOY_TRANSFER_MINOR),
    KNOWN("move", CONVOY_MOVE_MAJOR, CONVOY_MOVE_MINOR),
};

#define KNOWN_COUNT (sizeof known_families / sizeof known_families[0])

/* One open on its way. */
struct opening {
    const struct convoy_loader_options *options;
    const struct convoy_family_request *families;
    size_t family_count;
    struct convoy_inspected inspected;
    struct convoy_loader *loader;
    struct convoy_error *error;
};

static bool request_is_named(const struct convoy_family_request *request, const char *name)
{
    return strlen(name) == request->name_length && memcmp(request->name, name, request->name_length) == 0;
}

static struct convoy_version_range request_range(const struct convoy_family_request *request)
{
    return (struct convoy_version_range){{request->major_min, request->minor_min},
                                         {request->major_max, request->minor_max}};
}

/* Of the families with host functions, the loader's copy has the layout of these headers and of no later major. */
static int32_t check_request(const struct convoy_family_request *request, struct convoy_error *error)
{
    size_t room = sizeof((struct convoy_loader_info *)NULL)->family_names[0];
    struct convoy_version_range range = request_range(request);
    if (request->name == NULL || request->name_length == 0 || request->name_length >= room) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "a family's name has %zu bytes; 1 to %zu are allowed",
                                request->name == NULL ? 0 : request->name_length, room - 1);
    }
    if (!convoy_version_range_is_valid(&range)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "family %.*s: its lowest version %u.%u lies above its highest %u.%u",
                                (int)request->name_length, request->name, range.min.major, range.min.minor,
                                range.max.major, range.max.minor);
    }
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if (request_is_named(request, known_families[i].name) && range.max.major > known_families[i].major_max) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                    "family %s: up to %u.%u is asked for, this loader knows up to %u.%u",
                                    known_families[i].name, range.max.major, range.max.minor,
                                    known_families[i].major_max, known_families[i].minor_max);
        }
    }
    return CONVOY_OK;
}

static int32_t check_options(struct opening *opening)
{
    const struct convoy_loader_options *options = opening->options;
    if ((options->flags & ~CONVOY_LOADER_REQUIRE_ALL) != 0) {
        return convoy_error_set(opening->error, CONVOY_INVALID_ARGUMENT, "flags is 0x%x; only 0x%x is known",
                                options->flags, CONVOY_LOADER_REQUIRE_ALL);
    }
    opening->families = options->families != NULL ? options->families : known_families;
    opening->family_count = options->families != NULL ? options->family_count : KNOWN_COUNT;
    if (opening->family_count > CONVOY_LOADER_FAMILIES_MAX) {
        return convoy_error_set(opening->error, CONVOY_INVALID_ARGUMENT, "family_count is %zu; at most %d are allowed",
                                opening->family_count, CONVOY_LOADER_FAMILIES_MAX);
    }
    bool has_core = false;
    for (size_t i = 0; i < opening->family_count; i++) {
        int32_t status = check_request(&opening->families[i], opening->error);
        if (status != CONVOY_OK) {
            return status;
        }
        has_core = has_core || request_is_named(&opening->families[i], "core");
    }
    if (!has_core) {
        return convoy_error_set(opening->error, CONVOY_INVALID_ARGUMENT, "families lacks core, which is always needed");
    }
    return CONVOY_OK;
}

static bool is_needed(const struct opening *opening, const struct convoy_family_request *request)
{
    return (opening->options->flags & CONVOY_LOADER_REQUIRE_ALL) != 0 || request_is_named(request, "core");
}

/* The decision from the file alone, before any of its code runs. */
static int32_t decide_from_file(struct opening *opening)
{
    const struct convoy_file_info *file = &opening->inspected.file;
    for (size_t i = 0; i < opening->family_count; i++) {
        const struct convoy_family_request *request = &opening->families[i];
        const struct convoy_version_range wanted = request_range(request);
        struct convoy_version_range offers[CONVOY_LOADER_FAMILIES_MAX];
        size_t count = 0;
        for (size_t k = 0; k < file->family_count; k++) {
            const struct convoy_file_family *family = &file->families[k];
            if (request_is_named(request, family->name)) {
                offers[count++] = (struct convoy_version_range){{family->major_min, family->minor_min},
                                                                {family->major_max, family->minor_max}};
            }
        }
        struct convoy_negotiation result;
        convoy_negotiate(request->name, request->name_length, &wanted, offers, count, &result);
        if (result.status != CONVOY_OK && is_needed(opening, request)) {
            (void)convoy_error_set(opening->error, result.status, "release %s: %s", file->release, result.reason);
            return convoy_inspect_blame(opening->error, result.status, file->path);
        }
    }
    return CONVOY_OK;
}

/* The plugin's own answers, which must agree with what its file said. */
static int32_t take_answers(struct opening *opening)
{
    struct convoy_loader_info *info = &opening->loader->info;
    for (size_t i = 0; i < opening->family_count; i++) {
        struct convoy_family_answer *answer = &info->answers[i];
        answer->reason[sizeof answer->reason - 1] = '\0';
        bool is_agreed = answer->status == CONVOY_OK && answer->table != NULL &&
                         answer->table->table_size >= sizeof *answer->table && answer->table->major == answer->major;
        if (!is_agreed && is_needed(opening, &opening->families[i])) {
            int32_t status = answer->status < 0 ? answer->status : CONVOY_INIT_FAILED;
            const char *why = answer->status < 0 ? answer->reason : "it agreed to a family and gave no usable table";
            (void)convoy_error_set(opening->error, status, "%s", why);
            return convoy_inspect_blame(opening->error, status, info->file.path);
        }
        if (!is_agreed) {
            answer->table = NULL;
            answer->status = answer->status < 0 ? answer->status : CONVOY_INIT_FAILED;
        }
        convoy_host_tables_take(&opening->loader->tables, info->family_names[i], answer->table);
    }
    return CONVOY_OK;
}

static int32_t ask(struct opening *opening, convoy_query_fn query)
{
    struct convoy_loader_info *info = &opening->loader->info;
    const char *name = opening->options->host_name;
    const struct convoy_host_info host = {
        .struct_size = sizeof host,
        .name = name,
        .name_length = name != NULL ? strlen(name) : 0,
        .families = opening->families,
        .family_stride = sizeof opening->families[0],
        .family_count = opening->family_count,
    };
    struct convoy_plugin_info plugin = {
        .struct_size = sizeof plugin,
        .answers = info->answers,
        .answer_stride = sizeof info->answers[0],
        .answer_capacity = CONVOY_LOADER_FAMILIES_MAX,
    };
    struct convoy_error refusal = CONVOY_ERROR_INIT;
    int32_t status = query(&host, &plugin, &refusal);
    if (status != CONVOY_OK || plugin.answer_count != opening->family_count) {
        (void)convoy_error_set(opening->error, CONVOY_INIT_FAILED, "its %s says %d and answers %zu of %zu families: %s",
                               CONVOY_QUERY_SYMBOL, status, plugin.answer_count, opening->family_count, refusal.text);
        return convoy_inspect_blame(opening->error, CONVOY_INIT_FAILED, info->file.path);
    }
    for (size_t i = 0; i < opening->family_count; i++) {
        memcpy(info->family_names[i], opening->families[i].name, opening->families[i].name_length);
    }
    info->family_count = (uint32_t)opening->family_count;
    return take_answers(opening);
}

/* The one line of a load: what was agreed (NVIDIA/nccl issue 1292: probes that fail must not look like the error). */
static void log_agreement(const struct opening *opening)
{
    const struct convoy_loader_options *options = opening->options;
    const struct convoy_loader_info *info = &opening->loader->info;
    if (options->log == NULL || (options->log_level != 0 && options->log_level < CONVOY_LOG_INFO)) {
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
    options->log(options->log_user, CONVOY_LOG_INFO, line, strlen(line));
}

static int32_t load(struct opening *opening)
{
    struct convoy_loader *loader = opening->loader;
    loader->info.file = opening->inspected.file;
    convoy_host_tables_init(&loader->tables);
    convoy_query_fn query = NULL;
    int32_t status =
        convoy_library_open(&opening->inspected, &loader->library, &loader->info.was_mapped, &query, opening->error);
    if (status != CONVOY_OK) {
        return convoy_inspect_blame(opening->error, status, loader->info.file.path);
    }
    status = ask(opening, query);
    if (status != CONVOY_OK) {
        (void)dlclose(loader->library);
    }
    return status;
}

static int32_t find_and_decide(struct opening *opening)
{
    char path[CONVOY_LOADER_PATH_BYTES];
    int32_t status = check_options(opening);
    if (status == CONVOY_OK) {
        status = convoy_search_plugin(opening->options->path, path, opening->error);
    }
    if (status == CONVOY_OK) {
        status = convoy_inspect_file(path, &opening->inspected, opening->error);
    }
    return status == CONVOY_OK ? decide_from_file(opening) : status;
}

int32_t convoy_loader_open(const struct convoy_loader_options *options, convoy_loader **loader_out,
                           struct convoy_error *error)
{
    static const struct convoy_loader_options defaults;
    if (loader_out == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "loader_out is NULL; it must be given");
    }
    struct opening *opening = convoy_memory_zalloc(sizeof *opening);
    struct convoy_loader *loader = convoy_memory_zalloc(sizeof *loader);
    int32_t status = CONVOY_OK;
    if (opening == NULL || loader == NULL) {
        status = convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a loader of %zu bytes", sizeof *loader);
        goto undo_memory;
    }
    opening->options = options != NULL ? options : &defaults;
    opening->loader = loader;
    opening->error = error;
    status = find_and_decide(opening);
    if (status == CONVOY_OK) {
        status = load(opening);
    }
    if (status != CONVOY_OK) {
        goto undo_memory;
    }
    log_agreement(opening);
    convoy_memory_free(opening);
    *loader_out = loader;
    return CONVOY_OK;

undo_memory:
    convoy_memory_free(loader);
    convoy_memory_free(opening);
    return status;
}

int32_t convoy_loader_close(convoy_loader *loader, struct convoy_error *error)
{
    if (loader == NULL) {
        return CONVOY_OK;
    }
    uint32_t open = atomic_load(&loader->context_count);
    if (open != 0) {
        return convoy_error_set(error, CONVOY_BUSY, "%u contexts of this loader are open; close them first", open);
    }
    (void)dlclose(loader->library);
    convoy_memory_free(loader);
    return CONVOY_OK;
}

const struct convoy_loader_info *convoy_loader_info(const convoy_loader *loader)
{
    return &loader->info;
}

const struct convoy_table_header *convoy_loader_table(const convoy_loader *loader, const char *family)
{
    for (size_t i = 0; i < loader->info.family_count; i++) {
        if (strcmp(loader->info.family_names[i], family) == 0) {
            return loader->info.answers[i].table;
        }
    }
    return NULL;
}
