/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"
#include "cli/tensor_fields.h"
#include "cli/tensors_default.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define READER "tests/unit/read_safetensors.py"
#define LINE_BYTES 512

struct fixture {
    char path[64];
    struct convoy_safetensors file;
};

/* The file as the command writes it. */
static int setup(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){0};
    (void)snprintf(fixture.path, sizeof fixture.path, "/tmp/convoy_default_XXXXXX");
    int fd = mkstemp(fixture.path);
    char *argv[] = {(char *)"default-tensors", fixture.path, NULL};
    *state = &fixture;
    if (fd < 0 || close(fd) != 0 || convoy_cli_default_tensors(2, argv) != CONVOY_EXIT_OK) {
        return -1;
    }
    return convoy_safetensors_read(&fixture.file, fixture.path, NULL);
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    convoy_safetensors_fini(&fixture->file);
    return unlink(fixture->path);
}

static void hash(const uint8_t *bytes, uint64_t length, char text_out[crypto_hash_sha256_BYTES * 2 + 1])
{
    uint8_t digest[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256(digest, bytes, length);
    (void)sodium_bin2hex(text_out, sizeof digest * 2 + 1, digest, sizeof digest);
}

/* What is pinned here, every machine must make. A change of the tensors changes it, and nothing else may. */
static void test_tensors_default_are_the_same_everywhere(void **state)
{
    const struct fixture *fixture = *state;
    struct convoy_safetensors again = {0};
    struct convoy_safetensors_difference differences[CONVOY_SAFETENSORS_KINDS];
    char text[crypto_hash_sha256_BYTES * 2 + 1];
    uint64_t length = 0;
    for (size_t i = 0; i < fixture->file.count; i++) {
        length += fixture->file.tensors[i].bytes;
    }
    assert_true(length > 1000000 && length < 2 << 20);
    hash(fixture->file.tensors[0].data, length, text); /* in a row, as they are written */
    assert_string_equal(text, "a6595b6d85a34e35d35ec42cb66a20e370fcfb03bde39b858dd8052a665ee297");
    assert_int_equal(convoy_safetensors_read(&again, fixture->path, NULL), CONVOY_OK);
    assert_true(convoy_safetensors_compare(&fixture->file, &again, differences));
    convoy_safetensors_fini(&again);
}

static void test_tensors_default_hold_every_kind(void **state)
{
    const struct fixture *fixture = *state;
    static const struct {
        const char *name;
        const char *what;
    } wanted[] = {
        {"prompt_embeds", "F16 [1,77,768]"},    {"negative_prompt_embeds", "BF16 [1,77,768]"},
        {"pooled_prompt_embeds", "F16 [1,1280]"}, {"latents", "F32 [1,4,64,64]"},
        {"attention_mask", "I64 [1,77]"},       {"attention_mask_2", "BOOL [1,77]"},
        {"weights_e4m3", "F8_E4M3 [64,64]"},    {"weights_e5m2", "F8_E5M2 [64,33]"},
        {"slot_ids", "U16 [3,7]"},              {"input_ids", "U32 [1,77]"},
        {"seeds", "U64 [4]"},                   {"rotary", "C64 [77,32]"},
        {"sigmas", "F64 [51]"},                 {"guidance_scale", "F32 []"},
        {"control_embeds", "F16 [0,16]"},       {"adapter_blocks", "Q4_BLOCK32 [32,32]"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        char shape[CONVOY_SAFETENSORS_SHAPE_TEXT_BYTES];
        char text[128];
        const struct convoy_safetensor *tensor = convoy_safetensors_find(&fixture->file, wanted[i].name);
        assert_non_null(tensor);
        (void)snprintf(text, sizeof text, "%s %s", tensor->dtype, convoy_safetensors_shape_text(tensor, shape));
        assert_string_equal(text, wanted[i].what);
    }
    assert_true(convoy_bytes_u64(convoy_safetensors_find(&fixture->file, "seeds")->data) > UINT64_C(1) << 53);
    assert_int_equal(convoy_safetensors_dtype_bits("Q4_BLOCK32"), 0);
}

static void test_tensors_default_list_has_a_hole(void **state)
{
    const struct fixture *fixture = *state;
    struct convoy_tensor_fields fields = {0};
    assert_int_equal(convoy_tensor_fields_make(&fields, fixture->file.tensors, fixture->file.count, NULL), CONVOY_OK);
    assert_int_equal(fields.count, fixture->file.count - 2);
    for (size_t i = 0; i < fields.count; i++) {
        const struct convoy_tensor_field *field = &fields.fields[i];
        assert_int_equal(field->is_list, strncmp(field->name, "timesteps", field->name_bytes) == 0);
        assert_int_equal(field->count, field->is_list ? 3 : 1);
        assert_int_equal(field->length, field->is_list ? 4 : 1);
        assert_int_equal(fields.entries[field->first + field->count - 1].index, field->is_list ? 3 : 0);
    }
    convoy_tensor_fields_fini(&fields);
}

/* Nothing infinite, nothing that is no number: who compares values and not bytes would never find them equal. */
static void test_tensors_default_floats_are_ordinary(void **state)
{
    const struct fixture *fixture = *state;
    const struct convoy_safetensor *tensor = convoy_safetensors_find(&fixture->file, "latents");
    for (uint64_t at = 0; at < tensor->bytes; at += 4) {
        float value = 0;
        memcpy(&value, tensor->data + at, sizeof value);
        assert_true((value > -4 && value <= -1.0F / 64) || (value < 4 && value >= 1.0F / 64));
    }
    tensor = convoy_safetensors_find(&fixture->file, "weights_e4m3");
    for (uint64_t at = 0; at < tensor->bytes; at++) {
        assert_true((tensor->data[at] & 0x7f) <= 0x47);
    }
    tensor = convoy_safetensors_find(&fixture->file, "weights_e5m2");
    for (uint64_t at = 0; at < tensor->bytes; at++) {
        assert_true((tensor->data[at] & 0x7c) <= 0x40);
    }
}

/* Names, dtypes, shapes and bytes as a program sees them that shares nothing with ours. */
static void test_tensors_default_are_read_the_same_by_another_reader(void **state)
{
    const struct fixture *fixture = *state;
    char command[256];
    char line[LINE_BYTES];
    char mine[LINE_BYTES];
    if (access("/usr/bin/python3", X_OK) != 0) {
        skip();
    }
    (void)snprintf(command, sizeof command, "/usr/bin/python3 " READER " %s", fixture->path);
    FILE *reader = popen(command, "r"); /* NOLINT(bugprone-command-processor): a path of our own */
    assert_non_null(reader);
    assert_non_null(fgets(line, sizeof line, reader));
    assert_string_equal(line, "format=pt made_by=convoy default-tensors\n");
    for (size_t i = 0; i < fixture->file.count; i++) {
        const struct convoy_safetensor *tensor = &fixture->file.tensors[i];
        char shape[CONVOY_SAFETENSORS_SHAPE_TEXT_BYTES];
        char digest[crypto_hash_sha256_BYTES * 2 + 1];
        hash(tensor->data, tensor->bytes, digest);
        (void)snprintf(mine, sizeof mine, "%s %s %.100s %s\n", tensor->name, tensor->dtype,
                       convoy_safetensors_shape_text(tensor, shape), digest);
        assert_non_null(fgets(line, sizeof line, reader));
        assert_string_equal(line, mine);
    }
    assert_null(fgets(line, sizeof line, reader));
    assert_int_equal(pclose(reader), 0);
}

static void test_tensors_default_command_says_what_is_wrong(void **state)
{
    (void)state;
    char *none[] = {(char *)"default-tensors", NULL};
    char *nowhere[] = {(char *)"default-tensors", (char *)"/nowhere/at/all", NULL};
    assert_int_equal(convoy_cli_default_tensors(1, none), CONVOY_EXIT_USAGE);
    assert_int_equal(convoy_cli_default_tensors(2, nowhere), CONVOY_EXIT_FAILURE);
}

static void test_tensors_default_without_memory_fail(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    for (int64_t skip_count = 0; skip_count < 2; skip_count++) {
        struct convoy_safetensors made = {0};
        struct convoy_error error = CONVOY_ERROR_INIT;
        (void)convoy_memory_fail_after(skip_count);
        assert_int_equal(convoy_tensors_default_make(&made, &error), CONVOY_NO_MEMORY);
        assert_non_null(strstr(error.text, "bytes of the default tensors"));
    }
    (void)convoy_memory_fail_after(-1);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_default_are_the_same_everywhere),
        cmocka_unit_test(test_tensors_default_hold_every_kind),
        cmocka_unit_test(test_tensors_default_list_has_a_hole),
        cmocka_unit_test(test_tensors_default_floats_are_ordinary),
        cmocka_unit_test(test_tensors_default_are_read_the_same_by_another_reader),
        cmocka_unit_test(test_tensors_default_command_says_what_is_wrong),
        cmocka_unit_test(test_tensors_default_without_memory_fail),
    };
    return cmocka_run_group_tests_name("tensors_default", tests, setup, teardown);
}
