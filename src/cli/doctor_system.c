/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- memory -------------------------------------------------------------------------------------------------------- */

/* A sealed memfd of one page, as convoy's segments are made; NULL = it works. */
static const char *memfd_problem(void)
{
    const char *problem = NULL;
    int fd = memfd_create("convoy-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return strerror(errno);
    }
    void *page = MAP_FAILED;
    if (ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (page == MAP_FAILED) {
        problem = strerror(errno);
    } else {
        (void)munmap(page, 4096);
    }
    (void)close(fd);
    return problem;
}

json_t *convoy_doctor_shared_memory(void)
{
    struct statvfs shm;
    const char *problem = memfd_problem();
    json_t *size = json_null();
    json_t *left = json_null();
    if (statvfs("/dev/shm", &shm) == 0) {
        size = json_integer((json_int_t)(shm.f_blocks * shm.f_frsize));
        left = json_integer((json_int_t)(shm.f_bavail * shm.f_frsize));
    }
    return json_pack("{s:o, s:o, s:b, s:s?}", "shm_bytes", size, "shm_free_bytes", left, "memfd",
                     (int)(problem == NULL), "error", problem);
}

/* -- process_vm ---------------------------------------------------------------------------------------------------- */

static const char probe_word[16] = "convoy doctor";

/* Reads the word from another process of this program; 0 or errno. */
static int vm_read(pid_t pid)
{
    char copy[sizeof probe_word] = {0};
    const struct iovec local = {copy, sizeof copy};
    const struct iovec remote = {(void *)(uintptr_t)probe_word, sizeof probe_word};
    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != (ssize_t)sizeof copy) {
        return errno != 0 ? errno : EIO;
    }
    return memcmp(copy, probe_word, sizeof copy) == 0 ? 0 : EIO;
}

/* Both directions: Yama lets a parent read its child, but no other process, and members of a group are no family. */
static int vm_probe(int *of_child, int *of_other)
{
    int gate[2];
    char unused;
    if (pipe(gate) != 0) {
        return errno;
    }
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        (void)close(gate[1]);
        int result = vm_read(parent);
        (void)read(gate[0], &unused, 1); /* stays until the parent has looked, or has gone */
        _exit(result < 255 ? result : 255);
    }
    int wait_status = 0;
    (void)close(gate[0]);
    *of_child = child > 0 ? vm_read(child) : errno;
    (void)close(gate[1]);
    if (child < 0 || waitpid(child, &wait_status, 0) != child || !WIFEXITED(wait_status)) {
        return EIO;
    }
    *of_other = WEXITSTATUS(wait_status);
    return 0;
}

static json_t *ptrace_scope(void)
{
    int scope = -1;
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    if (file != NULL) {
        scope = fgetc(file) - '0';
        (void)fclose(file);
    }
    return scope >= 0 && scope <= 9 ? json_integer(scope) : json_null();
}

json_t *convoy_doctor_process_vm(void)
{
    int of_child = EIO;
    int of_other = EIO;
    int failed = vm_probe(&of_child, &of_other);
    int problem = failed != 0 ? failed : of_other != 0 ? of_other : of_child;
    return json_pack("{s:b, s:b, s:s?, s:o}", "of_child", (int)(of_child == 0), "of_other", (int)(of_other == 0),
                     "error", problem != 0 ? strerror(problem) : NULL, "ptrace_scope", ptrace_scope());
}

/* -- limits, namespaces, processor --------------------------------------------------------------------------------- */

static json_int_t limit_value(rlim_t value)
{
    return value == RLIM_INFINITY ? -1 : (json_int_t)value;
}

json_t *convoy_doctor_limits(void)
{
    struct rlimit memlock = {0};
    struct rlimit files = {0};
    (void)getrlimit(RLIMIT_MEMLOCK, &memlock);
    (void)getrlimit(RLIMIT_NOFILE, &files);
    return json_pack("{s:I, s:I, s:I}", "memlock_bytes", limit_value(memlock.rlim_cur), "descriptors",
                     limit_value(files.rlim_cur), "descriptors_hard", limit_value(files.rlim_max));
}

