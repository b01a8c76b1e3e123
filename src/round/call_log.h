/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last rounds of a group with what went in and what came out, always on: a ring of fixed size, made when the group
 * opens. The thread inside the group's calls writes; any thread reads at any time and never sees half an entry (each
 * has a sequence number, odd while it is written). Entries are binary; only the JSON writer decodes them.
 *
 *   entry   [sequence][form][header][input bytes of all lists, then output bytes of all lists]
 */
#ifndef CONVOY_ROUND_CALL_LOG_H
#define CONVOY_ROUND_CALL_LOG_H

#include "convoy/base.h"

#include <jansson.h>
#include <stdbool.h>

#define CONVOY_CALL_LISTS_MAX 8u
#define CONVOY_CALL_NAME_BYTES 32u

/* What one list of a round looks like in the bytes. */
struct convoy_call_list {
    uint32_t input_count;              /* values */
    uint32_t output_count;             /* values; 0 until the round has a result */
    uint32_t value_bytes;              /* 1: uint8, 8: int64 */
    uint32_t width;                    /* values per row; 0 = no rows, one plain list */
    char name[CONVOY_CALL_NAME_BYTES]; /* terminated */
};

struct convoy_call_header {
    uint64_t number; /* of the call in this log, from 1 */
    uint64_t round;
    uint64_t epoch;
    uint64_t tag;
    uint64_t duration_ns;
    uint32_t operation; /* CONVOY_OPERATION_* */
    int32_t status;     /* CONVOY_IN_PROGRESS until it has ended */
    uint32_t votes;     /* of this member */
    uint32_t votes_and;
    uint32_t votes_or;
    uint32_t list_count;
    uint32_t input_bytes;  /* as contributed; bytes beyond the bound of an entry are not kept */
    uint32_t output_bytes;
    struct convoy_call_list lists[CONVOY_CALL_LISTS_MAX];
};

struct convoy_call_log;

/* entries: rounded up to a power of two, 1 to 65,536. entry_bytes: kept of input and output together. NO_MEMORY. */
int32_t convoy_call_log_create(uint32_t entries, uint32_t entry_bytes, struct convoy_call_log **log_out);
void convoy_call_log_destroy(struct convoy_call_log *log);

/* A call has started: header (number and what the end brings are ignored) and input_bytes of input. Borrows.
 * [serialized per group; never blocks; never allocates] */
void convoy_call_log_start(struct convoy_call_log *log, const struct convoy_call_header *header, const void *input);

/* The end of the call that was started last; NULL and 0 without a result. May be repeated: the last counts. */
struct convoy_call_end {
    int32_t status;
    uint32_t votes_and;
    uint32_t votes_or;
    uint64_t duration_ns;
    uint32_t output_counts[CONVOY_CALL_LISTS_MAX]; /* values of each list */
    const void *output;
    uint32_t output_bytes;
};
void convoy_call_log_end(struct convoy_call_log *log, const struct convoy_call_end *end);

/* start and end in one, for calls that are only logged when they are over: each word is written once, and of a list
 * without a name not more than a word of it. end->output_counts count, the output counts of the header do not. */
void convoy_call_log_put(struct convoy_call_log *log, const struct convoy_call_header *header, const void *input,
                         const struct convoy_call_end *end);

/* What stays the same in the entries of calls that are alike, ready to be put: words of the header, lists included. */
struct convoy_call_form {
    uint64_t id; /* of this form in its log, from 1 */
    uint32_t list_count;
    uint32_t named; /* bit i: list i has a name */
    uint32_t input_bytes; /* kept of each */
    uint32_t output_bytes;
    uint64_t words[sizeof(struct convoy_call_header) / sizeof(uint64_t)];
};

/* What differs from one to the next. input, output: of the lengths that the form was made with. */
struct convoy_call_values {
    uint64_t round;
    uint64_t epoch;
    uint64_t tag;
    uint32_t votes;
    uint32_t votes_and;
    uint32_t votes_or;
    const void *input;
    const void *output;
};

/* The form of calls that convoy_call_log_put would be given this header and end for. */
void convoy_call_form_make(struct convoy_call_form *form_out, struct convoy_call_log *log,
                           const struct convoy_call_header *header, const struct convoy_call_end *end);

/* As convoy_call_log_put. [serialized per group; never blocks; never allocates] */
void convoy_call_log_put_form(struct convoy_call_log *log, const struct convoy_call_form *form,
                              const struct convoy_call_values *values, uint64_t duration_ns);

/* The next call put gets that number, which is above all there are: for calls that another log has seen. */
void convoy_call_log_skip(struct convoy_call_log *log, uint64_t number);

/* Number of calls so far. [any thread] */
uint64_t convoy_call_log_count(const struct convoy_call_log *log);

/*
 * Copies call `number`. bytes_out: room for entry_bytes, gets input and output; false when it is not in the ring (any
 * more) or is being written all the time. [any thread; never blocks the writer]
 */
bool convoy_call_log_read(const struct convoy_call_log *log, uint64_t number, struct convoy_call_header *header_out,
                          uint8_t *bytes_out);

/* JSON array of the calls in the ring, oldest first: {operation, round, epoch, tag, status, duration_ns, lists:
 * [{name, count, input: [...], output: [...]}]}; rows are arrays of arrays. epoch and tag are strings (they exceed
 * 2^53). NULL = out of memory. gives [any thread] */
json_t *convoy_call_log_json(const struct convoy_call_log *log);

/* Bytes kept of one call, calls kept, and where in the bytes of a call its output starts. */
uint32_t convoy_call_log_entry_bytes(const struct convoy_call_log *log);
uint32_t convoy_call_log_entries(const struct convoy_call_log *log);
size_t convoy_call_log_output_at(const struct convoy_call_log *log, const struct convoy_call_header *header);

#endif
