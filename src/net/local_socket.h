/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the members of one host meet: an abstract Unix socket (reaches within one network namespace) and, if a shared
 * directory is configured, a socket file in it (reaches across network and mount namespaces). Names come from the
 * session token of the opening: nobody can guess them, and no file of an earlier life is ever in the way.
 */
#ifndef CONVOY_NET_LOCAL_SOCKET_H
#define CONVOY_NET_LOCAL_SOCKET_H

#include "net/host_map.h"

#define CONVOY_LOCAL_SESSION_BYTES 32u
#define CONVOY_LOCAL_NAME_BYTES 80u

/* What a socket is opened with. */
struct convoy_local_socket_options {
    const uint8_t *session; /* CONVOY_LOCAL_SESSION_BYTES; borrowed until fini */
    uint32_t index;         /* own member index */
    const char *shared_directory; /* "" = none */
};

struct convoy_local_socket {
    const uint8_t *session;
    int abstract_fd;        /* listening, or -1 */
    int path_fd;            /* listening, or -1 */
    int directory_fd;       /* O_PATH of the shared directory, or -1 */
    uint64_t boot_tag;
    char file[CONVOY_LOCAL_NAME_BYTES]; /* name in the directory while it exists, else empty */
};

/*
 * Listens for member `index` in every way that is configured and allowed, and fills the keys that say so. Never
 * blocks. SYSTEM: a way that should work does not, with the reason; what does work is in socket_out and keys_out all
 * the same (both are valid either way; fini). Removes socket files that dead members of this boot left there.
 */
int32_t convoy_local_socket_open(const struct convoy_local_socket_options *options,
                                 struct convoy_local_socket *socket_out, struct convoy_host_keys *keys_out,
                                 struct convoy_error *error);

/* Whom to connect to, and in which ways its keys and ours allow. */
struct convoy_local_socket_target {
    uint32_t index;
    bool by_network; /* try the abstract socket */
    bool by_directory;
};

/*
 * Connects to another member's socket. With deadline 0 it never waits: IN_PROGRESS means that the other's queue is
 * full for now (call again with a deadline). SYSTEM: nobody can be reached there. fd_out: gives.
 */
int32_t convoy_local_socket_connect(const struct convoy_local_socket *socket,
                                    const struct convoy_local_socket_target *target, uint64_t deadline_ns, int *fd_out,
                                    struct convoy_error *error);

/* Takes one waiting connection, or returns -1. gives */
int convoy_local_socket_accept(const struct convoy_local_socket *socket);

/* Waits until a connection waits, or the deadline. */
void convoy_local_socket_wait(const struct convoy_local_socket *socket, uint64_t deadline_ns);

/* Stops to listen and removes the file; what was connected stays so. May be repeated. */
void convoy_local_socket_stop(struct convoy_local_socket *socket);

/* stop, and closes the directory. */
void convoy_local_socket_fini(struct convoy_local_socket *socket);

#endif
