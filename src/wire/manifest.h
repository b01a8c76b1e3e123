/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A manifest: which tensors lie where in the payload of one request. Pure: offsets and sizes, no payload.
 *
 *   offset  0            512              1024 (multiples of 512 from the start of the slot)
 *           | latents    | embeds[0]      | embeds[2]  |          lists: embeds, length 4 (holes at 1 and at 3)
 *           |<--- payload_bytes, to the last byte of a tensor --->|
 *
 * A field of a host is one tensor (list_index -1) or a list of them. A list has a row of its own, so that its length is
 * kept: holes, holes at the end, a list of holes only and an empty list all come back as they were. The order of lists
 * has no meaning. Tensors of 0 dimensions (one element) and of no elements are kept like all others.
 *
 * A tensor without bytes takes no place: it lies at the last multiple of 512 that the tensors before it reach, overlaps
 * nothing and does not raise payload_bytes. Other senders may put it at most one step of 512 past the payload.
 *
 * Paths in refusals: manifest.NAME or manifest.NAME[list_index], then .shape[1] and so on; manifest.tensors[i] and
 * manifest.lists[i] (positions) where the name itself is what is wrong.
 */
#ifndef CONVOY_WIRE_MANIFEST_H
#define CONVOY_WIRE_MANIFEST_H

#include "convoy/base.h"

#define CONVOY_MANIFEST_TENSORS_MAX 4096u
#define CONVOY_MANIFEST_LISTS_MAX 1024u
#define CONVOY_MANIFEST_LENGTH_MAX 65536u /* of a list */
#define CONVOY_MANIFEST_NAME_MAX 255u
#define CONVOY_MANIFEST_DTYPE_NAME_MAX 63u
#define CONVOY_MANIFEST_RANK_MAX 16u
#define CONVOY_MANIFEST_ALIGNMENT 512u
#define CONVOY_MANIFEST_NUMBER_MAX ((uint64_t)INT64_MAX) /* of offsets, sizes and dimensions: what JSON can carry */

struct convoy_tensor {
    const char *name; /* of the field: a tensor in a list has the name of the list; not terminated */
    const char *dtype_name; /* opaque only, else ignored; not terminated */
    uint32_t name_length;
    uint32_t dtype_name_length;
    int32_t list_index; /* -1 = not in a list */
    uint32_t dtype;     /* CONVOY_DTYPE_* */
    uint32_t rank;
    uint64_t offset; /* from the start of the slot */
    uint64_t bytes;
    uint64_t shape[CONVOY_MANIFEST_RANK_MAX];
};

struct convoy_tensor_list {
    const char *name; /* not terminated */
    uint32_t name_length;
    uint32_t length; /* holes included */
};

struct convoy_manifest {
    struct convoy_tensor *tensors;
    struct convoy_tensor_list *lists;
    uint32_t count;
    uint32_t list_count;
    uint64_t payload_bytes; /* highest end of a tensor; 0 = nothing to move */
    const uint8_t *image;   /* its binary form, where that is known (manifest_binary.h); NULL = it is not */
    size_t image_bytes;
};

/* One allocation for a manifest of this size, zeroed, and text_bytes of room for names. NULL: no memory. Both counts
 * are within the bounds above. gives (convoy_manifest_destroy) */
struct convoy_manifest *convoy_manifest_create(uint32_t count, uint32_t list_count, size_t text_bytes,
                                               char **text_out);
void convoy_manifest_destroy(struct convoy_manifest *manifest);

/*
 * Memory for one manifest after the other. It remembers the last one with its binary form: what a host sends is mostly
 * named and shaped as what it sent before, and then nothing is laid out, checked or decoded anew. All zero is a valid
 * start.
 */
struct convoy_manifest_room {
    void *memory;
    size_t bytes;
    uint8_t *image;
    size_t image_room;
    struct convoy_manifest *known; /* in memory, with image; NULL = none */
    uint32_t known_lists;          /* of them so many were given by whoever laid it out; CONVOY_MANIFEST_CAME = it came as
                                      bytes */
};

#define CONVOY_MANIFEST_CAME UINT32_MAX

/* Not the room itself. */
void convoy_manifest_room_free(struct convoy_manifest_room *room);

/* As create, but in the room, which grows where it must: not to be destroyed, and void when the room is used again.
 * room NULL: as create. */
struct convoy_manifest *convoy_manifest_create_in(struct convoy_manifest_room *room, uint32_t count,
                                                  uint32_t list_count, size_t text_bytes, char **text_out);

/*
 * Computes bytes (those of opaque tensors are given), offsets in the order given, and payload_bytes; then checks it
 * all. INVALID_ARGUMENT or LIMIT with the path; offsets and sizes are undefined then. The caller's storage, no
 * allocation up to 64 tensors and lists.
 */
int32_t convoy_manifest_layout(struct convoy_manifest *manifest, struct convoy_error *error);

/*
 * Looks at everything: names, types, shapes, sizes, bounds, overlap, duplicates, the sum. alignment is what offsets must
 * be a multiple of (1 = anything). Returns `refusal` (MALFORMED for what a peer sent, INVALID_ARGUMENT for what a caller
 * gave), LIMIT for one of the counts above, NO_MEMORY. n log n in tensors and lists.
 */
int32_t convoy_manifest_check(const struct convoy_manifest *manifest, uint64_t alignment, int32_t refusal,
                              struct convoy_error *error);

/* What layout leaves to be checked. INVALID_ARGUMENT, LIMIT, NO_MEMORY. */
int32_t convoy_manifest_check_laid_out(const struct convoy_manifest *manifest, struct convoy_error *error);

/* Highest end of a tensor that has bytes, saturating. */
uint64_t convoy_manifest_end(const struct convoy_manifest *manifest);

#define CONVOY_MANIFEST_PATH_BYTES 112u

/* "manifest.NAME" or "manifest.NAME[list_index]", with a long name cut. The name is clean. */
void convoy_manifest_path(const struct convoy_tensor *tensor, char path_out[CONVOY_MANIFEST_PATH_BYTES]);

/* Bytes from shape and type. refusal as above with the path of what does not do; the shape's rank is within bounds. */
int32_t convoy_manifest_tensor_bytes(const struct convoy_tensor *tensor, uint64_t *bytes_out, int32_t refusal,
                                     struct convoy_error *error);

/* Name and type of the tensor at a position: what comes before its numbers. refusal as above. */
int32_t convoy_manifest_tensor_check(const struct convoy_tensor *tensor, uint32_t position, int32_t refusal,
                                     struct convoy_error *error);

/* The counts only: LIMIT. */
int32_t convoy_manifest_limits(uint64_t count, uint64_t list_count, struct convoy_error *error);

#endif
