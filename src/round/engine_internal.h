/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the round engine, shared by the files that make it up. Nothing outside src/round includes it.
 *
 * Threads: one caller at a time owns everything but the fields marked [any]. In a group that spans hosts the progress
 * thread (remote.h) may run the leader's duties; what both touch is under remote's lock.
 */
#ifndef CONVOY_ROUND_ENGINE_INTERNAL_H
#define CONVOY_ROUND_ENGINE_INTERNAL_H

#include "round/fingerprint.h"
#include "round/quick.h"
#include "round/segment.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/ticks.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>

#define CONVOY_MEMBERS_MAX 1024u
#define CONVOY_CANCEL_TEXT_BYTES 128u

struct convoy_remote; /* round/remote.h: leaders of several hosts */

enum convoy_engine_state {
    CONVOY_ENGINE_IDLE = 0, /* a round may start; the last operation may still be read */
    CONVOY_ENGINE_OPEN,     /* published, not finished */
    CONVOY_ENGINE_STUCK,    /* as open, after TIMED_OUT or CANCELED */
    CONVOY_ENGINE_BROKEN,   /* reopen first */
};

/* How one member was found lost. Sticky for the life of the engine. [any] */
struct convoy_loss {
    _Atomic uint8_t is_dead;    /* its process ended, or its host is gone */
    _Atomic uint8_t is_closed;  /* it said goodbye */
    _Atomic uint8_t noticed_by; /* CONVOY_NOTICED_* */
};

/* What went wrong last, kept for operation_report. */
struct convoy_engine_report {
    struct convoy_member_report *rows; /* [member_count] */
    uint32_t row_count;
    uint32_t field;
    uint64_t round;
    uint64_t elapsed_ns;
    convoy_operation operation;
};

/* How this member waits. */
struct convoy_waiting {
    uint32_t pauses;      /* before yielding; 0 when members outnumber cores */
    bool is_settled;      /* all local members' processors are known */
    uint32_t looks;       /* between two yields of a long wait */
    uint64_t usual_ns;    /* moving average of how long peers keep this member waiting */
    uint64_t ask_ns;   /* CLOCK_MONOTONIC from which a leader asks silent hosts: a quarter of the first wait's deadline, then
                          each time the round has taken twice as long */
    uint64_t watch_ns; /* until when a leader looks at its host without yielding (groups of several hosts) */
    uint32_t turn;     /* counts empty turns, to yield now and then */
    uint32_t shared;   /* not 0: somebody else ran when this member yielded of late (groups of several hosts) */
};

/* What waits for one operation that gave up have left to the next wait for it. Another operation starts with nothing. */
struct convoy_slices {
    convoy_operation operation;
    uint64_t spent_ns;   /* waited so far: yielding for it is not begun again */
    uint64_t look_at_ns; /* CLOCK_MONOTONIC of the next look for dead peers: waits shorter than its interval get there too */
};

/* What one pass over the cells of a host, or over the merged blobs of all hosts, found. */
struct convoy_round_pass {
    uint32_t votes_and;
    uint32_t votes_or;
    uint64_t tag_min; /* smallest and largest tag that is not 0 */
    uint64_t tag_max;
    uint32_t error_member; /* first error row, or member_count */
    int32_t error_reason;
    uint32_t diverged_member; /* first whose fingerprint differs from this member's, or member_count */
    uint32_t bad_member;      /* whose payload merge refused */
    int32_t merge_status;
    uint32_t lost_count; /* absent as lost */
};

