/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every sized struct of the ABI with a call that takes it, and every array that has a stride. The host is a context, a
 * group of one member with a schema, so that every call ends at once, and two transfer engines.
 */
#ifndef TESTS_ABI_STRUCT_CASES_H
#define TESTS_ABI_STRUCT_CASES_H

#include "tests/abi/calls.h"
#include "tests/abi/struct_engines.h"

#include <stdbool.h>

struct struct_host {
    struct plugin_member *member;
    convoy_group *alone; /* second level */
    struct convoy_context_config config;
    struct convoy_group_options options;
    struct calls calls;
    struct convoy_sync_schema schema;
    struct convoy_sync_column column;
    struct convoy_poll_faults faults;
    struct convoy_poll_fault fault;
    struct convoy_poll_consensus consensus;
    struct convoy_sync_padding padding;
    struct convoy_sync_padded padded;
    struct convoy_family_request request;
    struct convoy_family_answer answer;
    struct convoy_host_info info;
    struct convoy_plugin_info plugin_info;
    uint64_t ids[2];
    int64_t tokens[2];
    uint8_t states[2];
    struct struct_engines engines;
    struct convoy_error error;
};

struct struct_case {
    const char *name; /* as error texts call it */
    size_t bytes;
    size_t offset; /* of a good one in struct struct_host */
    bool is_out;
    /* Makes the call with `given` in place of the good struct, or of the array's only element when there is a stride. */
    int32_t (*run)(struct struct_host *host, void *given, size_t stride);
    bool is_array; /* `stride` counts, the element has no struct_size */
};

/* Its size in release 1.0, which is the least that is taken. */
size_t struct_case_first_bytes(const struct struct_case *one);

extern const struct struct_case struct_cases[];
extern const size_t struct_case_count;

struct struct_host *struct_host_create(void);
void struct_host_destroy(struct struct_host *host);

#endif
