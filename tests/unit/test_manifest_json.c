/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/manifest_json.h"

#include "core/memory.h"
#include "manifest_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define NAMED(text) .name = (text), .name_length = sizeof(text) - 1

static json_t *load(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, CONVOY_MANIFEST_JSON_FLAGS, &error);
    if (json == NULL) {
        fail_msg("%s: %s", text, error.text);
    }
    return json;
}

static int32_t decode(const char *fields_text, const char *extra_text, struct convoy_manifest **manifest_out,
                      struct convoy_error *error)
{
    json_t *fields = load(fields_text);
    json_t *extra = extra_text != NULL ? load(extra_text) : NULL;
    int32_t status = convoy_manifest_json_decode(fields, extra, manifest_out, error);
    json_decref(fields); /* what was read must not need it */
    json_decref(extra);
    return status;
}

static void assert_encodes(const struct convoy_manifest *manifest, const char *fields_text, const char *extra_text)
{
    json_t *fields = NULL;
    json_t *extra = NULL;
    assert_int_equal(convoy_manifest_json_encode(manifest, &fields, &extra, NULL), CONVOY_OK);
    char *fields_dump = json_dumps(fields, JSON_COMPACT);
    char *extra_dump = json_dumps(extra, JSON_COMPACT);
    assert_string_equal(fields_dump, fields_text);
    assert_string_equal(extra_dump, extra_text);
    free(fields_dump);
    free(extra_dump);
    json_decref(fields);
    json_decref(extra);
}

/* Byte for byte what hosts write today: nothing of ours where nothing is lost. */
static void test_manifest_json_is_what_hosts_exchange(void **state)
{
    (void)state;
    static const char text[] =
        "{\"latents\":[{\"offset\":0,\"shape\":[1,16,8],\"dtype\":\"bfloat16\"}],"
        "\"prompt_embeds\":[{\"offset\":512,\"shape\":[77,2],\"dtype\":\"float32\",\"list_index\":0},"
        "{\"offset\":1536,\"shape\":[],\"dtype\":\"int64\",\"list_index\":1}]}";
    struct convoy_manifest *manifest = NULL;
    assert_int_equal(decode(text, NULL, &manifest, NULL), CONVOY_OK);
    assert_int_equal(manifest->count, 3);
    assert_int_equal(manifest->list_count, 1);
    assert_int_equal(manifest->lists[0].length, 2);
    assert_int_equal(manifest->payload_bytes, 1544);
    assert_int_equal(manifest->tensors[1].bytes, 616);
    assert_int_equal(manifest->tensors[2].rank, 0);
    assert_encodes(manifest, text, "{}");
    convoy_manifest_destroy(manifest);
}

/* [t, None], [None, t, None], [], [None, None] and a zero-element tensor: sgl-project/sglang PR 21701 loses the None at
 * the end, the empty lists and the tensor. */
static void test_manifest_json_lists_with_holes_come_back(void **state)
{
    (void)state;
    struct convoy_tensor tensors[] = {
        {NAMED("a"), .list_index = 0, .dtype = CONVOY_DTYPE_BOOL, .rank = 1, .shape = {3}},
        {NAMED("b"), .list_index = 1, .dtype = CONVOY_DTYPE_BOOL, .rank = 1, .shape = {0}},
        {NAMED("c"), .list_index = 1, .dtype = CONVOY_DTYPE_UINT8},
    };
    struct convoy_tensor_list lists[] = {{"empty", 5, 0}, {"a", 1, 2}, {"b", 1, 3}, {"c", 1, 2}, {"none", 4, 2}};
    struct convoy_manifest manifest = {
        .tensors = tensors, .lists = lists, .count = COUNT(tensors), .list_count = COUNT(lists)};
    static const char fields[] = "{\"a\":[{\"offset\":0,\"shape\":[3],\"dtype\":\"bool\",\"list_index\":0}],"
                                 "\"b\":[{\"offset\":0,\"shape\":[0],\"dtype\":\"bool\",\"list_index\":1}],"
                                 "\"c\":[{\"offset\":512,\"shape\":[],\"dtype\":\"uint8\",\"list_index\":1}]}";
    static const char extra[] = "{\"list_lengths\":{\"empty\":0,\"a\":2,\"b\":3,\"none\":2}}";
    struct convoy_manifest *back = NULL;
    assert_int_equal(convoy_manifest_layout(&manifest, NULL), CONVOY_OK);
    assert_encodes(&manifest, fields, extra);
    assert_int_equal(decode(fields, extra, &back, NULL), CONVOY_OK);
    assert_true(case_same(back, &manifest));
    convoy_manifest_destroy(back);
    assert_int_equal(decode(fields, NULL, &back, NULL), CONVOY_OK); /* an old sender: highest index + 1 */
    assert_int_equal(back->list_count, 3);
    assert_int_equal(back->lists[0].length, 1);
    assert_int_equal(back->lists[1].length, 2);
    convoy_manifest_destroy(back);
    assert_int_equal(decode("{\"x\":[]}", "{}", &back, NULL), CONVOY_OK);
    assert_int_equal(back->lists[0].length, 0);
    assert_encodes(back, "{}", "{\"list_lengths\":{\"x\":0}}");
    convoy_manifest_destroy(back);
}

