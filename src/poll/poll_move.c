/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/poll_move.h"

#include "core/error.h"
#include "poll/poll_last.h"
#include "poll/positional.h"
#include "round/engine_move.h"

#include <string.h>

/* Items, and fields of them. Numbers are never used again. */
#define ITEM_DECIDED 2u /* entries, the one that is forgotten first in front */
#define ITEM_AGREED 3u  /* items */
#define ITEM_LAST 4u    /* poll_last.c */
#define ITEM_KEYS 2u    /* in AGREED: u64 each */
#define ITEM_GENERATIONS 3u /* in AGREED: u32 each; not there: all 0 */

struct poll_fields {
    uint64_t operation;
    uint64_t tag;
    uint32_t votes;
    uint32_t level;
    uint32_t decided_capacity;
    uint8_t is_unseen;
    uint8_t is_recorded;
    uint8_t reserved[2];
};

static const struct convoy_bundle_field poll_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct poll_fields, operation),
    CONVOY_BUNDLE_FIELD(2, struct poll_fields, tag),
    CONVOY_BUNDLE_FIELD(3, struct poll_fields, votes),
    CONVOY_BUNDLE_FIELD(4, struct poll_fields, level),
    CONVOY_BUNDLE_FIELD(5, struct poll_fields, decided_capacity),
    CONVOY_BUNDLE_FIELD(6, struct poll_fields, is_unseen),
    CONVOY_BUNDLE_FIELD(7, struct poll_fields, is_recorded),
};

static const struct convoy_bundle_shape poll_shape = {
    .name = "poll reduce", .fields = poll_field_list, .count = sizeof poll_field_list / sizeof poll_field_list[0]};

/* One identity that has ended. */
struct decided_item {
    uint64_t key;
    uint32_t generation;
    uint8_t list;
    uint8_t state;
    uint8_t reserved[2];
};

_Static_assert(sizeof(struct decided_item) == 16, "entries are read by their size");

struct agreed_fields {
    uint32_t digest;
    uint32_t slots;
    uint32_t list_of[CONVOY_POLL_LISTS_MAX];
    uint32_t starts[CONVOY_POLL_LISTS_MAX + 1];
};

static const struct convoy_bundle_field agreed_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct agreed_fields, digest),
    CONVOY_BUNDLE_FIELD(2, struct agreed_fields, slots),
    CONVOY_BUNDLE_FIELD(3, struct agreed_fields, list_of),
    CONVOY_BUNDLE_FIELD(4, struct agreed_fields, starts),
};

static const struct convoy_bundle_shape agreed_shape = {
    .name = "agreed identities",
    .fields = agreed_field_list,
    .count = sizeof agreed_field_list / sizeof agreed_field_list[0]};

bool convoy_poll_is_still(struct convoy_poll *poll)
{
    return convoy_poll_settle(poll, 0, NULL) == CONVOY_OK && !poll->two.is_open && convoy_engine_is_still(poll->engine);
}

/* -- saving -------------------------------------------------------------------------------------------------------- */

static void save_decided(const struct convoy_decided *decided, struct convoy_bundle_writer *writer)
{
    size_t opened = convoy_bundle_open(writer, ITEM_DECIDED, CONVOY_BUNDLE_CRITICAL);
    uint32_t at = decided->oldest;
    for (uint32_t i = 0; i < decided->count; i++) {
        const struct convoy_decided_entry *entry = &decided->entries[at];
        const struct decided_item one = {
            .key = entry->key, .generation = entry->generation, .list = entry->list, .state = entry->state};
        convoy_bundle_add(writer, &one, sizeof one);
        at = entry->newer;
    }
    convoy_bundle_shut(writer, opened);
}

