/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/place.h"

#include "core/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACE_PORTS_MAX 256u

int32_t convoy_place_beside(char path_out[CONVOY_PLACE_PATH_BYTES], const char *name, struct convoy_error *error)
{
    ssize_t length = readlink("/proc/self/exe", path_out, CONVOY_PLACE_PATH_BYTES - 1);
    if (length <= 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "reading /proc/self/exe");
    }
    path_out[length] = '\0';
    char *slash = strrchr(path_out, '/');
    size_t folder = slash != NULL ? (size_t)(slash - path_out) + 1 : 0;
    if (folder + strlen(name) + 1 > CONVOY_PLACE_PATH_BYTES) {
        return convoy_error_set(error, CONVOY_LIMIT, "the path of this command is too long");
    }
    (void)strcpy(path_out + folder, name);
    return CONVOY_OK;
}

static bool place_make_one(const char *path)
{
    struct stat what;
    return mkdir(path, 0755) == 0 || (errno == EEXIST && stat(path, &what) == 0 && S_ISDIR(what.st_mode));
}

int32_t convoy_place_make_folder(const char *path, struct convoy_error *error)
{
    char part[CONVOY_PLACE_PATH_BYTES];
    size_t length = strlen(path);
    if (length >= sizeof part) {
        return convoy_error_set(error, CONVOY_LIMIT, "a folder's name has %zu bytes: must be below %zu", length,
                                sizeof part);
    }
    for (size_t i = 1; i <= length; i++) {
        if (path[i] == '/' || path[i] == '\0') {
            memcpy(part, path, i);
            part[i] = '\0';
            if (!place_make_one(part)) {
                return convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "making the folder %.150s", part);
            }
        }
    }
    return CONVOY_OK;
}

static int place_bind(uint16_t *port_out)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_fd >= 0 && (bind(socket_fd, (struct sockaddr *)&address, sizeof address) != 0 ||
                           getsockname(socket_fd, (struct sockaddr *)&address, &length) != 0)) {
        (void)close(socket_fd);
        return -1;
    }
    *port_out = ntohs(address.sin_port);
    return socket_fd;
}

int32_t convoy_place_free_ports(uint16_t *ports_out, uint32_t count, struct convoy_error *error)
{
    int sockets[PLACE_PORTS_MAX];
    uint32_t bound = 0;
    int32_t status = CONVOY_OK;
    /* All are bound at once, so that none is given twice. */
    while (bound < count && bound < PLACE_PORTS_MAX && (sockets[bound] = place_bind(&ports_out[bound])) >= 0) {
        bound++;
    }
    if (bound < count) {
        status = convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "finding a free port on 127.0.0.1");
    }
    while (bound != 0) {
        (void)close(sockets[--bound]);
    }
    return status;
}
