/* SPDX-License-Identifier: Apache-2.0 */
#include "net/bootstrap.h"

#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"
#include "net/auth.h"
#include "net/carrier.h"
#include "net/handshake.h"
#include "net/message.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* -- one member alone -------------------------------------------------------------------------------------------- */

static int32_t solo_connect(struct convoy_bootstrap *bootstrap, struct convoy_error *error)
{
    bootstrap->wire = bootstrap->runtime->wire_max;
    return convoy_carrier_offer(bootstrap, &bootstrap->epoch, bootstrap->salt, error);
}

static int32_t solo_exchange(struct convoy_bootstrap *bootstrap, const struct convoy_blob *mine,
                             struct convoy_blob *blobs_out, struct convoy_error *error)
{
    uint8_t *copy = convoy_memory_zalloc(mine->bytes); /* the caller's bytes need not outlive the call */
    if (copy == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a blob of %zu bytes", mine->bytes);
    }
    if (mine->bytes != 0) {
        memcpy(copy, mine->data, mine->bytes);
    }
    convoy_memory_free(bootstrap->state);
    bootstrap->state = copy;
    blobs_out[0] = (struct convoy_blob){.data = copy, .bytes = mine->bytes};
    return CONVOY_OK;
}

static void solo_fail(struct convoy_bootstrap *bootstrap, const struct convoy_error *cause)
{
    (void)bootstrap;
    (void)cause;
}

static void solo_close(struct convoy_bootstrap *bootstrap)
{
    convoy_memory_free(bootstrap->state);
}

static const struct convoy_carrier carrier_solo = {
    .connect = solo_connect, .exchange = solo_exchange, .fail = solo_fail, .close = solo_close};

/* -- for the carriers -------------------------------------------------------------------------------------------- */

int32_t convoy_carrier_offer(const struct convoy_bootstrap *bootstrap, uint64_t *epoch_out,
                             uint8_t salt_out[CONVOY_HELLO_SALT_BYTES], struct convoy_error *error)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t picked = (uint64_t)now.tv_sec * CONVOY_NS_PER_S + (uint64_t)now.tv_nsec;
    *epoch_out = bootstrap->options->epoch != 0 ? bootstrap->options->epoch : picked;
    return convoy_runtime_random(salt_out, CONVOY_HELLO_SALT_BYTES, error);
}

int32_t convoy_carrier_say_canceled(const struct convoy_bootstrap *bootstrap, struct convoy_error *error)
{
    int32_t id = bootstrap->options->own_id;
    return convoy_error_set_peer(error, CONVOY_PEER_LOST, id, 0, "member %d canceled the opening", id);
}

/* -- opening ----------------------------------------------------------------------------------------------------- */

static const struct convoy_carrier *bootstrap_carrier(const struct convoy_group_options *options)
{
    if (options->member_count == 1) {
        return &carrier_solo;
    }
    if (options->allgather != NULL) {
        return &convoy_carrier_gather;
    }
    return options->own_index == options->listener_index ? &convoy_carrier_server : &convoy_carrier_client;
}

static int32_t bootstrap_fill_hello(struct convoy_bootstrap *bootstrap, struct convoy_error *error)
{
    const struct convoy_group_options *options = bootstrap->options;
    struct convoy_hello *hello = &bootstrap->hello;
    int32_t status = convoy_handshake_hello(bootstrap->runtime, hello, error);
    hello->epoch = options->epoch;
    hello->has_group = true;
    hello->group = (struct convoy_hello_group){
        .name = options->name,
        .name_length = (uint32_t)options->name_length,
        .member_ids = options->member_ids,
        .member_count = (uint32_t)options->member_count,
        .own_index = options->own_index,
        .own_id = options->own_id,
        .listener_index = options->listener_index,
        .blob_bytes_max = options->blob_bytes_max,
        .policy = options->critical_flags,
    };
    return status;
}

int32_t convoy_bootstrap_create(struct convoy_runtime *runtime, const struct convoy_group_options *options,
                                uint64_t deadline_ns, struct convoy_bootstrap **bootstrap_out,
                                struct convoy_error *error)
{
    struct convoy_bootstrap *bootstrap = convoy_memory_zalloc(sizeof *bootstrap);
    if (bootstrap == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to open a group");
    }
    bootstrap->runtime = runtime;
    bootstrap->options = options;
    bootstrap->carrier = bootstrap_carrier(options);
    bootstrap->wait = (struct convoy_wait){.cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                           .deadline_ns = deadline_ns};
    int32_t status = CONVOY_OK;
    if (bootstrap->wait.cancel_fd < 0) {
        status = convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "no descriptor to open a group");
    } else {
        status = bootstrap_fill_hello(bootstrap, error);
    }
    if (status != CONVOY_OK) {
        convoy_bootstrap_close(bootstrap);
        return status;
    }
    *bootstrap_out = bootstrap;
    return CONVOY_OK;
}

