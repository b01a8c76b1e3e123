/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine out of what another build has written down. Nothing that is read is trusted as far as bounds go: sizes are
 * computed from what the group is, and compared. What makes rounds short, and how long peers usually take, starts anew.
 */
#include "round/engine_move.h"

#include "round/engine_state.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENGINE_FIELD(number, member) CONVOY_BUNDLE_FIELD(number, struct convoy_engine, member)
#define ENGINE_NEEDED(number, member)                                                                                  \
    CONVOY_BUNDLE_FIELD_FLAGS(number, struct convoy_engine, member, CONVOY_BUNDLE_CRITICAL)

static const struct convoy_bundle_field engine_field_list[] = {
    ENGINE_NEEDED(1, generation),
    ENGINE_NEEDED(2, next_round),
    ENGINE_NEEDED(3, own_words),
    ENGINE_NEEDED(4, operation_count),
    ENGINE_NEEDED(5, operation_salt),
    ENGINE_NEEDED(6, agreement.epoch),
    ENGINE_NEEDED(7, agreement.wire),
    ENGINE_NEEDED(8, agreement.session),
    ENGINE_NEEDED(9, state),
    ENGINE_NEEDED(10, lost),
    ENGINE_FIELD(11, summary.round),
    ENGINE_FIELD(12, summary.epoch),
    ENGINE_FIELD(13, summary.votes_and),
    ENGINE_FIELD(14, summary.votes_or),
    ENGINE_FIELD(15, operation),
    ENGINE_FIELD(16, round),
    ENGINE_FIELD(17, quick_ticks),
    ENGINE_FIELD(18, base.ticks),
    ENGINE_FIELD(19, base.ns),
    ENGINE_FIELD(20, ended_status),
    ENGINE_FIELD(21, error_member),
    ENGINE_FIELD(22, failed_member),
    ENGINE_FIELD(23, was_stuck),
    ENGINE_FIELD(24, published_ns),
    ENGINE_FIELD(25, finished_ns),
    ENGINE_FIELD(26, absent_count),
    ENGINE_FIELD(27, cancel_requested),
    ENGINE_FIELD(28, cancel_text),
    ENGINE_FIELD(29, contribution.header),
    ENGINE_FIELD(30, contribution.votes),
    ENGINE_FIELD(31, contribution.payload_bytes),
    ENGINE_FIELD(32, contribution.tag),
    ENGINE_FIELD(33, contribution.is_error),
    ENGINE_FIELD(34, contribution.errors_as_presence),
    ENGINE_FIELD(35, contribution.error_reason),
    ENGINE_FIELD(36, error_reason),
    ENGINE_FIELD(37, reference),
    ENGINE_FIELD(38, recovered),
    ENGINE_FIELD(39, counters.members_lost),
    ENGINE_FIELD(40, counters.successions),
    ENGINE_FIELD(41, counters.stale),
    ENGINE_FIELD(42, counters.strange),
    ENGINE_FIELD(43, waiting.usual_ns),
    ENGINE_FIELD(44, ended_error.status),
    ENGINE_FIELD(45, ended_error.rank),
    ENGINE_FIELD(46, ended_error.round),
    ENGINE_FIELD(47, ended_error.sys_errno),
    ENGINE_FIELD(48, ended_error.ucx_status),
    ENGINE_FIELD(49, ended_error.text),
    ENGINE_FIELD(50, report.field),
    ENGINE_FIELD(51, report.round),
    ENGINE_FIELD(52, report.elapsed_ns),
    ENGINE_FIELD(53, report.operation),
};

