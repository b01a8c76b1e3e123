/* SPDX-License-Identifier: Apache-2.0 */
/* What a transfer holds, written into the caller's convoy_payload. */
#ifndef CONVOY_PLUGIN_TRANSFER_OUT_H
#define CONVOY_PLUGIN_TRANSFER_OUT_H

#include "xfer/engine.h"

/* INVALID_ARGUMENT, TOO_OLD: the struct, or its arrays. What exceeds a capacity is cut, the counts say it all. */
int32_t convoy_transfer_out(const struct convoy_xfer_contents *contents, struct convoy_payload *payload_out,
                            struct convoy_error *error);

#endif
