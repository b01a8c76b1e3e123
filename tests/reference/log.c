/* SPDX-License-Identifier: Apache-2.0 */
#include "reference/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES 64u

static uint32_t fixed32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static int log_map(struct reference_log *log, const char *path)
{
    struct stat what;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &what) != 0) {
        fprintf(stderr, "reference: %s: %s\n", path, strerror(errno));
        if (file >= 0) {
            (void)close(file);
        }
        return -1;
    }
    log->size = (size_t)what.st_size;
    void *data = log->size >= HEADER_BYTES ? mmap(NULL, log->size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    (void)close(file);
    if (data == MAP_FAILED) {
        fprintf(stderr, "reference: %s: %zu bytes are no log\n", path, log->size);
        return -1;
    }
    log->data = data;
    return 0;
}

int reference_log_open(struct reference_log *log, const char *path)
{
    memset(log, 0, sizeof *log);
    if (log_map(log, path) != 0) {
        return -1;
    }
    if (memcmp(log->data, "CONVOYRL", 8) != 0 || fixed32(log->data + 8) != 1) {
        fprintf(stderr, "reference: %s: no replay log of version 1\n", path);
        return -1;
    }
    log->rank = fixed32(log->data + 12);
    log->dp = fixed32(log->data + 16);
    log->tp = fixed32(log->data + 20);
    log->cp = fixed32(log->data + 24);
    log->request_count = fixed32(log->data + 28);
    log->seed = (uint64_t)fixed32(log->data + 32) | (uint64_t)fixed32(log->data + 36) << 32;
    log->at = HEADER_BYTES;
    uint64_t ranks = (uint64_t)log->dp * log->tp * log->cp;
    if (log->dp > REFERENCE_RANKS_MAX || log->tp > REFERENCE_RANKS_MAX || log->cp > REFERENCE_RANKS_MAX || ranks == 0 ||
        ranks > REFERENCE_RANKS_MAX || log->rank >= ranks) {
        fprintf(stderr, "reference: %s: impossible shape %u x %u x %u or rank %u\n", path, log->dp, log->tp, log->cp,
                log->rank);
        return -1;
    }
    return 0;
}

void reference_log_close(struct reference_log *log)
{
    if (log->data != NULL) {
        (void)munmap((void *)(uintptr_t)log->data, log->size);
        log->data = NULL;
    }
}

uint8_t reference_log_peek(const struct reference_log *log)
{
    return log->at < log->size ? log->data[log->at] : 0;
}

/* -- numbers: each returns 0, or -1 past the end or the range ---------------------------------------------------- */

static int take_number(struct reference_log *log, uint64_t *number_out)
{
    uint64_t number = 0;
    for (unsigned shift = 0; shift < 64 && log->at < log->size; shift += 7) {
        uint8_t byte = log->data[log->at++];
        number |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *number_out = number;
            return 0;
        }
    }
    return -1;
}

static int take_signed(struct reference_log *log, int64_t *number_out)
{
    uint64_t number = 0;
    if (take_number(log, &number) != 0) {
        return -1;
    }
    *number_out = (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
    return 0;
}

static int take_bytes(struct reference_log *log, uint8_t *bytes_out, uint64_t count)
{
    if (count > log->size - log->at) {
        return -1;
    }
    memcpy(bytes_out, log->data + log->at, count);
    log->at += count;
    return 0;
}

static int take_row(struct reference_log *log, int64_t row_out[REFERENCE_COLUMNS])
{
    int failed = 0;
    for (uint32_t i = 0; i < REFERENCE_COLUMNS; i++) {
        failed |= take_signed(log, &row_out[i]);
    }
    return failed;
}

static int take_count(struct reference_log *log, struct reference_record *record)
{
    return take_number(log, &record->count) != 0 || record->count > REFERENCE_ENTRIES_MAX ? -1 : 0;
}

static int take_ids(struct reference_log *log, struct reference_record *record)
{
    int failed = take_number(log, &record->step) | take_count(log, record);
    for (uint64_t i = 0; failed == 0 && i < record->count; i++) {
        failed |= take_number(log, &record->ids[i]);
    }
    return failed;
}

/* -- records ----------------------------------------------------------------------------------------------------- */

static int take_gather_input(struct reference_log *log, struct reference_record *record)
{
    return take_number(log, &record->step) | take_number(log, &record->trace_step) | take_number(log, &record->votes) |
           take_row(log, record->row);
}

static int take_gather_result(struct reference_log *log, struct reference_record *record)
{
    uint32_t ranks = log->dp * log->tp * log->cp;
    if (take_signed(log, &record->status) != 0 || record->status != 0) {
        return record->status != 0 ? 0 : -1;
    }
    int failed =
        take_number(log, &record->round) | take_number(log, &record->votes_and) | take_number(log, &record->votes_or);
    for (uint32_t i = 0; i < ranks; i++) {
        failed |= take_row(log, record->table[i]);
    }
    for (uint32_t i = 0; i < log->dp; i++) {
        failed |= take_row(log, record->first[i]);
    }
    failed |= take_bytes(log, record->presence, ranks);
    for (uint32_t i = 0; i < REFERENCE_COLUMNS; i++) {
        failed |= take_signed(log, &record->reduced[i].value) | take_number(log, &record->reduced[i].agreed);
    }
    return failed;
}

static int take_reduce_input(struct reference_log *log, struct reference_record *record)
{
    return take_ids(log, record) != 0 ? -1 : take_bytes(log, record->states, record->count);
}

static int take_reduce_result(struct reference_log *log, struct reference_record *record)
{
    if (take_signed(log, &record->status) != 0 || record->status != 0) {
        return record->status != 0 ? 0 : -1;
    }
    return take_count(log, record) != 0 ? -1 : take_bytes(log, record->states, record->count);
}

int reference_log_next(struct reference_log *log, struct reference_record *record_out)
{
    record_out->tag = reference_log_peek(log);
    record_out->status = 0;
    if (record_out->tag == 0) {
        return 0;
    }
    log->at++;
    switch (record_out->tag) {
    case 'G':
        return take_gather_input(log, record_out);
    case 'g':
        return take_gather_result(log, record_out);
    case 'P':
        return take_reduce_input(log, record_out);
    case 'p':
        return take_reduce_result(log, record_out);
    case 'C':
    case 'D':
        return take_ids(log, record_out);
    case 'E':
        return take_number(log, &record_out->reason);
    default:
        return -1;
    }
}
