/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the registries as they are compiled in, for abi/registry.sh. Usage: registry status|columns|states|messages */
#include "convoy/convoy.h"

#include "core/error.h"
#include "core/status.h"
#include "poll/positional.h"
#include "sync/schema.h"
#include "wire/control_schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PRINT_STATUS(name, retryable, text)                                                                            \
    (void)printf("%d\t%s\t%s\n", CONVOY_##name, #name, (retryable) ? "retry" : "final");

static int print_statuses(void)
{
    (void)printf("number\tname\tretry\n");
    CONVOY_STATUS_LIST(PRINT_STATUS)
    return 0;
}

static int print_row(const char *name)
{
    static struct convoy_schema schema;
    const struct convoy_sync_schema given = {
        .struct_size = sizeof given, .builtin = name, .builtin_length = strlen(name)};
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_schema_load(&schema, &given, &error) != CONVOY_OK) {
        (void)fprintf(stderr, "registry: %s: %s\n", name, error.text);
        return 1;
    }
    for (uint32_t i = 0; i < schema.count; i++) {
        const struct convoy_schema_column *column = &schema.columns[i];
        (void)printf("%s\t%" PRIu32 "\t%s\t%" PRId64 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRId64 "\n", name, i, column->name,
                     column->fallback, column->reduction, column->flags, column->ignored);
    }
    return 0;
}

/* The order in which states are merged, lowest first, and what one of a newer peer counts as. */
static int print_states(void)
{
    static const struct {
        uint8_t number;
        const char *name;
    } states[] = {{CONVOY_STATE_FAILED, "FAILED"},
                  {CONVOY_STATE_BOOTSTRAPPING, "BOOTSTRAPPING"},
                  {CONVOY_STATE_WAITING_FOR_INPUT, "WAITING_FOR_INPUT"},
                  {CONVOY_STATE_TRANSFERRING, "TRANSFERRING"},
                  {CONVOY_STATE_SUCCESS, "SUCCESS"}};
    (void)printf("number\tname\n");
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        (void)printf("%u\t%s\n", states[i].number, states[i].name);
    }
    for (uint32_t unknown = CONVOY_STATE_SUCCESS + 1u; unknown < 256; unknown += 50) {
        uint8_t newer = (uint8_t)unknown;
        uint8_t merged = CONVOY_STATE_SUCCESS;
        (void)convoy_positional_min(&merged, &newer, 1);
        (void)printf("%u\tcounts as %u\n", unknown, merged);
    }
    return 0;
}

/* Fields of the hosts' control messages: message, field, kind, when it is written. */
static int print_messages(void)
{
    const struct convoy_control_row *row;
    (void)printf("message\tfield\tkind\twhen\n");
    for (int type = CONVOY_CONTROL_NONE + 1; (row = convoy_control_row((enum convoy_control_type)type)) != NULL; type++) {
        for (const struct convoy_control_entry *entry = row->entries; entry->field != NULL; entry++) {
            (void)printf("%s\t%s\t%d\t%d\n", row->name, entry->field->key, (int)entry->field->kind, (int)entry->when);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "status") == 0) {
        return print_statuses();
    }
    if (argc == 2 && strcmp(argv[1], "columns") == 0) {
        (void)printf("row\tindex\tname\tfallback\treduction\tflags\tignored\n");
        return print_row("sglang-7") | print_row("sglang-8");
    }
    if (argc == 2 && strcmp(argv[1], "states") == 0) {
        return print_states();
    }
    if (argc == 2 && strcmp(argv[1], "messages") == 0) {
        return print_messages();
    }
    (void)fprintf(stderr, "usage: registry status|columns|states|messages\n");
    return 2;
}
