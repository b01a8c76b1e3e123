/* SPDX-License-Identifier: Apache-2.0 */
/* A group's options: from the caller's size and pointers to a full-size copy that owns everything it points at. All
 * that this member alone can judge is judged here, before it meets the others: they neither wait for its mistake nor
 * fail with it. */
#include "handle.h"

#include "core/clock.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "net/rendezvous.h"
#include "poll/inject.h"
#include "sized.h"

#define OPTIONS_BLOB_DEFAULT (16u * 1024u)
#define OPTIONS_BLOB_MAX (1024u * 1024u)
#define OPTIONS_LOG_DEFAULT 64u
#define OPTIONS_LOG_MAX 65536u

/* Puts the group's name in front of a text that lacks it. */
static int32_t options_name_group(const struct convoy_group_options *options, int32_t status,
                                  struct convoy_error *error)
{
    int shown = (int)(options->name_length < 64 ? options->name_length : 64);
    return convoy_error_prefix(error, status, "group %.*s", shown, options->name);
}

static int32_t options_check_names(const struct convoy_group_options *options, struct convoy_error *error)
{
    if (options->name == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "options.name is NULL, allowed are 1..127 bytes");
    }
    if (options->name_length != 0 && options->name_length <= 127 &&
        !convoy_utf8_is_clean(options->name, options->name_length)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "options.name: allowed is UTF-8 without control characters");
    }
    if (options->name_length == 0 || options->name_length > 127) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "options.name_length: %zu is not in 1..127",
                                options->name_length);
    }
    return CONVOY_OK;
}

static int32_t options_check_numbers(const struct convoy_group_options *options, struct convoy_error *error)
{
    int name_length = (int)options->name_length;
    if ((options->critical_flags & ~CONVOY_GROUP_DEGRADE) != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "group %.*s: critical_flags 0x%x has unknown bits",
                                name_length, options->name, options->critical_flags);
    }
    if (options->blob_bytes_max > OPTIONS_BLOB_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "group %.*s: blob_bytes_max %u is not in 0..%u",
                                name_length, options->name, options->blob_bytes_max, OPTIONS_BLOB_MAX);
    }
    if (options->call_log_entries > OPTIONS_LOG_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "group %.*s: call_log_entries %u is not in 0..%u",
                                name_length, options->name, options->call_log_entries, OPTIONS_LOG_MAX);
    }
    if (options->member_ids == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "group %.*s: member_ids is NULL", name_length,
                                options->name);
    }
    if (options->member_count == 0 || options->member_count > 1024) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "group %.*s: member_count %zu is not in 1..1024",
                                name_length, options->name, options->member_count);
    }
    if (options->own_index >= options->member_count || options->listener_index >= options->member_count) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "group %.*s: own_index %u and listener_index %u must be below member_count %zu",
                                name_length, options->name, options->own_index, options->listener_index,
                                options->member_count);
    }
    return CONVOY_OK;
}

/* How members find each other: one way, unless there is nobody to find. */
static int32_t options_check_meeting(const struct convoy_group_options *options, struct convoy_error *error)
{
    bool has_tcp = options->rendezvous != NULL && options->rendezvous_length != 0;
    if (options->member_count > 1 && has_tcp == (options->allgather != NULL)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "group %.*s: rendezvous and allgather are %s given; one of them is needed",
                                (int)options->name_length, options->name, has_tcp ? "both" : "not");
    }
    if (options->member_count == 1 || !has_tcp) {
        return CONVOY_OK;
    }
    struct convoy_rendezvous where;
    int32_t status = convoy_rendezvous_parse(options->rendezvous, options->rendezvous_length, options->name,
                                             options->name_length, &where, error);
    return status == CONVOY_OK ? CONVOY_OK : options_name_group(options, status, error);
}

static int32_t options_check_members(const struct convoy_group_options *options, struct convoy_error *error)
{
    int name_length = (int)options->name_length;
    for (size_t i = 0; i < options->member_count; i++) {
        if (options->member_ids[i] < 0) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "group %.*s: member_ids[%zu] is %d, below 0",
                                    name_length, options->name, i, options->member_ids[i]);
        }
        for (size_t j = 0; j < i; j++) {
            if (options->member_ids[j] == options->member_ids[i]) {
                return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                        "group %.*s: member id %d is at positions %zu and %zu of member_ids",
                                        name_length, options->name, options->member_ids[i], j, i);
            }
        }
    }
    int32_t at_own = options->member_ids[options->own_index];
    if (at_own != options->own_id) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "group %.*s: member_ids[own_index %u] is %d, but own_id is %d", name_length,
                                options->name, options->own_index, at_own, options->own_id);
    }
    return CONVOY_OK;
}