static void save_agreed(const struct convoy_keyed *keyed, struct convoy_bundle_writer *writer)
{
    const struct convoy_keyed_agreed *agreed = &keyed->agreed;
    const struct convoy_table *table = &keyed->tables[agreed->table];
    if (!agreed->is_there) {
        return;
    }
    uint32_t entries = table->starts[agreed->slots];
    struct agreed_fields fields = {.digest = agreed->digest, .slots = agreed->slots};
    memcpy(fields.list_of, agreed->list_of, agreed->slots * sizeof fields.list_of[0]);
    memcpy(fields.starts, table->starts, (agreed->slots + 1u) * sizeof fields.starts[0]);
    size_t opened = convoy_bundle_open(writer, ITEM_AGREED, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(writer, &agreed_shape, &fields);
    convoy_bundle_put(writer, ITEM_KEYS, CONVOY_BUNDLE_CRITICAL, table->keys, entries * sizeof *table->keys);
    if (table->has_generations) {
        convoy_bundle_put(writer, ITEM_GENERATIONS, CONVOY_BUNDLE_CRITICAL, table->generations,
                          entries * sizeof *table->generations);
    }
    convoy_bundle_shut(writer, opened);
}

void convoy_poll_save(const struct convoy_poll *poll, struct convoy_bundle_writer *writer)
{
    const struct poll_fields fields = {
        .operation = convoy_poll_last_is_kept(poll) ? poll->operation : 0,
        .tag = poll->tag,
        .votes = poll->votes,
        .level = (uint32_t)poll->level,
        .decided_capacity = poll->decided.capacity,
        .is_unseen = poll->is_unseen,
        .is_recorded = poll->is_recorded,
    };
    convoy_bundle_put_fields(writer, &poll_shape, &fields);
    save_decided(&poll->decided, writer);
    save_agreed(&poll->keyed, writer);
    if (convoy_poll_last_is_kept(poll)) {
        size_t opened = convoy_bundle_open(writer, ITEM_LAST, 0);
        convoy_poll_last_save(poll, writer);
        convoy_bundle_shut(writer, opened);
    }
}

/* -- restoring ----------------------------------------------------------------------------------------------------- */

static int32_t malformed(const char *what, struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_MALFORMED, "%s of an exported state are damaged", what);
}

static int32_t read_decided(struct convoy_decided *decided, const struct convoy_bundle_item *item,
                            struct convoy_error *error)
{
    size_t count = item->bytes / sizeof(struct decided_item);
    if (item->bytes % sizeof(struct decided_item) != 0 || count > decided->capacity - decided->count) {
        return malformed("decided identities", error);
    }
    for (size_t i = 0; i < count; i++) {
        struct decided_item one;
        memcpy(&one, item->data + i * sizeof one, sizeof one);
        if (one.list >= CONVOY_POLL_LISTS_MAX || one.state > CONVOY_STATE_SUCCESS ||
            convoy_decided_find(decided, one.list, one.key, one.generation) != CONVOY_DECIDED_NONE) {
            return malformed("decided identities", error);
        }
        convoy_decided_add(decided, one.list, one.key, one.generation, one.state);
    }
    return CONVOY_OK;
}

static bool agreed_is_sound(const struct convoy_keyed *keyed, const struct agreed_fields *fields)
{
    bool is_sound = fields->slots >= 1 && fields->slots <= CONVOY_POLL_LISTS_MAX && fields->starts[0] == 0;
    for (uint32_t slot = 0; is_sound && slot < fields->slots; slot++) {
        is_sound = fields->list_of[slot] < CONVOY_POLL_LISTS_MAX && fields->starts[slot] <= fields->starts[slot + 1] &&
                   fields->starts[slot + 1] <= keyed->capacity;
    }
    return is_sound;
}

/* Into the first table, which the next round leaves alone. */
static int32_t take_agreed(struct convoy_keyed *keyed, const struct agreed_fields *fields,
                           const struct convoy_bundle_item *keys, const struct convoy_bundle_item *generations,
                           struct convoy_error *error)
{
    struct convoy_table *table = &keyed->tables[0];
    if (!agreed_is_sound(keyed, fields)) {
        return malformed("agreed identities", error);
    }
    uint32_t entries = fields->starts[fields->slots];
    if (keys->bytes != entries * sizeof *table->keys ||
        (generations->data != NULL && generations->bytes != entries * sizeof *table->generations)) {
        return malformed("agreed identities", error);
    }
    memcpy(table->starts, fields->starts, sizeof table->starts);
    table->has_generations = generations->data != NULL;
    if (entries != 0) {
        memcpy(table->keys, keys->data, keys->bytes);
    }
    if (entries != 0 && table->has_generations) {
        memcpy(table->generations, generations->data, generations->bytes);
    }
    keyed->agreed = (struct convoy_keyed_agreed){.is_there = true, .digest = fields->digest, .slots = fields->slots};
    memcpy(keyed->agreed.list_of, fields->list_of, sizeof keyed->agreed.list_of);
    keyed->current = 1;
    keyed->version = 1; /* another than that of the agreement, so that the next round makes it anew */
    return CONVOY_OK;
}

