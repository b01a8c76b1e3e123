/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perf_transfer_load.h"

#include "cli/pipeline_figures.h"
#include "convoy/transfer.h"
#include "core/error.h"

#include <string.h>

#define LOAD_OPTIONS 9u
#define LOAD_BYTES_MAX (UINT64_C(16) << 30)
#define LOAD_ROUNDS_MAX 1000000u
#define LOAD_POOL_BYTES_MIN (UINT64_C(16) << 20)
#define LOAD_ALIGNMENT 512u

struct load_word {
    const char *word; /* NULL ends a list */
    uint32_t value;
};

static const struct load_word load_paths[] = {{"auto", CONVOY_PATH_AUTO},
                                              {"lend", CONVOY_PATH_LEND},
                                              {"push", CONVOY_PATH_PUSH},
                                              {"pull", CONVOY_PATH_PULL},
                                              {NULL, 0}};
static const struct load_word load_nets[] = {{"auto", 0}, {"shm", 1}, {"ucx", 2}, {NULL, 0}};
static const struct load_word load_memories[] = {
    {"shared", CONVOY_MEMORY_SHARED}, {"host", CONVOY_MEMORY_HOST}, {"cuda", CONVOY_MEMORY_DEVICE}, {NULL, 0}};

static int32_t load_find(const char *option, const char *word, const struct load_word *words, uint32_t *value_out,
                         struct convoy_error *error)
{
    char allowed[64] = "";
    for (const struct load_word *known = words; known->word != NULL; known++) {
        if (strcmp(known->word, word) == 0) {
            *value_out = known->value;
            return CONVOY_OK;
        }
        size_t length = strlen(allowed);
        (void)snprintf(allowed + length, sizeof allowed - length, "%s%s", length != 0 ? ", " : "", known->word);
    }
    return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "--%s is \"%.60s\": must be one of %s", option, word,
                            allowed);
}

static int32_t load_check(struct convoy_perf_transfer_load *load, struct convoy_error *error)
{
    uint32_t net = 0;
    int32_t status = load_find("path", load->path_word, load_paths, &load->path, error);
    if (status == CONVOY_OK) {
        status = load_find("net", load->net, load_nets, &net, error);
    }
    if (status == CONVOY_OK) {
        status = load_find("mem", load->memory_word, load_memories, &load->memory, error);
    }
    if (status == CONVOY_OK && load->plugin == NULL) {
        load->plugin = load->plugin_default;
        status = convoy_place_beside(load->plugin_default, "libconvoy.so.1", error);
    }
    return status;
}

static void load_help(const struct convoy_option *table)
{
    (void)printf("usage: convoy perf transfer [options]\n\n"
                 "Starts two processes that each load the plugin, lets one stage and send the same bytes again and\n"
                 "again and the other one load them, and prints medians and 99th percentiles of the whole and of its\n"
                 "phases. Two kinds are measured: the receiver looks at the bytes where they lie (view), or has them in\n"
                 "memory of its own (copy). What is forced by --path is measured or refused:\n\n"
                 "  auto  both kinds, by what the library takes\n"
                 "  lend  view only: the receiver maps the sender's pool. Needs --mem shared, one host\n"
                 "  push  copy only: into a slot that the receiver sets aside for the sender\n"
                 "  pull  copy only: by the receiver, out of the sender's pool. Needs one host: not by --net ucx\n\n"
                 "A path or memory that the library refuses is told in its words, with exit code 1.\n\n");
    convoy_options_help(stdout, table, LOAD_OPTIONS);
}

