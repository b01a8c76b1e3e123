/* SPDX-License-Identifier: Apache-2.0 */
/* `convoy version`: what this command was built from, and what it can talk to. */
#include "cli/inspect.h"

#include "cli/options.h"
#include "convoy/convoy.h"
#include "core/error.h"
#include "core/version.h"

#include <stdbool.h>
#include <stdio.h>

static const char version_intro[] =
    "usage: convoy version [--json]\n"
    "\n"
    "Prints the release of this command, the families and the wire versions it knows.\n"
    "A plugin file says the same about itself: convoy inspect FILE.\n\n";

static void version_print(void)
{
    (void)printf("convoy %s\n", CONVOY_RELEASE);
    (void)printf("families  core %d.%d  poll %d.%d  sync %d.%d  transfer %d.%d  move %d.%d\n", CONVOY_CORE_MAJOR,
                 CONVOY_CORE_MINOR, CONVOY_POLL_MAJOR, CONVOY_POLL_MINOR, CONVOY_SYNC_MAJOR, CONVOY_SYNC_MINOR,
                 CONVOY_TRANSFER_MAJOR, CONVOY_TRANSFER_MINOR, CONVOY_MOVE_MAJOR, CONVOY_MOVE_MINOR);
    (void)printf("wire      %d to %d\n", CONVOY_WIRE_MIN, CONVOY_WIRE_MAX);
    (void)printf("ucx       %s\n", CONVOY_UCX_SUPPORTED);
}

static void version_print_json(void)
{
    (void)printf("{\"release\":\"%s\",\"families\":{\"core\":\"%d.%d\",\"poll\":\"%d.%d\",\"sync\":\"%d.%d\","
                 "\"transfer\":\"%d.%d\",\"move\":\"%d.%d\"},"
                 "\"wire\":{\"min\":%d,\"max\":%d},\"ucx\":\"%s\"}\n",
                 CONVOY_RELEASE, CONVOY_CORE_MAJOR, CONVOY_CORE_MINOR, CONVOY_POLL_MAJOR, CONVOY_POLL_MINOR,
                 CONVOY_SYNC_MAJOR, CONVOY_SYNC_MINOR, CONVOY_TRANSFER_MAJOR, CONVOY_TRANSFER_MINOR,
                 CONVOY_MOVE_MAJOR, CONVOY_MOVE_MINOR, CONVOY_WIRE_MIN, CONVOY_WIRE_MAX, CONVOY_UCX_SUPPORTED);
}

int convoy_cli_version(int argc, char **argv)
{
    bool is_json = false;
    const struct convoy_option options[] = {
        {.name = "json", .kind = CONVOY_OPTION_FLAG, .target = &is_json, .help = "JSON on stdout"},
    };
    struct convoy_command_line line = {.options = options, .option_count = sizeof options / sizeof options[0]};
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_options_parse(&line, argc, argv, &error) != CONVOY_OK) {
        (void)fprintf(stderr, "convoy version: %s (see convoy version --help)\n", error.text);
        return CONVOY_EXIT_USAGE;
    }
    if (line.wants_help) {
        (void)fputs(version_intro, stdout);
        convoy_options_help(stdout, options, line.option_count);
    } else if (is_json) {
        version_print_json();
    } else {
        version_print();
    }
    return CONVOY_EXIT_OK;
}
