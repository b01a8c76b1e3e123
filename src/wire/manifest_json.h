/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A manifest as hosts write it in their JSON frames:
 *
 *   fields   {"latents": [{"offset": 0, "shape": [1, 16], "dtype": "float16"}],
 *             "embeds":  [{"offset": 512, "shape": [77], "dtype": "float32", "list_index": 0}, ...]}
 *   extra    {"list_lengths": {"embeds": 4}}
 *
 * The fields are what hosts exchange today, in their key order. The extra object is ours and lies beside them, where
 * old readers ignore it: without it the length of a list is its highest index + 1. It has only the lists whose length
 * is something else (None at the end, nothing but None, empty); a list without any tensor is only there. Entries of
 * types without a row (wire/dtype.h) have one more key, "nbytes"; where the type is known it may be there and must be
 * right. Other keys are ignored. payload_bytes of what was read is the highest end.
 *
 * The caller loads with CONVOY_MANIFEST_JSON_FLAGS: after loading, a duplicate key cannot be seen any more. Nothing
 * deeper than these levels is looked at; the parser bounds the depth of what is ignored. Paths in refusals name the
 * field and the position of the entry: manifest.embeds[1].shape[0]; those of the checks behind it see manifest.h.
 */
#ifndef CONVOY_WIRE_MANIFEST_JSON_H
#define CONVOY_WIRE_MANIFEST_JSON_H

#include "wire/manifest.h"

#include <jansson.h>

#define CONVOY_MANIFEST_JSON_FLAGS JSON_REJECT_DUPLICATES

/* Reads fields and extra (NULL: none was there); borrows both. MALFORMED or LIMIT with the path; NO_MEMORY. Offsets may
 * be anything. gives (convoy_manifest_destroy) */
int32_t convoy_manifest_json_decode(const json_t *fields, const json_t *extra, struct convoy_manifest **manifest_out,
                                    struct convoy_error *error);

/* Both are new references; extra is an empty object when nothing needs it. INVALID_ARGUMENT or LIMIT as
 * convoy_manifest_check, NO_MEMORY. */
int32_t convoy_manifest_json_encode(const struct convoy_manifest *manifest, json_t **fields_out, json_t **extra_out,
                                    struct convoy_error *error);

#endif
