/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group as items of a state, and a group out of them: options, then the engine, then poll and sync on top of it, as an
 * open builds them. Host callbacks of the open are not among them: they are not called any more.
 */
#include "group_state.h"

#include "core/error.h"
#include "core/memory.h"
#include "poll/poll_move.h"
#include "record_move.h"
#include "round/engine_move.h"
#include "sync/sync_move.h"

#include <string.h>

#define GROUP_FIELD(number, member) CONVOY_BUNDLE_FIELD(number, struct convoy_group, member)
#define GROUP_NEEDED(number, member)                                                                                   \
    CONVOY_BUNDLE_FIELD_FLAGS(number, struct convoy_group, member, CONVOY_BUNDLE_CRITICAL)

static const struct convoy_bundle_field group_field_list[] = {
    GROUP_NEEDED(1, options.critical_flags),
    GROUP_FIELD(2, options.hint_flags),
    GROUP_NEEDED(3, options.own_index),
    GROUP_NEEDED(4, options.own_id),
    GROUP_FIELD(5, options.listener_index),
    GROUP_FIELD(6, options.epoch),
    GROUP_FIELD(7, options.open_timeout_ns),
    GROUP_FIELD(8, options.timeout_ns),
    GROUP_NEEDED(9, options.blob_bytes_max),
    GROUP_FIELD(10, options.call_log_entries),
    GROUP_NEEDED(11, options.sync_inner),
    GROUP_NEEDED(12, options.sync_slots),
    GROUP_FIELD(13, open_started_ns),
    GROUP_FIELD(14, open_deadline_ns),
};

static const struct convoy_bundle_field faults_field_list[] = {
    CONVOY_BUNDLE_FIELD_FLAGS(1, struct convoy_poll_faults, probability_ppm, CONVOY_BUNDLE_CRITICAL),
    CONVOY_BUNDLE_FIELD_FLAGS(2, struct convoy_poll_faults, seed, CONVOY_BUNDLE_CRITICAL),
};

#define SHAPE_OF(list) .fields = (list), .count = sizeof(list) / sizeof((list)[0])

static const struct convoy_bundle_shape group_shape = {.name = "a group", SHAPE_OF(group_field_list)};
static const struct convoy_bundle_shape faults_shape = {.name = "injected faults", SHAPE_OF(faults_field_list)};

/* -- saving -------------------------------------------------------------------------------------------------------- */

static int32_t save_schema(const struct convoy_group *group, struct convoy_bundle_writer *writer,
                           struct convoy_error *error)
{
    if (!group->has_schema) {
        return CONVOY_OK;
    }
    uint8_t *bytes = convoy_memory_zalloc(CONVOY_SCHEMA_BYTES_MAX);
    if (bytes == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to write down a schema");
    }
    size_t length = convoy_schema_encode(&group->schema, bytes, CONVOY_SCHEMA_BYTES_MAX);
    convoy_bundle_put(writer, CONVOY_GROUP_ITEM_SCHEMA, CONVOY_BUNDLE_CRITICAL, bytes, length);
    convoy_memory_free(bytes);
    return CONVOY_OK;
}

