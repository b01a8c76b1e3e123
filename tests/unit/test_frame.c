/* SPDX-License-Identifier: Apache-2.0 */
#include "net/frame.h"

#include "core/bytes.h"
#include "core/memory.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT 70000u

/* Two connected streams. */
static void make_pair(struct convoy_frame_stream streams[2])
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; i++) {
        streams[i] = (struct convoy_frame_stream){.fd = fds[i], .limit = LIMIT};
    }
}

static void close_pair(struct convoy_frame_stream streams[2])
{
    convoy_frame_close(&streams[0]);
    convoy_frame_close(&streams[1]);
}

static void test_frame_head_checks_length_and_spare_bytes(void **state)
{
    (void)state;
    uint8_t head[CONVOY_FRAME_HEAD_BYTES];
    uint16_t type;
    uint32_t bytes;
    convoy_frame_head_encode(head, 0x0506, 0x01020304);
    assert_memory_equal(head, "\4\3\2\1\6\5\0\0", 8);
    assert_int_equal(convoy_frame_head_decode(head, 0x01020304, &type, &bytes), CONVOY_OK);
    assert_int_equal(type, 0x0506);
    assert_int_equal(bytes, 0x01020304);
    assert_int_equal(convoy_frame_head_decode(head, 0x01020303, &type, &bytes), CONVOY_LIMIT);
    head[7] = 1;
    assert_int_equal(convoy_frame_head_decode(head, UINT32_MAX, &type, &bytes), CONVOY_MALFORMED);
}

static void test_frame_sent_in_single_bytes_arrives_whole(void **state)
{
    (void)state;
    struct convoy_frame_stream streams[2];
    struct convoy_frame frame;
    static const uint8_t bytes[] = {3, 0, 0, 0, 9, 0, 0, 0, 'a', 'b', 'c', 0, 0, 0, 0, 4, 0, 0, 0};
    make_pair(streams);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(send(streams[0].fd, bytes + i, 1, 0), 1);
        int32_t status = convoy_frame_recv(&streams[1], &frame);
        bool is_end = i == 10 || i == 18;
        assert_int_equal(status, is_end ? CONVOY_OK : CONVOY_IN_PROGRESS);
        if (is_end) {
            assert_int_equal(frame.type, i == 10 ? 9 : 4);
            assert_int_equal(frame.bytes, i == 10 ? 3 : 0);
            assert_memory_equal(frame.body, "abc", frame.bytes);
            convoy_memory_free(frame.body);
        }
    }
    close_pair(streams);
}

/* The other side ends at every byte of a frame: between frames is an end, inside is a truncation. */
static void test_frame_cut_at_any_byte_is_truncated(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {2, 0, 0, 0, 1, 0, 0, 0, 'a', 'b'};
    for (size_t cut = 0; cut < sizeof bytes; cut++) {
        struct convoy_frame_stream streams[2];
        struct convoy_frame frame;
        make_pair(streams);
        assert_int_equal(send(streams[0].fd, bytes, cut, 0), cut);
        convoy_frame_close(&streams[0]);
        assert_int_equal(convoy_frame_recv(&streams[1], &frame), cut == 0 ? CONVOY_PEER_LOST : CONVOY_TRUNCATED);
        close_pair(streams);
    }
}

static void test_frame_over_its_limit_takes_no_memory(void **state)
{
    (void)state;
    struct convoy_frame_stream streams[2];
    struct convoy_frame frame;
    uint8_t head[CONVOY_FRAME_HEAD_BYTES];
    make_pair(streams);
    convoy_frame_head_encode(head, 1, LIMIT + 1);
    assert_int_equal(send(streams[0].fd, head, sizeof head, 0), sizeof head);
    assert_int_equal(convoy_frame_recv(&streams[1], &frame), CONVOY_LIMIT);
    assert_null(streams[1].frame.body);
    close_pair(streams);
}

