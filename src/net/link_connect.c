/* SPDX-License-Identifier: Apache-2.0 */
#include "net/link_parts.h"

#include "core/error.h"
#include "net/link_rma.h"

#include <string.h>

#define ENDPOINT_TEXT_BYTES 4096

/* -- failure ------------------------------------------------------------------------------------------------------- */

void convoy_link_endpoint_fail(struct link_endpoint *endpoint, int32_t ucx_status)
{
    if (link_state(endpoint) != CONVOY_LINK_UP) {
        return;
    }
    link_set_state(endpoint, CONVOY_LINK_FAILED);
    endpoint->ucx_status = ucx_status;
    endpoint->must_close = true;
    endpoint->must_tell = true;
    endpoint->link->attention++;
}

void convoy_link_fail(struct convoy_link *link, uint32_t peer)
{
    assert(peer < link->options.peer_count);
    link_enter(link);
    convoy_link_endpoint_fail(&link->endpoints[peer], UCS_ERR_CANCELED);
    link_leave(link);
}

/* Called by UCX, perhaps in the middle of a send: only notes it. */
static void endpoint_error(void *argument, ucp_ep_h ep, ucs_status_t ucx_status)
{
    struct link_endpoint *endpoint = argument;
    if (endpoint->ep == ep) { /* not one that was replaced meanwhile */
        convoy_link_endpoint_fail(endpoint, ucx_status);
    }
}

static void endpoint_closed(void *request, ucs_status_t ucx_status, void *argument)
{
    struct convoy_link *link = argument;
    (void)ucx_status;
    link->unfinished--;
    link->ucx->ucp_request_free(request);
}

void convoy_link_endpoint_close(struct convoy_link *link, struct link_endpoint *endpoint)
{
    ucp_ep_h ep = endpoint->ep;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send = endpoint_closed,
        .user_data = link,
    };
    endpoint->ep = NULL;
    endpoint->must_close = false;
    endpoint->is_dirty = false;
    convoy_link_queue_drop(link, endpoint);
    if (ep != NULL) {
        link->unfinished++; /* before the call: the callback may run inside it */
        ucs_status_ptr_t request = link->ucx->ucp_ep_close_nbx(ep, &param);
        if (!UCS_PTR_IS_PTR(request)) {
            link->unfinished--;
        }
    }
}

bool convoy_link_is_closed(const struct convoy_link *link, uint32_t peer)
{
    const struct link_endpoint *endpoint = &link->endpoints[peer];
    return endpoint->ep == NULL && endpoint->later_address == NULL;
}

/* -- connecting ---------------------------------------------------------------------------------------------------- */

static void endpoint_print(const void *object, const struct convoy_ucx_functions *functions, FILE *stream)
{
    const struct link_endpoint *endpoint = object;
    functions->ucp_ep_print_info(endpoint->ep, stream);
}

/* Known as soon as the endpoint exists. Kept as text, since only the owner may ask UCX. */
static void endpoint_note_transports(struct link_endpoint *endpoint)
{
    char text[ENDPOINT_TEXT_BYTES];
    char transports[CONVOY_LINK_TRANSPORTS_BYTES] = "";
    struct convoy_ucx_resources resources;
    struct convoy_ucx_resources rma;
    convoy_ucx_print(endpoint_print, endpoint, endpoint->link->ucx, text, sizeof text);
    convoy_ucx_resources_parse_endpoint(text, &resources);
    size_t used = 0;
    endpoint->is_tcp = resources.count != 0;
    for (uint32_t i = 0; i < resources.count; i++) {
        endpoint->is_tcp = endpoint->is_tcp && strcmp(resources.rows[i].transport, "tcp") == 0;
    }
    convoy_ucx_resources_parse_rma(text, &rma);
    endpoint->rma = convoy_link_rma_of(&rma);
    endpoint->segment_bytes = endpoint->is_tcp ? LINK_SEGMENT_BYTES : SIZE_MAX;
    for (uint32_t i = 0; i < resources.count && used < sizeof transports; i++) {
        used += (size_t)snprintf(transports + used, sizeof transports - used, "%s%s/%s", used != 0 ? "," : "",
                                 resources.rows[i].transport, resources.rows[i].device);
    }
    convoy_link_text_write(&endpoint->transports, transports);
}

static int32_t connect_unreachable(const struct convoy_link *link, uint32_t peer, const struct convoy_lane_set *theirs,
                                   struct convoy_error *error)
{
    char own_text[80];
    char their_text[80];
    convoy_lane_set_text(&link->set, own_text, sizeof own_text);
    convoy_lane_set_text(theirs, their_text, sizeof their_text);
    return convoy_error_set(error, CONVOY_UNREACHABLE, "no network interface here (%s) reaches one of member %u (%s); "
                            "see ucx_net_devices", own_text, peer, their_text);
}

