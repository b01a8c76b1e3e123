/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every host_* function does: one acquire load of the handle's binding, one load each of the slot and the inner
 * object, and a call. Only an answer of MOVED leaves that path: it waits for the swap that gave it, and calls what is
 * bound then.
 */
#ifndef CONVOY_LOAD_FORWARD_H
#define CONVOY_LOAD_FORWARD_H

#include "load/loader.h"

#define CONVOY_FORWARD_LOOP(host, again, slot, ...)                                                                    \
    const struct convoy_binding *binding = convoy_handle_binding(&(host)->handle);                                     \
    int32_t status = binding->tables->slot(binding->inner, __VA_ARGS__);                                               \
    while (__builtin_expect(status == CONVOY_MOVED, 0) &&                                                              \
           convoy_gate_again(&(host)->handle.loader->gate, (again), &status, error))

/* The body of a function with a parameter `error`; the arguments after the slot are what follows the inner object. */
#define CONVOY_FORWARD(host, slot, ...)                                                                                \
    do {                                                                                                               \
        if ((host) == NULL) {                                                                                          \
            return convoy_host_no_handle(error, #host);                                                                \
        }                                                                                                              \
        struct convoy_again again = {0};                                                                               \
        CONVOY_FORWARD_LOOP(host, &again, slot, __VA_ARGS__)                                                           \
        {                                                                                                              \
            binding = convoy_handle_binding(&(host)->handle);                                                          \
            status = binding->tables->slot(binding->inner, __VA_ARGS__);                                               \
        }                                                                                                              \
        return status;                                                                                                 \
    } while (0)

/* The same of a function that waits up to its parameter `timeout_ns`. */
#define CONVOY_FORWARD_WAIT(host, slot, ...)                                                                           \
    do {                                                                                                               \
        if ((host) == NULL) {                                                                                          \
            return convoy_host_no_handle(error, #host);                                                                \
        }                                                                                                              \
        struct convoy_again again = {                                                                                  \
            .has_timeout = true, .begun_ns = convoy_gate_coarse_ns(), .timeout_ns = timeout_ns};                       \
        CONVOY_FORWARD_LOOP(host, &again, slot, __VA_ARGS__)                                                           \
        {                                                                                                              \
            timeout_ns = again.timeout_ns;                                                                             \
            binding = convoy_handle_binding(&(host)->handle);                                                          \
            status = binding->tables->slot(binding->inner, __VA_ARGS__);                                               \
        }                                                                                                              \
        return status;                                                                                                 \
    } while (0)

#endif
