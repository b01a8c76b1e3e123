/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the transfer table beside plain send and accept: descriptors, slots, raw addresses, queries, aborts. */
#include "tests/integration/two_engines.h"
#include "tests/lib/await.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CROSSINGS 20u
#define CROSSING_TRIES 2000u

static void test_transfer_descriptor_of_either_form_is_loaded(void **state)
{
    (void)state;
    check_descriptor(CONVOY_DESCRIPTOR_BINARY, CONVOY_LOAD_VIEW);
    check_descriptor(CONVOY_DESCRIPTOR_BINARY, CONVOY_LOAD_COPY);
    check_descriptor(CONVOY_DESCRIPTOR_JSON, CONVOY_LOAD_VIEW);
}

/* vllm-project/vllm issue 52234: unknown, past the end, consumed, expired, and an earlier attempt each have a status. */
static void test_transfer_descriptors_that_are_no_good_are_refused_each_in_its_way(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer staged = stage_one(two, "refused");
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY);
    char good[TEXT_BYTES / 16];
    size_t good_bytes = two->text_length;
    EXPECT(good_bytes <= sizeof good);
    memcpy(good, two->text, good_bytes);
    uint64_t serial = 0xffffffff00000001u;
    memcpy(two->text + 24, &serial, sizeof serial); /* a generation that never was */
    engine_wait(two->receiver, load_start(two, CONVOY_LOAD_VIEW, 0), CONVOY_NOT_FOUND, NULL);
    memcpy(two->text, good, good_bytes);
    two->text[40] ^= 1; /* offset, 4096 blocks: no longer its slot */
    engine_wait(two->receiver, load_start(two, CONVOY_LOAD_VIEW, 0), CONVOY_INVALID_ARGUMENT, NULL);
    memcpy(two->text, good, good_bytes);
    two->text[12] = 9; /* attempt */
    engine_wait(two->receiver, load_start(two, CONVOY_LOAD_VIEW, 0), CONVOY_STALE_EPOCH, NULL);
    memcpy(two->text, good, good_bytes);
    release(two->sender, staged);
    engine_wait(two->receiver, load_start(two, CONVOY_LOAD_VIEW, 0), CONVOY_CLOSED, NULL);
    convoy_transfer next = stage_one(two, "next");
    engine_wait(two->receiver, load_start(two, CONVOY_LOAD_VIEW, 0), CONVOY_CLOSED, NULL);
    release(two->sender, next);
    EXPECT_EQUAL(engine_counter(two->sender, "asks_refused"), 5);
    engine_await_empty(two->sender);
    engine_destroy(two->receiver); /* with its failed loads unreleased: they hold nothing */
    engine_destroy(two->sender);
    free(two);
}

static void test_transfer_staged_lease_that_expires_is_swept_and_says_so(void **state)
{
    (void)state;
    struct two *two = two_open();
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    struct convoy_stage stage = engine_stage("short", &tensor, 1);
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    convoy_transfer staged = 0;
    stage.lease_ns = SHORT_NS;
    EXPECT_OK(two->sender->table->stage_start(two->sender->handle, &stage, &staged, &two->sender->error),
              &two->sender->error);
    engine_wait(two->sender, staged, CONVOY_OK, NULL);
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY);
    engine_await_empty(two->sender);
    EXPECT_STATUS(two->sender->table->transfer_test(two->sender->handle, staged, &result, &two->sender->error),
                  CONVOY_TIMED_OUT, &two->sender->error);
    EXPECT_EQUAL(result.state, CONVOY_TRANSFER_FAILED);
    EXPECT_TEXT(two->sender->error.text, "lease");
    convoy_transfer loaded = load_start(two, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, loaded, CONVOY_TIMED_OUT, NULL);
    release(two->receiver, loaded);
    release(two->sender, staged);
    two_close(two);
}

