/* SPDX-License-Identifier: Apache-2.0 */
/* Peers, and what is mapped of their memory, as items, and back. Descriptors are duplicated, mappings known by address. */
#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"
#include "xfer/far.h"
#include "xfer/move_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define ITEM_VIEWS 2u   /* numbers 4 each, newest first */
#define ITEM_SHARE 3u   /* state, generation, base, bytes: 8 each */
#define ITEM_ANSWER 4u  /* of the window: sequence 8, status 8 */
#define ITEM_BACKLOG 5u /* a ring entry */
#define LANE_NEAR 1u
#define LANE_FAR 2u

struct view_fields {
    struct convoy_view view;
    struct convoy_view_notes notes;
};

struct peer_fields {
    uint32_t index;
    uint32_t lane;
    uint32_t side;
    struct convoy_xfer_peer peer;
};

static const struct convoy_bundle_field view_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct view_fields, view.generation), CONVOY_BUNDLE_FIELD(2, struct view_fields, view.base),
    CONVOY_BUNDLE_FIELD(3, struct view_fields, view.pool),       CONVOY_BUNDLE_FIELD(4, struct view_fields, view.pool_bytes),
    CONVOY_BUNDLE_FIELD(5, struct view_fields, view.address),    CONVOY_BUNDLE_FIELD(6, struct view_fields, view.pid),
    CONVOY_BUNDLE_FIELD(7, struct view_fields, view.pid_fd),     CONVOY_BUNDLE_FIELD(8, struct view_fields, view.has_ended),
    CONVOY_BUNDLE_FIELD(9, struct view_fields, notes.memory),    CONVOY_BUNDLE_FIELD(10, struct view_fields, notes.bytes),
};

#define PEER(tag, member) CONVOY_BUNDLE_FIELD(tag, struct peer_fields, peer.member)
static const struct convoy_bundle_field peer_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct peer_fields, index),
    CONVOY_BUNDLE_FIELD(2, struct peer_fields, lane),
    CONVOY_BUNDLE_FIELD(3, struct peer_fields, side),
    PEER(4, generation),
    PEER(5, state),
    PEER(6, locality),
    PEER(7, is_held),
    PEER(8, is_dead),
    PEER(9, is_drained),
    PEER(10, is_shy),
    PEER(11, is_parting),
    PEER(12, cut_ns),
    PEER(13, tcp_fd),
    PEER(14, wake_fd),
    PEER(15, pid_fd),
    PEER(16, share_fd),
    PEER(17, incarnation),
    PEER(18, session),
    PEER(19, share_tries),
    PEER(20, share_retry_ns),
    PEER(21, nonce),
    PEER(22, socket),
    PEER(23, target.index),
    PEER(24, target.by_network),
    PEER(25, target.by_directory),
    PEER(26, ring.put),
    PEER(27, ring.taken),
    PEER(28, ring.is_malformed),
    PEER(29, ring_memory),
    PEER(30, sequence),
    PEER(31, window.highest),
    PEER(32, sent_bytes),
    PEER(33, received_bytes),
    PEER(34, late),
};
CONVOY_XFER_SHAPE(view);
CONVOY_XFER_SHAPE(peer);

int32_t convoy_xfer_duplicate(int *file, const char *of, struct convoy_error *error)
{
    int given = *file;
    *file = given >= 0 ? fcntl(given, F_DUPFD_CLOEXEC, 0) : -1;
    return given < 0 || *file >= 0
               ? CONVOY_OK
               : convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "%s: descriptor %d cannot be duplicated", of, given);
}

/* -- views: out ---------------------------------------------------------------------------------------------------- */

static bool gather(struct convoy_xfer_views *views, struct convoy_view *view)
{
    if (view == NULL || convoy_xfer_view_number(views, view) != CONVOY_XFER_NO_VIEW) {
        return true;
    }
    if (views->count == views->room) {
        uint32_t room = views->room != 0 ? 2 * views->room : 16;
        struct convoy_view **grown = convoy_memory_array(room, sizeof(struct convoy_view *));
        if (grown == NULL) {
            return false;
        }
        if (views->count != 0) {
            memcpy(grown, views->all, views->count * sizeof(struct convoy_view *));
        }
        convoy_memory_free(views->all);
        views->all = grown;
        views->room = room;
    }
    views->all[views->count++] = view;
    return true;
}

