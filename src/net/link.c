/* SPDX-License-Identifier: Apache-2.0 */
#include "net/link_parts.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#define LINK_PROGRESS_STEPS 16
#define LINK_FLUSH_NS_MAX CONVOY_NS_PER_S
#define LINK_SLEEP_NS_MAX CONVOY_NS_PER_S /* no wait is unbounded, whatever the deadline and whatever got lost */

static void link_free(struct convoy_link *link)
{
    if (link->wait_fd >= 0) {
        (void)close(link->wait_fd);
    }
    convoy_memory_free(link->address);
    convoy_memory_free(link->endpoints);
    convoy_memory_free(link->buffer_memory);
    convoy_link_pieces_free(link);
    convoy_memory_free(link);
}

static int32_t link_make_address(struct convoy_link *link, struct convoy_error *error)
{
    link->address_bytes = convoy_lane_set_bytes(&link->set);
    link->address = convoy_memory_zalloc(link->address_bytes);
    if (link->address == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a link address of %zu bytes",
                                link->address_bytes);
    }
    convoy_lane_set_encode(&link->set, link->address);
    return CONVOY_OK;
}

/* One descriptor for all lanes, so that a caller can poll it beside its own. */
static int32_t link_make_wait_fd(struct convoy_link *link, struct convoy_error *error)
{
    link->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (link->wait_fd < 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "epoll descriptor of a link");
    }
    for (uint32_t i = 0; i < link->set.count; i++) {
        struct epoll_event event = {.events = EPOLLIN};
        if (epoll_ctl(link->wait_fd, EPOLL_CTL_ADD, link->lanes[i].efd, &event) != 0) {
            return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "epoll on the descriptor of a UCX worker");
        }
    }
    return CONVOY_OK;
}

static int32_t link_make(struct convoy_link *link, struct convoy_error *error)
{
    link->endpoints = convoy_memory_array(link->options.peer_count, sizeof *link->endpoints);
    link->assemblies = convoy_memory_array(link->options.peer_count, sizeof *link->assemblies);
    if (link->endpoints == NULL || link->assemblies == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u endpoints", link->options.peer_count);
    }
    if (getrandom(&link->id, sizeof link->id, 0) != (ssize_t)sizeof link->id) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "random number of a link");
    }
    for (uint32_t i = 0; i < link->options.peer_count; i++) {
        link->endpoints[i].link = link;
    }
    int32_t status = convoy_link_buffers_make(link, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_link_lanes_open(link, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = link_make_wait_fd(link, error);
    if (status == CONVOY_OK) {
        status = link_make_address(link, error);
    }
    if (status != CONVOY_OK) {
        convoy_link_lanes_close(link);
    }
    return status;
}

int32_t convoy_link_open(const struct convoy_link_options *options, struct convoy_link **link_out,
                         struct convoy_error *error)
{
    struct convoy_link *link = convoy_memory_zalloc(sizeof *link);
    if (link == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a link of %zu bytes", sizeof *link);
    }
    link->options = *options;
    link->wait_fd = -1;
    int32_t status = link_make(link, error);
    if (status != CONVOY_OK) {
        link_free(link);
        return status;
    }
    *link_out = link;
    return CONVOY_OK;
}

const void *convoy_link_address(const struct convoy_link *link, size_t *bytes_out)
{
    *bytes_out = link->address_bytes;
    return link->address;
}

enum convoy_link_state convoy_link_peer_state(const struct convoy_link *link, uint32_t peer)
{
    assert(peer < link->options.peer_count);
    return link_state(&link->endpoints[peer]);
}

/* -- progress ------------------------------------------------------------------------------------------------------ */

/* Ends what UCX's callbacks have marked as failed. The down callback may connect again at once. */
static void link_attend(struct convoy_link *link)
{
    for (uint32_t i = 0; i < link->options.peer_count && link->attention != 0; i++) {
        struct link_endpoint *endpoint = &link->endpoints[i];
        if (!endpoint->must_tell && !endpoint->must_close) {
            continue;
        }
        link->attention--;
        endpoint->must_tell = false;
        convoy_link_endpoint_close(link, endpoint);
        if (!link->is_closing) {
            link->options.down(link->options.user, i, endpoint->ucx_status);
        }
    }
}

static uint32_t link_progress(struct convoy_link *link)
{
    uint32_t events = 0;
    uint64_t received = link->received_messages;
    if (link->is_progressing) {
        return 0;
    }
    for (uint32_t i = 0; i < link->set.count; i++) {
        uint32_t steps = 0;
        link->is_progressing = true;
        while (steps < LINK_PROGRESS_STEPS && link->ucx->ucp_worker_progress(link->lanes[i].worker) != 0) {
            steps++;
            if (link->received_messages != received) {
                break; /* it may be the awaited one, and another step is a system call */
            }
        }
        link->is_progressing = false;
        events += steps;
    }
    if (link->later != 0) {
        convoy_link_connect_later(link);
    }
    if (link->queued != 0) {
        events += convoy_link_queue_progress(link);
    }
    if (link->attention != 0) {
        link_attend(link);
        events++;
    }
    return events;
}

uint32_t convoy_link_progress(struct convoy_link *link)
{
    link_enter(link);
    uint32_t events = link_progress(link);
    link_leave(link);
    return events;
}

/* Fills in what to wait for; false: a worker has something to do right now. */
static bool link_arm(struct convoy_link *link, struct pollfd *fds)
{
    for (uint32_t i = 0; i < link->set.count; i++) {
        if (link->ucx->ucp_worker_arm(link->lanes[i].worker) != UCS_OK) {
            return false;
        }
        fds[i] = (struct pollfd){.fd = link->lanes[i].efd, .events = POLLIN};
    }
    return true;
}

void convoy_link_sleep(struct convoy_link *link, int wake_fd, uint64_t deadline_ns)
{
    struct pollfd fds[CONVOY_LANES_MAX + 1];
    link_enter(link);
    if (link_progress(link) == 0 && link_arm(link, fds)) {
        uint64_t left = convoy_deadline_left(convoy_now_ns(), deadline_ns);
        left = left > LINK_SLEEP_NS_MAX ? LINK_SLEEP_NS_MAX : left;
        const struct timespec wait = {.tv_sec = (time_t)(left / CONVOY_NS_PER_S),
                                      .tv_nsec = (long)(left % CONVOY_NS_PER_S)};
        fds[link->set.count] = (struct pollfd){.fd = wake_fd, .events = POLLIN}; /* a negative one is skipped */
        (void)ppoll(fds, link->set.count + 1, &wait, NULL);
        link_count(&link->sleeps, 1);
    }
    link_leave(link);
}

bool convoy_link_arm(struct convoy_link *link)
{
    struct pollfd fds[CONVOY_LANES_MAX + 1];
    link_enter(link);
    bool is_armed = link_progress(link) == 0 && link_arm(link, fds);
    link_leave(link);
    return is_armed;
}

int convoy_link_fd(const struct convoy_link *link)
{
    return link->wait_fd;
}

/* -- close --------------------------------------------------------------------------------------------------------- */

static void link_flushed(void *request, ucs_status_t ucx_status, void *argument)
{
    struct convoy_link *link = argument;
    (void)ucx_status;
    link->unfinished--;
    link->ucx->ucp_request_free(request);
}

/* What UCX took inline may still lie in its own buffers: closing by force would drop it. */
static void link_flush(struct convoy_link *link)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = link_flushed,
                                       .user_data = link};
    for (uint32_t i = 0; i < link->options.peer_count; i++) {
        struct link_endpoint *endpoint = &link->endpoints[i];
        if (endpoint->ep == NULL || !endpoint->is_dirty || link_state(endpoint) != CONVOY_LINK_UP) {
            continue;
        }
        link->unfinished++; /* before the call: the callback may run inside it */
        ucs_status_ptr_t request = link->ucx->ucp_ep_flush_nbx(endpoint->ep, &param);
        if (!UCS_PTR_IS_PTR(request)) {
            link->unfinished--;
        }
    }
}

