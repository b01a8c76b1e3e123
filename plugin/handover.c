/* SPDX-License-Identifier: Apache-2.0 */
#include "handover.h"

#include "core/clock.h"
#include "core/error.h"
#include "net/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* What all builds agree on: nothing in it may ever change. */
struct convoy_handover_page {
    _Atomic uint32_t taken; /* 1: somebody has resumed */
    uint32_t reserved;
    uint64_t made_ns;
};

static int32_t map(struct convoy_handover *handover, int fd, struct convoy_error *error)
{
    void *page = mmap(NULL, sizeof *handover->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "mapping the word that says who owns an exported state");
    }
    *handover = (struct convoy_handover){.page = page, .fd = fd};
    return CONVOY_OK;
}

int32_t convoy_handover_begin(struct convoy_handover *handover, struct convoy_error *error)
{
    int fd = -1;
    if (handover->page != NULL) {
        return CONVOY_OK;
    }
    int32_t status = convoy_shared_file_create(sizeof *handover->page, &fd, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = map(handover, fd, error);
    if (status != CONVOY_OK) {
        (void)close(fd);
        return status;
    }
    handover->page->made_ns = convoy_now_ns();
    return CONVOY_OK;
}

struct convoy_handover_name convoy_handover_name(const struct convoy_handover *handover)
{
    if (handover->page == NULL) {
        return (struct convoy_handover_name){0};
    }
    return (struct convoy_handover_name){.file = (uint32_t)handover->fd + 1, .made_ns = handover->page->made_ns};
}

static int32_t refuse(struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_BAD_STATE, "import_state: the exporter has resumed since, or is retired, or another "
                                                     "context has resumed from this state");
}

/* A file of the process's that is none of ours, or is not open any more, is found out here. */
static int32_t join(struct convoy_handover *handover, int fd, uint64_t made_ns, struct convoy_error *error)
{
    size_t bytes;
    if (convoy_shared_file_check(fd, sizeof *handover->page, &bytes, NULL) != CONVOY_OK) {
        return refuse(error);
    }
    int32_t status = map(handover, fd, error);
    if (status == CONVOY_OK && (handover->page->made_ns != made_ns || atomic_load(&handover->page->taken) != 0)) {
        (void)munmap(handover->page, sizeof *handover->page);
        handover->page = NULL;
        return refuse(error);
    }
    return status;
}

int32_t convoy_handover_join(struct convoy_handover *handover, const struct convoy_handover_name *name,
                             struct convoy_error *error)
{
    if (name->file == 0) {
        return CONVOY_OK;
    }
    int fd = fcntl((int)(name->file - 1), F_DUPFD_CLOEXEC, 0);
    if (fd < 0 && errno != EBADF) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "duplicating a file of an exported state");
    }
    int32_t status = fd >= 0 ? join(handover, fd, name->made_ns, error) : refuse(error);
    if (status != CONVOY_OK && fd >= 0) {
        (void)close(fd);
    }
    return status;
}

bool convoy_handover_take(struct convoy_handover *handover)
{
    uint32_t nobody = 0;
    return handover->page == NULL || atomic_compare_exchange_strong(&handover->page->taken, &nobody, 1);
}

void convoy_handover_give_back(struct convoy_handover *handover)
{
    if (handover->page != NULL) {
        atomic_store(&handover->page->taken, 0);
    }
}

void convoy_handover_end(struct convoy_handover *handover)
{
    if (handover->page != NULL) {
        (void)munmap(handover->page, sizeof *handover->page);
        (void)close(handover->fd);
    }
    *handover = (struct convoy_handover){0};
}
