/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/door.h"

#include "core/bytes.h"
#include "core/error.h"
#include "net/liveness.h"
#include "net/shared_file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC "CVXF"

enum { FILE_NOTES = 0, FILE_WAKE, FILE_PROCESS, FILE_FIRST_OPTIONAL };

void convoy_door_files_fini(struct convoy_fd_message *message, struct convoy_pool_share *shared)
{
    if (shared->file >= 0) {
        (void)close(shared->file);
    }
    shared->file = -1;
    message->fd_count = 0; /* borrowed */
}

int32_t convoy_door_files(const struct convoy_xfer *engine, const uint8_t nonce[CONVOY_INTRODUCE_NONCE_BYTES], int ring_fd,
                          struct convoy_fd_message *message_out, struct convoy_pool_share *shared_out,
                          struct convoy_error *error)
{
    if (!convoy_pool_share(engine->pool, 0, shared_out)) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "a descriptor for the pool's file");
    }
    uint32_t count = FILE_FIRST_OPTIONAL;
    message_out->bytes = CONVOY_DOOR_MESSAGE_BYTES;
    memset(message_out->data, 0, CONVOY_DOOR_MESSAGE_BYTES);
    memcpy(message_out->data, MAGIC, 4);
    memcpy(message_out->data + 8, nonce, CONVOY_INTRODUCE_NONCE_BYTES);
    message_out->fds[FILE_NOTES] = convoy_pool_file(engine->notes);
    message_out->fds[FILE_WAKE] = engine->wake_fd;
    message_out->fds[FILE_PROCESS] = engine->self_pid_fd;
    if (shared_out->generation != 1) {
        message_out->bytes = CONVOY_DOOR_RESIZED_BYTES;
        convoy_bytes_put_u64(message_out->data + CONVOY_DOOR_MESSAGE_BYTES, shared_out->generation);
        convoy_bytes_put_u64(message_out->data + CONVOY_DOOR_MESSAGE_BYTES + 8, shared_out->base);
    }
    if (shared_out->file >= 0 && !engine->options.is_private) {
        message_out->fds[count++] = shared_out->file;
    }
    if (ring_fd >= 0) {
        message_out->fds[count++] = ring_fd;
    }
    message_out->fd_count = count;
    return CONVOY_OK;
}

const uint8_t *convoy_door_nonce(const struct convoy_fd_message *message)
{
    bool is_one = (message->bytes == CONVOY_DOOR_MESSAGE_BYTES || message->bytes == CONVOY_DOOR_RESIZED_BYTES) &&
                  memcmp(message->data, MAGIC, 4) == 0 && message->fd_count >= FILE_FIRST_OPTIONAL;
    return is_one ? message->data + 8 : NULL;
}

static int32_t place_view(struct convoy_view *view, const struct convoy_fd_message *message, struct convoy_error *error)
{
    const uint8_t *words = message->data + CONVOY_DOOR_MESSAGE_BYTES;
    bool is_resized = message->bytes == CONVOY_DOOR_RESIZED_BYTES;
    return convoy_view_place(view, is_resized ? convoy_bytes_u64(words) : 1, is_resized ? convoy_bytes_u64(words + 8) : 0)
               ? CONVOY_OK
               : convoy_error_set(error, CONVOY_MALFORMED, "the pool that came lies beyond all offsets");
}

static int32_t map_ring(int fd, void **memory_out, struct convoy_error *error)
{
    size_t bytes = 0;
    int32_t status = convoy_shared_file_check(fd, CONVOY_RING_BYTES, &bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    void *memory = mmap(NULL, CONVOY_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "map the ring of a peer");
    }
    (void)madvise(memory, CONVOY_RING_BYTES, MADV_DONTFORK);
    *memory_out = memory;
    return CONVOY_OK;
}

void convoy_door_drop(struct convoy_xfer_joined *joined)
{
    convoy_view_put(joined->view);
    if (joined->ring_memory != NULL) {
        (void)munmap(joined->ring_memory, CONVOY_RING_BYTES);
    }
    if (joined->wake_fd >= 0) {
        (void)close(joined->wake_fd);
    }
    if (joined->pid_fd >= 0) {
        (void)close(joined->pid_fd);
    }
    *joined = (struct convoy_xfer_joined){.wake_fd = -1, .pid_fd = -1, .tcp_fd = -1};
}

