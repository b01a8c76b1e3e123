/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a message: all items of the outermost object are found first, since msg_type may come last; then the type's
 * fields are taken from them. Texts are unescaped where they stand, in the message's own copy.
 */
#include "core/error.h"
#include "core/memory.h"
#include "wire/control_value.h"
#include "wire/json.h"

#include <string.h>

struct decoding {
    char *storage;
    size_t bytes;
    size_t count;
    struct convoy_json_item items[CONVOY_CONTROL_KEYS_MAX];
    struct convoy_control message;
    struct convoy_error *error;
};

#define SHOWN_BYTES_MAX 64u

/* How much of somebody's text an error shows: whole characters. */
static int shown(struct convoy_span span)
{
    size_t bytes = span.bytes;
    if (bytes > SHOWN_BYTES_MAX) {
        bytes = SHOWN_BYTES_MAX;
        while (bytes > 0 && ((unsigned char)span.text[bytes] & 0xc0) == 0x80) {
            bytes--;
        }
    }
    return (int)bytes;
}

static struct convoy_span inside_of(struct convoy_span string)
{
    return (struct convoy_span){string.text + 1, string.bytes - 2};
}

static bool key_is(const struct convoy_json_item *item, const char *key)
{
    return convoy_json_is_same(item->key, (struct convoy_span){key, strlen(key)});
}

/* -- items --------------------------------------------------------------------------------------------------------- */

static const struct convoy_json_item *find_type(const struct decoding *decoding)
{
    for (size_t i = 0; i < decoding->count; i++) {
        if (key_is(&decoding->items[i], "msg_type")) {
            return &decoding->items[i];
        }
    }
    return NULL;
}

/* What an error starts with: the type, if it is known already. */
static const char *path_of(const struct decoding *decoding)
{
    const struct convoy_json_item *item = find_type(decoding);
    bool has_type = item != NULL && item->kind == CONVOY_JSON_STRING;
    enum convoy_control_type type = has_type ? convoy_control_type_of(inside_of(item->value)) : CONVOY_CONTROL_NONE;
    return type != CONVOY_CONTROL_NONE ? convoy_control_name(type) : "message";
}

static int32_t refuse_text(const struct decoding *decoding, const struct convoy_json *json, struct convoy_span key)
{
    return convoy_error_set(decoding->error, json->is_too_deep ? CONVOY_LIMIT : CONVOY_MALFORMED,
                            "%s%s%.*s: byte %zu of the JSON: %s", path_of(decoding), key.bytes != 0 ? "." : "",
                            shown(key), key.text, (size_t)(json->at - json->start), json->fault);
}

static int32_t add_item(struct decoding *decoding, const struct convoy_json_item *item)
{
    if (item->key.bytes > CONVOY_CONTROL_ID_BYTES_MAX) {
        return convoy_error_set(decoding->error, CONVOY_LIMIT, "%s.%.*s...: a key of %zu bytes, allowed are %u",
                                path_of(decoding), shown(item->key), item->key.text, item->key.bytes,
                                CONVOY_CONTROL_ID_BYTES_MAX);
    }
    for (size_t i = 0; i < decoding->count; i++) {
        if (convoy_json_is_same(decoding->items[i].key, item->key)) {
            return convoy_error_set(decoding->error, CONVOY_MALFORMED, "%s.%.*s is there twice", path_of(decoding),
                                    shown(item->key), item->key.text);
        }
    }
    if (decoding->count == CONVOY_CONTROL_KEYS_MAX) {
        return convoy_error_set(decoding->error, CONVOY_LIMIT, "%s has more than %u keys", path_of(decoding),
                                CONVOY_CONTROL_KEYS_MAX);
    }
    decoding->items[decoding->count++] = *item;
    return CONVOY_OK;
}

static int32_t find_items(struct decoding *decoding)
{
    struct convoy_json json;
    convoy_json_open(&json, (struct convoy_span){decoding->storage, decoding->bytes}, true);
    for (;;) {
        struct convoy_json_item item = {.key = {"", 0}};
        switch (convoy_json_next(&json, &item)) {
        case CONVOY_JSON_ITEM:
            break;
        case CONVOY_JSON_END:
            return CONVOY_OK;
        case CONVOY_JSON_FAULT:
        default:
            return refuse_text(decoding, &json, item.key);
        }
        int32_t status = add_item(decoding, &item);
        if (status != CONVOY_OK) {
            return status;
        }
    }
}

