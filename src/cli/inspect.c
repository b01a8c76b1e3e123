/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy inspect FILE`: what a plugin file says about itself, read without running any of it. */
#include "cli/inspect.h"

#include "cli/options.h"
#include "convoy/loader.h"
#include "core/error.h"
#include "core/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

static const char inspect_intro[] =
    "usage: convoy inspect [--json | --manifest] FILE\n"
    "\n"
    "Prints what a plugin file says about itself: build, release, families, wire versions, UCX releases.\n"
    "Runs none of it. Exit code 1: it is no convoy plugin that this machine can load; the reason is on stderr.\n\n";

static void print_line(const char *name, const char *value)
{
    (void)printf("%-10s %s\n", name, value[0] != '\0' ? value : "-");
}

static void print_text(const struct convoy_file_info *info)
{
    print_line("file", info->path);
    (void)printf("%-10s %s, %u bits\n", "machine", info->machine_name, info->bits);
    print_line("soname", info->soname);
    print_line("build id", info->build_id);
    print_line("name", info->name);
    print_line("release", info->release);
    for (uint32_t i = 0; i < info->family_count; i++) {
        const struct convoy_file_family *family = &info->families[i];
        (void)printf("%-10s %s %u.%u to %u.%u\n", i == 0 ? "families" : "", family->name, family->major_min,
                     family->minor_min, family->major_max, family->minor_max);
    }
    (void)printf("%-10s %u to %u\n", "wire", info->wire_min, info->wire_max);
    if (info->state_max != 0) {
        (void)printf("%-10s %u to %u\n", "state", info->state_min, info->state_max);
    }
    print_line("ucx", info->ucx);
    print_line("unload", info->unload);
    print_line("digest", info->has_digest ? "matches" : "-");
}

static json_t *families_json(const struct convoy_file_info *info)
{
    json_t *families = json_array();
    for (uint32_t i = 0; i < info->family_count; i++) {
        const struct convoy_file_family *family = &info->families[i];
        (void)json_array_append_new(families, json_pack("{s:s, s:[ii], s:[ii]}", "name", family->name, "min",
                                                        (int)family->major_min, (int)family->minor_min, "max",
                                                        (int)family->major_max, (int)family->minor_max));
    }
    return families;
}

static int print_json(const struct convoy_file_info *info, int32_t status, const struct convoy_error *error)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:i, s:s, s:i, s:s, s:s, s:s, s:s, s:o, s:{s:i, s:i}, s:{s:i, s:i}, s:s, s:s, s:b}", "file", info->path,
        "status", convoy_status_name(status), "error", status == CONVOY_OK ? "" : error->text, "machine",
        (int)info->machine, "machine_name", info->machine_name, "bits", (int)info->bits, "soname", info->soname,
        "build_id", info->build_id, "name", info->name, "release", info->release, "families", families_json(info),
        "wire", "min", (int)info->wire_min, "max", (int)info->wire_max, "state", "min", (int)info->state_min, "max",
        (int)info->state_max, "ucx", info->ucx, "unload", info->unload,
        "digest_matches", (int)info->has_digest);
    if (object == NULL || json_dumpf(object, stdout, JSON_INDENT(2)) != 0) {
        json_decref(object);
        (void)fprintf(stderr, "convoy inspect: cannot write the JSON text\n");
        return CONVOY_EXIT_FAILURE;
    }
    (void)printf("\n");
    json_decref(object);
    return status == CONVOY_OK ? CONVOY_EXIT_OK : CONVOY_EXIT_FAILURE;
}

static int inspect_usage(const char *why)
{
    (void)fprintf(stderr, "convoy inspect: %s (see convoy inspect --help)\n", why);
    return CONVOY_EXIT_USAGE;
}

static int inspect_file(const char *path, bool is_json, bool is_manifest)
{
    static struct convoy_file_info info; /* too large for small stacks */
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = convoy_loader_inspect(path, &info, &error);
    if (status != CONVOY_OK) {
        (void)fprintf(stderr, "convoy inspect: %s: %s\n", convoy_status_name(status), error.text);
    }
    if (is_json) {
        return print_json(&info, status, &error);
    }
    if (status != CONVOY_OK) {
        return CONVOY_EXIT_FAILURE;
    }
    if (is_manifest) {
        (void)printf("%s\n", info.manifest);
        return CONVOY_EXIT_OK;
    }
    print_text(&info);
    return CONVOY_EXIT_OK;
}

int convoy_cli_inspect(int argc, char **argv)
{
    bool is_json = false;
    bool is_manifest = false;
    const char *path = NULL;
    const struct convoy_option options[] = {
        {.name = "json", .kind = CONVOY_OPTION_FLAG, .target = &is_json, .help = "JSON on stdout, errors included"},
        {.name = "manifest", .kind = CONVOY_OPTION_FLAG, .target = &is_manifest,
         .help = "the manifest alone, as it stands in the file"},
    };
    struct convoy_command_line line = {
        .options = options, .option_count = sizeof options / sizeof options[0], .operands = &path, .operand_max = 1};
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_options_parse(&line, argc, argv, &error) != CONVOY_OK) {
        return inspect_usage(error.text);
    }
    if (line.wants_help) {
        (void)fputs(inspect_intro, stdout);
        convoy_options_help(stdout, options, line.option_count);
        return CONVOY_EXIT_OK;
    }
    return line.operand_count == 0 ? inspect_usage("the file to inspect is missing") : inspect_file(path, is_json, is_manifest);
}
