/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/manifest_binary.h"

#include "core/bytes.h"
#include "core/memory.h"
#include "manifest_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Written by hand from the drawing in the header: this must never be changed. */
static const uint8_t golden[] = {
    'C', 'V', 'M', 'F', 1, 0, 0, 0,         /* magic, version, zero */
    153, 0, 0, 0, 2, 0, 0, 0,               /* length, tensors */
    1, 0, 0, 0, 3, 0, 0, 0,                 /* lists, dimensions */
    17, 0, 0, 0, 0, 0, 0, 0,                /* bytes of names, zero */
    5, 2, 0, 0, 0, 0, 0, 0,                 /* payload: 517 */
    0, 0, 0, 0, 0, 0, 0, 0,                 /* x: offset 0 */
    12, 0, 0, 0, 0, 0, 0, 0,                /* 12 bytes */
    255, 255, 255, 255, 10, 0, 0, 0,        /* no list, float16 */
    2, 1, 0, 0, 0, 0, 0, 0,                 /* rank 2, a name of 1 */
    0, 2, 0, 0, 0, 0, 0, 0,                 /* embeds[1]: offset 512 */
    5, 0, 0, 0, 0, 0, 0, 0,                 /* 5 bytes */
    1, 0, 0, 0, 0, 0, 0, 0,                 /* index 1, opaque */
    1, 6, 4, 0, 0, 0, 0, 0,                 /* rank 1, names of 6 and 4 */
    3, 0, 0, 0, 6, 0, 0, 0,                 /* embeds: length 3, a name of 6 */
    2, 0, 0, 0, 0, 0, 0, 0,                 /* x.shape */
    3, 0, 0, 0, 0, 0, 0, 0,
    5, 0, 0, 0, 0, 0, 0, 0,                 /* embeds[1].shape */
    'x', 'e', 'm', 'b', 'e', 'd', 's', 'q', 'i', 'n', 't', 'e', 'm', 'b', 'e', 'd', 's',
};

static int32_t decode_exact(const uint8_t *bytes, size_t length, struct convoy_manifest **manifest_out,
                            struct convoy_error *error)
{
    uint8_t *copy = malloc(length + 1); /* odd address, and ends where the block does */
    assert_non_null(copy);
    memcpy(copy + 1, bytes, length);
    int32_t status = convoy_manifest_binary_decode(copy + 1, length, manifest_out, error);
    free(copy);
    return status;
}

static void test_manifest_binary_golden_bytes(void **state)
{
    (void)state;
    struct convoy_tensor tensors[] = {
        {.name = "x", .name_length = 1, .list_index = -1, .dtype = 10, .rank = 2, .shape = {2, 3}},
        {.name = "embeds", .name_length = 6, .list_index = 1, .dtype_name = "qint", .dtype_name_length = 4, .rank = 1,
         .shape = {5}, .bytes = 5},
    };
    struct convoy_tensor_list list = {"embeds", 6, 3};
    struct convoy_manifest manifest = {.tensors = tensors, .lists = &list, .count = 2, .list_count = 1};
    struct convoy_manifest *back = NULL;
    uint8_t bytes[256];
    size_t length = 0;
    assert_int_equal(convoy_manifest_layout(&manifest, NULL), CONVOY_OK);
    assert_int_equal(convoy_manifest_binary_bytes(&manifest), sizeof golden);
    assert_int_equal(convoy_manifest_binary_encode(&manifest, bytes, sizeof bytes, &length, NULL), CONVOY_OK);
    assert_int_equal(length, sizeof golden);
    assert_memory_equal(bytes, golden, sizeof golden);
    assert_int_equal(decode_exact(golden, sizeof golden, &back, NULL), CONVOY_OK);
    assert_true(case_same(back, &manifest));
    convoy_manifest_destroy(back);
}

static void test_manifest_binary_encode_refuses_before_it_writes(void **state)
{
    (void)state;
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_tensor tensor = {.name = "x", .name_length = 1, .list_index = -1, .dtype = 1, .rank = 1, .shape = {7}};
    struct convoy_tensor_list list = {"l", 300, 0};
    struct convoy_manifest manifest = {.tensors = &tensor, .lists = &list, .count = 1};
    uint8_t bytes[128] = {77};
    size_t length = 0;
    assert_int_equal(convoy_manifest_layout(&manifest, NULL), CONVOY_OK);
    assert_int_equal(convoy_manifest_binary_encode(&manifest, bytes, 80, &length, &error), CONVOY_BUFFER_TOO_SMALL);
    assert_string_equal(error.text, "manifest takes 81 bytes, the buffer has 80");
    assert_int_equal(length, 81);
    tensor.offset = 8;
    manifest.payload_bytes = 15;
    assert_int_equal(convoy_manifest_binary_encode(&manifest, bytes, 128, &length, &error), CONVOY_INVALID_ARGUMENT);
    assert_string_equal(error.text, "manifest.x.offset is 8, allowed are multiples of 512");
    assert_int_equal(bytes[0], 77);
    tensor.rank = 17;
    assert_int_equal(convoy_manifest_binary_bytes(&manifest), 0);
    tensor.rank = 0;
    manifest.list_count = 1;
    assert_int_equal(convoy_manifest_binary_bytes(&manifest), 0);
    manifest.count = CONVOY_MANIFEST_TENSORS_MAX + 1;
    assert_int_equal(convoy_manifest_binary_bytes(&manifest), 0);
}

