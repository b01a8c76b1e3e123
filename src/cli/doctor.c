/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include "cli/options.h"
#include "core/error.h"

#include <stdbool.h>

static const char doctor_intro[] =
    "usage: convoy doctor [--plugin FILE] [--peer HOST] [--json]\n"
    "\n"
    "One page about what convoy finds on this machine: shared memory, limits, permissions, namespaces, UCX,\n"
    "devices, settings. Opens the plugin, UCX and the CUDA driver to look at them; sends nothing.\n"
    "Exit code 1: no plugin could be opened.\n\n";

static json_t *doctor_examine(const char *plugin, const char *peer)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "plugin", convoy_doctor_plugin(plugin), "shared_memory",
                     convoy_doctor_shared_memory(), "process_vm", convoy_doctor_process_vm(), "limits",
                     convoy_doctor_limits(), "namespaces", convoy_doctor_namespaces(), "processor",
                     convoy_doctor_processor(), "device", convoy_doctor_device(), "peer",
                     peer != NULL ? convoy_doctor_peer(peer) : json_null());
}

static int doctor_report(const json_t *all, bool as_json)
{
    if (as_json && json_dumpf(all, stdout, JSON_INDENT(2)) == 0) {
        (void)fputc('\n', stdout);
    } else {
        convoy_doctor_print(stdout, all);
    }
    const json_t *plugin = json_object_get(all, "plugin");
    if (json_is_string(json_object_get(plugin, "error"))) {
        (void)fprintf(stderr, "convoy doctor: %s\n", json_string_value(json_object_get(plugin, "error")));
        return CONVOY_EXIT_FAILURE;
    }
    return CONVOY_EXIT_OK;
}

int convoy_cli_doctor(int argc, char **argv)
{
    const char *plugin = NULL;
    const char *peer = NULL;
    bool as_json = false;
    const struct convoy_option options[] = {
        {.name = "plugin", .kind = CONVOY_OPTION_TEXT, .target = &plugin, .value_name = "FILE",
         .help = "plugin to look at; else CONVOY_LIBRARY, else the one beside this command"},
        {.name = "peer", .kind = CONVOY_OPTION_TEXT, .target = &peer, .value_name = "HOST",
         .help = "also show the interface that the kernel would use to this host"},
        {.name = "json", .kind = CONVOY_OPTION_FLAG, .target = &as_json, .help = "JSON on stdout"},
    };
    struct convoy_command_line line = {.options = options, .option_count = sizeof options / sizeof options[0]};
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (convoy_options_parse(&line, argc, argv, &error) != CONVOY_OK) {
        (void)fprintf(stderr, "convoy doctor: %s (see convoy doctor --help)\n", error.text);
        return CONVOY_EXIT_USAGE;
    }
    if (line.wants_help) {
        (void)fputs(doctor_intro, stdout);
        convoy_options_help(stdout, options, line.option_count);
        return CONVOY_EXIT_OK;
    }
    json_t *all = doctor_examine(plugin, peer);
    if (all == NULL) {
        (void)fprintf(stderr, "convoy doctor: out of memory\n");
        return CONVOY_EXIT_FAILURE;
    }
    int code = doctor_report(all, as_json);
    json_decref(all);
    return code;
}
