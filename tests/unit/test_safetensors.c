/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/safetensors.h"
#include "core/error.h"
#include "core/memory.h"
#include "safetensors_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct fixture {
    char path[64];
    struct convoy_safetensors file;
    struct convoy_error error;
};

static int setup(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){.error = CONVOY_ERROR_INIT};
    (void)snprintf(fixture.path, sizeof fixture.path, "/tmp/convoy_safetensors_XXXXXX");
    int fd = mkstemp(fixture.path);
    *state = &fixture;
    return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    convoy_safetensors_fini(&fixture->file);
    return unlink(fixture->path);
}

static void expect_text(const struct fixture *fixture, const char *part)
{
    if (strstr(fixture->error.text, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", fixture->error.text, part);
    }
}

static void refuse(struct fixture *fixture, const uint8_t *bytes, size_t length, const char *reason)
{
    if (convoy_safetensors_parse(&fixture->file, "x.st", bytes, length, &fixture->error) != CONVOY_MALFORMED) {
        fail_msg("\"%s\" was not refused as malformed", reason);
    }
    assert_ptr_equal(strstr(fixture->error.text, "x.st: "), fixture->error.text);
    expect_text(fixture, reason);
    assert_null(fixture->file.tensors);
}

/* -- what is read -------------------------------------------------------------------------------------------------- */

#define PLAIN                                                                                                          \
    "{\"__metadata__\":{\"format\":\"pt\",\"\":\"\\u00e9\"},"                                                          \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[3,11],\"more\":[{}]},"                                 \
    "\"a.0\":{\"shape\":[3],\"data_offsets\":[0,3],\"dtype\":\"BOOL\"},"                                               \
    "\"scalar\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[11,13]},"                                           \
    "\"none\":{\"dtype\":\"F64\",\"shape\":[0,16],\"data_offsets\":[11,11]},"                                          \
    "\"odd\":{\"dtype\":\"Q4\",\"shape\":[7,7],\"data_offsets\":[13,18]}}   "

static void expect_tensor(const struct convoy_safetensors *file, const char *name, const char *what, uint8_t first,
                          uint64_t bytes)
{
    char shape[CONVOY_SAFETENSORS_SHAPE_TEXT_BYTES];
    char text[128];
    const struct convoy_safetensor *tensor = convoy_safetensors_find(file, name);
    assert_non_null(tensor);
    assert_string_equal(tensor->name, name);
    (void)snprintf(text, sizeof text, "%s %s", tensor->dtype, convoy_safetensors_shape_text(tensor, shape));
    assert_string_equal(text, what);
    assert_int_equal(tensor->bytes, bytes);
    assert_true(bytes == 0 || tensor->data[0] == first);
}

static void expect_plain(const struct convoy_safetensors *file)
{
    static const char *const order[] = {"b", "a.0", "scalar", "none", "odd"};
    assert_int_equal(file->count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(file->tensors[i].name, order[i]);
    }
    expect_tensor(file, "b", "F32 [1,2]", 3, 8);
    expect_tensor(file, "a.0", "BOOL [3]", 0, 3);
    expect_tensor(file, "scalar", "BF16 []", 11, 2);
    expect_tensor(file, "none", "F64 [0,16]", 0, 0);
    expect_tensor(file, "odd", "Q4 [7,7]", 13, 5);
    assert_null(convoy_safetensors_find(file, "a"));
    assert_null(convoy_safetensors_find(file, "__metadata__"));
    assert_int_equal(file->metadata_count, 2);
    assert_string_equal(file->metadata[0].key, "format");
    assert_string_equal(file->metadata[0].value, "pt");
    assert_string_equal(file->metadata[1].value, "\xc3\xa9");
}

static void test_safetensors_header_order_padding_and_unknown_keys_are_read(void **state)
{
    struct fixture *fixture = *state;
    size_t length = 0;
    uint8_t *bytes = safetensors_file(PLAIN, 18, &length);
    assert_int_equal(convoy_safetensors_parse(&fixture->file, "x", bytes, length, &fixture->error), CONVOY_OK);
    expect_plain(&fixture->file);
    assert_null(fixture->file.file);
    convoy_safetensors_fini(&fixture->file);
    free(bytes);
}

static void test_safetensors_file_is_read_into_memory_of_its_own(void **state)
{
    struct fixture *fixture = *state;
    size_t length = 0;
    uint8_t *bytes = safetensors_file(PLAIN, 18, &length);
    FILE *file = fopen(fixture->path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    free(bytes);
    assert_int_equal(convoy_safetensors_read(&fixture->file, fixture->path, &fixture->error), CONVOY_OK);
    assert_int_equal(truncate(fixture->path, 0), 0); /* cut short while in use: nothing happens */
    expect_plain(&fixture->file);
}

static void test_safetensors_no_tensors_are_a_file(void **state)
{
    struct fixture *fixture = *state;
    static const char *const headers[] = {"{}", "{  }\n", "{\"__metadata__\":{}}"};
    for (size_t i = 0; i < 3; i++) {
        size_t length = 0;
        uint8_t *bytes = safetensors_file(headers[i], 0, &length);
        assert_int_equal(convoy_safetensors_parse(&fixture->file, "x", bytes, length, &fixture->error), CONVOY_OK);
        assert_int_equal(fixture->file.count + fixture->file.metadata_count, 0);
        assert_null(convoy_safetensors_find(&fixture->file, ""));
        convoy_safetensors_fini(&fixture->file);
        free(bytes);
    }
}

static void test_safetensors_bits_of_every_dtype(void **state)
{
    (void)state;
    static const struct {
        uint32_t bits;
        const char *names; /* each ends in a blank */
    } cases[] = {
        {4, "F4 "},
        {6, "F6_E2M3 F6_E3M2 "},
        {8, "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 "},
        {16, "I16 U16 F16 BF16 "},
        {32, "I32 U32 F32 "},
        {64, "F64 I64 U64 C64 "},
        {0, "f32 F128 F3 F322 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (const char *at = cases[i].names; *at != '\0'; at = strchr(at, ' ') + 1) {
            char name[16] = {0};
            memcpy(name, at, (size_t)(strchr(at, ' ') - at));
            assert_int_equal(convoy_safetensors_dtype_bits(name), cases[i].bits);
        }
    }
    assert_int_equal(convoy_safetensors_dtype_bits(""), 0);
}

/* dtype, shape and bytes of one tensor: accepted, or why not. */
static void test_safetensors_size_must_be_what_dtype_and_shape_say(void **state)
{
    static const struct {
        const char *dtype;
        const char *shape;
        size_t bytes;
        const char *reason; /* NULL: accepted */
    } cases[] = {
        {"F16", "1,77", 154, NULL},
        {"F16", "1,77", 153, "shape [1,77] of F16 is 154 bytes, its data 153"},
        {"F32", "", 4, NULL},
        {"F32", "", 0, "shape [] of F32 is 4 bytes, its data 0"},
        {"F32", "0", 4, "shape [0] of F32 is 0 bytes, its data 4"},
        {"F4", "2,3", 3, NULL},
        {"F4", "3", 2, "shape [3] of F4 is 12 bits, no whole bytes"},
        {"F6_E2M3", "4", 3, NULL},
        {"F6_E3M2", "5", 4, "shape [5] of F6_E3M2 is 30 bits, no whole bytes"},
        {"C64", "3", 24, NULL},
        {"F8_E8M0", "3", 3, NULL},
        {"made_up", "1000", 7, NULL},
        {"0123456789012345678901234567890123456789012345678901234567890__", "1", 1, NULL},
        {"U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", 1, NULL},
        {"U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", 1, "shape has 17 numbers (must be up to 16)"},
        {"F64", "4294967296,536870912", 8, "of F64 is more than 64 bits count"},
        {"made_up", "4294967296,4294967296", 8, "of made_up is more than 64 bits count"},
        {"F32", "4294967296,4294967296,0", 0, "of F32 is more than 64 bits count"},
        {"F32", "0,9223372036854775807", 0, NULL},
        {"F32", "9223372036854775808", 0, "not JSON: too big integer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *fixture = *state;
        char header[400];
        size_t length = 0;
        (void)snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[0,%zu]}}",
                       cases[i].dtype, cases[i].shape, cases[i].bytes);
        uint8_t *bytes = safetensors_file(header, cases[i].bytes, &length);
        if (cases[i].reason != NULL) {
            refuse(fixture, bytes, length, cases[i].reason);
        } else {
            assert_int_equal(convoy_safetensors_parse(&fixture->file, "x", bytes, length, NULL), CONVOY_OK);
            assert_string_equal(fixture->file.tensors[0].dtype, cases[i].dtype);
            convoy_safetensors_fini(&fixture->file);
        }
        free(bytes);
    }
}

