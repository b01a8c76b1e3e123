/* SPDX-License-Identifier: Apache-2.0 */
/* What is on its way to the next role: taken in while there is room, sent again when refused, given back when copied. */
#include "cli/outbox.h"
#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/fake_transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct convoy_pipeline_shape shape = {{1, 2, 1}};

static struct fake_transfer *fake;
static struct convoy_pipeline_board *board;
static struct convoy_outbox outbox;
static struct convoy_error error;

/* member 0 is the encoder, 1 a denoiser. */
static void open_outbox(uint32_t member)
{
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    fake = fake_transfer_reset();
    assert_int_equal(convoy_pipeline_board_create(&shape, 10, &board, &error), CONVOY_OK);
    board->setup.window = 2;
    board->setup.timeout_ns = CONVOY_NS_PER_S;
    for (uint32_t i = 0; i < 4; i++) {
        (void)snprintf(board->members[i].session, sizeof board->members[i].session, "session-%u", i);
    }
    convoy_outbox_init(&outbox, &fake->host, board, member);
    assert_int_equal(convoy_outbox_connect(&outbox, &error), CONVOY_OK);
}

static void close_outbox(void)
{
    convoy_outbox_fini(&outbox);
    assert_int_equal(fake_transfer_live(), 0);
    convoy_pipeline_board_destroy(board);
}

static int32_t add(uint32_t request, convoy_transfer upstream)
{
    char name[32];
    int length = snprintf(name, sizeof name, "request-%u", request);
    const struct convoy_stage stage = {
        .struct_size = sizeof stage, .request = name, .request_length = (size_t)length};
    return convoy_outbox_add(&outbox, request, &stage, upstream, &error);
}

/* A loaded transfer of the hop before, as an inbox would have it. */
static convoy_transfer make_upstream(void)
{
    fake->entries[++fake->count] = (struct fake_transfer_entry){.kind = FAKE_ACCEPT};
    return fake->count;
}

static void end(convoy_transfer transfer, int32_t status)
{
    fake->entries[transfer].status = status;
}

static void test_outbox_connects_to_the_next_role_only(void **state)
{
    (void)state;
    open_outbox(0);
    assert_int_equal(fake->connect_count, 2);
    assert_string_equal(fake->sessions[0], "session-1");
    assert_string_equal(fake->sessions[1], "session-2");
    fake->connect_status = CONVOY_UNREACHABLE;
    assert_int_equal(convoy_outbox_connect(&outbox, &error), CONVOY_UNREACHABLE);
    assert_string_equal(error.text, "connecting to denoiser 0: the test refuses");
    close_outbox();
}

static void test_outbox_sends_each_request_to_its_receiver(void **state)
{
    (void)state;
    open_outbox(0);
    assert_int_equal(add(0, 0), CONVOY_OK); /* transfers 1 and 2 */
    assert_int_equal(add(1, 0), CONVOY_OK); /* 3 and 4 */
    assert_string_equal(fake->entries[1].request, "request-0");
    assert_int_equal(fake->entries[2].staged, 1);
    assert_int_equal(fake->entries[2].peer, 1);
    assert_int_equal(fake->entries[4].staged, 3);
    assert_int_equal(fake->entries[4].peer, 2);
    assert_int_equal(convoy_outbox_count(&outbox), 2);
    close_outbox();
}

static void test_outbox_full_window_and_full_pool_are_back_pressure(void **state)
{
    (void)state;
    open_outbox(0);
    fake->next_status[FAKE_STAGE] = CONVOY_POOL_EXHAUSTED;
    assert_int_equal(add(0, 0), CONVOY_BUSY);
    assert_string_equal(error.text, "staging request 0: the test refuses");
    assert_int_equal(convoy_outbox_count(&outbox), 0);
    fake->next_status[FAKE_STAGE] = CONVOY_BUSY;
    assert_int_equal(add(0, 0), CONVOY_BUSY); /* again, and counted once */
    assert_int_equal(convoy_pipeline_board_record(board, 0, 0)->sender.refusals, 1);
    assert_int_equal(add(0, 0), CONVOY_OK);
    assert_int_equal(add(1, 0), CONVOY_OK);
    assert_int_equal(add(2, 0), CONVOY_BUSY);
    assert_string_equal(error.text, "2 requests are under way");
    close_outbox();
}

