/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tensor_fields.h"
#include "core/error.h"
#include "core/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NAMES_MAX 12

/* Names up to NULL. */
static size_t tensors_of(const char *const *names, struct convoy_safetensor *tensors_out)
{
    size_t count = 0;
    while (count < NAMES_MAX && names[count] != NULL) {
        tensors_out[count] = (struct convoy_safetensor){.name = names[count]};
        count++;
    }
    return count;
}

/* "latents=0; timesteps[3]=2@0,1@2; " : tensors by position, and their places in lists. */
static const char *describe(const struct convoy_tensor_fields *fields, char text[512])
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < fields->count; i++) {
        const struct convoy_tensor_field *field = &fields->fields[i];
        length += (size_t)sprintf(text + length, "%.*s", (int)field->name_bytes, field->name);
        if (field->is_list) {
            length += (size_t)sprintf(text + length, "[%u]", field->length);
        }
        for (size_t j = 0; j < field->count; j++) {
            const struct convoy_tensor_entry *entry = &fields->entries[field->first + j];
            length += (size_t)sprintf(text + length, "%s%zu", j == 0 ? "=" : ",", entry->tensor);
            if (field->is_list) {
                length += (size_t)sprintf(text + length, "@%u", entry->index);
            }
        }
        length += (size_t)sprintf(text + length, "; ");
    }
    return text;
}

static void test_tensor_fields_are_grouped(void **state)
{
    (void)state;
    static const struct {
        const char *names[NAMES_MAX];
        const char *wanted;
    } cases[] = {
        {{NULL}, ""},
        {{"latents"}, "latents=0; "},
        {{"x.0"}, "x[1]=0@0; "},
        {{"x.5"}, "x[6]=0@5; "},
        {{"latents", "t.2", "mask", "t.0"}, "latents=0; t[3]=3@0,1@2; mask=2; "},
        {{"t.10", "t.9", "t.0"}, "t[11]=2@0,1@9,0@10; "},
        {{"x", "x.0"}, "x=0; x.0=1; "},
        {{"x.0", "x.1", "x"}, "x.0=0; x.1=1; x=2; "},
        {{"proj.0", "proj.weight"}, "proj.0=0; proj.weight=1; "},
        {{"proj.0", "proj.weight.0"}, "proj[1]=0@0; proj.weight[1]=1@0; "},
        {{"y.0", "y.01"}, "y.0=0; y.01=1; "},
        {{"y.00"}, "y.00=0; "},
        {{"y.0", "y."}, "y.0=0; y.=1; "},
        {{"y.-1", "z.+1", "w. 1", "v.1a"}, "y.-1=0; z.+1=1; w. 1=2; v.1a=3; "},
        {{".0", "", "."}, ".0=0; =1; .=2; "},
        {{"a.b.0", "a.b.1", "a.c"}, "a.b[2]=0@0,1@1; a.c=2; "},
        {{"a.0.0", "a.0.1", "a.1"}, "a.0[2]=0@0,1@1; a[2]=2@1; "},
        {{"a.0", "a.0.1"}, "a[1]=0@0; a.0.1=1; "},
        {{"z.65535"}, "z[65536]=0@65535; "},
        {{"z.0", "z.65536"}, "z.0=0; z.65536=1; "},
        {{"z.18446744073709551616"}, "z.18446744073709551616=0; "},
        {{"ab.0", "a.0", "abc.0", "a", "ab-.1"}, "ab[1]=0@0; a.0=1; abc[1]=2@0; a=3; ab-[2]=4@1; "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct convoy_safetensor tensors[NAMES_MAX];
        struct convoy_tensor_fields fields = {0};
        char text[512];
        size_t count = tensors_of(cases[i].names, tensors);
        assert_int_equal(convoy_tensor_fields_make(&fields, tensors, count, NULL), CONVOY_OK);
        assert_string_equal(describe(&fields, text), cases[i].wanted);
        convoy_tensor_fields_fini(&fields);
    }
}

static void test_tensor_fields_same_name_twice_is_refused(void **state)
{
    (void)state;
    static const char *const cases[][NAMES_MAX] = {{"a", "b", "a"}, {"a.0", "b", "a.0"}, {"a.x", "a.0", "a.x"}};
    static const char *const texts[] = {"tensors 0 and 2 are both named \"a\"", "tensors 0 and 2 are both named \"a.0\"",
                                        "tensors 0 and 2 are both named \"a.x\""};
    for (size_t i = 0; i < 3; i++) {
        struct convoy_safetensor tensors[NAMES_MAX];
        struct convoy_tensor_fields fields = {0};
        struct convoy_error error = CONVOY_ERROR_INIT;
        size_t count = tensors_of(cases[i], tensors);
        assert_int_equal(convoy_tensor_fields_make(&fields, tensors, count, &error), CONVOY_INVALID_ARGUMENT);
        assert_string_equal(error.text, texts[i]);
        assert_null(fields.fields);
    }
}

static void test_tensor_fields_without_memory_fail(void **state)
{
    (void)state;
#ifdef CONVOY_FAULTS
    struct convoy_safetensor tensor = {.name = "a.0"};
    for (int64_t skip_count = 0; skip_count < 5; skip_count++) {
        struct convoy_tensor_fields fields = {0};
        (void)convoy_memory_fail_after(skip_count);
        assert_int_equal(convoy_tensor_fields_make(&fields, &tensor, 1, NULL), CONVOY_NO_MEMORY);
        assert_null(fields.fields);
    }
    (void)convoy_memory_fail_after(-1);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_fields_are_grouped),
        cmocka_unit_test(test_tensor_fields_same_name_twice_is_refused),
        cmocka_unit_test(test_tensor_fields_without_memory_fail),
    };
    return cmocka_run_group_tests_name("tensor_fields", tests, NULL, NULL);
}
