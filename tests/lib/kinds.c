/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/kinds.h"

#include "tests/lib/expect.h"

#include <string.h>

struct kind {
    const char *name;
    const char *dtype;
    uint64_t shape[3];
    uint32_t rank;
    uint32_t bytes;
    uint32_t flags;
    uint32_t list_index;
    uint64_t opaque; /* bytes of a type that convoy does not know */
};

static const struct kind kinds[] = {
    {"latents", "bfloat16", {2, 3, 5}, 3, 60, 0, 0, 0},
    {"embeds", "float16", {7}, 1, 14, CONVOY_TENSOR_LISTED, 0, 0},
    {"embeds", "float32", {3}, 1, 12, CONVOY_TENSOR_LISTED, 2, 0},
    {"mask", "bool", {11}, 1, 11, 0, 0, 0},
    {"scalar", "float64", {0}, 0, 8, 0, 0, 0},
    {"nothing", "int64", {0, 4}, 2, 0, 0, 0, 0},
    {"eight", "F8_E4M3", {9}, 1, 9, 0, 0, 0},
    {"five", "float8_e5m2", {1}, 1, 1, 0, 0, 0},
    {"wide", "uint64", {513}, 1, 4104, 0, 0, 0},
    {"complex", "complex64", {2}, 1, 16, 0, 0, 0},
    {"odd", "my_type", {6}, 1, 30, 0, 0, 30},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static void make_tensors(struct convoy_tensor_source *tensors, uint8_t (*data)[8192])
{
    for (size_t i = 0; i < KINDS; i++) {
        engine_fill(data[i], kinds[i].bytes, (uint32_t)i);
        tensors[i] = (struct convoy_tensor_source){.name = kinds[i].name,
                                                   .name_length = strlen(kinds[i].name),
                                                   .dtype = kinds[i].dtype,
                                                   .dtype_length = strlen(kinds[i].dtype),
                                                   .data = data[i],
                                                   .shape = kinds[i].shape,
                                                   .bytes = kinds[i].opaque,
                                                   .rank = kinds[i].rank,
                                                   .flags = kinds[i].flags,
                                                   .list_index = kinds[i].list_index};
    }
}

/* A transposed matrix, whose rows are to arrive one after the other. */
static struct convoy_tensor_source strided(const uint16_t *matrix)
{
    static const uint64_t shape[2] = {3, 4};
    static const int64_t strides[2] = {2, 6};
    return (struct convoy_tensor_source){.name = "turned",
                                         .name_length = 6,
                                         .dtype = "int16",
                                         .dtype_length = 5,
                                         .data = matrix,
                                         .shape = shape,
                                         .strides = strides,
                                         .rank = 2};
}

struct convoy_stage kinds_stage(void)
{
    static uint8_t data[KINDS][8192];
    static const uint16_t matrix[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}; /* 4 rows of 3 */
    static const struct convoy_tensor_list_entry lists[2] = {{"embeds", 6, 5, 0}, {"empty", 5, 0, 0}};
    static struct convoy_tensor_source tensors[KINDS + 1];
    make_tensors(tensors, data);
    tensors[KINDS] = strided(matrix);
    struct convoy_stage stage = engine_stage("kinds", tensors, KINDS + 1);
    stage.lists = lists;
    stage.list_stride = sizeof lists[0];
    stage.list_count = 2;
    return stage;
}

void kinds_check(const struct engine *engine)
{
    static const uint16_t turned[12] = {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11};
    EXPECT_EQUAL(engine->payload.tensor_count, KINDS + 1);
    for (size_t i = 0; i < KINDS; i++) {
        const struct convoy_tensor_view *view = &engine->views[i];
        EXPECT_EQUAL(view->bytes, kinds[i].bytes);
        EXPECT_EQUAL(view->rank, kinds[i].rank);
        EXPECT_EQUAL(view->flags, kinds[i].flags);
        EXPECT_EQUAL(view->list_index, kinds[i].list_index);
        EXPECT(view->name_length == strlen(kinds[i].name) && memcmp(view->name, kinds[i].name, view->name_length) == 0);
        EXPECT(view->offset % 512 == 0 && memcmp(view->shape, kinds[i].shape, view->rank * 8) == 0);
        EXPECT(view->bytes == 0 || engine_is_filled(view->data, view->bytes, (uint32_t)i));
    }
    EXPECT_BYTES(engine->views[KINDS].data, turned, sizeof turned);
    EXPECT_EQUAL(engine->payload.list_count, 2);
    EXPECT_EQUAL(engine->lists[0].length, 5);
    EXPECT_EQUAL(engine->lists[1].length, 0);
}
