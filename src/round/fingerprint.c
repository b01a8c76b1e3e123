/* SPDX-License-Identifier: Apache-2.0 */
#include "round/fingerprint.h"

/* Eight words through one multiply each: a few nanoseconds, and this is on the path of every round. The constants are
 * odd numbers with well spread bits; part of the wire version. */
static inline uint64_t fingerprint_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

uint64_t convoy_fingerprint(const struct convoy_round_header *header)
{
    uint64_t hash = UINT64_C(0xd1b54a32d192ed03);
    hash = fingerprint_mix(hash, ((uint64_t)header->operation << 32) | header->wire);
    hash = fingerprint_mix(hash, header->epoch);
    hash = fingerprint_mix(hash, header->counts);
    hash = fingerprint_mix(hash, header->digest);
    hash = fingerprint_mix(hash, header->schema);
    hash = fingerprint_mix(hash, header->policy);
    hash = fingerprint_mix(hash, header->reserved[0]);
    return fingerprint_mix(hash, header->reserved[1]);
}

uint32_t convoy_fingerprint_field(const struct convoy_round_header *a, const struct convoy_round_header *b)
{
    if (a->operation != b->operation) {
        return CONVOY_FIELD_OPERATION;
    }
    if (a->wire != b->wire) {
        return CONVOY_FIELD_WIRE;
    }
    if (a->epoch != b->epoch) {
        return CONVOY_FIELD_EPOCH;
    }
    if (a->counts != b->counts) {
        return CONVOY_FIELD_COUNTS;
    }
    if (a->digest != b->digest) {
        return CONVOY_FIELD_DIGEST;
    }
    if (a->schema != b->schema) {
        return CONVOY_FIELD_SCHEMA;
    }
    if (a->policy != b->policy || a->reserved[0] != b->reserved[0] || a->reserved[1] != b->reserved[1]) {
        return CONVOY_FIELD_POLICY;
    }
    return CONVOY_FIELD_NONE;
}
