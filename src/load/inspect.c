/* SPDX-License-Identifier: Apache-2.0 */
#include "load/inspect.h"

#include "core/error.h"
#include "core/memory.h"
#include "load/manifest.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES_SHOWN 90

int32_t convoy_inspect_blame(struct convoy_error *error, int32_t status, const char *path)
{
    size_t length = strlen(path);
    bool is_long = length > PATH_BYTES_SHOWN;
    (void)convoy_error_prefix(error, status, "%s%s", is_long ? "..." : "",
                              is_long ? path + length - PATH_BYTES_SHOWN : path);
    return status;
}

static int32_t check_digest(const struct convoy_elf_source *source, const struct convoy_elf_info *elf,
                            struct convoy_file_info *info, struct convoy_error *error)
{
    if (!elf->has_digest_note || elf->digest == 0) { /* also when the damage hit that very note */
        return convoy_error_set(error, CONVOY_BAD_FILE, "damaged, or not finished by its build: it has no digest");
    }
    uint64_t digest = 0;
    int32_t status = convoy_elf_digest(source, elf->digest_offset, &digest, error);
    if (status == CONVOY_OK && digest != elf->digest) {
        return convoy_error_set(error, CONVOY_BAD_FILE,
                                "damaged: its bytes hash to %016llx, it was built with %016llx",
                                (unsigned long long)digest, (unsigned long long)elf->digest);
    }
    info->has_digest = status == CONVOY_OK;
    return status;
}

static int32_t read_elf(const struct convoy_elf_source *source, struct convoy_elf_info *elf,
                        struct convoy_inspected *inspected, struct convoy_error *error)
{
    struct convoy_file_info *info = &inspected->file;
    int32_t status = convoy_elf_info_read(source, elf, error);
    char machine[24];
    info->machine = elf->machine;
    info->bits = elf->bits;
    (void)snprintf(info->machine_name, sizeof info->machine_name, "%s",
                   elf->bits != 0 ? convoy_elf_machine_name(elf->machine, machine) : "");
    if (status != CONVOY_OK) {
        return status;
    }
    memcpy(info->soname, elf->soname, sizeof info->soname);
    memcpy(inspected->build_id, elf->build_id, sizeof inspected->build_id);
    inspected->build_id_bytes = elf->build_id_bytes;
    convoy_elf_build_id_text(elf->build_id, elf->build_id_bytes, info->build_id);
    if (!elf->has_manifest) {
        return convoy_error_set(error, CONVOY_NO_ENTRY, "no convoy plugin: it has no note of owner \"%s\"",
                                CONVOY_NOTE_OWNER);
    }
    memcpy(info->manifest, elf->manifest, elf->manifest_length + 1);
    info->manifest_length = elf->manifest_length;
    status = check_digest(source, elf, info, error);
    if (status == CONVOY_OK && elf->build_id_bytes == 0) {
        return convoy_error_set(error, CONVOY_NO_ENTRY, "it has no build id; link it with --build-id");
    }
    return status;
}

int32_t convoy_inspect_source(const struct convoy_elf_source *source, struct convoy_inspected *inspected_out,
                              struct convoy_error *error)
{
    struct convoy_elf_info *elf = convoy_memory_zalloc(sizeof *elf);
    if (elf == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to read an ELF file");
    }
    int32_t status = read_elf(source, elf, inspected_out, error);
    convoy_memory_free(elf);
    return status == CONVOY_OK ? convoy_manifest_read(&inspected_out->file, error) : status;
}

static int32_t inspect_path(const char *path, struct convoy_inspected *inspected, struct convoy_error *error)
{
    struct convoy_elf_source source;
    int32_t status = convoy_elf_source_open(path, &source, error);
    if (status != CONVOY_OK) {
        return status; /* names the file itself */
    }
    status = convoy_inspect_source(&source, inspected, error);
    convoy_elf_source_close(&source);
    return status == CONVOY_OK ? status : convoy_inspect_blame(error, status, path);
}

int32_t convoy_inspect_file(const char *path, struct convoy_inspected *inspected_out, struct convoy_error *error)
{
    memset(inspected_out, 0, sizeof *inspected_out);
    if (path == NULL || path[0] == '\0') {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "path is empty; the file to inspect must be given");
    }
    size_t length = strlen(path);
    if (length >= sizeof inspected_out->file.path) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "path has %zu bytes; at most %d are allowed", length,
                                CONVOY_LOADER_PATH_BYTES - 1);
    }
    memcpy(inspected_out->file.path, path, length + 1);
    return inspect_path(path, inspected_out, error);
}

int32_t convoy_loader_inspect(const char *path, struct convoy_file_info *info_out, struct convoy_error *error)
{
    if (info_out == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "info_out is NULL; it must be given");
    }
    struct convoy_inspected *inspected = convoy_memory_zalloc(sizeof *inspected);
    if (inspected == NULL) {
        memset(info_out, 0, sizeof *info_out);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to inspect a file");
    }
    int32_t status = convoy_inspect_file(path, inspected, error);
    *info_out = inspected->file;
    convoy_memory_free(inspected);
    return status;
}

int32_t convoy_loader_inspect_manifest(const char *text, size_t length, struct convoy_file_info *info_out,
                                       struct convoy_error *error)
{
    if (info_out == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "info_out is NULL; it must be given");
    }
    memset(info_out, 0, sizeof *info_out);
    if (text == NULL || length == 0 || length > CONVOY_ELF_MANIFEST_BYTES_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "a manifest has %zu bytes; 1 to %d are allowed",
                                text == NULL ? 0 : length, CONVOY_ELF_MANIFEST_BYTES_MAX);
    }
    memcpy(info_out->manifest, text, length);
    info_out->manifest_length = length;
    return convoy_manifest_read(info_out, error);
}
