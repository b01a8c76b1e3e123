/* SPDX-License-Identifier: Apache-2.0 */
/* One forwarding function per slot of the poll table. */
#include "load/loader.h"

#include "core/error.h"

int32_t convoy_host_reduce_start(convoy_host_group *group, const struct convoy_poll_call *call,
                                 convoy_operation *operation_out, struct convoy_error *error)
{
    return group != NULL ? group->tables->poll.reduce_start(group->inner, call, operation_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_reduce_test(convoy_host_group *group, convoy_operation operation,
                                struct convoy_poll_result *result_out, struct convoy_error *error)
{
    return group != NULL ? group->tables->poll.reduce_test(group->inner, operation, result_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_reduce_wait(convoy_host_group *group, convoy_operation operation, uint64_t timeout_ns,
                                struct convoy_poll_result *result_out, struct convoy_error *error)
{
    return group != NULL ? group->tables->poll.reduce_wait(group->inner, operation, timeout_ns, result_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_reduce(convoy_host_group *group, const struct convoy_poll_call *call, uint64_t timeout_ns,
                           struct convoy_poll_result *result_out, struct convoy_error *error)
{
    return group != NULL ? group->tables->poll.reduce(group->inner, call, timeout_ns, result_out, error)
                        : convoy_host_no_handle(error, "group");
}

int32_t convoy_host_reduce2_start(convoy_host_group *first, convoy_host_group *second,
                                  const struct convoy_poll_call *call, convoy_operation *operation_out,
                                  struct convoy_error *error)
{
    if (first == NULL || second == NULL) {
        return convoy_host_no_handle(error, first == NULL ? "first" : "second");
    }
    if (first->tables != second->tables) { /* the plugin of one would be handed an object of the other */
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "first and second are of different loaders");
    }
    return first->tables->poll.reduce2_start(first->inner, second->inner, call, operation_out, error);
}

int32_t convoy_host_reduce2_test(convoy_host_group *first, convoy_operation operation,
                                 struct convoy_poll_result *result_out, struct convoy_error *error)
{
    return first != NULL ? first->tables->poll.reduce2_test(first->inner, operation, result_out, error)
                        : convoy_host_no_handle(error, "first");
}

int32_t convoy_host_reduce2_wait(convoy_host_group *first, convoy_operation operation, uint64_t timeout_ns,
                                 struct convoy_poll_result *result_out, struct convoy_error *error)
{
    return first != NULL ? first->tables->poll.reduce2_wait(first->inner, operation, timeout_ns, result_out, error)
                        : convoy_host_no_handle(error, "first");
}

int32_t convoy_host_reduce2_abandon(convoy_host_group *first, convoy_operation operation, struct convoy_error *error)
{
    return first != NULL ? first->tables->poll.reduce2_abandon(first->inner, operation, error)
                        : convoy_host_no_handle(error, "first");
}

int32_t convoy_host_consensus(convoy_loader *loader, const struct convoy_poll_consensus *input, uint8_t *states_out,
                              struct convoy_error *error)
{
    return loader != NULL ? loader->tables.poll.consensus(input, states_out, error)
                          : convoy_host_no_handle(error, "loader");
}
