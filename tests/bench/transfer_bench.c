/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staged transfer through convoy, from the start of the stage until the sender knows that the receiver has it.
 *
 *   view:BYTES:PIECES     one payload of PIECES tensors; send and accept, the receiver reads in place
 *   copy:BYTES:PIECES     send and accept, the receiver copies into memory of its own
 *   push:..., pull:...    the same by that path
 *   broker:BYTES:PIECES   stage, descriptor, a word in shared memory in the place of the host's broker, load by copy
 *   empty                 a request without payload, into a slot that the receiver reserves: from reserve to ready
 *   notice                a request without payload, by the path that the library picks
 *   stream:BYTES:QUEUED   one staged payload sent over and over, QUEUED at a time; what counts is bytes by time
 *
 * Usage: transfer_bench [--quick] [--first RANK --directory DIR] [--address tcp://HOST:0] [--settings JSON] CASE...
 * With --first only that rank is started, and the two meet in DIR: one program in each network namespace.
 */
#include "tests/bench/transfer_side.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAITED_BYTES (256u << 10) /* from there on a load by copy is waited for: the library copies on the waiting thread */
#define POOL_BYTES_MIN (UINT64_C(256) << 20)
#define QUEUE_MAX 64u

struct options {
    bool is_quick;
    bool is_split; /* one rank only, the other is another program */
    uint32_t first;
    const char *directory;
    const char *address;
    const char *settings;
};

struct job {
    const struct options *options;
    const struct handover_case *which;
    struct side_shared *shared;
    uint32_t rounds;
};

/* What a kind of case means. */
struct kind {
    const char *name;
    uint32_t path; /* of the sender; the receiver takes whatever comes, or pulls */
    uint32_t mode;
    bool is_inline; /* one copy, so the caller may as well make it; else copy and load overlap */
    void (*send)(struct side *side, const struct kind *kind, uint32_t rounds);
    void (*receive)(struct side *side, const struct kind *kind, uint32_t rounds);
};

/* A request's texts and tensors. */
struct request {
    struct convoy_tensor_source tensors[SIDE_PIECES_MAX];
    uint64_t shape;
    char names[SIDE_PIECES_MAX][16];
    char id[32];
    struct convoy_stage stage;
};

/* Who polls spins on the processor that a copier of the library would need. */
static bool is_polled(const struct side *side, const struct kind *kind)
{
    return kind->mode == CONVOY_LOAD_VIEW || side->which->bytes <= WAITED_BYTES;
}

/* -- sending ------------------------------------------------------------------------------------------------------- */

static void prepare(struct side *side, struct request *request, const struct kind *kind)
{
    uint32_t count = side->which->bytes == 0 ? 0 : side->which->pieces;
    request->shape = side->which->bytes / side->which->pieces;
    for (uint32_t i = 0; i < count; i++) {
        int length = snprintf(request->names[i], sizeof request->names[i], "tensor_%u", i);
        request->tensors[i] = (struct convoy_tensor_source){.name = request->names[i],
                                                            .name_length = (size_t)length,
                                                            .dtype = "uint8",
                                                            .dtype_length = 5,
                                                            .data = side->memory + i * side->stride,
                                                            .shape = &request->shape,
                                                            .rank = 1};
    }
    request->stage = (struct convoy_stage){.struct_size = sizeof request->stage,
                                           .hint_flags = kind->is_inline ? CONVOY_STAGE_INLINE : 0,
                                           .request = request->id,
                                           .tensors = request->tensors,
                                           .tensor_stride = sizeof request->tensors[0],
                                           .tensor_count = count,
                                           .timeout_ns = SIDE_TIMEOUT_NS};
}

/* Everything that a host has at hand before it hands over. */
static void begin(struct side *side, struct request *request)
{
    side->round++;
    request->stage.request_length =
        (size_t)snprintf(request->id, sizeof request->id, "bench-%llu", (unsigned long long)side->round);
    for (uint32_t i = 0; i < request->stage.tensor_count; i++) {
        handover_stamp(side->memory + i * side->stride, request->shape, side->round);
    }
}

static void keep_result(struct side *side, const struct convoy_transfer_result *result)
{
    side->shared->payload_bytes = result->payload_bytes;
    side->shared->moved_bytes = result->moved_bytes;
    side->shared->path = result->path;
}

static void send_direct(struct side *side, const struct kind *kind, uint32_t rounds)
{
    static struct request request;
    struct handover *handover = &side->shared->handover;
    const struct convoy_send send = {
        .struct_size = sizeof send, .path = kind->path, .peer = side->peer, .timeout_ns = SIDE_TIMEOUT_NS};
    prepare(side, &request, kind);
    for (uint32_t round = 0; round < rounds; round++) {
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        convoy_transfer transfer = 0;
        begin(side, &request);
        side_await(side, &handover->checked, side->round); /* the receiver waits for this one */
        uint64_t start_ns = bench_now_ns();
        side_check(side, "send_start", side->table->send_start(side->engine, &request.stage, &send, &transfer,
                                                               &side->error));
        side_finish(side, transfer, is_polled(side, kind), &result);
        handover->samples_ns[round] = bench_now_ns() - start_ns;
        keep_result(side, &result);
        side_check(side, "release", side->table->release(side->engine, transfer, &side->error));
    }
    side_await(side, &handover->checked, side->round + 1);
}

/* The host looks at its transfers meanwhile, so that the library answers the receiver on this thread. */
static void await_broker(struct side *side, convoy_transfer staged)
{
    const struct handover_word *taken = &side->shared->handover.taken;
    while (__atomic_load_n(&taken->value, __ATOMIC_ACQUIRE) < side->round) {
        side_check(side, "looking at the stage",
                   side->table->transfer_test(side->engine, staged, NULL, &side->error));
        side_leave_if_refused(side);
    }
}

static void send_broker(struct side *side, const struct kind *kind, uint32_t rounds)
{
    static struct request request;
    struct handover *handover = &side->shared->handover;
    prepare(side, &request, kind);
    for (uint32_t round = 0; round < rounds; round++) {
        struct convoy_transfer_result result = {.struct_size = sizeof result};
        struct convoy_text_buffer text = {.struct_size = sizeof text,
                                          .data = (char *)side->shared->descriptor,
                                          .capacity = sizeof side->shared->descriptor};
        convoy_transfer staged = 0;
        begin(side, &request);
        side_await(side, &handover->checked, side->round);
        uint64_t start_ns = bench_now_ns();
        side_check(side, "stage_start", side->table->stage_start(side->engine, &request.stage, &staged, &side->error));
        side_finish(side, staged, is_polled(side, kind), &result);
        side_check(side, "descriptor", side->table->descriptor(side->engine, staged, CONVOY_DESCRIPTOR_BINARY, &text,
                                                               &side->error));
        side->shared->descriptor_length = text.length;
        handover_set(&handover->published, side->round);
        await_broker(side, staged);
        handover->samples_ns[round] = bench_now_ns() - start_ns;
        keep_result(side, &result);
        side_check(side, "release", side->table->release(side->engine, staged, &side->error));
    }
    side_await(side, &handover->checked, side->round + 1);
}

/* -- receiving ----------------------------------------------------------------------------------------------------- */

static struct convoy_load load_of(const struct side *side, const struct kind *kind)
{
    struct convoy_load load = {.struct_size = sizeof load,
                               .mode = kind->mode,
                               .path = kind->path == CONVOY_PATH_PULL ? CONVOY_PATH_PULL : CONVOY_PATH_AUTO,
                               .timeout_ns = SIDE_TIMEOUT_NS};
    if (kind->mode == CONVOY_LOAD_COPY && side->memory != NULL) {
        load.destination = side->memory;
        load.destination_bytes = side->stride * side->which->pieces;
    }
    return load;
}

/* Every tensor is there, whole, and this round's. */
static void check_payload(struct side *side, convoy_transfer transfer)
{
    static struct convoy_tensor_view views[SIDE_PIECES_MAX];
    struct convoy_payload payload = {.struct_size = sizeof payload,
                                     .tensors = views,
                                     .tensor_stride = sizeof views[0],
                                     .tensor_capacity = SIDE_PIECES_MAX};
    size_t count = side->which->bytes == 0 ? 0 : side->which->pieces;
    side_check(side, "payload", side->table->payload(side->engine, transfer, &payload, &side->error));
    if (payload.tensor_count != count) {
        bench_die("%s: %zu tensors came, not %zu", side->which->text, payload.tensor_count, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (views[i].bytes != side->which->bytes / side->which->pieces) {
            bench_die("%s: tensor %zu has %llu bytes", side->which->text, i, (unsigned long long)views[i].bytes);
        }
        handover_check(views[i].data, views[i].bytes, side->round, side->which->text);
    }
}

static void receive_direct(struct side *side, const struct kind *kind, uint32_t rounds)
{
    struct handover *handover = &side->shared->handover;
    const struct convoy_load load = load_of(side, kind);
    convoy_transfer transfer = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        side_check(side, "accept_start", side->table->accept_start(side->engine, &load, &transfer, &side->error));
        handover_set(&handover->checked, ++side->round);
        side_finish(side, transfer, is_polled(side, kind), NULL);
        check_payload(side, transfer);
        side_check(side, "release", side->table->release(side->engine, transfer, &side->error));
    }
    handover_set(&handover->checked, side->round + 1);
}

static void receive_broker(struct side *side, const struct kind *kind, uint32_t rounds)
{
    struct handover *handover = &side->shared->handover;
    struct convoy_load load = load_of(side, kind);
    convoy_transfer transfer = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        handover_set(&handover->checked, ++side->round);
        side_await(side, &handover->published, side->round);
        load.descriptor = side->shared->descriptor;
        load.descriptor_length = side->shared->descriptor_length;
        side_check(side, "load_start", side->table->load_start(side->engine, &load, &transfer, &side->error));
        side_finish(side, transfer, is_polled(side, kind), NULL);
        handover_set(&handover->taken, side->round);
        check_payload(side, transfer);
        side_check(side, "release", side->table->release(side->engine, transfer, &side->error));
    }
    handover_set(&handover->checked, side->round + 1);
}

