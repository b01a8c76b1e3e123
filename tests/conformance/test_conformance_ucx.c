/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/suite.h"

int main(void)
{
    return suite_main("conformance_ucx", SUITE_UCX);
}
