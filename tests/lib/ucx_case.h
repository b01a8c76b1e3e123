/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases about opening UCX. Each runs in a process of its own (a rank): UCX stays mapped once it was opened, and does
 * not survive a fork. For unit tests only (it uses the inside of the library).
 */
#ifndef TESTS_LIB_UCX_CASE_H
#define TESTS_LIB_UCX_CASE_H

#include "net/runtime.h"
#include "tests/lib/ranks.h"

/* Runs one rank to its end. */
void ucx_case_run(rank_fn run);

/* A context with these settings (JSON, or NULL); it must open. gives (convoy_runtime_destroy) */
struct convoy_runtime *ucx_case_runtime(const char *settings);

/* Opens UCX in a fresh context; it must be INIT_FAILED, and the text must have all parts (a list that ends in NULL). */
void ucx_case_refuse(const char *settings, const char *const *parts);

/* Path of a small library that was built beside this program, and the settings that name it as UCX. */
void ucx_case_shim(const char *name, char *path, size_t bytes);
void ucx_case_shim_settings(const char *name, char *settings, size_t bytes);

#endif