struct convoy_engine {
    /* What a short round touches, in few cache lines: the first round after a pause finds all of them cold. */
    struct convoy_quick_front front; /* first: see quick.h */
    uint64_t next_round;
    uint64_t own_words[2];            /* last words of own cells, by parity */
    struct convoy_cell *own_cells[2]; /* by parity */
    uint64_t cold_prints[2];          /* fingerprint that own cold lines hold, by parity; 0 = none */
    uint8_t *cells;                   /* all cells: [local_count][2] of cell_bytes */
    size_t cell_bytes;
    uint32_t local_count;
    _Atomic uint32_t generation; /* [any] */
    uint32_t operation_count;    /* may wrap */
    uint32_t operation_salt;     /* constant after open */
    struct convoy_round_summary summary;
    struct convoy_stats_wait waited; /* of the last operation */
    _Atomic uint64_t operation;      /* [any] the open one, else the last one */
    _Atomic uint64_t round;          /* [any] of the open operation, else of the last finished one */
    _Atomic uint64_t quick_ticks;    /* [any] core/ticks.h: when the last short round ended */
    struct convoy_waiting waiting;
    struct convoy_segment segment; /* its base */

    /* What others touch as well. */
    uint32_t local_index;
    uint32_t loss_count;         /* members known dead or closed, excluded ones included */
    uint32_t error_member;       /* whose error row ended the last round, or member_count */
    int32_t ended_status;
    _Atomic uint32_t state;      /* [any] enum convoy_engine_state */
    _Atomic uint32_t is_unread;  /* [any] the operation's end was not returned by test, wait or abandon yet */
    _Atomic uint64_t published_ns; /* [any] coarse CLOCK_MONOTONIC of its publish; not of short rounds */
    _Atomic uint64_t finished_ns;  /* [any] coarse, of the last finished round; not of short ones */
    _Atomic uint32_t was_stuck;    /* [any] a wait for it has ended without a result */
    uint32_t member_count;
    bool stops_at_arrival; /* collect says ARRIVED instead of ending the round (quick.c) */

    /* constant after open */
    struct convoy_runtime *runtime;
    const struct convoy_group_options *group;
    struct convoy_agreement agreement;
    uint32_t own_index;
    uint32_t *local_members; /* [local_count] member index of each local position, ascending */
    struct convoy_local local;
    struct convoy_ticks base; /* when it was opened */
    struct convoy_remote *remote; /* NULL with one host */
    size_t blob_bytes_max;
    uint64_t timeout_ns;
    bool degrade;

    /* the member's place in the group */
    _Atomic uint64_t lost[CONVOY_LOST_WORDS]; /* [any] members this generation goes on without */
    _Atomic uint32_t lost_count; /* [any] */
    _Atomic uint32_t absent_count; /* [any] lost members in the last merged round of this generation */
    struct convoy_loss *losses; /* [member_count] */

    /* the operation */
    struct convoy_contribution contribution;
    struct convoy_round_header printed; /* what fingerprint is of */
    uint64_t fingerprint;
    uint64_t reference; /* what the others' are compared with: own, or of the first row when own is an error row */
    uint32_t scan; /* local positions below it have arrived */
    struct convoy_slices slices;
    struct convoy_engine *beside; /* of the other group of a call on two groups, while it waits: a cancel there ends it too */
    uint64_t wait_until_ns;       /* deadline of the wait that runs; 0 = it has not had to look at the clock */
    int32_t error_reason;
    uint32_t failed_member; /* who made the last round fail, or member_count */
    bool recovered; /* reopen completed the last operation with a result from another host */
    struct convoy_error ended_error;
    struct convoy_engine_counters counters; /* [any] */
    struct pollfd *pollfds; /* [member_count] scratch of the look for dead peers */
    uint32_t *poll_members; /* [member_count] */

    _Atomic uint32_t cancel_requested; /* [any] */
    pthread_mutex_t report_lock;       /* protects the three below; leaf lock */
    struct convoy_engine_report report;
    char cancel_text[CONVOY_CANCEL_TEXT_BYTES];
};

static inline bool convoy_engine_is_lost(const struct convoy_engine *engine, uint32_t member)
{
    return engine->lost_count != 0 &&
           (atomic_load_explicit(&engine->lost[member / 64], memory_order_relaxed) >> (member % 64) & 1) != 0;
}

static inline int32_t convoy_engine_rank(const struct convoy_engine *engine, uint32_t member)
{
    return engine->group->member_ids[member];
}

