/* SPDX-License-Identifier: Apache-2.0 */
#include "net/local.h"

#include "core/error.h"
#include "core/memory.h"
#include "net/liveness.h"
#include "net/local_join.h"
#include "net/local_roll.h"
#include "net/local_serve.h"
#include "net/local_socket.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

struct opening {
    const struct convoy_local_request *request;
    struct convoy_local_roll roll;
    struct convoy_local_socket at;
    int channel_fd; /* to the leader, or -1 */
    struct convoy_local_join join;
};

static void opening_fini(struct opening *opening)
{
    if (opening->channel_fd >= 0) {
        (void)close(opening->channel_fd);
    }
    convoy_local_socket_fini(&opening->at);
    if (opening->join.pidfds != NULL) {
        convoy_local_join_release(&opening->join);
        convoy_memory_free(opening->join.pidfds);
    }
    if (opening->join.own_pidfd >= 0) {
        (void)close(opening->join.own_pidfd);
    }
    convoy_local_roll_fini(&opening->roll);
}

static int32_t opening_init(struct opening *opening, const struct convoy_local_request *request,
                            struct convoy_error *error)
{
    uint32_t count = (uint32_t)request->options->member_count;
    assert(request->options->own_index < count);
    *opening = (struct opening){.request = request, .channel_fd = -1};
    opening->at = (struct convoy_local_socket){.abstract_fd = -1, .path_fd = -1, .directory_fd = -1};
    opening->join = (struct convoy_local_join){.request = request,
                                               .own_index = request->options->own_index,
                                               .member_count = count,
                                               .own_pidfd = -1,
                                               .segment_fd = -1};
    opening->join.pidfds = convoy_memory_array(count, sizeof *opening->join.pidfds);
    if (opening->join.pidfds != NULL) {
        memset(opening->join.pidfds, 0xff, count * sizeof *opening->join.pidfds); /* -1 each */
    }
    if (opening->join.pidfds == NULL || convoy_local_roll_init(&opening->roll, request) != CONVOY_OK) {
        convoy_memory_free(opening->join.pidfds);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to find the members of this host");
    }
    return CONVOY_OK;
}

/* Starts to listen, before anybody can know where. What fails here only means that memory is not shared. */
static void prepare(struct opening *opening)
{
    const struct convoy_settings *settings = &opening->request->runtime->settings;
    struct convoy_host_keys *keys = &opening->roll.mine.keys;
    if (strcmp(settings->net, "ucx") == 0) {
        keys->flags = CONVOY_HOST_ONLY_UCX;
        return;
    }
    struct convoy_error cause = CONVOY_ERROR_INIT;
    const struct convoy_local_socket_options options = {.session = opening->request->agreement->session,
                                                        .index = opening->join.own_index,
                                                        .shared_directory = settings->shared_directory};
    if (convoy_local_socket_open(&options, &opening->at, keys, &cause) != CONVOY_OK) {
        convoy_local_roll_reason(&opening->roll, &cause);
    }
    if (convoy_liveness_self(&opening->join.own_pidfd, &cause) != CONVOY_OK) { /* its death could not be noticed */
        convoy_local_roll_reason(&opening->roll, &cause);
        convoy_local_socket_stop(&opening->at);
        keys->flags &= CONVOY_HOST_HAS_BOOT;
    }
    if (strcmp(settings->net, "shm") == 0) {
        keys->flags |= CONVOY_HOST_ONLY_SHM;
    }
}

/* Connects to the leader and says JOIN. Never waits with deadline 0. */
static uint32_t approach(struct opening *opening, uint32_t leader, uint64_t deadline_ns)
{
    const struct convoy_host_keys *keys = opening->roll.keys;
    const struct convoy_local_socket_target target = {
        .index = leader,
        .by_network = convoy_host_keys_share_network(&keys[opening->join.own_index], &keys[leader]),
        .by_directory = convoy_host_keys_share_directory(&keys[opening->join.own_index], &keys[leader]),
    };
    struct convoy_error cause = CONVOY_ERROR_INIT;
    int32_t status =
        convoy_local_socket_connect(&opening->at, &target, deadline_ns, &opening->channel_fd, &cause);
    if (status == CONVOY_IN_PROGRESS) {
        return CONVOY_LOCAL_LATER;
    }
    if (status == CONVOY_OK) {
        status = convoy_local_join_ask(&opening->join, opening->channel_fd, leader, &cause);
    }
    if (status != CONVOY_OK) {
        convoy_local_roll_reason(&opening->roll, &cause);
        return CONVOY_LOCAL_NOT_JOINING;
    }
    return CONVOY_LOCAL_CONNECTED;
}

