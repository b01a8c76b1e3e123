/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long options of the command. A table says name, kind, range and one line of help; parsing checks against it and the
 * help text is printed from it. "--name value" and "--name=value" are the same; there are no short options.
 */
#ifndef CONVOY_CLI_OPTIONS_H
#define CONVOY_CLI_OPTIONS_H

#include "convoy/base.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CONVOY_EXIT_OK 0
#define CONVOY_EXIT_FAILURE 1
#define CONVOY_EXIT_USAGE 2

enum convoy_option_kind {
    CONVOY_OPTION_FLAG,   /* bool, no value */
    CONVOY_OPTION_NUMBER, /* uint64_t within low..high */
    CONVOY_OPTION_REAL,   /* double within low..high */
    CONVOY_OPTION_TEXT,   /* const char *, borrows from argv */
};

struct convoy_option {
    const char *name; /* without the dashes */
    enum convoy_option_kind kind;
    void *target;
    uint64_t low;
    uint64_t high;
    const char *value_name; /* for help, such as "FILE" */
    const char *help;
};

struct convoy_command_line {
    const struct convoy_option *options;
    size_t option_count;
    const char **operands; /* in: room for operand_max */
    size_t operand_max;
    size_t operand_count; /* out */
    int wants_help;       /* out: --help was given; parsing stopped there */
};

/* Reads argv[1..]. INVALID_ARGUMENT: the text has the option, its value and what is allowed. */
int32_t convoy_options_parse(struct convoy_command_line *line, int argc, char **argv, struct convoy_error *error);

/* Prints one line for each option. */
void convoy_options_help(FILE *out, const struct convoy_option *options, size_t option_count);

#endif
