/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/fake_link.h"

#include "core/error.h"
#include "tests/lib/expect.h"

#include <stdlib.h>
#include <string.h>

#define FAKE_STATUS_DOWN (-25) /* as UCX calls a reset connection */

struct fake_message {
    struct fake_message *next;
    size_t header_bytes;
    size_t data_bytes;
    uint8_t bytes[]; /* header, then data */
};

struct fake_queue {
    struct fake_message *first;
    uint32_t count;
    bool is_held;
};

struct convoy_link {
    struct convoy_link_options options;
    uint32_t index;
    bool is_progressing;
    enum convoy_link_state peers[FAKE_LINKS_MAX];
    uint32_t routes[FAKE_LINKS_MAX]; /* link of each peer */
    uint32_t connects;
};

static struct fake_net {
    uint32_t count;
    struct convoy_link *links[FAKE_LINKS_MAX]; /* NULL once it is closed */
    bool are_dead[FAKE_LINKS_MAX];
    bool are_refused[FAKE_LINKS_MAX];
    bool is_open_refused;
    uint32_t full_sends[FAKE_LINKS_MAX];
    struct fake_queue queues[FAKE_LINKS_MAX][FAKE_LINKS_MAX]; /* [from][to] */
} net;

static struct fake_message *queue_take(struct fake_queue *queue)
{
    struct fake_message *message = queue->first;
    if (message != NULL) {
        queue->first = message->next;
        queue->count--;
    }
    return message;
}

static void queue_clear(struct fake_queue *queue)
{
    for (struct fake_message *message; (message = queue_take(queue)) != NULL;) {
        free(message);
    }
}

void fake_links_reset(void)
{
    for (uint32_t from = 0; from < FAKE_LINKS_MAX; from++) {
        for (uint32_t to = 0; to < FAKE_LINKS_MAX; to++) {
            queue_clear(&net.queues[from][to]);
        }
    }
    memset(&net, 0, sizeof net);
}

void fake_links_hold(uint32_t from, uint32_t to, bool is_held)
{
    net.queues[from][to].is_held = is_held;
}

bool fake_links_pass(uint32_t from, uint32_t to)
{
    struct fake_message *message = queue_take(&net.queues[from][to]);
    struct convoy_link *link = net.links[to];
    if (message == NULL) {
        return false;
    }
    if (link != NULL && !net.are_dead[to]) {
        link->options.recv(link->options.user, message->bytes, message->header_bytes,
                           message->bytes + message->header_bytes, message->data_bytes);
    }
    free(message);
    return true;
}

uint32_t fake_links_number(const struct convoy_link *link)
{
    return link->index;
}

bool fake_links_lose(uint32_t from, uint32_t to)
{
    struct fake_message *message = queue_take(&net.queues[from][to]);
    free(message);
    return message != NULL;
}

uint32_t fake_links_connects(uint32_t from)
{
    return net.links[from]->connects;
}

void fake_links_refuse_open(bool is_refused)
{
    net.is_open_refused = is_refused;
}

uint32_t fake_links_waiting(uint32_t from, uint32_t to)
{
    return net.queues[from][to].count;
}

void fake_links_refuse(uint32_t to, bool is_refused)
{
    net.are_refused[to] = is_refused;
}

void fake_links_fill(uint32_t from, uint32_t sends)
{
    net.full_sends[from] = sends;
}

uint32_t fake_links_under_way(void)
{
    uint32_t count = 0;
    for (uint32_t from = 0; from < net.count; from++) {
        for (uint32_t to = 0; to < net.count; to++) {
            bool is_moving = !net.queues[from][to].is_held && !net.are_dead[to] && net.links[to] != NULL;
            count += is_moving ? net.queues[from][to].count : 0;
        }
    }
    return count;
}

void fake_links_kill(uint32_t index)
{
    net.are_dead[index] = true;
    for (uint32_t to = 0; to < FAKE_LINKS_MAX; to++) {
        if (net.queues[index][to].is_held) {
            queue_clear(&net.queues[index][to]);
        }
    }
}

/* -- net/link.h -------------------------------------------------------------------------------------------------- */

int32_t convoy_link_open(const struct convoy_link_options *options, struct convoy_link **link_out,
                         struct convoy_error *error)
{
    if (net.is_open_refused) {
        return convoy_error_set(error, CONVOY_INIT_FAILED, "there is no network");
    }
    EXPECT(net.count < FAKE_LINKS_MAX && options->peer_count <= FAKE_LINKS_MAX);
    struct convoy_link *link = calloc(1, sizeof *link);
    EXPECT(link != NULL);
    link->options = *options;
    link->index = net.count++;
    net.links[link->index] = link;
    *link_out = link;
    return CONVOY_OK;
}

