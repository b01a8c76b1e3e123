/* SPDX-License-Identifier: Apache-2.0 */
/* The real plugin through the loader: found, checked, negotiated, used and closed by handles of the loader. */
#include "convoy/loader.h"

#include "tests/lib/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct host {
    convoy_loader *loader;
    convoy_host_context *context;
    convoy_host_group *group;
    struct convoy_error error;
    struct convoy_group_options options;
};

static const int32_t own_id = 7;

static int host_setup(void **state)
{
    static struct host host;
    host = (struct host){.error = {.struct_size = sizeof host.error},
                         .options = {.struct_size = sizeof host.options,
                                     .name = "solo",
                                     .name_length = 4,
                                     .member_ids = &own_id,
                                     .member_count = 1,
                                     .own_id = own_id}};
    const struct convoy_loader_options options = {.path = plugin_path(), .flags = CONVOY_LOADER_REQUIRE_ALL};
    const struct convoy_context_config config = {.struct_size = sizeof config};
    *state = &host;
    if (convoy_loader_open(&options, &host.loader, &host.error) != CONVOY_OK ||
        convoy_host_context_open(host.loader, &config, &host.context, &host.error) != CONVOY_OK ||
        convoy_host_group_open(host.context, &host.options, &host.group, &host.error) != CONVOY_OK) {
        print_error("%s\n", host.error.text);
        return -1;
    }
    return 0;
}

static int host_teardown(void **state)
{
    struct host *host = *state;
    return convoy_host_group_close(host->group, 0, NULL) | convoy_host_context_close(host->context, 0, NULL) |
           convoy_loader_close(host->loader, NULL);
}

static void test_load_all_families_are_agreed_at_the_headers_version(void **state)
{
    const struct host *host = *state;
    const struct convoy_loader_info *info = convoy_loader_info(host->loader);
    assert_int_equal(info->family_count, 5);
    assert_int_equal(info->answers[0].minor, CONVOY_CORE_MINOR);
    assert_int_equal(info->answers[1].minor, CONVOY_POLL_MINOR);
    assert_int_equal(info->answers[2].minor, CONVOY_SYNC_MINOR);
    assert_int_equal(info->answers[3].minor, CONVOY_TRANSFER_MINOR);
    assert_int_equal(info->answers[4].minor, CONVOY_MOVE_MINOR);
    assert_string_equal(info->file.soname, CONVOY_SONAME);
    assert_string_equal(info->file.unload, "nodelete");
}

/* rust-lang/rust issue 59629: which build runs must be a question with an answer. Two ways to ask, one answer. */
static void test_load_build_id_of_the_file_is_what_the_code_says(void **state)
{
    const struct host *host = *state;
    struct plugin plugin;
    plugin_load(&plugin);
    const struct convoy_host_info asking = {.struct_size = sizeof asking};
    struct convoy_plugin_info info = {.struct_size = sizeof info};
    assert_int_equal(plugin.query(&asking, &info, NULL), CONVOY_OK);
    const struct convoy_file_info *file = &convoy_loader_info(host->loader)->file;
    assert_int_equal(info.build_id_length, strlen(file->build_id));
    assert_memory_equal(info.build_id, file->build_id, info.build_id_length);
    assert_int_equal(info.manifest_length, file->manifest_length);
    assert_memory_equal(info.manifest, file->manifest, file->manifest_length);
}

static void test_load_reduce_through_the_handle_gives_the_states_back(void **state)
{
    struct host *host = *state;
    const uint8_t states[4] = {0, 1, 3, 4};
    uint8_t reduced[4] = {9, 9, 9, 9};
    const struct convoy_poll_list list = {.count = 4, .states = states};
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    struct convoy_poll_list_result list_result = {.states = reduced, .states_capacity = 4};
    struct convoy_poll_result result = {.struct_size = sizeof result,
                                        .lists = &list_result,
                                        .list_stride = sizeof list_result,
                                        .list_capacity = 1};
    assert_int_equal(convoy_host_reduce(host->group, &call, 0, &result, &host->error), CONVOY_OK);
    assert_memory_equal(reduced, states, sizeof states);
    struct convoy_group_info info = {.struct_size = sizeof info};
    assert_int_equal(convoy_host_group_info(host->group, &info, NULL), CONVOY_OK);
    assert_int_equal(info.state, CONVOY_GROUP_READY);
    assert_int_equal(info.round, result.round);
}

static void test_load_pure_functions_work_through_the_loader(void **state)
{
    struct host *host = *state;
    const uint64_t ids[2] = {5, 6};
    uint8_t states[2] = {0, 0};
    const struct convoy_poll_consensus input = {.struct_size = sizeof input,
                                                .success_state = CONVOY_STATE_SUCCESS,
                                                .ids = ids,
                                                .id_count = 2,
                                                .good = ids,
                                                .good_count = 1};
    assert_int_equal(convoy_host_consensus(host->loader, &input, states, &host->error), CONVOY_OK);
    assert_int_equal(states[0], CONVOY_STATE_SUCCESS);
    assert_int_equal(states[1], CONVOY_CONSENSUS_NONE);
}

