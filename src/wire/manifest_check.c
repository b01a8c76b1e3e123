/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of a whole manifest. Each tensor by itself comes first, in the order given; then names, by one sorted list of
 * all tensors and lists; then places, by the tensors sorted by offset; then the sum. Sorting names is most of the work,
 * and finds what is to be refused; that nothing is, a table of their hashes tells faster.
 */
#include "wire/manifest.h"

#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "wire/name.h"

#define XXH_INLINE_ALL
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

#define NODES_ON_STACK 256u
#define TABLE_MAX 1024u /* names in the table are at most half of that */
#define INDEX_SPREAD UINT64_C(0x9e3779b97f4a7c15)

#define ORDER_LIST INT64_C(-2) /* before a plain tensor (-1) and elements of the same name */

struct check {
    const struct convoy_manifest *manifest;
    int32_t refusal;
    uint32_t *nodes; /* tensors, then lists, by number; sorted here */
    uint32_t *room;  /* as many */
    struct convoy_error *error;
};

/* Whether left stays before right. */
typedef bool (*check_order_fn)(const struct convoy_manifest *manifest, uint32_t left, uint32_t right);

static bool has_offset_order(const struct convoy_manifest *manifest, uint32_t left, uint32_t right)
{
    return manifest->tensors[left].offset <= manifest->tensors[right].offset;
}

static const char *node_name(const struct convoy_manifest *manifest, uint32_t node, uint32_t *length_out)
{
    if (node >= manifest->count) {
        *length_out = manifest->lists[node - manifest->count].name_length;
        return manifest->lists[node - manifest->count].name;
    }
    *length_out = manifest->tensors[node].name_length;
    return manifest->tensors[node].name;
}

static int64_t node_rank(const struct convoy_manifest *manifest, uint32_t node)
{
    return node >= manifest->count ? ORDER_LIST : manifest->tensors[node].list_index;
}

/* By length first: any order does that puts equal names side by side. */
static int compare_names(const struct convoy_manifest *manifest, uint32_t left, uint32_t right)
{
    uint32_t left_length = 0;
    uint32_t right_length = 0;
    const char *left_name = node_name(manifest, left, &left_length);
    const char *right_name = node_name(manifest, right, &right_length);
    if (left_length != right_length) {
        return left_length < right_length ? -1 : 1;
    }
    return memcmp(left_name, right_name, left_length);
}

static bool has_name_order(const struct convoy_manifest *manifest, uint32_t left, uint32_t right)
{
    int order = compare_names(manifest, left, right);
    return order != 0 ? order < 0 : node_rank(manifest, left) <= node_rank(manifest, right);
}

/* -- sorting: merges runs of growing width, stable, so that of two equals the later one is refused ----------------- */

static void merge(struct check *check, uint32_t begin, uint32_t middle, uint32_t end, check_order_fn has_order)
{
    const struct convoy_manifest *manifest = check->manifest;
    uint32_t left = begin;
    uint32_t right = middle;
    for (uint32_t i = begin; i < end; i++) {
        bool take_left =
            right == end || (left < middle && has_order(manifest, check->nodes[left], check->nodes[right]));
        check->room[i] = check->nodes[take_left ? left++ : right++];
    }
    memcpy(check->nodes + begin, check->room + begin, (end - begin) * sizeof *check->nodes);
}

static void sort(struct check *check, uint32_t count, check_order_fn has_order)
{
    for (uint32_t i = 0; i < count; i++) {
        check->nodes[i] = i;
    }
    for (uint32_t width = 1; width < count; width *= 2) {
        for (uint32_t begin = 0; begin + width < count; begin += 2 * width) {
            uint32_t middle = begin + width;
            uint32_t end = count - middle < width ? count : middle + width;
            if (!has_order(check->manifest, check->nodes[middle - 1], check->nodes[middle])) {
                merge(check, begin, middle, end, has_order);
            }
        }
    }
}

/* -- one by one ---------------------------------------------------------------------------------------------------- */

static int32_t check_place(const struct convoy_tensor *tensor, const struct convoy_manifest *manifest,
                           uint64_t alignment, int32_t refusal, struct convoy_error *error)
{
    char path[CONVOY_MANIFEST_PATH_BYTES];
    const uint64_t step = CONVOY_MANIFEST_ALIGNMENT;
    if (tensor->offset % alignment != 0) {
        convoy_manifest_path(tensor, path);
        return convoy_error_set(error, refusal, "%s.offset is %" PRIu64 ", allowed are multiples of %" PRIu64, path,
                                tensor->offset, alignment);
    }
    uint64_t room = manifest->payload_bytes;
    if (tensor->bytes == 0) { /* nothing is read there */
        room = (room + step - 1) / step * step;
    }
    if (tensor->bytes > room || tensor->offset > room - tensor->bytes) {
        convoy_manifest_path(tensor, path);
        return convoy_error_set(error, refusal,
                                "%s.offset is %" PRIu64 ": with %" PRIu64 " bytes it ends past the payload of %" PRIu64,
                                path, tensor->offset, tensor->bytes, manifest->payload_bytes);
    }
    return CONVOY_OK;
}