static void options_defaults(struct convoy_group *group)
{
    struct convoy_group_options *options = &group->options;
    uint64_t timeout = group->context->runtime->settings.timeout_ms * CONVOY_NS_PER_MS;
    options->timeout_ns = options->timeout_ns != 0 ? options->timeout_ns : timeout;
    options->open_timeout_ns = options->open_timeout_ns != 0 ? options->open_timeout_ns : timeout;
    options->blob_bytes_max = options->blob_bytes_max != 0 ? options->blob_bytes_max : OPTIONS_BLOB_DEFAULT;
    options->call_log_entries = options->call_log_entries != 0 ? options->call_log_entries : OPTIONS_LOG_DEFAULT;
    while ((options->call_log_entries & (options->call_log_entries - 1)) != 0) { /* up to a power of two */
        options->call_log_entries += options->call_log_entries & -options->call_log_entries;
    }
}

static int32_t options_load_schema(struct convoy_group *group, struct convoy_error *error)
{
    if (group->options.schema == NULL) {
        return CONVOY_OK;
    }
    struct convoy_sync_schema full;
    int32_t status = convoy_sized_in(&full, &CONVOY_SHAPE(sync_schema), group->options.schema, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (full.critical_flags != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "schema.critical_flags: 0x%x is unknown, none is defined",
                                full.critical_flags);
    }
    struct convoy_sync_column columns[CONVOY_SYNC_COLUMNS_MAX];
    const struct convoy_sized_array given = {full.columns, full.column_stride, full.column_count};
    if (full.builtin == NULL && full.column_count <= CONVOY_SYNC_COLUMNS_MAX) {
        status = convoy_sized_array_check_in(&given, &CONVOY_SHAPE(sync_column), error);
        if (status != CONVOY_OK) {
            return status;
        }
        for (size_t i = 0; i < full.column_count; i++) {
            convoy_sized_array_read(&columns[i], &given, &CONVOY_SHAPE(sync_column), i);
        }
        full.columns = columns;
        full.column_stride = sizeof columns[0];
    }
    group->options.schema = NULL; /* the copy is group->schema */
    group->has_schema = true;
    return convoy_schema_load(&group->schema, &full, error);
}

static int32_t options_load_faults(struct convoy_group *group, struct convoy_error *error)
{
    if (group->options.poll_faults == NULL) {
        return CONVOY_OK;
    }
    struct convoy_poll_faults *full = convoy_memory_zalloc(sizeof *full);
    if (full == NULL) {
        group->options.poll_faults = NULL;
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for poll_faults");
    }
    int32_t status = convoy_sized_in(full, &CONVOY_SHAPE(poll_faults), group->options.poll_faults, error);
    const struct convoy_sized_array given = {full->script, full->script_stride, full->script_count};
    full->script = NULL;
    group->options.poll_faults = full;
    if (status == CONVOY_OK) {
        status = convoy_inject_check_limits(full, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_sized_array_check_in(&given, &CONVOY_SHAPE(poll_fault), error);
    }
    if (status != CONVOY_OK || full->script_count == 0) {
        return status;
    }
    struct convoy_poll_fault *script = convoy_memory_array(full->script_count, sizeof *script);
    if (script == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %zu scripted faults", full->script_count);
    }
    for (size_t i = 0; i < full->script_count; i++) {
        convoy_sized_array_read(&script[i], &given, &CONVOY_SHAPE(poll_fault), i);
    }
    full->script = script;
    full->script_stride = sizeof *script;
    return convoy_inject_check(full, error);
}

/* The table of the gathers and, with a schema, the longest row: members agree on its columns or on fewer of them. */
static int32_t options_load_rows(struct convoy_group *group, struct convoy_error *error)
{
    struct convoy_group_options *options = &group->options;
    struct convoy_grid_own own = {.member_count = (uint32_t)options->member_count,
                                  .inner = options->sync_inner,
                                  .slots = options->sync_slots};
    int32_t status = convoy_grid_check(&own, error);
    options->sync_inner = own.inner;
    options->sync_slots = own.slots;
    if (status == CONVOY_OK && group->has_schema) {
        status = convoy_sync_check_row(group->schema.count, own.member_count, options->blob_bytes_max, error);
    }
    return status;
}

/* What the options point at, and what only makes sense together with it. */
static int32_t options_load_parts(struct convoy_group *group, struct convoy_error *error)
{
    int32_t status = options_load_faults(group, error);
    if (status == CONVOY_OK) {
        status = options_load_schema(group, error);
    }
    if (status == CONVOY_OK) {
        status = options_load_rows(group, error);
    }
    return status == CONVOY_OK ? CONVOY_OK : options_name_group(&group->options, status, error);
}

/* From here on every pointer is ours or NULL, so that fini is right at each point of failure. */
static int32_t options_copy_pointers(struct convoy_group *group, struct convoy_error *error)
{
    struct convoy_group_options *options = &group->options;
    const int32_t *ids = options->member_ids;
    options->name = convoy_memory_text(options->name, options->name_length);
    options->rendezvous =
        options->rendezvous != NULL ? convoy_memory_text(options->rendezvous, options->rendezvous_length) : NULL;
    int32_t *copy = convoy_memory_array(options->member_count, sizeof *copy);
    options->member_ids = copy;
    if (copy != NULL) {
        memcpy(copy, ids, options->member_count * sizeof *copy);
    }
    if (options->name == NULL || copy == NULL || (options->rendezvous == NULL && options->rendezvous_length != 0)) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the options of a group");
    }
    return CONVOY_OK;
}

