/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/fake_wire.h"

#include "core/error.h"
#include "tests/lib/expect.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define QUEUE 4096u

struct message {
    uint8_t header[CONVOY_LINK_HEADER_MAX];
    size_t header_bytes;
    size_t bytes;
    uint8_t data[];
};

struct convoy_link {
    struct convoy_link_options options;
    struct convoy_link *other;
    struct message *queue[QUEUE];
    uint32_t count;
    enum convoy_link_state state;
    bool must_tell;
    bool is_progressing;
    int fd;
};

struct fake_wire fake_wire;

void fake_wire_reset(void)
{
    fake_wire = (struct fake_wire){.segment_bytes = 0};
}

/* -- what the test does -------------------------------------------------------------------------------------------- */

uint32_t fake_wire_waiting(const struct convoy_link *link)
{
    return link->count;
}

uint8_t *fake_wire_header(const struct convoy_link *link, uint32_t index)
{
    EXPECT(index < link->count);
    return link->queue[index]->header;
}

uint8_t *fake_wire_data(const struct convoy_link *link, uint32_t index, size_t *bytes_out)
{
    EXPECT(index < link->count);
    *bytes_out = link->queue[index]->bytes;
    return link->queue[index]->data;
}

void fake_wire_inject(struct convoy_link *link, const void *header, size_t header_bytes, const void *data,
                      size_t bytes)
{
    struct message *message = calloc(1, sizeof *message + bytes);
    EXPECT(message != NULL && link->count < QUEUE);
    memcpy(message->header, header, header_bytes);
    message->header_bytes = header_bytes;
    message->bytes = bytes;
    if (bytes != 0) {
        memcpy(message->data, data, bytes);
    }
    link->queue[link->count++] = message;
}

void fake_wire_repeat(struct convoy_link *link, uint32_t index)
{
    EXPECT(index < link->count);
    const struct message *message = link->queue[index];
    fake_wire_inject(link, message->header, message->header_bytes, message->data, message->bytes);
}

void fake_wire_lose(struct convoy_link *link, uint32_t index)
{
    EXPECT(index < link->count);
    free(link->queue[index]);
    link->count--;
    memmove(&link->queue[index], &link->queue[index + 1], (link->count - index) * sizeof link->queue[0]);
}

void fake_wire_break(struct convoy_link *link)
{
    convoy_link_fail(link, 0);
}

/* -- what bulk calls ----------------------------------------------------------------------------------------------- */

int32_t convoy_link_open(const struct convoy_link_options *options, struct convoy_link **link_out,
                         struct convoy_error *error)
{
    struct convoy_link *link = calloc(1, sizeof *link);
    EXPECT(link != NULL);
    (void)error;
    link->options = *options;
    link->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    *link_out = link;
    return CONVOY_OK;
}

const void *convoy_link_address(const struct convoy_link *link, size_t *bytes_out)
{
    static _Thread_local const struct convoy_link *address;
    address = link;
    *bytes_out = sizeof address;
    return &address;
}

int32_t convoy_link_connect(struct convoy_link *link, uint32_t peer, const void *address, size_t bytes,
                            struct convoy_error *error)
{
    EXPECT(peer == 0);
    if (bytes != sizeof link->other) {
        return convoy_error_set(error, CONVOY_MALFORMED, "not an address");
    }
    memcpy(&link->other, address, sizeof link->other);
    link->state = CONVOY_LINK_UP;
    link->must_tell = false;
    return CONVOY_OK;
}

void convoy_link_fail(struct convoy_link *link, uint32_t peer)
{
    EXPECT(peer == 0);
    if (link->state == CONVOY_LINK_UP) {
        link->state = CONVOY_LINK_FAILED;
        link->must_tell = true;
    }
}

int32_t convoy_link_send(struct convoy_link *link, uint32_t peer, const void *header, size_t header_bytes,
                         const void *data, size_t bytes)
{
    EXPECT(peer == 0 && !link->is_progressing);
    if (fake_wire.fail_sends != 0) {
        fake_wire.fail_sends--;
        convoy_link_fail(link, 0);
    }
    if (link->state != CONVOY_LINK_UP) {
        return CONVOY_PEER_LOST;
    }
    fake_wire_inject(link->other, header, header_bytes, data, bytes);
    return CONVOY_OK;
}

int32_t convoy_link_offer(struct convoy_link *link, uint32_t peer, const void *header, size_t header_bytes,
                          const void *data, size_t bytes)
{
    bool is_long = fake_wire.segment_bytes != 0 && header_bytes + bytes > fake_wire.segment_bytes;
    bool is_unlucky = fake_wire.random != NULL && fake_wire.random() % 256 < fake_wire.refuse_of_256;
    fake_wire.offers++;
    if (is_long || is_unlucky || fake_wire.refuse != 0 || link->other->count > QUEUE / 2) {
        fake_wire.refuse -= fake_wire.refuse != 0;
        fake_wire.refused++;
        return CONVOY_LIMIT;
    }
    return convoy_link_send(link, peer, header, header_bytes, data, bytes);
}

uint32_t convoy_link_pending(const struct convoy_link *link)
{
    (void)link;
    return 0;
}

uint32_t convoy_link_progress(struct convoy_link *link)
{
    uint32_t events = 0;
    if (link->count != 0) {
        struct message *message = link->queue[0];
        link->count--;
        memmove(&link->queue[0], &link->queue[1], link->count * sizeof link->queue[0]);
        link->is_progressing = true;
        link->options.recv(link->options.user, message->header, message->header_bytes, message->data, message->bytes);
        link->is_progressing = false;
        free(message);
        events++;
    }
    if (link->must_tell) {
        link->must_tell = false;
        link->options.down(link->options.user, 0, -1);
        events++;
    }
    return events;
}

bool convoy_link_arm(struct convoy_link *link)
{
    return convoy_link_progress(link) == 0;
}

bool convoy_link_is_closed(const struct convoy_link *link, uint32_t peer)
{
    EXPECT(peer == 0);
    return link->state != CONVOY_LINK_UP && !link->must_tell;
}

int convoy_link_fd(const struct convoy_link *link)
{
    return link->fd;
}

void convoy_link_close(struct convoy_link *link, uint64_t deadline_ns)
{
    (void)deadline_ns;
    while (link != NULL && link->count != 0) {
        fake_wire_lose(link, link->count - 1);
    }
    if (link != NULL) {
        (void)close(link->fd);
    }
    free(link);
}

void convoy_link_peer_transports(const struct convoy_link *link, uint32_t peer,
                                 char text_out[CONVOY_LINK_TRANSPORTS_BYTES])
{
    (void)link;
    (void)peer;
    memset(text_out, 0, CONVOY_LINK_TRANSPORTS_BYTES);
}
