/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/swap_rank.h"

#include "core/clock.h"
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define COLUMNS 7u
#define STATES 8u
#define FLIGHTS 4u /* sends under way */
#define CALL_NS 20000000000ull

struct flight {
    convoy_transfer transfer; /* 0 = free */
    uint8_t *data;
};

struct swap_rank {
    const struct rank *rank;
    const struct swap_plan *plan;
    struct swap_shared *shared;
    convoy_loader *loader;
    convoy_host_context *context;
    convoy_host_group *world;
    convoy_host_group *tp;
    convoy_host_engine *engine;
    convoy_peer next;
    struct convoy_error error;
    struct flight flights[FLIGHTS];
    uint32_t sent;
    uint32_t send_total;
    convoy_transfer accept; /* 0 = none is waited for */
    uint32_t received;
    uint8_t *was_received; /* [send_total] */
    pthread_t swapper;
    _Atomic uint32_t step;
    _Atomic uint32_t swap; /* number of the one that is under way, from 1; 0 = none is */
    _Atomic uint32_t is_over;
    uint64_t usual_steps;
};

/* -- life ---------------------------------------------------------------------------------------------------------- */

static void open_group(struct swap_rank *self, const char *name, uint32_t which, convoy_host_group **group_out)
{
    int32_t ids[SWAP_RANKS_MAX];
    char rendezvous[64];
    const struct convoy_sync_schema schema = {.struct_size = sizeof schema, .builtin = "sglang-7", .builtin_length = 8};
    for (uint32_t i = 0; i < self->rank->count; i++) {
        ids[i] = (int32_t)i;
    }
    int length = snprintf(rendezvous, sizeof rendezvous, "tcp://127.0.0.1:%u", self->plan->ports[which]);
    const struct convoy_group_options options = {.struct_size = sizeof options,
                                                 .own_index = self->rank->index,
                                                 .name = name,
                                                 .name_length = strlen(name),
                                                 .member_ids = ids,
                                                 .member_count = self->rank->count,
                                                 .own_id = (int32_t)self->rank->index,
                                                 .rendezvous = rendezvous,
                                                 .rendezvous_length = (size_t)length,
                                                 .open_timeout_ns = CALL_NS,
                                                 .timeout_ns = CALL_NS,
                                                 .schema = which == 0 ? &schema : NULL};
    EXPECT_OK(convoy_host_group_open(self->context, &options, group_out, &self->error), &self->error);
}

static void open_engine(struct swap_rank *self)
{
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = UINT64_C(64) << 20, .pool_block_bytes = 65536};
    struct convoy_engine_info info = {.struct_size = sizeof info};
    EXPECT_OK(convoy_host_engine_open(self->context, &options, &self->engine, &self->error), &self->error);
    EXPECT_OK(convoy_host_engine_info(self->engine, &info, &self->error), &self->error);
    memcpy(self->shared->sessions[self->rank->index], info.session, sizeof info.session);
    rank_barrier(self->rank);
    const char *session = self->shared->sessions[(self->rank->index + 1) % self->rank->count];
    EXPECT_OK(convoy_host_peer_connect(self->engine, session, strlen(session), CALL_NS, &self->next, &self->error),
              &self->error);
    self->send_total = (self->plan->steps + self->plan->send_every - 1) / self->plan->send_every;
    self->was_received = calloc(self->send_total, 1);
    EXPECT(self->was_received != NULL);
    for (uint32_t i = 0; i < FLIGHTS; i++) {
        self->flights[i].data = malloc(self->plan->bytes);
        EXPECT(self->flights[i].data != NULL);
    }
}

static void open_all(struct swap_rank *self)
{
    const struct convoy_loader_options options = {.path = self->plan->builds[0], .flags = CONVOY_LOADER_REQUIRE_ALL};
    const struct convoy_context_config config = {
        .struct_size = sizeof config,
        .settings = self->plan->settings,
        .settings_length = self->plan->settings != NULL ? strlen(self->plan->settings) : 0};
    EXPECT_OK(convoy_loader_open(&options, &self->loader, &self->error), &self->error);
    EXPECT_OK(convoy_host_context_open(self->loader, &config, &self->context, &self->error), &self->error);
    open_group(self, "world", 0, &self->world);
    open_group(self, "tp", 1, &self->tp);
    if (self->plan->send_every != 0) {
        open_engine(self);
    }
}

static void close_all(struct swap_rank *self)
{
    rank_barrier(self->rank); /* nobody leaves while others count on it */
    EXPECT_OK(convoy_host_group_close(self->tp, CALL_NS, &self->error), &self->error);
    EXPECT_OK(convoy_host_group_close(self->world, CALL_NS, &self->error), &self->error);
    EXPECT_OK(convoy_host_context_close(self->context, CALL_NS, &self->error), &self->error);
    EXPECT_OK(convoy_loader_close(self->loader, &self->error), &self->error);
    for (uint32_t i = 0; i < FLIGHTS; i++) {
        free(self->flights[i].data);
    }
    free(self->was_received);
}

/* -- a step -------------------------------------------------------------------------------------------------------- */

