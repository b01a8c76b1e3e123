/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two engines tell each other, on one host through their shared ring (xfer/ring.h), between hosts as frames
 * (xfer/far.h). Each fits one entry; the structs are the format: every machine that convoy runs on is little-endian. A peer is
 * never believed: what is out of range is refused by whoever uses it, an entry of another length is no notice at all.
 *
 *   sender to receiver                                receiver to sender
 *   OFFER     there is a request for you              TAKEN     loaded and checked, or why not
 *   GRANT     answer to ASK                           BACK      I touch it no more
 *   WITHDRAW  I do not wait for it any more           ASK       may I read what this descriptor names
 *   RAW       copy this into your memory              RAW_DONE  it is there, or why not
 *   STAGED    what was offered early is all there     ROOM      between hosts: bring the bytes of OFFER, GRANT, RAW here
 *   RAW_LIST  copy all of these, or none
 *   PUT       what ROOM allowed to put is there (or not)
 *   either way: QUERY, ANSWER, GOODBYE; CLOSED, a goodbye after which nothing of the other's is touched any more, and behind
 *   a GOODBYE the last word; between hosts HELLO, the first; on one host FORGET: a generation of the own pool has ended
 *
 * serial: the sender's transfer. cookie: the asker's. An OFFER that was not answered is sent again with the same sequence
 * number; the receiver answers a repeated one from what it remembers and does nothing twice.
 */
#ifndef CONVOY_XFER_NOTICE_H
#define CONVOY_XFER_NOTICE_H

#include "xfer/ring.h"

enum convoy_say {
    CONVOY_SAY_NONE = 0,
    CONVOY_SAY_OFFER,
    CONVOY_SAY_TAKEN,
    CONVOY_SAY_BACK,
    CONVOY_SAY_WITHDRAW,
    CONVOY_SAY_ASK,
    CONVOY_SAY_GRANT,
    CONVOY_SAY_RAW,
    CONVOY_SAY_RAW_DONE,
    CONVOY_SAY_QUERY,
    CONVOY_SAY_ANSWER,
    CONVOY_SAY_GOODBYE,
    CONVOY_SAY_ROOM,
    CONVOY_SAY_HELLO,
    CONVOY_SAY_STAGED,
    CONVOY_SAY_RAW_LIST,
    CONVOY_SAY_CLOSED,
    CONVOY_SAY_FORGET,
    CONVOY_SAY_PUT,
    CONVOY_SAY_TYPES,
};

#define CONVOY_OFFER_COPY 0x80000000u       /* the sender wants its memory back at once */
#define CONVOY_OFFER_EARLY 0x40000000u      /* the payload is still being staged: see the mark in front of the descriptor */
#define CONVOY_OFFER_NOTE_BYTES 0x3fffffffu /* the rest of note is how long the descriptor is */

/* In the notes, right in front of a descriptor: how far its payload is staged, everything below is final. The sender's alone to
 * write. */
#define CONVOY_MARK_BYTES 64u
#define CONVOY_MARK_FAILED UINT64_MAX /* it never will be */

struct convoy_offer {
    uint64_t serial;
    uint64_t sequence; /* from 1, per sender and receiver */
    uint64_t digest;   /* of the request id */
    uint64_t offset;   /* of the payload in the sender's pool */
    uint64_t bytes;
    uint64_t note_offset; /* of the descriptor in the sender's notes */
    uint32_t note;        /* CONVOY_OFFER_* */
    uint32_t attempt;
};

#define CONVOY_REPLY_BACK 1u   /* TAKEN: and BACK in one */
#define CONVOY_REPLY_PLACED 2u /* GRANT: figures[0] is where the payload lies; JSON counts from its generation's start */

/* TAKEN, BACK, WITHDRAW, GRANT, RAW_DONE, ANSWER, STAGED */
struct convoy_reply {
    uint64_t serial;
    uint64_t cookie;
    uint64_t figures[2]; /* GRANT: see PLACED; RAW_DONE: which part is refused; a refusal for want of room: free bytes, largest
                            free block */
    int32_t status;
    uint32_t state; /* ANSWER: CONVOY_TRANSFER_* */
    uint32_t attempt;
    uint32_t retry_after_ms;
    uint32_t flags; /* CONVOY_REPLY_* */
    uint32_t is_drained;
};

/* ASK, QUERY */
struct convoy_ask {
    uint64_t cookie;
    uint64_t serial; /* 0 = by request */
    uint64_t digest; /* of the request id */
    uint64_t offset;
    uint64_t bytes;
    uint32_t attempt;
    uint32_t zero;
};

struct convoy_raw_order {
    uint64_t cookie;
    uint64_t offset; /* in the sender's pool */
    uint64_t target; /* address in the receiver */
    uint64_t bytes;
};

#define CONVOY_RAW_PARTS_MAX 1024u

/* An element of the list, which lies in the sender's notes, or comes in front of the bytes where those are not mapped. */
struct convoy_raw_part {
    uint64_t offset; /* in the sender's pool; between hosts: in the bytes that come */
    uint64_t target; /* address in the receiver */
    uint64_t bytes;
};

struct convoy_raw_list {
    uint64_t cookie;
    uint64_t note_offset; /* of the list in the sender's notes; between hosts 0 */
    uint64_t bytes;       /* of all parts */
    uint32_t count;       /* 1 to CONVOY_RAW_PARTS_MAX */
    uint32_t zero;
};

struct convoy_room {
    uint64_t serial; /* of OFFER or GRANT, or the cookie of RAW or RAW_LIST */
    uint64_t landing;
    uint64_t generation;
    uint64_t note_bytes; /* of the descriptor or list; 0: it is known */
    uint64_t put;        /* where in the memory of the receiver's key the payload may be put; CONVOY_ROOM_NO_PUT */
};

#define CONVOY_ROOM_NO_PUT UINT64_MAX /* by messages only */

struct convoy_forget {
    uint64_t generation;
    uint64_t oldest; /* that the peer still has; all before it have ended too; 0: it has none */
};

/* PUT: what ROOM allowed to put is there, or (status) is not and will not be. */
struct convoy_put {
    uint64_t landing;
    uint64_t generation;
    uint64_t bytes;
    int32_t status;
    uint32_t zero;
};

union convoy_say_body {
    struct convoy_offer offer;
    struct convoy_reply reply;
    struct convoy_ask ask;
    struct convoy_raw_order raw;
    struct convoy_raw_list list;
    struct convoy_room room;
    struct convoy_forget forget;
    struct convoy_put put;
};

struct convoy_xfer_notice {
    enum convoy_say type;
    union convoy_say_body body;
};

void convoy_xfer_notice_pack(const struct convoy_xfer_notice *notice, struct convoy_ring_entry *entry_out);

/* false: another type, or another length than its type has. */
bool convoy_xfer_notice_unpack(const struct convoy_ring_entry *entry, struct convoy_xfer_notice *notice_out);

const char *convoy_xfer_notice_name(enum convoy_say type);

#endif
