/* SPDX-License-Identifier: Apache-2.0 */
/* What `convoy perf transfer` was asked to measure, checked and with defaults filled in. */
#ifndef CONVOY_CLI_PERF_TRANSFER_LOAD_H
#define CONVOY_CLI_PERF_TRANSFER_LOAD_H

#include "cli/options.h"
#include "cli/place.h"

#include <stdbool.h>

#define CONVOY_PERF_TRANSFER_TENSORS_MAX 4096u

struct convoy_perf_transfer_load {
    uint64_t bytes; /* of one hand-over */
    uint64_t tensors; /* that they are cut into */
    uint64_t rounds;
    uint64_t deadline_s;
    const char *path_word;
    const char *net;
    const char *memory_word;
    const char *plugin;
    bool is_json;
    uint32_t path;   /* CONVOY_PATH_* */
    uint32_t memory; /* CONVOY_MEMORY_* */
    char plugin_default[CONVOY_PLACE_PATH_BYTES];
};

/* As convoy_run_options_parse. */
int32_t convoy_perf_transfer_load_parse(struct convoy_perf_transfer_load *load, int argc, char **argv,
                                        bool *wants_help_out, struct convoy_error *error);

/* Whether a reader may look into the sender's memory on the path that was asked for, and whether it may copy: what is lent
 * and then copied is pulled. */
bool convoy_perf_transfer_load_has_views(const struct convoy_perf_transfer_load *load);
bool convoy_perf_transfer_load_has_copies(const struct convoy_perf_transfer_load *load);

/* Bytes of the i-th tensor; the last one gets what does not divide. */
uint64_t convoy_perf_transfer_load_part(const struct convoy_perf_transfer_load *load, uint64_t tensor);

/* Room for two hand-overs, each tensor at a start of its own. */
uint64_t convoy_perf_transfer_load_pool_bytes(const struct convoy_perf_transfer_load *load);

/* UNSUPPORTED: the library took a path that is not the one, or not on the net, that was asked for. */
int32_t convoy_perf_transfer_load_check_path(const struct convoy_perf_transfer_load *load, uint32_t path,
                                             struct convoy_error *error);

#endif