static int64_t value_of(uint32_t rank, uint32_t step, uint32_t column)
{
    return (int64_t)rank * 1000003 + (int64_t)step * 131 + column;
}

static void gather(struct swap_rank *self, uint32_t step)
{
    int64_t row[COLUMNS];
    int64_t table[SWAP_RANKS_MAX * COLUMNS];
    for (uint32_t i = 0; i < COLUMNS; i++) {
        row[i] = value_of(self->rank->index, step, i);
    }
    const struct convoy_sync_call call = {.struct_size = sizeof call, .row = row, .tag = step + 1};
    struct convoy_sync_result result = {
        .struct_size = sizeof result, .table = table, .table_capacity = SWAP_RANKS_MAX * COLUMNS};
    EXPECT_OK(convoy_host_gather(self->world, &call, 0, &result, &self->error), &self->error);
    EXPECT_EQUAL(result.round, step + 1); /* none is lost, none comes twice */
    for (uint32_t rank = 0; rank < self->rank->count; rank++) {
        for (uint32_t i = 0; i < COLUMNS; i++) {
            EXPECT_EQUAL(table[rank * COLUMNS + i], value_of(rank, step, i));
        }
    }
}

static uint8_t state_of(uint32_t rank, uint32_t step, uint32_t entry)
{
    return (uint8_t)((rank * 7 + step * 3 + entry * 5 + step / 11) % 5);
}

static void reduce(struct swap_rank *self, uint32_t step)
{
    uint8_t states[STATES];
    uint8_t agreed[STATES];
    for (uint32_t i = 0; i < STATES; i++) {
        states[i] = state_of(self->rank->index, step, i);
    }
    const struct convoy_poll_list list = {
        .name = "queue", .name_length = 5, .count = STATES, .states = states, .state_bytes = 1, .digest = step + 1};
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1, .tag = step + 1};
    struct convoy_poll_list_result outcome = {.states = agreed, .states_capacity = STATES};
    struct convoy_poll_result result = {
        .struct_size = sizeof result, .lists = &outcome, .list_stride = sizeof outcome, .list_capacity = 1};
    EXPECT_OK(convoy_host_reduce(self->tp, &call, 0, &result, &self->error), &self->error);
    EXPECT_EQUAL(result.round, step + 1);
    for (uint32_t i = 0; i < STATES; i++) {
        uint8_t least = 255;
        for (uint32_t rank = 0; rank < self->rank->count; rank++) {
            uint8_t state = state_of(rank, step, i);
            least = state < least ? state : least;
        }
        EXPECT_EQUAL(agreed[i], least);
    }
}

/* -- transfers ----------------------------------------------------------------------------------------------------- */

static uint32_t seed_of(uint32_t sender, uint32_t number)
{
    return sender * 100000 + number;
}

static void send_one(struct swap_rank *self, struct flight *flight)
{
    char request[32];
    uint64_t bytes = self->plan->bytes;
    (void)snprintf(request, sizeof request, "%u", self->sent);
    engine_fill(flight->data, self->plan->bytes, seed_of(self->rank->index, self->sent));
    const struct convoy_tensor_source tensor = engine_tensor(flight->data, &bytes);
    const struct convoy_stage stage = engine_stage(request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = self->next, .timeout_ns = CALL_NS};
    EXPECT_OK(convoy_host_send_start(self->engine, &stage, &send, &flight->transfer, &self->error), &self->error);
    self->sent++;
}

/* Ends what has ended, and sends what is due. */
static void send_turn(struct swap_rank *self, uint32_t due)
{
    for (uint32_t i = 0; i < FLIGHTS; i++) {
        struct flight *flight = &self->flights[i];
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        if (flight->transfer != 0) {
            int32_t status = convoy_host_transfer_test(self->engine, flight->transfer, &result, &self->error);
            if (status == CONVOY_IN_PROGRESS) {
                continue;
            }
            EXPECT_OK(status, &self->error);
            EXPECT_OK(convoy_host_transfer_release(self->engine, flight->transfer, &self->error), &self->error);
            flight->transfer = 0;
        }
        if (self->sent < due) {
            send_one(self, flight);
        }
    }
}

static void take_one(struct swap_rank *self)
{
    struct convoy_tensor_view view;
    struct convoy_payload payload = {.struct_size = sizeof payload,
                                     .tensors = &view,
                                     .tensor_stride = sizeof view,
                                     .tensor_capacity = 1};
    uint32_t sender = (self->rank->index + self->rank->count - 1) % self->rank->count;
    EXPECT_OK(convoy_host_transfer_payload(self->engine, self->accept, &payload, &self->error), &self->error);
    EXPECT(payload.request_length < 32);
    char request[32];
    (void)snprintf(request, sizeof request, "%.*s", (int)payload.request_length, payload.request);
    uint32_t number = (uint32_t)strtoul(request, NULL, 10);
    EXPECT(number < self->send_total);
    EXPECT_EQUAL(self->was_received[number], 0); /* once */
    self->was_received[number] = 1;
    EXPECT_EQUAL(view.bytes, self->plan->bytes);
    EXPECT(engine_is_filled(view.data, self->plan->bytes, seed_of(sender, number)));
    EXPECT_OK(convoy_host_transfer_release(self->engine, self->accept, &self->error), &self->error);
    self->accept = 0;
    self->received++;
}