/* Ends a failed step: names the group, gives the caller the error, says that it is over. */
static int32_t bootstrap_fail_step(struct convoy_bootstrap *bootstrap, int32_t status, struct convoy_error *own,
                                   struct convoy_error *error)
{
    const struct convoy_group_options *options = bootstrap->options;
    bootstrap->is_over = true;
    if (status == CONVOY_CANCELED) {
        (void)convoy_error_set(own, status, "opening was canceled");
    }
    (void)convoy_error_prefix(own, status, "group %.*s", (int)(options->name_length < 64 ? options->name_length : 64),
                              options->name);
    if (error != NULL) {
        struct convoy_notice notice;
        convoy_notice_from_error(&notice, own, 0);
        (void)convoy_notice_to_error(&notice, error);
    }
    return status;
}

/* The token: whoever hears the salt on the wire, but does not hold the secret, cannot make it. */
static void bootstrap_make_session(const struct convoy_bootstrap *bootstrap, uint8_t session_out[CONVOY_AUTH_BYTES])
{
    uint8_t epoch[8];
    convoy_bytes_put_u64(epoch, bootstrap->epoch);
    const struct convoy_runtime *runtime = bootstrap->runtime;
    const struct convoy_auth_text key = {.bytes = runtime->secret, .count = runtime->secret_bytes};
    const struct convoy_auth_text texts[3] = {
        {.bytes = bootstrap->salt, .count = sizeof bootstrap->salt},
        {.bytes = epoch, .count = sizeof epoch},
        {.bytes = bootstrap->options->name, .count = bootstrap->options->name_length},
    };
    convoy_auth_mac(key, CONVOY_AUTH_SESSION, texts, 3, session_out);
}

int32_t convoy_bootstrap_connect(struct convoy_bootstrap *bootstrap, struct convoy_agreement *agreement_out,
                                 struct convoy_error *error)
{
    struct convoy_error own = CONVOY_ERROR_INIT;
    int32_t status = bootstrap->is_canceled ? CONVOY_CANCELED : bootstrap->carrier->connect(bootstrap, &own);
    if (status != CONVOY_OK) {
        return bootstrap_fail_step(bootstrap, status, &own, error);
    }
    agreement_out->epoch = bootstrap->epoch;
    agreement_out->wire = bootstrap->wire;
    bootstrap_make_session(bootstrap, agreement_out->session);
    return CONVOY_OK;
}

int32_t convoy_bootstrap_open(struct convoy_runtime *runtime, const struct convoy_group_options *options,
                              uint64_t deadline_ns, struct convoy_bootstrap **bootstrap_out,
                              struct convoy_agreement *agreement_out, struct convoy_error *error)
{
    struct convoy_bootstrap *bootstrap;
    int32_t status = convoy_bootstrap_create(runtime, options, deadline_ns, &bootstrap, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_bootstrap_connect(bootstrap, agreement_out, error);
    if (status != CONVOY_OK) {
        convoy_bootstrap_close(bootstrap);
        return status;
    }
    *bootstrap_out = bootstrap;
    return CONVOY_OK;
}

int32_t convoy_bootstrap_exchange(struct convoy_bootstrap *bootstrap, const void *mine, size_t bytes,
                                  struct convoy_blob *blobs_out, struct convoy_error *error)
{
    if (bytes > CONVOY_BOOTSTRAP_BLOB_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "a blob of %zu bytes is longer than %u", bytes,
                                CONVOY_BOOTSTRAP_BLOB_MAX);
    }
    if (bootstrap->is_over) {
        return convoy_error_set(error, CONVOY_BAD_STATE, "an earlier step of opening this group has failed");
    }
    struct convoy_error own = CONVOY_ERROR_INIT;
    const struct convoy_blob blob = {.data = mine, .bytes = bytes};
    bootstrap->sequence++;
    int32_t status = bootstrap->carrier->exchange(bootstrap, &blob, blobs_out, &own);
    return status == CONVOY_OK ? CONVOY_OK : bootstrap_fail_step(bootstrap, status, &own, error);
}

void convoy_bootstrap_fail(struct convoy_bootstrap *bootstrap, const struct convoy_error *cause)
{
    if (bootstrap->is_over || bootstrap->state == NULL) {
        return;
    }
    bootstrap->is_over = true;
    bootstrap->carrier->fail(bootstrap, cause);
}

void convoy_bootstrap_cancel(struct convoy_bootstrap *bootstrap)
{
    bootstrap->is_canceled = true;
    (void)!eventfd_write(bootstrap->wait.cancel_fd, 1);
}

void convoy_bootstrap_close(struct convoy_bootstrap *bootstrap)
{
    if (bootstrap == NULL) {
        return;
    }
    if (bootstrap->state != NULL) {
        bootstrap->carrier->close(bootstrap);
    }
    if (bootstrap->wait.cancel_fd >= 0) {
        (void)close(bootstrap->wait.cancel_fd);
    }
    convoy_memory_free(bootstrap);
}