/* Being allowed to read another's memory is up to the system; where it is not, its payloads are to be brought. */
static bool try_process(struct convoy_view *view, const struct convoy_introduction *introduction, int channel, int pid_fd)
{
    struct convoy_fd_credentials who = {0};
    return (introduction->flags & CONVOY_INTRODUCE_BY_PROCESS) == 0 ||
           (convoy_fd_channel_credentials(channel, &who) == CONVOY_OK &&
            convoy_view_try_process(view, introduction, who.pid, pid_fd));
}

int32_t convoy_door_take(struct convoy_fd_message *message, const struct convoy_introduction *introduction, int ring_fd,
                         int channel, bool may_be_far, struct convoy_xfer_joined *joined_out,
                         struct convoy_error *error)
{
    bool has_pool = (introduction->flags & CONVOY_INTRODUCE_PRIVATE) == 0;
    uint32_t expected = FILE_FIRST_OPTIONAL + (has_pool ? 1u : 0u) + (ring_fd < 0 ? 1u : 0u);
    struct convoy_xfer_joined joined = {.wake_fd = -1, .pid_fd = -1, .tcp_fd = -1};
    if (convoy_door_nonce(message) == NULL || message->fd_count != expected) {
        return convoy_error_set(error, CONVOY_MALFORMED, "%u files came over the local socket, %u were announced",
                                message->fd_count, expected);
    }
    if (!convoy_liveness_is_pidfd(message->fds[FILE_PROCESS])) {
        return convoy_error_set(error, CONVOY_MALFORMED, "the third file over the local socket is no process");
    }
    int32_t status = convoy_view_open(has_pool ? message->fds[FILE_FIRST_OPTIONAL] : -1, message->fds[FILE_NOTES],
                                      &joined.view, error);
    if (status == CONVOY_OK) {
        status = place_view(joined.view, message, error);
    }
    if (status == CONVOY_OK && !convoy_view_has_token(joined.view, introduction->token)) {
        status = convoy_error_set(error, CONVOY_UNREACHABLE, "the memory that came is not that of %s: another token in it",
                                  introduction->session);
    }
    if (status == CONVOY_OK) {
        status = map_ring(ring_fd >= 0 ? ring_fd : message->fds[expected - 1], &joined.ring_memory, error);
    }
    if (status != CONVOY_OK) {
        convoy_door_drop(&joined);
        return status;
    }
    if (!try_process(joined.view, introduction, channel, message->fds[FILE_PROCESS]) && may_be_far) {
        convoy_door_drop(&joined);
        return convoy_error_set(error, CONVOY_UNREACHABLE, "the system does not allow to read the pool of %s out of its "
                                                           "process",
                                introduction->session);
    }
    joined.wake_fd = convoy_fd_message_take(message, FILE_WAKE);
    joined.pid_fd = convoy_fd_message_take(message, FILE_PROCESS);
    *joined_out = joined;
    return CONVOY_OK;
}

bool convoy_door_may_be_far(const struct convoy_xfer *engine)
{
    return strcmp(engine->runtime->settings.net, "shm") != 0;
}

/* Neither mapped nor read out of its process: what it has must be brought. */
static bool is_secluded(const struct convoy_introduction *introduction)
{
    return (introduction->flags & CONVOY_INTRODUCE_PRIVATE) != 0 &&
           (introduction->flags & CONVOY_INTRODUCE_BY_PROCESS) == 0;
}

int32_t convoy_door_match(const struct convoy_xfer *engine, const struct convoy_introduction *theirs,
                          struct convoy_local_socket_target *target_out, bool *is_far_out, struct convoy_error *error)
{
    const struct convoy_host_keys *ours = &engine->introduction.keys;
    bool is_asked = (theirs->flags & CONVOY_INTRODUCE_REMOTE) != 0;
    *target_out = (struct convoy_local_socket_target){
        .index = 0,
        .by_network = convoy_host_keys_share_network(ours, &theirs->keys),
        .by_directory = convoy_host_keys_share_directory(ours, &theirs->keys),
    };
    bool is_near = target_out->by_network || target_out->by_directory;
    if (!convoy_door_may_be_far(engine)) {
        *is_far_out = false;
        return is_near && !is_asked
                   ? CONVOY_OK
                   : convoy_error_set(error, CONVOY_UNSUPPORTED, "setting net is shm, and %s %s", theirs->session,
                                      is_asked ? "wants to share no memory"
                                      : convoy_host_keys_same_boot(ours, &theirs->keys)
                                          ? "shares the kernel but neither a network namespace nor a shared_directory"
                                          : "is on another host");
    }
    *is_far_out = is_asked || !is_near || strcmp(engine->runtime->settings.net, "ucx") == 0 ||
                  is_secluded(&engine->introduction) || is_secluded(theirs);
    return CONVOY_OK;
}