/* Progresses until nothing is under way; false: the deadline came first. */
static bool link_settle(struct convoy_link *link, uint64_t deadline_ns)
{
    while (link->unfinished != 0 || link->pending != 0) {
        if (convoy_now_ns() >= deadline_ns) {
            (void)link_progress(link);
            return link->unfinished == 0 && link->pending == 0;
        }
        convoy_link_sleep(link, -1, deadline_ns);
    }
    return true;
}

/* Ends what was sent. Buffered messages have until the deadline. A flush also waits for a peer that does not progress,
 * though everything has been written to the socket, so it has its own, short bound: the peer may be stopped or gone. */
static void link_drain(struct convoy_link *link, uint64_t deadline_ns)
{
    while (link->pending != 0 && convoy_now_ns() < deadline_ns) {
        convoy_link_sleep(link, -1, deadline_ns);
    }
    uint64_t flush_ns = convoy_deadline_after(convoy_now_ns(), LINK_FLUSH_NS_MAX);
    link_flush(link);
    (void)link_settle(link, flush_ns < deadline_ns ? flush_ns : deadline_ns);
}

/* Answers of UCX's own to peers that are connecting right now. Destroying a worker that still holds one aborts the
 * process (1.13: "got REP message"). */
static void link_flush_workers(struct convoy_link *link)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = link_flushed,
                                       .user_data = link};
    for (uint32_t i = 0; i < link->set.count; i++) {
        link->unfinished++; /* before the call: the callback may run inside it */
        ucs_status_ptr_t request = link->ucx->ucp_worker_flush_nbx(link->lanes[i].worker, &param);
        if (!UCS_PTR_IS_PTR(request)) {
            link->unfinished--;
        }
    }
}

void convoy_link_close(struct convoy_link *link, uint64_t deadline_ns)
{
    if (link == NULL) {
        return;
    }
    link_enter(link);
    link->is_closing = true;
    link_drain(link, deadline_ns);
    for (uint32_t i = 0; i < link->options.peer_count; i++) {
        convoy_link_endpoint_close(link, &link->endpoints[i]);
    }
    uint64_t now_ns = convoy_now_ns();
    uint64_t grace_ns = convoy_deadline_after(now_ns > deadline_ns ? now_ns : deadline_ns, CONVOY_NS_PER_S);
    bool is_settled = link_settle(link, grace_ns);
    if (is_settled) {
        link_flush_workers(link);
        is_settled = link_settle(link, grace_ns);
    }
    if (!is_settled) {
        /* UCX still holds pointers into the link: keeping a worker too long is better than what follows from not. */
        convoy_log_line(&link->options.runtime->log, CONVOY_LOG_WARN,
                        "link close unfinished %u pending %u; worker kept", link->unfinished, link->pending);
        link_leave(link);
        return;
    }
    convoy_link_lanes_close(link);
    link_leave(link);
    link_free(link);
}
