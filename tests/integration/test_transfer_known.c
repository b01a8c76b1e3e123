/* SPDX-License-Identifier: Apache-2.0 */
/* What was sent before is remembered with its names and shapes: whatever follows it, alike in all but one thing, arrives as
 * what it is. */
#include "tests/integration/reports_transfer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define TENSORS_MAX 3u

struct kind {
    uint32_t count;
    struct {
        const char *name;
        const char *dtype;
        uint64_t shape[2];
        uint32_t rank;
        uint64_t bytes; /* of types that nobody knows */
        int32_t list_index;
    } tensors[TENSORS_MAX];
    const char *list; /* declared, or NULL */
    uint32_t list_length;
    uint32_t own_length; /* of a list that nobody declared */
};

static const struct kind kinds[] = {
    {.count = 1, .tensors = {{"one", "uint8", {24}, 1, 0, -1}}},
    {.count = 1, .tensors = {{"two", "uint8", {24}, 1, 0, -1}}},
    {.count = 1, .tensors = {{"one", "int8", {24}, 1, 0, -1}}},
    {.count = 1, .tensors = {{"one", "uint8", {25}, 1, 0, -1}}},
    {.count = 1, .tensors = {{"one", "uint8", {4, 6}, 2, 0, -1}}},
    {.count = 1, .tensors = {{"one", "uint8", {6, 4}, 2, 0, -1}}},
    {.count = 1, .tensors = {{"one", "uint8", {0}, 0, 0, -1}}},
    {.count = 1, .tensors = {{"one", "uint8", {0}, 1, 0, -1}}},
    {.count = 1, .tensors = {{"one", "strange", {24}, 1, 24, -1}}},
    {.count = 1, .tensors = {{"one", "strange", {24}, 1, 48, -1}}},
    {.count = 1, .tensors = {{"one", "strangf", {24}, 1, 24, -1}}},
    {.count = 1, .tensors = {{"one", "uint8", {24}, 1, 0, 0}}, .own_length = 1},
    {.count = 1, .tensors = {{"one", "uint8", {24}, 1, 0, 2}}, .own_length = 3},
    {.count = 1, .tensors = {{"one", "uint8", {24}, 1, 0, 0}}, .list = "one", .list_length = 3},
    {.count = 1, .tensors = {{"one", "uint8", {24}, 1, 0, 0}}, .list = "one", .list_length = 4},
    {.count = 1, .tensors = {{"one", "uint8", {24}, 1, 0, -1}}, .list = "holes", .list_length = 2},
    {.count = 2, .tensors = {{"one", "uint8", {24}, 1, 0, -1}, {"two", "uint8", {24}, 1, 0, -1}}},
    {.count = 2, .tensors = {{"two", "uint8", {24}, 1, 0, -1}, {"one", "uint8", {24}, 1, 0, -1}}},
    {.count = 3,
     .tensors = {{"one", "uint8", {24}, 1, 0, -1}, {"two", "float32", {3, 2}, 2, 0, -1}, {"six", "int8", {24}, 1, 0, -1}}},
    {.count = 0},
};

#define KINDS (sizeof kinds / sizeof kinds[0])

static uint64_t bytes_of(const struct kind *kind, uint32_t index)
{
    uint64_t bytes = strcmp(kind->tensors[index].dtype, "float32") == 0 ? 4 : 1;
    for (uint32_t d = 0; d < kind->tensors[index].rank; d++) {
        bytes *= kind->tensors[index].shape[d];
    }
    return kind->tensors[index].bytes != 0 ? kind->tensors[index].bytes : bytes;
}

static int32_t send_kind(struct two *two, const struct kind *kind, convoy_transfer *sent_out)
{
    struct convoy_tensor_source sources[TENSORS_MAX];
    const struct convoy_tensor_list_entry list = {
        .name = kind->list, .name_length = kind->list != NULL ? strlen(kind->list) : 0, .length = kind->list_length};
    for (uint32_t i = 0; i < kind->count; i++) {
        bool is_listed = kind->tensors[i].list_index >= 0;
        sources[i] = (struct convoy_tensor_source){.name = kind->tensors[i].name,
                                                   .name_length = strlen(kind->tensors[i].name),
                                                   .dtype = kind->tensors[i].dtype,
                                                   .dtype_length = strlen(kind->tensors[i].dtype),
                                                   .data = two->memory + 64 * i,
                                                   .shape = kind->tensors[i].shape,
                                                   .rank = kind->tensors[i].rank,
                                                   .bytes = kind->tensors[i].bytes,
                                                   .flags = is_listed ? CONVOY_TENSOR_LISTED : 0,
                                                   .list_index = is_listed ? (uint32_t)kind->tensors[i].list_index : 0};
    }
    struct convoy_stage stage = engine_stage("known", sources, kind->count);
    stage.lists = kind->list != NULL ? &list : NULL;
    stage.list_stride = sizeof list;
    stage.list_count = kind->list != NULL;
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .timeout_ns = ENGINE_TIMEOUT_NS};
    return CALL(two->sender, send_start, &stage, &send, sent_out);
}

