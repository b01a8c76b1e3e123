/* SPDX-License-Identifier: Apache-2.0 */
/* Sending over a UCX that does what the test says: at once, later, never, or failing. The link and its endpoints are
 * made by hand, so that each way is taken on any machine, those of other transports than TCP included. */
#include "core/error.h"
#include "net/link_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES_MAX 1000u

/* What the pretended UCX was asked, and how it answers. */
static struct {
    ucs_status_ptr_t now;   /* answer to a message that must go at once */
    ucs_status_ptr_t later; /* and to one that may wait */
    uint32_t sends;
    uint32_t frees;
    uint32_t closes;
    char last[64];          /* header and data of the last message */
    size_t last_bytes;
    ucp_request_param_t param;
} ucx;

static int request; /* its address is one */

static ucs_status_ptr_t pretend_send(ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes,
                                     const void *data, size_t bytes, const ucp_request_param_t *param)
{
    (void)ep;
    (void)id;
    ucx.sends++;
    ucx.param = *param;
    ucx.last_bytes = header_bytes + bytes;
    memcpy(ucx.last, header, header_bytes);
    memcpy(ucx.last + header_bytes, data, bytes < 32 ? bytes : 32);
    return (param->op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) != 0 ? ucx.now : ucx.later;
}

static void pretend_free(void *ignored)
{
    (void)ignored;
    ucx.frees++;
}

static ucs_status_ptr_t pretend_close(ucp_ep_h ep, const ucp_request_param_t *param)
{
    (void)ep;
    ucx.closes++;
    ucx.param = *param;
    return ucx.later;
}

static const struct convoy_ucx_functions functions = {
    .ucp_am_send_nbx = pretend_send, .ucp_request_free = pretend_free, .ucp_ep_close_nbx = pretend_close};

static int link_setup(void **state)
{
    struct convoy_link *link = calloc(1, sizeof *link);
    *state = link;
    memset(&ucx, 0, sizeof ucx);
    link->ucx = &functions;
    link->options.peer_count = 2;
    link->options.message_bytes_max = BYTES_MAX;
    link->endpoints = calloc(2, sizeof *link->endpoints);
    for (uint32_t i = 0; i < 2; i++) {
        link->endpoints[i].link = link;
        link->endpoints[i].ep = (ucp_ep_h)&request;
        link->endpoints[i].segment_bytes = SIZE_MAX;
        link_set_state(&link->endpoints[i], CONVOY_LINK_UP);
    }
    return convoy_link_buffers_make(link, NULL);
}

static int link_teardown(void **state)
{
    struct convoy_link *link = *state;
    free(link->buffer_memory);
    free(link->endpoints);
    free(link);
    return 0;
}

static uint32_t free_count(const struct convoy_link *link)
{
    uint32_t count = 0;
    for (const struct link_buffer *buffer = link->free_buffers; buffer != NULL; buffer = buffer->next) {
        count++;
    }
    return count;
}

static int32_t send_text(struct convoy_link *link, const char *text)
{
    return convoy_link_send(link, 1, "head", 4, text, strlen(text));
}

static void test_link_send_that_goes_at_once_needs_no_buffer(void **state)
{
    struct convoy_link *link = *state;
    assert_int_equal(send_text(link, "body"), CONVOY_OK);
    assert_memory_equal(ucx.last, "headbody", 8);
    assert_int_equal(link->endpoints[1].sent_messages, 1);
    assert_int_equal(link->endpoints[1].inline_messages, 1);
    assert_int_equal(link->endpoints[1].sent_bytes, 8);
    assert_true(link->endpoints[1].is_dirty);
    assert_int_equal(convoy_link_pending(link), 0);
    assert_int_equal(free_count(link), LINK_BUFFERS);
}

static void test_link_send_to_nobody_or_to_a_lost_peer_is_refused(void **state)
{
    struct convoy_link *link = *state;
    link_set_state(&link->endpoints[1], CONVOY_LINK_NONE);
    assert_int_equal(send_text(link, "body"), CONVOY_BAD_STATE);
    link_set_state(&link->endpoints[1], CONVOY_LINK_FAILED);
    assert_int_equal(send_text(link, "body"), CONVOY_PEER_LOST);
    assert_int_equal(ucx.sends, 0);
}

