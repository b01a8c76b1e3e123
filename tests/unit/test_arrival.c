/* SPDX-License-Identifier: Apache-2.0 */
/* What came is compared with what was sent: one lie about each part is found and named; and it is handed on and written. */
#include "cli/arrival.h"
#include "tests/lib/fake_transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "arrival_scene.h"
#include "plugin_files.h"

#include <cmocka.h>

static struct arrival_scene scene;
static struct convoy_arrival arrival;
static struct convoy_error error;

/* The payload by way of the (pretended) library; the transfer is the first. */
static int32_t look(void)
{
    struct fake_transfer *fake = fake_transfer_reset();
    fake->count = 1;
    fake->entries[1] = (struct fake_transfer_entry){.kind = FAKE_ACCEPT, .payload = &scene.payload};
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    return convoy_arrival_look(&arrival, &fake->host, 1, &error);
}

static int scene_setup(void **state)
{
    (void)state;
    return arrival_scene_open(&scene, 3) && look() == CONVOY_OK ? 0 : -1;
}

static int scene_teardown(void **state)
{
    (void)state;
    convoy_arrival_fini(&arrival);
    arrival_scene_close(&scene);
    return 0;
}

static void test_arrival_of_what_was_sent_is_right(void **state)
{
    (void)state;
    assert_int_equal(arrival.payload.tensor_count, scene.parcel.count);
    assert_int_equal(convoy_arrival_check(&arrival, &scene.parcel, &error), CONVOY_OK);
    assert_string_equal(error.text, "");
}

/* Order is not promised. */
static void test_arrival_in_another_order_is_right(void **state)
{
    (void)state;
    struct convoy_tensor_view first = arrival.tensors[0];
    arrival.tensors[0] = arrival.tensors[9];
    arrival.tensors[9] = first;
    assert_int_equal(convoy_arrival_check(&arrival, &scene.parcel, &error), CONVOY_OK);
}

static void test_arrival_host_names_of_types_are_those_of_the_file(void **state)
{
    (void)state;
    assert_string_equal(scene.parcel.tensors[0].dtype, "F16");
    arrival.tensors[0].dtype = "float16";
    arrival.tensors[0].dtype_length = 7;
    assert_int_equal(convoy_arrival_check(&arrival, &scene.parcel, &error), CONVOY_OK);
}

static void expect_lie(const char *text)
{
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    assert_int_equal(convoy_arrival_check(&arrival, &scene.parcel, &error), CONVOY_INVARIANT);
    if (strstr(error.text, text) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", error.text, text);
    }
    assert_int_equal(look(), CONVOY_OK); /* the truth again */
}

static void test_arrival_every_lie_is_found_and_named(void **state)
{
    (void)state;
    static const uint64_t other_shape[3] = {1, 77, 767};
    static const struct convoy_tensor_list_entry other_list = {.name = "timesteps", .name_length = 9, .length = 5};
    uint8_t *changed = convoy_memory_zalloc(scene.parcel.tensors[0].bytes);
    memcpy(changed, scene.parcel.tensors[0].data, scene.parcel.tensors[0].bytes);
    changed[100] ^= 1;
    arrival.tensors[0].data = changed;
    expect_lie("tensor prompt_embeds came with another byte at 100 of 118272");
    arrival.tensors[0].bytes--;
    expect_lie("tensor prompt_embeds came with 118271 bytes, sent were 118272");
    arrival.tensors[0].shape = other_shape;
    expect_lie("tensor prompt_embeds came with another shape");
    arrival.tensors[0].rank = 2;
    expect_lie("another shape (2 and 3 dimensions)");
    arrival.tensors[0].dtype = "I16";
    expect_lie("tensor prompt_embeds came with dtype I16, sent was F16");
    arrival.tensors[0].name = "promptXembeds";
    expect_lie("tensor promptXembeds came and was not sent");
    arrival.tensors[1] = arrival.tensors[0];
    expect_lie("tensor prompt_embeds came twice");
    arrival.payload.tensor_count--;
    expect_lie("28 tensors came, sent were 29");
    arrival.payload.list_count = 0;
    expect_lie("0 lists came");
    arrival.lists[0] = other_list;
    expect_lie("of which 0 have name and length");
    arrival.payload.scalars = "{}";
    arrival.payload.scalars_length = 2;
    expect_lie("scalars came as {}, sent were {\"request\":3,");
    arrival.payload.scalars = NULL;
    arrival.payload.scalars_length = 0;
    expect_lie("scalars came as , sent");
    convoy_memory_free(changed);
}

