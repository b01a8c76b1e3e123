/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what the exporter of a group of several hosts has written down. Nothing is opened and nobody is told: thaw does. */
#include "round/remote_items.h"

#include <errno.h>
#include <fcntl.h>

static int32_t restore_malformed(const char *what, uint64_t value, struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_MALFORMED, "%s %llu of a group across hosts is out of range", what,
                            (unsigned long long)value);
}

/* The fields of a nested item and its other parts, one at a time: true, or the item is over. */
struct restore_walk {
    struct convoy_bundle_reader reader;
    struct convoy_bundle_item part;
    const struct convoy_bundle_shape *shape;
    int32_t status;
};

static struct restore_walk restore_begin(const struct convoy_bundle_item *item, const struct convoy_bundle_shape *shape)
{
    return (struct restore_walk){.reader = convoy_bundle_inside(item), .shape = shape, .status = CONVOY_OK};
}

/* Fills in the fields on the way; the parts that follow them are the caller's. */
static bool restore_next(struct restore_walk *walk, void *fields, struct convoy_error *error)
{
    while (walk->status == CONVOY_OK && convoy_bundle_next(&walk->reader, &walk->part)) {
        if (walk->part.tag != CONVOY_BUNDLE_FIELDS) {
            return true;
        }
        walk->status = convoy_bundle_get_fields(&walk->part, walk->shape, fields, error);
    }
    if (walk->status == CONVOY_OK) {
        walk->status = convoy_bundle_done(&walk->reader, walk->shape->name, error);
    }
    return false;
}

static void restore_skip(struct restore_walk *walk, struct convoy_error *error)
{
    walk->status = convoy_bundle_unknown(&walk->part, walk->shape->name, error);
}

/* -- members and hosts --------------------------------------------------------------------------------------------- */

static int32_t restore_address(struct convoy_remote *remote, const struct remote_member_fields *fields,
                               const struct convoy_bundle_item *address, struct convoy_error *error)
{
    if (fields->member >= remote->engine->member_count || remote->addresses[fields->member] != NULL) {
        return restore_malformed("member", fields->member, error);
    }
    uint8_t *copy = address->bytes != 0 ? convoy_memory_zalloc(address->bytes) : NULL;
    if (copy == NULL) {
        return address->bytes == 0
                   ? restore_malformed("an empty address of member", fields->member, error)
                   : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a network address of %zu bytes",
                                      address->bytes);
    }
    memcpy(copy, address->data, address->bytes);
    remote->addresses[fields->member] = copy;
    remote->address_bytes[fields->member] = address->bytes;
    struct convoy_remote_path *path = &remote->paths[fields->member];
    path->sequence = fields->sequence;
    path->count = fields->count;
    path->down_ns = fields->down_ns;
    return CONVOY_OK;
}

static int32_t restore_member(struct convoy_remote *remote, const struct convoy_bundle_item *item,
                              struct convoy_error *error)
{
    struct remote_member_fields fields = {0};
    struct restore_walk walk = restore_begin(item, &convoy_remote_member_shape);
    while (restore_next(&walk, &fields, error)) {
        if (walk.part.tag == SAVE_BYTES) {
            walk.status = restore_address(remote, &fields, &walk.part, error);
        } else {
            restore_skip(&walk, error);
        }
    }
    return walk.status;
}

static int32_t restore_bytes(const struct convoy_remote *remote, struct convoy_remote_host *host,
                             const struct remote_box_fields *fields, const struct convoy_bundle_item *bytes,
                             struct convoy_error *error)
{
    bool is_rows = fields->is_rows != 0;
    struct convoy_remote_box *box = &(is_rows ? host->rows : host->partial)[fields->word & 1];
    size_t room = is_rows ? remote->engine->member_count * sizeof(struct convoy_partial_row) : remote->blob_bytes;
    if (box->bytes == NULL || bytes->bytes > room || (is_rows && bytes->bytes % sizeof(struct convoy_partial_row) != 0)) {
        return restore_malformed("a message of length", bytes->bytes, error);
    }
    memcpy(box->bytes, bytes->data, bytes->bytes);
    box->length = (uint32_t)bytes->bytes;
    box->word = fields->word;
    return CONVOY_OK;
}

static int32_t restore_box(const struct convoy_remote *remote, struct convoy_remote_host *host,
                           const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct remote_box_fields fields = {0};
    struct restore_walk walk = restore_begin(item, &convoy_remote_box_shape);
    while (restore_next(&walk, &fields, error)) {
        if (walk.part.tag == SAVE_BYTES) {
            walk.status = restore_bytes(remote, host, &fields, &walk.part, error);
        } else {
            restore_skip(&walk, error);
        }
    }
    return walk.status;
}

static int32_t restore_host_fields(struct convoy_remote *remote, const struct remote_host_fields *fields,
                                   struct convoy_error *error)
{
    uint32_t count = remote->engine->member_count;
    if (fields->host >= remote->host_count || fields->leader >= count || fields->member_count > count ||
        fields->retry_member >= count) {
        return restore_malformed("host", fields->host, error);
    }
    struct convoy_remote_host *host = &remote->hosts[fields->host];
    host->leader = fields->leader;
    host->member_count = fields->member_count;
    host->is_lost = fields->is_lost != 0;
    host->down_ns = fields->down_ns;
    host->asked_word = fields->asked_word;
    host->retry_member = fields->retry_member;
    return CONVOY_OK;
}

