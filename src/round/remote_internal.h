/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the exchange between hosts. Everything here is under remote->lock, but for what is marked [any]: the caller
 * holds it through a whole call (free when nobody contends), the progress thread for one short step when the caller is
 * away. So nothing that looks on may take it: a round that hangs has it for as long as it hangs.
 *
 * Messages (struct convoy_message, then data):
 *   PARTIAL  host's merged blob of round `word`; one per (host, word), repeats are dropped. With FAILED in its head it
 *            also takes back an earlier one: the sender gave up
 *   ROWS     the members' cold lines, after a PARTIAL that showed divergence
 *   REQUEST  "I lead my host now; send me what you have of `word`"
 *   ASK, STATUS  how far each member of the asked host is (for reports)
 *   REWIRED  "my address is this from now on" (remote_rewire.c), repeated until REWIRED_ACK; word: the sender's generation
 *   WANT     "please reopen"; QUERY, STATE, PROPOSE, ACCEPT, COMMIT: agreement on the next generation (remote_reopen.c)
 */
#ifndef CONVOY_ROUND_REMOTE_INTERNAL_H
#define CONVOY_ROUND_REMOTE_INTERNAL_H

#include "round/partial.h"
#include "round/remote.h"
#include "round/schedule.h"

#define CONVOY_TOKEN_BYTES 16u
#define CONVOY_HOSTS_MAX CONVOY_SCHEDULE_HOSTS_MAX
#define CONVOY_REMOTE_NOBODY UINT32_MAX

enum convoy_message_kind {
    CONVOY_MESSAGE_PARTIAL = 1,
    CONVOY_MESSAGE_ROWS,
    CONVOY_MESSAGE_REQUEST,
    CONVOY_MESSAGE_ASK,
    CONVOY_MESSAGE_STATUS,
    CONVOY_MESSAGE_WANT,
    CONVOY_MESSAGE_QUERY,
    CONVOY_MESSAGE_STATE,
    CONVOY_MESSAGE_PROPOSE,
    CONVOY_MESSAGE_ACCEPT,
    CONVOY_MESSAGE_COMMIT,
    CONVOY_MESSAGE_REWIRED,
    CONVOY_MESSAGE_REWIRED_ACK,
};

struct convoy_message {
    uint8_t token[CONVOY_TOKEN_BYTES]; /* from the group's session: anything else is dropped and counted */
    uint32_t kind;
    uint32_t member; /* sender */
    uint64_t word;   /* generation and round it is about */
    uint32_t length; /* bytes of data */
    uint32_t leads;  /* 1: the sender leads its host; any member may say that it gives up */
};

static_assert(sizeof(struct convoy_message) == 40, "fits a link header");

/* What has come in from a host for one round of a parity. */
struct convoy_remote_box {
    uint64_t word;
    uint32_t length;
    uint8_t *bytes;
};

struct convoy_remote_host {
    _Atomic uint32_t leader; /* [any] member that speaks for it, as far as known here */
    uint32_t member_count; /* without members that this generation goes on without */
    bool is_lost;
    uint64_t down_ns; /* since when its leader's link is down; 0 = it is not */
    uint64_t retry_ns;
    uint32_t retry_member; /* of it, asked last whether it leads now */
    uint64_t asked_word;   /* ASK was sent for it */
    uint64_t ask_again_ns; /* and is sent for it again from then on */
    struct convoy_remote_box partial[2];
    struct convoy_remote_box rows[2];
};

/* Agreement on the next generation, as its coordinator sees it. */
enum convoy_reopen_phase {
    CONVOY_REOPEN_NONE = 0,
    CONVOY_REOPEN_QUERY,   /* collecting states */
    CONVOY_REOPEN_PROPOSE, /* collecting promises */
};

struct convoy_reopen_decision {
    uint32_t generation;
    uint32_t reserved;
    uint64_t next_round;
    uint64_t lost[CONVOY_LOST_WORDS];
};

struct convoy_remote_reopen {
    bool is_wanted;
    uint32_t wanted_from; /* the generation that is to be left; once it is left, the wish is granted */
    uint32_t oldest; /* lowest and highest generation heard of */
    uint32_t newest;
    enum convoy_reopen_phase phase;
    uint64_t sent_ns;
    bool answered[CONVOY_HOSTS_MAX];
    bool has_promise; /* some host has promised `decision` already */
    uint64_t lost[CONVOY_LOST_WORDS]; /* all that the hosts said */
    struct convoy_reopen_decision decision;
    uint64_t complete_round; /* highest complete round heard of, and its result */
    uint32_t result_length;
    uint8_t *result;
};

