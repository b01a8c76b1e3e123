/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/hosts.h"

#include "tests/lib/await.h"
#include "tests/lib/expect.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 20

extern char **environ;

static uint32_t host_count;
static pid_t owner; /* who made them; inherited by ranks */

const char *hosts_name(uint32_t index)
{
    static char names[HOSTS_MAX + 1][32];
    (void)snprintf(names[index], sizeof names[index], index == HOSTS_MAX ? "cvt-%d-hub" : "cvt-%d-%u", (int)owner,
                   index);
    return names[index];
}

const char *hosts_address(uint32_t index)
{
    static char addresses[HOSTS_MAX][32];
    (void)snprintf(addresses[index], sizeof addresses[index], "10.231.78.%u", index + 1);
    return addresses[index];
}

bool hosts_ip(const char *command)
{
    char words[256];
    char *argv[WORDS_MAX + 1] = {(char *)"ip"};
    char *rest = NULL;
    size_t count = 1;
    (void)snprintf(words, sizeof words, "%s", command);
    for (char *word = strtok_r(words, " ", &rest); word != NULL && count < WORDS_MAX; word = strtok_r(NULL, " ", &rest)) {
        argv[count++] = word;
    }
    pid_t pid = 0;
    int status = 0;
    if (posix_spawnp(&pid, "ip", NULL, NULL, argv, environ) != 0) {
        return false;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status == 0;
}

static bool run(const char *format, ...) __attribute__((format(printf, 1, 2)));

static bool run(const char *format, ...)
{
    char command[200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return hosts_ip(command);
}

/* The kernel announces a carrier up to a second late, and UCX passes over an interface that is not up yet. */
static bool await_carrier(uint32_t index)
{
    const uint64_t end = await_end();
    bool is_up = false;
    do {
        is_up = run("netns exec %s grep -qx up /sys/class/net/cv%u/operstate", hosts_name(index), index);
    } while (!is_up && await_again(end));
    return is_up;
}

/* One namespace, and a pair of devices that joins it to the bridge in the hub. */
static bool make_host(uint32_t index)
{
    const char *name = hosts_name(index);
    const char *hub = hosts_name(HOSTS_MAX);
    return run("netns add %s", name) &&
           run("link add cv%u netns %s type veth peer name port%u netns %s", index, name, index, hub) &&
           run("-n %s link set port%u master hub up", hub, index) &&
           run("-n %s addr add %s/24 dev cv%u", name, hosts_address(index), index) &&
           run("-n %s link set cv%u up", name, index) && run("-n %s link set lo up", name);
}

bool hosts_create(uint32_t count)
{
    owner = getpid();
    host_count = count;
    const char *hub = hosts_name(HOSTS_MAX);
    bool is_made = run("netns add %s", hub) && run("-n %s link add hub type bridge", hub) &&
                   run("-n %s link set hub up", hub);
    for (uint32_t i = 0; i < count && is_made; i++) {
        is_made = make_host(i);
    }
    for (uint32_t i = 0; i < count && is_made; i++) {
        is_made = await_carrier(i);
    }
    if (!is_made) {
        (void)printf("network namespaces cannot be made here (root and iproute2 are needed)\n");
        hosts_destroy();
    }
    return is_made;
}

void hosts_destroy(void)
{
    if (getpid() != owner) { /* a rank that exits as its parent would */
        return;
    }
    for (uint32_t i = 0; i < host_count; i++) {
        (void)run("netns del %s", hosts_name(i));
    }
    (void)run("netns del %s", hosts_name(HOSTS_MAX));
    host_count = 0;
}

void hosts_enter(uint32_t index)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/var/run/netns/%s", hosts_name(index));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    EXPECT(fd >= 0);
    EXPECT_EQUAL(setns(fd, CLONE_NEWNET), 0);
    (void)close(fd);
    EXPECT_EQUAL(unshare(CLONE_NEWNS), 0);
    EXPECT_EQUAL(mount("", "/", NULL, MS_SLAVE | MS_REC, NULL), 0);
    EXPECT_EQUAL(mount("sysfs", "/sys", "sysfs", 0, NULL), 0);
    /* Ports of rendezvous come from the range of the first namespace: what closed connections leave behind in this one
     * (TIME_WAIT) must not lie on them. */
    const char range[] = "20000 30000";
    fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
    EXPECT(fd >= 0);
    EXPECT_EQUAL(write(fd, range, sizeof range - 1), (long long)sizeof range - 1);
    (void)close(fd);
}
