/* SPDX-License-Identifier: Apache-2.0 */
/* The build tool that writes a plugin's digest into it, run as the build runs it: on a tiny plugin, and on what is none. */
#include "load/inspect.h"

#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>

#include "plugin_files.h"

#include <sys/wait.h>

#include <cmocka.h>

/* Runs it; returns its exit status, and what it said. file NULL: without an argument. */
static int run_stamp(const char *file, char said[512])
{
    int pipes[2];
    int ended = 0;
    size_t used = 0;
    ssize_t bytes;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(pipes[1], STDERR_FILENO);
        (void)close(pipes[0]);
        (void)close(pipes[1]);
        (void)execl(STAMP_PROGRAM, "stamp", file, (char *)NULL);
        _exit(99);
    }
    (void)close(pipes[1]);
    while (used < 511 && (bytes = read(pipes[0], said + used, 511 - used)) > 0) {
        used += (size_t)bytes;
    }
    said[used] = '\0';
    (void)close(pipes[0]);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended));
    return WEXITSTATUS(ended);
}

static int32_t read_info(const char *path, struct convoy_elf_info *info_out)
{
    struct convoy_elf_source source;
    assert_int_equal(convoy_elf_source_open(path, &source, NULL), CONVOY_OK);
    int32_t status = convoy_elf_info_read(&source, info_out, NULL);
    convoy_elf_source_close(&source);
    return status;
}

/* Whatever the note held before: the same digest each time, and nothing else is changed. */
static void test_stamp_writes_the_digest_and_nothing_else(void **state)
{
    static struct convoy_elf_info before;
    static struct convoy_elf_info after;
    char good[PLUGIN_FILE_PATH_BYTES];
    char path[PLUGIN_FILE_PATH_BYTES];
    char said[512];
    plugin_file("good", good);
    folder_path(state, "good.so", path);
    assert_int_equal(read_info(good, &before), CONVOY_OK);
    struct file_bytes whole = file_read(good);
    memset(whole.bytes + before.digest_offset, 0x5a, sizeof before.digest);
    file_write(path, whole.bytes, whole.size);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run_stamp(path, said), 0);
        assert_string_equal(said, "");
        assert_int_equal(read_info(path, &after), CONVOY_OK);
        assert_true(after.digest == before.digest);
    }
    struct file_bytes stamped = file_read(path);
    assert_int_equal(stamped.size, whole.size);
    memcpy(whole.bytes + before.digest_offset, stamped.bytes + before.digest_offset, sizeof before.digest);
    assert_memory_equal(stamped.bytes, whole.bytes, whole.size);
    free(whole.bytes);
    free(stamped.bytes);
}

static void test_stamp_of_what_is_no_plugin_says_why(void **state)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    char said[512];
    assert_int_equal(run_stamp(NULL, said), 2);
    assert_string_equal(said, "usage: stamp FILE\n");
    folder_path(state, "none.so", path);
    assert_int_equal(run_stamp(path, said), 1);
    assert_non_null(strstr(said, "none.so"));
    file_write(path, "hello", 5);
    assert_int_equal(run_stamp(path, said), 1);
    assert_int_equal(strncmp(said, "stamp: ", 7), 0);
    char self[PLUGIN_FILE_PATH_BYTES]; /* a whole ELF file that is no plugin; not written to */
    (void)snprintf(self, sizeof self, "/proc/%d/exe", (int)getpid());
    assert_int_equal(run_stamp(self, said), 1);
    assert_non_null(strstr(said, "it has no note for the digest"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stamp_writes_the_digest_and_nothing_else),
        cmocka_unit_test(test_stamp_of_what_is_no_plugin_says_why),
    };
    return cmocka_run_group_tests_name("stamp", tests, folder_setup, folder_teardown);
}