static void test_outbox_other_refusals_are_failures_and_take_nothing(void **state)
{
    (void)state;
    open_outbox(0);
    fake->next_status[FAKE_STAGE] = CONVOY_LIMIT;
    assert_int_equal(add(0, 0), CONVOY_LIMIT);
    fake->next_status[FAKE_SEND] = CONVOY_UNSUPPORTED;
    assert_int_equal(add(0, 0), CONVOY_UNSUPPORTED);
    assert_string_equal(error.text, "sending request 0: the test refuses");
    assert_int_equal(convoy_outbox_count(&outbox), 0);
    assert_int_equal(fake_transfer_live(), 0);
    close_outbox();
}

/* The slot is free when the reader has given back, not before; the record then has both ends. */
static void test_outbox_sent_request_stays_until_it_is_given_back(void **state)
{
    (void)state;
    open_outbox(0);
    const struct convoy_pipeline_side *side = &convoy_pipeline_board_record(board, 0, 0)->sender;
    assert_int_equal(add(0, 0), CONVOY_OK);
    assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_OK);
    end(1, CONVOY_OK);
    end(2, CONVOY_OK);
    fake->entries[2].result = (struct convoy_transfer_result){
        .path = CONVOY_PATH_LEND, .payload_bytes = 100, .moved_bytes = 90, .retries = 1};
    assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_OK);
    assert_int_equal(convoy_outbox_count(&outbox), 1);
    assert_int_equal(side->is_done, 0);
    fake->entries[2].result.times_ns[CONVOY_TIME_RETURNED] = 5;
    assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_OK);
    assert_int_equal(convoy_outbox_count(&outbox), 0);
    assert_int_equal(fake_transfer_live(), 0);
    assert_int_equal(side->is_done, 1);
    assert_int_equal(side->path, CONVOY_PATH_LEND);
    assert_int_equal(side->payload_bytes, 100);
    assert_int_equal(side->moved_bytes, 90);
    assert_int_equal(side->retries, 1);
    assert_int_equal(side->attempts, 1);
    assert_int_equal(side->times_ns[CONVOY_TIME_RETURNED], 5);
    close_outbox();
}

static void test_outbox_source_is_given_back_when_it_was_copied(void **state)
{
    (void)state;
    open_outbox(1);
    convoy_transfer upstream = make_upstream();
    assert_int_equal(add(0, upstream), CONVOY_OK); /* transfers 2 and 3 */
    assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_OK);
    assert_false(fake->entries[upstream].is_released);
    end(2, CONVOY_OK);
    assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_OK);
    assert_true(fake->entries[upstream].is_released);
    assert_int_not_equal(convoy_pipeline_board_record(board, 0, 0)->receiver.released_ns, 0);
    close_outbox();
}

/* It would be read for a while yet: the copy is stopped first. */
static void test_outbox_source_of_an_unfinished_copy_is_not_pulled_away(void **state)
{
    (void)state;
    open_outbox(1);
    convoy_transfer upstream = make_upstream();
    assert_int_equal(add(0, upstream), CONVOY_OK);
    convoy_outbox_fini(&outbox);
    assert_true(fake->entries[2].is_aborted);
    assert_int_equal(fake_transfer_live(), 0);
    upstream = make_upstream();
    fake->next_status[FAKE_SEND] = CONVOY_PEER_LOST;
    assert_int_equal(add(0, upstream), CONVOY_PEER_LOST);
    assert_true(fake->entries[fake->count].is_aborted);
    assert_false(fake->entries[upstream].is_released); /* still the caller's */
    assert_int_equal(convoy_host_transfer_release(fake->host.engine, upstream, &error), CONVOY_OK);
    close_outbox();
}

