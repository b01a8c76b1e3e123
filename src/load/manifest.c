/* SPDX-License-Identifier: Apache-2.0 */
#include "load/manifest.h"

#include "core/error.h"
#include "core/negotiate.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static int32_t bad_field(struct convoy_error *error, const char *field, const char *rule)
{
    return convoy_error_set(error, CONVOY_BAD_FILE, "manifest field %s: %s", field, rule);
}

/* Copies a text field that fits its place and is printable, since tools show it to people. */
static int32_t read_text(const json_t *object, const char *field, char *text_out, size_t room,
                         struct convoy_error *error)
{
    const json_t *value = json_object_get(object, field);
    size_t length = json_string_length(value);
    if (!json_is_string(value) || length == 0 || length >= room) {
        return convoy_error_set(error, CONVOY_BAD_FILE, "manifest field %s: text of 1 to %zu bytes is needed", field,
                                room - 1);
    }
    const char *text = json_string_value(value);
    for (size_t i = 0; i < length; i++) {
        if (text[i] < ' ' || text[i] > '~') {
            return bad_field(error, field, "only printable ASCII is allowed");
        }
    }
    memcpy(text_out, text, length + 1);
    return CONVOY_OK;
}

static int32_t read_number(const json_t *object, const char *field, uint32_t *number_out, struct convoy_error *error)
{
    const json_t *value = json_object_get(object, field);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number > UINT16_MAX) {
        return bad_field(error, field, "a number of 0 to 65535 is needed");
    }
    *number_out = (uint32_t)number;
    return CONVOY_OK;
}

/* "3.14" */
static int32_t read_version(const json_t *object, const char *field, struct convoy_version *version_out,
                            struct convoy_error *error)
{
    char text[16];
    int32_t status = read_text(object, field, text, sizeof text, error);
    if (status != CONVOY_OK) {
        return status;
    }
    unsigned major = 0;
    unsigned minor = 0;
    int used = 0;
    if (strspn(text, "0123456789.") != strlen(text) || sscanf(text, "%5u.%5u%n", &major, &minor, &used) != 2 ||
        text[used] != '\0' || major > UINT16_MAX || minor > UINT16_MAX) {
        return bad_field(error, field, "major.minor is needed");
    }
    *version_out = (struct convoy_version){(uint16_t)major, (uint16_t)minor};
    return CONVOY_OK;
}

static int32_t read_family(const json_t *object, struct convoy_file_family *family, struct convoy_error *error)
{
    struct convoy_version_range range = {0};
    int32_t status = read_text(object, "name", family->name, sizeof family->name, error);
    if (status == CONVOY_OK) {
        status = read_version(object, "min", &range.min, error);
    }
    if (status == CONVOY_OK) {
        status = read_version(object, "max", &range.max, error);
    }
    if (status == CONVOY_OK && !convoy_version_range_is_valid(&range)) {
        return bad_field(error, "families", "a lowest version lies above its highest");
    }
    family->major_min = range.min.major;
    family->minor_min = range.min.minor;
    family->major_max = range.max.major;
    family->minor_max = range.max.minor;
    return status;
}

static int32_t read_families(const json_t *manifest, struct convoy_file_info *info, struct convoy_error *error)
{
    const json_t *families = json_object_get(manifest, "families");
    size_t count = json_array_size(families);
    if (count == 0 || count > CONVOY_LOADER_FAMILIES_MAX) {
        return convoy_error_set(error, CONVOY_BAD_FILE, "manifest field families: 1 to %d are allowed, it has %zu",
                                CONVOY_LOADER_FAMILIES_MAX, count);
    }
    for (size_t i = 0; i < count; i++) {
        int32_t status = read_family(json_array_get(families, i), &info->families[i], error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    info->family_count = (uint32_t)count;
    return CONVOY_OK;
}

static int32_t read_fields(const json_t *manifest, struct convoy_file_info *info, struct convoy_error *error)
{
    const struct {
        const char *field;
        char *text_out;
        size_t room;
    } texts[] = {
        {"name", info->name, sizeof info->name},
        {"release", info->release, sizeof info->release},
        {"ucx", info->ucx, sizeof info->ucx},
        {"unload", info->unload, sizeof info->unload},
    };
    int32_t status = CONVOY_OK;
    for (size_t i = 0; status == CONVOY_OK && i < sizeof texts / sizeof texts[0]; i++) {
        status = read_text(manifest, texts[i].field, texts[i].text_out, texts[i].room, error);
    }
    const json_t *wire = json_object_get(manifest, "wire");
    if (status == CONVOY_OK) {
        status = read_number(wire, "min", &info->wire_min, error);
    }
    if (status == CONVOY_OK) {
        status = read_number(wire, "max", &info->wire_max, error);
    }
    const json_t *state = json_object_get(manifest, "state"); /* a plugin without family move has none */
    if (status == CONVOY_OK && state != NULL) {
        status = read_number(state, "min", &info->state_min, error);
    }
    if (status == CONVOY_OK && state != NULL) {
        status = read_number(state, "max", &info->state_max, error);
    }
    return status == CONVOY_OK ? read_families(manifest, info, error) : status;
}

int32_t convoy_manifest_read(struct convoy_file_info *info, struct convoy_error *error)
{
    json_error_t trouble;
    json_t *manifest = json_loadb(info->manifest, info->manifest_length, JSON_REJECT_DUPLICATES, &trouble);
    if (!json_is_object(manifest)) {
        json_decref(manifest);
        return convoy_error_set(error, CONVOY_BAD_FILE, "the manifest is no JSON object: %s",
                                manifest == NULL ? trouble.text : "it is something else");
    }
    uint32_t schema = 0;
    int32_t status = read_number(manifest, "schema", &schema, error);
    if (status == CONVOY_OK && schema != CONVOY_MANIFEST_SCHEMA) {
        status = convoy_error_set(error, schema > CONVOY_MANIFEST_SCHEMA ? CONVOY_TOO_NEW : CONVOY_TOO_OLD,
                                  "manifest schema %u; this loader reads %d", schema, CONVOY_MANIFEST_SCHEMA);
    }
    if (status == CONVOY_OK) {
        status = read_fields(manifest, info, error);
    }
    json_decref(manifest);
    return status;
}
