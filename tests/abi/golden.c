/* SPDX-License-Identifier: Apache-2.0 */
/* Writes all golden frames as files, with an index: golden DIRECTORY. The directory is there and empty. */
#include "golden.h"

#include "core/status.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>

static alignas(64) uint8_t room[GOLDEN_BYTES_MAX];

static FILE *open_in(const char *directory, const char *name)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wbxe");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    return file;
}

static void write_one(const char *directory, const char *name, size_t length)
{
    FILE *file = open_in(directory, name);
    size_t written = fwrite(room, 1, length, file);
    if (written != length || fclose(file) != 0) {
        perror(name);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: golden DIRECTORY\n");
        return 2;
    }
    FILE *index = open_in(argv[1], "index.tsv");
    (void)fprintf(index, "file\tframe\tanswer\n");
    for (size_t set = 0; set < GOLDEN_SETS; set++) {
        for (size_t i = 0; i < golden_sets[set]->frame_count; i++) {
            const struct golden_frame *frame = &golden_sets[set]->frames[i];
            write_one(argv[1], frame->name, golden_make(frame, room));
            (void)fprintf(index, "%s\t%s\tOK\n", frame->name, frame->name);
        }
        for (size_t i = 0; i < golden_sets[set]->bad_count; i++) {
            const struct golden_bad *bad = &golden_sets[set]->bads[i];
            write_one(argv[1], bad->name, golden_make_bad(bad, room));
            (void)fprintf(index, "%s\t%s\t%s\n", bad->name, bad->of,
                          bad->status == GOLDEN_OTHER ? "OTHER" : convoy_status_name(bad->status));
        }
    }
    return fclose(index) == 0 ? 0 : 1;
}
