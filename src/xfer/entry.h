/* SPDX-License-Identifier: Apache-2.0 */
/* One transfer, as the table of an engine has it. */
#ifndef CONVOY_XFER_ENTRY_H
#define CONVOY_XFER_ENTRY_H

#include "pool/pool.h"
#include "xfer/admission.h"
#include "xfer/descriptor.h"
#include "xfer/device_part.h"
#include "xfer/engine.h"
#include "xfer/extents.h"
#include "xfer/state.h"
#include "xfer/view.h"

/* One piece of a staged copy. */
struct convoy_tensor_piece {
    const uint8_t *from;
    uint64_t to; /* offset in the slot */
    uint64_t bytes;
    uint32_t rank; /* 0 = dense */
    uint32_t item; /* bytes of one element, strided only */
    bool is_on_device; /* the device copies it */
    uint64_t shape[CONVOY_MANIFEST_RANK_MAX];
    int64_t strides[CONVOY_MANIFEST_RANK_MAX];
};

struct convoy_xfer_entry {
    enum convoy_xfer_kind kind;
    uint32_t generation;
    uint32_t index;
    uint32_t state;
    int32_t status;
    uint32_t attempt;
    uint32_t peer;   /* index, or NOBODY */
    uint32_t source; /* send: its stage; else NOBODY */
    uint32_t users;  /* stage: sends of it */
    uint32_t waits;  /* stage: those that wait for room */
    uint32_t path;
    uint32_t retries;
    uint32_t retries_left;
    uint32_t retry_after_ms;
    uint32_t slot_id;
    uint32_t mode;  /* load: CONVOY_LOAD_* */
    uint32_t wanted_peer; /* load: only offers of this one, or NOBODY */
    bool is_hidden; /* the host has no handle of it */
    bool is_released;
    bool is_owned; /* stage: by the one send that made it */
    bool is_queued; /* a copy waits for a thread */
    bool is_copying;
    bool is_asking; /* stage: a thread is in its ready callback */
    uint64_t paused_ns; /* how long host threads have waited for it already: they do not begin to yield again */
    bool is_awaited; /* a host thread waits for it, and copies if there is something to copy */
    bool is_accepting; /* load: waits for any offer that matches */
    bool is_lent; /* send: the peer may read; load: BACK is owed */
    bool is_told; /* load: TAKEN was said */
    bool is_deferred; /* stage: its copy begins when the send of it is offered */
    bool is_followed; /* stage: it is pushed to another host while it is copied */
    bool is_note_due; /* send to a far peer: its descriptor follows when it is staged */
    bool must_push_again; /* send to a far peer: its path was down before all bytes were there */
    bool is_return_due; /* send to a far peer: it is given back when its source is not read any more */
    bool is_early;    /* load: from what is still being staged; stage: a reader on this host may follow its copy */
    _Atomic bool must_stop; /* load: its copy need not go on */
    enum convoy_reference reference; /* send: what keeps the payload */
    const _Atomic uint64_t *mark;    /* load: how far it is staged */
    bool is_noted; /* its end is in the completions, or was taken from there */
    bool is_checksummed;
    bool is_slot_kept; /* slot: preallocated, goes back to the list */
    bool is_pushed; /* load: its bytes come, or came, into the own memory */
    bool is_answered; /* send: the peer has said how it ended */
    uint64_t streams[2]; /* send to a far peer: pushes of descriptor and payload; 0 = ended */
    uint64_t landing; /* load from a far peer, 0 = none; send to one: where to */
    uint64_t landing_generation;
    uint64_t note_bytes; /* of the descriptor that lands there */
    int32_t refused_status; /* send to a far peer: its bytes were refused, and why comes next; OK = no */
    enum convoy_xfer_place place;    /* send: what it counts as */
    struct convoy_waiting_node wait; /* send: its priority; when it waits, its turn */
    uint64_t digest;
    uint64_t deadline_ns;
    uint64_t lease_ns;
    uint64_t retry_ns; /* when to say it again; NEVER */
    uint64_t retry_step_ns;
    uint64_t serial;   /* load: the sender's transfer; */
    uint64_t cookie;   /* hidden send: the asker's */
    uint64_t sequence; /* of the offer */
    uint64_t offset;   /* load: of the payload in the sender's pool */
    uint64_t payload_bytes;
    uint64_t moved_bytes;
    uint64_t followed_bytes; /* load: done of what is still being staged */
    struct convoy_extents written; /* slot: by peers; its memory stays for the next */
    uint64_t checksum;
    uint64_t times_ns[CONVOY_TIMES];
    struct convoy_slot slot; /* in the own pool; lease NONE = none */
    struct convoy_slot note; /* in the own notes */
    struct convoy_view *view;
    const uint8_t *payload; /* where it can be read here */
    uint8_t *destination;   /* load: the host's; NULL = own pool */
    uint64_t destination_bytes;
    uint8_t *room; /* grows, kept for the next transfer: the descriptor as it came */
    size_t room_bytes;
    struct convoy_manifest_room manifest_room; /* the same for its manifest, */
    struct convoy_tensor_piece *pieces;          /* and for the pieces of a stage */
    uint32_t piece_room;
    uint32_t piece_count;
    size_t known_bytes; /* of a descriptor in it, decoded before */
    char *storage;      /* what a JSON descriptor's spans point into */
    struct convoy_manifest *given; /* the manifest of a JSON descriptor, to be destroyed */
    struct convoy_descriptor descriptor;
    convoy_ready_fn ready;
    void *user;
    struct convoy_xfer_device_part device;
    struct convoy_copy_piece *device_pieces; /* grows, kept */
    size_t device_piece_room;
    bool is_shown; /* the host was given pointers into its memory */
    void **kept; /* memory of earlier builds that the host was given pointers into, until it releases */
    uint32_t kept_count;
    struct convoy_error error;
    uint32_t request_length;
    char request[CONVOY_REQUEST_BYTES + 1];
    uint32_t past; /* in the timeline, from 1; 0 = not yet */
    uint32_t next; /* in the active list, */
    uint32_t before;
    uint32_t next_job; /* the copies to do, */
    uint32_t next_ended; /* and the completions */
};

#endif
