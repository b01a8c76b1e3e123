/* SPDX-License-Identifier: Apache-2.0 */
/* Writes down what a group of several hosts hands over to the importer. */
#include "round/remote_items.h"

#include <errno.h>
#include <sys/socket.h>

#define SAVE_SOCKET_BYTES (1u << 20) /* of what the exporter hands on */

static const struct convoy_bundle_field remote_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct remote_fields, sequence),
    CONVOY_BUNDLE_FIELD(2, struct remote_fields, frozen_ns),
    CONVOY_BUNDLE_FIELD(3, struct remote_fields, sent_word),
    CONVOY_BUNDLE_FIELD(4, struct remote_fields, rows_word),
    CONVOY_BUNDLE_FIELD(5, struct remote_fields, failed_word),
    CONVOY_BUNDLE_FIELD(6, struct remote_fields, dropped_token),
    CONVOY_BUNDLE_FIELD(7, struct remote_fields, dropped_stale),
    CONVOY_BUNDLE_FIELD(8, struct remote_fields, dropped_repeat),
    CONVOY_BUNDLE_FIELD(9, struct remote_fields, dropped_bad),
    CONVOY_BUNDLE_FIELD(10, struct remote_fields, heir_fd),
    CONVOY_BUNDLE_FIELD(11, struct remote_fields, was_leader),
    CONVOY_BUNDLE_FIELD(12, struct remote_fields, has_warned),
    CONVOY_BUNDLE_FIELD(13, struct remote_fields, has_diverged_rows),
    CONVOY_BUNDLE_FIELD(14, struct remote_fields, diverged_count),
    CONVOY_BUNDLE_FIELD(15, struct remote_fields, is_wanted),
    CONVOY_BUNDLE_FIELD(16, struct remote_fields, wanted_from),
    CONVOY_BUNDLE_FIELD(17, struct remote_fields, rewires),
    CONVOY_BUNDLE_FIELD(18, struct remote_fields, rewire_down_ns_max),
};

static const struct convoy_bundle_field member_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct remote_member_fields, sequence),
    CONVOY_BUNDLE_FIELD(2, struct remote_member_fields, count),
    CONVOY_BUNDLE_FIELD(3, struct remote_member_fields, down_ns),
    CONVOY_BUNDLE_FIELD(4, struct remote_member_fields, member),
};

static const struct convoy_bundle_field host_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct remote_host_fields, down_ns),
    CONVOY_BUNDLE_FIELD(2, struct remote_host_fields, asked_word),
    CONVOY_BUNDLE_FIELD(3, struct remote_host_fields, host),
    CONVOY_BUNDLE_FIELD(4, struct remote_host_fields, leader),
    CONVOY_BUNDLE_FIELD(5, struct remote_host_fields, member_count),
    CONVOY_BUNDLE_FIELD(6, struct remote_host_fields, is_lost),
    CONVOY_BUNDLE_FIELD(7, struct remote_host_fields, retry_member),
};

static const struct convoy_bundle_field box_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct remote_box_fields, word),
    CONVOY_BUNDLE_FIELD(2, struct remote_box_fields, is_rows),
};

#define SAVE_SHAPE(shape, list, text)                                                                                  \
    const struct convoy_bundle_shape shape = {.name = (text), .fields = (list), .count = sizeof(list) / sizeof(list)[0]}
SAVE_SHAPE(convoy_remote_shape, remote_field_list, "group across hosts");
SAVE_SHAPE(convoy_remote_member_shape, member_field_list, "member of a group across hosts");
SAVE_SHAPE(convoy_remote_host_shape, host_field_list, "host of a group");
SAVE_SHAPE(convoy_remote_box_shape, box_field_list, "message of a host");

