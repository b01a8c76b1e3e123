/* SPDX-License-Identifier: Apache-2.0 */
/* What group_describe and context_describe say, parsed. Failures are expectations. */
#ifndef TESTS_LIB_DESCRIBE_H
#define TESTS_LIB_DESCRIBE_H

#include "tests/lib/plugin.h"

#include <jansson.h>

/* gives (json_decref) */
json_t *describe_group(struct plugin_member *member, uint32_t topic);
json_t *describe_context(struct plugin_member *member, uint32_t topic);

/* A number anywhere below, by names separated by dots; 0 when it is not there. */
long long describe_number(const json_t *json, const char *path);

/* Expects that one entry of the call log is this operation, ended OK, with one list of these bytes in and out. */
void describe_expect_call(const json_t *entry, const char *operation, const uint8_t *input, const uint8_t *output,
                          size_t count);

#endif
