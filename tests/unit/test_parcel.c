/* SPDX-License-Identifier: Apache-2.0 */
/* What a request carries: the file's tensors as fields and lists, a prompt of the trace's length, and its scalars. */
#include "cli/parcel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "arrival_scene.h"

#include <cmocka.h>

static struct arrival_scene scene;

static void test_parcel_has_the_files_tensors_and_its_lists(void **state)
{
    (void)state;
    assert_true(arrival_scene_open(&scene, 5));
    const struct convoy_stage stage = convoy_parcel_stage(&scene.parcel);
    assert_int_equal(stage.tensor_count, scene.file.count + 1);
    assert_int_equal(stage.list_count, 1);
    assert_int_equal(stage.lists[0].length, 4); /* one of them is a hole */
    assert_int_equal(strncmp(stage.lists[0].name, "timesteps", stage.lists[0].name_length), 0);
    uint32_t listed = 0;
    for (size_t i = 0; i < scene.file.count; i++) {
        assert_ptr_equal(stage.tensors[i].data, scene.file.tensors[i].data);
        assert_int_equal(stage.tensors[i].bytes, scene.file.tensors[i].bytes);
        listed += (stage.tensors[i].flags & CONVOY_TENSOR_LISTED) != 0;
    }
    assert_int_equal(listed, 3);
    arrival_scene_close(&scene);
}

static void test_parcel_prompt_and_scalars_follow_the_trace(void **state)
{
    (void)state;
    static const struct convoy_trace_request sizes = {.input_tokens = 3504, .output_tokens = 118};
    static const struct convoy_trace_request huge = {.input_tokens = 10000000};
    assert_true(arrival_scene_open(&scene, 5));
    struct convoy_parcel *parcel = &scene.parcel;
    const struct convoy_tensor_source *prompt = &parcel->tensors[parcel->count - 1];
    convoy_parcel_set(parcel, 7, &sizes);
    assert_int_equal(prompt->bytes, 3504 * 256);
    assert_int_equal(prompt->shape[0], 3504);
    assert_string_equal(parcel->name, "request-7");
    static const char begin[] = "{\"request\":7,\"prompt_tokens\":3504,\"output_tokens\":118,\"seed\":";
    assert_int_equal(strncmp(parcel->scalars, begin, sizeof begin - 1), 0);
    convoy_parcel_set(parcel, 8, &huge);
    assert_int_equal(prompt->shape[0], CONVOY_PARCEL_PROMPT_TOKENS_MAX);
    assert_non_null(strstr(parcel->scalars, "\"prompt_tokens\":10000000"));
    convoy_parcel_set(parcel, 0, &(struct convoy_trace_request){0});
    assert_int_equal(prompt->bytes, 0);
    arrival_scene_close(&scene);
}

/* A payload of another request must never look right. */
static void test_parcel_prompts_of_two_requests_differ(void **state)
{
    (void)state;
    static const struct convoy_trace_request sizes = {.input_tokens = 100};
    uint8_t before[25600];
    assert_true(arrival_scene_open(&scene, 1));
    const struct convoy_tensor_source *prompt = &scene.parcel.tensors[scene.parcel.count - 1];
    for (uint32_t i = 0; i < 200; i++) {
        convoy_parcel_set(&scene.parcel, i, &sizes);
        assert_memory_not_equal(before, prompt->data, sizeof before);
        memcpy(before, prompt->data, sizeof before);
    }
    convoy_parcel_set(&scene.parcel, 199, &sizes); /* and that of one request is always the same */
    assert_memory_equal(before, prompt->data, sizeof before);
    arrival_scene_close(&scene);
}

static void test_parcel_bytes_count_the_padding(void **state)
{
    (void)state;
    assert_true(arrival_scene_open(&scene, 1));
    uint64_t exact = 0;
    for (size_t i = 0; i < scene.parcel.count; i++) {
        exact += scene.parcel.tensors[i].bytes;
    }
    uint64_t padded = convoy_parcel_bytes(&scene.parcel);
    assert_int_equal(padded % 512, 0);
    assert_in_range(padded, exact, exact + 511 * scene.parcel.count);
    arrival_scene_close(&scene);
}

static void test_parcel_name_of_the_prompt_is_its_own(void **state)
{
    (void)state;
    static const uint8_t bytes[1] = {1};
    struct convoy_safetensor tensor = {.name = CONVOY_PARCEL_PROMPT, .dtype = "U8", .data = bytes, .bytes = 1};
    const struct convoy_safetensor *by_name[] = {&tensor};
    const struct convoy_safetensors file = {.tensors = &tensor, .count = 1, .by_name = by_name};
    struct convoy_parcel parcel = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    assert_int_equal(convoy_parcel_init(&parcel, &file, &error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, CONVOY_PARCEL_PROMPT));
    convoy_parcel_fini(&parcel);
}

static void test_parcel_request_is_read_back_from_its_name(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "request-", "request-x", "request-1 ", "request--1", "Request-1",
                                        "request-1234567890"};
    uint32_t request = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(convoy_parcel_request_of(wrong[i], strlen(wrong[i]), &request));
        assert_int_equal(request, 7);
    }
    assert_true(convoy_parcel_request_of("request-0", 9, &request));
    assert_int_equal(request, 0);
    assert_true(convoy_parcel_request_of("request-999999999", 17, &request));
    assert_int_equal(request, 999999999);
}

#ifdef CONVOY_FAULTS
/* Every allocation fails once; nothing leaks (the sanitizers see), and the last try works. */
static void test_parcel_without_memory_says_so(void **state)
{
    (void)state;
    assert_true(arrival_scene_open(&scene, 1));
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = CONVOY_NO_MEMORY;
    for (int64_t i = 0; i < 50 && status == CONVOY_NO_MEMORY; i++) {
        struct convoy_parcel parcel = {0};
        (void)convoy_memory_fail_after(i);
        status = convoy_parcel_init(&parcel, &scene.file, &error);
        (void)convoy_memory_fail_after(-1);
        convoy_parcel_fini(&parcel);
    }
    assert_int_equal(status, CONVOY_OK);
    arrival_scene_close(&scene);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parcel_has_the_files_tensors_and_its_lists),
        cmocka_unit_test(test_parcel_prompt_and_scalars_follow_the_trace),
        cmocka_unit_test(test_parcel_prompts_of_two_requests_differ),
        cmocka_unit_test(test_parcel_bytes_count_the_padding),
        cmocka_unit_test(test_parcel_name_of_the_prompt_is_its_own),
        cmocka_unit_test(test_parcel_request_is_read_back_from_its_name),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_parcel_without_memory_says_so),
#endif
    };
    return cmocka_run_group_tests_name("parcel", tests, NULL, NULL);
}
