/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two engines of one process that share no memory; what there is for the other host of either, or of both, is replaced as in a
 * move, while transfers are under way: its bulk and all tables of it, from what was saved. The rest of the engine stays, with its
 * threads stopped meanwhile.
 */
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "tests/lib/engines.h"
#include "xfer/far.h"
#include "xfer/move.h"
#include "xfer/raw.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <cmocka.h>

#define LONG_NS (20 * CONVOY_NS_PER_S)
#define POOL_BYTES (UINT64_C(64) << 20)
#define LARGE_BYTES (32u << 20)
#define MIDDLE_BYTES (8u << 20)
#define SMALL_BYTES 100000u

static struct convoy_runtime *runtime;
static struct convoy_xfer *sender;
static struct convoy_xfer *receiver;
static convoy_peer peer;
static uint8_t *data;

static void check(int32_t status, const struct convoy_error *error)
{
    if (status != CONVOY_OK) {
        fail_msg("status %d: %s", (int)status, error->text);
    }
}

static uint64_t soon(void)
{
    return convoy_deadline_after(convoy_now_ns(), LONG_NS);
}

/* -- a scene ------------------------------------------------------------------------------------------------------- */

static struct convoy_xfer *open_engine(void)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_xfer *engine = NULL;
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .pool_bytes = POOL_BYTES,
                                                    .pool_block_bytes = 4096,
                                                    .transfer_max = 256,
                                                    .peer_max = 4};
    check(convoy_xfer_open(runtime, &options, &engine, &error), &error);
    return engine;
}

/* The answer of the hello may be read before the one who wrote it has its entry. */
static void await_accepted(struct convoy_xfer *engine)
{
    uint64_t end_ns = soon();
    bool is_accepted = false;
    while (!is_accepted && convoy_now_ns() < end_ns) {
        convoy_xfer_lock(engine);
        is_accepted = engine->peers[0].state == CONVOY_PEER_IS_CONNECTED && engine->peers[0].tcp_fd >= 0;
        convoy_xfer_unlock(engine);
        (void)sched_yield();
    }
    assert_true(is_accepted);
}

static int set_up(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    static const char settings[] = "{\"net\": \"ucx\", \"close_timeout_ms\": 2000}";
    const struct convoy_context_config config = {
        .struct_size = sizeof config, .settings = settings, .settings_length = sizeof settings - 1};
    (void)state;
    data = malloc(LARGE_BYTES);
    assert_non_null(data);
    for (uint32_t i = 0; i < LARGE_BYTES; i++) {
        data[i] = (uint8_t)(i * 7 + (i >> 12));
    }
    check(convoy_runtime_open(&config, &runtime, &error), &error);
    sender = open_engine();
    receiver = open_engine();
    check(convoy_xfer_connect(sender, receiver->session, strlen(receiver->session), LONG_NS, &peer, &error), &error);
    await_accepted(receiver);
    return 0;
}

static int tear_down(void **state)
{
    struct convoy_xfer *const engines[] = {sender, receiver};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        check(convoy_xfer_close(engines[i], soon(), &error), &error);
        convoy_xfer_destroy(engines[i]);
    }
    convoy_runtime_destroy(runtime);
    free(data);
    return 0;
}

/* -- moving one engine's far --------------------------------------------------------------------------------------- */

static void await_still(struct convoy_xfer *engine)
{
    char why[CONVOY_XFER_STILL_BYTES] = "";
    uint64_t end_ns = soon();
    bool is_still = false;
    while (!is_still && convoy_now_ns() < end_ns) {
        convoy_xfer_lock(engine);
        is_still = convoy_far_is_still(engine, why);
        convoy_xfer_unlock(engine);
        (void)sched_yield();
    }
    if (!is_still) {
        fail_msg("it does not stand still: %s", why);
    }
}

static void stop(struct convoy_xfer *engine)
{
    convoy_xfer_lock(engine);
    engine->must_stop = true;
    (void)pthread_cond_broadcast(&engine->work);
    convoy_xfer_kick(engine);
    convoy_xfer_unlock(engine);
    convoy_runtime_thread_join(runtime, engine->progress);
    convoy_runtime_thread_join(runtime, engine->copier);
    engine->must_stop = false;
}

