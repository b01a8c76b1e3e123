/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory with its copy thread: short and long copies, marks, events, those who wait, cancelling, refusals. */
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "device/host.h"
#include "tests/lib/device_case.h"
#include "tests/lib/scale.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_BYTES (UINT64_C(8) << 20)

static struct convoy_device *opened(uint64_t inline_bytes, size_t stream_from, uint32_t tickets)
{
    const struct convoy_host_options options = {.tickets = tickets, .inline_bytes = inline_bytes, .chunk_bytes = 4096,
                                                .stream_from = stream_from, .never_inline = inline_bytes == 0};
    struct convoy_device *device = NULL;
    assert_int_equal(convoy_host_open(&options, &device, NULL), CONVOY_OK);
    return device;
}

static convoy_ticket started(struct convoy_device *device, const struct convoy_copy_order *order)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_ticket ticket = CONVOY_TICKET_NONE;
    if (convoy_device_start(device, order, &ticket, &error) != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
    return ticket;
}

static uint8_t *pattern(size_t bytes)
{
    uint8_t *memory = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = (uint8_t)(i * 131 + i / 251);
    }
    return memory;
}

/* Around the chunk and on both sides of the size for streaming stores, by the caller and by the thread. */
static void test_device_host_copies_every_way(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 100000};
    uint8_t *from = pattern(100000);
    uint8_t *to = malloc(100000);
    for (uint32_t way = 0; way < 4; way++) {
        struct convoy_device *device = opened(way % 2 == 0 ? 0 : UINT64_MAX, way < 2 ? 0 : 4096, 0);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            uint64_t mark = 0;
            const struct convoy_copy_piece piece = {to, from, sizes[i]};
            const struct convoy_copy_order order = {.pieces = &piece, .count = 1, .mark = &mark};
            memset(to, 0, 100000);
            convoy_ticket ticket = started(device, &order);
            bool is_quiet = false;
            assert_int_equal(convoy_device_wait(device, ticket, DEVICE_CASE_DEADLINE, &is_quiet, NULL), CONVOY_OK);
            assert_true(is_quiet);
            assert_memory_equal(to, from, sizes[i]);
            assert_int_equal(mark, sizes[i]);
        }
        device_case_close(device);
    }
    free(from);
    free(to);
}

/* A copy that is made in start has ended there: nobody has to be woken for it. */
static void test_device_host_short_copy_has_ended_when_it_has_started(void **state)
{
    (void)state;
    struct convoy_device *device = opened(4096, 0, 0);
    uint32_t from[2] = {1, 2};
    uint32_t to[2] = {0};
    uint32_t event = 0;
    const struct convoy_copy_piece pieces[] = {{&to[1], &from[0], 4}, {&to[0], &from[1], 4}};
    const struct convoy_copy_order order = {.pieces = pieces, .count = 2, .event = &event};
    convoy_ticket ticket = started(device, &order);
    assert_int_equal(to[0], 2);
    assert_int_equal(to[1], 1);
    assert_int_equal(event, 1);
    assert_int_equal(convoy_device_event_query(device, &event, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_test(device, ticket, NULL, NULL), CONVOY_OK);
    device_case_close(device);
}

/* Follows the mark behind the thread: what it says is there, and it only grows. */
static void test_device_host_reader_follows_the_mark(void **state)
{
    (void)state;
    struct convoy_device *device = opened(0, (size_t)LONG_BYTES / 2, 0);
    uint8_t *from = pattern(LONG_BYTES);
    uint8_t *to = calloc(1, LONG_BYTES);
    uint64_t mark = 0;
    /* The second piece is short of the size for streaming stores. */
    const struct convoy_copy_piece pieces[] = {{to, from, LONG_BYTES / 2}, {to + LONG_BYTES / 2, from + LONG_BYTES / 2,
                                                                           LONG_BYTES / 2}};
    const struct convoy_copy_order order = {.pieces = pieces, .count = 2, .mark = &mark};
    convoy_ticket ticket = started(device, &order);
    uint64_t read = 0;
    uint64_t deadline_ns = DEVICE_CASE_DEADLINE;
    while (read < LONG_BYTES) {
        uint64_t there = __atomic_load_n(&mark, __ATOMIC_ACQUIRE);
        assert_true(there >= read && there <= LONG_BYTES);
        assert_memory_equal(to + read, from + read, there - read);
        read = there;
        assert_true(convoy_now_ns() < deadline_ns);
        (void)sched_yield();
    }
    assert_int_equal(convoy_device_wait(device, ticket, deadline_ns, NULL, NULL), CONVOY_OK);
    device_case_close(device);
    free(from);
    free(to);
}

/* A producer's word: nothing is read before it is set, whoever asks, and how often. */
static void test_device_host_waits_for_the_producers_word(void **state)
{
    (void)state;
    struct convoy_device *device = opened(UINT64_MAX, 0, 0);
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint32_t ready = 0;
    uint32_t from = 1;
    uint32_t to = 0;
    const struct convoy_copy_piece piece = {&to, &from, sizeof to};
    const struct convoy_copy_order order = {
        .pieces = &piece, .count = 1, .ready = {.kind = CONVOY_READY_EVENT, .handle = &ready}};
    convoy_ticket ticket = started(device, &order);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(convoy_device_test(device, ticket, NULL, NULL), CONVOY_IN_PROGRESS);
    }
    device_case_expect_error(convoy_device_wait(device, ticket, convoy_now_ns(), NULL, &error), CONVOY_TIMED_OUT, &error,
                             "its producer is not ready");
    assert_int_equal(to, 0);
    from = 2;
    __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
    assert_int_equal(convoy_device_test(device, ticket, NULL, NULL), CONVOY_OK);
    assert_int_equal(to, 2);
    assert_int_equal(convoy_device_test(device, ticket, NULL, &error), CONVOY_CLOSED);
    device_case_close(device);
}

