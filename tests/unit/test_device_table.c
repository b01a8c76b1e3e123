/* SPDX-License-Identifier: Apache-2.0 */
/* A device of the host's: what is checked, that its functions are what is called, and what it answers. */
#include "core/clock.h"
#include "core/error.h"
#include "device/table.h"
#include "tests/lib/device_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A device with one stream, whose copies are made when its event is asked for the third time. */
struct toy {
    uint32_t copies;
    uint32_t events;
    uint32_t pinned;
    uint32_t waits;
    uint32_t asked;
    int32_t answer_copy;
    int32_t answer_record;
    int32_t answer_query; /* of events and streams, unless 0 */
    uint32_t kind;
    uint32_t info_bytes; /* struct_size that query was called with */
    bool writes_all;     /* query writes the struct as a whole, which it must not */
    void *to;
    const void *from;
    uint64_t bytes;
};

static int32_t toy_query(void *user, const void *address, struct convoy_memory_info *info_out)
{
    struct toy *toy = user;
    (void)address;
    assert_true(info_out->kind == 0 && info_out->device == 0 && info_out->reserved == 0);
    toy->info_bytes = info_out->struct_size;
    if (toy->writes_all) {
        *info_out = (struct convoy_memory_info){.kind = toy->kind, .device = 3};
        return 0;
    }
    info_out->kind = toy->kind;
    info_out->device = 3;
    return 0;
}

static int32_t toy_copy(void *user, void *to, const void *from, uint64_t bytes, uint32_t direction, void *stream)
{
    struct toy *toy = user;
    (void)stream;
    toy->copies += direction == CONVOY_COPY_ON_DEVICE ? 100 : 1;
    toy->to = to;
    toy->from = from;
    toy->bytes = bytes;
    return toy->answer_copy;
}

static int32_t toy_event_create(void *user, void **event_out)
{
    struct toy *toy = user;
    toy->events++;
    *event_out = toy;
    return 0;
}

static void toy_event_destroy(void *user, void *event)
{
    ((struct toy *)user)->events -= event == user ? 1 : 1000;
}

static int32_t toy_event_record(void *user, void *event, void *stream)
{
    (void)event;
    (void)stream;
    ((struct toy *)user)->asked = 0;
    return ((struct toy *)user)->answer_record;
}

static int32_t toy_event_query(void *user, void *event)
{
    struct toy *toy = user;
    (void)event;
    if (toy->answer_query != 0) {
        return toy->answer_query;
    }
    if (++toy->asked < 3) {
        return 0;
    }
    memcpy(toy->to, toy->from, toy->bytes);
    return 1;
}

static int32_t toy_stream_wait(void *user, void *stream, void *event)
{
    (void)stream;
    (void)event;
    ((struct toy *)user)->waits++;
    return 0;
}

static int32_t toy_stream_query(void *user, void *stream)
{
    (void)stream;
    return ((struct toy *)user)->answer_query != 0 ? ((struct toy *)user)->answer_query : 1;
}

static int32_t toy_register(void *user, void *address, uint64_t bytes, uint32_t flags)
{
    (void)address;
    (void)bytes;
    ((struct toy *)user)->pinned++;
    return flags == CONVOY_REGISTER_READ_ONLY ? -5 : 0;
}

static int32_t toy_unregister(void *user, void *address)
{
    (void)address;
    ((struct toy *)user)->pinned--;
    return 0;
}

static void toy_error_text(void *user, int32_t number, char *text_out, size_t capacity)
{
    (void)user;
    (void)snprintf(text_out, capacity, "toy says %d", number);
}

static struct convoy_device_table table_of(struct toy *toy)
{
    return (struct convoy_device_table){
        .struct_size = sizeof(struct convoy_device_table),
        .name_length = 3,
        .name = "toybox", /* of which three bytes are the name */
        .user = toy,
        .query = toy_query,
        .copy = toy_copy,
        .event_create = toy_event_create,
        .event_destroy = toy_event_destroy,
        .event_record = toy_event_record,
        .event_query = toy_event_query,
        .stream_wait = toy_stream_wait,
        .stream_query = toy_stream_query,
        .register_range = toy_register,
        .unregister_range = toy_unregister,
        .error_text = toy_error_text,
    };
}

