/* SPDX-License-Identifier: Apache-2.0 */
/* Pools that are resized while transfers live, peers hold views, connect or use the other path. */
#include "tests/integration/two_engines.h"
#include "tests/lib/await.h"
#include "tests/lib/mappings.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define OLD_MAX 7u
#define THREADS 2u
#define RESIZES 40u
/* Two engines: pool and notes of each, mapped by both, and their ring, twice. */
#define NEAR_MAPPED 10u
#define FAR_MAPPED 4u
#define FILES 4u

static int32_t resize_status(struct engine *engine, uint64_t bytes)
{
    return engine->table->pool_resize(engine->handle, bytes, &engine->error);
}

static void resize(struct engine *engine, uint64_t bytes)
{
    EXPECT_OK(resize_status(engine, bytes), &engine->error);
}

static uint64_t generation_of(struct engine *engine)
{
    EXPECT_OK(engine->table->engine_info(engine->handle, &engine->info, &engine->error), &engine->error);
    return engine->info.pool_generation;
}

/* Old memory is returned by progress threads: soon. */
static void await_mappings(uint32_t count, uint32_t files)
{
    const uint64_t end = await_end();
    while ((mappings_count() != count || mappings_files() != files) && await_again(end)) {
    }
    EXPECT_EQUAL(mappings_count(), count);
    EXPECT_EQUAL(mappings_files(), files);
}