static void start(struct convoy_xfer *engine)
{
    assert_int_equal(convoy_runtime_thread_start(runtime, "xfer", convoy_xfer_progress_main, engine, &engine->progress), 0);
    assert_int_equal(convoy_runtime_thread_start(runtime, "copy", convoy_xfer_copier_main, engine, &engine->copier), 0);
}

static void save(struct convoy_xfer *engine, struct convoy_bundle_writer *writer)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_bundle_begin(writer);
    size_t opened = convoy_bundle_open(writer, 9, 0);
    check(convoy_far_save(engine, writer, &error), &error);
    convoy_bundle_shut(writer, opened);
    check(convoy_bundle_end(writer, &error), &error);
}

static int32_t restore(struct convoy_xfer *engine, const struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    struct convoy_bundle_reader reader;
    struct convoy_bundle_item item;
    check(convoy_bundle_read(writer->data, writer->used, &reader, error), error);
    assert_true(convoy_bundle_next(&reader, &item));
    engine->far = NULL;
    return convoy_far_restore(engine, &item, error);
}

/* Its threads are stopped. */
static void replace(struct convoy_xfer *engine)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_bundle_writer writer = {0};
    struct convoy_far *old = engine->far;
    save(engine, &writer);
    check(restore(engine, &writer, &error), &error);
    check(convoy_far_thaw(engine, &error), &error);
    struct convoy_far *new = engine->far;
    engine->far = old;
    convoy_far_retire(engine);
    engine->far = new;
    convoy_bundle_free(&writer);
}

static void move(struct convoy_xfer *engine)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    await_still(engine);
    stop(engine);
    check(convoy_far_freeze(engine, &error), &error);
    replace(engine);
    start(engine);
}

static void move_both(void)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_xfer *const engines[] = {sender, receiver};
    for (size_t i = 0; i < 2; i++) {
        await_still(engines[i]);
        stop(engines[i]);
        check(convoy_far_freeze(engines[i], &error), &error);
    }
    for (size_t i = 0; i < 2; i++) {
        replace(engines[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        start(engines[i]);
    }
}

enum who { SENDER = 1, RECEIVER = 2, BOTH = 3 };

static void move_who(enum who who)
{
    if (who == BOTH) {
        move_both();
    } else {
        move(who == SENDER ? sender : receiver);
    }
}

static const struct convoy_far_wire *wire_of(const struct convoy_xfer *engine)
{
    return &engine->far->peers[0].wire;
}

static void await_up(uint64_t count)
{
    uint64_t end_ns = soon();
    bool is_up = false;
    while (!is_up && convoy_now_ns() < end_ns) {
        is_up = true;
        for (size_t i = 0; i < 2; i++) {
            struct convoy_xfer *engine = i == 0 ? sender : receiver;
            convoy_xfer_lock(engine);
            is_up = is_up && wire_of(engine)->since_ns == 0 && wire_of(engine)->count >= count;
            convoy_xfer_unlock(engine);
        }
        (void)sched_yield();
    }
    assert_true(is_up);
}

/* -- transfers ----------------------------------------------------------------------------------------------------- */

static convoy_transfer begin_send(const char *request, uint64_t from, uint64_t bytes)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_tensor_source tensor = {
        .name = "data", .name_length = 4, .data = data + from, .rank = 1, .dtype = "uint8", .dtype_length = 5, .shape = &bytes};
    const struct convoy_stage stage = {.struct_size = sizeof stage,
                                       .critical_flags = CONVOY_STAGE_CHECKSUM,
                                       .request = request,
                                       .request_length = strlen(request),
                                       .attempt = 1,
                                       .tensors = &tensor,
                                       .tensor_count = 1,
                                       .tensor_stride = sizeof tensor};
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = LONG_NS};
    convoy_transfer sent = 0;
    check(convoy_xfer_send(sender, &stage, &send, false, &sent, &error), &error);
    return sent;
}

static convoy_transfer begin_accept(const char *request)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_load load = {
        .struct_size = sizeof load, .request = request, .request_length = strlen(request), .timeout_ns = LONG_NS};
    convoy_transfer loaded = 0;
    check(convoy_xfer_accept(receiver, &load, false, &loaded, &error), &error);
    return loaded;
}

