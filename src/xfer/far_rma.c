/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool as memory that peers may put into, where UCX has lanes that truly do (net/link_rma.h). Each side gives the other the
 * key of its pool once both are connected. ROOM then says where in it the payload goes; the sender puts, flushes and says PUT,
 * or that it will not. Until that word, or until its connection is closed, the slot is referred to: what ends early meanwhile
 * is quarantined.
 */
#include "xfer/far.h"

#include "core/bytes.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/memory.h"
#include "net/link_rma.h"
#include "net/ucx.h"

#include <string.h>

/* A slot that a peer may put into. */
struct convoy_far_landing_put {
    struct convoy_far_landing_put *next;
    uint32_t peer;
    uint64_t landing;
    uint64_t generation;
    convoy_lease lease;
};

enum convoy_link_rma convoy_far_rma_kind(struct convoy_xfer *engine)
{
    const struct convoy_ucx *ucx = NULL;
    bool is_wanted = strcmp(engine->runtime->settings.net_rma, "never") != 0 &&
                     convoy_ucx_open(engine->runtime, &ucx, NULL) == CONVOY_OK;
    return is_wanted ? convoy_link_rma_best(&ucx->resources) : CONVOY_LINK_RMA_NEVER;
}

/* -- the own memory ------------------------------------------------------------------------------------------------ */

static int32_t memory_open(struct convoy_xfer *engine, struct convoy_far *far, void *address, uint64_t bytes,
                           struct convoy_error *error)
{
    int32_t status = convoy_bulk_memory_open(far->bulk, address, bytes, &far->memory, error);
    if (status == CONVOY_OK) {
        far->memory_at = convoy_bulk_memory_address(far->memory);
        far->memory_bytes = bytes;
    } else {
        convoy_log_line(&engine->runtime->log, CONVOY_LOG_WARN, "engine %s: no put into its pool: %s", engine->session,
                        error->text);
    }
    return status;
}

void convoy_far_rma_register(struct convoy_xfer *engine, struct convoy_far *far)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (far->rma == CONVOY_LINK_RMA_ANY && engine->pool != NULL && convoy_pool_bytes(engine->pool) != 0) {
        (void)memory_open(engine, far, convoy_pool_memory(engine->pool), convoy_pool_bytes(engine->pool), &error);
    }
}

/* Where UCX reaches only memory of its own making, and nobody is to map the pool, the pool is made of that. */
void *convoy_far_rma_pool(struct convoy_xfer *engine)
{
    const struct convoy_settings *settings = &engine->runtime->settings;
    const struct convoy_xfer_options *options = &engine->options;
    struct convoy_error error = CONVOY_ERROR_INIT;
    bool is_fit = strcmp(settings->net, "ucx") == 0 && settings->ucx_tls[0] != '\0' &&
                  options->pool_kind == CONVOY_MEMORY_SHARED && options->pool_bytes != 0;
    if (!is_fit || convoy_far_rma_kind(engine) != CONVOY_LINK_RMA_ALLOCATED ||
        convoy_far_open(engine, &error) != CONVOY_OK ||
        memory_open(engine, engine->far, NULL, options->pool_bytes, &error) != CONVOY_OK) {
        return NULL;
    }
    return engine->far->memory_at;
}

/* -- moving -------------------------------------------------------------------------------------------------------- */

static const struct convoy_bundle_field put_fields[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_far_landing_put, peer),
    CONVOY_BUNDLE_FIELD(2, struct convoy_far_landing_put, landing),
    CONVOY_BUNDLE_FIELD(3, struct convoy_far_landing_put, generation),
    CONVOY_BUNDLE_FIELD(4, struct convoy_far_landing_put, lease),
};
static const struct convoy_bundle_shape put_shape = {"landing_put", put_fields, sizeof put_fields / sizeof put_fields[0]};

void convoy_far_rma_save(const struct convoy_far *far, struct convoy_bundle_writer *writer, uint16_t tag)
{
    for (const struct convoy_far_landing_put *put = far->landing_puts; put != NULL; put = put->next) {
        size_t opened = convoy_bundle_open(writer, tag, 0);
        convoy_bundle_put_fields(writer, &put_shape, put);
        convoy_bundle_shut(writer, opened);
    }
}