static convoy_transfer send_staged(struct two *two, convoy_transfer staged)
{
    const struct convoy_send send = {
        .struct_size = sizeof send, .peer = two->peer, .staged = staged, .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer sent = 0;
    EXPECT_OK(two->sender->table->send_start(two->sender->handle, NULL, &send, &sent, &two->sender->error),
              &two->sender->error);
    return sent;
}

static convoy_transfer loaded_by_send(struct two *two, convoy_transfer staged, const char *request)
{
    convoy_transfer sent = send_staged(two, staged);
    convoy_transfer loaded = accept_start(two, request, ENGINE_TIMEOUT_NS);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    release(two->sender, sent);
    return loaded;
}

static void test_resize_of_an_idle_pool_returns_the_old_one(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint32_t mapped = NEAR_MAPPED;
    const uint32_t files = FILES;
    EXPECT_EQUAL(generation_of(two->sender), 1);
    for (uint32_t i = 1; i <= 20; i++) {
        resize(two->sender, i * MIB);
        EXPECT_EQUAL(generation_of(two->sender), 1 + i);
        EXPECT_EQUAL(two->sender->info.pool_bytes, i * MIB);
        EXPECT_EQUAL(engine_figures(two->sender).capacity, i * MIB);
        convoy_transfer staged = stage_one(two, "idle");
        convoy_transfer loaded = loaded_by_send(two, staged, "idle");
        expect_data(two, loaded);
        release(two->receiver, loaded);
        release(two->sender, staged);
        engine_await_empty(two->sender);
    }
    await_mappings(mapped, files);
    EXPECT_EQUAL(engine_figures(two->sender).old_generations, 0);
    EXPECT_EQUAL(engine_counter(two->sender, "generations_handed"), 20);
    EXPECT_EQUAL(engine_counter(two->receiver, "generations_taken"), 20);
    two_close(two);
}

/* Staged in the first generation: read by descriptor, sent, and looked at, after the second has begun. */
static void test_resize_leaves_live_transfers_where_they_are(void **state)
{
    (void)state;
    for (uint32_t form = CONVOY_DESCRIPTOR_BINARY; form <= CONVOY_DESCRIPTOR_JSON; form++) {
        struct two *two = two_open();
        const uint32_t mapped = NEAR_MAPPED;
        const uint32_t files = FILES;
        convoy_transfer staged = stage_one(two, "old");
        resize(two->sender, 2 * MIB);
        describe(two, staged, form);
        convoy_transfer by_descriptor = load_start(two, CONVOY_LOAD_VIEW, 0);
        engine_wait(two->receiver, by_descriptor, CONVOY_OK, NULL);
        convoy_transfer by_send = loaded_by_send(two, staged, "old");
        convoy_transfer newer = stage_one(two, "new");
        describe(two, newer, form);
        convoy_transfer of_newer = load_start(two, CONVOY_LOAD_COPY, 0);
        engine_wait(two->receiver, of_newer, CONVOY_OK, NULL);
        release(two->sender, staged);
        expect_data(two, by_descriptor);
        expect_data(two, by_send);
        expect_data(two, of_newer);
        EXPECT_EQUAL(engine_figures(two->sender).capacity, 2 * MIB);
        EXPECT_EQUAL(engine_figures(two->sender).old_generations, 1);
        EXPECT(engine_figures(two->sender).quarantined > 0);
        EXPECT_EQUAL(engine_figures(two->sender).old_taken, engine_figures(two->sender).quarantined);
        release(two->receiver, by_descriptor);
        expect_data(two, by_send);
        release(two->receiver, by_send);
        release(two->receiver, of_newer);
        release(two->sender, newer);
        await_mappings(mapped, files);
        two_close(two);
    }
}

static void test_resizes_in_a_row_keep_every_lent_view_and_are_bounded(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint32_t mapped = NEAR_MAPPED;
    const uint32_t files = FILES;
    convoy_transfer loaded[OLD_MAX + 1];
    for (uint32_t i = 0; i <= OLD_MAX; i++) {
        convoy_transfer staged = stage_one(two, "row");
        loaded[i] = loaded_by_send(two, staged, "row");
        release(two->sender, staged);
        if (i < OLD_MAX) {
            resize(two->sender, (i + 1) * MIB);
        }
    }
    EXPECT_EQUAL(resize_status(two->sender, MIB), CONVOY_LIMIT);
    EXPECT(strstr(two->sender->error.text, "7 old generations are alive, allowed are 7") != NULL);
    EXPECT_EQUAL(generation_of(two->sender), 1 + OLD_MAX);
    await_mappings(mapped + 2 * OLD_MAX, files + OLD_MAX);
    for (uint32_t i = 0; i <= OLD_MAX; i++) { /* each is there to its very end, whatever has gone around it */
        expect_data(two, loaded[(3 * i) % (OLD_MAX + 1)]);
        release(two->receiver, loaded[(3 * i) % (OLD_MAX + 1)]);
    }
    await_mappings(mapped, files);
    resize(two->sender, MIB);
    two_close(two);
}

static void test_resize_hands_old_generations_to_one_that_comes_later(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer first = stage_one(two, "first");
    resize(two->sender, 3 * MIB);
    convoy_transfer second = stage_one(two, "second");
    resize(two->sender, 2 * MIB);
    EXPECT_OK(two->sender->table->peer_disconnect(two->sender->handle, two->peer, &two->sender->error),
              &two->sender->error);
    two->peer = engine_connect(two->sender, two->receiver->info.session);
    convoy_transfer loaded = loaded_by_send(two, second, "second");
    describe(two, first, CONVOY_DESCRIPTOR_BINARY);
    convoy_transfer by_descriptor = load_start(two, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, by_descriptor, CONVOY_OK, NULL);
    expect_data(two, loaded);
    expect_data(two, by_descriptor);
    await_mappings(NEAR_MAPPED + 4, FILES + 2); /* two old ones, here and there */
    release(two->receiver, loaded);
    release(two->receiver, by_descriptor);
    release(two->sender, first);
    release(two->sender, second);
    await_mappings(NEAR_MAPPED, FILES);
    two_close(two);
}

static void test_resize_that_cannot_be_is_refused_with_its_reason(void **state)
{
    (void)state;
    static _Alignas(4096) uint8_t memory[1u << 20];
    const struct convoy_transfer_options host = {.struct_size = sizeof host,
                                                 .pool_kind = CONVOY_MEMORY_HOST,
                                                 .pool_memory = memory,
                                                 .pool_bytes = sizeof memory,
                                                 .pool_block_bytes = 4096};
    const struct convoy_transfer_options kept = {.struct_size = sizeof kept,
                                                 .pool_bytes = MIB,
                                                 .pool_block_bytes = 4096,
                                                 .prealloc_count = 4,
                                                 .prealloc_bytes = 65536};
    struct engine *engine = engine_create(&kept);
    EXPECT_EQUAL(resize_status(engine, 0), CONVOY_INVALID_ARGUMENT);
    EXPECT_EQUAL(resize_status(engine, UINT64_MAX), CONVOY_INVALID_ARGUMENT);
    EXPECT_EQUAL(resize_status(engine, 3 * 65536), CONVOY_INVALID_ARGUMENT);
    EXPECT(strstr(engine->error.text, "do not hold the 4 preallocated slots of 65536") != NULL);
    EXPECT_EQUAL(resize_status(engine, UINT64_C(1) << 42), CONVOY_NO_MEMORY);
    EXPECT_EQUAL(generation_of(engine), 1);
    resize(engine, 4 * 65536);
    engine_destroy(engine);
    engine = engine_create(&host);
    EXPECT_EQUAL(resize_status(engine, MIB), CONVOY_UNSUPPORTED);
    EXPECT(strstr(engine->error.text, "the host's") != NULL);
    engine_destroy(engine);
}

/* -- slots -- */

static int32_t reserve(struct engine *engine, const char *request, uint32_t slot_id, struct convoy_reserved_slot *slot)
{
    const uint64_t bytes = 1000;
    const struct convoy_reserve wanted = {.struct_size = sizeof wanted,
                                          .request = request,
                                          .request_length = strlen(request),
                                          .bytes = &bytes,
                                          .count = 1,
                                          .prealloc = CONVOY_PREALLOC_ONLY,
                                          .slot_id = slot_id};
    struct convoy_reservation reservation = {
        .struct_size = sizeof reservation, .slots = slot, .slot_stride = sizeof *slot, .slot_capacity = 1};
    *slot = (struct convoy_reserved_slot){.transfer = 0};
    return engine->table->reserve(engine->handle, &wanted, &reservation, &engine->error);
}

static int32_t push(struct two *two, const void *source, const void *target)
{
    const struct convoy_raw_piece piece = {.source = source, .target = (uint64_t)(uintptr_t)target, .bytes = 1000};
    const struct convoy_raw raw = {.struct_size = sizeof raw,
                                   .peer = two->peer,
                                   .pieces = &piece,
                                   .piece_stride = sizeof piece,
                                   .piece_count = 1};
    return two->sender->table->transfer_sync(two->sender->handle, &raw, ENGINE_TIMEOUT_NS, &two->sender->error);
}

static void test_resize_makes_preallocated_slots_anew(void **state)
{
    (void)state;
    const struct convoy_transfer_options kept = {.struct_size = sizeof kept,
                                                 .pool_bytes = MIB,
                                                 .pool_block_bytes = 4096,
                                                 .prealloc_count = 2,
                                                 .prealloc_bytes = 4096};
    struct two *two = two_open_with(&kept);
    struct convoy_reserved_slot old;
    struct convoy_reserved_slot next;
    struct convoy_reserved_slot free_one;
    const uint32_t mapped = NEAR_MAPPED;
    const uint32_t files = FILES;
    EXPECT_OK(two->sender->table->memory_register(two->sender->handle, two->memory, BYTES, &two->sender->error),
              &two->sender->error);
    EXPECT_OK(reserve(two->receiver, "free", 2, &free_one), &two->receiver->error);
    release(two->receiver, free_one.transfer);
    EXPECT_OK(reserve(two->receiver, "old", 1, &old), &two->receiver->error);
    resize(two->receiver, 2 * MIB);
    EXPECT_OK(reserve(two->receiver, "next", 1, &next), &two->receiver->error); /* the same number, another slot */
    EXPECT(next.address != old.address);
    EXPECT_EQUAL(generation_of(two->receiver), 2);
    EXPECT((const uint8_t *)two->receiver->info.pool_memory + next.offset == next.address);
    EXPECT_OK(push(two, two->memory, old.address), &two->sender->error); /* is served while it lives */
    EXPECT_OK(push(two, two->memory + 1000, next.address), &two->sender->error);
    EXPECT_BYTES(old.address, two->memory, 1000);
    EXPECT_BYTES(next.address, two->memory + 1000, 1000);
    EXPECT_EQUAL(push(two, two->memory, free_one.address), CONVOY_NOT_FOUND); /* has ended with its generation's turn */
    EXPECT_EQUAL(engine_figures(two->receiver).old_generations, 1);
    release(two->receiver, old.transfer);
    await_mappings(mapped, files);
    EXPECT_EQUAL(push(two, two->memory, old.address), CONVOY_NOT_FOUND);
    release(two->receiver, next.transfer);
    EXPECT_OK(reserve(two->receiver, "again", 1, &old), &two->receiver->error);
    EXPECT(old.address == next.address);
    release(two->receiver, old.transfer);
    engine_destroy(two->sender);
    engine_destroy(two->receiver);
    free(two);
}

/* What is pushed from the own pool lies in a generation that the peer must have first. */
static void test_resize_of_the_source_of_raw_pieces(void **state)
{
    (void)state;
    struct two *two = two_open();
    static uint8_t target[1000];
    EXPECT_OK(two->receiver->table->memory_register(two->receiver->handle, target, sizeof target, &two->receiver->error),
              &two->receiver->error);
    for (uint32_t i = 0; i < 20; i++) {
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        resize(two->sender, (1 + i % 3) * MIB);
        convoy_transfer staged = stage_one(two, "raw");
        engine_wait(two->sender, staged, CONVOY_OK, &result);
        memset(target, 0, sizeof target);
        EXPECT_OK(push(two, (const uint8_t *)result.address + i, target), &two->sender->error);
        EXPECT_BYTES(target, two->memory + i, sizeof target);
        release(two->sender, staged);
    }
    two_close(two);
}

/* -- at once -- */

static void *resize_often(void *argument)
{
    struct engine *engine = argument;
    struct convoy_error error = {.struct_size = sizeof error};
    uintptr_t done = 0;
    for (uint32_t i = 0; i < RESIZES; i++) {
        int32_t status = engine->table->pool_resize(engine->handle, (2 + i % 5) * MIB, &error);
        EXPECT(status == CONVOY_OK || status == CONVOY_BAD_STATE || status == CONVOY_LIMIT);
        done += status == CONVOY_OK;
    }
    return (void *)done;
}

static void test_resizes_by_several_threads_while_others_send(void **state)
{
    (void)state;
    struct two *two = two_open();
    const uint32_t mapped = NEAR_MAPPED;
    const uint32_t files = FILES;
    pthread_t threads[THREADS];
    uint64_t done = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        EXPECT_EQUAL(pthread_create(&threads[i], NULL, resize_often, two->sender), 0);
    }
    for (uint32_t i = 0; i < 100; i++) {
        convoy_transfer staged = stage_one(two, "amid");
        convoy_transfer loaded = loaded_by_send(two, staged, "amid");
        release(two->sender, staged);
        expect_data(two, loaded);
        release(two->receiver, loaded);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        void *count = NULL;
        EXPECT_EQUAL(pthread_join(threads[i], &count), 0);
        done += (uintptr_t)count;
    }
    EXPECT(done != 0);
    EXPECT_EQUAL(generation_of(two->sender), 1 + done);
    await_mappings(mapped, files);
    two_close(two);
}

