/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host for the matrix of runs (tests/abi/matrix.sh). It is compiled with the headers and the loader of each release, so it
 * uses what all of them have; what only the fabricated next one has stands under CONVOY_TRIAL_SEEN.
 *
 *   same NAME = VALUE   must be the same whatever plugins are loaded, here and at the peers
 *   seen NAME = VALUE   depends on the pair; the script knows what it must be
 *   FAIL NAME: WORDS    is wrong with any plugin
 */
#ifndef CONVOY_TESTS_ABI_MATRIX_H
#define CONVOY_TESTS_ABI_MATRIX_H

#include "convoy/loader.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MATRIX_WAIT_NS 20000000000ull
#define MATRIX_GUARD_BYTES 64
#define MATRIX_GUARD 0xa5
#define MATRIX_TAIL_BYTES 128 /* of a struct of a release that is not there yet */
#define MATRIX_TAIL_AT 64     /* where its tail is not zero: beyond what the next release has */

/* An OUT struct with bytes behind it that nobody may write. */
#define MATRIX_GUARDED(tag)                                                                                            \
    struct {                                                                                                           \
        struct convoy_##tag value;                                                                                     \
        uint8_t guard[MATRIX_GUARD_BYTES];                                                                             \
    }
#define MATRIX_OUT(out) matrix_out(&(out), sizeof(out), (uint32_t)sizeof(out).value)
#define MATRIX_WRITTEN(name, out) matrix_written(name, (out).value.struct_size, (out).value.written_bytes, (out).guard)

/* matrix_host.c */
extern _Thread_local struct convoy_error matrix_error;
void matrix_same(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
void matrix_seen(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the process: nothing after it would mean anything. */
void matrix_need(int32_t status, const char *what);
void matrix_fail(const char *name, const char *words);
void matrix_out(void *out, size_t bytes, uint32_t struct_size);
void matrix_written(const char *name, uint32_t struct_size, uint32_t written_bytes, const uint8_t *guard);
convoy_host_context *matrix_context(convoy_loader *loader);

/* matrix_rounds.c */
struct matrix_place {
    uint32_t own;
    uint32_t count;
    uint16_t port;
    const char *name;
};
int32_t matrix_group_open(convoy_host_context *context, const struct matrix_place *place, convoy_host_group **group_out);
/* Rounds of both families, numbered from `first`. Says its lines as prefix.NAME unless that is NULL. */
void matrix_rounds(convoy_host_group *group, const struct matrix_place *place, uint32_t first, const char *prefix);
void matrix_group_look(convoy_host_group *group, const char *prefix);
/* Two members in threads of this process. */
void matrix_threads(convoy_loader *loader, uint16_t port);

/* matrix_tails.c: longer structs, unknown flags, new fields, slots, families. */
void matrix_tails(convoy_loader *loader);

struct matrix_engine;

/* matrix_since.c: what a later minor of a family added, with a plugin that has it and one that has not. */
void matrix_since(convoy_loader *loader);
/* Of all that is staged from here on; 0 where the host's headers or the plugin are before transfer 1.1. */
void matrix_priority_begin(convoy_loader *loader);
void matrix_priority_put(struct convoy_stage *stage);
void matrix_priority_say(const struct convoy_payload *payload);
/* From here on one send at a time is under way, where host and plugin know limits. */
void matrix_limit(struct matrix_engine *engine);

/* matrix_transfer.c */
#define MATRIX_BYTES 70000u
struct matrix_engine {
    convoy_host_engine *engine;
    struct convoy_engine_info info;
    uint8_t memory[MATRIX_BYTES];
};
/* is_private: nothing is mapped by anybody, so that all bytes go as between hosts. */
void matrix_engine_open(convoy_host_context *context, bool is_private, struct matrix_engine *engine_out);
convoy_transfer matrix_stage(struct matrix_engine *engine, const char *request);
void matrix_send(struct matrix_engine *engine, convoy_peer peer, const char *request);
void matrix_accept(struct matrix_engine *engine, const char *request);
void matrix_load(struct matrix_engine *engine, const char *descriptor, size_t bytes, const char *request);
void matrix_transfers(convoy_loader *loader);
/* Sends of which all but one wait where there is a limit, and their ends, after whatever came between. */
#define MATRIX_HELD 3u
void matrix_held_begin(struct matrix_engine *engine, convoy_peer peer, convoy_transfer transfers_out[MATRIX_HELD]);
void matrix_held_end(struct matrix_engine *from, struct matrix_engine *to, const convoy_transfer transfers[MATRIX_HELD]);
/* One of two processes, "a" or "b", which meet in a folder. */
void matrix_side(convoy_loader *loader, const char *side, const char *folder, bool is_private);

/* matrix_swap.c: to the other plugin and back, with two groups and an engine in use. */
void matrix_swap(convoy_loader *loader, const char *own, const char *other, uint16_t port);

#endif
