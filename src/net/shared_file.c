/* SPDX-License-Identifier: Apache-2.0 */
#include "net/shared_file.h"

#include "core/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define NOEXEC_SEAL 0x0008u /* MFD_NOEXEC_SEAL, Linux 6.3: required where vm.memfd_noexec is 2 */
#define SHARE_OF_MEMORY 16 /* what a segment may take whatever else is in memory (caches count as used) */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

static int create_memfd(void)
{
    int fd = memfd_create("convoy", MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create("convoy", MFD_CLOEXEC | MFD_ALLOW_SEALING) : fd;
}

/*
 * Asks before doing what does not come back as a status: growing a file past RLIMIT_FSIZE raises SIGXFSZ, and a
 * reservation larger than memory wakes the kernel's out-of-memory killer.
 */
static int check_limits(size_t bytes)
{
    struct rlimit limit;
    struct sysinfo machine;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
        return EFBIG;
    }
    if (sysinfo(&machine) == 0 && bytes / machine.mem_unit > (machine.freeram + machine.bufferram) / 2 &&
        bytes / machine.mem_unit > machine.totalram / SHARE_OF_MEMORY) {
        return ENOMEM;
    }
    return 0;
}

/* Reserves every page now: a full memory file system is a status here, and would be SIGBUS later. */
static int reserve(int fd, size_t bytes)
{
    int sys_errno = check_limits(bytes);
    if (sys_errno != 0) {
        return sys_errno;
    }
    if (ftruncate(fd, (off_t)bytes) != 0) {
        return errno;
    }
    do {
        sys_errno = posix_fallocate(fd, 0, (off_t)bytes);
    } while (sys_errno == EINTR);
    return sys_errno;
}

/* A reserved file, to which seals can still be added. */
static int32_t create(size_t bytes, int *fd_out, struct convoy_error *error)
{
    int fd = create_memfd();
    if (fd < 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "memfd_create");
    }
    int sys_errno = reserve(fd, bytes);
    if (sys_errno != 0) {
        (void)close(fd);
        return convoy_error_set_errno(error, CONVOY_SYSTEM, sys_errno, "reserve %zu bytes of shared memory", bytes);
    }
    *fd_out = fd;
    return CONVOY_OK;
}

/* Its last seals. On failure the file is closed. */
static int32_t seal(int fd, int seals, struct convoy_error *error)
{
    if (fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SEAL) == 0) {
        return CONVOY_OK;
    }
    int sys_errno = errno;
    (void)close(fd);
    return convoy_error_set_errno(error, CONVOY_SYSTEM, sys_errno, "seal shared memory");
}

int32_t convoy_shared_file_create(size_t bytes, int *fd_out, struct convoy_error *error)
{
    int fd;
    int32_t status = create(bytes, &fd, error);
    if (status == CONVOY_OK) {
        status = seal(fd, SEALS, error);
    }
    if (status == CONVOY_OK) {
        *fd_out = fd;
    }
    return status;
}

int32_t convoy_shared_file_create_owned(size_t bytes, int *fd_out, void **address_out, struct convoy_error *error)
{
    int fd;
    int32_t status = create(bytes, &fd, error);
    if (status != CONVOY_OK) {
        return status;
    }
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        int sys_errno = errno;
        (void)close(fd);
        return convoy_error_set_errno(error, CONVOY_SYSTEM, sys_errno, "map %zu bytes of shared memory", bytes);
    }
    status = seal(fd, SEALS | F_SEAL_FUTURE_WRITE, error);
    if (status != CONVOY_OK) {
        (void)munmap(address, bytes);
        return status;
    }
    *fd_out = fd;
    *address_out = address;
    return CONVOY_OK;
}

int32_t convoy_shared_file_view(int fd, size_t bytes_min, const void **address_out, size_t *bytes_out,
                                struct convoy_error *error)
{
    size_t bytes = 0;
    int32_t status = convoy_shared_file_check(fd, bytes_min, &bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    void *address = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED || madvise(address, bytes, MADV_DONTFORK) != 0) {
        int sys_errno = errno;
        if (address != MAP_FAILED) {
            (void)munmap(address, bytes);
        }
        return convoy_error_set_errno(error, CONVOY_SYSTEM, sys_errno, "map %zu bytes of a peer's shared memory", bytes);
    }
    *address_out = address;
    *bytes_out = bytes;
    return CONVOY_OK;
}

int32_t convoy_shared_file_check(int fd, size_t bytes_min, size_t *bytes_out, struct convoy_error *error)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &status) != 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "the shared segment is no file sealed against shrinking");
    }
    if (status.st_size <= 0 || (size_t)status.st_size < bytes_min) {
        return convoy_error_set(error, CONVOY_MALFORMED, "the shared segment has %lld bytes, %zu are needed",
                                (long long)status.st_size, bytes_min);
    }
    *bytes_out = (size_t)status.st_size;
    return CONVOY_OK;
}