/* Without shared memory: what lands in an old slot lands there, what is pushed out of one is pushed from there. */
static void test_resize_of_both_ends_without_shared_memory(void **state)
{
    (void)state;
    engine_settings = "{\"net\":\"ucx\"}";
    struct two *two = two_open();
    engine_settings = NULL;
    const uint32_t mapped = FAR_MAPPED;
    const uint32_t files = FILES;
    static uint8_t target[1000];
    EXPECT_OK(two->receiver->table->memory_register(two->receiver->handle, target, sizeof target, &two->receiver->error),
              &two->receiver->error);
    for (uint32_t i = 0; i < 5; i++) {
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        convoy_transfer staged = stage_one(two, "far");
        engine_wait(two->sender, staged, CONVOY_OK, &result);
        resize(two->sender, (1 + i) * MIB);
        memset(target, 0, sizeof target);
        EXPECT_OK(push(two, (const uint8_t *)result.address + i, target), &two->sender->error);
        EXPECT_BYTES(target, two->memory + i, sizeof target);
        convoy_transfer first = loaded_by_send(two, staged, "far");
        resize(two->receiver, (1 + i) * MIB);
        convoy_transfer second = loaded_by_send(two, staged, "far");
        release(two->sender, staged);
        expect_data(two, first);
        release(two->receiver, first);
        expect_data(two, second);
        release(two->receiver, second);
    }
    EXPECT_EQUAL(engine_counter(two->sender, "generations_handed"), 0);
    await_mappings(mapped, files);
    two_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resize_of_an_idle_pool_returns_the_old_one),
        cmocka_unit_test(test_resize_leaves_live_transfers_where_they_are),
        cmocka_unit_test(test_resizes_in_a_row_keep_every_lent_view_and_are_bounded),
        cmocka_unit_test(test_resize_hands_old_generations_to_one_that_comes_later),
        cmocka_unit_test(test_resize_that_cannot_be_is_refused_with_its_reason),
        cmocka_unit_test(test_resize_makes_preallocated_slots_anew),
        cmocka_unit_test(test_resize_of_the_source_of_raw_pieces),
        cmocka_unit_test(test_resizes_by_several_threads_while_others_send),
        cmocka_unit_test(test_resize_of_both_ends_without_shared_memory),
    };
    engine_filter_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
