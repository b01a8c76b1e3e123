/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Golden frames (golden.h): what this build writes is read as meant, what is spoilt is refused as meant; and of every frozen
 * release (abi/vX.Y/golden) this build still writes the very bytes and gives the same answers. The last is tried on a set
 * that is written now, whole and with one byte changed, so that it holds before anything is frozen.
 */
#include "golden.h"

#include "core/status.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH_BYTES 700

static alignas(64) uint8_t made[GOLDEN_BYTES_MAX];
static uint8_t kept[GOLDEN_BYTES_MAX + 1];

static const char *answer_name(int32_t status)
{
    return status == GOLDEN_OTHER ? "OTHER" : convoy_status_name(status);
}

static void test_golden_frames_are_read_with_the_values_they_were_made_of(void **state)
{
    (void)state;
    for (size_t set = 0; set < GOLDEN_SETS; set++) {
        for (size_t i = 0; i < golden_sets[set]->frame_count; i++) {
            const struct golden_frame *frame = &golden_sets[set]->frames[i];
            size_t length = golden_make(frame, made);
            int32_t status = golden_decode(frame, made, length);
            if (status != CONVOY_OK) {
                fail_msg("%s: %s", frame->name, answer_name(status));
            }
            memcpy(kept, made, length);
            if (golden_make(frame, made) != length || memcmp(made, kept, length) != 0) {
                fail_msg("%s is not the same twice", frame->name);
            }
        }
    }
}

static void test_golden_spoilt_frames_are_refused_as_meant(void **state)
{
    (void)state;
    for (size_t set = 0; set < GOLDEN_SETS; set++) {
        for (size_t i = 0; i < golden_sets[set]->bad_count; i++) {
            const struct golden_bad *bad = &golden_sets[set]->bads[i];
            size_t length = golden_make_bad(bad, made);
            int32_t status = golden_decode(golden_find(bad->of), made, length);
            if (status != bad->status) {
                print_error("%s: %s, wanted %s\n", bad->name, answer_name(status), answer_name(bad->status));
                fail();
            }
        }
    }
}

/* A frame that ends early is never read past its end (the sanitizers look), and never taken for the whole. */
static void test_golden_frames_cut_anywhere_are_not_the_whole(void **state)
{
    (void)state;
    for (size_t set = 0; set < GOLDEN_SETS; set++) {
        for (size_t i = 0; i < golden_sets[set]->frame_count; i++) {
            const struct golden_frame *frame = &golden_sets[set]->frames[i];
            size_t length = golden_make(frame, made);
            size_t step = length > 2048 ? 61 : 1;
            for (size_t cut = 0; cut < length; cut += step) {
                if (golden_decode(frame, made, cut) == CONVOY_OK) {
                    fail_msg("%s cut to %zu of %zu bytes is read as the whole", frame->name, cut, length);
                }
            }
        }
    }
}

/* -- files ---------------------------------------------------------------------------------------------------------- */

static size_t read_file(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    size_t length = file != NULL ? fread(kept, 1, sizeof kept, file) : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    return length;
}

static const struct golden_bad *find_bad(const char *name)
{
    for (size_t set = 0; set < GOLDEN_SETS; set++) {
        for (size_t i = 0; i < golden_sets[set]->bad_count; i++) {
            if (strcmp(golden_sets[set]->bads[i].name, name) == 0) {
                return &golden_sets[set]->bads[i];
            }
        }
    }
    return NULL;
}

/* One line of an index: the file has the bytes that this build makes, and this build answers what the line says. */
static bool check_file(const char *folder, const char *name, const char *frame_name, const char *answer)
{
    const struct golden_frame *frame = golden_find(frame_name);
    const struct golden_bad *bad = find_bad(name);
    if (frame == NULL || (bad == NULL && strcmp(name, frame_name) != 0)) {
        print_message("%s/%s: this build does not know frame %s\n", folder, name, frame_name);
        return false;
    }
    size_t length = read_file(folder, name);
    size_t wanted = bad != NULL ? golden_make_bad(bad, made) : golden_make(frame, made);
    if (length != wanted || memcmp(kept, made, length) != 0) {
        print_message("%s/%s: its %zu bytes are not the %zu that this build writes\n", folder, name, length, wanted);
        return false;
    }
    const char *said = answer_name(golden_decode(frame, kept, length));
    if (strcmp(said, answer) != 0) {
        print_message("%s/%s: %s, wanted %s\n", folder, name, said, answer);
    }
    return strcmp(said, answer) == 0;
}

