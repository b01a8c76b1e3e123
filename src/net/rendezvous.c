/* SPDX-License-Identifier: Apache-2.0 */
#include "net/rendezvous.h"

#include "core/error.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

static const char scheme[] = "tcp://";

/* -- the text ---------------------------------------------------------------------------------------------------- */

static int32_t parse_refuse(const char *text, size_t length, const char *what, struct convoy_error *error)
{
    int shown = length < 100 ? (int)length : 100;
    return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "rendezvous \"%.*s\": %s", shown, text, what);
}

static bool parse_port(const char *text, size_t length, uint16_t *port_out)
{
    uint32_t port = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || i >= 5) {
            return false;
        }
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    *port_out = (uint16_t)port;
    return port >= 1 && port <= 65535;
}

/* Splits "host:port" or "[host]:port". Returns what is wrong, or NULL. */
static const char *parse_authority(const char *text, size_t length, struct convoy_rendezvous *out)
{
    bool has_brackets = length != 0 && text[0] == '[';
    const char *end = has_brackets ? memchr(text, ']', length) : memrchr(text, ':', length);
    if (end == NULL) {
        return has_brackets ? "the bracket is not closed" : "the port is missing; it looks like tcp://host:port";
    }
    const char *host = text + has_brackets;
    size_t host_length = (size_t)(end - host);
    const char *colon = end + has_brackets;
    if (colon >= text + length || *colon != ':') {
        return "the port is missing; it looks like tcp://[address]:port";
    }
    if (host_length == 0 || host_length >= sizeof out->host || memchr(host, '\0', host_length) != NULL) {
        return "the host is empty or longer than 255 bytes";
    }
    if (!has_brackets && memchr(host, ':', host_length) != NULL) {
        return "an IPv6 address must be in brackets";
    }
    memcpy(out->host, host, host_length);
    out->host[host_length] = '\0';
    return parse_port(colon + 1, (size_t)(text + length - colon) - 1, &out->port) ? NULL
                                                                                  : "the port must be 1 to 65535";
}

int32_t convoy_rendezvous_parse(const char *text, size_t length, const char *name, size_t name_length,
                                struct convoy_rendezvous *rendezvous_out, struct convoy_error *error)
{
    size_t skip = sizeof scheme - 1;
    if (length < skip || memcmp(text, scheme, skip) != 0) {
        return parse_refuse(text, length, "it must begin with tcp://", error);
    }
    const char *authority = text + skip;
    const char *slash = memchr(authority, '/', length - skip);
    size_t authority_length = slash != NULL ? (size_t)(slash - authority) : length - skip;
    struct convoy_rendezvous out;
    const char *wrong = parse_authority(authority, authority_length, &out);
    size_t path_length = slash != NULL ? length - skip - authority_length - 1 : 0;
    bool has_path = path_length != 0;
    if (wrong == NULL && has_path && (path_length != name_length || memcmp(slash + 1, name, name_length) != 0)) {
        wrong = "the path must be the name of the group, or be left out";
    }
    if (wrong != NULL) {
        return parse_refuse(text, length, wrong, error);
    }
    *rendezvous_out = out;
    return CONVOY_OK;
}

/* -- addresses --------------------------------------------------------------------------------------------------- */

socklen_t convoy_address_bytes(const union convoy_address *address)
{
    return address->any.sa_family == AF_INET6 ? sizeof address->v6 : sizeof address->v4;
}

bool convoy_address_is_wildcard(const union convoy_address *address)
{
    return address->any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr)
                                              : address->v4.sin_addr.s_addr == htonl(INADDR_ANY);
}

bool convoy_address_is_equal(const union convoy_address *one, const union convoy_address *other)
{
    if (one->any.sa_family != other->any.sa_family) {
        return false;
    }
    if (one->any.sa_family == AF_INET6) {
        return one->v6.sin6_port == other->v6.sin6_port && one->v6.sin6_scope_id == other->v6.sin6_scope_id &&
               memcmp(&one->v6.sin6_addr, &other->v6.sin6_addr, sizeof one->v6.sin6_addr) == 0;
    }
    return one->v4.sin_port == other->v4.sin_port && one->v4.sin_addr.s_addr == other->v4.sin_addr.s_addr;
}