static int32_t endpoint_create(struct convoy_link *link, struct link_endpoint *endpoint,
                               const struct convoy_lane *remote, struct convoy_error *error)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = remote->worker_address,
        .err_mode = link->options.without_peer_errors ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = endpoint_error, .arg = endpoint},
    };
    ucp_ep_h ep;
    sigset_t old;
    convoy_ucx_signals_block(&old);
    ucs_status_t result = link->ucx->ucp_ep_create(link->lanes[endpoint->lane].worker, &params, &ep);
    convoy_ucx_signals_unblock(&old);
    if (result != UCS_OK) {
        char what[96];
        (void)snprintf(what, sizeof what, "UCX cannot connect to member %u over %s",
                       (unsigned)(endpoint - link->endpoints), link->set.lanes[endpoint->lane].name);
        return convoy_ucx_error(link->ucx, error,
                                result == UCS_ERR_NO_MEMORY ? CONVOY_NO_MEMORY : CONVOY_UNREACHABLE, result, what);
    }
    endpoint->ep = ep;
    return CONVOY_OK;
}

/* Takes back what an earlier endpoint to this peer has left. */
static void endpoint_reset(struct convoy_link *link, struct link_endpoint *endpoint)
{
    if (endpoint->must_tell || endpoint->must_close) {
        link->attention--;
    }
    convoy_link_endpoint_close(link, endpoint);
    endpoint->must_tell = false;
    endpoint->link = link;
}

/* UCX 1.13 gives a new endpoint the connection that the peer has made to us, if there is one; when it is just reading
 * from that, it goes on with a connection that is no longer there. So inside of progress only the wish is noted. */
static void endpoint_postpone(struct convoy_link *link, struct link_endpoint *endpoint, const void *address,
                              size_t bytes)
{
    convoy_link_queue_drop(link, endpoint);
    link->later += endpoint->later_address == NULL;
    endpoint->later_address = address;
    endpoint->later_bytes = bytes;
    link_set_state(endpoint, CONVOY_LINK_UP);
}

static void endpoint_connect_later(struct convoy_link *link, struct link_endpoint *endpoint)
{
    struct link_buffer *queue = endpoint->queue; /* was sent since: not the old endpoint's */
    const void *address = endpoint->later_address;
    struct convoy_error error = CONVOY_ERROR_INIT;
    endpoint->queue = NULL;
    endpoint->later_address = NULL;
    link->later--;
    int32_t status =
        convoy_link_connect(link, (uint32_t)(endpoint - link->endpoints), address, endpoint->later_bytes, &error);
    endpoint->queue = queue;
    if (status != CONVOY_OK) {
        link_set_state(endpoint, CONVOY_LINK_UP);
        convoy_link_endpoint_fail(endpoint, UCS_ERR_UNREACHABLE);
    } else if (!endpoint->is_tcp) {
        convoy_link_send_queued(link, endpoint);
    }
}

void convoy_link_connect_later(struct convoy_link *link)
{
    for (uint32_t i = 0; i < link->options.peer_count && link->later != 0; i++) {
        if (link->endpoints[i].later_address != NULL) {
            endpoint_connect_later(link, &link->endpoints[i]);
        }
    }
}

static int32_t connect_decode(uint32_t peer, const void *address, size_t bytes, struct convoy_lane_set *theirs_out,
                              struct convoy_error *error)
{
    return convoy_lane_set_decode(address, bytes, theirs_out)
               ? CONVOY_OK
               : convoy_error_set(error, CONVOY_MALFORMED,
                                  "the network address of member %u (%zu bytes) is malformed", peer, bytes);
}

/* The pair of interfaces over which the peer is reached. */
static int32_t connect_choose(const struct convoy_link *link, uint32_t peer, const struct convoy_lane_set *theirs,
                              struct convoy_lane_pair *pair_out, struct convoy_error *error)
{
    return convoy_lane_set_choose(&link->set, theirs, convoy_interfaces_route, pair_out)
               ? CONVOY_OK
               : connect_unreachable(link, peer, theirs, error);
}

int32_t convoy_link_reach(const struct convoy_link *link, uint32_t peer, const void *address, size_t bytes,
                          struct convoy_error *error)
{
    struct convoy_lane_set theirs;
    struct convoy_lane_pair pair;
    int32_t status = connect_decode(peer, address, bytes, &theirs, error);
    return status == CONVOY_OK ? connect_choose(link, peer, &theirs, &pair, error) : status;
}

int32_t convoy_link_connect(struct convoy_link *link, uint32_t peer, const void *address, size_t bytes,
                            struct convoy_error *error)
{
    struct convoy_lane_set theirs;
    struct convoy_lane_pair pair;
    assert(peer < link->options.peer_count);
    int32_t status = connect_decode(peer, address, bytes, &theirs, error);
    if (status == CONVOY_OK) {
        status = connect_choose(link, peer, &theirs, &pair, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    struct link_endpoint *endpoint = &link->endpoints[peer];
    if (link->is_progressing) {
        endpoint_postpone(link, endpoint, address, bytes);
        return CONVOY_OK;
    }
    link_enter(link);
    endpoint_reset(link, endpoint);
    __atomic_store_n(&endpoint->lane, pair.mine, __ATOMIC_RELAXED);
    status = endpoint_create(link, endpoint, &theirs.lanes[pair.theirs], error);
    link_set_state(endpoint, status == CONVOY_OK ? CONVOY_LINK_UP : CONVOY_LINK_FAILED);
    if (status == CONVOY_OK) {
        endpoint_note_transports(endpoint);
    }
    link_leave(link);
    return status;
}
