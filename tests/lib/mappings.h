/* SPDX-License-Identifier: Apache-2.0 */
/* How much of this library's shared memory this process holds, as the kernel lists it. */
#ifndef TESTS_LIB_MAPPINGS_H
#define TESTS_LIB_MAPPINGS_H

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAPPINGS_NAME "/memfd:convoy"

/* Mappings of its files. */
static inline uint32_t mappings_count(void)
{
    char line[512];
    uint32_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, MAPPINGS_NAME) != NULL;
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return count;
}

/* Descriptors of its files. */
static inline uint32_t mappings_files(void)
{
    char target[256];
    uint32_t count = 0;
    DIR *files = opendir("/proc/self/fd");
    struct dirent *entry;
    while (files != NULL && (entry = readdir(files)) != NULL) {
        ssize_t length = readlinkat(dirfd(files), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        count += strncmp(target, MAPPINGS_NAME, sizeof MAPPINGS_NAME - 1) == 0;
    }
    if (files != NULL) {
        (void)closedir(files);
    }
    return count;
}

#endif
