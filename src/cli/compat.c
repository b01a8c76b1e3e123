/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/compat.h"

#include "cli/options.h"
#include "core/error.h"
#include "core/status.h"

#include <string.h>

static const char compat_intro[] =
    "usage: convoy compat A B [--json] [--abi DIR]\n"
    "\n"
    "Says from files alone whether A and B go together; neither is loaded. A and B are each one of\n"
    "  FILE                      a plugin file\n"
    "  1.0                       a frozen release, as a plugin\n"
    "  host                      a host that asks for all that this command's release has\n"
    "  host:1.0                  a host that was built with that release\n"
    "  host:core=1.0-1.1,poll=1.0  a host that asks for these families\n"
    "A host and a plugin: each family, agreed or refused. Two plugins: the wire between peers that run them, and the\n"
    "swap of A for B in a running host. Exit code 0: all that is asked for works. 1: something is refused.\n\n";

/* Too large for a stack. */
static struct compat_work {
    struct convoy_compat_side sides[2];
    struct convoy_compat_verdict verdict;
    char folder[CONVOY_COMPAT_PATH_BYTES];
} compat_work;

static int compat_usage(const char *why)
{
    (void)fprintf(stderr, "convoy compat: %s (see convoy compat --help)\n", why);
    return CONVOY_EXIT_USAGE;
}

static int compat_run(const char *const texts[2], const char *given, bool is_json)
{
    struct compat_work *work = &compat_work;
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_compat_folder(given, work->folder, &error) != CONVOY_OK) {
        if (given != NULL) {
            return compat_usage(error.text);
        }
        work->folder[0] = '\0'; /* needed for frozen releases only */
    }
    for (int i = 0; i < 2; i++) {
        int32_t status = convoy_compat_side_read(texts[i], work->folder, &work->sides[i], &error);
        if (status == CONVOY_INVALID_ARGUMENT) {
            return compat_usage(error.text);
        }
        if (status != CONVOY_OK) {
            (void)fprintf(stderr, "convoy compat: %s: %s\n", convoy_status_name(status), error.text);
            return CONVOY_EXIT_FAILURE;
        }
    }
    if (work->sides[0].is_host && work->sides[1].is_host) {
        return compat_usage("two hosts have nothing to agree on; one of A and B must be a plugin or a release");
    }
    convoy_compat_judge(&work->sides[0], &work->sides[1], work->folder, &work->verdict);
    if (!is_json) {
        convoy_compat_print(stdout, &work->sides[0], &work->sides[1], &work->verdict);
    } else if (!convoy_compat_print_json(stdout, &work->sides[0], &work->sides[1], &work->verdict)) {
        (void)fprintf(stderr, "convoy compat: cannot write the JSON text\n");
        return CONVOY_EXIT_FAILURE;
    }
    return work->verdict.works ? CONVOY_EXIT_OK : CONVOY_EXIT_FAILURE;
}

int convoy_cli_compat(int argc, char **argv)
{
    bool is_json = false;
    const char *given = NULL;
    const char *texts[2] = {NULL, NULL};
    const struct convoy_option options[] = {
        {.name = "json", .kind = CONVOY_OPTION_FLAG, .target = &is_json, .help = "JSON on stdout"},
        {.name = "abi", .kind = CONVOY_OPTION_TEXT, .target = &given, .value_name = "DIR",
         .help = "where the frozen releases are (default: abi beside this command)"},
    };
    struct convoy_command_line line = {
        .options = options, .option_count = sizeof options / sizeof options[0], .operands = texts, .operand_max = 2};
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_options_parse(&line, argc, argv, &error) != CONVOY_OK) {
        return compat_usage(error.text);
    }
    if (line.wants_help) {
        (void)fputs(compat_intro, stdout);
        convoy_options_help(stdout, options, line.option_count);
        return CONVOY_EXIT_OK;
    }
    return line.operand_count != 2 ? compat_usage("A and B must both be given") : compat_run(texts, given, is_json);
}