static int32_t check_index(const struct convoy_tensor *tensor, uint32_t position, int32_t refusal,
                           struct convoy_error *error)
{
    if (tensor->list_index >= -1 && tensor->list_index < (int32_t)CONVOY_MANIFEST_LENGTH_MAX) {
        return CONVOY_OK;
    }
    return convoy_error_set(error, refusal, "manifest.tensors[%u].list_index is %" PRId32 ", allowed are -1 to %u",
                            position, tensor->list_index, CONVOY_MANIFEST_LENGTH_MAX - 1);
}

static int32_t check_tensor(const struct convoy_manifest *manifest, uint32_t position, uint64_t alignment,
                            int32_t refusal, struct convoy_error *error)
{
    const struct convoy_tensor *tensor = &manifest->tensors[position];
    uint64_t bytes = 0;
    int32_t status = convoy_manifest_tensor_check(tensor, position, refusal, error);
    if (status == CONVOY_OK) {
        status = check_index(tensor, position, refusal, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_manifest_tensor_bytes(tensor, &bytes, refusal, error);
    }
    if (status == CONVOY_OK && bytes != tensor->bytes) {
        char path[CONVOY_MANIFEST_PATH_BYTES];
        convoy_manifest_path(tensor, path);
        return convoy_error_set(error, refusal, "%s.bytes is %" PRIu64 ", shape and dtype make %" PRIu64, path,
                                tensor->bytes, bytes);
    }
    return status == CONVOY_OK ? check_place(tensor, manifest, alignment, refusal, error) : status;
}

static int32_t check_list(const struct convoy_tensor_list *list, uint32_t position, int32_t refusal,
                          struct convoy_error *error)
{
    if (list->name_length == 0 || list->name_length > CONVOY_MANIFEST_NAME_MAX) {
        return convoy_error_set(error, refusal, "manifest.lists[%u].name has %u bytes, allowed are 1 to %u", position,
                                list->name_length, CONVOY_MANIFEST_NAME_MAX);
    }
    if (!convoy_utf8_is_clean(list->name, list->name_length)) {
        return convoy_error_set(error, refusal, "manifest.lists[%u].name is no UTF-8, or has control characters",
                                position);
    }
    if (list->length > CONVOY_MANIFEST_LENGTH_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "manifest.lists[%u].length is %u, allowed are up to %u", position,
                                list->length, CONVOY_MANIFEST_LENGTH_MAX);
    }
    return CONVOY_OK;
}

/* -- together ------------------------------------------------------------------------------------------------------ */

static int32_t refuse_list(const struct check *check, const struct convoy_tensor_list *list, const char *what)
{
    const struct convoy_tensor as_tensor = {.name = list->name, .name_length = list->name_length, .list_index = -1};
    char path[CONVOY_MANIFEST_PATH_BYTES];
    convoy_manifest_path(&as_tensor, path);
    return convoy_error_set(check->error, check->refusal, "%s: %s", path, what);
}

/* One element of a list, after what comes before it: the list itself or an element. */
static int32_t check_element(const struct check *check, const struct convoy_tensor *tensor,
                             const struct convoy_tensor_list *list, int64_t index_before)
{
    char path[CONVOY_MANIFEST_PATH_BYTES];
    convoy_manifest_path(tensor, path);
    if (list == NULL) {
        return convoy_error_set(check->error, check->refusal, "%s: there is no list of that name", path);
    }
    if ((uint32_t)tensor->list_index >= list->length) {
        return convoy_error_set(check->error, check->refusal, "%s: the list has a length of %u", path, list->length);
    }
    if (tensor->list_index == index_before) {
        return convoy_error_set(check->error, check->refusal, "%s is given twice", path);
    }
    return CONVOY_OK;
}

/* -- names by their hashes ----------------------------------------------------------------------------------------- */

static uint64_t name_hash(const struct convoy_manifest *manifest, uint32_t node)
{
    uint32_t length = 0;
    const char *name = node_name(manifest, node, &length);
    return XXH3_64bits(name, length);
}

