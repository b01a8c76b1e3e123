/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every host_* function does: one acquire load of the handle's binding, one load each of the slot and the inner
 * object, and a call. Only an answer of MOVED leaves that path: it waits for the swap that gave it, and calls what is
 * bound then.
 */
#ifndef CONVOY_LOAD_FORWARD_H
#define CONVOY_LOAD_FORWARD_H

#include "load/loader.h"

/* One try: whatever the handle is bound to now. */
#define CONVOY_FORWARD_ONCE(host, binding, slot, ...)                                                                  \
    ((binding) = convoy_handle_binding(&(host)->handle), (binding)->tables->slot((binding)->inner, __VA_ARGS__))

/* The body of a function with a parameter `error`; the arguments after the slot are what follows the inner object. What is
 * needed only after MOVED is made only then. */
#define CONVOY_FORWARD(host, slot, ...)                                                                                \
    do {                                                                                                               \
        if ((host) == NULL) {                                                                                          \
            return convoy_host_no_handle(error, #host);                                                                \
        }                                                                                                              \
        const struct convoy_binding *binding;                                                                          \
        int32_t status = CONVOY_FORWARD_ONCE(host, binding, slot, __VA_ARGS__);                                        \
        if (__builtin_expect(status != CONVOY_MOVED, 1)) {                                                             \
            return status;                                                                                             \
        }                                                                                                              \
        struct convoy_again again = {0};                                                                               \
        int32_t answer = status;                                                                                       \
        while (answer == CONVOY_MOVED && convoy_gate_again(&(host)->handle.loader->gate, &again, &answer, error)) {    \
            answer = CONVOY_FORWARD_ONCE(host, binding, slot, __VA_ARGS__);                                            \
        }                                                                                                              \
        return answer;                                                                                                 \
    } while (0)

/* The same of a function of an engine that waits up to its parameter `timeout_ns`: only engines answer MOVED in the middle of
 * a wait. A group that falls silent ends its waits first, so that what is answered MOVED has not waited, and needs no clock. */
#define CONVOY_FORWARD_WAIT(host, slot, ...)                                                                           \
    do {                                                                                                               \
        if ((host) == NULL) {                                                                                          \
            return convoy_host_no_handle(error, #host);                                                                \
        }                                                                                                              \
        const uint64_t begun_ns = convoy_gate_coarse_ns();                                                             \
        const struct convoy_binding *binding;                                                                          \
        int32_t status = CONVOY_FORWARD_ONCE(host, binding, slot, __VA_ARGS__);                                        \
        if (__builtin_expect(status != CONVOY_MOVED, 1)) {                                                             \
            return status;                                                                                             \
        }                                                                                                              \
        struct convoy_again again = {.has_timeout = true, .begun_ns = begun_ns, .timeout_ns = timeout_ns};             \
        int32_t answer = status;                                                                                       \
        while (answer == CONVOY_MOVED && convoy_gate_again(&(host)->handle.loader->gate, &again, &answer, error)) {    \
            timeout_ns = again.timeout_ns;                                                                             \
            answer = CONVOY_FORWARD_ONCE(host, binding, slot, __VA_ARGS__);                                            \
        }                                                                                                              \
        return answer;                                                                                                 \
    } while (0)

/* The same of a function of an engine that starts a transfer and waits for its end. What answers MOVED in that wait has started
 * it: to start once more would do it twice, and nobody could release the first. So what is left is to wait for it, as long as its
 * own deadline lets it live. The arguments after `out` are what the slot has before transfer_out. */
#define CONVOY_FORWARD_START(host, slot, out, ...)                                                                     \
    do {                                                                                                               \
        if ((host) == NULL) {                                                                                          \
            return convoy_host_no_handle(error, #host);                                                                \
        }                                                                                                              \
        const struct convoy_binding *binding;                                                                          \
        convoy_transfer started = 0;                                                                                   \
        convoy_transfer *started_out = (out) != NULL ? &started : NULL;                                                \
        struct convoy_again again = {0};                                                                               \
        int32_t answer = CONVOY_FORWARD_ONCE(host, binding, slot, __VA_ARGS__, started_out, error);                    \
        while (answer == CONVOY_MOVED && started == 0 &&                                                               \
               convoy_gate_again(&(host)->handle.loader->gate, &again, &answer, error)) {                              \
            answer = CONVOY_FORWARD_ONCE(host, binding, slot, __VA_ARGS__, started_out, error);                        \
        }                                                                                                              \
        if (started != 0) {                                                                                            \
            *(out) = started;                                                                                          \
        }                                                                                                              \
        bool is_under_way = answer == CONVOY_MOVED && started != 0;                                                    \
        return is_under_way ? convoy_host_transfer_wait(host, started, UINT64_MAX, NULL, error) : answer;              \
    } while (0)

#endif
