/* SPDX-License-Identifier: Apache-2.0 */
/* A table of leases as items, and back: every handle that was given out means afterwards what it meant before. */
#include "core/memory.h"
#include "pool/lease_parts.h"
#include "pool/move.h"

#include <string.h>

#define ITEM_ENTRY 2u
#define ITEM_REFERENCE 3u

struct lease_fields {
    uint32_t index;
    struct lease_entry entry;
};

static const struct convoy_bundle_field table_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_leases, lease_count),
    CONVOY_BUNDLE_FIELD(2, struct convoy_leases, reference_count),
    CONVOY_BUNDLE_FIELD(3, struct convoy_leases, stale),
};

static const struct convoy_bundle_field entry_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct lease_fields, index),
    CONVOY_BUNDLE_FIELD(2, struct lease_fields, entry.generation),
    CONVOY_BUNDLE_FIELD(3, struct lease_fields, entry.state),
    CONVOY_BUNDLE_FIELD(4, struct lease_fields, entry.end),
    CONVOY_BUNDLE_FIELD(5, struct lease_fields, entry.asked),
    CONVOY_BUNDLE_FIELD(6, struct lease_fields, entry.filled),
    CONVOY_BUNDLE_FIELD(7, struct lease_fields, entry.taken_ns),
    CONVOY_BUNDLE_FIELD(8, struct lease_fields, entry.deadline_ns),
    CONVOY_BUNDLE_FIELD(9, struct lease_fields, entry.block.offset),
    CONVOY_BUNDLE_FIELD(10, struct lease_fields, entry.block.bytes),
    CONVOY_BUNDLE_FIELD(11, struct lease_fields, entry.attempt),
    CONVOY_BUNDLE_FIELD(12, struct lease_fields, entry.request_length),
    CONVOY_BUNDLE_FIELD(13, struct lease_fields, entry.request),
};

static const struct convoy_bundle_field reference_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct lease_reference, entry),
    CONVOY_BUNDLE_FIELD(2, struct lease_reference, peer),
    CONVOY_BUNDLE_FIELD(3, struct lease_reference, kind),
    CONVOY_BUNDLE_FIELD(4, struct lease_reference, count),
};

#define SHAPE(kind)                                                                                                    \
    static const struct convoy_bundle_shape kind##_shape = {                                                           \
        .name = "lease " #kind, .fields = kind##_field_list, .count = sizeof kind##_field_list / sizeof *kind##_field_list}
SHAPE(table);
SHAPE(entry);
SHAPE(reference);

/* -- out ----------------------------------------------------------------------------------------------------------- */

static void save_one(struct convoy_bundle_writer *writer, uint16_t tag, const struct convoy_bundle_shape *shape,
                     const void *from)
{
    size_t opened = convoy_bundle_open(writer, tag, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(writer, shape, from);
    convoy_bundle_shut(writer, opened);
}

/* Of one that is free, only which handles were its own. */
void convoy_leases_save(const struct convoy_leases *leases, struct convoy_bundle_writer *writer)
{
    convoy_bundle_put_fields(writer, &table_shape, leases);
    for (uint32_t i = 0; i < leases->lease_count; i++) {
        const struct lease_entry *entry = &leases->entries[i];
        struct lease_fields fields = {.index = i, .entry = {.generation = entry->generation}};
        if (entry->state != CONVOY_LEASE_FREE) {
            fields.entry = *entry;
        }
        if (entry->generation != 0) {
            save_one(writer, ITEM_ENTRY, &entry_shape, &fields);
        }
    }
    for (uint32_t i = 0; i < leases->reference_count; i++) {
        if (leases->references[i].count != 0) {
            save_one(writer, ITEM_REFERENCE, &reference_shape, &leases->references[i]);
        }
    }
}

/* -- in ------------------------------------------------------------------------------------------------------------ */

static int32_t get(const struct convoy_bundle_item *item, const struct convoy_bundle_shape *shape, void *to,
                   struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item inner;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &inner)) {
        status = inner.tag == CONVOY_BUNDLE_FIELDS ? convoy_bundle_get_fields(&inner, shape, to, error)
                                                   : convoy_bundle_unknown(&inner, shape->name, error);
    }
    return status == CONVOY_OK ? convoy_bundle_done(&reader, shape->name, error) : status;
}

