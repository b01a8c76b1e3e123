/* SPDX-License-Identifier: Apache-2.0 */
#include "core/settings.h"

#include "core/error.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTING_NAME_BYTES 64
#define UNKNOWN_MAX 8u

struct setting_row {
    const char *name;
    bool is_number;
    uint64_t number; /* default, and the bounds */
    uint64_t low;
    uint64_t high;
    const char *text; /* default */
    const char *words; /* allowed words separated by |; empty = any */
    const char *explanation;
    size_t value_offset;
    size_t source_offset;
};

#define NUMBER_ROW(field, value, lowest, highest, sentence)                                                            \
    {.name = #field,                                                                                                   \
     .is_number = true,                                                                                                \
     .number = (value),                                                                                                \
     .low = (lowest),                                                                                                  \
     .high = (highest),                                                                                                \
     .explanation = (sentence),                                                                                        \
     .value_offset = offsetof(struct convoy_settings, field),                                                          \
     .source_offset = offsetof(struct convoy_settings, field##_source)},
#define TEXT_ROW(field, value, allowed, sentence)                                                                      \
    {.name = #field,                                                                                                   \
     .text = (value),                                                                                                  \
     .words = (allowed),                                                                                               \
     .explanation = (sentence),                                                                                        \
     .value_offset = offsetof(struct convoy_settings, field),                                                          \
     .source_offset = offsetof(struct convoy_settings, field##_source)},

static const struct setting_row setting_rows[] = {CONVOY_SETTINGS_LIST(NUMBER_ROW, TEXT_ROW)};
static const size_t setting_count = sizeof setting_rows / sizeof setting_rows[0];
static const char *const source_names[] = {"default", "object", "environment"};

/* Where a value came from, as an error text says it. */
static const char *source_words(enum convoy_setting_source source)
{
    return source == CONVOY_SETTING_ENVIRONMENT ? "from the environment" : "in the settings object";
}

static uint64_t *row_number(const struct setting_row *row, struct convoy_settings *settings)
{
    return (uint64_t *)(void *)((char *)settings + row->value_offset);
}

static char *row_text(const struct setting_row *row, struct convoy_settings *settings)
{
    return (char *)settings + row->value_offset;
}

static enum convoy_setting_source *row_source(const struct setting_row *row, struct convoy_settings *settings)
{
    return (enum convoy_setting_source *)(void *)((char *)settings + row->source_offset);
}

static void settings_set_defaults(struct convoy_settings *settings)
{
    memset(settings, 0, sizeof *settings);
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting_row *row = &setting_rows[i];
        if (row->is_number) {
            *row_number(row, settings) = row->number;
        } else {
            memcpy(row_text(row, settings), row->text, strlen(row->text) + 1);
        }
    }
}

static int32_t number_set(const struct setting_row *row, struct convoy_settings *settings, uint64_t number,
                          enum convoy_setting_source source, struct convoy_error *error)
{
    if (number < row->low || number > row->high) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "setting %s = %llu %s is outside its range of %llu to %llu", row->name,
                                (unsigned long long)number, source_words(source), (unsigned long long)row->low,
                                (unsigned long long)row->high);
    }
    *row_number(row, settings) = number;
    *row_source(row, settings) = source;
    return CONVOY_OK;
}

static bool words_allow(const char *words, const char *text, size_t length)
{
    if (words[0] == '\0') {
        return true;
    }
    for (const char *word = words; word != NULL; word = strchr(word, '|')) {
        word += *word == '|';
        if (strcspn(word, "|") == length && memcmp(word, text, length) == 0) {
            return true;
        }
    }
    return false;
}

static int32_t text_set(const struct setting_row *row, struct convoy_settings *settings, const char *text,
                        size_t length, struct convoy_error *error)
{
    if (length >= CONVOY_SETTING_TEXT_BYTES || memchr(text, '\0', length) != NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "setting %s has %zu bytes or a zero in it; at most %d bytes of text are allowed",
                                row->name, length, CONVOY_SETTING_TEXT_BYTES - 1);
    }
    if (!words_allow(row->words, text, length)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "setting %s = \"%.*s\" is none of %s", row->name,
                                (int)length, text, row->words);
    }
    memcpy(row_text(row, settings), text, length);
    row_text(row, settings)[length] = '\0';
    return CONVOY_OK;
}

static const struct setting_row *row_find(const char *name)
{
    for (size_t i = 0; i < setting_count; i++) {
        if (strcmp(setting_rows[i].name, name) == 0) {
            return &setting_rows[i];
        }
    }
    return NULL;
}

static const char *json_type_words(const json_t *value)
{
    static const char *const words[] = {"an object", "a list",       "a text", "a whole number",
                                        "a fraction", "true",        "false",  "null"};
    return words[json_typeof(value)];
}

