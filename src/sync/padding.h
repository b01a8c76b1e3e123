/* SPDX-License-Identifier: Apache-2.0 */
/* Padded sizes, starts and lengths from gathered tokens; see convoy/sync.h. Pure; structs are full-size. */
#ifndef CONVOY_SYNC_PADDING_H
#define CONVOY_SYNC_PADDING_H

#include "convoy/sync.h"

int32_t convoy_padding_size(const struct convoy_sync_padding *input, struct convoy_sync_padded *padded_out,
                            struct convoy_error *error);

int32_t convoy_padding_starts(const struct convoy_sync_padding *input, int64_t extent, int64_t *starts_out,
                              struct convoy_error *error);

#endif
