/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/introduce.h"

#include "core/bytes.h"
#include "core/error.h"
#include "core/utf8.h"

#include <string.h>

/* 0 version 4 | 4 flags 4 | 8 asked 8 | 16 incarnation 8 | 24 pool bytes 8 | 32 key flags 4 | 36 zero 4 | 40 boot 16 |
 * 56 network 16 | 72 directory 16 | 88 token 32 | 120 socket 32 | 152 nonce 16 | 168 session 128 | 296 context 8 |
 * 304 pool address 8 | 312 token address 8 */
enum {
    BOOT_AT = 40,
    NETWORK_AT = 56,
    DIRECTORY_AT = 72,
    TOKEN_AT = 88,
    SOCKET_AT = 120,
    NONCE_AT = 152,
    SESSION_AT = 168,
    CONTEXT_AT = 296,
};

void convoy_introduction_encode(const struct convoy_introduction *introduction,
                                uint8_t bytes_out[CONVOY_INTRODUCE_BYTES])
{
    const struct convoy_host_keys *keys = &introduction->keys;
    memset(bytes_out, 0, CONVOY_INTRODUCE_BYTES);
    convoy_bytes_put_u32(bytes_out, CONVOY_INTRODUCE_VERSION);
    convoy_bytes_put_u32(bytes_out + 4, introduction->flags);
    convoy_bytes_put_u64(bytes_out + 8, introduction->asked);
    convoy_bytes_put_u64(bytes_out + 16, introduction->incarnation);
    convoy_bytes_put_u64(bytes_out + 24, introduction->pool_bytes);
    convoy_bytes_put_u64(bytes_out + CONTEXT_AT, introduction->context);
    convoy_bytes_put_u64(bytes_out + CONTEXT_AT + 8, introduction->pool_address);
    convoy_bytes_put_u64(bytes_out + CONTEXT_AT + 16, introduction->token_address);
    convoy_bytes_put_u32(bytes_out + 32, keys->flags);
    memcpy(bytes_out + BOOT_AT, keys->boot, sizeof keys->boot);
    for (uint32_t i = 0; i < 2; i++) {
        convoy_bytes_put_u64(bytes_out + NETWORK_AT + 8 * i, keys->network[i]);
        convoy_bytes_put_u64(bytes_out + DIRECTORY_AT + 8 * i, keys->directory[i]);
    }
    memcpy(bytes_out + TOKEN_AT, introduction->token, sizeof introduction->token);
    memcpy(bytes_out + SOCKET_AT, introduction->socket, sizeof introduction->socket);
    memcpy(bytes_out + NONCE_AT, introduction->nonce, sizeof introduction->nonce);
    memcpy(bytes_out + SESSION_AT, introduction->session, sizeof introduction->session);
}

static void decode_keys(const uint8_t *data, struct convoy_host_keys *keys)
{
    keys->flags = convoy_bytes_u32(data + 32);
    memcpy(keys->boot, data + BOOT_AT, sizeof keys->boot);
    for (uint32_t i = 0; i < 2; i++) {
        keys->network[i] = convoy_bytes_u64(data + NETWORK_AT + 8 * i);
        keys->directory[i] = convoy_bytes_u64(data + DIRECTORY_AT + 8 * i);
    }
}

int32_t convoy_introduction_decode(const uint8_t *data, size_t bytes, struct convoy_introduction *introduction_out,
                                   struct convoy_error *error)
{
    if (bytes < 4 || (bytes != CONVOY_INTRODUCE_BYTES && convoy_bytes_u32(data) == CONVOY_INTRODUCE_VERSION)) {
        return convoy_error_set(error, CONVOY_MALFORMED, "an introduction of %zu bytes, it has %u", bytes,
                                CONVOY_INTRODUCE_BYTES);
    }
    if (convoy_bytes_u32(data) != CONVOY_INTRODUCE_VERSION) {
        return convoy_error_set(error, CONVOY_VERSION_MISMATCH, "transfer wire version %u there, %u here",
                                convoy_bytes_u32(data), CONVOY_INTRODUCE_VERSION);
    }
    struct convoy_introduction read = {
        .flags = convoy_bytes_u32(data + 4),
        .asked = convoy_bytes_u64(data + 8),
        .incarnation = convoy_bytes_u64(data + 16),
        .pool_bytes = convoy_bytes_u64(data + 24),
        .context = convoy_bytes_u64(data + CONTEXT_AT),
        .pool_address = convoy_bytes_u64(data + CONTEXT_AT + 8),
        .token_address = convoy_bytes_u64(data + CONTEXT_AT + 16),
    };
    decode_keys(data, &read.keys);
    memcpy(read.token, data + TOKEN_AT, sizeof read.token);
    memcpy(read.socket, data + SOCKET_AT, sizeof read.socket);
    memcpy(read.nonce, data + NONCE_AT, sizeof read.nonce);
    memcpy(read.session, data + SESSION_AT, sizeof read.session);
    if (read.session[sizeof read.session - 1] != '\0' || read.incarnation == 0 ||
        !convoy_utf8_is_clean(read.session, strlen(read.session))) {
        return convoy_error_set(error, CONVOY_MALFORMED, "an introduction without a session id or an incarnation");
    }
    *introduction_out = read;
    return CONVOY_OK;
}