/* -- one after the other without a pause --------------------------------------------------------------------------- */

/* PIECES of the case is how many are under way; the payload is one tensor. */
static uint32_t queued(const struct side *side)
{
    return side->which->pieces < QUEUE_MAX ? side->which->pieces : QUEUE_MAX;
}

static convoy_transfer stage_once(struct side *side, const struct kind *kind)
{
    static struct request request;
    convoy_transfer staged = 0;
    request.shape = side->which->bytes;
    prepare(side, &request, kind);
    request.tensors[0].bytes = request.shape = side->which->bytes;
    request.stage.tensor_count = 1;
    request.stage.request_length = (size_t)snprintf(request.id, sizeof request.id, "bench-stream");
    side_check(side, "stage_start", side->table->stage_start(side->engine, &request.stage, &staged, &side->error));
    side_finish(side, staged, false, NULL);
    return staged;
}

/* A sample is the time from one end to the next. */
static void send_stream(struct side *side, const struct kind *kind, uint32_t rounds)
{
    convoy_transfer transfers[QUEUE_MAX];
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    struct handover *handover = &side->shared->handover;
    uint32_t window = queued(side);
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .path = kind->path,
                                     .peer = side->peer,
                                     .staged = stage_once(side, kind),
                                     .timeout_ns = SIDE_TIMEOUT_NS};
    side_await(side, &handover->checked, 1);
    uint64_t last_ns = bench_now_ns();
    for (uint32_t round = 0; round < rounds + window; round++) {
        convoy_transfer *transfer = &transfers[round % window];
        if (round >= window) {
            side_finish(side, *transfer, false, &result);
            side_check(side, "release", side->table->release(side->engine, *transfer, &side->error));
            uint64_t now_ns = bench_now_ns();
            handover->samples_ns[round - window] = now_ns - last_ns;
            last_ns = now_ns;
        }
        if (round < rounds) {
            side_check(side, "send_start", side->table->send_start(side->engine, NULL, &send, transfer, &side->error));
        }
    }
    keep_result(side, &result);
    side_await(side, &handover->checked, 2);
}

