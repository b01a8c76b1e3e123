/* SPDX-License-Identifier: Apache-2.0 */
#include "core/fault.h"

#if defined(CONVOY_FAULTS) || defined(CONVOY_MUTATIONS)
#include <stdlib.h>
#include <string.h>
#endif

#ifdef CONVOY_FAULTS
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#define FAULT_POINT_NAME(name_) #name_,
static const char *const fault_points[] = {CONVOY_POINT_LIST(FAULT_POINT_NAME)};
#define FAULT_POINT_COUNT (sizeof fault_points / sizeof fault_points[0])

static _Atomic unsigned fault_hits[FAULT_POINT_COUNT];

static size_t fault_index(const char *name)
{
    size_t index = 0;
    while (index < FAULT_POINT_COUNT && strcmp(fault_points[index], name) != 0) {
        index++;
    }
    return index;
}

/* "<name>" or "<name>:<n>" */
static bool fault_is_due(const char *wanted, const char *name, unsigned hit)
{
    size_t length = strlen(name);
    if (wanted == NULL || strncmp(wanted, name, length) != 0 || (wanted[length] != '\0' && wanted[length] != ':')) {
        return false;
    }
    unsigned long number = wanted[length] == ':' ? strtoul(wanted + length + 1, NULL, 10) : 1;
    return hit == number;
}

static void fault_note(const char *name)
{
    const char *path = getenv("CONVOY_POINT_HITS");
    int fd = path != NULL ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        char line[64];
        size_t length = strlen(name);
        memcpy(line, name, length);
        line[length] = '\n';
        (void)!write(fd, line, length + 1);
        (void)close(fd);
    }
}

void convoy_fault_point(const char *name)
{
    size_t index = fault_index(name);
    if (index == FAULT_POINT_COUNT) {
        abort(); /* a point that is not in the list */
    }
    unsigned hit = atomic_fetch_add(&fault_hits[index], 1) + 1;
    if (hit == 1) {
        fault_note(name);
    }
    if (fault_is_due(getenv("CONVOY_KILL_POINT"), name, hit)) {
        (void)kill(getpid(), SIGKILL);
    } else if (fault_is_due(getenv("CONVOY_STOP_POINT"), name, hit)) {
        (void)kill(getpid(), SIGSTOP);
    }
}

/* "<TYPE>,<TYPE>" */
static bool fault_names(const char *types, const char *type)
{
    size_t length = strlen(type);
    for (const char *at = types; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, type, length) == 0 && (at[length] == '\0' || at[length] == ',')) {
            return true;
        }
    }
    return false;
}

enum convoy_fault_fate convoy_fault_message(unsigned long long number, const char *type)
{
    static const char *const names[] = {"", "drop:", "twice:", "late:"};
    const char *wanted = getenv("CONVOY_TEST_MESSAGE");
    if (wanted != NULL && strncmp(wanted, "drop:", 5) == 0 && fault_names(wanted + 5, type)) {
        return CONVOY_FATE_DROP;
    }
    for (size_t fate = CONVOY_FATE_DROP; wanted != NULL && fate <= CONVOY_FATE_LATE; fate++) {
        size_t length = strlen(names[fate]);
        if (strncmp(wanted, names[fate], length) == 0 && strtoull(wanted + length, NULL, 10) == number) { /* ":k" ends it */
            return (enum convoy_fault_fate)fate;
        }
    }
    return CONVOY_FATE_USUAL;
}

bool convoy_fault_is_due(unsigned long long number)
{
    const char *wanted = getenv("CONVOY_TEST_MESSAGE");
    char *rest = NULL;
    if (wanted == NULL || strncmp(wanted, "late:", 5) != 0) {
        return true;
    }
    unsigned long long late = strtoull(wanted + 5, &rest, 10);
    return number >= late + (*rest == ':' ? strtoull(rest + 1, NULL, 10) : 1);
}
#endif

#ifdef CONVOY_MUTATIONS
#define FAULT_MUTATION_NAME(name_) #name_,
static const char *const fault_mutations[] = {CONVOY_MUTATION_LIST(FAULT_MUTATION_NAME)};

bool convoy_fault_mutated(const char *name)
{
    const char *wanted = getenv("CONVOY_MUTATION");
    for (size_t i = 0; i < sizeof fault_mutations / sizeof fault_mutations[0]; i++) {
        if (strcmp(fault_mutations[i], name) == 0) {
            return wanted != NULL && strcmp(wanted, name) == 0;
        }
    }
    abort(); /* a mutation that is not in the list */
}
#endif
