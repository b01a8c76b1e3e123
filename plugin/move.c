/* SPDX-License-Identifier: Apache-2.0 */
/* A context moves: one walk over all its groups and engines for each step (states: convoy/move.h). */
#include "move.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "core/version.h"
#include "sized.h"
#include "text.h"

#include <sched.h>
#include <time.h>

#define LOOKS_BEFORE_SLEEP 2000u /* a round ends in microseconds when its peers are there */
#define LOOK_AGAIN_NS 50000

/* -- who may do what ----------------------------------------------------------------------------------------------- */

static const char *state_name(uint32_t state)
{
    static const char *const names[] = {"new", "running", "quiescing", "quiesced", "imported", "retired", "closing"};
    return state < sizeof names / sizeof names[0] ? names[state] : "unknown";
}

#define MAY(state) (1u << CONVOY_CONTEXT_##state)

static int32_t enter(struct convoy_context *context, const char *call, uint32_t allowed, struct convoy_error *error)
{
    if (context == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "context is NULL");
    }
    if (convoy_handle_is_forked(context->alive)) {
        return convoy_error_set(error, CONVOY_FORKED,
                                "this context was inherited through fork; open a fresh one in this process");
    }
    if (atomic_load(&context->is_closing) != 0) {
        return convoy_error_set(error, CONVOY_CLOSED, "the context is closing");
    }
    uint32_t state = atomic_load(&context->move);
    if ((allowed >> state & 1u) == 0) {
        return convoy_error_set(error, CONVOY_BAD_STATE, "%s: the context is %s", call, state_name(state));
    }
    return CONVOY_OK;
}

static struct convoy_group *first_group(struct convoy_context *context)
{
    (void)pthread_mutex_lock(&context->lock);
    struct convoy_group *group = context->groups;
    (void)pthread_mutex_unlock(&context->lock);
    return group;
}

static struct convoy_transfer_engine *first_engine(struct convoy_context *context)
{
    (void)pthread_mutex_lock(&context->lock);
    struct convoy_transfer_engine *engine = context->engines;
    (void)pthread_mutex_unlock(&context->lock);
    return engine;
}

/* Every live object, groups before engines. */
#define EACH_GROUP(context, group)                                                                                     \
    for (struct convoy_group *group = first_group(context); group != NULL; group = group->next)                        \
        if (convoy_group_is_live(group))
#define EACH_ENGINE(context, engine)                                                                                   \
    for (struct convoy_transfer_engine *engine = first_engine(context); engine != NULL; engine = engine->next)         \
        if (convoy_transfer_engine_is_live(engine))

/* -- counting ------------------------------------------------------------------------------------------------------ */

