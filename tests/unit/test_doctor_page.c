/* SPDX-License-Identifier: Apache-2.0 */
/* The page of `convoy doctor` for humans, from made-up findings: every line of a full one, and each odd finding. */
#include "cli/doctor.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Findings of a machine where all is well, as `--json` would print them. */
static const char findings[] =
    "{\"plugin\": {\"file\": \"/opt/libconvoy.so.1\", \"release\": \"1.2.3\", \"build_id\": \"abcd\", \"error\": null,"
    "  \"ucx\": {\"supported\": \"1.13 <= v < 2\", \"file\": \"/lib/libucp.so.0\", \"version\": \"1.15.0\","
    "    \"loaded_by\": \"convoy\", \"transports\": [\"tcp\", \"self\"], \"devices\": [\"eth0\"],"
    "    \"memory_types\": [\"host\", \"cuda\"],"
    "    \"signals_changed\": 3, \"hooks_changed\": [], \"error\": null,"
    "    \"settings\": {\"TLS\": {\"value\": \"tcp\", \"source\": \"environment\"}}},"
    "  \"settings\": {\"timeout_ms\": {\"value\": 5000, \"source\": \"default\"},"
    "    \"hosts\": {\"value\": null, \"source\": \"default\"}}},"
    " \"shared_memory\": {\"shm_bytes\": 25769803776, \"shm_free_bytes\": 1536, \"memfd\": true, \"error\": null},"
    " \"process_vm\": {\"of_child\": true, \"of_other\": true, \"error\": null, \"ptrace_scope\": 1},"
    " \"limits\": {\"memlock_bytes\": -1, \"descriptors\": 1024, \"descriptors_hard\": 1048576},"
    " \"namespaces\": {\"net\": 4026531992, \"pid\": 4026531836},"
    " \"processor\": {\"cores_usable\": 8, \"cores_online\": 16, \"streaming_threshold_bytes\": 786432},"
    " \"device\": {\"file\": \"/lib/libcuda.so.1\", \"version\": \"12.2\", \"devices\": 8, \"error\": null},"
    " \"peer\": {\"host\": \"node2\", \"address\": \"10.0.0.2\", \"source\": \"10.0.0.1\", \"interface\": \"eth0\","
    "   \"error\": null}}";

static const char page[] =
    "plugin\n"
    "  file                       /opt/libconvoy.so.1\n"
    "  release                    1.2.3, build abcd\n"
    "memory\n"
    "  /dev/shm                   24.0 GiB, 1.5 KiB free\n"
    "  sealed memfd               works\n"
    "  process_vm_readv           of a child: yes, of another process: yes\n"
    "  kernel.yama.ptrace_scope   1\n"
    "  locked memory limit        unlimited\n"
    "process\n"
    "  cores                      8 usable of 16\n"
    "  streaming stores above     768.0 KiB (glibc x86_non_temporal_threshold)\n"
    "  open files limit           1024, can be raised to 1048576\n"
    "  net namespace              4026531992\n"
    "  pid namespace              4026531836\n"
    "ucx (between hosts; one host needs none)\n"
    "  supported                  1.13 <= v < 2\n"
    "  file                       /lib/libucp.so.0\n"
    "  version                    1.15.0\n"
    "  loaded by                  convoy\n"
    "  transports                 tcp, self\n"
    "  devices                    eth0\n"
    "  memory types               host, cuda\n"
    "  signal handlers            3 replaced\n"
    "  libc functions patched     none\n"
    "device (for tensors in device memory)\n"
    "  CUDA driver                /lib/libcuda.so.1, version 12.2, 8 devices\n"
    "peer\n"
    "  host                       node2 (10.0.0.2)\n"
    "  interface                  eth0, from 10.0.0.1\n"
    "settings (value, source)\n"
    "  timeout_ms                 5000                 default\n"
    "  hosts                      \"\"                   default\n"
    "  UCX TLS                    \"tcp\"                environment\n";

