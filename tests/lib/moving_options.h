/* SPDX-License-Identifier: Apache-2.0 */
/* What an export is asked with where a test asks for nothing. */
#ifndef TESTS_LIB_MOVING_OPTIONS_H
#define TESTS_LIB_MOVING_OPTIONS_H

#include "convoy/move.h"

static const struct convoy_export_options moving_options = {.struct_size = sizeof moving_options};

#endif
