/* SPDX-License-Identifier: Apache-2.0 */
#include "net/local_socket.h"

#include "core/clock.h"
#include "core/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define HASH_BYTES 16u
#define BACKLOG 1024
#define STALE_AFTER_S 60 /* far longer than from bind to listen, the only time when a live socket refuses */
#define SCAN_ENTRIES_MAX 4096

struct address {
    struct sockaddr_un un;
    socklen_t bytes;
};

/* -- names --------------------------------------------------------------------------------------------------------- */

static void name_of(const uint8_t *session, uint32_t index, char hex[2 * HASH_BYTES + 1])
{
    uint8_t hash[HASH_BYTES];
    (void)crypto_generichash(hash, sizeof hash, (const unsigned char *)&index, sizeof index, session,
                             CONVOY_LOCAL_SESSION_BYTES);
    (void)sodium_bin2hex(hex, 2 * HASH_BYTES + 1, hash, sizeof hash);
}

static void file_of(uint64_t boot_tag, const char *hex, char file[CONVOY_LOCAL_NAME_BYTES])
{
    (void)snprintf(file, CONVOY_LOCAL_NAME_BYTES, "convoy-%016llx-%s.sock", (unsigned long long)boot_tag, hex);
}

static struct address abstract_address(const char *hex)
{
    struct address address = {.un = {.sun_family = AF_UNIX}};
    int length = snprintf(address.un.sun_path + 1, sizeof address.un.sun_path - 1, "convoy-%s", hex);
    address.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    return address;
}

/* Through the open directory: any length of its path will do, and it is the very directory that the keys name. */
static struct address file_address(int directory_fd, const char *file)
{
    struct address address = {.un = {.sun_family = AF_UNIX}, .bytes = sizeof address.un};
    (void)snprintf(address.un.sun_path, sizeof address.un.sun_path, "/proc/self/fd/%d/%s", directory_fd, file);
    return address;
}

/* -- keys ---------------------------------------------------------------------------------------------------------- */

static bool read_boot(uint8_t boot[CONVOY_HOST_BOOT_BYTES])
{
    char text[40] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    size_t bytes = 0;
    return length > 0 &&
           sodium_hex2bin(boot, CONVOY_HOST_BOOT_BYTES, text, (size_t)length, "-\n", &bytes, NULL) == 0 &&
           bytes == CONVOY_HOST_BOOT_BYTES;
}

static void put_identity(uint64_t key[2], const struct stat *status)
{
    key[0] = (uint64_t)status->st_dev;
    key[1] = (uint64_t)status->st_ino;
}

/* -- listening ----------------------------------------------------------------------------------------------------- */

/* A listening socket, or -1 and errno. */
static int listen_at(const struct address *address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    /* The mode of the socket is what bind gives the file; setting the umask would touch the whole process. */
    if (fchmod(fd, S_IRUSR | S_IWUSR) == 0 && bind(fd, (const struct sockaddr *)&address->un, address->bytes) == 0 &&
        listen(fd, BACKLOG) == 0) {
        return fd;
    }
    int sys_errno = errno;
    (void)close(fd);
    errno = sys_errno;
    return -1;
}

static int32_t listen_abstract(struct convoy_local_socket *at, const char *hex, struct convoy_host_keys *keys)
{
    struct stat status;
    struct address address = abstract_address(hex);
    if (stat("/proc/thread-self/ns/net", &status) != 0) { /* of this thread: a process may have threads elsewhere */
        return errno;
    }
    at->abstract_fd = listen_at(&address);
    if (at->abstract_fd < 0) {
        return errno;
    }
    put_identity(keys->network, &status);
    keys->flags |= CONVOY_HOST_HAS_NETWORK;
    return 0;
}

/* Nobody listens at this file of our own boot, and nobody is about to. */
static bool is_stale(int directory_fd, const char *file, const char *boot_prefix, time_t now)
{
    struct stat status;
    size_t length = strlen(file);
    if (length >= CONVOY_LOCAL_NAME_BYTES || strncmp(file, boot_prefix, strlen(boot_prefix)) != 0 ||
        fstatat(directory_fd, file, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(status.st_mode) ||
        status.st_mtime > now - STALE_AFTER_S) {
        return false;
    }
    struct address address = file_address(directory_fd, file);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is_refused = fd >= 0 && connect(fd, (const struct sockaddr *)&address.un, address.bytes) != 0 &&
                      errno == ECONNREFUSED;
    if (fd >= 0) {
        (void)close(fd);
    }
    return is_refused;
}

static void remove_stale(const struct convoy_local_socket *at)
{
    char prefix[CONVOY_LOCAL_NAME_BYTES];
    (void)snprintf(prefix, sizeof prefix, "convoy-%016llx-", (unsigned long long)at->boot_tag);
    int fd = openat(at->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (directory == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return;
    }
    time_t now = time(NULL);
    struct dirent *entry = readdir(directory);
    for (int i = 0; entry != NULL && i < SCAN_ENTRIES_MAX; i++, entry = readdir(directory)) {
        if (is_stale(at->directory_fd, entry->d_name, prefix, now)) {
            (void)unlinkat(at->directory_fd, entry->d_name, 0);
        }
    }
    (void)closedir(directory);
}

static int32_t listen_file(struct convoy_local_socket *at, const char *hex, const char *shared_directory,
                           struct convoy_host_keys *keys)
{
    struct stat status;
    at->directory_fd = open(shared_directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at->directory_fd < 0 || fstat(at->directory_fd, &status) != 0) {
        return errno;
    }
    remove_stale(at);
    char file[CONVOY_LOCAL_NAME_BYTES];
    file_of(at->boot_tag, hex, file);
    struct address address = file_address(at->directory_fd, file);
    at->path_fd = listen_at(&address);
    if (at->path_fd < 0) {
        return errno;
    }
    memcpy(at->file, file, sizeof file);
    put_identity(keys->directory, &status);
    keys->flags |= CONVOY_HOST_HAS_DIRECTORY;
    return 0;
}

int32_t convoy_local_socket_open(const struct convoy_local_socket_options *options,
                                 struct convoy_local_socket *socket_out, struct convoy_host_keys *keys_out,
                                 struct convoy_error *error)
{
    struct convoy_local_socket *at = socket_out;
    const char *shared_directory = options->shared_directory;
    *at = (struct convoy_local_socket){
        .session = options->session, .abstract_fd = -1, .path_fd = -1, .directory_fd = -1};
    memset(keys_out, 0, sizeof *keys_out);
    if (!read_boot(keys_out->boot)) {
        return convoy_error_set(error, CONVOY_SYSTEM, "the boot id of the kernel cannot be read from /proc");
    }
    keys_out->flags |= CONVOY_HOST_HAS_BOOT;
    memcpy(&at->boot_tag, keys_out->boot, sizeof at->boot_tag);
    char hex[2 * HASH_BYTES + 1];
    name_of(options->session, options->index, hex);
    int32_t network_errno = listen_abstract(at, hex, keys_out);
    int32_t file_errno = shared_directory[0] != '\0' ? listen_file(at, hex, shared_directory, keys_out) : 0;
    if (file_errno != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, file_errno, "no socket in shared_directory %s",
                                      shared_directory);
    }
    if (network_errno != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, network_errno, "no abstract Unix socket");
    }
    return CONVOY_OK;
}

