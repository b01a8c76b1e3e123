/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

/* Below this, UCX over InfiniBand cannot register what a transfer needs. */
#define PAGE_MEMLOCK_SMALL (64ll << 20)
/* A rank takes some ten descriptors for each peer. */
#define PAGE_DESCRIPTORS_SMALL 1024

static void line(FILE *out, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void line(FILE *out, const char *name, const char *format, ...)
{
    va_list args;
    (void)fprintf(out, "  %-26s ", name);
    va_start(args, format);
    (void)vfprintf(out, format, args);
    va_end(args);
    (void)fputc('\n', out);
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "-";
}

static json_int_t number_of(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

/* "24.0 GiB", "unlimited", "unknown" */
static const char *size_text(const json_t *value, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double size = (double)json_integer_value(value);
    size_t unit = 0;
    if (!json_is_integer(value)) {
        return "unknown";
    }
    if (size < 0) {
        return "unlimited";
    }
    while (size >= 1024 && unit < 4) {
        size /= 1024;
        unit++;
    }
    (void)snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.1f %s", size, units[unit]);
    return text;
}

static void page_memory(FILE *out, const json_t *all)
{
    char size[32];
    char left[32];
    const json_t *memory = json_object_get(all, "shared_memory");
    const json_t *limits = json_object_get(all, "limits");
    const json_t *vm = json_object_get(all, "process_vm");
    const json_t *scope = json_object_get(vm, "ptrace_scope");
    (void)fprintf(out, "memory\n");
    line(out, "/dev/shm", "%s, %s free", size_text(json_object_get(memory, "shm_bytes"), size),
         size_text(json_object_get(memory, "shm_free_bytes"), left));
    line(out, "sealed memfd", "%s",
         json_is_true(json_object_get(memory, "memfd")) ? "works" : text_of(memory, "error"));
    line(out, "process_vm_readv", "of a child: %s, of another process: %s",
         json_is_true(json_object_get(vm, "of_child")) ? "yes" : "no",
         json_is_true(json_object_get(vm, "of_other")) ? "yes" : text_of(vm, "error"));
    if (json_is_integer(scope)) {
        line(out, "kernel.yama.ptrace_scope", "%lld", (long long)json_integer_value(scope));
    } else {
        line(out, "kernel.yama.ptrace_scope", "not present");
    }
    json_int_t memlock = number_of(limits, "memlock_bytes");
    line(out, "locked memory limit", "%s%s", size_text(json_object_get(limits, "memlock_bytes"), size),
         memlock >= 0 && memlock < PAGE_MEMLOCK_SMALL ? "  (RDMA needs more: ulimit -l unlimited)" : "");
}

/* Of open files; -1: there is none. */
static const char *limit_text(json_int_t limit, char text[32])
{
    (void)snprintf(text, 32, "%lld", (long long)limit);
    return limit < 0 ? "unlimited" : text;
}

static void page_process(FILE *out, const json_t *all)
{
    char size[32];
    char most[32];
    const json_t *limits = json_object_get(all, "limits");
    const json_t *processor = json_object_get(all, "processor");
    const json_t *spaces = json_object_get(all, "namespaces");
    json_int_t files = number_of(limits, "descriptors");
    json_int_t hard = files >= 0 ? number_of(limits, "descriptors_hard") : files;
    const char *name;
    json_t *inode;
    (void)fprintf(out, "process\n");
    line(out, "cores", "%lld usable of %lld", (long long)number_of(processor, "cores_usable"),
         (long long)number_of(processor, "cores_online"));
    line(out, "streaming stores above", "%s (glibc x86_non_temporal_threshold)",
         size_text(json_object_get(processor, "streaming_threshold_bytes"), size));
    line(out, "open files limit", "%s%s%s%s", limit_text(files, size), files != hard ? ", can be raised to " : "",
         files != hard ? limit_text(hard, most) : "",
         files >= 0 && files < PAGE_DESCRIPTORS_SMALL ? "  (low: ulimit -n 20000)" : "");
    json_object_foreach((json_t *)(uintptr_t)spaces, name, inode)
    {
        char label[32];
        (void)snprintf(label, sizeof label, "%s namespace", name);
        line(out, label, "%lld", (long long)json_integer_value(inode));
    }
}

static void page_list(FILE *out, const char *label, const json_t *list)
{
    size_t index;
    const json_t *value;
    (void)fprintf(out, "  %-26s", label);
    json_array_foreach((json_t *)(uintptr_t)list, index, value)
    {
        (void)fprintf(out, "%s %s", index != 0 ? "," : "", json_string_value(value));
    }
    (void)fprintf(out, "%s\n", json_array_size(list) == 0 ? " none" : "");
}

static void page_ucx(FILE *out, const json_t *ucx)
{
    (void)fprintf(out, "ucx (between hosts; one host needs none)\n");
    line(out, "supported", "%s", text_of(ucx, "supported"));
    if (json_is_string(json_object_get(ucx, "file"))) {
        line(out, "file", "%s", text_of(ucx, "file"));
        line(out, "version", "%s", text_of(ucx, "version"));
        line(out, "loaded by", "%s", text_of(ucx, "loaded_by"));
        page_list(out, "transports", json_object_get(ucx, "transports"));
        page_list(out, "devices", json_object_get(ucx, "devices"));
        if (json_array_size(json_object_get(ucx, "memory_types")) != 0) { /* else it does not say */
            page_list(out, "memory types", json_object_get(ucx, "memory_types"));
        }
        line(out, "signal handlers", "%lld replaced", (long long)number_of(ucx, "signals_changed"));
        page_list(out, "libc functions patched", json_object_get(ucx, "hooks_changed"));
    }
    if (json_is_string(json_object_get(ucx, "error"))) {
        line(out, "not usable", "%s", text_of(ucx, "error"));
    }
}

static void page_device(FILE *out, const json_t *device)
{
    (void)fprintf(out, "device (for tensors in device memory)\n");
    if (json_is_string(json_object_get(device, "error"))) {
        line(out, "CUDA driver", "none: %s", text_of(device, "error"));
    } else {
        line(out, "CUDA driver", "%s, version %s, %lld devices", text_of(device, "file"), text_of(device, "version"),
             (long long)number_of(device, "devices"));
    }
}

static void page_peer(FILE *out, const json_t *peer)
{
    (void)fprintf(out, "peer\n");
    line(out, "host", "%s (%s)", text_of(peer, "host"), text_of(peer, "address"));
    if (json_is_string(json_object_get(peer, "error"))) {
        line(out, "not reachable", "%s", text_of(peer, "error"));
    } else {
        line(out, "interface", "%s, from %s", text_of(peer, "interface"), text_of(peer, "source"));
    }
}

static void page_setting(FILE *out, const char *name, const json_t *setting)
{
    const json_t *value = json_object_get(setting, "value");
    if (json_is_integer(value)) {
        line(out, name, "%-20lld %s", (long long)json_integer_value(value), text_of(setting, "source"));
    } else {
        char quoted[300];
        (void)snprintf(quoted, sizeof quoted, "\"%.280s\"", json_is_string(value) ? json_string_value(value) : "");
        line(out, name, "%-20s %s", quoted, text_of(setting, "source"));
    }
}

static void page_settings(FILE *out, const json_t *settings, const json_t *ucx)
{
    const char *name;
    json_t *setting;
    (void)fprintf(out, "settings (value, source)\n");
    json_object_foreach((json_t *)(uintptr_t)settings, name, setting)
    {
        page_setting(out, name, setting);
    }
    json_object_foreach(json_object_get(ucx, "settings"), name, setting)
    {
        char label[40];
        (void)snprintf(label, sizeof label, "UCX %s", name);
        page_setting(out, label, setting);
    }
}

void convoy_doctor_print(FILE *out, const json_t *all)
{
    const json_t *plugin = json_object_get(all, "plugin");
    (void)fprintf(out, "plugin\n");
    line(out, "file", "%s", text_of(plugin, "file"));
    line(out, "release", "%s, build %s", text_of(plugin, "release"), text_of(plugin, "build_id"));
    if (json_is_string(json_object_get(plugin, "error"))) {
        line(out, "not usable", "%s", text_of(plugin, "error"));
    }
    page_memory(out, all);
    page_process(out, all);
    if (json_is_object(json_object_get(plugin, "ucx"))) {
        page_ucx(out, json_object_get(plugin, "ucx"));
    }
    if (json_is_object(json_object_get(all, "device"))) {
        page_device(out, json_object_get(all, "device"));
    }
    if (json_is_object(json_object_get(all, "peer"))) {
        page_peer(out, json_object_get(all, "peer"));
    }
    if (json_is_object(json_object_get(plugin, "settings"))) {
        page_settings(out, json_object_get(plugin, "settings"), json_object_get(plugin, "ucx"));
    }
}
