/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver that engines with a device would use: which file, which version, how many devices. No context is made. */
#include "cli/doctor.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_FILE "libcuda.so.1"

typedef int (*driver_init_fn)(unsigned int flags);
typedef int (*driver_number_fn)(int *number);

struct driver {
    driver_init_fn init;
    driver_number_fn version;
    driver_number_fn count;
};

/* ISO C has no cast from an object to a function pointer. */
static bool driver_bind(void *library, struct driver *driver)
{
    void *const symbols[] = {dlsym(library, "cuInit"), dlsym(library, "cuDriverGetVersion"),
                             dlsym(library, "cuDeviceGetCount")};
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        if (symbols[i] == NULL) {
            return false;
        }
    }
    memcpy(&driver->init, &symbols[0], sizeof driver->init);
    memcpy(&driver->version, &symbols[1], sizeof driver->version);
    memcpy(&driver->count, &symbols[2], sizeof driver->count);
    return true;
}

static json_t *driver_absent(const char *file, const char *why)
{
    return json_pack("{s:s?, s:n, s:n, s:s}", "file", file, "version", "devices", "error", why);
}

json_t *convoy_doctor_device(void)
{
    const char *wanted = getenv("CONVOY_CUDA_LIBRARY");
    struct driver driver;
    Dl_info bound = {0};
    char text[64];
    int version = 0;
    int count = 0;
    void *library = dlopen(wanted != NULL && wanted[0] != '\0' ? wanted : DRIVER_FILE, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return driver_absent(NULL, dlerror());
    }
    if (!driver_bind(library, &driver)) {
        return driver_absent(wanted, "it is no CUDA driver");
    }
    void *init = dlsym(library, "cuInit");
    const char *file = dladdr(init, &bound) != 0 ? bound.dli_fname : DRIVER_FILE;
    int code = driver.init(0);
    code = code != 0 ? code : driver.version(&version);
    code = code != 0 ? code : driver.count(&count);
    if (code != 0) {
        (void)snprintf(text, sizeof text, "the driver answered %d", code);
        return driver_absent(file, text);
    }
    (void)snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
    return json_pack("{s:s, s:s, s:i, s:n}", "file", file, "version", text, "devices", count, "error");
}
