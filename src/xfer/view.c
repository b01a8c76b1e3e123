/* SPDX-License-Identifier: Apache-2.0 */
/* A peer's pool and notes, mapped to read; a pool that cannot be mapped is read out of its process where that is allowed. */
#include "core/copy.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "net/shared_file.h"
#include "xfer/device_jobs.h"

#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

int32_t convoy_view_open(int pool_fd, int notes_fd, struct convoy_view **view_out, struct convoy_error *error)
{
    struct convoy_view *view = convoy_memory_zalloc(sizeof *view);
    if (view == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a view");
    }
    const void *notes = NULL;
    const void *pool = NULL;
    view->references = 1;
    view->pid_fd = -1;
    int32_t status = convoy_shared_file_view(notes_fd, CONVOY_INTRODUCE_TOKEN_BYTES, &notes, &view->notes_bytes, error);
    view->notes = notes;
    if (status == CONVOY_OK && pool_fd >= 0) {
        status = convoy_shared_file_view(pool_fd, 1, &pool, &view->pool_bytes, error);
        view->pool = pool;
    }
    if (status != CONVOY_OK) {
        convoy_view_put(view);
        return status;
    }
    *view_out = view;
    return CONVOY_OK;
}

/* Whole or not at all; and only if the process was still that one afterwards, since its number may have been reused. */
static bool read_process(const struct convoy_view *view, uint64_t address, uint8_t *to, uint64_t bytes)
{
    while (bytes != 0) {
        struct iovec here = {.iov_base = to, .iov_len = bytes};
        struct iovec there = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};
        ssize_t got = process_vm_readv(view->pid, &here, 1, &there, 1, 0);
        if (got <= 0) {
            return false;
        }
        to += got;
        address += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    struct pollfd process = {.fd = view->pid_fd, .events = POLLIN};
    return poll(&process, 1, 0) == 0;
}

bool convoy_view_try_process(struct convoy_view *view, const struct convoy_introduction *introduction, pid_t pid, int pid_fd)
{
    uint8_t token[CONVOY_INTRODUCE_TOKEN_BYTES];
    view->pid = pid;
    view->pid_fd = fcntl(pid_fd, F_DUPFD_CLOEXEC, 0);
    if (pid > 0 && view->pid_fd >= 0 && read_process(view, introduction->token_address, token, sizeof token) &&
        (sodium_memcmp(token, introduction->token, sizeof token) == 0 || CONVOY_MUTATED(process_not_proven))) {
        view->address = introduction->pool_address;
        view->pool_bytes = introduction->pool_bytes;
    }
    return view->address != 0;
}

bool convoy_view_read(const struct convoy_view *view, uint64_t offset, void *to, uint64_t bytes, size_t stream_from)
{
    if (view->pool == NULL) {
        return read_process(view, view->address + offset, to, bytes);
    }
    convoy_copy(to, view->pool + offset, bytes, stream_from);
    return true;
}

bool convoy_view_has_token(const struct convoy_view *view, const uint8_t token[CONVOY_INTRODUCE_TOKEN_BYTES])
{
    return sodium_memcmp(view->notes, token, CONVOY_INTRODUCE_TOKEN_BYTES) == 0 || CONVOY_MUTATED(token_not_compared);
}

void convoy_view_put(struct convoy_view *view)
{
    if (view == NULL || --view->references != 0) {
        return;
    }
    if (view->device != NULL) { /* the device lets go of it first, and not under the lock */
        convoy_xfer_device_bury(view);
        return;
    }
    convoy_view_free(view);
}

void convoy_view_free(struct convoy_view *view)
{
    if (view->pool != NULL) {
        (void)munmap((void *)(uintptr_t)view->pool, view->pool_bytes);
    }
    if (view->notes != NULL) {
        (void)munmap((void *)(uintptr_t)view->notes, view->notes_bytes);
    }
    if (view->pid_fd >= 0) {
        (void)close(view->pid_fd);
    }
    convoy_memory_free(view);
}
