/* SPDX-License-Identifier: Apache-2.0 */
/* What one build writes down of a context and another one makes of it (states: convoy/move.h). */
#include "move_walk.h"

#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "core/version.h"
#include "sized.h"
#include "text.h"

#include <string.h>

/* -- export -------------------------------------------------------------------------------------------------------- */

/* What a context has of its own: counters go on. */
struct context_fields {
    uint64_t incarnation; /* of the runtime; its operation values go on from it */
    uint64_t salts;
    uint64_t strangers;
    uint64_t refused;
    struct convoy_handover_name handover; /* who may go on with it */
};

static const struct convoy_bundle_field context_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct context_fields, incarnation),
    CONVOY_BUNDLE_FIELD(2, struct context_fields, salts),
    CONVOY_BUNDLE_FIELD(3, struct context_fields, strangers),
    CONVOY_BUNDLE_FIELD(4, struct context_fields, refused),
    CONVOY_BUNDLE_FIELD(5, struct context_fields, handover.file),
    CONVOY_BUNDLE_FIELD(6, struct context_fields, handover.made_ns),
};

static const struct convoy_bundle_shape context_shape = {
    .name = "context", .fields = context_field_list, .count = sizeof context_field_list / sizeof context_field_list[0]};

static void save_context(const struct convoy_context *context, struct convoy_bundle_writer *writer)
{
    struct convoy_runtime *runtime = context->runtime;
    const struct context_fields fields = {
        .incarnation = runtime->incarnation,
        .salts = atomic_load(&runtime->salt_count),
        .strangers = atomic_load(&runtime->stranger_count),
        .refused = atomic_load(&runtime->refused_count),
        .handover = convoy_handover_name(&context->handover),
    };
    size_t opened = convoy_bundle_open(writer, CONVOY_STATE_CONTEXT, 0);
    convoy_bundle_put_fields(writer, &context_shape, &fields);
    convoy_bundle_shut(writer, opened);
}

static int32_t save(struct convoy_context *context, struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    convoy_bundle_begin(writer);
    save_context(context, writer);
    CONVOY_EACH_GROUP(context, group)
    {
        size_t opened = convoy_bundle_open(writer, CONVOY_STATE_GROUP, CONVOY_BUNDLE_CRITICAL);
        int32_t status = convoy_group_save(group, writer, error);
        if (status != CONVOY_OK) {
            return status;
        }
        convoy_bundle_shut(writer, opened);
    }
    CONVOY_EACH_ENGINE(context, engine)
    {
        size_t opened = convoy_bundle_open(writer, CONVOY_STATE_ENGINE, CONVOY_BUNDLE_CRITICAL);
        int32_t status = convoy_transfer_engine_save(engine, writer, error);
        if (status != CONVOY_OK) {
            return status;
        }
        convoy_bundle_shut(writer, opened);
    }
    return convoy_bundle_end(writer, error);
}

static int32_t check_options(const struct convoy_export_options *options, struct convoy_error *error)
{
    struct convoy_export_options full;
    int32_t status = convoy_sized_in(&full, &CONVOY_SHAPE(export_options), options, error);
    if (status == CONVOY_OK && full.critical_flags != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "options.critical_flags: 0x%x is unknown, none is defined",
                                full.critical_flags);
    }
    return status == CONVOY_OK ? convoy_bundle_check_format(full.format_max, CONVOY_STATE_FORMAT_MIN, error) : status;
}