/* -- what is refused ----------------------------------------------------------------------------------------------- */

static void test_safetensors_bad_length_is_refused(void **state)
{
    static const struct {
        uint64_t header_bytes;
        size_t length; /* of the file */
        const char *reason;
    } cases[] = {
        {0, 0, "has 0 bytes, not even the 8"},
        {0, 7, "has 7 bytes, not even the 8"},
        {0, 8, "header of 0 bytes does not start with '{'"},
        {1, 8, "header length is 1, the file has 0 bytes after it"},
        {100000000, 32, "header length is 100000000, the file has 24 bytes after it"},
        {100000001, 32, "header length is 100000001 (must be up to 100000000)"},
        {UINT64_MAX, 32, "header length is 18446744073709551615 (must be up to 100000000)"},
        {UINT64_MAX - 7, 32, "header length is 18446744073709551608"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t number[8];
        uint8_t *bytes = calloc(1, cases[i].length + 1);
        assert_non_null(bytes);
        convoy_bytes_put_u64(number, cases[i].header_bytes);
        memcpy(bytes, number, cases[i].length < 8 ? cases[i].length : 8);
        refuse(*state, bytes, cases[i].length, cases[i].reason);
        free(bytes);
    }
}

#define U8(shape, begin, end) "{\"dtype\":\"U8\",\"shape\":[" #shape "],\"data_offsets\":[" #begin "," #end "]}"

static void test_safetensors_bad_header_is_refused_with_tensor_and_figure(void **state)
{
    static const struct {
        const char *header;
        const char *reason; /* of a file with 8 bytes of data */
    } cases[] = {
        {" {}", "does not start with '{'"},
        {"[]", "does not start with '{'"},
        {"{", "header is not JSON"},
        {"{}{}", "header is not JSON: end of file expected near '{' (byte 3)"},
        {"{\"a\":}", "header is not JSON: unexpected token near '}'"},
        {"{\"a\xff\":1}", "header is not JSON: unable to decode byte 0xff"},
        {"{\"a\\u0000\":1}", "header is not JSON"},
        {"{\"a\":" U8(8, 0, 8) ",\"a\":" U8(8, 0, 8) "}", "header is not JSON: duplicate object key"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", "duplicate object key"},
        {"{\"a\":NaN}", "header is not JSON"},
        {"{\"__metadata__\":[]}", "\"__metadata__\" is no object of strings"},
        {"{\"__metadata__\":{\"k\":1}}", "\"__metadata__\": \"k\" is no string"},
        {"{\"a\":[]}", "tensor \"a\": is no object"},
        {"{\"a\":{}}", "tensor \"a\": dtype is missing"},
        {"{\"a\":{\"dtype\":8}}", "tensor \"a\": dtype is no string"},
        {"{\"a\":{\"dtype\":\"\"}}", "tensor \"a\": dtype has 0 bytes (must be 1 to 63)"},
        {"{\"a\":{\"dtype\":\"0123456789012345678901234567890123456789012345678901234567890123\"}}",
         "tensor \"a\": dtype has 64 bytes (must be 1 to 63)"},
        {"{\"a\":{\"dtype\":\"U8\"}}", "tensor \"a\": shape is missing"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":8}}", "tensor \"a\": shape is no array"},
        {"{\"a\":" U8(-8, 0, 8) "}", "tensor \"a\": shape has -8 (must not be negative)"},
        {"{\"a\":" U8(8.0, 0, 8) "}", "tensor \"a\": shape has the float 8 (must be an integer)"},
        {"{\"a\":" U8(1e1, 0, 8) "}", "tensor \"a\": shape has the float 10 (must be an integer)"},
        {"{\"a\":" U8("8", 0, 8) "}", "tensor \"a\": shape has what is no number"},
        {"{\"a\":" U8(null, 0, 8) "}", "tensor \"a\": shape has what is no number"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8]}}", "tensor \"a\": data_offsets is missing"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0]}}",
         "tensor \"a\": data_offsets has 1 numbers (must be 2)"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8,8]}}",
         "tensor \"a\": data_offsets has 3 numbers (must be up to 2)"},
        {"{\"a\":" U8(8, true, 8) "}", "tensor \"a\": data_offsets has what is no number"},
        {"{\"a\":" U8(8, -1, 8) "}", "tensor \"a\": data_offsets has -1 (must not be negative)"},
        {"{\"a\":" U8(8, 0, 8.5) "}", "tensor \"a\": data_offsets has the float 8.5 (must be an integer)"},
        {"{\"a\":" U8(1, 8, 7) "}", "tensor \"a\": begins at 8 and ends before, at 7"},
        {"{\"a\":" U8(9, 0, 9) "}", "tensor \"a\": ends at 9, the data at 8"},
        {"{\"a\":" U8(8, 0, 9223372036854775807) "}", "ends at 9223372036854775807, the data at 8"},
        {"{\"a\":" U8(4, 0, 4) ",\"b\":" U8(5, 3, 8) "}", "tensor \"b\": begins at 3, inside \"a\", which ends at 4"},
        {"{\"a\":" U8(8, 0, 8) ",\"b\":" U8(8, 0, 8) "}", "tensor \"b\": begins at 0, inside \"a\", which ends at 8"},
        {"{\"a\":" U8(8, 0, 8) ",\"b\":" U8(0, 4, 4) "}", "tensor \"b\": begins at 4, inside \"a\", which ends at 8"},
        {"{\"a\":" U8(4, 4, 8) "}", "tensor \"a\": begins at 4, a hole of 4 bytes is before it"},
        {"{\"b\":" U8(3, 5, 8) ",\"a\":" U8(4, 0, 4) "}", "tensor \"b\": begins at 5, a hole of 1 bytes is before it"},
        {"{\"a\":" U8(7, 0, 7) "}", "tensors end at 7, 1 bytes are behind them"},
        {"{}", "tensors end at 0, 8 bytes are behind them"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t length = 0;
        uint8_t *bytes = safetensors_file(cases[i].header, 8, &length);
        refuse(*state, bytes, length, cases[i].reason);
        free(bytes);
    }
}

