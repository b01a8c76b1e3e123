/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one value that a server adds to a request's scalar_fields on their way, in transfer_ready: _prealloc_slot_id, the
 * preallocated slot that was used. It is put in and taken out of the text; every other byte stays as it is.
 *
 *     {"seed":18446744073709551615,"_prealloc_slot_id":3}
 */
#ifndef CONVOY_WIRE_SCALARS_H
#define CONVOY_WIRE_SCALARS_H

#include "convoy/base.h"
#include "wire/json_string.h"

#define CONVOY_SCALARS_SLOT_KEY "_prealloc_slot_id"

struct convoy_scalars_slot {
    bool has_id; /* false also for null */
    int64_t id;  /* 0 to 2^53 */
};

/* Reads it. scalars: an object, or no bytes for {}. MALFORMED: no object, the key is there twice, or its value is no
 * such integer. LIMIT: more than 1 MiB. All three functions refuse alike. */
int32_t convoy_scalars_slot_read(struct convoy_span scalars, struct convoy_scalars_slot *slot_out,
                                 struct convoy_error *error);

/* Gives the text without it, to be freed with convoy_memory_free. */
int32_t convoy_scalars_slot_remove(struct convoy_span scalars, char **text_out, size_t *bytes_out,
                                   struct convoy_error *error);

/* Gives the text with it: at the end, or in the place of one that is there. INVALID_ARGUMENT: id outside 0 to 2^53. */
int32_t convoy_scalars_slot_insert(struct convoy_span scalars, int64_t id, char **text_out, size_t *bytes_out,
                                   struct convoy_error *error);

#endif