static void receive_turn(struct swap_rank *self)
{
    const struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_VIEW, .timeout_ns = CALL_NS};
    if (self->accept == 0 && self->received < self->send_total) {
        EXPECT_OK(convoy_host_accept_start(self->engine, &load, &self->accept, &self->error), &self->error);
    }
    if (self->accept != 0) {
        int32_t status = convoy_host_transfer_test(self->engine, self->accept, NULL, &self->error);
        if (status != CONVOY_IN_PROGRESS) {
            EXPECT_OK(status, &self->error);
            take_one(self);
        }
    }
}

static bool has_more(const struct swap_rank *self)
{
    bool is_flying = false;
    for (uint32_t i = 0; i < FLIGHTS; i++) {
        is_flying = is_flying || self->flights[i].transfer != 0;
    }
    return is_flying || self->sent < self->send_total || self->received < self->send_total;
}

static void finish_transfers(struct swap_rank *self)
{
    uint64_t deadline_ns = convoy_now_ns() + CALL_NS;
    while (self->plan->send_every != 0 && has_more(self)) {
        send_turn(self, self->send_total);
        receive_turn(self);
        EXPECT(convoy_now_ns() < deadline_ns);
    }
}

/* -- swaps --------------------------------------------------------------------------------------------------------- */

/* Spread over the run; odd ones by all ranks at the same time, even ones one rank after another. */
static uint32_t due_step(const struct swap_rank *self, uint32_t number)
{
    uint32_t period = self->plan->steps / (self->plan->swaps + 1);
    uint32_t shift = number % 2 == 0 ? self->rank->index * (period / (self->rank->count + 1)) : 0;
    return (number + 1) * period + shift;
}

static uint64_t thread_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * CONVOY_NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t thread_faults(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_minflt;
}

static void *swapper_main(void *user)
{
    struct swap_rank *self = user;
    (void)pthread_setname_np(pthread_self(), "swapper");
    for (uint32_t number = 0; number < self->plan->swaps; number++) {
        struct convoy_swap_result *result = &self->shared->results[self->rank->index][number];
        struct convoy_error error = {.struct_size = sizeof error};
        while (atomic_load(&self->step) < due_step(self, number) && atomic_load(&self->is_over) == 0) {
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        atomic_store(&self->swap, number + 1);
        uint64_t cpu_ns = thread_ns();
        uint64_t faults = thread_faults();
        EXPECT_OK(convoy_loader_swap(self->loader, self->plan->builds[(number + 1) % 2], CALL_NS, result, &error), &error);
        self->shared->cpu_ns[self->rank->index][number] = thread_ns() - cpu_ns;
        self->shared->faults[self->rank->index][number] = thread_faults() - faults;
        atomic_store(&self->swap, 0);
        self->shared->swaps[self->rank->index]++;
    }
    return NULL;
}

static void note_step(struct swap_rank *self, uint32_t swap, uint64_t ns)
{
    uint32_t index = self->rank->index;
    if (swap != 0) {
        uint64_t *longest = &self->shared->step_ns[index][swap - 1];
        *longest = ns > *longest ? ns : *longest;
        return;
    }
    self->shared->usual_ns[index] += ns;
    self->usual_steps++;
    self->shared->usual_max_ns[index] =
        ns > self->shared->usual_max_ns[index] ? ns : self->shared->usual_max_ns[index];
}

static void serve(struct swap_rank *self)
{
    for (uint32_t step = 0; step < self->plan->steps; step++) {
        uint32_t before = atomic_load(&self->swap);
        uint64_t begun_ns = convoy_now_ns();
        gather(self, step);
        reduce(self, step);
        if (self->plan->send_every != 0) {
            send_turn(self, step / self->plan->send_every + 1);
            receive_turn(self);
        }
        uint32_t after = atomic_load(&self->swap);
        note_step(self, after != 0 ? after : before, convoy_now_ns() - begun_ns);
        atomic_store(&self->step, step + 1);
    }
    self->shared->usual_ns[self->rank->index] /= self->usual_steps != 0 ? self->usual_steps : 1;
}

void swap_rank_run(const struct rank *rank, const struct swap_plan *plan)
{
    struct swap_rank *self = calloc(1, sizeof *self);
    EXPECT(self != NULL);
    self->rank = rank;
    self->plan = plan;
    self->shared = rank->shared;
    self->error.struct_size = sizeof self->error;
    open_all(self);
    rank_barrier(rank);
    EXPECT_EQUAL(pthread_create(&self->swapper, NULL, swapper_main, self), 0);
    serve(self);
    finish_transfers(self);
    atomic_store(&self->is_over, 1);
    EXPECT_EQUAL(pthread_join(self->swapper, NULL), 0);
    EXPECT_EQUAL(self->shared->swaps[rank->index], plan->swaps);
    close_all(self);
    free(self);
}