/* A pool of the host's own is read out of the sender's process, where that is allowed. */
static void test_transfer_pool_of_the_hosts_own_memory_is_read_by_the_receiver(void **state)
{
    (void)state;
    static uint8_t pools[2][1u << 20];
    struct convoy_transfer_options options = {.struct_size = sizeof options,
                                              .pool_kind = CONVOY_MEMORY_HOST,
                                              .pool_memory = pools[0],
                                              .pool_bytes = sizeof pools[0],
                                              .pool_block_bytes = 4096};
    struct two *two = calloc(1, sizeof *two);
    struct convoy_transfer_result result;
    EXPECT(two != NULL);
    two->sender = engine_create(&options);
    options.pool_memory = pools[1];
    two->receiver = engine_create(&options);
    two->peer = engine_connect(two->sender, two->receiver->info.session);
    two->bytes = BYTES;
    engine_fill(two->memory, BYTES, 7);
    convoy_transfer staged = stage_one(two, "host memory");
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY);
    convoy_transfer loaded = load_start(two, CONVOY_LOAD_VIEW, 0); /* becomes a copy */
    engine_wait(two->receiver, loaded, CONVOY_OK, &result);
    EXPECT_EQUAL(result.path, CONVOY_PATH_PROCESS_VM);
    release(two->sender, staged);
    expect_data(two, loaded);
    release(two->receiver, loaded);
    two_close(two);
}

/* A hint that is put among the critical flags is no other flag's number there. */
static void test_transfer_flags_in_the_wrong_word_are_refused(void **state)
{
    (void)state;
    struct two *two = two_open();
    const struct convoy_transfer_options options = {.struct_size = sizeof options, .critical_flags = CONVOY_ENGINE_NOTIFY};
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    struct convoy_stage stage = engine_stage("wrong", &tensor, 1);
    convoy_transfer_engine *none = NULL;
    convoy_transfer staged = 0;
    struct convoy_error *error = &two->sender->error;
    EXPECT_STATUS(two->sender->table->engine_open(two->sender->context, &options, &none, error), CONVOY_UNSUPPORTED, error);
    EXPECT(none == NULL);
    stage.critical_flags = CONVOY_STAGE_INLINE;
    EXPECT_STATUS(two->sender->table->stage_start(two->sender->handle, &stage, &staged, error), CONVOY_UNSUPPORTED, error);
    two_close(two);
}

static void test_transfer_private_pool_is_read_by_nobody(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .critical_flags = CONVOY_ENGINE_PRIVATE,
                                                    .pool_bytes = 1u << 20,
                                                    .pool_block_bytes = 4096};
    struct two *two = two_open_with(&options);
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    const struct convoy_stage stage = engine_stage("private", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .path = CONVOY_PATH_LEND};
    convoy_transfer sent = 0;
    EXPECT_STATUS(two->sender->table->send_start(two->sender->handle, &stage, &send, &sent, &two->sender->error),
                  CONVOY_UNSUPPORTED, &two->sender->error);
    EXPECT_TEXT(two->sender->error.text, "LEND");
    two_close(two);
}

/* -- slots and raw addresses -- */

static struct convoy_reserved_slot reserve_one(struct two *two, const char *request, uint64_t bytes, int32_t wanted)
{
    struct convoy_reserved_slot slot = {.transfer = 0};
    const struct convoy_reserve reserve = {.struct_size = sizeof reserve,
                                           .request = request,
                                           .request_length = strlen(request),
                                           .bytes = &bytes,
                                           .count = 1};
    struct convoy_reservation reservation = {
        .struct_size = sizeof reservation, .slots = &slot, .slot_stride = sizeof slot, .slot_capacity = 1};
    EXPECT_STATUS(two->receiver->table->reserve(two->receiver->handle, &reserve, &reservation, &two->receiver->error),
                  wanted, &two->receiver->error);
    EXPECT_EQUAL(reservation.slot_count, wanted == CONVOY_OK);
    EXPECT((reservation.retry_after_ms != 0) == (wanted == CONVOY_POOL_EXHAUSTED));
    return slot;
}

