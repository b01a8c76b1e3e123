/* SPDX-License-Identifier: Apache-2.0 */
#include "net/link_parts.h"

#include <arpa/inet.h>

static const char *state_name(enum convoy_link_state state)
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
    const struct convoy_lane *lane = &link->set.lanes[endpoint->lane];
    return json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:I}", "peer", (int)peer, "state",
                     state_name(link_state(endpoint)), "transports", endpoint->transports, "device",
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