static const struct convoy_bundle_field place_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_engine_place, local_count),
    CONVOY_BUNDLE_FIELD(2, struct convoy_engine_place, host_count),
    CONVOY_BUNDLE_FIELD_FLAGS(3, struct convoy_engine_place, segment_fd, CONVOY_BUNDLE_CRITICAL),
    CONVOY_BUNDLE_FIELD_FLAGS(4, struct convoy_engine_place, segment_bytes, CONVOY_BUNDLE_CRITICAL),
    CONVOY_BUNDLE_FIELD_FLAGS(5, struct convoy_engine_place, cell_bytes, CONVOY_BUNDLE_CRITICAL),
    CONVOY_BUNDLE_FIELD_FLAGS(6, struct convoy_engine_place, blob_bytes, CONVOY_BUNDLE_CRITICAL),
    CONVOY_BUNDLE_FIELD_FLAGS(7, struct convoy_engine_place, total_bytes, CONVOY_BUNDLE_CRITICAL),
};

static const struct convoy_bundle_field lost_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_engine_lost, member),
    CONVOY_BUNDLE_FIELD(2, struct convoy_engine_lost, is_dead),
    CONVOY_BUNDLE_FIELD(3, struct convoy_engine_lost, is_closed),
    CONVOY_BUNDLE_FIELD(4, struct convoy_engine_lost, noticed_by),
};

#define SHAPE_OF(list) .fields = (list), .count = sizeof(list) / sizeof((list)[0])

const struct convoy_bundle_shape convoy_engine_shape = {.name = "a round engine", SHAPE_OF(engine_field_list)};
const struct convoy_bundle_shape convoy_engine_place_shape = {.name = "the place of a member", SHAPE_OF(place_field_list)};
const struct convoy_bundle_shape convoy_engine_lost_shape = {.name = "a lost member", SHAPE_OF(lost_field_list)};

/* One restore on its way. */
struct restoring {
    struct convoy_engine *engine;
    size_t partial_bytes_max;
    struct convoy_engine_place place;
    struct convoy_bundle_item hosts; /* data NULL: it is not there */
    struct convoy_bundle_item pidfds;
    struct convoy_bundle_item cells;
    struct convoy_bundle_item remote;
    bool has_fields;
    bool has_place;
};

static int32_t malformed(const struct restoring *restoring, const char *what, struct convoy_error *error)
{
    const struct convoy_group_options *group = restoring->engine->group;
    return convoy_error_set(error, CONVOY_MALFORMED, "group %.*s: %s of an exported state is damaged",
                            (int)group->name_length, group->name, what);
}

static int32_t missing(const struct restoring *restoring, const char *what, struct convoy_error *error)
{
    const struct convoy_group_options *group = restoring->engine->group;
    return convoy_error_set(error, CONVOY_TOO_OLD, "group %.*s: an exported state lacks %s", (int)group->name_length,
                            group->name, what);
}

/* -- reading ------------------------------------------------------------------------------------------------------- */

static int32_t read_place(struct restoring *restoring, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = CONVOY_OK;
    restoring->has_place = true;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        switch (one.tag) {
        case CONVOY_BUNDLE_FIELDS:
            status = convoy_bundle_get_fields(&one, &convoy_engine_place_shape, &restoring->place, error);
            break;
        case CONVOY_ENGINE_ITEM_HOSTS:
            restoring->hosts = one;
            break;
        case CONVOY_ENGINE_ITEM_PIDFDS:
            restoring->pidfds = one;
            break;
        case CONVOY_ENGINE_ITEM_CELLS:
            restoring->cells = one;
            break;
        default:
            status = convoy_bundle_unknown(&one, convoy_engine_place_shape.name, error);
        }
    }
    return status == CONVOY_OK ? convoy_bundle_done(&reader, convoy_engine_place_shape.name, error) : status;
}

static int32_t read_losses(struct restoring *restoring, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_engine *engine = restoring->engine;
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    while (convoy_bundle_next(&reader, &one)) {
        struct convoy_engine_lost lost = {0};
        int32_t status = one.tag == CONVOY_BUNDLE_FIELDS
                             ? convoy_bundle_get_fields(&one, &convoy_engine_lost_shape, &lost, error)
                             : convoy_bundle_unknown(&one, convoy_engine_lost_shape.name, error);
        if (status != CONVOY_OK) {
            return status;
        }
        if (lost.member >= engine->member_count) {
            return malformed(restoring, "a lost member", error);
        }
        struct convoy_loss *loss = &engine->losses[lost.member];
        engine->loss_count += loss->is_dead == 0 && loss->is_closed == 0 && (lost.is_dead | lost.is_closed) != 0;
        loss->is_dead = lost.is_dead != 0;
        loss->is_closed = lost.is_closed != 0;
        loss->noticed_by = lost.noticed_by;
    }
    return convoy_bundle_done(&reader, convoy_engine_lost_shape.name, error);
}

