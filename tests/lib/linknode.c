/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/linknode.h"

#include "core/clock.h"
#include "core/error.h"

#include <string.h>

struct linknode_header {
    uint64_t number;
    uint64_t bytes;
    uint32_t from;
    uint32_t filler[9];
};

static uint8_t pattern(uint64_t number, size_t at)
{
    return (uint8_t)(number * 31 + at);
}

static void node_recv(void *user, const void *header, size_t header_bytes, const void *data, size_t bytes)
{
    struct linknode *node = user;
    struct linknode_header head = {0};
    if (header_bytes != sizeof head) {
        node->wrong++;
        return;
    }
    memcpy(&head, header, sizeof head);
    bool is_right = head.bytes == bytes;
    for (size_t i = 0; is_right && i < bytes; i++) {
        is_right = ((const uint8_t *)data)[i] == pattern(head.number, i);
    }
    node->wrong += !is_right;
    node->last = head.number;
    node->last_bytes = bytes;
    node->last_from = head.from;
    node->received++;
}

static void node_down(void *user, uint32_t peer, int32_t ucx_status)
{
    struct linknode *node = user;
    (void)ucx_status;
    node->downs++;
    node->last_down = peer;
}

void linknode_open(struct linknode *node, const struct rank *rank, const char *settings)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    memset(node, 0, sizeof *node);
    node->rank = rank;
    node->shared = rank->shared;
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .settings = settings,
                                                 .settings_length = settings != NULL ? strlen(settings) : 0};
    EXPECT_OK(convoy_runtime_open(&config, &node->runtime, &error), &error);
    const struct convoy_link_options options = {.runtime = node->runtime,
                                                .peer_count = LINKNODE_RANKS,
                                                .message_bytes_max = LINKNODE_LONG_BYTES,
                                                .recv = node_recv,
                                                .down = node_down,
                                                .user = node};
    EXPECT_OK(convoy_link_open(&options, &node->link, &error), &error);
    size_t bytes;
    const void *address = convoy_link_address(node->link, &bytes);
    EXPECT(bytes <= sizeof node->shared->ports[0].address);
    memcpy(node->shared->ports[rank->index].address, address, bytes);
    node->shared->ports[rank->index].bytes = bytes;
    rank_barrier(rank);
}

void linknode_connect(struct linknode *node, uint32_t peer)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    EXPECT_OK(convoy_link_connect(node->link, peer, node->shared->ports[peer].address,
                                  (size_t)node->shared->ports[peer].bytes, &error),
              &error);
}

int32_t linknode_send(struct linknode *node, uint32_t peer, uint64_t number, size_t bytes)
{
    static _Thread_local uint8_t data[LINKNODE_LONG_BYTES]; /* ranks may be threads */
    const struct linknode_header header = {.number = number, .bytes = bytes, .from = node->rank->index};
    for (size_t i = 0; i < bytes; i++) {
        data[i] = pattern(number, i);
    }
    int32_t status = convoy_link_send(node->link, peer, &header, sizeof header, data, bytes);
    while (status == CONVOY_LIMIT) {
        convoy_link_sleep(node->link, -1, convoy_deadline_after(convoy_now_ns(), CONVOY_NS_PER_S));
        status = convoy_link_send(node->link, peer, &header, sizeof header, data, bytes);
    }
    return status;
}

bool linknode_await(struct linknode *node, const uint64_t *counter, uint64_t value, bool sleeping, uint32_t timeout_ms)
{
    uint64_t deadline = convoy_now_ns() + timeout_ms * CONVOY_NS_PER_MS;
    while (*counter < value || convoy_link_pending(node->link) != 0) {
        if (convoy_now_ns() > deadline) {
            return false;
        }
        if (sleeping) {
            convoy_link_sleep(node->link, -1, deadline);
        } else {
            (void)convoy_link_progress(node->link);
        }
    }
    return true;
}

bool linknode_await_down(struct linknode *node, uint32_t downs, uint32_t timeout_ms)
{
    uint64_t deadline = convoy_now_ns() + timeout_ms * CONVOY_NS_PER_MS;
    while (node->downs < downs && convoy_now_ns() < deadline) {
        convoy_link_sleep(node->link, -1, deadline);
    }
    return node->downs >= downs;
}

uint64_t linknode_close(struct linknode *node, uint64_t timeout_ns)
{
    uint64_t start = convoy_now_ns();
    convoy_link_close(node->link, convoy_deadline_after(start, timeout_ns));
    uint64_t took_ms = (convoy_now_ns() - start) / CONVOY_NS_PER_MS;
    convoy_runtime_destroy(node->runtime);
    return took_ms;
}
