/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets and ranges on a device of the test's own: what is told once, what is stale, what is held while a copy is open. */
#include "core/clock.h"
#include "core/error.h"
#include "device/parts.h"
#include "tests/lib/device_case.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Answers what the test has put there. */
struct fake {
    int32_t begin;
    int32_t test;
    bool is_quiet;
    bool can_withdraw;
    int32_t pin;
    int32_t unpin;
    bool is_foreign;
    uint32_t begun; /* atomic: several threads */
    uint32_t pinned;
    uint32_t destroyed;
    int32_t event;
};

static int32_t fake_query(void *self, const void *address, struct convoy_memory_info *info_out, struct convoy_error *error)
{
    (void)self;
    (void)address;
    (void)error;
    info_out->kind = CONVOY_MEMORY_PINNED;
    return CONVOY_OK;
}

static int32_t fake_begin(void *self, struct convoy_device_copy *copy, struct convoy_error *error)
{
    struct fake *fake = self;
    (void)copy;
    __atomic_add_fetch(&fake->begun, 1, __ATOMIC_RELAXED);
    return fake->begin != CONVOY_OK ? convoy_error_set(error, fake->begin, "as the test wants") : CONVOY_OK;
}

static int32_t fake_test(void *self, struct convoy_device_copy *copy, bool *quiet_out, struct convoy_error *error)
{
    struct fake *fake = self;
    (void)copy;
    assert_true(*quiet_out);
    *quiet_out = fake->is_quiet;
    return fake->test < 0 ? convoy_error_set(error, fake->test, "as the test wants") : fake->test;
}

static bool fake_withdraw(void *self, struct convoy_device_copy *copy)
{
    (void)copy;
    return ((struct fake *)self)->can_withdraw;
}

static int32_t fake_event_query(void *self, void *event, struct convoy_error *error)
{
    (void)event;
    (void)error;
    return ((struct fake *)self)->event;
}

static int32_t fake_pin(void *self, void *address, uint64_t bytes, uint32_t flags, bool *foreign_out,
                        struct convoy_error *error)
{
    struct fake *fake = self;
    (void)address;
    (void)bytes;
    (void)flags;
    fake->pinned += fake->pin == CONVOY_OK && !fake->is_foreign ? 1 : 0;
    *foreign_out = fake->is_foreign;
    return fake->pin != CONVOY_OK ? convoy_error_set(error, fake->pin, "as the test wants") : CONVOY_OK;
}

static int32_t fake_unpin(void *self, void *address, struct convoy_error *error)
{
    struct fake *fake = self;
    (void)address;
    fake->pinned -= fake->unpin == CONVOY_OK ? 1 : 0;
    return fake->unpin != CONVOY_OK ? convoy_error_set(error, fake->unpin, "as the test wants") : CONVOY_OK;
}

static void fake_destroy(void *self)
{
    ((struct fake *)self)->destroyed++;
}

static const struct convoy_device_ops fake_ops = {
    .name = "fake",
    .query = fake_query,
    .begin = fake_begin,
    .test = fake_test,
    .withdraw = fake_withdraw,
    .event_query = fake_event_query,
    .pin = fake_pin,
    .unpin = fake_unpin,
    .destroy = fake_destroy,
};

static struct convoy_device *opened(struct fake *fake, uint32_t tickets)
{
    struct convoy_device *device = NULL;
    fake->is_quiet = true;
    assert_int_equal(convoy_device_make(&fake_ops, fake, tickets, &device, NULL), CONVOY_OK);
    return device;
}

static uint8_t bytes[4096];
static const struct convoy_copy_piece piece = {bytes + 2048, bytes, 1024};
static const struct convoy_copy_order plain = {.pieces = &piece, .count = 1};

static convoy_ticket started(struct convoy_device *device)
{
    convoy_ticket ticket = CONVOY_TICKET_NONE;
    assert_int_equal(convoy_device_start(device, &plain, &ticket, NULL), CONVOY_OK);
    return ticket;
}