static void receive_stream(struct side *side, const struct kind *kind, uint32_t rounds)
{
    convoy_transfer transfers[QUEUE_MAX];
    uint32_t window = queued(side);
    struct convoy_load load = load_of(side, kind);
    load.destination = NULL; /* several at once: each into a slot of the own pool */
    load.destination_bytes = 0;
    for (uint32_t round = 0; round < rounds + window; round++) {
        convoy_transfer *transfer = &transfers[round % window];
        if (round >= window) {
            side_finish(side, *transfer, false, NULL);
            side_check(side, "release", side->table->release(side->engine, *transfer, &side->error));
        }
        if (round < rounds) {
            side_check(side, "accept_start", side->table->accept_start(side->engine, &load, transfer, &side->error));
        }
        if (round + 1 == window) {
            handover_set(&side->shared->handover.checked, 1);
        }
    }
    handover_set(&side->shared->handover.checked, 2);
}

/* -- cases --------------------------------------------------------------------------------------------------------- */

static const struct kind kinds[] = {
    {"view", CONVOY_PATH_AUTO, CONVOY_LOAD_VIEW, true, send_direct, receive_direct},
    {"copy", CONVOY_PATH_AUTO, CONVOY_LOAD_COPY, false, send_direct, receive_direct},
    {"push", CONVOY_PATH_PUSH, CONVOY_LOAD_COPY, false, send_direct, receive_direct},
    {"pull", CONVOY_PATH_PULL, CONVOY_LOAD_COPY, false, send_direct, receive_direct},
    {"empty", CONVOY_PATH_PUSH, CONVOY_LOAD_COPY, true, send_direct, receive_direct},
    {"notice", CONVOY_PATH_AUTO, CONVOY_LOAD_VIEW, true, send_direct, receive_direct},
    {"broker", CONVOY_PATH_AUTO, CONVOY_LOAD_COPY, true, send_broker, receive_broker},
    {"stream", CONVOY_PATH_AUTO, CONVOY_LOAD_COPY, true, send_stream, receive_stream},
};

