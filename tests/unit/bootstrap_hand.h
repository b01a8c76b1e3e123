/* SPDX-License-Identifier: Apache-2.0 */
/* Plain sockets and members played by hand, for the tests of net/bootstrap; and a check that nothing is left behind. */
#ifndef CONVOY_TESTS_UNIT_BOOTSTRAP_HAND_H
#define CONVOY_TESTS_UNIT_BOOTSTRAP_HAND_H

#include "core/memory.h"
#include "net/frame.h"
#include "net/handshake.h"
#include "net/message.h"
#include "tests/unit/bootstrap_cast.h"

#include <poll.h>

static inline int connect_plain(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    uint64_t end_ns = convoy_now_ns() + CAST_TIMEOUT_NS;
    for (;;) { /* the listener may not be there yet */
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            return fd;
        }
        (void)close(fd);
        if (convoy_now_ns() > end_ns) {
            fail_msg("nobody listens");
        }
        (void)sched_yield();
    }
}

/* Connects as member 1 and is admitted; the caller holds the stream. */
static inline void join_by_hand(const struct cast *cast, struct convoy_runtime *runtime,
                                struct convoy_frame_stream *stream)
{
    struct convoy_hello hello;
    struct convoy_hello theirs;
    struct convoy_frame frame;
    const struct convoy_wait wait = {.cancel_fd = -1, .deadline_ns = convoy_now_ns() + CAST_TIMEOUT_NS};
    assert_int_equal(convoy_handshake_hello(runtime, &hello, NULL), CONVOY_OK);
    hello.epoch = 7;
    hello.has_group = true;
    hello.group = (struct convoy_hello_group){.name = cast->name,
                                              .name_length = (uint32_t)strlen(cast->name),
                                              .member_ids = cast->ids,
                                              .member_count = cast->count,
                                              .own_index = 1,
                                              .own_id = cast->ids[1],
                                              .blob_bytes_max = 16384};
    for (uint16_t type = 0; type != CONVOY_MESSAGE_HEARD;) {
        *stream = (struct convoy_frame_stream){.fd = connect_plain(cast->port), .limit = 4096};
        assert_int_equal(convoy_handshake_connect(runtime, stream->fd, &wait, &hello, &theirs, NULL), CONVOY_OK);
        assert_int_equal(convoy_frame_wait_recv(stream, &wait, &frame), CONVOY_OK);
        type = frame.type; /* "no such group" in the moment before its seat is taken */
        convoy_memory_free(frame.body);
        if (type != CONVOY_MESSAGE_HEARD) {
            convoy_frame_close(stream);
        }
    }
}

/* Reads until a message of this type; its notice, if asked for. Other status: the stream ended. */
static inline int32_t await_message(struct convoy_frame_stream *stream, uint16_t type, struct convoy_notice *notice_out)
{
    const struct convoy_wait wait = {.cancel_fd = -1, .deadline_ns = convoy_now_ns() + CAST_TIMEOUT_NS};
    struct convoy_frame frame = {.type = 0};
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && frame.type != type) {
        status = convoy_frame_wait_recv(stream, &wait, &frame);
        if (status == CONVOY_OK) {
            bool is_wanted = frame.type == type && notice_out != NULL;
            assert_true(!is_wanted || convoy_notice_decode(frame.body, frame.bytes, notice_out));
            convoy_memory_free(frame.body);
        }
    }
    return status;
}

/* true: the other side ended the connection. */
static inline bool is_dropped(int fd)
{
    char bytes[4096];
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    while (poll(&poll_fd, 1, (int)(CAST_TIMEOUT_NS / CONVOY_NS_PER_MS)) == 1) {
        if (recv(fd, bytes, sizeof bytes, 0) <= 0) {
            return true;
        }
    }
    return false;
}

static inline int count_before(void **state)
{
    static uint32_t before;
    before = cast_count_resources();
    *state = &before;
    return 0;
}

/* Whatever was refused, no descriptor and no thread stays. */
static inline int count_after(void **state)
{
    return cast_resources_are(*(uint32_t *)*state) ? 0 : -1;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, count_before, count_after)

#endif