int32_t convoy_far_rma_restore(struct convoy_far *far, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    struct convoy_far_landing_put *put = convoy_memory_zalloc(sizeof *put);
    int32_t status = put != NULL ? CONVOY_OK : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a landing");
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        status = one.tag == CONVOY_BUNDLE_FIELDS ? convoy_bundle_get_fields(&one, &put_shape, put, error)
                                                 : convoy_bundle_unknown(&one, put_shape.name, error);
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, put_shape.name, error) : status;
    if (status != CONVOY_OK) {
        convoy_memory_free(put);
        return status;
    }
    put->next = far->landing_puts;
    far->landing_puts = put;
    return CONVOY_OK;
}

/* -- keys ---------------------------------------------------------------------------------------------------------- */

void convoy_far_rma_hello(struct convoy_xfer *engine, uint32_t peer)
{
    if (engine->far->memory != NULL) {
        convoy_far_say_key(engine, peer);
    }
}

/* Which the peer may use from now on, if its lanes have what it takes. */
void convoy_far_run_key(struct convoy_xfer *engine, uint32_t peer)
{
    struct convoy_far *far = engine->far;
    uint8_t frame[CONVOY_FAR_FRAME_HEAD_BYTES + CONVOY_BULK_KEY_BYTES_MAX] = {0};
    uint8_t *key = frame + CONVOY_FAR_FRAME_HEAD_BYTES;
    char why[160];
    size_t bytes = 0;
    bool is_allocated = far->rma == CONVOY_LINK_RMA_ALLOCATED;
    if (!convoy_bulk_can_rma(far->bulk, peer, is_allocated, why, sizeof why)) {
        convoy_log_line(&engine->runtime->log, CONVOY_LOG_INFO, "engine %s: no put from peer %u: %s", engine->session, peer,
                        why);
        return;
    }
    if (convoy_bulk_memory_pack(far->memory, peer, key, CONVOY_BULK_KEY_BYTES_MAX, &bytes, NULL) != CONVOY_OK) {
        return;
    }
    convoy_bytes_put_u16(frame, CONVOY_FAR_KEY_TYPE);
    convoy_bytes_put_u16(frame + 2, (uint16_t)bytes);
    convoy_bytes_put_u64(frame + 8, engine->incarnation);
    bool is_said = convoy_bulk_frame(far->bulk, peer, frame, CONVOY_FAR_FRAME_HEAD_BYTES + bytes, NULL) == CONVOY_OK;
    (void)pthread_mutex_lock(&far->lock);
    far->peers[peer].has_ours = is_said;
    (void)pthread_mutex_unlock(&far->lock);
}

void convoy_far_take_key(struct convoy_far *far, uint32_t peer, const uint8_t *data, size_t bytes)
{
    struct convoy_far_place *place = &far->peers[peer];
    (void)pthread_mutex_lock(&far->lock);
    if (place->packed_bytes == 0 && bytes <= sizeof place->packed) { /* one for a connection */
        memcpy(place->packed, data, bytes);
        place->packed_bytes = bytes;
    }
    (void)pthread_mutex_unlock(&far->lock);
}

bool convoy_far_has_key(struct convoy_far *far, uint32_t peer)
{
    (void)pthread_mutex_lock(&far->lock);
    bool has_key = far->peers[peer].packed_bytes != 0;
    (void)pthread_mutex_unlock(&far->lock);
    return has_key;
}

/* -- the receiver's part ------------------------------------------------------------------------------------------- */

static struct convoy_far_landing_put **find(struct convoy_far *far, uint32_t peer, uint64_t landing, uint64_t generation)
{
    struct convoy_far_landing_put **at = &far->landing_puts;
    while (*at != NULL && ((*at)->peer != peer || (*at)->landing != landing || (*at)->generation != generation)) {
        at = &(*at)->next;
    }
    return at;
}

