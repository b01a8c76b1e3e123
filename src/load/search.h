/* SPDX-License-Identifier: Apache-2.0 */
/* Where the plugin's file is looked for, when the host names none. */
#ifndef CONVOY_LOAD_SEARCH_H
#define CONVOY_LOAD_SEARCH_H

#include "convoy/loader.h"

/*
 * Finds the file: `path` (may be NULL), else CONVOY_LIBRARY, else beside the executable, else the directories of the
 * dynamic linker (LD_LIBRARY_PATH, run path, system). The first that exists is taken; it is not opened. path_out has a
 * slash in it, so that dlopen takes it as a file. NOT_FOUND: text lists where it was looked for.
 */
int32_t convoy_search_plugin(const char *path, char path_out[CONVOY_LOADER_PATH_BYTES], struct convoy_error *error);

#endif
