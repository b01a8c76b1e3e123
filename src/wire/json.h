/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the values of one level of a JSON text and builds nothing: each value is the piece of text where it stands, so
 * that what is only carried is never written anew. What lies inside a value is checked and passed over.
 *
 *     {"a":[1,{"b":2}],"c":"d"}      items: key a, value [1,{"b":2}], kind LIST
 *       ^ ^----------^                      key c, value "d",         kind STRING
 *
 * Strict: RFC 8259 and nothing else (no NaN, no comment, nothing behind the end), texts are UTF-8. Bounded: at most
 * CONVOY_JSON_DEPTH_MAX levels, no recursion, no allocation. A lone surrogate (\ud800) is a value that can be carried
 * but not read. Pure.
 */
#ifndef CONVOY_WIRE_JSON_H
#define CONVOY_WIRE_JSON_H

#include "wire/json_string.h"

#define CONVOY_JSON_DEPTH_MAX 64u /* of lists and objects in each other, the outermost included */

enum convoy_json_kind {
    CONVOY_JSON_NULL = 0,
    CONVOY_JSON_BOOL,
    CONVOY_JSON_NUMBER,
    CONVOY_JSON_STRING,
    CONVOY_JSON_LIST,
    CONVOY_JSON_OBJECT,
};

struct convoy_json_item {
    struct convoy_span key;   /* between its quotes, as written; empty in a list */
    struct convoy_span value; /* as written, quotes included */
    enum convoy_json_kind kind;
};

enum convoy_json_step {
    CONVOY_JSON_END = 0,
    CONVOY_JSON_ITEM,
    CONVOY_JSON_FAULT,
};

struct convoy_json {
    const char *start;
    const char *at; /* after a fault: where it is */
    const char *end;
    const char *fault; /* what is wrong, in words */
    uint32_t depth_max; /* CONVOY_JSON_DEPTH_MAX unless set lower after open */
    bool is_object;
    bool has_begun;
    bool is_too_deep; /* the fault is the depth */
};

/* Starts on a text that must be one object, or else one list. Borrows the text. */
void convoy_json_open(struct convoy_json *json, struct convoy_span text, bool is_object);

/* The next item, or END once nothing but blanks follows. FAULT: json->fault, json->at, and item_out->key once the key
 * is known; else item_out is as before. After END or FAULT there is no next. */
enum convoy_json_step convoy_json_next(struct convoy_json *json, struct convoy_json_item *item_out);

/* false: the number has a fraction or an exponent, or is beyond 64 bits. */
bool convoy_json_integer(struct convoy_span number, int64_t *value_out);

#endif
