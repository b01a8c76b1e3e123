/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Session ids: "host:port+incarnation", host a name, an IPv4 or an [IPv6] address, incarnation 16 hexadecimal digits. They
 * stand where hosts put host:port today. Pure.
 */
#ifndef CONVOY_XFER_SESSION_H
#define CONVOY_XFER_SESSION_H

#include "convoy/transfer.h"
#include "net/rendezvous.h"

struct convoy_session {
    struct convoy_rendezvous where;
    uint64_t incarnation; /* 0 = not said: whoever is there */
};

/* false: it does not fit CONVOY_SESSION_BYTES. */
bool convoy_session_format(const struct convoy_session *session, char text_out[CONVOY_SESSION_BYTES]);

/* INVALID_ARGUMENT: what is wrong, and how one looks. Without "+..." the incarnation is 0. */
int32_t convoy_session_parse(const char *text, size_t length, struct convoy_session *session_out,
                             struct convoy_error *error);

#endif
