/* SPDX-License-Identifier: Apache-2.0 */
#include "net/bulk_wire.h"

#include "core/reader.h"
#include "net/bulk.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HEADER_MAGIC 0xb41cu
#define ADDRESS_MAGIC "cvB1"

void convoy_bulk_header_encode(const struct bulk_header *header, uint8_t out[BULK_HEADER_BYTES])
{
    convoy_bytes_put_u16(out, HEADER_MAGIC);
    out[2] = (uint8_t)header->kind;
    out[3] = header->flags;
    convoy_bytes_put_u32(out + 4, header->epoch);
    convoy_bytes_put_u64(out + 8, header->from);
    convoy_bytes_put_u64(out + 16, header->to);
    convoy_bytes_put_u64(out + 24, header->transfer);
    convoy_bytes_put_u64(out + 32, header->generation);
    convoy_bytes_put_u64(out + 40, header->offset);
    convoy_bytes_put_u64(out + 48, header->sequence);
    convoy_bytes_put_u64(out + 56, header->checksum);
}

/* What each kind may carry. */
static bool header_fits(const struct bulk_header *header, size_t data_bytes)
{
    switch (header->kind) {
    case BULK_FRAME:
        return header->flags == 0 && data_bytes >= 1 && data_bytes <= CONVOY_BULK_FRAME_BYTES;
    case BULK_CHUNK:
        return (header->flags & ~(BULK_FLAG_PUSH | BULK_FLAG_CHECKSUM)) == 0 &&
               data_bytes <= CONVOY_BULK_CHUNK_BYTES && header->offset <= UINT64_MAX - data_bytes;
    case BULK_ABORT:
        return (header->flags & ~BULK_FLAG_PUSH) == 0 && data_bytes == 0;
    case BULK_ACK:
        return header->flags == 0 && data_bytes <= CONVOY_BULK_WINDOW_MAX;
    }
    return false;
}

bool convoy_bulk_header_decode(const void *bytes, size_t length, size_t data_bytes, struct bulk_header *header_out)
{
    struct convoy_reader reader = convoy_reader_of(bytes, length);
    struct bulk_header header;
    uint16_t magic = convoy_reader_u16(&reader);
    uint8_t kind = convoy_reader_u8(&reader);
    header.flags = convoy_reader_u8(&reader);
    header.epoch = convoy_reader_u32(&reader);
    header.from = convoy_reader_u64(&reader);
    header.to = convoy_reader_u64(&reader);
    header.transfer = convoy_reader_u64(&reader);
    header.generation = convoy_reader_u64(&reader);
    header.offset = convoy_reader_u64(&reader);
    header.sequence = convoy_reader_u64(&reader);
    header.checksum = convoy_reader_u64(&reader);
    if (!convoy_reader_is_done(&reader) || magic != HEADER_MAGIC || kind < BULK_FRAME || kind > BULK_ACK) {
        return false;
    }
    header.kind = (enum bulk_kind)kind;
    if (!header_fits(&header, data_bytes)) {
        return false;
    }
    *header_out = header;
    return true;
}

uint64_t convoy_bulk_checksum(const struct bulk_header *header, const void *data, size_t bytes)
{
    uint8_t place[24];
    convoy_bytes_put_u64(place, header->transfer);
    convoy_bytes_put_u64(place + 8, header->generation);
    convoy_bytes_put_u64(place + 16, header->offset);
    return XXH3_64bits_withSeed(data, bytes, XXH3_64bits(place, sizeof place));
}

void convoy_bulk_address_encode(uint64_t incarnation, const void *link, size_t link_bytes, uint8_t *out)
{
    memcpy(out, ADDRESS_MAGIC, 4);
    convoy_bytes_put_u64(out + 4, incarnation);
    memcpy(out + BULK_ADDRESS_HEAD_BYTES, link, link_bytes);
}

bool convoy_bulk_address_decode(const void *bytes, size_t length, uint64_t *incarnation_out)
{
    struct convoy_reader reader = convoy_reader_of(bytes, length);
    bool is_address = convoy_reader_is(&reader, ADDRESS_MAGIC, 4);
    uint64_t incarnation = convoy_reader_u64(&reader);
    if (!is_address || incarnation == 0 || reader.left == 0) { /* the address of the link follows */
        return false;
    }
    *incarnation_out = incarnation;
    return true;
}