void convoy_address_text(const union convoy_address *address, char text_out[CONVOY_ADDRESS_TEXT_BYTES])
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->any.sa_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof host);
        (void)snprintf(text_out, CONVOY_ADDRESS_TEXT_BYTES, "[%s]:%u", host, ntohs(address->v6.sin6_port));
    } else {
        (void)inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof host);
        (void)snprintf(text_out, CONVOY_ADDRESS_TEXT_BYTES, "%s:%u", host, ntohs(address->v4.sin_port));
    }
}

static bool address_is_loopback(const union convoy_address *address)
{
    if (address->any.sa_family == AF_INET6) {
        return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
    }
    return ntohl(address->v4.sin_addr.s_addr) >> 24 == 127;
}

static void list_add(struct convoy_address_list *list, const struct sockaddr *address, size_t bytes)
{
    if (list->count < CONVOY_RENDEZVOUS_ADDRESSES && bytes <= sizeof list->addresses[0]) {
        memcpy(&list->addresses[list->count++], address, bytes);
    }
}

/* Numeric first: it needs no resolver, no file and no time. Returns a getaddrinfo code. */
static int list_fill(const struct convoy_rendezvous *rendezvous, struct convoy_address_list *list, bool *is_literal)
{
    char port[8];
    (void)snprintf(port, sizeof port, "%u", rendezvous->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(rendezvous->host, port, &hints, &found);
    *is_literal = code == 0;
    if (code != 0) {
        hints.ai_flags = AI_NUMERICSERV;
        code = getaddrinfo(rendezvous->host, port, &hints, &found);
    }
    *list = (struct convoy_address_list){.count = 0};
    for (struct addrinfo *each = code == 0 ? found : NULL; each != NULL; each = each->ai_next) {
        list_add(list, each->ai_addr, each->ai_addrlen);
    }
    if (code == 0) {
        freeaddrinfo(found);
    }
    return code;
}

int32_t convoy_rendezvous_resolve(const struct convoy_rendezvous *rendezvous, struct convoy_address_list *list_out,
                                  struct convoy_error *error)
{
    bool is_literal;
    int code = list_fill(rendezvous, list_out, &is_literal);
    if (code != 0 || list_out->count == 0) {
        return convoy_error_set(error, CONVOY_UNREACHABLE, "host %.100s: %s", rendezvous->host,
                                code != 0 ? gai_strerror(code) : "no address");
    }
    return CONVOY_OK;
}

static void list_add_wildcard(struct convoy_address_list *list, int family, uint16_t port)
{
    if (family == AF_INET6) {
        const struct sockaddr_in6 any = {
            .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT};
        list_add(list, (const struct sockaddr *)&any, sizeof any);
    } else {
        const struct sockaddr_in any = {
            .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {.s_addr = htonl(INADDR_ANY)}};
        list_add(list, (const struct sockaddr *)&any, sizeof any);
    }
}

void convoy_rendezvous_candidates(const struct convoy_rendezvous *rendezvous, struct convoy_address_list *list_out)
{
    bool is_literal;
    struct convoy_address_list all;
    *list_out = (struct convoy_address_list){.count = 0};
    bool means_loopback = list_fill(rendezvous, &all, &is_literal) == 0 &&
                          (is_literal || strcmp(rendezvous->host, "localhost") == 0);
    for (uint32_t i = 0; i < all.count && i < CONVOY_RENDEZVOUS_ADDRESSES - 2; i++) {
        if (means_loopback || !address_is_loopback(&all.addresses[i])) {
            list_add(list_out, &all.addresses[i].any, convoy_address_bytes(&all.addresses[i]));
        }
    }
    int family = is_literal && all.count != 0 ? all.addresses[0].any.sa_family : AF_INET6;
    list_add_wildcard(list_out, family, rendezvous->port); /* IPv6's takes IPv4 too */
    if (!is_literal) {
        list_add_wildcard(list_out, AF_INET, rendezvous->port); /* where the kernel has no IPv6 */
    }
}