static int32_t take_type(struct decoding *decoding)
{
    const struct convoy_json_item *item = find_type(decoding);
    if (item == NULL || item->kind != CONVOY_JSON_STRING) {
        return convoy_error_set(decoding->error, CONVOY_MALFORMED, "message.msg_type is %s",
                                item == NULL ? "missing" : "no text");
    }
    struct convoy_span name = inside_of(item->value);
    decoding->message.type = convoy_control_type_of(name);
    if (decoding->message.type == CONVOY_CONTROL_NONE) {
        return convoy_error_set(decoding->error, CONVOY_UNKNOWN_MESSAGE, "message.msg_type is \"%.*s\", unknown here",
                                shown(name), name.text);
    }
    return CONVOY_OK;
}

/* -- values -------------------------------------------------------------------------------------------------------- */

static int32_t refuse_value(const struct decoding *decoding, const struct convoy_control_field *field,
                            const struct convoy_json_item *item, const char *allowed)
{
    return convoy_error_set(decoding->error, CONVOY_MALFORMED, "%s.%s is %.*s, allowed is %s",
                            convoy_control_name(decoding->message.type), field->key, shown(item->value),
                            item->value.text, allowed);
}

/* In place: what is written is no longer than what is read, and nothing else is read from there again. */
static bool unescape(struct decoding *decoding, const struct convoy_json_item *item, struct convoy_span *span_out)
{
    struct convoy_span inside = inside_of(item->value);
    char *place = decoding->storage + (inside.text - decoding->storage);
    span_out->text = place;
    return convoy_json_unescape(inside, place, &span_out->bytes);
}

static int32_t take_text(struct decoding *decoding, const struct convoy_control_field *field,
                         const struct convoy_json_item *item)
{
    struct convoy_span span = {NULL, 0};
    bool may_be_null = field->kind == CONVOY_CONTROL_KIND_MAYBE;
    bool is_null = may_be_null && item->kind == CONVOY_JSON_NULL;
    if (!is_null && item->kind != CONVOY_JSON_STRING) {
        return refuse_value(decoding, field, item, may_be_null ? "a text or null" : "a text");
    }
    if (!is_null && !unescape(decoding, item, &span)) {
        return convoy_error_set(decoding->error, CONVOY_MALFORMED, "%s.%s has half of a surrogate pair",
                                convoy_control_name(decoding->message.type), field->key);
    }
    memcpy(convoy_control_at(&decoding->message, field), &span, sizeof span);
    return CONVOY_OK;
}

static int32_t take_integer(struct decoding *decoding, const struct convoy_control_field *field,
                            const struct convoy_json_item *item)
{
    int64_t value;
    if (item->kind != CONVOY_JSON_NUMBER || !convoy_json_integer(item->value, &value)) {
        return refuse_value(decoding, field, item, "an integer up to 2^53");
    }
    memcpy(convoy_control_at(&decoding->message, field), &value, sizeof value);
    return CONVOY_OK;
}

