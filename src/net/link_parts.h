/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a link, shared by the link_*.c files only. */
#ifndef CONVOY_NET_LINK_PARTS_H
#define CONVOY_NET_LINK_PARTS_H

#include "net/lanes.h"
#include "net/link.h"
#include "net/ucx.h"

#include <assert.h>

#define LINK_BUFFERS 64
#define LINK_AM_ID 1u
#define LINK_AM_PIECE_ID 2u
#define LINK_SEGMENT_BYTES (60u * 1024u) /* goes whole over TCP with the segment size that convoy sets */

/* One device's worker. */
struct link_lane {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    int efd; /* becomes readable when there is work; owned by the worker */
};

#define LINK_TEXT_WORDS (CONVOY_LINK_TRANSPORTS_BYTES / sizeof(uint64_t))

/* A short text that the owner changes now and then, and anyone reads. */
struct link_text {
    uint64_t writes; /* odd while it changes */
    uint64_t words[LINK_TEXT_WORDS];
};

struct link_endpoint {
    struct convoy_link *link;
    ucp_ep_h ep; /* NULL: none, or given back */
    uint32_t state; /* enum convoy_link_state; written by the owner, read by anyone */
    uint32_t lane;  /* the same */
    uint32_t pending;     /* sends in buffers; the next ones queue behind them */
    struct link_buffer *queue; /* of these, those that wait here and not in UCX; first first */
    bool is_tcp;               /* nothing but TCP: its messages wait here (link_queue.c) */
    uint32_t rma;              /* enum convoy_link_rma */
    size_t segment_bytes;      /* longer messages go in pieces */
    const void *later_address; /* connect was asked for inside of progress; borrowed until that ends; NULL = no */
    size_t later_bytes;
    bool must_close;      /* failed: to be closed from outside of UCX's callbacks */
    bool must_tell;       /* failed: down has not been called yet */
    bool is_dirty;        /* something was sent since the last flush */
    int32_t ucx_status;   /* why it failed */
    uint64_t sent_messages;
    uint64_t sent_bytes;
    uint64_t inline_messages; /* of these, without a buffer */
    struct link_text transports; /* "tcp/eth0" */
};

/* A message that UCX could not take at once. */
struct link_buffer {
    struct link_buffer *next;
    struct link_endpoint *endpoint;
    uint8_t *bytes; /* header, then data */
    size_t header_bytes;
    size_t data_bytes;
    size_t sent; /* of both, in pieces */
    uint64_t sequence;
};

/* What one active message carries; borrowed. */
struct link_message {
    const void *header;
    size_t header_bytes;
    const void *data;
    size_t bytes;
};

/* In front of each piece of a message that is longer than a segment. */
struct link_piece {
    uint64_t sender;   /* link id */
    uint64_t sequence; /* of the message among the sender's */
    uint32_t total;    /* bytes of header and data */
    uint32_t offset;   /* of this piece in them */
    uint32_t header_bytes;
    uint32_t reserved;
};

static_assert(sizeof(struct link_piece) == 32, "on the wire");

/* A message of one sender that has come in part. */
struct link_assembly {
    uint64_t sender;
    uint64_t sequence;
    uint64_t used; /* number of the last piece among all; 0 = never */
    uint32_t total;
    uint32_t done;
    uint8_t *bytes; /* NULL until the first one comes */
};

struct convoy_link {
    struct convoy_link_options options;
    const struct convoy_ucx_functions *ucx;
    struct convoy_lane_set set;
    struct link_lane lanes[CONVOY_LANES_MAX];
    struct link_endpoint *endpoints;
    uint8_t *address;
    size_t address_bytes;
    struct link_buffer buffers[LINK_BUFFERS];
    struct link_buffer *free_buffers;
    uint8_t *buffer_memory;
    struct link_assembly *assemblies; /* [peer_count] */
    uint64_t id;              /* random: whose pieces these are */
    uint64_t sequence;        /* of the last buffered message */
    uint64_t pieces_received;
    uint32_t pending;   /* buffers in use */
    uint32_t queued;    /* of these, in queues of endpoints */
    uint32_t unfinished; /* close and flush requests under way */
    uint32_t attention; /* endpoints with must_close or must_tell */
    bool is_closing;    /* nothing is delivered any more */
    bool is_progressing; /* inside UCX: nothing is connected, written, closed or progressed there */
    uint32_t later;      /* endpoints with a later_address */
    uint64_t received_messages;
    uint64_t received_bytes;
    uint64_t refused_messages; /* larger than any member may send, or not of our making */
    uint64_t sleeps;
#ifdef CONVOY_DEBUG
    uint64_t owner; /* thread inside, 0 = none */
    uint32_t depth;
#endif
    int wait_fd; /* epoll over the lanes' descriptors */
};

