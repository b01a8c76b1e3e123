/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors that a run carries unless it is given a file: what the parts of an image model hand to each other, and
 * what transport gets wrong, in 1.2 MB. Made from one seed and integer arithmetic only, so that every machine makes the
 * same bytes. `make` writes them to build/tensors/default.safetensors.
 */
#ifndef CONVOY_CLI_TENSORS_DEFAULT_H
#define CONVOY_CLI_TENSORS_DEFAULT_H

#include "cli/safetensors.h"

/* gives: convoy_tensors_default_fini */
int32_t convoy_tensors_default_make(struct convoy_safetensors *out, struct convoy_error *error);

/* Accepts a zeroed one. */
void convoy_tensors_default_fini(struct convoy_safetensors *tensors);

/* `convoy default-tensors FILE`, which the help does not list. Returns the exit code. */
int convoy_cli_default_tensors(int argc, char **argv);

#endif
