/* SPDX-License-Identifier: Apache-2.0 */
/* One forwarding function per slot of the poll table. */
#include "load/forward.h"

#include "core/error.h"

int32_t convoy_host_reduce_start(convoy_host_group *group, const struct convoy_poll_call *call,
                                 convoy_operation *operation_out, struct convoy_error *error)
{
    CONVOY_FORWARD(group, poll.reduce_start, call, operation_out, error);
}

int32_t convoy_host_reduce_test(convoy_host_group *group, convoy_operation operation,
                                struct convoy_poll_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD(group, poll.reduce_test, operation, result_out, error);
}

int32_t convoy_host_reduce_wait(convoy_host_group *group, convoy_operation operation, uint64_t timeout_ns,
                                struct convoy_poll_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD_WAIT(group, poll.reduce_wait, operation, timeout_ns, result_out, error);
}

int32_t convoy_host_reduce(convoy_host_group *group, const struct convoy_poll_call *call, uint64_t timeout_ns,
                           struct convoy_poll_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD_WAIT(group, poll.reduce, call, timeout_ns, result_out, error);
}

int32_t convoy_host_reduce2_start(convoy_host_group *first, convoy_host_group *second,
                                  const struct convoy_poll_call *call, convoy_operation *operation_out,
                                  struct convoy_error *error)
{
    if (first == NULL || second == NULL) {
        return convoy_host_no_handle(error, first == NULL ? "first" : "second");
    }
    if (first->handle.loader != second->handle.loader) { /* one's plugin would be handed an object of the other's */
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "first and second are of different loaders");
    }
    struct convoy_again again = {0};
    bool is_one_build;
    int32_t status;
    do {
        const struct convoy_binding *one = convoy_handle_binding(&first->handle);
        const struct convoy_binding *other = convoy_handle_binding(&second->handle);
        is_one_build = one->tables == other->tables;
        status = is_one_build ? one->tables->poll.reduce2_start(one->inner, other->inner, call, operation_out, error)
                              : CONVOY_MOVED; /* a swap is just binding them, or one was left behind */
    } while (status == CONVOY_MOVED && convoy_gate_again(&first->handle.loader->gate, &again, &status, error));
    if (status == CONVOY_MOVED && !is_one_build) {
        return convoy_error_set(error, CONVOY_CLOSED,
                                "first and second are behind different builds: one of them was closed or had failed, or "
                                "its context could not be handed over, when the other one's was");
    }
    return status;
}

int32_t convoy_host_reduce2_test(convoy_host_group *first, convoy_operation operation,
                                 struct convoy_poll_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD(first, poll.reduce2_test, operation, result_out, error);
}

int32_t convoy_host_reduce2_wait(convoy_host_group *first, convoy_operation operation, uint64_t timeout_ns,
                                 struct convoy_poll_result *result_out, struct convoy_error *error)
{
    CONVOY_FORWARD_WAIT(first, poll.reduce2_wait, operation, timeout_ns, result_out, error);
}

int32_t convoy_host_reduce2_abandon(convoy_host_group *first, convoy_operation operation, struct convoy_error *error)
{
    CONVOY_FORWARD(first, poll.reduce2_abandon, operation, error);
}

int32_t convoy_host_consensus(convoy_loader *loader, const struct convoy_poll_consensus *input, uint8_t *states_out,
                              struct convoy_error *error)
{
    return loader != NULL ? convoy_loader_tables(loader)->poll.consensus(input, states_out, error)
                          : convoy_host_no_handle(error, "loader");
}
