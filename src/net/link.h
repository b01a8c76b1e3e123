/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: one UCX worker of one group member, endpoints to other members, and small active messages. One thread at a
 * time may be inside (the engine's owner rule, checked in debug builds); the worker is created in serialized mode with
 * wake-up. Opening the first link of a context opens UCX (net/ucx.h). Endpoints are created with peer error handling.
 */
#ifndef CONVOY_NET_LINK_H
#define CONVOY_NET_LINK_H

#include "net/runtime.h"

#define CONVOY_LINK_HEADER_MAX 64u
#define CONVOY_LINK_TRANSPORTS_BYTES 64u

enum convoy_link_state {
    CONVOY_LINK_NONE = 0,   /* never connected */
    CONVOY_LINK_UP,         /* endpoint exists; UCX connects lazily */
    CONVOY_LINK_FAILED,     /* error handler ran; nothing is issued on it any more */
};

struct convoy_link;

/* One message has arrived. Both ranges are borrowed for the call. Called inside convoy_link_progress. */
typedef void (*convoy_link_recv_fn)(void *user, const void *header, size_t header_bytes, const void *data,
                                    size_t bytes);

/* An endpoint failed. Called inside convoy_link_progress; must not send. */
typedef void (*convoy_link_down_fn)(void *user, uint32_t peer, int32_t ucx_status);

struct convoy_link_options {
    struct convoy_runtime *runtime;
    uint32_t peer_count; /* endpoints are numbered 0..peer_count-1 (member indexes) */
    size_t message_bytes_max;
    bool with_rma;            /* put and get (net/link_rma.h) */
    bool without_peer_errors; /* take transports that cannot tell of a peer's death (shared memory): the owner can */
    convoy_link_recv_fn recv;
    convoy_link_down_fn down;
    void *user;
};

/* INIT_FAILED: UCX is absent (text says what it needs: package, file), out of the supported range (both versions), or
 * has no usable transport (text lists what is available). */
int32_t convoy_link_open(const struct convoy_link_options *options, struct convoy_link **link_out,
                         struct convoy_error *error);

/* This worker's address, to be handed to the others; valid until close. */
const void *convoy_link_address(const struct convoy_link *link, size_t *bytes_out);

/* Creates the endpoint to a peer; again after FAILED replaces it. Does not wait for the peer. address: borrows,
 * when called inside of recv until progress returns.
 * MALFORMED: not an address of a link. UNREACHABLE: none of the interfaces here reaches one of the peer's; the text has
 * both lists. */
int32_t convoy_link_connect(struct convoy_link *link, uint32_t peer, const void *address, size_t bytes,
                            struct convoy_error *error);

/* Whether convoy_link_connect would find interfaces: its statuses, and nothing is created. */
int32_t convoy_link_reach(const struct convoy_link *link, uint32_t peer, const void *address, size_t bytes,
                          struct convoy_error *error);

/* Takes the endpoint for failed: nothing is issued on it any more, and the next progress closes it and calls down. It
 * may be connected again at once. Also inside of recv. No-op when there is none. */
void convoy_link_fail(struct convoy_link *link, uint32_t peer);

/*
 * Sends one message. header and data are copied or sent before return when UCX can; otherwise the link keeps its own
 * copy until the send completes, in buffers made at open (LIMIT: all in use; progress and try again). PEER_LOST: the
 * endpoint has failed. BAD_STATE: it was never connected. What is buffered moves only in progress, so a caller that
 * stops making progress first waits until nothing is pending. Never blocks, never allocates of its own accord.
 */
int32_t convoy_link_send(struct convoy_link *link, uint32_t peer, const void *header, size_t header_bytes,
                         const void *data, size_t bytes);

/*
 * Sends one message at once or not at all (LIMIT: nothing was sent; progress and offer it again). What was sent is out
 * of header and data by the return, and no buffer of the link is taken, so that one slow peer holds up nobody. An empty
 * connection that refuses a message has a smaller segment than convoy sets: offer less. Over other transports than TCP
 * the link's buffers are used as in send. In a callback of progress it is always LIMIT. Else as send.
 */
int32_t convoy_link_offer(struct convoy_link *link, uint32_t peer, const void *header, size_t header_bytes,
                          const void *data, size_t bytes);

/* Messages sent and not yet completed. */
uint32_t convoy_link_pending(const struct convoy_link *link);

/* Makes progress; returns the number of events. */
uint32_t convoy_link_progress(struct convoy_link *link);

/* Arms the worker and sleeps until something happens, `wake_fd` (-1 = none) is readable, or the deadline: progress,
 * arm (busy: return at once), poll. Returns with nothing promised. */
void convoy_link_sleep(struct convoy_link *link, int wake_fd, uint64_t deadline_ns);

/* The two halves of a sleep for callers that hold a lock: arm tells whether the descriptor will become readable (false:
 * events wait, make progress first), and the descriptor may be polled by any thread, without owning the link. */
bool convoy_link_arm(struct convoy_link *link);
int convoy_link_fd(const struct convoy_link *link);

/* Ends pending sends until the deadline, at most a second of it for what was sent last to leave the process, then
 * closes endpoints by force (over TCP safe at any time: link_queue.c), destroys the workers. Returns at most a second
 * after the deadline, whatever the peers do. A worker that UCX still uses then is kept, and a warning says so.
 * NULL is a no-op. */
void convoy_link_close(struct convoy_link *link, uint64_t deadline_ns);

/* Whether nothing is left of an endpoint to that peer. */
bool convoy_link_is_closed(const struct convoy_link *link, uint32_t peer);

/* The rest looks on: any thread, at any time before close, whatever the one inside does. */

enum convoy_link_state convoy_link_peer_state(const struct convoy_link *link, uint32_t peer);
const char *convoy_link_state_text(enum convoy_link_state state);

/* What the endpoint to a peer goes over, such as "tcp/eth0"; "" = there is none yet, or it is just changing. */
void convoy_link_peer_transports(const struct convoy_link *link, uint32_t peer,
                                 char text_out[CONVOY_LINK_TRANSPORTS_BYTES]);

/* JSON object: transports and devices used by each endpoint, messages and bytes sent and received. gives */
json_t *convoy_link_describe(const struct convoy_link *link);

#endif
