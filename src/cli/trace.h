/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving traces: one JSON object a line, {"timestamp": ms, "input_length": tokens, "output_length": tokens}. Other
 * fields and blank lines are ignored; lines may end in CRLF and the last one needs no end. Anything else that does not
 * fit is refused with file, line and reason: no guess is made about half a request.
 */
#ifndef CONVOY_CLI_TRACE_H
#define CONVOY_CLI_TRACE_H

#include "convoy/base.h"

#define CONVOY_TRACE_STEP_MS 20u
#define CONVOY_TRACE_LINE_BYTES_MAX 65536u
#define CONVOY_TRACE_REQUESTS_MAX 4000000u
#define CONVOY_TRACE_TIMESTAMP_MS_MAX 1000000000000ll /* 31 years */
#define CONVOY_TRACE_TOKENS_MAX 10000000ll

struct convoy_trace_request {
    uint64_t timestamp_ms; /* never smaller than that of the request before */
    uint32_t input_tokens;
    uint32_t output_tokens;
};

struct convoy_trace {
    struct convoy_trace_request *requests;
    uint32_t count; /* at least 1 after a load */
    uint32_t capacity;
};

/* Reads a whole file. INVALID_ARGUMENT: the text is "file:line: reason". NOT_FOUND, SYSTEM: it cannot be read. */
int32_t convoy_trace_load(struct convoy_trace *trace_out, const char *path, struct convoy_error *error);

/* Accepts a zeroed or half-read trace. */
void convoy_trace_fini(struct convoy_trace *trace);

/* Scheduler step in which a request arrives. */
uint64_t convoy_trace_step(const struct convoy_trace *trace, uint32_t request);

/* First step after `step` in which some request arrives; UINT64_MAX = none. */
uint64_t convoy_trace_next_step(const struct convoy_trace *trace, uint64_t step);

#endif