static void save_faults(const struct convoy_poll_faults *faults, struct convoy_bundle_writer *writer)
{
    if (faults == NULL) {
        return;
    }
    size_t opened = convoy_bundle_open(writer, CONVOY_GROUP_ITEM_FAULTS, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(writer, &faults_shape, faults);
    convoy_bundle_put(writer, CONVOY_GROUP_ITEM_SCRIPT, CONVOY_BUNDLE_CRITICAL, faults->script,
                      faults->script_count * sizeof *faults->script);
    convoy_bundle_shut(writer, opened);
}

static void save_options(const struct convoy_group *group, struct convoy_bundle_writer *writer)
{
    const struct convoy_group_options *options = &group->options;
    const uint64_t handle = (uint64_t)(uintptr_t)group;
    convoy_bundle_put_u64(writer, CONVOY_STATE_HANDLE, handle);
    convoy_bundle_put_fields(writer, &group_shape, group);
    convoy_bundle_put(writer, CONVOY_GROUP_ITEM_NAME, CONVOY_BUNDLE_CRITICAL, options->name, options->name_length);
    convoy_bundle_put(writer, CONVOY_GROUP_ITEM_MEMBERS, CONVOY_BUNDLE_CRITICAL, options->member_ids,
                      options->member_count * sizeof *options->member_ids);
    if (options->rendezvous != NULL) {
        convoy_bundle_put(writer, CONVOY_GROUP_ITEM_RENDEZVOUS, 0, options->rendezvous, options->rendezvous_length);
    }
    save_faults(options->poll_faults, writer);
}

int32_t convoy_group_save(struct convoy_group *group, struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    save_options(group, writer);
    int32_t status = save_schema(group, writer, error);
    if (status != CONVOY_OK) {
        return status;
    }
    size_t opened = convoy_bundle_open(writer, CONVOY_GROUP_ITEM_ENGINE, CONVOY_BUNDLE_CRITICAL);
    status = convoy_engine_save(group->engine, writer, error);
    convoy_bundle_shut(writer, opened);
    if (status != CONVOY_OK) {
        return status;
    }
    opened = convoy_bundle_open(writer, CONVOY_GROUP_ITEM_POLL, CONVOY_BUNDLE_CRITICAL);
    convoy_poll_save(group->poll, writer);
    convoy_bundle_shut(writer, opened);
    if (group->sync != NULL) {
        opened = convoy_bundle_open(writer, CONVOY_GROUP_ITEM_SYNC, CONVOY_BUNDLE_CRITICAL);
        convoy_sync_save(group->sync, writer);
        convoy_bundle_shut(writer, opened);
    }
    opened = convoy_bundle_open(writer, CONVOY_GROUP_ITEM_RECORD, 0);
    convoy_record_save(&group->record, writer);
    convoy_bundle_shut(writer, opened);
    return CONVOY_OK;
}

/* -- restoring ----------------------------------------------------------------------------------------------------- */

/* One restore on its way. */
struct restoring {
    struct convoy_group *group;
    struct convoy_group_options given; /* pointers into the state */
    struct convoy_poll_faults faults;
    struct convoy_grid *grid;
    struct convoy_bundle_item schema; /* data NULL: it is not there */
    struct convoy_bundle_item engine;
    struct convoy_bundle_item poll;
    struct convoy_bundle_item sync;
    struct convoy_bundle_item record;
    bool has_fields;
};

static int32_t read_faults(struct restoring *restoring, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_poll_faults *faults = &restoring->faults;
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = CONVOY_OK;
    *faults = (struct convoy_poll_faults){.struct_size = (uint32_t)sizeof *faults, .script_stride = sizeof *faults->script};
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        if (one.tag == CONVOY_GROUP_ITEM_SCRIPT) {
            faults->script_count = one.bytes / sizeof *faults->script;
            faults->script = faults->script_count != 0 ? (const struct convoy_poll_fault *)(const void *)one.data : NULL;
            continue;
        }
        status = one.tag == CONVOY_BUNDLE_FIELDS ? convoy_bundle_get_fields(&one, &faults_shape, faults, error)
                                                 : convoy_bundle_unknown(&one, faults_shape.name, error);
    }
    restoring->given.poll_faults = faults;
    return status == CONVOY_OK ? convoy_bundle_done(&reader, faults_shape.name, error) : status;
}

/* What is read when what it needs is there. false: no such item. */
static bool keep_item(struct restoring *restoring, const struct convoy_bundle_item *item)
{
    switch (item->tag) {
    case CONVOY_GROUP_ITEM_SCHEMA:
        restoring->schema = *item;
        return true;
    case CONVOY_GROUP_ITEM_ENGINE:
        restoring->engine = *item;
        return true;
    case CONVOY_GROUP_ITEM_POLL:
        restoring->poll = *item;
        return true;
    case CONVOY_GROUP_ITEM_SYNC:
        restoring->sync = *item;
        return true;
    case CONVOY_GROUP_ITEM_RECORD:
        restoring->record = *item;
        return true;
    case CONVOY_STATE_HANDLE:
        return true; /* whoever called reads that */
    default:
        return false;
    }
}

static int32_t read_item(struct restoring *restoring, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_group_options *given = &restoring->given;
    switch (item->tag) {
    case CONVOY_BUNDLE_FIELDS:
        restoring->has_fields = true;
        return convoy_bundle_get_fields(item, &group_shape, restoring->group, error);
    case CONVOY_GROUP_ITEM_NAME:
        given->name = (const char *)item->data;
        given->name_length = item->bytes;
        return CONVOY_OK;
    case CONVOY_GROUP_ITEM_MEMBERS:
        given->member_ids = (const int32_t *)(const void *)item->data;
        given->member_count = item->bytes / sizeof *given->member_ids;
        return CONVOY_OK;
    case CONVOY_GROUP_ITEM_RENDEZVOUS:
        given->rendezvous = (const char *)item->data;
        given->rendezvous_length = item->bytes;
        return CONVOY_OK;
    case CONVOY_GROUP_ITEM_FAULTS:
        return read_faults(restoring, item, error);
    default:
        return keep_item(restoring, item) ? CONVOY_OK : convoy_bundle_unknown(item, group_shape.name, error);
    }
}

static int32_t read_items(struct restoring *restoring, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        status = read_item(restoring, &one, error);
    }
    return status == CONVOY_OK ? convoy_bundle_done(&reader, group_shape.name, error) : status;
}

