/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build tool: writes the digest of a freshly linked plugin into its note, so that the loader can tell a damaged file
 * from a good one before the dynamic linker crashes on it. Usage: stamp FILE
 */
#include "load/elf_file.h"

#include "core/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int32_t write_digest(const char *path, uint64_t offset, uint64_t digest, struct convoy_error *error)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "open %s for writing", path);
    }
    int32_t status = CONVOY_OK;
    if (pwrite(fd, &digest, sizeof digest, (off_t)offset) != (ssize_t)sizeof digest) {
        status = convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "write %s", path);
    }
    if (close(fd) != 0 && status == CONVOY_OK) {
        status = convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "close %s", path);
    }
    return status;
}

static int32_t stamp(const char *path, struct convoy_error *error)
{
    static struct convoy_elf_info elf;
    struct convoy_elf_source source;
    uint64_t digest = 0;
    int32_t status = convoy_elf_source_open(path, &source, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_elf_info_read(&source, &elf, error);
    if (status == CONVOY_OK && !elf.has_digest_note) {
        status = convoy_error_set(error, CONVOY_NO_ENTRY, "it has no note for the digest");
    }
    if (status == CONVOY_OK) {
        status = convoy_elf_digest(&source, elf.digest_offset, &digest, error);
    }
    convoy_elf_source_close(&source);
    return status == CONVOY_OK ? write_digest(path, elf.digest_offset, digest, error) : status;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: stamp FILE\n");
        return 2;
    }
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (stamp(argv[1], &error) != CONVOY_OK) {
        (void)fprintf(stderr, "stamp: %s: %s\n", argv[1], error.text);
        return 1;
    }
    return 0;
}