static void expect_tensor(const struct two *two, const struct kind *kind, uint32_t index)
{
    const struct convoy_tensor_view *view = &two->receiver->views[index];
    EXPECT_EQUAL(view->name_length, strlen(kind->tensors[index].name));
    EXPECT_BYTES(view->name, kind->tensors[index].name, view->name_length);
    EXPECT_EQUAL(view->dtype_length, strlen(kind->tensors[index].dtype));
    EXPECT_BYTES(view->dtype, kind->tensors[index].dtype, view->dtype_length);
    EXPECT_EQUAL(view->rank, kind->tensors[index].rank);
    for (uint32_t d = 0; d < view->rank; d++) {
        EXPECT_EQUAL(view->shape[d], kind->tensors[index].shape[d]);
    }
    EXPECT_EQUAL(view->flags == CONVOY_TENSOR_LISTED, kind->tensors[index].list_index >= 0);
    EXPECT(kind->tensors[index].list_index < 0 || view->list_index == (uint32_t)kind->tensors[index].list_index);
    EXPECT_EQUAL(view->bytes, bytes_of(kind, index));
    EXPECT(view->bytes == 0 || memcmp(view->data, two->memory + 64 * index, view->bytes) == 0);
}

static void expect_kind(struct two *two, const struct kind *kind, convoy_transfer loaded)
{
    engine_look(two->receiver, loaded);
    EXPECT_EQUAL(two->receiver->payload.tensor_count, kind->count);
    for (uint32_t i = 0; i < kind->count; i++) {
        expect_tensor(two, kind, i);
    }
    uint32_t length = kind->list != NULL ? kind->list_length : kind->own_length;
    EXPECT_EQUAL(two->receiver->payload.list_count, length != 0);
    EXPECT(length == 0 || two->receiver->lists[0].length == length);
}

static void move_kind(struct two *two, const struct kind *kind)
{
    convoy_transfer loaded = accept_start(two, "known", ENGINE_TIMEOUT_NS);
    convoy_transfer sent = 0;
    EXPECT_OK(send_kind(two, kind, &sent), &two->sender->error);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    expect_kind(two, kind, loaded);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    release(two->sender, sent);
    release(two->receiver, loaded);
}

/* Twice, so that the second one is known, and then each other one. */
static void test_transfer_what_follows_something_alike_arrives_as_it_is(void **state)
{
    (void)state;
    struct two *two = two_open();
    for (uint32_t i = 0; i < KINDS; i++) {
        for (uint32_t j = 0; j < KINDS; j++) {
            move_kind(two, &kinds[i]);
            move_kind(two, &kinds[i]);
            move_kind(two, &kinds[j]);
        }
    }
    two_close(two);
}

/* What must be refused is refused also after something that is alike but for what is wrong with it. */
static void test_transfer_known_names_do_not_let_wrong_ones_pass(void **state)
{
    (void)state;
    static const struct kind right = {
        .count = 2, .tensors = {{"one", "uint8", {24}, 1, 0, -1}, {"two", "uint8", {24}, 1, 0, -1}}};
    static const struct kind wrong[] = {
        {.count = 2, .tensors = {{"one", "uint8", {24}, 1, 0, -1}, {"one", "uint8", {24}, 1, 0, -1}}},
        {.count = 2, .tensors = {{"one", "uint8", {24}, 1, 0, -1}, {"tw\n", "uint8", {24}, 1, 0, -1}}},
        {.count = 2, .tensors = {{"one", "uint8", {24}, 1, 0, -1}, {"two", "uint8", {UINT64_MAX}, 1, 0, -1}}},
        {.count = 2, .tensors = {{"one", "uint8", {24}, 1, 0, -1}, {"two", "F4", {23}, 1, 0, -1}}},
        {.count = 2, .tensors = {{"one", "uint8", {24}, 1, 0, -1}, {"two", "uint8", {24}, 1, 23, -1}}},
        {.count = 2,
         .tensors = {{"one", "uint8", {24}, 1, 0, 0}, {"two", "uint8", {24}, 1, 0, -1}}, .list = "two", .list_length = 1},
    };
    struct two *two = two_open();
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        convoy_transfer sent = 0;
        move_kind(two, &right);
        EXPECT_STATUS(send_kind(two, &wrong[i], &sent), CONVOY_INVALID_ARGUMENT, &two->sender->error);
        move_kind(two, &right);
    }
    two_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_what_follows_something_alike_arrives_as_it_is),
        cmocka_unit_test(test_transfer_known_names_do_not_let_wrong_ones_pass),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("transfer_known", tests, NULL, NULL);
}
