/* SPDX-License-Identifier: Apache-2.0 */
/* A whole engine as items, and back. What needs another item comes behind it in the list of readers, wherever it lies. */
#include "core/error.h"
#include "core/memory.h"
#include "net/liveness.h"
#include "pool/move.h"
#include "xfer/device_jobs.h"
#include "xfer/move.h"
#include "xfer/move_parts.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#define TRANSFERS_MAX 65536u
#define PEERS_MAX 1024u
#define PREALLOC_MAX 256u

#define OPTION(tag, member) CONVOY_BUNDLE_FIELD(tag, struct convoy_xfer_options, member)
static const struct convoy_bundle_field options_field_list[] = {
    OPTION(1, host),          OPTION(2, port),           OPTION(3, pool_kind),       OPTION(4, pool_memory),
    OPTION(5, pool_bytes),    OPTION(6, block_bytes),    OPTION(7, lease_ns),        OPTION(8, timeout_ns),
    OPTION(9, transfer_max),  OPTION(10, peer_max),      OPTION(11, prealloc_count), OPTION(12, prealloc_bytes),
    OPTION(13, device),       OPTION(14, device_number), OPTION(15, bounce_bytes),   OPTION(16, is_private),
    OPTION(17, must_notify),
};

#define ENGINE(tag, member) CONVOY_BUNDLE_FIELD(tag, struct convoy_xfer, member)
static const struct convoy_bundle_field engine_field_list[] = {
    ENGINE(1, incarnation),
    ENGINE(2, generation),
    ENGINE(3, session),
    ENGINE(4, introduction.flags),
    ENGINE(5, introduction.incarnation),
    ENGINE(6, introduction.pool_bytes),
    ENGINE(7, introduction.pool_address),
    ENGINE(8, introduction.token_address),
    ENGINE(9, introduction.context),
    ENGINE(10, introduction.keys.flags),
    ENGINE(11, introduction.keys.boot),
    ENGINE(12, introduction.keys.network),
    ENGINE(13, introduction.keys.directory),
    ENGINE(14, introduction.token),
    ENGINE(15, introduction.socket),
    ENGINE(16, introduction.session),
    ENGINE(17, order_count),
    ENGINE(18, held_ns),
    ENGINE(19, wake_fd),
    ENGINE(20, notify_fd),
    ENGINE(21, is_notified),
    ENGINE(22, tcp_fd),
    ENGINE(23, local.abstract_fd),
    ENGINE(24, local.path_fd),
    ENGINE(25, local.directory_fd),
    ENGINE(26, local.boot_tag),
    ENGINE(27, local.file),
    ENGINE(28, past_count),
    ENGINE(29, admission.limits.under_way_max),
    ENGINE(30, admission.limits.under_way_bytes),
    ENGINE(31, admission.limits.peer_under_way_max),
    ENGINE(32, admission.limits.peer_under_way_bytes),
    ENGINE(33, admission.limits.waiting_max),
    ENGINE(34, admission.limits.age_ns),
    ENGINE(35, admission.longest_ns),
};

#define TABLE(tag, member) CONVOY_BUNDLE_FIELD(tag, struct convoy_device_table, member)
static const struct convoy_bundle_field table_field_list[] = {
    TABLE(1, user),         TABLE(2, query),        TABLE(3, copy),           TABLE(4, event_create),
    TABLE(5, event_destroy), TABLE(6, event_record), TABLE(7, event_query),    TABLE(8, stream_wait),
    TABLE(9, stream_query), TABLE(10, register_range), TABLE(11, unregister_range),
};
CONVOY_XFER_SHAPE(options);
CONVOY_XFER_SHAPE(engine);
CONVOY_XFER_SHAPE(table);

/* -- out ----------------------------------------------------------------------------------------------------------- */

static void save_pool(const struct convoy_xfer_saving *saving, uint16_t tag, const struct convoy_pool *pool)
{
    if (pool != NULL) {
        size_t opened = convoy_bundle_open(saving->writer, tag, CONVOY_BUNDLE_CRITICAL);
        convoy_pool_save(pool, saving->writer);
        convoy_bundle_shut(saving->writer, opened);
    }
}

