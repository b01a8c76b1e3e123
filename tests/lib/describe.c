/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/describe.h"

#include "tests/lib/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DESCRIBE_BYTES (1u << 20)


static int32_t of_group(struct plugin_member *member, uint32_t topic, struct convoy_text_buffer *text)
{
    return member->plugin.core->group_describe(member->group, topic, text, &member->error);
}

static int32_t of_context(struct plugin_member *member, uint32_t topic, struct convoy_text_buffer *text)
{
    return member->plugin.core->context_describe(member->context, topic, text, &member->error);
}

static json_t *describe(struct plugin_member *member, uint32_t topic,
                        int32_t (*call)(struct plugin_member *, uint32_t, struct convoy_text_buffer *))
{
    struct convoy_text_buffer text = {
        .struct_size = sizeof text, .data = malloc(DESCRIBE_BYTES), .capacity = DESCRIBE_BYTES};
    EXPECT(text.data != NULL);
    EXPECT_OK(call(member, topic, &text), &member->error);
    json_error_t where;
    json_t *json = json_loadb(text.data, text.length, 0, &where);
    if (json == NULL) {
        expect_fail(EXPECT_SITE("describe"), "is no JSON: %s in %.200s", where.text, text.data);
    }
    free(text.data);
    return json;
}

json_t *describe_group(struct plugin_member *member, uint32_t topic)
{
    return describe(member, topic, of_group);
}

json_t *describe_context(struct plugin_member *member, uint32_t topic)
{
    return describe(member, topic, of_context);
}

long long describe_number(const json_t *json, const char *path)
{
    char names[128];
    char *rest = NULL;
    (void)snprintf(names, sizeof names, "%s", path);
    for (char *name = strtok_r(names, ".", &rest); name != NULL; name = strtok_r(NULL, ".", &rest)) {
        json = json_object_get(json, name);
    }
    return json_integer_value(json);
}

static void expect_values(const json_t *values, const uint8_t *expected, size_t count)
{
    EXPECT_EQUAL(json_array_size(values), count);
    for (size_t i = 0; i < count; i++) {
        EXPECT_EQUAL(json_integer_value(json_array_get(values, i)), expected[i]);
    }
}

void describe_expect_call(const json_t *entry, const char *operation, const uint8_t *input, const uint8_t *output,
                          size_t count)
{
    const json_t *lists = json_object_get(entry, "lists");
    EXPECT_TEXT(json_string_value(json_object_get(entry, "operation")), operation);
    EXPECT_TEXT(json_string_value(json_object_get(entry, "status")), "OK");
    EXPECT_EQUAL(json_array_size(lists), 1);
    expect_values(json_object_get(json_array_get(lists, 0), "input"), input, count);
    expect_values(json_object_get(json_array_get(lists, 0), "output"), output, count);
}
