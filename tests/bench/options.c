/* SPDX-License-Identifier: Apache-2.0 */
/* The command line that all benchmark programs share. */
#include "tests/bench/bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {[BENCH_POLL] = "poll",
                                         [BENCH_ROW] = "row",
                                         [BENCH_LISTS] = "lists",
                                         [BENCH_KEYED] = "keyed",
                                         [BENCH_FRESH] = "fresh"};

static uint32_t parse_number(const char *text, uint32_t max)
{
    char *end = NULL;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || value > max) {
        bench_die("\"%s\" is not a number from 0 to %u", text, max);
    }
    return (uint32_t)value;
}

static void parse_case(const char *text, struct bench_case *case_out)
{
    char kind[16];
    char mode[16];
    if (sscanf(text, "%15[a-z]:%u:%15s", kind, &case_out->n, mode) != 3) {
        bench_die("\"%s\" is not KIND:N:MODE", text);
    }
    for (size_t i = 0; i < sizeof kind_names / sizeof kind_names[0]; i++) {
        if (strcmp(kind, kind_names[i]) == 0) {
            case_out->kind = (enum bench_kind)i;
            case_out->is_paced = strcmp(mode, "paced") == 0;
            (void)snprintf(case_out->text, sizeof case_out->text, "%s:%u", kind, case_out->n);
            return;
        }
    }
    bench_die("\"%s\": unknown kind", text);
}

static void parse_option(char option, const char *value, struct bench_options *options)
{
    switch (option) {
    case 'r': options->ranks = parse_number(value, BENCH_RANKS_MAX); break;
    case 'n': options->rounds = parse_number(value, 100000000); break;
    case 'q': options->paced_rounds = parse_number(value, 1000000); break;
    case 'f': options->first = parse_number(value, BENCH_RANKS_MAX); break;
    case 'l': options->local = parse_number(value, BENCH_RANKS_MAX); break;
    case 'p': options->policy = value; break;
    case 'd': options->directory = value; break;
    case 'v': options->rendezvous = value; break;
    case 's': options->settings = value; break;
    case 'm': options->mode = value; break;
    default: bench_die("unknown option");
    }
}

void bench_parse(int argc, char **argv, struct bench_options *options_out)
{
    static const struct option long_options[] = {
        {"ranks", required_argument, NULL, 'r'},      {"rounds", required_argument, NULL, 'n'},
        {"paced-rounds", required_argument, NULL, 'q'}, {"first", required_argument, NULL, 'f'},
        {"local", required_argument, NULL, 'l'},      {"policy", required_argument, NULL, 'p'},
        {"directory", required_argument, NULL, 'd'},  {"rendezvous", required_argument, NULL, 'v'},
        {"settings", required_argument, NULL, 's'},   {"mode", required_argument, NULL, 'm'},
        {NULL, 0, NULL, 0}};
    *options_out = (struct bench_options){.ranks = 2, .rounds = 20000, .paced_rounds = 500};
    for (int option = 0; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        parse_option((char)option, optarg, options_out);
    }
    if (options_out->ranks == 0) {
        bench_die("--ranks must be 1 to %u", BENCH_RANKS_MAX);
    }
    if (options_out->local == 0) {
        options_out->local = options_out->ranks;
    }
    for (int i = optind; i < argc && options_out->case_count < BENCH_CASES_MAX; i++) {
        parse_case(argv[i], &options_out->cases[options_out->case_count++]);
    }
}

uint32_t bench_rounds(const struct bench_options *options, const struct bench_case *which)
{
    return which->is_paced ? options->paced_rounds : options->rounds;
}