static void test_manifest_binary_random_manifests_come_back(void **state)
{
    (void)state;
    static struct manifest_case drawn = {.seed = 11};
    static uint8_t bytes[65536];
    static uint8_t again[65536];
    for (uint32_t turn = 0; turn < 500; turn++) {
        struct convoy_manifest *manifest = &case_random(&drawn)->manifest;
        struct convoy_manifest *back = NULL;
        size_t length = 0;
        assert_int_equal(convoy_manifest_layout(manifest, NULL), CONVOY_OK);
        assert_int_equal(convoy_manifest_binary_encode(manifest, bytes, sizeof bytes, &length, NULL), CONVOY_OK);
        assert_int_equal(length, convoy_manifest_binary_bytes(manifest));
        assert_int_equal(decode_exact(bytes, length, &back, NULL), CONVOY_OK);
        assert_true(case_same(back, manifest));
        assert_int_equal(convoy_manifest_binary_encode(back, again, sizeof again, &length, NULL), CONVOY_OK);
        assert_memory_equal(bytes, again, length);
        convoy_manifest_destroy(back);
    }
}

static void test_manifest_binary_decode_refuses_one_wrong_byte(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        int32_t status;
        const char *text;
    } rows[] = {
        {0, 'c', CONVOY_MALFORMED, "manifest: 153 bytes that do not begin with a header of 40"},
        {4, 2, CONVOY_VERSION_MISMATCH, "manifest.version is 2, this side reads 1"},
        {6, 1, CONVOY_MALFORMED, "bytes 6 and 28 of the header must be zero"},
        {28, 1, CONVOY_MALFORMED, "bytes 6 and 28 of the header must be zero"},
        {8, 152, CONVOY_MALFORMED, "manifest.length is 152, its counts make 153, 153 bytes came"},
        {12, 3, CONVOY_MALFORMED, "manifest.length is 153, its counts make 185, 153 bytes came"},
        {15, 255, CONVOY_MALFORMED, "its counts make "},
        {32, 6, CONVOY_MALFORMED, "manifest.payload_bytes is 518, the highest end is 517"},
        {48, 13, CONVOY_MALFORMED, "manifest.x.bytes is 13, shape and dtype make 12"},
        {60, 200, CONVOY_MALFORMED, "manifest.x.dtype is 200, known are 0 to 20"},
        {64, 17, CONVOY_MALFORMED, "manifest.tensors[0]: rank 17 (up to 16)"},
        {64, 4, CONVOY_MALFORMED, "manifest.tensors[0]: rank 4 (up to 16)"},
        {64, 1, CONVOY_MALFORMED, "manifest: 8 bytes of dimensions and 0 of names are left"},
        {65, 200, CONVOY_MALFORMED, "manifest.tensors[0]: rank 2 (up to 16), a name of 200"},
        {66, 1, CONVOY_MALFORMED, "a dtype name of 1 bytes do not fit"}, /* of a type that is not opaque */
        {67, 1, CONVOY_MALFORMED, "its last 5 bytes are not zero"},
        {97, 12, CONVOY_MALFORMED, "manifest.lists[0]: a name of 6 bytes does not fit the header"},
        {98, 3, CONVOY_MALFORMED, "manifest: 0 bytes of dimensions and 1 of names are left"},
        {108, 7, CONVOY_MALFORMED, "manifest.lists[0]: a name of 7 bytes"},
        {109, 1, CONVOY_MALFORMED, "its last 3 bytes are not zero"},
        {104, 1, CONVOY_MALFORMED, "manifest.embeds[1]: the list has a length of 1"},
        {88, 3, CONVOY_MALFORMED, "manifest.embeds[3]: the list has a length of 3"},
        {135, 128, CONVOY_MALFORMED, "manifest.embeds[1].shape[0] is "},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        struct convoy_manifest *manifest = NULL;
        uint8_t bytes[sizeof golden];
        memcpy(bytes, golden, sizeof golden);
        bytes[rows[i].at] = rows[i].value;
        int32_t status = decode_exact(bytes, sizeof bytes, &manifest, &error);
        if (status != rows[i].status || strstr(error.text, rows[i].text) == NULL) {
            fail_msg("row %zu: status %d, %s", i, status, error.text);
        }
        assert_null(manifest);
    }
}

static void test_manifest_binary_decode_of_parts_and_counts(void **state)
{
    (void)state;
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_manifest *manifest = NULL;
    for (size_t length = 0; length < sizeof golden; length++) {
        assert_int_equal(decode_exact(golden, length, &manifest, NULL), CONVOY_MALFORMED);
    }
    static uint8_t many[40 + 4097 * 32]; /* right in its sums, too many in its counts */
    memcpy(many, golden, 8);
    convoy_bytes_put_u32(many + 8, sizeof many);
    convoy_bytes_put_u32(many + 12, 4097);
    assert_int_equal(decode_exact(many, sizeof many, &manifest, &error), CONVOY_LIMIT);
    assert_string_equal(error.text, "manifest has 4097 tensors, allowed are up to 4096");
#ifdef CONVOY_FAULTS
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_manifest_binary_decode(golden, sizeof golden, &manifest, &error), CONVOY_NO_MEMORY);
    assert_int_equal(convoy_memory_fail_after(-1), 1); /* the only allocation */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest_binary_golden_bytes),
        cmocka_unit_test(test_manifest_binary_encode_refuses_before_it_writes),
        cmocka_unit_test(test_manifest_binary_random_manifests_come_back),
        cmocka_unit_test(test_manifest_binary_decode_refuses_one_wrong_byte),
        cmocka_unit_test(test_manifest_binary_decode_of_parts_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
