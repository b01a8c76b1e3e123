/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `convoy compat A B`: whether two of {plugin file, frozen release, host} go together, from files alone.
 *
 *   A, B                what is decided
 *   host, plugin        each family that the host asks for, as the loader decides it before it loads anything
 *   plugin, plugin      the wire between peers that run them, and the swap of A for B in a running host
 *   (a frozen release takes the place of a plugin; "host:1.0" is the host that was built with that release)
 */
#ifndef CONVOY_CLI_COMPAT_H
#define CONVOY_CLI_COMPAT_H

#include "convoy/loader.h"
#include "core/negotiate.h"

#include <stdbool.h>
#include <stdio.h>

#define CONVOY_COMPAT_PATH_BYTES 4096u
#define CONVOY_COMPAT_SLOTS_MAX 64u
#define CONVOY_COMPAT_NAME_BYTES 48u

/* One side. Of a host the families are what it asks for, of a plugin what it offers. */
struct convoy_compat_side {
    const char *text; /* as it was given; borrows */
    bool is_host;
    bool is_release;
    struct convoy_file_info file;
};

/* Names of the functions of one table, its header aside. */
struct convoy_compat_slots {
    uint32_t count;
    char names[CONVOY_COMPAT_SLOTS_MAX][CONVOY_COMPAT_NAME_BYTES];
};

struct convoy_compat_family {
    char name[32];
    struct convoy_version_range wanted;
    struct convoy_negotiation result;
    bool is_lower;          /* agreed, and less than A's highest */
    bool is_lost_known;     /* the layouts of both versions are there */
    struct convoy_compat_slots lost;
};

struct convoy_compat_verdict {
    bool is_swap;  /* two plugins; else a host and a plugin */
    bool works;    /* nothing that was asked for is refused */
    uint32_t family_count;
    struct convoy_compat_family families[CONVOY_LOADER_FAMILIES_MAX];
    /* of a swap */
    bool has_wire;
    uint32_t wire;
    bool is_same_build;
    bool has_move;
    bool has_state;
    bool has_way_back; /* B's state can be read by A */
};

/* The folder of frozen releases: `given`, or the one beside this command or above it. NOT_FOUND: no such folder. */
int32_t convoy_compat_folder(const char *given, char folder_out[CONVOY_COMPAT_PATH_BYTES], struct convoy_error *error);

/* folder: empty = none. INVALID_ARGUMENT: the text is none of the forms. Others: from reading the file. */
int32_t convoy_compat_side_read(const char *text, const char *folder, struct convoy_compat_side *side_out,
                                struct convoy_error *error);

/* Functions of `from` that `to` lacks. false: no layout of one of them is in the folder. */
bool convoy_compat_slots_lost(const char *folder, const char *family, struct convoy_version from,
                              struct convoy_version to, struct convoy_compat_slots *lost_out);

/* The highest version of a family that these headers have. false: they have no such family. */
bool convoy_compat_known(const char *family, struct convoy_version *version_out);

/* A file of the folder, up to 1 MiB, zero-terminated; NULL: not there. gives (convoy_memory_free) */
char *convoy_compat_read(const char *folder, const char *name, size_t *bytes_out);

/* One of the sides may be a host, whichever. */
void convoy_compat_judge(const struct convoy_compat_side *a, const struct convoy_compat_side *b, const char *folder,
                         struct convoy_compat_verdict *verdict_out);

void convoy_compat_print(FILE *out, const struct convoy_compat_side *a, const struct convoy_compat_side *b,
                         const struct convoy_compat_verdict *verdict);
/* false: it cannot be written. */
bool convoy_compat_print_json(FILE *out, const struct convoy_compat_side *a, const struct convoy_compat_side *b,
                              const struct convoy_compat_verdict *verdict);

int convoy_cli_compat(int argc, char **argv);

#endif
