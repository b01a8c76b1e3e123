/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floors of staged transfer: what the machine itself needs to hand a payload from one process to another through
 * shared memory, with bare words to say that it is there and that it was taken.
 *
 *   flags                  nothing but the two words: an empty round trip
 *   single:BYTES:PIECES    one copy, into the mapping that the receiver reads; PIECES copies one after the other. Peers
 *                          floor-memcpy and floor-stream; cold-memcpy and cold-stream write to another place of 256 MiB
 *                          every time, as a pool does that uses what was freed as late as possible
 *   chunked:BYTES          two copies, chunk by chunk, the receiver copies out while the sender goes on. Chunk, window
 *                          and kinds of stores are those that a trial on this machine finds the fastest
 *   sequence:BYTES         two copies, one after the other, with the fastest kinds of stores
 *   copy:BYTES             one process alone, private memory: what tells machines apart (machine-memcpy, machine-stream);
 *                          machine-fresh copies into pages that were never touched, as a host does that allocates anew
 *
 * Usage: transfer_floor [--quick] CASE...
 */
#include "tests/bench/handover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define COLD_BYTES (UINT64_C(256) << 20)
#define TRIAL_ROUNDS 6u
#define PLANS_MAX 64u
#define FLAG_BATCHES 1000u
#define FLAG_STEPS 50u

enum stores { STORES_PLAIN, STORES_STREAM, STORES_NONE };

static const char *const store_names[] = {"memcpy", "stream", "none"};

/* One way to hand over. */
struct plan {
    size_t chunk; /* bytes that are published at a time */
    uint32_t window; /* chunks that the shared memory holds */
    uint32_t pieces; /* copies per chunk */
    uint32_t places; /* of the window, used in turn */
    enum stores in;
    enum stores out; /* NONE: the receiver reads in place */
};

struct job {
    const struct handover_case *which;
    struct handover *handover;
    uint8_t *shared;
    struct plan plans[PLANS_MAX];
    uint32_t plan_count;
    uint32_t rounds;
};

/* One process's side. */
struct side {
    const struct job *job;
    uint8_t *own; /* source, or destination */
    uint64_t chunks; /* of all rounds so far */
    uint64_t round;  /* from 1 */
};

/* -- copies -------------------------------------------------------------------------------------------------------- */

#if defined(__AVX512F__)
typedef __m512i vector;
#define LOAD(from) _mm512_loadu_si512(from)
#define STREAM(to, value) _mm512_stream_si512(to, value)
#elif defined(__AVX__)
typedef __m256i vector;
#define LOAD(from) _mm256_loadu_si256(from)
#define STREAM(to, value) _mm256_stream_si256(to, value)
#elif defined(__SSE2__)
typedef __m128i vector;
#define LOAD(from) _mm_loadu_si128(from)
#define STREAM(to, value) _mm_stream_si128(to, value)
#endif

#if defined(__SSE2__)
/* Past the caches; what does not fill a vector at the end goes the plain way. `to` is aligned to a line. */
static void copy_stream(uint8_t *to, const uint8_t *from, size_t bytes)
{
    size_t at = 0;
    for (; at + 4 * sizeof(vector) <= bytes; at += 4 * sizeof(vector)) {
        const vector *in = (const vector *)(const void *)(from + at);
        vector *out = (vector *)(void *)(to + at);
        vector a = LOAD(in);
        vector b = LOAD(in + 1);
        vector c = LOAD(in + 2);
        vector d = LOAD(in + 3);
        STREAM(out, a);
        STREAM(out + 1, b);
        STREAM(out + 2, c);
        STREAM(out + 3, d);
    }
    (void)memcpy(to + at, from + at, bytes - at);
    _mm_sfence(); /* a release store does not cover streaming stores */
}
#else
static void copy_stream(uint8_t *to, const uint8_t *from, size_t bytes)
{
    (void)memcpy(to, from, bytes);
}
#endif

static void copy(enum stores stores, uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (stores == STORES_STREAM) {
        copy_stream(to, from, bytes);
    } else if (stores == STORES_PLAIN) {
        (void)memcpy(to, from, bytes);
    }
}

