/* SPDX-License-Identifier: Apache-2.0 */
#include "load/elf_file.h"

#include "core/error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of_file(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return "a directory";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    case S_IFCHR:
    case S_IFBLK: return "a device";
    default: return "no regular file";
    }
}

static int32_t check_stat(const char *path, const struct stat *status, struct convoy_error *error)
{
    if (!S_ISREG(status->st_mode)) {
        return convoy_error_set(error, CONVOY_BAD_FILE, "%s is %s, not a shared object", path,
                                kind_of_file(status->st_mode));
    }
    if (status->st_size <= 0) {
        return convoy_error_set(error, CONVOY_BAD_FILE, "%s is empty", path);
    }
    return CONVOY_OK;
}

int32_t convoy_elf_source_open(const char *path, struct convoy_elf_source *source_out, struct convoy_error *error)
{
    /* Without O_NONBLOCK the open of a pipe that nobody writes to would wait for ever. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        bool is_missing = errno == ENOENT || errno == ENOTDIR;
        return convoy_error_set_errno(error, is_missing ? CONVOY_NOT_FOUND : CONVOY_SYSTEM, errno, "open %s", path);
    }
    struct stat file;
    int32_t status = CONVOY_OK;
    if (fstat(fd, &file) != 0) {
        status = convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "stat %s", path);
    } else {
        status = check_stat(path, &file, error);
    }
    if (status != CONVOY_OK) {
        (void)close(fd);
        return status;
    }
    *source_out = (struct convoy_elf_source){
        .fd = fd, .size = (uint64_t)file.st_size, .device = file.st_dev, .inode = file.st_ino};
    return CONVOY_OK;
}

void convoy_elf_source_close(struct convoy_elf_source *source)
{
    if (source->fd >= 0) {
        (void)close(source->fd);
        source->fd = -1;
    }
}

static int32_t read_file(const struct convoy_elf_source *source, uint64_t offset, void *bytes_out, size_t bytes,
                         struct convoy_error *error)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t count = pread(source->fd, (char *)bytes_out + done, bytes - done, (off_t)(offset + done));
        if (count > 0) {
            done += (size_t)count;
        } else if (count == 0) {
            return convoy_error_set(error, CONVOY_BAD_FILE, "truncated while it was read, at offset %zu",
                                    (size_t)offset + done);
        } else if (errno != EINTR) {
            return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "read at offset %zu", (size_t)offset + done);
        }
    }
    return CONVOY_OK;
}

int32_t convoy_elf_source_read(const struct convoy_elf_source *source, uint64_t offset, void *bytes_out, size_t bytes,
                               const char *what, struct convoy_error *error)
{
    if (offset > source->size || bytes > source->size - offset) {
        return convoy_error_set(error, CONVOY_BAD_FILE,
                                "truncated or corrupt: %s should lie at offset %llu, %zu bytes, but the file has %llu",
                                what, (unsigned long long)offset, bytes, (unsigned long long)source->size);
    }
    if (source->fd >= 0) {
        return read_file(source, offset, bytes_out, bytes, error);
    }
    memcpy(bytes_out, source->memory + offset, bytes);
    return CONVOY_OK;
}
