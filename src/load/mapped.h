/* SPDX-License-Identifier: Apache-2.0 */
/* Shared objects that this process has mapped, by build id: which code really runs, whatever its file is called. */
#ifndef CONVOY_LOAD_MAPPED_H
#define CONVOY_LOAD_MAPPED_H

#include "load/elf_file.h"

#define CONVOY_MAPPED_PATH_BYTES 4096

struct convoy_build_id {
    size_t count; /* 0 = none */
    unsigned char bytes[CONVOY_ELF_BUILD_ID_BYTES_MAX];
};

bool convoy_build_id_is_equal(const struct convoy_build_id *a, const struct convoy_build_id *b);

/* Name under which a mapped shared object with this build id was loaded; false = none is mapped. */
bool convoy_mapped_find(const struct convoy_build_id *id, char path_out[CONVOY_MAPPED_PATH_BYTES]);

/* Build id of the object that holds an address, and where that object was loaded. false: no object holds it. */
bool convoy_mapped_at(const void *address, struct convoy_build_id *id_out, uintptr_t *base_out);

#endif
