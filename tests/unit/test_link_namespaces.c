/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two members in two network namespaces, joined by a veth pair, with decoys: loopback, and a bridge of one and the same
 * address in both. UCX reads /sys/class/net, so each member is started by `ip netns exec`, which remounts it; the
 * members are this program again, with the word "member". Skipped where namespaces cannot be made.
 */
#include "core/clock.h"
#include "core/error.h"
#include "net/link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

#define MESSAGES 100u
#define ADDRESS_BYTES 4096u

/* -- a member ------------------------------------------------------------------------------------------------------ */

static uint64_t member_received;

static void member_recv(void *user, const void *header, size_t header_bytes, const void *data, size_t bytes)
{
    (void)user;
    (void)header;
    (void)data;
    member_received += header_bytes == 64 && bytes == 1000;
}

static void member_down(void *user, uint32_t peer, int32_t ucx_status)
{
    (void)user;
    (void)peer;
    (void)ucx_status;
}

static bool member_await(struct convoy_link *link, uint64_t received)
{
    uint64_t deadline = convoy_now_ns() + 10 * CONVOY_NS_PER_S;
    while ((member_received < received || convoy_link_pending(link) != 0) && convoy_now_ns() < deadline) {
        convoy_link_sleep(link, -1, deadline);
    }
    return member_received >= received;
}

/* Sends its own and takes the other's; the interface must be the wanted one. */
static int member_talk(struct convoy_link *link, const char *wanted)
{
    uint8_t header[64] = {0};
    uint8_t data[1000] = {0};
    for (uint32_t i = 0; i < MESSAGES; i++) {
        if (convoy_link_send(link, 0, header, sizeof header, data, sizeof data) != CONVOY_OK ||
            !member_await(link, i + 1)) {
            return 4;
        }
    }
    json_t *all = convoy_link_describe(link);
    const json_t *endpoint = json_array_get(json_object_get(all, "endpoints"), 0);
    bool is_right = strncmp(json_string_value(json_object_get(endpoint, "device")), wanted, strlen(wanted)) == 0 &&
                    strstr(json_string_value(json_object_get(endpoint, "transports")), wanted) != NULL;
    json_decref(all);
    return is_right ? 0 : 5;
}

/* Exchanges addresses over the socket, then connects. */
static int member_meet(struct convoy_link *link, int fd, const char *wanted)
{
    size_t bytes;
    uint8_t theirs[ADDRESS_BYTES];
    struct convoy_error error = CONVOY_ERROR_INIT;
    const void *mine = convoy_link_address(link, &bytes);
    if (send(fd, mine, bytes, 0) != (ssize_t)bytes) {
        return 2;
    }
    ssize_t got = recv(fd, theirs, sizeof theirs, 0);
    int32_t status = got > 0 ? convoy_link_connect(link, 0, theirs, (size_t)got, &error) : CONVOY_SYSTEM;
    if (wanted[0] == '!') { /* no interface reaches, and the text names the one that does not */
        return status == CONVOY_UNREACHABLE && strstr(error.text, wanted + 1) != NULL ? 0 : 3;
    }
    if (status != CONVOY_OK) {
        (void)fprintf(stderr, "member: %s\n", error.text);
        return 3;
    }
    return member_talk(link, wanted);
}

/* argv: member, descriptor, what to expect, settings. Exit code 0 = as expected. */
static int member_main(char **argv)
{
    struct convoy_runtime *runtime;
    struct convoy_link *link;
    struct convoy_error error = CONVOY_ERROR_INIT;
    int fd = (int)strtol(argv[2], NULL, 10);
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .settings = argv[4],
                                                 .settings_length = strlen(argv[4])};
    if (convoy_runtime_open(&config, &runtime, &error) != CONVOY_OK) {
        return 1;
    }
    const struct convoy_link_options options = {.runtime = runtime,
                                                .peer_count = 1,
                                                .message_bytes_max = 4096,
                                                .recv = member_recv,
                                                .down = member_down};
    if (convoy_link_open(&options, &link, &error) != CONVOY_OK) {
        (void)fprintf(stderr, "member: %s\n", error.text);
        return 1;
    }
    int code = member_meet(link, fd, argv[3]);
    convoy_link_close(link, convoy_now_ns() + CONVOY_NS_PER_S);
    convoy_runtime_destroy(runtime);
    return code;
}

/* -- namespaces ---------------------------------------------------------------------------------------------------- */

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int shell(const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return system(line);
}

static char name_a[32];
static char name_b[32];

static int remove_namespaces(void **state)
{
    (void)state;
    (void)shell("ip netns del %s 2>/dev/null; ip netns del %s 2>/dev/null", name_a, name_b);
    return 0;
}

