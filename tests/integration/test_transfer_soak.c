/* SPDX-License-Identifier: Apache-2.0 */
/* A million small transfers between two engines (2,000 at small scale): lent, copied, by descriptor, pushed into reserved
 * slots, raw. Nothing that the process has grows with their number: memory, descriptors, mappings, threads, slots. */
#include "tests/integration/reports_transfer.h"

#include "tests/abi/hygiene.h"
#include "tests/lib/scale.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define SMALL_BYTES 3000u
#define SOAK_SMALL 2000u
#define SOAK_FULL 1000000u
#define SOAK_WARM 2000u       /* until every table and every kept buffer has been used */
#define SOAK_GROWTH_KB 2048u  /* at most, whatever the number; a leak of 4 bytes a transfer is more */
#define KINDS 5u

struct soak {
    struct engine *sender;
    struct engine *receiver;
    convoy_peer peer;
    uint8_t data[SMALL_BYTES];
    uint64_t bytes;
    char descriptor[1024];
};

static uint64_t resident_kb(void)
{
    char line[256];
    unsigned long long kb = 0;
    FILE *file = fopen("/proc/self/status", "r");
    EXPECT(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "VmRSS: %llu", &kb);
    }
    (void)fclose(file);
    EXPECT(kb != 0);
    return kb;
}

/* -- one of each kind ---------------------------------------------------------------------------------------------- */

static void hand_over(struct soak *soak, uint32_t mode)
{
    const struct convoy_tensor_source tensor = engine_tensor(soak->data, &soak->bytes);
    const struct convoy_stage stage = engine_stage("hand over", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = soak->peer};
    const struct convoy_load load = {.struct_size = sizeof load, .mode = mode};
    convoy_transfer sent = 0;
    convoy_transfer loaded = 0;
    CALL_OK(soak->sender, send_start, &stage, &send, &sent);
    CALL_OK(soak->receiver, accept, &load, &loaded);
    engine_look(soak->receiver, loaded);
    EXPECT_BYTES(soak->receiver->views[0].data, soak->data, SMALL_BYTES);
    release(soak->receiver, loaded);
    engine_wait(soak->sender, sent, CONVOY_OK, NULL);
    release(soak->sender, sent);
}

static void by_descriptor(struct soak *soak)
{
    convoy_transfer staged = stage_bytes(soak->sender, "broker", soak->data, SMALL_BYTES);
    struct convoy_text_buffer text = {
        .struct_size = sizeof text, .data = soak->descriptor, .capacity = sizeof soak->descriptor};
    CALL_OK(soak->sender, descriptor, staged, CONVOY_DESCRIPTOR_BINARY, &text);
    const struct convoy_load load = {
        .struct_size = sizeof load, .descriptor = soak->descriptor, .descriptor_length = text.length};
    convoy_transfer loaded = 0;
    CALL_OK(soak->receiver, load_start, &load, &loaded);
    (void)engine_figures(soak->sender); /* answers */
    engine_wait(soak->receiver, loaded, CONVOY_OK, NULL);
    release(soak->receiver, loaded);
    release(soak->sender, staged);
}

static void push(struct soak *soak)
{
    const struct convoy_tensor_source tensor = engine_tensor(soak->data, &soak->bytes);
    const struct convoy_stage stage = engine_stage("push", &tensor, 1);
    struct convoy_reserved_slot slot = reserve_slot(soak->receiver, "push", SMALL_BYTES, 0, NULL);
    const struct convoy_send send = {
        .struct_size = sizeof send, .peer = soak->peer, .address = (uint64_t)(uintptr_t)slot.address};
    convoy_transfer sent = 0;
    CALL_OK(soak->sender, send_start, &stage, &send, &sent);
    engine_wait(soak->receiver, slot.transfer, CONVOY_OK, NULL);
    EXPECT_BYTES(slot.address, soak->data, SMALL_BYTES);
    engine_wait(soak->sender, sent, CONVOY_OK, NULL);
    release(soak->sender, sent);
    release(soak->receiver, slot.transfer);
}

static void raw(struct soak *soak)
{
    convoy_transfer staged = stage_bytes(soak->sender, "raw", soak->data, SMALL_BYTES);
    struct convoy_reserved_slot slot = reserve_slot(soak->receiver, "raw", SMALL_BYTES, 0, NULL);
    EXPECT_OK(push_piece(soak->sender, soak->peer, staged_address(soak->sender, staged), slot.address, SMALL_BYTES),
              &soak->sender->error);
    engine_wait(soak->receiver, slot.transfer, CONVOY_OK, NULL);
    EXPECT_BYTES(slot.address, soak->data, SMALL_BYTES);
    release(soak->receiver, slot.transfer);
    release(soak->sender, staged);
}

static void soak_one(struct soak *soak, uint32_t number)
{
    soak->data[number % SMALL_BYTES]++; /* no two are alike */
    switch (number % KINDS) {
    case 0:
        hand_over(soak, CONVOY_LOAD_VIEW);
        break;
    case 1:
        hand_over(soak, CONVOY_LOAD_COPY);
        break;
    case 2:
        by_descriptor(soak);
        break;
    case 3:
        push(soak);
        break;
    default:
        raw(soak);
        break;
    }
}

/* -- the whole ----------------------------------------------------------------------------------------------------- */

static void soak_settle(struct soak *soak)
{
    await_idle(soak->sender, 0);
    await_idle(soak->receiver, 0);
}

static void test_transfer_soak_leaves_everything_flat(void **state)
{
    static struct soak soak;
    struct hygiene before;
    struct hygiene after;
    uint32_t count = test_scaled(SOAK_SMALL, SOAK_FULL);
    (void)state;
    soak.sender = engine_create(NULL);
    soak.receiver = engine_create(NULL);
    soak.peer = engine_connect(soak.sender, soak.receiver->info.session);
    soak.bytes = SMALL_BYTES;
    engine_fill(soak.data, SMALL_BYTES, 2);
    for (uint32_t i = 0; i < SOAK_WARM; i++) {
        soak_one(&soak, i);
    }
    soak_settle(&soak);
    hygiene_take(&before);
    uint64_t resident = resident_kb();
    for (uint32_t i = 0; i < count; i++) {
        soak_one(&soak, i);
    }
    soak_settle(&soak);
    uint64_t grown = resident_kb() > resident ? resident_kb() - resident : 0;
    hygiene_take(&after);
    print_message("%u transfers: resident %llu kB, grown by %llu kB\n", count, (unsigned long long)resident,
                  (unsigned long long)grown);
    assert_in_range(grown, 0, SOAK_GROWTH_KB);
    hygiene_compare(&before, &after, 1);
    EXPECT_EQUAL(engine_counter(soak.receiver, "loaded"), (SOAK_WARM + count) / KINDS * 3);
    EXPECT_EQUAL(engine_counter(soak.receiver, "raw_orders"), (SOAK_WARM + count) / KINDS * 2);
    engine_destroy(soak.sender);
    engine_destroy(soak.receiver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transfer_soak_leaves_everything_flat)};
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_soak", tests, NULL, NULL);
}
