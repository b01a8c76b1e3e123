/* SPDX-License-Identifier: Apache-2.0 */
/* Files for the loader's tests: the tiny plugins that were built with them, and a folder for files a test makes. */
#ifndef TESTS_UNIT_PLUGIN_FILES_H
#define TESTS_UNIT_PLUGIN_FILES_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLUGIN_FILE_PATH_BYTES 700

/* Path of the tiny plugin of one kind; they lie in abi/plugins beside the folder of the running test. */
static inline void plugin_file(const char *kind, char path_out[PLUGIN_FILE_PATH_BYTES])
{
    char self[512] = {0};
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = length > 0 ? strrchr(self, '/') : NULL;
    if (slash == NULL) {
        abort();
    }
    *slash = '\0';
    (void)snprintf(path_out, PLUGIN_FILE_PATH_BYTES, "%s/../abi/plugins/%s.so", self, kind);
}

struct file_bytes {
    unsigned char *bytes;
    size_t size;
};

/* The whole file; the test ends here when there is none. gives (free) */
static inline struct file_bytes file_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct file_bytes result = {malloc(1 << 20), 0};
    if (file == NULL || result.bytes == NULL) {
        (void)fprintf(stderr, "cannot read %s\n", path);
        abort();
    }
    result.size = fread(result.bytes, 1, 1 << 20, file);
    (void)fclose(file);
    return result;
}

static inline void file_write(const char *path, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size || close(fd) != 0) {
        abort();
    }
}

/* Puts a copy in place by rename, as an installation should. */
static inline void file_install(const char *from, const char *to)
{
    char fresh[PLUGIN_FILE_PATH_BYTES + 8];
    struct file_bytes copy = file_read(from);
    (void)snprintf(fresh, sizeof fresh, "%s.new", to);
    file_write(fresh, copy.bytes, copy.size);
    free(copy.bytes);
    if (rename(fresh, to) != 0) {
        abort();
    }
}

/* Group setup and teardown: *state is the path of a fresh folder, which is removed with its files. */
static inline int folder_setup(void **state)
{
    char *folder = strdup("/tmp/convoy-test-XXXXXX");
    *state = folder;
    return folder != NULL && mkdtemp(folder) != NULL ? 0 : -1;
}

static inline int folder_teardown(void **state)
{
    char *folder = *state;
    DIR *list = opendir(folder);
    struct dirent *entry;
    while (list != NULL && (entry = readdir(list)) != NULL) {
        (void)unlinkat(dirfd(list), entry->d_name, 0); /* "." and ".." refuse */
    }
    (void)(list != NULL && closedir(list));
    int result = rmdir(folder);
    free(folder);
    return result;
}

static inline void folder_path(void **state, const char *name, char path_out[PLUGIN_FILE_PATH_BYTES])
{
    (void)snprintf(path_out, PLUGIN_FILE_PATH_BYTES, "%s/%s", (const char *)*state, name);
}

#endif