static int32_t object_set(struct convoy_settings *settings, const char *name, const json_t *value,
                          struct convoy_error *error)
{
    const struct setting_row *row = row_find(name);
    if (row == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "setting \"%.64s\" in the settings object is unknown",
                                name);
    }
    if (row->is_number ? !json_is_integer(value) : !json_is_string(value)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "setting %s in the settings object is %s where %s is needed", name,
                                json_type_words(value), row->is_number ? "a whole number" : "a text");
    }
    if (row->is_number && json_integer_value(value) < 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "setting %s = %lld in the settings object is outside its range of %llu to %llu", name,
                                (long long)json_integer_value(value), (unsigned long long)row->low,
                                (unsigned long long)row->high);
    }
    *row_source(row, settings) = CONVOY_SETTING_OBJECT;
    return row->is_number ? number_set(row, settings, (uint64_t)json_integer_value(value), CONVOY_SETTING_OBJECT, error)
                          : text_set(row, settings, json_string_value(value), json_string_length(value), error);
}

static int32_t settings_load_object(struct convoy_settings *settings, const char *json, size_t length,
                                    struct convoy_error *error)
{
    json_error_t where;
    json_t *object = json_loadb(json, length, JSON_REJECT_DUPLICATES, &where);
    if (object == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "settings: line %d column %d: %s", where.line,
                                where.column, where.text);
    }
    int32_t status = CONVOY_OK;
    if (!json_is_object(object)) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "settings must be a JSON object, not %s",
                                  json_type_words(object));
    }
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        status = status == CONVOY_OK ? object_set(settings, name, value, error) : status;
    }
    json_decref(object);
    return status;
}

static int32_t environment_number(const struct setting_row *row, struct convoy_settings *settings, const char *text,
                                  struct convoy_error *error)
{
    /* at most 18 digits: cannot overflow, and every bound has fewer */
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || text[digits] != '\0') {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "setting %s = \"%.64s\" from the environment is no whole number of %llu to %llu",
                                row->name, text, (unsigned long long)row->low, (unsigned long long)row->high);
    }
    return number_set(row, settings, strtoull(text, NULL, 10), CONVOY_SETTING_ENVIRONMENT, error);
}

/* Takes one setting from the environment, unless the object had it. */
static int32_t environment_set(const struct setting_row *row, struct convoy_settings *settings,
                               struct convoy_error *error)
{
    char name[SETTING_NAME_BYTES] = "CONVOY_";
    size_t used = strlen(name);
    for (const char *from = row->name; *from != '\0' && used < sizeof name - 1; from++) {
        name[used++] = (char)toupper((unsigned char)*from);
    }
    const char *text = getenv(name);
    if (text == NULL || *row_source(row, settings) == CONVOY_SETTING_OBJECT) {
        return CONVOY_OK;
    }
    *row_source(row, settings) = CONVOY_SETTING_ENVIRONMENT;
    int32_t status = row->is_number ? environment_number(row, settings, text, error)
                                    : text_set(row, settings, text, strlen(text), error);
    return status == CONVOY_OK ? CONVOY_OK : convoy_error_prefix(error, status, "%s", name);
}

int32_t convoy_settings_load(struct convoy_settings *settings, const char *json, size_t length,
                             struct convoy_error *error)
{
    settings_set_defaults(settings);
    if (json != NULL) {
        int32_t status = settings_load_object(settings, json, length, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < setting_count; i++) {
        int32_t status = environment_set(&setting_rows[i], settings, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* The variable's name without the prefix is that of a row. */
static bool variable_is_setting(const char *rest, size_t length)
{
    char name[SETTING_NAME_BYTES];
    if (length >= sizeof name) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        name[i] = (char)tolower((unsigned char)rest[i]);
    }
    name[length] = '\0';
    return row_find(name) != NULL;
}

static bool variable_is_anothers(const char *rest, size_t length)
{
    static const char *const names[] = {"LIBRARY", "FALLBACK", "SECRET", "HOOKS", "DRY_RUN"};
    bool is_anothers = strncmp(rest, "TEST_", strlen("TEST_")) == 0 || strncmp(rest, "HOOK_", strlen("HOOK_")) == 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        is_anothers |= strlen(names[i]) == length && memcmp(names[i], rest, length) == 0;
    }
    return is_anothers;
}

void convoy_settings_unknown(void (*tell)(void *user, const char *name), void *user)
{
    uint32_t told = 0;
    for (char **variable = environ; variable != NULL && *variable != NULL && told < UNKNOWN_MAX; variable++) {
        size_t prefix = strlen("CONVOY_");
        size_t length = strcspn(*variable, "=");
        if (strncmp(*variable, "CONVOY_", prefix) != 0 || variable_is_setting(*variable + prefix, length - prefix) ||
            variable_is_anothers(*variable + prefix, length - prefix)) {
            continue;
        }
        char name[SETTING_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%.*s", (int)length, *variable);
        tell(user, name);
        told++;
    }
}

static json_t *row_describe(const struct setting_row *row, const struct convoy_settings *settings)
{
    const char *at = (const char *)settings + row->value_offset;
    uint64_t number;
    enum convoy_setting_source source;
    memcpy(&number, at, sizeof number);
    memcpy(&source, (const char *)settings + row->source_offset, sizeof source);
    json_t *value = row->is_number ? json_integer((json_int_t)number) : json_string(at);
    return json_pack("{s:o, s:s, s:s}", "value", value, "source", source_names[source], "text", row->explanation);
}

json_t *convoy_settings_describe(const struct convoy_settings *settings)
{
    json_t *object = json_object();
    for (size_t i = 0; object != NULL && i < setting_count; i++) {
        if (json_object_set_new(object, setting_rows[i].name, row_describe(&setting_rows[i], settings)) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}
