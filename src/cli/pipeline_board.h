/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the parent of a pipeline shares with its processes: what they are to do, where they are, and what each
 * transfer was like. A memfd, so that a process that was started anew in another network namespace maps it too. Every
 * field has one writer; what is not atomic is written before the member's phase that publishes it.
 *
 *   | board: set-up, members | requests [request_count] | records [hop][request_count] |
 */
#ifndef CONVOY_CLI_PIPELINE_BOARD_H
#define CONVOY_CLI_PIPELINE_BOARD_H

#include "cli/pipeline_shape.h"
#include "cli/place.h"
#include "cli/plain_host.h"
#include "cli/swapper.h"
#include "cli/trace.h"

#include <stdatomic.h>

enum convoy_pipeline_phase {
    CONVOY_PIPELINE_OPENING,
    CONVOY_PIPELINE_LISTENING, /* its session id is there */
    CONVOY_PIPELINE_WORKING,
    CONVOY_PIPELINE_DRAINED, /* all done, its pool's figures are there; its engine stays open for the others */
    CONVOY_PIPELINE_ENDED,
};

enum convoy_pipeline_outcome {
    CONVOY_PIPELINE_NONE, /* it never got that far: killed */
    CONVOY_PIPELINE_FINISHED,
    CONVOY_PIPELINE_STOPPED, /* after another one failed, or because the user wished it */
    CONVOY_PIPELINE_FAILED,  /* before anyone was asked to stop */
};

struct convoy_pipeline_member {
    _Atomic uint32_t phase;
    _Atomic uint32_t done; /* requests that it is through with */
    uint32_t outcome;
    uint32_t refusals; /* loads that ended without a payload and were waited for again */
    uint32_t repeats;  /* requests that came a second time and were dropped */
    char session[CONVOY_SESSION_BYTES];
    char release[CONVOY_PLAIN_HOST_TEXT_BYTES];
    char build_id[CONVOY_PLAIN_HOST_TEXT_BYTES];
    struct convoy_error error; /* FAILED: why; STOPPED: in the middle of what */
    struct convoy_swap_tally swaps;
    struct convoy_engine_figures figures; /* of the pool when everything was done; struct_size 0 = never taken */
};

/* One side of one hop of one request. */
struct convoy_pipeline_side {
    uint32_t is_done;
    uint32_t path;     /* CONVOY_PATH_* */
    uint32_t attempts; /* sends, the first included */
    uint32_t retries;  /* messages sent again */
    uint32_t refusals; /* 1 if the pool had no room at first, and sends that the peer refused */
    uint64_t payload_bytes;
    uint64_t moved_bytes;
    uint64_t released_ns; /* receiver: when the host gave it back */
    uint64_t times_ns[CONVOY_TIMES];
};

struct convoy_pipeline_record {
    struct convoy_pipeline_side sender;
    struct convoy_pipeline_side receiver;
};

struct convoy_pipeline_setup {
    struct convoy_pipeline_shape shape;
    uint32_t request_count;
    uint32_t hosts;
    uint32_t window; /* sends in flight of one member */
    uint64_t pool_bytes;
    uint64_t timeout_ns;  /* of every call */
    uint64_t deadline_ns; /* of everything, CLOCK_MONOTONIC */
    double speed;         /* 0 = as fast as it goes */
    uint32_t is_traced;
    uint32_t swap_count; /* of each member: 0, 1, or 2: and back */
    char swap[CONVOY_PLACE_PATH_BYTES]; /* the build that it goes to */
    char plugin[CONVOY_PLACE_PATH_BYTES];
    char tensors[CONVOY_PLACE_PATH_BYTES];
    char folder[CONVOY_PLACE_PATH_BYTES]; /* of what is written */
};

struct convoy_pipeline_board {
    uint64_t bytes; /* of all of it */
    int file;       /* of this process */
    _Atomic uint32_t is_stop_wanted;
    struct convoy_pipeline_setup setup;
    struct convoy_pipeline_member members[CONVOY_PIPELINE_MEMBERS_MAX];
};

/* Zeroed but for bytes, file, shape and request_count. SYSTEM. gives (destroy) */
int32_t convoy_pipeline_board_create(const struct convoy_pipeline_shape *shape, uint32_t request_count,
                                     struct convoy_pipeline_board **board_out, struct convoy_error *error);

/* Maps one that another process made. SYSTEM, MALFORMED: the file is none. gives (destroy); keeps the descriptor. */
int32_t convoy_pipeline_board_map(int file, struct convoy_pipeline_board **board_out, struct convoy_error *error);

/* NULL is a no-op. */
void convoy_pipeline_board_destroy(struct convoy_pipeline_board *board);

struct convoy_trace_request *convoy_pipeline_board_request(struct convoy_pipeline_board *board, uint32_t request);
struct convoy_pipeline_record *convoy_pipeline_board_record(struct convoy_pipeline_board *board, uint32_t hop,
                                                            uint32_t request);

#endif
