/* SPDX-License-Identifier: Apache-2.0 */
/* What inspecting gives beyond the public info: bytes and identity that the loader compares with what gets mapped. */
#ifndef CONVOY_LOAD_INSPECT_H
#define CONVOY_LOAD_INSPECT_H

#include "convoy/loader.h"
#include "load/elf_file.h"

struct convoy_inspected {
    struct convoy_file_info file;
    size_t build_id_bytes;
    unsigned char build_id[CONVOY_ELF_BUILD_ID_BYTES_MAX];
};

/* As convoy_loader_inspect. [any thread; blocks for file reads; allocates] */
int32_t convoy_inspect_file(const char *path, struct convoy_inspected *inspected_out, struct convoy_error *error);

/* The same for an open source; the texts do not name the file. inspected_out: zeroed by the caller. */
int32_t convoy_inspect_source(const struct convoy_elf_source *source, struct convoy_inspected *inspected_out,
                              struct convoy_error *error);

/* Puts the file's name in front of the error's text: its end if it is long, so that the reason keeps its room. */
int32_t convoy_inspect_blame(struct convoy_error *error, int32_t status, const char *path);

#endif
