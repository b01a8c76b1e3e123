/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one fuzzer's entry over its corpus, without a fuzzing engine, so that every build does. Usage: replay_NAME
 * [FOLDER]; the folder is tests/data/fuzz/NAME unless given. An empty or missing folder is a failure.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_BYTES_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input lies at the end of a block of exactly its size, so that a sanitizer sees any read past it. */
static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *room = malloc(INPUT_BYTES_MAX);
    if (file == NULL || room == NULL) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    size_t size = fread(room, 1, INPUT_BYTES_MAX, file);
    (void)fclose(file);
    uint8_t *exact = malloc(size != 0 ? size : 1);
    if (exact == NULL) {
        exit(1);
    }
    memcpy(exact, room, size);
    free(room);
    int result = LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return result;
}

int main(int argc, char **argv)
{
    char folder[512];
    const char *name = strstr(argv[0], "replay_");
    (void)snprintf(folder, sizeof folder, "tests/data/fuzz/%s", name != NULL ? name + strlen("replay_") : "");
    if (argc > 1) {
        (void)snprintf(folder, sizeof folder, "%s", argv[1]);
    }
    unsigned count = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        char path[1024];
        if (entry->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (replay_file(path) != 0) {
            fprintf(stderr, "%s: refused\n", path);
            return 1;
        }
        count++;
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    printf("%s: %u inputs\n", folder, count);
    return count != 0 ? 0 : 1;
}
