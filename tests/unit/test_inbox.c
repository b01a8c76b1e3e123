/* SPDX-License-Identifier: Apache-2.0 */
/* What comes to a member: each of its requests once, nobody else's, and a load that found no room is waited for again. */
#include "cli/inbox.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "tests/lib/fake_transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct convoy_pipeline_shape shape = {{1, 2, 1}};

static struct fake_transfer *fake;
static struct convoy_pipeline_board *board;
static struct convoy_inbox inbox;
static struct convoy_error error;
static struct convoy_payload payload;
static uint32_t request;
static convoy_transfer load;

static void open_inbox(uint32_t member)
{
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    fake = fake_transfer_reset();
    request = UINT32_MAX;
    load = 0;
    assert_int_equal(convoy_pipeline_board_create(&shape, 10, &board, &error), CONVOY_OK);
    board->setup.hosts = 1;
    assert_int_equal(convoy_inbox_init(&inbox, &fake->host, board, member, &error), CONVOY_OK);
}

static void close_inbox(void)
{
    convoy_inbox_fini(&inbox);
    assert_int_equal(fake_transfer_live(), 0);
    convoy_pipeline_board_destroy(board);
}

static int32_t take(uint64_t wait_ns)
{
    return convoy_inbox_take(&inbox, wait_ns, &request, &load, &error);
}

/* What is being accepted has come. */
static void come(const char *name)
{
    payload = (struct convoy_payload){
        .struct_size = sizeof payload, .request = name, .request_length = strlen(name)};
    fake->entries[fake->count].status = CONVOY_OK;
    fake->entries[fake->count].payload = &payload;
    fake->entries[fake->count].result =
        (struct convoy_transfer_result){.path = CONVOY_PATH_LEND, .payload_bytes = 64, .retries = 2};
}

static void test_inbox_keeps_one_accept_until_something_comes(void **state)
{
    (void)state;
    open_inbox(3);
    assert_int_equal(take(0), CONVOY_IN_PROGRESS);
    assert_int_equal(take(1000), CONVOY_IN_PROGRESS);
    assert_int_equal(fake->count, 1);
    assert_int_equal(fake->wait_count, 1);
    come("request-4");
    assert_int_equal(take(0), CONVOY_OK);
    assert_int_equal(request, 4);
    assert_int_equal(load, 1);
    const struct convoy_pipeline_side *side = &convoy_pipeline_board_record(board, 1, 4)->receiver;
    assert_int_equal(side->is_done, 1);
    assert_int_equal(side->path, CONVOY_PATH_LEND);
    assert_int_equal(side->payload_bytes, 64);
    assert_int_equal(side->retries, 2);
    assert_int_equal(side->released_ns, 0);
    convoy_inbox_release(&inbox, request, load);
    assert_int_not_equal(side->released_ns, 0);
    assert_int_equal(take(0), CONVOY_IN_PROGRESS); /* the next one */
    assert_int_equal(fake->count, 2);
    close_inbox();
}

static void test_inbox_second_time_of_a_request_is_dropped_and_counted(void **state)
{
    (void)state;
    open_inbox(3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(take(0), CONVOY_IN_PROGRESS);
        come("request-4");
        assert_int_equal(take(0), i == 0 ? CONVOY_OK : CONVOY_IN_PROGRESS);
    }
    assert_int_equal(board->members[3].repeats, 1);
    convoy_inbox_release(&inbox, request, load);
    close_inbox();
}

static void test_inbox_what_is_for_another_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"request-0", "request-10", "hello", ""}; /* request 0 is denoiser 0's */
    open_inbox(2);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(take(0), CONVOY_IN_PROGRESS);
        come(names[i]);
        assert_int_equal(take(0), CONVOY_MALFORMED);
        assert_non_null(strstr(error.text, "is no request for this member"));
        assert_int_equal(fake_transfer_live(), 0);
    }
    close_inbox();
}

static void test_inbox_load_without_room_is_waited_for_again(void **state)
{
    (void)state;
    open_inbox(3);
    assert_int_equal(take(0), CONVOY_IN_PROGRESS);
    fake->entries[1].status = CONVOY_POOL_EXHAUSTED;
    assert_int_equal(take(0), CONVOY_IN_PROGRESS);
    assert_int_equal(board->members[3].refusals, 1);
    assert_int_equal(fake_transfer_live(), 0);
    assert_int_equal(take(0), CONVOY_IN_PROGRESS);
    assert_int_equal(fake->count, 2);
    fake->entries[2].status = CONVOY_PEER_LOST;
    assert_int_equal(take(0), CONVOY_PEER_LOST);
    close_inbox();
}

static void test_inbox_failures_are_passed_on(void **state)
{
    (void)state;
    open_inbox(3);
    fake->next_status[FAKE_ACCEPT] = CONVOY_LIMIT;
    assert_int_equal(take(0), CONVOY_LIMIT);
    assert_int_equal(take(0), CONVOY_IN_PROGRESS);
    fake->entries[1].status = CONVOY_OK; /* and no payload */
    assert_int_equal(take(0), CONVOY_BAD_STATE);
    assert_int_equal(fake_transfer_live(), 0);
    close_inbox();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inbox_keeps_one_accept_until_something_comes),
        cmocka_unit_test(test_inbox_second_time_of_a_request_is_dropped_and_counted),
        cmocka_unit_test(test_inbox_what_is_for_another_is_refused),
        cmocka_unit_test(test_inbox_load_without_room_is_waited_for_again),
        cmocka_unit_test(test_inbox_failures_are_passed_on),
    };
    return cmocka_run_group_tests_name("inbox", tests, NULL, NULL);
}