/* -- one round ----------------------------------------------------------------------------------------------------- */

static uint8_t *place_of(const struct side *side, const struct plan *plan, uint64_t chunk)
{
    size_t place = plan->places > 1 ? side->round % plan->places : 0;
    return side->job->shared + (place * plan->window + chunk % plan->window) * plan->chunk;
}

static void send_chunk(struct side *side, const struct plan *plan, uint64_t chunk)
{
    struct handover *handover = side->job->handover;
    size_t piece = plan->chunk / plan->pieces;
    if (side->chunks + 1 > plan->window) {
        handover_await(&handover->taken, side->chunks + 1 - plan->window); /* its place is free again */
    }
    uint8_t *to = place_of(side, plan, chunk);
    for (uint32_t i = 0; i < plan->pieces; i++) {
        copy(plan->in, to + i * piece, side->own + chunk * plan->chunk + i * piece, piece);
    }
    handover_set(&handover->published, ++side->chunks);
}

static uint64_t send_round(struct side *side, const struct plan *plan)
{
    struct handover *handover = side->job->handover;
    size_t bytes = side->job->which->bytes;
    side->round++;
    handover_stamp(side->own, bytes, side->round);
    uint64_t start_ns = bench_now_ns();
    for (uint64_t chunk = 0; chunk < bytes / plan->chunk; chunk++) {
        send_chunk(side, plan, chunk);
    }
    handover_await(&handover->taken, side->chunks);
    uint64_t took_ns = bench_now_ns() - start_ns;
    handover_await(&handover->checked, side->round);
    return took_ns;
}

static void receive_round(struct side *side, const struct plan *plan)
{
    struct handover *handover = side->job->handover;
    size_t bytes = side->job->which->bytes;
    side->round++;
    for (uint64_t chunk = 0; chunk < bytes / plan->chunk; chunk++) {
        handover_await(&handover->published, ++side->chunks);
        copy(plan->out, side->own + chunk * plan->chunk, place_of(side, plan, chunk), plan->chunk);
        handover_set(&handover->taken, side->chunks);
    }
    handover_check(plan->out == STORES_NONE ? place_of(side, plan, 0) : side->own, bytes, side->round,
                   side->job->which->text);
    handover_set(&handover->checked, side->round);
}

/* -- choosing and measuring ---------------------------------------------------------------------------------------- */

/* The sender finds the fastest of the plans and tells the receiver, which goes along with every trial. */
static const struct plan *choose(struct side *side, bool is_sender)
{
    const struct job *job = side->job;
    uint64_t fastest_ns = UINT64_MAX;
    uint64_t choice = 0;
    for (uint32_t i = 0; i < job->plan_count && job->plan_count > 1; i++) {
        uint64_t samples_ns[TRIAL_ROUNDS];
        for (uint32_t round = 0; round < TRIAL_ROUNDS; round++) {
            if (is_sender) {
                samples_ns[round] = send_round(side, &job->plans[i]);
            } else {
                receive_round(side, &job->plans[i]);
            }
        }
        uint64_t median_ns = is_sender ? handover_median_ns(samples_ns, TRIAL_ROUNDS) : 0;
        if (is_sender && median_ns < fastest_ns) {
            fastest_ns = median_ns;
            choice = i;
        }
    }
    if (is_sender) {
        handover_set(&job->handover->choice, choice + 1);
    }
    handover_await(&job->handover->choice, 1);
    return &job->plans[job->handover->choice.value - 1];
}

/* All pages are there before the first round, in both processes. */
static void touch(uint8_t *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 4096) {
        (void)__atomic_fetch_or(&memory[at], 0, __ATOMIC_RELAXED);
    }
}