static const struct kind *kind_of(const struct handover_case *which)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, which->kind) == 0 && which->pieces <= SIDE_PIECES_MAX) {
            return &kinds[i];
        }
    }
    bench_die("\"%s\": unknown kind, or more than %u pieces", which->text, SIDE_PIECES_MAX);
}

/* Only figures: what cannot be asked stays 0, and the bars that need it are not met. */
static void keep_counters(struct side *side)
{
    struct convoy_peer_info info = {.struct_size = sizeof info};
    struct convoy_text_buffer text = {.struct_size = sizeof text,
                                      .data = side->shared->stats,
                                      .capacity = sizeof side->shared->stats};
    if (side->table->peer_info(side->engine, side->peer, &info, &side->error) == CONVOY_OK) {
        side->shared->sent_bytes = info.sent_bytes;
    }
    if (side->table->engine_describe(side->engine, CONVOY_TOPIC_STATS, &text, &side->error) != CONVOY_OK) {
        side->shared->stats[0] = '\0';
    }
    for (char *at = side->shared->stats; *at != '\0'; at++) {
        *at = *at == '\n' ? ' ' : *at; /* a line of output is a line of JSON */
    }
}

static void run_rank(uint32_t rank, void *context)
{
    const struct job *job = context;
    const struct kind *kind = kind_of(job->which);
    struct side side = {.which = job->which, .shared = job->shared};
    uint64_t room = 4 * (uint64_t)job->which->bytes;
    if (strcmp(kind->name, "stream") == 0) {
        room = 2 * job->which->bytes * ((uint64_t)queued(&side) + 1);
    }
    const struct side_options options = {.rank = rank,
                                         .address = job->options->address,
                                         .settings = job->options->settings,
                                         .pool_bytes = room < POOL_BYTES_MIN ? POOL_BYTES_MIN : room};
    side_open(&side, &options);
    if (rank == 0) {
        kind->send(&side, kind, job->rounds);
        keep_counters(&side);
    } else {
        kind->receive(&side, kind, job->rounds);
    }
}

