/* SPDX-License-Identifier: Apache-2.0 */
/* The `convoy` command: finds the sub-command and hands over. Errors go to stderr; exit code 2 is usage, 1 failure. */
#include "cli/compat.h"
#include "cli/doctor.h"
#include "cli/inspect.h"
#include "cli/options.h"
#include "cli/perf.h"
#include "cli/perf_rank.h"
#include "cli/pipeline_role.h"
#include "cli/run.h"
#include "cli/tensors_default.h"

#include <stdio.h>
#include <string.h>

struct main_command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
    const char *help;                  /* NULL = not listed */
};

static const struct main_command main_commands[] = {
    {"compat", convoy_cli_compat, "whether two of plugin, frozen release and host go together, from files alone"},
    {"default-tensors", convoy_cli_default_tensors, NULL}, /* what make writes to build/tensors */
    {"doctor", convoy_cli_doctor, "one page about this machine: memory, limits, permissions, UCX, settings"},
    {"inspect", convoy_cli_inspect, "what a plugin file says about itself, without running it"},
    {"perf", convoy_cli_perf, "measure poll reduce, sync gather or transfers among processes of this machine"},
    {"perf-rank", convoy_cli_perf_rank, NULL}, /* one process of perf */
    {"pipeline-role", convoy_cli_pipeline_role, NULL}, /* one process of run's pipeline */
    {"run", convoy_cli_run, "replay a serving trace through real processes, carry tensors, and check every result"},
    {"version", convoy_cli_version, "release, families and wire versions of this command"},
};

static void main_help(FILE *out)
{
    (void)fprintf(out, "usage: convoy COMMAND [options]\n\n");
    for (size_t i = 0; i < sizeof main_commands / sizeof main_commands[0]; i++) {
        if (main_commands[i].help != NULL) {
            (void)fprintf(out, "  %-10s %s\n", main_commands[i].name, main_commands[i].help);
        }
    }
    (void)fprintf(out, "  %-10s %s\n\n", "help",
                  "this text; \"convoy help COMMAND\" or \"convoy COMMAND --help\" for one");
    (void)fprintf(out, "Errors go to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage.\n");
}

static const struct main_command *main_find(const char *name)
{
    for (size_t i = 0; i < sizeof main_commands / sizeof main_commands[0]; i++) {
        if (strcmp(main_commands[i].name, name) == 0) {
            return &main_commands[i];
        }
    }
    return NULL;
}

static int main_unknown(const char *name)
{
    (void)fprintf(stderr, "convoy: \"%.60s\" is no command (see convoy help)\n", name);
    return CONVOY_EXIT_USAGE;
}

static int main_run_help(const char *name)
{
    static char help_option[] = "--help";
    const struct main_command *command = main_find(name);
    if (command == NULL) {
        return main_unknown(name);
    }
    char *argv[] = {(char *)command->name, help_option, NULL};
    return command->run(2, argv);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        main_help(stderr);
        return CONVOY_EXIT_USAGE;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        if (argc > 2) {
            return main_run_help(argv[2]);
        }
        main_help(stdout);
        return CONVOY_EXIT_OK;
    }
    const struct main_command *command = main_find(argv[1]);
    if (command == NULL) {
        return main_unknown(argv[1]);
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    return command->run(argc - 1, argv + 1);
}