/* The first copy keeps the thread busy; those behind it are taken out of the queue, or have begun and stop or end. */
static void test_device_host_cancel_in_the_queue_and_under_way(void **state)
{
    (void)state;
    struct convoy_device *device = opened(0, 0, 16);
    uint8_t *from = pattern(LONG_BYTES);
    uint8_t *to = malloc(LONG_BYTES);
    convoy_ticket tickets[16];
    const struct convoy_copy_piece piece = {to, from, LONG_BYTES};
    const struct convoy_copy_piece none = {NULL, NULL, 0};
    for (uint32_t i = 0; i < 16; i++) {
        const struct convoy_copy_order order = {.pieces = i == 0 ? &piece : &none, .count = 1};
        tickets[i] = started(device, &order);
    }
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_ticket ticket = 5;
    const struct convoy_copy_order order = {.pieces = &none, .count = 1};
    device_case_expect_error(convoy_device_start(device, &order, &ticket, &error), CONVOY_LIMIT, &error, "16 copies are open");
    assert_int_equal(ticket, 5);
    uint32_t ended = 0;
    for (uint32_t i = 16; i-- > 0;) {
        int32_t status = convoy_device_cancel(device, tickets[i], NULL);
        if (status == CONVOY_IN_PROGRESS) {
            bool is_quiet = false;
            status = convoy_device_wait(device, tickets[i], DEVICE_CASE_DEADLINE, &is_quiet, NULL);
            assert_true(status == CONVOY_OK || status == CONVOY_CANCELED);
            assert_true(is_quiet);
        }
        ended++;
        assert_int_equal(convoy_device_cancel(device, tickets[i], NULL), CONVOY_CLOSED);
    }
    struct convoy_device_figures figures;
    convoy_device_figures(device, &figures);
    assert_int_equal(figures.open, 0);
    assert_int_equal(figures.finished + figures.canceled, ended);
    assert_int_equal(figures.failed, 0); /* what found no ticket never was a copy */
    device_case_close(device);
    free(from);
    free(to);
}