/* Data of REWIRED, the address follows; of REWIRED_ACK. */
struct convoy_rewire_body {
    uint64_t sequence; /* of the address: grows with each that a member has had */
    uint64_t away_ns;  /* REWIRED: how long nothing has reached the sender */
};

#define CONVOY_REMOTE_HAND_ON_BYTES (64u * 1024u) /* of the longest message that an exporter hands on */
#define CONVOY_REWIRE_BYTES_MAX 4096u /* body and address; a lane takes about 130 */

/* The way to one member, as far as either end has moved to another build. */
struct convoy_remote_path {
    uint64_t sequence;   /* of its address in use; 0 = the one of the open */
    bool is_unanswered;  /* it has not answered this member's REWIRED */
    uint64_t again_ns;   /* when that is sent again */
    uint64_t gap_ns;     /* after which it was sent last */
    _Atomic uint64_t since_ns; /* [any] since when it is down; 0 = it is not */
    _Atomic uint64_t count;    /* [any] times that either end has moved */
    _Atomic uint64_t down_ns;  /* [any] how long it was down the last time */
};

/* On the way to another build (remote_move.c). */
enum convoy_remote_stage {
    CONVOY_REMOTE_RUNNING = 0,
    CONVOY_REMOTE_FROZEN,   /* what still comes is handed on to the importer */
    CONVOY_REMOTE_RESTORED, /* has no link yet */
};

struct convoy_remote {
    struct convoy_engine *engine;
    pthread_mutex_t lock;
    enum convoy_remote_stage stage;
    struct convoy_link *link; /* [any] by convoy_remote_link */
    uint8_t token[CONVOY_TOKEN_BYTES];
    uint32_t host_count;
    uint32_t own_host;
    uint8_t **addresses; /* [member_count] worker addresses */
    size_t *address_bytes;
    struct convoy_remote_path *paths; /* [member_count] */
    uint64_t sequence;                /* of the own address */
    uint32_t unanswered;              /* paths with is_unanswered */
    uint64_t frozen_ns;               /* since when nothing reaches this member, until it has announced itself */
    uint64_t announced_ns;
    uint64_t leave_ns;  /* until when a retiring one hands on what comes; 0 = it is not retiring */
    int from_fd;        /* of the importer: what the exporter hands on; -1 = nothing */
    uint8_t *forwarded; /* room for one such message */
    int to_fd;          /* of the exporter: the other end; -1 = never saved */
    int heir_fd;        /* of the exporter: what the importer duplicates */
    struct convoy_remote_host hosts[CONVOY_HOSTS_MAX];
    size_t blob_bytes; /* room for a partial or result */
    uint8_t *scratch;  /* blob_bytes: built here, then sent */
    uint64_t sent_word;   /* PARTIAL went out */
    uint32_t unsent_turns; /* looks at the own host since then */
    uint64_t rows_word;   /* ROWS went out */
    uint64_t failed_word; /* FAILED went out: */
    struct convoy_partial_head failed;
    bool was_leader;
    bool has_warned; /* that a member cannot be reached */
    bool has_diverged_rows; /* scratch_rows hold the rows of the last divergence */
    struct convoy_partial_row *diverged_rows; /* [member_count] */
    uint32_t diverged_count;
    struct convoy_remote_reopen reopen;
    _Atomic uint64_t dropped_token; /* [any] counters, for the dump */
    _Atomic uint64_t dropped_stale;
    _Atomic uint64_t dropped_repeat;
    _Atomic uint64_t dropped_bad;
    pthread_t thread;
    bool has_thread;
    int wake_fd; /* eventfd: stop */
    _Atomic uint32_t is_stopping;
    _Atomic uint64_t activity; /* calls left; the thread takes over when it stands still */
};