static int32_t read_report(struct convoy_engine *engine, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    while (convoy_bundle_next(&reader, &one)) {
        struct convoy_member_report row = {0};
        memcpy(&row, one.data, one.bytes < sizeof row ? one.bytes : sizeof row);
        if (one.tag == CONVOY_ENGINE_ITEM_ROW && engine->report.row_count < engine->member_count) {
            engine->report.rows[engine->report.row_count++] = row;
        }
    }
    return convoy_bundle_done(&reader, "a report", error);
}

static int32_t read_item(struct restoring *restoring, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    switch (item->tag) {
    case CONVOY_BUNDLE_FIELDS:
        restoring->has_fields = true;
        return convoy_bundle_get_fields(item, &convoy_engine_shape, restoring->engine, error);
    case CONVOY_ENGINE_ITEM_PLACE:
        return read_place(restoring, item, error);
    case CONVOY_ENGINE_ITEM_LOSSES:
        return read_losses(restoring, item, error);
    case CONVOY_ENGINE_ITEM_REPORT:
        return read_report(restoring->engine, item, error);
    case CONVOY_ENGINE_ITEM_REMOTE:
        restoring->remote = *item;
        return CONVOY_OK;
    default:
        return convoy_bundle_unknown(item, convoy_engine_shape.name, error);
    }
}

/* -- checking ------------------------------------------------------------------------------------------------------ */

static void make_bool(bool *value)
{
    uint8_t byte;
    memcpy(&byte, value, sizeof byte); /* no bool yet: it was read as a byte */
    *value = byte != 0;
}

/* The fields are in a fresh engine; do they make sense together? */
static int32_t check_fields(struct restoring *restoring, struct convoy_error *error)
{
    struct convoy_engine *engine = restoring->engine;
    uint32_t state = atomic_load(&engine->state);
    if (engine->generation == 0 || engine->next_round == 0) {
        return missing(restoring, "the number of its epoch or of its next round", error);
    }
    make_bool(&engine->contribution.is_error);
    make_bool(&engine->contribution.errors_as_presence);
    make_bool(&engine->recovered);
    bool is_sound = engine->generation <= CONVOY_GENERATION_MAX && engine->next_round <= CONVOY_WORD_ROUND_MASK &&
                    engine->operation_salt < 1u << 24 &&
                    (state == CONVOY_ENGINE_IDLE || state == CONVOY_ENGINE_BROKEN) &&
                    engine->error_member <= engine->member_count && engine->failed_member <= engine->member_count;
    if (!is_sound) {
        return malformed(restoring, "a round engine", error);
    }
    const struct convoy_runtime *runtime = engine->runtime;
    uint32_t wire = engine->agreement.wire;
    if (wire < runtime->wire_min || wire > runtime->wire_max) {
        return convoy_error_set(error, wire > runtime->wire_max ? CONVOY_TOO_NEW : CONVOY_TOO_OLD,
                                "group %.*s has wire version %u, this build has %u to %u",
                                (int)engine->group->name_length, engine->group->name, wire, runtime->wire_min,
                                runtime->wire_max);
    }
    for (uint32_t word = 0; word < CONVOY_LOST_WORDS; word++) {
        uint64_t members = atomic_load(&engine->lost[word]);
        uint32_t first = word * 64;
        uint64_t known = engine->member_count >= first + 64 ? UINT64_MAX
                         : engine->member_count <= first    ? 0
                                                            : (UINT64_C(1) << (engine->member_count - first)) - 1;
        if ((members & ~known) != 0) {
            return malformed(restoring, "the set of lost members", error);
        }
        engine->lost_count += (uint32_t)__builtin_popcountll(members);
    }
    engine->ended_error.struct_size = (uint32_t)sizeof engine->ended_error;
    engine->ended_error.text[CONVOY_ERROR_TEXT_BYTES - 1] = '\0';
    engine->cancel_text[CONVOY_CANCEL_TEXT_BYTES - 1] = '\0';
    return CONVOY_OK;
}

