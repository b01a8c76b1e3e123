/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace.h"

#include "core/error.h"
#include "core/memory.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Where reading stands; names every refusal. */
struct trace_reader {
    struct convoy_trace *trace;
    const char *path;
    uint64_t line;
    uint64_t line_of_last; /* line of the request read last */
    struct convoy_error *error;
};

/* Every number was read as a double: a field that nobody asks for may hold one that no integer takes, and all that is
 * asked for is exact below 2^53. */
static const char *trace_number_problem(const json_t *value, int64_t high)
{
    if (value == NULL) {
        return "is missing";
    }
    if (!json_is_number(value)) {
        return "is not a number";
    }
    double number = json_number_value(value);
    if (number < 0) {
        return "is negative";
    }
    if (number > (double)high) {
        return "is too large";
    }
    return number > (double)(int64_t)number ? "is not a whole number" : NULL;
}

static int32_t trace_field(const struct trace_reader *reader, const json_t *object, const char *name, int64_t high,
                           int64_t *value_out)
{
    const json_t *value = json_object_get(object, name);
    const char *problem = trace_number_problem(value, high);
    if (problem != NULL) {
        return convoy_error_set(reader->error, CONVOY_INVALID_ARGUMENT,
                                "%.80s:%llu: \"%s\" %s (must be a whole number from 0 to %lld)", reader->path,
                                (unsigned long long)reader->line, name, problem, (long long)high);
    }
    *value_out = (int64_t)json_number_value(value);
    return CONVOY_OK;
}

static int32_t trace_grow(struct convoy_trace *trace, struct convoy_error *error)
{
    if (trace->count < trace->capacity) {
        return CONVOY_OK;
    }
    uint32_t capacity = trace->capacity != 0 ? trace->capacity * 2 : 1024;
    struct convoy_trace_request *requests = convoy_memory_array(capacity, sizeof *requests);
    if (requests == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a trace of %u requests", capacity);
    }
    if (trace->count != 0) {
        memcpy(requests, trace->requests, trace->count * sizeof *requests);
    }
    convoy_memory_free(trace->requests);
    trace->requests = requests;
    trace->capacity = capacity;
    return CONVOY_OK;
}

static int32_t trace_append(struct trace_reader *reader, int64_t timestamp, int64_t input, int64_t output)
{
    struct convoy_trace *trace = reader->trace;
    uint64_t last = trace->count != 0 ? trace->requests[trace->count - 1].timestamp_ms : 0;
    if ((uint64_t)timestamp < last) {
        return convoy_error_set(reader->error, CONVOY_INVALID_ARGUMENT,
                                "%.80s:%llu: \"timestamp\" %lld is before the %llu of line %llu (must not go back)",
                                reader->path, (unsigned long long)reader->line, (long long)timestamp,
                                (unsigned long long)last, (unsigned long long)reader->line_of_last);
    }
    if (trace->count == CONVOY_TRACE_REQUESTS_MAX) {
        return convoy_error_set(reader->error, CONVOY_LIMIT, "%.80s:%llu: more than %u requests", reader->path,
                                (unsigned long long)reader->line, CONVOY_TRACE_REQUESTS_MAX);
    }
    int32_t status = trace_grow(trace, reader->error);
    if (status == CONVOY_OK) {
        trace->requests[trace->count++] = (struct convoy_trace_request){
            .timestamp_ms = (uint64_t)timestamp, .input_tokens = (uint32_t)input, .output_tokens = (uint32_t)output};
        reader->line_of_last = reader->line;
    }
    return status;
}

static int32_t trace_read_object(struct trace_reader *reader, const json_t *object)
{
    if (!json_is_object(object)) {
        return convoy_error_set(reader->error, CONVOY_INVALID_ARGUMENT, "%.80s:%llu: not a JSON object", reader->path,
                                (unsigned long long)reader->line);
    }
    int64_t timestamp = 0;
    int64_t input = 0;
    int64_t output = 0;
    int32_t status = trace_field(reader, object, "timestamp", CONVOY_TRACE_TIMESTAMP_MS_MAX, &timestamp);
    if (status == CONVOY_OK) {
        status = trace_field(reader, object, "input_length", CONVOY_TRACE_TOKENS_MAX, &input);
    }
    if (status == CONVOY_OK) {
        status = trace_field(reader, object, "output_length", CONVOY_TRACE_TOKENS_MAX, &output);
    }
    return status == CONVOY_OK ? trace_append(reader, timestamp, input, output) : status;
}