static void test_outbox_refused_send_is_tried_again_with_what_is_staged(void **state)
{
    (void)state;
    open_outbox(0);
    const struct convoy_pipeline_side *side = &convoy_pipeline_board_record(board, 0, 0)->sender;
    assert_int_equal(add(0, 0), CONVOY_OK);
    end(1, CONVOY_OK);
    end(2, CONVOY_POOL_EXHAUSTED);
    assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_OK);
    assert_int_equal(side->refusals, 1);
    assert_true(fake->entries[2].is_released);
    while (fake->count == 2) { /* not before the peer's time */
        assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_OK);
    }
    assert_int_equal(fake->entries[3].kind, FAKE_SEND);
    assert_int_equal(fake->entries[3].staged, 1);
    end(3, CONVOY_OK);
    fake->entries[3].result.times_ns[CONVOY_TIME_RETURNED] = 1;
    assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_OK);
    assert_int_equal(side->attempts, 2);
    assert_int_equal(side->is_done, 1);
    close_outbox();
}

static void test_outbox_last_attempt_fails_with_who_and_what(void **state)
{
    (void)state;
    open_outbox(0);
    assert_int_equal(add(1, 0), CONVOY_OK);
    end(1, CONVOY_OK);
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK) {
        end(fake->count, CONVOY_TIMED_OUT);
        fake->entries[fake->count].text = "nobody there";
        fake->entries[1].status = CONVOY_OK;
        status = convoy_outbox_work(&outbox, &error);
    }
    assert_int_equal(status, CONVOY_TIMED_OUT);
    assert_string_equal(error.text, "request 1 to denoiser 1 ended TIMED_OUT in attempt 3: nobody there");
    assert_int_equal(convoy_pipeline_board_record(board, 0, 1)->sender.refusals, 3);
    close_outbox();
}

static void test_outbox_dead_peer_and_failed_stage_are_final(void **state)
{
    (void)state;
    open_outbox(0);
    assert_int_equal(add(0, 0), CONVOY_OK);
    end(2, CONVOY_PEER_LOST);
    assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_PEER_LOST);
    assert_non_null(strstr(error.text, "ended PEER_LOST in attempt 1"));
    close_outbox();
    open_outbox(0);
    assert_int_equal(add(0, 0), CONVOY_OK);
    end(1, CONVOY_TIMED_OUT);
    end(2, CONVOY_TIMED_OUT);
    assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_TIMED_OUT);
    assert_non_null(strstr(error.text, "in attempt 1"));
    close_outbox();
}

static void test_outbox_waits_on_what_is_not_sent_yet(void **state)
{
    (void)state;
    open_outbox(0);
    convoy_outbox_wait(&outbox);
    assert_int_equal(fake->wait_count, 0);
    assert_int_equal(add(0, 0), CONVOY_OK);
    convoy_outbox_wait(&outbox);
    assert_int_equal(fake->wait_count, 1);
    end(1, CONVOY_OK);
    end(2, CONVOY_OK);
    assert_int_equal(convoy_outbox_work(&outbox, &error), CONVOY_OK);
    convoy_outbox_wait(&outbox); /* sent: what comes back wakes nobody */
    assert_int_equal(fake->wait_count, 1);
    close_outbox();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outbox_connects_to_the_next_role_only),
        cmocka_unit_test(test_outbox_sends_each_request_to_its_receiver),
        cmocka_unit_test(test_outbox_full_window_and_full_pool_are_back_pressure),
        cmocka_unit_test(test_outbox_other_refusals_are_failures_and_take_nothing),
        cmocka_unit_test(test_outbox_sent_request_stays_until_it_is_given_back),
        cmocka_unit_test(test_outbox_source_is_given_back_when_it_was_copied),
        cmocka_unit_test(test_outbox_source_of_an_unfinished_copy_is_not_pulled_away),
        cmocka_unit_test(test_outbox_refused_send_is_tried_again_with_what_is_staged),
        cmocka_unit_test(test_outbox_last_attempt_fails_with_who_and_what),
        cmocka_unit_test(test_outbox_dead_peer_and_failed_stage_are_final),
        cmocka_unit_test(test_outbox_waits_on_what_is_not_sent_yet),
    };
    return cmocka_run_group_tests_name("outbox", tests, NULL, NULL);
}
