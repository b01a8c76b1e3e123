/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests for the tests of their forms: one drawn at random, and whether two are the same. */
#ifndef CONVOY_TESTS_MANIFEST_CASES_H
#define CONVOY_TESTS_MANIFEST_CASES_H

#include "wire/dtype.h"
#include "wire/manifest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CASE_TENSORS 96u
#define CASE_LISTS 8u

struct manifest_case {
    struct convoy_manifest manifest;
    struct convoy_tensor tensors[CASE_TENSORS];
    struct convoy_tensor_list lists[CASE_LISTS];
    char names[CASE_TENSORS + CASE_LISTS][24];
    uint64_t seed;
};

static inline uint64_t case_draw(struct manifest_case *drawn, uint64_t below)
{
    drawn->seed = drawn->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (drawn->seed >> 33) % below;
}

static inline void case_tensor(struct manifest_case *drawn, const char *name, int32_t list_index)
{
    struct convoy_tensor *tensor = &drawn->tensors[drawn->manifest.count++];
    *tensor = (struct convoy_tensor){.name = name, .name_length = (uint32_t)strlen(name), .list_index = list_index};
    tensor->rank = (uint32_t)case_draw(drawn, 5);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        tensor->shape[i] = case_draw(drawn, 10) == 0 ? 0 : 8 * (1 + case_draw(drawn, 5));
    }
    tensor->dtype = (uint32_t)case_draw(drawn, CONVOY_DTYPE_MAX + 1);
    if (tensor->dtype == CONVOY_DTYPE_OPAQUE) {
        tensor->dtype_name = "float8_e4m3fnuz";
        tensor->dtype_name_length = 15;
        tensor->bytes = case_draw(drawn, 5000);
    } else if (tensor->rank == 0 && convoy_dtype_by_id(tensor->dtype)->bits < 8) {
        tensor->dtype = CONVOY_DTYPE_FLOAT32;
    }
}

/* Up to 8 lists with holes and 32 plain tensors, laid out. */
static inline struct manifest_case *case_random(struct manifest_case *drawn)
{
    uint64_t plain = case_draw(drawn, 33);
    uint64_t lists = case_draw(drawn, CASE_LISTS + 1);
    drawn->manifest = (struct convoy_manifest){.tensors = drawn->tensors, .lists = drawn->lists};
    for (uint64_t i = 0; i < plain; i++) {
        (void)snprintf(drawn->names[i], sizeof drawn->names[i], "field_%u", (unsigned)i);
        case_tensor(drawn, drawn->names[i], -1);
    }
    for (uint64_t i = 0; i < lists; i++) {
        char *name = drawn->names[plain + i];
        struct convoy_tensor_list *list = &drawn->lists[drawn->manifest.list_count++];
        (void)snprintf(name, sizeof drawn->names[0], "l\xc3\xaf""ste.%u", (unsigned)i);
        *list = (struct convoy_tensor_list){name, (uint32_t)strlen(name), (uint32_t)case_draw(drawn, 8)};
        for (uint32_t k = 0; k < list->length; k++) {
            if (case_draw(drawn, 3) != 0) {
                case_tensor(drawn, name, (int32_t)k);
            }
        }
    }
    return drawn;
}

static inline bool case_same_text(const char *left, uint32_t left_length, const char *right, uint32_t right_length)
{
    return left_length == right_length && (left_length == 0 || memcmp(left, right, left_length) == 0);
}

static inline bool case_same_tensor(const struct convoy_tensor *left, const struct convoy_tensor *right)
{
    return case_same_text(left->name, left->name_length, right->name, right->name_length) &&
           case_same_text(left->dtype_name, left->dtype_name_length, right->dtype_name, right->dtype_name_length) &&
           left->list_index == right->list_index && left->dtype == right->dtype && left->offset == right->offset &&
           left->bytes == right->bytes && left->rank == right->rank &&
           memcmp(left->shape, right->shape, left->rank * sizeof left->shape[0]) == 0;
}

/* Lists in any order. */
static inline bool case_same(const struct convoy_manifest *left, const struct convoy_manifest *right)
{
    bool same = left->count == right->count && left->list_count == right->list_count &&
                left->payload_bytes == right->payload_bytes;
    for (uint32_t i = 0; same && i < left->count; i++) {
        same = case_same_tensor(&left->tensors[i], &right->tensors[i]);
    }
    for (uint32_t i = 0; same && i < left->list_count; i++) {
        const struct convoy_tensor_list *list = &left->lists[i];
        uint32_t k = 0;
        while (k < right->list_count && (list->length != right->lists[k].length ||
                                         !case_same_text(list->name, list->name_length, right->lists[k].name,
                                                         right->lists[k].name_length))) {
            k++;
        }
        same = k < right->list_count;
    }
    return same;
}

#endif