static bool line_is_blank(const char *line, size_t length)
{
    return strspn(line, " \t\r\n") >= length;
}

/* line: length bytes and a terminating zero. */
static int32_t trace_read_line(struct trace_reader *reader, const char *line, size_t length)
{
    if (line_is_blank(line, length)) {
        return CONVOY_OK;
    }
    json_error_t problem;
    size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL;
    json_t *object = json_loadb(line, length, flags, &problem);
    if (object == NULL) {
        return convoy_error_set(reader->error, CONVOY_INVALID_ARGUMENT, "%.80s:%llu: not JSON: %.100s", reader->path,
                                (unsigned long long)reader->line, problem.text);
    }
    int32_t status = trace_read_object(reader, object);
    json_decref(object);
    return status;
}

/* Reads up to and with the next newline. Returns bytes, 0 at the end, and the buffer's size when it does not fit. */
static size_t trace_next_line(FILE *file, char *line, size_t capacity)
{
    size_t length = 0;
    int byte = 0;
    while (length + 1 < capacity && (byte = getc_unlocked(file)) != EOF) {
        line[length++] = (char)byte;
        if (byte == '\n') {
            break;
        }
    }
    line[length] = '\0';
    return length + 1 == capacity && line[length - 1] != '\n' ? capacity : length;
}

static int32_t trace_read_file(struct trace_reader *reader, FILE *file, char *line)
{
    size_t length = 0;
    while ((length = trace_next_line(file, line, CONVOY_TRACE_LINE_BYTES_MAX)) != 0) {
        reader->line++;
        if (length == CONVOY_TRACE_LINE_BYTES_MAX) {
            return convoy_error_set(reader->error, CONVOY_INVALID_ARGUMENT, "%.80s:%llu: longer than %u bytes",
                                    reader->path, (unsigned long long)reader->line, CONVOY_TRACE_LINE_BYTES_MAX - 2);
        }
        int32_t status = trace_read_line(reader, line, length);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    if (ferror(file)) {
        return convoy_error_set_errno(reader->error, CONVOY_SYSTEM, errno, "reading %.80s", reader->path);
    }
    if (reader->trace->count == 0) {
        return convoy_error_set(reader->error, CONVOY_INVALID_ARGUMENT, "%.80s:%llu: the trace has no requests",
                                reader->path, (unsigned long long)reader->line);
    }
    return CONVOY_OK;
}

int32_t convoy_trace_load(struct convoy_trace *trace_out, const char *path, struct convoy_error *error)
{
    struct convoy_trace trace = {0};
    struct trace_reader reader = {.trace = &trace, .path = path, .error = error};
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return convoy_error_set_errno(error, errno == ENOENT ? CONVOY_NOT_FOUND : CONVOY_SYSTEM, errno,
                                      "opening the trace %.120s", path);
    }
    char *line = convoy_memory_zalloc(CONVOY_TRACE_LINE_BYTES_MAX);
    int32_t status = line != NULL ? trace_read_file(&reader, file, line)
                                  : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to read a trace");
    convoy_memory_free(line);
    (void)fclose(file);
    if (status != CONVOY_OK) {
        convoy_trace_fini(&trace);
        return status;
    }
    *trace_out = trace;
    return CONVOY_OK;
}

void convoy_trace_fini(struct convoy_trace *trace)
{
    convoy_memory_free(trace->requests);
    *trace = (struct convoy_trace){0};
}

uint64_t convoy_trace_step(const struct convoy_trace *trace, uint32_t request)
{
    return trace->requests[request].timestamp_ms / CONVOY_TRACE_STEP_MS;
}

uint64_t convoy_trace_next_step(const struct convoy_trace *trace, uint64_t step)
{
    uint32_t low = 0;
    uint32_t high = trace->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (convoy_trace_step(trace, middle) > step) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low < trace->count ? convoy_trace_step(trace, low) : UINT64_MAX;
}
