/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of poll calls: each refusal names parameter, value and allowed range. Pure; nothing is written but the
 * outputs named. Structs are full-size. */
#ifndef CONVOY_POLL_CHECK_H
#define CONVOY_POLL_CHECK_H

#include "poll/payload.h"

#define CONVOY_CHECK_NAME_BYTES 64u

/* Checks everything but the entries themselves and fills the shape. INVALID_ARGUMENT; UNSUPPORTED: unknown critical
 * flag; LIMIT: the lists do not fit bytes_max even without generations. */
int32_t convoy_check_call(const struct convoy_poll_call *call, size_t bytes_max, struct convoy_payload_shape *shape_out,
                          struct convoy_error *error);

/* Refuses a contribution whose size is now known exactly. LIMIT. */
int32_t convoy_check_bytes(size_t bytes, size_t bytes_max, struct convoy_error *error);

/* Whether the caller's arrays take the result of such a call. BUFFER_TOO_SMALL, INVALID_ARGUMENT (a stride). */
int32_t convoy_check_result(const struct convoy_poll_result *result, const struct convoy_payload_shape *shape,
                            struct convoy_error *error);

/* The usual case of it, in line: false means that convoy_check_result must be asked. */
static inline bool convoy_check_result_fits(const struct convoy_poll_result *result,
                                            const struct convoy_payload_shape *shape)
{
    bool fits = shape->list_count == 0 || (result->lists != NULL && result->list_capacity >= shape->list_count);
    for (uint32_t i = 0; fits && i < shape->list_count; i++) {
        const struct convoy_poll_list_result *list = &result->lists[i];
        bool has_stride = list->outcomes == NULL || list->outcome_stride == 0 ||
                          list->outcome_stride >= sizeof *list->outcomes;
        fits = has_stride && (list->states == NULL || list->states_capacity >= shape->counts[i]);
    }
    return fits;
}

/* 'list 2 "decode"' into buffer (CONVOY_CHECK_NAME_BYTES); returns buffer. */
const char *convoy_check_list_name(const struct convoy_poll_list *list, uint32_t list_index, char *buffer);

#endif