/* -- connecting ---------------------------------------------------------------------------------------------------- */

/* Unix sockets wait for room in the other's queue as long as the send timeout says; there is no event for it. */
static void set_connect_wait(int fd, uint64_t deadline_ns)
{
    uint64_t left_us = convoy_deadline_left(convoy_now_ns(), deadline_ns) / 1000 + 1; /* 0 would mean for ever */
    struct timeval wait = {.tv_sec = (time_t)(left_us / 1000000), .tv_usec = (suseconds_t)(left_us % 1000000)};
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
}

/* A connected socket, or -1 and errno (EAGAIN: the queue is full). */
static int connect_at(const struct address *address, uint64_t deadline_ns)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (deadline_ns == 0 ? SOCK_NONBLOCK : 0), 0);
    if (fd < 0) {
        return -1;
    }
    int result = 0;
    do {
        if (deadline_ns != 0) {
            set_connect_wait(fd, deadline_ns);
        }
        result = connect(fd, (const struct sockaddr *)&address->un, address->bytes);
    } while (result != 0 && errno == EINTR);
    if (result == 0) {
        return fd;
    }
    int sys_errno = errno;
    (void)close(fd);
    errno = sys_errno;
    return -1;
}

int32_t convoy_local_socket_connect(const struct convoy_local_socket *at,
                                    const struct convoy_local_socket_target *target, uint64_t deadline_ns, int *fd_out,
                                    struct convoy_error *error)
{
    char hex[2 * HASH_BYTES + 1];
    name_of(at->session, target->index, hex);
    int fd = -1;
    int sys_errno = ENOENT;
    if (target->by_network) {
        struct address address = abstract_address(hex);
        fd = connect_at(&address, deadline_ns);
        sys_errno = errno;
    }
    if (fd < 0 && target->by_directory && !(target->by_network && sys_errno == EAGAIN)) {
        char file[CONVOY_LOCAL_NAME_BYTES];
        file_of(at->boot_tag, hex, file);
        struct address address = file_address(at->directory_fd, file);
        fd = connect_at(&address, deadline_ns);
        sys_errno = errno;
    }
    if (fd < 0 && sys_errno == EAGAIN) {
        return deadline_ns == 0 ? CONVOY_IN_PROGRESS
                                : convoy_error_set(error, CONVOY_TIMED_OUT, "the queue of its Unix socket stays full");
    }
    if (fd < 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, sys_errno, "connect to its Unix socket");
    }
    *fd_out = fd;
    return CONVOY_OK;
}

/* -- serving ------------------------------------------------------------------------------------------------------- */

int convoy_local_socket_accept(const struct convoy_local_socket *at)
{
    int listeners[] = {at->abstract_fd, at->path_fd};
    for (size_t i = 0; i < sizeof listeners / sizeof listeners[0]; i++) {
        int fd = -1;
        do {
            fd = listeners[i] >= 0 ? accept4(listeners[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
        } while (fd < 0 && listeners[i] >= 0 && (errno == EINTR || errno == ECONNABORTED));
        if (fd >= 0) {
            return fd;
        }
    }
    return -1;
}

void convoy_local_socket_wait(const struct convoy_local_socket *at, uint64_t deadline_ns)
{
    struct pollfd entries[] = {{.fd = at->abstract_fd, .events = POLLIN}, {.fd = at->path_fd, .events = POLLIN}};
    (void)poll(entries, 2, convoy_deadline_poll_ms(convoy_now_ns(), deadline_ns));
}

void convoy_local_socket_stop(struct convoy_local_socket *at)
{
    if (at->file[0] != '\0') {
        (void)unlinkat(at->directory_fd, at->file, 0);
        at->file[0] = '\0';
    }
    if (at->abstract_fd >= 0) {
        (void)close(at->abstract_fd);
        at->abstract_fd = -1;
    }
    if (at->path_fd >= 0) {
        (void)close(at->path_fd);
        at->path_fd = -1;
    }
}

void convoy_local_socket_fini(struct convoy_local_socket *at)
{
    convoy_local_socket_stop(at);
    if (at->directory_fd >= 0) {
        (void)close(at->directory_fd);
        at->directory_fd = -1;
    }
}