static void test_device_host_refusals(void **state)
{
    (void)state;
    struct convoy_device *device = opened(UINT64_MAX, 0, 0);
    uint8_t byte = 0;
    static const struct {
        struct convoy_copy_piece piece;
        struct convoy_copy_order order; /* without its piece */
        const char *text;
    } rows[] = {
        {{NULL, "", 1}, {.count = 1}, "piece 0 of 1 bytes has to NULL"},
        {{(void *)8, NULL, 1}, {.count = 1}, "has from NULL"},
        {{(void *)8, "", UINT64_MAX}, {.count = 1}, "past the address space"},
        {{(void *)8, "", 0}, {.count = 1, .direction = 4}, "direction 4, allowed are 0 to 3"},
        {{(void *)8, "", 0}, {.count = 1, .stream = (void *)8}, "stream is 0x8, allowed is NULL"},
        {{(void *)8, "", 0}, {.count = 1, .ready = {.kind = 4}}, "ready.kind 4, allowed are 0 to 3"},
        {{(void *)8, "", 0}, {.count = 1, .ready = {.kind = CONVOY_READY_EVENT}}, "ready.handle is NULL"},
        {{(void *)8, "", 0}, {.count = 1, .ready = {.kind = CONVOY_READY_CALLBACK}}, "ready.is_ready is NULL"},
        {{(void *)8, "", 0}, {.count = 1, .ready = {.kind = CONVOY_READY_STREAM}}, "but it has none"},
        {{(void *)8, "", 0}, {.count = 1, .ready = {.kind = CONVOY_READY_EVENT, .handle = (void *)6}}, "events are at 0x6"},
        {{(void *)8, "", 0}, {.count = 1, .event = (void *)5}, "allowed are multiples of 4"},
        {{(void *)8, "", 0}, {.count = 1, .mark = (void *)12}, "mark is at 0xc, allowed are multiples of 8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        struct convoy_copy_order order = rows[i].order;
        convoy_ticket ticket = 5;
        order.pieces = &rows[i].piece;
        device_case_expect_error(convoy_device_start(device, &order, &ticket, &error), CONVOY_INVALID_ARGUMENT, &error,
                                 rows[i].text);
        assert_int_equal(ticket, 5);
    }
    struct convoy_error error = CONVOY_ERROR_INIT;
    device_case_expect_error(convoy_device_event_record(device, &byte, NULL, &error), CONVOY_UNSUPPORTED, &error, "no streams");
    device_case_expect_error(convoy_device_event_wait(device, NULL, &byte, &error), CONVOY_UNSUPPORTED, &error, "no streams");
    device_case_expect_error(convoy_device_stream_query(device, NULL, &error), CONVOY_UNSUPPORTED, &error, "no streams");
    device_case_expect_error(convoy_device_event_query(device, NULL, &error), CONVOY_INVALID_ARGUMENT, &error, "event is NULL");
    struct convoy_device *none = NULL;
    device_case_expect_error(convoy_host_open(&(struct convoy_host_options){.chunk_bytes = 4095}, &none, &error),
                             CONVOY_INVALID_ARGUMENT, &error, "chunk_bytes 4095, allowed are 4096 and more");
    device_case_close(device);
}

/* State of a thread of this process as the kernel tells it, '?' if it is gone. */
static char thread_state(const char *name)
{
    char path[300];
    char line[512] = "";
    (void)snprintf(path, sizeof path, "/proc/self/task/%s/stat", name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return '?';
    }
    (void)fgets(line, sizeof line, file);
    (void)fclose(file);
    const char *behind = strrchr(line, ')');
    return behind != NULL && strlen(behind) > 2 ? behind[2] : '?';
}

/* How many threads beside this one sleep, and how many there are. */
static void threads_look(uint32_t *asleep_out, uint32_t *count_out)
{
    char own[32];
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    (void)snprintf(own, sizeof own, "%d", (int)getpid());
    *asleep_out = 0;
    *count_out = 0;
    for (struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, own) != 0) {
            *asleep_out += thread_state(entry->d_name) == 'S' ? 1 : 0;
            *count_out += 1;
        }
    }
    (void)closedir(tasks);
}

