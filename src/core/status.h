/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statuses: one list gives name, text and whether trying again can help. Numbers are public (convoy/base.h) and
 * registered in abi/status.tsv; a gate compares the three.
 */
#ifndef CONVOY_CORE_STATUS_H
#define CONVOY_CORE_STATUS_H

#include "convoy/base.h"

#include <stdbool.h>

/* X(name, retryable, text) */
#define CONVOY_STATUS_LIST(X)                                                                                          \
    X(OK, false, "ok")                                                                                                 \
    X(IN_PROGRESS, true, "in progress")                                                                                \
    X(INVALID_ARGUMENT, false, "invalid argument")                                                                     \
    X(BAD_STATE, false, "not allowed in this state")                                                                   \
    X(CLOSED, false, "closed, or a stale operation")                                                                   \
    X(FORKED, false, "inherited through fork")                                                                         \
    X(BUFFER_TOO_SMALL, true, "buffer too small")                                                                      \
    X(UNSUPPORTED, false, "unsupported")                                                                               \
    X(MOVED, true, "moved to another build")                                                                           \
    X(NO_MEMORY, true, "out of memory")                                                                                \
    X(POOL_EXHAUSTED, true, "pool exhausted")                                                                          \
    X(LIMIT, false, "limit passed")                                                                                    \
    X(BUSY, true, "an operation is open")                                                                              \
    X(SYSTEM, true, "refused by the operating system")                                                                 \
    X(OVERLOADED, true, "more is waiting than the host allows")                                                        \
    X(TIMED_OUT, true, "timed out")                                                                                    \
    X(CANCELED, true, "canceled")                                                                                      \
    X(PEER_LOST, false, "peer lost")                                                                                   \
    X(PEER_ERROR, true, "peer contributed an error")                                                                   \
    X(BROKEN, false, "round abandoned")                                                                                \
    X(UNREACHABLE, true, "peers unreachable")                                                                          \
    X(TRUNCATED, false, "stream ended inside a frame")                                                                 \
    X(DIVERGED, true, "members diverged")                                                                              \
    X(MALFORMED, false, "malformed message")                                                                           \
    X(UNKNOWN_MESSAGE, false, "unknown message")                                                                       \
    X(VERSION_MISMATCH, false, "no common version")                                                                    \
    X(STALE_EPOCH, false, "stale epoch")                                                                               \
    X(UNAUTHENTICATED, false, "peer does not hold the secret")                                                         \
    X(NOT_FOUND, false, "not found")                                                                                   \
    X(NO_ENTRY, false, "not a convoy plugin")                                                                          \
    X(TOO_OLD, false, "too old")                                                                                       \
    X(TOO_NEW, false, "too new")                                                                                       \
    X(INIT_FAILED, false, "initialisation failed")                                                                     \
    X(DRAIN_TIMEOUT, true, "still draining")                                                                           \
    X(BAD_FILE, false, "not a usable shared object")                                                                   \
    X(INVARIANT, false, "internal invariant broken")

/* Name such as "TIMED_OUT"; an unknown number gives a constant string named for its band. */
const char *convoy_status_name(int32_t status);

/* Text in words; unknown numbers are described by their band. */
const char *convoy_status_text(int32_t status);

/* Whether the same call can succeed later without anything else changing hands. Unknown numbers: false. */
bool convoy_status_is_retryable(int32_t status);

#endif