static void save_all(const struct convoy_xfer_saving *saving)
{
    const struct convoy_xfer *engine = saving->engine;
    convoy_xfer_save_one(saving, CONVOY_XFER_ITEM_OPTIONS, &options_shape, &engine->options);
    convoy_bundle_put_fields(saving->writer, &engine_shape, engine);
    if (engine->device_table.name != NULL) {
        convoy_xfer_save_one(saving, CONVOY_XFER_ITEM_TABLE, &table_shape, &engine->device_table);
        convoy_bundle_put(saving->writer, CONVOY_XFER_ITEM_TABLE_NAME, CONVOY_BUNDLE_CRITICAL, engine->device_name,
                          engine->device_table.name_length);
    }
    save_pool(saving, CONVOY_XFER_ITEM_POOL, engine->pool);
    save_pool(saving, CONVOY_XFER_ITEM_NOTES, engine->notes);
    save_pool(saving, CONVOY_XFER_ITEM_DEVICE_POOL, engine->device != NULL ? engine->device->pool : NULL);
    convoy_xfer_save_views(saving);
    convoy_xfer_save_peers(saving);
    convoy_xfer_save_entries(saving);
    convoy_xfer_save_tables(saving);
    convoy_xfer_save_windows(saving);
    convoy_xfer_save_figures(saving);
}

int32_t convoy_xfer_save(struct convoy_xfer *engine, struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    struct convoy_xfer_saving saving = {.engine = engine, .writer = writer};
    uint32_t lost = convoy_xfer_device_lost(engine);
    if (lost != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED,
                                "engine %s: of %u copies nobody knows whether the device has stopped them", engine->session,
                                lost);
    }
    convoy_xfer_lock(engine);
    int32_t status = convoy_xfer_views_gather(engine, &saving.views, error);
    if (status == CONVOY_OK) {
        save_all(&saving);
    }
    convoy_xfer_unlock(engine);
    convoy_memory_free(saving.views.all);
    if (status == CONVOY_OK && engine->far != NULL) {
        size_t opened = convoy_bundle_open(writer, CONVOY_XFER_ITEM_FAR, CONVOY_BUNDLE_CRITICAL);
        status = convoy_far_save(engine, writer, error);
        convoy_bundle_shut(writer, opened);
    }
    return status;
}

/* -- in ------------------------------------------------------------------------------------------------------------ */

static int32_t restore_options(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                               struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct convoy_xfer_options *options = &engine->options;
    const struct convoy_xfer_reading reading = {&options_shape, options, NULL, NULL};
    int32_t status = engine->entries == NULL ? convoy_xfer_restore_one(item, &reading, error) : CONVOY_MALFORMED;
    if (status == CONVOY_OK && (options->transfer_max == 0 || options->transfer_max > TRANSFERS_MAX ||
                                options->peer_max == 0 || options->peer_max > PEERS_MAX ||
                                options->prealloc_count > PREALLOC_MAX || options->pool_kind > CONVOY_MEMORY_DEVICE ||
                                options->device > CONVOY_DEVICE_TABLE || options->host[sizeof options->host - 1] != '\0')) {
        status = CONVOY_MALFORMED;
    }
    if (status != CONVOY_OK) {
        options->transfer_max = options->peer_max = options->prealloc_count = 0;
        return convoy_error_set(error, status, "the options of an engine cannot be");
    }
    status = convoy_xfer_tables(engine, error);
    if (status == CONVOY_OK && options->prealloc_count != 0) {
        engine->preallocs = convoy_memory_array(options->prealloc_count, sizeof *engine->preallocs);
        if (engine->preallocs == NULL) {
            status = convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for preallocated slots");
        }
    }
    return status == CONVOY_OK ? convoy_xfer_door_room(engine, error) : status;
}

/* Its own eventfd to be kicked by; all other descriptors are those that others know, duplicated, but for the one whose number
 * the host has. */
static int32_t open_files(struct convoy_xfer *engine, struct convoy_error *error)
{
    int *const files[] = {&engine->wake_fd, &engine->tcp_fd, &engine->local.abstract_fd, &engine->local.path_fd,
                          &engine->local.directory_fd};
    int32_t status = CONVOY_OK;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (status != CONVOY_OK) {
            *files[i] = -1;
        } else {
            status = convoy_xfer_duplicate(files[i], "an engine", error);
        }
    }
    engine->kick_fd = status == CONVOY_OK ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (status == CONVOY_OK && engine->kick_fd < 0) {
        status = convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "eventfd");
    }
    return status == CONVOY_OK ? convoy_liveness_self(&engine->self_pid_fd, error) : status;
}