/* Whether a node of this hash, name and rank (or any rank) is in the table; its place, or that of the first free one. */
static bool table_find(const struct convoy_manifest *manifest, const uint16_t *table, uint64_t hash, uint32_t node,
                       int64_t rank, uint32_t *place_out)
{
    uint32_t place = (uint32_t)hash % TABLE_MAX;
    for (; table[place] != 0; place = (place + 1) % TABLE_MAX) {
        uint32_t other = table[place] - 1u;
        if (compare_names(manifest, node, other) == 0 && node_rank(manifest, other) == rank) {
            *place_out = place;
            return true;
        }
    }
    *place_out = place;
    return false;
}

static bool table_add(const struct convoy_manifest *manifest, uint16_t *table, uint64_t hash, uint32_t node)
{
    uint32_t place;
    bool is_there = table_find(manifest, table, hash, node, node_rank(manifest, node), &place);
    table[place] = (uint16_t)(node + 1);
    return !is_there;
}

/* A plain tensor: no list and no other plain one has its name. An element: a list has, and no other its index. */
static bool table_add_tensor(const struct convoy_manifest *manifest, uint16_t *table, uint32_t node)
{
    uint64_t hash = name_hash(manifest, node);
    int64_t rank = node_rank(manifest, node);
    uint32_t place;
    bool has_list = manifest->list_count != 0 && table_find(manifest, table, hash, node, ORDER_LIST, &place);
    if (rank < 0) {
        return !has_list && table_add(manifest, table, hash, node);
    }
    return has_list && (uint64_t)rank < manifest->lists[table[place] - 1u - manifest->count].length &&
           table_add(manifest, table, hash ^ ((uint64_t)rank + 1) * INDEX_SPREAD >> 32, node);
}

/* true: all names are as they must be. false: maybe not. */
static bool names_are_right(const struct convoy_manifest *manifest, uint32_t count)
{
    uint16_t table[TABLE_MAX];
    bool is_right = count <= TABLE_MAX / 2;
    if (is_right) {
        memset(table, 0, sizeof table);
    }
    for (uint32_t node = manifest->count; node < count && is_right; node++) {
        is_right = table_add(manifest, table, name_hash(manifest, node), node);
    }
    for (uint32_t node = 0; node < manifest->count && is_right; node++) {
        is_right = table_add_tensor(manifest, table, node);
    }
    return is_right;
}

/* -- names in order ------------------------------------------------------------------------------------------------ */

/* Sorted: the list first, then a plain tensor of its name, then elements by index. */
static int32_t check_names(struct check *check, uint32_t count)
{
    const struct convoy_manifest *manifest = check->manifest;
    const struct convoy_tensor_list *list = NULL;
    sort(check, count, has_name_order);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = check->nodes[i];
        bool is_first = i == 0 || compare_names(manifest, check->nodes[i - 1], node) != 0;
        int64_t before = is_first ? INT64_MIN : node_rank(manifest, check->nodes[i - 1]);
        list = is_first ? NULL : list;
        if (node >= manifest->count) {
            list = &manifest->lists[node - manifest->count];
            if (!is_first) {
                return refuse_list(check, list, "two lists have this name");
            }
            continue;
        }
        const struct convoy_tensor *tensor = &manifest->tensors[node];
        if (tensor->list_index < 0 && !is_first) {
            const struct convoy_tensor_list named = {.name = tensor->name, .name_length = tensor->name_length};
            return refuse_list(check, &named,
                               list != NULL ? "a tensor and a list have this name" : "two tensors have this name");
        }
        if (tensor->list_index >= 0) {
            /* A pair's path is made only when it is refused. */
            bool is_right = list != NULL && (uint32_t)tensor->list_index < list->length && tensor->list_index != before;
            int32_t status = is_right ? CONVOY_OK : check_element(check, tensor, list, before);
            if (status != CONVOY_OK) {
                return status;
            }
        }
    }
    return CONVOY_OK;
}

/* As most senders place them: one behind the other. false: maybe they overlap. */
static bool are_in_order(const struct convoy_manifest *manifest)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < manifest->count; i++) {
        const struct convoy_tensor *tensor = &manifest->tensors[i];
        if (tensor->bytes != 0 && tensor->offset < end) {
            return false;
        }
        end = tensor->bytes != 0 ? tensor->offset + tensor->bytes : end;
    }
    return true;
}

