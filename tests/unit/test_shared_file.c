/* SPDX-License-Identifier: Apache-2.0 */
#include "core/error.h"
#include "net/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* openucx/ucx PR 7899: what is mapped cannot become shorter, whoever dies, so reading it raises no signal. */
static void test_shared_file_is_reserved_sealed_and_zero(void **state)
{
    (void)state;
    int fd = -1;
    size_t bytes = 0;
    assert_int_equal(convoy_shared_file_create(10000, &fd, NULL), CONVOY_OK);
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_size, 10000);
    assert_true(status.st_blocks * 512 >= 10000); /* pages exist before anybody touches them */
    assert_int_equal(fcntl(fd, F_GET_SEALS) & 0xf, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(convoy_shared_file_check(fd, 10000, &bytes, NULL), CONVOY_OK);
    assert_int_equal(bytes, 10000);
    (void)close(fd);
}

/* Its creator writes, others see it, and nobody else can write: not by a mapping, not by the file. */
static void test_shared_file_owned_is_written_by_its_creator_alone(void **state)
{
    (void)state;
    int fd = -1;
    void *own = NULL;
    const void *view = NULL;
    size_t bytes = 0;
    assert_int_equal(convoy_shared_file_create_owned(20000, &fd, &own, NULL), CONVOY_OK);
    assert_int_equal(fcntl(fd, F_GET_SEALS) & 0x1f, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | 0x10);
    assert_int_equal(convoy_shared_file_view(fd, 20000, &view, &bytes, NULL), CONVOY_OK);
    assert_int_equal(bytes, 20000);
    memcpy((uint8_t *)own + 19990, "convoy", 7);
    assert_string_equal((const char *)view + 19990, "convoy");
    assert_ptr_equal(mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(mprotect((void *)(uintptr_t)view, 20000, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 4096), -1);
    (void)munmap((void *)(uintptr_t)view, bytes);
    (void)munmap(own, 20000);
    (void)close(fd);
}

/* A reader's forked child would outlive the lease that its parent reads by: it does not get the mapping. */
static void test_shared_file_view_is_not_inherited(void **state)
{
    (void)state;
    int fd = -1;
    void *own = NULL;
    const void *view = NULL;
    size_t bytes = 0;
    assert_int_equal(convoy_shared_file_create_owned(4096, &fd, &own, NULL), CONVOY_OK);
    assert_int_equal(convoy_shared_file_view(fd, 1, &view, &bytes, NULL), CONVOY_OK);
    pid_t child = fork();
    if (child == 0) {
        unsigned char resident;
        _exit(mincore((void *)(uintptr_t)view, 4096, &resident) == -1 && errno == ENOMEM ? 0 : 1);
    }
    int ended = -1;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    (void)munmap((void *)(uintptr_t)view, bytes);
    (void)munmap(own, 4096);
    (void)close(fd);
}

static void test_shared_file_view_of_what_is_none_is_refused(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const void *view = NULL;
    size_t bytes = 7;
    int fd = -1;
    assert_int_equal(convoy_shared_file_create(4096, &fd, NULL), CONVOY_OK);
    assert_int_equal(convoy_shared_file_view(fd, 4097, &view, &bytes, &error), CONVOY_MALFORMED);
    assert_non_null(strstr(error.text, "4096 bytes, 4097 are needed"));
    assert_null(view);
    assert_int_equal(bytes, 7);
    (void)close(fd);
    assert_int_equal(convoy_shared_file_create_owned((size_t)1 << 62, &fd, (void **)(uintptr_t)&view, &error), CONVOY_SYSTEM);
    assert_int_equal(error.sys_errno, ENOMEM);
}

/* ROCm/rocm-systems PR 3700: refused before the kernel would raise SIGXFSZ, and nothing stays open. */
static void test_shared_file_over_the_file_size_limit_is_system(void **state)
{
    (void)state;
    struct rlimit old;
    struct convoy_error error = CONVOY_ERROR_INIT;
    int fd = -7;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 8192, .rlim_max = old.rlim_max}), 0);
    int32_t status = convoy_shared_file_create(8193, &fd, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, CONVOY_SYSTEM);
    assert_int_equal(error.sys_errno, EFBIG);
    assert_int_equal(fd, -7);
}

/* More than any machine has: refused without trying. */
static void test_shared_file_without_memory_is_system(void **state)
{
    (void)state;
    struct convoy_error error = CONVOY_ERROR_INIT;
    int fd = -7;
    assert_int_equal(convoy_shared_file_create((size_t)1 << 62, &fd, &error), CONVOY_SYSTEM);
    assert_int_equal(error.sys_errno, ENOMEM);
    assert_non_null(strstr(error.text, "reserve 4611686018427387904 bytes of shared memory"));
}

static void test_shared_file_unsealed_short_or_foreign_is_malformed(void **state)
{
    (void)state;
    size_t bytes = 0;
    int open_ended = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(open_ended, 8192), 0);
    assert_int_equal(convoy_shared_file_check(open_ended, 1, &bytes, NULL), CONVOY_MALFORMED);
    assert_int_equal(fcntl(open_ended, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(convoy_shared_file_check(open_ended, 1, &bytes, NULL), CONVOY_OK);
    assert_int_equal(convoy_shared_file_check(open_ended, 8193, &bytes, NULL), CONVOY_MALFORMED);
    (void)close(open_ended);
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(convoy_shared_file_check(file, 0, &bytes, NULL), CONVOY_MALFORMED);
    (void)close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_file_is_reserved_sealed_and_zero),
        cmocka_unit_test(test_shared_file_owned_is_written_by_its_creator_alone),
        cmocka_unit_test(test_shared_file_view_is_not_inherited),
        cmocka_unit_test(test_shared_file_view_of_what_is_none_is_refused),
        cmocka_unit_test(test_shared_file_over_the_file_size_limit_is_system),
        cmocka_unit_test(test_shared_file_without_memory_is_system),
        cmocka_unit_test(test_shared_file_unsealed_short_or_foreign_is_malformed),
    };
    return cmocka_run_group_tests_name("shared_file", tests, NULL, NULL);
}
