/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of frozen releases: vX.Y/manifest.json and vX.Y/layout.txt, and draft/layout.txt for what came after. */
#include "cli/compat.h"

#include "cli/place.h"
#include "core/error.h"
#include "core/memory.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#define FOLDER_FILE_BYTES_MAX (1u << 20)

static bool folder_is_one(const char *path)
{
    char draft[CONVOY_COMPAT_PATH_BYTES + 32];
    struct stat what;
    (void)snprintf(draft, sizeof draft, "%s/draft/layout.txt", path);
    return stat(draft, &what) == 0 && S_ISREG(what.st_mode);
}

int32_t convoy_compat_folder(const char *given, char folder_out[CONVOY_COMPAT_PATH_BYTES], struct convoy_error *error)
{
    /* Installed; build/convoy; build/VARIANT/convoy; a test beside its objects. */
    static const char *const beside[] = {"abi", "../abi", "../../abi", "../../../../abi"};
    struct stat what;
    if (given != NULL) {
        if (strlen(given) >= CONVOY_COMPAT_PATH_BYTES || stat(given, &what) != 0 || !S_ISDIR(what.st_mode)) {
            return convoy_error_set(error, CONVOY_NOT_FOUND, "--abi %.150s is no folder", given);
        }
        (void)strcpy(folder_out, given);
        return CONVOY_OK;
    }
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        int32_t status = convoy_place_beside(folder_out, beside[i], error);
        if (status != CONVOY_OK) {
            return status;
        }
        if (folder_is_one(folder_out)) {
            return CONVOY_OK;
        }
    }
    return convoy_error_set(error, CONVOY_NOT_FOUND, "no folder of frozen releases lies beside this command");
}

char *convoy_compat_read(const char *folder, const char *name, size_t *bytes_out)
{
    char path[CONVOY_COMPAT_PATH_BYTES + 320];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rbe");
    char *text = file != NULL ? convoy_memory_zalloc(FOLDER_FILE_BYTES_MAX) : NULL;
    if (text != NULL) {
        *bytes_out = fread(text, 1, FOLDER_FILE_BYTES_MAX - 1, file);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return text;
}

/* The functions of one table in a layout's text. false: it has no such table, or more functions than there is room for. */
static bool folder_read_slots(const char *layout, const char *family, struct convoy_compat_slots *slots_out)
{
    char head[96];
    (void)snprintf(head, sizeof head, "struct convoy_%.31s_table ", family);
    const char *line = layout;
    while (line != NULL && strncmp(line, head, strlen(head)) != 0) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    slots_out->count = 0;
    while (line != NULL && (line = strchr(line, '\n')) != NULL && *++line == ' ') {
        const char *name = strstr(line, "(*");
        const char *end = strchr(line, '\n');
        if (name == NULL || (end != NULL && name > end)) {
            continue; /* the header */
        }
        size_t length = strcspn(name + 2, ")");
        if (slots_out->count == CONVOY_COMPAT_SLOTS_MAX || length >= CONVOY_COMPAT_NAME_BYTES) {
            return false;
        }
        char *out = slots_out->names[slots_out->count++];
        memcpy(out, name + 2, length);
        out[length] = '\0';
    }
    return slots_out->count != 0;
}

static bool folder_read_layout(const char *folder, const char *part, const char *family,
                               struct convoy_compat_slots *slots_out)
{
    char name[300];
    size_t bytes = 0;
    (void)snprintf(name, sizeof name, "%.255s/layout.txt", part);
    char *layout = convoy_compat_read(folder, name, &bytes);
    bool is_read = layout != NULL && folder_read_slots(layout, family, slots_out);
    convoy_memory_free(layout);
    return is_read;
}

/* Whether that version is the highest of the family in that frozen release. */
static bool folder_release_has(const char *folder, const char *part, const char *family, struct convoy_version version)
{
    static struct convoy_file_info info; /* too large for a stack; the command has one thread */
    char name[300];
    size_t bytes = 0;
    bool has = false;
    (void)snprintf(name, sizeof name, "%.255s/manifest.json", part);
    char *text = convoy_compat_read(folder, name, &bytes);
    if (text != NULL && convoy_loader_inspect_manifest(text, bytes, &info, NULL) == CONVOY_OK) {
        for (uint32_t i = 0; i < info.family_count; i++) {
            const struct convoy_file_family *row = &info.families[i];
            if (strcmp(row->name, family) == 0) { /* the last row of a family is its highest major */
                has = row->major_max == version.major && row->minor_max == version.minor;
            }
        }
    }
    convoy_memory_free(text);
    return has;
}

/* Frozen layouts first; the draft is what these headers have. */
static bool folder_find_slots(const char *folder, const char *family, struct convoy_version version,
                              struct convoy_compat_slots *slots_out)
{
    bool is_found = false;
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && !is_found && (entry = readdir(list)) != NULL;) {
        is_found = entry->d_name[0] == 'v' && folder_release_has(folder, entry->d_name, family, version) &&
                   folder_read_layout(folder, entry->d_name, family, slots_out);
    }
    (void)(list != NULL && closedir(list));
    struct convoy_version known;
    return is_found || (convoy_compat_known(family, &known) && known.major == version.major &&
                        known.minor == version.minor && folder_read_layout(folder, "draft", family, slots_out));
}

bool convoy_compat_slots_lost(const char *folder, const char *family, struct convoy_version from,
                              struct convoy_version to, struct convoy_compat_slots *lost_out)
{
    static struct convoy_compat_slots has;
    static struct convoy_compat_slots gets;
    lost_out->count = 0;
    if (folder[0] == '\0' || !folder_find_slots(folder, family, from, &has) ||
        !folder_find_slots(folder, family, to, &gets)) {
        return false;
    }
    for (uint32_t i = 0; i < has.count; i++) {
        bool is_kept = false;
        for (uint32_t k = 0; k < gets.count; k++) {
            is_kept = is_kept || strcmp(has.names[i], gets.names[k]) == 0;
        }
        if (!is_kept) {
            memcpy(lost_out->names[lost_out->count++], has.names[i], sizeof has.names[i]);
        }
    }
    return true;
}