int32_t convoy_xfer_views_gather(const struct convoy_xfer *engine, struct convoy_xfer_views *views_out,
                                 struct convoy_error *error)
{
    bool is_there = true;
    *views_out = (struct convoy_xfer_views){0};
    for (uint32_t i = 0; engine->peers != NULL && i < engine->peer_top; i++) {
        for (struct convoy_view *view = engine->peers[i].view; view != NULL; view = view->older) {
            is_there = gather(views_out, view) && is_there;
        }
    }
    for (uint32_t i = 0; engine->entries != NULL && i < engine->entry_count; i++) {
        bool is_used = engine->entries[i].kind != CONVOY_XFER_NONE;
        is_there = gather(views_out, is_used ? engine->entries[i].view : NULL) && is_there;
    }
    return is_there ? CONVOY_OK : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the list of what is mapped");
}

uint32_t convoy_xfer_view_number(const struct convoy_xfer_views *views, const struct convoy_view *view)
{
    uint32_t at = 0;
    while (at < views->count && views->all[at] != view) {
        at++;
    }
    return at < views->count ? at : CONVOY_XFER_NO_VIEW;
}

void convoy_xfer_save_views(const struct convoy_xfer_saving *saving)
{
    for (uint32_t i = 0; i < saving->views.count; i++) {
        struct view_fields fields = {.view = *saving->views.all[i]};
        if (fields.view.notes_kept != NULL) {
            fields.notes = *fields.view.notes_kept;
        }
        convoy_xfer_save_one(saving, CONVOY_XFER_ITEM_VIEW, &view_shape, &fields);
    }
}

/* -- views: in ----------------------------------------------------------------------------------------------------- */

bool convoy_xfer_view_take(const struct convoy_xfer_views *views, uint32_t number, struct convoy_view **view_out)
{
    if (number >= views->count) {
        return false;
    }
    *view_out = views->all[number];
    views->all[number]->references++;
    return true;
}

/* Views of one engine share its notes. */
static bool share_notes(const struct convoy_xfer_views *views, struct convoy_view *view, const struct convoy_view_notes *given)
{
    for (uint32_t i = 0; i < views->count && view->notes_kept == NULL; i++) {
        struct convoy_view_notes *known = views->all[i]->notes_kept;
        if (known != NULL && known->memory == given->memory) {
            view->notes_kept = known;
        }
    }
    if (view->notes_kept == NULL && given->memory != NULL) {
        view->notes_kept = convoy_memory_zalloc(sizeof *view->notes_kept);
        if (view->notes_kept == NULL) {
            return false;
        }
        view->notes_kept->memory = given->memory;
        view->notes_kept->bytes = given->bytes;
    }
    if (view->notes_kept != NULL) {
        view->notes_kept->references++;
        view->notes = view->notes_kept->memory;
        view->notes_bytes = view->notes_kept->bytes;
    }
    return true;
}