static void finish_load(convoy_transfer loaded, uint64_t from, uint64_t bytes)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    check(convoy_xfer_wait(receiver, loaded, soon(), NULL, &error), &error);
    convoy_xfer_lock(receiver);
    const struct convoy_xfer_entry *entry = convoy_xfer_entry_find(receiver, loaded, NULL);
    convoy_xfer_unlock(receiver);
    assert_non_null(entry);
    assert_true(entry->payload_bytes == bytes);
    assert_memory_equal(entry->payload, data + from, bytes);
    check(convoy_xfer_release(receiver, loaded, &error), &error);
}

static void finish_send(convoy_transfer sent)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    check(convoy_xfer_wait(sender, sent, soon(), NULL, &error), &error);
    check(convoy_xfer_release(sender, sent, &error), &error);
}

static uint64_t landed_bytes(void)
{
    struct convoy_landing_figures figures;
    convoy_landing_figures(receiver->far->landings, &figures);
    return figures.landed_bytes;
}

static void await_landed(uint64_t bytes)
{
    uint64_t end_ns = soon();
    while (landed_bytes() < bytes && convoy_now_ns() < end_ns) {
        (void)sched_yield();
    }
    assert_true(landed_bytes() >= bytes);
}

/* Nothing is left of any transfer at either side. */
static void check_empty(void)
{
    struct convoy_xfer *const engines[] = {sender, receiver};
    uint64_t end_ns = soon();
    for (size_t i = 0; i < 2; i++) {
        uint32_t used = 1;
        while (used != 0 && convoy_now_ns() < end_ns) {
            convoy_xfer_lock(engines[i]);
            used = engines[i]->used_count;
            convoy_xfer_unlock(engines[i]);
            (void)sched_yield();
        }
        assert_int_equal(used, 0);
    }
}

static uint64_t counter(const struct convoy_xfer *engine, uint32_t which)
{
    return engine->counters[which];
}

/* -- the wire ------------------------------------------------------------------------------------------------------ */

static void test_far_move_path_comes_up_again_whoever_moves(void **state)
{
    static const enum who order[] = {SENDER, RECEIVER, BOTH, BOTH, SENDER, SENDER, RECEIVER};
    (void)state;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        uint64_t before = wire_of(sender)->count;
        move_who(order[i]);
        await_up(before + 1);
        convoy_transfer loaded = begin_accept("small");
        convoy_transfer sent = begin_send("small", i * 1000, SMALL_BYTES);
        finish_load(loaded, i * 1000, SMALL_BYTES);
        finish_send(sent);
    }
    assert_true(wire_of(sender)->down_ns != 0 && wire_of(receiver)->down_ns != 0);
    check_empty();
}

static void test_far_move_twice_before_the_peer_has_looked_ends_at_the_last_bulk(void **state)
{
    (void)state;
    await_still(sender);
    stop(receiver);
    for (uint32_t i = 0; i < 3; i++) {
        move(sender);
    }
    start(receiver);
    await_up(1);
    assert_int_equal(sender->far->number, 3);
    assert_int_equal(wire_of(receiver)->number, 3);
    convoy_transfer loaded = begin_accept("small");
    convoy_transfer sent = begin_send("small", 0, SMALL_BYTES);
    finish_load(loaded, 0, SMALL_BYTES);
    finish_send(sent);
}

/* As a build with a reason of its own to hold back sends would leave it: staged, and not offered. */
static convoy_transfer begin_held_send(const char *request, convoy_transfer *staged_out)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const uint64_t bytes = SMALL_BYTES;
    const struct convoy_tensor_source tensor = {
        .name = "data", .name_length = 4, .data = data, .rank = 1, .dtype = "uint8", .dtype_length = 5, .shape = &bytes};
    const struct convoy_stage stage = {.struct_size = sizeof stage,
                                       .hint_flags = CONVOY_STAGE_INLINE,
                                       .request = request,
                                       .request_length = strlen(request),
                                       .tensors = &tensor,
                                       .tensor_count = 1,
                                       .tensor_stride = sizeof tensor};
    struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = LONG_NS};
    convoy_transfer sent = 0;
    check(convoy_xfer_stage(sender, &stage, false, &send.staged, &error), &error);
    convoy_xfer_lock(sender);
    struct convoy_xfer_entry *staged = convoy_xfer_entry_find(sender, send.staged, &error);
    staged->state = CONVOY_TRANSFER_STAGING;
    convoy_xfer_unlock(sender);
    check(convoy_xfer_send(sender, NULL, &send, false, &sent, &error), &error);
    convoy_xfer_lock(sender);
    staged->state = CONVOY_TRANSFER_STAGED;
    assert_int_equal(convoy_xfer_entry_find(sender, sent, &error)->state, CONVOY_TRANSFER_QUEUED);
    convoy_xfer_unlock(sender);
    *staged_out = send.staged;
    return sent;
}