/* Strings hold no values, whatever is in them; escapes do not end them early. */
static void test_safetensors_values_are_counted_outside_of_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t count;
    } cases[] = {{"", 0}, {"{}", 1}, {"{\"[,:{\":[1,2]}", 4}, {"{\"\\\"[\":1}", 2}, {"{\"\\\\\":[1]}", 3}, {"\"\\", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(convoy_safetensors_values(cases[i].text, strlen(cases[i].text)), cases[i].count);
    }
}

static void test_safetensors_too_many_values_are_refused_before_they_are_read(void **state)
{
    size_t length = 0;
    char *header = malloc(2 * CONVOY_SAFETENSORS_VALUES_MAX + 16);
    assert_non_null(header);
    char *at = stpcpy(header, "{\"a\":[0");
    for (size_t i = 0; i < CONVOY_SAFETENSORS_VALUES_MAX; i++) {
        at = stpcpy(at, ",0");
    }
    uint8_t *bytes = safetensors_file(header, 0, &length); /* not JSON either, which would be told if it were read */
    refuse(*state, bytes, length, "header has 4194307 values (must be up to 4194304)");
    free(bytes);
    free(header);
}

static void test_safetensors_too_deep_header_is_refused(void **state)
{
    size_t length = 0;
    char header[6000] = "{\"a\":";
    memset(header + strlen(header), '[', 5000);
    uint8_t *bytes = safetensors_file(header, 0, &length);
    refuse(*state, bytes, length, "header is not JSON: maximum parsing depth reached");
    free(bytes);
}