/* Counters are written by the one thread inside and read by any that describes. */
static inline void link_count(uint64_t *counter, uint64_t add)
{
    __atomic_store_n(counter, *counter + add, __ATOMIC_RELAXED);
}

static inline uint64_t link_read(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline void link_set_state(struct link_endpoint *endpoint, enum convoy_link_state state)
{
    __atomic_store_n(&endpoint->state, (uint32_t)state, __ATOMIC_RELAXED);
}

static inline enum convoy_link_state link_state(const struct link_endpoint *endpoint)
{
    return (enum convoy_link_state)__atomic_load_n(&endpoint->state, __ATOMIC_RELAXED);
}

/* The worker is serialized, not locked: two threads inside abort UCX later and elsewhere. Debug builds say so here. A
 * recv callback may send, hence the depth. */
#ifdef CONVOY_DEBUG
static inline void link_enter(struct convoy_link *link)
{
    uint64_t self = (uint64_t)pthread_self();
    uint64_t nobody = 0;
    if (__atomic_load_n(&link->owner, __ATOMIC_RELAXED) != self) {
        bool is_alone = __atomic_compare_exchange_n(&link->owner, &nobody, self, false, __ATOMIC_ACQUIRE,
                                                    __ATOMIC_RELAXED);
        assert(is_alone && "two threads inside one link");
        (void)is_alone;
    }
    link->depth++;
}

static inline void link_leave(struct convoy_link *link)
{
    if (--link->depth == 0) {
        __atomic_store_n(&link->owner, 0, __ATOMIC_RELEASE);
    }
}
#else
static inline void link_enter(struct convoy_link *link)
{
    (void)link;
}

static inline void link_leave(struct convoy_link *link)
{
    (void)link;
}
#endif

/* link_lanes.c: makes and ends the workers. On failure nothing is left. */
int32_t convoy_link_lanes_open(struct convoy_link *link, struct convoy_error *error);
void convoy_link_lanes_close(struct convoy_link *link);

/* link_connect.c: gives the UCX endpoint back by force; never calls anyone. */
void convoy_link_endpoint_close(struct convoy_link *link, struct link_endpoint *endpoint);

/* link_describe.c: text: all of its bytes are kept. */
void convoy_link_text_write(struct link_text *to, const char text[CONVOY_LINK_TRANSPORTS_BYTES]);

/* link_connect.c: makes the endpoints that were asked for inside of progress. */
void convoy_link_connect_later(struct convoy_link *link);

/* link_connect.c: the endpoint is of no use any more; the rest follows in the next progress. */
void convoy_link_endpoint_fail(struct link_endpoint *endpoint, int32_t ucx_status);

/* link_send.c: hands what waits in an endpoint's queue to UCX (not over TCP). */
void convoy_link_send_queued(struct convoy_link *link, struct link_endpoint *endpoint);

/* link_send.c: makes the buffers. */
int32_t convoy_link_buffers_make(struct convoy_link *link, struct convoy_error *error);

/* link_queue.c: sends at once or not at all (UCS_ERR_NO_RESOURCE). */
ucs_status_t convoy_link_send_now(struct convoy_link *link, const struct link_endpoint *endpoint,
                                  const struct link_message *message, unsigned id);

/* link_queue.c: appends the first free buffer, filled, to the endpoint's queue; sends from all queues what goes, and
 * returns how many messages moved; forgets what is queued. */
void convoy_link_queue_push(struct convoy_link *link, struct link_endpoint *endpoint, struct link_buffer *buffer);
uint32_t convoy_link_queue_progress(struct convoy_link *link);
void convoy_link_queue_drop(struct convoy_link *link, struct link_endpoint *endpoint);

/* link_pieces.c: takes one piece; delivers the message that it completes. */
void convoy_link_pieces_receive(struct convoy_link *link, const void *header, size_t header_bytes, const void *data,
                                size_t bytes);
void convoy_link_pieces_free(struct convoy_link *link);

/* link_lanes.c: hands a whole message to the owner. */
void convoy_link_deliver(struct convoy_link *link, const void *header, size_t header_bytes, const void *data,
                         size_t bytes);

#endif