static void test_manifest_json_types(void **state)
{
    (void)state;
    struct convoy_manifest *manifest = NULL;
    assert_int_equal(decode("{\"x\":[{\"offset\":7,\"shape\":[2],\"dtype\":\"torch.half\",\"new\":{\"deep\":[1.5]}}],"
                            "\"y\":[{\"dtype\":\"quint4\",\"nbytes\":5,\"shape\":[9],\"offset\":11}],"
                            "\"z\":[{\"dtype\":\"int8\",\"nbytes\":9,\"shape\":[9],\"offset\":16}]}",
                            "{\"more\":1}", &manifest, NULL), CONVOY_OK);
    assert_int_equal(manifest->tensors[0].dtype, CONVOY_DTYPE_FLOAT16);
    assert_int_equal(manifest->tensors[1].dtype, CONVOY_DTYPE_OPAQUE);
    assert_int_equal(manifest->tensors[1].bytes, 5);
    assert_int_equal(manifest->payload_bytes, 25);
    assert_encodes(manifest, "{\"x\":[{\"offset\":7,\"shape\":[2],\"dtype\":\"float16\"}],"
                             "\"y\":[{\"offset\":11,\"shape\":[9],\"dtype\":\"quint4\",\"nbytes\":5}],"
                             "\"z\":[{\"offset\":16,\"shape\":[9],\"dtype\":\"int8\"}]}", "{}");
    convoy_manifest_destroy(manifest);
}

static void test_manifest_json_random_manifests_come_back(void **state)
{
    (void)state;
    static struct manifest_case drawn = {.seed = 29};
    for (uint32_t turn = 0; turn < 300; turn++) {
        struct convoy_manifest *manifest = &case_random(&drawn)->manifest;
        struct convoy_manifest *back = NULL;
        json_t *fields = NULL;
        json_t *extra = NULL;
        assert_int_equal(convoy_manifest_layout(manifest, NULL), CONVOY_OK);
        assert_int_equal(convoy_manifest_json_encode(manifest, &fields, &extra, NULL), CONVOY_OK);
        char *fields_dump = json_dumps(fields, JSON_COMPACT);
        char *extra_dump = json_dumps(extra, JSON_COMPACT);
        assert_int_equal(decode(fields_dump, extra_dump, &back, NULL), CONVOY_OK);
        assert_true(case_same(back, manifest));
        convoy_manifest_destroy(back);
        json_decref(fields);
        json_decref(extra);
        free(fields_dump);
        free(extra_dump);
    }
}

#define ENTRY(offset, shape, rest) "{\"x\":[{\"offset\":" offset ",\"shape\":" shape ",\"dtype\":\"int8\"" rest "}]}"

