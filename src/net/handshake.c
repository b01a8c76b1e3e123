/* SPDX-License-Identifier: Apache-2.0 */
#include "net/handshake.h"

#include "core/error.h"
#include "core/memory.h"
#include "net/frame.h"

#include <sys/socket.h>
#include <string.h>

static struct convoy_auth_text runtime_key(const struct convoy_runtime *runtime)
{
    return (struct convoy_auth_text){.bytes = runtime->secret, .count = runtime->secret_bytes};
}

int32_t convoy_handshake_hello(struct convoy_runtime *runtime, struct convoy_hello *hello_out,
                               struct convoy_error *error)
{
    *hello_out = (struct convoy_hello){
        .wire_min = runtime->wire_min, .wire_max = runtime->wire_max, .incarnation = runtime->incarnation};
    memcpy(hello_out->build_id, runtime->build_id, sizeof hello_out->build_id);
    return convoy_runtime_random(hello_out->nonce, sizeof hello_out->nonce, error);
}

/* -- listener's side --------------------------------------------------------------------------------------------- */

/* Reads what is there, at most up to `bytes` in all. OK: all there. */
static int32_t step_read(int fd, uint8_t *at, uint32_t bytes, uint32_t *done)
{
    while (*done < bytes) {
        ssize_t got = recv(fd, at + *done, bytes - *done, 0);
        if (got > 0) {
            *done += (uint32_t)got;
        } else if (got < 0 && errno == EAGAIN) {
            return CONVOY_IN_PROGRESS;
        } else if (got == 0 || errno != EINTR) {
            return CONVOY_PEER_LOST;
        }
    }
    return CONVOY_OK;
}

/* The first 64 bytes, then as many as they announce. A stranger is told by whatever it has sent so far. */
static int32_t step_read_hello(struct convoy_handshake *handshake)
{
    uint32_t length = CONVOY_HELLO_FIXED_BYTES;
    int32_t status = step_read(handshake->fd, handshake->theirs, length, &handshake->theirs_bytes);
    int32_t known = convoy_hello_length(handshake->theirs, handshake->theirs_bytes, &length);
    if (known == CONVOY_MALFORMED) {
        return CONVOY_MALFORMED;
    }
    if (status == CONVOY_OK) {
        status = step_read(handshake->fd, handshake->theirs, length, &handshake->theirs_bytes);
    }
    return status;
}

static void handshake_mac(const struct convoy_handshake *handshake, const struct convoy_runtime *runtime,
                          enum convoy_auth_role role, uint8_t mac_out[CONVOY_AUTH_BYTES])
{
    const struct convoy_auth_text texts[2] = {
        {.bytes = handshake->theirs, .count = handshake->theirs_bytes},
        {.bytes = handshake->ours, .count = handshake->ours_bytes},
    };
    convoy_auth_mac(runtime_key(runtime), role, texts, 2, mac_out);
}

static int32_t step_answer(struct convoy_handshake *handshake, struct convoy_runtime *runtime)
{
    struct convoy_hello hello;
    uint8_t bytes[CONVOY_HELLO_BYTES_MAX];
    if (convoy_handshake_hello(runtime, &hello, NULL) != CONVOY_OK) {
        return CONVOY_SYSTEM;
    }
    handshake->ours_bytes = (uint32_t)convoy_hello_encode(&hello, bytes);
    memcpy(handshake->ours, bytes, handshake->ours_bytes);
    handshake_mac(handshake, runtime, CONVOY_AUTH_LISTENER, handshake->ours + handshake->ours_bytes);
    size_t answer = handshake->ours_bytes + CONVOY_AUTH_BYTES;
    /* nothing was sent before, so these few bytes fit the socket's buffer; what does not take them is no member */
    return send(handshake->fd, handshake->ours, answer, MSG_NOSIGNAL) == (ssize_t)answer ? CONVOY_OK : CONVOY_PEER_LOST;
}

int32_t convoy_handshake_step(struct convoy_handshake *handshake, struct convoy_runtime *runtime)
{
    if (handshake->ours_bytes == 0) {
        int32_t status = step_read_hello(handshake);
        if (status == CONVOY_OK) {
            status = step_answer(handshake, runtime);
        }
        if (status != CONVOY_OK) {
            return status;
        }
    }
    int32_t status = step_read(handshake->fd, handshake->mac, CONVOY_AUTH_BYTES, &handshake->mac_bytes);
    if (status != CONVOY_OK) {
        return status;
    }
    uint8_t expected[CONVOY_AUTH_BYTES];
    handshake_mac(handshake, runtime, CONVOY_AUTH_CONNECTOR, expected);
    return convoy_auth_equal(expected, handshake->mac) ? CONVOY_OK : CONVOY_UNAUTHENTICATED;
}