void convoy_link_close(struct convoy_link *link, uint64_t deadline_ns)
{
    (void)deadline_ns;
    if (link != NULL) {
        net.links[link->index] = NULL;
        free(link);
    }
}

const void *convoy_link_address(const struct convoy_link *link, size_t *bytes_out)
{
    *bytes_out = sizeof link->index;
    return &link->index;
}

int32_t convoy_link_connect(struct convoy_link *link, uint32_t peer, const void *address, size_t bytes,
                            struct convoy_error *error)
{
    uint32_t to = 0;
    EXPECT_EQUAL(bytes, sizeof to);
    memcpy(&to, address, sizeof to);
    if (net.are_refused[to]) {
        return convoy_error_set(error, CONVOY_UNREACHABLE, "nobody connects to %u", peer);
    }
    link->peers[peer] = CONVOY_LINK_UP;
    link->routes[peer] = to;
    link->connects++;
    return CONVOY_OK;
}

void convoy_link_fail(struct convoy_link *link, uint32_t peer)
{
    link->peers[peer] = CONVOY_LINK_FAILED;
}

int32_t convoy_link_reach(const struct convoy_link *link, uint32_t peer, const void *address, size_t bytes,
                          struct convoy_error *error)
{
    (void)link;
    (void)peer;
    (void)address;
    (void)bytes;
    (void)error;
    return CONVOY_OK;
}

enum convoy_link_state convoy_link_peer_state(const struct convoy_link *link, uint32_t peer)
{
    return link->peers[peer];
}

int32_t convoy_link_send(struct convoy_link *link, uint32_t peer, const void *header, size_t header_bytes,
                         const void *data, size_t bytes)
{
    struct fake_queue *queue = &net.queues[link->index][link->routes[peer]];
    if (net.full_sends[link->index] != 0) {
        net.full_sends[link->index]--;
        return CONVOY_LIMIT;
    }
    struct fake_message *message = calloc(1, sizeof *message + header_bytes + bytes);
    EXPECT(message != NULL);
    message->header_bytes = header_bytes;
    message->data_bytes = bytes;
    memcpy(message->bytes, header, header_bytes);
    if (bytes != 0) {
        memcpy(message->bytes + header_bytes, data, bytes);
    }
    struct fake_message **end = &queue->first;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = message;
    queue->count++;
    return CONVOY_OK;
}

uint32_t convoy_link_pending(const struct convoy_link *link)
{
    (void)link;
    return 0;
}

uint32_t convoy_link_progress(struct convoy_link *link)
{
    uint32_t events = 0;
    if (link->is_progressing) {
        return 0;
    }
    link->is_progressing = true;
    for (uint32_t from = 0; from < net.count; from++) {
        while (!net.queues[from][link->index].is_held && fake_links_pass(from, link->index)) {
            events++;
        }
    }
    for (uint32_t peer = 0; peer < link->options.peer_count; peer++) {
        uint32_t from = link->routes[peer];
        bool is_gone = net.are_dead[from] || net.links[from] == NULL;
        if (link->peers[peer] == CONVOY_LINK_UP && is_gone && fake_links_waiting(from, link->index) == 0) {
            link->peers[peer] = CONVOY_LINK_FAILED;
            link->options.down(link->options.user, peer, FAKE_STATUS_DOWN);
            events++;
        }
    }
    link->is_progressing = false;
    return events;
}

/* Nobody sleeps in one thread. */
bool convoy_link_arm(struct convoy_link *link)
{
    (void)link;
    return false;
}

void convoy_link_sleep(struct convoy_link *link, int wake_fd, uint64_t deadline_ns)
{
    (void)wake_fd;
    (void)deadline_ns;
    (void)convoy_link_progress(link);
}

int convoy_link_fd(const struct convoy_link *link)
{
    (void)link;
    return -1;
}

json_t *convoy_link_describe(const struct convoy_link *link)
{
    (void)link;
    return NULL;
}

void convoy_link_peer_transports(const struct convoy_link *link, uint32_t peer,
                                 char text_out[CONVOY_LINK_TRANSPORTS_BYTES])
{
    (void)link;
    (void)peer;
    text_out[0] = '\0';
}

const char *convoy_link_state_text(enum convoy_link_state state)
{
    (void)state;
    return "fake";
}