static struct convoy_device *opened(const struct convoy_device_table *table)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_device *device = NULL;
    if (convoy_table_open(table, 4, &device, &error) != CONVOY_OK) {
        fail_msg("%s", error.text);
    }
    return device;
}

static void test_device_table_copies_with_the_hosts_functions(void **state)
{
    (void)state;
    struct toy toy = {.kind = CONVOY_MEMORY_DEVICE};
    struct convoy_device_table table = table_of(&toy);
    struct convoy_device *device = opened(&table);
    memset(&table, 0, sizeof table); /* it was copied */
    assert_string_equal(convoy_device_name(device), "toy");
    assert_true(convoy_device_calls_host(device));
    assert_true(convoy_device_has_streams(device));
    uint32_t from = 7;
    uint32_t to = 0;
    const struct convoy_copy_piece piece = {&to, &from, sizeof to};
    const struct convoy_copy_order order = {.pieces = &piece, .count = 1, .direction = CONVOY_COPY_ON_DEVICE,
                                            .ready = {.kind = CONVOY_READY_STREAM, .handle = &toy}};
    convoy_ticket ticket;
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
    assert_int_equal(toy.copies, 100);
    assert_int_equal(toy.waits, 1);
    assert_int_equal(convoy_device_test(device, ticket, NULL, NULL), CONVOY_IN_PROGRESS);
    assert_int_equal(to, 0);
    assert_int_equal(convoy_device_wait(device, ticket, DEVICE_CASE_DEADLINE, NULL, NULL), CONVOY_OK);
    assert_int_equal(to, 7);
    assert_int_equal(convoy_device_register(device, &to, sizeof to, 0, NULL), CONVOY_OK);
    assert_int_equal(toy.pinned, 1);
    struct convoy_memory_info info;
    assert_int_equal(convoy_device_query(device, &to, &info, NULL), CONVOY_OK);
    assert_int_equal(info.device, 3);
    assert_int_equal(toy.info_bytes, sizeof info);
    assert_int_equal(info.struct_size, sizeof info);
    device_case_close(device);
    assert_int_equal(toy.events, 0);
    assert_int_equal(toy.pinned, 0);
}

static void test_device_table_failures_are_told_in_the_hosts_words(void **state)
{
    (void)state;
    struct toy toy = {.kind = CONVOY_MEMORY_DEVICE};
    const struct convoy_device_table table = table_of(&toy);
    struct convoy_device *device = opened(&table);
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint32_t word = 0;
    const struct convoy_copy_piece piece = {&word, &toy.copies, sizeof word};
    const struct convoy_copy_order order = {.pieces = &piece, .count = 1};
    convoy_ticket ticket;
    bool is_quiet = false;
    toy.answer_copy = -9;
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
    device_case_expect_error(convoy_device_wait(device, ticket, DEVICE_CASE_DEADLINE, &is_quiet, &error), CONVOY_SYSTEM, &error,
                             "device toy: copying: error -9 of the host's function: toy says -9");
    assert_true(is_quiet);
    toy.answer_copy = 4; /* neither done nor an error */
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
    device_case_expect_error(convoy_device_wait(device, ticket, DEVICE_CASE_DEADLINE, &is_quiet, &error), CONVOY_SYSTEM, &error,
                             "an answer that is none");
    toy.answer_copy = 0;
    toy.answer_record = -2; /* then the stream is asked */
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
    device_case_expect_error(convoy_device_test(device, ticket, &is_quiet, &error), CONVOY_SYSTEM, &error, "toy says -2");
    assert_true(is_quiet);
    toy.answer_record = 0;
    toy.answer_query = -3;
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
    device_case_expect_error(convoy_device_test(device, ticket, &is_quiet, &error), CONVOY_SYSTEM, &error, "toy says -3");
    assert_false(is_quiet);
    toy.answer_query = 0;
    struct convoy_memory_info info;
    toy.kind = CONVOY_MEMORY_SHARED; /* an answer that was left at zero */
    assert_int_equal(convoy_device_query(device, &word, &info, &error), CONVOY_OK);
    assert_int_equal(info.kind, CONVOY_MEMORY_HOST);
    toy.writes_all = true;
    device_case_expect_error(convoy_device_query(device, &word, &info, &error), CONVOY_SYSTEM, &error, "an answer that is none");
    toy.writes_all = false;
    toy.kind = 5;
    device_case_expect_error(convoy_device_query(device, &word, &info, &error), CONVOY_SYSTEM, &error, "memory of kind 5");
    toy.kind = CONVOY_MEMORY_HOST;
    device_case_expect_error(convoy_device_start(device, &order, &ticket, &error), CONVOY_UNSUPPORTED, &error, "not pinned");
    device_case_expect_error(convoy_device_register(device, &word, 4, CONVOY_REGISTER_READ_ONLY, &error), CONVOY_SYSTEM, &error,
                             "registering host memory: error -5");
    device_case_expect_error(convoy_device_register(device, &word, 4, 2, &error), CONVOY_INVALID_ARGUMENT, &error, "flags 0x2");
    device_case_close(device);
    assert_int_equal(toy.events, 0);
}

