/* SPDX-License-Identifier: Apache-2.0 */
/* meta-pytorch/torchcomms PR 450, run-ai/runai-model-streamer PR 188: an older or newer side passes a struct of another
 * size, and the other reads or writes past it. Here every sized struct of the ABI, and every array with a stride, in every
 * size, at the edge of a page that nobody may touch. */
#include "tests/abi/guarded.h"
#include "tests/abi/struct_cases.h"

#include "tests/lib/expect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define EXTRA 64u
#define FILL 0xee

/* The good struct with another size; bytes past the current one are `tail`. */
static void place(const struct struct_host *host, const struct struct_case *one, unsigned char *at, size_t bytes,
                  int tail)
{
    size_t known = bytes < one->bytes ? bytes : one->bytes;
    uint32_t size = (uint32_t)bytes;
    (void)memcpy(at, (const char *)host + one->offset, known);
    if (bytes > known) {
        (void)memset(at + known, tail, bytes - known);
    }
    if (!one->is_array) {
        (void)memcpy(at, &size, sizeof size); /* a struct_size of 0 to 3 lies in 4 bytes all the same */
    }
}

static void complain(const struct struct_case *one, size_t index, size_t bytes, const char *what,
                     const struct struct_host *host, int32_t status)
{
    fail_msg("case %zu, %s of %zu bytes: %s; status %d, error %d \"%s\"", index, one->name, bytes, what, status,
             host->error.status, host->error.text);
}

static bool error_says(const struct struct_host *host, const struct struct_case *one, int32_t status, size_t number)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%zu", number);
    return host->error.status == status && strstr(host->error.text, one->name) != NULL &&
           strstr(host->error.text, text) != NULL;
}

/* Bytes to lie at the guard page: structs are aligned, whatever their struct_size says. */
static size_t room_for(size_t bytes)
{
    return bytes < 8 ? 8 : (bytes + 7) / 8 * 8;
}

/* Sizes below that of 1.0: refused as TOO_OLD, with both sizes; nothing is read or written past the given bytes. */
static void check_shorter(struct struct_host *host, size_t index, size_t bytes)
{
    const struct struct_case *one = &struct_cases[index];
    struct guarded guarded;
    unsigned char before[1024];
    size_t room = room_for(bytes);
    unsigned char *at = guarded_create(&guarded, room);
    place(host, one, at, bytes, 0);
    (void)memcpy(before, at, room);
    int32_t status = one->run(host, at, bytes);
    if (status != CONVOY_TOO_OLD || !error_says(host, one, CONVOY_TOO_OLD, bytes)) {
        complain(one, index, bytes, "expected TOO_OLD with name and size", host, status);
    }
    if (memcmp(before, at, room) != 0) {
        complain(one, index, bytes, "the refused struct was written", host, status);
    }
    guarded_destroy(&guarded);
}

static void test_structs_shorter_than_the_first_release_are_refused(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    for (size_t i = 0; i < struct_case_count; i++) {
        for (size_t bytes = 0; bytes < struct_case_first_bytes(&struct_cases[i]); bytes += 4) {
            check_shorter(host, i, bytes);
        }
    }
    struct_host_destroy(host);
}

/* The current size and more, with a tail of zeros (IN) or of anything (OUT, whose tail is nobody's but the caller's). */
static void check_accepted(struct struct_host *host, size_t index, size_t bytes)
{
    const struct struct_case *one = &struct_cases[index];
    struct guarded guarded;
    unsigned char *at = guarded_create(&guarded, bytes);
    int tail = one->is_out ? FILL : 0;
    place(host, one, at, bytes, tail);
    int32_t status = one->run(host, at, bytes);
    if (status != CONVOY_OK) {
        complain(one, index, bytes, "expected OK", host, status);
    }
    for (size_t i = one->bytes; i < bytes; i++) {
        if (at[i] != tail) {
            complain(one, index, bytes, "the tail was written", host, status);
        }
    }
    if (!one->is_array) {
        uint32_t size = 0;
        (void)memcpy(&size, at, sizeof size);
        EXPECT_EQUAL(size, bytes); /* the caller's, to use again */
    }
    guarded_destroy(&guarded);
}

static void test_structs_of_current_and_longer_size_are_accepted(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    for (size_t i = 0; i < struct_case_count; i++) {
        for (size_t extra = 0; extra <= EXTRA; extra += 8) {
            check_accepted(host, i, struct_cases[i].bytes + extra);
        }
    }
    struct_host_destroy(host);
}

/* A host that was built with an earlier release has structs that end where they ended then, or at any minor since. */
static void test_structs_as_long_as_in_an_earlier_release_are_accepted(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    size_t grown = 0;
    for (size_t i = 0; i < struct_case_count; i++) {
        const struct struct_case *one = &struct_cases[i];
        size_t bytes = struct_case_first_bytes(one);
        grown += bytes < one->bytes;
        for (; bytes < one->bytes; bytes += 8) {
            check_accepted(host, i, bytes);
        }
    }
    assert_int_equal(grown, 4); /* stage, send, engine_info, payload */
    struct_host_destroy(host);
}