static void test_far_move_send_that_was_held_back_goes_with_the_new_build(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_transfer staged = 0;
    (void)state;
    convoy_transfer sent = begin_held_send("held back", &staged);
    move(sender);
    convoy_xfer_go(sender);
    convoy_xfer_go(sender); /* and once only */
    convoy_transfer loaded = begin_accept("held back");
    finish_load(loaded, 0, SMALL_BYTES);
    finish_send(sent);
    check(convoy_xfer_release(sender, staged, &error), &error);
    check_empty();
}

/* -- payloads ------------------------------------------------------------------------------------------------------ */

static void run_offered(enum who who)
{
    convoy_transfer sent = begin_send("offered", 5, SMALL_BYTES);
    move_who(who);
    convoy_transfer loaded = begin_accept("offered");
    finish_load(loaded, 5, SMALL_BYTES);
    finish_send(sent);
    check_empty();
}

static void run_middle(enum who who, uint64_t landed)
{
    convoy_transfer loaded = begin_accept("middle");
    uint64_t before = landed_bytes();
    convoy_transfer sent = begin_send("middle", 0, LARGE_BYTES);
    await_landed(before + landed);
    move_who(who);
    finish_load(loaded, 0, LARGE_BYTES);
    finish_send(sent);
    check_empty();
}

static void test_far_move_payload_that_is_offered_is_loaded_once(void **state)
{
    (void)state;
    for (enum who who = SENDER; who <= BOTH; who++) {
        uint64_t loads = counter(receiver, CONVOY_XFER_COUNT_offers);
        run_offered(who);
        assert_true(counter(receiver, CONVOY_XFER_COUNT_offers) > loads);
    }
}

static void test_far_move_payload_in_the_middle_of_its_chunks_is_loaded_once(void **state)
{
    (void)state;
    for (enum who who = SENDER; who <= BOTH; who++) {
        run_middle(who, 1);
        run_middle(who, LARGE_BYTES / 4);
        run_middle(who, LARGE_BYTES);
    }
}

/* Its threads are stopped: this one takes the bytes, and leaves the comparison of the checksum to the copier. */
static void take_until_queued(const struct convoy_xfer_entry *entry)
{
    uint64_t end_ns = soon();
    convoy_xfer_lock(receiver);
    while (!entry->is_queued && convoy_now_ns() < end_ns) {
        convoy_far_pump(receiver);
    }
    convoy_xfer_unlock(receiver);
    assert_true(entry->is_queued);
}

static void test_far_move_payload_whose_checksum_waits_is_compared_once(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)state;
    convoy_transfer loaded = begin_accept("queued");
    await_still(receiver);
    stop(receiver);
    convoy_transfer sent = begin_send("queued", 0, SMALL_BYTES);
    take_until_queued(convoy_xfer_entry_find(receiver, loaded, NULL));
    check(convoy_far_freeze(receiver, &error), &error);
    replace(receiver);
    convoy_xfer_lock(receiver);
    convoy_far_pump(receiver);
    convoy_xfer_unlock(receiver);
    const struct convoy_xfer_entry *entry = convoy_xfer_entry_find(receiver, loaded, NULL);
    assert_int_equal(receiver->job_first, entry->index);
    assert_int_equal(entry->next_job, CONVOY_XFER_NOBODY);
    start(receiver);
    finish_load(loaded, 0, SMALL_BYTES);
    finish_send(sent);
    check_empty();
}

static convoy_transfer begin_stage(const char *request, uint64_t bytes)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_tensor_source tensor = {
        .name = "data", .name_length = 4, .data = data, .rank = 1, .dtype = "uint8", .dtype_length = 5, .shape = &bytes};
    const struct convoy_stage stage = {.struct_size = sizeof stage,
                                       .request = request,
                                       .request_length = strlen(request),
                                       .attempt = 1,
                                       .tensors = &tensor,
                                       .tensor_count = 1,
                                       .tensor_stride = sizeof tensor};
    convoy_transfer staged = 0;
    check(convoy_xfer_stage(sender, &stage, true, &staged, &error), &error);
    check(convoy_xfer_wait(sender, staged, soon(), NULL, &error), &error);
    return staged;
}

