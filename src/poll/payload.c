/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/payload.h"

#include <string.h>

static size_t padded(size_t bytes)
{
    return (bytes + 7u) & ~(size_t)7;
}

void convoy_payload_shape_add(struct convoy_payload_shape *shape, uint32_t count, uint32_t flags)
{
    uint32_t list = shape->list_count++;
    shape->counts[list] = count;
    shape->flags[list] = flags;
    if ((flags & CONVOY_POLL_KEYED) != 0) {
        shape->starts[list] = shape->keyed_entries;
        shape->slots[list] = shape->keyed_count;
        shape->list_of[shape->keyed_count++] = list;
        shape->keyed_entries += count;
    } else {
        shape->starts[list] = shape->positional_bytes;
        shape->positional_bytes += count;
    }
}

struct convoy_payload_layout convoy_payload_layout(const struct convoy_payload_shape *shape, size_t entries,
                                                   bool has_generations, bool has_listed)
{
    struct convoy_payload_layout at;
    at.counts = padded(shape->positional_bytes);
    at.keys = padded(at.counts + sizeof(uint32_t) * (1u + (size_t)shape->keyed_count));
    at.generations = at.keys + sizeof(uint64_t) * entries;
    at.listed = at.generations + (has_generations ? sizeof(uint32_t) * entries : 0);
    at.states = at.listed + (has_listed ? sizeof(uint16_t) * entries : 0);
    at.bytes = at.states + entries;
    return at;
}

int32_t convoy_payload_read(const struct convoy_payload_shape *shape, const uint8_t *bytes, size_t length,
                            bool has_listed, struct convoy_payload_view *view_out)
{
    struct convoy_payload_layout at = convoy_payload_layout(shape, 0, false, has_listed);
    if (length < at.keys) {
        return CONVOY_MALFORMED;
    }
    uint32_t flags;
    memcpy(&flags, bytes + at.counts, sizeof flags);
    memcpy(view_out->counts, bytes + at.counts + sizeof flags, sizeof(uint32_t) * shape->keyed_count);
    uint64_t entries = 0;
    for (uint32_t i = 0; i < shape->keyed_count; i++) {
        entries += view_out->counts[i];
    }
    if ((flags & ~CONVOY_PAYLOAD_GENERATIONS) != 0 || entries > length) {
        return CONVOY_MALFORMED;
    }
    bool has_generations = (flags & CONVOY_PAYLOAD_GENERATIONS) != 0;
    at = convoy_payload_layout(shape, (size_t)entries, has_generations, has_listed);
    view_out->votes_or = 0;
    if (!has_listed) {
        length -= convoy_payload_votes(shape, at.bytes, bytes, length, &view_out->votes_or);
    }
    if (length != at.bytes) {
        return CONVOY_MALFORMED;
    }
    view_out->positional = bytes;
    view_out->entries = (uint32_t)entries;
    view_out->keys = bytes + at.keys;
    view_out->generations = has_generations ? bytes + at.generations : NULL;
    view_out->listed = has_listed ? bytes + at.listed : NULL;
    view_out->states = bytes + at.states;
    return CONVOY_OK;
}