/* The hosts' own way: the server tells the sender an address, the receiver finds the bytes there. */
static void test_transfer_push_to_a_reserved_slot_is_loaded_from_there(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer staged = stage_one(two, "pushed");
    describe(two, staged, CONVOY_DESCRIPTOR_JSON);
    struct convoy_reserved_slot slot = reserve_one(two, "pushed", BYTES, CONVOY_OK);
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .path = CONVOY_PATH_PUSH,
                                     .peer = two->peer,
                                     .staged = staged,
                                     .address = (uint64_t)(uintptr_t)slot.address};
    convoy_transfer sent = 0;
    EXPECT_OK(two->sender->table->send(two->sender->handle, NULL, &send, &sent, &two->sender->error),
              &two->sender->error);
    release(two->sender, sent);
    release(two->sender, staged);
    engine_wait(two->receiver, slot.transfer, CONVOY_OK, NULL);
    convoy_transfer loaded = load_start(two, CONVOY_LOAD_VIEW, slot.transfer);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    release(two->receiver, slot.transfer);
    expect_data(two, loaded);
    release(two->receiver, loaded);
    two_close(two);
}

/* kvcache-ai/Mooncake issue 3153: the same range twice is counted, an overlap is refused. */
static void test_transfer_raw_pieces_land_or_are_refused(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct convoy_reserved_slot slot = reserve_one(two, "raw", BYTES, CONVOY_OK);
    const struct convoy_transfer_table *table = two->sender->table;
    struct convoy_raw_piece pieces[3] = {
        {.source = two->memory, .target = (uint64_t)(uintptr_t)slot.address, .bytes = 1000},
        {.source = two->memory + 1000, .target = (uint64_t)(uintptr_t)slot.address + 1000, .bytes = BYTES - 1000},
        {.source = two->memory, .target = 0, .bytes = 0}};
    struct convoy_raw raw = {.struct_size = sizeof raw,
                             .peer = two->peer,
                             .pieces = pieces,
                             .piece_stride = sizeof pieces[0],
                             .piece_count = 3};
    struct convoy_error *error = &two->sender->error;
    EXPECT_STATUS(table->transfer_sync(two->sender->handle, &raw, 0, error), CONVOY_INVALID_ARGUMENT, error);
    EXPECT_OK(table->memory_register(two->sender->handle, two->memory, BYTES, error), error);
    EXPECT_OK(table->memory_register(two->sender->handle, two->memory, BYTES, error), error);
    EXPECT_STATUS(table->memory_register(two->sender->handle, two->memory + 5, 100, error), CONVOY_BUSY, error);
    EXPECT_OK(table->memory_deregister(two->sender->handle, two->memory, BYTES, error), error);
    EXPECT_OK(table->transfer_sync(two->sender->handle, &raw, 0, error), error);
    engine_wait(two->receiver, slot.transfer, CONVOY_OK, NULL);
    EXPECT(engine_is_filled(slot.address, BYTES, 7));
    pieces[0].target += slot.bytes;
    EXPECT_STATUS(table->transfer_sync(two->sender->handle, &raw, 0, error), CONVOY_NOT_FOUND, error);
    pieces[0] = (struct convoy_raw_piece){.source = two->memory, .target = UINT64_MAX - 7, .bytes = 16};
    EXPECT_STATUS(table->transfer_sync(two->sender->handle, &raw, 0, error), CONVOY_INVALID_ARGUMENT, error);
    release(two->receiver, slot.transfer);
    EXPECT_OK(table->memory_deregister(two->sender->handle, two->memory, BYTES, error), error);
    EXPECT_STATUS(table->memory_deregister(two->sender->handle, two->memory, BYTES, error), CONVOY_NOT_FOUND, error);
    two_close(two);
}

