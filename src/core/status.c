/* SPDX-License-Identifier: Apache-2.0 */
#include "core/status.h"

struct status_row {
    int32_t status;
    bool is_retryable;
    const char *name;
    const char *text;
};

#define STATUS_ROW(name_, retryable_, text_)                                                                           \
    {.status = CONVOY_##name_, .is_retryable = (retryable_), .name = #name_, .text = (text_)},

static const struct status_row status_rows[] = {CONVOY_STATUS_LIST(STATUS_ROW)};

/* What a number that this build does not know still says: who must act. */
static const struct status_row *status_band(int32_t status)
{
    static const struct status_row bands[] = {
        {0, true, "UNKNOWN_INFORMATION", "unknown information"},
        {-100, false, "UNKNOWN_CALLER_ERROR", "unknown caller error"},
        {-200, false, "UNKNOWN_RESOURCE_ERROR", "unknown resource error"},
        {-300, false, "UNKNOWN_PEER_ERROR", "unknown peer or link error"},
        {-400, false, "UNKNOWN_PROTOCOL_ERROR", "unknown protocol error"},
        {-500, false, "UNKNOWN_LOADING_ERROR", "unknown loading error"},
        {-900, false, "UNKNOWN_INTERNAL_ERROR", "unknown internal error"},
    };
    if (status > 0) {
        return &bands[0];
    }
    for (size_t i = 1; i < sizeof bands / sizeof bands[0]; i++) {
        if (status / 100 == bands[i].status / 100) {
            return &bands[i];
        }
    }
    return &bands[6];
}

static const struct status_row *status_find(int32_t status)
{
    for (size_t i = 0; i < sizeof status_rows / sizeof status_rows[0]; i++) {
        if (status_rows[i].status == status) {
            return &status_rows[i];
        }
    }
    return status_band(status);
}

const char *convoy_status_name(int32_t status)
{
    return status_find(status)->name;
}

const char *convoy_status_text(int32_t status)
{
    return status_find(status)->text;
}

bool convoy_status_is_retryable(int32_t status)
{
    return status_find(status)->is_retryable;
}
