/* SPDX-License-Identifier: Apache-2.0 */
#include "net/link_parts.h"

#include "core/error.h"

#include <string.h>

#define LANE_INTERFACES 32

void convoy_link_deliver(struct convoy_link *link, const void *header, size_t header_bytes, const void *data,
                         size_t bytes)
{
    link_count(&link->received_messages, 1);
    link_count(&link->received_bytes, header_bytes + bytes);
    link->options.recv(link->options.user, header, header_bytes, data, bytes);
}

/* One active message has arrived, whole. */
static ucs_status_t lane_receive(void *argument, const void *header, size_t header_bytes, void *data, size_t bytes,
                                 const ucp_am_recv_param_t *param)
{
    struct convoy_link *link = argument;
    bool is_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0; /* members only send eagerly */
    if (is_rendezvous || header_bytes > CONVOY_LINK_HEADER_MAX || bytes > link->options.message_bytes_max) {
        link_count(&link->refused_messages, 1);
    } else if (!link->is_closing) {
        convoy_link_deliver(link, header, header_bytes, data, bytes);
    }
    return UCS_OK;
}

static ucs_status_t lane_receive_piece(void *argument, const void *header, size_t header_bytes, void *data,
                                       size_t bytes, const ucp_am_recv_param_t *param)
{
    struct convoy_link *link = argument;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        link_count(&link->refused_messages, 1);
    } else if (!link->is_closing) {
        convoy_link_pieces_receive(link, header, header_bytes, data, bytes);
    }
    return UCS_OK;
}

static int32_t lane_error(const struct convoy_link *link, ucs_status_t result, const char *what,
                          struct convoy_error *error)
{
    return convoy_ucx_error(link->ucx, error, CONVOY_INIT_FAILED, result, what);
}

/* What was asked for is checked to have been granted: a worker of another mode may be entered by one thread only. */
static int32_t lane_check(const struct convoy_link *link, const struct link_lane *lane, struct convoy_error *error)
{
    ucp_worker_attr_t attributes = {.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE |
                                                  UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucs_status_t result = link->ucx->ucp_worker_query(lane->worker, &attributes);
    if (result != UCS_OK) {
        return lane_error(link, result, "UCX cannot describe its worker", error);
    }
    if (attributes.thread_mode != UCS_THREAD_MODE_SERIALIZED && attributes.thread_mode != UCS_THREAD_MODE_MULTI) {
        return convoy_error_set(error, CONVOY_INIT_FAILED,
                                "UCX grants thread mode %d, convoy needs %d (serialized): a UCX built with --enable-mt",
                                (int)attributes.thread_mode, (int)UCS_THREAD_MODE_SERIALIZED);
    }
    if (attributes.max_am_header < CONVOY_LINK_HEADER_MAX) {
        return convoy_error_set(error, CONVOY_INIT_FAILED, "UCX carries active message headers of %zu bytes, convoy "
                                "needs %u", attributes.max_am_header, CONVOY_LINK_HEADER_MAX);
    }
    return CONVOY_OK;
}

static ucs_status_t lane_set_handler(struct convoy_link *link, struct link_lane *lane, unsigned id,
                                     ucp_am_recv_callback_t receive)
{
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = id,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = receive,
        .arg = link,
    };
    return link->ucx->ucp_worker_set_am_recv_handler(lane->worker, &handler);
}

static int32_t lane_prepare(struct convoy_link *link, struct link_lane *lane, struct convoy_error *error)
{
    int32_t status = lane_check(link, lane, error);
    if (status != CONVOY_OK) {
        return status;
    }
    ucs_status_t result = lane_set_handler(link, lane, LINK_AM_ID, lane_receive);
    if (result == UCS_OK) {
        result = lane_set_handler(link, lane, LINK_AM_PIECE_ID, lane_receive_piece);
    }
    if (result == UCS_OK) {
        result = link->ucx->ucp_worker_get_efd(lane->worker, &lane->efd);
    }
    size_t bytes = 0;
    if (result == UCS_OK) {
        result = link->ucx->ucp_worker_get_address(lane->worker, &lane->address, &bytes);
    }
    if (result != UCS_OK) {
        return lane_error(link, result, "UCX cannot set its worker up for active messages with wake-up", error);
    }
    struct convoy_lane *described = &link->set.lanes[lane - link->lanes];
    described->worker_address = lane->address;
    described->worker_address_bytes = bytes;
    if (bytes > CONVOY_LANE_WORKER_BYTES_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "UCX's worker address has %zu bytes, at most %d are allowed; name "
                                "fewer devices in ucx_net_devices", bytes, CONVOY_LANE_WORKER_BYTES_MAX);
    }
    return CONVOY_OK;
}

