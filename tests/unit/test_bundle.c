/* SPDX-License-Identifier: Apache-2.0 */
/* A bundle: what is put comes back, what is unknown is dropped or refused, what is damaged is never believed. */
#include "core/bundle.h"

#include "core/bytes.h"
#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct thing {
    uint64_t wide;
    uint32_t narrow;
    uint8_t flag;
    char name[16];
};

static const struct convoy_bundle_field thing_fields[] = {
    CONVOY_BUNDLE_FIELD(1, struct thing, wide),
    CONVOY_BUNDLE_FIELD(2, struct thing, narrow),
    CONVOY_BUNDLE_FIELD(3, struct thing, flag),
    CONVOY_BUNDLE_FIELD_FLAGS(4, struct thing, name, CONVOY_BUNDLE_CRITICAL),
};
static const struct convoy_bundle_shape thing_shape = {.name = "thing", .fields = thing_fields, .count = 4};
/* What an older build knows of it. */
static const struct convoy_bundle_shape first_two = {.name = "thing", .fields = thing_fields, .count = 2};

/* What is a number to the writer and a truth value to the reader. */
struct answer {
    bool is_so;
    bool all[2];
    _Atomic bool is_shared;
};

struct numbers {
    uint8_t one;
    uint8_t two[2];
    uint8_t shared;
};

static const struct convoy_bundle_field answer_fields[] = {
    CONVOY_BUNDLE_FIELD(1, struct answer, is_so),
    CONVOY_BUNDLE_FIELD(2, struct answer, all),
    CONVOY_BUNDLE_FIELD(3, struct answer, is_shared),
};
static const struct convoy_bundle_shape answer_shape = {.name = "answer", .fields = answer_fields, .count = 3};
static const struct convoy_bundle_field number_fields[] = {
    CONVOY_BUNDLE_FIELD(1, struct numbers, one),
    CONVOY_BUNDLE_FIELD(2, struct numbers, two),
    CONVOY_BUNDLE_FIELD(3, struct numbers, shared),
};
static const struct convoy_bundle_shape number_shape = {.name = "answer", .fields = number_fields, .count = 3};

static const struct thing full = {.wide = UINT64_C(0x1122334455667788), .narrow = 7, .flag = 1, .name = "convoy"};

static void write_thing(struct convoy_bundle_writer *writer, const struct thing *thing)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_bundle_begin(writer);
    size_t opened = convoy_bundle_open(writer, 9, 0);
    convoy_bundle_put_fields(writer, &thing_shape, thing);
    convoy_bundle_shut(writer, opened);
    assert_int_equal(convoy_bundle_end(writer, &error), CONVOY_OK);
}

/* The fields of the only item of a bundle, read by a shape. */
static int32_t read_thing(const struct convoy_bundle_writer *writer, const struct convoy_bundle_shape *shape,
                          struct thing *thing_out, struct convoy_error *error)
{
    struct convoy_bundle_reader reader;
    struct convoy_bundle_item item;
    memset(thing_out, 0, sizeof *thing_out);
    int32_t status = convoy_bundle_read(writer->data, writer->used, &reader, error);
    if (status != CONVOY_OK) {
        return status;
    }
    assert_true(convoy_bundle_next(&reader, &item));
    assert_int_equal(item.tag, 9);
    struct convoy_bundle_reader inside = convoy_bundle_inside(&item);
    assert_true(convoy_bundle_next(&inside, &item));
    assert_int_equal(item.tag, CONVOY_BUNDLE_FIELDS);
    assert_false(convoy_bundle_next(&inside, &(struct convoy_bundle_item){0}));
    assert_false(convoy_bundle_next(&reader, &(struct convoy_bundle_item){0}));
    return convoy_bundle_get_fields(&item, shape, thing_out, error);
}