static void print_refusal(const struct job *job)
{
    (void)printf("{\"peer\": \"convoy\", \"case\": \"%s\", \"refused\": \"", job->which->text);
    for (const char *at = job->shared->refusal; *at != '\0'; at++) {
        (void)putchar(*at == '"' || *at == '\\' || (unsigned char)*at < ' ' ? '\'' : *at);
    }
    (void)printf("\"}\n");
    (void)fflush(stdout);
}

static void print_case(const struct job *job)
{
    static char more[sizeof job->shared->stats + 512];
    const struct side_shared *shared = job->shared;
    const struct side side = {.which = job->which, .stride = (job->which->bytes / job->which->pieces + 511) / 512 * 512};
    bool is_stream = strcmp(job->which->kind, "stream") == 0;
    uint64_t expected = is_stream ? job->which->bytes : job->which->bytes == 0 ? 0 : side_payload_bytes(&side);
    uint32_t first = job->rounds / 10 + (is_stream ? 2 * job->which->pieces : 0); /* until every slot was touched once */
    uint64_t total_ns = 0;
    for (uint32_t i = first; i < job->rounds; i++) {
        total_ns += shared->handover.samples_ns[i];
    }
    double gb_s = (double)(expected * (job->rounds - first)) / (double)(total_ns + 1);
    (void)snprintf(more, sizeof more,
                   ", \"gb_s\": %.3f, \"path\": %u, \"expected_bytes\": %llu, \"payload_bytes\": %llu, "
                   "\"moved_bytes\": %llu, \"sent_bytes\": %llu, \"sends\": %u, \"stats\": %s",
                   gb_s, shared->path, (unsigned long long)expected, (unsigned long long)shared->payload_bytes,
                   (unsigned long long)shared->moved_bytes, (unsigned long long)shared->sent_bytes, job->rounds,
                   shared->stats[0] == '\0' ? "null" : shared->stats);
    handover_print("convoy", job->which->text, job->shared->handover.samples_ns, job->rounds, more);
}

static void run_case(const struct options *options, const char *text, uint32_t index)
{
    struct handover_case which;
    char path[256];
    handover_parse(text, &which);
    (void)kind_of(&which);
    (void)snprintf(path, sizeof path, "%s/transfer-%u", options->is_split ? options->directory : "", index);
    struct job job = {.options = options, .which = &which, .rounds = handover_rounds(which.bytes, options->is_quick)};
    job.rounds += strcmp(which.kind, "stream") == 0 ? 3 * which.pieces : 0;
    job.shared = bench_share(sizeof *job.shared, options->is_split ? path : NULL);
    bench_fork(options->first, options->is_split ? 1 : 2, run_rank, &job);
    if (options->first != 0) {
        return;
    }
    if (job.shared->has_refused != 0) {
        print_refusal(&job);
    } else {
        print_case(&job);
    }
}

static struct options parse(int argc, char **argv)
{
    static const struct option names[] = {{"quick", no_argument, NULL, 'q'},
                                          {"first", required_argument, NULL, 'f'},
                                          {"directory", required_argument, NULL, 'd'},
                                          {"address", required_argument, NULL, 'a'},
                                          {"settings", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    struct options options = {0};
    for (int option = 0; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'q': options.is_quick = true; break;
        case 'f': options.is_split = true, options.first = strcmp(optarg, "0") == 0 ? 0 : 1; break;
        case 'd': options.directory = optarg; break;
        case 'a': options.address = optarg; break;
        case 's': options.settings = optarg; break;
        default: bench_die("unknown option");
        }
    }
    if (options.is_split && options.directory == NULL) {
        bench_die("--first needs --directory");
    }
    return options;
}

int main(int argc, char **argv)
{
    struct options options = parse(argc, argv);
    for (int i = optind; i < argc; i++) {
        run_case(&options, argv[i], (uint32_t)i);
    }
    return 0;
}