/* How many files of a folder are not as they should be; all of them if there is no index. */
static uint32_t check_folder(const char *folder, uint32_t *count_out)
{
    char path[PATH_BYTES];
    char name[GOLDEN_NAME_BYTES];
    char frame[GOLDEN_NAME_BYTES];
    char answer[GOLDEN_NAME_BYTES];
    uint32_t wrong = 0;
    *count_out = 0;
    (void)snprintf(path, sizeof path, "%s/index.tsv", folder);
    FILE *index = fopen(path, "r");
    if (index == NULL || fscanf(index, "%63s %63s %63s", name, frame, answer) != 3) { /* the heads of the columns */
        fail_msg("%s: no index", folder);
    }
    while (fscanf(index, "%63s %63s %63s", name, frame, answer) == 3) {
        *count_out += 1;
        wrong += !check_file(folder, name, frame, answer);
    }
    (void)fclose(index);
    return wrong;
}

/* Runs the generator beside this test into a fresh folder. */
static void generate(char folder_out[PATH_BYTES])
{
    char self[512] = {0};
    char generator[PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = length > 0 ? strrchr(self, '/') : NULL;
    assert_non_null(slash);
    *slash = '\0';
    (void)snprintf(generator, sizeof generator, "%s/golden", self);
    (void)strcpy(folder_out, "/tmp/convoy-golden-XXXXXX");
    assert_non_null(mkdtemp(folder_out));
    pid_t child = fork();
    if (child == 0) {
        (void)execl(generator, generator, folder_out, (char *)NULL);
        _exit(127);
    }
    int code = 0;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
}

static void remove_folder(const char *folder)
{
    DIR *list = opendir(folder);
    struct dirent *entry;
    while (list != NULL && (entry = readdir(list)) != NULL) {
        (void)unlinkat(dirfd(list), entry->d_name, 0); /* "." and ".." refuse */
    }
    (void)(list != NULL && closedir(list));
    assert_int_equal(rmdir(folder), 0);
}

/* Turns one bit of a file. */
static void spoil(const char *folder, const char *name, long at)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

static void test_golden_files_of_this_build_pass_and_a_changed_one_does_not(void **state)
{
    (void)state;
    char folder[PATH_BYTES];
    uint32_t count = 0;
    generate(folder);
    assert_int_equal(check_folder(folder, &count), 0);
    assert_in_range(count, 150, 1000);
    spoil(folder, "hello.group", 40);
    assert_int_equal(check_folder(folder, &count), 1);
    spoil(folder, "notice.room", 6);
    spoil(folder, "segment.bad-ring-number", 64);
    assert_int_equal(check_folder(folder, &count), 3);
    remove_folder(folder);
}

/* Run from the root of the tree, as all tests. */
static void test_golden_files_of_every_frozen_release_pass(void **state)
{
    (void)state;
    DIR *list = opendir("abi");
    struct dirent *entry;
    uint32_t releases = 0;
    assert_non_null(list);
    while ((entry = readdir(list)) != NULL) {
        char folder[PATH_BYTES];
        uint32_t count = 0;
        if (entry->d_name[0] != 'v' || strchr(entry->d_name, '.') == NULL) {
            continue;
        }
        (void)snprintf(folder, sizeof folder, "abi/%s/golden", entry->d_name);
        assert_int_equal(check_folder(folder, &count), 0);
        releases++;
    }
    (void)closedir(list);
    print_message("%u frozen releases\n", releases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_frames_are_read_with_the_values_they_were_made_of),
        cmocka_unit_test(test_golden_spoilt_frames_are_refused_as_meant),
        cmocka_unit_test(test_golden_frames_cut_anywhere_are_not_the_whole),
        cmocka_unit_test(test_golden_files_of_this_build_pass_and_a_changed_one_does_not),
        cmocka_unit_test(test_golden_files_of_every_frozen_release_pass),
    };
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
