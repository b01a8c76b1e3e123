/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_log.h"

#include "core/error.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define LOG_HEADER_BYTES 64u
#define LOG_GROW_BYTES (1u << 20)

/* Bytes that a file of this process may have. */
static uint64_t log_file_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : UINT64_MAX;
}

/* Allocates up to `bytes` of the file. A hole would do for space, but a full disk would then be a SIGBUS. EFBIG: more
 * than a file may have; asked before, since growing past it raises SIGXFSZ instead of giving a status. */
static int log_allocate(struct convoy_run_log *log, uint64_t bytes)
{
    bytes = bytes < log->limit ? bytes : log->limit;
    if (bytes > log_file_limit()) {
        return EFBIG;
    }
    int code = 0;
    do {
        code = posix_fallocate(log->file, 0, (off_t)bytes);
    } while (code == EINTR);
    if (code == 0) {
        log->allocated = bytes;
    }
    return code;
}

static void log_put_fixed(uint8_t *to, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

static void log_write_header(struct convoy_run_log *log, const struct convoy_run_log_header *header)
{
    const uint32_t words[] = {
        1, header->rank, header->shape.dp, header->shape.tp, header->shape.cp, header->request_count};
    memcpy(log->data, "CONVOYRL", 8);
    for (uint32_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        log_put_fixed(log->data + 8 + 4u * i, words[i], 4);
    }
    log_put_fixed(log->data + 32, header->seed, 8);
    log->used = LOG_HEADER_BYTES;
}

int32_t convoy_run_log_open(struct convoy_run_log *log, const char *path, uint64_t limit,
                            const struct convoy_run_log_header *header, struct convoy_error *error)
{
    *log = (struct convoy_run_log){.limit = limit};
    log->file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (log->file < 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "creating %.150s", path);
    }
    int code = log_allocate(log, LOG_GROW_BYTES);
    uint64_t file_limit = log_file_limit();
    if (code == EFBIG && file_limit < LOG_GROW_BYTES) { /* else it is the file system that knows no larger file */
        (void)convoy_error_set_errno(error, CONVOY_SYSTEM, code,
                                     "writing %.150s: RLIMIT_FSIZE is %llu bytes, %u are needed", path,
                                     (unsigned long long)file_limit, LOG_GROW_BYTES);
        goto undo_open;
    }
    if (code != 0) {
        (void)convoy_error_set_errno(error, CONVOY_SYSTEM, code, "writing %.150s", path);
        goto undo_open;
    }
    void *data = mmap(NULL, limit, PROT_READ | PROT_WRITE, MAP_SHARED, log->file, 0);
    if (data == MAP_FAILED) {
        (void)convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "mapping %.150s", path);
        goto undo_open;
    }
    log->data = data;
    log_write_header(log, header);
    return CONVOY_OK;

undo_open:
    (void)close(log->file);
    return CONVOY_SYSTEM;
}

void convoy_run_log_close(struct convoy_run_log *log)
{
    if (log->data == NULL) {
        return;
    }
    (void)munmap(log->data, log->limit);
    (void)!ftruncate(log->file, (off_t)log->used); /* zeros behind the end are legal, only longer */
    (void)close(log->file);
    log->data = NULL;
}

bool convoy_run_log_reserve(struct convoy_run_log *log)
{
    while (log->used + 2ull * CONVOY_RUN_LOG_STEP_BYTES > log->allocated) {
        if (log->allocated == log->limit || log_allocate(log, log->allocated + LOG_GROW_BYTES) != 0) {
            return false;
        }
    }
    return true;
}

void convoy_run_log_begin(struct convoy_run_log *log, char tag)
{
    assert(log->used < log->allocated);
    log->record = log->used++;
    log->tag = (uint8_t)tag;
}

void convoy_run_log_number(struct convoy_run_log *log, uint64_t value)
{
    assert(log->used + 10 <= log->allocated);
    while (value >= 0x80) {
        log->data[log->used++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    log->data[log->used++] = (uint8_t)value;
}

void convoy_run_log_signed(struct convoy_run_log *log, int64_t value)
{
    convoy_run_log_number(log, ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0));
}

void convoy_run_log_bytes(struct convoy_run_log *log, const uint8_t *bytes, size_t count)
{
    assert(log->used + count <= log->allocated);
    if (count != 0) {
        memcpy(log->data + log->used, bytes, count);
        log->used += count;
    }
}

void convoy_run_log_end(struct convoy_run_log *log)
{
    /* The tag makes the record valid; it must not be seen before the rest by whoever reads after a SIGKILL. */
    atomic_signal_fence(memory_order_release);
    log->data[log->record] = log->tag;
}
