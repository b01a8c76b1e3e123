/* SPDX-License-Identifier: Apache-2.0 */
/* One forwarding function per slot of the sync table. */
#include "load/loader.h"

int32_t convoy_host_gather_start(convoy_host_group *group, const struct convoy_sync_call *call,
                                 convoy_operation *operation_out, struct convoy_error *error)
{
    return group != NULL ? group->tables->sync.gather_start(group->inner, call, operation_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_gather_test(convoy_host_group *group, convoy_operation operation,
                                struct convoy_sync_result *result_out, struct convoy_error *error)
{
    return group != NULL ? group->tables->sync.gather_test(group->inner, operation, result_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_gather_wait(convoy_host_group *group, convoy_operation operation, uint64_t timeout_ns,
                                struct convoy_sync_result *result_out, struct convoy_error *error)
{
    return group != NULL ? group->tables->sync.gather_wait(group->inner, operation, timeout_ns, result_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_gather(convoy_host_group *group, const struct convoy_sync_call *call, uint64_t timeout_ns,
                           struct convoy_sync_result *result_out, struct convoy_error *error)
{
    return group != NULL ? group->tables->sync.gather(group->inner, call, timeout_ns, result_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_padded_size(convoy_loader *loader, const struct convoy_sync_padding *input,
                                struct convoy_sync_padded *padded_out, struct convoy_error *error)
{
    return loader != NULL ? loader->tables.sync.padded_size(input, padded_out, error)
                          : convoy_host_no_handle(error, "loader");
}

int32_t convoy_host_starts(convoy_loader *loader, const struct convoy_sync_padding *input, int64_t extent,
                           int64_t *starts_out, struct convoy_error *error)
{
    return loader != NULL ? loader->tables.sync.starts(input, extent, starts_out, error)
                          : convoy_host_no_handle(error, "loader");
}
