/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline_board.h"

#include "core/error.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t board_bytes(uint32_t request_count)
{
    uint64_t each = sizeof(struct convoy_trace_request) + CONVOY_PIPELINE_HOPS * sizeof(struct convoy_pipeline_record);
    return sizeof(struct convoy_pipeline_board) + request_count * each;
}

static int32_t board_map(int file, uint64_t bytes, struct convoy_pipeline_board **board_out, struct convoy_error *error)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "mapping %llu bytes to share with the pipeline",
                                      (unsigned long long)bytes);
    }
    *board_out = memory;
    return CONVOY_OK;
}

int32_t convoy_pipeline_board_create(const struct convoy_pipeline_shape *shape, uint32_t request_count,
                                     struct convoy_pipeline_board **board_out, struct convoy_error *error)
{
    uint64_t bytes = board_bytes(request_count);
    struct convoy_pipeline_board *board = NULL;
    int file = memfd_create("convoy-pipeline", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        int code = errno;
        if (file >= 0) {
            (void)close(file);
        }
        return convoy_error_set_errno(error, CONVOY_SYSTEM, code, "making memory to share with the pipeline");
    }
    int32_t status = board_map(file, bytes, &board, error);
    if (status != CONVOY_OK) {
        (void)close(file);
        return status;
    }
    board->bytes = bytes;
    board->file = file;
    board->setup.shape = *shape;
    board->setup.request_count = request_count;
    *board_out = board;
    return CONVOY_OK;
}

int32_t convoy_pipeline_board_map(int file, struct convoy_pipeline_board **board_out, struct convoy_error *error)
{
    struct stat what;
    struct convoy_pipeline_board *board = NULL;
    if (fstat(file, &what) != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "looking at descriptor %d", file);
    }
    uint64_t bytes = (uint64_t)what.st_size;
    if (!S_ISREG(what.st_mode) || bytes < sizeof *board) {
        return convoy_error_set(error, CONVOY_MALFORMED, "descriptor %d is no memory of a pipeline", file);
    }
    int32_t status = board_map(file, bytes, &board, error);
    if (status == CONVOY_OK && (board->bytes != bytes || bytes != board_bytes(board->setup.request_count))) {
        (void)munmap(board, bytes);
        return convoy_error_set(error, CONVOY_MALFORMED, "descriptor %d is no memory of this pipeline", file);
    }
    if (status == CONVOY_OK) {
        *board_out = board;
    }
    return status;
}

void convoy_pipeline_board_destroy(struct convoy_pipeline_board *board)
{
    if (board != NULL) {
        (void)close(board->file);
        (void)munmap(board, board->bytes);
    }
}

struct convoy_trace_request *convoy_pipeline_board_request(struct convoy_pipeline_board *board, uint32_t request)
{
    return (struct convoy_trace_request *)(void *)(board + 1) + request;
}

struct convoy_pipeline_record *convoy_pipeline_board_record(struct convoy_pipeline_board *board, uint32_t hop,
                                                            uint32_t request)
{
    struct convoy_pipeline_record *records = (void *)convoy_pipeline_board_request(board, board->setup.request_count);
    return records + (uint64_t)hop * board->setup.request_count + request;
}