/* A worker in the context for `devices`, as the last lane of the link. */
static int32_t lane_open(struct convoy_link *link, const char *devices, const struct convoy_lane *described,
                         struct convoy_error *error)
{
    const struct convoy_ucx_context *context;
    int32_t status = convoy_ucx_context_get(link->options.runtime, devices, link->options.with_rma, &context, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct link_lane *lane = &link->lanes[link->set.count];
    lane->context = context->handle;
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    sigset_t old;
    convoy_ucx_signals_block(&old);
    ucs_status_t result = link->ucx->ucp_worker_create(context->handle, &params, &lane->worker);
    convoy_ucx_signals_unblock(&old);
    if (result != UCS_OK) {
        lane->worker = NULL;
        return lane_error(link, result, "UCX cannot create a worker", error);
    }
    link->set.lanes[link->set.count++] = *described;
    return lane_prepare(link, lane, error);
}

static bool resources_have_tcp(const struct convoy_ucx_resources *resources, const char *device)
{
    for (uint32_t i = 0; i < resources->count; i++) {
        if (strcmp(resources->rows[i].transport, "tcp") == 0 &&
            (device == NULL || strcmp(resources->rows[i].device, device) == 0)) {
            return true;
        }
    }
    return false;
}

static bool resources_have_fabric(const struct convoy_ucx_resources *resources)
{
    for (uint32_t i = 0; i < resources->count; i++) {
        if (convoy_ucx_transport_is_network(resources->rows[i].transport) &&
            strcmp(resources->rows[i].transport, "tcp") != 0) {
            return true;
        }
    }
    return false;
}

/* Interfaces that UCX may use, plain ones first, loopback only when there is nothing else: two members of one network
 * namespace reach each other by any address. Returns how many, at most CONVOY_LANES_MAX. */
static uint32_t lanes_pick(const struct convoy_ucx_resources *resources, struct convoy_interface *picked)
{
    struct convoy_interface all[LANE_INTERFACES];
    uint32_t all_count = convoy_interfaces_list(all, LANE_INTERFACES);
    uint32_t count = 0;
    for (int kind = CONVOY_INTERFACE_PLAIN; kind <= CONVOY_INTERFACE_LOOPBACK; kind++) {
        for (uint32_t i = 0; i < all_count && count < CONVOY_LANES_MAX; i++) {
            bool is_last_resort = kind == CONVOY_INTERFACE_LOOPBACK && count != 0;
            if ((int)all[i].kind == kind && !is_last_resort && resources_have_tcp(resources, all[i].name)) {
                picked[count++] = all[i];
            }
        }
    }
    return count;
}

/* NET_DEVICES of a lane: its interface, and all devices that are none. */
static void lane_devices(const struct convoy_ucx_resources *resources, const char *interface, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%s", interface);
    for (uint32_t i = 0; i < resources->count && used < bytes; i++) {
        const struct convoy_ucx_resource *row = &resources->rows[i];
        if (convoy_ucx_transport_is_network(row->transport) && strcmp(row->transport, "tcp") != 0 &&
            strstr(text, row->device) == NULL) {
            used += (size_t)snprintf(text + used, bytes - used, ",%s", row->device);
        }
    }
}

/* One lane as configured: there is no TCP, or what there is could not be told apart. */
static int32_t lanes_open_any(struct convoy_link *link, struct convoy_error *error)
{
    struct convoy_lane described = {.has_fabric = true};
    return lane_open(link, "", &described, error);
}

static int32_t lanes_open_each(struct convoy_link *link, const struct convoy_ucx_resources *resources,
                               const struct convoy_interface *picked, uint32_t count, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < count && status == CONVOY_OK; i++) {
        char devices[CONVOY_UCX_VALUE_BYTES];
        struct convoy_lane described = {.kind = picked[i].kind, .address = picked[i].address};
        described.has_fabric = resources_have_fabric(resources);
        memcpy(described.name, picked[i].name, sizeof described.name);
        lane_devices(resources, picked[i].name, devices, sizeof devices);
        status = lane_open(link, devices, &described, error);
    }
    return status;
}

int32_t convoy_link_lanes_open(struct convoy_link *link, struct convoy_error *error)
{
    const struct convoy_ucx *ucx;
    int32_t status = convoy_ucx_open(link->options.runtime, &ucx, error);
    if (status != CONVOY_OK) {
        return status;
    }
    link->ucx = &ucx->library.functions;
    link->set.network = convoy_interfaces_network();
    struct convoy_interface picked[CONVOY_LANES_MAX];
    uint32_t count = lanes_pick(&ucx->resources, picked);
    status = count == 0 ? lanes_open_any(link, error) : lanes_open_each(link, &ucx->resources, picked, count, error);
    if (status != CONVOY_OK) {
        convoy_link_lanes_close(link);
    }
    return status;
}

void convoy_link_lanes_close(struct convoy_link *link)
{
    for (uint32_t i = 0; i < CONVOY_LANES_MAX; i++) {
        struct link_lane *lane = &link->lanes[i];
        if (lane->address != NULL) {
            link->ucx->ucp_worker_release_address(lane->worker, lane->address);
            lane->address = NULL;
        }
        if (lane->worker != NULL) {
            link->ucx->ucp_worker_destroy(lane->worker);
            lane->worker = NULL;
        }
    }
    link->set.count = 0;
}
