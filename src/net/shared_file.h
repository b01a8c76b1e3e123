/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The anonymous file behind a shared segment: a memfd, so that no name is left behind by a killed process; its pages
 * are reserved before it is used and its size is sealed, so that touching it never raises SIGBUS.
 */
#ifndef CONVOY_NET_SHARED_FILE_H
#define CONVOY_NET_SHARED_FILE_H

#include "convoy/base.h"

/* A zero-filled, sealed (SHRINK, GROW, SEAL), close-on-exec file of `bytes` > 0. SYSTEM: text and errno say what is
 * missing (memory, a limit, the call itself). fd_out: gives */
int32_t convoy_shared_file_create(size_t bytes, int *fd_out, struct convoy_error *error);

/* The same, mapped by its creator, who alone can write: nobody can map it to write from then on (FUTURE_WRITE). Stays
 * mapped over a fork, read and write. fd_out, address_out: give (close, munmap) */
int32_t convoy_shared_file_create_owned(size_t bytes, int *fd_out, void **address_out, struct convoy_error *error);

/* Maps a file that another process sent, to read; a child that is forked does not get it. MALFORMED as check; SYSTEM.
 * address_out: gives (munmap of bytes_out) */
int32_t convoy_shared_file_view(int fd, size_t bytes_min, const void **address_out, size_t *bytes_out,
                                struct convoy_error *error);

/* Checks a file that another process sent: at least `bytes_min` long, and sealed. MALFORMED. bytes_out: its length */
int32_t convoy_shared_file_check(int fd, size_t bytes_min, size_t *bytes_out, struct convoy_error *error);

#endif
