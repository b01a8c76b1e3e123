/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ucx_library.h"

#include "core/error.h"
#include "net/ucx_guard.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* UCX and environ belong to the process, not to a context; so do these. UCX stays mapped for ever, hence the flag and
 * the pid are written once in the life of a process. */
static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static bool library_is_ours;
static pid_t library_pid;
static struct convoy_ucx_environment library_environment;

#define LIBRARY_HINT "install libucx0 (Debian, Ubuntu) or ucx (Fedora, RHEL), or set ucx_library"

/* File that an address lies in, as a canonical path. */
static bool library_file_of(const void *address, char file[PATH_MAX])
{
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        return false;
    }
    if (realpath(info.dli_fname, file) == NULL) {
        (void)snprintf(file, PATH_MAX, "%s", info.dli_fname);
    }
    return true;
}

/* A function of the library, or NULL with the reason: missing, from another file, or hidden by a second copy that the
 * host loaded with global scope (UCX's calls to itself would end there). */
static void *library_function(const struct convoy_ucx_library *library, const char *name, struct convoy_error *error)
{
    void *function = dlsym(library->handle, name);
    if (function == NULL) {
        (void)convoy_error_set(error, CONVOY_INIT_FAILED, "UCX %s (%s) has no function %s", library->version,
                               library->file, name);
        return NULL;
    }
    char file[PATH_MAX];
    if (!library_file_of(function, file) || strcmp(file, library->file) != 0) {
        (void)convoy_error_set(error, CONVOY_INIT_FAILED, "two copies of UCX in this process: %s of %.100s comes from "
                               "%.100s", name, library->file, file);
        return NULL;
    }
    void *global = dlsym(RTLD_DEFAULT, name);
    if (global != NULL && global != function && library_file_of(global, file)) {
        (void)convoy_error_set(error, CONVOY_INIT_FAILED, "two copies of UCX in this process: %s of %.100s is hidden "
                               "by %.100s", name, library->file, file);
        return NULL;
    }
    return function;
}

/* POSIX wants object and function pointers to be of one size, C does not know the cast. */
#define LIBRARY_BIND(name_)                                                                                            \
    {offsetof(struct convoy_ucx_functions, name_), #name_},

static int32_t library_bind(struct convoy_ucx_library *library, struct convoy_error *error)
{
    static const struct {
        size_t offset;
        const char *name;
    } rows[] = {CONVOY_UCX_FUNCTIONS(LIBRARY_BIND)};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *function = library_function(library, rows[i].name, error);
        if (function == NULL) {
            return CONVOY_INIT_FAILED;
        }
        memcpy((char *)&library->functions + rows[i].offset, &function, sizeof function);
    }
    return CONVOY_OK;
}

/* libucp finds libucs by its bare name: with another copy of UCX in the process that may be the other copy's. */
static int32_t library_check_base(struct convoy_ucx_library *library, struct convoy_error *error)
{
    char file[PATH_MAX];
    void *function = dlsym(library->handle, "ucs_status_string");
    const char *slash = strrchr(library->file, '/');
    size_t folder_bytes = slash != NULL ? (size_t)(slash - library->file) + 1 : 0;
    if (function == NULL || !library_file_of(function, file)) {
        return convoy_error_set(error, CONVOY_INIT_FAILED, "UCX %s (%s) comes without its base library libucs",
                                library->version, library->file);
    }
    if (strncmp(file, library->file, folder_bytes) != 0 || strchr(file + folder_bytes, '/') != NULL) {
        return convoy_error_set(error, CONVOY_INIT_FAILED, "two copies of UCX in this process: %.100s is bound to "
                                "%.100s", library->file, file);
    }
    memcpy(&library->functions.ucs_status_string, &function, sizeof function);
    return CONVOY_OK;
}

