/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a group of several hosts hands over to the importer (core/bundle.h), in the open item of the writer:
 *
 *   1 fields       remote_fields
 *   2 member       1 fields: member_fields; 2 its address. One for each member
 *   3 host         1 fields: host_fields; 3 boxes: 1 fields: box_fields, 2 bytes
 *   4 failed       head of the failure that this host has told last
 *   5 diverged     rows of the last divergence
 *
 * An agreement on reopening begins anew: what was promised lies in the segment. Written by remote_save.c, read by
 * remote_restore.c; nothing else includes this.
 */
#ifndef CONVOY_ROUND_REMOTE_ITEMS_H
#define CONVOY_ROUND_REMOTE_ITEMS_H

#include "round/remote_internal.h"

#include "core/bundle.h"

#define SAVE_MEMBER 2u
#define SAVE_HOST 3u
#define SAVE_FAILED 4u
#define SAVE_DIVERGED 5u
#define SAVE_BYTES 2u /* in a member and in a box */
#define SAVE_BOX 3u   /* in a host */

struct remote_fields {
    uint64_t sequence;
    uint64_t frozen_ns;
    uint64_t sent_word;
    uint64_t rows_word;
    uint64_t failed_word;
    uint64_t dropped_token;
    uint64_t dropped_stale;
    uint64_t dropped_repeat;
    uint64_t dropped_bad;
    uint64_t rewires;
    uint64_t rewire_down_ns_max;
    uint32_t heir_fd; /* plus 1 */
    uint32_t was_leader;
    uint32_t has_warned;
    uint32_t has_diverged_rows;
    uint32_t diverged_count;
    uint32_t is_wanted;
    uint32_t wanted_from;
};

struct remote_member_fields {
    uint64_t sequence;
    uint64_t count;
    uint64_t down_ns;
    uint32_t member;
};

struct remote_host_fields {
    uint64_t down_ns;
    uint64_t asked_word;
    uint32_t host;
    uint32_t leader;
    uint32_t member_count;
    uint32_t is_lost;
    uint32_t retry_member;
};

struct remote_box_fields {
    uint64_t word;
    uint32_t is_rows;
};

extern const struct convoy_bundle_shape convoy_remote_shape;
extern const struct convoy_bundle_shape convoy_remote_member_shape;
extern const struct convoy_bundle_shape convoy_remote_host_shape;
extern const struct convoy_bundle_shape convoy_remote_box_shape;

#endif
