/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/moving.h"

#include "tests/lib/expect.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct moving_build builds[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct convoy_move_table *ask_move(const struct plugin *plugin)
{
    const struct convoy_family_request family = {
        .name = "move", .name_length = 4, .major_min = 1, .minor_min = 0, .major_max = 1, .minor_max = 0};
    struct convoy_family_answer answer = {0};
    struct convoy_error error = {.struct_size = sizeof error};
    const struct convoy_host_info host = {.struct_size = sizeof host,
                                          .families = &family,
                                          .family_stride = sizeof family,
                                          .family_count = 1};
    struct convoy_plugin_info info = {
        .struct_size = sizeof info, .answers = &answer, .answer_stride = sizeof answer, .answer_capacity = 1};
    EXPECT_OK(plugin->query(&host, &info, &error), &error);
    EXPECT_OK(answer.status, NULL);
    return (const struct convoy_move_table *)(const void *)answer.table;
}

/* Beside the directory of the tests of this variant. */
const char *moving_second_path(void)
{
    static char path[1024];
    char program[768];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    EXPECT(length > 0);
    program[length] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(program, '/');
        EXPECT(slash != NULL);
        *slash = '\0';
    }
    (void)snprintf(path, sizeof path, "%s/abi/plugins/libconvoy_b.so", program);
    return path;
}

static void load(void)
{
    plugin_load(&builds[0].plugin);
    builds[0].move = ask_move(&builds[0].plugin);
    plugin_load_from(&builds[1].plugin, moving_second_path());
    builds[1].move = ask_move(&builds[1].plugin);
    EXPECT(builds[0].plugin.query != builds[1].plugin.query);
}

const struct moving_build *moving_first_build(void)
{
    (void)pthread_once(&once, load);
    return &builds[0];
}

const struct moving_build *moving_second_build(void)
{
    (void)pthread_once(&once, load);
    return &builds[1];
}

void moving_begin(struct moving *moving, convoy_context *context, const struct convoy_context_config *config,
                  const struct moving_build *from, const struct moving_build *to)
{
    *moving = (struct moving){.from = from, .to = to, .old_context = context, .error = {.struct_size = sizeof moving->error}};
    EXPECT_OK(to->plugin.core->context_open(config, &moving->new_context, &moving->error), &moving->error);
}

int32_t moving_quiesce(struct moving *moving, uint64_t timeout_ns)
{
    return moving->from->move->quiesce(moving->old_context, timeout_ns, &moving->error);
}

void moving_export(struct moving *moving)
{
    struct convoy_text_buffer text = {.struct_size = sizeof text};
    EXPECT_STATUS(moving->from->move->export_state(moving->old_context, &moving_options, &text, &moving->error),
                  CONVOY_BUFFER_TOO_SMALL, &moving->error);
    text.capacity = text.length + 1;
    text.data = malloc(text.capacity);
    EXPECT(text.data != NULL);
    EXPECT_OK(moving->from->move->export_state(moving->old_context, &moving_options, &text, &moving->error), &moving->error);
    moving->state = text.data;
    moving->bytes = text.length;
}

int32_t moving_import(struct moving *moving)
{
    const struct convoy_exported_state state = {.struct_size = sizeof state, .data = moving->state, .bytes = moving->bytes};
    struct convoy_moved moved = {.struct_size = sizeof moved,
                                 .objects = moving->objects,
                                 .object_stride = sizeof moving->objects[0],
                                 .object_capacity = MOVING_OBJECTS};
    int32_t status = moving->to->move->import_state(moving->new_context, &state, &moved, &moving->error);
    moving->object_count = status == CONVOY_OK ? moved.object_count : 0;
    return status;
}

void moving_complete(struct moving *moving)
{
    EXPECT_OK(moving->to->move->resume(moving->new_context, &moving->error), &moving->error);
    EXPECT_OK(moving->from->move->retire(moving->old_context, MOVING_NS, &moving->error), &moving->error);
    EXPECT_OK(moving->from->plugin.core->context_close(moving->old_context, MOVING_NS, &moving->error), &moving->error);
    free(moving->state);
    moving->state = NULL;
}

void moving_cancel(struct moving *moving)
{
    EXPECT_OK(moving->to->plugin.core->context_close(moving->new_context, MOVING_NS, &moving->error), &moving->error);
    EXPECT_OK(moving->from->move->resume(moving->old_context, &moving->error), &moving->error);
    free(moving->state);
    moving->state = NULL;
}

void moving_run(struct moving *moving)
{
    EXPECT_OK(moving_quiesce(moving, MOVING_NS), &moving->error);
    moving_export(moving);
    EXPECT_OK(moving_import(moving), &moving->error);
    moving_complete(moving);
}

void *moving_handle(const struct moving *moving, const void *from)
{
    for (size_t i = 0; i < moving->object_count; i++) {
        if (moving->objects[i].old_handle == (uint64_t)(uintptr_t)from) {
            return (void *)(uintptr_t)moving->objects[i].new_handle;
        }
    }
    expect_fail(EXPECT_SITE("moving_handle"), "has no such object among %zu", moving->object_count);
}

void moving_member(struct plugin_member *member, const struct moving_build *from, const struct moving_build *to)
{
    struct moving moving;
    moving_begin(&moving, member->context, &member->config, from, to);
    moving_run(&moving);
    member->group = moving_handle(&moving, member->group);
    member->context = moving.new_context;
    member->plugin = to->plugin;
}

struct convoy_holdings moving_holdings(const struct moving_build *build, convoy_context *context)
{
    struct convoy_holdings holdings = {.struct_size = sizeof holdings};
    struct convoy_error error = {.struct_size = sizeof error};
    EXPECT_OK(build->move->holdings(context, &holdings, &error), &error);
    return holdings;
}
