/* SPDX-License-Identifier: Apache-2.0 */
/* The 64-bit fingerprint of a round header, and which field differs first when two headers do. Pure. */
#ifndef CONVOY_ROUND_FINGERPRINT_H
#define CONVOY_ROUND_FINGERPRINT_H

#include "round/engine.h"

/* Equal headers give equal fingerprints on every build and machine of one wire version. */
uint64_t convoy_fingerprint(const struct convoy_round_header *header);

/* CONVOY_FIELD_*, in the order of the public list; NONE when equal. */
uint32_t convoy_fingerprint_field(const struct convoy_round_header *a, const struct convoy_round_header *b);

#endif