/* Not TCP: UCX keeps our copy until it calls back; messages after it keep the order by going the same way. */
static void test_link_send_that_ucx_keeps_gives_its_buffer_back_when_it_is_through(void **state)
{
    struct convoy_link *link = *state;
    ucx.now = UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    ucx.later = &request;
    assert_int_equal(send_text(link, "first"), CONVOY_OK);
    void *first = ucx.param.user_data;
    assert_int_equal(ucx.sends, 2);
    ucx.now = NULL;
    assert_int_equal(send_text(link, "second"), CONVOY_OK);
    assert_int_equal(ucx.sends, 3); /* did not try to overtake */
    assert_memory_equal(ucx.last, "headsecond", 10);
    assert_int_equal(convoy_link_pending(link), 2);
    assert_int_equal(link->endpoints[1].pending, 2);
    assert_int_equal(link->endpoints[1].inline_messages, 0);
    assert_int_equal(free_count(link), LINK_BUFFERS - 2);
    ucx.param.cb.send(&request, UCS_OK, ucx.param.user_data);
    ucx.param.cb.send(&request, UCS_ERR_CONNECTION_RESET, first);
    assert_int_equal(ucx.frees, 2);
    assert_int_equal(convoy_link_pending(link), 0);
    assert_int_equal(free_count(link), LINK_BUFFERS);
    assert_int_equal(link_state(&link->endpoints[1]), CONVOY_LINK_UP); /* the error handler has the word */
    assert_int_equal(send_text(link, "third"), CONVOY_OK);
    assert_int_equal(link->endpoints[1].inline_messages, 1);
}

static void test_link_send_without_a_free_buffer_is_limit_and_sends_nothing(void **state)
{
    struct convoy_link *link = *state;
    ucx.now = UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    ucx.later = &request;
    for (uint32_t i = 0; i < LINK_BUFFERS; i++) {
        assert_int_equal(send_text(link, ""), CONVOY_OK);
    }
    uint32_t sends = ucx.sends;
    assert_int_equal(send_text(link, "more"), CONVOY_LIMIT);
    assert_int_equal(ucx.sends, sends);
    assert_int_equal(link->endpoints[1].sent_messages, LINK_BUFFERS);
    assert_int_equal(link_state(&link->endpoints[1]), CONVOY_LINK_UP);
}

/* At once and later: the endpoint is marked once, and its buffer is back. */
static void test_link_send_that_fails_marks_the_endpoint(void **state)
{
    struct convoy_link *link = *state;
    ucx.now = UCS_STATUS_PTR(UCS_ERR_CONNECTION_RESET);
    assert_int_equal(send_text(link, "body"), CONVOY_PEER_LOST);
    const struct link_endpoint *endpoint = &link->endpoints[1];
    assert_int_equal(link_state(endpoint), CONVOY_LINK_FAILED);
    assert_int_equal(endpoint->ucx_status, UCS_ERR_CONNECTION_RESET);
    assert_true(endpoint->must_close && endpoint->must_tell);
    assert_int_equal(endpoint->sent_messages, 0);
    assert_int_equal(link->attention, 1);
    convoy_link_endpoint_fail(&link->endpoints[1], UCS_ERR_ENDPOINT_TIMEOUT);
    assert_int_equal(link->attention, 1);
    assert_int_equal(endpoint->ucx_status, UCS_ERR_CONNECTION_RESET);
    link_set_state(&link->endpoints[1], CONVOY_LINK_UP);
    ucx.now = UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    ucx.later = UCS_STATUS_PTR(UCS_ERR_ENDPOINT_TIMEOUT);
    assert_int_equal(send_text(link, "body"), CONVOY_PEER_LOST);
    assert_int_equal(endpoint->ucx_status, UCS_ERR_ENDPOINT_TIMEOUT);
    assert_int_equal(free_count(link), LINK_BUFFERS);
    assert_int_equal(convoy_link_pending(link), 0);
}

/* Inside of progress nothing is written at once; over TCP, and before the endpoint exists, a message waits here. */
static void test_link_send_waits_here_over_tcp_and_before_the_connection(void **state)
{
    struct convoy_link *link = *state;
    for (int i = 0; i < 2; i++) {
        struct link_endpoint *endpoint = &link->endpoints[1];
        endpoint->is_tcp = i == 0;
        endpoint->later_address = i == 0 ? NULL : "wanted";
        link->is_progressing = true;
        ucx.sends = 0;
        assert_int_equal(send_text(link, "first"), CONVOY_OK);
        assert_int_equal(send_text(link, "second"), CONVOY_OK);
        assert_int_equal(ucx.sends, 0);
        assert_int_equal(link->queued, 2);
        endpoint->later_address = NULL;
        convoy_link_send_queued(link, endpoint); /* in order, each with its bytes */
        assert_int_equal(ucx.sends, 2);
        assert_memory_equal(ucx.last, "headsecond", 10);
        assert_int_equal(link->queued, 0);
        assert_int_equal(convoy_link_pending(link), 0);
        assert_int_equal(free_count(link), LINK_BUFFERS);
    }
    assert_int_equal(send_text(link, "third"), CONVOY_OK); /* inside of progress, not TCP: UCX keeps a copy */
    assert_int_equal(link->queued, 0);
}