static inline uint64_t convoy_engine_epoch(const struct convoy_engine *engine)
{
    return engine->agreement.epoch + engine->generation - 1;
}

/* From now on rounds of this generation may start the short way, or NOBODY's. */
static inline void convoy_engine_quick_gate(struct convoy_engine *engine, uint32_t generation)
{
    atomic_store_explicit(&engine->front.generation, generation, memory_order_relaxed);
}

static inline bool convoy_engine_is_open(const struct convoy_engine *engine)
{
    uint32_t state = atomic_load_explicit(&engine->state, memory_order_relaxed);
    return state == CONVOY_ENGINE_OPEN || state == CONVOY_ENGINE_STUCK;
}

/* The last operation is open, or over without anybody having been told. */
static inline bool convoy_engine_is_unread(const struct convoy_engine *engine)
{
    return atomic_load_explicit(&engine->is_unread, memory_order_relaxed) != 0;
}

static inline uint64_t convoy_engine_coarse_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * CONVOY_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The value of the operation that was published last: slot, count, and the engine's salt, so that a value of one group
 * is stale in every other, also in one that is opened where a closed one lay. */
static inline convoy_operation convoy_engine_operation(const struct convoy_engine *engine)
{
    return (uint64_t)engine->operation_salt << 40 | (uint64_t)engine->operation_count << 8 | 1;
}

static inline void convoy_engine_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Whether peers are usually later than yielding could bridge. */
static inline bool convoy_engine_waits_long(const struct convoy_engine *engine)
{
    return engine->waiting.usual_ns >= engine->runtime->settings.yield_us * 1000;
}

/* engine.c: the parts of an open that engine_move.c has too. create: NULL without memory; free takes whatever there is. */
struct convoy_engine *convoy_engine_create(struct convoy_runtime *runtime, const struct convoy_group_options *group);
int32_t convoy_engine_allocate(struct convoy_engine *engine, struct convoy_error *error);
/* Which members share this host, in member order, and this one's place among them. */
void convoy_engine_place(struct convoy_engine *engine);
/* Maps the segment, or makes private memory, after the geometry is known. */
int32_t convoy_engine_map(struct convoy_engine *engine, struct convoy_error *error);
void convoy_engine_free(struct convoy_engine *engine);

#define CONVOY_ENGINE_ARRIVED INT32_MAX /* no status: see stops_at_arrival */

/* collect.c: looks at the open round once. IN_PROGRESS, or how it ended (engine is then idle or broken). */
int32_t convoy_engine_collect(struct convoy_engine *engine);

/* finish.c: all local cells have arrived (or are absent by policy): merges and says how the round ended. */
int32_t convoy_engine_finish_local(struct convoy_engine *engine);

/* The two halves of it: one pass over the cells of this host, merging as it goes, and the end that it leads to. */
void convoy_engine_pass(struct convoy_engine *engine, struct convoy_round_pass *pass);
int32_t convoy_engine_conclude(struct convoy_engine *engine, const struct convoy_round_pass *pass);

/* collect.c: the round has failed because a cell of this host is sealed or its owner moved on. */
int32_t convoy_engine_fail_sealed(struct convoy_engine *engine);

/* Ends the open operation with a status that every later test of it returns. */
int32_t convoy_engine_end(struct convoy_engine *engine, int32_t status, const struct convoy_error *error);

/* operation.c: what a wait or test of the open operation returns, given how it ended; and the error and summary. */
int32_t convoy_engine_result(struct convoy_engine *engine, int32_t status, struct convoy_round_summary *summary_out,
                             struct convoy_error *error);

/* operation.c: fills and publishes this member's cell of the next round. False: it was sealed before. */
bool convoy_engine_contribute(struct convoy_engine *engine);

/* degrade.c: turns PEER_LOST into a round of the next epoch where the policy says so; every other status is returned
 * as it is. IN_PROGRESS: the operation is open again (or, not waiting, agreement is under way). */
