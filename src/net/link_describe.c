/* SPDX-License-Identifier: Apache-2.0 */
#include "net/link_parts.h"

#include <arpa/inet.h>
#include <string.h>

#define TEXT_TRIES 1000 /* its writer may be off its processor in the middle of a change */

const char *convoy_link_state_text(enum convoy_link_state state)
{
    switch (state) {
    case CONVOY_LINK_NONE:
        return "none";
    case CONVOY_LINK_UP:
        return "up";
    case CONVOY_LINK_FAILED:
        return "failed";
    }
    return "unknown";
}

/* No word is seen before `writes` is odd, nor the even one before all words are. */
void convoy_link_text_write(struct link_text *to, const char text[CONVOY_LINK_TRANSPORTS_BYTES])
{
    uint64_t words[LINK_TEXT_WORDS];
    uint64_t writes = to->writes;
    memcpy(words, text, sizeof words);
    __atomic_store_n(&to->writes, writes + 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < LINK_TEXT_WORDS; i++) {
        __atomic_store_n(&to->words[i], words[i], __ATOMIC_RELEASE);
    }
    __atomic_store_n(&to->writes, writes + 2, __ATOMIC_RELEASE);
}

static void text_read(const struct link_text *from, char text_out[CONVOY_LINK_TRANSPORTS_BYTES])
{
    for (int i = 0; i < TEXT_TRIES; i++) {
        uint64_t words[LINK_TEXT_WORDS];
        uint64_t before = __atomic_load_n(&from->writes, __ATOMIC_ACQUIRE);
        for (size_t word = 0; word < LINK_TEXT_WORDS; word++) {
            words[word] = __atomic_load_n(&from->words[word], __ATOMIC_ACQUIRE);
        }
        if (before % 2 == 0 && __atomic_load_n(&from->writes, __ATOMIC_RELAXED) == before) {
            memcpy(text_out, words, sizeof words);
            return;
        }
    }
    text_out[0] = '\0';
}

void convoy_link_peer_transports(const struct convoy_link *link, uint32_t peer,
                                 char text_out[CONVOY_LINK_TRANSPORTS_BYTES])
{
    assert(peer < link->options.peer_count);
    text_read(&link->endpoints[peer].transports, text_out);
}

static json_t *describe_lane(const struct convoy_lane *lane)
{
    char address[INET6_ADDRSTRLEN] = "";
    if (lane->address.family != 0) {
        (void)inet_ntop(lane->address.family == 4 ? AF_INET : AF_INET6, lane->address.bytes, address, sizeof address);
    }
    return json_pack("{s:s, s:s, s:b}", "device", lane->name[0] != '\0' ? lane->name : "any", "address", address,
                     "fabric", (int)lane->has_fabric);
}

static json_t *describe_endpoint(const struct convoy_link *link, uint32_t peer)
{
    const struct link_endpoint *endpoint = &link->endpoints[peer];
    const struct convoy_lane *lane = &link->set.lanes[__atomic_load_n(&endpoint->lane, __ATOMIC_RELAXED)];
    char transports[CONVOY_LINK_TRANSPORTS_BYTES];
    text_read(&endpoint->transports, transports);
    return json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:I}", "peer", (int)peer, "state",
                     convoy_link_state_text(link_state(endpoint)), "transports", transports, "device",
                     lane->name[0] != '\0' ? lane->name : "any", "messages_sent",
                     (json_int_t)link_read(&endpoint->sent_messages), "bytes_sent",
                     (json_int_t)link_read(&endpoint->sent_bytes), "messages_inline",
                     (json_int_t)link_read(&endpoint->inline_messages));
}

json_t *convoy_link_describe(const struct convoy_link *link)
{
    json_t *lanes = json_array();
    json_t *endpoints = json_array();
    for (uint32_t i = 0; i < link->set.count; i++) {
        (void)json_array_append_new(lanes, describe_lane(&link->set.lanes[i]));
    }
    for (uint32_t i = 0; i < link->options.peer_count; i++) {
        if (link_state(&link->endpoints[i]) != CONVOY_LINK_NONE) {
            (void)json_array_append_new(endpoints, describe_endpoint(link, i));
        }
    }
    return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I}", "lanes", lanes, "endpoints", endpoints, "messages_received",
                     (json_int_t)link_read(&link->received_messages), "bytes_received",
                     (json_int_t)link_read(&link->received_bytes), "messages_refused",
                     (json_int_t)link_read(&link->refused_messages), "sleeps", (json_int_t)link_read(&link->sleeps));
}
