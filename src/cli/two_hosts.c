/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/two_hosts.h"

#include "core/clock.h"
#include "core/error.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOSTS_WORDS_MAX 16u
#define HOSTS_CARRIER_NS (5 * CONVOY_NS_PER_S)

extern char **environ;

const char *convoy_two_hosts_address(uint32_t host)
{
    return host == 0 ? CONVOY_TWO_HOSTS_ADDRESS : "10.231.77.2";
}

/* Runs one `ip` command, given as words separated by blanks. */
static int32_t hosts_ip(const char *command, struct convoy_error *error)
{
    char words[256];
    char *argv[HOSTS_WORDS_MAX + 1] = {(char *)"ip"};
    char *rest = NULL;
    size_t count = 1;
    (void)snprintf(words, sizeof words, "%s", command);
    for (char *word = strtok_r(words, " ", &rest); word != NULL && count < HOSTS_WORDS_MAX;
         word = strtok_r(NULL, " ", &rest)) {
        argv[count++] = word;
    }
    pid_t pid = 0;
    int wait_status = 0;
    int code = posix_spawnp(&pid, "ip", NULL, NULL, argv, environ);
    if (code != 0) {
        return convoy_error_set_errno(error, CONVOY_SYSTEM, code, "starting ip (package iproute2)");
    }
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
    }
    if (wait_status != 0) {
        return convoy_error_set(error, CONVOY_SYSTEM, "\"ip %.150s\" failed (two hosts need root)", command);
    }
    return CONVOY_OK;
}

static int32_t hosts_address(const struct convoy_two_hosts *hosts, int index, struct convoy_error *error)
{
    char command[160];
    const char *name = hosts->names[index];
    (void)snprintf(command, sizeof command, "-n %s addr add 10.231.77.%d/30 dev convoy%d", name, index + 1, index);
    int32_t status = hosts_ip(command, error);
    if (status == CONVOY_OK) {
        (void)snprintf(command, sizeof command, "-n %s link set convoy%d up", name, index);
        status = hosts_ip(command, error);
    }
    if (status == CONVOY_OK) {
        (void)snprintf(command, sizeof command, "-n %s link set lo up", name);
        status = hosts_ip(command, error);
    }
    return status;
}

/* The kernel announces a carrier up to a second late, and UCX passes over an interface that is not up yet. */
static int32_t hosts_await_carrier(const struct convoy_two_hosts *hosts, int index, struct convoy_error *error)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    uint64_t deadline = convoy_deadline_after(convoy_now_ns(), HOSTS_CARRIER_NS);
    char command[160];
    (void)snprintf(command, sizeof command, "netns exec %s grep -qx up /sys/class/net/convoy%d/operstate",
                   hosts->names[index], index);
    int32_t status = hosts_ip(command, error);
    while (status != CONVOY_OK && convoy_now_ns() < deadline) {
        (void)nanosleep(&pause, NULL);
        status = hosts_ip(command, error);
    }
    return status;
}

int32_t convoy_two_hosts_open(struct convoy_two_hosts *hosts, struct convoy_error *error)
{
    char command[160];
    int32_t status = CONVOY_OK;
    *hosts = (struct convoy_two_hosts){0};
    for (int i = 0; i < 2 && status == CONVOY_OK; i++) {
        (void)snprintf(hosts->names[i], sizeof hosts->names[i], "convoy-%d-%d", (int)getpid(), i);
        (void)snprintf(command, sizeof command, "netns add %s", hosts->names[i]);
        status = hosts_ip(command, error);
        hosts->exists[i] = status == CONVOY_OK;
    }
    if (status == CONVOY_OK) {
        (void)snprintf(command, sizeof command, "link add convoy0 netns %s type veth peer name convoy1 netns %s",
                       hosts->names[0], hosts->names[1]);
        status = hosts_ip(command, error);
    }
    for (int i = 0; i < 2 && status == CONVOY_OK; i++) {
        status = hosts_address(hosts, i, error);
    }
    for (int i = 0; i < 2 && status == CONVOY_OK; i++) {
        status = hosts_await_carrier(hosts, i, error);
    }
    if (status != CONVOY_OK) {
        convoy_two_hosts_close(hosts);
    }
    return status;
}

void convoy_two_hosts_close(struct convoy_two_hosts *hosts)
{
    for (int i = 0; i < 2; i++) {
        if (hosts->exists[i]) {
            char command[64];
            struct convoy_error error = CONVOY_ERROR_INIT;
            (void)snprintf(command, sizeof command, "netns del %s", hosts->names[i]); /* the pair goes with it */
            (void)hosts_ip(command, &error);
            hosts->exists[i] = false;
        }
    }
}