int32_t convoy_context_export(convoy_context *context, const struct convoy_export_options *options,
                              struct convoy_text_buffer *state_out, struct convoy_error *error)
{
    struct convoy_bundle_writer writer = {0};
    int32_t status = convoy_move_enter(context, "export_state", CONVOY_MOVE_MAY(QUIESCED), error);
    status = status == CONVOY_OK ? check_options(options, error) : status;
    status = status == CONVOY_OK ? convoy_handover_begin(&context->handover, error) : status;
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_text_buffer full;
    status = convoy_sized_out_begin(&full, &CONVOY_SHAPE(text_buffer), state_out, error);
    if (status == CONVOY_OK) {
        convoy_bundle_lend(&writer, full.data, full.capacity); /* a host waits for this: one copy less */
        status = save(context, &writer, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_text_write(state_out, (const char *)writer.data, writer.used, error);
    }
    convoy_bundle_free(&writer);
    CONVOY_POINT(move_exported);
    return status;
}

/* -- import -------------------------------------------------------------------------------------------------------- */

/* One import on its way. */
struct importing {
    struct convoy_context *context;
    struct convoy_group *groups; /* restored, by `next` */
    struct convoy_transfer_engine *engines;
    struct convoy_sized_array objects;
    size_t capacity;
    size_t count;
};

static void discard_all(struct convoy_group *group, struct convoy_transfer_engine *engine)
{
    while (group != NULL) {
        struct convoy_group *next = group->next;
        convoy_group_discard(group);
        group = next;
    }
    while (engine != NULL) {
        struct convoy_transfer_engine *next = engine->next;
        convoy_transfer_engine_discard(engine);
        engine = next;
    }
}

static int32_t restore_context(struct convoy_context *context, const struct convoy_bundle_item *item,
                               struct convoy_error *error)
{
    struct context_fields fields = {0};
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        status = one.tag == CONVOY_BUNDLE_FIELDS ? convoy_bundle_get_fields(&one, &context_shape, &fields, error)
                                                 : convoy_bundle_unknown(&one, context_shape.name, error);
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, context_shape.name, error) : status;
    status = status == CONVOY_OK ? convoy_handover_join(&context->handover, &fields.handover, error) : status;
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_runtime *runtime = context->runtime;
    runtime->incarnation = fields.incarnation != 0 ? fields.incarnation : runtime->incarnation;
    atomic_store(&runtime->salt_count, fields.salts);
    atomic_store(&runtime->stranger_count, fields.strangers);
    atomic_store(&runtime->refused_count, fields.refused);
    return CONVOY_OK;
}

/* The exporter's handle is the first thing in an object's item. */
static uint64_t read_from(const struct convoy_bundle_item *item)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    while (convoy_bundle_next(&reader, &one)) {
        if (one.tag == CONVOY_STATE_HANDLE) {
            return convoy_bundle_u64(&one);
        }
    }
    return 0;
}

static void note_object(struct importing *importing, const struct convoy_bundle_item *item, uint32_t kind, const void *to)
{
    const struct convoy_moved_object object = {
        .old_handle = read_from(item), .new_handle = (uint64_t)(uintptr_t)to, .kind = kind};
    if (importing->count < importing->capacity) {
        convoy_sized_array_write(&importing->objects, &CONVOY_SHAPE(moved_object), importing->count, &object);
    }
    importing->count++;
}

static int32_t restore_object(struct importing *importing, const struct convoy_bundle_item *item,
                              struct convoy_error *error)
{
    int32_t status;
    if (item->tag == CONVOY_STATE_CONTEXT) {
        convoy_handover_end(&importing->context->handover); /* of a damaged state that has two */
        return restore_context(importing->context, item, error);
    }
    if (item->tag == CONVOY_STATE_GROUP) {
        struct convoy_group *group = NULL;
        status = convoy_group_restore(importing->context, item, &group, error);
        if (status == CONVOY_OK) {
            group->next = importing->groups;
            importing->groups = group;
            note_object(importing, item, CONVOY_MOVED_GROUP, group);
        }
        return status;
    }
    if (item->tag == CONVOY_STATE_ENGINE) {
        struct convoy_transfer_engine *engine = NULL;
        status = convoy_transfer_engine_restore(importing->context, item, &engine, error);
        if (status == CONVOY_OK) {
            engine->next = importing->engines;
            importing->engines = engine;
            note_object(importing, item, CONVOY_MOVED_ENGINE, engine);
        }
        return status;
    }
    return convoy_bundle_unknown(item, "an exported state", error);
}

