/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/plugin.h"

#include "tests/lib/expect.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAMILIES 4
#define CLOSE_TIMEOUT_NS 5000000000ull

/* build/libconvoy.so.1 for the release variant, build/VARIANT/libconvoy.so.1 for others; the tests lie in
 * build/VARIANT/tests/KIND/. */
static void find_library(char *path_out, size_t bytes)
{
    char program[768];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    EXPECT(length > 0);
    program[length] = '\0';
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(program, '/');
        EXPECT(slash != NULL);
        *slash = '\0';
    }
    (void)snprintf(path_out, bytes, "%s/%s", program, CONVOY_SONAME);
    if (access(path_out, R_OK) != 0) {
        (void)snprintf(path_out, bytes, "%s/../%s", program, CONVOY_SONAME);
    }
}

const char *plugin_path(void)
{
    static char path[1024];
    const char *given = getenv("CONVOY_LIBRARY");
    if (given != NULL && given[0] != '\0') {
        return given;
    }
    if (path[0] == '\0') {
        find_library(path, sizeof path);
    }
    return path;
}

static struct convoy_family_request request(const char *name)
{
    return (struct convoy_family_request){
        .name = name, .name_length = strlen(name), .major_min = 1, .minor_min = 0, .major_max = 1, .minor_max = 0};
}

static void negotiate(struct plugin *plugin)
{
    const struct convoy_family_request families[FAMILIES] = {request("core"), request("poll"), request("sync"),
                                                              request("transfer")};
    struct convoy_family_answer answers[FAMILIES] = {0};
    struct convoy_error error = {.struct_size = sizeof error};
    const struct convoy_host_info host = {.struct_size = sizeof host,
                                          .families = families,
                                          .family_stride = sizeof families[0],
                                          .family_count = FAMILIES};
    struct convoy_plugin_info info = {.struct_size = sizeof info,
                                      .answers = answers,
                                      .answer_stride = sizeof answers[0],
                                      .answer_capacity = FAMILIES};
    EXPECT_OK(plugin->query(&host, &info, &error), &error);
    for (size_t i = 0; i < FAMILIES; i++) {
        if (answers[i].status != CONVOY_OK || answers[i].table == NULL) {
            expect_fail(EXPECT_SITE(families[i].name), "was refused: %.120s", answers[i].reason);
        }
    }
    plugin->core = (const struct convoy_core_table *)(const void *)answers[0].table;
    plugin->poll = (const struct convoy_poll_table *)(const void *)answers[1].table;
    plugin->sync = (const struct convoy_sync_table *)(const void *)answers[2].table;
    plugin->transfer = (const struct convoy_transfer_table *)(const void *)answers[3].table;
}

void plugin_load(struct plugin *plugin_out)
{
    plugin_load_from(plugin_out, plugin_path());
}

void plugin_load_from(struct plugin *plugin_out, const char *path)
{
    plugin_out->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin_out->library == NULL) {
        expect_fail(EXPECT_SITE("dlopen"), "failed: %s", dlerror());
    }
    void *symbol = dlsym(plugin_out->library, CONVOY_QUERY_SYMBOL);
    EXPECT(symbol != NULL);
    (void)memcpy(&plugin_out->query, &symbol, sizeof symbol); /* ISO C has no cast from data to function pointer */
    negotiate(plugin_out);
}

/* The socket stays bound and never listens: Linux then gives the port neither to another bind of port 0 nor to an
 * outgoing connection, while a listener with SO_REUSEADDR may still take it. */
uint16_t plugin_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0);
    EXPECT_EQUAL(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    EXPECT_EQUAL(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    EXPECT_EQUAL(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.sin_port);
}

struct plugin_member *plugin_member_create(uint32_t index, uint32_t count, const char *name, uint16_t port)
{
    EXPECT(count >= 1 && count <= PLUGIN_MEMBERS_MAX && index < count);
    struct plugin_member *member = calloc(1, sizeof *member);
    if (member == NULL) {
        expect_fail(EXPECT_SITE("plugin_member_create"), "had no memory");
    }
    plugin_load(&member->plugin);
    for (uint32_t i = 0; i < count; i++) {
        member->ids[i] = (int32_t)i;
    }
    (void)snprintf(member->name, sizeof member->name, "%s", name);
    (void)snprintf(member->rendezvous, sizeof member->rendezvous, "tcp://127.0.0.1:%u", port);
    member->error.struct_size = sizeof member->error;
    member->config.struct_size = sizeof member->config;
    member->options = (struct convoy_group_options){.struct_size = sizeof member->options,
                                                    .own_index = index,
                                                    .own_id = (int32_t)index,
                                                    .name = member->name,
                                                    .name_length = strlen(member->name),
                                                    .member_ids = member->ids,
                                                    .member_count = count,
                                                    .rendezvous = count == 1 ? NULL : member->rendezvous,
                                                    .rendezvous_length = count == 1 ? 0 : strlen(member->rendezvous),
                                                    .open_timeout_ns = PLUGIN_OPEN_TIMEOUT_NS};
    return member;
}

void plugin_member_open(struct plugin_member *member)
{
    const struct convoy_core_table *core = member->plugin.core;
    EXPECT_OK(core->context_open(&member->config, &member->context, &member->error), &member->error);
    EXPECT_OK(core->group_open(member->context, &member->options, &member->group, &member->error), &member->error);
}

void plugin_member_destroy(struct plugin_member *member)
{
    const struct convoy_core_table *core = member->plugin.core;
    if (member->group != NULL) {
        EXPECT_OK(core->group_close(member->group, CLOSE_TIMEOUT_NS, &member->error), &member->error);
    }
    if (member->context != NULL) {
        EXPECT_OK(core->context_close(member->context, CLOSE_TIMEOUT_NS, &member->error), &member->error);
    }
    free(member);
}

void plugin_member_reduce(struct plugin_member *member, const uint8_t *states, size_t count, uint8_t *states_out)
{
    const struct convoy_poll_list list = {.count = count, .states = states};
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    struct convoy_poll_list_result list_result = {.states = states_out, .states_capacity = count};
    struct convoy_poll_result result = {.struct_size = sizeof result,
                                        .lists = &list_result,
                                        .list_stride = sizeof list_result,
                                        .list_capacity = 1};
    EXPECT_OK(member->plugin.poll->reduce(member->group, &call, 0, &result, &member->error), &member->error);
    EXPECT_EQUAL(list_result.states_count, count);
}
