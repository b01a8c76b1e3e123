/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/session.h"

#include "core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INCARNATION_DIGITS 16u
#define SCHEME "tcp://"

bool convoy_session_format(const struct convoy_session *session, char text_out[CONVOY_SESSION_BYTES])
{
    bool is_v6 = strchr(session->where.host, ':') != NULL;
    int length = snprintf(text_out, CONVOY_SESSION_BYTES, "%s%s%s:%u+%016llx", is_v6 ? "[" : "", session->where.host,
                          is_v6 ? "]" : "", session->where.port, (unsigned long long)session->incarnation);
    return length > 0 && (size_t)length < CONVOY_SESSION_BYTES;
}

static bool parse_incarnation(const char *digits, size_t count, uint64_t *incarnation_out)
{
    char text[INCARNATION_DIGITS + 1] = "";
    if (count != INCARNATION_DIGITS || strspn(digits, "0123456789abcdef") < count) {
        return false;
    }
    memcpy(text, digits, count);
    *incarnation_out = strtoull(text, NULL, 16);
    return *incarnation_out != 0;
}

int32_t convoy_session_parse(const char *text, size_t length, struct convoy_session *session_out,
                             struct convoy_error *error)
{
    char url[sizeof SCHEME + CONVOY_SESSION_BYTES] = SCHEME;
    char copy[CONVOY_SESSION_BYTES] = "";
    struct convoy_session session = {.incarnation = 0};
    if (text == NULL || length == 0 || length >= sizeof copy || memchr(text, '\0', length) != NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "session of %zu bytes, allowed are 1 to %u without a zero in it", length,
                                CONVOY_SESSION_BYTES - 1);
    }
    memcpy(copy, text, length);
    char *plus = strrchr(copy, '+');
    if (plus != NULL && !parse_incarnation(plus + 1, strlen(plus + 1), &session.incarnation)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "session %s: behind the + must be 16 hexadecimal digits that are not all 0", copy);
    }
    size_t place = plus != NULL ? (size_t)(plus - copy) : length;
    memcpy(url + sizeof SCHEME - 1, copy, place);
    int32_t status = convoy_rendezvous_parse(url, sizeof SCHEME - 1 + place, NULL, 0, &session.where, error);
    if (status != CONVOY_OK) {
        return convoy_error_prefix(error, status, "session %s", copy);
    }
    *session_out = session;
    return CONVOY_OK;
}
