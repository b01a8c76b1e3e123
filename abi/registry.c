/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the registries as they are compiled in, for abi/registry.sh. Usage: registry status|columns */
#include "convoy/convoy.h"

#include "core/error.h"
#include "core/status.h"
#include "sync/schema.h"

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

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "status") == 0) {
        return print_statuses();
    }
    if (argc == 2 && strcmp(argv[1], "columns") == 0) {
        (void)printf("row\tindex\tname\tfallback\treduction\tflags\tignored\n");
        return print_row("sglang-7") | print_row("sglang-8");
    }
    (void)fprintf(stderr, "usage: registry status|columns\n");
    return 2;
}