static int32_t check_items(const struct restoring *restoring, struct convoy_error *error)
{
    const char *lacks = !restoring->has_fields                 ? "the options of a group"
                        : restoring->given.name == NULL        ? "the name of a group"
                        : restoring->given.member_ids == NULL  ? "the members of a group"
                        : restoring->engine.data == NULL       ? "the round engine of a group"
                        : restoring->poll.data == NULL         ? "poll reduce of a group"
                                                               : NULL;
    return lacks == NULL ? CONVOY_OK : convoy_error_set(error, CONVOY_TOO_OLD, "an exported state lacks %s", lacks);
}

/* Numbers were read into the group's own options, pointers are those into the state. */
static int32_t take_options(struct restoring *restoring, struct convoy_error *error)
{
    struct convoy_group *group = restoring->group;
    struct convoy_group_options given = group->options;
    group->options = (struct convoy_group_options){0}; /* nothing of it is owned yet */
    given.struct_size = (uint32_t)sizeof given;
    given.name = restoring->given.name;
    given.name_length = restoring->given.name_length;
    given.member_ids = restoring->given.member_ids;
    given.member_count = restoring->given.member_count;
    given.rendezvous = restoring->given.rendezvous;
    given.rendezvous_length = restoring->given.rendezvous_length;
    given.poll_faults = restoring->given.poll_faults;
    if (restoring->schema.data != NULL) {
        group->has_schema = true;
        if (convoy_schema_decode(&group->schema, restoring->schema.data, restoring->schema.bytes) != CONVOY_OK) {
            return convoy_error_set(error, CONVOY_MALFORMED, "the schema of an exported group is damaged");
        }
    }
    return convoy_group_options_adopt(group, &given, error);
}

static int32_t take_grid(struct restoring *restoring, struct convoy_error *error)
{
    const struct convoy_group *group = restoring->group;
    if (restoring->sync.data == NULL) {
        return CONVOY_OK; /* all zero: no columns */
    }
    if (!group->has_schema) {
        return convoy_error_set(error, CONVOY_TOO_OLD, "group %.*s: an exported state lacks the schema of its gathers",
                                (int)group->options.name_length, group->options.name);
    }
    return convoy_sync_restore_grid(&restoring->sync, &group->schema, (uint32_t)group->options.member_count,
                                    restoring->grid, error);
}

static int32_t take_parts(struct restoring *restoring, struct convoy_error *error)
{
    struct convoy_group *group = restoring->group;
    struct convoy_runtime *runtime = group->context->runtime;
    int32_t status = convoy_engine_restore(runtime, &group->options,
                                           convoy_group_partial_bytes_max(group, restoring->grid), &restoring->engine,
                                           &group->engine, error);
    if (status != CONVOY_OK) {
        return status;
    }
    group->record.waited = convoy_engine_waited(group->engine);
    group->record.summary = convoy_engine_summary(group->engine);
    status = convoy_group_open_families(group, restoring->grid, error);
    if (status == CONVOY_OK) {
        status = convoy_poll_restore(group->poll, &restoring->poll, error);
    }
    if (status == CONVOY_OK && group->sync != NULL) {
        status = convoy_sync_restore(group->sync, &restoring->sync, error);
    }
    if (status == CONVOY_OK && restoring->record.data != NULL) {
        status = convoy_record_restore(&group->record, &restoring->record, error);
    }
    return status;
}

static int32_t restore_all(struct restoring *restoring, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_group *group = restoring->group;
    int32_t status = read_items(restoring, item, error);
    status = status == CONVOY_OK ? check_items(restoring, error) : status;
    if (status != CONVOY_OK) {
        group->options = (struct convoy_group_options){0};
        return status;
    }
    status = take_options(restoring, error);
    if (status == CONVOY_OK) {
        status = convoy_record_open(&group->record, group->options.call_log_entries, error);
    }
    status = status == CONVOY_OK ? take_grid(restoring, error) : status;
    return status == CONVOY_OK ? take_parts(restoring, error) : status;
}

int32_t convoy_group_restore(struct convoy_context *context, const struct convoy_bundle_item *item,
                             struct convoy_group **group_out, struct convoy_error *error)
{
    struct restoring restoring = {.group = convoy_group_new(context)};
    struct convoy_group *group = restoring.group;
    restoring.grid = convoy_memory_zalloc(sizeof *restoring.grid);
    if (group == NULL || restoring.grid == NULL) {
        convoy_memory_free(restoring.grid);
        if (group != NULL) {
            convoy_group_free(group);
        }
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a group");
    }
    atomic_store(&group->phase, CONVOY_PHASE_FROZEN);
    group->is_restored = true;
    group->is_open_done = true;
    int32_t status = restore_all(&restoring, item, error);
    convoy_memory_free(restoring.grid);
    if (status != CONVOY_OK) {
        convoy_group_discard(group);
        return status;
    }
    *group_out = group;
    return CONVOY_OK;
}
