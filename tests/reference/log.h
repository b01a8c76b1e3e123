/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of the logs that the ranks of a replay write. It is the checker's own code: nothing of src/ is used, so that
 * an error there cannot hide itself here. The format is described where it is written.
 */
#ifndef REFERENCE_LOG_H
#define REFERENCE_LOG_H

#include <stddef.h>
#include <stdint.h>

#define REFERENCE_RANKS_MAX 64u
#define REFERENCE_COLUMNS 8u
#define REFERENCE_ENTRIES_MAX 4096u

struct reference_log {
    const uint8_t *data;
    size_t size;
    size_t at;
    uint32_t rank;
    uint32_t dp;
    uint32_t tp;
    uint32_t cp;
    uint32_t request_count;
    uint64_t seed;
};

struct reference_reduced {
    int64_t value;
    uint64_t agreed;
};

/* Any record; `tag` says which fields were read. 0: nothing more was written. */
struct reference_record {
    uint8_t tag;
    int64_t status;
    uint64_t step;
    uint64_t trace_step;
    uint64_t votes;
    uint64_t round;
    uint64_t votes_and;
    uint64_t votes_or;
    uint64_t reason;
    uint64_t count;
    int64_t row[REFERENCE_COLUMNS];
    int64_t table[REFERENCE_RANKS_MAX][REFERENCE_COLUMNS];
    int64_t first[REFERENCE_RANKS_MAX][REFERENCE_COLUMNS];
    uint8_t presence[REFERENCE_RANKS_MAX];
    struct reference_reduced reduced[REFERENCE_COLUMNS];
    uint64_t ids[REFERENCE_ENTRIES_MAX];
    uint8_t states[REFERENCE_ENTRIES_MAX];
};

/* 0, or -1 with a line on stderr. */
int reference_log_open(struct reference_log *log, const char *path);
void reference_log_close(struct reference_log *log);

/* Tag of the next record without reading it; 0 at the end. */
uint8_t reference_log_peek(const struct reference_log *log);

/* 0, or -1 when the bytes make no record. */
int reference_log_next(struct reference_log *log, struct reference_record *record_out);

#endif
