/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ucx_resources.h"

#include <stdio.h>
#include <string.h>

/* Calls `row` for every line of the text; the line is not terminated. */
typedef void (*line_fn)(const char *line, size_t length, struct convoy_ucx_resources *resources);

static void each_line(const char *text, line_fn row, struct convoy_ucx_resources *resources)
{
    resources->count = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        row(text, length, resources);
        text += length + (text[length] == '\n');
    }
}

static bool name_copy(char to[CONVOY_UCX_NAME_BYTES], const char *from, size_t length)
{
    if (length == 0 || length >= CONVOY_UCX_NAME_BYTES) {
        return false;
    }
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

static bool resources_have(const struct convoy_ucx_resources *resources, const struct convoy_ucx_resource *wanted)
{
    for (uint32_t i = 0; i < resources->count; i++) {
        if (strcmp(resources->rows[i].transport, wanted->transport) == 0 &&
            strcmp(resources->rows[i].device, wanted->device) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds "transport/device", once. */
static void resources_add(struct convoy_ucx_resources *resources, const char *name, size_t length)
{
    const char *slash = memchr(name, '/', length);
    struct convoy_ucx_resource row;
    if (slash == NULL || resources->count == CONVOY_UCX_RESOURCES_MAX) {
        return;
    }
    size_t transport_length = (size_t)(slash - name);
    if (!name_copy(row.transport, name, transport_length) ||
        !name_copy(row.device, slash + 1, length - transport_length - 1) || resources_have(resources, &row)) {
        return;
    }
    resources->rows[resources->count++] = row;
}

/* "#      resource 1  :  md 1  dev 1  flags -- tcp/lo" */
static void context_line(const char *line, size_t length, struct convoy_ucx_resources *resources)
{
    size_t skip = strspn(line, "# ");
    if (skip >= length || strncmp(line + skip, "resource ", 9) != 0) {
        return;
    }
    size_t end = length;
    while (end > skip && line[end - 1] == ' ') {
        end--;
    }
    size_t start = end;
    while (start > skip && line[start - 1] != ' ') {
        start--;
    }
    resources_add(resources, line + start, end - start);
}

/* "#     lane[0]:  1:tcp/lo.0 md[1]   -> md[1]/tcp/sysdev[255] am keepalive wireup"; ".0" numbers the path. */
static void endpoint_line(const char *line, size_t length, struct convoy_ucx_resources *resources)
{
    size_t skip = strspn(line, "# ");
    if (skip >= length || strncmp(line + skip, "lane[", 5) != 0) {
        return;
    }
    const char *end = line + length;
    const char *at = memchr(line + skip, ':', length - skip);
    if (at == NULL) {
        return;
    }
    at++;
    at += strspn(at, " 0123456789:");
    if (at >= end) {
        return;
    }
    size_t name = strcspn(at, " \n");
    size_t path = name;
    while (path > 0 && at[path - 1] >= '0' && at[path - 1] <= '9') {
        path--;
    }
    name = path > 1 && path < name && at[path - 1] == '.' ? path - 1 : name;
    resources_add(resources, at, name);
}

void convoy_ucx_resources_parse_context(const char *text, struct convoy_ucx_resources *resources_out)
{
    each_line(text, context_line, resources_out);
}

void convoy_ucx_resources_parse_endpoint(const char *text, struct convoy_ucx_resources *resources_out)
{
    each_line(text, endpoint_line, resources_out);
}

/* "#                  put[0]: 0..<short>..4294967296..<bcopy>..(inf)": adds what "lane[0]" says. */
static void rma_line(const char *text, const char *line, size_t length, struct convoy_ucx_resources *resources)
{
    size_t skip = strspn(line, "# ");
    unsigned lane;
    char name[24];
    if (skip >= length || sscanf(line + skip, "put[%3u]:", &lane) != 1) {
        return;
    }
    (void)snprintf(name, sizeof name, " lane[%u]:", lane);
    const char *found = strstr(text, name);
    if (found != NULL) {
        endpoint_line(found, strcspn(found, "\n"), resources);
    }
}

void convoy_ucx_resources_parse_rma(const char *text, struct convoy_ucx_resources *resources_out)
{
    resources_out->count = 0;
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        rma_line(text, line, length, resources_out);
        line += length + (line[length] == '\n');
    }
}

bool convoy_ucx_transport_is_network(const char *transport)
{
    static const char *const local[] = {"self", "sysv", "posix", "mm",    "cma",  "knem", "xpmem",
                                        "shm",  "sm",   "cuda",  "gdr_",  "rocm", "ze_",  "gga"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++) {
        if (strncmp(transport, local[i], strlen(local[i])) == 0) {
            return false;
        }
    }
    return true;
}

const char *convoy_ucx_memory_name(uint32_t type)
{
    static const char *const names[CONVOY_UCX_MEMORY_TYPES] = {"host", "cuda", "cuda-managed", "rocm", "rocm-managed"};
    return names[type];
}

void convoy_ucx_memory_text(uint64_t types, char *text_out)
{
    size_t used = 0;
    (void)snprintf(text_out, CONVOY_UCX_MEMORY_TEXT_BYTES, "unknown");
    for (uint32_t i = 0; i < CONVOY_UCX_MEMORY_TYPES; i++) {
        if ((types >> i & 1) != 0) {
            used += (size_t)snprintf(text_out + used, CONVOY_UCX_MEMORY_TEXT_BYTES - used, "%s%s", used != 0 ? ", " : "",
                                     convoy_ucx_memory_name(i));
        }
    }
}

bool convoy_ucx_config_find(const char *text, const char *name, char *value_out, size_t value_bytes)
{
    size_t name_length = strlen(name);
    bool is_found = false;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        const char *at = strncmp(text, "UCX_", 4) == 0 ? text + 4 : text;
        if (strncmp(at, name, name_length) == 0 && at[name_length] == '=') {
            size_t value_length = length - (size_t)(at - text) - name_length - 1;
            (void)snprintf(value_out, value_bytes, "%.*s", (int)value_length, at + name_length + 1);
            is_found = true; /* the last one counts: later lines are what was modified */
        }
        text += length + (text[length] == '\n');
    }
    return is_found;
}
