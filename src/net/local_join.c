/* SPDX-License-Identifier: Apache-2.0 */
#include "net/local_join.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "net/fd_channel.h"
#include "net/liveness.h"
#include "net/shared_file.h"

#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x31766c63u /* "clv1" */

_Static_assert(sizeof(struct convoy_local_body) <= CONVOY_FD_MESSAGE_BYTES_MAX, "a message holds its body");

/* -- messages ------------------------------------------------------------------------------------------------------ */

static void make_proof(const struct convoy_local_join *join, const uint32_t parts[3],
                       uint8_t proof[CONVOY_LOCAL_PROOF_BYTES])
{
    (void)crypto_generichash(proof, CONVOY_LOCAL_PROOF_BYTES, (const unsigned char *)parts, 3 * sizeof parts[0],
                             join->request->agreement->session, CONVOY_LOCAL_SESSION_BYTES);
}

int32_t convoy_local_join_send(const struct convoy_local_join *join, int channel_fd, uint32_t receiver,
                               struct convoy_fd_message *message, struct convoy_error *error)
{
    struct convoy_local_body *body = (struct convoy_local_body *)message->data;
    body->magic = MAGIC;
    body->sender = join->own_index;
    make_proof(join, (const uint32_t[]){body->kind, body->sender, receiver}, body->proof);
    message->bytes = sizeof *body;
    return convoy_fd_channel_send(channel_fd, message, join->request->deadline_ns, error);
}

const struct convoy_local_body *convoy_local_join_check(const struct convoy_local_join *join,
                                                        const struct convoy_fd_message *message,
                                                        enum convoy_local_kind kind)
{
    const struct convoy_local_body *body = (const struct convoy_local_body *)message->data;
    uint8_t proof[CONVOY_LOCAL_PROOF_BYTES];
    if (message->bytes < sizeof *body || body->magic != MAGIC || body->kind != (uint32_t)kind ||
        body->sender >= join->member_count) {
        return NULL;
    }
    make_proof(join, (const uint32_t[]){body->kind, body->sender, join->own_index}, proof);
    return sodium_memcmp(proof, body->proof, sizeof proof) == 0 ? body : NULL;
}

/* -- joining ------------------------------------------------------------------------------------------------------- */

int32_t convoy_local_join_ask(const struct convoy_local_join *join, int channel_fd, uint32_t server,
                              struct convoy_error *error)
{
    struct convoy_fd_message message = {.fd_count = 1, .fds = {join->own_pidfd}};
    ((struct convoy_local_body *)message.data)->kind = CONVOY_LOCAL_JOIN;
    return convoy_local_join_send(join, channel_fd, server, &message, error);
}

/* Takes one pidfd of a MEMBERS message. */
static bool take_member(struct convoy_local_join *join, struct convoy_fd_message *message,
                        const struct convoy_local_body *body, uint32_t position)
{
    uint32_t member = body->members[position];
    if (member >= join->member_count || member == join->own_index || join->pidfds[member] >= 0 ||
        !convoy_liveness_is_pidfd(message->fds[position])) {
        return false;
    }
    join->pidfds[member] = convoy_fd_message_take(message, position);
    return true;
}

static int32_t receive_members(struct convoy_local_join *join, int channel_fd, uint32_t server, uint32_t count,
                               struct convoy_error *error)
{
    for (uint32_t have = 0; have < count;) {
        struct convoy_fd_message message;
        int32_t status = convoy_fd_channel_recv(channel_fd, &message, join->request->deadline_ns, error);
        if (status != CONVOY_OK) {
            return status;
        }
        const struct convoy_local_body *body = convoy_local_join_check(join, &message, CONVOY_LOCAL_MEMBERS);
        bool is_good = body != NULL && body->sender == server && body->count != 0 && body->count == message.fd_count &&
                       body->count <= count - have;
        for (uint32_t i = 0; is_good && i < body->count; i++) {
            is_good = take_member(join, &message, body, i);
        }
        have += is_good ? body->count : 0;
        convoy_fd_message_fini(&message);
        if (!is_good) {
            return convoy_error_set(error, CONVOY_MALFORMED, "a bad list of process descriptors arrived");
        }
    }
    return CONVOY_OK;
}

/* The SEGMENT message: takes the segment and says how many pidfds follow. */
static int32_t take_segment(struct convoy_local_join *join, struct convoy_fd_message *message, uint32_t server,
                            uint32_t *count_out, struct convoy_error *error)
{
    const struct convoy_local_body *body = convoy_local_join_check(join, message, CONVOY_LOCAL_SEGMENT);
    if (body == NULL || body->sender != server) {
        return convoy_error_set(error, CONVOY_UNAUTHENTICATED, "the answer does not hold the session token");
    }
    if (body->status != CONVOY_OK) {
        return convoy_error_set_errno(error, body->status, body->sys_errno, "no shared segment was made");
    }
    if (message->fd_count != 1 || body->count == 0 || body->count >= join->member_count) {
        return convoy_error_set(error, CONVOY_MALFORMED,
                                "%u descriptors and %u members arrived, 1 and 1 to %u expected", message->fd_count,
                                body->count, join->member_count - 1);
    }
    size_t needed = join->request->segment_bytes(join->request->user, body->count + 1);
    int32_t status = convoy_shared_file_check(message->fds[0], needed, &join->segment_bytes, error);
    if (status == CONVOY_OK) {
        join->segment_fd = convoy_fd_message_take(message, 0);
        *count_out = body->count;
    }
    return status;
}

int32_t convoy_local_join_receive(struct convoy_local_join *join, int channel_fd, uint32_t server,
                                  struct convoy_error *error)
{
    struct convoy_fd_message message;
    int32_t status = convoy_fd_channel_recv(channel_fd, &message, join->request->deadline_ns, error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint32_t count = 0;
    status = take_segment(join, &message, server, &count, error);
    convoy_fd_message_fini(&message);
    if (status == CONVOY_OK) {
        status = receive_members(join, channel_fd, server, count, error);
    }
    if (status != CONVOY_OK) {
        convoy_local_join_release(join);
    }
    return status;
}

void convoy_local_join_release(struct convoy_local_join *join)
{
    for (uint32_t i = 0; i < join->member_count; i++) {
        if (join->pidfds[i] >= 0) {
            (void)close(join->pidfds[i]);
            join->pidfds[i] = -1;
        }
    }
    if (join->segment_fd >= 0) {
        (void)close(join->segment_fd);
        join->segment_fd = -1;
    }
    join->segment_bytes = 0;
}
