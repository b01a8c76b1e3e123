/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/control_schema.h"
#include "wire/writer.h"

/* A kind as its readers know it, and its default. */
static const struct {
    const char *type;
    const char *fallback;
} table_kinds[] = {
    [CONVOY_CONTROL_KIND_ID] = {"str", "required"},    [CONVOY_CONTROL_KIND_TEXT] = {"str", "`\"\"`"},
    [CONVOY_CONTROL_KIND_MAYBE] = {"str or null", "`null`"}, [CONVOY_CONTROL_KIND_INTEGER] = {"int", "`0`"},
    [CONVOY_CONTROL_KIND_SIGNED] = {"int", "`0`"},     [CONVOY_CONTROL_KIND_LARGE] = {"str of digits", "`\"0\"`"},
    [CONVOY_CONTROL_KIND_BOOL] = {"bool", "`false`"},  [CONVOY_CONTROL_KIND_OBJECT] = {"object", "`{}`"},
    [CONVOY_CONTROL_KIND_LIST] = {"list", "`[]`"},
};

static const char *const table_when[] = {
    [CONVOY_CONTROL_ALWAYS] = "always",
    [CONVOY_CONTROL_NEVER] = "unless it is the default",
    [CONVOY_CONTROL_STAGED_ONLY] = "if staged_for_decoder",
    [CONVOY_CONTROL_PLAIN_ONLY] = "unless staged_for_decoder",
};

static void put_allowed(struct convoy_writer *writer, const struct convoy_control_field *field)
{
    switch (field->kind) {
    case CONVOY_CONTROL_KIND_SIGNED:
        convoy_writer_text(writer, "-2147483648 to ");
        convoy_writer_large(writer, field->max);
        break;
    case CONVOY_CONTROL_KIND_INTEGER:
    case CONVOY_CONTROL_KIND_LARGE:
        convoy_writer_text(writer, "0 to ");
        convoy_writer_large(writer, field->max);
        break;
    case CONVOY_CONTROL_KIND_BOOL:
        convoy_writer_text(writer, "true, false");
        break;
    case CONVOY_CONTROL_KIND_ID:
    case CONVOY_CONTROL_KIND_TEXT:
    case CONVOY_CONTROL_KIND_MAYBE:
    case CONVOY_CONTROL_KIND_OBJECT:
    case CONVOY_CONTROL_KIND_LIST:
    default:
        convoy_writer_text(writer, field->kind == CONVOY_CONTROL_KIND_ID ? "1 to " : "up to ");
        convoy_writer_large(writer, field->max);
        convoy_writer_text(writer, " bytes");
        break;
    }
}

static void put_entry(struct convoy_writer *writer, const struct convoy_control_entry *entry)
{
    const struct convoy_control_field *field = entry->field;
    convoy_writer_text(writer, "| `");
    convoy_writer_text(writer, field->key);
    convoy_writer_text(writer, "` | ");
    convoy_writer_text(writer, table_kinds[field->kind].type);
    convoy_writer_text(writer, " | ");
    convoy_writer_text(writer, table_kinds[field->kind].fallback);
    convoy_writer_text(writer, " | ");
    put_allowed(writer, field);
    convoy_writer_text(writer, " | ");
    convoy_writer_text(writer, table_when[entry->when]);
    convoy_writer_text(writer, " | ");
    convoy_writer_text(writer, field->meaning);
    convoy_writer_text(writer, " |\n");
}

/* The fields of one message that are its own, or those that all messages have. */
static void put_entries(struct convoy_writer *writer, const struct convoy_control_row *row, bool is_common)
{
    bool has_head = false;
    for (const struct convoy_control_entry *entry = row->entries; entry->field != NULL; entry++) {
        if ((entry->when == CONVOY_CONTROL_NEVER) != is_common) {
            continue;
        }
        if (!has_head) {
            convoy_writer_text(writer, "\n| field | type | default | allowed | written | what it is |\n"
                                       "|---|---|---|---|---|---|\n");
            has_head = true;
        }
        put_entry(writer, entry);
    }
}

size_t convoy_control_table_text(char *out)
{
    struct convoy_writer writer = {.out = out};
    const struct convoy_control_row *row;
    convoy_writer_text(&writer, "# Control messages of staged transfer\n");
    for (int type = CONVOY_CONTROL_NONE + 1; (row = convoy_control_row((enum convoy_control_type)type)) != NULL; type++) {
        convoy_writer_text(&writer, "\n## ");
        convoy_writer_text(&writer, row->name);
        convoy_writer_text(&writer, "\n\n");
        convoy_writer_text(&writer, row->route);
        convoy_writer_text(&writer, "\n");
        put_entries(&writer, row, false);
    }
    convoy_writer_text(&writer, "\n## on every message\n");
    put_entries(&writer, convoy_control_row(CONVOY_CONTROL_REGISTER_ACK), true);
    return writer.bytes;
}
