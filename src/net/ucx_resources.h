/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What UCX can use here, read from the text that it prints: UCX 1.13 has no other public way to ask. Pure code: text
 * in, names out. A format that is not recognised gives an empty list, which means "unknown", never "nothing".
 */
#ifndef CONVOY_NET_UCX_RESOURCES_H
#define CONVOY_NET_UCX_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONVOY_UCX_RESOURCES_MAX 64
#define CONVOY_UCX_NAME_BYTES 32

/* One transport on one device. */
struct convoy_ucx_resource {
    char transport[CONVOY_UCX_NAME_BYTES];
    char device[CONVOY_UCX_NAME_BYTES];
};

struct convoy_ucx_resources {
    uint32_t count;
    struct convoy_ucx_resource rows[CONVOY_UCX_RESOURCES_MAX];
};

/* From ucp_context_print_info. */
void convoy_ucx_resources_parse_context(const char *text, struct convoy_ucx_resources *resources_out);

/* From ucp_ep_print_info: the lanes of one endpoint, each transport and device once. */
void convoy_ucx_resources_parse_endpoint(const char *text, struct convoy_ucx_resources *resources_out);

/* The same text: only the lanes over which UCX puts ("put[0]: ..."); none where it emulates. */
void convoy_ucx_resources_parse_rma(const char *text, struct convoy_ucx_resources *resources_out);

/* Whether a transport leaves the process and the host: not shared memory, loopback inside a process, or a GPU's. */
bool convoy_ucx_transport_is_network(const char *transport);

#define CONVOY_UCX_MEMORY_TYPES 5u
#define CONVOY_UCX_MEMORY_TEXT_BYTES 64u

/* A kind of memory by its number in UCX ("host", "cuda"), below CONVOY_UCX_MEMORY_TYPES. */
const char *convoy_ucx_memory_name(uint32_t type);

/* Kinds, a bit each, as "host, cuda"; "unknown" when there is none. text_out: CONVOY_UCX_MEMORY_TEXT_BYTES. */
void convoy_ucx_memory_text(uint64_t types, char *text_out);

/* Value of `name` in the lines "UCX_NAME=value" or "NAME=value" of ucp_config_print; false when it is not there. */
bool convoy_ucx_config_find(const char *text, const char *name, char *value_out, size_t value_bytes);

#endif
