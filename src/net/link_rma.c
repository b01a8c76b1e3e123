/* SPDX-License-Identifier: Apache-2.0 */
#include "net/link_rma.h"

#include "core/error.h"
#include "core/memory.h"
#include "net/link_parts.h"

#include <string.h>

struct convoy_link_memory {
    struct convoy_link *link;
    void *address;
    size_t bytes;
    bool is_allocated;
    ucp_mem_h handles[CONVOY_LANES_MAX]; /* one in each lane's context */
};

struct convoy_link_key {
    struct convoy_link *link;
    struct link_endpoint *endpoint;
    ucp_ep_h ep; /* whose key it is */
    ucp_rkey_h handle;
};

/* A put or get under way. */
struct rma_operation {
    struct convoy_link *link;
    convoy_link_rma_fn done;
    void *user;
    uint32_t unfinished; /* the operation itself, its flush, the call that starts them */
    ucs_status_t result;
};

/* -- who can ------------------------------------------------------------------------------------------------------- */

static enum convoy_link_rma transport_rma(const char *transport)
{
    static const struct {
        const char *prefix;
        enum convoy_link_rma rma;
    } rows[] = {
        {"rc_", CONVOY_LINK_RMA_ANY},         {"dc_", CONVOY_LINK_RMA_ANY},
        {"posix", CONVOY_LINK_RMA_ALLOCATED}, {"sysv", CONVOY_LINK_RMA_ALLOCATED},
        {"xpmem", CONVOY_LINK_RMA_ALLOCATED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strncmp(transport, rows[i].prefix, strlen(rows[i].prefix)) == 0) {
            return rows[i].rma;
        }
    }
    return CONVOY_LINK_RMA_NEVER;
}

enum convoy_link_rma convoy_link_rma_of(const struct convoy_ucx_resources *resources)
{
    enum convoy_link_rma least = resources->count != 0 ? CONVOY_LINK_RMA_ANY : CONVOY_LINK_RMA_NEVER;
    for (uint32_t i = 0; i < resources->count; i++) {
        enum convoy_link_rma rma = transport_rma(resources->rows[i].transport);
        least = rma < least ? rma : least;
    }
    return least;
}

enum convoy_link_rma convoy_link_rma_best(const struct convoy_ucx_resources *resources)
{
    enum convoy_link_rma best = CONVOY_LINK_RMA_NEVER;
    for (uint32_t i = 0; i < resources->count; i++) {
        enum convoy_link_rma rma = transport_rma(resources->rows[i].transport);
        best = rma > best ? rma : best;
    }
    return best;
}

enum convoy_link_rma convoy_link_can_rma(const struct convoy_link *link, uint32_t peer)
{
    const struct link_endpoint *endpoint = &link->endpoints[peer];
    assert(peer < link->options.peer_count);
    bool is_up = link_state(endpoint) == CONVOY_LINK_UP && link->options.with_rma;
    return is_up ? (enum convoy_link_rma)endpoint->rma : CONVOY_LINK_RMA_NEVER;
}

/* -- memory -------------------------------------------------------------------------------------------------------- */

static ucs_status_t memory_map(struct convoy_link_memory *memory, uint32_t lane)
{
    const struct convoy_link *link = memory->link;
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .address = memory->address,
        .length = memory->bytes,
        .flags = memory->address == NULL ? UCP_MEM_MAP_ALLOCATE : 0,
    };
    ucs_status_t result = link->ucx->ucp_mem_map(link->lanes[lane].context, &params, &memory->handles[lane]);
    if (result != UCS_OK) {
        memory->handles[lane] = NULL;
        return result;
    }
    ucp_mem_attr_t attributes = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    result = link->ucx->ucp_mem_query(memory->handles[lane], &attributes);
    memory->address = result == UCS_OK ? attributes.address : memory->address;
    return result;
}

int32_t convoy_link_memory_open(struct convoy_link *link, void *address, size_t bytes,
                                struct convoy_link_memory **memory_out, struct convoy_error *error)
{
    if (!link->options.with_rma) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "the link was opened without put and get");
    }
    struct convoy_link_memory *memory = convoy_memory_zalloc(sizeof *memory);
    if (memory == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to register memory");
    }
    *memory = (struct convoy_link_memory){
        .link = link, .address = address, .bytes = bytes, .is_allocated = address == NULL};
    for (uint32_t i = 0; i < link->set.count; i++) { /* the first one allocates, the others register what it made */
        ucs_status_t result = memory_map(memory, i);
        if (result != UCS_OK) {
            convoy_link_memory_close(memory);
            return convoy_ucx_error(link->ucx, error, CONVOY_NO_MEMORY, result, "UCX cannot register memory");
        }
    }
    *memory_out = memory;
    return CONVOY_OK;
}

void *convoy_link_memory_address(const struct convoy_link_memory *memory)
{
    return memory->address;
}

bool convoy_link_memory_is_allocated(const struct convoy_link_memory *memory)
{
    return memory->is_allocated;
}

void convoy_link_memory_close(struct convoy_link_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    for (uint32_t i = CONVOY_LANES_MAX; i > 0; i--) { /* the one that allocated comes last */
        if (memory->handles[i - 1] != NULL) {
            const struct convoy_link *link = memory->link;
            (void)link->ucx->ucp_mem_unmap(link->lanes[i - 1].context, memory->handles[i - 1]);
        }
    }
    convoy_memory_free(memory);
}