int32_t convoy_perf_transfer_load_parse(struct convoy_perf_transfer_load *load, int argc, char **argv,
                                        bool *wants_help_out, struct convoy_error *error)
{
    *load = (struct convoy_perf_transfer_load){.bytes = 1u << 20,
                                               .tensors = 1,
                                               .rounds = 500,
                                               .deadline_s = 120,
                                               .path_word = "auto",
                                               .net = "auto",
                                               .memory_word = "shared"};
    const struct convoy_option table[LOAD_OPTIONS] = {
        {"bytes", CONVOY_OPTION_NUMBER, &load->bytes, 0, LOAD_BYTES_MAX, "N", "of each hand-over (default 1048576)"},
        {"tensors", CONVOY_OPTION_NUMBER, &load->tensors, 1, CONVOY_PERF_TRANSFER_TENSORS_MAX, "K",
         "that the bytes are cut into (default 1)"},
        {"n", CONVOY_OPTION_NUMBER, &load->rounds, 1, LOAD_ROUNDS_MAX, "N",
         "hand-overs of each kind that are measured (default 500; fewer: a phase's p99 is of the first rounds)"},
        {"path", CONVOY_OPTION_TEXT, &load->path_word, 0, 0, "WAY", "auto, lend, push or pull (default auto)"},
        {"net", CONVOY_OPTION_TEXT, &load->net, 0, 0, "NET", "auto, shm or ucx: what carries the bytes (default auto)"},
        {"mem", CONVOY_OPTION_TEXT, &load->memory_word, 0, 0, "KIND",
         "of the pools: shared (convoy's), host or cuda (this command's) (default shared)"},
        {"plugin", CONVOY_OPTION_TEXT, &load->plugin, 0, 0, "FILE", "default: libconvoy.so.1 beside this command"},
        {"deadline", CONVOY_OPTION_NUMBER, &load->deadline_s, 1, 100000, "S", "ends the measurement (default 120)"},
        {"json", CONVOY_OPTION_FLAG, &load->is_json, 0, 0, "", "print one JSON object"},
    };
    const char *operands[1];
    struct convoy_command_line line = {
        .options = table, .option_count = LOAD_OPTIONS, .operands = operands, .operand_max = 1};
    int32_t status = convoy_options_parse(&line, argc, argv, error);
    if (status == CONVOY_OK && line.wants_help) {
        load_help(table);
        *wants_help_out = true;
        return CONVOY_OK;
    }
    return status == CONVOY_OK ? load_check(load, error) : status;
}

bool convoy_perf_transfer_load_has_views(const struct convoy_perf_transfer_load *load)
{
    return load->path == CONVOY_PATH_AUTO || load->path == CONVOY_PATH_LEND;
}

bool convoy_perf_transfer_load_has_copies(const struct convoy_perf_transfer_load *load)
{
    return load->path != CONVOY_PATH_LEND;
}

uint64_t convoy_perf_transfer_load_part(const struct convoy_perf_transfer_load *load, uint64_t tensor)
{
    uint64_t part = load->bytes / load->tensors;
    return tensor + 1 < load->tensors ? part : load->bytes - part * (load->tensors - 1);
}

uint64_t convoy_perf_transfer_load_pool_bytes(const struct convoy_perf_transfer_load *load)
{
    uint64_t wanted = load->bytes + load->tensors * LOAD_ALIGNMENT;
    uint64_t pool_bytes = LOAD_POOL_BYTES_MIN;
    while (pool_bytes < 4 * wanted) { /* a block of the buddy kind may be nearly twice what it holds */
        pool_bytes *= 2;
    }
    return pool_bytes;
}

/* UCX pushes, whoever began; what is read out of another process is pulled. */
static bool load_is_path(uint32_t asked, uint32_t path)
{
    switch (asked) {
    case CONVOY_PATH_LEND:
        return path == CONVOY_PATH_LEND;
    case CONVOY_PATH_PUSH:
        return path == CONVOY_PATH_PUSH || path == CONVOY_PATH_MESSAGES || path == CONVOY_PATH_RMA;
    case CONVOY_PATH_PULL:
        return path == CONVOY_PATH_PULL || path == CONVOY_PATH_PROCESS_VM;
    default:
        return true;
    }
}

int32_t convoy_perf_transfer_load_check_path(const struct convoy_perf_transfer_load *load, uint32_t path,
                                             struct convoy_error *error)
{
    bool is_ucx = path == CONVOY_PATH_MESSAGES || path == CONVOY_PATH_RMA;
    bool is_wrong = is_ucx ? strcmp(load->net, "shm") == 0 : strcmp(load->net, "ucx") == 0;
    if (is_wrong) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "--net is %.8s, and the library took the path %s", load->net,
                                convoy_pipeline_path_name(path));
    }
    return load_is_path(load->path, path)
               ? CONVOY_OK
               : convoy_error_set(error, CONVOY_UNSUPPORTED,
                                  "--path is %.8s, and the library took the path %s: with --net %.8s and --mem %.8s there "
                                  "is no other",
                                  load->path_word, convoy_pipeline_path_name(path), load->net, load->memory_word);
}