static void test_transfer_preallocated_slots_are_adopted_by_fit_and_used_again_whole(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .pool_bytes = 8u << 20,
                                                    .pool_block_bytes = 4096,
                                                    .prealloc_count = 2,
                                                    .prealloc_bytes = 1u << 20};
    struct two *two = two_open_with(&options);
    for (int round = 0; round < 3; round++) {
        struct convoy_reserved_slot first = reserve_one(two, "a", 1000, CONVOY_OK);
        struct convoy_reserved_slot second = reserve_one(two, "b", 1u << 20, CONVOY_OK);
        struct convoy_reserved_slot third = reserve_one(two, "c", 1000, CONVOY_OK);
        EXPECT(first.slot_id != 0 && second.slot_id != 0 && first.slot_id != second.slot_id && third.slot_id == 0);
        EXPECT_EQUAL(first.bytes, 1u << 20);
        (void)reserve_one(two, "d", 64u << 20, CONVOY_LIMIT);
        release(two->receiver, first.transfer);
        release(two->receiver, second.transfer);
        release(two->receiver, third.transfer);
        (void)two->receiver->table->release(two->receiver->handle, first.transfer, NULL); /* twice does nothing */
    }
    EXPECT_EQUAL(engine_figures(two->receiver).taken, 2u << 20);
    engine_destroy(two->receiver);
    engine_destroy(two->sender);
    free(two);
}

static void test_transfer_exhausted_pool_says_when_to_ask_again(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = 1u << 20, .pool_block_bytes = 4096};
    struct two *two = two_open_with(&options);
    struct convoy_reserved_slot all = reserve_one(two, "all", 1u << 20, CONVOY_OK);
    (void)reserve_one(two, "more", 4096, CONVOY_POOL_EXHAUSTED);
    const uint64_t sizes[2] = {4096, 4096};
    EXPECT_STATUS(two->receiver->table->pool_fits(two->receiver->handle, sizes, 2, &two->receiver->error),
                  CONVOY_POOL_EXHAUSTED, &two->receiver->error);
    release(two->receiver, all.transfer);
    EXPECT_OK(two->receiver->table->pool_fits(two->receiver->handle, sizes, 2, &two->receiver->error),
              &two->receiver->error);
    EXPECT_EQUAL(engine_figures(two->receiver).exhausted_count, 1);
    two_close(two);
}

/* -- aborts, deadlines, queries, completions -- */

static convoy_transfer send_start(struct two *two, const char *request, uint64_t timeout_ns)
{
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    const struct convoy_stage stage = engine_stage(request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .timeout_ns = timeout_ns};
    convoy_transfer sent = 0;
    EXPECT_OK(two->sender->table->send_start(two->sender->handle, &stage, &send, &sent, &two->sender->error),
              &two->sender->error);
    return sent;
}

static void test_transfer_nobody_accepts_so_the_send_times_out_and_memory_returns(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer sent = send_start(two, "nobody", SHORT_NS);
    engine_wait(two->sender, sent, CONVOY_TIMED_OUT, NULL);
    release(two->sender, sent);
    engine_await_empty(two->sender); /* the receiver says that it touches nothing */
    convoy_transfer late = accept_start(two, "nobody", SHORT_NS);
    engine_wait(two->receiver, late, CONVOY_TIMED_OUT, NULL);
    release(two->receiver, late);
    two_close(two);
}

static void test_transfer_abort_of_an_offer_reaches_the_receiver(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct convoy_error *error = &two->sender->error;
    convoy_transfer sent = send_start(two, "aborted", 0);
    EXPECT_OK(two->sender->table->abort(two->sender->handle, sent, "changed my mind", 15, error), error);
    engine_wait(two->sender, sent, CONVOY_CANCELED, NULL);
    EXPECT_TEXT(two->sender->error.text, "changed my mind");
    release(two->sender, sent);
    engine_await_empty(two->sender);
    two_close(two);
}

