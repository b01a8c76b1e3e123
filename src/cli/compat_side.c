/* SPDX-License-Identifier: Apache-2.0 */
/* What A or B names: a plugin file, a frozen release, or the ranges of a host. */
#include "cli/compat.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    struct convoy_version highest;
} side_known[] = {
    {"core", {CONVOY_CORE_MAJOR, CONVOY_CORE_MINOR}},
    {"poll", {CONVOY_POLL_MAJOR, CONVOY_POLL_MINOR}},
    {"sync", {CONVOY_SYNC_MAJOR, CONVOY_SYNC_MINOR}},
    {"transfer", {CONVOY_TRANSFER_MAJOR, CONVOY_TRANSFER_MINOR}},
    {"move", {CONVOY_MOVE_MAJOR, CONVOY_MOVE_MINOR}},
};

#define SIDE_KNOWN (sizeof side_known / sizeof side_known[0])

bool convoy_compat_known(const char *family, struct convoy_version *version_out)
{
    for (size_t i = 0; i < SIDE_KNOWN; i++) {
        if (strcmp(side_known[i].name, family) == 0) {
            *version_out = side_known[i].highest;
            return true;
        }
    }
    return false;
}

static void side_add(struct convoy_compat_side *side, const char *name, const struct convoy_version_range *range)
{
    struct convoy_file_family *family = &side->file.families[side->file.family_count++];
    (void)snprintf(family->name, sizeof family->name, "%s", name);
    family->major_min = range->min.major;
    family->minor_min = range->min.minor;
    family->major_max = range->max.major;
    family->minor_max = range->max.minor;
}

/* Of each family the highest major with all of its minors. */
static void side_take_headers(struct convoy_compat_side *side)
{
    for (size_t i = 0; i < SIDE_KNOWN; i++) {
        struct convoy_version_range range = {{side_known[i].highest.major, 0}, side_known[i].highest};
        side_add(side, side_known[i].name, &range);
    }
}

static bool side_is_release(const char *text)
{
    unsigned major = 0;
    unsigned minor = 0;
    int used = 0;
    return strspn(text, "0123456789.") == strlen(text) && sscanf(text, "%5u.%5u%n", &major, &minor, &used) == 2 &&
           text[used] == '\0';
}

static int32_t side_read_release(const char *release, const char *folder, struct convoy_compat_side *side,
                                 struct convoy_error *error)
{
    char name[CONVOY_COMPAT_NAME_BYTES];
    size_t bytes = 0;
    if (folder[0] == '\0') {
        return convoy_error_set(error, CONVOY_NOT_FOUND,
                                "release %.20s: no folder of frozen releases lies beside this command; give it with --abi",
                                release);
    }
    (void)snprintf(name, sizeof name, "v%.20s/manifest.json", release);
    char *text = convoy_compat_read(folder, name, &bytes);
    if (text == NULL) {
        return convoy_error_set(error, CONVOY_NOT_FOUND, "release %.20s is not frozen in %.150s: it has no %s", release,
                                folder, name);
    }
    int32_t status = convoy_loader_inspect_manifest(text, bytes, &side->file, error);
    convoy_memory_free(text);
    return status == CONVOY_OK ? status : convoy_error_prefix(error, status, "release %.20s", release);
}

/* Of several majors a host that was built with a release asks for the highest alone. */
static void side_become_host(struct convoy_compat_side *side)
{
    struct convoy_file_info *file = &side->file;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < file->family_count; i++) {
        bool is_last = i + 1 == file->family_count || strcmp(file->families[i].name, file->families[i + 1].name) != 0;
        if (is_last) {
            file->families[kept++] = file->families[i];
        }
    }
    file->family_count = kept;
}

/* "poll=1.0-1.1" or "poll=1.0" */
static bool side_read_range(const char *word, struct convoy_compat_side *side)
{
    char name[32];
    unsigned at[4] = {0};
    int used = 0;
    if (sscanf(word, "%31[a-z0-9-]=%5u.%5u%n", name, &at[0], &at[1], &used) != 3) {
        return false;
    }
    at[2] = at[0];
    at[3] = at[1];
    if (word[used] == '-') {
        int more = 0;
        if (sscanf(word + used, "-%5u.%5u%n", &at[2], &at[3], &more) != 2) {
            return false;
        }
        used += more;
    }
    struct convoy_version_range range = {{(uint16_t)at[0], (uint16_t)at[1]}, {(uint16_t)at[2], (uint16_t)at[3]}};
    bool is_small = at[0] <= UINT16_MAX && at[1] <= UINT16_MAX && at[2] <= UINT16_MAX && at[3] <= UINT16_MAX;
    if (word[used] != '\0' || !is_small || !convoy_version_range_is_valid(&range)) {
        return false;
    }
    side_add(side, name, &range);
    return true;
}

static int32_t side_read_ranges(const char *text, struct convoy_compat_side *side, struct convoy_error *error)
{
    char copy[512];
    char *rest = NULL;
    if (strlen(text) >= sizeof copy) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "a host's ranges have %zu bytes: must be below %zu",
                                strlen(text), sizeof copy);
    }
    (void)strcpy(copy, text);
    for (char *word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (side->file.family_count == CONVOY_LOADER_FAMILIES_MAX) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "a host asks for at most %d families",
                                    CONVOY_LOADER_FAMILIES_MAX);
        }
        if (!side_read_range(word, side)) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                    "\"%.60s\" is no range of a host: family=1.0 or family=1.0-1.2 is needed", word);
        }
    }
    return side->file.family_count != 0 ? CONVOY_OK
                                        : convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                                           "a host that asks for no family: family=1.0 is needed");
}

int32_t convoy_compat_side_read(const char *text, const char *folder, struct convoy_compat_side *side_out,
                                struct convoy_error *error)
{
    struct convoy_compat_side *side = side_out;
    memset(side, 0, sizeof *side);
    side->text = text;
    side->is_host = strcmp(text, "host") == 0 || strncmp(text, "host:", 5) == 0;
    if (!side->is_host && !side_is_release(text)) {
        return convoy_loader_inspect(text, &side->file, error);
    }
    if (!side->is_host) {
        side->is_release = true;
        return side_read_release(text, folder, side, error);
    }
    if (text[4] == '\0') {
        side_take_headers(side);
        return CONVOY_OK;
    }
    if (!side_is_release(text + 5)) {
        return side_read_ranges(text + 5, side, error);
    }
    int32_t status = side_read_release(text + 5, folder, side, error);
    side_become_host(side);
    return status;
}