int32_t convoy_xfer_restore_view(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error)
{
    struct view_fields fields = {.view = {.pid = 0}};
    const struct convoy_xfer_reading reading = {&view_shape, &fields, NULL, NULL};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    if (status == CONVOY_OK) {
        status = convoy_xfer_duplicate(&fields.view.pid_fd, "the process of a peer", error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_view *view = convoy_memory_zalloc(sizeof *view);
    if (view != NULL) {
        *view = fields.view;
    } else if (fields.view.pid_fd >= 0) {
        (void)close(fields.view.pid_fd);
    }
    if (view == NULL || !share_notes(&restoring->views, view, &fields.notes) || !gather(&restoring->views, view)) {
        if (view != NULL) {
            convoy_view_leave(view);
            view->references = 1;
            convoy_view_put(view);
        }
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a view");
    }
    return CONVOY_OK;
}

/* -- peers: out ---------------------------------------------------------------------------------------------------- */

static void save_inner(const struct convoy_xfer_saving *saving, const struct convoy_xfer_peer *peer)
{
    struct convoy_bundle_writer *writer = saving->writer;
    for (const struct convoy_view *view = peer->view; view != NULL; view = view->older) {
        convoy_bundle_put_u64(writer, ITEM_VIEWS, convoy_xfer_view_number(&saving->views, view));
    }
    for (uint32_t i = 0; i < CONVOY_SHARES; i++) {
        const struct convoy_share *row = &peer->shares.rows[i];
        const uint64_t words[4] = {(uint64_t)row->state, row->generation, row->base, row->bytes};
        if (row->state != CONVOY_SHARE_NONE) {
            convoy_bundle_put(writer, ITEM_SHARE, CONVOY_BUNDLE_CRITICAL, words, sizeof words);
        }
    }
    for (uint32_t i = 0; i < CONVOY_WINDOW_OFFERS; i++) {
        const uint64_t words[2] = {peer->window.sequences[i], (uint64_t)(int64_t)peer->window.statuses[i]};
        if (words[0] != 0) {
            convoy_bundle_put(writer, ITEM_ANSWER, CONVOY_BUNDLE_CRITICAL, words, sizeof words);
        }
    }
    for (uint32_t i = 0; i < peer->backlog_count; i++) {
        convoy_bundle_put(writer, ITEM_BACKLOG, CONVOY_BUNDLE_CRITICAL,
                          &peer->backlog[(peer->backlog_first + i) % peer->backlog_room], sizeof peer->backlog[0]);
    }
}

/* Free ones too, for their handles. */
void convoy_xfer_save_peers(const struct convoy_xfer_saving *saving)
{
    const struct convoy_xfer *engine = saving->engine;
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        const struct convoy_xfer_peer *peer = &engine->peers[i];
        struct peer_fields *fields = convoy_memory_zalloc(sizeof *fields);
        if (fields == NULL) {
            saving->writer->is_out_of_memory = true;
            return;
        }
        fields->index = i;
        fields->lane = peer->lane == NULL ? 0 : peer->lane->is_far ? LANE_FAR : LANE_NEAR;
        fields->side = peer->ring_memory != NULL && (const void *)peer->ring.out != peer->ring_memory;
        fields->peer = *peer;
        size_t opened = convoy_bundle_open(saving->writer, CONVOY_XFER_ITEM_PEER, CONVOY_BUNDLE_CRITICAL);
        convoy_bundle_put_fields(saving->writer, &peer_shape, fields);
        save_inner(saving, peer);
        convoy_bundle_shut(saving->writer, opened);
        convoy_memory_free(fields);
    }
}

/* -- peers: in ----------------------------------------------------------------------------------------------------- */

struct peer_in {
    struct convoy_xfer_restoring *restoring;
    struct peer_fields fields;
};

static int32_t add_view(struct peer_in *in, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_view **last = &in->fields.peer.view;
    struct convoy_view *view = NULL;
    uint64_t number = convoy_bundle_u64(item);
    const struct convoy_xfer_views *views = &in->restoring->views;
    if (number >= views->count || views->all[number]->references != 0) { /* each is in one list */
        return convoy_error_set(error, CONVOY_MALFORMED, "view %llu of %u cannot be", (unsigned long long)number, views->count);
    }
    (void)convoy_xfer_view_take(views, (uint32_t)number, &view);
    while (*last != NULL) {
        last = &(*last)->older;
    }
    *last = view;
    return CONVOY_OK;
}

static int32_t add_share(struct convoy_shares *shares, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    uint64_t words[4];
    uint32_t at = 0;
    while (at < CONVOY_SHARES && shares->rows[at].state != CONVOY_SHARE_NONE) {
        at++;
    }
    memcpy(words, item->data, item->bytes == sizeof words ? sizeof words : 0);
    if (item->bytes != sizeof words || at == CONVOY_SHARES || words[0] == CONVOY_SHARE_NONE || words[0] >= CONVOY_SHARE_STATES) {
        return convoy_error_set(error, CONVOY_MALFORMED, "a generation that a peer has mapped cannot be, or is one too many");
    }
    shares->rows[at] = (struct convoy_share){
        .state = (enum convoy_share_state)words[0], .generation = words[1], .base = words[2], .bytes = words[3]};
    shares->pending_count += words[0] == CONVOY_SHARE_WANTED || words[0] == CONVOY_SHARE_SENT;
    return CONVOY_OK;
}

static int32_t add_answer(struct convoy_window *window, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    uint64_t sequence = item->bytes == 16 ? convoy_bytes_u64(item->data) : 0;
    if (sequence == 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "an answered offer has %zu bytes, or no number", item->bytes);
    }
    uint32_t at = (uint32_t)(sequence % CONVOY_WINDOW_OFFERS);
    if (window->sequences[at] < sequence) {
        window->sequences[at] = sequence;
        window->statuses[at] = (int32_t)(uint32_t)convoy_bytes_u64(item->data + 8);
    }
    return CONVOY_OK;
}

