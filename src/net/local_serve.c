/* SPDX-License-Identifier: Apache-2.0 */
#include "net/local_serve.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/memory.h"
#include "net/liveness.h"
#include "net/shared_file.h"

#include <string.h>
#include <unistd.h>

struct service {
    struct convoy_local_join *join;
    const struct convoy_local_socket *at;
    const uint8_t *coming;
    int *channels; /* [member_count], -1 = not taken in */
    uint32_t expected;
    uint32_t later;
    uint32_t taken;
};

static int32_t service_init(struct service *service, struct convoy_local_join *join, const uint8_t *coming)
{
    service->channels = convoy_memory_array(join->member_count, sizeof service->channels[0]);
    if (service->channels == NULL) {
        return CONVOY_NO_MEMORY;
    }
    for (uint32_t i = 0; i < join->member_count; i++) {
        service->channels[i] = -1;
        service->expected += coming[i] != CONVOY_LOCAL_NOT_JOINING;
        service->later += coming[i] == CONVOY_LOCAL_LATER;
    }
    return CONVOY_OK;
}

static void service_fini(struct service *service)
{
    for (uint32_t i = 0; i < service->join->member_count; i++) {
        if (service->channels[i] >= 0) {
            (void)close(service->channels[i]);
        }
    }
    convoy_memory_free(service->channels);
}

/* -- taking in ----------------------------------------------------------------------------------------------------- */

/* A first message is there already unless its sender comes later; a stranger that keeps silent costs little. */
static uint64_t hello_deadline(const struct service *service)
{
    const struct convoy_local_request *request = service->join->request;
    uint64_t now = convoy_now_ns();
    if (service->later == 0) {
        return now;
    }
    uint64_t hello = convoy_deadline_after(now, request->runtime->settings.hello_timeout_ms * CONVOY_NS_PER_MS);
    return hello < request->deadline_ns ? hello : request->deadline_ns;
}

static bool is_expected(const struct service *service, const struct convoy_fd_message *message)
{
    const struct convoy_local_body *body = convoy_local_join_check(service->join, message, CONVOY_LOCAL_JOIN);
    return body != NULL && service->coming[body->sender] != CONVOY_LOCAL_NOT_JOINING &&
           service->channels[body->sender] < 0 && message->fd_count == 1 &&
           convoy_liveness_is_pidfd(message->fds[0]);
}

static void log_stranger(const struct service *service, int channel_fd)
{
    struct convoy_fd_credentials who = {0};
    (void)convoy_fd_channel_credentials(channel_fd, &who);
    const struct convoy_group_options *options = service->join->request->options;
    convoy_log_line(&service->join->request->runtime->log, CONVOY_LOG_WARN,
                    "group %.*s epoch %llu rank %d: turned a connection away from the local socket, pid %ld uid %lu",
                    (int)options->name_length, options->name,
                    (unsigned long long)service->join->request->agreement->epoch, options->own_id, (long)who.pid,
                    (unsigned long)who.uid);
}

/* Takes a connection in, or turns it away. takes channel_fd */
static void admit(struct service *service, int channel_fd)
{
    struct convoy_fd_message message;
    if (convoy_fd_channel_recv(channel_fd, &message, hello_deadline(service), NULL) == CONVOY_OK) {
        if (is_expected(service, &message)) {
            uint32_t member = ((const struct convoy_local_body *)message.data)->sender;
            service->channels[member] = channel_fd;
            service->join->pidfds[member] = convoy_fd_message_take(&message, 0);
            service->taken++;
            return;
        }
        convoy_fd_message_fini(&message);
    }
    log_stranger(service, channel_fd);
    (void)close(channel_fd);
}

/* Those that are connected wait in the queue, so an empty queue ends this unless some were to come later. */
static void admit_all(struct service *service)
{
    uint64_t deadline_ns = service->join->request->deadline_ns;
    while (service->taken < service->expected) {
        int channel_fd = convoy_local_socket_accept(service->at);
        if (channel_fd >= 0) {
            admit(service, channel_fd);
        } else if (service->later == 0 || convoy_now_ns() >= deadline_ns) {
            return;
        } else {
            convoy_local_socket_wait(service->at, deadline_ns);
        }
    }
}

/* -- handing out --------------------------------------------------------------------------------------------------- */

static int32_t send_segment(const struct service *service, uint32_t member, const struct convoy_error *cause)
{
    const struct convoy_local_join *join = service->join;
    struct convoy_fd_message message = {.fd_count = 0};
    struct convoy_local_body *body = (struct convoy_local_body *)message.data;
    body->kind = CONVOY_LOCAL_SEGMENT;
    body->count = service->taken;
    if (cause != NULL) {
        body->status = cause->status;
        body->sys_errno = cause->sys_errno;
    } else {
        message.fds[message.fd_count++] = join->segment_fd;
    }
    return convoy_local_join_send(join, service->channels[member], member, &message, NULL);
}

/* All pidfds of the host but the receiver's own, the server's included, in messages of bounded size. */
static int32_t send_members(const struct service *service, uint32_t receiver)
{
    const struct convoy_local_join *join = service->join;
    struct convoy_fd_message message = {.fd_count = 0};
    struct convoy_local_body *body = (struct convoy_local_body *)message.data;
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < join->member_count && status == CONVOY_OK; i++) {
        int pidfd = i == join->own_index ? join->own_pidfd : join->pidfds[i];
        if (i != receiver && pidfd >= 0) {
            body->members[message.fd_count] = i;
            message.fds[message.fd_count++] = pidfd;
        }
        if (message.fd_count == CONVOY_FD_MESSAGE_FDS_MAX || (i + 1 == join->member_count && message.fd_count != 0)) {
            body->kind = CONVOY_LOCAL_MEMBERS;
            body->count = message.fd_count;
            status = convoy_local_join_send(join, service->channels[receiver], receiver, &message, NULL);
            memset(&message, 0, sizeof message);
        }
    }
    return status;
}

/* Whoever cannot be sent to will say in the next exchange that it did not join. */
static void hand_out(const struct service *service, const struct convoy_error *cause)
{
    for (uint32_t i = 0; i < service->join->member_count; i++) {
        if (service->channels[i] >= 0 && send_segment(service, i, cause) == CONVOY_OK && cause == NULL) {
            (void)send_members(service, i);
        }
    }
}

static int32_t make_segment(struct convoy_local_join *join, uint32_t count, struct convoy_error *error)
{
    size_t bytes = join->request->segment_bytes(join->request->user, count);
    int32_t status = convoy_shared_file_create(bytes, &join->segment_fd, error);
    if (status == CONVOY_OK) {
        join->segment_bytes = bytes;
    }
    return status;
}

int32_t convoy_local_serve(struct convoy_local_join *join, const struct convoy_local_socket *at, const uint8_t *coming,
                           struct convoy_error *error)
{
    struct service service = {.join = join, .at = at, .coming = coming};
    if (service_init(&service, join, coming) != CONVOY_OK) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u connections", join->member_count);
    }
    admit_all(&service);
    int32_t status = CONVOY_OK;
    if (service.taken != 0) {
        status = make_segment(join, service.taken + 1, error);
        hand_out(&service, status == CONVOY_OK ? NULL : error);
    }
    if (status != CONVOY_OK) {
        convoy_local_join_release(join);
    }
    service_fini(&service);
    return status;
}
