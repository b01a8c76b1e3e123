/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What another engine needs to load a staged request: who has it, where its bytes lie, what they are. Between engines it is
 * bytes, in shared memory or in the hands of a host's broker; for hosts that exchange JSON it is their transfer_staged
 * message (wire/control.h). Untrusted on arrival: every length and every offset is checked. Pure but for memory.
 *
 *   0 "CVTD" 4 | 4 version 2 = 1 | 6 flags 2 | 8 length of all 4 | 12 attempt 4 | 16 incarnation 8 | 24 serial 8
 *   32 generation of the pool 8 | 40 offset 8 | 48 payload bytes 8 | 56 checksum 8 | 64 request length 2
 *   66 session length 2 | 68 scalars length 4 | 72 manifest length 4 | 76 priority 4, signed; builds before 1.1
 *      write 0 and skip it
 *   80 request, session, scalars, manifest (wire/manifest_binary.h), without anything between them
 *
 * A broker carries it between builds that have agreed on nothing, so there is room for a later one: of the flags the low
 * byte is critical (an unknown bit is refused), the high byte are hints (an unknown bit is ignored).
 */
#ifndef CONVOY_XFER_DESCRIPTOR_H
#define CONVOY_XFER_DESCRIPTOR_H

#include "convoy/transfer.h"
#include "wire/json_string.h"
#include "wire/manifest.h"

#include <stdbool.h>

#define CONVOY_DESCRIPTOR_HEADER_BYTES 80u
#define CONVOY_DESCRIPTOR_CHECKSUM 1u     /* flags */
#define CONVOY_DESCRIPTOR_CRITICAL 0xffu /* those that must be known */

struct convoy_descriptor {
    uint32_t flags; /* CONVOY_DESCRIPTOR_CHECKSUM */
    uint32_t attempt;
    int32_t priority; /* of the request, 0 = usual */
    uint64_t incarnation;
    uint64_t serial; /* the sender's transfer; 0 in JSON */
    uint64_t generation;
    uint64_t offset; /* of the payload in the sender's pool, over all its generations */
    uint64_t base;   /* JSON only, written: where its generation starts */
    uint64_t payload_bytes;
    uint64_t slot_bytes; /* JSON only: what the slot holds */
    uint64_t pool_address;
    uint64_t checksum;
    struct convoy_span request;
    struct convoy_span session;
    struct convoy_span scalars; /* no bytes: {} */
    struct convoy_manifest *manifest;
};

/* Bytes that encode writes; 0: the manifest is out of its bounds. */
size_t convoy_descriptor_bytes(const struct convoy_descriptor *descriptor);

/* capacity: at least that. Statuses of convoy_manifest_binary_put. */
int32_t convoy_descriptor_encode(const struct convoy_descriptor *descriptor, uint8_t *out, size_t capacity,
                                 struct convoy_error *error);

/* Reads the caller's own copy of untrusted bytes; spans point into it, the manifest lies in the room. MALFORMED,
 * VERSION_MISMATCH, LIMIT with what is wrong; NO_MEMORY. */
int32_t convoy_descriptor_decode(const uint8_t *bytes, size_t length, struct convoy_manifest_room *room,
                                 struct convoy_descriptor *descriptor_out, struct convoy_error *error);

/* The hosts' message; gives text_out (convoy_memory_free). */
int32_t convoy_descriptor_to_json(const struct convoy_descriptor *descriptor, char **text_out, size_t *bytes_out,
                                  struct convoy_error *error);

/* transfer_staged or transfer_ready as hosts write them. storage_out: what the spans point into (convoy_memory_free), one
 * block. The manifest is given (convoy_manifest_destroy). The session names the incarnation, if it is one of ours. */
int32_t convoy_descriptor_from_json(const char *text, size_t length, struct convoy_descriptor *descriptor_out,
                                    char **storage_out, struct convoy_error *error);

/* Whether these bytes are the binary form. */
bool convoy_descriptor_is_binary(const void *bytes, size_t length);

/* XXH3 of a request id, never 0. */
uint64_t convoy_request_digest(const char *request, size_t length);

#endif