int32_t convoy_group_options_load(struct convoy_group *group, const struct convoy_group_options *given,
                                  struct convoy_error *error)
{
    struct convoy_group_options full;
    int32_t status = convoy_sized_in(&full, &CONVOY_SHAPE(group_options), given, error);
    if (status == CONVOY_OK) {
        status = options_check_names(&full, error);
    }
    if (status == CONVOY_OK) {
        status = options_check_numbers(&full, error);
    }
    if (status == CONVOY_OK) {
        status = options_check_members(&full, error);
    }
    if (status == CONVOY_OK) {
        status = options_check_meeting(&full, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    if (full.rendezvous == NULL) {
        full.rendezvous_length = 0;
    }
    group->options = full;
    const struct convoy_poll_faults *faults = full.poll_faults;
    group->options.poll_faults = NULL;
    status = options_copy_pointers(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    options_defaults(group);
    group->options.poll_faults = faults;
    return options_load_parts(group, error);
}

/* Statuses of what the host would have given, as what they are of a state. */
static int32_t options_as_state(int32_t status, struct convoy_error *error)
{
    int32_t as = status == CONVOY_INVALID_ARGUMENT || status == CONVOY_LIMIT ? CONVOY_MALFORMED
                 : status == CONVOY_UNSUPPORTED                              ? CONVOY_TOO_NEW
                                                                             : status;
    if (as != status && error != NULL) {
        error->status = as;
    }
    return as;
}

int32_t convoy_group_options_adopt(struct convoy_group *group, const struct convoy_group_options *given,
                                   struct convoy_error *error)
{
    int32_t status = options_check_names(given, error);
    status = status == CONVOY_OK ? options_check_numbers(given, error) : status;
    status = status == CONVOY_OK ? options_check_members(given, error) : status;
    if (status != CONVOY_OK) {
        return options_as_state(status, error);
    }
    group->options = *given;
    group->options.poll_faults = NULL;
    status = options_copy_pointers(group, error);
    if (status != CONVOY_OK) {
        return status;
    }
    options_defaults(group);
    group->options.poll_faults = given->poll_faults;
    status = options_load_faults(group, error);
    status = status == CONVOY_OK ? options_load_rows(group, error) : status;
    return options_as_state(status, error);
}

void convoy_group_options_fini(struct convoy_group_options *options)
{
    if (options->poll_faults != NULL) {
        convoy_memory_free((void *)(uintptr_t)options->poll_faults->script);
    }
    convoy_memory_free((void *)(uintptr_t)options->poll_faults);
    convoy_memory_free((void *)(uintptr_t)options->member_ids);
    convoy_memory_free((void *)(uintptr_t)options->rendezvous);
    convoy_memory_free((void *)(uintptr_t)options->name);
}