static int32_t add_backlog(struct convoy_xfer_peer *peer, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    if (item->bytes != sizeof peer->backlog[0]) {
        return convoy_error_set(error, CONVOY_MALFORMED, "a message to a peer has %zu bytes", item->bytes);
    }
    if (peer->backlog_count == peer->backlog_room && !convoy_xfer_backlog_grow(peer)) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u messages to a peer", peer->backlog_count + 1);
    }
    memcpy(&peer->backlog[peer->backlog_count++], item->data, item->bytes);
    return CONVOY_OK;
}

static int32_t inner(void *user, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct peer_in *in = user;
    switch (item->tag) {
    case ITEM_VIEWS:
        return add_view(in, item, error);
    case ITEM_SHARE:
        return add_share(&in->fields.peer.shares, item, error);
    case ITEM_ANSWER:
        return add_answer(&in->fields.peer.window, item, error);
    case ITEM_BACKLOG:
        return add_backlog(&in->fields.peer, item, error);
    default:
        return convoy_bundle_unknown(item, peer_shape.name, error);
    }
}

static bool can_be(const struct convoy_xfer *engine, const struct peer_fields *fields)
{
    const struct convoy_xfer_peer *peer = &fields->peer;
    bool is_near = fields->lane == LANE_NEAR;
    return fields->index < engine->options.peer_max && engine->peers[fields->index].generation == 0 &&
           peer->generation != 0 && peer->state <= CONVOY_PEER_IS_LOST && fields->lane <= LANE_FAR && fields->side <= 1 &&
           peer->session[sizeof peer->session - 1] == '\0' && (peer->state != CONVOY_PEER_IS_CONNECTED || fields->lane != 0) &&
           (!is_near || (peer->view != NULL && peer->ring_memory != NULL));
}

static int32_t duplicate_files(struct convoy_xfer_peer *peer, struct convoy_error *error)
{
    int *const files[] = {&peer->tcp_fd, &peer->wake_fd, &peer->pid_fd, &peer->share_fd};
    int32_t status = CONVOY_OK;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (status != CONVOY_OK) {
            *files[i] = -1;
        } else {
            status = convoy_xfer_duplicate(files[i], "a peer", error);
        }
    }
    return status;
}

static void place(struct convoy_xfer *engine, const struct peer_fields *fields)
{
    struct convoy_xfer_peer *peer = &engine->peers[fields->index];
    struct convoy_ring ring;
    *peer = fields->peer;
    peer->lane = fields->lane == LANE_NEAR ? &convoy_lane_near : fields->lane == LANE_FAR ? &convoy_lane_far : NULL;
    if (peer->ring_memory != NULL) {
        convoy_ring_init(&ring, peer->ring_memory, fields->side);
        peer->ring.out = ring.out;
        peer->ring.in = ring.in;
    }
    engine->peer_top = fields->index + 1 > engine->peer_top ? fields->index + 1 : engine->peer_top;
}

int32_t convoy_xfer_restore_peer(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error)
{
    struct peer_in *in = convoy_memory_zalloc(sizeof *in);
    if (in == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a peer");
    }
    in->restoring = restoring;
    const struct convoy_xfer_reading reading = {&peer_shape, &in->fields, inner, in};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    if (status == CONVOY_OK && !can_be(restoring->engine, &in->fields)) {
        status = convoy_error_set(error, CONVOY_MALFORMED, "peer %u of up to %u, in state %u, cannot be", in->fields.index,
                                  restoring->engine->options.peer_max, in->fields.peer.state);
    }
    if (status != CONVOY_OK) {
        convoy_memory_free(in->fields.peer.backlog);
        convoy_memory_free(in);
        return status;
    }
    status = duplicate_files(&in->fields.peer, error);
    place(restoring->engine, &in->fields);
    convoy_memory_free(in);
    return status;
}