static void test_bundle_gives_back_what_was_put(void **state)
{
    (void)state;
    struct convoy_bundle_writer writer = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct thing thing;
    write_thing(&writer, &full);
    assert_int_equal(writer.used % 8, 0);
    assert_int_equal(read_thing(&writer, &thing_shape, &thing, &error), CONVOY_OK);
    assert_true(thing.wide == full.wide && thing.narrow == 7 && thing.flag == 1);
    assert_string_equal(thing.name, "convoy");
    convoy_bundle_free(&writer);
    assert_null(writer.data);
}

/* Zero is what a reader assumes, so it is not written. */
static void test_bundle_of_zeros_is_short(void **state)
{
    (void)state;
    struct convoy_bundle_writer writer = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct thing thing;
    write_thing(&writer, &(struct thing){0});
    assert_int_equal(writer.used, 32 + 8 + 8);
    assert_int_equal(read_thing(&writer, &thing_shape, &thing, &error), CONVOY_OK);
    assert_true(thing.wide == 0 && thing.name[0] == '\0');
    convoy_bundle_free(&writer);
}

static void test_bundle_reader_drops_what_it_does_not_know(void **state)
{
    (void)state;
    struct convoy_bundle_writer writer = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct thing thing = full;
    memset(thing.name, 0, sizeof thing.name);
    write_thing(&writer, &thing);
    assert_int_equal(read_thing(&writer, &first_two, &thing, &error), CONVOY_OK);
    assert_true(thing.wide == full.wide && thing.narrow == 7 && thing.flag == 0);
    convoy_bundle_free(&writer);
}

static void test_bundle_reader_refuses_a_critical_tag_that_it_does_not_know(void **state)
{
    (void)state;
    struct convoy_bundle_writer writer = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct thing thing;
    write_thing(&writer, &full);
    assert_int_equal(read_thing(&writer, &first_two, &thing, &error), CONVOY_TOO_NEW);
    assert_non_null(strstr(error.text, "item 4 of thing"));
    convoy_bundle_free(&writer);
}

/* The same tag with another length: of a build whose field is longer or shorter. */
static void put_wide(struct convoy_bundle_writer *writer, const void *data, size_t bytes)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_bundle_begin(writer);
    size_t opened = convoy_bundle_open(writer, 9, 0);
    size_t fields = convoy_bundle_open(writer, CONVOY_BUNDLE_FIELDS, 0);
    convoy_bundle_put(writer, 1, 0, data, bytes);
    convoy_bundle_shut(writer, fields);
    convoy_bundle_shut(writer, opened);
    assert_int_equal(convoy_bundle_end(writer, &error), CONVOY_OK);
}

