/* SPDX-License-Identifier: Apache-2.0 */
/* What a plugin must leave as it found it. Two pictures of the process are taken and compared. */
#ifndef TESTS_ABI_HYGIENE_H
#define TESTS_ABI_HYGIENE_H

#include <signal.h>
#include <stddef.h>

#define HYGIENE_SIGNALS 65
#define HYGIENE_HOOKED 8
#define HYGIENE_CODE_BYTES 16
#define HYGIENE_FDS_MAX 256

struct hygiene {
    struct sigaction actions[HYGIENE_SIGNALS];
    sigset_t mask;
    char **environment; /* the pointer itself, and */
    size_t environment_hash;
    unsigned char code[HYGIENE_HOOKED][HYGIENE_CODE_BYTES]; /* first bytes of what memory hooks would patch */
    unsigned threads;
    unsigned fd_count;
    int fds[HYGIENE_FDS_MAX];
    unsigned mappings;
};

/* Takes a picture of this process. */
void hygiene_take(struct hygiene *picture);

/* Fails the test and says what changed. Mappings are compared only when asked for: a first load adds some. */
void hygiene_compare(const struct hygiene *before, const struct hygiene *after, int with_mappings);

#endif
