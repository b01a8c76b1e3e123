/* SPDX-License-Identifier: Apache-2.0 */
/* What a host asks of a build: checked once, when its loader is opened, and kept for every build that follows. */
#include "load/build.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/negotiate.h"

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

bool convoy_request_is_named(const struct convoy_family_request *request, const char *name)
{
    return strlen(name) == request->name_length && memcmp(request->name, name, request->name_length) == 0;
}

/* Of the families with host functions, the loader's copy has the layout of these headers and of no later major. */
static int32_t check_request(const struct convoy_family_request *request, struct convoy_error *error)
{
    size_t room = sizeof((struct convoy_loader_info *)NULL)->family_names[0];
    struct convoy_version_range range = {{request->major_min, request->minor_min},
                                         {request->major_max, request->minor_max}};
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
        if (convoy_request_is_named(request, known_families[i].name) && range.max.major > known_families[i].major_max) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                    "family %s: up to %u.%u is asked for, this loader knows up to %u.%u",
                                    known_families[i].name, range.max.major, range.max.minor,
                                    known_families[i].major_max, known_families[i].minor_max);
        }
    }
    return CONVOY_OK;
}

static int32_t check_options(const struct convoy_loader_options *options, const struct convoy_family_request *families,
                             size_t family_count, struct convoy_error *error)
{
    if ((options->flags & ~CONVOY_LOADER_REQUIRE_ALL) != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "flags is 0x%x; only 0x%x is known", options->flags,
                                CONVOY_LOADER_REQUIRE_ALL);
    }
    if (family_count > CONVOY_LOADER_FAMILIES_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "family_count is %zu; at most %d are allowed",
                                family_count, CONVOY_LOADER_FAMILIES_MAX);
    }
    bool has_core = false;
    for (size_t i = 0; i < family_count; i++) {
        int32_t status = check_request(&families[i], error);
        if (status != CONVOY_OK) {
            return status;
        }
        has_core = has_core || convoy_request_is_named(&families[i], "core");
    }
    if (!has_core) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "families lacks core, which is always needed");
    }
    return CONVOY_OK;
}

int32_t convoy_requests_take(const struct convoy_loader_options *options, struct convoy_requests *requests_out,
                             struct convoy_error *error)
{
    const struct convoy_family_request *families = options->families != NULL ? options->families : known_families;
    size_t family_count = options->families != NULL ? options->family_count : KNOWN_COUNT;
    int32_t status = check_options(options, families, family_count, error);
    if (status != CONVOY_OK) {
        return status;
    }
    *requests_out = (struct convoy_requests){.family_count = family_count,
                                             .flags = options->flags,
                                             .log_level = options->log_level,
                                             .log = options->log,
                                             .log_user = options->log_user};
    for (size_t i = 0; i < family_count; i++) {
        requests_out->families[i] = families[i];
        memcpy(requests_out->names[i], families[i].name, families[i].name_length);
        requests_out->families[i].name = requests_out->names[i];
    }
    if (options->host_name != NULL) {
        requests_out->host_name = convoy_memory_text(options->host_name, strlen(options->host_name));
        if (requests_out->host_name == NULL) {
            return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the host's name");
        }
    }
    return CONVOY_OK;
}

void convoy_requests_free(struct convoy_requests *requests)
{
    convoy_memory_free(requests->host_name);
    requests->host_name = NULL;
}

bool convoy_requests_is_needed(const struct convoy_requests *requests, const struct convoy_family_request *request)
{
    return (requests->flags & CONVOY_LOADER_REQUIRE_ALL) != 0 || convoy_request_is_named(request, "core");
}

bool convoy_requests_is_logged(const struct convoy_requests *requests, uint32_t level)
{
    return requests->log != NULL && level <= (requests->log_level != 0 ? requests->log_level : CONVOY_LOG_INFO);
}