static void test_manifest_json_refuses_with_the_path(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        const char *extra;
        int32_t status;
        const char *text;
    } rows[] = {
        {"[]", NULL, CONVOY_MALFORMED, "manifest is an array, allowed is an object"},
        {"{}", "[]", CONVOY_MALFORMED, "manifest extra is an array, allowed is an object"},
        {"{}", "{\"list_lengths\":null}", CONVOY_MALFORMED, "list_lengths is null, allowed is an object"},
        {"{\"\":[]}", NULL, CONVOY_MALFORMED, "manifest: the name of field 0 (from 0) has 0 bytes"},
        {"{\"a\":[],\"b\\t\":[]}", NULL, CONVOY_MALFORMED, "manifest: the name of field 1"},
        {"{}", "{\"list_lengths\":{\"\\u0085\":1}}", CONVOY_MALFORMED, "list_lengths: the name of field 0"},
        {"{\"x\":{}}", NULL, CONVOY_MALFORMED, "manifest.x is no list of entries"},
        {"{\"x\":[7]}", NULL, CONVOY_MALFORMED, "manifest.x[0] is an integer, allowed is an object"},
        {"{\"x\":[{}]}", NULL, CONVOY_MALFORMED,
         "manifest.x[0].dtype is missing of 0 bytes, allowed is a text of 1 to 63"},
        {"{\"x\":[{\"dtype\":\"\"}]}", NULL, CONVOY_MALFORMED, "manifest.x[0].dtype is a text of 0 bytes"},
        {"{\"x\":[{\"dtype\":1}]}", NULL, CONVOY_MALFORMED, "manifest.x[0].dtype is an integer"},
        {"{\"x\":[{\"dtype\":\"int8\"}]}", NULL, CONVOY_MALFORMED, "manifest.x[0].offset is missing"},
        {ENTRY("true", "[]", ""), NULL, CONVOY_MALFORMED,
         "manifest.x[0].offset is true, allowed are integers of 0 to 9223372036854775807"},
        {ENTRY("1.0", "[]", ""), NULL, CONVOY_MALFORMED, "manifest.x[0].offset is a real number"},
        {ENTRY("\"1\"", "[]", ""), NULL, CONVOY_MALFORMED, "manifest.x[0].offset is a text"},
        {ENTRY("-1", "[]", ""), NULL, CONVOY_MALFORMED, "manifest.x[0].offset is -1, allowed are"},
        {ENTRY("0", "3", ""), NULL, CONVOY_MALFORMED, "manifest.x[0].shape is an integer of 0 dimensions"},
        {ENTRY("0", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", ""), NULL, CONVOY_MALFORMED,
         "manifest.x[0].shape is an array of 17 dimensions, allowed is an array of up to 16"},
        {ENTRY("0", "[2,false]", ""), NULL, CONVOY_MALFORMED, "manifest.x[0].shape[1] is false"},
        {ENTRY("0", "[2,-3]", ""), NULL, CONVOY_MALFORMED, "manifest.x[0].shape[1] is -3"},
        {ENTRY("0", "[4294967296,4294967296]", ""), NULL, CONVOY_MALFORMED,
         "manifest.x.shape[1] is 4294967296: the product"},
        {ENTRY("9223372036854775807", "[1]", ""), NULL, CONVOY_MALFORMED,
         "manifest.payload_bytes is 9223372036854775808"},
        {ENTRY("0", "[]", ",\"list_index\":null"), NULL, CONVOY_MALFORMED, "manifest.x[0].list_index is null"},
        {ENTRY("0", "[]", ",\"list_index\":65536"), NULL, CONVOY_MALFORMED,
         "list_index is 65536, allowed are integers of 0 to 65535"},
        {ENTRY("0", "[3]", ",\"nbytes\":4"), NULL, CONVOY_MALFORMED,
         "manifest.x[0].nbytes is 4, shape and dtype make 3"},
        {"{\"x\":[{\"dtype\":\"q\",\"offset\":0,\"shape\":[]}]}", NULL, CONVOY_MALFORMED,
         "manifest.x[0].nbytes is missing"},
        {ENTRY("0", "[]", ",\"list_index\":3"), "{\"list_lengths\":{\"x\":3}}", CONVOY_MALFORMED,
         "manifest.x[3]: the list has a length of 3"},
        {ENTRY("0", "[]", ""), "{\"list_lengths\":{\"x\":3}}", CONVOY_MALFORMED,
         "manifest.x: a tensor and a list have this name"},
        {"{\"x\":[]}", "{\"list_lengths\":{\"x\":65537}}", CONVOY_LIMIT,
         "list_lengths of manifest.x is an integer outside of 0 to 65536"},
        {"{}", "{\"list_lengths\":{\"x\":true}}", CONVOY_MALFORMED, "list_lengths of manifest.x is true"},
        {"{}", "{\"list_lengths\":{\"x\":-1}}", CONVOY_MALFORMED, "list_lengths of manifest.x is an integer outside"},
        {"{\"x\":[{\"dtype\":\"int8\",\"offset\":0,\"shape\":[]},{\"dtype\":\"int8\",\"offset\":1,\"shape\":[]}]}", NULL,
         CONVOY_MALFORMED, "manifest.x: two tensors have this name"},
        {"{\"x\":[{\"dtype\":\"int8\",\"offset\":0,\"shape\":[2]}],\"y\":[{\"dtype\":\"int8\",\"offset\":1,\"shape\":[]}]}", NULL,
         CONVOY_MALFORMED, "manifest.y.offset is 1: overlaps manifest.x, which ends at 2"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        struct convoy_manifest *manifest = NULL;
        int32_t status = decode(rows[i].fields, rows[i].extra, &manifest, &error);
        if (status != rows[i].status || strstr(error.text, rows[i].text) == NULL) {
            fail_msg("row %zu: status %d, %s", i, status, error.text);
        }
        assert_null(manifest);
    }
}

/* What cannot be seen after loading is refused by the way of loading. */
static void test_manifest_json_flags_refuse_duplicates_and_large_numbers(void **state)
{
    (void)state;
    assert_null(json_loads("{\"x\":[],\"x\":[]}", CONVOY_MANIFEST_JSON_FLAGS, NULL));
    assert_null(json_loads(ENTRY("9223372036854775808", "[]", ""), CONVOY_MANIFEST_JSON_FLAGS, NULL));
    assert_null(json_loads("{\"a\\u0000b\":[]}", CONVOY_MANIFEST_JSON_FLAGS, NULL));
}

static void test_manifest_json_limits_and_memory(void **state)
{
    (void)state;
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_manifest *manifest = NULL;
    json_t *fields = json_object();
    json_t *extra = NULL;
    for (uint32_t i = 0; i < 1025; i++) {
        char key[8];
        (void)snprintf(key, sizeof key, "%u", i);
        (void)json_object_set_new(fields, key, json_array());
    }
    assert_int_equal(convoy_manifest_json_decode(fields, NULL, &manifest, &error), CONVOY_LIMIT);
    assert_string_equal(error.text, "manifest has 1025 lists, allowed are up to 1024");
    json_decref(fields);
#ifdef CONVOY_FAULTS
    fields = load(ENTRY("0", "[]", ""));
    (void)convoy_memory_fail_after(0);
    assert_int_equal(convoy_manifest_json_decode(fields, NULL, &manifest, &error), CONVOY_NO_MEMORY);
    assert_int_equal(convoy_memory_fail_after(-1), 1);
    json_decref(fields);
#endif
    struct convoy_tensor tensor = {NAMED("x"), .list_index = 0, .dtype = 1};
    struct convoy_manifest wrong = {.tensors = &tensor, .count = 1};
    assert_int_equal(convoy_manifest_json_encode(&wrong, &fields, &extra, &error), CONVOY_INVALID_ARGUMENT);
}

/* jansson's own allocations fail one after the other: no half result, nothing lost. */
static int64_t failing_countdown = -1;

static void *failing_malloc(size_t bytes)
{
    return failing_countdown >= 0 && failing_countdown-- == 0 ? NULL : malloc(bytes);
}

static void test_manifest_json_encode_survives_each_failed_allocation(void **state)
{
    (void)state;
    struct convoy_tensor tensors[] = {
        {NAMED("x"), .list_index = -1, .dtype = 1, .rank = 2, .shape = {3, 2}},
        {NAMED("y"), .list_index = 1, .dtype_name = "q", .dtype_name_length = 1, .bytes = 3},
    };
    struct convoy_tensor_list lists[] = {{"y", 1, 4}, {"z", 1, 0}};
    struct convoy_manifest manifest = {.tensors = tensors, .lists = lists, .count = 2, .list_count = 2};
    assert_int_equal(convoy_manifest_layout(&manifest, NULL), CONVOY_OK);
    json_set_alloc_funcs(failing_malloc, free);
    uint32_t failures = 0;
    int32_t status = CONVOY_NO_MEMORY;
    for (int64_t skip = 0; status != CONVOY_OK; skip++) {
        json_t *fields = NULL;
        json_t *extra = NULL;
        failing_countdown = skip;
        status = convoy_manifest_json_encode(&manifest, &fields, &extra, NULL);
        failing_countdown = -1;
        failures += status == CONVOY_NO_MEMORY;
        assert_true(status == CONVOY_OK || (status == CONVOY_NO_MEMORY && fields == NULL && extra == NULL));
        json_decref(fields);
        json_decref(extra);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(failures > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest_json_is_what_hosts_exchange),
        cmocka_unit_test(test_manifest_json_lists_with_holes_come_back),
        cmocka_unit_test(test_manifest_json_types),
        cmocka_unit_test(test_manifest_json_random_manifests_come_back),
        cmocka_unit_test(test_manifest_json_refuses_with_the_path),
        cmocka_unit_test(test_manifest_json_flags_refuse_duplicates_and_large_numbers),
        cmocka_unit_test(test_manifest_json_limits_and_memory),
        cmocka_unit_test(test_manifest_json_encode_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
