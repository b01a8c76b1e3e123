/* SPDX-License-Identifier: Apache-2.0 */
/* Where the command finds what belongs to it: files beside its own executable, and free ports. */
#ifndef CONVOY_CLI_PLACE_H
#define CONVOY_CLI_PLACE_H

#include "convoy/base.h"

#define CONVOY_PLACE_PATH_BYTES 4096u

/* Absolute path of `name` in the folder of the running executable. SYSTEM, LIMIT. */
int32_t convoy_place_beside(char path_out[CONVOY_PLACE_PATH_BYTES], const char *name, struct convoy_error *error);

/* Makes a folder and those above it. */
int32_t convoy_place_make_folder(const char *path, struct convoy_error *error);

/* Ports of 127.0.0.1 that nobody listened on a moment ago, all different. SYSTEM. */
int32_t convoy_place_free_ports(uint16_t *ports_out, uint32_t count, struct convoy_error *error);

#endif