static int32_t restore_host(struct convoy_remote *remote, const struct convoy_bundle_item *item,
                            struct convoy_error *error)
{
    struct remote_host_fields fields = {0};
    struct restore_walk walk = restore_begin(item, &convoy_remote_host_shape);
    while (restore_next(&walk, &fields, error)) {
        if (walk.part.tag == SAVE_BOX && fields.host < remote->host_count) {
            walk.status = restore_box(remote, &remote->hosts[fields.host], &walk.part, error);
        } else {
            restore_skip(&walk, error);
        }
    }
    return walk.status == CONVOY_OK ? restore_host_fields(remote, &fields, error) : walk.status;
}

/* -- the whole ----------------------------------------------------------------------------------------------------- */

static int32_t restore_part(struct convoy_remote *remote, struct restore_walk *walk, struct convoy_error *error)
{
    const struct convoy_bundle_item *part = &walk->part;
    size_t rows_max = remote->engine->member_count * sizeof *remote->diverged_rows;
    if (part->tag == SAVE_MEMBER) {
        return restore_member(remote, part, error);
    }
    if (part->tag == SAVE_HOST) {
        return restore_host(remote, part, error);
    }
    if (part->tag == SAVE_FAILED && part->bytes == sizeof remote->failed) {
        memcpy(&remote->failed, part->data, sizeof remote->failed);
        return CONVOY_OK;
    }
    if (part->tag == SAVE_DIVERGED && part->bytes <= rows_max) {
        memcpy(remote->diverged_rows, part->data, part->bytes);
        return CONVOY_OK;
    }
    return convoy_bundle_unknown(part, walk->shape->name, error);
}

static int32_t restore_own(struct convoy_remote *remote, const struct remote_fields *fields, struct convoy_error *error)
{
    if (fields->diverged_count > remote->engine->member_count) {
        return restore_malformed("a count of rows", fields->diverged_count, error);
    }
    remote->sequence = fields->sequence;
    remote->frozen_ns = fields->frozen_ns;
    remote->sent_word = fields->sent_word;
    remote->rows_word = fields->rows_word;
    remote->failed_word = fields->failed_word;
    remote->dropped_token = fields->dropped_token;
    remote->dropped_stale = fields->dropped_stale;
    remote->dropped_repeat = fields->dropped_repeat;
    remote->dropped_bad = fields->dropped_bad;
    remote->engine->counters.rewires = fields->rewires;
    remote->engine->counters.rewire_down_ns_max = fields->rewire_down_ns_max;
    remote->was_leader = fields->was_leader != 0;
    remote->has_warned = fields->has_warned != 0;
    remote->has_diverged_rows = fields->has_diverged_rows != 0;
    remote->diverged_count = fields->diverged_count;
    remote->reopen.is_wanted = fields->is_wanted != 0;
    remote->reopen.wanted_from = fields->wanted_from;
    if (fields->heir_fd != 0) {
        remote->from_fd = fcntl((int)(fields->heir_fd - 1), F_DUPFD_CLOEXEC, 0);
        if (remote->from_fd < 0) {
            return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "socket %u of the exporter of a group",
                                          fields->heir_fd - 1);
        }
    }
    return CONVOY_OK;
}

static int32_t restore_all(struct convoy_remote *remote, const struct convoy_bundle_item *item,
                           struct convoy_error *error)
{
    struct remote_fields fields = {0};
    struct restore_walk walk = restore_begin(item, &convoy_remote_shape);
    while (restore_next(&walk, &fields, error)) {
        walk.status = restore_part(remote, &walk, error);
    }
    if (walk.status != CONVOY_OK) {
        return walk.status;
    }
    for (uint32_t member = 0; member < remote->engine->member_count; member++) {
        if (remote->addresses[member] == NULL) {
            return convoy_error_set(error, CONVOY_TOO_OLD, "an exported group across hosts lacks the address of member %u",
                                    member);
        }
    }
    return restore_own(remote, &fields, error);
}

int32_t convoy_remote_restore(struct convoy_engine *engine, const struct convoy_bundle_item *item,
                              struct convoy_error *error)
{
    if (engine->local.hosts.host_count > CONVOY_HOSTS_MAX) {
        return restore_malformed("a number of hosts", engine->local.hosts.host_count, error);
    }
    struct convoy_remote *remote = convoy_remote_create(engine);
    if (remote == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for links to other hosts");
    }
    remote->stage = CONVOY_REMOTE_RESTORED;
    int32_t status = convoy_remote_allocate(remote, error);
    if (status == CONVOY_OK) {
        remote->forwarded = convoy_memory_zalloc(sizeof(struct convoy_message) + CONVOY_REMOTE_HAND_ON_BYTES);
        status = remote->forwarded != NULL ? restore_all(remote, item, error)
                                           : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for links to other hosts");
    }
    if (status != CONVOY_OK) {
        convoy_remote_free(remote);
        return status;
    }
    engine->remote = remote;
    return CONVOY_OK;
}
