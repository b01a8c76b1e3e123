/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of the core table that are about contexts. */
#ifndef CONVOY_PLUGIN_CONTEXT_H
#define CONVOY_PLUGIN_CONTEXT_H

#include "handle.h"

int32_t convoy_context_open(const struct convoy_context_config *config, convoy_context **context_out,
                            struct convoy_error *error);
int32_t convoy_context_close(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error);
int32_t convoy_context_describe(convoy_context *context, uint32_t topic, struct convoy_text_buffer *text_out,
                                struct convoy_error *error);

#endif