static int32_t check_overlap(struct check *check)
{
    const struct convoy_manifest *manifest = check->manifest;
    const struct convoy_tensor *last = NULL;
    if (are_in_order(manifest)) {
        return CONVOY_OK;
    }
    sort(check, manifest->count, has_offset_order);
    for (uint32_t i = 0; i < manifest->count; i++) {
        const struct convoy_tensor *tensor = &manifest->tensors[check->nodes[i]];
        if (tensor->bytes == 0) {
            continue;
        }
        if (last != NULL && tensor->offset < last->offset + last->bytes && !CONVOY_MUTATED(overlap_not_checked)) {
            char path[CONVOY_MANIFEST_PATH_BYTES];
            char last_path[CONVOY_MANIFEST_PATH_BYTES];
            convoy_manifest_path(tensor, path);
            convoy_manifest_path(last, last_path);
            return convoy_error_set(check->error, check->refusal,
                                    "%s.offset is %" PRIu64 ": overlaps %.80s, which ends at %" PRIu64, path,
                                    tensor->offset, last_path, last->offset + last->bytes);
        }
        last = tensor;
    }
    return CONVOY_OK;
}

uint64_t convoy_manifest_end(const struct convoy_manifest *manifest)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < manifest->count; i++) {
        const struct convoy_tensor *tensor = &manifest->tensors[i];
        uint64_t own = 0;
        if (__builtin_add_overflow(tensor->offset, tensor->bytes, &own)) {
            own = UINT64_MAX;
        }
        end = tensor->bytes != 0 && own > end ? own : end;
    }
    return end;
}

/* What is checked. Of one that was just laid out, types and places are right already. */
struct scope {
    uint64_t alignment;
    int32_t refusal;
    bool is_laid_out;
};

static int32_t check_one_by_one(const struct convoy_manifest *manifest, const struct scope *scope,
                                struct convoy_error *error)
{
    int32_t refusal = scope->refusal;
    int32_t status = convoy_manifest_limits(manifest->count, manifest->list_count, error);
    if (status == CONVOY_OK && manifest->payload_bytes > CONVOY_MANIFEST_NUMBER_MAX - CONVOY_MANIFEST_ALIGNMENT) {
        status = convoy_error_set(error, refusal, "manifest.payload_bytes is %" PRIu64 ", allowed are up to 2^63 - 513",
                                  manifest->payload_bytes);
    }
    for (uint32_t i = 0; i < manifest->count && status == CONVOY_OK; i++) {
        status = scope->is_laid_out ? check_index(&manifest->tensors[i], i, refusal, error)
                                    : check_tensor(manifest, i, scope->alignment, refusal, error);
    }
    for (uint32_t i = 0; i < manifest->list_count && status == CONVOY_OK; i++) {
        status = check_list(&manifest->lists[i], i, refusal, error);
    }
    return status;
}

static int32_t check_together(struct check *check, uint32_t count)
{
    int32_t status = names_are_right(check->manifest, count) ? CONVOY_OK : check_names(check, count);
    if (status == CONVOY_OK) {
        status = check_overlap(check);
    }
    uint64_t end = convoy_manifest_end(check->manifest);
    if (status == CONVOY_OK && end != check->manifest->payload_bytes && !CONVOY_MUTATED(end_not_checked)) {
        status = convoy_error_set(check->error, check->refusal,
                                  "manifest.payload_bytes is %" PRIu64 ", the highest end is %" PRIu64,
                                  check->manifest->payload_bytes, end);
    }
    return status;
}

static int32_t check_all(const struct convoy_manifest *manifest, const struct scope *scope, struct convoy_error *error)
{
    uint32_t on_stack[2 * NODES_ON_STACK];
    int32_t status = check_one_by_one(manifest, scope, error);
    if (status != CONVOY_OK) {
        return status;
    }
    uint32_t count = manifest->count + manifest->list_count;
    uint32_t *nodes = count <= NODES_ON_STACK ? on_stack : convoy_memory_array(count, 2 * sizeof *nodes);
    if (nodes == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "manifest: no memory to sort %u names", count);
    }
    struct check check = {
        .manifest = manifest, .refusal = scope->refusal, .nodes = nodes, .room = nodes + count, .error = error};
    status = check_together(&check, count);
    if (nodes != on_stack) {
        convoy_memory_free(nodes);
    }
    return status;
}

int32_t convoy_manifest_check(const struct convoy_manifest *manifest, uint64_t alignment, int32_t refusal,
                              struct convoy_error *error)
{
    return check_all(manifest, &(struct scope){.alignment = alignment, .refusal = refusal}, error);
}

int32_t convoy_manifest_check_laid_out(const struct convoy_manifest *manifest, struct convoy_error *error)
{
    return check_all(manifest, &(struct scope){.refusal = CONVOY_INVALID_ARGUMENT, .is_laid_out = true}, error);
}