/* -- the place ----------------------------------------------------------------------------------------------------- */

static int32_t take_hosts(struct restoring *restoring, struct convoy_error *error)
{
    struct convoy_engine *engine = restoring->engine;
    uint32_t count = engine->member_count;
    uint32_t host_count = restoring->place.host_count;
    if (count == 1) {
        convoy_engine_place(engine);
        return CONVOY_OK;
    }
    if (restoring->hosts.data == NULL) {
        return missing(restoring, "which members share a host", error);
    }
    struct convoy_host_map *map = &engine->local.hosts;
    if (restoring->hosts.bytes != count * sizeof *map->host_of || host_count == 0 || host_count > count) {
        return malformed(restoring, "the map of hosts", error);
    }
    map->host_of = convoy_memory_array(count, sizeof *map->host_of);
    if (map->host_of == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the hosts of %u members", count);
    }
    map->member_count = count;
    map->host_count = host_count;
    memcpy(map->host_of, restoring->hosts.data, restoring->hosts.bytes);
    for (uint32_t member = 0; member < count; member++) {
        if (map->host_of[member] >= host_count) {
            return malformed(restoring, "the map of hosts", error);
        }
    }
    convoy_engine_place(engine);
    return engine->local_count == restoring->place.local_count ? CONVOY_OK
                                                               : malformed(restoring, "the map of hosts", error);
}

/* A descriptor of one's own of the exporter's. */
static int32_t take_descriptor(const struct restoring *restoring, int fd, int *fd_out, struct convoy_error *error)
{
    *fd_out = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (*fd_out >= 0) {
        return CONVOY_OK;
    }
    if (fd < 0 || errno == EBADF) {
        return malformed(restoring, "a descriptor", error);
    }
    return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "duplicating descriptor %d", fd);
}