static void test_bundle_field_of_another_length_is_filled_up_or_refused(void **state)
{
    (void)state;
    static const uint8_t data[16] = {1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9};
    const struct {
        size_t bytes;
        int32_t status;
        uint64_t wide;
    } cases[] = {{0, CONVOY_OK, 0},
                 {1, CONVOY_OK, 1},
                 {4, CONVOY_OK, 0x04030201},
                 {8, CONVOY_OK, UINT64_C(0x0807060504030201)},
                 {15, CONVOY_OK, UINT64_C(0x0807060504030201)},
                 {16, CONVOY_TOO_NEW, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct convoy_bundle_writer writer = {0};
        struct convoy_error error = CONVOY_ERROR_INIT;
        struct thing thing;
        put_wide(&writer, data, cases[i].bytes);
        assert_int_equal(read_thing(&writer, &thing_shape, &thing, &error), cases[i].status);
        assert_true(thing.wide == cases[i].wide);
        convoy_bundle_free(&writer);
    }
}

static void fix_digest(uint8_t *data, size_t bytes)
{
    convoy_bytes_put_u64(data + 16, XXH3_64bits(data + 24, bytes - 24));
}

/* Every byte, each bit: refused, whatever it is. */
static void test_bundle_of_damaged_bytes_is_malformed(void **state)
{
    (void)state;
    struct convoy_bundle_writer writer = {0};
    struct thing thing;
    write_thing(&writer, &full);
    for (size_t at = 0; at < writer.used; at++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        if (at == 6 || at == 7) { /* not used */
            continue;
        }
        writer.data[at] ^= 0x10;
        int32_t status = read_thing(&writer, &thing_shape, &thing, &error);
        assert_true(status == CONVOY_MALFORMED || (status == CONVOY_VERSION_MISMATCH && (at == 4 || at == 5)));
        writer.data[at] ^= 0x10;
    }
    for (size_t cut = 0; cut < writer.used; cut++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        struct convoy_bundle_reader reader;
        assert_int_equal(convoy_bundle_read(writer.data, cut, &reader, &error), CONVOY_MALFORMED);
    }
    convoy_bundle_free(&writer);
}

/* The same with the digest set right: whatever comes of it, nothing beyond the bytes is looked at (a sanitizer watches). */
static void test_bundle_reader_stays_inside(void **state)
{
    (void)state;
    struct convoy_bundle_writer writer = {0};
    write_thing(&writer, &full);
    for (size_t at = 32; at < writer.used; at++) {
        for (unsigned value = 0; value < 256; value += 5) {
            struct convoy_error error = CONVOY_ERROR_INIT;
            struct convoy_bundle_reader reader;
            struct convoy_bundle_item item;
            struct thing thing = {0};
            uint8_t *copy = malloc(writer.used);
            assert_non_null(copy);
            memcpy(copy, writer.data, writer.used);
            copy[at] = (uint8_t)value;
            fix_digest(copy, writer.used);
            assert_int_equal(convoy_bundle_read(copy, writer.used, &reader, &error), CONVOY_OK);
            while (convoy_bundle_next(&reader, &item)) {
                struct convoy_bundle_reader inside = convoy_bundle_inside(&item);
                while (convoy_bundle_next(&inside, &item)) {
                    (void)convoy_bundle_get_fields(&item, &thing_shape, &thing, &error);
                }
            }
            free(copy);
        }
    }
    convoy_bundle_free(&writer);
}

static void test_bundle_of_another_process_is_refused(void **state)
{
    (void)state;
    struct convoy_bundle_writer writer = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_bundle_reader reader;
    write_thing(&writer, &full);
    writer.data[24] ^= 1;
    fix_digest(writer.data, writer.used);
    assert_int_equal(convoy_bundle_read(writer.data, writer.used, &reader, &error), CONVOY_INVALID_ARGUMENT);
    convoy_bundle_free(&writer);
}

static void test_bundle_grows_over_many_items(void **state)
{
    (void)state;
    struct convoy_bundle_writer writer = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_bundle_reader reader;
    struct convoy_bundle_item item;
    uint64_t count = 0;
    convoy_bundle_begin(&writer);
    for (uint64_t i = 0; i < 5000; i++) {
        convoy_bundle_put_u64(&writer, (uint16_t)(i + 1), i);
    }
    assert_int_equal(convoy_bundle_end(&writer, &error), CONVOY_OK);
    assert_int_equal(convoy_bundle_read(writer.data, writer.used, &reader, &error), CONVOY_OK);
    while (convoy_bundle_next(&reader, &item)) {
        assert_int_equal(item.tag, count + 1);
        assert_true(convoy_bundle_u64(&item) == count);
        count++;
    }
    assert_int_equal(count, 5000);
    assert_int_equal(convoy_bundle_done(&reader, "it", &error), CONVOY_OK);
    convoy_bundle_free(&writer);
}

static void test_bundle_format_that_nobody_writes_any_more_is_unsupported(void **state)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)state;
    assert_int_equal(convoy_bundle_check_format(0, 3, &error), CONVOY_OK);
    assert_int_equal(convoy_bundle_check_format(3, 3, &error), CONVOY_OK);
    assert_int_equal(convoy_bundle_check_format(UINT32_MAX, 3, &error), CONVOY_OK);
    assert_int_equal(convoy_bundle_check_format(2, 3, &error), CONVOY_UNSUPPORTED);
    assert_string_equal(error.text, "the importer reads exported states up to format 2, this build writes them from format 3 on");
}