static int32_t restore_entry(struct convoy_leases *leases, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct lease_fields fields = {.index = 0};
    int32_t status = get(item, &entry_shape, &fields, error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct lease_entry *given = &fields.entry;
    if (fields.index >= leases->lease_count || given->generation == 0 || leases->entries[fields.index].generation != 0 ||
        given->state >= CONVOY_LEASE_STATES || given->end > CONVOY_LEASE_END_CLOSED || given->asked > given->block.bytes ||
        given->request_length > CONVOY_REQUEST_BYTES || given->request[given->request_length] != '\0') {
        return convoy_error_set(error, CONVOY_MALFORMED, "lease %u of %u cannot be", fields.index, leases->lease_count);
    }
    leases->entries[fields.index] = fields.entry;
    leases->entries[fields.index].first = CONVOY_LEASE_NO_ENTRY;
    return CONVOY_OK;
}

static int32_t restore_reference(struct convoy_leases *leases, const struct convoy_bundle_item *item,
                                 struct convoy_error *error)
{
    struct lease_reference given = {.count = 0};
    int32_t status = get(item, &reference_shape, &given, error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint32_t at = leases->unused;
    struct lease_entry *entry = given.entry < leases->lease_count ? &leases->entries[given.entry] : NULL;
    if (at == CONVOY_LEASE_NO_ENTRY || entry == NULL || entry->state == CONVOY_LEASE_FREE ||
        given.kind >= CONVOY_REFERENCE_KINDS || given.count == 0 || given.count > UINT32_MAX - entry->references[given.kind]) {
        return convoy_error_set(error, CONVOY_MALFORMED, "a reference to lease %u of %u cannot be", given.entry,
                                leases->lease_count);
    }
    leases->unused = leases->references[at].next;
    given.next = entry->first;
    leases->references[at] = given;
    entry->first = at;
    entry->references[given.kind] += given.count;
    return CONVOY_OK;
}

/* In the order of the table: a handle is told from the one before it by its generation, not by how long ago that was. */
static void link_free(struct convoy_leases *leases)
{
    leases->first_free = leases->last_free = CONVOY_LEASE_NO_ENTRY;
    for (uint32_t i = 0; i < leases->lease_count; i++) {
        struct lease_entry *entry = &leases->entries[i];
        if (entry->state != CONVOY_LEASE_FREE) {
            continue;
        }
        entry->next_free = CONVOY_LEASE_NO_ENTRY;
        if (leases->first_free == CONVOY_LEASE_NO_ENTRY) {
            leases->first_free = i;
        } else {
            leases->entries[leases->last_free].next_free = i;
        }
        leases->last_free = i;
    }
}

static int32_t restore_items(struct convoy_leases *leases, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item inner;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &inner)) {
        if (inner.tag == ITEM_ENTRY) {
            status = restore_entry(leases, &inner, error);
        } else if (inner.tag == ITEM_REFERENCE) {
            status = restore_reference(leases, &inner, error);
        } else if (inner.tag != CONVOY_BUNDLE_FIELDS) {
            status = convoy_bundle_unknown(&inner, "leases", error);
        }
    }
    link_free(leases);
    return status == CONVOY_OK ? convoy_bundle_done(&reader, "leases", error) : status;
}

/* As many as a pool of an engine may have. */
#define LEASES_MAX (UINT32_C(1) << 19)

int32_t convoy_leases_restore(const struct convoy_bundle_item *item, struct convoy_leases **leases_out,
                              struct convoy_error *error)
{
    struct convoy_leases table = {.lease_count = 0};
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item inner;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &inner)) {
        status = inner.tag == CONVOY_BUNDLE_FIELDS ? convoy_bundle_get_fields(&inner, &table_shape, &table, error) : status;
    }
    if (status == CONVOY_OK && (table.lease_count == 0 || table.lease_count > LEASES_MAX || table.reference_count > LEASES_MAX)) {
        status = convoy_error_set(error, CONVOY_MALFORMED, "%u leases and %u references, allowed are 1 to %u",
                                  table.lease_count, table.reference_count, LEASES_MAX);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_leases *leases = convoy_leases_create(table.lease_count, table.reference_count);
    if (leases == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u leases", table.lease_count);
    }
    leases->stale = table.stale;
    status = restore_items(leases, item, error);
    if (status != CONVOY_OK) {
        convoy_leases_destroy(leases);
        return status;
    }
    *leases_out = leases;
    return CONVOY_OK;
}
