/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one request of the pipeline carries: the tensors of a file, a tensor as long as its prompt, and scalars. The file
 * gives names, types and bytes; the trace gives the prompt's length, so requests differ in size as they do in serving.
 *
 *   tensors   those of the file, lists as lists; then CONVOY_PARCEL_PROMPT: BF16 [tokens][128], tokens cut at 16,384
 *   scalars   {"request":5,"prompt_tokens":3504,"output_tokens":118,"seed":14029467366897019727}
 *
 * The prompt's bytes are a window into one table of mixed numbers, at a place that depends on the request: two requests of
 * one length have different bytes, and nothing has to be kept for each request in flight.
 */
#ifndef CONVOY_CLI_PARCEL_H
#define CONVOY_CLI_PARCEL_H

#include "cli/safetensors.h"
#include "cli/tensor_fields.h"
#include "cli/trace.h"
#include "convoy/payload.h"

#define CONVOY_PARCEL_PROMPT "convoy.prompt"
#define CONVOY_PARCEL_PROMPT_TOKENS_MAX 16384u
#define CONVOY_PARCEL_PROMPT_WIDTH 128u
#define CONVOY_PARCEL_NAME_BYTES 24u
#define CONVOY_PARCEL_SCALARS_BYTES 192u

struct convoy_parcel {
    const struct convoy_safetensors *file; /* borrows */
    struct convoy_tensor_fields fields;
    struct convoy_tensor_source *tensors; /* as in the file, then the prompt */
    size_t count;
    struct convoy_tensor_list_entry *lists;
    size_t list_count;
    uint8_t *prompt; /* the table */
    uint64_t prompt_shape[2];
    char name[CONVOY_PARCEL_NAME_BYTES]; /* of the request */
    char scalars[CONVOY_PARCEL_SCALARS_BYTES];
};

/* file: was read and stays as it is. INVALID_ARGUMENT: it has a tensor of the prompt's name. NO_MEMORY. gives (fini) */
int32_t convoy_parcel_init(struct convoy_parcel *parcel_out, const struct convoy_safetensors *file,
                           struct convoy_error *error);

/* Accepts a zeroed one. */
void convoy_parcel_fini(struct convoy_parcel *parcel);

/* Makes it the parcel of one request. What stages took before stays as it was: bytes are never written again. */
void convoy_parcel_set(struct convoy_parcel *parcel, uint32_t request, const struct convoy_trace_request *sizes);

/* Bytes of all tensors, each rounded up to a start for the next one. */
uint64_t convoy_parcel_bytes(const struct convoy_parcel *parcel);

/* Request, tensors, lists and scalars of a stage; borrows them from the parcel. */
struct convoy_stage convoy_parcel_stage(const struct convoy_parcel *parcel);

/* The request of a name such as "request-17"; false: it is none of ours. */
bool convoy_parcel_request_of(const char *name, size_t length, uint32_t *request_out);

#endif