/* The follower's part between the second and the third exchange. Returns whom it joined. */
static uint32_t follow(struct opening *opening, uint32_t leader, uint32_t coming)
{
    if (coming == CONVOY_LOCAL_LATER) {
        coming = approach(opening, leader, opening->request->deadline_ns);
    }
    if (coming != CONVOY_LOCAL_CONNECTED) {
        return opening->join.own_index;
    }
    struct convoy_error cause = CONVOY_ERROR_INIT;
    if (convoy_local_join_receive(&opening->join, opening->channel_fd, leader, &cause) != CONVOY_OK) {
        convoy_local_roll_reason(&opening->roll, &cause);
        return opening->join.own_index;
    }
    return leader;
}

/* Second and third exchange, and what lies between. */
static int32_t meet(struct opening *opening, struct convoy_error *error)
{
    uint32_t own = opening->join.own_index;
    uint32_t leader = opening->roll.leader_of[own];
    uint32_t coming = CONVOY_LOCAL_NOT_JOINING;
    if (leader != own) {
        convoy_local_socket_stop(&opening->at);
        coming = approach(opening, leader, 0);
    }
    int32_t status = convoy_local_roll_coming(&opening->roll, coming, error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint32_t joined = own;
    if (leader != own) {
        joined = follow(opening, leader, coming);
    } else {
        struct convoy_error cause = CONVOY_ERROR_INIT;
        status = convoy_local_serve(&opening->join, &opening->at, opening->roll.coming, &cause);
        if (status == CONVOY_NO_MEMORY) {
            return convoy_error_set(error, status, "%s", cause.text);
        }
        if (status != CONVOY_OK) {
            convoy_local_roll_reason(&opening->roll, &cause);
        }
    }
    return convoy_local_roll_joined(&opening->roll, joined, error);
}

/* Keeps what belongs to the final host: a member may have dropped out after the pidfds were handed round. */
static int32_t settle(struct opening *opening, const struct convoy_host_map *map, struct convoy_error *error)
{
    struct convoy_local_join *join = &opening->join;
    uint32_t own_host = map->host_of[join->own_index];
    if (convoy_host_map_size(map, join->own_index) == 1) {
        convoy_local_join_release(join);
        return CONVOY_OK;
    }
    for (uint32_t i = 0; i < join->member_count; i++) {
        if (map->host_of[i] != own_host && join->pidfds[i] >= 0) {
            (void)close(join->pidfds[i]);
            join->pidfds[i] = -1;
        }
        if (map->host_of[i] == own_host && i != join->own_index && join->pidfds[i] < 0) {
            int32_t id = opening->request->options->member_ids[i];
            return convoy_error_set_peer(error, CONVOY_MALFORMED, id, 0,
                                         "rank %d says it joined this host, but its process descriptor never arrived",
                                         id);
        }
    }
    return CONVOY_OK;
}

static int32_t run(struct opening *opening, struct convoy_host_map *map_out, struct convoy_error *error)
{
    bool any = false;
    prepare(opening);
    int32_t status = convoy_local_roll_keys(&opening->roll, &any, error);
    if (status == CONVOY_OK && any) {
        status = meet(opening, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_local_roll_map(&opening->roll, map_out, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    status = settle(opening, map_out, error);
    if (status != CONVOY_OK) {
        convoy_host_map_fini(map_out);
    }
    return status;
}

int32_t convoy_local_open(const struct convoy_local_request *request, struct convoy_local *local_out,
                          struct convoy_error *error)
{
    struct opening opening;
    struct convoy_host_map map;
    int32_t status = opening_init(&opening, request, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = run(&opening, &map, error);
    if (status == CONVOY_OK) {
        convoy_local_roll_warn(&opening.roll, &map);
        *local_out = (struct convoy_local){.segment_fd = opening.join.segment_fd,
                                           .segment_bytes = opening.join.segment_bytes,
                                           .pidfds = opening.join.pidfds,
                                           .hosts = map};
        opening.join.pidfds = NULL; /* both are the caller's now */
    }
    opening_fini(&opening);
    return status;
}

void convoy_local_fini(struct convoy_local *local)
{
    for (uint32_t i = 0; local->pidfds != NULL && i < local->hosts.member_count; i++) {
        if (local->pidfds[i] >= 0) {
            (void)close(local->pidfds[i]);
        }
    }
    if (local->segment_fd >= 0) {
        (void)close(local->segment_fd);
    }
    convoy_memory_free(local->pidfds);
    convoy_host_map_fini(&local->hosts);
    *local = (struct convoy_local){.segment_fd = -1};
}