/* -- connector's side -------------------------------------------------------------------------------------------- */

struct both_hellos {
    uint8_t ours[CONVOY_HELLO_BYTES_MAX];
    uint8_t theirs[CONVOY_HELLO_BYTES_MAX];
    struct convoy_auth_text texts[2];
};

static int32_t connect_lost(struct convoy_error *error, int32_t status)
{
    switch (status) {
    case CONVOY_OK:
    case CONVOY_CANCELED:
        return status;
    case CONVOY_TIMED_OUT:
        return convoy_error_set(error, status, "no answer to the hello");
    case CONVOY_MALFORMED:
        return convoy_error_set(error, status, "what answers there does not speak convoy");
    default:
        return convoy_error_set(error, status, "the connection ended during the hello");
    }
}

static int32_t connect_read_hello(int fd, const struct convoy_wait *wait, struct both_hellos *both)
{
    uint32_t length = 0;
    int32_t status = convoy_frame_wait_read(fd, wait, both->theirs, CONVOY_HELLO_FIXED_BYTES);
    if (status == CONVOY_OK) {
        status = convoy_hello_length(both->theirs, CONVOY_HELLO_FIXED_BYTES, &length);
    }
    if (status == CONVOY_OK) {
        status = convoy_frame_wait_read(fd, wait, both->theirs + CONVOY_HELLO_FIXED_BYTES,
                                        length - CONVOY_HELLO_FIXED_BYTES);
    }
    both->texts[1] = (struct convoy_auth_text){.bytes = both->theirs, .count = length};
    return status;
}

/* Exchanges the MACs. Ours goes out even if theirs is wrong: both sides then know the reason. */
static int32_t connect_prove(const struct convoy_runtime *runtime, int fd, const struct convoy_wait *wait,
                             struct both_hellos *both)
{
    uint8_t mac[CONVOY_AUTH_BYTES];
    uint8_t expected[CONVOY_AUTH_BYTES];
    uint8_t theirs[CONVOY_AUTH_BYTES];
    convoy_auth_mac(runtime_key(runtime), CONVOY_AUTH_CONNECTOR, both->texts, 2, mac);
    convoy_auth_mac(runtime_key(runtime), CONVOY_AUTH_LISTENER, both->texts, 2, expected);
    int32_t status = convoy_frame_wait_read(fd, wait, theirs, sizeof theirs);
    if (status == CONVOY_OK) {
        status = convoy_frame_wait_write(fd, wait, mac, sizeof mac);
    }
    if (status == CONVOY_OK && !convoy_auth_equal(theirs, expected)) {
        return CONVOY_UNAUTHENTICATED;
    }
    return status;
}

static int32_t connect_exchange(struct convoy_runtime *runtime, int fd, const struct convoy_wait *wait,
                                struct both_hellos *both, struct convoy_error *error)
{
    int32_t status = convoy_frame_wait_write(fd, wait, both->texts[0].bytes, both->texts[0].count);
    if (status == CONVOY_OK) {
        status = connect_read_hello(fd, wait, both);
    }
    if (status == CONVOY_OK) {
        status = connect_prove(runtime, fd, wait, both);
    }
    if (status == CONVOY_UNAUTHENTICATED) {
        return convoy_error_set(error, status, "the listener does not hold the same secret");
    }
    return connect_lost(error, status);
}

int32_t convoy_handshake_connect(struct convoy_runtime *runtime, int fd, const struct convoy_wait *wait,
                                 const struct convoy_hello *ours, struct convoy_hello *theirs_out,
                                 struct convoy_error *error)
{
    struct both_hellos *both = convoy_memory_zalloc(sizeof *both);
    if (both == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %zu bytes of hellos", sizeof *both);
    }
    both->texts[0] = (struct convoy_auth_text){.bytes = both->ours, .count = convoy_hello_encode(ours, both->ours)};
    int32_t status = connect_exchange(runtime, fd, wait, both, error);
    if (status == CONVOY_OK) {
        status = convoy_hello_decode(both->theirs, both->texts[1].count, theirs_out, error);
    }
    if (status == CONVOY_OK) {
        theirs_out->group = (struct convoy_hello_group){.name = NULL}; /* it would point into freed memory */
    }
    convoy_memory_free(both);
    return status;
}