/* -- files --------------------------------------------------------------------------------------------------------- */

static void expect_read(struct fixture *fixture, const char *path, int32_t status, const char *part)
{
    assert_int_equal(convoy_safetensors_read(&fixture->file, path, &fixture->error), status);
    expect_text(fixture, path);
    expect_text(fixture, part);
    assert_null(fixture->file.file);
}

static void test_safetensors_what_is_no_file_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char fifo[80];
    (void)snprintf(fifo, sizeof fifo, "%s.fifo", fixture->path);
    expect_read(fixture, "/nowhere/at/all", CONVOY_NOT_FOUND, "opening /nowhere/at/all: No such file");
    expect_read(fixture, "/dev/null/x", CONVOY_SYSTEM, "Not a directory");
    expect_read(fixture, "/tmp", CONVOY_SYSTEM, "is no regular file");
    expect_read(fixture, "/dev/zero", CONVOY_SYSTEM, "is no regular file");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    expect_read(fixture, fifo, CONVOY_SYSTEM, "is no regular file"); /* and nobody waits for a writer */
    assert_int_equal(unlink(fifo), 0);
    expect_read(fixture, fixture->path, CONVOY_MALFORMED, "has 0 bytes");
}

static void test_safetensors_too_large_file_is_refused_unread(void **state)
{
    struct fixture *fixture = *state;
    if (truncate(fixture->path, (off_t)CONVOY_SAFETENSORS_FILE_BYTES_MAX + 1) != 0) {
        skip(); /* this file system has no such files */
    }
    expect_read(fixture, fixture->path, CONVOY_LIMIT, "has 17179869185 bytes (must be up to 17179869184)");
}

