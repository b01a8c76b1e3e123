/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline_trace.h"

#include "cli/pipeline_role.h"
#include "core/error.h"
#include "core/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Viewers show this name in place of the number. */
static int trace_name(json_t *events, uint32_t member, const char *name)
{
    json_t *event = json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "process_name", "ph", "M", "pid", (int)member,
                              "tid", 0, "args", "name", name);
    return json_array_append_new(events, event); /* NULL is refused */
}

int32_t convoy_pipeline_trace_add(json_t *events, uint32_t member, const char *name, const char *text, size_t length,
                                  struct convoy_error *error)
{
    json_error_t where;
    json_t *document = json_loadb(text, length, 0, &where);
    json_t *list = json_is_object(document) ? json_object_get(document, "traceEvents") : document;
    int failures = 0;
    size_t index = 0;
    json_t *event = NULL;
    if (!json_is_array(list)) {
        json_decref(document);
        return convoy_error_set(error, CONVOY_MALFORMED, "the trace events of %s are no list: %.100s", name,
                                document == NULL ? where.text : "no array traceEvents");
    }
    json_array_foreach(list, index, event)
    {
        if (!json_is_object(event)) {
            json_decref(document);
            return convoy_error_set(error, CONVOY_MALFORMED, "trace event %zu of %s is no object", index, name);
        }
    }
    failures += trace_name(events, member, name) != 0;
    json_array_foreach(list, index, event)
    {
        /* Every engine is process 0, or its own number, to itself. */
        failures += json_object_set_new(event, "pid", json_integer((json_int_t)member)) != 0;
        failures += json_array_append(events, event) != 0;
    }
    json_decref(document);
    return failures == 0 ? CONVOY_OK : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %zu trace events", index);
}

static int32_t trace_read(const char *path, char **text_out, size_t *length_out, struct convoy_error *error)
{
    struct stat what;
    FILE *file = fopen(path, "re");
    if (file == NULL || fstat(fileno(file), &what) != 0) {
        int code = errno;
        if (file != NULL) {
            (void)fclose(file);
        }
        return convoy_error_set_errno(error, CONVOY_SYSTEM, code, "reading %.180s", path);
    }
    char *text = convoy_memory_zalloc((size_t)what.st_size + 1);
    if (text != NULL) {
        *length_out = fread(text, 1, (size_t)what.st_size, file);
    }
    (void)fclose(file);
    *text_out = text;
    return text != NULL ? CONVOY_OK
                        : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the trace events of %.180s", path);
}

static int32_t trace_take(const struct convoy_pipeline_board *board, json_t *events, uint32_t member,
                          struct convoy_error *error)
{
    char path[CONVOY_PLACE_PATH_BYTES + 48];
    char name[CONVOY_PIPELINE_NAME_BYTES];
    char *text = NULL;
    size_t length = 0;
    (void)convoy_pipeline_role_trace_path(board, member, path);
    (void)convoy_pipeline_shape_name(&board->setup.shape, member, name);
    int32_t status = trace_read(path, &text, &length, error);
    if (status == CONVOY_OK) {
        status = convoy_pipeline_trace_add(events, member, name, text, length, error);
        (void)unlink(path);
    }
    convoy_memory_free(text);
    return status;
}

static int32_t trace_dump(json_t *events, const char *path, struct convoy_error *error)
{
    json_t *document = json_pack("{s:O, s:s}", "traceEvents", events, "displayTimeUnit", "ns");
    int failed = document == NULL || json_dump_file(document, path, JSON_COMPACT) != 0;
    int code = errno;
    json_decref(document);
    return failed ? convoy_error_set_errno(error, CONVOY_SYSTEM, code, "writing --trace-out %.150s", path) : CONVOY_OK;
}

int32_t convoy_pipeline_trace_write(const struct convoy_pipeline_board *board, const char *path, size_t *events_out,
                                    struct convoy_error *error)
{
    json_t *events = json_array();
    int32_t status = events != NULL ? CONVOY_OK : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for events");
    for (uint32_t i = 0; i < convoy_pipeline_shape_members(&board->setup.shape) && status == CONVOY_OK; i++) {
        status = trace_take(board, events, i, error);
    }
    if (status == CONVOY_OK) {
        *events_out = json_array_size(events);
        status = trace_dump(events, path, error);
    }
    json_decref(events);
    return status;
}
