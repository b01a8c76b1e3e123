/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the manifest that a plugin carries as an ELF note. The text is untrusted: it comes from any file. */
#ifndef CONVOY_LOAD_MANIFEST_H
#define CONVOY_LOAD_MANIFEST_H

#include "convoy/loader.h"

/* Manifest schema that this release writes and reads; unknown fields inside it are ignored. */
#define CONVOY_MANIFEST_SCHEMA 1

/* Fills the manifest's part of the info from info->manifest. BAD_FILE: not JSON, or a field is missing or odd; the text
 * names it. TOO_NEW: a later schema. */
int32_t convoy_manifest_read(struct convoy_file_info *info, struct convoy_error *error);

#endif
