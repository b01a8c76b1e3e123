/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request is when it has come: the payload as the library describes it, and what a host does with it: hand it on,
 * compare it with what was sent, make a file of it.
 */
#ifndef CONVOY_CLI_ARRIVAL_H
#define CONVOY_CLI_ARRIVAL_H

#include "cli/parcel.h"
#include "cli/transfer_host.h"

/* Grows with what comes; zeroed is empty. */
struct convoy_arrival {
    struct convoy_payload payload; /* of the last look; its pointers live until the transfer is released */
    struct convoy_tensor_view *tensors;
    struct convoy_tensor_list_entry *lists;
    struct convoy_tensor_source *sources; /* for handing on */
    size_t tensor_capacity;
    size_t list_capacity;
    size_t source_capacity;
};

void convoy_arrival_fini(struct convoy_arrival *arrival);

/* Reads what a LOADED transfer holds. As `payload` of the table; NO_MEMORY. */
int32_t convoy_arrival_look(struct convoy_arrival *arrival, const struct convoy_transfer_host *host,
                            convoy_transfer transfer, struct convoy_error *error);

/* A stage of the very same tensors, lists and scalars, read where they lie now. NO_MEMORY. */
int32_t convoy_arrival_stage(struct convoy_arrival *arrival, struct convoy_stage *stage_out,
                             struct convoy_error *error);

/* Every tensor, list and scalar against what was sent. INVARIANT: the text has the first that differs, and how. */
int32_t convoy_arrival_check(const struct convoy_arrival *arrival, const struct convoy_parcel *expected,
                             struct convoy_error *error);

/* Writes the tensors to a safetensors file, lists as name.index, without the pipeline's own. As convoy_safetensors_write;
 * NO_MEMORY. */
int32_t convoy_arrival_write(const struct convoy_arrival *arrival, const char *path, struct convoy_error *error);

#endif