static void test_transfer_abort_of_a_loaded_view_keeps_the_view(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer sent = send_start(two, "kept", 0);
    convoy_transfer loaded = accept_start(two, "kept", 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    EXPECT_OK(two->sender->table->abort(two->sender->handle, sent, NULL, 0, &two->sender->error), &two->sender->error);
    release(two->sender, sent);
    convoy_transfer other = send_start(two, "other", SHORT_NS); /* takes other memory */
    engine_look(two->receiver, loaded);
    EXPECT(engine_is_filled(two->receiver->views[0].data, BYTES, 7));
    engine_wait(two->sender, other, CONVOY_TIMED_OUT, NULL);
    release(two->sender, other);
    release(two->receiver, loaded);
    two_close(two);
}

static void test_transfer_query_answers_here_and_there_also_about_the_unknown(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer sent = send_start(two, "asked", 0);
    convoy_transfer loaded = accept_start(two, "asked", 0);
    struct convoy_transfer_query query = {.struct_size = sizeof query, .request = "asked", .request_length = 5};
    struct convoy_transfer_answer answer = {.struct_size = sizeof answer};
    struct convoy_error *error = &two->sender->error;
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    query.peer = two->peer;
    EXPECT_OK(two->sender->table->query(two->sender->handle, &query, 0, &answer, error), error);
    EXPECT_EQUAL(answer.state, CONVOY_TRANSFER_LOADED);
    EXPECT_EQUAL(answer.is_drained, 0);
    release(two->receiver, loaded);
    EXPECT_OK(two->sender->table->query(two->sender->handle, &query, 0, &answer, error), error);
    EXPECT_EQUAL(answer.state, 0);
    EXPECT_EQUAL(answer.is_drained, 1);
    query.peer = 0;
    EXPECT_OK(two->sender->table->query(two->sender->handle, &query, 0, &answer, error), error);
    EXPECT_EQUAL(answer.transfer, sent);
    release(two->sender, sent);
    two_close(two);
}

static void test_transfer_completions_come_once_in_order_with_a_descriptor_to_sleep_on(void **state)
{
    (void)state;
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .hint_flags = CONVOY_ENGINE_NOTIFY,
                                                    .pool_bytes = 8u << 20,
                                                    .pool_block_bytes = 4096};
    struct two *two = two_open_with(&options);
    struct convoy_completion done[4];
    size_t count = 0;
    convoy_transfer loaded[2] = {accept_start(two, "one", 0), accept_start(two, "two", 0)};
    convoy_transfer sent[2] = {send_start(two, "one", 0), send_start(two, "two", 0)};
    struct pollfd polls = {.fd = two->receiver->info.completion_fd, .events = POLLIN};
    EXPECT(polls.fd >= 0);
    while (count < 2) {
        size_t more = 0;
        EXPECT(poll(&polls, 1, 10000) == 1);
        EXPECT_OK(two->receiver->table->completions(two->receiver->handle, done + count, sizeof done[0], 4 - count, &more,
                                                    &two->receiver->error),
                  &two->receiver->error);
        count += more;
    }
    EXPECT_EQUAL(poll(&polls, 1, 0), 0);
    EXPECT_EQUAL(done[0].transfer, loaded[0]);
    EXPECT_EQUAL(done[1].transfer, loaded[1]);
    EXPECT_EQUAL(done[1].state, CONVOY_TRANSFER_LOADED);
    for (int i = 0; i < 2; i++) { /* each send staged for itself: of that the host hears nothing */
        engine_wait(two->sender, sent[i], CONVOY_OK, NULL);
    }
    EXPECT_OK(two->sender->table->completions(two->sender->handle, done, sizeof done[0], 4, &count, &two->sender->error),
              &two->sender->error);
    EXPECT_EQUAL(count, 2);
    EXPECT(done[0].transfer == sent[0] || done[0].transfer == sent[1]);
    EXPECT_EQUAL(done[0].transfer + done[1].transfer, sent[0] + sent[1]);
    EXPECT_EQUAL(done[1].state, CONVOY_TRANSFER_SENT);
    for (int i = 0; i < 2; i++) {
        release(two->sender, sent[i]);
        release(two->receiver, loaded[i]);
    }
    two_close(two);
}

/* sgl-project/sglang PRs 30254 and 26501, rapidsai/rapidsmpf PR 215, dask/distributed PR 3598: bytes that are not written
 * yet are not taken. */
