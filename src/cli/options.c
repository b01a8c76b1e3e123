/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include "core/error.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct convoy_option *options_find(const struct convoy_command_line *line, const char *name, size_t length)
{
    for (size_t i = 0; i < line->option_count; i++) {
        if (strlen(line->options[i].name) == length && memcmp(line->options[i].name, name, length) == 0) {
            return &line->options[i];
        }
    }
    return NULL;
}

static int32_t option_set_number(const struct convoy_option *option, const char *value, struct convoy_error *error)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    /* strtoull takes signs and leading blanks, which would turn -1 into a huge number. */
    bool is_number = isdigit((unsigned char)value[0]) && *end == '\0' && errno == 0;
    if (!is_number || number < option->low || number > option->high) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "--%s is \"%.60s\": must be a whole number from %" PRIu64 " to %" PRIu64, option->name,
                                value, option->low, option->high);
    }
    *(uint64_t *)option->target = number;
    return CONVOY_OK;
}

static int32_t option_set_real(const struct convoy_option *option, const char *value, struct convoy_error *error)
{
    char *end = NULL;
    double number = strtod(value, &end);
    bool is_number = isdigit((unsigned char)value[0]) && *end == '\0';
    if (!is_number || !(number >= (double)option->low && number <= (double)option->high)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "--%s is \"%.60s\": must be a number from %" PRIu64 " to %" PRIu64, option->name, value,
                                option->low, option->high);
    }
    *(double *)option->target = number;
    return CONVOY_OK;
}

static int32_t option_set(const struct convoy_option *option, const char *value, struct convoy_error *error)
{
    switch (option->kind) {
    case CONVOY_OPTION_FLAG:
        *(bool *)option->target = true;
        return CONVOY_OK;
    case CONVOY_OPTION_NUMBER:
        return option_set_number(option, value, error);
    case CONVOY_OPTION_REAL:
        return option_set_real(option, value, error);
    case CONVOY_OPTION_TEXT:
        if (value[0] == '\0') {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "--%s is empty: needs a %s", option->name,
                                    option->value_name);
        }
        *(const char **)option->target = value;
        return CONVOY_OK;
    }
    return CONVOY_INVARIANT;
}

/* Takes the option at argv[*at] and moves *at to its last word. */
static int32_t options_take(struct convoy_command_line *line, char **argv, int *at, struct convoy_error *error)
{
    const char *name = argv[*at] + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct convoy_option *option = options_find(line, name, length);
    if (option == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "unknown option --%.*s",
                                (int)(length < 60 ? length : 60), name);
    }
    if (option->kind == CONVOY_OPTION_FLAG && equals != NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "--%s takes no value", option->name);
    }
    const char *value = equals != NULL ? equals + 1 : NULL;
    if (option->kind != CONVOY_OPTION_FLAG && value == NULL) {
        value = argv[*at + 1]; /* argv ends in NULL */
        if (value == NULL) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "--%s needs a %s", option->name,
                                    option->value_name);
        }
        *at += 1;
    }
    return option_set(option, value, error);
}

static int32_t options_operand(struct convoy_command_line *line, const char *word, struct convoy_error *error)
{
    if (line->operand_count == line->operand_max) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "\"%.60s\" is one word too many", word);
    }
    line->operands[line->operand_count++] = word;
    return CONVOY_OK;
}

int32_t convoy_options_parse(struct convoy_command_line *line, int argc, char **argv, struct convoy_error *error)
{
    line->operand_count = 0;
    line->wants_help = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            line->wants_help = 1;
            return CONVOY_OK;
        }
        bool is_option = strncmp(argv[i], "--", 2) == 0;
        if (!is_option && argv[i][0] == '-' && argv[i][1] != '\0') {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "unknown option %.60s", argv[i]);
        }
        int32_t status = is_option ? options_take(line, argv, &i, error) : options_operand(line, argv[i], error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

void convoy_options_help(FILE *out, const struct convoy_option *options, size_t option_count)
{
    for (size_t i = 0; i < option_count; i++) {
        char head[64];
        const char *value_name = options[i].kind == CONVOY_OPTION_FLAG ? "" : options[i].value_name;
        (void)snprintf(head, sizeof head, "--%s %s", options[i].name, value_name);
        (void)fprintf(out, "  %-24s %s\n", head, options[i].help);
    }
    (void)fprintf(out, "  %-24s %s\n", "--help", "print this text");
}
