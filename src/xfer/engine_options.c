/* SPDX-License-Identifier: Apache-2.0 */
/* The options of an engine: what the host has given, checked, and else what is usual. */
#include "core/clock.h"
#include "core/error.h"
#include "xfer/device_jobs.h"
#include "xfer/parts.h"
#include "xfer/session.h"

#include <stdio.h>
#include <string.h>

#define POOL_BYTES (UINT64_C(256) << 20)
#define LEASE_NS (60 * CONVOY_NS_PER_S)
#define TRANSFERS 1024u
#define TRANSFERS_MAX 65536u
#define PEERS 64u
#define PEERS_MAX 1024u
#define PREALLOC_MAX 256u
#define DEFAULT_ADDRESS "tcp://127.0.0.1:0"

static int32_t load_address(const struct convoy_transfer_options *given, struct convoy_xfer_options *options,
                            struct convoy_error *error)
{
    const char *text = given->address != NULL ? given->address : DEFAULT_ADDRESS;
    size_t length = given->address != NULL ? given->address_length : sizeof DEFAULT_ADDRESS - 1;
    struct convoy_rendezvous where;
    char copy[300] = "";
    bool is_any = length > 2 && length < sizeof copy && memcmp(text + length - 2, ":0", 2) == 0;
    if (length < sizeof copy) {
        memcpy(copy, text, length);
    }
    if (is_any) {
        copy[length - 1] = '1'; /* a port that can be parsed; 0 is put back below */
    }
    int32_t status = length < sizeof copy
                         ? convoy_rendezvous_parse(copy, length, NULL, 0, &where, error)
                         : convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%zu bytes, allowed are up to 299", length);
    if (status != CONVOY_OK) {
        return convoy_error_prefix(error, status, "option address");
    }
    if (strlen(where.host) > CONVOY_SESSION_BYTES - 32) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "option address: a host of %zu bytes, allowed are up to %u",
                                strlen(where.host), CONVOY_SESSION_BYTES - 32);
    }
    (void)snprintf(options->host, sizeof options->host, "%s", where.host); /* what lies behind its end is written down too */
    options->port = is_any ? 0 : where.port;
    return CONVOY_OK;
}

static int32_t check_pool(const struct convoy_transfer_options *given, struct convoy_error *error)
{
    if (given->pool_kind > CONVOY_MEMORY_DEVICE) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "option pool_kind is %u, allowed are 0 to %u",
                                given->pool_kind, CONVOY_MEMORY_DEVICE);
    }
    if ((given->pool_kind != CONVOY_MEMORY_SHARED) != (given->pool_memory != NULL)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "option pool_memory is for pool_kind HOST and DEVICE, which need it");
    }
    if ((given->pool_block_bytes & (given->pool_block_bytes - 1)) != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "option pool_block_bytes is %llu, it must be a power of two",
                                (unsigned long long)given->pool_block_bytes);
    }
    return convoy_xfer_device_check_options(given, error);
}

static int32_t check_number(const char *name, uint64_t value, uint64_t max, struct convoy_error *error)
{
    return value <= max ? CONVOY_OK
                        : convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "option %s is %llu, allowed are 0 to %llu", name,
                                           (unsigned long long)value, (unsigned long long)max);
}

int32_t convoy_xfer_options_load(const struct convoy_runtime *runtime, const struct convoy_transfer_options *given,
                                 struct convoy_xfer_options *options, struct convoy_error *error)
{
    *options = (struct convoy_xfer_options){
        .pool_kind = given->pool_kind,
        .pool_memory = given->pool_memory,
        .pool_bytes = given->pool_bytes != 0 || given->pool_memory != NULL ? given->pool_bytes : POOL_BYTES,
        .block_bytes = given->pool_block_bytes != 0 ? given->pool_block_bytes : CONVOY_BUDDY_BLOCK_BYTES,
        .lease_ns = given->lease_ns != 0 ? given->lease_ns : LEASE_NS,
        .timeout_ns = runtime->settings.timeout_ms * CONVOY_NS_PER_MS,
        .transfer_max = given->transfer_max != 0 ? given->transfer_max : TRANSFERS,
        .peer_max = given->peer_max != 0 ? given->peer_max : PEERS,
        .prealloc_count = given->prealloc_count,
        .prealloc_bytes = given->prealloc_bytes,
        .device = given->device,
        .device_number = given->device_number,
        .device_table = given->device_table,
        .is_private = (given->critical_flags & CONVOY_ENGINE_PRIVATE) != 0,
        .must_notify = (given->hint_flags & CONVOY_ENGINE_NOTIFY) != 0,
    };
    options->bounce_bytes = given->bounce_bytes != 0            ? given->bounce_bytes
                            : options->pool_bytes < POOL_BYTES ? options->pool_bytes
                                                               : POOL_BYTES;
    if ((given->critical_flags & ~CONVOY_ENGINE_PRIVATE) != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "option critical_flags: 0x%x, known are 0x%x",
                                given->critical_flags, CONVOY_ENGINE_PRIVATE);
    }
    int32_t status = check_pool(given, error);
    status = status == CONVOY_OK ? check_number("transfer_max", given->transfer_max, TRANSFERS_MAX, error) : status;
    status = status == CONVOY_OK ? check_number("peer_max", given->peer_max, PEERS_MAX, error) : status;
    status = status == CONVOY_OK ? check_number("prealloc_count", given->prealloc_count, PREALLOC_MAX, error) : status;
    return status == CONVOY_OK ? load_address(given, options, error) : status;
}