static int32_t restore(struct importing *importing, const struct convoy_exported_state *state, struct convoy_error *error)
{
    struct convoy_bundle_reader reader;
    struct convoy_bundle_item item;
    void *copy = NULL;
    if (((uintptr_t)state->data & 7u) != 0) { /* a bundle is read where it lies, aligned */
        copy = convoy_memory_zalloc(state->bytes + 1);
        if (copy == NULL) {
            return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for an aligned copy of %zu bytes", state->bytes);
        }
        memcpy(copy, state->data, state->bytes);
    }
    int32_t status = convoy_bundle_read(copy != NULL ? copy : state->data, state->bytes, &reader, error);
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &item)) {
        status = restore_object(importing, &item, error);
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, "the whole", error) : status;
    convoy_memory_free(copy);
    return status;
}

static int32_t import_begin(struct convoy_context *context, const struct convoy_exported_state *state,
                            struct convoy_exported_state *state_out, struct convoy_moved *moved_out,
                            struct convoy_moved *moved, struct convoy_error *error)
{
    int32_t status = convoy_sized_in(state_out, &CONVOY_SHAPE(exported_state), state, error);
    if (status == CONVOY_OK) {
        status = convoy_sized_out_begin(moved, &CONVOY_SHAPE(moved), moved_out, error);
    }
    if (status == CONVOY_OK && state_out->critical_flags != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "state.critical_flags: 0x%x is unknown, none is defined",
                                state_out->critical_flags);
    }
    const struct convoy_sized_array objects = {moved->objects, moved->object_stride, moved->object_capacity};
    if (status == CONVOY_OK) {
        status = convoy_sized_array_check_out(&objects, &CONVOY_SHAPE(moved_object), error);
    }
    if (status == CONVOY_OK && (convoy_move_first_group(context) != NULL || convoy_move_first_engine(context) != NULL)) {
        return convoy_error_set(error, CONVOY_BAD_STATE, "import_state: groups or engines were opened in this context");
    }
    return status;
}

static void link_all(struct convoy_context *context, const struct importing *importing)
{
    (void)pthread_mutex_lock(&context->lock);
    context->groups = importing->groups;
    context->engines = importing->engines;
    (void)pthread_mutex_unlock(&context->lock);
    atomic_store(&context->move, CONVOY_CONTEXT_IMPORTED);
}

int32_t convoy_context_import(convoy_context *context, const struct convoy_exported_state *state,
                              struct convoy_moved *moved_out, struct convoy_error *error)
{
    struct convoy_exported_state full = {0};
    struct convoy_moved moved = {0};
    int32_t status = convoy_move_enter(context, "import_state", CONVOY_MOVE_MAY(RUNNING), error);
    if (status == CONVOY_OK) {
        status = import_begin(context, state, &full, moved_out, &moved, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    struct importing importing = {.context = context,
                                  .objects = {moved.objects, moved.object_stride, moved.object_capacity},
                                  .capacity = moved.object_capacity};
    status = restore(&importing, &full, error);
    moved.object_count = importing.count;
    if (status == CONVOY_OK && importing.count > importing.capacity) {
        convoy_sized_out_end(moved_out, &CONVOY_SHAPE(moved), &moved);
        status = convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "%zu objects, moved.object_capacity is %zu",
                                  importing.count, importing.capacity);
    }
    CONVOY_POINT(move_imported);
    if (status == CONVOY_OK) {
        link_all(context, &importing);
        convoy_sized_out_end(moved_out, &CONVOY_SHAPE(moved), &moved);
    } else {
        discard_all(importing.groups, importing.engines);
        convoy_handover_end(&context->handover);
    }
    convoy_log_flush(&context->runtime->log);
    return status;
}

void convoy_context_discard(struct convoy_context *context)
{
    if (atomic_load(&context->move) != CONVOY_CONTEXT_IMPORTED) {
        return;
    }
    struct convoy_group *groups = context->groups;
    struct convoy_transfer_engine *engines = context->engines;
    (void)pthread_mutex_lock(&context->lock);
    context->groups = NULL;
    context->engines = NULL;
    (void)pthread_mutex_unlock(&context->lock);
    discard_all(groups, engines);
}
