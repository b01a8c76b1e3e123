/* SPDX-License-Identifier: Apache-2.0 */
#include "net/interfaces.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static bool address_from(const struct sockaddr *socket_address, struct convoy_interface_address *address_out)
{
    memset(address_out, 0, sizeof *address_out);
    if (socket_address == NULL) {
        return false;
    }
    if (socket_address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)socket_address;
        address_out->family = 4;
        memcpy(address_out->bytes, &in->sin_addr, 4);
        return true;
    }
    if (socket_address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)socket_address;
        address_out->family = 6;
        memcpy(address_out->bytes, &in6->sin6_addr, 16);
        return !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr); /* needs a scope, which differs from host to host */
    }
    return false;
}

static uint8_t prefix_of(const struct sockaddr *mask)
{
    struct convoy_interface_address bits;
    uint8_t prefix = 0;
    (void)address_from(mask, &bits);
    for (size_t i = 0; i < sizeof bits.bytes; i++) {
        prefix = (uint8_t)(prefix + __builtin_popcount(bits.bytes[i]));
    }
    return prefix;
}

/* The driver's name is the only thing that tells a bridge or a dummy from a device. */
static enum convoy_interface_kind kind_of(int fd, const char *name, unsigned flags)
{
    static const char *const inner[] = {"bridge", "dummy", "tun", "ifb", "openvswitch"};
    if ((flags & IFF_LOOPBACK) != 0) {
        return CONVOY_INTERFACE_LOOPBACK;
    }
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq request = {0};
    (void)snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    request.ifr_data = (void *)&info;
    if (fd < 0 || ioctl(fd, SIOCETHTOOL, &request) != 0) {
        return CONVOY_INTERFACE_PLAIN;
    }
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
        if (strcmp(info.driver, inner[i]) == 0) {
            return CONVOY_INTERFACE_INNER;
        }
    }
    return CONVOY_INTERFACE_PLAIN;
}

static struct convoy_interface *list_find(struct convoy_interface *interfaces, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(interfaces[i].name, name) == 0) {
            return &interfaces[i];
        }
    }
    return NULL;
}

/* Takes one row of getifaddrs; returns the new count. */
static uint32_t list_take(struct convoy_interface *interfaces, uint32_t count, uint32_t capacity, int fd,
                          const struct ifaddrs *row)
{
    struct convoy_interface_address address;
    if ((row->ifa_flags & IFF_UP) == 0 || (row->ifa_flags & IFF_RUNNING) == 0 ||
        strlen(row->ifa_name) >= CONVOY_INTERFACE_NAME_BYTES || !address_from(row->ifa_addr, &address)) {
        return count;
    }
    address.prefix = prefix_of(row->ifa_netmask);
    struct convoy_interface *known = list_find(interfaces, count, row->ifa_name);
    if (known != NULL) {
        if (known->address.family == 6 && address.family == 4) {
            known->address = address;
        }
        return count;
    }
    if (count == capacity) {
        return count;
    }
    struct convoy_interface *fresh = &interfaces[count];
    memset(fresh, 0, sizeof *fresh);
    (void)snprintf(fresh->name, sizeof fresh->name, "%s", row->ifa_name);
    fresh->kind = kind_of(fd, row->ifa_name, row->ifa_flags);
    fresh->address = address;
    return count + 1;
}

uint32_t convoy_interfaces_list(struct convoy_interface *interfaces_out, uint32_t capacity)
{
    struct ifaddrs *rows = NULL;
    uint32_t count = 0;
    if (getifaddrs(&rows) != 0) {
        return 0;
    }
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (const struct ifaddrs *row = rows; row != NULL; row = row->ifa_next) {
        count = list_take(interfaces_out, count, capacity, fd, row);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    freeifaddrs(rows);
    return count;
}

bool convoy_interfaces_route(const struct convoy_interface_address *to, struct convoy_interface_address *from_out)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    memcpy(&in.sin_addr, to->bytes, 4);
    memcpy(&in6.sin6_addr, to->bytes, 16);
    const struct sockaddr *target = to->family == 4 ? (const void *)&in : (const void *)&in6;
    socklen_t length = to->family == 4 ? sizeof in : sizeof in6;
    int fd = socket(target->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    struct sockaddr_storage own = {0};
    socklen_t own_length = sizeof own;
    bool has_route = connect(fd, target, length) == 0 && getsockname(fd, (void *)&own, &own_length) == 0 &&
                     address_from((const void *)&own, from_out);
    (void)close(fd);
    return has_route;
}

uint64_t convoy_interfaces_network(void)
{
    char text[96] = "";
    struct stat namespace_file = {0};
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, text, 36) < 0) {
            text[0] = '\0';
        }
        (void)close(fd);
    }
    (void)stat("/proc/self/ns/net", &namespace_file);
    (void)snprintf(text + 36, sizeof text - 36, ":%llu:%llu", (unsigned long long)namespace_file.st_dev,
                   (unsigned long long)namespace_file.st_ino);
    return XXH3_64bits(text, sizeof text);
}

static size_t address_bytes(const struct convoy_interface_address *address)
{
    return address->family == 4 ? 4 : 16;
}

bool convoy_interface_address_equal(const struct convoy_interface_address *a, const struct convoy_interface_address *b)
{
    return a->family != 0 && a->family == b->family && memcmp(a->bytes, b->bytes, address_bytes(a)) == 0;
}

bool convoy_interface_address_near(const struct convoy_interface_address *a, const struct convoy_interface_address *b)
{
    unsigned prefix = a->prefix > b->prefix ? a->prefix : b->prefix;
    if (a->family == 0 || a->family != b->family || prefix > 8 * address_bytes(a)) {
        return false;
    }
    for (unsigned bit = 0; bit < prefix; bit++) {
        if (((a->bytes[bit / 8] ^ b->bytes[bit / 8]) & (0x80u >> bit % 8)) != 0) {
            return false;
        }
    }
    return true;
}
