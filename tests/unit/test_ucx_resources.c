/* SPDX-License-Identifier: Apache-2.0 */
#include "net/ucx_resources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char context_text[] = "#\n# UCP context\n#\n#     component 1  :  tcp\n#\n"
                                   "#            md 1  :  component 1  tcp \n#\n"
                                   "#      resource 0  :  md 0  dev 0  flags -- self/memory0\n"
                                   "#      resource 1  :  md 1  dev 1  flags -- tcp/lo\n"
                                   "#      resource 2  :  md 1  dev 2  flags -- tcp/eth0  \n"
                                   "#      resource 3  :  md 1  dev 2  flags -- rc_verbs/mlx5_0:1\n#\n";

static void test_ucx_resources_of_a_context_are_transport_and_device(void **state)
{
    (void)state;
    struct convoy_ucx_resources resources;
    convoy_ucx_resources_parse_context(context_text, &resources);
    assert_int_equal(resources.count, 4);
    assert_string_equal(resources.rows[0].transport, "self");
    assert_string_equal(resources.rows[2].device, "eth0");
    assert_string_equal(resources.rows[3].transport, "rc_verbs");
    assert_string_equal(resources.rows[3].device, "mlx5_0:1");
}

static void test_ucx_resources_of_an_endpoint_lose_their_path_number(void **state)
{
    (void)state;
    struct convoy_ucx_resources resources;
    convoy_ucx_resources_parse_endpoint("# UCP endpoint \n#               peer: <no debug data>\n"
                                        "#   lane[0]:  1:tcp/lo.0 md[1]   -> md[1]/tcp/sysdev[255] am am_bw#0 wireup\n"
                                        "#   lane[1]: 12:rc_mlx5/mlx5_0:1.1 md[1]  -> md[1]/ib/sysdev[2] am_bw#1\n"
                                        "#   lane[2]:  1:tcp/lo.1 md[1]   -> md[1]/tcp/sysdev[255] am_bw#1\n",
                                        &resources);
    assert_int_equal(resources.count, 2);
    assert_string_equal(resources.rows[0].transport, "tcp");
    assert_string_equal(resources.rows[0].device, "lo");
    assert_string_equal(resources.rows[1].device, "mlx5_0:1");
}

/* The format is UCX's to change: nothing that it prints may be read past its end or taken for something else. */
static void test_ucx_resources_of_an_odd_text_are_unknown(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "#",
                                        "resource",
                                        "#  resource 0 : no slash",
                                        "#  resource 0 : /",
                                        "#  resource 0 : a/",
                                        "#  resource 0 : /b",
                                        "#  lane[",
                                        "# lane[0]:",
                                        "# lane[0]: 1:",
                                        "# lane[0]: 1:\n",
                                        "# resource 1 : a-name-that-is-longer-than-the-room-for-names/x"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct convoy_ucx_resources resources;
        convoy_ucx_resources_parse_context(texts[i], &resources);
        assert_int_equal(resources.count, 0);
        convoy_ucx_resources_parse_endpoint(texts[i], &resources);
        assert_int_equal(resources.count, 0);
    }
}

static void test_ucx_transport_of_one_host_is_no_network(void **state)
{
    (void)state;
    assert_true(convoy_ucx_transport_is_network("tcp"));
    assert_true(convoy_ucx_transport_is_network("dc_mlx5"));
    assert_false(convoy_ucx_transport_is_network("posix"));
    assert_false(convoy_ucx_transport_is_network("cuda_ipc"));
    assert_false(convoy_ucx_transport_is_network("self"));
}

static void test_ucx_memory_kinds_are_named(void **state)
{
    (void)state;
    char text[CONVOY_UCX_MEMORY_TEXT_BYTES];
    convoy_ucx_memory_text(0, text);
    assert_string_equal(text, "unknown");
    convoy_ucx_memory_text(1, text);
    assert_string_equal(text, "host");
    convoy_ucx_memory_text(UINT64_C(1) << 63 | 7, text); /* and one of later */
    assert_string_equal(text, "host, cuda, cuda-managed");
    convoy_ucx_memory_text(UINT64_MAX, text);
    assert_string_equal(text, "host, cuda, cuda-managed, rocm, rocm-managed");
}

static void test_ucx_config_last_value_of_the_whole_name_counts(void **state)
{
    (void)state;
    const char *text = "UCX_TLS=all\nUCX_TLSX=no\n# UCX_TLS=comment\nTLS=tcp\nEMPTY=\n";
    char value[16] = "";
    assert_true(convoy_ucx_config_find(text, "TLS", value, sizeof value));
    assert_string_equal(value, "tcp");
    assert_true(convoy_ucx_config_find(text, "EMPTY", value, sizeof value));
    assert_string_equal(value, "");
    assert_false(convoy_ucx_config_find(text, "TL", value, sizeof value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ucx_resources_of_a_context_are_transport_and_device),
        cmocka_unit_test(test_ucx_resources_of_an_endpoint_lose_their_path_number),
        cmocka_unit_test(test_ucx_resources_of_an_odd_text_are_unknown),
        cmocka_unit_test(test_ucx_transport_of_one_host_is_no_network),
        cmocka_unit_test(test_ucx_memory_kinds_are_named),
        cmocka_unit_test(test_ucx_config_last_value_of_the_whole_name_counts),
    };
    return cmocka_run_group_tests_name("ucx_resources", tests, NULL, NULL);
}
