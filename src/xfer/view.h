/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer's memory as it is mapped here. Under the engine's lock but for open, place and reading; a view that nobody else
 * knows yet needs none.
 */
#ifndef CONVOY_XFER_VIEW_H
#define CONVOY_XFER_VIEW_H

#include "core/copy.h"
#include "pool/pool.h"
#include "xfer/introduce.h"

#include <stdbool.h>
#include <sys/types.h>

struct convoy_xfer_device;

/* The notes of an engine, which all generations of its pool share. */
struct convoy_view_notes {
    const uint8_t *memory; /* NULL: let go of */
    size_t bytes;
    uint32_t references;
};

/* One generation of a peer's pool as it is mapped here. It outlives the generation, and the peer, until the last view is
 * released. A peer has a list of them, newest first; the list is one reference of each. */
struct convoy_view {
    struct convoy_view *older;
    uint64_t generation;
    uint64_t base; /* what its offsets start at */
    const uint8_t *pool; /* NULL: it cannot be mapped */
    uint64_t address;    /* then: where it lies in its process; 0 = it cannot be read at all */
    pid_t pid;
    int pid_fd; /* own; -1 = none */
    struct convoy_view_notes *notes_kept; /* of all generations */
    const uint8_t *notes;
    size_t pool_bytes;
    size_t notes_bytes;
    uint32_t references;
    bool has_ended; /* its peer has returned that memory, or is about to */
    uint32_t pin;   /* enum convoy_view_pin */
    struct convoy_xfer_device *device; /* that it is pinned for; NULL = none */
    struct convoy_view *next;          /* among those that wait to be unpinned */
};

#define CONVOY_VIEW_GENERATIONS (2 * CONVOY_POOL_GENERATIONS) /* of one peer */

/* notes_fd -1: a further generation, for attach. view_out: gives */
int32_t convoy_view_open(int pool_fd, int notes_fd, struct convoy_view **view_out, struct convoy_error *error);
/* Whether its pool can be read out of that process, proven by the token there; pid_fd is borrowed. */
bool convoy_view_try_process(struct convoy_view *view, const struct convoy_introduction *introduction, pid_t pid, int pid_fd);
/* Copies payload out of it, mapped or not. false: its process is gone, or forbids it. */
bool convoy_view_read(const struct convoy_view *view, uint64_t offset, void *to, uint64_t bytes,
                      enum convoy_copy_way way);
bool convoy_view_has_token(const struct convoy_view *view, const uint8_t token[CONVOY_INTRODUCE_TOKEN_BYTES]);
void convoy_view_put(struct convoy_view *view);
/* Nothing reads it any more. [no lock] */
void convoy_view_free(struct convoy_view *view);
/* Which generation it is of, by the peer's word. false: that cannot be. */
bool convoy_view_place(struct convoy_view *view, uint64_t generation, uint64_t base);
/* The one of a peer's list that has this offset; NULL: its generation has ended. What lies beyond all of them is the newest
 * one's to refuse. */
struct convoy_view *convoy_view_at(struct convoy_view *newest, uint64_t offset, uint64_t bytes);
bool convoy_view_has(const struct convoy_view *view, uint64_t offset, uint64_t bytes);
/* Into a peer's list, which takes its reference. BUSY: it has that generation; MALFORMED: it overlaps another; LIMIT. */
int32_t convoy_view_attach(struct convoy_view **newest, struct convoy_view *view);
/* That generation, and all before the oldest, leave the list, the newest once a newer one comes. How many it has meant. */
uint32_t convoy_view_forget(struct convoy_view *newest, uint64_t generation, uint64_t oldest);
void convoy_view_put_all(struct convoy_view *newest);
/* Its memory, and that of its notes, is another's now: nothing of it is unmapped or unpinned when it is freed. */
void convoy_view_leave(struct convoy_view *view);

#endif
