/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading UCX without letting it take over the process. The constructors of UCX 1.13 install handlers for five signals
 * and patch eight memory functions of libc, unless its environment says otherwise at that moment; nothing later can
 * undo it. So for the length of the dlopen, `environ` points at a copy with the settings below, and what could have
 * changed is compared before and after. One guard at a time in a process (net/ucx_library.c holds the lock).
 */
#ifndef CONVOY_NET_UCX_GUARD_H
#define CONVOY_NET_UCX_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONVOY_UCX_GUARD_SIGNALS 65 /* 1 to 64 are used */
#define CONVOY_UCX_GUARD_HOOKS 8
#define CONVOY_UCX_GUARD_CODE_BYTES 16
#define CONVOY_UCX_GUARD_VARIABLES 7

/* What UCX must leave alone, as it was seen at one moment. */
struct convoy_ucx_snapshot {
    struct sigaction actions[CONVOY_UCX_GUARD_SIGNALS];
    bool has_action[CONVOY_UCX_GUARD_SIGNALS];
    uint8_t code[CONVOY_UCX_GUARD_HOOKS][CONVOY_UCX_GUARD_CODE_BYTES];
};

/* Dispositions of all signals and the first bytes of libc's memory functions. */
void convoy_ucx_snapshot_take(struct convoy_ucx_snapshot *snapshot);

/* Number of signals whose handler differs now from the snapshot; each is put back when `restore` is set. */
uint32_t convoy_ucx_snapshot_signals_changed(const struct convoy_ucx_snapshot *before, bool restore);

/* Bit i: the code of convoy_ucx_hook_name(i) differs. Patches cannot be undone, only reported. */
uint32_t convoy_ucx_snapshot_hooks_changed(const struct convoy_ucx_snapshot *before);
const char *convoy_ucx_hook_name(uint32_t hook);

/* The copied environment. All zero at first; used again and again. */
struct convoy_ucx_environment {
    char **host;   /* the host's environ */
    char **copy;   /* ours; never freed once it was in place: another thread may still be walking it */
    char **placed; /* what was put into copy, to see what another thread changed meanwhile */
    size_t room;   /* entries of both */
    size_t host_count;
    const char *replaced[CONVOY_UCX_GUARD_VARIABLES]; /* the host's entries of our names; NULL = it had none */
};

/* Puts the copy in place. false: out of memory, nothing was changed. */
bool convoy_ucx_environment_enter(struct convoy_ucx_environment *environment);

/* Puts the host's environ back; what another thread set meanwhile is kept. */
void convoy_ucx_environment_leave(struct convoy_ucx_environment *environment);

#endif