int32_t convoy_context_holdings(convoy_context *context, struct convoy_holdings *holdings_out, struct convoy_error *error)
{
    struct convoy_holdings holdings = {0};
    if (context == NULL || convoy_handle_is_forked(context->alive)) {
        return enter(context, "holdings", 0, error);
    }
    int32_t status = convoy_sized_out_begin(&holdings, &CONVOY_SHAPE(holdings), holdings_out, error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint32_t struct_size = holdings.struct_size;
    holdings = (struct convoy_holdings){.struct_size = struct_size};
    holdings.state = atomic_load(&context->is_closing) != 0 ? CONVOY_CONTEXT_CLOSING : atomic_load(&context->move);
    holdings.call_count = atomic_load(&context->opening);
    holdings.descriptor_count = holdings.mapping_count = context->handover.page != NULL;
    holdings.thread_count = context->runtime != NULL ? atomic_load(&context->runtime->thread_count) : 0;
    for (struct convoy_group *group = first_group(context); group != NULL; group = group->next) {
        convoy_group_count(group, &holdings);
    }
    for (struct convoy_transfer_engine *engine = first_engine(context); engine != NULL; engine = engine->next) {
        convoy_transfer_engine_count(engine, &holdings);
    }
    convoy_sized_out_end(holdings_out, &CONVOY_SHAPE(holdings), &holdings);
    return CONVOY_OK;
}

/* -- quiesce and resume -------------------------------------------------------------------------------------------- */

/* The second pass sees what an open call on two groups has left in one that the first had passed already. */
static bool groups_are_still(struct convoy_context *context, char *why_out)
{
    for (int pass = 0; pass < 2; pass++) {
        EACH_GROUP(context, group)
        {
            convoy_group_halt(group);
            if (!convoy_group_is_still(group, why_out)) {
                return false;
            }
        }
    }
    return true;
}

/* Engines first: their copies may take a while, and rounds go on meanwhile. */
static bool is_still(struct convoy_context *context, char *why_out)
{
    if (atomic_load(&context->opening) != 0) {
        (void)snprintf(why_out, CONVOY_STILL_TEXT_BYTES, "a group or an engine is being opened");
        return false;
    }
    EACH_ENGINE(context, engine)
    {
        if (!convoy_transfer_engine_is_still(engine, why_out)) {
            return false;
        }
    }
    return groups_are_still(context, why_out);
}

static int32_t wait_still(struct convoy_context *context, uint64_t deadline_ns, struct convoy_error *error)
{
    const struct timespec moment = {.tv_nsec = LOOK_AGAIN_NS};
    char why[CONVOY_STILL_TEXT_BYTES] = "";
    for (uint32_t looks = 0; !is_still(context, why); looks++) {
        if (convoy_now_ns() >= deadline_ns) {
            return convoy_error_set(error, CONVOY_DRAIN_TIMEOUT, "%s; quiesce again, or resume", why);
        }
        if (looks < LOOKS_BEFORE_SLEEP) {
            (void)sched_yield();
        } else {
            (void)nanosleep(&moment, NULL);
        }
    }
    return CONVOY_OK;
}

static int32_t freeze(struct convoy_context *context, struct convoy_error *error)
{
    EACH_ENGINE(context, engine)
    {
        int32_t status = convoy_transfer_engine_freeze(engine, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    EACH_GROUP(context, group)
    {
        int32_t status = convoy_group_freeze(group, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

int32_t convoy_context_quiesce(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error)
{
    int32_t status = enter(context, "quiesce", MAY(RUNNING) | MAY(QUIESCING) | MAY(QUIESCED), error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : context->runtime->settings.close_timeout_ms * CONVOY_NS_PER_MS;
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), timeout);
    if (atomic_load(&context->move) == CONVOY_CONTEXT_QUIESCED) {
        return CONVOY_OK;
    }
    atomic_store(&context->move, CONVOY_CONTEXT_QUIESCING);
    EACH_ENGINE(context, engine)
    {
        convoy_transfer_engine_halt(engine);
    }
    CONVOY_POINT(move_halted);
    status = wait_still(context, deadline, error);
    CONVOY_POINT(move_still);
    if (status == CONVOY_OK) {
        status = freeze(context, error);
    }
    if (status == CONVOY_OK) {
        atomic_store(&context->move, CONVOY_CONTEXT_QUIESCED);
    }
    CONVOY_POINT(move_frozen);
    convoy_log_flush(&context->runtime->log);
    return status;
}

/* What was thawed before one that failed is halted again. */
static void halt_again(struct convoy_context *context, uint32_t state)
{
    if (state == CONVOY_CONTEXT_IMPORTED) {
        return; /* whoever imported closes it */
    }
    EACH_ENGINE(context, engine)
    {
        convoy_transfer_engine_halt(engine);
    }
    EACH_GROUP(context, group)
    {
        convoy_group_halt(group);
    }
    atomic_store(&context->move, CONVOY_CONTEXT_QUIESCING);
}

static int32_t thaw_all(struct convoy_context *context, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    EACH_ENGINE(context, engine)
    {
        status = status == CONVOY_OK ? convoy_transfer_engine_thaw(engine, error) : status;
    }
    EACH_GROUP(context, group)
    {
        status = status == CONVOY_OK ? convoy_group_thaw(group, error) : status;
    }
    return status;
}

/* Only one of all that know the same state can go on with it. */
static int32_t take_over(struct convoy_context *context, uint32_t state, struct convoy_error *error)
{
    if (convoy_handover_take(&context->handover)) {
        return CONVOY_OK;
    }
    return convoy_error_set(error, CONVOY_BAD_STATE, "resume: another context has resumed what this one %s",
                            state == CONVOY_CONTEXT_IMPORTED ? "has imported; close it" : "had exported; retire it");
}

int32_t convoy_context_resume(convoy_context *context, struct convoy_error *error)
{
    uint32_t from = MAY(RUNNING) | MAY(QUIESCING) | MAY(QUIESCED) | MAY(IMPORTED);
    int32_t status = enter(context, "resume", from, error);
    uint32_t state = status == CONVOY_OK ? atomic_load(&context->move) : CONVOY_CONTEXT_RUNNING;
    if (status != CONVOY_OK || state == CONVOY_CONTEXT_RUNNING) {
        return status;
    }
    status = take_over(context, state, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = thaw_all(context, error);
    if (status == CONVOY_OK) {
        convoy_handover_end(&context->handover);
        EACH_ENGINE(context, engine)
        {
            convoy_transfer_engine_go(engine); /* not before: nothing can be taken back that was heard or said */
        }
        atomic_store(&context->move, CONVOY_CONTEXT_RUNNING);
    } else {
        convoy_handover_give_back(&context->handover);
        halt_again(context, state);
    }
    CONVOY_POINT(move_resumed);
    convoy_log_flush(&context->runtime->log);
    return status;
}

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
    EACH_GROUP(context, group)
    {
        size_t opened = convoy_bundle_open(writer, CONVOY_STATE_GROUP, CONVOY_BUNDLE_CRITICAL);
        int32_t status = convoy_group_save(group, writer, error);
        if (status != CONVOY_OK) {
            return status;
        }
        convoy_bundle_shut(writer, opened);
    }
    EACH_ENGINE(context, engine)
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
    int32_t status = enter(context, "export_state", MAY(QUIESCED), error);
    status = status == CONVOY_OK ? check_options(options, error) : status;
    status = status == CONVOY_OK ? convoy_handover_begin(&context->handover, error) : status;
    if (status != CONVOY_OK) {
        return status;
    }
    status = save(context, &writer, error);
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
    if (status == CONVOY_OK && (first_group(context) != NULL || first_engine(context) != NULL)) {
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
    int32_t status = enter(context, "import_state", MAY(RUNNING), error);
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

/* -- the end ------------------------------------------------------------------------------------------------------- */

static bool retire_all(struct convoy_context *context)
{
    bool is_done = true;
    EACH_GROUP(context, group)
    {
        is_done = convoy_group_retire(group) && is_done;
    }
    EACH_ENGINE(context, engine)
    {
        is_done = convoy_transfer_engine_retire(engine) && is_done;
    }
    return is_done;
}

int32_t convoy_context_retire(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error)
{
    int32_t status = enter(context, "retire", MAY(QUIESCED) | MAY(RETIRED), error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct timespec moment = {.tv_nsec = LOOK_AGAIN_NS};
    uint64_t timeout = timeout_ns != 0 ? timeout_ns : context->runtime->settings.close_timeout_ms * CONVOY_NS_PER_MS;
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), timeout);
    atomic_store(&context->move, CONVOY_CONTEXT_RETIRED);
    convoy_handover_end(&context->handover);
    while (!retire_all(context)) {
        if (convoy_now_ns() >= deadline) {
            return convoy_error_set(error, CONVOY_DRAIN_TIMEOUT, "a call is still inside, or a peer has not heard of the move; "
                                                               "retire the context again");
        }
        (void)nanosleep(&moment, NULL);
    }
    CONVOY_POINT(move_retired);
    convoy_log_flush(&context->runtime->log);
    return CONVOY_OK;
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
