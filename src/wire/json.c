/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/json.h"

#include "core/utf8.h"

#include <string.h>

_Static_assert(CONVOY_JSON_DEPTH_MAX <= 64, "one bit for each open level");

static bool fault(struct convoy_json *json, const char *what)
{
    json->fault = what;
    return false;
}

static void pass_blanks(struct convoy_json *json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\t' || *json->at == '\r')) {
        json->at++;
    }
}

/* Passes blanks, and this character if it follows them. */
static bool take(struct convoy_json *json, char wanted)
{
    pass_blanks(json);
    if (json->at == json->end || *json->at != wanted) {
        return false;
    }
    json->at++;
    return true;
}

/* -- values -------------------------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool pass_string(struct convoy_json *json)
{
    if (!take(json, '"')) {
        return fault(json, "a string is expected");
    }
    while (json->at < json->end) {
        unsigned char c = (unsigned char)*json->at;
        if (c == '"') {
            json->at++;
            return true;
        }
        if (c < 0x20) {
            return fault(json, "a control character in a string");
        }
        size_t left = (size_t)(json->end - json->at);
        size_t length = c == '\\' ? convoy_json_escape_bytes(json->at, left) : convoy_utf8_bytes(json->at, left);
        if (length == 0) {
            return fault(json, c == '\\' ? "an unknown escape in a string" : "a string is not UTF-8");
        }
        json->at += length;
    }
    return fault(json, "a string does not end");
}

/* A key and its colon. */
static bool pass_key(struct convoy_json *json, struct convoy_span *key_out)
{
    pass_blanks(json);
    const char *quote = json->at;
    if (!pass_string(json)) {
        return false;
    }
    *key_out = (struct convoy_span){quote + 1, (size_t)(json->at - quote) - 2};
    return take(json, ':') || fault(json, "a colon is missing");
}

static bool pass_digits(struct convoy_json *json)
{
    const char *first = json->at;
    while (json->at < json->end && is_digit(*json->at)) {
        json->at++;
    }
    return json->at != first;
}

static bool pass_one_of(struct convoy_json *json, char one, char other)
{
    bool is_there = json->at < json->end && (*json->at == one || *json->at == other);
    json->at += is_there ? 1 : 0;
    return is_there;
}

static bool pass_number(struct convoy_json *json)
{
    (void)pass_one_of(json, '-', '-');
    bool is_right = pass_one_of(json, '0', '0') || pass_digits(json);
    if (is_right && pass_one_of(json, '.', '.')) {
        is_right = pass_digits(json);
    }
    if (is_right && pass_one_of(json, 'e', 'E')) {
        (void)pass_one_of(json, '+', '-');
        is_right = pass_digits(json);
    }
    return is_right || fault(json, "a value is expected");
}

static bool pass_word(struct convoy_json *json, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, word, length) != 0) {
        return fault(json, "a value is expected");
    }
    json->at += length;
    return true;
}

static enum convoy_json_kind kind_at(const struct convoy_json *json)
{
    switch (json->at < json->end ? *json->at : '\0') {
    case '{':
        return CONVOY_JSON_OBJECT;
    case '[':
        return CONVOY_JSON_LIST;
    case '"':
        return CONVOY_JSON_STRING;
    case 't':
    case 'f':
        return CONVOY_JSON_BOOL;
    case 'n':
        return CONVOY_JSON_NULL;
    default:
        return CONVOY_JSON_NUMBER;
    }
}

static bool pass_scalar(struct convoy_json *json)
{
    switch (kind_at(json)) {
    case CONVOY_JSON_STRING:
        return pass_string(json);
    case CONVOY_JSON_BOOL:
        return pass_word(json, *json->at == 't' ? "true" : "false");
    case CONVOY_JSON_NULL:
        return pass_word(json, "null");
    case CONVOY_JSON_NUMBER:
    case CONVOY_JSON_LIST:
    case CONVOY_JSON_OBJECT:
    default:
        return pass_number(json);
    }
}

/* The levels that are open below the one that is walked: bit 0 of is_object is the innermost. */
struct levels {
    uint64_t is_object;
    uint32_t count;
};