/* The thread comes with the first copy for it, sleeps when it has nothing to do, and goes with the device. */
static void test_device_host_thread_sleeps_when_idle(void **state)
{
    (void)state;
    uint32_t before;
    uint32_t count;
    uint32_t asleep;
    uint64_t deadline_ns = DEVICE_CASE_DEADLINE;
    threads_look(&asleep, &before); /* a sanitizer may have one of its own */
    struct convoy_device *device = opened(0, 0, 0);
    threads_look(&asleep, &count);
    assert_int_equal(count, before);
    const struct convoy_copy_order order = {.count = 0};
    assert_int_equal(convoy_device_wait(device, started(device, &order), deadline_ns, NULL, NULL), CONVOY_OK);
    do {
        threads_look(&asleep, &count);
        assert_true(convoy_now_ns() < deadline_ns);
        (void)sched_yield();
    } while (asleep != before + 1);
    assert_int_equal(count, before + 1);
    device_case_close(device);
    do { /* a joined thread may be listed for a moment */
        threads_look(&asleep, &count);
        assert_true(convoy_now_ns() < deadline_ns);
    } while (count != before);
}

struct worker {
    pthread_t thread;
    struct convoy_device *device;
    uint32_t seed;
    uint32_t wrong;
};

/* Several copies at a time, of which some are canceled and some waited for. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    uint32_t from[4][2000];
    uint32_t to[4][2000];
    convoy_ticket tickets[4];
    uint32_t rounds = test_scaled(200, 10000);
    for (uint32_t round = 0; round < rounds; round++) {
        struct convoy_copy_piece pieces[4];
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t value = worker->seed + round * 4 + i;
            for (uint32_t at = 0; at < 2000; at++) {
                from[i][at] = value;
            }
            pieces[i] = (struct convoy_copy_piece){to[i], from[i], sizeof to[i] / (round % 3 + 1)};
            const struct convoy_copy_order order = {.pieces = &pieces[i], .count = 1};
            tickets[i] = started(worker->device, &order);
        }
        for (uint32_t i = 4; i-- > 0;) {
            bool is_canceled = (round + i) % 5 == 0;
            int32_t status = is_canceled ? convoy_device_cancel(worker->device, tickets[i], NULL) : CONVOY_IN_PROGRESS;
            if (status == CONVOY_IN_PROGRESS) {
                status = convoy_device_wait(worker->device, tickets[i], DEVICE_CASE_DEADLINE, NULL, NULL);
                bool is_right = status == CONVOY_OK && memcmp(to[i], from[i], pieces[i].bytes) == 0;
                worker->wrong += is_right || (is_canceled && status == CONVOY_CANCELED) ? 0 : 1;
            }
        }
    }
    return NULL;
}

static void test_device_host_serves_several_threads(void **state)
{
    (void)state;
    struct convoy_device *device = opened(0, 0, 16);
    struct worker workers[4];
    for (uint32_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.device = device, .seed = i << 24};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].wrong, 0);
    }
    device_case_close(device);
}

#ifdef CONVOY_FAULTS
static void test_device_host_without_memory_is_refused_whole(void **state)
{
    (void)state;
    int32_t status = CONVOY_NO_MEMORY;
    for (int64_t n = 0; status != CONVOY_OK; n++) {
        struct convoy_device *device = NULL;
        struct convoy_error error = CONVOY_ERROR_INIT;
        (void)convoy_memory_fail_after(n);
        status = convoy_host_open(&(struct convoy_host_options){0}, &device, &error);
        (void)convoy_memory_fail_after(-1);
        assert_true(status == CONVOY_OK || (status == CONVOY_NO_MEMORY && device == NULL));
        assert_true(n < 100);
        if (status == CONVOY_OK) {
            device_case_close(device);
        }
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_host_copies_every_way),
        cmocka_unit_test(test_device_host_short_copy_has_ended_when_it_has_started),
        cmocka_unit_test(test_device_host_reader_follows_the_mark),
        cmocka_unit_test(test_device_host_waits_for_the_producers_word),
        cmocka_unit_test(test_device_host_cancel_in_the_queue_and_under_way),
        cmocka_unit_test(test_device_host_refusals),
        cmocka_unit_test(test_device_host_thread_sleeps_when_idle),
        cmocka_unit_test(test_device_host_serves_several_threads),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_device_host_without_memory_is_refused_whole),
#endif
    };
    return cmocka_run_group_tests_name("device_host", tests, NULL, NULL);
}