/* More than the socket takes: flush goes on where it stopped, in order, queue before shared bytes. */
static void test_frame_flush_goes_on_where_the_socket_was_full(void **state)
{
    (void)state;
    static uint8_t body[LIMIT];
    static uint8_t shared[CONVOY_FRAME_HEAD_BYTES + LIMIT];
    struct convoy_frame_stream streams[2];
    memset(body, 'q', sizeof body);
    memset(shared, 's', sizeof shared);
    convoy_frame_head_encode(shared, 99, LIMIT);
    make_pair(streams);
    for (uint16_t i = 0; i < 20; i++) {
        assert_int_equal(convoy_frame_queue(&streams[0], i, body, sizeof body), CONVOY_OK);
    }
    convoy_frame_share(&streams[0], shared, sizeof shared);
    uint32_t received = 0;
    uint32_t stops = 0;
    while (received < 21) {
        struct convoy_frame frame;
        stops += convoy_frame_flush(&streams[0]) == CONVOY_IN_PROGRESS;
        while (convoy_frame_recv(&streams[1], &frame) == CONVOY_OK) {
            assert_int_equal(frame.type, received < 20 ? received : 99);
            assert_int_equal(frame.body[LIMIT - 1], received < 20 ? 'q' : 's');
            convoy_memory_free(frame.body);
            received++;
        }
    }
    assert_true(stops > 0);
    assert_false(convoy_frame_has_output(&streams[0]));
    close_pair(streams);
}

/* Between two halves of somebody's frame nothing can be put. */
static void test_frame_queue_behind_half_sent_shared_bytes_is_busy(void **state)
{
    (void)state;
    static uint8_t shared[4u << 20];
    struct convoy_frame_stream streams[2];
    make_pair(streams);
    convoy_frame_share(&streams[0], shared, sizeof shared);
    assert_int_equal(convoy_frame_flush(&streams[0]), CONVOY_IN_PROGRESS);
    assert_int_equal(convoy_frame_queue(&streams[0], 1, "x", 1), CONVOY_BUSY);
    close_pair(streams);
}

static void test_frame_to_a_closed_peer_is_lost_without_a_signal(void **state)
{
    (void)state;
    struct convoy_frame_stream streams[2];
    make_pair(streams);
    convoy_frame_close(&streams[1]);
    assert_int_equal(convoy_frame_queue(&streams[0], 1, "x", 1), CONVOY_OK);
    assert_int_equal(convoy_frame_flush(&streams[0]), CONVOY_PEER_LOST);
    close_pair(streams);
}

static void test_frame_waiting_ends_at_deadline_or_cancel(void **state)
{
    (void)state;
    struct convoy_frame_stream streams[2];
    struct convoy_frame frame;
    uint8_t bytes[4];
    make_pair(streams);
    struct convoy_wait wait = {.cancel_fd = eventfd(0, EFD_CLOEXEC), .deadline_ns = convoy_now_ns() + CONVOY_NS_PER_MS};
    assert_int_equal(convoy_frame_wait_recv(&streams[1], &wait, &frame), CONVOY_TIMED_OUT);
    assert_int_equal(convoy_frame_wait_read(streams[1].fd, &wait, bytes, 4), CONVOY_TIMED_OUT);
    wait.deadline_ns = CONVOY_DEADLINE_NEVER;
    assert_int_equal(eventfd_write(wait.cancel_fd, 1), 0);
    assert_int_equal(convoy_frame_wait_recv(&streams[1], &wait, &frame), CONVOY_CANCELED);
    assert_int_equal(convoy_frame_wait_read(streams[1].fd, &wait, bytes, 4), CONVOY_CANCELED);
    assert_int_equal(send(streams[0].fd, "abcd", 4, 0), 4);
    assert_int_equal(convoy_frame_wait_read(streams[1].fd, &wait, bytes, 4), CONVOY_OK); /* it is there already */
    (void)close(wait.cancel_fd);
    close_pair(streams);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_head_checks_length_and_spare_bytes),
        cmocka_unit_test(test_frame_sent_in_single_bytes_arrives_whole),
        cmocka_unit_test(test_frame_cut_at_any_byte_is_truncated),
        cmocka_unit_test(test_frame_over_its_limit_takes_no_memory),
        cmocka_unit_test(test_frame_flush_goes_on_where_the_socket_was_full),
        cmocka_unit_test(test_frame_queue_behind_half_sent_shared_bytes_is_busy),
        cmocka_unit_test(test_frame_to_a_closed_peer_is_lost_without_a_signal),
        cmocka_unit_test(test_frame_waiting_ends_at_deadline_or_cancel),
    };
    return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
