/* SPDX-License-Identifier: Apache-2.0 */
/* What a test may ask of a tiny plugin that can be swapped, and look at in it. Symbol "tiny_knobs" of each build. */
#ifndef TESTS_ABI_TINY_MOVER_H
#define TESTS_ABI_TINY_MOVER_H

#include <stdatomic.h>
#include <stdint.h>

/* Makes a call fail with a status; after `skip` that do not. status 0 = none. */
struct tiny_fault {
    _Atomic int32_t status;
    _Atomic int32_t skip;
};

#define TINY_STRAY_UNKNOWN 1u /* import names an object that nobody has */
#define TINY_STRAY_TWICE 2u   /* import names the first object twice */

struct tiny_knobs {
    struct tiny_fault context_open;
    struct tiny_fault context_close;
    struct tiny_fault quiesce;
    struct tiny_fault export_state;
    _Atomic uint32_t format_max; /* that export was called with */
    struct tiny_fault import_state;
    struct tiny_fault resume;
    struct tiny_fault retire;
    struct tiny_fault reduce;
    _Atomic uint32_t stray;           /* TINY_STRAY_* */
    _Atomic uint32_t is_open_held;    /* a group's open does not return */
    _Atomic uint32_t is_look_held;    /* group_info does not return */
    _Atomic uint64_t wait_ns;         /* a wait takes this long, and ends OK; 0 = until the build quiesces, but 20 ms */
    _Atomic uint64_t padding_bytes;   /* that an exported state is longer */
    _Atomic uint32_t waiting;         /* waits, held opens and held looks that are inside */
    _Atomic uint32_t contexts_opened;
    _Atomic uint32_t contexts_closed;
    _Atomic uint32_t contexts_retired;
    _Atomic uint32_t resumed;
    _Atomic uint64_t seen_timeout_ns; /* of the last wait */
    char seen_secret[16];             /* of the last context_open */
    char seen_settings[16];
    uint32_t seen_log_level;
    uint32_t reserved;
};

#endif