static void run_descriptor(enum who who, uint64_t landed)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    char *text = NULL;
    size_t length = 0;
    convoy_transfer staged = begin_stage("by descriptor", MIDDLE_BYTES);
    check(convoy_xfer_descriptor(sender, staged, 1, &text, &length, &error), &error);
    const struct convoy_load load = {
        .struct_size = sizeof load, .descriptor = text, .descriptor_length = length, .timeout_ns = LONG_NS};
    convoy_transfer loaded = 0;
    uint64_t before = landed_bytes();
    check(convoy_xfer_load(receiver, &load, &loaded, &error), &error);
    await_landed(before + landed);
    move_who(who);
    finish_load(loaded, 0, MIDDLE_BYTES);
    check(convoy_xfer_release(sender, staged, &error), &error);
    convoy_memory_free(text);
    check_empty();
}

static void test_far_move_load_by_descriptor_goes_on(void **state)
{
    (void)state;
    for (enum who who = SENDER; who <= BOTH; who++) {
        run_descriptor(who, 0);
        run_descriptor(who, MIDDLE_BYTES / 4);
        run_descriptor(who, MIDDLE_BYTES);
    }
}

/* -- orders to addresses ------------------------------------------------------------------------------------------- */

static void *push_raw(void *argument)
{
    struct convoy_error *error = argument;
    struct convoy_raw_piece pieces[3] = {{.source = data, .target = 0, .bytes = 100000}};
    uint8_t *target = receiver->ranges[0].memory;
    pieces[0].target = (uint64_t)(uintptr_t)target;
    for (uint32_t i = 1; i < 3; i++) {
        pieces[i] = (struct convoy_raw_piece){
            .source = data + i * 100000u, .target = pieces[0].target + i * 100000u, .bytes = 100000};
    }
    pieces[2].bytes = (20u << 20) - 200000;
    const struct convoy_raw raw = {
        .struct_size = sizeof raw, .peer = peer, .pieces = pieces, .piece_stride = sizeof pieces[0], .piece_count = 3};
    error->status = convoy_xfer_raw(sender, &raw, LONG_NS, error);
    return NULL;
}

static void test_far_move_orders_to_addresses_are_carried_out_while_the_peer_moves(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint8_t *target = malloc(20u << 20);
    (void)state;
    assert_non_null(target);
    check(convoy_xfer_register(receiver, target, 20u << 20, &error), &error);
    check(convoy_xfer_register(sender, data, LARGE_BYTES, &error), &error);
    for (uint32_t i = 0; i < 10; i++) {
        pthread_t thread;
        memset(target, 0, 20u << 20);
        assert_int_equal(pthread_create(&thread, NULL, push_raw, &error), 0);
        const struct timespec little = {.tv_nsec = (long)i * 700000}; /* wherever it is by then */
        (void)nanosleep(&little, NULL);
        move(receiver);
        assert_int_equal(pthread_join(thread, NULL), 0);
        check(error.status, &error);
        assert_memory_equal(target, data, 20u << 20);
    }
    check(convoy_xfer_deregister(receiver, target, 20u << 20, &error), &error);
    check(convoy_xfer_deregister(sender, data, LARGE_BYTES, &error), &error);
    free(target);
}

/* -- many ---------------------------------------------------------------------------------------------------------- */

static uint64_t size_of(uint32_t i)
{
    return i % 7 == 0 ? 3000000u + i : 1000u + i * 331u % 200000u;
}

static void test_far_move_twenty_times_during_five_hundred_transfers_loses_and_repeats_none(void **state)
{
    enum { MOVES = 20, EACH = 25 };
    static convoy_transfer loads[EACH];
    static convoy_transfer sends[EACH];
    char request[32];
    (void)state;
    for (uint32_t round = 0; round < MOVES; round++) {
        for (uint32_t i = 0; i < EACH; i++) {
            (void)snprintf(request, sizeof request, "request %u", round * EACH + i);
            loads[i] = begin_accept(request);
            sends[i] = begin_send(request, i, size_of(round * EACH + i));
        }
        move_who((enum who)(1 + round % 3));
        for (uint32_t i = 0; i < EACH; i++) {
            finish_load(loads[i], i, size_of(round * EACH + i));
            finish_send(sends[i]);
        }
    }
    check_empty();
    assert_int_equal(wire_of(sender)->since_ns, 0);
}