static size_t shared_bytes(const struct job *job)
{
    size_t most = 0;
    for (uint32_t i = 0; i < job->plan_count; i++) {
        size_t bytes = job->plans[i].chunk * job->plans[i].window * job->plans[i].places;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void run_rank(uint32_t rank, void *context)
{
    const struct job *job = context;
    struct side side = {.job = job};
    handover_deadline();
    side.own = bench_share(job->which->bytes, NULL); /* whole pages, aligned */
    handover_fill(side.own, job->which->bytes);
    touch(job->shared, shared_bytes(job));
    bench_barrier(&job->handover->barrier.value, 2);
    const struct plan *plan = choose(&side, rank == 0);
    for (uint32_t round = 0; round < job->rounds; round++) {
        if (rank == 0) {
            job->handover->samples_ns[round] = send_round(&side, plan);
        } else {
            receive_round(&side, plan);
        }
    }
}

static void measure(const char *peer, const struct handover_case *which, struct job *job)
{
    char more[160];
    job->which = which;
    job->handover = bench_share(sizeof *job->handover, NULL);
    job->shared = bench_share(shared_bytes(job), NULL);
    bench_fork(0, 2, run_rank, job);
    const struct plan *plan = &job->plans[job->handover->choice.value - 1];
    (void)snprintf(more, sizeof more, ", \"chunk\": %zu, \"window\": %u, \"in\": \"%s\", \"out\": \"%s\"", plan->chunk,
                   plan->window, store_names[plan->in], store_names[plan->out]);
    handover_print(peer, which->text, job->handover->samples_ns, job->rounds, more);
    bench_unshare(job->handover, sizeof *job->handover);
    bench_unshare(job->shared, shared_bytes(job));
}

static void measure_single(const struct handover_case *which, bool is_quick)
{
    static const char *const warm[] = {"floor-memcpy", "floor-stream"};
    static const char *const cold[] = {"cold-memcpy", "cold-stream"};
    for (uint32_t stores = STORES_PLAIN; stores <= STORES_STREAM; stores++) {
        struct job job = {.plan_count = 1, .rounds = handover_rounds(which->bytes, is_quick)};
        struct plan *plan = &job.plans[0];
        *plan = (struct plan){.chunk = which->bytes,
                              .window = 1,
                              .pieces = which->pieces,
                              .places = 1,
                              .in = (enum stores)stores,
                              .out = STORES_NONE};
        measure(warm[stores], which, &job);
        plan->places = (uint32_t)(COLD_BYTES / which->bytes);
        measure(cold[stores], which, &job);
    }
}

static void measure_sequence(const struct handover_case *which, bool is_quick)
{
    struct job job = {.plan_count = 4, .rounds = handover_rounds(which->bytes, is_quick)};
    for (uint32_t i = 0; i < job.plan_count; i++) {
        job.plans[i] = (struct plan){.chunk = which->bytes,
                                     .window = 1,
                                     .pieces = 1,
                                     .places = 1,
                                     .in = (enum stores)(i / 2),
                                     .out = (enum stores)(i % 2)};
    }
    measure("floor", which, &job);
}

/* Every size of chunk through the whole of the memory and through a window of four, which stays in a cache; with plain and
 * streaming stores on both sides. */
static void measure_chunked(const struct handover_case *which, bool is_quick)
{
    static const size_t chunks[] = {16u << 10, 64u << 10, 256u << 10, 1u << 20, 4u << 20};
    struct job job = {.rounds = handover_rounds(which->bytes, is_quick)};
    for (uint32_t i = 0; i < 8 * sizeof chunks / sizeof chunks[0]; i++) {
        size_t chunk = chunks[i / 8];
        if (which->bytes % chunk != 0 || which->bytes / chunk < 2) {
            continue;
        }
        job.plans[job.plan_count++] = (struct plan){.chunk = chunk,
                                                    .window = i & 4 ? 4 : (uint32_t)(which->bytes / chunk),
                                                    .pieces = 1,
                                                    .places = 1,
                                                    .in = (enum stores)(i >> 1 & 1),
                                                    .out = (enum stores)(i & 1)};
    }
    if (job.plan_count == 0) {
        bench_die("%s: too small to be cut into chunks", which->text);
    }
    measure("floor", which, &job);
}

/* -- the empty round trip ------------------------------------------------------------------------------------------ */

/* In short batches, since one round trip is not much longer than reading the clock. */
static void run_flags(uint32_t rank, void *context)
{
    struct handover *handover = context;
    uint64_t step = 0;
    handover_deadline();
    bench_barrier(&handover->barrier.value, 2);
    for (uint32_t batch = 0; batch < FLAG_BATCHES; batch++) {
        uint64_t start_ns = bench_now_ns();
        for (uint32_t i = 0; i < FLAG_STEPS; i++) {
            step++;
            if (rank == 0) {
                handover_set(&handover->published, step);
                handover_await(&handover->taken, step);
            } else {
                handover_await(&handover->published, step);
                handover_set(&handover->taken, step);
            }
        }
        if (rank == 0) {
            handover->samples_ns[batch] = (bench_now_ns() - start_ns) / FLAG_STEPS;
        }
    }
}

static void measure_flags(const struct handover_case *which)
{
    struct handover *handover = bench_share(sizeof *handover, NULL);
    bench_fork(0, 2, run_flags, handover);
    handover_print("floor", which->text, handover->samples_ns, FLAG_BATCHES, "");
    bench_unshare(handover, sizeof *handover);
}

/* -- the machine --------------------------------------------------------------------------------------------------- */

enum machine { MACHINE_PLAIN, MACHINE_STREAM, MACHINE_FRESH, MACHINE_COUNT };

struct machine_job {
    const struct handover_case *which;
    struct handover *handover;
    enum machine machine;
    uint32_t rounds;
};

/* As an allocator gets them for something large. */
static uint8_t *fresh_pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        bench_die("mmap: out of memory");
    }
    return memory;
}

