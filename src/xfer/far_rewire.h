/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path to a peer on another host when a bulk is replaced: its engine has moved to another build, or ours has. Bulks have
 * numbers: 0 is the one that both gave when they connected, each later one of the same engine is one more. Both sides keep the
 * TCP connection that introduced them, and say there, each time that it changes, which bulk they have and to which of the
 * other's it is connected:
 *
 *   MOVED   number 8 | heard 8 | address of that bulk, while the other has not said that it is connected to it
 *
 *                     own bulk is new, or a newer one of the peer's is heard of, or the endpoint fails
 *   up  ------------------------------------------------------------------------------------------------> down
 *   down --connected to the peer's newest, and it has said that it is connected to ours--> up: what has no answer is said again
 *   down --the endpoint has failed, and in its grace no newer bulk was heard of--> lost
 *   any  --the TCP connection ends, or brings what is no such frame--> cut (xfer/far.c)
 *
 * While the path is down nothing is said to the peer but this. A number that was heard before changes nothing, so both may move
 * at once, and more than once. Before a new endpoint is made the old one is closed and its puts have ended: the peer's word
 * that it is connected to the own newest bulk proves that no put of before is under way.
 */
#ifndef CONVOY_XFER_FAR_REWIRE_H
#define CONVOY_XFER_FAR_REWIRE_H

#include "net/frame.h"
#include "xfer/parts.h"

#define CONVOY_FAR_MOVED_BYTES 16u            /* of MOVED, in front of the address */
#define CONVOY_FAR_UNWIRED UINT64_MAX         /* number: the own bulk is connected to none of the peer's */
#define CONVOY_FAR_GRACE_NS (2 * CONVOY_NS_PER_S) /* for a peer whose endpoint is gone, but not its connection */

/* Of one peer. Under the engine's lock. */
struct convoy_far_wire {
    struct convoy_frame_stream stream; /* its descriptor is the peer's own tcp_fd */
    bool may_move;         /* the peer knows MOVED */
    bool must_say;         /* there was no memory for the last word */
    uint64_t wanted;       /* newest of the peer's bulks, */
    uint64_t number;       /* and the one that the own is connected to */
    uint64_t heard;        /* which of the own the peer has said to be connected to */
    uint8_t *address;      /* of the newest */
    size_t address_bytes;
    uint64_t since_ns;     /* when the path went down; 0 = it is up */
    uint64_t grace_ns;     /* its endpoint has failed: when to give it up; 0 = it has not */
    uint64_t down_ns;      /* for how long it was down the last time */
    uint64_t count;        /* how often it has come up again */
};

/* A peer is being connected; flags: of its introduction. */
void convoy_far_wire_begin(struct convoy_xfer *engine, uint32_t peer, uint32_t flags);
/* Its bulk's address. NO_MEMORY. */
int32_t convoy_far_wire_keep(struct convoy_xfer *engine, uint32_t peer, const void *address, size_t bytes);
/* Frees what it has; the peer's descriptor is not its own. */
void convoy_far_wire_free(struct convoy_far_wire *wire);

/* The TCP connection is readable, writable, or over. */
void convoy_far_heard(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);
/* Whether something waits for room in it. */
bool convoy_far_has_output(const struct convoy_xfer *engine, const struct convoy_xfer_peer *peer);
/* Whether anything may be said to the peer over bulk. */
bool convoy_far_path_is_up(const struct convoy_xfer *engine, uint32_t peer);
/* Whether the end of what was under way is an end of the path alone. */
bool convoy_far_may_come_back(const struct convoy_xfer *engine, uint32_t peer);
/* The path is down from now on, for as long as it takes. */
void convoy_far_path_down(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);
/* The endpoint has failed. false: the peer is lost. */
bool convoy_far_wire_failed(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);
/* The own bulk is connected to that one of the peer's, or cannot be. */
void convoy_far_wired(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, uint64_t number, int32_t status);
/* Gives up whose grace is over. */
void convoy_far_wire_timers(struct convoy_xfer *engine, uint64_t now_ns);

/* Ends the endpoint and makes the next one, once nothing of the old one is under way. [the one thread that carries out; no
 * lock] */
void convoy_far_run_wire(struct convoy_xfer *engine, uint32_t peer);

/* -- far_again.c -- */
/* The path is up: says at once all that has no answer yet; what was half there begins anew. */
void convoy_far_say_again(struct convoy_xfer *engine, struct convoy_xfer_peer *peer);

#endif
