/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/poll_last.h"

#include "core/error.h"

#include <string.h>

/* Items. Numbers are never used again. */
#define ITEM_LISTS 2u       /* (count, flags) each */
#define ITEM_STATES 3u      /* contributed, own order */
#define ITEM_POSITIONAL 4u  /* merged */
#define ITEM_KEYS 5u        /* own identities, own order: u64 each */
#define ITEM_GENERATIONS 6u /* u32 each */
#define ITEM_OUTCOME 7u     /* states, own order */
#define ITEM_TABLE 8u       /* merged identities: struct table_item each */

static const struct convoy_bundle_field last_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_poll, is_finished),
    CONVOY_BUNDLE_FIELD(2, struct convoy_poll, has_own),
    CONVOY_BUNDLE_FIELD(3, struct convoy_poll, has_counts),
    CONVOY_BUNDLE_FIELD(4, struct convoy_poll, status),
    CONVOY_BUNDLE_FIELD(5, struct convoy_poll, capture.starts),
    CONVOY_BUNDLE_FIELD(6, struct convoy_poll, capture.foreign),
    CONVOY_BUNDLE_FIELD(7, struct convoy_poll, capture.injected),
    CONVOY_BUNDLE_FIELD(8, struct convoy_poll, capture.demoted),
    CONVOY_BUNDLE_FIELD(9, struct convoy_poll, capture.name_lengths),
    CONVOY_BUNDLE_FIELD(10, struct convoy_poll, capture.names),
    CONVOY_BUNDLE_FIELD(11, struct convoy_poll, keyed.positional.members),
    CONVOY_BUNDLE_FIELD(12, struct convoy_poll, keyed.positional.votes_or),
    CONVOY_BUNDLE_FIELD(13, struct convoy_poll, keyed.positional.unknown),
    CONVOY_BUNDLE_FIELD(14, struct convoy_poll, keyed.has_overflow),
    CONVOY_BUNDLE_FIELD(15, struct convoy_poll, keyed.overflow_entries),
};

static const struct convoy_bundle_shape last_shape = {
    .name = "the last poll", .fields = last_field_list, .count = sizeof last_field_list / sizeof last_field_list[0]};

/* One identity of the outcome. */
struct table_item {
    uint64_t key;
    uint32_t generation;
    uint16_t listed;
    uint8_t state;
    uint8_t flags;
    uint32_t slot;
    uint32_t reserved;
};

_Static_assert(sizeof(struct table_item) == 24, "identities are read by their size");

bool convoy_poll_last_is_kept(const struct convoy_poll *poll)
{
    return poll->operation != 0 && poll->own == poll && poll->level == CONVOY_POLL_LEVEL_ONLY;
}

/* -- saving -------------------------------------------------------------------------------------------------------- */

static void save_lists(const struct convoy_payload_shape *shape, struct convoy_bundle_writer *writer)
{
    size_t opened = convoy_bundle_open(writer, ITEM_LISTS, 0);
    for (uint32_t list = 0; list < shape->list_count; list++) {
        const uint32_t pair[2] = {shape->counts[list], shape->flags[list]};
        convoy_bundle_add(writer, pair, sizeof pair);
    }
    convoy_bundle_shut(writer, opened);
}

static void save_table(const struct convoy_poll *poll, struct convoy_bundle_writer *writer)
{
    const struct convoy_table *table = &poll->keyed.tables[poll->keyed.current];
    size_t opened = convoy_bundle_open(writer, ITEM_TABLE, 0);
    for (uint32_t slot = 0; slot < poll->shape.keyed_count; slot++) {
        for (uint32_t i = table->starts[slot]; i < table->starts[slot + 1]; i++) {
            const struct table_item one = {
                .key = table->keys[i],
                .generation = convoy_table_generation(table, i),
                .listed = table->listed[i],
                .state = table->states[i],
                .flags = poll->outcome.flags[i],
                .slot = slot,
            };
            convoy_bundle_add(writer, &one, sizeof one);
        }
    }
    convoy_bundle_shut(writer, opened);
}

void convoy_poll_last_save(const struct convoy_poll *poll, struct convoy_bundle_writer *writer)
{
    const struct convoy_payload_shape *shape = &poll->shape;
    const struct convoy_order *order = &poll->order;
    uint32_t keyed = shape->keyed_entries;
    convoy_bundle_put_fields(writer, &last_shape, poll);
    save_lists(shape, writer);
    convoy_bundle_put(writer, ITEM_STATES, 0, poll->capture.states, (size_t)shape->positional_bytes + keyed);
    convoy_bundle_put(writer, ITEM_POSITIONAL, 0, poll->positional_states, shape->positional_bytes);
    if (shape->keyed_count != 0) {
        convoy_bundle_put(writer, ITEM_KEYS, 0, order->keys, keyed * sizeof *order->keys);
        convoy_bundle_put(writer, ITEM_GENERATIONS, 0, order->generations, keyed * sizeof *order->generations);
        convoy_bundle_put(writer, ITEM_OUTCOME, 0, poll->outcome.states, keyed);
        save_table(poll, writer);
    }
}

/* -- restoring ----------------------------------------------------------------------------------------------------- */

static int32_t malformed(struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_MALFORMED, "%s of an exported state is damaged", last_shape.name);
}

static void make_bool(bool *value)
{
    uint8_t byte;
    memcpy(&byte, value, sizeof byte); /* no bool yet: it was read as a byte */
    *value = byte != 0;
}

/* Each item where its kind says. */
struct parts {
    struct convoy_bundle_item items[ITEM_TABLE + 1];
};

