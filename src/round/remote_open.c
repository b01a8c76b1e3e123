/* SPDX-License-Identifier: Apache-2.0 */
/* Making what a group of several hosts needs beside its engine, and opening its link. */
#include "round/remote_internal.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define REMOTE_DESCRIPTORS 24u /* what one UCX context and worker take, with a margin */

void convoy_remote_free(struct convoy_remote *remote)
{
    uint32_t count = remote->engine->member_count;
    for (uint32_t host = 0; host < CONVOY_HOSTS_MAX; host++) {
        for (uint32_t parity = 0; parity < 2; parity++) {
            convoy_memory_free(remote->hosts[host].partial[parity].bytes);
            convoy_memory_free(remote->hosts[host].rows[parity].bytes);
        }
    }
    for (uint32_t member = 0; remote->addresses != NULL && member < count; member++) {
        convoy_memory_free(remote->addresses[member]);
    }
    convoy_memory_free(remote->addresses);
    convoy_memory_free(remote->paths);
    convoy_memory_free(remote->forwarded);
    convoy_memory_free(remote->address_bytes);
    convoy_memory_free(remote->scratch);
    convoy_memory_free(remote->diverged_rows);
    convoy_memory_free(remote->reopen.result);
    const int fds[] = {remote->wake_fd, remote->from_fd, remote->to_fd, remote->heir_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    (void)pthread_mutex_destroy(&remote->lock);
    convoy_memory_free(remote);
}

static bool remote_allocate_host(struct convoy_remote *remote, uint32_t host)
{
    size_t row_bytes = remote->engine->member_count * sizeof(struct convoy_partial_row);
    bool is_whole = true;
    for (uint32_t parity = 0; parity < 2; parity++) {
        struct convoy_remote_host *slot = &remote->hosts[host];
        slot->partial[parity].bytes = convoy_memory_zalloc(remote->blob_bytes);
        slot->rows[parity].bytes = convoy_memory_zalloc(row_bytes);
        is_whole = is_whole && slot->partial[parity].bytes != NULL && slot->rows[parity].bytes != NULL;
    }
    return is_whole;
}

int32_t convoy_remote_allocate(struct convoy_remote *remote, struct convoy_error *error)
{
    uint32_t count = remote->engine->member_count;
    remote->addresses = convoy_memory_array(count, sizeof *remote->addresses);
    remote->paths = convoy_memory_array(count, sizeof *remote->paths);
    remote->address_bytes = convoy_memory_array(count, sizeof *remote->address_bytes);
    remote->scratch = convoy_memory_aligned(CONVOY_LINE_BYTES, remote->blob_bytes);
    remote->diverged_rows = convoy_memory_array(count, sizeof *remote->diverged_rows);
    remote->reopen.result = convoy_memory_zalloc(remote->blob_bytes);
    bool is_whole = remote->addresses != NULL && remote->address_bytes != NULL && remote->paths != NULL &&
                    remote->scratch != NULL && remote->diverged_rows != NULL && remote->reopen.result != NULL;
    for (uint32_t host = 0; host < remote->host_count && is_whole; host++) {
        is_whole = host == remote->own_host || remote_allocate_host(remote, host);
    }
    if (!is_whole) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to exchange rounds with %u hosts",
                                remote->host_count);
    }
    remote->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return remote->wake_fd >= 0 ? CONVOY_OK
                                : convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "eventfd of a progress thread");
}

struct convoy_remote *convoy_remote_create(struct convoy_engine *engine)
{
    struct convoy_remote *remote = convoy_memory_zalloc(sizeof *remote);
    if (remote == NULL) {
        return NULL;
    }
    const struct convoy_host_map *hosts = &engine->local.hosts;
    remote->engine = engine;
    remote->wake_fd = remote->from_fd = remote->to_fd = remote->heir_fd = -1;
    remote->host_count = hosts->host_count;
    remote->own_host = hosts->host_of[engine->own_index];
    remote->blob_bytes = engine->segment.geometry.blob_bytes;
    memcpy(remote->token, engine->agreement.session, sizeof remote->token);
    (void)pthread_mutex_init(&remote->lock, NULL);
    for (uint32_t member = engine->member_count; member-- > 0;) { /* backwards: the lowest member leads */
        uint32_t host = hosts->host_of[member];
        if (host < CONVOY_HOSTS_MAX) {
            remote->hosts[host].leader = member;
            remote->hosts[host].member_count++;
        }
    }
    return remote;
}