int32_t convoy_engine_degrade(struct convoy_engine *engine, int32_t status, uint64_t deadline_ns, bool is_waiting);

/* seal.c: tries to seal one local member's cell of the open round. True when the cell is sealed now, by whomever. */
bool convoy_engine_seal(struct convoy_engine *engine, uint32_t local, uint64_t round, uint32_t reason);

/* Publishes own word; the cell is filled. False when somebody sealed it first. */
bool convoy_engine_swap_own(struct convoy_engine *engine, uint64_t round);

/* Wakes sleeping members of this host, and counts that for the open round. */
void convoy_engine_wake(struct convoy_engine *engine);

/* [any thread] The same, not counted. false: nobody sleeps. */
bool convoy_engine_wake_any(struct convoy_engine *engine);

/* liveness: looks whether pending members' processes have ended, and seals their cells. */
void convoy_engine_check_peers(struct convoy_engine *engine);

/* Notes a loss; the first notice stays. */
void convoy_engine_note_loss(struct convoy_engine *engine, uint32_t member, bool is_closed, uint8_t noticed_by);

/* reopen.c: enters an agreed generation. lost: CONVOY_LOST_WORDS words. */
void convoy_engine_adopt(struct convoy_engine *engine, uint32_t generation, const uint64_t *lost);

/* reopen.c: the first member that the segment's newest generation goes on without and this member's does not, or
 * member_count. */
uint32_t convoy_engine_newly_lost(struct convoy_engine *engine);

/* wait.c: sleeps until a publisher of this host wakes us or `ns` have passed. */
void convoy_engine_sleep(struct convoy_engine *engine, uint64_t ns);

/* wait.c: waits until the open round ends, the deadline or a cancel. */
int32_t convoy_engine_wait_until(struct convoy_engine *engine, uint64_t timeout_ns);

/* seat.c: before a yield: where members outnumber processors, looks a while for those who are late, if all of them wait on
 * other processors than this member. */
void convoy_engine_seat_watch(struct convoy_engine *engine, uint64_t round);

/* wait.c: takes one wait into the average. */
void convoy_engine_wait_learn(struct convoy_engine *engine, uint64_t waited_ns);
void convoy_engine_waiting_init(struct convoy_engine *engine);

/* report.c: takes a picture of all members for the open round. field: CONVOY_FIELD_* or NONE. */
void convoy_engine_report_fill(struct convoy_engine *engine, int32_t status, uint32_t field);

/* [any thread] Nanoseconds since a member of this host was heard whose last published round this is: by the end of this
 * member's last round at the latest. UINT64_MAX: never. */
uint64_t convoy_engine_age(const struct convoy_engine *engine, uint64_t last_round, uint64_t now_ns);

/* `ns`, or when the last short round ended, if that was later. [any] */
uint64_t convoy_engine_latest(const struct convoy_engine *engine, uint64_t ns);

/* The later of a local member's two cells that is published, or NULL. */
const struct convoy_cell *convoy_engine_last_cell(const struct convoy_engine *engine, uint32_t local);

/* One row per member, in member order. Takes no lock. */
void convoy_engine_report_rows(struct convoy_engine *engine, struct convoy_member_report *rows);

/* CONVOY_FIELD_* in which a member's row differs from this member's contribution. */
uint32_t convoy_engine_report_field(const struct convoy_engine *engine, const struct convoy_member_report *row);

/* Says in words why an open operation has no result yet (TIMED_OUT, CANCELED). */
void convoy_engine_report_open_text(struct convoy_engine *engine, int32_t status, struct convoy_error *error);

/* Says in words who disagrees with this member about the round, and in what. */
void convoy_engine_report_diverged_text(struct convoy_engine *engine, uint64_t round, struct convoy_error *error);

/* The members of a report as words for an error text: "ranks 1, 2 and 5 more". */
void convoy_engine_report_names(const struct convoy_engine *engine, uint32_t condition_mask, char *text, size_t bytes);

#endif
