/* SPDX-License-Identifier: Apache-2.0 */
/* Which build a swap gives: the one that is in the file, however it came there, and mapped once. */
#include "swap_scene.h"

static unsigned count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    unsigned lines = 0;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        lines += strstr(line, ".so") != NULL; /* memory of the heap comes and goes */
    }
    (void)fclose(maps);
    return lines;
}

static int32_t swap_file(struct scene *scene, const char *path)
{
    return convoy_loader_swap(scene->loader, path, 0, &scene->result, &scene->error);
}

/* Every build comes under the one name; some hosts can do nothing else than install over what is there. */
static void test_swap_files_replaced_a_hundred_times_map_nothing_new(void **state)
{
    static const char *const kinds[] = {"mover_b", "mover_c", "mover_a"};
    static const char *const releases[] = {"1.0.1", "1.0.2", "1.0.0"};
    struct scene scene;
    char from[PLUGIN_FILE_PATH_BYTES];
    char path[PLUGIN_FILE_PATH_BYTES];
    unsigned mappings = 0;
    scene_open(&scene);
    folder_path(state, "replaced.so", path);
    for (unsigned i = 0; i < 100; i++) {
        plugin_file(kinds[i % 3], from);
        file_install(from, path);
        if (swap_file(&scene, path) != CONVOY_OK) {
            fail_msg("swap %u: %s", i, scene.error.text);
        }
        scene_expect_release(&scene, releases[i % 3]);
        assert_string_equal(scene.result.to.release, releases[i % 3]);
        assert_int_equal(scene.result.was_mapped, i != 1); /* only c was never seen before */
        scene_expect_calls(&scene);
        mappings = i == 2 ? count_mappings() : mappings;
    }
    assert_int_equal(count_mappings(), mappings);
    scene_close(&scene);
}

static void test_swap_files_by_any_name_give_the_build_that_is_in_them(void **state)
{
    struct scene scene;
    char from[PLUGIN_FILE_PATH_BYTES];
    char hard[PLUGIN_FILE_PATH_BYTES];
    char soft[PLUGIN_FILE_PATH_BYTES];
    char copy[PLUGIN_FILE_PATH_BYTES];
    char first[PLUGIN_FILE_PATH_BYTES];
    scene_open(&scene);
    folder_path(state, "hard.so", hard);
    folder_path(state, "soft.so", soft);
    folder_path(state, "copy.so", copy);
    plugin_file("mover_a", first);
    plugin_file("mover_b", from);
    file_install(from, copy);
    assert_int_equal(link(copy, hard), 0);
    assert_int_equal(symlink(copy, soft), 0);
    const char *const names[] = {copy, hard, soft};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(swap_file(&scene, names[i]), CONVOY_OK);
        scene_expect_release(&scene, "1.0.1");
        assert_int_equal(swap_file(&scene, names[(i + 1) % 3]), CONVOY_INVALID_ARGUMENT); /* the same build */
        assert_int_equal(swap_file(&scene, first), CONVOY_OK);
        scene_expect_release(&scene, "1.0.0");
        scene_expect_calls(&scene);
    }
    scene_close(&scene);
}

/* The file that the running build came from is gone, and another has its name: nobody reads it again. */
static void test_swap_files_of_the_running_build_may_go(void **state)
{
    struct scene scene;
    char from[PLUGIN_FILE_PATH_BYTES];
    char path[PLUGIN_FILE_PATH_BYTES];
    scene_open(&scene);
    folder_path(state, "gone.so", path);
    plugin_file("mover_b", from);
    file_install(from, path);
    assert_int_equal(swap_file(&scene, path), CONVOY_OK);
    file_write(path, "no library", 10); /* in place: what is mapped was never this file, b having been mapped before */
    scene_expect_calls(&scene);
    assert_int_equal(swap_file(&scene, path), CONVOY_BAD_FILE);
    scene_expect_calls(&scene);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(swap_file(&scene, path), CONVOY_NOT_FOUND);
    assert_int_equal(scene_swap(&scene, "mover_a"), CONVOY_OK);
    scene_expect_calls(&scene);
    scene_close(&scene);
}

static void test_swap_files_info_of_every_build_lives_as_long_as_the_loader(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    const struct convoy_loader_info *first = convoy_loader_info(scene.loader);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    const struct convoy_loader_info *second = convoy_loader_info(scene.loader);
    assert_int_equal(scene_swap(&scene, "mover_a"), CONVOY_OK);
    assert_ptr_equal(convoy_loader_info(scene.loader), first); /* not a third one */
    assert_string_equal(first->file.release, "1.0.0");
    assert_string_equal(second->file.release, "1.0.1");
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_files_replaced_a_hundred_times_map_nothing_new),
        cmocka_unit_test(test_swap_files_by_any_name_give_the_build_that_is_in_them),
        cmocka_unit_test(test_swap_files_of_the_running_build_may_go),
        cmocka_unit_test(test_swap_files_info_of_every_build_lives_as_long_as_the_loader),
    };
    return cmocka_run_group_tests_name("swap_files", tests, folder_setup, folder_teardown);
}