/* Everybody's worker address, in one exchange. */
static int32_t remote_exchange(struct convoy_remote *remote, struct convoy_bootstrap *bootstrap,
                               struct convoy_error *error)
{
    uint32_t count = remote->engine->member_count;
    struct convoy_blob *blobs = convoy_memory_array(count, sizeof *blobs);
    if (blobs == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u worker addresses", count);
    }
    size_t bytes = 0;
    const void *mine = convoy_link_address(remote->link, &bytes);
    int32_t status = convoy_bootstrap_exchange(bootstrap, mine, bytes, blobs, error);
    for (uint32_t member = 0; member < count && status == CONVOY_OK; member++) {
        remote->addresses[member] = convoy_memory_zalloc(blobs[member].bytes);
        remote->address_bytes[member] = blobs[member].bytes;
        if (remote->addresses[member] == NULL) {
            status = convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for worker addresses");
        } else {
            memcpy(remote->addresses[member], blobs[member].data, blobs[member].bytes);
        }
    }
    convoy_memory_free(blobs);
    return status;
}

/* Endpoints are made when there is something to send, long after the open: that no interface reaches a host is said
 * now, and not by a round that hears nothing. */
static int32_t remote_reach(const struct convoy_remote *remote, struct convoy_error *error)
{
    for (uint32_t host = 0; host < remote->host_count; host++) {
        uint32_t leader = remote->hosts[host].leader;
        if (host == remote->own_host) {
            continue;
        }
        int32_t status = convoy_link_reach(remote->link, leader, remote->addresses[leader],
                                           remote->address_bytes[leader], error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* UCX ends the process when it cannot open what it needs, so that is looked at before it is asked. */
static int32_t remote_check_descriptors(struct convoy_error *error)
{
    int fds[REMOTE_DESCRIPTORS];
    uint32_t count = 0;
    while (count < REMOTE_DESCRIPTORS && (fds[count] = eventfd(0, EFD_CLOEXEC)) >= 0) {
        count++;
    }
    int reason = errno;
    for (uint32_t i = 0; i < count; i++) {
        (void)close(fds[i]);
    }
    return count == REMOTE_DESCRIPTORS
               ? CONVOY_OK
               : convoy_error_set_errno(error, CONVOY_SYSTEM, reason, "links to other hosts need %u descriptors, %u are left",
                                        REMOTE_DESCRIPTORS, count);
}

int32_t convoy_remote_link_open(struct convoy_remote *remote, struct convoy_link **link_out, struct convoy_error *error)
{
    int32_t status = remote_check_descriptors(error);
    size_t bytes = remote->blob_bytes > CONVOY_REWIRE_BYTES_MAX ? remote->blob_bytes : CONVOY_REWIRE_BYTES_MAX;
    const struct convoy_link_options options = {
        .runtime = remote->engine->runtime,
        .peer_count = remote->engine->member_count,
        .message_bytes_max = bytes,
        .recv = convoy_remote_recv,
        .down = convoy_remote_down,
        .user = remote,
    };
    return status == CONVOY_OK ? convoy_link_open(&options, link_out, error) : status;
}

int32_t convoy_remote_open(struct convoy_engine *engine, struct convoy_bootstrap *bootstrap,
                           size_t partial_bytes_max, struct convoy_error *error)
{
    (void)partial_bytes_max; /* the segment was planned with it */
    if (engine->local.hosts.host_count > CONVOY_HOSTS_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "group %.*s spans %u hosts, at most %u are possible",
                                (int)engine->group->name_length, engine->group->name,
                                engine->local.hosts.host_count, CONVOY_HOSTS_MAX);
    }
    struct convoy_remote *remote = convoy_remote_create(engine);
    if (remote == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for links to other hosts");
    }
    int32_t status = convoy_remote_allocate(remote, error);
    if (status == CONVOY_OK) {
        status = convoy_remote_link_open(remote, &remote->link, error);
    }
    if (status == CONVOY_OK) {
        status = remote_exchange(remote, bootstrap, error);
    }
    if (status == CONVOY_OK) {
        status = remote_reach(remote, error);
    }
    if (status != CONVOY_OK) {
        if (remote->link != NULL) {
            convoy_link_close(remote->link, convoy_now_ns());
        }
        convoy_remote_free(remote);
        return status;
    }
    engine->remote = remote;
    return CONVOY_OK;
}
