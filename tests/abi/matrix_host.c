/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's command line.
 *   matrix_host PLUGIN alone PORT              all families, alone and with two members in threads
 *   matrix_host PLUGIN member OWN COUNT PORT   one of COUNT processes
 *   matrix_host PLUGIN engine a|b FOLDER near|far
 *   matrix_host PLUGIN swap OTHER PORT
 * Ends with 0 when it came to its end; lines tell what it saw.
 */
#include "tests/abi/matrix.h"

#include <stdarg.h>
#include <time.h>
#include <unistd.h>

_Thread_local struct convoy_error matrix_error = {.struct_size = sizeof matrix_error};
static int matrix_failures;

static void line(const char *kind, const char *name, const char *format, va_list arguments)
{
    flockfile(stdout);
    (void)printf("%s %s = ", kind, name);
    (void)vprintf(format, arguments);
    (void)printf("\n");
    funlockfile(stdout);
}

void matrix_same(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    line("same", name, format, arguments);
    va_end(arguments);
}

void matrix_seen(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    line("seen", name, format, arguments);
    va_end(arguments);
}

void matrix_fail(const char *name, const char *words)
{
    (void)printf("FAIL %s: %s\n", name, words);
    matrix_failures++;
}

void matrix_need(int32_t status, const char *what)
{
    if (status != CONVOY_OK) {
        (void)printf("FAIL %s: %d %s\n", what, status, matrix_error.text);
        (void)fflush(stdout);
        _exit(1);
    }
}

void matrix_out(void *out, size_t bytes, uint32_t struct_size)
{
    memset(out, 0, struct_size);
    memset((char *)out + struct_size, MATRIX_GUARD, bytes - struct_size);
    memcpy(out, &struct_size, sizeof struct_size);
}

void matrix_written(const char *name, uint32_t struct_size, uint32_t written_bytes, const uint8_t *guard)
{
    for (size_t i = 0; i < MATRIX_GUARD_BYTES; i++) {
        if (guard[i] != MATRIX_GUARD) {
            matrix_fail(name, "the plugin has written beyond the struct_size of an OUT struct");
            return;
        }
    }
    if (written_bytes == 0 || written_bytes > struct_size) {
        matrix_fail(name, "written_bytes is 0, or more than struct_size");
    }
    matrix_seen(name, "%s", written_bytes == struct_size ? "all" : "less");
}

convoy_host_context *matrix_context(convoy_loader *loader)
{
    const struct convoy_context_config config = {
        .struct_size = sizeof config, .secret = "matrix", .secret_bytes = 6};
    convoy_host_context *context = NULL;
    matrix_need(convoy_host_context_open(loader, &config, &context, &matrix_error), "context_open");
    return context;
}

#define FAMILY(tag, upper)                                                                                             \
    {tag, sizeof tag - 1, CONVOY_##upper##_MAJOR, 0, CONVOY_##upper##_MAJOR, CONVOY_##upper##_MINOR}

static const struct convoy_family_request matrix_families[] = {
    FAMILY("core", CORE),     FAMILY("poll", POLL), FAMILY("sync", SYNC),
    FAMILY("transfer", TRANSFER), FAMILY("move", MOVE), {"x-none", 6, 1, 0, 1, 0},
    {"x-trial", 7, 1, 0, 1, 0},
};

#define FAMILY_COUNT (sizeof matrix_families / sizeof matrix_families[0])

static void say_families(const convoy_loader *loader)
{
    const struct convoy_loader_info *info = convoy_loader_info(loader);
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        char name[48];
        const struct convoy_family_answer *answer = &info->answers[i];
        const struct convoy_family_request *request = &matrix_families[i];
        uint16_t lower = request->minor_max < answer->plugin_minor_max ? request->minor_max : answer->plugin_minor_max;
        (void)snprintf(name, sizeof name, "family.%s", request->name);
        if (answer->status == CONVOY_OK && answer->minor != lower) {
            matrix_fail(name, "the version that was agreed is not the highest of both");
        }
        matrix_seen(name, "%d %u.%u", answer->status, answer->major, answer->minor);
    }
}

static uint16_t number(const char *text)
{
    return (uint16_t)strtoul(text, NULL, 10);
}

/* The group that a process is a member of; a refusal is a line, with how long it took. */
static void member(convoy_loader *loader, char **words)
{
    struct timespec begun;
    struct timespec now;
    struct matrix_place place = {number(words[0]), number(words[1]), number(words[2]), "matrix"};
    convoy_host_context *context = matrix_context(loader);
    convoy_host_group *group = NULL;
    (void)clock_gettime(CLOCK_MONOTONIC, &begun);
    int32_t status = matrix_group_open(context, &place, &group);
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (status != CONVOY_OK) {
        int64_t took_ms = (now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000;
        matrix_seen("refused", "%d %s (%s)", status, took_ms < 1000 ? "soon" : "late", matrix_error.text);
    } else {
        matrix_rounds(group, &place, 0, "group");
        matrix_group_look(group, "group");
    }
    matrix_need(convoy_host_context_close(context, MATRIX_WAIT_NS, &matrix_error), "context_close");
}

static bool run(convoy_loader *loader, const char *plugin, int count, char **words)
{
    if (strcmp(words[0], "alone") == 0 && count == 2) {
        say_families(loader);
        matrix_threads(loader, number(words[1]));
        matrix_tails(loader);
        matrix_since(loader);
        matrix_transfers(loader);
        return true;
    }
    if (strcmp(words[0], "member") == 0 && count == 4) {
        member(loader, words + 1);
        return true;
    }
    if (strcmp(words[0], "engine") == 0 && count == 4) {
        matrix_side(loader, words[1], words[2], strcmp(words[3], "far") == 0);
        return true;
    }
    if (strcmp(words[0], "swap") == 0 && count == 3) {
        matrix_swap(loader, plugin, words[1], number(words[2]));
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    convoy_loader *loader = NULL;
    if (argc < 3) {
        (void)fprintf(stderr, "usage: matrix_host PLUGIN alone|member|engine|swap ...\n");
        return 2;
    }
    /* A swap to a build that lacks a family which is agreed is refused, so a host that moves asks for what all have. */
    const size_t families = strcmp(argv[2], "swap") == 0 ? FAMILY_COUNT - 2 : FAMILY_COUNT;
    const struct convoy_loader_options options = {
        .path = argv[1], .host_name = "matrix", .families = matrix_families, .family_count = families};
    matrix_need(convoy_loader_open(&options, &loader, &matrix_error), "loader_open");
    if (!run(loader, argv[1], argc - 2, argv + 2)) {
        (void)fprintf(stderr, "matrix_host: what is \"%s\" with %d words?\n", argv[2], argc - 3);
        return 2;
    }
    matrix_need(convoy_loader_close(loader, &matrix_error), "loader_close");
    (void)printf("done\n");
    return matrix_failures != 0;
}
