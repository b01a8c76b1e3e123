/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The UCX library as a file: found, opened with dlopen (RTLD_LOCAL, never closed again), its version checked, and its
 * functions collected. Every pointer is checked to come from that one file, since two copies of UCX that bind to each
 * other are the most reported crash of this field.
 */
#ifndef CONVOY_NET_UCX_LIBRARY_H
#define CONVOY_NET_UCX_LIBRARY_H

#include "convoy/base.h"
#include "core/version.h"

#include <stdbool.h>
#include <ucp/api/ucp.h>

#define CONVOY_UCX_LIBRARY_NAME "libucp.so.0"
#define CONVOY_UCX_FILE_BYTES 256

#define CONVOY_UCX_FUNCTIONS(X)                                                                                        \
    X(ucp_am_send_nbx)                                                                                                 \
    X(ucp_cleanup)                                                                                                     \
    X(ucp_config_modify)                                                                                               \
    X(ucp_config_print)                                                                                                \
    X(ucp_config_read)                                                                                                 \
    X(ucp_config_release)                                                                                              \
    X(ucp_context_print_info)                                                                                          \
    X(ucp_context_query)                                                                                               \
    X(ucp_ep_close_nbx)                                                                                                \
    X(ucp_ep_create)                                                                                                   \
    X(ucp_ep_flush_nbx)                                                                                                \
    X(ucp_ep_print_info)                                                                                               \
    X(ucp_ep_rkey_unpack)                                                                                              \
    X(ucp_get_nbx)                                                                                                     \
    X(ucp_get_version)                                                                                                 \
    X(ucp_get_version_string)                                                                                          \
    X(ucp_init_version)                                                                                                \
    X(ucp_mem_map)                                                                                                     \
    X(ucp_mem_query)                                                                                                   \
    X(ucp_mem_unmap)                                                                                                   \
    X(ucp_put_nbx)                                                                                                     \
    X(ucp_request_check_status)                                                                                        \
    X(ucp_request_free)                                                                                                \
    X(ucp_rkey_buffer_release)                                                                                         \
    X(ucp_rkey_destroy)                                                                                                \
    X(ucp_rkey_pack)                                                                                                   \
    X(ucp_worker_arm)                                                                                                  \
    X(ucp_worker_create)                                                                                               \
    X(ucp_worker_destroy)                                                                                              \
    X(ucp_worker_flush_nbx)                                                                                            \
    X(ucp_worker_get_address)                                                                                          \
    X(ucp_worker_get_efd)                                                                                              \
    X(ucp_worker_progress)                                                                                             \
    X(ucp_worker_query)                                                                                                \
    X(ucp_worker_release_address)                                                                                      \
    X(ucp_worker_set_am_recv_handler)

#define CONVOY_UCX_FUNCTION_FIELD(name) __typeof__(name) *name;

/* One pointer per function, named like it. */
struct convoy_ucx_functions {
    CONVOY_UCX_FUNCTIONS(CONVOY_UCX_FUNCTION_FIELD)
    __typeof__(ucs_status_string) *ucs_status_string;
};

struct convoy_ucx_library {
    void *handle; /* never given to dlclose */
    struct convoy_ucx_functions functions;
    char file[CONVOY_UCX_FILE_BYTES]; /* the file that is really bound */
    char version[32];
    bool loaded_by_host;      /* it was there before convoy wanted it: nothing was touched */
    uint32_t signals_changed; /* handlers that loading replaced, all put back; 0 is expected */
    uint32_t hooks_changed;   /* bits, see convoy_ucx_hook_name; 0 is expected */
};

/*
 * Opens the file `path` ("" = the copy that the host has loaded, else the system's). INIT_FAILED: not found (the text
 * has the loader's words and what to install), outside the supported range (both versions), bound to another copy (both
 * files), or opened by the parent of this forked process. [any thread; serialized inside]
 */
int32_t convoy_ucx_library_open(const char *path, struct convoy_ucx_library *library_out, struct convoy_error *error);

#endif