/* Counters have one writer, whoever holds the lock. */
static inline void convoy_remote_count(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* [any] NULL: it is a restored one. */
static inline struct convoy_link *convoy_remote_link(const struct convoy_remote *remote)
{
    return __atomic_load_n(&remote->link, __ATOMIC_ACQUIRE);
}

/* remote_open.c: all but the link; its memory (when that fails, free); the link; and the end of it. */
struct convoy_remote *convoy_remote_create(struct convoy_engine *engine);
int32_t convoy_remote_allocate(struct convoy_remote *remote, struct convoy_error *error);
int32_t convoy_remote_link_open(struct convoy_remote *remote, struct convoy_link **link_out, struct convoy_error *error);
void convoy_remote_free(struct convoy_remote *remote);

/* remote_move.c: the link of one that thaws. When this fails nothing has changed; down is its undoing. */
int32_t convoy_remote_link_up(struct convoy_remote *remote, struct convoy_error *error);
void convoy_remote_link_down(struct convoy_remote *remote, enum convoy_remote_stage stage);
/* Hands what has come to a frozen one on to the importer, as it is. */
void convoy_remote_hand_on(struct convoy_remote *remote, const void *header, size_t header_bytes, const void *data,
                           size_t bytes);
/* Hears what the exporter has handed on. */
void convoy_remote_take_over(struct convoy_remote *remote);
void convoy_remote_end_take_over(struct convoy_remote *remote);

/* remote_rewire.c: tells everybody where this member is from now on; repeats it; hears it; and the answer to it. */
void convoy_remote_announce(struct convoy_remote *remote, uint64_t now_ns);
void convoy_remote_rewire_step(struct convoy_remote *remote, uint64_t now_ns);
void convoy_remote_take_rewired(struct convoy_remote *remote, const struct convoy_message *message, const uint8_t *data);
void convoy_remote_take_answer(struct convoy_remote *remote, const struct convoy_message *message, const uint8_t *data);
/* Whether a link that is down says nothing about the member: it does not know yet where this one is. */
bool convoy_remote_is_rewiring(const struct convoy_remote *remote, uint32_t member, uint64_t now_ns);
json_t *convoy_remote_rewire_json(const struct convoy_remote *remote);

/* remote.c */
uint32_t convoy_remote_leader(const struct convoy_engine *engine);
bool convoy_remote_is_leader(const struct convoy_engine *engine);

/* remote_wire.c: sends to one member, or to the leader of every other host that is not lost. */
void convoy_remote_send(struct convoy_remote *remote, uint32_t member, enum convoy_message_kind kind, uint64_t word,
                        const void *data, size_t bytes);
void convoy_remote_broadcast(struct convoy_remote *remote, enum convoy_message_kind kind, uint64_t word,
                             const void *data, size_t bytes);
void convoy_remote_recv(void *user, const void *header, size_t header_bytes, const void *data, size_t bytes);
/* Counts a message of an earlier epoch, or from a member that this one goes on without. */
void convoy_remote_drop_stale(struct convoy_remote *remote);

void convoy_remote_down(void *user, uint32_t peer, int32_t ucx_status);

/* remote_round.c */
void convoy_remote_tell_failed(struct convoy_remote *remote, int32_t status, uint32_t culprit);
void convoy_remote_resend(struct convoy_remote *remote, uint32_t member, uint64_t word);
/* All that this host has said in this generation and that may still be needed, once more. */
void convoy_remote_repeat(struct convoy_remote *remote, uint32_t member);
int32_t convoy_remote_consume(struct convoy_engine *engine);
void convoy_remote_write_blob(struct convoy_segment_blob *blob, const uint8_t *bytes, size_t length);

/* remote_status.c: the table of members of other hosts. */
void convoy_remote_saw_host(struct convoy_remote *remote, uint32_t host, uint64_t word, uint64_t tag);
void convoy_remote_send_status(struct convoy_remote *remote, uint32_t member);
void convoy_remote_read_status(struct convoy_remote *remote, uint32_t host, const uint8_t *data, size_t bytes);
void convoy_remote_ask_silent(struct convoy_remote *remote, uint64_t now_ns);
size_t convoy_remote_rows(struct convoy_remote *remote, struct convoy_partial_row *rows);

/* remote_peers.c: losses of leaders and hosts. */
void convoy_remote_lose_host(struct convoy_remote *remote, uint32_t host);

/* remote_reopen.c */
void convoy_remote_reopen_message(struct convoy_remote *remote, const struct convoy_message *message,
                                  const uint8_t *data);
void convoy_remote_reopen_step(struct convoy_remote *remote, uint64_t now_ns);
/* The generation in force on this host, and what becomes of another leader's: whoever has missed a switch hears of it. */
uint32_t convoy_remote_generation(const struct convoy_remote *remote);
void convoy_remote_reopen_compare(struct convoy_remote *remote, uint32_t member, uint64_t generation);

#endif
