/* SPDX-License-Identifier: Apache-2.0 */
#include "load/search.h"

#include "core/error.h"
#include "core/memory.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIED_BYTES 200

struct search {
    char *path; /* CONVOY_LOADER_PATH_BYTES */
    char tried[TRIED_BYTES];
    size_t tried_length;
};

/* A name without a slash would make dlopen search by soname, and return whatever build is there already. */
static int32_t take_given(const char *given, const char *source, char *path_out, struct convoy_error *error)
{
    const char *prefix = strchr(given, '/') == NULL ? "./" : "";
    int length = snprintf(path_out, CONVOY_LOADER_PATH_BYTES, "%s%s", prefix, given);
    if (length < 0 || length >= CONVOY_LOADER_PATH_BYTES) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%s has %zu bytes; at most %d are allowed", source,
                                strlen(given), CONVOY_LOADER_PATH_BYTES - 3);
    }
    if (access(path_out, F_OK) != 0) {
        return convoy_error_set(error, CONVOY_NOT_FOUND, "%s names %.180s, which does not exist", source, path_out);
    }
    return CONVOY_OK;
}

static bool try_directory(struct search *search, const char *directory, size_t length)
{
    int written = snprintf(search->path, CONVOY_LOADER_PATH_BYTES, "%.*s/%s", (int)length, directory, CONVOY_SONAME);
    if (written < 0 || written >= CONVOY_LOADER_PATH_BYTES) {
        return false;
    }
    if (access(search->path, F_OK) == 0) {
        return true;
    }
    if (search->tried_length < sizeof search->tried) {
        int added = snprintf(search->tried + search->tried_length, sizeof search->tried - search->tried_length,
                             "%s%.*s", search->tried_length != 0 ? ", " : "", (int)length, directory);
        search->tried_length += added > 0 ? (size_t)added : 0;
    }
    return false;
}

static bool try_beside_executable(struct search *search)
{
    char executable[CONVOY_LOADER_PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
    if (length <= 0) {
        return false;
    }
    executable[length] = '\0';
    const char *slash = strrchr(executable, '/');
    return slash != NULL && try_directory(search, executable, (size_t)(slash - executable));
}

/* Asks the dynamic linker itself for its list, instead of guessing what this system's is. */
static bool try_linker_directories(struct search *search)
{
    void *self = dlopen(NULL, RTLD_NOW);
    Dl_serinfo size = {0};
    bool is_found = false;
    if (self == NULL || dlinfo(self, RTLD_DI_SERINFOSIZE, &size) != 0) {
        goto undo_self;
    }
    Dl_serinfo *list = convoy_memory_zalloc(size.dls_size);
    if (list == NULL) {
        goto undo_self;
    }
    list->dls_size = size.dls_size;
    list->dls_cnt = size.dls_cnt;
    if (dlinfo(self, RTLD_DI_SERINFO, list) == 0) {
        for (unsigned i = 0; !is_found && i < list->dls_cnt; i++) {
            is_found = try_directory(search, list->dls_serpath[i].dls_name, strlen(list->dls_serpath[i].dls_name));
        }
    }
    convoy_memory_free(list);
undo_self:
    if (self != NULL) {
        (void)dlclose(self);
    }
    return is_found;
}

int32_t convoy_search_plugin(const char *path, char path_out[CONVOY_LOADER_PATH_BYTES], struct convoy_error *error)
{
    if (path != NULL) {
        return take_given(path, "path", path_out, error);
    }
    const char *configured = getenv("CONVOY_LIBRARY");
    if (configured != NULL && configured[0] != '\0') {
        return take_given(configured, "CONVOY_LIBRARY", path_out, error);
    }
    static const char local[] = "/usr/local/lib"; /* most systems reach it only through the linker's cache */
    struct search search = {.path = path_out};
    if (try_beside_executable(&search) || try_linker_directories(&search) ||
        try_directory(&search, local, sizeof local - 1)) {
        return CONVOY_OK;
    }
    return convoy_error_set(error, CONVOY_NOT_FOUND, CONVOY_SONAME " is in none of: %s", search.tried);
}
