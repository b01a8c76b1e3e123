/* SPDX-License-Identifier: Apache-2.0 */
/* A peer's pool and notes, mapped to read; a pool that cannot be mapped is read out of its process where that is allowed. */
#include "core/copy.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "net/shared_file.h"
#include "xfer/device_jobs.h"
#include "xfer/raw.h"
#include "xfer/view.h"

#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static int32_t open_notes(int fd, struct convoy_view_notes **notes_out, struct convoy_error *error)
{
    struct convoy_view_notes *notes = convoy_memory_zalloc(sizeof *notes);
    const void *memory = NULL;
    if (notes == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a view");
    }
    int32_t status = convoy_shared_file_view(fd, CONVOY_INTRODUCE_TOKEN_BYTES, &memory, &notes->bytes, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(notes);
        return status;
    }
    notes->memory = memory;
    notes->references = 1;
    *notes_out = notes;
    return CONVOY_OK;
}

static void put_notes(struct convoy_view_notes *notes)
{
    if (notes != NULL && --notes->references == 0) {
        if (notes->memory != NULL) {
            (void)munmap((void *)(uintptr_t)notes->memory, notes->bytes);
        }
        convoy_memory_free(notes);
    }
}

int32_t convoy_view_open(int pool_fd, int notes_fd, struct convoy_view **view_out, struct convoy_error *error)
{
    struct convoy_view *view = convoy_memory_zalloc(sizeof *view);
    if (view == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a view");
    }
    const void *pool = NULL;
    view->references = 1;
    view->generation = 1;
    view->pid_fd = -1;
    int32_t status = notes_fd >= 0 ? open_notes(notes_fd, &view->notes_kept, error) : CONVOY_OK;
    if (status == CONVOY_OK && pool_fd >= 0) {
        status = convoy_shared_file_view(pool_fd, 1, &pool, &view->pool_bytes, error);
        view->pool = pool;
    }
    if (status != CONVOY_OK) {
        convoy_view_put(view);
        return status;
    }
    if (view->notes_kept != NULL) {
        view->notes = view->notes_kept->memory;
        view->notes_bytes = view->notes_kept->bytes;
    }
    *view_out = view;
    return CONVOY_OK;
}

/* -- generations --------------------------------------------------------------------------------------------------- */

bool convoy_view_place(struct convoy_view *view, uint64_t generation, uint64_t base)
{
    if (generation == 0 || base > (uint64_t)INT64_MAX || view->pool_bytes > (uint64_t)INT64_MAX - base) {
        return false;
    }
    view->generation = generation;
    view->base = base;
    return true;
}

bool convoy_view_has(const struct convoy_view *view, uint64_t offset, uint64_t bytes)
{
    return view != NULL && offset >= view->base && bytes <= view->pool_bytes &&
           offset - view->base <= view->pool_bytes - bytes;
}

struct convoy_view *convoy_view_at(struct convoy_view *newest, uint64_t offset, uint64_t bytes)
{
    struct convoy_view *view = newest;
    if (newest == NULL || bytes == 0 || newest->pool == NULL || offset >= newest->base) {
        return newest; /* what lies beyond its end is nobody's */
    }
    while (view != NULL && !convoy_view_has(view, offset, 1)) {
        view = view->older;
    }
    return view;
}

/* The newest stays even if it has ended: somebody is always asked for what lies nowhere. It goes once another comes. */
static void drop_ended(struct convoy_view *newest)
{
    for (struct convoy_view **at = &newest->older; *at != NULL;) {
        struct convoy_view *view = *at;
        if (!view->has_ended) {
            at = &view->older;
            continue;
        }
        *at = view->older;
        view->older = NULL;
        convoy_view_put(view);
    }
}