static void test_arrival_listed_tensor_is_named_with_its_place(void **state)
{
    (void)state;
    size_t i = 0;
    while ((arrival.tensors[i].flags & CONVOY_TENSOR_LISTED) == 0) {
        i++;
    }
    arrival.tensors[i].list_index = 1; /* the hole */
    expect_lie("tensor timesteps.1 came and was not sent");
}

static void test_arrival_is_handed_on_as_it_lies(void **state)
{
    (void)state;
    struct convoy_stage stage;
    assert_int_equal(convoy_arrival_stage(&arrival, &stage, &error), CONVOY_OK);
    assert_int_equal(stage.tensor_count, arrival.payload.tensor_count);
    assert_ptr_equal(stage.scalars, arrival.payload.scalars);
    assert_ptr_equal(stage.lists, arrival.lists);
    for (size_t i = 0; i < stage.tensor_count; i++) {
        assert_ptr_equal(stage.tensors[i].data, arrival.tensors[i].data);
        assert_int_equal(stage.tensors[i].bytes, arrival.tensors[i].bytes);
        assert_int_equal(stage.tensors[i].list_index, arrival.tensors[i].list_index);
    }
}

static void test_arrival_written_file_equals_the_one_that_was_read(void **state)
{
    struct convoy_safetensors_difference differences[CONVOY_SAFETENSORS_KINDS];
    struct convoy_safetensors found = {0};
    char path[PLUGIN_FILE_PATH_BYTES];
    (void)state;
    (void)snprintf(path, sizeof path, "/tmp/convoy-arrival-%d.safetensors", (int)getpid());
    arrival.tensors[0].dtype = "float16"; /* as the library tells it */
    arrival.tensors[0].dtype_length = 7;
    assert_int_equal(convoy_arrival_write(&arrival, path, &error), CONVOY_OK);
    assert_int_equal(convoy_safetensors_read(&found, path, &error), CONVOY_OK);
    assert_true(convoy_safetensors_compare(&scene.file, &found, differences));
    convoy_safetensors_fini(&found);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(convoy_arrival_write(&arrival, "/nowhere/out.safetensors", &error), CONVOY_SYSTEM);
}

static void test_arrival_type_name_that_no_file_has_room_for_is_refused(void **state)
{
    (void)state;
    char dtype[65];
    memset(dtype, 'x', sizeof dtype);
    arrival.tensors[0].dtype = dtype;
    arrival.tensors[0].dtype_length = 64;
    assert_int_equal(convoy_arrival_write(&arrival, "/nowhere/out.safetensors", &error), CONVOY_LIMIT);
    assert_non_null(strstr(error.text, "prompt_embeds"));
}

#ifdef CONVOY_FAULTS
static void test_arrival_without_memory_says_so(void **state)
{
    (void)state;
    int32_t status = CONVOY_NO_MEMORY;
    for (int64_t i = 0; i < 50 && status == CONVOY_NO_MEMORY; i++) {
        struct convoy_stage stage;
        convoy_arrival_fini(&arrival);
        (void)convoy_memory_fail_after(i);
        status = look();
        status = status == CONVOY_OK ? convoy_arrival_stage(&arrival, &stage, &error) : status;
        status = status == CONVOY_OK ? convoy_arrival_check(&arrival, &scene.parcel, &error) : status;
        (void)convoy_memory_fail_after(-1);
    }
    assert_int_equal(status, CONVOY_OK);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCENE(function) cmocka_unit_test_setup_teardown(function, scene_setup, scene_teardown)
        SCENE(test_arrival_of_what_was_sent_is_right),
        SCENE(test_arrival_in_another_order_is_right),
        SCENE(test_arrival_host_names_of_types_are_those_of_the_file),
        SCENE(test_arrival_every_lie_is_found_and_named),
        SCENE(test_arrival_listed_tensor_is_named_with_its_place),
        SCENE(test_arrival_is_handed_on_as_it_lies),
        SCENE(test_arrival_written_file_equals_the_one_that_was_read),
        SCENE(test_arrival_type_name_that_no_file_has_room_for_is_refused),
#ifdef CONVOY_FAULTS
        SCENE(test_arrival_without_memory_says_so),
#endif
    };
    return cmocka_run_group_tests_name("arrival", tests, NULL, NULL);
}
