/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of each role over a pretended library in which all that starts ends at once: shares, what is handed on, what is
 * compared, and what ends the work early. (test_pipeline.c has the same roles over the real one.)
 */
#include "cli/pipeline_work.h"
#include "core/clock.h"
#include "core/error.h"
#include "tests/lib/fake_transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "arrival_scene.h"
#include "plugin_files.h"

#include <cmocka.h>

#define REQUESTS 4u

static const struct convoy_pipeline_shape shape = {{1, 2, 1}};
static struct fake_transfer *fake;
static struct convoy_pipeline_board *board;
static struct convoy_pipeline_worker worker;
static struct arrival_scene scenes[REQUESTS];
static struct convoy_payload payload;
static uint32_t arrivals[REQUESTS]; /* requests, in the order in which they come */

/* What a library without faults would bring: the parcel of the next request. */
static const struct convoy_payload *bring(uint32_t accept)
{
    if (accept >= REQUESTS || arrivals[accept] == UINT32_MAX) {
        return NULL;
    }
    return &scenes[arrivals[accept]].payload;
}

static int setup(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    fake = fake_transfer_reset();
    fake->instant = bring;
    if (convoy_pipeline_board_create(&shape, REQUESTS, &board, &error) != CONVOY_OK) {
        return -1;
    }
    board->setup.hosts = 1;
    board->setup.window = 2;
    board->setup.timeout_ns = 20 * CONVOY_NS_PER_MS;
    board->setup.deadline_ns = convoy_now_ns() + 60 * CONVOY_NS_PER_S;
    (void)snprintf(board->setup.folder, sizeof board->setup.folder, "%s", (const char *)*state);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        convoy_pipeline_board_request(board, i)->input_tokens = 30;
        convoy_pipeline_board_request(board, i)->output_tokens = 4;
        if (!arrival_scene_open(&scenes[i], i)) {
            return -1;
        }
    }
    memset(arrivals, 0xff, sizeof arrivals);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    convoy_outbox_fini(&worker.outbox);
    convoy_inbox_fini(&worker.inbox);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        arrival_scene_close(&scenes[i]);
    }
    convoy_pipeline_board_destroy(board);
    return fake_transfer_live() == 0 ? 0 : -1;
}

static int32_t work(uint32_t member)
{
    worker = (struct convoy_pipeline_worker){
        .board = board,
        .member = member,
        .kind = convoy_pipeline_shape_role(&shape, member),
        .self = &board->members[member],
        .host = fake->host,
        .error = CONVOY_ERROR_INIT,
    };
    convoy_outbox_init(&worker.outbox, &worker.host, board, member);
    if (worker.kind != CONVOY_PIPELINE_ENCODER) {
        assert_int_equal(convoy_inbox_init(&worker.inbox, &worker.host, board, member, &worker.error), CONVOY_OK);
    }
    worker.parcel = scenes[0].parcel; /* borrowed: as read from the file */
    return convoy_pipeline_work(&worker);
}

static uint32_t count_of(enum fake_transfer_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 1; i <= fake->count; i++) {
        count += fake->entries[i].kind == kind;
    }
    return count;
}

static void test_pipeline_work_encoder_sends_all_requests(void **state)
{
    (void)state;
    assert_int_equal(work(0), CONVOY_OK);
    assert_int_equal(count_of(FAKE_STAGE), REQUESTS);
    assert_int_equal(count_of(FAKE_SEND), REQUESTS);
    assert_int_equal(atomic_load(&board->members[0].done), REQUESTS);
    assert_int_equal(atomic_load(&board->members[0].phase), CONVOY_PIPELINE_WORKING);
    assert_int_equal(convoy_outbox_count(&worker.outbox), 0);
    assert_string_equal(fake->entries[1].request, "request-0");
}

/* Its share only, each with what came, and what it came from is given back. */
static void test_pipeline_work_denoiser_hands_its_share_on(void **state)
{
    (void)state;
    arrivals[0] = 3; /* of requests 0 to 3, denoiser 0 gets 0 and 3 */
    arrivals[1] = 0;
    assert_int_equal(work(1), CONVOY_OK);
    assert_int_equal(atomic_load(&board->members[1].done), 2);
    assert_int_equal(count_of(FAKE_SEND), 2);
    assert_string_equal(fake->entries[2].request, "request-3");
    assert_int_not_equal(convoy_pipeline_board_record(board, 0, 3)->receiver.released_ns, 0);
    assert_int_equal(convoy_pipeline_board_record(board, 0, 3)->receiver.is_done, 1);
    assert_int_equal(convoy_pipeline_board_record(board, 1, 3)->sender.is_done, 1);
}

