/* SPDX-License-Identifier: Apache-2.0 */
#include "net/auth.h"

#include "core/bytes.h"
#include "core/fault.h"

#include <sodium.h>

_Static_assert(CONVOY_AUTH_BYTES == crypto_auth_hmacsha256_BYTES, "size of the MAC");

void convoy_auth_mac(struct convoy_auth_text key, enum convoy_auth_role role, const struct convoy_auth_text *texts,
                     size_t text_count, uint8_t mac_out[CONVOY_AUTH_BYTES])
{
    static const char label[16] = "convoy hello v1"; /* keeps these MACs apart from other uses of the same secret */
    crypto_auth_hmacsha256_state state;
    uint8_t number[8];
    (void)crypto_auth_hmacsha256_init(&state, key.count != 0 ? key.bytes : (const void *)number, key.count);
    (void)crypto_auth_hmacsha256_update(&state, (const uint8_t *)label, sizeof label);
    convoy_bytes_put_u64(number, (uint64_t)role);
    (void)crypto_auth_hmacsha256_update(&state, number, sizeof number);
    for (size_t i = 0; i < text_count; i++) { /* lengths go in too: no two lists of texts look alike */
        convoy_bytes_put_u64(number, texts[i].count);
        (void)crypto_auth_hmacsha256_update(&state, number, sizeof number);
        (void)crypto_auth_hmacsha256_update(&state, texts[i].bytes, texts[i].count);
    }
    (void)crypto_auth_hmacsha256_final(&state, mac_out);
    sodium_memzero(&state, sizeof state);
}

bool convoy_auth_equal(const uint8_t one[CONVOY_AUTH_BYTES], const uint8_t other[CONVOY_AUTH_BYTES])
{
    return sodium_memcmp(one, other, CONVOY_AUTH_BYTES) == 0 || CONVOY_MUTATED(mac_not_checked);
}
