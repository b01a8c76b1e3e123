/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/scalars.h"

#include "core/error.h"
#include "core/memory.h"
#include "wire/control.h"
#include "wire/json.h"
#include "wire/writer.h"

#include <inttypes.h>
#include <string.h>

/* Where the key stands, as positions in the text. */
struct place {
    bool is_there;
    enum convoy_json_kind kind;
    struct convoy_span value;
    size_t cut;     /* what goes when it is taken out, its comma included */
    size_t cut_end;
    size_t item_count; /* of all */
    size_t close;      /* the last brace */
};

static int32_t note_item(struct convoy_span text, const struct convoy_json_item *item, size_t last_end,
                         struct place *place, struct convoy_error *error)
{
    static const struct convoy_span key = {CONVOY_SCALARS_SLOT_KEY, sizeof CONVOY_SCALARS_SLOT_KEY - 1};
    size_t start = (size_t)(item->key.text - 1 - text.text);
    if (!convoy_json_is_same(item->key, key)) {
        if (place->is_there && place->item_count == 1) { /* it was the first, so the comma behind it goes */
            place->cut_end = start;
        }
        return CONVOY_OK;
    }
    if (place->is_there) {
        return convoy_error_set(error, CONVOY_MALFORMED, "scalar_fields." CONVOY_SCALARS_SLOT_KEY " is there twice");
    }
    place->is_there = true;
    place->kind = item->kind;
    place->value = item->value;
    place->cut = place->item_count == 0 ? start : last_end;
    place->cut_end = (size_t)(item->value.text - text.text) + item->value.bytes;
    return CONVOY_OK;
}

static int32_t find_place(struct convoy_span text, struct place *place, struct convoy_error *error)
{
    struct convoy_json json;
    struct convoy_json_item item;
    enum convoy_json_step step;
    size_t last_end = 0;
    if (text.bytes > CONVOY_CONTROL_VALUE_BYTES_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "scalar_fields has %zu bytes, allowed are %u", text.bytes,
                                CONVOY_CONTROL_VALUE_BYTES_MAX);
    }
    memset(place, 0, sizeof *place);
    convoy_json_open(&json, text, true);
    while ((step = convoy_json_next(&json, &item)) == CONVOY_JSON_ITEM) {
        int32_t status = note_item(text, &item, last_end, place, error);
        if (status != CONVOY_OK) {
            return status;
        }
        last_end = (size_t)(json.at - text.text);
        place->item_count++;
    }
    if (step == CONVOY_JSON_FAULT) {
        return convoy_error_set(error, json.is_too_deep ? CONVOY_LIMIT : CONVOY_MALFORMED, "scalar_fields: byte %zu: %s",
                                (size_t)(json.at - json.start), json.fault);
    }
    place->close = text.bytes - 1;
    while (text.text[place->close] != '}') {
        place->close--;
    }
    return CONVOY_OK;
}

static int32_t find_slot(struct convoy_span *text, struct place *place, struct convoy_scalars_slot *slot_out,
                         struct convoy_error *error)
{
    if (text->bytes == 0) {
        *text = (struct convoy_span){"{}", 2};
    }
    struct convoy_scalars_slot slot = {false, 0};
    int32_t status = find_place(*text, place, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (place->is_there && place->kind != CONVOY_JSON_NULL) {
        slot.has_id = true;
        if (place->kind != CONVOY_JSON_NUMBER || !convoy_json_integer(place->value, &slot.id) || slot.id < 0 ||
            slot.id > CONVOY_CONTROL_INTEGER_MAX) {
            return convoy_error_set(error, CONVOY_MALFORMED,
                                    "scalar_fields." CONVOY_SCALARS_SLOT_KEY " is no integer of 0 to %" PRId64
                                    " and not null",
                                    CONVOY_CONTROL_INTEGER_MAX);
        }
    }
    *slot_out = slot;
    return CONVOY_OK;
}

int32_t convoy_scalars_slot_read(struct convoy_span scalars, struct convoy_scalars_slot *slot_out,
                                 struct convoy_error *error)
{
    struct place place;
    return find_slot(&scalars, &place, slot_out, error);
}

/* The text with [cut, cut_end) replaced. */
static int32_t replace(struct convoy_span text, size_t cut, size_t cut_end, struct convoy_span by, char **text_out,
                       size_t *bytes_out, struct convoy_error *error)
{
    struct convoy_writer writer = {.out = convoy_memory_zalloc(text.bytes - (cut_end - cut) + by.bytes + 1)};
    if (writer.out == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "scalar_fields: no memory for %zu bytes",
                                text.bytes + by.bytes);
    }
    convoy_writer_put(&writer, text.text, cut);
    convoy_writer_put(&writer, by.text, by.bytes);
    convoy_writer_put(&writer, text.text + cut_end, text.bytes - cut_end);
    *text_out = writer.out;
    *bytes_out = writer.bytes;
    return CONVOY_OK;
}

int32_t convoy_scalars_slot_remove(struct convoy_span scalars, char **text_out, size_t *bytes_out,
                                   struct convoy_error *error)
{
    struct place place;
    struct convoy_scalars_slot slot;
    int32_t status = find_slot(&scalars, &place, &slot, error);
    if (status != CONVOY_OK) {
        return status;
    }
    return replace(scalars, place.cut, place.cut_end, (struct convoy_span){"", 0}, text_out, bytes_out, error);
}

int32_t convoy_scalars_slot_insert(struct convoy_span scalars, int64_t id, char **text_out, size_t *bytes_out,
                                   struct convoy_error *error)
{
    struct place place;
    struct convoy_scalars_slot slot;
    char piece[64];
    struct convoy_writer writer = {.out = piece};
    if (id < 0 || id > CONVOY_CONTROL_INTEGER_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "scalar_fields." CONVOY_SCALARS_SLOT_KEY " is %" PRId64 ", allowed are 0 to %" PRId64,
                                id, CONVOY_CONTROL_INTEGER_MAX);
    }
    int32_t status = find_slot(&scalars, &place, &slot, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (!place.is_there) {
        convoy_writer_text(&writer, place.item_count != 0 ? ",\"" : "\"");
        convoy_writer_text(&writer, CONVOY_SCALARS_SLOT_KEY "\":");
    }
    convoy_writer_number(&writer, id);
    size_t cut = place.is_there ? (size_t)(place.value.text - scalars.text) : place.close;
    size_t cut_end = place.is_there ? cut + place.value.bytes : place.close;
    return replace(scalars, cut, cut_end, (struct convoy_span){piece, writer.bytes}, text_out, bytes_out, error);
}
