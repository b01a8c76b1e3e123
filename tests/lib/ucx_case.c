/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ucx_case.h"

#include "core/error.h"
#include "net/ucx.h"
#include "tests/lib/expect.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void ucx_case_run(rank_fn run)
{
    struct ranks *ranks = ranks_create(1, 0);
    ranks_start(ranks, run, NULL, 0);
    ranks_finish(ranks);
}

struct convoy_runtime *ucx_case_runtime(const char *settings)
{
    struct convoy_runtime *runtime;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .settings = settings,
                                                 .settings_length = settings != NULL ? strlen(settings) : 0};
    EXPECT_OK(convoy_runtime_open(&config, &runtime, &error), &error);
    return runtime;
}

void ucx_case_refuse(const char *settings, const char *const *parts)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_runtime *runtime = ucx_case_runtime(settings);
    EXPECT_STATUS(convoy_ucx_probe(runtime, &error), CONVOY_INIT_FAILED, &error);
    for (size_t i = 0; parts[i] != NULL; i++) {
        EXPECT_TEXT(error.text, parts[i]);
    }
    convoy_runtime_destroy(runtime);
}

void ucx_case_shim(const char *name, char *path, size_t bytes)
{
    char own[512];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    EXPECT(length > 0);
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    (void)snprintf(path, bytes, "%s/../lib/%s.so", own, name);
}

void ucx_case_shim_settings(const char *name, char *settings, size_t bytes)
{
    char path[600];
    ucx_case_shim(name, path, sizeof path);
    (void)snprintf(settings, bytes, "{\"ucx_library\": \"%s\"}", path);
}