static bool close_level(struct convoy_json *json, struct levels *levels)
{
    if (!take(json, (levels->is_object & 1) != 0 ? '}' : ']')) {
        return false;
    }
    levels->is_object >>= 1;
    levels->count--;
    return true;
}

static bool open_level(struct convoy_json *json, struct levels *levels)
{
    if (levels->count + 1 >= json->depth_max) {
        json->is_too_deep = true;
        return fault(json, "lists and objects lie too deep in each other, allowed are 64");
    }
    levels->is_object = levels->is_object << 1 | (*json->at == '{' ? 1 : 0);
    levels->count++;
    json->at++;
    return true;
}

/* After a value: closes levels until another value must follow, or all are closed. */
static bool pass_ends(struct convoy_json *json, struct levels *levels)
{
    struct convoy_span key;
    while (levels->count != 0) {
        if (take(json, ',')) {
            return (levels->is_object & 1) == 0 || pass_key(json, &key);
        }
        if (!close_level(json, levels)) {
            return fault(json, "a comma or the end of a list or object is missing");
        }
    }
    return true;
}

static bool pass_value(struct convoy_json *json)
{
    struct levels levels = {0};
    struct convoy_span key;
    do {
        pass_blanks(json);
        enum convoy_json_kind kind = kind_at(json);
        if (kind != CONVOY_JSON_LIST && kind != CONVOY_JSON_OBJECT) {
            if (!pass_scalar(json)) {
                return false;
            }
        } else if (!open_level(json, &levels)) {
            return false;
        } else if (!close_level(json, &levels)) { /* not empty: a value must follow */
            if (kind == CONVOY_JSON_OBJECT && !pass_key(json, &key)) {
                return false;
            }
            continue;
        }
        if (!pass_ends(json, &levels)) {
            return false;
        }
    } while (levels.count != 0);
    return true;
}

/* -- one level ----------------------------------------------------------------------------------------------------- */

void convoy_json_open(struct convoy_json *json, struct convoy_span text, bool is_object)
{
    *json = (struct convoy_json){.start = text.text,
                                 .at = text.text,
                                 .end = text.text + text.bytes,
                                 .depth_max = CONVOY_JSON_DEPTH_MAX,
                                 .is_object = is_object};
}

static enum convoy_json_step json_end(struct convoy_json *json)
{
    pass_blanks(json);
    if (json->at != json->end) {
        (void)fault(json, "something follows the end");
        return CONVOY_JSON_FAULT;
    }
    return CONVOY_JSON_END;
}

enum convoy_json_step convoy_json_next(struct convoy_json *json, struct convoy_json_item *item_out)
{
    bool is_first = !json->has_begun;
    struct convoy_json_item item = {.key = {"", 0}};
    if (is_first && !take(json, json->is_object ? '{' : '[')) {
        (void)fault(json, json->is_object ? "an object is expected" : "a list is expected");
        return CONVOY_JSON_FAULT;
    }
    json->has_begun = true;
    if (take(json, json->is_object ? '}' : ']')) {
        return json_end(json);
    }
    if (!is_first && !take(json, ',')) {
        (void)fault(json, "a comma or the end of a list or object is missing");
        return CONVOY_JSON_FAULT;
    }
    if (json->is_object && !pass_key(json, &item.key)) {
        return CONVOY_JSON_FAULT;
    }
    pass_blanks(json);
    item.kind = kind_at(json);
    item.value.text = json->at;
    if (!pass_value(json)) {
        item_out->key = item.key; /* for a report: whose value it is */
        return CONVOY_JSON_FAULT;
    }
    item.value.bytes = (size_t)(json->at - item.value.text);
    *item_out = item;
    return CONVOY_JSON_ITEM;
}

bool convoy_json_integer(struct convoy_span number, int64_t *value_out)
{
    bool is_negative = number.text[0] == '-';
    uint64_t limit = (uint64_t)INT64_MAX + (is_negative ? 1 : 0);
    uint64_t value = 0;
    for (size_t i = is_negative ? 1 : 0; i < number.bytes; i++) {
        uint64_t digit = (uint64_t)(number.text[i] - '0');
        if (!is_digit(number.text[i]) || value > (limit - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *value_out = is_negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}
