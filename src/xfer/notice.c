/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/notice.h"

#include <assert.h>
#include <string.h>

struct notice_row {
    const char *name;
    uint16_t bytes;
};

static const struct notice_row rows[CONVOY_SAY_TYPES] = {
    [CONVOY_SAY_NONE] = {"NONE", 0},
    [CONVOY_SAY_OFFER] = {"OFFER", sizeof(struct convoy_offer)},
    [CONVOY_SAY_TAKEN] = {"TAKEN", sizeof(struct convoy_reply)},
    [CONVOY_SAY_BACK] = {"BACK", sizeof(struct convoy_reply)},
    [CONVOY_SAY_WITHDRAW] = {"WITHDRAW", sizeof(struct convoy_reply)},
    [CONVOY_SAY_ASK] = {"ASK", sizeof(struct convoy_ask)},
    [CONVOY_SAY_GRANT] = {"GRANT", sizeof(struct convoy_reply)},
    [CONVOY_SAY_RAW] = {"RAW", sizeof(struct convoy_raw_order)},
    [CONVOY_SAY_RAW_DONE] = {"RAW_DONE", sizeof(struct convoy_reply)},
    [CONVOY_SAY_QUERY] = {"QUERY", sizeof(struct convoy_ask)},
    [CONVOY_SAY_ANSWER] = {"ANSWER", sizeof(struct convoy_reply)},
    [CONVOY_SAY_GOODBYE] = {"GOODBYE", 0},
    [CONVOY_SAY_ROOM] = {"ROOM", sizeof(struct convoy_room)},
    [CONVOY_SAY_HELLO] = {"HELLO", 0},
    [CONVOY_SAY_STAGED] = {"STAGED", sizeof(struct convoy_reply)},
    [CONVOY_SAY_RAW_LIST] = {"RAW_LIST", sizeof(struct convoy_raw_list)},
    [CONVOY_SAY_CLOSED] = {"CLOSED", 0},
    [CONVOY_SAY_FORGET] = {"FORGET", sizeof(struct convoy_forget)},
    [CONVOY_SAY_PUT] = {"PUT", sizeof(struct convoy_put)},
};

static_assert(sizeof(union convoy_say_body) <= CONVOY_RING_DATA_BYTES, "every notice fits one entry");

void convoy_xfer_notice_pack(const struct convoy_xfer_notice *notice, struct convoy_ring_entry *entry_out)
{
    entry_out->type = (uint16_t)notice->type;
    entry_out->length = rows[notice->type].bytes;
    memcpy(entry_out->data, &notice->body, entry_out->length);
}

bool convoy_xfer_notice_unpack(const struct convoy_ring_entry *entry, struct convoy_xfer_notice *notice_out)
{
    if (entry->type == CONVOY_SAY_NONE || entry->type >= CONVOY_SAY_TYPES ||
        entry->length != rows[entry->type].bytes) {
        return false;
    }
    *notice_out = (struct convoy_xfer_notice){.type = (enum convoy_say)entry->type};
    memcpy(&notice_out->body, entry->data, entry->length);
    return true;
}

const char *convoy_xfer_notice_name(enum convoy_say type)
{
    return type < CONVOY_SAY_TYPES ? rows[type].name : "UNKNOWN";
}