static int32_t ready_at_fifth(void *user)
{
    struct two *two = user;
    if (++two->bytes < BYTES + 5) {
        return 0;
    }
    two->bytes = BYTES;
    engine_fill(two->memory, BYTES, 7);
    return 1;
}

static void test_transfer_stage_waits_until_its_producer_is_ready(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint64_t shape = BYTES;
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &shape);
    struct convoy_stage stage = engine_stage("slow", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
    convoy_transfer sent = 0;
    memset(two->memory, 0, BYTES);
    stage.ready = ready_at_fifth;
    stage.user = two;
    convoy_transfer loaded = accept_start(two, "slow", 0);
    EXPECT_OK(two->sender->table->send(two->sender->handle, &stage, &send, &sent, &two->sender->error),
              &two->sender->error);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    engine_look(two->receiver, loaded);
    EXPECT(engine_is_filled(two->receiver->views[0].data, BYTES, 7));
    release(two->sender, sent);
    release(two->receiver, loaded);
    two_close(two);
}

static void test_transfer_one_staged_buffer_goes_to_several_readers(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct engine *third = engine_create(NULL);
    convoy_peer peers[2] = {two->peer, engine_connect(two->sender, third->info.session)};
    convoy_transfer staged = stage_one(two, "fan");
    convoy_transfer sent[2];
    const struct convoy_load load = {.struct_size = sizeof load};
    for (int i = 0; i < 2; i++) {
        const struct convoy_send send = {.struct_size = sizeof send, .peer = peers[i], .staged = staged};
        EXPECT_OK(two->sender->table->send_start(two->sender->handle, NULL, &send, &sent[i], &two->sender->error),
                  &two->sender->error);
    }
    struct engine *readers[2] = {two->receiver, third};
    convoy_transfer loaded[2];
    release(two->sender, staged);
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(readers[i]->table->accept(readers[i]->handle, &load, &loaded[i], &readers[i]->error), &readers[i]->error);
        engine_look(readers[i], loaded[i]);
        EXPECT(engine_is_filled(readers[i]->views[0].data, BYTES, 7));
        engine_wait(two->sender, sent[i], CONVOY_OK, NULL);
        release(two->sender, sent[i]);
    }
    EXPECT_EQUAL(engine_figures(two->sender).reader_count, 2);
    release(readers[0], loaded[0]);
    release(readers[1], loaded[1]);
    engine_await_empty(two->sender);
    engine_destroy(third);
    two_close(two);
}

/* Whoever disconnects gets back what the other had not loaded, and what it had once it is released. */
static void test_transfer_disconnect_ends_what_is_open_and_memory_returns(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer sent[3] = {send_start(two, "held", 0), send_start(two, "offered", 0), send_start(two, "other", 0)};
    convoy_transfer held = accept_start(two, "held", 0);
    struct convoy_peer_info info = {.struct_size = sizeof info};
    engine_wait(two->receiver, held, CONVOY_OK, NULL);
    engine_wait(two->sender, sent[0], CONVOY_OK, NULL);
    EXPECT_OK(two->sender->table->peer_disconnect(two->sender->handle, two->peer, &two->sender->error),
              &two->sender->error);
    EXPECT_STATUS(two->sender->table->peer_info(two->sender->handle, 0, &info, &two->sender->error), CONVOY_CLOSED,
                  &two->sender->error);
    engine_wait(two->sender, sent[1], CONVOY_PEER_LOST, NULL);
    engine_wait(two->sender, sent[2], CONVOY_PEER_LOST, NULL);
    for (int i = 0; i < 3; i++) {
        release(two->sender, sent[i]);
    }
    AWAIT(engine_figures(two->sender).quarantined_count == 1);
    engine_look(two->receiver, held);
    EXPECT(engine_is_filled(two->receiver->views[0].data, BYTES, 7));
    release(two->receiver, held);
    engine_await_empty(two->sender);
    two->peer = engine_connect(two->sender, two->receiver->info.session); /* again works at once */
    sent[0] = send_start(two, "again", 0);
    held = accept_start(two, "again", 0);
    engine_wait(two->receiver, held, CONVOY_OK, NULL);
    release(two->receiver, held);
    engine_wait(two->sender, sent[0], CONVOY_OK, NULL);
    release(two->sender, sent[0]);
    two_close(two);
}

