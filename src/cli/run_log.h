/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank of a replay brought to each call and got from it, for the reference checker. The checker reads this
 * format with its own code (tests/reference), so here is all of it:
 *
 *   header, 64 bytes, little-endian: "CONVOYRL", u32 version 1, u32 rank, u32 dp, u32 tp, u32 cp, u32 requests,
 *   u64 seed, zeros. Then records: one tag byte and numbers as LEB128 varints (signed ones zigzag first):
 *     'G' before a gather  step, trace step, votes, 8 signed columns
 *     'g' after it         signed status; when 0: round, votes and, votes or, table [ranks][8] signed,
 *                          first [dp][8] signed, presence [ranks] bytes, 8 x {signed value, agreed}
 *     'P' before a reduce  step, count, count ids, count state bytes
 *     'p' after it         signed status; when 0: count, count state bytes
 *     'C' committed        step, count, ids        'D' dropped  step, count, ids
 *     'E' end              reason: 0 the trace is finished, 1 all ranks agreed to stop, 2 a call failed
 *     0                    nothing more was written
 *
 * The file is a shared mapping: no system call a record, and what was written survives SIGKILL. The tag is written
 * last, so a record is there as a whole or not at all.
 */
#ifndef CONVOY_CLI_RUN_LOG_H
#define CONVOY_CLI_RUN_LOG_H

#include "cli/shape.h"
#include "convoy/base.h"

#include <stdbool.h>

#define CONVOY_RUN_LOG_STEP_BYTES 65536u /* more than one step can write */

#define CONVOY_RUN_LOG_END_FINISHED 0u
#define CONVOY_RUN_LOG_END_STOPPED 1u
#define CONVOY_RUN_LOG_END_FAILED 2u

struct convoy_run_log {
    int file;
    uint8_t *data; /* mapping of `limit` bytes, of which `allocated` lie in the file */
    uint64_t limit;
    uint64_t allocated;
    uint64_t used;
    uint64_t record; /* offset of the open record's tag */
    uint8_t tag;
};

struct convoy_run_log_header {
    struct convoy_shape shape;
    uint32_t rank;
    uint32_t request_count;
    uint64_t seed;
};

/* Creates or replaces the file. limit: bytes, at least 1 MiB. SYSTEM: also where RLIMIT_FSIZE allows less than that. */
int32_t convoy_run_log_open(struct convoy_run_log *log, const char *path, uint64_t limit,
                            const struct convoy_run_log_header *header, struct convoy_error *error);

/* Cuts the file to what was written. */
void convoy_run_log_close(struct convoy_run_log *log);

/* Makes room for two more steps. False: the limit or RLIMIT_FSIZE is reached, or the file system is full; the step at
 * hand still fits, so that the ranks can agree to stop. */
bool convoy_run_log_reserve(struct convoy_run_log *log);

/* One record: begin, puts, end. More than the reserved room is our bug. */
void convoy_run_log_begin(struct convoy_run_log *log, char tag);
void convoy_run_log_number(struct convoy_run_log *log, uint64_t value);
void convoy_run_log_signed(struct convoy_run_log *log, int64_t value);
void convoy_run_log_bytes(struct convoy_run_log *log, const uint8_t *bytes, size_t count);
void convoy_run_log_end(struct convoy_run_log *log);

#endif