static int32_t restore_engine(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                              struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct convoy_introduction *own = &engine->introduction;
    if (engine->incarnation != 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "an engine's fields come twice");
    }
    engine->wake_fd = engine->tcp_fd = engine->notify_fd = 0; /* as fields that are zero are not written */
    engine->local = (struct convoy_local_socket){.session = own->socket};
    int32_t status = convoy_bundle_get_fields(item, &engine_shape, engine, error);
    bool can_be = engine->incarnation != 0 && engine->session[sizeof engine->session - 1] == '\0' &&
                  own->session[sizeof own->session - 1] == '\0' &&
                  engine->local.file[sizeof engine->local.file - 1] == '\0' &&
                  (engine->notify_fd >= 0) == engine->options.must_notify;
    if (status == CONVOY_OK && !can_be) {
        status = convoy_error_set(error, CONVOY_MALFORMED, "the fields of an engine cannot be");
    }
    if (status != CONVOY_OK) { /* nothing of it is a descriptor of ours */
        engine->wake_fd = engine->tcp_fd = engine->notify_fd = -1;
        engine->local = (struct convoy_local_socket){.abstract_fd = -1, .path_fd = -1, .directory_fd = -1};
        return status;
    }
    return open_files(engine, error);
}

static int32_t restore_table(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                             struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    const struct convoy_xfer_reading reading = {&table_shape, &engine->device_table, NULL, NULL};
    engine->device_table.struct_size = (uint32_t)sizeof engine->device_table;
    engine->device_table.name = engine->device_name;
    return convoy_xfer_restore_one(item, &reading, error);
}

static int32_t restore_table_name(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                  struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    if (item->bytes >= sizeof engine->device_name) {
        return convoy_error_set(error, CONVOY_MALFORMED, "the name of a device has %zu bytes", item->bytes);
    }
    memcpy(engine->device_name, item->data, item->bytes);
    engine->device_table.name_length = (uint32_t)item->bytes;
    return CONVOY_OK;
}

/* Without the device itself, which thaw opens. */
static int32_t make_device(struct convoy_xfer *engine, struct convoy_error *error)
{
    if (engine->options.device == CONVOY_DEVICE_NONE || engine->device != NULL) {
        return CONVOY_OK;
    }
    engine->device = convoy_memory_zalloc(sizeof *engine->device);
    if (engine->device == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a device");
    }
    engine->device->first = engine->device->last = CONVOY_XFER_NOBODY;
    return CONVOY_OK;
}

static int32_t restore_pool(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                            struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    const struct convoy_pool_options none = {.kind = CONVOY_POOL_SHARED};
    int32_t status = make_device(engine, error);
    struct convoy_pool **pool = item->tag == CONVOY_XFER_ITEM_POOL    ? &engine->pool
                                : item->tag == CONVOY_XFER_ITEM_NOTES ? &engine->notes
                                : engine->device != NULL              ? &engine->device->pool
                                                                      : NULL;
    if (status == CONVOY_OK && (pool == NULL || *pool != NULL)) {
        status = convoy_error_set(error, CONVOY_MALFORMED, "a pool comes twice, or without a device");
    }
    const struct convoy_pool_options calls = convoy_xfer_pool_calls(engine);
    return status == CONVOY_OK ? convoy_pool_restore(item->tag == CONVOY_XFER_ITEM_POOL ? &calls : &none, item, pool, error)
                               : status;
}

static int32_t restore_far(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                           struct convoy_error *error)
{
    return restoring->engine->far == NULL ? convoy_far_restore(restoring->engine, item, error)
                                          : convoy_error_set(error, CONVOY_MALFORMED, "peers on other hosts come twice");
}

/* All that are known, in the order in which they are read. */
static const struct {
    uint16_t tag;
    bool is_needed;
    convoy_xfer_restore_fn restore;
} readers[] = {
    {CONVOY_XFER_ITEM_OPTIONS, true, restore_options},
    {CONVOY_XFER_ITEM_ENGINE, true, restore_engine},
    {CONVOY_XFER_ITEM_TABLE, false, restore_table},
    {CONVOY_XFER_ITEM_TABLE_NAME, false, restore_table_name},
    {CONVOY_XFER_ITEM_POOL, true, restore_pool},
    {CONVOY_XFER_ITEM_NOTES, true, restore_pool},
    {CONVOY_XFER_ITEM_DEVICE_POOL, false, restore_pool},
    {CONVOY_XFER_ITEM_VIEW, false, convoy_xfer_restore_view},
    {CONVOY_XFER_ITEM_PEER, false, convoy_xfer_restore_peer},
    {CONVOY_XFER_ITEM_ENTRY, false, convoy_xfer_restore_entry},
    {CONVOY_XFER_ITEM_JOBS, false, convoy_xfer_restore_jobs},
    {CONVOY_XFER_ITEM_ENDED, false, convoy_xfer_restore_ended},
    {CONVOY_XFER_ITEM_PREALLOC, false, convoy_xfer_restore_prealloc},
    {CONVOY_XFER_ITEM_WAITING, false, convoy_xfer_restore_waiting},
    {CONVOY_XFER_ITEM_DONE, false, convoy_xfer_restore_done},
    {CONVOY_XFER_ITEM_LOAN, false, convoy_xfer_restore_loan},
    {CONVOY_XFER_ITEM_RANGE, false, convoy_xfer_restore_range},
    {CONVOY_XFER_ITEM_WINDOW, false, convoy_xfer_restore_window},
    {CONVOY_XFER_ITEM_COUNTER, false, convoy_xfer_restore_counter},
    {CONVOY_XFER_ITEM_PHASE, false, convoy_xfer_restore_phase},
    {CONVOY_XFER_ITEM_PAST, false, convoy_xfer_restore_past},
    {CONVOY_XFER_ITEM_FAR, false, restore_far},
};
#define READERS (sizeof readers / sizeof readers[0])