/* Without a function to pin, any host memory is as good as pinned. */
static void test_device_table_that_needs_no_pinning(void **state)
{
    (void)state;
    struct toy toy = {.kind = CONVOY_MEMORY_HOST};
    struct convoy_device_table table = table_of(&toy);
    table.register_range = NULL;
    table.unregister_range = NULL;
    table.error_text = NULL;
    struct convoy_device *device = opened(&table);
    uint32_t from = 7;
    uint32_t to = 0;
    const struct convoy_copy_piece piece = {&to, &from, sizeof to};
    const struct convoy_copy_order order = {.pieces = &piece, .count = 1};
    convoy_ticket ticket;
    assert_int_equal(convoy_device_register(device, &to, sizeof to, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_start(device, &order, &ticket, NULL), CONVOY_OK);
    assert_int_equal(convoy_device_wait(device, ticket, DEVICE_CASE_DEADLINE, NULL, NULL), CONVOY_OK);
    assert_int_equal(to, 7);
    assert_int_equal(convoy_device_unregister(device, &to, sizeof to, NULL), CONVOY_OK);
    device_case_close(device);
}

static void test_device_table_refuses_what_is_missing(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        const char *name;
    } rows[] = {
        {offsetof(struct convoy_device_table, query), "toy: query is NULL"},
        {offsetof(struct convoy_device_table, copy), "copy is NULL"},
        {offsetof(struct convoy_device_table, event_create), "event_create is NULL"},
        {offsetof(struct convoy_device_table, event_destroy), "event_destroy is NULL"},
        {offsetof(struct convoy_device_table, event_record), "event_record is NULL"},
        {offsetof(struct convoy_device_table, event_query), "event_query is NULL"},
        {offsetof(struct convoy_device_table, stream_wait), "stream_wait is NULL"},
        {offsetof(struct convoy_device_table, stream_query), "stream_query is NULL"},
        {offsetof(struct convoy_device_table, register_range), "register_range is NULL"},
        {offsetof(struct convoy_device_table, unregister_range), "unregister_range is NULL"},
        {offsetof(struct convoy_device_table, name), "name of 3 bytes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct convoy_device_table table = table_of(NULL);
        struct convoy_error error = CONVOY_ERROR_INIT;
        struct convoy_device *device = NULL;
        memset((char *)&table + rows[i].offset, 0, sizeof(void *));
        device_case_expect_error(convoy_table_open(&table, 0, &device, &error), CONVOY_INVALID_ARGUMENT, &error, rows[i].name);
        assert_null(device);
    }
    struct convoy_device_table table = table_of(NULL);
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_device *device = NULL;
    table.name_length = 32;
    device_case_expect_error(convoy_table_open(&table, 0, &device, &error), CONVOY_INVALID_ARGUMENT, &error, "1 to 31");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_table_copies_with_the_hosts_functions),
        cmocka_unit_test(test_device_table_failures_are_told_in_the_hosts_words),
        cmocka_unit_test(test_device_table_that_needs_no_pinning),
        cmocka_unit_test(test_device_table_refuses_what_is_missing),
    };
    return cmocka_run_group_tests_name("device_table", tests, NULL, NULL);
}