static int32_t take_pidfds(struct restoring *restoring, struct convoy_error *error)
{
    struct convoy_engine *engine = restoring->engine;
    const struct convoy_bundle_item *item = &restoring->pidfds;
    if (item->data == NULL) {
        return engine->local_count > 1 ? missing(restoring, "process descriptors", error) : CONVOY_OK;
    }
    size_t bytes = engine->member_count * sizeof *engine->local.pidfds;
    if (item->bytes != bytes || engine->member_count == 1) {
        return malformed(restoring, "the process descriptors", error);
    }
    engine->local.pidfds = convoy_memory_array(engine->member_count, sizeof *engine->local.pidfds);
    if (engine->local.pidfds == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u process descriptors", engine->member_count);
    }
    memset(engine->local.pidfds, 0xff, bytes); /* -1 each: fini closes what is there */
    for (uint32_t local = 0; local < engine->local_count; local++) {
        uint32_t member = engine->local_members[local];
        int32_t fd;
        memcpy(&fd, item->data + member * sizeof fd, sizeof fd);
        int32_t status = member == engine->own_index
                             ? CONVOY_OK
                             : take_descriptor(restoring, fd, &engine->local.pidfds[member], error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* It is one of ours, as far as one can see, and large enough to be mapped. */
static bool segment_is_sound(int fd, uint64_t bytes, uint64_t total_bytes)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &file) == 0 && (uint64_t)file.st_size >= total_bytes &&
           bytes >= total_bytes && bytes <= (uint64_t)file.st_size;
}

static int32_t take_segment(struct restoring *restoring, struct convoy_error *error)
{
    struct convoy_engine *engine = restoring->engine;
    const struct convoy_engine_place *place = &restoring->place;
    struct convoy_segment_geometry *geometry = &engine->segment.geometry;
    bool is_shared = engine->local_count > 1;
    if (place->blob_bytes > UINT32_MAX) {
        return malformed(restoring, "the geometry of a segment", error);
    }
    convoy_segment_plan(geometry, engine->local_count, engine->member_count, engine->blob_bytes_max,
                        (size_t)place->blob_bytes);
    if (geometry->cell_bytes != place->cell_bytes || geometry->blob_bytes != place->blob_bytes ||
        geometry->total_bytes != place->total_bytes) {
        return malformed(restoring, "the geometry of a segment", error);
    }
    if (engine->local_count < engine->member_count && geometry->blob_bytes < restoring->partial_bytes_max) {
        return convoy_error_set(error, CONVOY_TOO_OLD,
                                "group %.*s has %zu bytes for what a host has merged, this build needs up to %zu",
                                (int)engine->group->name_length, engine->group->name, geometry->blob_bytes,
                                restoring->partial_bytes_max);
    }
    if (is_shared) {
        int32_t status = take_descriptor(restoring, place->segment_fd - 1, &engine->local.segment_fd, error);
        if (status != CONVOY_OK) {
            return status;
        }
        engine->local.segment_bytes = (size_t)place->segment_bytes;
        if (!segment_is_sound(engine->local.segment_fd, place->segment_bytes, place->total_bytes)) {
            return malformed(restoring, "a segment", error);
        }
        return convoy_engine_map(engine, error);
    }
    if (restoring->cells.data == NULL) {
        return missing(restoring, "the cells of a member that is alone on its host", error);
    }
    if (restoring->cells.bytes != geometry->total_bytes) {
        return malformed(restoring, "a member's own cells", error);
    }
    int32_t status = convoy_engine_map(engine, error);
    if (status == CONVOY_OK) {
        memcpy(engine->segment.base, restoring->cells.data, restoring->cells.bytes);
    }
    return status;
}

static int32_t take_remote(struct restoring *restoring, struct convoy_error *error)
{
    struct convoy_engine *engine = restoring->engine;
    if (engine->local_count == engine->member_count) {
        return CONVOY_OK;
    }
    if (restoring->remote.data == NULL) {
        return missing(restoring, "the part of a group of several hosts", error);
    }
    return convoy_remote_restore(engine, &restoring->remote, error);
}

static int32_t restore_all(struct restoring *restoring, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = convoy_engine_allocate(restoring->engine, error);
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        status = read_item(restoring, &one, error);
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, convoy_engine_shape.name, error) : status;
    if (status == CONVOY_OK && !(restoring->has_fields && restoring->has_place)) {
        return missing(restoring, "the fields of a round engine", error);
    }
    status = status == CONVOY_OK ? check_fields(restoring, error) : status;
    status = status == CONVOY_OK ? take_hosts(restoring, error) : status;
    status = status == CONVOY_OK ? take_pidfds(restoring, error) : status;
    status = status == CONVOY_OK ? take_segment(restoring, error) : status;
    return status == CONVOY_OK ? take_remote(restoring, error) : status;
}

int32_t convoy_engine_restore(struct convoy_runtime *runtime, const struct convoy_group_options *group,
                              size_t partial_bytes_max, const struct convoy_bundle_item *item,
                              struct convoy_engine **engine_out, struct convoy_error *error)
{
    struct restoring restoring = {.engine = convoy_engine_create(runtime, group), .partial_bytes_max = partial_bytes_max};
    struct convoy_engine *engine = restoring.engine;
    if (engine == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a round engine");
    }
    /* What a field that is not written stands for. */
    engine->generation = 0;
    engine->next_round = 0;
    engine->operation_salt = 0;
    engine->ended_status = 0;
    engine->base = (struct convoy_ticks){0};
    int32_t status = restore_all(&restoring, item, error);
    if (status != CONVOY_OK) {
        convoy_engine_free(engine);
        return status;
    }
    *engine_out = engine;
    return CONVOY_OK;
}