static int32_t read_parts(struct convoy_poll *poll, const struct convoy_bundle_item *item, struct parts *parts_out,
                          struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        if (one.tag == CONVOY_BUNDLE_FIELDS) {
            status = convoy_bundle_get_fields(&one, &last_shape, poll, error);
        } else if (one.tag >= ITEM_LISTS && one.tag <= ITEM_TABLE) {
            parts_out->items[one.tag] = one;
        } else {
            status = convoy_bundle_unknown(&one, last_shape.name, error);
        }
    }
    make_bool(&poll->is_finished);
    make_bool(&poll->has_own);
    make_bool(&poll->has_counts);
    make_bool(&poll->keyed.has_overflow);
    return status == CONVOY_OK ? convoy_bundle_done(&reader, last_shape.name, error) : status;
}

static bool take_lists(struct convoy_poll *poll, const struct convoy_bundle_item *item)
{
    size_t count = item->bytes / 8;
    uint64_t entries = 0;
    struct convoy_payload_shape *shape = &poll->shape;
    if (item->bytes % 8 != 0 || count > CONVOY_POLL_LISTS_MAX) {
        return false;
    }
    for (size_t list = 0; list < count; list++) {
        uint32_t pair[2];
        memcpy(pair, item->data + list * 8, sizeof pair);
        entries += pair[0];
        if (entries > poll->bytes_max) {
            return false;
        }
        convoy_payload_shape_add(shape, pair[0], pair[1]);
        bool is_inside = poll->capture.starts[list] <= poll->bytes_max - pair[0] &&
                         poll->capture.name_lengths[list] <= CONVOY_CAPTURE_NAME_BYTES;
        if (!is_inside) {
            return false;
        }
    }
    return shape->keyed_entries <= poll->keyed.capacity;
}

static bool take_bytes(const struct convoy_bundle_item *item, void *to, size_t bytes)
{
    if (item->bytes == bytes && bytes != 0) {
        memcpy(to, item->data, bytes);
    }
    return item->bytes == bytes;
}

static bool take_order(struct convoy_poll *poll, const struct parts *parts)
{
    const struct convoy_payload_shape *shape = &poll->shape;
    const struct convoy_bundle_item *keys = &parts->items[ITEM_KEYS];
    const struct convoy_bundle_item *generations = &parts->items[ITEM_GENERATIONS];
    struct convoy_poll_list lists[CONVOY_POLL_LISTS_MAX] = {0};
    if (keys->bytes != shape->keyed_entries * sizeof(uint64_t) ||
        generations->bytes != shape->keyed_entries * sizeof(uint32_t)) {
        return false;
    }
    for (uint32_t list = 0; list < shape->list_count; list++) {
        bool is_keyed = (shape->flags[list] & CONVOY_POLL_KEYED) != 0;
        lists[list].count = shape->counts[list];
        lists[list].flags = shape->flags[list];
        if (is_keyed && keys->data != NULL) {
            lists[list].keys = (const uint64_t *)(const void *)keys->data + shape->starts[list];
            lists[list].generations = (const uint32_t *)(const void *)generations->data + shape->starts[list];
        }
    }
    return convoy_order_take(&poll->order, lists, shape, NULL) == CONVOY_OK;
}

/* Into the table that is current and not the one that was agreed on. */
static bool take_table(struct convoy_poll *poll, const struct convoy_bundle_item *item)
{
    struct convoy_keyed *keyed = &poll->keyed;
    struct convoy_table *table = convoy_keyed_current(keyed);
    size_t count = item->bytes / sizeof(struct table_item);
    uint32_t slot = 0;
    if (item->bytes % sizeof(struct table_item) != 0 || count > keyed->capacity) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct table_item one;
        memcpy(&one, item->data + i * sizeof one, sizeof one);
        if (one.slot < slot || one.slot >= poll->shape.keyed_count || one.state > CONVOY_STATE_SUCCESS) {
            return false;
        }
        for (; slot < one.slot; slot++) {
            table->starts[slot + 1] = i;
        }
        table->keys[i] = one.key;
        table->generations[i] = one.generation;
        table->has_generations |= one.generation != 0;
        table->listed[i] = one.listed;
        table->states[i] = one.state;
        poll->outcome.flags[i] = one.flags;
    }
    for (; slot < poll->shape.keyed_count; slot++) {
        table->starts[slot + 1] = (uint32_t)count;
    }
    return true;
}

static bool take_keyed(struct convoy_poll *poll, const struct parts *parts)
{
    struct convoy_keyed *keyed = &poll->keyed;
    keyed->slots = poll->shape.keyed_count;
    memcpy(keyed->list_of, poll->shape.list_of, sizeof keyed->list_of);
    keyed->current = keyed->agreed.is_there ? 1 : 0;
    keyed->version = 1;
    if (keyed->slots == 0) {
        return true;
    }
    return take_order(poll, parts) && take_table(poll, &parts->items[ITEM_TABLE]) &&
           take_bytes(&parts->items[ITEM_OUTCOME], poll->outcome.states, poll->shape.keyed_entries);
}

int32_t convoy_poll_last_restore(struct convoy_poll *poll, const struct convoy_bundle_item *item,
                                 struct convoy_error *error)
{
    struct parts parts = {0};
    int32_t status = read_parts(poll, item, &parts, error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct convoy_payload_shape *shape = &poll->shape;
    bool is_taken = take_lists(poll, &parts.items[ITEM_LISTS]) &&
                    take_bytes(&parts.items[ITEM_STATES], poll->capture.states,
                               (size_t)shape->positional_bytes + shape->keyed_entries) &&
                    take_bytes(&parts.items[ITEM_POSITIONAL], poll->positional_states, shape->positional_bytes) &&
                    take_keyed(poll, &parts);
    return is_taken ? CONVOY_OK : malformed(error);
}
