/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor between hosts: two processes, each in a network namespace of its own (started there with `ip netns exec`),
 * that send each other the same payload bytes as one UCX active message and wait for the peer's. MIN and gather are
 * done for real. UCX is configured by its environment. The two meet through files in --directory.
 */
#include "tests/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#define MESSAGE_ID 1u
#define PAYLOAD_BYTES_MAX 4096u
#define LINE_BYTES 64u
#define RANKS 2u

/* What arrived, by parity of the round: the peer can be one round ahead, never two. */
struct inbox {
    uint64_t round;
    uint8_t payload[PAYLOAD_BYTES_MAX];
};

struct endpoint {
    const struct bench_work *work;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h peer;
    uint32_t rank;
    uint64_t round;
    struct inbox inbox[2];
};

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        bench_die("%s: %s", what, ucs_status_string(status));
    }
}

static ucs_status_t receive(void *argument, const void *header, size_t header_length, void *data, size_t length,
                            const ucp_am_recv_param_t *param)
{
    struct endpoint *endpoint = argument;
    uint64_t round = 0;
    if (header_length != sizeof round || length > PAYLOAD_BYTES_MAX ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        bench_die("unexpected message of %zu bytes", length);
    }
    (void)memcpy(&round, header, sizeof round);
    struct inbox *inbox = &endpoint->inbox[round & 1];
    (void)memcpy(inbox->payload, data, length);
    inbox->round = round;
    return UCS_OK;
}

/* Waits until the send no longer needs the caller's buffer. */
static void finish_send(struct endpoint *endpoint, void *request)
{
    if (UCS_PTR_IS_ERR(request)) {
        check(UCS_PTR_STATUS(request), "ucp_am_send_nbx");
    }
    if (request != NULL) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            (void)ucp_worker_progress(endpoint->worker);
        }
        ucp_request_free(request);
    }
}

static void exchange(void *state, uint32_t pattern, const uint8_t *input, uint8_t *output)
{
    struct endpoint *endpoint = state;
    const ucp_request_param_t param = {0};
    (void)pattern;
    uint64_t round = ++endpoint->round;
    size_t bytes = endpoint->work->input_bytes;
    void *request = ucp_am_send_nbx(endpoint->peer, MESSAGE_ID, &round, sizeof round, input, bytes, &param);
    const struct inbox *inbox = &endpoint->inbox[round & 1];
    while (inbox->round != round) {
        (void)ucp_worker_progress(endpoint->worker);
    }
    if (endpoint->work->which->kind == BENCH_ROW) {
        (void)memcpy(output + endpoint->rank * bytes, input, bytes);
        (void)memcpy(output + (1 - endpoint->rank) * bytes, inbox->payload, bytes);
    } else {
        for (size_t i = 0; i < bytes; i++) {
            output[i] = input[i] < inbox->payload[i] ? input[i] : inbox->payload[i];
        }
    }
    finish_send(endpoint, request);
}

/* -- opening ------------------------------------------------------------------------------------------------------- */

static void write_address(const char *path, const void *address, size_t length)
{
    char temporary[300];
    (void)snprintf(temporary, sizeof temporary, "%s.new", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, address, length) != (ssize_t)length || close(fd) != 0 || rename(temporary, path) != 0) {
        bench_die("%s: %s", path, strerror(errno));
    }
}

/* The peer's file appears whole, by rename. */
static void read_address(const char *path, uint8_t *address_out, size_t capacity)
{
    uint64_t deadline_ns = bench_now_ns() + 20000000000u;
    int fd = -1;
    while ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        if (bench_now_ns() > deadline_ns) {
            bench_die("%s: the peer did not come", path);
        }
        (void)sched_yield();
    }
    if (read(fd, address_out, capacity) <= 0) {
        bench_die("%s: %s", path, strerror(errno));
    }
    (void)close(fd);
}

static void open_worker(struct endpoint *endpoint)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    const ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                               .thread_mode = UCS_THREAD_MODE_SINGLE};
    const ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                          UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                          UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                            .id = MESSAGE_ID,
                                            .cb = receive,
                                            .arg = endpoint};
    check(ucp_init(&params, NULL, &endpoint->context), "ucp_init");
    check(ucp_worker_create(endpoint->context, &worker_params, &endpoint->worker), "ucp_worker_create");
    check(ucp_worker_set_am_recv_handler(endpoint->worker, &handler), "ucp_worker_set_am_recv_handler");
}

static void connect_peer(struct endpoint *endpoint, const char *directory)
{
    ucp_address_t *address = NULL;
    size_t length = 0;
    char path[280];
    uint8_t peer_address[4096];
    check(ucp_worker_get_address(endpoint->worker, &address, &length), "ucp_worker_get_address");
    (void)snprintf(path, sizeof path, "%s/address-%u", directory, endpoint->rank);
    write_address(path, address, length);
    ucp_worker_release_address(endpoint->worker, address);
    (void)snprintf(path, sizeof path, "%s/address-%u", directory, 1 - endpoint->rank);
    read_address(path, peer_address, sizeof peer_address);
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                    .address = (const ucp_address_t *)peer_address};
    check(ucp_ep_create(endpoint->worker, &params, &endpoint->peer), "ucp_ep_create");
}

static void run_case(struct endpoint *endpoint, const struct bench_options *options, uint32_t index)
{
    const struct bench_case *which = &options->cases[index];
    uint32_t rounds = bench_rounds(options, which);
    struct bench_work work;
    struct bench_stamps stamps;
    char path[280];
    (void)snprintf(path, sizeof path, "%s/case-%u", options->directory, index);
    char *memory = bench_share(LINE_BYTES + bench_stamps_bytes(RANKS, rounds), path);
    bench_work_init(&work, which, RANKS);
    bench_stamps_place(&stamps, RANKS, rounds, memory + LINE_BYTES);
    endpoint->work = &work;
    bench_barrier((uint64_t *)(void *)memory, RANKS);
    bench_measure(&work, endpoint->rank, &stamps, exchange, endpoint);
    bench_barrier((uint64_t *)(void *)memory, RANKS);
    if (endpoint->rank == 0) {
        bench_print("ucx-am", which, &stamps);
    }
    bench_work_fini(&work);
}

int main(int argc, char **argv)
{
    static struct endpoint endpoint;
    struct bench_options options;
    bench_parse(argc, argv, &options);
    if (options.directory == NULL || options.first >= RANKS) {
        bench_die("needs --directory, and --first 0 or 1");
    }
    endpoint.rank = options.first;
    bench_pin(endpoint.rank);
    open_worker(&endpoint);
    connect_peer(&endpoint, options.directory);
    for (uint32_t i = 0; i < options.case_count; i++) {
        run_case(&endpoint, &options, i);
    }
    ucp_worker_destroy(endpoint.worker); /* with its endpoint; both sides are past their last message */
    ucp_cleanup(endpoint.context);
    return 0;
}
