/* SPDX-License-Identifier: Apache-2.0 */
/* One forwarding function per slot of the sync table. */
#include "load/forward.h"

int32_t convoy_host_gather_start(convoy_host_group *group, const struct convoy_sync_call *call,
                                 convoy_operation *operation_out, struct convoy_error *error)
{
    CONVOY_FORWARD(group, sync.gather_start, call, operation_out, error);
}

int32_t convoy_host_gather_test(convoy_host_group *group, convoy_operation operation,
                                struct convoy_sync_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD(group, sync.gather_test, operation, result_out, error);
}

int32_t convoy_host_gather_wait(convoy_host_group *group, convoy_operation operation, uint64_t timeout_ns,
                                struct convoy_sync_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD_WAIT(group, sync.gather_wait, operation, timeout_ns, result_out, error);
}

int32_t convoy_host_gather(convoy_host_group *group, const struct convoy_sync_call *call, uint64_t timeout_ns,
                           struct convoy_sync_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD_WAIT(group, sync.gather, call, timeout_ns, result_out, error);
}

int32_t convoy_host_padded_size(convoy_loader *loader, const struct convoy_sync_padding *input,
                                struct convoy_sync_padded *padded_out, struct convoy_error *error)
{
    return loader != NULL ? convoy_loader_tables(loader)->sync.padded_size(input, padded_out, error)
                          : convoy_host_no_handle(error, "loader");
}

int32_t convoy_host_starts(convoy_loader *loader, const struct convoy_sync_padding *input, int64_t extent,
                           int64_t *starts_out, struct convoy_error *error)
{
    return loader != NULL ? convoy_loader_tables(loader)->sync.starts(input, extent, starts_out, error)
                          : convoy_host_no_handle(error, "loader");
}
