/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling the caller's convoy_error. Every function takes NULL and then does nothing but return the status, so that
 * a failing line reads `return convoy_error_set(error, CONVOY_LIMIT, "...")`.
 */
#ifndef CONVOY_CORE_ERROR_H
#define CONVOY_CORE_ERROR_H

#include "convoy/base.h"

/* Overwrites the error: rank -1, round 0, errno 0. Returns status. Honours the caller's struct_size. */
int32_t convoy_error_set(struct convoy_error *error, int32_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As convoy_error_set, about one member (its id) and round. */
int32_t convoy_error_set_peer(struct convoy_error *error, int32_t status, int32_t rank, uint64_t round,
                              const char *format, ...) __attribute__((format(printf, 5, 6)));

/* As convoy_error_set, with an errno and its text appended. */
int32_t convoy_error_set_errno(struct convoy_error *error, int32_t status, int sys_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "context: " before the text that is there. Returns the error's status, or `status` when error is NULL. */
int32_t convoy_error_prefix(struct convoy_error *error, int32_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Gives the caller an error that was kept. Returns its status. NULL error: only the status. */
int32_t convoy_error_copy(struct convoy_error *error, const struct convoy_error *kept);

/* Storage for an error that this library passes down to itself. */
#define CONVOY_ERROR_INIT {.struct_size = (uint32_t)sizeof(struct convoy_error), .rank = -1}

#endif