static int32_t read_answer(const struct numbers *numbers, struct answer *answer_out, struct convoy_error *error)
{
    struct convoy_bundle_writer writer = {0};
    struct convoy_bundle_reader reader;
    struct convoy_bundle_item item;
    convoy_bundle_begin(&writer);
    convoy_bundle_put_fields(&writer, &number_shape, numbers);
    assert_int_equal(convoy_bundle_end(&writer, error), CONVOY_OK);
    assert_int_equal(convoy_bundle_read(writer.data, writer.used, &reader, error), CONVOY_OK);
    assert_true(convoy_bundle_next(&reader, &item));
    int32_t status = convoy_bundle_get_fields(&item, &answer_shape, answer_out, error);
    convoy_bundle_free(&writer);
    return status;
}

static void test_bundle_truth_value_that_is_neither_is_malformed(void **state)
{
    (void)state;
    static const struct numbers wrong[] = {{.one = 2}, {.two = {0, 65}}, {.shared = 255}};
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct answer answer = {.is_so = false};
    assert_int_equal(read_answer(&(struct numbers){1, {0, 1}, 1}, &answer, &error), CONVOY_OK);
    assert_true(answer.is_so && !answer.all[0] && answer.all[1] && answer.is_shared);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(read_answer(&wrong[i], &answer, &error), CONVOY_MALFORMED);
        assert_non_null(strstr(error.text, "neither true nor false"));
    }
}

/* Whatever was in that memory before, and from the first byte on that it lacks: the same bundle. */
static void test_bundle_in_lent_memory_is_the_same(void **state)
{
    (void)state;
    struct convoy_bundle_writer own = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    write_thing(&own, &full);
    for (size_t room = 0; room <= own.used + 64; room++) {
        _Alignas(8) uint8_t memory[1024];
        struct convoy_bundle_writer writer = {0};
        assert_true(own.used + 64 < sizeof memory);
        memset(memory, 0xa5, sizeof memory);
        convoy_bundle_lend(&writer, memory, room);
        write_thing(&writer, &full);
        assert_int_equal(writer.used, own.used);
        assert_memory_equal(writer.data, own.data, own.used);
        for (size_t i = room; i < sizeof memory; i++) {
            assert_int_equal(memory[i], 0xa5);
        }
        convoy_bundle_free(&writer);
        assert_null(writer.data);
    }
    struct convoy_bundle_writer odd = {0};
    _Alignas(8) uint8_t few[16];
    convoy_bundle_lend(&odd, few + 1, 8); /* not aligned, or not there: not taken */
    convoy_bundle_lend(&odd, NULL, 8);
    assert_true(odd.data == NULL && odd.room == 0);
    assert_int_equal(convoy_bundle_end(&own, &error), CONVOY_OK);
    convoy_bundle_free(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundle_gives_back_what_was_put),
        cmocka_unit_test(test_bundle_of_zeros_is_short),
        cmocka_unit_test(test_bundle_reader_drops_what_it_does_not_know),
        cmocka_unit_test(test_bundle_reader_refuses_a_critical_tag_that_it_does_not_know),
        cmocka_unit_test(test_bundle_field_of_another_length_is_filled_up_or_refused),
        cmocka_unit_test(test_bundle_of_damaged_bytes_is_malformed),
        cmocka_unit_test(test_bundle_reader_stays_inside),
        cmocka_unit_test(test_bundle_truth_value_that_is_neither_is_malformed),
        cmocka_unit_test(test_bundle_of_another_process_is_refused),
        cmocka_unit_test(test_bundle_grows_over_many_items),
        cmocka_unit_test(test_bundle_in_lent_memory_is_the_same),
        cmocka_unit_test(test_bundle_format_that_nobody_writes_any_more_is_unsupported),
    };
    return cmocka_run_group_tests_name("test_bundle", tests, NULL, NULL);
}