/* A tail that is not zero means something that this build does not know: refused, and the text says where it is. */
static void test_structs_with_an_unknown_tail_are_refused_by_offset(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    for (size_t i = 0; i < struct_case_count; i++) {
        const struct struct_case *one = &struct_cases[i];
        for (size_t where = one->bytes; !one->is_out && where < one->bytes + EXTRA; where += 21) {
            struct guarded guarded;
            unsigned char *at = guarded_create(&guarded, one->bytes + EXTRA);
            place(host, one, at, one->bytes + EXTRA, 0);
            at[where] = 1;
            int32_t status = one->run(host, at, one->bytes + EXTRA);
            if (status != CONVOY_TOO_NEW || !error_says(host, one, CONVOY_TOO_NEW, where)) {
                complain(one, i, one->bytes + EXTRA, "expected TOO_NEW with the offset", host, status);
            }
            guarded_destroy(&guarded);
        }
    }
    struct_host_destroy(host);
}

/* A size that nobody has set: refused with the number, for IN and OUT alike; nothing behind the struct is read. */
static void check_garbage(struct struct_host *host, size_t index, uint32_t size)
{
    const struct struct_case *one = &struct_cases[index];
    struct guarded guarded;
    unsigned char before[1024];
    size_t room = room_for(one->bytes);
    unsigned char *at = guarded_create(&guarded, room);
    place(host, one, at, one->bytes, 0);
    if (!one->is_array) {
        (void)memcpy(at, &size, sizeof size);
    }
    (void)memcpy(before, at, room);
    int32_t status = one->run(host, at, size);
    if (status != CONVOY_INVALID_ARGUMENT || !error_says(host, one, CONVOY_INVALID_ARGUMENT, size) ||
        !error_says(host, one, CONVOY_INVALID_ARGUMENT, 65536)) {
        complain(one, index, size, "expected INVALID_ARGUMENT with name, size and range", host, status);
    }
    if (memcmp(before, at, room) != 0) {
        complain(one, index, size, "the refused struct was written", host, status);
    }
    guarded_destroy(&guarded);
}

static void test_structs_with_a_size_of_garbage_are_refused_by_value(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {65537, 0x20202020u, 0xdeadbeefu, UINT32_MAX};
    struct struct_host *host = struct_host_create();
    for (size_t i = 0; i < struct_case_count; i++) {
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
            check_garbage(host, i, sizes[j]);
        }
    }
    struct_host_destroy(host);
}

/* written_bytes of an OUT struct: what was written, and the same for a caller with a longer one. */
static void test_structs_out_say_how_much_was_written(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    for (size_t i = 0; i < struct_case_count; i++) {
        const struct struct_case *one = &struct_cases[i];
        bool is_filled_on_ok = strcmp(one->name, "report") != 0 || one->offset != offsetof(struct struct_host, calls.report);
        if (!one->is_out || one->is_array || !is_filled_on_ok) {
            continue;
        }
        for (size_t extra = 0; extra <= EXTRA; extra += EXTRA) {
            _Alignas(8) unsigned char bytes[1024];
            uint32_t written = 0;
            place(host, one, bytes, one->bytes + extra, FILL);
            EXPECT_OK(one->run(host, bytes, one->bytes + extra), &host->error);
            (void)memcpy(&written, bytes + sizeof written, sizeof written);
            if (written != one->bytes) {
                complain(one, i, one->bytes + extra, "written_bytes is not the current size", host, (int32_t)written);
            }
        }
    }
    struct_host_destroy(host);
}

/* The error of a failing call: written as far as it reaches, whatever its size, and always terminated. */
static void test_structs_error_of_any_size_is_filled_as_far_as_it_reaches(void **state)
{
    (void)state;
    struct struct_host *host = struct_host_create();
    for (size_t bytes = 0; bytes <= sizeof(struct convoy_error) + EXTRA; bytes += 4) {
        struct guarded guarded;
        unsigned char *at = guarded_create(&guarded, room_for(bytes));
        uint32_t size = (uint32_t)bytes;
        (void)memcpy(at, &size, sizeof size);
        EXPECT_EQUAL(host->calls.plugin.core->group_info(host->calls.group, NULL, (struct convoy_error *)(void *)at),
                     CONVOY_INVALID_ARGUMENT);
        struct convoy_error error = {0};
        (void)memcpy(&error, at, bytes < sizeof error ? bytes : sizeof error);
        EXPECT_EQUAL(error.struct_size, bytes);
        if (bytes >= offsetof(struct convoy_error, rank)) {
            EXPECT_EQUAL(error.status, CONVOY_INVALID_ARGUMENT);
            EXPECT_EQUAL(error.written_bytes, bytes < sizeof error ? bytes : sizeof error);
        }
        if (bytes > offsetof(struct convoy_error, text) + 16) {
            EXPECT_BYTES(error.text, "group_info", 10);
            EXPECT(memchr(error.text, 0, sizeof error.text) != NULL);
        }
        for (size_t i = sizeof error; i < bytes; i++) {
            EXPECT_EQUAL(at[i], FILL);
        }
        guarded_destroy(&guarded);
    }
    struct_host_destroy(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structs_shorter_than_the_first_release_are_refused),
        cmocka_unit_test(test_structs_of_current_and_longer_size_are_accepted),
        cmocka_unit_test(test_structs_as_long_as_in_an_earlier_release_are_accepted),
        cmocka_unit_test(test_structs_with_an_unknown_tail_are_refused_by_offset),
        cmocka_unit_test(test_structs_with_a_size_of_garbage_are_refused_by_value),
        cmocka_unit_test(test_structs_out_say_how_much_was_written),
        cmocka_unit_test(test_structs_error_of_any_size_is_filled_as_far_as_it_reaches),
    };
    return cmocka_run_group_tests_name("structs", tests, NULL, NULL);
}
