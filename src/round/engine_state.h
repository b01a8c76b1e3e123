/* SPDX-License-Identifier: Apache-2.0 */
/* What of an engine is written down for another build. Numbers of items and fields are never used again. Used by
 * engine_move.c and engine_restore.c alone. */
#ifndef CONVOY_ROUND_ENGINE_STATE_H
#define CONVOY_ROUND_ENGINE_STATE_H

#include "core/bundle.h"
#include "round/remote.h"

/* Items of an engine. */
#define CONVOY_ENGINE_ITEM_PLACE 2u  /* items */
#define CONVOY_ENGINE_ITEM_LOSSES 3u /* items FIELDS, one for each member that is gone */
#define CONVOY_ENGINE_ITEM_REPORT 4u /* items ROW */
#define CONVOY_ENGINE_ITEM_REMOTE 5u /* remote_move.c */

/* In PLACE. */
#define CONVOY_ENGINE_ITEM_HOSTS 2u  /* u32 for each member: its host */
#define CONVOY_ENGINE_ITEM_PIDFDS 3u /* i32 for each member: the exporter's descriptor, or -1 */
#define CONVOY_ENGINE_ITEM_CELLS 4u  /* contents of memory that is not shared */

/* In REPORT. */
#define CONVOY_ENGINE_ITEM_ROW 2u

/* Where a member is. */
struct convoy_engine_place {
    uint32_t local_count;
    uint32_t host_count;
    int32_t segment_fd; /* 1 + the exporter's descriptor; 0 = alone on its host */
    uint32_t reserved;
    uint64_t segment_bytes;
    uint64_t cell_bytes; /* these three: geometry, part of the wire version; blob_bytes is the one that was free to choose */
    uint64_t blob_bytes;
    uint64_t total_bytes;
};

struct convoy_engine_lost {
    uint32_t member;
    uint8_t is_dead;
    uint8_t is_closed;
    uint8_t noticed_by;
    uint8_t reserved;
};

extern const struct convoy_bundle_shape convoy_engine_shape; /* of struct convoy_engine itself */
extern const struct convoy_bundle_shape convoy_engine_place_shape;
extern const struct convoy_bundle_shape convoy_engine_lost_shape;

#endif