/* The kernel says 4096 bytes of its small files and gives fewer: as a file that is cut while it is read. */
static void test_safetensors_file_that_ends_early_is_truncated(void **state)
{
    struct fixture *fixture = *state;
    struct stat status;
    const char *path = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (stat(path, &status) != 0 || status.st_size != 4096) {
        skip();
    }
    expect_read(fixture, path, CONVOY_TRUNCATED, "of its 4096 bytes");
}

/* The loopback has no speed, so its file cannot be read. */
static void test_safetensors_read_error_is_told(void **state)
{
    struct stat status;
    const char *path = "/sys/class/net/lo/speed";
    if (stat(path, &status) != 0 || status.st_size == 0) {
        skip();
    }
    expect_read(*state, path, CONVOY_SYSTEM, "reading /sys/class/net/lo/speed: Invalid argument");
}

static void test_safetensors_every_allocation_may_fail(void **state)
{
#ifdef CONVOY_FAULTS
    struct fixture *fixture = *state;
    size_t length = 0;
    uint8_t *bytes = safetensors_file(PLAIN, 18, &length);
    FILE *file = fopen(fixture->path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    free(bytes);
    for (int64_t skip_count = 0; skip_count < 4; skip_count++) {
        (void)convoy_memory_fail_after(skip_count);
        expect_read(fixture, fixture->path, CONVOY_NO_MEMORY, "no memory for the ");
    }
    (void)convoy_memory_fail_after(4);
    assert_int_equal(convoy_safetensors_read(&fixture->file, fixture->path, NULL), CONVOY_OK);
    (void)convoy_memory_fail_after(-1);
#else
    (void)state;
    skip();
#endif
}

#define CASE(name) cmocka_unit_test_setup_teardown(test_safetensors_##name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(header_order_padding_and_unknown_keys_are_read),
        CASE(file_is_read_into_memory_of_its_own),
        CASE(no_tensors_are_a_file),
        CASE(bits_of_every_dtype),
        CASE(size_must_be_what_dtype_and_shape_say),
        CASE(bad_length_is_refused),
        CASE(bad_header_is_refused_with_tensor_and_figure),
        CASE(values_are_counted_outside_of_strings),
        CASE(too_many_values_are_refused_before_they_are_read),
        CASE(too_deep_header_is_refused),
        CASE(what_is_no_file_is_refused),
        CASE(too_large_file_is_refused_unread),
        CASE(file_that_ends_early_is_truncated),
        CASE(read_error_is_told),
        CASE(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