static int32_t check_attach(const struct convoy_view *newest, const struct convoy_view *view)
{
    uint32_t count = 0;
    for (const struct convoy_view *other = newest; other != NULL; other = other->older) {
        if (other->generation == view->generation) {
            return CONVOY_BUSY;
        }
        bool is_apart = view->base >= other->base + other->pool_bytes || other->base >= view->base + view->pool_bytes;
        if (!is_apart || other->pool == NULL || (view->base < other->base) != (view->generation < other->generation)) {
            return CONVOY_MALFORMED;
        }
        count++;
    }
    return count < CONVOY_VIEW_GENERATIONS ? CONVOY_OK : CONVOY_LIMIT;
}

int32_t convoy_view_attach(struct convoy_view **newest, struct convoy_view *view)
{
    struct convoy_view **at = newest;
    int32_t status = check_attach(*newest, view);
    if (status != CONVOY_OK) {
        return status;
    }
    view->notes_kept = (*newest)->notes_kept;
    view->notes_kept->references++;
    view->notes = (*newest)->notes;
    view->notes_bytes = (*newest)->notes_bytes;
    while (*at != NULL && (*at)->base > view->base) {
        at = &(*at)->older;
    }
    view->older = *at;
    *at = view;
    drop_ended(*newest);
    return CONVOY_OK;
}

uint32_t convoy_view_forget(struct convoy_view *newest, uint64_t generation, uint64_t oldest)
{
    uint32_t count = 0;
    for (struct convoy_view *view = newest; view != NULL; view = view->older) {
        bool is_meant = view->generation == generation || view->generation < oldest;
        count += is_meant && !view->has_ended;
        view->has_ended = view->has_ended || is_meant;
    }
    drop_ended(newest);
    return count;
}

void convoy_view_put_all(struct convoy_view *newest)
{
    while (newest != NULL) {
        struct convoy_view *older = newest->older;
        newest->older = NULL;
        convoy_view_put(newest);
        newest = older;
    }
}

/* -- reading ------------------------------------------------------------------------------------------------------- */

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

/* As many of them as one call takes, which is all but where the process forbids a page. */
static bool read_together(const struct convoy_view *view, const struct convoy_view_part *parts, uint32_t count)
{
    struct iovec here[CONVOY_VIEW_PARTS_MAX];
    struct iovec there[CONVOY_VIEW_PARTS_MAX];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        here[i] = (struct iovec){.iov_base = parts[i].to, .iov_len = parts[i].bytes};
        there[i] = (struct iovec){.iov_base = (void *)(uintptr_t)(view->address + parts[i].offset), .iov_len = parts[i].bytes};
        bytes += parts[i].bytes;
    }
    struct pollfd process = {.fd = view->pid_fd, .events = POLLIN};
    ssize_t got = process_vm_readv(view->pid, here, count, there, count, 0);
    return got >= 0 && (uint64_t)got == bytes && poll(&process, 1, 0) == 0;
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

bool convoy_view_read(const struct convoy_view *view, uint64_t offset, void *to, uint64_t bytes, enum convoy_copy_way way)
{
    if (view->pool == NULL) {
        return read_process(view, view->address + offset, to, bytes);
    }
    convoy_copy(to, view->pool + (offset - view->base), bytes, way);
    return true;
}

bool convoy_view_read_parts(const struct convoy_view *view, const struct convoy_view_part *parts, uint32_t count,
                            enum convoy_copy_way way)
{
    if (view->pool == NULL && count > 1 && read_together(view, parts, count)) {
        return true;
    }
    for (uint32_t i = 0; i < count; i++) { /* the same once more does no harm */
        if (!convoy_view_read(view, parts[i].offset, parts[i].to, parts[i].bytes, way)) {
            return false;
        }
    }
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
    put_notes(view->notes_kept);
    view->notes_kept = NULL;
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
    if (view->pid_fd >= 0) {
        (void)close(view->pid_fd);
    }
    convoy_memory_free(view);
}

void convoy_view_leave(struct convoy_view *view)
{
    view->pool = NULL;
    view->device = NULL;
    if (view->notes_kept != NULL) {
        view->notes_kept->memory = NULL;
    }
}
