/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a pipeline shares: mapped twice it is the same, and what is no such memory is refused. */
#include "cli/pipeline_board.h"
#include "core/error.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct convoy_pipeline_shape shape = {{1, 2, 1}};

static struct convoy_pipeline_board *create(uint32_t requests)
{
    struct convoy_pipeline_board *board = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_pipeline_board_create(&shape, requests, &board, &error), CONVOY_OK);
    return board;
}

static void test_pipeline_board_second_mapping_is_the_same_memory(void **state)
{
    (void)state;
    struct convoy_pipeline_board *board = create(10);
    struct convoy_pipeline_board *other = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_pipeline_board_map(board->file, &other, &error), CONVOY_OK);
    assert_ptr_not_equal(board, other);
    convoy_pipeline_board_request(board, 9)->input_tokens = 77;
    convoy_pipeline_board_record(board, 1, 9)->receiver.path = 5;
    assert_int_equal(convoy_pipeline_board_request(other, 9)->input_tokens, 77);
    assert_int_equal(convoy_pipeline_board_record(other, 1, 9)->receiver.path, 5);
    assert_int_equal(other->setup.request_count, 10);
    assert_int_equal(other->setup.shape.counts[1], 2);
    assert_int_equal(munmap(other, other->bytes), 0);
    convoy_pipeline_board_destroy(board);
    convoy_pipeline_board_destroy(NULL);
}

/* Neither of them lies over another, and the last one ends where the memory ends. */
static void test_pipeline_board_requests_and_records_fill_it(void **state)
{
    (void)state;
    struct convoy_pipeline_board *board = create(3);
    assert_ptr_equal(convoy_pipeline_board_request(board, 0), board + 1);
    assert_ptr_equal(convoy_pipeline_board_record(board, 0, 0), convoy_pipeline_board_request(board, 3));
    assert_ptr_equal(convoy_pipeline_board_record(board, 1, 0), convoy_pipeline_board_record(board, 0, 3));
    assert_ptr_equal(convoy_pipeline_board_record(board, 1, 3), (char *)board + board->bytes);
    convoy_pipeline_board_destroy(board);
}

static void test_pipeline_board_what_is_none_is_refused(void **state)
{
    (void)state;
    struct convoy_pipeline_board *board = create(1);
    struct convoy_pipeline_board *other = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    int file = memfd_create("short", MFD_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(convoy_pipeline_board_map(file, &other, &error), CONVOY_MALFORMED);
    assert_int_equal(ftruncate(file, (off_t)board->bytes), 0); /* the right size, and nothing in it */
    assert_int_equal(convoy_pipeline_board_map(file, &other, &error), CONVOY_MALFORMED);
    assert_int_equal(close(file), 0);
    assert_int_equal(convoy_pipeline_board_map(file, &other, &error), CONVOY_SYSTEM);
    board->setup.request_count = 2; /* more than there is room for */
    assert_int_equal(convoy_pipeline_board_map(board->file, &other, &error), CONVOY_MALFORMED);
    assert_null(other);
    convoy_pipeline_board_destroy(board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_board_second_mapping_is_the_same_memory),
        cmocka_unit_test(test_pipeline_board_requests_and_records_fill_it),
        cmocka_unit_test(test_pipeline_board_what_is_none_is_refused),
    };
    return cmocka_run_group_tests_name("pipeline_board", tests, NULL, NULL);
}