static void test_pipeline_work_decoder_compares_and_writes_the_first(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    for (uint32_t i = 0; i < REQUESTS; i++) {
        arrivals[i] = (i + 2) % REQUESTS;
    }
    folder_path(state, "out.safetensors", path);
    (void)unlink(path);
    assert_int_equal(work(3), CONVOY_OK);
    assert_int_equal(atomic_load(&board->members[3].done), REQUESTS);
    assert_int_equal(access(path, R_OK), 0);
}

static void test_pipeline_work_decoder_finds_foreign_bytes(void **state)
{
    (void)state;
    payload = scenes[2].payload; /* the bytes of one request under the name of another */
    payload.request = scenes[1].payload.request;
    payload.scalars = scenes[1].payload.scalars;
    payload.scalars_length = scenes[1].payload.scalars_length;
    scenes[1].payload = payload;
    arrivals[0] = 0;
    arrivals[1] = 1;
    assert_int_equal(work(3), CONVOY_INVARIANT);
    assert_int_equal(strncmp(worker.error.text, "request 1: tensor convoy.prompt came with another byte at ", 58), 0);
    assert_int_equal(atomic_load(&board->members[3].done), 1);
}

static void test_pipeline_work_ends_when_it_is_asked_to(void **state)
{
    (void)state;
    atomic_store(&board->is_stop_wanted, 1);
    assert_int_equal(work(3), CONVOY_CANCELED);
    assert_int_equal(count_of(FAKE_ACCEPT), 0);
}

static void test_pipeline_work_ends_at_its_deadline(void **state)
{
    (void)state;
    board->setup.deadline_ns = convoy_now_ns() + CONVOY_NS_PER_MS;
    assert_int_equal(work(3), CONVOY_TIMED_OUT); /* nothing ever comes */
    assert_string_equal(worker.error.text, "not done in time: 0 requests through, 0 under way");
}

/* A pool without room is waited for; one in which it never fits is not. */
static void test_pipeline_work_refusals_for_want_of_room(void **state)
{
    (void)state;
    fake->next_status[FAKE_STAGE] = CONVOY_POOL_EXHAUSTED; /* once */
    assert_int_equal(work(0), CONVOY_OK);
    assert_int_equal(convoy_pipeline_board_record(board, 0, 0)->sender.refusals, 1);
    fake->next_status[FAKE_STAGE] = CONVOY_LIMIT; /* "does not fit into this pool" */
    assert_int_equal(work(0), CONVOY_LIMIT);
    assert_int_equal(strncmp(worker.error.text, "staging request 0: ", 19), 0);
}

/* With nothing under way no room will come, so that is waited for no longer than any other call. */
static void test_pipeline_work_pool_that_stays_full_ends_it(void **state)
{
    (void)state;
    arrivals[0] = 0;
    fake->every_status[FAKE_STAGE] = CONVOY_POOL_EXHAUSTED;
    uint64_t started_ns = convoy_now_ns();
    assert_int_equal(work(1), CONVOY_BUSY);
    assert_true(convoy_now_ns() - started_ns >= board->setup.timeout_ns);
    assert_string_equal(worker.error.text, "staging request 0: the test refuses");
    assert_int_equal(fake_transfer_live(), 0); /* what came was given back */
}

static void test_pipeline_work_encoder_keeps_the_pace_of_the_trace(void **state)
{
    (void)state;
    board->setup.speed = 2;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        convoy_pipeline_board_request(board, i)->timestamp_ms = 5000 + 20 * i;
    }
    uint64_t started_ns = convoy_now_ns();
    assert_int_equal(work(0), CONVOY_OK);
    assert_true(convoy_now_ns() - started_ns >= 30 * CONVOY_NS_PER_MS);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_pipeline_work_encoder_sends_all_requests),
        CASE(test_pipeline_work_denoiser_hands_its_share_on),
        CASE(test_pipeline_work_decoder_compares_and_writes_the_first),
        CASE(test_pipeline_work_decoder_finds_foreign_bytes),
        CASE(test_pipeline_work_ends_when_it_is_asked_to),
        CASE(test_pipeline_work_ends_at_its_deadline),
        CASE(test_pipeline_work_refusals_for_want_of_room),
        CASE(test_pipeline_work_pool_that_stays_full_ends_it),
        CASE(test_pipeline_work_encoder_keeps_the_pace_of_the_trace),
    };
    return cmocka_run_group_tests_name("pipeline_work", tests, folder_setup, folder_teardown);
}
