/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that the rendezvous reads from a socket: hellos, frame bodies, streams of frames, and the listener's side
 * of the handshake. The first byte chooses. What is accepted must survive encoding and decoding again.
 */
#include "core/bytes.h"
#include "core/memory.h"
#include "net/frame.h"
#include "net/handshake.h"
#include "net/message.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void feed_hello(const uint8_t *data, size_t size)
{
    static uint8_t again[CONVOY_HELLO_BYTES_MAX];
    struct convoy_hello hello;
    struct convoy_hello back;
    struct convoy_hello_choice choice;
    if (convoy_hello_decode(data, size, &hello, NULL) != CONVOY_OK) {
        return;
    }
    size_t length = convoy_hello_encode(&hello, again);
    require(length <= size && convoy_hello_decode(again, length, &back, NULL) == CONVOY_OK);
    require(back.epoch == hello.epoch && back.has_group == hello.has_group && back.has_offer == hello.has_offer);
    require(!hello.has_group || convoy_hello_configuration(&back.group) == hello.configuration);
    (void)convoy_hello_choose(&hello, &back, &choice, NULL);
}

static void feed_notice(const uint8_t *data, size_t size)
{
    uint8_t again[CONVOY_NOTICE_BYTES_MAX];
    struct convoy_notice notice;
    if (convoy_notice_decode(data, size, &notice)) {
        require(notice.status < 0 && strlen(notice.text) < sizeof notice.text);
        require(convoy_notice_encode(&notice, again) <= size);
    }
}

static void feed_welcome(const uint8_t *data, size_t size)
{
    uint8_t again[CONVOY_WELCOME_BYTES];
    struct convoy_welcome welcome;
    if (convoy_welcome_decode(data, size, &welcome)) {
        convoy_welcome_encode(&welcome, again);
        require(memcmp(again, data, size) == 0);
    }
}

/* Four bytes of sequence, one of count, then the table. */
static void feed_table(const uint8_t *data, size_t size)
{
    struct convoy_blob blobs[256];
    if (size < 5 || !convoy_table_decode(data + 5, size - 5, convoy_bytes_u32(data), blobs, data[4])) {
        return;
    }
    require(convoy_table_bytes(blobs, data[4]) == size - 5);
    for (uint32_t i = 0; i < data[4]; i++) {
        require(blobs[i].data >= data + 5 && blobs[i].data + blobs[i].bytes <= data + size);
    }
}

/* The bytes come from a socket in two pieces; the first byte says where they are cut. */
static void feed_stream(const uint8_t *data, size_t size)
{
    int fds[2];
    if (size < 1 || size > 16384 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
        return;
    }
    struct convoy_frame_stream sender = {.fd = fds[0]};
    struct convoy_frame_stream stream = {.fd = fds[1], .limit = 4096};
    size_t cut = 1 + data[0] % size;
    const size_t ends[2] = {cut, size};
    size_t sent = 1;
    int32_t status = CONVOY_IN_PROGRESS;
    for (int i = 0; i < 2 && status == CONVOY_IN_PROGRESS; i++) {
        size_t end = ends[i] > sent ? ends[i] : sent;
        require(send(sender.fd, data + sent, end - sent, 0) == (ssize_t)(end - sent));
        sent = end;
        struct convoy_frame frame;
        while ((status = convoy_frame_recv(&stream, &frame)) == CONVOY_OK) {
            require(frame.bytes <= 4096);
            convoy_memory_free(frame.body);
        }
    }
    require(status != CONVOY_PEER_LOST && status != CONVOY_TRUNCATED);
    convoy_frame_close(&sender);
    convoy_frame_close(&stream);
}

/* A connection to the listener that sends this and stays: it is never taken for a member. */
static void feed_handshake(const uint8_t *data, size_t size)
{
    static struct convoy_runtime *runtime;
    static struct convoy_handshake handshake;
    const struct convoy_context_config config = {.struct_size = sizeof config, .secret = "key", .secret_bytes = 3};
    int fds[2];
    if (size > 16384 || (runtime == NULL && convoy_runtime_open(&config, &runtime, NULL) != CONVOY_OK) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
        return;
    }
    struct convoy_frame_stream sender = {.fd = fds[0]};
    struct convoy_frame_stream receiver = {.fd = fds[1]};
    memset(&handshake, 0, sizeof handshake);
    handshake.fd = receiver.fd;
    require(send(sender.fd, data, size, 0) == (ssize_t)size);
    require(convoy_handshake_step(&handshake, runtime) != CONVOY_OK);
    convoy_frame_close(&sender);
    convoy_frame_close(&receiver);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const feeds[])(const uint8_t *, size_t) = {feed_hello, feed_notice, feed_welcome,
                                                             feed_table, feed_stream, feed_handshake};
    if (size != 0) {
        feeds[data[0] % (sizeof feeds / sizeof feeds[0])](data + 1, size - 1);
    }
    return 0;
}
