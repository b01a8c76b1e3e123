/* SPDX-License-Identifier: Apache-2.0 */
/* convoy/convoy.h: the whole plugin ABI. Hosts that use the loader also include convoy/loader.h. */
#ifndef CONVOY_CONVOY_H
#define CONVOY_CONVOY_H

#include "convoy/core.h"
#include "convoy/move.h"
#include "convoy/payload.h"
#include "convoy/poll.h"
#include "convoy/query.h"
#include "convoy/sync.h"
#include "convoy/transfer.h"

#endif
