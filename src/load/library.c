/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlopen and what it leaves open: it compares names before files, so a file that was replaced under its old name gives
 * the old code (rust-lang/rust issue 59629); and a symbol may come from a dependency. Both are checked here.
 */
#include "load/build.h"

#include "core/error.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define SPELLINGS_MAX 16 /* builds that can follow each other under one file name */

/* Build id of what dlopen gave, whatever it was asked for. */
static bool library_is_build(void *library, const struct convoy_build_id *wanted)
{
    struct link_map *map = NULL;
    struct convoy_build_id id = {0};
    uintptr_t base = 0;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && convoy_mapped_at(map->l_ld, &id, &base) &&
           convoy_build_id_is_equal(&id, wanted);
}

/* The same file under another name: "dir/././name". The dynamic linker then compares files, not names. */
static bool spell_path(const char *path, unsigned spelling, char spelled[CONVOY_LOADER_PATH_BYTES])
{
    const char *name = strrchr(path, '/') + 1; /* the search has made sure of a slash */
    size_t directory = (size_t)(name - path);
    if (directory + 2 * spelling + strlen(name) >= CONVOY_LOADER_PATH_BYTES) {
        return false;
    }
    memcpy(spelled, path, directory);
    for (unsigned i = 0; i < spelling; i++) {
        memcpy(spelled + directory + 2 * i, "./", 2);
    }
    memcpy(spelled + directory + 2 * spelling, name, strlen(name) + 1);
    return true;
}

static int32_t load_file(const struct convoy_inspected *inspected, const struct convoy_build_id *wanted,
                         void **library_out, struct convoy_error *error)
{
    char spelled[CONVOY_LOADER_PATH_BYTES];
    for (unsigned spelling = 0; spelling < SPELLINGS_MAX && spell_path(inspected->file.path, spelling, spelled);
         spelling++) {
        void *library = dlopen(spelled, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            const char *words = dlerror();
            return convoy_error_set(error, CONVOY_INIT_FAILED, "the dynamic linker says: %s",
                                    words != NULL ? words : "nothing");
        }
        if (library_is_build(library, wanted)) {
            *library_out = library;
            return CONVOY_OK;
        }
        (void)dlclose(library);
    }
    return convoy_error_set(error, CONVOY_INIT_FAILED,
                            "the file holds build %s, but loading it gives another that is mapped under this name; "
                            "install each build under a name of its own",
                            inspected->file.build_id);
}

static int32_t find_query(void *library, convoy_query_fn *query_out, struct convoy_error *error)
{
    void *symbol = dlsym(library, CONVOY_QUERY_SYMBOL);
    if (symbol == NULL) {
        return convoy_error_set(error, CONVOY_NO_ENTRY, "it has convoy's note but no function %s", CONVOY_QUERY_SYMBOL);
    }
    struct link_map *map = NULL;
    struct convoy_build_id id;
    uintptr_t base = 0;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !convoy_mapped_at(symbol, &id, &base) ||
        base != map->l_addr) {
        return convoy_error_set(error, CONVOY_NO_ENTRY, "its function %s comes from another file", CONVOY_QUERY_SYMBOL);
    }
    memcpy(query_out, &symbol, sizeof *query_out); /* ISO C has no cast from data to function pointer */
    return CONVOY_OK;
}

int32_t convoy_library_open(const struct convoy_inspected *inspected, void **library_out, uint32_t *was_mapped_out,
                            convoy_query_fn *query_out, struct convoy_error *error)
{
    const struct convoy_build_id wanted = convoy_build_inspected_id(inspected);
    char mapped[CONVOY_MAPPED_PATH_BYTES];
    void *library = NULL;
    int32_t status = CONVOY_OK;
    if (convoy_mapped_find(&wanted, mapped)) {
        library = dlopen(mapped, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    }
    *was_mapped_out = library != NULL;
    if (library == NULL) {
        status = load_file(inspected, &wanted, &library, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    status = find_query(library, query_out, error);
    if (status != CONVOY_OK) {
        (void)dlclose(library);
        return status;
    }
    *library_out = library;
    return CONVOY_OK;
}