/* Only a slot that goes back to the pool can wait for the peer's word. */
uint64_t convoy_far_rma_room(struct convoy_xfer *engine, const struct convoy_xfer_entry *load)
{
    struct convoy_far *far = engine->far;
    const uint8_t *at = load->slot.address;
    (void)pthread_mutex_lock(&far->lock);
    bool may_put = far->peers[load->peer].has_ours;
    (void)pthread_mutex_unlock(&far->lock);
    bool is_inside = far->memory != NULL && at >= far->memory_at && load->payload_bytes <= far->memory_bytes &&
                     (uint64_t)(at - far->memory_at) <= far->memory_bytes - load->payload_bytes;
    if (load->slot.lease == CONVOY_LEASE_NONE || load->slot_id != 0 || load->payload_bytes == 0 || !may_put || !is_inside) {
        return CONVOY_ROOM_NO_PUT;
    }
    if (*find(far, load->peer, load->landing, load->landing_generation) != NULL) { /* it is said again */
        return (uint64_t)(at - far->memory_at);
    }
    struct convoy_far_landing_put *put = convoy_memory_zalloc(sizeof *put);
    bool is_kept = put != NULL && (CONVOY_MUTATED(put_not_quarantined) ||
                                   convoy_pool_refer(engine->pool, load->slot.lease, load->peer, CONVOY_REFERENCE_WRITE,
                                                     NULL) == CONVOY_OK);
    if (!is_kept) {
        convoy_memory_free(put);
        return CONVOY_ROOM_NO_PUT;
    }
    *put = (struct convoy_far_landing_put){.next = far->landing_puts,
                                           .peer = load->peer,
                                           .landing = load->landing,
                                           .generation = load->landing_generation,
                                           .lease = load->slot.lease};
    far->landing_puts = put;
    return (uint64_t)(at - far->memory_at);
}

void convoy_far_on_put(struct convoy_xfer *engine, struct convoy_xfer_peer *peer, const struct convoy_put *said)
{
    uint32_t index = (uint32_t)(peer - engine->peers);
    struct convoy_far_landing_put **at =
        engine->far != NULL && peer->lane->is_far ? find(engine->far, index, said->landing, said->generation) : NULL;
    if (at == NULL || *at == NULL) {
        CONVOY_XFER_NOTE(engine, replies_late);
        return;
    }
    struct convoy_far_landing_put *put = *at;
    *at = put->next;
    (void)convoy_pool_unrefer(engine->pool, put->lease, index, CONVOY_REFERENCE_WRITE, NULL);
    if (said->status == CONVOY_OK &&
        !convoy_landing_put(engine->far->landings, index, said->landing, said->generation, said->bytes)) {
        CONVOY_XFER_NOTE(engine, replies_late); /* it ended meanwhile; or other bytes than were asked for */
    }
    convoy_memory_free(put);
    convoy_xfer_wake(engine);
}

void convoy_far_rma_settle(struct convoy_xfer *engine, uint32_t peer)
{
    struct convoy_far_landing_put **at = &engine->far->landing_puts;
    while (*at != NULL) {
        struct convoy_far_landing_put *put = *at;
        if (put->peer == peer) {
            *at = put->next;
            (void)convoy_pool_unrefer(engine->pool, put->lease, peer, CONVOY_REFERENCE_WRITE, NULL);
            convoy_memory_free(put);
        } else {
            at = &put->next;
        }
    }
}

void convoy_far_rma_forget(struct convoy_xfer *engine, uint32_t peer)
{
    struct convoy_far_landing_put **at = &engine->far->landing_puts;
    while (*at != NULL) {
        struct convoy_far_landing_put *put = *at;
        if (peer == CONVOY_XFER_NOBODY || put->peer == peer) { /* the pool forgets its references itself */
            *at = put->next;
            convoy_memory_free(put);
        } else {
            at = &put->next;
        }
    }
}

/* -- the sender's part --------------------------------------------------------------------------------------------- */

void convoy_far_say_put(struct convoy_xfer *engine, uint32_t peer, uint64_t landing, uint64_t generation, uint64_t bytes,
                        int32_t status)
{
    struct convoy_xfer_notice notice = {.type = CONVOY_SAY_PUT};
    notice.body.put = (struct convoy_put){.landing = landing, .generation = generation, .bytes = bytes, .status = status};
    if (!CONVOY_MUTATED(put_not_said)) {
        convoy_xfer_say(engine, &engine->peers[peer], &notice);
    }
}