/* -- ends ---------------------------------------------------------------------------------------------------------- */

static void test_far_move_connection_that_is_cut_meanwhile_is_an_end_in_time(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)state;
    convoy_transfer sent = begin_send("cut", 0, SMALL_BYTES);
    await_still(sender);
    stop(sender);
    (void)shutdown(sender->peers[0].tcp_fd, SHUT_RDWR);
    replace(sender);
    start(sender);
    uint64_t before = convoy_now_ns();
    assert_int_equal(convoy_xfer_wait(sender, sent, soon(), NULL, &error), CONVOY_PEER_LOST);
    assert_true(convoy_now_ns() - before < 5 * CONVOY_NS_PER_S);
    check(convoy_xfer_release(sender, sent, &error), &error);
}

static void test_far_move_peer_whose_endpoint_ends_and_who_says_nothing_is_lost_after_its_grace(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)state;
    convoy_transfer sent = begin_send("silent", 0, SMALL_BYTES);
    await_still(receiver);
    stop(receiver);
    convoy_bulk_disconnect(receiver->far->bulk, 0); /* and it says nothing of another one */
    (void)convoy_bulk_progress(receiver->far->bulk);
    convoy_xfer_lock(sender);
    assert_true(convoy_far_wire_failed(sender, &sender->peers[0]));
    convoy_xfer_unlock(sender);
    assert_int_equal(convoy_xfer_wait(sender, sent, soon(), NULL, &error), CONVOY_PEER_LOST);
    check(convoy_xfer_release(sender, sent, &error), &error);
    start(receiver);
}

static void test_far_move_frame_that_there_cannot_be_is_an_end(void **state)
{
    static const uint8_t body[] = {9, 0, 0, 0, 105, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)state;
    convoy_transfer sent = begin_send("malformed", 0, SMALL_BYTES);
    assert_int_equal(send(receiver->peers[0].tcp_fd, body, sizeof body, 0), sizeof body);
    assert_int_equal(convoy_xfer_wait(sender, sent, soon(), NULL, &error), CONVOY_PEER_LOST);
    check(convoy_xfer_release(sender, sent, &error), &error);
}

static void test_far_move_without_memory_at_any_point_leaves_the_old_one_as_it_was(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_bundle_writer writer = {0};
    struct convoy_far *old = receiver->far;
    await_still(receiver);
    stop(receiver);
    save(receiver, &writer);
    int32_t status = CONVOY_NO_MEMORY;
    for (int64_t i = 0; status == CONVOY_NO_MEMORY && i < 1000; i++) {
        (void)convoy_memory_fail_after(i);
        status = restore(receiver, &writer, &error);
        (void)convoy_memory_fail_after(-1);
        assert_true(status == CONVOY_OK || receiver->far == NULL);
    }
    check(status, &error);
    convoy_far_discard(receiver);
    receiver->far = old;
    check(convoy_far_thaw(receiver, &error), &error);
    start(receiver);
    convoy_bundle_free(&writer);
#endif
    convoy_transfer loaded = begin_accept("after");
    convoy_transfer sent = begin_send("after", 0, SMALL_BYTES);
    finish_load(loaded, 0, SMALL_BYTES);
    finish_send(sent);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(test_far_move_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(path_comes_up_again_whoever_moves),
        CASE(twice_before_the_peer_has_looked_ends_at_the_last_bulk),
        CASE(send_that_was_held_back_goes_with_the_new_build),
        CASE(payload_that_is_offered_is_loaded_once),
        CASE(payload_in_the_middle_of_its_chunks_is_loaded_once),
        CASE(payload_whose_checksum_waits_is_compared_once),
        CASE(load_by_descriptor_goes_on),
        CASE(orders_to_addresses_are_carried_out_while_the_peer_moves),
        CASE(twenty_times_during_five_hundred_transfers_loses_and_repeats_none),
        CASE(connection_that_is_cut_meanwhile_is_an_end_in_time),
        CASE(peer_whose_endpoint_ends_and_who_says_nothing_is_lost_after_its_grace),
        CASE(frame_that_there_cannot_be_is_an_end),
        CASE(without_memory_at_any_point_leaves_the_old_one_as_it_was),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("far_move", tests, NULL, NULL);
}