static void save_member(const struct convoy_remote *remote, uint32_t member, struct convoy_bundle_writer *writer)
{
    const struct convoy_remote_path *path = &remote->paths[member];
    const struct remote_member_fields fields = {
        .sequence = path->sequence, .count = path->count, .down_ns = path->down_ns, .member = member};
    size_t opened = convoy_bundle_open(writer, SAVE_MEMBER, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(writer, &convoy_remote_member_shape, &fields);
    convoy_bundle_put(writer, SAVE_BYTES, CONVOY_BUNDLE_CRITICAL, remote->addresses[member],
                      remote->address_bytes[member]);
    convoy_bundle_shut(writer, opened);
}

static void save_box(const struct convoy_remote_box *box, uint32_t is_rows, struct convoy_bundle_writer *writer)
{
    const struct remote_box_fields fields = {.word = box->word, .is_rows = is_rows};
    if (box->word == 0) {
        return;
    }
    size_t opened = convoy_bundle_open(writer, SAVE_BOX, 0);
    convoy_bundle_put_fields(writer, &convoy_remote_box_shape, &fields);
    convoy_bundle_put(writer, SAVE_BYTES, CONVOY_BUNDLE_CRITICAL, box->bytes, box->length);
    convoy_bundle_shut(writer, opened);
}

static void save_host(const struct convoy_remote *remote, uint32_t index, struct convoy_bundle_writer *writer)
{
    const struct convoy_remote_host *host = &remote->hosts[index];
    const struct remote_host_fields fields = {.down_ns = host->down_ns,
                                       .asked_word = host->asked_word,
                                       .host = index,
                                       .leader = host->leader,
                                       .member_count = host->member_count,
                                       .is_lost = host->is_lost,
                                       .retry_member = host->retry_member};
    size_t opened = convoy_bundle_open(writer, SAVE_HOST, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(writer, &convoy_remote_host_shape, &fields);
    for (uint32_t parity = 0; parity < 2 && index != remote->own_host; parity++) {
        save_box(&host->partial[parity], 0, writer);
        save_box(&host->rows[parity], 1, writer);
    }
    convoy_bundle_shut(writer, opened);
}

/* The sockets through which a retiring exporter hands on what still comes; made once, however often it is saved. */
static int32_t save_open_sockets(struct convoy_remote *remote, struct convoy_error *error)
{
    int pair[2];
    const int bytes = SAVE_SOCKET_BYTES;
    if (remote->to_fd >= 0) {
        return CONVOY_OK;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "sockets between two builds of a group across hosts");
    }
    (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes); /* less room: more is asked for again */
    remote->to_fd = pair[0];
    remote->heir_fd = pair[1];
    return CONVOY_OK;
}

int32_t convoy_remote_save(struct convoy_engine *engine, struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    struct convoy_remote *remote = engine->remote;
    int32_t status = save_open_sockets(remote, error);
    if (status != CONVOY_OK) {
        return status;
    }
    const struct remote_fields fields = {.sequence = remote->sequence,
                                         .frozen_ns = remote->frozen_ns,
                                         .sent_word = remote->sent_word,
                                         .rows_word = remote->rows_word,
                                         .failed_word = remote->failed_word,
                                         .dropped_token = remote->dropped_token,
                                         .dropped_stale = remote->dropped_stale,
                                         .dropped_repeat = remote->dropped_repeat,
                                         .dropped_bad = remote->dropped_bad,
                                         .rewires = engine->counters.rewires,
                                         .rewire_down_ns_max = engine->counters.rewire_down_ns_max,
                                         .heir_fd = (uint32_t)remote->heir_fd + 1,
                                         .was_leader = remote->was_leader,
                                         .has_warned = remote->has_warned,
                                         .has_diverged_rows = remote->has_diverged_rows,
                                         .diverged_count = remote->diverged_count,
                                         .is_wanted = remote->reopen.is_wanted,
                                         .wanted_from = remote->reopen.wanted_from};
    convoy_bundle_put_fields(writer, &convoy_remote_shape, &fields);
    for (uint32_t member = 0; member < engine->member_count; member++) {
        save_member(remote, member, writer);
    }
    for (uint32_t host = 0; host < remote->host_count; host++) {
        save_host(remote, host, writer);
    }
    convoy_bundle_put(writer, SAVE_FAILED, 0, &remote->failed, sizeof remote->failed);
    if (remote->has_diverged_rows) {
        convoy_bundle_put(writer, SAVE_DIVERGED, 0, remote->diverged_rows,
                          remote->diverged_count * sizeof *remote->diverged_rows);
    }
    return CONVOY_OK;
}