static int32_t read_agreed(struct convoy_keyed *keyed, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    struct convoy_bundle_item keys = {0};
    struct convoy_bundle_item generations = {0};
    struct agreed_fields fields = {0};
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        if (one.tag == ITEM_KEYS) {
            keys = one;
        } else if (one.tag == ITEM_GENERATIONS) {
            generations = one;
        } else {
            status = one.tag == CONVOY_BUNDLE_FIELDS ? convoy_bundle_get_fields(&one, &agreed_shape, &fields, error)
                                                     : convoy_bundle_unknown(&one, agreed_shape.name, error);
        }
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, agreed_shape.name, error) : status;
    return status == CONVOY_OK ? take_agreed(keyed, &fields, &keys, &generations, error) : status;
}

/* The last operation, after what was agreed on: that has a table of its own. Without it, its end is not read again. */
static int32_t take_last(struct convoy_poll *poll, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    bool is_keyed = false;
    if (item->data == NULL || poll->operation == 0) {
        poll->operation = 0;
        poll->is_unseen = false;
        poll->keyed.positional.shape = &poll->shape;
    } else {
        int32_t status = convoy_poll_last_restore(poll, item, error);
        if (status != CONVOY_OK) {
            return status;
        }
        poll->keyed.positional.shape = &poll->shape;
        is_keyed = poll->shape.keyed_count != 0;
    }
    if (is_keyed) {
        convoy_engine_merge_into(poll->engine, &convoy_keyed_ops, &poll->keyed);
    } else {
        convoy_engine_merge_into(poll->engine, &convoy_positional_ops, &poll->keyed.positional);
    }
    return CONVOY_OK;
}

static int32_t take_fields(struct convoy_poll *poll, const struct poll_fields *fields, struct convoy_error *error)
{
    if (fields->decided_capacity != poll->decided.capacity) { /* members would no longer forget the same */
        return convoy_error_set(error, CONVOY_TOO_OLD, "poll reduce remembers %u identities that ended, this build %u",
                                fields->decided_capacity, poll->decided.capacity);
    }
    if (fields->level > CONVOY_POLL_LEVEL_SECOND) {
        return malformed("the fields of poll reduce", error);
    }
    poll->operation = fields->operation;
    poll->tag = fields->tag;
    poll->votes = fields->votes;
    poll->level = (enum convoy_poll_level)fields->level;
    poll->is_unseen = fields->operation != 0 && fields->is_unseen != 0;
    poll->is_recorded = fields->is_recorded != 0;
    return CONVOY_OK;
}

int32_t convoy_poll_restore(struct convoy_poll *poll, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    struct convoy_bundle_item last = {0};
    struct poll_fields fields = {0};
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        switch (one.tag) {
        case CONVOY_BUNDLE_FIELDS:
            status = convoy_bundle_get_fields(&one, &poll_shape, &fields, error);
            break;
        case ITEM_DECIDED:
            status = read_decided(&poll->decided, &one, error);
            break;
        case ITEM_LAST:
            last = one;
            break;
        case ITEM_AGREED:
            status = read_agreed(&poll->keyed, &one, error);
            break;
        default:
            status = convoy_bundle_unknown(&one, poll_shape.name, error);
        }
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, poll_shape.name, error) : status;
    status = status == CONVOY_OK ? take_fields(poll, &fields, error) : status;
    return status == CONVOY_OK ? take_last(poll, &last, error) : status;
}
