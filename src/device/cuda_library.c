/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda_library.h"

#include "core/error.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define CUDA_HINT "CUDA memory needs the NVIDIA driver 450 or newer (in a container: started with the GPU made visible)"

void convoy_cuda_explain(const struct convoy_cuda_functions *functions, int32_t number, char *text_out, size_t bytes)
{
    const char *name = NULL;
    const char *words = NULL;
    if (functions->cuGetErrorName == NULL || functions->cuGetErrorName(number, &name) != CUDA_OK || name == NULL) {
        (void)snprintf(text_out, bytes, "CUDA error %d, which the driver has no name for", number);
        return;
    }
    if (functions->cuGetErrorString == NULL || functions->cuGetErrorString(number, &words) != CUDA_OK) {
        words = NULL;
    }
    (void)snprintf(text_out, bytes, "%s (%d): %s", name, number, words != NULL ? words : "no description");
}

/* POSIX wants object and function pointers to be of one size, C does not know the cast. */
#define LIBRARY_BIND(name_, parameters_) {offsetof(struct convoy_cuda_functions, name_), #name_},

static int32_t library_bind(struct convoy_cuda_library *library, struct convoy_error *error)
{
    static const struct {
        size_t offset;
        const char *name;
    } rows[] = {CONVOY_CUDA_FUNCTIONS(LIBRARY_BIND)};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *function = dlsym(library->handle, rows[i].name);
        if (function == NULL) {
            return convoy_error_set(error, CONVOY_INIT_FAILED, "the CUDA driver %.100s has no function %s; %s",
                                    library->file, rows[i].name, CUDA_HINT);
        }
        memcpy((char *)&library->functions + rows[i].offset, &function, sizeof function);
    }
    return CONVOY_OK;
}

/* The driver starts threads; they take no signal of the host's. */
static int32_t library_init(const struct convoy_cuda_library *library, struct convoy_error *error)
{
    char text[160];
    sigset_t all;
    sigset_t old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    cuda_result result = library->functions.cuInit(0);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (result == CUDA_OK) {
        return CONVOY_OK;
    }
    convoy_cuda_explain(&library->functions, result, text, sizeof text);
    return convoy_error_set(error, CONVOY_INIT_FAILED, "the CUDA driver %.60s does not start: %s", library->file, text);
}

static int32_t library_check_version(struct convoy_cuda_library *library, struct convoy_error *error)
{
    cuda_result result = library->functions.cuDriverGetVersion(&library->version);
    if (result != CUDA_OK || library->version < CONVOY_CUDA_VERSION_MIN) {
        return convoy_error_set(error, CONVOY_INIT_FAILED, "the CUDA driver %.60s is of version %d.%d, allowed are 11.0 and "
                                "newer; %s", library->file, library->version / 1000, library->version % 1000 / 10,
                                CUDA_HINT);
    }
    return CONVOY_OK;
}

int32_t convoy_cuda_library_open(const char *path, struct convoy_cuda_library *library_out, struct convoy_error *error)
{
    const char *name = path[0] != '\0' ? path : CONVOY_CUDA_LIBRARY_NAME;
    struct convoy_cuda_library library = {.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    (void)snprintf(library.file, sizeof library.file, "%s", name);
    if (library.handle == NULL) {
        const char *reason = dlerror();
        return convoy_error_set(error, CONVOY_INIT_FAILED, "no CUDA driver (%.100s); %s",
                                reason != NULL ? reason : "no reason given", CUDA_HINT);
    }
    Dl_info info;
    void *function = dlsym(library.handle, "cuInit");
    if (function != NULL && dladdr(function, &info) != 0 && info.dli_fname != NULL) {
        (void)snprintf(library.file, sizeof library.file, "%s", info.dli_fname);
    }
    int32_t status = library_bind(&library, error);
    if (status == CONVOY_OK) {
        status = library_init(&library, error);
    }
    if (status == CONVOY_OK) {
        status = library_check_version(&library, error);
    }
    if (status == CONVOY_OK) {
        *library_out = library;
    }
    return status;
}