/* One side: loopback and the decoy are up in both, with the same addresses. The bridge has a port with a carrier, like
 * one that a container hangs on. */
static int decorate(const char *name)
{
    return shell("ip -n %s link set lo up && ip -n %s link add decoy0 type bridge && "
                 "ip -n %s link add port0 type veth peer name port1 && ip -n %s link set port0 master decoy0 && "
                 "ip -n %s addr add 172.17.0.1/16 dev decoy0 && ip -n %s link set port0 up && "
                 "ip -n %s link set port1 up && ip -n %s link set decoy0 up",
                 name, name, name, name, name, name, name, name);
}

/* The kernel reports a carrier a little after it is there. Each look takes a process, so this ends after a second or so
 * where none comes. */
static int await_carrier(const char *name, const char *device)
{
    return shell("for i in $(seq 500); do ip -n %s link show %s up | grep -q 'state UP' && exit 0; done; exit 1", name,
                 device);
}

static int await_carriers(void)
{
    return await_carrier(name_a, "wire0") | await_carrier(name_b, "wire0") | await_carrier(name_a, "decoy0") |
           await_carrier(name_b, "decoy0");
}

static int make_namespaces(void **state)
{
    (void)snprintf(name_a, sizeof name_a, "convoy-a-%d", (int)getpid());
    (void)snprintf(name_b, sizeof name_b, "convoy-b-%d", (int)getpid());
    *state = NULL;
    if (geteuid() != 0 || shell("ip netns add %s 2>/dev/null && ip netns add %s 2>/dev/null", name_a, name_b) != 0 ||
        decorate(name_a) != 0 || decorate(name_b) != 0 ||
        shell("ip -n %s link add wire0 type veth peer name wire0 netns %s && "
              "ip -n %s addr add 10.77.0.1/24 dev wire0 && ip -n %s addr add 10.77.0.2/24 dev wire0 && "
              "ip -n %s link set wire0 up && ip -n %s link set wire0 up",
              name_a, name_b, name_a, name_b, name_a, name_b) != 0 ||
        await_carriers() != 0) {
        (void)remove_namespaces(state);
        *state = name_a; /* present = skip */
    }
    return 0;
}

static pid_t start_member(const char *namespace_name, int fd, const char *wanted, const char *settings)
{
    pid_t pid = fork();
    if (pid == 0) {
        char number[16];
        char own[512];
        ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
        own[length > 0 ? length : 0] = '\0';
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)snprintf(number, sizeof number, "%d", fd);
        (void)execlp("ip", "ip", "netns", "exec", namespace_name, own, "member", number, wanted, settings,
                     (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* Runs both members; each must end with 0. */
static void run_pair(void **state, const char *wanted, const char *settings)
{
    int fds[2];
    int codes[2] = {-1, -1};
    if (*state != NULL) {
        print_message("skipped: network namespaces cannot be made here (root, iproute2, bridge, veth)\n");
        skip();
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    pid_t a = start_member(name_a, fds[0], wanted, settings);
    pid_t b = start_member(name_b, fds[1], wanted, settings);
    (void)close(fds[0]);
    (void)close(fds[1]);
    (void)waitpid(a, &codes[0], 0);
    (void)waitpid(b, &codes[1], 0);
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], 0);
}

/* openucx/ucx 7599, 6695, 9383: with no settings the members meet over the interface that reaches the other one. */
static void test_link_two_namespaces_meet_over_veth_past_the_decoys(void **state)
{
    run_pair(state, "wire0", "{}");
}

/* The same, where the list is given and holds the right one and a decoy. */
static void test_link_device_list_with_a_decoy_still_meets_over_veth(void **state)
{
    run_pair(state, "wire0", "{\"ucx_net_devices\": \"decoy0,wire0,lo\"}");
}

/* openucx/ucx 7599: with the list set to the bridge only, a clear error instead of a connection to oneself. */
static void test_link_device_list_of_the_bridge_only_is_unreachable_by_name(void **state)
{
    run_pair(state, "!decoy0 172.17.0.1", "{\"ucx_net_devices\": \"decoy0\"}");
}

static void test_link_loopback_does_not_reach_another_namespace(void **state)
{
    run_pair(state, "!lo 127.0.0.1", "{\"ucx_net_devices\": \"lo\"}");
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "member") == 0) {
        return member_main(argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link_two_namespaces_meet_over_veth_past_the_decoys),
        cmocka_unit_test(test_link_device_list_with_a_decoy_still_meets_over_veth),
        cmocka_unit_test(test_link_device_list_of_the_bridge_only_is_unreachable_by_name),
        cmocka_unit_test(test_link_loopback_does_not_reach_another_namespace),
    };
    return cmocka_run_group_tests_name("link_namespaces", tests, make_namespaces, remove_namespaces);
}