/* Digits as the writer would write them: no sign, no leading zero. */
static bool large_of(struct convoy_span digits, uint64_t *value_out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < digits.bytes; i++) {
        uint64_t digit = (uint64_t)(unsigned char)digits.text[i] - '0';
        if (digit > 9 || (i == 1 && value == 0) || value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *value_out = value;
    return digits.bytes != 0;
}

static int32_t take_large(struct decoding *decoding, const struct convoy_control_field *field,
                          const struct convoy_json_item *item)
{
    uint64_t value;
    if (item->kind != CONVOY_JSON_STRING || !large_of(inside_of(item->value), &value)) {
        return refuse_value(decoding, field, item, "a text of decimal digits, up to 2^64 - 1");
    }
    memcpy(convoy_control_at(&decoding->message, field), &value, sizeof value);
    return CONVOY_OK;
}

static int32_t take_bool(struct decoding *decoding, const struct convoy_control_field *field,
                         const struct convoy_json_item *item)
{
    if (item->kind != CONVOY_JSON_BOOL) {
        return refuse_value(decoding, field, item, "true or false");
    }
    bool value = item->value.text[0] == 't';
    memcpy(convoy_control_at(&decoding->message, field), &value, sizeof value);
    return CONVOY_OK;
}

static int32_t take_carried(struct decoding *decoding, const struct convoy_control_field *field,
                            const struct convoy_json_item *item)
{
    bool is_object = field->kind == CONVOY_CONTROL_KIND_OBJECT;
    if (item->kind != (is_object ? CONVOY_JSON_OBJECT : CONVOY_JSON_LIST)) {
        return refuse_value(decoding, field, item, is_object ? "an object" : "a list");
    }
    memcpy(convoy_control_at(&decoding->message, field), &item->value, sizeof item->value);
    return CONVOY_OK;
}

static int32_t take_value(struct decoding *decoding, const struct convoy_control_field *field,
                          const struct convoy_json_item *item)
{
    switch (field->kind) {
    case CONVOY_CONTROL_KIND_INTEGER:
    case CONVOY_CONTROL_KIND_SIGNED:
        return take_integer(decoding, field, item);
    case CONVOY_CONTROL_KIND_LARGE:
        return take_large(decoding, field, item);
    case CONVOY_CONTROL_KIND_BOOL:
        return take_bool(decoding, field, item);
    case CONVOY_CONTROL_KIND_OBJECT:
    case CONVOY_CONTROL_KIND_LIST:
        return take_carried(decoding, field, item);
    case CONVOY_CONTROL_KIND_ID:
    case CONVOY_CONTROL_KIND_TEXT:
    case CONVOY_CONTROL_KIND_MAYBE:
    default:
        return take_text(decoding, field, item);
    }
}

/* -- message ------------------------------------------------------------------------------------------------------- */

/* All else of a default is zero. */
static void set_defaults(struct convoy_control *message)
{
    const struct convoy_control_field *field;
    for (size_t i = 0; (field = convoy_control_field(i)) != NULL; i++) {
        bool is_span = field->kind == CONVOY_CONTROL_KIND_ID || field->kind == CONVOY_CONTROL_KIND_TEXT ||
                       field->kind == CONVOY_CONTROL_KIND_OBJECT || field->kind == CONVOY_CONTROL_KIND_LIST;
        if (is_span) {
            const char *text = convoy_control_empty(field->kind);
            const struct convoy_span empty = {text, strlen(text)};
            memcpy(convoy_control_at(message, field), &empty, sizeof empty);
        }
    }
}

static int32_t take_fields(struct decoding *decoding)
{
    const struct convoy_control_entry *entry = convoy_control_row(decoding->message.type)->entries;
    for (; entry->field != NULL; entry++) {
        int32_t status = CONVOY_OK;
        for (size_t i = 0; i < decoding->count && status == CONVOY_OK; i++) {
            if (key_is(&decoding->items[i], entry->field->key)) {
                status = take_value(decoding, entry->field, &decoding->items[i]);
                break;
            }
        }
        if (status == CONVOY_OK) {
            status = convoy_control_check(&decoding->message, entry->field, CONVOY_MALFORMED, decoding->error);
        }
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

static int32_t decode_text(struct decoding *decoding)
{
    int32_t status = find_items(decoding);
    if (status == CONVOY_OK) {
        status = take_type(decoding);
    }
    return status != CONVOY_OK ? status : take_fields(decoding);
}

static int32_t check_frames(const struct convoy_span *frames, size_t count, struct convoy_error *error)
{
    if (count < 2) {
        return convoy_error_set(error, CONVOY_MALFORMED, "message: %zu frames, at least 2 are needed", count);
    }
    if (frames[0].bytes != CONVOY_CONTROL_MAGIC_BYTES ||
        memcmp(frames[0].text, CONVOY_CONTROL_MAGIC, CONVOY_CONTROL_MAGIC_BYTES) != 0) {
        return convoy_error_set(error, CONVOY_MALFORMED, "message: frame 0 is not the 12 bytes " CONVOY_CONTROL_MAGIC);
    }
    if (frames[1].bytes > CONVOY_CONTROL_BYTES_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "message: frame 1 has %zu bytes, allowed are %u", frames[1].bytes,
                                CONVOY_CONTROL_BYTES_MAX);
    }
    return CONVOY_OK;
}

int32_t convoy_control_decode(const struct convoy_span *frames, size_t frame_count, struct convoy_control *message_out,
                              struct convoy_error *error)
{
    int32_t status = check_frames(frames, frame_count, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct decoding decoding;
    decoding.bytes = frames[1].bytes;
    decoding.count = 0;
    decoding.error = error;
    decoding.storage = convoy_memory_text(frames[1].text, frames[1].bytes);
    if (decoding.storage == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "message: no memory for %zu bytes", frames[1].bytes);
    }
    memset(&decoding.message, 0, sizeof decoding.message);
    set_defaults(&decoding.message);
    status = decode_text(&decoding);
    if (status != CONVOY_OK) {
        convoy_memory_free(decoding.storage);
        return status;
    }
    decoding.message.storage = decoding.storage;
    *message_out = decoding.message;
    return CONVOY_OK;
}

void convoy_control_free(struct convoy_control *message)
{
    convoy_memory_free(message->storage);
    memset(message, 0, sizeof *message);
}
