/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A control message of a host, from any bytes; and the slot id in any text. What is read is written and read again: it
 * says the same, and its second writing is the first, byte for byte. What is JSON and what is not, jansson says alike.
 */
#include "core/memory.h"
#include "wire/control.h"
#include "wire/json.h"
#include "wire/scalars.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static bool is_same_span(struct convoy_span one, struct convoy_span other)
{
    return one.bytes == other.bytes && (one.text == NULL) == (other.text == NULL) &&
           (one.bytes == 0 || memcmp(one.text, other.text, one.bytes) == 0);
}

static bool is_same_number(uint64_t one, uint64_t other)
{
    return one == other;
}

#define SAME_ID is_same_span
#define SAME_TEXT is_same_span
#define SAME_MAYBE is_same_span
#define SAME_OBJECT is_same_span
#define SAME_LIST is_same_span
#define SAME_INTEGER(one, other) is_same_number((uint64_t)(one), (uint64_t)(other))
#define SAME_SIGNED(one, other) is_same_number((uint64_t)(one), (uint64_t)(other))
#define SAME_LARGE is_same_number
#define SAME_BOOL is_same_number

static void require_same(const struct convoy_control *one, const struct convoy_control *other)
{
    require(one->type == other->type);
#define REQUIRE_SAME(member, key, kind, max, meaning) require(SAME_##kind(one->member, other->member));
    CONVOY_CONTROL_FIELDS(REQUIRE_SAME)
#undef REQUIRE_SAME
}

static int32_t decode(const char *text, size_t bytes, struct convoy_control *message)
{
    const struct convoy_span frames[] = {{CONVOY_CONTROL_MAGIC, CONVOY_CONTROL_MAGIC_BYTES}, {text, bytes}};
    struct convoy_error error = {.struct_size = sizeof error};
    int32_t status = convoy_control_decode(frames, 2, message, &error);
    require(status == CONVOY_OK || (status == error.status && strlen(error.text) > 9));
    return status;
}

static void feed_message(const char *text, size_t bytes)
{
    struct convoy_control message;
    struct convoy_control back;
    char *first = NULL;
    char *second = NULL;
    size_t first_bytes = 0;
    size_t second_bytes = 0;
    if (decode(text, bytes, &message) != CONVOY_OK) {
        return;
    }
    require(convoy_control_encode(&message, &first, &first_bytes, NULL) == CONVOY_OK);
    require(decode(first, first_bytes, &back) == CONVOY_OK);
    require_same(&message, &back);
    require(convoy_control_encode(&back, &second, &second_bytes, NULL) == CONVOY_OK);
    require(first_bytes == second_bytes && memcmp(first, second, first_bytes) == 0);
    convoy_control_free(&message);
    convoy_control_free(&back);
    convoy_memory_free(first);
    convoy_memory_free(second);
}

static void feed_scalars(const char *text, size_t bytes)
{
    const struct convoy_span scalars = {text, bytes};
    struct convoy_scalars_slot slot;
    char *out = NULL;
    char *bare = NULL;
    size_t out_bytes = 0;
    size_t bare_bytes = 0;
    if (convoy_scalars_slot_read(scalars, &slot, NULL) != CONVOY_OK) {
        return;
    }
    require(!slot.has_id || (slot.id >= 0 && slot.id <= CONVOY_CONTROL_INTEGER_MAX));
    require(convoy_scalars_slot_insert(scalars, 7, &out, &out_bytes, NULL) == CONVOY_OK);
    require(convoy_scalars_slot_read((struct convoy_span){out, out_bytes}, &slot, NULL) == CONVOY_OK);
    require(slot.has_id && slot.id == 7);
    require(convoy_scalars_slot_remove((struct convoy_span){out, out_bytes}, &bare, &bare_bytes, NULL) == CONVOY_OK);
    require(convoy_scalars_slot_read((struct convoy_span){bare, bare_bytes}, &slot, NULL) == CONVOY_OK);
    require(!slot.has_id);
    convoy_memory_free(out);
    convoy_memory_free(bare);
}

/* Jansson reads deeper, but no number beyond its types, no half of a surrogate pair, and no zero byte in a key; and it
 * passes over a zero byte behind a number. */
static void feed_json(const char *text, size_t bytes)
{
    struct convoy_json json;
    struct convoy_json_item item;
    enum convoy_json_step step;
    json_error_t error;
    if (bytes == 0 || memchr(text, '\0', bytes) != NULL) {
        return;
    }
    json_t *value = json_loadb(text, bytes, JSON_ALLOW_NUL, &error);
    bool is_object = json_is_object(value) || memchr(text, '[', bytes) == NULL;
    convoy_json_open(&json, (struct convoy_span){text, bytes}, is_object);
    do {
        step = convoy_json_next(&json, &item);
    } while (step == CONVOY_JSON_ITEM);
    if (value != NULL) {
        require(step == CONVOY_JSON_END || json.is_too_deep);
    } else if (step == CONVOY_JSON_END) {
        require(json_error_code(&error) == json_error_numeric_overflow || memchr(text, '\\', bytes) != NULL);
    }
    json_decref(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    feed_json((const char *)data, size);
    feed_message((const char *)data, size);
    feed_scalars((const char *)data, size);
    return 0;
}