/* In a process of its own, since pinning is for good. */
static void run_copies(uint32_t rank, void *context)
{
    const struct machine_job *job = context;
    size_t bytes = job->which->bytes;
    uint8_t *from = bench_share(bytes, NULL);
    uint8_t *to = fresh_pages(bytes);
    (void)rank;
    handover_deadline();
    handover_fill(from, bytes);
    touch(to, bytes);
    for (uint32_t round = 0; round < job->rounds; round++) {
        if (job->machine == MACHINE_FRESH) {
            bench_unshare(to, bytes);
            to = fresh_pages(bytes);
        }
        uint64_t start_ns = bench_now_ns();
        copy(job->machine == MACHINE_STREAM ? STORES_STREAM : STORES_PLAIN, to, from, bytes);
        job->handover->samples_ns[round] = bench_now_ns() - start_ns;
    }
}

static void measure_copies(const struct handover_case *which, bool is_quick)
{
    static const char *const peers[MACHINE_COUNT] = {"machine-memcpy", "machine-stream", "machine-fresh"};
    struct machine_job job = {.which = which,
                              .handover = bench_share(sizeof *job.handover, NULL),
                              .rounds = handover_rounds(which->bytes, is_quick)};
    for (uint32_t machine = 0; machine < MACHINE_COUNT; machine++) {
        job.machine = (enum machine)machine;
        bench_fork(0, 1, run_copies, &job);
        handover_print(peers[machine], which->text, job.handover->samples_ns, job.rounds, "");
    }
    bench_unshare(job.handover, sizeof *job.handover);
}

static void measure_case(const char *text, bool is_quick)
{
    struct handover_case which;
    handover_parse(text, &which);
    if (strcmp(which.kind, "flags") == 0) {
        measure_flags(&which);
    } else if (which.bytes == 0 || which.bytes > COLD_BYTES || which.bytes % which.pieces != 0) {
        bench_die("\"%s\": the bytes must be 1 to %llu, and a multiple of the pieces", text,
                  (unsigned long long)COLD_BYTES);
    } else if (strcmp(which.kind, "single") == 0) {
        measure_single(&which, is_quick);
    } else if (strcmp(which.kind, "chunked") == 0) {
        measure_chunked(&which, is_quick);
    } else if (strcmp(which.kind, "sequence") == 0) {
        measure_sequence(&which, is_quick);
    } else if (strcmp(which.kind, "copy") == 0) {
        measure_copies(&which, is_quick);
    } else {
        bench_die("\"%s\": must be flags, single, chunked, sequence or copy", text);
    }
}

int main(int argc, char **argv)
{
    bool is_quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (argc < 2 + is_quick) {
        bench_die("usage: transfer_floor [--quick] CASE...");
    }
    for (int i = 1 + is_quick; i < argc; i++) {
        measure_case(argv[i], is_quick);
    }
    return 0;
}
