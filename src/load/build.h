/* SPDX-License-Identifier: Apache-2.0 */
/* One build of the plugin that a loader has loaded, and what the host asks of every build. */
#ifndef CONVOY_LOAD_BUILD_H
#define CONVOY_LOAD_BUILD_H

#include "convoy/loader.h"
#include "load/inspect.h"
#include "load/mapped.h"
#include "load/tables.h"

#include <stdbool.h>

/* Does not change once it is loaded. */
struct convoy_build {
    struct convoy_host_tables tables; /* copies; a slot that the plugin lacks answers UNSUPPORTED */
    struct convoy_loader_info info;
    struct convoy_build_id id;
    void *library; /* of dlopen */
    struct convoy_build *next;
};

/* The options of an open, kept for the builds that come later. Points into itself: never moved. */
struct convoy_requests {
    struct convoy_family_request families[CONVOY_LOADER_FAMILIES_MAX];
    char names[CONVOY_LOADER_FAMILIES_MAX][32];
    size_t family_count;
    uint32_t flags;
    uint32_t log_level;
    convoy_log_fn log;
    void *log_user;
    char *host_name; /* owns; may be NULL */
};

/* Checks and copies. INVALID_ARGUMENT: text. NO_MEMORY. requests_out: gives (free). */
int32_t convoy_requests_take(const struct convoy_loader_options *options, struct convoy_requests *requests_out,
                             struct convoy_error *error);
void convoy_requests_free(struct convoy_requests *requests);
bool convoy_request_is_named(const struct convoy_family_request *request, const char *name);
bool convoy_requests_is_needed(const struct convoy_requests *requests, const struct convoy_family_request *request);
bool convoy_requests_is_logged(const struct convoy_requests *requests, uint32_t level);

/* Finds a file and decides from it alone. path: NULL = search. Statuses: as convoy_loader_open. */
int32_t convoy_build_find(const struct convoy_requests *requests, const char *path,
                          struct convoy_inspected *inspected_out, struct convoy_error *error);

/* Loads what was found and asks it. build_out: gives (free). Statuses: as convoy_loader_open. */
int32_t convoy_build_load(const struct convoy_requests *requests, const struct convoy_inspected *inspected,
                          struct convoy_build **build_out, struct convoy_error *error);

/* Lets go of the library; its code stays mapped. */
void convoy_build_free(struct convoy_build *build);

struct convoy_build_id convoy_build_inspected_id(const struct convoy_inspected *inspected);

/* The build's own table of a family that was agreed, or NULL. */
const struct convoy_table_header *convoy_build_table(const struct convoy_build *build, const char *family);

/* The one line of a load: what was agreed (NVIDIA/nccl issue 1292: probes that fail must not look like the error). */
void convoy_build_log(const struct convoy_requests *requests, const struct convoy_build *build);

/* Loads the inspected file, or finds it mapped already, and verifies that it is what was inspected.
 * library_out: gives (dlclose). Statuses: as convoy_loader_open. */
int32_t convoy_library_open(const struct convoy_inspected *inspected, void **library_out, uint32_t *was_mapped_out,
                            convoy_query_fn *query_out, struct convoy_error *error);

#endif