json_t *convoy_doctor_namespaces(void)
{
    static const char *const names[] = {"net", "pid", "mnt", "user", "ipc"};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[40];
        struct stat file;
        (void)snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        (void)json_object_set_new(object, names[i],
                                  stat(path, &file) == 0 ? json_integer((json_int_t)file.st_ino) : json_null());
    }
    return object;
}

/* Above this size glibc copies with streaming stores. Only its own dynamic linker says what it chose. */
static json_t *streaming_threshold(void)
{
    static const char wanted[] = "glibc.cpu.x86_non_temporal_threshold:";
    static const char *const linkers[] = {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"};
    unsigned long long value = 0;
    for (size_t i = 0; i < sizeof linkers / sizeof linkers[0] && value == 0; i++) {
        char command[96];
        char line[256];
        (void)snprintf(command, sizeof command, "%s --list-tunables 2>/dev/null", linkers[i]);
        FILE *stream = access(linkers[i], X_OK) == 0 ? popen(command, "re") : NULL;
        while (stream != NULL && fgets(line, sizeof line, stream) != NULL) {
            if (strncmp(line, wanted, sizeof wanted - 1) == 0) {
                value = strtoull(line + sizeof wanted - 1, NULL, 0);
            }
        }
        if (stream != NULL) {
            (void)pclose(stream);
        }
    }
    return value != 0 ? json_integer((json_int_t)value) : json_null();
}

json_t *convoy_doctor_processor(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    return json_pack("{s:i, s:I, s:o}", "cores_usable", usable, "cores_online",
                     (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "streaming_threshold_bytes", streaming_threshold());
}

/* -- peer ---------------------------------------------------------------------------------------------------------- */

static void peer_text(const struct sockaddr *address, char text[INET6_ADDRSTRLEN])
{
    const void *bytes = address->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
                                                      : &((const struct sockaddr_in6 *)address)->sin6_addr;
    (void)inet_ntop(address->sa_family, bytes, text, INET6_ADDRSTRLEN);
}

/* Name of the interface that has an address; "" = none. */
static void peer_interface(const char *source, char *name, size_t bytes)
{
    struct ifaddrs *rows = NULL;
    name[0] = '\0';
    if (getifaddrs(&rows) != 0) {
        return;
    }
    for (const struct ifaddrs *row = rows; row != NULL; row = row->ifa_next) {
        char text[INET6_ADDRSTRLEN] = "";
        if (row->ifa_addr != NULL && (row->ifa_addr->sa_family == AF_INET || row->ifa_addr->sa_family == AF_INET6)) {
            peer_text(row->ifa_addr, text);
        }
        if (strcmp(text, source) == 0) {
            (void)snprintf(name, bytes, "%s", row->ifa_name);
        }
    }
    freeifaddrs(rows);
}

/* A connected datagram socket asks the kernel for its route and sends nothing. */
static json_t *peer_route(const char *host, const struct addrinfo *target)
{
    struct sockaddr_storage own = {0};
    socklen_t own_length = sizeof own;
    char address[INET6_ADDRSTRLEN] = "";
    char source[INET6_ADDRSTRLEN] = "";
    char interface[32] = "";
    peer_text(target->ai_addr, address);
    int fd = socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int failed = fd < 0 || connect(fd, target->ai_addr, target->ai_addrlen) != 0 ||
                         getsockname(fd, (struct sockaddr *)&own, &own_length) != 0
                     ? errno
                     : 0;
    if (failed == 0) {
        peer_text((const struct sockaddr *)&own, source);
        peer_interface(source, interface, sizeof interface);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s?}", "host", host, "address", address, "source", source, "interface",
                     interface, "error", failed != 0 ? strerror(failed) : NULL);
}

json_t *convoy_doctor_peer(const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(host, "9", &hints, &found);
    if (failed != 0) {
        return json_pack("{s:s, s:n, s:n, s:n, s:s}", "host", host, "address", "source", "interface", "error",
                         gai_strerror(failed));
    }
    json_t *object = peer_route(host, found);
    freeaddrinfo(found);
    return object;
}
