/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tiny plugin that can be swapped: groups and engines that count, and a family move that keeps to its table of states.
 * The same source built once per kind, by -DMOVER_<kind>.
 *   a, b, c   three builds          still   offers no move          lean   refuses transfer
 * Statuses that a test has asked for are in tiny_knobs.
 */
#define CONVOY_BUILDING 1
#include "convoy/convoy.h"
#include "tests/abi/tiny_mover.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(MOVER_b)
#define RELEASE "1.0.1"
#define STATE_MAX "3"
#elif defined(MOVER_c)
#define RELEASE "1.0.2"
#define STATE_MAX "2"
#else
#define RELEASE "1.0.0"
#define STATE_MAX "2"
#endif

#define FAMILY(name) "{\"name\":\"" name "\",\"min\":\"1.0\",\"max\":\"1.0\"}"
#define MANIFEST                                                                                                       \
    "{\"schema\":1,\"name\":\"mover\",\"release\":\"" RELEASE "\",\"families\":[" FAMILY("core") "," FAMILY("poll")     \
    "," FAMILY("transfer") "," FAMILY("move") "],\"wire\":{\"min\":1,\"max\":1},\"ucx\":\"none\","                     \
    "\"state\":{\"min\":1,\"max\":" STATE_MAX "},"                                                                     \
    "\"unload\":\"nodelete\"}"
#define ROUND_UP_4(n) (((n) + 3u) & ~3u)
#define WAIT_LEAST_NS 20000000ull

__attribute__((used, section(".note.convoy"), aligned(4))) static const struct {
    uint32_t owner_bytes;
    uint32_t text_bytes;
    uint32_t type;
    char owner[8];
    char text[ROUND_UP_4(sizeof MANIFEST)];
} manifest_note = {sizeof CONVOY_NOTE_OWNER, sizeof manifest_note.text, CONVOY_NOTE_MANIFEST, CONVOY_NOTE_OWNER,
                   MANIFEST};

__attribute__((used, section(".note.convoy"), aligned(4))) static const struct {
    uint32_t owner_bytes;
    uint32_t digest_bytes;
    uint32_t type;
    char owner[8];
    uint32_t digest[2];
} digest_note = {sizeof CONVOY_NOTE_OWNER, 8, CONVOY_NOTE_DIGEST, CONVOY_NOTE_OWNER, {0, 0}};

__attribute__((visibility("default"))) struct tiny_knobs tiny_knobs;
#define KNOBS (&tiny_knobs)

struct tiny_context {
    struct tiny_knobs *build; /* which build's this is: another's must never be called with it */
    _Atomic uint32_t state;   /* CONVOY_CONTEXT_* */
    _Atomic uint32_t calls;   /* that are inside */
    convoy_log_fn log; /* called in quiesce */
    void *log_user;
    _Atomic(struct tiny_object *) objects;
};

struct tiny_object {
    struct tiny_context *context;
    uint32_t kind; /* CONVOY_MOVED_* */
    _Atomic uint32_t is_closed;
    _Atomic uint64_t count; /* of reduces, or of stages */
    struct tiny_object *next;
};

