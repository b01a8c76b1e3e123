/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/suite.h"

int main(void)
{
    return suite_main("conformance_shared_memory", SUITE_SHARED_MEMORY);
}
