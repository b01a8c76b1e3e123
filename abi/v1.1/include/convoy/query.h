/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy/query.h: the one exported function, and negotiation per family.
 *
 * The host says which [min,max] of each family it can use; the plugin answers each with the highest version both
 * have and a function table, or with a refusal and its reason. A refused family does not sink the others.
 */
#ifndef CONVOY_QUERY_H
#define CONVOY_QUERY_H

#include "convoy/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(CONVOY_BUILDING)
#define CONVOY_API __attribute__((visibility("default")))
#else
#define CONVOY_API
#endif

#define CONVOY_QUERY_SYMBOL "convoy_query"
#define CONVOY_SONAME "libconvoy.so.1"
#define CONVOY_NOTE_OWNER "convoy" /* owner name of the ELF note that holds the manifest */
#define CONVOY_NOTE_MANIFEST 1     /* its type; the descriptor is the JSON text, padded with zeros */
#define CONVOY_NOTE_DIGEST 2       /* type of the note with the 8-byte hash of what is loaded: damage is seen by it */

/* Every table starts with this. Tables are append-only and hold no NULL inside table_size. */
struct convoy_table_header {
    uint32_t table_size; /* bytes, this header included */
    uint16_t major;
    uint16_t minor;
};

/* IN: one family the host can use. Element of an array; the stride is its struct_size. */
struct convoy_family_request {
    const char *name; /* "core", "poll", "sync", ...; borrows */
    size_t name_length;
    uint16_t major_min; /* lowest version the host can use */
    uint16_t minor_min;
    uint16_t major_max; /* highest version the host knows */
    uint16_t minor_max;
};

/* OUT: the answer to the request at the same position. The stride is its struct_size. */
struct convoy_family_answer {
    const struct convoy_table_header *table; /* NULL when refused; valid while the plugin is mapped */
    int32_t status;                          /* CONVOY_OK, UNSUPPORTED: no such family. TOO_OLD: the plugin is older than
                                                the host needs; TOO_NEW: newer */
    uint16_t major;                          /* agreed version, 0.0 when refused */
    uint16_t minor;
    uint16_t plugin_major_min; /* what the plugin has */
    uint16_t plugin_minor_min;
    uint16_t plugin_major_max;
    uint16_t plugin_minor_max;
    char reason[120]; /* why it was refused, both ranges named; empty when agreed */
};

/* IN: who asks. */
struct convoy_host_info {
    uint32_t struct_size;
    uint32_t critical_flags; /* none defined: any bit refuses */
    uint32_t hint_flags;     /* unknown bits are ignored */
    uint32_t reserved;
    const char *name; /* for logs, such as "myserver 2.1"; borrows; may be NULL */
    size_t name_length;
    const struct convoy_family_request *families; /* borrows */
    size_t family_stride;
    size_t family_count; /* at most 64 */
};

/* OUT: who answers. */
struct convoy_plugin_info {
    uint32_t struct_size;
    uint32_t written_bytes;
    struct convoy_family_answer *answers; /* in: caller's array of at least family_count elements */
    size_t answer_stride;                 /* in */
    size_t answer_capacity;               /* in */
    size_t answer_count;                  /* out */
    const char *manifest;                 /* out: the JSON text that is also the ELF note; lives as long as the map */
    size_t manifest_length;
    const char *release; /* out: such as "1.0.0" */
    size_t release_length;
    const char *build_id; /* out: hexadecimal text of the ELF build id */
    size_t build_id_length;
};

/*
 * Answers who this plugin is and which families it gives the host. Has no side effect at all: no allocation, thread,
 * file, environment, UCX. May be called any number of times, before and after anything, in a forked child too.
 * host: borrows. plugin_out, error: written in place.
 * OK: plugin_out is filled, also when some family was refused (see each answer).
 * INVALID_ARGUMENT, for the call as a whole: NULL host or plugin_out, too few answers, too many families, a family without a
 * name or with its lowest version above its highest. TOO_OLD, TOO_NEW: the structs
 * themselves do not fit (error text says which and where).
 * [any thread; never blocks; never allocates; any state; since 1.0]
 */
CONVOY_API int32_t convoy_query(const struct convoy_host_info *host, struct convoy_plugin_info *plugin_out,
                                struct convoy_error *error);

typedef int32_t (*convoy_query_fn)(const struct convoy_host_info *host, struct convoy_plugin_info *plugin_out,
                                   struct convoy_error *error);

#ifdef __cplusplus
}
#endif

#endif
