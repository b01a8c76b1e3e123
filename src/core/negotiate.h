/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compatibility decision: which version of a family do a host and a plugin both have, and if none, why not. Pure.
 * The plugin answers convoy_query with it, and the loader decides with it from the file alone, so that both say the
 * same about the same pair.
 */
#ifndef CONVOY_CORE_NEGOTIATE_H
#define CONVOY_CORE_NEGOTIATE_H

#include "convoy/query.h"

#include <stdbool.h>

struct convoy_version {
    uint16_t major;
    uint16_t minor;
};

/* All versions from min to max; inside one major, minors are append-only, so none is missing between. */
struct convoy_version_range {
    struct convoy_version min;
    struct convoy_version max;
};

/* min <= max; any other range is a mistake of whoever wrote it. */
bool convoy_version_range_is_valid(const struct convoy_version_range *range);

struct convoy_negotiation {
    int32_t status;              /* CONVOY_OK, UNSUPPORTED, TOO_OLD, TOO_NEW: the plugin as the host sees it */
    struct convoy_version agreed; /* 0.0 when refused */
    size_t offer_index;          /* the offer that agreed lies in */
    struct convoy_version_range offered; /* from the lowest to the highest offer; 0.0 without offers */
    char reason[120];            /* empty when agreed; else names the family and both ranges */
};

/*
 * Finds the highest version that lies in `wanted` and in one of the offers (one range per major that the plugin
 * serves, ascending). No offers: UNSUPPORTED, the plugin has no such family. name: of the family, at most 24 bytes of
 * it appear in the reason.
 */
void convoy_negotiate(const char *name, size_t name_length, const struct convoy_version_range *wanted,
                      const struct convoy_version_range *offers, size_t offer_count,
                      struct convoy_negotiation *negotiation_out);

/* All numbers from min to max: wire versions, formats of a state. */
struct convoy_number_range {
    uint32_t min;
    uint32_t max;
};

/* The highest number in both ranges. false: there is none, and agreed_out is 0. */
bool convoy_negotiate_number(const struct convoy_number_range *one, const struct convoy_number_range *other,
                             uint32_t *agreed_out);

#endif