/* A group that was closed stays valid for calls until its context is closed, through the loader's handle too. */
static void test_load_closed_group_answers_closed(void **state)
{
    struct host *host = *state;
    convoy_host_group *second = NULL;
    assert_int_equal(convoy_host_group_open(host->context, &host->options, &second, &host->error), CONVOY_OK);
    assert_int_equal(convoy_host_group_close(second, 0, NULL), CONVOY_OK);
    assert_int_equal(convoy_host_group_reopen(second, 0, NULL, NULL), CONVOY_CLOSED);
    assert_int_equal(convoy_host_group_close(second, 0, NULL), CONVOY_OK);
}

static void test_load_engine_behind_the_loaders_handle_stages_and_closes(void **state)
{
    const struct host *host = *state;
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = 1u << 20, .pool_block_bytes = 4096};
    const struct convoy_stage stage = {.struct_size = sizeof stage, .request = "r", .request_length = 1};
    struct convoy_engine_info info = {.struct_size = sizeof info};
    struct convoy_error error = {.struct_size = sizeof error};
    convoy_host_context *context = NULL;
    convoy_host_engine *engine = NULL;
    convoy_transfer staged = 0;
    assert_int_equal(convoy_host_context_open(host->loader, NULL, &context, &error), CONVOY_OK);
    assert_int_equal(convoy_host_engine_open(context, &options, &engine, &error), CONVOY_OK);
    assert_int_equal(convoy_host_stage_start(engine, &stage, &staged, &error), CONVOY_OK);
    assert_int_equal(convoy_host_transfer_wait(engine, staged, 0, NULL, &error), CONVOY_OK);
    assert_int_equal(convoy_host_transfer_release(engine, staged, &error), CONVOY_OK);
    assert_int_equal(convoy_host_engine_close(engine, 0, &error), CONVOY_OK);
    assert_int_equal(convoy_host_engine_info(engine, &info, &error), CONVOY_OK);
    assert_int_equal(info.state, CONVOY_ENGINE_CLOSED);
    assert_int_equal(convoy_host_engine_info(NULL, &info, &error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_host_context_close(context, 0, &error), CONVOY_OK);
}

/* Beside the folder of the running test. */
static void second_build(char path_out[1024])
{
    char self[512] = {0};
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    *strrchr(self, '/') = '\0';
    (void)snprintf(path_out, 1024, "%s/../abi/plugins/libconvoy_b.so", self);
}

/* The real plugin hands a context to another build of itself, and takes it back. */
static void test_load_context_is_swapped_to_another_build_and_back(void **state)
{
    const struct host *host = *state;
    const struct convoy_loader_options options = {.path = plugin_path(), .flags = CONVOY_LOADER_REQUIRE_ALL};
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_swap_result result;
    convoy_loader *loader = NULL;
    convoy_host_context *context = NULL;
    convoy_host_group *group = NULL;
    char other[1024];
    char first_id[sizeof result.from.build_id];
    second_build(other);
    assert_int_equal(convoy_loader_open(&options, &loader, &error), CONVOY_OK);
    (void)memcpy(first_id, convoy_loader_info(loader)->file.build_id, sizeof first_id);
    assert_int_equal(convoy_host_context_open(loader, NULL, &context, &error), CONVOY_OK);
    for (unsigned i = 0; i < 4; i++) {
        if (convoy_loader_swap(loader, i % 2 == 0 ? other : plugin_path(), 0, &result, &error) != CONVOY_OK) {
            fail_msg("swap %u: %s", i, error.text);
        }
        assert_int_equal(result.context_count, 1);
        assert_int_equal(result.late_count, 0);
        assert_true(result.state_bytes > 0);
        assert_string_equal(convoy_loader_info(loader)->file.build_id, result.to.build_id);
    }
    assert_string_not_equal(result.from.build_id, first_id);
    assert_string_equal(result.to.build_id, first_id);
    assert_int_equal(convoy_host_group_open(context, &host->options, &group, &error), CONVOY_OK);
    assert_int_equal(convoy_host_context_close(context, 0, &error), CONVOY_OK);
    assert_int_equal(convoy_loader_close(loader, &error), CONVOY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_all_families_are_agreed_at_the_headers_version),
        cmocka_unit_test(test_load_build_id_of_the_file_is_what_the_code_says),
        cmocka_unit_test(test_load_reduce_through_the_handle_gives_the_states_back),
        cmocka_unit_test(test_load_pure_functions_work_through_the_loader),
        cmocka_unit_test(test_load_closed_group_answers_closed),
        cmocka_unit_test(test_load_engine_behind_the_loaders_handle_stages_and_closes),
        cmocka_unit_test(test_load_context_is_swapped_to_another_build_and_back),
    };
    return cmocka_run_group_tests_name("load", tests, host_setup, host_teardown);
}
