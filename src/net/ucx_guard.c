/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ucx_guard.h"

#include "core/memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const hook_names[CONVOY_UCX_GUARD_HOOKS] = {"mmap", "munmap", "mremap", "brk",
                                                              "sbrk", "shmat",  "shmdt",  "madvise"};

/* `forced` replaces what the host has set: each of these would change the whole process. The others only keep UCX
 * quiet and without threads of its own, and a host that set them knows what it wants. */
static const struct {
    const char *entry;
    size_t name_length;
    bool forced;
} guard_variables[CONVOY_UCX_GUARD_VARIABLES] = {
    {"UCX_MEM_EVENTS=n", sizeof "UCX_MEM_EVENTS" - 1, true},
    {"UCX_ERROR_SIGNALS=", sizeof "UCX_ERROR_SIGNALS" - 1, true},
    {"UCX_HANDLE_ERRORS=none", sizeof "UCX_HANDLE_ERRORS" - 1, true},
    {"UCX_DEBUG_SIGNO=", sizeof "UCX_DEBUG_SIGNO" - 1, true},
    {"UCX_LOG_LEVEL=fatal", sizeof "UCX_LOG_LEVEL" - 1, false},
    {"UCX_VFS_ENABLE=n", sizeof "UCX_VFS_ENABLE" - 1, false},
    {"UCX_WARN_UNUSED_ENV_VARS=n", sizeof "UCX_WARN_UNUSED_ENV_VARS" - 1, false},
};

const char *convoy_ucx_hook_name(uint32_t hook)
{
    return hook < CONVOY_UCX_GUARD_HOOKS ? hook_names[hook] : "";
}

/* libc's own code, also where the host exports a function of the same name. */
static void guard_read_code(uint8_t code[CONVOY_UCX_GUARD_HOOKS][CONVOY_UCX_GUARD_CODE_BYTES])
{
    memset(code, 0, (size_t)CONVOY_UCX_GUARD_HOOKS * CONVOY_UCX_GUARD_CODE_BYTES);
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (libc == NULL) {
        return;
    }
    for (uint32_t i = 0; i < CONVOY_UCX_GUARD_HOOKS; i++) {
        const void *function = dlsym(libc, hook_names[i]);
        if (function != NULL) {
            memcpy(code[i], function, CONVOY_UCX_GUARD_CODE_BYTES);
        }
    }
    (void)dlclose(libc);
}

void convoy_ucx_snapshot_take(struct convoy_ucx_snapshot *snapshot)
{
    memset(snapshot, 0, sizeof *snapshot);
    for (int i = 1; i < CONVOY_UCX_GUARD_SIGNALS; i++) {
        snapshot->has_action[i] = sigaction(i, NULL, &snapshot->actions[i]) == 0;
    }
    guard_read_code(snapshot->code);
}

uint32_t convoy_ucx_snapshot_signals_changed(const struct convoy_ucx_snapshot *before, bool restore)
{
    uint32_t changed = 0;
    for (int i = 1; i < CONVOY_UCX_GUARD_SIGNALS; i++) {
        struct sigaction now;
        if (!before->has_action[i] || sigaction(i, NULL, &now) != 0 ||
            now.sa_sigaction == before->actions[i].sa_sigaction) {
            continue;
        }
        changed++;
        if (restore) {
            (void)sigaction(i, &before->actions[i], NULL);
        }
    }
    return changed;
}

uint32_t convoy_ucx_snapshot_hooks_changed(const struct convoy_ucx_snapshot *before)
{
    uint8_t code[CONVOY_UCX_GUARD_HOOKS][CONVOY_UCX_GUARD_CODE_BYTES];
    guard_read_code(code);
    uint32_t changed = 0;
    for (uint32_t i = 0; i < CONVOY_UCX_GUARD_HOOKS; i++) {
        changed |= memcmp(code[i], before->code[i], sizeof code[i]) != 0 ? 1u << i : 0u;
    }
    return changed;
}

/* -- environment --------------------------------------------------------------------------------------------------- */

static size_t environment_count(char *const *entries)
{
    size_t count = 0;
    while (entries != NULL && entries[count] != NULL) {
        count++;
    }
    return count;
}

/* Position of a variable in the first `count` entries, or count. */
static size_t environment_find(char *const *entries, size_t count, const char *entry, size_t name_length)
{
    for (size_t i = 0; i < count; i++) {
        if (strncmp(entries[i], entry, name_length) == 0 && entries[i][name_length] == '=') {
            return i;
        }
    }
    return count;
}

static void environment_fill(struct convoy_ucx_environment *environment)
{
    size_t end = environment->host_count;
    for (size_t i = 0; i < environment->host_count; i++) {
        environment->copy[i] = environment->host[i];
    }
    for (size_t i = 0; i < CONVOY_UCX_GUARD_VARIABLES; i++) {
        size_t name_length = guard_variables[i].name_length;
        size_t at = environment_find(environment->copy, environment->host_count, guard_variables[i].entry, name_length);
        environment->replaced[i] = at < environment->host_count ? environment->copy[at] : NULL;
        if (at < environment->host_count && !guard_variables[i].forced) {
            continue;
        }
        at = at < environment->host_count ? at : end++;
        environment->copy[at] = (char *)(uintptr_t)guard_variables[i].entry; /* environ is not const; UCX only reads */
    }
    environment->copy[end] = NULL;
    memcpy(environment->placed, environment->copy, (end + 1) * sizeof *environment->copy);
}

/* Makes room, keeping what there is when it does: a process that tries again and again must not grow. */
static bool environment_reserve(struct convoy_ucx_environment *environment, size_t room)
{
    if (room <= environment->room) {
        return true;
    }
    char **copy = convoy_memory_array(room, sizeof *copy);
    char **placed = convoy_memory_array(room, sizeof *placed);
    if (copy == NULL || placed == NULL) {
        convoy_memory_free(placed);
        convoy_memory_free(copy);
        return false;
    }
    convoy_memory_free(environment->placed);
    environment->copy = copy;
    environment->placed = placed;
    environment->room = room;
    return true;
}

bool convoy_ucx_environment_enter(struct convoy_ucx_environment *environment)
{
    environment->host = environ;
    environment->host_count = environment_count(environ);
    if (!environment_reserve(environment, environment->host_count + CONVOY_UCX_GUARD_VARIABLES + 1)) {
        return false;
    }
    environment_fill(environment);
    environ = environment->copy;
    return true;
}

/* Another thread called setenv or unsetenv meanwhile, and libc moved on to an array of its own that began as our copy:
 * that array stays, without our variables. (It may have freed the host's array in doing so.) */
static void environment_clean_up(const struct convoy_ucx_environment *environment)
{
    for (size_t i = 0; i < CONVOY_UCX_GUARD_VARIABLES; i++) {
        size_t length = guard_variables[i].name_length;
        char name[40] = {0};
        memcpy(name, guard_variables[i].entry, length);
        const char *value = getenv(name);
        if (value != guard_variables[i].entry + length + 1) {
            continue; /* not ours */
        }
        if (environment->replaced[i] != NULL) {
            (void)setenv(name, environment->replaced[i] + length + 1, 1);
        } else {
            (void)unsetenv(name);
        }
    }
}

void convoy_ucx_environment_leave(struct convoy_ucx_environment *environment)
{
    if (environ != environment->copy) {
        environment_clean_up(environment);
    } else {
        for (size_t i = 0; i < environment->host_count; i++) {
            if (environment->copy[i] != environment->placed[i] && environment->copy[i] != NULL) {
                environment->host[i] = environment->copy[i]; /* replaced in place by another thread */
            }
        }
        environ = environment->host;
    }
}