static void test_device_end_is_told_once(void **state)
{
    (void)state;
    struct fake fake = {.test = CONVOY_IN_PROGRESS};
    struct convoy_device *device = opened(&fake, 2);
    struct convoy_error error = CONVOY_ERROR_INIT;
    bool is_quiet = true;
    convoy_ticket first = started(device);
    convoy_ticket second = started(device);
    convoy_ticket third = 1;
    device_case_expect_error(convoy_device_start(device, &plain, &third, &error), CONVOY_LIMIT, &error, "2 copies are open");
    assert_int_equal(third, 1);
    assert_int_equal(convoy_device_test(device, first, &is_quiet, NULL), CONVOY_IN_PROGRESS);
    assert_false(is_quiet);
    fake.test = CONVOY_OK;
    assert_int_equal(convoy_device_test(device, first, &is_quiet, NULL), CONVOY_OK);
    assert_true(is_quiet);
    device_case_expect_error(convoy_device_test(device, first, &is_quiet, &error), CONVOY_CLOSED, &error, "has ended, or never");
    assert_false(is_quiet); /* that was told with its end */
    third = started(device); /* in the same slot */
    assert_int_not_equal(third, first);
    assert_int_equal((uint32_t)third, (uint32_t)first);
    assert_int_equal(convoy_device_cancel(device, first, NULL), CONVOY_CLOSED);
    assert_int_equal(convoy_device_wait(device, CONVOY_TICKET_NONE, 0, NULL, NULL), CONVOY_CLOSED);
    assert_int_equal(convoy_device_test(device, UINT64_C(1) << 32 | 3, NULL, NULL), CONVOY_CLOSED);
    assert_int_equal(convoy_device_wait(device, second, 0, NULL, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_wait(device, third, 0, NULL, NULL), CONVOY_OK);
    device_case_close(device);
    assert_int_equal(fake.destroyed, 1);
}

static void test_device_failures_are_counted_by_kind(void **state)
{
    (void)state;
    struct fake fake = {.begin = CONVOY_NO_MEMORY};
    struct convoy_device *device = opened(&fake, 4);
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_device_figures figures;
    convoy_ticket ticket;
    bool is_quiet = true;
    device_case_expect_error(convoy_device_start(device, &plain, &ticket, &error), CONVOY_NO_MEMORY, &error, "as the test");
    fake.begin = CONVOY_OK;
    fake.test = CONVOY_SYSTEM;
    ticket = started(device);
    assert_int_equal(convoy_device_test(device, ticket, &is_quiet, NULL), CONVOY_SYSTEM);
    assert_true(is_quiet);
    fake.is_quiet = false;
    ticket = started(device);
    assert_int_equal(convoy_device_wait(device, ticket, 0, &is_quiet, NULL), CONVOY_SYSTEM);
    assert_false(is_quiet);
    fake.can_withdraw = true;
    assert_int_equal(convoy_device_cancel(device, started(device), NULL), CONVOY_OK);
    fake.test = CONVOY_OK;
    fake.is_quiet = true;
    assert_int_equal(convoy_device_test(device, started(device), NULL, NULL), CONVOY_OK);
    convoy_device_figures(device, &figures);
    assert_int_equal(figures.started, 5);
    assert_int_equal(figures.finished, 1);
    assert_int_equal(figures.failed, 3);
    assert_int_equal(figures.lost, 1);
    assert_int_equal(figures.canceled, 1);
    assert_int_equal(figures.bytes, 1024);
    assert_int_equal(figures.open, 0);
    device_case_close(device);
}

/* Where there are no streams, an event is asked before the copy begins. */
static void test_device_event_is_asked_where_there_are_no_streams(void **state)
{
    (void)state;
    struct fake fake = {.event = CONVOY_IN_PROGRESS};
    struct convoy_device *device = opened(&fake, 4);
    struct convoy_copy_order order = plain;
    convoy_ticket ticket;
    order.ready = (struct convoy_readiness){.kind = CONVOY_READY_EVENT, .handle = &fake};
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_wait(device, ticket, convoy_now_ns() + 200000, NULL, NULL), CONVOY_TIMED_OUT);
    assert_int_equal(fake.begun, 0);
    fake.event = CONVOY_OK;
    assert_int_equal(convoy_device_test(device, ticket, NULL, NULL), CONVOY_OK);
    assert_int_equal(fake.begun, 1);
    fake.event = CONVOY_SYSTEM;
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_SYSTEM);
    device_case_close(device);
}

