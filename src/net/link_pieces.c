/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting messages together that came in pieces (link_queue.c). A sender's pieces come in order, since they share one
 * connection; a piece that does not continue what is here was overtaken by a new connection, and its message is lost
 * with the old one.
 */
#include "net/link_parts.h"

#include "core/memory.h"

#include <string.h>

/* The sender's assembly, or one to start with: an unused one, else the one that has been quiet longest. */
static struct link_assembly *pieces_find(struct convoy_link *link, uint64_t sender)
{
    struct link_assembly *oldest = &link->assemblies[0];
    for (uint32_t i = 0; i < link->options.peer_count; i++) {
        struct link_assembly *assembly = &link->assemblies[i];
        if (assembly->sender == sender) {
            return assembly;
        }
        oldest = assembly->used < oldest->used ? assembly : oldest;
    }
    *oldest = (struct link_assembly){.sender = sender, .bytes = oldest->bytes};
    return oldest;
}

static bool pieces_check(const struct convoy_link *link, const struct link_piece *piece, size_t bytes)
{
    return piece->header_bytes <= CONVOY_LINK_HEADER_MAX && piece->header_bytes <= piece->total &&
           piece->total - piece->header_bytes <= link->options.message_bytes_max && piece->offset <= piece->total &&
           bytes != 0 && bytes <= piece->total - piece->offset;
}

static bool pieces_take(struct convoy_link *link, struct link_assembly *assembly, const struct link_piece *piece)
{
    assembly->used = ++link->pieces_received;
    if (piece->offset == 0) {
        if (assembly->bytes == NULL) {
            assembly->bytes = convoy_memory_zalloc(CONVOY_LINK_HEADER_MAX + link->options.message_bytes_max);
        }
        assembly->sequence = piece->sequence;
        assembly->total = piece->total;
        assembly->done = 0;
    }
    return assembly->bytes != NULL && assembly->sequence == piece->sequence && assembly->total == piece->total &&
           assembly->done == piece->offset;
}

void convoy_link_pieces_receive(struct convoy_link *link, const void *header, size_t header_bytes, const void *data,
                                size_t bytes)
{
    struct link_piece piece;
    if (header_bytes != sizeof piece) {
        link_count(&link->refused_messages, 1);
        return;
    }
    memcpy(&piece, header, sizeof piece);
    if (!pieces_check(link, &piece, bytes)) {
        link_count(&link->refused_messages, 1);
        return;
    }
    struct link_assembly *assembly = pieces_find(link, piece.sender);
    if (!pieces_take(link, assembly, &piece)) {
        link_count(&link->refused_messages, 1);
        return;
    }
    memcpy(assembly->bytes + assembly->done, data, bytes);
    assembly->done += (uint32_t)bytes;
    if (assembly->done == assembly->total) {
        convoy_link_deliver(link, assembly->bytes, piece.header_bytes, assembly->bytes + piece.header_bytes,
                            assembly->total - piece.header_bytes);
    }
}

void convoy_link_pieces_free(struct convoy_link *link)
{
    for (uint32_t i = 0; link->assemblies != NULL && i < link->options.peer_count; i++) {
        convoy_memory_free(link->assemblies[i].bytes);
    }
    convoy_memory_free(link->assemblies);
}
