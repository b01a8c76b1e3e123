/* SPDX-License-Identifier: Apache-2.0 */
/* The one exported function. It only reads constants and writes into the caller's structs: no side effect at all. */
#define CONVOY_BUILDING 1 /* makes the declaration of convoy_query an export */
#include "convoy/query.h"

#include "core/negotiate.h"
#include "plugin/families.h"
#include "plugin/sized.h"

#define FAMILIES_ASKED_MAX 64

struct offer {
    const char *family;
    struct convoy_version_range range;
    const struct convoy_table_header *table;
};

#define OFFER_ROW(family, major, minor, table) {#family, {{(major), 0}, {(major), (minor)}}, &(table).header},

/* In the order of the list: rows of one family lie together, majors ascending. */
static const struct offer offers[] = {CONVOY_PLUGIN_FAMILIES(OFFER_ROW, OFFER_ROW)};

#define OFFER_COUNT (sizeof offers / sizeof offers[0])

static bool offer_is_named(const struct offer *offer, const char *name, size_t length)
{
    return strlen(offer->family) == length && memcmp(offer->family, name, length) == 0;
}

static void answer_family(const struct convoy_family_request *request, struct convoy_family_answer *answer)
{
    const struct convoy_version_range wanted = {{request->major_min, request->minor_min},
                                                {request->major_max, request->minor_max}};
    struct convoy_version_range ranges[OFFER_COUNT];
    size_t first = OFFER_COUNT;
    size_t count = 0;
    for (size_t i = 0; i < OFFER_COUNT; i++) {
        if (offer_is_named(&offers[i], request->name, request->name_length)) {
            first = count == 0 ? i : first;
            ranges[count++] = offers[i].range;
        }
    }
    struct convoy_negotiation result;
    convoy_negotiate(request->name, request->name_length, &wanted, ranges, count, &result);
    *answer = (struct convoy_family_answer){
        .table = result.status == CONVOY_OK ? offers[first + result.offer_index].table : NULL,
        .status = result.status,
        .major = result.agreed.major,
        .minor = result.agreed.minor,
        .plugin_major_min = result.offered.min.major,
        .plugin_minor_min = result.offered.min.minor,
        .plugin_major_max = result.offered.max.major,
        .plugin_minor_max = result.offered.max.minor,
    };
    memcpy(answer->reason, result.reason, sizeof answer->reason);
}

/* Nothing is answered before every request was looked at, so that a refused call writes nothing. */
static int32_t check_requests(const struct convoy_sized_array *requests, struct convoy_error *error)
{
    int32_t status = convoy_sized_array_check_in(requests, &CONVOY_SHAPE(family_request), error);
    for (size_t i = 0; status == CONVOY_OK && i < requests->count; i++) {
        struct convoy_family_request request;
        convoy_sized_array_read(&request, requests, &CONVOY_SHAPE(family_request), i);
        const struct convoy_version_range wanted = {{request.major_min, request.minor_min},
                                                    {request.major_max, request.minor_max}};
        if (request.name == NULL || request.name_length == 0) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "families[%zu].name is empty; it must be given", i);
        }
        if (!convoy_version_range_is_valid(&wanted)) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                    "families[%zu]: its lowest version %u.%u lies above its highest %u.%u", i,
                                    wanted.min.major, wanted.min.minor, wanted.max.major, wanted.max.minor);
        }
    }
    return status;
}

static int32_t check_host(const struct convoy_host_info *host, const struct convoy_plugin_info *plugin,
                          struct convoy_error *error)
{
    if (host->critical_flags != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED,
                                "host_info.critical_flags is 0x%x; this build knows no critical flag",
                                host->critical_flags);
    }
    if (host->family_count > FAMILIES_ASKED_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "host_info.family_count is %zu; 0 to %d are allowed",
                                host->family_count, FAMILIES_ASKED_MAX);
    }
    if (plugin->answer_capacity < host->family_count) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "plugin_info.answer_capacity is %zu; host_info asks for %zu families",
                                plugin->answer_capacity, host->family_count);
    }
    return CONVOY_OK;
}

static void describe_plugin(struct convoy_plugin_info *plugin)
{
    plugin->manifest = convoy_manifest_text(&plugin->manifest_length);
    plugin->release = CONVOY_RELEASE;
    plugin->release_length = sizeof CONVOY_RELEASE - 1;
    plugin->build_id = convoy_build_id_text(&plugin->build_id_length);
}

int32_t convoy_query(const struct convoy_host_info *host, struct convoy_plugin_info *plugin_out,
                     struct convoy_error *error)
{
    struct convoy_host_info asked;
    struct convoy_plugin_info plugin;
    int32_t status = convoy_sized_in(&asked, &CONVOY_SHAPE(host_info), host, error);
    if (status == CONVOY_OK) {
        status = convoy_sized_out_begin(&plugin, &CONVOY_SHAPE(plugin_info), plugin_out, error);
    }
    if (status == CONVOY_OK) {
        status = check_host(&asked, &plugin, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_sized_array requests = {asked.families, asked.family_stride, asked.family_count};
    const struct convoy_sized_array answers = {plugin.answers, plugin.answer_stride, asked.family_count};
    status = check_requests(&requests, error);
    if (status == CONVOY_OK) {
        status = convoy_sized_array_check_out(&answers, &CONVOY_SHAPE(family_answer), error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    for (size_t i = 0; i < requests.count; i++) {
        struct convoy_family_request request;
        struct convoy_family_answer answer;
        convoy_sized_array_read(&request, &requests, &CONVOY_SHAPE(family_request), i);
        answer_family(&request, &answer);
        convoy_sized_array_write(&answers, &CONVOY_SHAPE(family_answer), i, &answer);
    }
    plugin.answer_count = requests.count;
    describe_plugin(&plugin);
    convoy_sized_out_end(plugin_out, &CONVOY_SHAPE(plugin_info), &plugin);
    return CONVOY_OK;
}