int32_t convoy_link_memory_pack(const struct convoy_link_memory *memory, uint32_t peer, void *out, size_t capacity,
                                size_t *bytes_out, struct convoy_error *error)
{
    const struct convoy_link *link = memory->link;
    uint32_t lane = link->endpoints[peer].lane;
    void *packed = NULL;
    size_t bytes = 0;
    ucs_status_t result =
        link->ucx->ucp_rkey_pack(link->lanes[lane].context, memory->handles[lane], &packed, &bytes);
    if (result != UCS_OK) {
        return convoy_ucx_error(link->ucx, error, CONVOY_UNSUPPORTED, result, "UCX cannot pack a key");
    }
    *bytes_out = bytes;
    if (bytes <= capacity) {
        memcpy(out, packed, bytes);
    }
    link->ucx->ucp_rkey_buffer_release(packed);
    return bytes <= capacity ? CONVOY_OK
                             : convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "a key of %zu bytes, there is room for "
                                                "%zu", bytes, capacity);
}

/* -- keys ---------------------------------------------------------------------------------------------------------- */

int32_t convoy_link_key_open(struct convoy_link *link, uint32_t peer, const void *packed,
                             struct convoy_link_key **key_out, struct convoy_error *error)
{
    struct link_endpoint *endpoint = &link->endpoints[peer];
    enum convoy_link_state state = link_state(endpoint);
    if (state != CONVOY_LINK_UP) {
        return convoy_error_set(error, state == CONVOY_LINK_NONE ? CONVOY_BAD_STATE : CONVOY_PEER_LOST,
                                "peer %u has no endpoint", peer);
    }
    if (convoy_link_can_rma(link, peer) == CONVOY_LINK_RMA_NEVER) {
        char transports[CONVOY_LINK_TRANSPORTS_BYTES];
        convoy_link_peer_transports(link, peer, transports);
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "no put and get to peer %u: %s only emulates them", peer,
                                transports[0] != '\0' ? transports : "its transport");
    }
    struct convoy_link_key *key = convoy_memory_zalloc(sizeof *key);
    if (key == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a key");
    }
    *key = (struct convoy_link_key){.link = link, .endpoint = endpoint, .ep = endpoint->ep};
    ucs_status_t result = link->ucx->ucp_ep_rkey_unpack(endpoint->ep, packed, &key->handle);
    if (result != UCS_OK) {
        convoy_memory_free(key);
        return convoy_ucx_error(link->ucx, error, CONVOY_MALFORMED, result, "UCX cannot unpack a key");
    }
    *key_out = key;
    return CONVOY_OK;
}

void convoy_link_key_close(struct convoy_link_key *key)
{
    if (key != NULL) {
        key->link->ucx->ucp_rkey_destroy(key->handle);
        convoy_memory_free(key);
    }
}

/* -- put and get --------------------------------------------------------------------------------------------------- */

static void rma_finish_one(struct rma_operation *operation, ucs_status_t result)
{
    operation->result = operation->result == UCS_OK ? result : operation->result;
    if (--operation->unfinished != 0) {
        return;
    }
    operation->done(operation->user, operation->result == UCS_OK ? CONVOY_OK : CONVOY_PEER_LOST);
    convoy_memory_free(operation);
}

static void rma_called_back(void *request, ucs_status_t ucx_status, void *argument)
{
    struct rma_operation *operation = argument;
    struct convoy_link *link = operation->link;
    link->unfinished--;
    link->ucx->ucp_request_free(request);
    rma_finish_one(operation, ucx_status);
}

/* Counts what UCX goes on with; what it has done already is finished here. */
static void rma_started(struct rma_operation *operation, ucs_status_ptr_t request)
{
    if (!UCS_PTR_IS_PTR(request)) {
        operation->link->unfinished--;
        rma_finish_one(operation, UCS_PTR_STATUS(request));
    }
}

static void rma_flush(struct rma_operation *operation, ucp_ep_h ep, const ucp_request_param_t *param)
{
    operation->unfinished++; /* before the call: the callback may run inside it */
    operation->link->unfinished++;
    rma_started(operation, operation->link->ucx->ucp_ep_flush_nbx(ep, param));
}

static int32_t rma_start(struct convoy_link_key *key, uint64_t remote, void *to, const void *from, size_t bytes,
                         convoy_link_rma_fn done, void *user)
{
    struct convoy_link *link = key->link;
    if (link_state(key->endpoint) != CONVOY_LINK_UP || key->endpoint->ep != key->ep || link->is_progressing) {
        return link->is_progressing ? CONVOY_LIMIT : CONVOY_PEER_LOST;
    }
    struct rma_operation *operation = convoy_memory_zalloc(sizeof *operation);
    if (operation == NULL) {
        return CONVOY_NO_MEMORY;
    }
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = rma_called_back,
                                       .user_data = operation};
    *operation = (struct rma_operation){.link = link, .done = done, .user = user, .unfinished = 2};
    link_enter(link);
    link->unfinished++;
    rma_started(operation, from != NULL ? link->ucx->ucp_put_nbx(key->ep, from, bytes, remote, key->handle, &param)
                                        : link->ucx->ucp_get_nbx(key->ep, to, bytes, remote, key->handle, &param));
    rma_flush(operation, key->ep, &param); /* only then a put is known to be there */
    rma_finish_one(operation, UCS_OK);
    link_leave(link);
    return CONVOY_OK;
}

int32_t convoy_link_put(struct convoy_link_key *key, uint64_t remote, const void *local, size_t bytes,
                        convoy_link_rma_fn done, void *user)
{
    return rma_start(key, remote, NULL, local, bytes, done, user);
}

int32_t convoy_link_get(struct convoy_link_key *key, uint64_t remote, void *local, size_t bytes, convoy_link_rma_fn done,
                        void *user)
{
    return rma_start(key, remote, local, NULL, bytes, done, user);
}
