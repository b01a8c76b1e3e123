/* SPDX-License-Identifier: Apache-2.0 */
/* What a host brings to the transfer table, with arrays, at full size. */
#ifndef CONVOY_PLUGIN_TRANSFER_IN_H
#define CONVOY_PLUGIN_TRANSFER_IN_H

#include "sized.h"

#include "convoy/transfer.h"

/* Elements at full size: the caller's own array where it has that stride, else a copy that is freed. */
struct convoy_full_array {
    const void *elements;
    void *copy;
};

/* A stage at full size, with what was allocated for it. */
struct convoy_full_stage {
    struct convoy_stage stage;
    struct convoy_full_array tensors;
    struct convoy_full_array lists;
};

/* Statuses of convoy_sized_array_check_in, NO_MEMORY. copy: to be freed, also on failure (NULL then). */
int32_t convoy_full_array_begin(struct convoy_full_array *full, const struct convoy_sized_array *array,
                                const struct convoy_shape *shape, struct convoy_error *error);

/* UNSUPPORTED: an unknown critical flag. */
int32_t convoy_full_flags(const char *what, uint32_t given, uint32_t known, struct convoy_error *error);

/* stage_end afterwards, whatever the status. */
int32_t convoy_full_stage_begin(struct convoy_full_stage *full, const struct convoy_stage *given,
                                struct convoy_error *error);
void convoy_full_stage_end(struct convoy_full_stage *full);

#endif
