/* SPDX-License-Identifier: Apache-2.0 */
#include "core/negotiate.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES_SHOWN 24

static int version_compare(struct convoy_version a, struct convoy_version b)
{
    if (a.major != b.major) {
        return a.major < b.major ? -1 : 1;
    }
    return (a.minor > b.minor) - (a.minor < b.minor);
}

static struct convoy_version version_max(struct convoy_version a, struct convoy_version b)
{
    return version_compare(a, b) < 0 ? b : a;
}

static struct convoy_version version_min(struct convoy_version a, struct convoy_version b)
{
    return version_compare(a, b) < 0 ? a : b;
}

bool convoy_version_range_is_valid(const struct convoy_version_range *range)
{
    return version_compare(range->min, range->max) <= 0;
}

/* The words of a refusal. With several offers the host's range may also fall between them. */
static void explain(struct convoy_negotiation *result, const char *name, int shown,
                    const struct convoy_version_range *wanted, size_t offer_count)
{
    if (offer_count == 0) {
        result->status = CONVOY_UNSUPPORTED;
        (void)snprintf(result->reason, sizeof result->reason, "family %.*s: host wants %u.%u to %u.%u, plugin has none",
                       shown, name, wanted->min.major, wanted->min.minor, wanted->max.major, wanted->max.minor);
        return;
    }
    const char *judgement = "plugin has a gap there";
    result->status = CONVOY_UNSUPPORTED;
    if (version_compare(result->offered.max, wanted->min) < 0) {
        result->status = CONVOY_TOO_OLD;
        judgement = "plugin is too old";
    } else if (version_compare(result->offered.min, wanted->max) > 0) {
        result->status = CONVOY_TOO_NEW;
        judgement = "plugin is too new";
    }
    (void)snprintf(result->reason, sizeof result->reason,
                   "family %.*s: host wants %u.%u to %u.%u, plugin has %u.%u to %u.%u: %s", shown, name,
                   wanted->min.major, wanted->min.minor, wanted->max.major, wanted->max.minor,
                   result->offered.min.major, result->offered.min.minor, result->offered.max.major,
                   result->offered.max.minor, judgement);
}

void convoy_negotiate(const char *name, size_t name_length, const struct convoy_version_range *wanted,
                      const struct convoy_version_range *offers, size_t offer_count,
                      struct convoy_negotiation *negotiation_out)
{
    struct convoy_negotiation result = {.status = CONVOY_UNSUPPORTED};
    if (offer_count != 0) {
        result.offered = (struct convoy_version_range){offers[0].min, offers[offer_count - 1].max};
    }
    for (size_t i = offer_count; i-- > 0;) { /* highest first */
        struct convoy_version low = version_max(wanted->min, offers[i].min);
        struct convoy_version high = version_min(wanted->max, offers[i].max);
        if (version_compare(low, high) <= 0) {
            result.status = CONVOY_OK;
            result.agreed = high;
            result.offer_index = i;
            *negotiation_out = result;
            return;
        }
    }
    int shown = name_length < NAME_BYTES_SHOWN ? (int)name_length : NAME_BYTES_SHOWN;
    explain(&result, name, shown, wanted, offer_count);
    *negotiation_out = result;
}

bool convoy_negotiate_number(const struct convoy_number_range *one, const struct convoy_number_range *other,
                             uint32_t *agreed_out)
{
    uint32_t low = one->min > other->min ? one->min : other->min;
    uint32_t high = one->max < other->max ? one->max : other->max;
    *agreed_out = low <= high ? high : 0;
    return low <= high;
}
