/* SPDX-License-Identifier: Apache-2.0 */
/* The work of one member of a pipeline, between opening its engine and draining it: encode, denoise or decode. */
#ifndef CONVOY_CLI_PIPELINE_WORK_H
#define CONVOY_CLI_PIPELINE_WORK_H

#include "cli/inbox.h"
#include "cli/outbox.h"
#include "cli/swapper.h"

struct convoy_pipeline_worker {
    struct convoy_pipeline_board *board; /* borrows */
    uint32_t member;
    enum convoy_pipeline_role kind;
    struct convoy_pipeline_member *self; /* on the board */
    struct convoy_transfer_host host;
    struct convoy_safetensors file; /* encoder, decoder */
    struct convoy_parcel parcel;
    struct convoy_inbox inbox;   /* all but the encoder */
    struct convoy_outbox outbox; /* all but the decoder */
    struct convoy_swapper swapper;
    uint32_t swaps_begun;
    uint64_t turned_ns; /* when the last turn was */
    uint64_t started_ns;
    struct convoy_error error; /* of what failed */
};

/* Does its share of the requests. CANCELED: it was asked to stop. TIMED_OUT: the board's deadline. INVARIANT: what came is
 * not what was sent. Else as the call that failed; the text is in worker->error. */
int32_t convoy_pipeline_work(struct convoy_pipeline_worker *worker);

#endif