static char *print(const json_t *all)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    convoy_doctor_print(out, all);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void test_doctor_page_of_a_good_machine(void **state)
{
    (void)state;
    json_t *all = json_loads(findings, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(all);
    char *text = print(all);
    assert_string_equal(text, page);
    free(text);
    json_decref(all);
}

/* One finding of the good machine is another: its line says so. within: an object of the part; NULL: the part itself. */
struct change {
    const char *part;
    const char *within;
    const char *name;
    const char *value;
    const char *line;
};

static const struct change changes[] = {
    {"plugin", NULL, "error", "\"no such file\"", "  not usable                 no such file\n"},
    {"plugin", NULL, "file", "null", "  file                       -\n"},
    {"plugin", NULL, "release", "null", "  release                    -, build abcd\n"},
    {"shared_memory", NULL, "shm_bytes", "null", "  /dev/shm                   unknown, 1.5 KiB free\n"},
    {"shared_memory", NULL, "shm_free_bytes", "0", "  /dev/shm                   24.0 GiB, 0 B free\n"},
    {"shared_memory", NULL, "shm_free_bytes", "1023", "24.0 GiB, 1023 B free\n"},
    {"shared_memory", NULL, "shm_free_bytes", "1048576", "24.0 GiB, 1.0 MiB free\n"},
    {"shared_memory", NULL, "shm_bytes", "4503599627370496", "  /dev/shm                   4096.0 TiB, "},
    {"shared_memory", NULL, "memfd", "false", "  sealed memfd               -\n"},
    {"process_vm", NULL, "of_child", "false", "of a child: no, of another process: yes\n"},
    {"process_vm", NULL, "of_other", "false", "of a child: yes, of another process: -\n"},
    {"process_vm", NULL, "ptrace_scope", "null", "  kernel.yama.ptrace_scope   not present\n"},
    {"limits", NULL, "memlock_bytes", "8388608", "8.0 MiB  (RDMA needs more: ulimit -l unlimited)\n"},
    {"limits", NULL, "memlock_bytes", "67108863", "64.0 MiB  (RDMA needs more: ulimit -l unlimited)\n"},
    {"limits", NULL, "memlock_bytes", "67108864", "  locked memory limit        64.0 MiB\n"},
    {"limits", NULL, "memlock_bytes", "0", "0 B  (RDMA needs more: ulimit -l unlimited)\n"},
    {"limits", NULL, "descriptors", "1023", "1023, can be raised to 1048576  (low: ulimit -n 20000)\n"},
    {"limits", NULL, "descriptors", "-1", "  open files limit           unlimited\n"},
    {"limits", NULL, "descriptors", "1048576", "  open files limit           1048576\n"},
    {"limits", NULL, "descriptors_hard", "-1", "  open files limit           1024, can be raised to unlimited\n"},
    {"processor", NULL, "streaming_threshold_bytes", "null", "  streaming stores above     unknown (glibc"},
    {"device", NULL, "error", "\"no such file\"", "  CUDA driver                none: no such file\n"},
    {"peer", NULL, "error", "\"Network is unreachable\"", "  not reachable              Network is unreachable\n"},
    {"plugin", "ucx", "error", "\"libucp is missing\"", "  not usable                 libucp is missing\n"},
    {"plugin", "ucx", "devices", "[]", "  devices                    none\n"},
    {"plugin", "ucx", "hooks_changed", "[\"mmap\", \"brk\"]", "  libc functions patched     mmap, brk\n"},
};

static void test_doctor_page_odd_findings_are_said(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const struct change *change = &changes[i];
        json_t *all = json_loads(findings, 0, NULL);
        json_t *part = json_object_get(all, change->part);
        json_t *object = change->within != NULL ? json_object_get(part, change->within) : part;
        json_t *value = json_loads(change->value, JSON_DECODE_ANY, NULL);
        assert_non_null(value);
        assert_int_equal(json_object_set_new(object, change->name, value), 0);
        assert_null(strstr(page, change->line)); /* else the change would be none */
        char *text = print(all);
        if (strstr(text, change->line) == NULL) {
            fail_msg("%s.%s = %s: no \"%s\" in\n%s", change->part, change->name, change->value, change->line, text);
        }
        free(text);
        json_decref(all);
    }
}

/* What was not found has no section; the rest of the page is there. */
static void test_doctor_page_leaves_out_what_is_not_there(void **state)
{
    (void)state;
    json_t *all = json_loads(findings, 0, NULL);
    json_t *plugin = json_object_get(all, "plugin");
    assert_int_equal(json_object_set_new(all, "peer", json_null()), 0);
    assert_int_equal(json_object_set_new(plugin, "settings", json_null()), 0);
    assert_int_equal(json_object_del(json_object_get(plugin, "ucx"), "file"), 0);
    char *text = print(all);
    assert_null(strstr(text, "peer\n"));
    assert_non_null(strstr(text, "CUDA"));
    assert_null(strstr(text, "settings"));
    assert_null(strstr(text, "transports"));
    assert_non_null(strstr(text, "  supported                  1.13 <= v < 2\n"));
    free(text);
    assert_int_equal(json_object_set_new(plugin, "ucx", json_null()), 0);
    text = print(all);
    assert_null(strstr(text, "ucx"));
    assert_non_null(strstr(text, "  pid namespace              4026531836\n"));
    free(text);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doctor_page_of_a_good_machine),
        cmocka_unit_test(test_doctor_page_odd_findings_are_said),
        cmocka_unit_test(test_doctor_page_leaves_out_what_is_not_there),
    };
    return cmocka_run_group_tests_name("doctor_page", tests, NULL, NULL);
}