static void test_link_send_queue_that_cannot_leave_fails_the_endpoint(void **state)
{
    struct convoy_link *link = *state;
    link->endpoints[1].later_address = "wanted";
    link->is_progressing = true;
    assert_int_equal(send_text(link, "body"), CONVOY_OK);
    ucx.later = UCS_STATUS_PTR(UCS_ERR_UNREACHABLE);
    convoy_link_send_queued(link, &link->endpoints[1]);
    assert_int_equal(link_state(&link->endpoints[1]), CONVOY_LINK_FAILED);
    assert_int_equal(free_count(link), LINK_BUFFERS);
}

/* What waits goes with the endpoint; a close that UCX does later is counted until it calls back. */
static void test_link_endpoint_close_drops_its_queue_and_is_counted(void **state)
{
    struct convoy_link *link = *state;
    struct link_endpoint *endpoint = &link->endpoints[1];
    endpoint->is_tcp = true;
    link->is_progressing = true;
    assert_int_equal(send_text(link, "body"), CONVOY_OK);
    ucx.later = &request;
    convoy_link_endpoint_close(link, endpoint);
    assert_int_equal(ucx.closes, 1);
    assert_int_equal(link->unfinished, 1);
    assert_int_equal(link->queued, 0);
    assert_false(endpoint->is_dirty);
    assert_null(endpoint->ep);
    ucx.param.cb.send(&request, UCS_OK, ucx.param.user_data);
    assert_int_equal(link->unfinished, 0);
    assert_int_equal(ucx.frees, 1);
    convoy_link_endpoint_close(link, endpoint); /* there is none any more */
    assert_int_equal(ucx.closes, 1);
    ucx.later = NULL;
    convoy_link_endpoint_close(link, &link->endpoints[0]); /* UCX does it at once */
    assert_int_equal(link->unfinished, 0);
}

/* Inside of progress a connect only notes the wish; an address that cannot be read is refused there too. */
static void test_link_connect_later_without_an_address_fails_the_endpoint(void **state)
{
    struct convoy_link *link = *state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct link_endpoint *endpoint = &link->endpoints[1];
    link->is_progressing = true;
    assert_int_equal(convoy_link_connect(link, 1, "?", 1, &error), CONVOY_MALFORMED);
    assert_string_equal(error.text, "the network address of member 1 (1 bytes) is malformed");
    assert_int_equal(convoy_link_reach(link, 1, "?", 1, &error), CONVOY_MALFORMED);
    endpoint->later_address = "?";
    endpoint->later_bytes = 1;
    link->later = 1;
    assert_int_equal(send_text(link, "body"), CONVOY_OK);
    link->is_progressing = false;
    convoy_link_connect_later(link);
    assert_int_equal(link->later, 0);
    assert_null(endpoint->later_address);
    assert_int_equal(link_state(endpoint), CONVOY_LINK_FAILED);
    assert_int_equal(endpoint->ucx_status, UCS_ERR_UNREACHABLE);
    assert_int_equal(link->queued, 1); /* given back when the endpoint is closed */
    convoy_link_endpoint_close(link, endpoint);
    assert_int_equal(free_count(link), LINK_BUFFERS);
}

#define LINK_TEST(test) cmocka_unit_test_setup_teardown(test, link_setup, link_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LINK_TEST(test_link_send_that_goes_at_once_needs_no_buffer),
        LINK_TEST(test_link_send_to_nobody_or_to_a_lost_peer_is_refused),
        LINK_TEST(test_link_send_that_ucx_keeps_gives_its_buffer_back_when_it_is_through),
        LINK_TEST(test_link_send_without_a_free_buffer_is_limit_and_sends_nothing),
        LINK_TEST(test_link_send_that_fails_marks_the_endpoint),
        LINK_TEST(test_link_send_waits_here_over_tcp_and_before_the_connection),
        LINK_TEST(test_link_send_queue_that_cannot_leave_fails_the_endpoint),
        LINK_TEST(test_link_endpoint_close_drops_its_queue_and_is_counted),
        LINK_TEST(test_link_connect_later_without_an_address_fails_the_endpoint),
    };
    return cmocka_run_group_tests_name("link_send", tests, NULL, NULL);
}