/* What a copy touches is not let go of while it is open, and never if it was lost. */
static void test_device_range_is_held_by_its_copies(void **state)
{
    (void)state;
    struct fake fake = {.test = CONVOY_IN_PROGRESS};
    struct convoy_device *device = opened(&fake, 4);
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_device_register(device, bytes, 2048, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_register(device, bytes + 2048, 1024, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_register(device, bytes + 3072, 1024, 0, NULL), CONVOY_OK);
    convoy_ticket ticket = started(device);
    assert_int_equal(convoy_device_unregister(device, bytes + 3072, 1024, NULL), CONVOY_OK);
    device_case_expect_error(convoy_device_unregister(device, bytes, 2048, &error), CONVOY_BUSY, &error, "is open");
    device_case_expect_error(convoy_device_unregister(device, bytes + 2048, 1024, &error), CONVOY_BUSY, &error, "is open");
    assert_int_equal(convoy_device_register(device, bytes, 2048, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_unregister(device, bytes, 2048, NULL), CONVOY_OK); /* one of two */
    fake.test = CONVOY_OK;
    assert_int_equal(convoy_device_test(device, ticket, NULL, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_unregister(device, bytes, 2048, NULL), CONVOY_OK);
    assert_int_equal(fake.pinned, 1);
    fake.test = CONVOY_SYSTEM;
    fake.is_quiet = false;
    assert_int_equal(convoy_device_test(device, started(device), NULL, NULL), CONVOY_SYSTEM);
    device_case_expect_error(convoy_device_unregister(device, bytes + 2048, 1024, &error), CONVOY_BUSY, &error, "was lost");
    device_case_close(device);
    assert_int_equal(fake.pinned, 1);
}

static void test_device_range_refusals(void **state)
{
    (void)state;
    struct fake fake = {.pin = CONVOY_SYSTEM};
    struct convoy_device *device = opened(&fake, 4);
    struct convoy_error error = CONVOY_ERROR_INIT;
    device_case_expect_error(convoy_device_register(device, bytes, 8, 0, &error), CONVOY_SYSTEM, &error, "as the test wants");
    fake.pin = CONVOY_OK;
    fake.is_foreign = true;
    assert_int_equal(convoy_device_register(device, bytes, 8, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_unregister(device, bytes, 8, NULL), CONVOY_OK); /* not ours to unpin */
    fake.is_foreign = false;
    device_case_expect_error(convoy_device_register(device, NULL, 8, 0, &error), CONVOY_INVALID_ARGUMENT, &error, "8 bytes at");
    device_case_expect_error(convoy_device_register(device, bytes, 0, 0, &error), CONVOY_INVALID_ARGUMENT, &error, "0 bytes at");
    device_case_expect_error(convoy_device_register(device, bytes, UINT64_MAX, 0, &error), CONVOY_INVALID_ARGUMENT, &error,
                             "within the address space");
    device_case_expect_error(convoy_device_unregister(device, bytes, 0, &error), CONVOY_INVALID_ARGUMENT, &error, "0 bytes at");
    for (uint32_t i = 0; i < CONVOY_RANGES_MAX; i++) {
        assert_int_equal(convoy_device_register(device, bytes + i * 8, 8, 0, NULL), CONVOY_OK);
    }
    device_case_expect_error(convoy_device_register(device, bytes + 2048, 8, 0, &error), CONVOY_LIMIT, &error, "64 ranges");
    fake.unpin = CONVOY_SYSTEM;
    assert_int_equal(convoy_device_unregister(device, bytes, 8, NULL), CONVOY_SYSTEM);
    fake.unpin = CONVOY_OK;
    assert_int_equal(convoy_device_unregister(device, bytes, 8, NULL), CONVOY_OK);
    device_case_close(device);
    assert_int_equal(fake.pinned, 0);
}

static int32_t never(void *user)
{
    (void)user;
    return 0;
}

static void test_device_close_cancels_waits_and_can_be_called_again(void **state)
{
    (void)state;
    struct fake fake = {.test = CONVOY_IN_PROGRESS};
    struct convoy_device *device = opened(&fake, 4);
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_copy_order order = plain;
    convoy_ticket waiting;
    order.ready = (struct convoy_readiness){.kind = CONVOY_READY_CALLBACK, .is_ready = never};
    assert_int_equal(convoy_device_start(device, &order, &waiting, NULL), CONVOY_OK);
    convoy_ticket running = started(device);
    device_case_expect_error(convoy_device_close(device, convoy_now_ns() + 200000, &error), CONVOY_DRAIN_TIMEOUT, &error,
                             "1 copies are still running");
    assert_int_equal(convoy_device_test(device, waiting, NULL, NULL), CONVOY_CLOSED);
    assert_int_equal(convoy_device_test(device, running, NULL, NULL), CONVOY_IN_PROGRESS);
    device_case_expect_error(convoy_device_start(device, &plain, &waiting, &error), CONVOY_CLOSED, &error, "is closing");
    fake.test = CONVOY_OK;
    device_case_close(device);
    assert_int_equal(fake.destroyed, 1);
    assert_int_equal(convoy_device_close(NULL, 0, NULL), CONVOY_OK);
}

static void *work(void *argument)
{
    struct convoy_device *device = argument;
    void *wrong = NULL;
    for (uint32_t i = 0; i < 5000; i++) {
        convoy_ticket ticket = CONVOY_TICKET_NONE;
        int32_t status = convoy_device_start(device, &plain, &ticket, NULL);
        if (status == CONVOY_OK) {
            status = convoy_device_test(device, ticket, NULL, NULL);
            wrong = convoy_device_test(device, ticket, NULL, NULL) == CONVOY_CLOSED ? wrong : device;
        }
        wrong = status == CONVOY_OK || status == CONVOY_LIMIT ? wrong : device;
    }
    return wrong;
}

/* More threads than tickets: each has its own ticket or none. */
static void test_device_tickets_of_several_threads(void **state)
{
    (void)state;
    struct fake fake = {0};
    struct convoy_device *device = opened(&fake, 2);
    pthread_t threads[4];
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, device), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        void *wrong = device;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    struct convoy_device_figures figures;
    convoy_device_figures(device, &figures);
    assert_int_equal(figures.started, figures.finished);
    assert_int_equal(figures.started, fake.begun);
    device_case_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_end_is_told_once),
        cmocka_unit_test(test_device_failures_are_counted_by_kind),
        cmocka_unit_test(test_device_event_is_asked_where_there_are_no_streams),
        cmocka_unit_test(test_device_range_is_held_by_its_copies),
        cmocka_unit_test(test_device_range_refusals),
        cmocka_unit_test(test_device_close_cancels_waits_and_can_be_called_again),
        cmocka_unit_test(test_device_tickets_of_several_threads),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
