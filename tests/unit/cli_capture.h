/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command of the CLI inside the test and keeps its exit code and what it and its children printed. */
#ifndef TESTS_UNIT_CLI_CAPTURE_H
#define TESTS_UNIT_CLI_CAPTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct cli_output {
    int code;
    char out[32768];
    char err[8192];
};

typedef int (*cli_command_fn)(int argc, char **argv);

/* Sends a stream's descriptor into a fresh memory file; returns that file, and the old descriptor in saved_out. */
static inline int cli_redirect(FILE *stream, int *saved_out)
{
    int file = memfd_create("output", 0);
    (void)fflush(stream);
    *saved_out = dup(fileno(stream));
    if (file < 0 || *saved_out < 0 || dup2(file, fileno(stream)) < 0) {
        abort();
    }
    return file;
}

static inline void cli_restore(FILE *stream, int saved, int file, char *text, size_t capacity)
{
    (void)fflush(stream);
    if (dup2(saved, fileno(stream)) < 0) {
        abort();
    }
    ssize_t length = pread(file, text, capacity - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    (void)close(saved);
    (void)close(file);
}

/* words: argv from argv[0] on, NULL behind the last. */
static inline void cli_run(struct cli_output *output, cli_command_fn command, const char *const *words)
{
    char *argv[64] = {NULL};
    int argc = 0;
    int saved[2];
    while (words[argc] != NULL && argc < 63) {
        argv[argc] = (char *)words[argc];
        argc++;
    }
    int out = cli_redirect(stdout, &saved[0]);
    int err = cli_redirect(stderr, &saved[1]);
    output->code = command(argc, argv);
    cli_restore(stderr, saved[1], err, output->err, sizeof output->err);
    cli_restore(stdout, saved[0], out, output->out, sizeof output->out);
}

#define CLI_RUN(output, command, ...) cli_run((output), (command), (const char *const[]){"convoy", __VA_ARGS__, NULL})

#endif
