/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian integers in byte arrays of any alignment: everything on the wire is written and read with these. */
#ifndef CONVOY_CORE_BYTES_H
#define CONVOY_CORE_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void convoy_bytes_put_u16(uint8_t *at, uint16_t value)
{
    value = htole16(value);
    memcpy(at, &value, sizeof value);
}

static inline void convoy_bytes_put_u32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static inline void convoy_bytes_put_u64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static inline uint16_t convoy_bytes_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return le16toh(value);
}

static inline uint32_t convoy_bytes_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static inline uint64_t convoy_bytes_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

#endif