/* What crosses the goodbye on its way comes back at once, and a peer that connects again at once is served meanwhile. */
static void test_transfer_offer_that_crosses_a_disconnect_comes_back(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct engine *receiver = two->receiver;
    convoy_peer back = engine_connect(receiver, two->sender->info.session);
    uint32_t crossed = 0;
    for (uint32_t i = 0; i < CROSSING_TRIES && crossed < CROSSINGS; i++) {
        convoy_transfer staged = stage_one(two, "crossing"); /* to stage would hear the goodbye */
        const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .staged = staged};
        convoy_transfer sent = 0;
        EXPECT_OK(receiver->table->peer_disconnect(receiver->handle, back, &receiver->error), &receiver->error);
        int32_t status = two->sender->table->send_start(two->sender->handle, NULL, &send, &sent, &two->sender->error);
        EXPECT(status == CONVOY_OK || status == CONVOY_PEER_LOST || status == CONVOY_CLOSED);
        crossed += status == CONVOY_OK;
        back = engine_connect(receiver, two->sender->info.session);
        if (status == CONVOY_OK) {
            engine_wait(two->sender, sent, CONVOY_PEER_LOST, NULL);
            release(two->sender, sent);
        }
        release(two->sender, staged);
        two->peer = engine_connect(two->sender, receiver->info.session);
        sent = send_start(two, "again", 0);
        convoy_transfer loaded = accept_start(two, "again", 0);
        engine_wait(receiver, loaded, CONVOY_OK, NULL);
        engine_wait(two->sender, sent, CONVOY_OK, NULL);
        release(receiver, loaded);
        release(two->sender, sent);
        engine_await_empty(two->sender);
    }
    EXPECT_EQUAL(crossed, CROSSINGS);
    two_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_descriptor_of_either_form_is_loaded),
        cmocka_unit_test(test_transfer_descriptors_that_are_no_good_are_refused_each_in_its_way),
        cmocka_unit_test(test_transfer_staged_lease_that_expires_is_swept_and_says_so),
        cmocka_unit_test(test_transfer_pool_of_the_hosts_own_memory_is_read_by_the_receiver),
        cmocka_unit_test(test_transfer_flags_in_the_wrong_word_are_refused),
        cmocka_unit_test(test_transfer_private_pool_is_read_by_nobody),
        cmocka_unit_test(test_transfer_push_to_a_reserved_slot_is_loaded_from_there),
        cmocka_unit_test(test_transfer_raw_pieces_land_or_are_refused),
        cmocka_unit_test(test_transfer_preallocated_slots_are_adopted_by_fit_and_used_again_whole),
        cmocka_unit_test(test_transfer_exhausted_pool_says_when_to_ask_again),
        cmocka_unit_test(test_transfer_nobody_accepts_so_the_send_times_out_and_memory_returns),
        cmocka_unit_test(test_transfer_abort_of_an_offer_reaches_the_receiver),
        cmocka_unit_test(test_transfer_abort_of_a_loaded_view_keeps_the_view),
        cmocka_unit_test(test_transfer_query_answers_here_and_there_also_about_the_unknown),
        cmocka_unit_test(test_transfer_completions_come_once_in_order_with_a_descriptor_to_sleep_on),
        cmocka_unit_test(test_transfer_stage_waits_until_its_producer_is_ready),
        cmocka_unit_test(test_transfer_one_staged_buffer_goes_to_several_readers),
        cmocka_unit_test(test_transfer_disconnect_ends_what_is_open_and_memory_returns),
        cmocka_unit_test(test_transfer_offer_that_crosses_a_disconnect_comes_back),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_calls", tests, NULL, NULL);
}
