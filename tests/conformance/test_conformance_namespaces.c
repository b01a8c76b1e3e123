/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/suite.h"

#include "tests/lib/hosts.h"

int main(void)
{
    if (!hosts_create(2)) {
        return 77;
    }
    int failed = suite_main("conformance_namespaces", SUITE_NAMESPACES);
    hosts_destroy();
    return failed;
}