static int32_t refuse_unknown(const struct convoy_bundle_item *all, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(all);
    struct convoy_bundle_item item;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &item)) {
        size_t at = 0;
        while (at < READERS && readers[at].tag != item.tag) {
            at++;
        }
        status = at < READERS ? CONVOY_OK : convoy_bundle_unknown(&item, "an engine", error);
    }
    return status == CONVOY_OK ? convoy_bundle_done(&reader, "an engine", error) : status;
}

/* Every item of one tag. */
static int32_t read_tag(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *all, size_t which,
                        struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(all);
    struct convoy_bundle_item item;
    int32_t status = CONVOY_OK;
    bool is_there = false;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &item)) {
        if (item.tag == readers[which].tag) {
            is_there = true;
            status = readers[which].restore(restoring, &item, error);
        }
    }
    return status != CONVOY_OK || is_there || !readers[which].is_needed
               ? status
               : convoy_error_set(error, CONVOY_TOO_OLD, "an engine without item %u", readers[which].tag);
}

/* Whatever was made of it: views are freed one by one, since who refers to them may be missing. */
static void undo(struct convoy_xfer_restoring *restoring)
{
    struct convoy_xfer *engine = restoring->engine;
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        engine->peers[i].view = NULL;
    }
    for (uint32_t i = 0; i < engine->entry_top; i++) {
        engine->entries[i].view = NULL;
    }
    for (uint32_t i = 0; i < restoring->views.count; i++) {
        struct convoy_view *view = restoring->views.all[i];
        convoy_view_leave(view);
        view->references = 1;
        view->older = NULL;
        convoy_view_put(view);
    }
    convoy_xfer_discard(engine);
}

static int32_t check_whole(const struct convoy_xfer_restoring *restoring, struct convoy_error *error)
{
    for (uint32_t i = 0; i < restoring->views.count; i++) {
        if (restoring->views.all[i]->references == 0) {
            return convoy_error_set(error, CONVOY_MALFORMED, "view %u is nobody's", i);
        }
    }
    return restoring->prealloc_count == restoring->engine->options.prealloc_count
               ? CONVOY_OK
               : convoy_error_set(error, CONVOY_TOO_OLD, "%u preallocated slots, there should be %u", restoring->prealloc_count,
                                  restoring->engine->options.prealloc_count);
}

int32_t convoy_xfer_restore(struct convoy_runtime *runtime, const struct convoy_bundle_item *item,
                            struct convoy_xfer **engine_out, struct convoy_error *error)
{
    struct convoy_xfer_restoring restoring = {.engine = convoy_xfer_new(runtime)};
    if (restoring.engine == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for an engine");
    }
    restoring.engine->is_halted = restoring.engine->is_parked = true;
    restoring.engine->is_dozing = true; /* some ring may say so */
    int32_t status = refuse_unknown(item, error);
    for (size_t i = 0; status == CONVOY_OK && i < READERS; i++) {
        status = read_tag(&restoring, item, i, error);
        if (status == CONVOY_OK && readers[i].tag == CONVOY_XFER_ITEM_ENTRY) {
            status = convoy_xfer_restore_links(&restoring, error);
        }
    }
    status = status == CONVOY_OK ? check_whole(&restoring, error) : status;
    if (status == CONVOY_OK) {
        *engine_out = restoring.engine;
    } else {
        undo(&restoring);
    }
    convoy_memory_free(restoring.views.all);
    return status;
}