/* How an object is written down. */
struct tiny_item {
    uint64_t from;
    uint64_t count;
    uint64_t kind;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static int32_t say(struct convoy_error *error, int32_t status)
{
    static const char words[] = "the tiny one was asked to";
    if (error != NULL && status < 0) {
        error->status = status;
        memcpy(error->text, words, sizeof words);
    }
    return status;
}

static int32_t asked(struct tiny_fault *fault, struct convoy_error *error)
{
    int32_t status = atomic_load(&fault->status);
    if (status == CONVOY_OK || atomic_fetch_sub(&fault->skip, 1) > 0) {
        return CONVOY_OK;
    }
    return say(error, status);
}

/* -- who may do what ----------------------------------------------------------------------------------------------- */

#define IN(state) (1u << CONVOY_CONTEXT_##state)
#define MAY_START IN(RUNNING)
#define MAY_WAIT (IN(RUNNING) | IN(QUIESCING))
#define MAY_LOOK (IN(RUNNING) | IN(QUIESCING) | IN(QUIESCED) | IN(IMPORTED))

static int32_t enter(struct tiny_context *context, uint32_t allowed)
{
    if (context->build != KNOBS) {
        return CONVOY_INVARIANT;
    }
    (void)atomic_fetch_add(&context->calls, 1);
    if ((allowed >> atomic_load(&context->state) & 1u) == 0) {
        (void)atomic_fetch_sub(&context->calls, 1);
        return CONVOY_MOVED;
    }
    return CONVOY_OK;
}

static int32_t leave(struct tiny_context *context, int32_t status)
{
    (void)atomic_fetch_sub(&context->calls, 1);
    return status;
}

static bool is_calm(struct tiny_context *context, uint64_t timeout_ns)
{
    uint64_t end_ns = now_ns() + timeout_ns;
    while (atomic_load(&context->calls) != 0) {
        if (now_ns() >= end_ns) {
            return false;
        }
        (void)sched_yield();
    }
    return true;
}

static void hold(_Atomic uint32_t *is_held)
{
    (void)atomic_fetch_add(&KNOBS->waiting, 1);
    while (atomic_load(is_held) != 0) {
        (void)sched_yield();
    }
    (void)atomic_fetch_sub(&KNOBS->waiting, 1);
}

/* -- contexts and objects ------------------------------------------------------------------------------------------ */

static int32_t context_open(const struct convoy_context_config *config, convoy_context **context_out,
                            struct convoy_error *error)
{
    int32_t status = asked(&KNOBS->context_open, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct tiny_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return CONVOY_NO_MEMORY;
    }
    if (config != NULL) {
        context->log = config->log;
        context->log_user = config->log_user;
    }
    if (config != NULL && config->secret != NULL) {
        memcpy(KNOBS->seen_secret, config->secret, config->secret_bytes);
    }
    if (config != NULL && config->settings != NULL) {
        memcpy(KNOBS->seen_settings, config->settings, config->settings_length);
        KNOBS->seen_log_level = config->log_level;
    }
    context->build = KNOBS;
    atomic_store(&context->state, CONVOY_CONTEXT_RUNNING);
    (void)atomic_fetch_add(&KNOBS->contexts_opened, 1);
    *context_out = (convoy_context *)(void *)context;
    return CONVOY_OK;
}

static int32_t context_close(convoy_context *handle, uint64_t timeout_ns, struct convoy_error *error)
{
    struct tiny_context *context = (struct tiny_context *)(void *)handle;
    int32_t status = context->build == KNOBS ? asked(&KNOBS->context_close, error) : CONVOY_INVARIANT;
    if (status != CONVOY_OK || !is_calm(context, timeout_ns)) {
        return status != CONVOY_OK ? status : CONVOY_DRAIN_TIMEOUT;
    }
    for (struct tiny_object *object = atomic_load(&context->objects); object != NULL;) {
        struct tiny_object *next = object->next;
        free(object);
        object = next;
    }
    free(context);
    (void)atomic_fetch_add(&KNOBS->contexts_closed, 1);
    return CONVOY_OK;
}

static struct tiny_object *add_object(struct tiny_context *context, uint32_t kind)
{
    struct tiny_object *object = calloc(1, sizeof *object);
    if (object != NULL) {
        object->context = context;
        object->kind = kind;
        struct tiny_object *head = atomic_load(&context->objects);
        do {
            object->next = head;
        } while (!atomic_compare_exchange_weak(&context->objects, &head, object));
    }
    return object;
}

static int32_t open_object(convoy_context *handle, uint32_t kind, void **object_out)
{
    struct tiny_context *context = (struct tiny_context *)(void *)handle;
    int32_t status = enter(context, MAY_START);
    if (status != CONVOY_OK) {
        return status;
    }
    hold(&KNOBS->is_open_held);
    *object_out = add_object(context, kind);
    return leave(context, *object_out != NULL ? CONVOY_OK : CONVOY_NO_MEMORY);
}

/* One call on an object: in, an answer, out. */
static int32_t count_up(struct tiny_object *object, struct tiny_fault *fault, uint64_t *count_out)
{
    int32_t status = atomic_load(&object->is_closed) != 0 ? CONVOY_CLOSED : enter(object->context, MAY_START);
    if (status != CONVOY_OK) {
        return status;
    }
    status = fault != NULL ? asked(fault, NULL) : CONVOY_OK;
    if (status == CONVOY_OK) {
        *count_out = atomic_fetch_add(&object->count, 1) + 1;
    }
    return leave(object->context, status);
}

static int32_t wait_object(struct tiny_object *object, uint64_t timeout_ns)
{
    int32_t status = enter(object->context, MAY_WAIT);
    if (status != CONVOY_OK) {
        return status;
    }
    uint64_t begun_ns = now_ns();
    uint64_t wait_ns = atomic_load(&KNOBS->wait_ns);
    atomic_store(&KNOBS->seen_timeout_ns, timeout_ns);
    (void)atomic_fetch_add(&KNOBS->waiting, 1);
    while (wait_ns != 0 ? now_ns() < begun_ns + wait_ns
                        : now_ns() < begun_ns + WAIT_LEAST_NS ||
                              atomic_load(&object->context->state) == CONVOY_CONTEXT_RUNNING) {
        (void)sched_yield();
    }
    (void)atomic_fetch_sub(&KNOBS->waiting, 1);
    return leave(object->context, wait_ns != 0 ? CONVOY_OK : CONVOY_MOVED);
}

static int32_t close_object(struct tiny_object *object)
{
    int32_t status = enter(object->context, MAY_WAIT);
    if (status == CONVOY_OK) {
        atomic_store(&object->is_closed, 1);
        status = leave(object->context, CONVOY_OK);
    }
    return status;
}

#define OBJECT(handle) ((struct tiny_object *)(void *)(handle))

/* -- slots of core, poll and transfer ------------------------------------------------------------------------------ */

static int32_t context_describe(convoy_context *handle, uint32_t topic, struct convoy_text_buffer *text_out,
                                struct convoy_error *error)
{
    struct tiny_context *context = (struct tiny_context *)(void *)handle;
    int32_t status = enter(context, MAY_LOOK);
    (void)topic;
    (void)text_out;
    (void)error;
    return status == CONVOY_OK ? leave(context, CONVOY_OK) : status;
}

static int32_t group_open(convoy_context *context, const struct convoy_group_options *options, convoy_group **group_out,
                          struct convoy_error *error)
{
    void *object = NULL;
    (void)options;
    (void)error;
    int32_t status = open_object(context, CONVOY_MOVED_GROUP, &object);
    *group_out = object;
    return status;
}

static int32_t group_close(convoy_group *group, uint64_t timeout_ns, struct convoy_error *error)
{
    (void)timeout_ns;
    (void)error;
    return close_object(OBJECT(group));
}

static int32_t group_info(convoy_group *group, struct convoy_group_info *info_out, struct convoy_error *error)
{
    struct tiny_object *object = OBJECT(group);
    (void)error;
    int32_t status = enter(object->context, MAY_LOOK);
    if (status == CONVOY_OK) {
        hold(&KNOBS->is_look_held);
        info_out->round = atomic_load(&object->count);
        status = leave(object->context, CONVOY_OK);
    }
    return status;
}

static int32_t reduce(convoy_group *group, const struct convoy_poll_call *call, uint64_t timeout_ns,
                      struct convoy_poll_result *result_out, struct convoy_error *error)
{
    uint64_t count = 0;
    (void)call;
    (void)timeout_ns;
    (void)result_out;
    (void)error;
    return count_up(OBJECT(group), &KNOBS->reduce, &count);
}

static int32_t reduce_wait(convoy_group *group, convoy_operation operation, uint64_t timeout_ns,
                           struct convoy_poll_result *result_out, struct convoy_error *error)
{
    (void)operation;
    (void)result_out;
    (void)error;
    return wait_object(OBJECT(group), timeout_ns);
}

static int32_t reduce2_start(convoy_group *first, convoy_group *second, const struct convoy_poll_call *call,
                             convoy_operation *operation_out, struct convoy_error *error)
{
    (void)call;
    (void)error;
    return OBJECT(second)->context->build == KNOBS ? count_up(OBJECT(first), NULL, operation_out) : CONVOY_INVARIANT;
}

static int32_t engine_open(convoy_context *context, const struct convoy_transfer_options *options,
                           convoy_transfer_engine **engine_out, struct convoy_error *error)
{
    void *object = NULL;
    (void)options;
    (void)error;
    int32_t status = open_object(context, CONVOY_MOVED_ENGINE, &object);
    *engine_out = object;
    return status;
}

static int32_t engine_close(convoy_transfer_engine *engine, uint64_t timeout_ns, struct convoy_error *error)
{
    (void)timeout_ns;
    (void)error;
    return close_object(OBJECT(engine));
}

static int32_t stage_start(convoy_transfer_engine *engine, const struct convoy_stage *stage, convoy_transfer *staged_out,
                           struct convoy_error *error)
{
    (void)stage;
    (void)error;
    return count_up(OBJECT(engine), NULL, staged_out);
}

/* Starts one, says which, and waits for it. */
static int32_t accept_one(convoy_transfer_engine *engine, const struct convoy_load *load, convoy_transfer *transfer_out,
                          struct convoy_error *error)
{
    (void)load;
    (void)error;
    int32_t status = count_up(OBJECT(engine), NULL, transfer_out);
    return status == CONVOY_OK ? wait_object(OBJECT(engine), 0) : status;
}

static int32_t send_one(convoy_transfer_engine *engine, const struct convoy_stage *stage, const struct convoy_send *send,
                        convoy_transfer *transfer_out, struct convoy_error *error)
{
    (void)stage;
    (void)send;
    return accept_one(engine, NULL, transfer_out, error);
}

static int32_t transfer_wait(convoy_transfer_engine *engine, convoy_transfer transfer, uint64_t timeout_ns,
                             struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    (void)transfer;
    (void)result_out;
    (void)error;
    return wait_object(OBJECT(engine), timeout_ns);
}

/* -- slots of move ------------------------------------------------------------------------------------------------- */

static bool is_in(const struct tiny_context *context, uint32_t allowed)
{
    return context->build == KNOBS && (allowed >> atomic_load(&context->state) & 1u) != 0;
}

static int32_t quiesce(convoy_context *handle, uint64_t timeout_ns, struct convoy_error *error)
{
    struct tiny_context *context = (struct tiny_context *)(void *)handle;
    if (!is_in(context, IN(RUNNING) | IN(QUIESCING) | IN(QUIESCED))) {
        return CONVOY_BAD_STATE;
    }
    atomic_store(&context->state, CONVOY_CONTEXT_QUIESCING);
    if (context->log != NULL) {
        context->log(context->log_user, CONVOY_LOG_INFO, "quiescing", 9);
    }
    int32_t status = asked(&KNOBS->quiesce, error);
    if (status == CONVOY_OK && !is_calm(context, timeout_ns)) {
        status = say(error, CONVOY_DRAIN_TIMEOUT);
    }
    if (status == CONVOY_OK) {
        atomic_store(&context->state, CONVOY_CONTEXT_QUIESCED);
    }
    return status;
}

static int32_t resume(convoy_context *handle, struct convoy_error *error)
{
    struct tiny_context *context = (struct tiny_context *)(void *)handle;
    if (!is_in(context, MAY_LOOK)) {
        return CONVOY_BAD_STATE;
    }
    int32_t status = asked(&KNOBS->resume, error);
    if (status == CONVOY_OK) {
        atomic_store(&context->state, CONVOY_CONTEXT_RUNNING);
        (void)atomic_fetch_add(&KNOBS->resumed, 1);
    }
    return status;
}

static int32_t export_state(convoy_context *handle, const struct convoy_export_options *options,
                            struct convoy_text_buffer *state_out, struct convoy_error *error)
{
    atomic_store(&KNOBS->format_max, options->format_max);
    const struct tiny_context *context = (const struct tiny_context *)(const void *)handle;
    struct tiny_item *items = (struct tiny_item *)(void *)state_out->data;
    size_t count = 0;
    int32_t status = is_in(context, IN(QUIESCED)) ? asked(&KNOBS->export_state, error) : CONVOY_BAD_STATE;
    if (status != CONVOY_OK) {
        return status;
    }
    for (struct tiny_object *object = atomic_load(&context->objects); object != NULL; object = object->next) {
        if (atomic_load(&object->is_closed) != 0) {
            continue;
        }
        if ((count + 1) * sizeof *items <= state_out->capacity) {
            items[count] = (struct tiny_item){(uint64_t)(uintptr_t)object, atomic_load(&object->count), object->kind};
        }
        count++;
    }
    state_out->length = count * sizeof *items + atomic_load(&KNOBS->padding_bytes);
    return state_out->length <= state_out->capacity ? CONVOY_OK : CONVOY_BUFFER_TOO_SMALL;
}

static void note(struct convoy_moved *moved, uint64_t from, const struct tiny_object *object)
{
    if (moved->object_count < moved->object_capacity) {
        moved->objects[moved->object_count] = (struct convoy_moved_object){
            .old_handle = from, .new_handle = (uint64_t)(uintptr_t)object, .kind = object->kind};
    }
    moved->object_count++;
}

static int32_t import_state(convoy_context *handle, const struct convoy_exported_state *state, struct convoy_moved *moved_out,
                            struct convoy_error *error)
{
    struct tiny_context *context = (struct tiny_context *)(void *)handle;
    const struct tiny_item *items = state->data;
    uint32_t stray = atomic_load(&KNOBS->stray);
    int32_t status = is_in(context, IN(RUNNING)) ? asked(&KNOBS->import_state, error) : CONVOY_BAD_STATE;
    if (status != CONVOY_OK) {
        return status;
    }
    moved_out->object_count = 0;
    for (size_t i = 0; (i + 1) * sizeof *items <= state->bytes && items[i].from != 0; i++) {
        struct tiny_object *object = add_object(context, (uint32_t)items[i].kind);
        if (object == NULL) {
            return CONVOY_NO_MEMORY;
        }
        atomic_store(&object->count, items[i].count);
        note(moved_out, stray == TINY_STRAY_TWICE ? items[0].from : items[i].from + (stray == TINY_STRAY_UNKNOWN), object);
    }
    atomic_store(&context->state, CONVOY_CONTEXT_IMPORTED);
    return moved_out->object_count <= moved_out->object_capacity ? CONVOY_OK : CONVOY_BUFFER_TOO_SMALL;
}

static int32_t retire(convoy_context *handle, uint64_t timeout_ns, struct convoy_error *error)
{
    struct tiny_context *context = (struct tiny_context *)(void *)handle;
    int32_t status =
        is_in(context, IN(QUIESCED) | IN(RETIRED)) ? asked(&KNOBS->retire, error) : CONVOY_BAD_STATE;
    if (status != CONVOY_OK || !is_calm(context, timeout_ns)) {
        return status != CONVOY_OK ? status : CONVOY_DRAIN_TIMEOUT;
    }
    atomic_store(&context->state, CONVOY_CONTEXT_RETIRED);
    (void)atomic_fetch_add(&KNOBS->contexts_retired, 1);
    return CONVOY_OK;
}

/* -- the entry ----------------------------------------------------------------------------------------------------- */

#define HEADER(family) {sizeof(struct convoy_##family##_table), 1, 0}

static const struct convoy_core_table core = {.header = HEADER(core),
                                              .context_open = context_open,
                                              .context_close = context_close,
                                              .context_describe = context_describe,
                                              .group_open = group_open,
                                              .group_open_start = group_open,
                                              .group_close = group_close,
                                              .group_info = group_info};
static const struct convoy_poll_table poll = {
    .header = HEADER(poll), .reduce = reduce, .reduce_wait = reduce_wait, .reduce2_start = reduce2_start};
static const struct convoy_transfer_table transfer = {.header = HEADER(transfer),
                                                      .engine_open = engine_open,
                                                      .engine_close = engine_close,
                                                      .stage_start = stage_start,
                                                      .transfer_wait = transfer_wait,
                                                      .send = send_one,
                                                      .accept = accept_one};
static const struct convoy_move_table move = {.header = HEADER(move),
                                              .quiesce = quiesce,
                                              .resume = resume,
                                              .export_state = export_state,
                                              .import_state = import_state,
                                              .retire = retire};

static const struct {
    const char *name;
    const struct convoy_table_header *table;
} families[] = {
    {"core", &core.header},
    {"poll", &poll.header},
#if !defined(MOVER_lean)
    {"transfer", &transfer.header},
#endif
#if !defined(MOVER_still)
    {"move", &move.header},
#endif
};

/* Those that a kind leaves out are still there to be looked at. */
__attribute__((used)) static const struct convoy_table_header *const all_tables[] = {&transfer.header, &move.header};

int32_t convoy_query(const struct convoy_host_info *host, struct convoy_plugin_info *plugin_out,
                     struct convoy_error *error)
{
    (void)error;
    for (size_t i = 0; i < host->family_count; i++) {
        struct convoy_family_answer *answer = &plugin_out->answers[i];
        *answer = (struct convoy_family_answer){.status = CONVOY_UNSUPPORTED, .reason = "the tiny one has it not"};
        for (size_t k = 0; k < sizeof families / sizeof families[0]; k++) {
            if (host->families[i].name_length == strlen(families[k].name) &&
                memcmp(host->families[i].name, families[k].name, host->families[i].name_length) == 0) {
                *answer = (struct convoy_family_answer){.table = families[k].table, .major = 1};
            }
        }
    }
    plugin_out->answer_count = host->family_count;
    plugin_out->release = RELEASE;
    plugin_out->release_length = sizeof RELEASE - 1;
    return CONVOY_OK;
}