/* Asks the version before anything else of the library is used. */
static int32_t library_check_version(struct convoy_ucx_library *library, struct convoy_error *error)
{
    void *function = dlsym(library->handle, "ucp_get_version");
    char file[PATH_MAX] = "";
    if (function == NULL || !library_file_of(function, file)) {
        return convoy_error_set(error, CONVOY_INIT_FAILED, "%s is not UCX: it has no function ucp_get_version",
                                library->file);
    }
    (void)snprintf(library->file, sizeof library->file, "%.*s", (int)sizeof library->file - 1, file);
    __typeof__(ucp_get_version) *get_version;
    memcpy(&get_version, &function, sizeof function);
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    get_version(&major, &minor, &release);
    (void)snprintf(library->version, sizeof library->version, "%u.%u.%u", major, minor, release);
    if (major != CONVOY_UCX_MAJOR || minor < CONVOY_UCX_MINOR_MIN) {
        return convoy_error_set(error, CONVOY_INIT_FAILED,
                                "UCX %s (%s) is outside the supported range %s; built against %d.%d", library->version,
                                library->file, CONVOY_UCX_SUPPORTED, UCP_API_MAJOR, UCP_API_MINOR);
    }
    return CONVOY_OK;
}

/* The first load in this process, under the copied environment. Fills the change counters. */
static int32_t library_load(const char *name, struct convoy_ucx_library *library, struct convoy_error *error)
{
    struct convoy_ucx_snapshot before;
    convoy_ucx_snapshot_take(&before);
    if (!convoy_ucx_environment_enter(&library_environment)) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "opening UCX: out of memory");
    }
    library->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *reason = library->handle == NULL ? dlerror() : NULL;
    convoy_ucx_environment_leave(&library_environment);
    if (library->handle == NULL) {
        return convoy_error_set(error, CONVOY_INIT_FAILED, "UCX %s is needed and cannot be opened (%.120s); %s",
                                CONVOY_UCX_SUPPORTED, reason != NULL ? reason : "no reason given", LIBRARY_HINT);
    }
    library->signals_changed = convoy_ucx_snapshot_signals_changed(&before, true);
    library->hooks_changed = convoy_ucx_snapshot_hooks_changed(&before);
    library_is_ours = true;
    return CONVOY_OK;
}

/* A copy that is in the process already is the one to use: a second one would bind to parts of the first. */
static int32_t library_find(const char *path, struct convoy_ucx_library *library, struct convoy_error *error)
{
    void *present = dlopen(CONVOY_UCX_LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (present == NULL && path[0] != '\0') { /* a private copy has a name of its own */
        present = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    }
    if (present == NULL) {
        return library_load(path[0] != '\0' ? path : CONVOY_UCX_LIBRARY_NAME, library, error);
    }
    library->handle = present;
    library->loaded_by_host = !library_is_ours;
    char present_file[PATH_MAX] = "";
    char wanted_file[PATH_MAX] = "";
    void *function = dlsym(present, "ucp_get_version");
    if (path[0] == '\0' || function == NULL || !library_file_of(function, present_file)) {
        return CONVOY_OK;
    }
    if (realpath(path, wanted_file) == NULL || strcmp(wanted_file, present_file) != 0) {
        return convoy_error_set(error, CONVOY_INIT_FAILED, "ucx_library is %.90s, but %s has loaded %.90s already; one "
                                "process can hold one UCX", path, library_is_ours ? "convoy" : "the host",
                                present_file);
    }
    return CONVOY_OK;
}

static int32_t library_open_locked(const char *path, struct convoy_ucx_library *library, struct convoy_error *error)
{
    if (library_pid != 0 && library_pid != getpid()) {
        return convoy_error_set(error, CONVOY_INIT_FAILED, "process %d opened UCX before it forked process %d, and UCX "
                                "does not survive a fork: only groups on one host work here", (int)library_pid,
                                (int)getpid());
    }
    int32_t status = library_find(path, library, error);
    if (status == CONVOY_OK) {
        status = library_check_version(library, error);
    }
    if (status == CONVOY_OK) {
        status = library_check_base(library, error);
    }
    if (status == CONVOY_OK) {
        status = library_bind(library, error);
    }
    if (status == CONVOY_OK) {
        library_pid = getpid();
    }
    return status;
}

int32_t convoy_ucx_library_open(const char *path, struct convoy_ucx_library *library_out, struct convoy_error *error)
{
    struct convoy_ucx_library library = {.file = ""};
    (void)snprintf(library.file, sizeof library.file, "%s", path[0] != '\0' ? path : CONVOY_UCX_LIBRARY_NAME);
    (void)pthread_mutex_lock(&library_lock);
    int32_t status = library_open_locked(path, &library, error);
    (void)pthread_mutex_unlock(&library_lock);
    if (status == CONVOY_OK) {
        *library_out = library;
    }
    return status;
}
